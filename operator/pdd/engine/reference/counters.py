"""What the engine counts, as plain numbers written by the engine's thread and read by /metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from pdd.engine.reference.sequence import Usage

TIME_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
BYTE_BOUNDS = tuple(float(1 << shift) for shift in range(12, 33, 2))


@dataclass(slots=True)
class Histogram:
    """Cumulative at rendering, plain counts here. bounds are upper and inclusive."""

    bounds: tuple[float, ...] = TIME_BOUNDS_S
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


def _bytes_histogram() -> Histogram:
    return Histogram(BYTE_BOUNDS)


@dataclass(slots=True)
class Counters:
    """Totals since the start. `*_tokens` count prompt tokens by where their KV came from."""

    prompt_tokens: int = 0
    generated: int = 0
    local_cached_tokens: int = 0
    remote_tokens: int = 0
    computed_tokens: int = 0
    external_queries_tokens: int = 0
    preemptions: int = 0
    rejections: int = 0
    failed_transfers: int = 0
    transferred_bytes: int = 0
    finished_by_reason: Counter[str] = field(default_factory=Counter)
    queue_s: Histogram = field(default_factory=Histogram)
    first_token_s: Histogram = field(default_factory=Histogram)
    inter_token_s: Histogram = field(default_factory=Histogram)
    prefill_s: Histogram = field(default_factory=Histogram)
    decode_s: Histogram = field(default_factory=Histogram)
    transfer_s: Histogram = field(default_factory=Histogram)
    transfer_bytes: Histogram = field(default_factory=_bytes_histogram)

    def admitted(self, usage: Usage, prompt_tokens: int, queued_s: float) -> None:
        self.prompt_tokens += prompt_tokens
        self.local_cached_tokens += usage.local_cached_tokens
        self.remote_tokens += usage.remote_tokens
        self.external_queries_tokens += prompt_tokens - usage.local_cached_tokens
        self.computed_tokens += usage.computed_tokens
        self.queue_s.observe(queued_s)

    def emitted(self, gap_s: float, *, first: bool) -> None:
        self.generated += 1
        (self.first_token_s if first else self.inter_token_s).observe(gap_s)

    def phases(self, prefill_s: float, decode_s: float) -> None:
        self.prefill_s.observe(prefill_s)
        self.decode_s.observe(decode_s)

    def loaded(self, count_bytes: int, took_s: float, *, failed: bool) -> None:
        self.failed_transfers += failed
        self.transferred_bytes += count_bytes
        if not failed:
            self.transfer_s.observe(took_s)
            self.transfer_bytes.observe(float(count_bytes))

    def finished(self, reason: str) -> None:
        self.finished_by_reason[reason] += 1
