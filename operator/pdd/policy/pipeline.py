"""The pipeline's choice (D8): which engines serve a request, and why.

P-MD when the KV crosses the line faster than a user would notice; P-RLD-MD otherwise. P-RLD is no pipeline of its own:
only abnormal traffic (RLD would be done before the KV could cross) and a line that cannot be used take it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

HYSTERESIS = 0.1
"""Half the width of the dead band around the relay threshold, as a share of it."""


class Pipeline(StrEnum):
    """As the response header `x-pdd-pipeline` says it."""

    P_MD = "P-MD"
    P_RLD_MD = "P-RLD-MD"
    P_RLD = "P-RLD"
    P = "P"
    MD = "MD"
    PINNED = "pinned"
    SINGLE = "single"
    REFUSED = "refused"


class Reason(StrEnum):
    """Why; CamelCase and bounded in number, for headers, log fields and metric labels."""

    PREFIX_CACHED = "PrefixCached"
    SHORT_TRANSFER = "ShortTransfer"
    LONG_TRANSFER = "LongTransfer"
    RELAY_FULL = "RelayFull"
    NO_RELAY_ENGINE = "NoRelayEngine"
    ABNORMAL_TRAFFIC = "AbnormalTraffic"
    LINE_LOST = "LineLost"
    LINE_RECOVERING = "LineRecovering"
    OVERRIDE = "Override"
    ONE_TOKEN = "OneToken"
    STOPPED_AT_FIRST_TOKEN = "StoppedAtFirstToken"
    PINNED_FEATURE = "PinnedFeature"
    PREFILL_UNAVAILABLE = "PrefillUnavailable"
    RELAY_FULL_LINE_LOST = "RelayFullAndLineLost"
    NO_DECODE_ENGINE = "NoDecodeEngine"


@dataclass(frozen=True, slots=True)
class Rules:
    """The policy's constants. Seconds and tokens."""

    relay_threshold_s: float
    abnormal_enabled: bool
    abnormal_max_output_tokens: int
    abnormal_min_transfer_s: float


@dataclass(frozen=True, slots=True)
class Situation:
    """What the choice looks at.

    wait_s: predicted wait for the missing KV at the best MD (`line.compute_wait_s`). missing_bytes: that KV.
    main_ready: an MD can be reached. line_open: False while local mode, or its ramp, keeps this request in A.
    relay_exists, relay_free: an RLD is up; one of them has a free session.
    previous: the pipeline last chosen between P-MD and P-RLD-MD (hysteresis), None at first.
    pinned: the request must be decoded by one engine from its first token.
    """

    wait_s: float
    missing_bytes: int
    max_output_tokens: int
    main_ready: bool
    line_open: bool
    relay_exists: bool
    relay_free: bool
    previous: Pipeline | None = None
    pinned: bool = False
    override: Pipeline | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """crosses_line: MD takes part."""

    pipeline: Pipeline
    reason: Reason
    crosses_line: bool = False


def choose_pipeline(rules: Rules, now: Situation) -> Choice:
    """The pipeline of one request. Pure; total: every situation has an answer, REFUSED the last."""
    if now.override is not None:
        return _override(now, now.override)
    if not (now.main_ready and now.line_open):
        return _local(now)
    if now.pinned:
        return Choice(Pipeline.PINNED, Reason.PINNED_FEATURE, True)
    route = choose_route(
        now.wait_s,
        now.max_output_tokens,
        now.relay_free,
        _CODES.get(now.previous, NO_ROUTE),
        rules.relay_threshold_s,
        rules.abnormal_enabled,
        rules.abnormal_max_output_tokens,
        rules.abnormal_min_transfer_s,
    )
    if route == ABNORMAL:
        return Choice(Pipeline.P_RLD, Reason.ABNORMAL_TRAFFIC)
    if route == RELAYED:
        return Choice(Pipeline.P_RLD_MD, Reason.LONG_TRANSFER, True)
    if route == DIRECT:
        cached = now.missing_bytes == 0
        return Choice(Pipeline.P_MD, Reason.PREFIX_CACHED if cached else Reason.SHORT_TRANSFER, True)
    return Choice(Pipeline.P_MD, Reason.RELAY_FULL if now.relay_exists else Reason.NO_RELAY_ENGINE, True)


NO_ROUTE, DIRECT, RELAYED, ABNORMAL, DIRECT_FOR_WANT = -1, 0, 1, 2, 3
"""Answers of `choose_route`. DIRECT_FOR_WANT: P-MD although the wait is long, since no RLD is free."""
_CODES: dict[Pipeline | None, int] = {Pipeline.P_MD: DIRECT, Pipeline.P_RLD_MD: RELAYED}


def choose_route(
    wait_s: float,
    max_output_tokens: int,
    relay_free: bool,
    previous: int,
    relay_threshold_s: float,
    abnormal_enabled: bool,
    abnormal_max_output_tokens: int,
    abnormal_min_transfer_s: float,
) -> int:
    """The choice with everything up, in plain numbers: the simulator compiles this very function.

    previous: DIRECT, RELAYED or NO_ROUTE. The threshold is moved away from it so that requests near it do not flap.
    """
    abnormal = max_output_tokens <= abnormal_max_output_tokens and wait_s >= abnormal_min_transfer_s
    if abnormal_enabled and abnormal and relay_free:
        return ABNORMAL
    threshold_s = relay_threshold_s
    if previous == DIRECT:
        threshold_s = relay_threshold_s * (1 + HYSTERESIS)
    elif previous == RELAYED:
        threshold_s = relay_threshold_s * (1 - HYSTERESIS)
    if wait_s <= threshold_s:
        return DIRECT
    return RELAYED if relay_free else DIRECT_FOR_WANT


def _local(now: Situation) -> Choice:
    """Nothing may cross the line: RLD serves to the end, within its bound."""
    reason = Reason.LINE_RECOVERING if now.main_ready else Reason.LINE_LOST
    if now.relay_free:
        return Choice(Pipeline.PINNED if now.pinned else Pipeline.P_RLD, reason)
    if now.main_ready:  # the ramp is a preference, not a wall: better over a young line than refused
        return Choice(Pipeline.PINNED if now.pinned else Pipeline.P_MD, reason, True)
    if now.relay_exists:
        return Choice(Pipeline.REFUSED, Reason.RELAY_FULL_LINE_LOST)
    return Choice(Pipeline.REFUSED, Reason.NO_DECODE_ENGINE)


def _override(now: Situation, wanted: Pipeline) -> Choice:
    """A bench's or a demo's wish, as far as the engines that it needs are there."""
    needs_main = wanted in (Pipeline.P_MD, Pipeline.P_RLD_MD)
    needs_relay = wanted in (Pipeline.P_RLD, Pipeline.P_RLD_MD)
    if (needs_main and not now.main_ready) or (needs_relay and not now.relay_free):
        return Choice(Pipeline.REFUSED, Reason.NO_DECODE_ENGINE)
    return Choice(wanted, Reason.OVERRIDE, needs_main)
