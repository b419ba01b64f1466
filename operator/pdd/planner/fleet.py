"""What is planned: engines of three roles, the line between the sites, the rules, the promise, and the cost.

Shared by the analytic model, the simulator, the search and the report. Seconds, bytes, tokens, bits per second; money
in one currency, per hour.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pdd.api.config import HandoffMode
from pdd.planner.kvlaw import KVLaw
from pdd.planner.timing import EngineTimes


class Way(StrEnum):
    """How the sites are used. SAME_SITE: P and its decode engines in one data centre, KV by the local network.
    NAIVE: P in A, decode in B, nothing hides the transfer. PDD: with relay decode and token-id handoff."""

    SAME_SITE = "same-site"
    NAIVE = "naive"
    PDD = "pdd"


@dataclass(frozen=True, slots=True)
class Pool:
    """All engines of one role. chip: name in the catalogue ("" where times were calibrated). accelerators: chips of one
    engine. price_per_h: one engine's price an hour."""

    engines: int
    times: EngineTimes
    chip: str = ""
    accelerators: float = 1.0
    price_per_h: float = 0.0


@dataclass(frozen=True, slots=True)
class LineSpec:
    """The line as KV sees it.

    efficiency: goodput / capacity when saturated. flow_bps: what one stream can carry at most (window, loss); 0: only
    the line limits it. streams: streams that one transfer is striped over. connections: transfers at once (a pool),
    those beyond wait first come, first served; 0: no limit. slow_start: each transfer begins on a cold connection;
    the link keeps its streams warm. local_bps, local_rtt_s: the network inside a site.
    """

    capacity_bps: float
    rtt_s: float
    efficiency: float = 0.95
    flow_bps: float = 0.0
    streams: int = 1
    connections: int = 0
    loss: float = 0.0
    slow_start: bool = False
    local_bps: float = 400e9
    local_rtt_s: float = 0.0001
    price_per_h: float = 0.0


@dataclass(frozen=True, slots=True)
class RuleSpec:
    """The router's constants, as `spec.router` states them."""

    relay_threshold_s: float = 0.2
    handoff_mode: HandoffMode = HandoffMode.AUTO
    one_shot_limit_tokens: int = 64
    abnormal_enabled: bool = True
    abnormal_max_output_tokens: int = 500
    abnormal_min_transfer_s: float = 5.0
    relay_sessions_per_engine: int = 64


@dataclass(frozen=True, slots=True)
class Sla:
    """Promise to the client; None: not promised. Seconds."""

    ttft_p90_s: float | None = None
    ttft_p99_s: float | None = None
    tpot_p99_s: float | None = None


@dataclass(frozen=True, slots=True)
class Fleet:
    """One candidate. For SAME_SITE and NAIVE `relay` has no engines. block_tokens: prefix caches match whole blocks."""

    way: Way
    prefill: Pool
    relay: Pool
    main: Pool
    line: LineSpec
    kv: KVLaw
    rules: RuleSpec = RuleSpec()
    block_tokens: int = 64

    @property
    def cost_per_h(self) -> float:
        """Price of all engines and the line, an hour. A same-site fleet has no line."""
        pools = sum(pool.engines * pool.price_per_h for pool in (self.prefill, self.relay, self.main))
        return pools + (0.0 if self.way is Way.SAME_SITE else self.line.price_per_h)
