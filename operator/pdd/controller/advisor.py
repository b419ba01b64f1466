"""The shell around the planner's advice: asks the routers what they saw, keeps `status.plan` current. Never acts on it.

The planner (and numpy) is imported at the first look that has something to plan, and runs in a thread.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson

from pdd.api.conditions import Reason
from pdd.api.status import PlanAdvice, PlanBasis, PlanLoad, PlanStage, PlanStatus
from pdd.api.v1alpha1 import PDDDeployment, PDDLink
from pdd.common.clock import rfc3339
from pdd.common.errors import InvalidInput, PDDError
from pdd.common.tasks import cancel, spawn
from pdd.controller.desired.router import PORT
from pdd.controller.kube.store import ObjectStore
from pdd.controller.observe import is_ready, pods_of

if TYPE_CHECKING:
    from pdd.planner.advice import Advice, Observed

_log = logging.getLogger("pdd.controller.advisor")

TIMEOUT_S = 5.0
MAX_ROUTERS = 64
CALIBRATION = "pdd.dev/calibration"
MOVED_PERCENT = 10
"""Points by which a stage's use must move before a steady verdict is written anew."""
MOST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class AdviceInputs:
    """What the spec and the status say. relay_engines: RLD engines that run now. rtt_s: measured on
    the line, 0: not measured."""

    deployment: PDDDeployment
    link: PDDLink
    relay_engines: int
    calibration: str
    rtt_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SeenLoad:
    """One router's report, as `pdd.planner.advice.Report` takes it."""

    reach_s: float
    rows: tuple[tuple[float, ...], ...]
    unserved: int


def parse_seen(body: Any) -> SeenLoad:
    """`GET /internal/workload`. Raises KeyError, TypeError or ValueError if it is something else."""
    rows = tuple(tuple(float(value) for value in row) for row in body["rows"])
    reach_s, unserved = float(body["reach_s"]), int(body["unserved"])
    if any(len(row) != 4 or not all(math.isfinite(v) and v >= 0 for v in row) for row in rows):
        raise ValueError("a row is [age_s, prompt, cached, output], none negative")
    if not math.isfinite(reach_s) or unserved < 0:
        raise ValueError("reach_s must be finite, unserved not negative")
    return SeenLoad(reach_s, rows, unserved)


def build_plan(inputs: AdviceInputs, reports: Sequence[SeenLoad], old: PlanStatus | None, now: str) -> PlanStatus:
    """The status for one look at all routers. What cannot be judged says why, and `feasible` is absent."""
    from pdd.planner.advice import Report, advise, merge_seen
    from pdd.planner.running import build_running

    try:
        running = build_running(
            inputs.deployment, inputs.link, inputs.relay_engines, inputs.calibration, rtt_s=inputs.rtt_s
        )
        observed = merge_seen([Report(report.reach_s, report.rows, report.unserved) for report in reports])
    except InvalidInput as error:
        missing = "TooFewRequests" if error.field == "requests" else "NotModelled"
        text = error.remedy if error.field == "requests" else error.message
        return keep(old, PlanStatus(reason=missing, message=text[:1024], observed_at=now))
    was_short = old is not None and old.reason == Reason.STAGE_SHORT.value
    advice = advise(running.fleet, observed, running.sla, was_short=was_short)
    basis = PlanBasis.CALIBRATION if running.calibrated else PlanBasis.DATA_SHEETS
    return keep(old, _status(advice, observed, basis, now))


