"""From measured times of one engine to its `EngineTimes`: what was measured, the fits, and how far they are off.

Pure: the measuring is `pdd calibrate`'s. A request alone on the engine takes

    request_s + compute_prefill_s(uncached, cached)

where `request_s` is what HTTP and scheduling take, whatever the prompt; it does not occupy the engine. `half_tokens`
of the prefill law and `fixed_s` are one number in any measurement (both are paid once a chunk): given as `fixed_s`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pdd.planner.fitting import Fit, fit_nonnegative
from pdd.planner.timing import DecodeTime, EngineTimes, ExtendTime, PrefillTime, prefill_s

GOOD_MAPE = 0.10
"""A law that is off by more on average is named in the warnings."""
GOOD_WORST = 0.35
CHUNK_CANDIDATES = tuple(64 << n for n in range(11))
_CHUNK_GAIN = 0.8
"""A chunk size is believed if it makes the mean error so much smaller than no chunking does."""
NO_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class PrefillSample:
    """One request for one token on an idle engine: `uncached` tokens computed behind `cached` ones. Seconds of wall
    time, and of the engine's process on the CPU where it could be read (0: not)."""

    uncached: int
    cached: int
    seconds: float
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class DecodeSample:
    """Steps with `batch` sequences of `context_sum` tokens together: seconds a step."""

    batch: int
    context_sum: float
    seconds: float
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Samples:
    """All measurements of one engine; `extend` are prefills of a few tokens behind a context."""

    prefill: tuple[PrefillSample, ...]
    decode: tuple[DecodeSample, ...]
    extend: tuple[PrefillSample, ...]


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What is known of the engine without measuring. chunk_tokens 0: not known, found from the prefills.
    kv_capacity_tokens, kv_bytes_per_token 0: not known."""

    engine: str
    model: str
    max_sequences: int
    block_tokens: int
    chunk_tokens: int = 0
    kv_capacity_tokens: int = 0
    kv_bytes_per_token: float = 0.0


@dataclass(frozen=True, slots=True)
class EngineLaws:
    """What predictions need of an engine. request_s: see the module. kv_bytes_per_token 0: not known."""

    times: EngineTimes
    request_s: float
    kv_bytes_per_token: float

    def prefill_alone_s(self, uncached: int, cached: int = 0) -> float:
        """Seconds of a request for one token on an idle engine, as its client sees it."""
        return self.request_s + prefill_s(self.times.prefill, uncached, cached)


@dataclass(frozen=True, slots=True)
class Calibration:
    """times: ready for the planner and the simulator. request_s: see the module. warnings: in words, for people."""

    facts: EngineFacts
    times: EngineTimes
    request_s: float
    samples: Samples
    prefill: Fit
    decode: Fit
    extend: Fit
    warnings: tuple[str, ...]

    @property
    def laws(self) -> EngineLaws:
        return EngineLaws(self.times, self.request_s, self.facts.kv_bytes_per_token)


def calibrate(facts: EngineFacts, samples: Samples) -> Calibration:
    """Fit the three laws. Raises ValueError if there are too few samples for a law."""
    warnings: list[str] = []
    both = (*samples.prefill, *samples.extend)
    chunk, prefill = _fit_prefill(facts, both, warnings)
    request_s, per_token_s, fixed_s, attention_s = prefill.coefficients
    decode = fit_nonnegative(
        [(1.0, s.batch, s.context_sum) for s in samples.decode], [s.seconds for s in samples.decode]
    )
    extend = fit_nonnegative(
        [(1.0, s.uncached, s.cached) for s in samples.extend],
        [max(s.seconds - request_s, 1e-9) for s in samples.extend],
    )
    for name, fit in (("prefill", prefill), ("decode", decode), ("extend", extend)):
        if fit.mape > GOOD_MAPE or fit.worst > GOOD_WORST:
            warnings.append(
                f"{name}: the law fits poorly (mean error {fit.mape:.0%}, worst {fit.worst:.0%}): the machine was "
                "busy, or this engine does not follow the law; measure again, or trust it less"
            )
    times = EngineTimes(
        prefill=PrefillTime(per_token_s=per_token_s, chunk_tokens=chunk, attention_s=attention_s, fixed_s=fixed_s),
        decode=DecodeTime(*decode.coefficients),
        extend=ExtendTime(*extend.coefficients),
        max_sequences=facts.max_sequences,
        kv_capacity_tokens=facts.kv_capacity_tokens,
    )
    return Calibration(facts, times, request_s, samples, prefill, decode, extend, tuple(warnings))


def _fit_prefill(facts: EngineFacts, samples: Sequence[PrefillSample], warnings: list[str]) -> tuple[int, Fit]:
    """The law with the given chunk size, or with the one that explains the measurements best."""
    if facts.chunk_tokens:
        return facts.chunk_tokens, _fit_chunk(samples, facts.chunk_tokens)
    whole = _fit_chunk(samples, NO_CHUNK)
    longest = max(s.uncached for s in samples)
    tried = [(_fit_chunk(samples, c), c) for c in CHUNK_CANDIDATES if c < longest]
    if tried:
        fit, chunk = min(tried, key=lambda pair: pair[0].mape)
        if fit.mape < _CHUNK_GAIN * whole.mape and fit.coefficients[2] > 0:
            warnings.append(f"prefill: the chunk size was not given; {chunk} tokens explain the measurements best")
            return chunk, fit
    warnings.append(
        f"prefill: the chunk size was not given and shows no effect up to {longest} tokens; {longest} is taken "
        "(give --chunk-tokens if you know it)"
    )
    return longest, _fit_chunk(samples, longest)


def _fit_chunk(samples: Sequence[PrefillSample], chunk: int) -> Fit:
    """Columns: a request, a token, a chunk, a (token x context token)."""
    rows = []
    for s in samples:
        new = max(1, s.uncached)
        rows.append((1.0, float(new), float(-(-new // chunk)), new * (s.cached + new / 2)))
    return fit_nonnegative(rows, [s.seconds for s in samples])
