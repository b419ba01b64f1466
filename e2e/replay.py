"""Sends the requests of a trace at their times, and sums up what came."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from e2e.client import Answer, Client, StreamBroken

WORKERS = 128


@dataclass(frozen=True, slots=True)
class Replay:
    """Answers in the order of the requests; an exception where a stream broke. late_s: the latest departure."""

    answers: tuple[Answer | StreamBroken | OSError, ...]
    late_s: float
    wall_s: float

    @property
    def answered(self) -> list[Answer]:
        return [one for one in self.answers if isinstance(one, Answer) and one.status == 200]


def replay(client: Client, arrivals: Sequence[tuple[float, dict[str, Any]]]) -> Replay:
    """`arrivals`: (seconds since the start, body for /v1/completions). Each request leaves at its time, whatever became
    of the others."""
    started = time.monotonic()
    late: list[float] = []

    def send(at_s: float, body: dict[str, Any]) -> Answer | StreamBroken | OSError:
        time.sleep(max(0.0, started + at_s - time.monotonic()))
        late.append(time.monotonic() - started - at_s)
        try:
            return client.stream("/v1/completions", body)
        except (StreamBroken, OSError) as error:
            return error

    with ThreadPoolExecutor(WORKERS) as pool:
        answers = tuple(pool.map(send, *zip(*arrivals, strict=True)))
    return Replay(answers, max(late), time.monotonic() - started)


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of them lie (nearest rank); NaN of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def summarise(run: Replay, carried_bytes: int, missing_bytes: int) -> str:
    """One line for people."""
    answered = run.answered
    pipelines = Counter(answer.pipeline for answer in answered)
    ttft = [answer.ttft_ms for answer in answered]
    itl = [b - a for answer in answered for a, b in zip(answer.at_ms, answer.at_ms[1:], strict=False)]
    made: Counter[str] = Counter()
    for answer in answered:
        made.update(answer.producers)
    shares = ", ".join(f"{name} {count}" for name, count in sorted(pipelines.items()))
    return (
        f"{len(answered)} of {len(run.answers)} answered in {run.wall_s:.0f} s; pipelines {shares}; "
        f"tokens {dict(made)}; line {carried_bytes / 1e6:.1f} MB for {missing_bytes / 1e6:.1f} MB missing "
        f"({carried_bytes / missing_bytes:.3f}); TTFT p50 {quantile(ttft, 0.5):.0f} p99 {quantile(ttft, 0.99):.0f} ms; "
        f"gap between tokens p50 {quantile(itl, 0.5):.0f} p99 {quantile(itl, 0.99):.0f} ms"
    )
