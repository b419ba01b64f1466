"""Predicted beside measured: the same load simulated and served, and the signed errors of what was predicted.

Pure: `pdd bench fidelity` measures and simulates. An error is predicted / measured - 1: negative is optimistic for a
time. Tolerances are stated beforehand and never widened to make a row hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pdd.planner.load import Blocks, Load

TOLERANCES = {"ttft_p50_s": 0.15, "ttft_p99_s": 0.25, "throughput_tokens_per_s": 0.10, "tpot_p50_s": 0.25}
"""Of the signed error's size; TPOT's is our own, the others are the project's promise."""
LEAST_FOR_P99 = 100
"""Requests below which a P99 is the maximum in other words and is not given."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a replay. at_s: arrival since the start. prompt: token ids."""

    at_s: float
    prompt: tuple[int, ...]
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Served:
    """One request as its client saw it, measured or simulated. Seconds since the start of the replay."""

    at_s: float
    first_s: float
    done_s: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Figures of one way. Seconds and tokens a second; None where there are too few requests.

    throughput: output tokens of all requests over the time from the first arrival to the last token.
    """

    requests: int
    ttft_p50_s: float | None
    ttft_p90_s: float | None
    ttft_p99_s: float | None
    tpot_p50_s: float | None
    throughput_tokens_per_s: float | None


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of one way. error: predicted / measured - 1, None where one of them is missing."""

    way: str
    figure: str
    measured: float | None
    predicted: float | None
    tolerance: float

    @property
    def error(self) -> float | None:
        if self.measured is None or self.predicted is None or self.measured <= 0:
            return None
        return self.predicted / self.measured - 1.0

    @property
    def holds(self) -> bool | None:
        """None where nothing can be said."""
        error = self.error
        return None if error is None else abs(error) <= self.tolerance


def summarise(served: Sequence[Served]) -> Outcome:
    """Percentiles by linear interpolation; TPOT is a request's mean time between tokens, of those with two or more."""
    if not served:
        return Outcome(0, None, None, None, None, None)
    ttft = np.array([s.first_s - s.at_s for s in served])
    tpot = np.array([(s.done_s - s.first_s) / (s.tokens - 1) for s in served if s.tokens > 1])
    span_s = max(s.done_s for s in served) - min(s.at_s for s in served)
    return Outcome(
        requests=len(served),
        ttft_p50_s=float(np.percentile(ttft, 50)),
        ttft_p90_s=float(np.percentile(ttft, 90)),
        ttft_p99_s=float(np.percentile(ttft, 99)) if len(ttft) >= LEAST_FOR_P99 else None,
        tpot_p50_s=float(np.percentile(tpot, 50)) if len(tpot) else None,
        throughput_tokens_per_s=sum(s.tokens for s in served) / span_s if span_s > 0 else None,
    )


def compare(way: str, measured: Outcome, predicted: Outcome) -> list[Row]:
    """One row for each figure that has a tolerance."""
    return [
        Row(way, figure, getattr(measured, figure), getattr(predicted, figure), tolerance)
        for figure, tolerance in TOLERANCES.items()
    ]


def make_load(requests: Sequence[Request], block_tokens: int) -> Load:
    """The requests as the simulator takes them: a whole block of `block_tokens` tokens has an id for its whole prefix,
    so equal ids mean equal KV, as the engines' prefix caches see it. `requests` are sorted by arrival."""
    known: dict[tuple[int, tuple[int, ...]], int] = {}
    ids: list[int] = []
    offsets = [0]
    hits: list[int] = []
    for request in requests:
        parent, hit, hitting = -1, 0, True
        for start in range(0, len(request.prompt) - block_tokens + 1, block_tokens):
            key = (parent, request.prompt[start : start + block_tokens])
            hitting = hitting and key in known
            hit += block_tokens if hitting else 0
            parent = known.setdefault(key, len(known))
            ids.append(parent)
        offsets.append(len(ids))
        hits.append(hit)
    n = len(requests)
    none = np.full(n, -1, dtype=np.int64)
    return Load(
        arrival_s=np.array([r.at_s for r in requests], dtype=np.float64),
        input_tokens=np.array([len(r.prompt) for r in requests], dtype=np.int64),
        output_tokens=np.array([r.output_tokens for r in requests], dtype=np.int64),
        hit_tokens=np.array(hits, dtype=np.int64),
        session=none,
        previous=none.copy(),
        think_s=np.zeros(n),
        blocks=Blocks(np.array(offsets, dtype=np.int64), np.array(ids, dtype=np.int64), block_tokens),
    )
