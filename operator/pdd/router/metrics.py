"""All metrics of the router, `pdd_router_*`. Labels are bounded: never a request id, never a client's text."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from pdd.router.events import Record, Role
from pdd.router.fleet import Fleet
from pdd.router.ledger import Ledger

_TTFT = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 8, 13, 20, 40, 80)
_GAP = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2, 5, 15)


class Metrics:
    """One registry a process."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.requests = Counter(
            "pdd_router_requests_total", "Requests answered or failed, by pipeline, reason of its choice, and outcome.",
            ["pipeline", "reason", "outcome"], registry=registry,
        )  # fmt: skip
        self.refused = Counter(
            "pdd_router_refused_total", "Requests refused before any engine was asked.", ["reason"], registry=registry
        )
        self.tokens = Counter(
            "pdd_router_output_tokens_total",
            "Output tokens that clients got, by producer.",
            ["producer"],
            registry=registry,
        )
        self.prompt_tokens = Counter("pdd_router_prompt_tokens_total", "Prompt tokens of requests.", registry=registry)
        self.hits = Histogram(
            "pdd_router_prompt_hit_ratio", "Share of a prompt that P had in its cache.",
            buckets=(0.5, 0.9, 0.95, 0.97, 0.98, 0.99, 1.0), registry=registry,
        )  # fmt: skip
        self.ttft = Histogram(
            "pdd_router_time_to_first_token_seconds", "From arrival to the first token.", ["pipeline"],
            buckets=_TTFT, registry=registry,
        )  # fmt: skip
        self.itl = Histogram(
            "pdd_router_inter_token_latency_seconds", "Between two tokens of a stream.", ["pipeline"],
            buckets=_GAP, registry=registry,
        )  # fmt: skip
        self.stall = Histogram(
            "pdd_router_handoff_stall_seconds", "The gap between RLD's last and MD's first token.", ["mode"],
            buckets=_GAP, registry=registry,
        )  # fmt: skip
        self.land = Histogram(
            "pdd_router_landing_seconds", "From the first token until the KV had landed at MD.", ["pipeline"],
            buckets=_TTFT, registry=registry,
        )  # fmt: skip
        self.handoffs = Counter(
            "pdd_router_handoffs_total",
            "Handoffs begun, by mode and how they ended.",
            ["mode", "result"],
            registry=registry,
        )
        self.payload = Counter(
            "pdd_router_handoff_payload_bytes_total",
            "Bytes of the calls that handed eager tokens to MD.",
            registry=registry,
        )
        self.retries = Counter(
            "pdd_router_retries_total", "Calls that failed and were replaced, by role and reason.", ["role", "reason"],
            registry=registry,
        )  # fmt: skip
        self.calls = Counter("pdd_router_engine_calls_total", "Calls to engines.", ["role", "kind"], registry=registry)
        self.diverged = Counter(
            "pdd_router_diverged_tokens_total",
            "Times two engines disagreed on a token (must stay 0).",
            registry=registry,
        )
        self.missing = Counter(
            "pdd_router_missing_kv_bytes_total",
            "KV that the MD lacked when its pipeline was chosen.",
            registry=registry,
        )
        self.index_dropped = Counter(
            "pdd_router_index_corrected_blocks_total", "Blocks forgotten because an engine no longer had them.",
            registry=registry,
        )  # fmt: skip
        self.in_flight = Gauge("pdd_router_requests_in_flight", "Requests being served.", registry=registry)
        self.queued = Gauge("pdd_router_requests_queued", "Requests waiting for admission.", registry=registry)
        self.sessions = Gauge("pdd_router_engine_sessions", "Calls in flight by role.", ["role"], registry=registry)
        self.engines = Gauge("pdd_router_engines", "Engines by role and state.", ["role", "state"], registry=registry)
        self.index_blocks = Gauge(
            "pdd_router_index_blocks", "Blocks in the prefix index by role.", ["role"], registry=registry
        )
        self.local_mode = Gauge("pdd_router_local_mode", "1 while no MD can be reached.", registry=registry)

    def observe(self, record: Record, ledger: Ledger, outcome: str, prompt_tokens: int) -> None:
        """A request is over."""
        pipeline = record.pipeline.value if record.pipeline else "none"
        reason = record.reason.value if record.reason else "none"
        self.requests.labels(pipeline, reason, outcome).inc()
        self.prompt_tokens.inc(prompt_tokens)
        if prompt_tokens and record.first_token_s is not None:
            self.hits.observe(min(1.0, record.cached_tokens / prompt_tokens))
        for producer, count in ledger.counts().items():
            if count:
                self.tokens.labels(producer).inc(count)
        if record.first_token_s is not None:
            self.ttft.labels(pipeline).observe(record.first_token_s - record.arrived_s)
            if record.landed_s is not None:
                self.land.labels(pipeline).observe(record.landed_s - record.first_token_s)
        if record.gaps_s:
            observe = self.itl.labels(pipeline).observe
            for gap in record.gaps_s:
                observe(gap)
        if record.plan is not None and record.plan.main:
            self.missing.inc(record.plan.missing_bytes)
        handoff = record.handoff
        if handoff is not None:
            done = record.handoff_end_s is not None
            self.handoffs.labels(handoff.mode, "done" if done else "ended-before").inc()
            self.payload.inc(handoff.payload_bytes)
            if handoff.stall_s is not None:
                self.stall.labels(handoff.mode).observe(handoff.stall_s)
        for retry in record.retries:
            self.retries.labels(retry["role"], retry["reason"]).inc()
        if record.diverged:
            self.diverged.inc(record.diverged)

    def render(self, fleet: Fleet, now_s: float, *, local: bool) -> bytes:
        """The page, with gauges as of now."""
        for role in Role:
            engines = fleet.engines[role].values()
            ready = sum(engine.ready(now_s) for engine in engines)
            self.engines.labels(role.value, "ready").set(ready)
            self.engines.labels(role.value, "down").set(len(engines) - ready)
            self.sessions.labels(role.value).set(sum(engine.sessions for engine in engines))
            self.index_blocks.labels(role.value).set(sum(fleet.index.size(engine.id) for engine in engines))
        self.local_mode.set(1 if local else 0)
        return generate_latest(self.registry)
