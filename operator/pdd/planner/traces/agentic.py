"""Requests of coding agents (CSV), by session, with the hit of each against the earlier requests of its session.

The file says when a request came within its session, not when the session began: sessions start `session_gap_s` apart.
Depth 0 is the agent itself. Deeper requests are sub-agents, one after another in the file though they ran at once: a
time that falls, or a prompt without a hit, begins the next one. Each is a conversation of its own (`Load.session`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pdd.planner.load import Load
from pdd.planner.traces.columns import Columns, read_rows
from pdd.planner.traces.text import Place, read_number, read_whole

COLUMNS = (
    "session", "agent_depth", "t_s", "input_tokens", "output_tokens", "hit_tokens_intra_session", "api_time_s",
    "think_time_s",
)  # fmt: skip
SESSION_GAP_S = 60.0
MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class _Turn:
    """The request before: its row, its time in the session, when its answer had ended."""

    index: int
    t_s: float
    end_s: float
    conversation: int


@dataclass(slots=True)
class _Sessions:
    """What is open while the file is read: the current session (they stand one after another) and its last turns."""

    name: str = ""
    count: int = 0
    conversations: int = 0
    done: set[str] = field(default_factory=set)
    last: dict[int, _Turn] = field(default_factory=dict)

    def enter(self, place: Place, name: str) -> None:
        if name == self.name:
            return
        if not name:
            raise place.error("session", name, "is missing")
        if name in self.done:
            raise place.error("session", name, "continues after another began: sort by session, then time")
        self.done.add(name)
        self.name = name
        self.count += 1
        self.last.clear()


def read_agentic(path: Path, limit: int | None = None, session_gap_s: float = SESSION_GAP_S) -> Load:
    """The (first `limit`) requests with sessions and think times, by arrival. Raises InvalidInput."""
    columns, sessions = Columns(), _Sessions()
    for place, cells in read_rows(path, COLUMNS):
        _add(columns, sessions, place, cells, session_gap_s)
        if len(columns) == limit:
            break
    return columns.to_load()


def _add(columns: Columns, sessions: _Sessions, place: Place, cells: list[str], session_gap_s: float) -> None:
    name, depth_text, t_text, inputs_text, outputs_text, hit_text, api_text, think_text = cells
    sessions.enter(place, name)
    depth = read_whole(place, "agent_depth", depth_text, high=MAX_DEPTH)
    t_s = read_number(place, "t_s", t_text)
    inputs = read_whole(place, "input_tokens", inputs_text, low=1)
    outputs = read_whole(place, "output_tokens", outputs_text)
    hit = read_whole(place, "hit_tokens_intra_session", hit_text)
    if hit > inputs:
        raise place.error("hit_tokens_intra_session", hit, f"more than the prompt's {inputs} tokens")
    api_s = read_number(place, "api_time_s", api_text) if api_text else 0.0
    last = sessions.last.get(depth)
    if last is not None and depth and (t_s < last.t_s or hit == 0):
        last = None
    if last is not None and t_s < last.t_s:
        raise place.error(
            "t_s", t_text, f"earlier than {last.t_s:g} before it in the session: sort by session, then time"
        )
    if think_text:
        think_s = read_number(place, "think_time_s", think_text)
    else:
        think_s = max(0.0, t_s - last.end_s) if last is not None else 0.0
    if last is None:
        conversation = sessions.conversations
        sessions.conversations += 1
    else:
        conversation = last.conversation
    sessions.last[depth] = _Turn(len(columns), t_s, t_s + api_s, conversation)
    begun_s = (sessions.count - 1) * session_gap_s
    columns.add(begun_s + t_s, inputs, outputs, hit, conversation, last.index if last else -1, think_s if last else 0.0)