def _status(advice: Advice, observed: Observed, basis: PlanBasis, now: str) -> PlanStatus:
    found, fleet = advice.prediction, advice.fleet
    reason = Reason.STAGE_SHORT if advice.short else Reason.SLA_NOT_MET if advice.missed else Reason.PLANNED
    return PlanStatus(
        feasible=advice.feasible,
        reason=reason.value,
        message=advice.message[:1024],
        basis=basis,
        binding_stage=advice.binding.name.value,
        ttft_p90_ms=_milliseconds(found.ttft.p90_s),
        ttft_p99_ms=_milliseconds(found.ttft.p99_s),
        tpot_p99_ms=_milliseconds(found.tpot.p99_s),
        stages=tuple(
            PlanStage(
                name=stage.name.value,
                utilization_percent=_whole(stage.utilisation * 100, 100_000),
                capacity_per_minute=_whole(stage.capacity_per_s * 60, MOST),
            )
            for stage in found.stages
        ),
        load=PlanLoad(
            requests=len(observed.load),
            requests_per_minute=_whole(observed.rate_per_s * 60, MOST),
            input_tokens=_whole(advice.stats.input_summary.p50, MOST),
            uncached_tokens=_whole(advice.stats.uncached_summary.mean, MOST),
            output_tokens=_whole(advice.stats.output_summary.mean, MOST),
            hit_percent=_whole(advice.stats.hit_rate * 100, 100),
            hit_buckets=tuple(_whole(share * 100, 100) for share in observed.hit_buckets()),
        ),
        advice=PlanAdvice(
            prefill=fleet.prefill.engines,
            relay_decode=fleet.relay.engines,
            main_decode=fleet.main.engines,
            line_mbps=_whole(fleet.line.capacity_bps / 1e6, MOST),
            meets_sla=advice.meets,
        ),
        observed_at=now,
    )


def keep(old: PlanStatus | None, new: PlanStatus) -> PlanStatus:
    """`new`, or the very `old` one while it says the same: noise in the load must not write at each look."""
    if old is None or (old.feasible, old.reason, old.basis) != (new.feasible, new.reason, new.basis):
        return new
    if new.feasible is None:
        return old if old.message == new.message or new.reason == "TooFewRequests" else new
    moved = old.binding_stage != new.binding_stage or [s.name for s in old.stages] != [s.name for s in new.stages]
    pairs = zip(old.stages, new.stages, strict=False)
    moved = moved or any(abs(a.utilization_percent - b.utilization_percent) >= MOVED_PERCENT for a, b in pairs)
    return new if moved else old


def _whole(value: float, most: int) -> int:
    return most if not math.isfinite(value) else max(0, min(most, round(value)))


def _milliseconds(seconds: float) -> int | None:
    """None where there is no bound."""
    return _whole(seconds * 1000, MOST) if math.isfinite(seconds) else None


class Advisor:
    """One per deployment. `configure` with each pass, `start`, `stop`; `plan` is the last word."""

    def __init__(
        self, inputs: AdviceInputs, store: ObjectStore, *, period_s: float, on_change: Callable[[], None]
    ) -> None:
        self._inputs = inputs
        self._store = store
        self._period_s = period_s
        self._on_change = on_change
        self._task: asyncio.Task[None] | None = None
        self.plan: PlanStatus | None = inputs.deployment.status.plan if inputs.deployment.status else None

    def start(self) -> None:
        deployment = self._inputs.deployment
        self._task = spawn(self._run(), name=f"advisor-{deployment.namespace}/{deployment.name}")

    async def stop(self) -> None:
        if self._task is not None:
            await cancel(self._task)

    def configure(self, inputs: AdviceInputs) -> None:
        self._inputs = inputs

    async def _run(self) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)) as session:
            while True:
                await asyncio.sleep(self._period_s)
                try:
                    await self.look(session)
                except PDDError as error:
                    _log.info("no advice", extra={"fields": {"error": error.message}})
                except Exception:
                    _log.exception("advice broke; the last one stays")

    async def look(self, session: aiohttp.ClientSession) -> None:
        """One look at all routers. If one of them gives no answer the last advice stays."""
        inputs = self._inputs
        pods = pods_of(self._store.indexed(inputs.deployment.uid), "router")
        routers = sorted(str(p["status"]["podIP"]) for p in pods if is_ready(p) and p["status"].get("podIP"))
        reports = await asyncio.gather(*(self._ask(session, ip) for ip in routers[:MAX_ROUTERS]))
        answers = [report for report in reports if report is not None]
        if not answers or len(answers) < len(reports):
            return
        plan = await asyncio.to_thread(build_plan, inputs, answers, self.plan, rfc3339())
        if plan is not self.plan:
            self.plan = plan
            self._on_change()

    async def _ask(self, session: aiohttp.ClientSession, ip: str) -> SeenLoad | None:
        try:
            async with session.get(f"http://{ip}:{PORT}/internal/workload") as response:
                if response.status != 200:
                    return None
                return parse_seen(orjson.loads(await response.read()))
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, TypeError) as error:
            _log.info("a router tells no load", extra={"fields": {"router": ip, "error": repr(error)}})
            return None
