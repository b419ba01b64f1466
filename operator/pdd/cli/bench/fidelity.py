"""`pdd bench fidelity`: the same load served by the real data plane and simulated with calibrated times.

In one run: each role's engine is calibrated alone by its own command line; an idle stack is probed for what the router
and the transfers add; then each way is replayed on a fresh stack. Only then is the load simulated: nothing that the
replays showed goes into the simulation.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pdd.api.deployment import Role
from pdd.api.engines import engine_command, engine_params
from pdd.cli.bench.host import HostUse, compare_samples, sample_host
from pdd.cli.bench.replay import WAYS, Outcome, send_all, send_one
from pdd.cli.bench.simulated import DataPath, build_fleet, simulate_way
from pdd.cli.bench.trace import Scale, TraceRequest, load_mooncake, mean_hit_rate
from pdd.cli.calibration.run import CalibrateOptions, calibrate_engine, command_engine
from pdd.cli.runner.plan import HOST
from pdd.cli.runner.ports import free_ports
from pdd.cli.runner.spec import LocalSpec, load_local_spec
from pdd.cli.runner.stack import Stack, running_stack
from pdd.common.errors import EngineError, InvalidInput
from pdd.engine.reference.flags import parse_settings
from pdd.planner.calibration import Calibration, EngineLaws
from pdd.planner.calibration_file import read_laws
from pdd.planner.fidelity import Request, Row, Served, compare, make_load, summarise
from pdd.planner.fleet import Way

Say = Callable[[str], None]
_PROBE_SEED = 77
_PROBE_TOKENS = (256, 2048)
_PROBE_ROUNDS = 5
_PROBE_OUTPUT = 8
BITS = 8
MOST_OTHER_CORES = 0.2
"""Of CPU that processes other than ours may use before the figures are called disturbed."""


@dataclass(frozen=True, slots=True)
class FidelityBench:
    """What to replay, and how thoroughly the engines are calibrated first. seed: of the simulation. calibration: a file
    of `pdd calibrate --out` that holds for all engines; None: each role's engine is calibrated."""

    file: Path
    trace: Path
    requests: int
    scale: Scale
    ways: tuple[str, ...]
    repeats: int
    seed: int
    mbps: int | None
    rtt_ms: int | None
    calibration: Path | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """All that was measured: `served` holds one outcome a request, in the order of `requests`, for each way."""

    spec: LocalSpec
    requests: tuple[TraceRequest, ...]
    laws: Mapping[Role, EngineLaws]
    calibrations: Mapping[Role, Calibration]
    path: DataPath
    served: Mapping[str, Sequence[Outcome]]
    host: Mapping[str, HostUse]


async def bench_fidelity(bench: FidelityBench, say: Say) -> dict[str, Any]:
    """The document of `pdd bench fidelity --json`."""
    measured = await measure(bench, say)
    say("simulating the same load")
    return judge(measured, bench)


async def measure(bench: FidelityBench, say: Say) -> Measurement:
    """Calibrate, probe, replay. Takes as long as the trace's arrivals for each way, and some minutes."""
    spec = load_local_spec(bench.file).with_line(bench.mbps, bench.rtt_ms)
    requests = load_mooncake(bench.trace, bench.requests, bench.scale)
    longest = max(len(r.prompt) + r.output_tokens for r in requests)
    calibrations: dict[Role, Calibration] = {}
    if bench.calibration is not None:
        laws = dict.fromkeys(Role, _read_known(bench.calibration))
    else:
        calibrations = await _calibrate_roles(spec, longest, bench, say)
        laws = {role: calibration.laws for role, calibration in calibrations.items()}
    say("probing an idle stack for what the router and the transfers add")
    async with running_stack(spec) as stack:
        path = await stack.supervisor.guard(_probe(spec, stack, laws[Role.PREFILL], say))
    served: dict[str, list[Outcome]] = {}
    host: dict[str, HostUse] = {}
    for way in bench.ways:
        say(f"{way}: {len(requests)} requests, arrivals over {requests[-1].at_s:.0f} s")
        async with running_stack(spec) as stack:
            pids = [child.pid for child in stack.supervisor.children]
            before = sample_host(pids)
            served[way] = await stack.supervisor.guard(send_all(spec, stack, requests, WAYS[way]))
            host[way] = compare_samples(before, sample_host(pids))
        if host[way].other_cores > MOST_OTHER_CORES:
            say(f"warning: others used {host[way].other_cores:.1f} CPU cores meanwhile; the figures are disturbed")
    return Measurement(spec, tuple(requests), laws, calibrations, path, served, host)


