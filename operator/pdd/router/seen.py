"""The last requests, in four numbers each: what the operator's advice (`status.plan`) is made of. No text, no ids."""

from __future__ import annotations

from collections import deque
from typing import Any

MAX_ROWS = 2048
WINDOW_S = 600.0


class SeenRequests:
    """A ring of the requests that got at least one token, and one of the times when a request was refused for load."""

    def __init__(self) -> None:
        self._rows: deque[tuple[float, int, int, int]] = deque(maxlen=MAX_ROWS)
        self._refused_s: deque[float] = deque(maxlen=MAX_ROWS)

    def add(self, arrived_s: float, prompt_tokens: int, cached_tokens: int, output_tokens: int) -> None:
        """A request is over. cached_tokens: of the prompt, found in P's cache."""
        cached = max(0, min(cached_tokens, prompt_tokens))
        self._rows.append((arrived_s, prompt_tokens, cached, output_tokens))

    def add_refused(self, now_s: float) -> None:
        """A request was answered 429."""
        self._refused_s.append(now_s)

    def to_object(self, now_s: float, uptime_s: float, open_requests: int) -> dict[str, Any]:
        """Requests that arrived in the last `reach_s` seconds, each as [age_s, prompt, cached, output].

        reach_s: WINDOW_S, or less for a young router or where a ring is too short for the window. unserved: arrived
        beside them: refused, or open now (`open_requests`: being served or queued). Without these an overload would
        look like the load that is just borne.
        """
        reach_s = min(WINDOW_S, uptime_s)
        if len(self._rows) == MAX_ROWS:
            reach_s = min(reach_s, now_s - min(row[0] for row in self._rows))
        if len(self._refused_s) == MAX_ROWS:
            reach_s = min(reach_s, now_s - self._refused_s[0])
        rows = [
            [round(now_s - arrived_s, 3), prompt, cached, output]
            for arrived_s, prompt, cached, output in self._rows
            if now_s - arrived_s <= reach_s
        ]
        refused = sum(now_s - at_s <= reach_s for at_s in self._refused_s)
        return {"reach_s": round(reach_s, 3), "unserved": refused + open_requests, "rows": rows}
