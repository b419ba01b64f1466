"""`pdd calibrate`: an engine that runs, or a reference engine started for it, measured and fitted."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pdd.api.engines import EngineCommand
from pdd.cli.bench.host import cpu_seconds
from pdd.cli.calibration.client import EngineClient, EngineInfo
from pdd.cli.calibration.measure import CPUClock, Meter, Say, plan_grid
from pdd.cli.runner.http import answers
from pdd.cli.runner.ports import free_ports
from pdd.cli.runner.process import ProcessSpec
from pdd.cli.runner.supervisor import Supervisor
from pdd.common.clock import Clock, monotonic_s
from pdd.common.errors import InvalidInput, PDDError
from pdd.planner.calibration import Calibration, EngineFacts, calibrate

_START_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class CalibrateOptions:
    """max_tokens: longest prompt measured. chunk_tokens, max_sequences, kv_capacity_tokens 0: ask or find out."""

    max_tokens: int = 4096
    chunk_tokens: int = 0
    max_sequences: int = 0
    kv_capacity_tokens: int = 0
    repeats: int = 3
    seed: int = 1


@dataclass(frozen=True, slots=True)
class StartedEngine:
    """A reference engine of ours: where it answers, and its process's CPU clock."""

    url: str
    cpu: CPUClock


@asynccontextmanager
async def reference_engine(flags: Sequence[str]) -> AsyncIterator[StartedEngine]:
    """A reference engine with `flags` on free ports of loopback; ended on the way out."""
    port, kv_port = free_ports(2)
    argv = (sys.executable, "-m", "pdd.engine.reference", *flags, "--port", str(port), "--kv-port", str(kv_port))
    async with started_process(ProcessSpec("engine", argv), f"http://127.0.0.1:{port}") as engine:
        yield engine


@asynccontextmanager
async def command_engine(command: EngineCommand, url: str) -> AsyncIterator[StartedEngine]:
    """An engine by the command that a stack would run; ended on the way out."""
    spec = ProcessSpec("engine", (*command.command, *command.args), command.env_values())
    async with started_process(spec, url) as engine:
        yield engine


@asynccontextmanager
async def started_process(spec: ProcessSpec, url: str) -> AsyncIterator[StartedEngine]:
    """The process, once `url`/health answers."""
    with tempfile.TemporaryDirectory(prefix="pdd-calibrate-") as folder:
        async with Supervisor(Path(folder)) as supervisor:
            child = supervisor.start(spec)
            await supervisor.wait_ready(child, answers(f"{url}/health"), _START_TIMEOUT_S)
            yield StartedEngine(url, cpu_clock(child.pid))


def cpu_clock(pid: int) -> CPUClock:
    """CPU seconds (user and system) of a process of this machine; 0 once it is gone."""
    return lambda: cpu_seconds(pid)


async def calibrate_engine(
    url: str, options: CalibrateOptions, say: Say, *, cpu: CPUClock = lambda: 0.0, clock: Clock = monotonic_s
) -> Calibration:
    """Measure the engine at `url` and fit its laws. It must have nothing else to do.

    Raises Unreachable, TimedOut, EngineError, InvalidInput.
    """
    async with EngineClient(url, clock=clock) as client:
        info = await client.describe()
        facts = _facts(info, options)
        most = min(options.max_tokens, (info.most_tokens or options.max_tokens) - 64)
        grid = plan_grid(most, facts.max_sequences, facts.chunk_tokens, facts.kv_capacity_tokens)
        say(f"{facts.engine} {facts.model!r} at {url}: prompts up to {most} tokens, {facts.max_sequences} sequences")
        samples = await Meter(client, seed=options.seed, say=say, cpu=cpu).measure(grid, options.repeats)
    try:
        return calibrate(facts, samples)
    except ValueError as error:
        raise PDDError(f"the measurements cannot be fitted: {error}", reason="CalibrationFailed") from error


def _facts(info: EngineInfo, options: CalibrateOptions) -> EngineFacts:
    if options.chunk_tokens < 0 or options.max_sequences < 0:
        raise InvalidInput("--chunk-tokens", options.chunk_tokens, "must not be negative")
    return EngineFacts(
        engine="reference" if info.owned_by == "pdd" else info.owned_by or "unknown",
        model=info.model,
        max_sequences=options.max_sequences or 16,
        block_tokens=info.block_tokens or 16,
        chunk_tokens=options.chunk_tokens,
        kv_capacity_tokens=options.kv_capacity_tokens or info.kv_capacity_tokens,
        kv_bytes_per_token=info.kv_bytes_per_token,
    )


def calibration_rows(calibration: Calibration) -> list[list[str]]:
    """The three laws as rows of a table for people, header first."""
    times = calibration.times
    prefill, decode, extend = times.prefill, times.decode, times.extend
    ms, us, ns = (1e3, "ms"), (1e6, "us"), (1e9, "ns")

    def row(law: str, name: str, seconds: float, unit: tuple[float, str], each: str) -> list[str]:
        return [law, name, f"{seconds * unit[0]:.4g} {unit[1]}", each]

    return [
        ["law", "coefficient", "value", "for each"],
        row("request", "request_s", calibration.request_s, ms, "request"),
        row("prefill", "fixed_s", prefill.fixed_s, ms, f"chunk of {prefill.chunk_tokens} tokens"),
        row("prefill", "per_token_s", prefill.per_token_s, us, "token"),
        row("prefill", "attention_s", prefill.attention_s, ns, "token x token of context"),
        row("decode", "fixed_s", decode.fixed_s, ms, "step"),
        row("decode", "per_sequence_s", decode.per_sequence_s, us, "sequence"),
        row("decode", "per_context_token_s", decode.per_context_token_s, ns, "token of context"),
        row("extend", "fixed_s", extend.fixed_s, ms, "step"),
        row("extend", "per_token_s", extend.per_token_s, us, "token"),
        row("extend", "per_context_token_s", extend.per_context_token_s, ns, "token of context"),
    ]


def fit_rows(calibration: Calibration) -> list[list[str]]:
    """How well each law fits, header first."""
    rows = [["fit", "points", "mean error", "worst", "R2"]]
    for name in ("prefill", "decode", "extend"):
        fit = getattr(calibration, name)
        rows.append([name, str(len(fit.predicted)), f"{fit.mape:.1%}", f"{fit.worst:.1%}", f"{fit.r2:.4f}"])
    return rows
