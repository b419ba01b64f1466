"""Relay decode's number of engines during a run: the controller's own law, asked at its own interval."""

from __future__ import annotations

from dataclasses import dataclass, field

from pdd.planner.sim.world import Settings, World
from pdd.policy.line import predict_wait_s
from pdd.policy.scaling import Decision, Sample, ScalingLaw, ScalingState, begin, step


@dataclass(slots=True)
class RelayScaler:
    """Looks every `interval_s` and sets the engines; one that is added answers `start_s` later."""

    law: ScalingLaw
    interval_s: float = 5.0
    start_s: float = 30.0
    decisions: list[tuple[float, Decision]] = field(default_factory=list)
    _state: ScalingState | None = None
    _wanted: int = 0
    _ready_at: float = 0.0

    def start(self, world: World, now: float) -> None:
        self._wanted = self.law.min_replicas
        world.one[0]["relays"] = self._wanted
        self._state = begin(self._wanted, now)

    def look(self, settings: Settings, world: World, now: float) -> None:
        """One look of the controller: what it would see, what it decides, and what that does to the fleet."""
        if self._wanted > world.one[0]["relays"] and now >= self._ready_at:
            world.one[0]["relays"] = self._wanted
        wait_s = predict_wait_s(1.0, settings.capacity_bps, float(world.one[0]["outstanding"]), settings.rtt_s, 1.0)
        sample = Sample(
            at_s=now,
            arrivals=float(world.one[0]["arrived"]),
            holding_s_sum=float(world.one[0]["holding_s"]),
            holding_count=float(world.one[0]["held"]),
            refused=float(world.one[0]["refused"]),
            sessions=int(world.one[0]["sessions"]),
            line_wait_s=wait_s,
        )
        busy = {r: int(world.eng[r]["batch"] + world.eng[r]["q_size"]) for r in range(self._wanted)}
        assert self._state is not None
        self._state, decision = step(self._state, self.law, sample, self._wanted, busy, now)
        if decision.replicas != self._wanted:
            self.decisions.append((now, decision))
            if decision.replicas > self._wanted:
                self._ready_at = now + self.start_s
            self._wanted = decision.replicas
        ready = min(world.one[0]["relays"], self._wanted)
        world.one[0]["relays"] = min(ready, decision.drain_from) if decision.drain_from is not None else ready
