"""What a run gives: percentiles with intervals, shares, bytes, utilisation, goodput, and the requests themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pdd.planner.fleet import Sla, Way
from pdd.planner.sim.percentiles import Estimate, estimate, refusal

SHARES = (0.5, 0.9, 0.99)
GROWTH, LEAST_FOR_GROWTH = 1.5, 500
ROUTES = {0: "P-MD", 1: "P-RLD-MD", 2: "P-RLD", 3: "P-MD", 4: "P", 5: "same-site"}
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Columns:
    """The requests of a run in order of arrival, those of the warm-up left out; [n] each.

    arrival_s, first_s, second_s, done_s: times; NaN where there is no second token. landed_s: NaN if nothing crossed or
    nothing waited for it. route: code of ROUTES. relayed: tokens that relay decode made. stall_s: pause at the switch,
    NaN without one. payload_bytes: what main decode lacked. p_hit, m_hit: tokens found in the caches.
    """

    arrival_s: Floats
    first_s: Floats
    second_s: Floats
    done_s: Floats
    landed_s: Floats
    stall_s: Floats
    input_tokens: npt.NDArray[np.int64]
    output_tokens: npt.NDArray[np.int64]
    p_hit: npt.NDArray[np.int64]
    m_hit: npt.NDArray[np.int64]
    relayed: npt.NDArray[np.int64]
    route: npt.NDArray[np.int8]
    payload_bytes: Floats

    @property
    def first_token_s(self) -> Floats:
        """Arrival to the first token, which prefill makes and which is sent at once. [n]"""
        return self.first_s - self.arrival_s

    @property
    def ttft_s(self) -> Floats:
        """Arrival until tokens flow: the first token of a decode engine, the transfer before it included where nothing
        hides it. An answer of one token flows at once. [n]"""
        flows = np.where(self.output_tokens > 1, self.second_s, self.first_s)
        return np.asarray(flows - self.arrival_s, np.float64)

    @property
    def second_gap_s(self) -> Floats:
        """First token to second token: what the client sees of the transfer. Of requests with two tokens or more."""
        has = self.output_tokens > 1
        return self.second_s[has] - self.first_s[has]

    @property
    def tpot_s(self) -> Floats:
        """Seconds a token once tokens flow, the handoff's pause included. Of requests with three tokens or more."""
        has = self.output_tokens > 2
        return (self.done_s[has] - self.second_s[has]) / (self.output_tokens[has] - 2)

    @property
    def e2e_s(self) -> Floats:
        """Arrival to the last token. [n]"""
        return self.done_s - self.arrival_s


@dataclass(frozen=True, slots=True)
class SimResult:
    """One run. Percentiles by share (0.5, 0.9, 0.99), None where too few requests say it (`notes` says why):
    `first_token` (P's), `ttft` (until tokens flow; what the SLA means), `second_gap`, `tpot`, `e2e`, as `Columns` says.

    pipelines: share of requests. utilisation: mean busy share of each stage's engines, of the line its share of usable
    bits. mean_sequences: sequences in decode, mean over time, all engines of a stage together. max_stall_s: longest
    pause at a switch. throughput_per_s: answers that end a second while requests come. goodput_per_s:
    share of requests within the SLA's P99 limits (P90 where it has no P99) x arrivals a second.
    """

    way: Way
    requests: int
    span_s: float
    first_token: Mapping[float, Estimate | None]
    ttft: Mapping[float, Estimate | None]
    second_gap: Mapping[float, Estimate | None]
    tpot: Mapping[float, Estimate | None]
    e2e: Mapping[float, Estimate | None]
    pipelines: Mapping[str, float]
    relay_token_share: float
    mean_hit: float
    line_bytes: float
    utilisation: Mapping[str, float]
    mean_sequences: Mapping[str, float]
    throughput_per_s: float
    goodput_per_s: float
    mean_stall_s: float
    max_stall_s: float
    relay_engines: tuple[tuple[float, int, str], ...]
    notes: tuple[str, ...]
    columns: Columns
    growth: tuple[float, float] | None = None
    """Median TTFT of the second and of the last fifth of the requests, where waits grow through the run: the fleet does
    not keep up (or the load rises), and the percentiles say how long the run was."""