def judge(measured: Measurement, bench: FidelityBench) -> dict[str, Any]:
    """Simulate the same load and set it beside what was measured."""
    spec, requests, path = measured.spec, measured.requests, measured.path
    load = make_load(
        [Request(r.at_s, r.prompt, r.output_tokens) for r in requests], spec.deployment.spec.model.kv.block_size
    )
    rows: list[Row] = []
    ways: dict[str, Any] = {}
    for way, outcomes in measured.served.items():
        served = measured_requests(requests, outcomes)
        fleet = build_fleet(spec, measured.laws, path, Way(way))
        predicted, pipelines = simulate_way(fleet, load, path, measured.laws[Role.PREFILL], bench.seed)
        found = (summarise(served), summarise(predicted))
        rows += compare(way, *found)
        ways[way] = {
            "failed": len(requests) - len(served),
            "errors": [outcome.error for outcome in outcomes if outcome.error][:5],
            "measured": asdict(found[0]),
            "predicted": asdict(found[1]),
            "host": asdict(measured.host[way]),
            "pipelines_measured": count_pipelines(outcomes),
            "pipelines_predicted": pipelines,
        }
    return {
        "apiVersion": "pdd.dev/v1alpha1",
        "kind": "FidelityBench",
        "trace": {
            "name": bench.trace.name,
            "requests": len(requests),
            "prompt_tokens_mean": round(sum(len(r.prompt) for r in requests) / len(requests), 1),
            "output_tokens_mean": round(sum(r.output_tokens for r in requests) / len(requests), 1),
            "hit_rate_infinite_cache": round(mean_hit_rate(list(requests), bench.scale.block_tokens), 4),
            "rate_per_s": round(load.rate_per_s, 3),
        },
        "engine_args": list(spec.deployment.spec.engine.args),
        "engines": {role.value: asdict(laws) for role, laws in measured.laws.items()},
        "fits": {role.value: _fits(c) for role, c in measured.calibrations.items()},
        "path": asdict(path),
        "ways": ways,
        "rows": [{**asdict(row), "error": row.error, "holds": row.holds} for row in rows],
        "holds": all(row.holds for row in rows if row.holds is not None),
    }


def measured_requests(requests: Sequence[TraceRequest], outcomes: Sequence[Outcome]) -> list[Served]:
    """What came of the requests that were answered, in seconds since the replay began."""
    return [
        Served(
            at_s=request.at_s,
            first_s=request.at_s + outcome.run.ttft_ms / 1000,
            done_s=request.at_s + outcome.run.token_at_ms[-1] / 1000,
            tokens=len(outcome.run.token_ids),
        )
        for request, outcome in zip(requests, outcomes, strict=True)
        if outcome.run is not None
    ]


