"""A local stack as the simulator sees it: calibrated engines, the line as it was probed, the router's rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pdd.api.deployment import AbnormalPolicy, Role
from pdd.cli.runner.spec import LocalSpec
from pdd.engine.reference.core import SHORT_TOKENS
from pdd.planner.calibration import EngineLaws
from pdd.planner.fidelity import Served
from pdd.planner.fleet import Fleet, LineSpec, Pool, RuleSpec, Way
from pdd.planner.kvlaw import KVLaw
from pdd.planner.load import Load
from pdd.planner.timing import decode_step_s

MS = 1000.0


@dataclass(frozen=True, slots=True)
class DataPath:
    """What the stack adds to the engines, as probed while it was idle.

    request_s: to the first token (client, router), beyond the engine's own. local_*: KV inside the site, line_*: over
    the line: bits a second, and what a transfer takes besides its bytes, with the first decode step after it.
    """

    request_s: float
    local_bps: float
    local_s: float
    line_bps: float
    line_s: float


def build_fleet(spec: LocalSpec, laws: Mapping[Role, EngineLaws], path: DataPath, way: Way) -> Fleet:
    """The stack as a fleet. Same-site: the decode engines beside P serve alone, as `bench replay` does it."""
    deployment = spec.deployment
    router = deployment.spec.router

    def pool(role: Role) -> Pool:
        return Pool(deployment.role(role).replicas, laws[role].times)

    prefill, relay, main = pool(Role.PREFILL), pool(Role.RELAY_DECODE), pool(Role.MAIN_DECODE)
    local_step_s = decode_step_s(relay.times.decode, 1, 0)
    return Fleet(
        way=way,
        prefill=prefill,
        relay=relay if way is Way.PDD else replace(relay, engines=0),
        main=relay if way is Way.SAME_SITE else main,
        line=LineSpec(
            capacity_bps=path.line_bps,
            rtt_s=spec.link.spec.line.rtt_ms / MS,
            efficiency=1.0,
            streams=spec.link.spec.streams,
            local_bps=path.local_bps,
            local_rtt_s=max(0.0, path.local_s - local_step_s),
        ),
        kv=KVLaw(laws[Role.PREFILL].kv_bytes_per_token),
        rules=RuleSpec(
            relay_threshold_s=router.relay_threshold_ms / MS,
            handoff_mode=router.handoff_mode,
            one_shot_limit_tokens=router.one_shot_limit_tokens,
            abnormal_enabled=router.abnormal_traffic.policy is AbnormalPolicy.RELAY_TO_END,
            abnormal_max_output_tokens=router.abnormal_traffic.max_output_tokens,
            abnormal_min_transfer_s=router.abnormal_traffic.min_transfer_ms / MS,
            relay_sessions_per_engine=router.limits.max_relay_sessions,
        ),
        block_tokens=deployment.spec.model.kv.block_size,
    )


def simulate_way(
    fleet: Fleet, load: Load, path: DataPath, laws: EngineLaws, seed: int
) -> tuple[list[Served], dict[str, int]]:
    """Every request as a client would see it, and the requests by pipeline.

    What a request takes besides the engine's work (HTTP, the router) is added to each: it keeps nobody waiting.
    """
    from pdd.planner.sim import SimOptions, simulate  # compiles with numba
    from pdd.planner.sim.result import ROUTES

    extra_s = laws.request_s + path.request_s
    # Beside its bytes, the round trip and the first step, a transfer over the line takes requests and answers. The
    # router's rule knows nothing of them, so neither does the simulated rule; they come on top where a client waits.
    direct_s = max(0.0, path.line_s - fleet.line.rtt_s - decode_step_s(fleet.main.times.decode, 1, 0))
    result = simulate(
        fleet, load, SimOptions(seed=seed, warmup_share=0.0, prefill_steps=True, short_tokens=SHORT_TOKENS)
    )
    columns = result.columns
    served = []
    for i, route in enumerate(columns.route):
        late_s = extra_s + (direct_s if ROUTES[int(route)] == "P-MD" else 0.0)
        at_s, first_s, done_s = columns.arrival_s[i], columns.first_s[i], columns.done_s[i]
        tokens = int(columns.output_tokens[i])
        served.append(Served(float(at_s), float(first_s) + extra_s, float(done_s) + late_s, tokens))
    counts = {name: round(share * len(served)) for name, share in result.pipelines.items()}
    return served, counts