def build_result(
    way: Way, columns: Columns, sla: Sla, utilisation: Mapping[str, float], mean_sequences: Mapping[str, float],
    line_bytes: float,
    relay_engines: tuple[tuple[float, int, str], ...] = (),
) -> SimResult:  # fmt: skip
    """All figures from the columns."""
    n = len(columns.arrival_s)
    ttft, tpot = columns.ttft_s, columns.tpot_s
    span_s = float(columns.done_s.max() - columns.arrival_s[0]) if n else 0.0
    good = np.ones(n, bool)
    if sla.ttft_p99_s is not None:
        good &= ttft <= sla.ttft_p99_s
    elif sla.ttft_p90_s is not None:
        good &= ttft <= sla.ttft_p90_s
    if sla.tpot_p99_s is not None:
        many = columns.output_tokens > 2
        good[many] &= tpot <= sla.tpot_p99_s
    tokens = int(columns.output_tokens.sum())
    stalls = columns.stall_s[~np.isnan(columns.stall_s)]
    names = {name: 0.0 for name in dict.fromkeys(ROUTES.values())}
    for code, count in zip(*np.unique(columns.route, return_counts=True), strict=True):
        names[ROUTES[int(code)]] += float(count) / n
    of_ttft, of_tpot = _percentiles(ttft), _percentiles(tpot)
    notes = [refusal(n, share) for share, found in of_ttft.items() if found is None]
    # Answers of one or two tokens have no pace: there may be too few for a P99 of TPOT where TTFT has enough.
    notes += [
        f"TPOT: {refusal(len(tpot), share)}"
        for share, found in of_tpot.items()
        if found is None and of_ttft[share] is not None
    ]
    prompt = np.maximum(columns.input_tokens, 1)
    return SimResult(
        way=way,
        requests=n,
        span_s=span_s,
        first_token=_percentiles(columns.first_token_s),
        ttft=of_ttft,
        second_gap=_percentiles(columns.second_gap_s),
        tpot=of_tpot,
        e2e=_percentiles(columns.e2e_s),
        pipelines={name: share for name, share in names.items() if share > 0},
        relay_token_share=float(columns.relayed.sum()) / tokens if tokens else 0.0,
        mean_hit=float(np.mean(columns.m_hit / prompt)) if n else 0.0,
        line_bytes=line_bytes,
        utilisation=utilisation,
        mean_sequences=mean_sequences,
        throughput_per_s=_rate_inside(columns, span_s),
        goodput_per_s=float(good.mean()) * _arrival_rate(columns, span_s) if n else 0.0,
        mean_stall_s=float(stalls.mean()) if len(stalls) else 0.0,
        max_stall_s=float(stalls.max()) if len(stalls) else 0.0,
        relay_engines=relay_engines,
        notes=tuple(notes),
        columns=columns,
        growth=find_growth(ttft),
    )


def find_growth(ttft_s: Floats) -> tuple[float, float] | None:
    """(median of the second fifth, of the last fifth) if the last is GROWTH times as much and a second more. Where a
    queue is stable the medians of many requests differ by little, where it is not they grow without end."""
    n = len(ttft_s)
    if n < LEAST_FOR_GROWTH:
        return None
    early, late = float(np.median(ttft_s[n // 5 : 2 * n // 5])), float(np.median(ttft_s[4 * n // 5 :]))
    return (early, late) if late > GROWTH * early and late > early + 1.0 else None


def _percentiles(samples: Floats) -> dict[float, Estimate | None]:
    return {share: estimate(samples, share) for share in SHARES}


def _arrival_rate(columns: Columns, span_s: float) -> float:
    """Requests a second while they come; the drain after the last arrival would make a short run look slow."""
    n, come_s = len(columns.arrival_s), float(columns.arrival_s[-1] - columns.arrival_s[0])
    if come_s > 0:
        return (n - 1) / come_s
    return n / span_s if span_s > 0 else 0.0


def _rate_inside(columns: Columns, span_s: float) -> float:
    """Answers that end a second, between the first and the last arrival."""
    if not len(columns.arrival_s):
        return 0.0
    start, end = float(columns.arrival_s[0]), float(columns.arrival_s[-1])
    if end <= start:
        return len(columns.arrival_s) / span_s if span_s > 0 else 0.0
    return float((columns.done_s <= end).sum()) / (end - start)


def trace_request(columns: Columns, index: int) -> dict[str, Any]:
    """The time line of one request, seconds from its arrival; None for what did not happen."""
    start = float(columns.arrival_s[index])

    def since(value: float) -> float | None:
        return None if np.isnan(value) else float(value) - start

    return {
        "pipeline": ROUTES[int(columns.route[index])],
        "inputTokens": int(columns.input_tokens[index]),
        "outputTokens": int(columns.output_tokens[index]),
        "cachedTokens": int(columns.m_hit[index]),
        "payloadBytes": float(columns.payload_bytes[index]),
        "firstTokenS": since(columns.first_s[index]),
        "secondTokenS": since(columns.second_s[index]),
        "landedS": since(columns.landed_s[index]),
        "stallS": None if np.isnan(columns.stall_s[index]) else float(columns.stall_s[index]),
        "relayTokens": int(columns.relayed[index]),
        "doneS": since(columns.done_s[index]),
    }
