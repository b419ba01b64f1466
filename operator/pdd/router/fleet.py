"""The engines that the router knows: where they are, whether they work, how loaded they are, who is next.

Values and rules only; discovery and health checks feed it, the conductor asks it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

from pdd.policy.line import FluidQueue, LineState, compute_rate_bps
from pdd.router.events import Role
from pdd.router.prefix import PrefixIndex
from pdd.router.target import Target

INDEX_BLOCKS_PER_ENGINE = 1 << 18
PROBES_TO_DOWN = 3
"""Failed health checks in a row that take an engine out; a refused connection does so at once."""
BACKOFF_MAX_S = 8.0
SESSION_COST_BLOCKS = 64
"""A session at P or MD weighs as much as this many missing blocks: balance against cache."""


@dataclass(frozen=True, slots=True)
class Address:
    """One engine as discovery finds it. instance: changes when the engine behind the id is another (restart)."""

    id: str
    target: Target
    host: str
    instance: str = ""
    connected: bool = True


@dataclass(frozen=True, slots=True)
class LineReport:
    """What the gateway last said of the line to one MD."""

    rate_bps: float = 0.0
    goodput_bps: float = 0.0
    rtt_ms: float = 0.0
    queue_bytes: float = 0.0
    limited_by: str = "idle"


@dataclass(slots=True, eq=False)
class Engine:
    """One engine. sessions: requests that use it now. down_until_s: backed off until then. connected: the link says
    that it can be reached (always True for fixed addresses). process: the name that the engine's process gives itself,
    empty if it gives none."""

    id: str
    role: Role
    target: Target
    host: str
    instance: str = ""
    process: str = ""
    connected: bool = True
    suspect_since_s: float | None = None
    sessions: int = 0
    failures: int = 0
    probe_failures: int = 0
    down_until_s: float = 0.0
    draining_until_s: float = 0.0
    known_good: bool = False
    line: LineReport = field(default_factory=LineReport)

    def ready(self, now_s: float) -> bool:
        """May be given a call."""
        return self.connected and now_s >= self.down_until_s

    def draining(self, now_s: float) -> bool:
        return now_s < self.draining_until_s


class Fleet:
    """All engines by role, the prefix index of P and MD, and the line's queue as this router knows it."""

    def __init__(self, *, relay_sessions_max: int, capacity_bps: float, rtt_s: float) -> None:
        self.engines: dict[Role, dict[str, Engine]] = {role: {} for role in Role}
        self.index = PrefixIndex(INDEX_BLOCKS_PER_ENGINE)
        self.queue = FluidQueue()
        self._relay_sessions_max = relay_sessions_max
        self._capacity_bps = capacity_bps
        self._rtt_s = rtt_s

    # ---- what discovery and health tell ---------------------------------------------------------------------------

    def update(self, role: Role, addresses: Iterable[Address], now_s: float) -> list[Engine]:
        """These are the engines of `role` now. Returns those that are gone (their sessions end by themselves)."""
        known = self.engines[role]
        seen: dict[str, Engine] = {}
        for address in addresses:
            engine = known.get(address.id)
            if engine is None:
                engine = Engine(address.id, role, address.target, address.host, address.instance)
            elif engine.instance != address.instance:
                engine.instance = address.instance
                self.index.purge(engine.id)
            if engine.connected and not address.connected:
                engine.suspect_since_s = now_s
            elif address.connected:
                engine.suspect_since_s = None
            engine.connected = address.connected
            seen[address.id] = engine
        gone = [engine for id_, engine in known.items() if id_ not in seen]
        for engine in gone:
            engine.connected = False
            engine.suspect_since_s = engine.suspect_since_s or now_s
            self.index.purge(engine.id)
        self.engines[role] = seen
        return gone

    def succeeded(self, engine: Engine) -> None:
        engine.failures = engine.probe_failures = 0
        engine.down_until_s = 0.0
        engine.known_good = True

    def failed(self, engine: Engine, now_s: float, *, unreachable: bool) -> None:
        """A call failed on the engine's account. Unreachable takes it out at once, until a health check succeeds: no
        request is spent on finding out. Other failures pause it from the third on; each further failure doubles the
        pause. A restart cannot be told from outage: its cache counts as lost."""
        engine.failures += 1
        if unreachable:
            self.index.purge(engine.id)
            engine.known_good = False
            engine.down_until_s = inf
        elif engine.failures >= PROBES_TO_DOWN:
            engine.down_until_s = now_s + min(BACKOFF_MAX_S, 0.5 * 2 ** min(engine.failures - 1, 8))

    def probed(self, engine: Engine, now_s: float, *, ok: bool, unreachable: bool = False, process: str = "") -> None:
        """The result of a health check. Another process behind the same address (a container that restarted between
        two checks, beside a link endpoint that lives on) holds nothing of what is known of the one before."""
        if process and process != engine.process:
            if engine.process:
                self.index.purge(engine.id)
            engine.process = process
        if ok:
            if engine.down_until_s or not engine.known_good or engine.probe_failures:
                self.succeeded(engine)
            return
        engine.probe_failures += 1
        if unreachable or engine.probe_failures >= PROBES_TO_DOWN:
            engine.known_good = False
            engine.down_until_s = inf
            if unreachable:
                self.index.purge(engine.id)

    def drain(self, hosts: Iterable[str], until_s: float) -> int:
        """No new session for the RLD engines on `hosts` until then. Returns how many are known."""
        wanted = set(hosts)
        count = 0
        for engine in self.engines[Role.RELAY].values():
            if engine.host in wanted or engine.id in wanted:
                engine.draining_until_s = until_s
                count += 1
        return count

    # ---- who is next ----------------------------------------------------------------------------------------------

    def candidates(self, role: Role, avoid: frozenset[str], now_s: float) -> list[Engine]:
        """Engines that may be called, without those in `avoid` unless no other is left."""
        ready = [engine for engine in self.engines[role].values() if engine.ready(now_s)]
        return [engine for engine in ready if engine.id not in avoid] or ready

    def pick(self, role: Role, hashes: Sequence[int], avoid: frozenset[str], now_s: float) -> Engine | None:
        """The best engine of `role` for a prompt with these block hashes; None if there is none."""
        if role is Role.RELAY:
            return self.pick_relay(avoid, now_s)
        found = self.candidates(role, avoid, now_s)
        if len(found) <= 1:
            return found[0] if found else None
        return min(found, key=lambda e: e.sessions * SESSION_COST_BLOCKS - self.index.match(e.id, hashes))

    def pick_relay(self, avoid: frozenset[str], now_s: float) -> Engine | None:
        """The RLD with the fewest sessions that is neither full nor draining."""
        free = [
            engine
            for engine in self.candidates(Role.RELAY, avoid, now_s)
            if engine.sessions < self._relay_sessions_max and not engine.draining(now_s)
        ]
        return min(free, key=lambda e: e.sessions, default=None)

    def relay_exists(self, now_s: float) -> bool:
        return any(engine.ready(now_s) for engine in self.engines[Role.RELAY].values())

    def find(self, role: Role, engine_id: str) -> Engine | None:
        return self.engines[role].get(engine_id)

    # ---- the line -------------------------------------------------------------------------------------------------

    def rate_bps(self, engine: Engine) -> float:
        """Bits per second that KV may use towards `engine` now."""
        line = engine.line
        return compute_rate_bps(self._capacity_bps, line.rate_bps, line.goodput_bps, line.limited_by)

    def line_state(self, engine: Engine, now_s: float) -> LineState:
        """The line towards `engine`: what the gateway holds for all MDs, or what we have under way, if that is more."""
        rate = self.rate_bps(engine)
        held = sum(other.line.queue_bytes for other in self.engines[Role.MAIN].values())
        rtt_s = engine.line.rtt_ms / 1000 if engine.line.rtt_ms > 0 else self._rtt_s
        return LineState(rate, max(held, self.queue.at(now_s, rate)), rtt_s)
