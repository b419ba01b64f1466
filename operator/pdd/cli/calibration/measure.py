"""What a calibration asks of an engine, and what comes of it: samples for `pdd.planner.calibration`.

Every prompt is new (random ids), so nothing is cached unless it was put there. Each point is measured several times in
rounds over all points, so that a slow minute of the machine falls on all of them; the median counts.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from pdd.cli.calibration.client import EngineClient, Stream
from pdd.common.errors import EngineError, InvalidInput
from pdd.planner.calibration import DecodeSample, PrefillSample, Samples

Say = Callable[[str], None]
CPUClock = Callable[[], float]
"""CPU seconds of the engine's process so far."""
_FIRST_ID, _LAST_ID = 32, 126
"""Ids that every vocabulary has and no tokenizer uses for control."""
_GRAIN = 128
"""Cached prefixes are whole numbers of so many tokens, so of whole blocks of any usual size."""
_DECODE_TOKENS = 24
_SETTLING_TOKENS = 3


@dataclass(frozen=True, slots=True)
class Grid:
    """Points to measure: (uncached, cached) tokens, (sequences, context tokens of each), (extended, cached)."""

    prefill: tuple[tuple[int, int], ...]
    decode: tuple[tuple[int, int], ...]
    extend: tuple[tuple[int, int], ...]


def plan_grid(most_tokens: int, max_sequences: int, chunk_tokens: int, kv_capacity_tokens: int = 0) -> Grid:
    """Points for prompts up to `most_tokens`, on both sides of chunk borders. chunk_tokens 0: not known.

    Raises InvalidInput if prompts are too short to tell a cost a token from a cost a request.
    """
    if most_tokens < 4 * _GRAIN:
        raise InvalidInput("--max-tokens", most_tokens, f"must be at least {4 * _GRAIN}")
    chunk = chunk_tokens or 512
    lengths = {most_tokens * n // 8 for n in (1, 2, 3, 4, 6, 8)} | {
        n for n in (16, chunk // 2, chunk, chunk + chunk // 8, 2 * chunk + chunk // 2) if 0 < n <= most_tokens
    }
    prefixes = sorted({most_tokens * n // 8 // _GRAIN * _GRAIN for n in (2, 4, 7)})
    prefill = [(n, 0) for n in sorted(lengths)]
    for prefix in prefixes:
        news = (chunk // 4, chunk, 2 * chunk)
        prefill += [(new, prefix) for new in news if new > 0 and prefix + new <= most_tokens]
    batches = sorted({b for b in (1, 2, 4, 8, max_sequences) if b <= min(max_sequences, 32)})
    contexts = sorted({_GRAIN, most_tokens // 2 // _GRAIN * _GRAIN, (most_tokens - _DECODE_TOKENS) // _GRAIN * _GRAIN})
    room = (kv_capacity_tokens or 1 << 40) * 3 // 4
    decode = [(b, c) for b in batches for c in contexts if b * (c + _DECODE_TOKENS) <= room]
    extends = [n for n in (1, 4, 16, 32, 64, 128) if n <= most_tokens]
    extend = [(n, c) for c in prefixes for n in extends if c + n <= most_tokens]
    return Grid(tuple(prefill), tuple(decode), tuple(extend))


class Meter:
    """Measures the points of a grid on one engine, which must be idle otherwise."""

    def __init__(self, client: EngineClient, *, seed: int, say: Say, cpu: CPUClock = lambda: 0.0) -> None:
        self._client = client
        self._rng = random.Random(seed)
        self._say = say
        self._cpu = cpu

    async def measure(self, grid: Grid, repeats: int) -> Samples:
        """All samples. Raises EngineError if the engine keeps no prefix cache (extend could not be measured)."""
        await self._client.one_token(self._prompt(64))  # the first request pays for what is lazy
        self._say(f"prefill: {len(grid.prefill)} points, {repeats} times each")
        prefill = await self._prefills(grid.prefill, repeats)
        self._say(f"extend: {len(grid.extend)} points, {repeats} times each")
        extend = await self._prefills(grid.extend, repeats)
        if not any(sample.cached for sample in extend):
            raise EngineError("the engine finds no cached prefix; enable its prefix cache to calibrate extends")
        self._say(f"decode: {len(grid.decode)} points of {_DECODE_TOKENS} tokens, {repeats} times each")
        return Samples(prefill, await self._decodes(grid.decode, repeats), extend)

    def _prompt(self, tokens: int) -> list[int]:
        return [self._rng.randint(_FIRST_ID, _LAST_ID) for _ in range(tokens)]

    async def _prefills(self, points: Sequence[tuple[int, int]], repeats: int) -> tuple[PrefillSample, ...]:
        found: dict[tuple[int, int], list[tuple[float, float, int]]] = {point: [] for point in points}
        by_prefix: dict[int, list[tuple[int, int]]] = {}
        for point in points:
            by_prefix.setdefault(point[1], []).append(point)
        for _ in range(repeats):
            for cached, group in by_prefix.items():
                prefix = self._prompt(cached)
                if cached:
                    await self._client.one_token(prefix)
                for new, _same in group:
                    cpu_s = self._cpu()
                    got = await self._client.one_token(prefix + self._prompt(new))
                    hit = cached if got.cached is None else got.cached
                    found[new, cached].append((got.seconds, self._cpu() - cpu_s, hit))
        return tuple(_prefill_sample(new + cached, runs) for (new, cached), runs in found.items())

    async def _decodes(self, points: Iterable[tuple[int, int]], repeats: int) -> tuple[DecodeSample, ...]:
        samples = []
        for batch, context in points:
            prompts = [self._prompt(context) for _ in range(batch)]
            for prompt in prompts:
                await self._client.one_token(prompt)  # so that no prefill falls between the steps
            runs = []
            for _ in range(repeats):
                cpu_s = self._cpu()
                streams = await asyncio.gather(*(self._client.stream(p, _DECODE_TOKENS) for p in prompts))
                runs.append((step_seconds(streams), (self._cpu() - cpu_s) / _DECODE_TOKENS))
            held = batch * (context + _DECODE_TOKENS / 2)
            samples.append(DecodeSample(batch, held, median(r[0] for r in runs), median(r[1] for r in runs)))
        return tuple(samples)


def step_seconds(streams: Sequence[Stream]) -> float:
    """Median time between two tokens of the same stream while all streams run together.

    The first tokens are left out: there the last stream's prompt is still in the step. Raises EngineError if the
    streams never ran together (the engine runs fewer sequences at once).
    """
    begin_s = max(stream.at_s[min(_SETTLING_TOKENS, len(stream.at_s) - 1)] for stream in streams)
    end_s = min(stream.at_s[-1] for stream in streams)
    steps = []
    for stream in streams:
        inside = [at_s for at_s in stream.at_s if begin_s <= at_s <= end_s]
        if len(inside) > _SETTLING_TOKENS:
            steps.append((inside[-1] - inside[0]) / (len(inside) - 1))
    if not steps:
        raise EngineError(
            f"{len(streams)} streams never ran together: the engine runs fewer at once; give --max-sequences"
        )
    return median(steps)


def _prefill_sample(tokens: int, runs: Sequence[tuple[float, float, int]]) -> PrefillSample:
    """The median run, with the hit that most runs had."""
    cached = round(median(run[2] for run in runs))
    return PrefillSample(
        max(1, tokens - cached), cached, median(run[0] for run in runs), median(run[1] for run in runs)
    )