def count_pipelines(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """Answered requests by pipeline."""
    counts: dict[str, int] = {}
    for outcome in outcomes:
        if outcome.run is not None:
            counts[outcome.run.pipeline] = counts.get(outcome.run.pipeline, 0) + 1
    return counts


async def _calibrate_roles(spec: LocalSpec, longest: int, bench: FidelityBench, say: Say) -> dict[Role, Calibration]:
    """Each role's engine alone, by its own command. Roles whose commands differ in nothing but the role share one."""
    done: dict[tuple[str, ...], Calibration] = {}
    found: dict[Role, Calibration] = {}
    for role in Role:
        port, kv_port = free_ports(2)
        params = engine_params(
            spec.deployment,
            role,
            host=HOST,
            http_port=port,
            kv_port=kv_port,
            advertise_host=HOST,
            python=sys.executable,
        )
        command = engine_command(params)
        own = (*command.args[:1], *command.args[2:])
        key = tuple(word for word in own if word not in (str(port), str(kv_port)))
        if key not in done:
            say(f"calibrating the {role.value} engine alone")
            settings = parse_settings(command.args, command.env_values())
            options = CalibrateOptions(
                max_tokens=min(max(longest, 1024), settings.max_model_len - 64),
                chunk_tokens=settings.chunk_tokens,
                max_sequences=settings.max_num_seqs,
                kv_capacity_tokens=settings.num_blocks * settings.block_size,
                repeats=bench.repeats,
            )
            async with command_engine(command, params_url(port)) as engine:
                done[key] = await calibrate_engine(engine.url, options, say, cpu=engine.cpu)
            for warning in done[key].warnings:
                say(f"warning: {warning}")
        found[role] = done[key]
    return found


def params_url(port: int) -> str:
    """Where an engine started here answers."""
    return f"http://{HOST}:{port}"


async def _probe(spec: LocalSpec, stack: Stack, laws: EngineLaws, say: Say) -> DataPath:
    """What the path adds to the engines' own times, from requests that are alone in the stack.

    The time to the first token beyond the calibrated prefill is the router's. The second token waits for the KV: two
    prompt lengths give its rate and what a transfer takes besides, inside the site (P-RLD) and over the line (P-MD).
    """
    rng = random.Random(_PROBE_SEED)
    extra: list[float] = []
    second: dict[tuple[str, int], float] = {}
    for override in ("P-RLD", "P-MD"):
        for tokens in _PROBE_TOKENS:
            gaps = []
            for _ in range(_PROBE_ROUNDS):
                prompt = tuple(rng.randint(32, 126) for _ in range(tokens))
                got = await send_one(spec, stack, TraceRequest(0.0, prompt, _PROBE_OUTPUT), override)
                if got.run is None or got.run.second_token_ms is None:
                    raise EngineError(f"a probe of the idle stack failed: {got.error or 'no second token'}")
                if tokens == _PROBE_TOKENS[0]:
                    extra.append(got.run.ttft_ms / 1000 - laws.prefill_alone_s(tokens))
                gaps.append(got.run.second_token_ms / 1000)
            second[override, tokens] = median(gaps)
    short, long = _PROBE_TOKENS
    more_bits = (long - short) * laws.kv_bytes_per_token * BITS

    def rate(override: str) -> tuple[float, float]:
        grown = max(second[override, long] - second[override, short], 1e-4)
        bps = more_bits / grown
        own = second[override, short] - short * laws.kv_bytes_per_token * BITS / bps
        return bps, max(0.0, own)

    local_bps, local_s = rate("P-RLD")
    line_bps, line_s = rate("P-MD")
    path = DataPath(max(0.0, median(extra)), local_bps, local_s, line_bps, line_s)
    say(
        f"router adds {path.request_s * 1e3:.1f} ms; KV moves at {local_bps / 1e6:.0f} Mbit/s inside the site, "
        f"{line_bps / 1e6:.1f} Mbit/s over the line"
    )
    return path


def _fits(calibration: Calibration) -> dict[str, Any]:
    return {
        "mape": {name: round(getattr(calibration, name).mape, 4) for name in ("prefill", "decode", "extend")},
        "warnings": list(calibration.warnings),
    }


def _read_known(path: Path) -> EngineLaws:
    laws = read_laws(path)
    if laws.kv_bytes_per_token <= 0:
        raise InvalidInput(f"{path}: kv_bytes_per_token", laws.kv_bytes_per_token, "give the KV bytes of one token")
    return laws


def fidelity_rows(document: dict[str, Any]) -> list[list[str]]:
    """The document as rows of a table for people, header first."""
    rows = [["way", "figure", "measured", "predicted", "error", "tolerance", "holds"]]
    for row in document["rows"]:
        error = row["error"]
        rows.append(
            [
                row["way"],
                row["figure"],
                _figure(row["measured"]),
                _figure(row["predicted"]),
                "-" if error is None else f"{error:+.1%}",
                f"{row['tolerance']:.0%}",
                {True: "yes", False: "NO", None: "-"}[row["holds"]],
            ]
        )
    return rows


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
