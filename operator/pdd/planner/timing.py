"""How long an engine takes: three laws with few coefficients, fitted by calibration, used by every model here.

The scalar functions take plain numbers only, so that the simulator compiles these very functions with numba.

Prefill of one chunk of m new tokens after `done` tokens that are in the cache already:

    t = fixed + per_token x (m + half) + attention x m x (done + m / 2)

`half` comes from the measured efficiency of matrix products, phi(m) = m / (m + half): m / phi(m) = m + half. It is
about 700 tokens for FP8 GEMM on H800 (InferSim's tables) and 0 where efficiency does not depend on size. The last term
is attention: each of the m tokens reads `done` and, on average, half of its own chunk.

One decode step of B sequences whose contexts sum to `context_sum` tokens (weights and KV are read once a step):

    t = fixed + per_sequence x B + per_context_token x context_sum

One extend (parallel recomputation of n tokens behind a context, as speculative decoding verifies):

    t = fixed + per_token x n + per_context_token x context
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PrefillTime:
    """Seconds: `fixed_s` a forward, `per_token_s` a token, `attention_s` a (token x context token); `half_tokens` and
    `chunk_tokens` in tokens. chunk_tokens: most tokens of one forward."""

    per_token_s: float
    chunk_tokens: int
    half_tokens: float = 0.0
    attention_s: float = 0.0
    fixed_s: float = 0.0


@dataclass(frozen=True, slots=True)
class DecodeTime:
    """Seconds: `fixed_s` a step, `per_sequence_s` a sequence of the batch, `per_context_token_s` a token of KV read."""

    fixed_s: float
    per_sequence_s: float = 0.0
    per_context_token_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ExtendTime:
    """Seconds: `fixed_s` a step, `per_token_s` a token recomputed, `per_context_token_s` a token of KV read."""

    fixed_s: float
    per_token_s: float
    per_context_token_s: float = 0.0


@dataclass(frozen=True, slots=True)
class EngineTimes:
    """One engine (instance): its three laws, the sequences it may run at once, and the KV that it can keep.

    kv_capacity_tokens: tokens of KV (running sequences and prefix cache together); 0: not limited.
    """

    prefill: PrefillTime
    decode: DecodeTime
    extend: ExtendTime
    max_sequences: int
    kv_capacity_tokens: int = 0


def compute_prefill_s(
    uncached: int,
    cached: int,
    chunk_tokens: int,
    per_token_s: float,
    half_tokens: float,
    attention_s: float,
    fixed_s: float,
) -> float:
    """Seconds to prefill `uncached` tokens behind `cached` ones, alone, in chunks of at most `chunk_tokens`.

    At least one forward runs even when all is cached (the first token must be computed): one token then.
    Closed form of the sum over chunks; the last one is the tail of `uncached mod chunk_tokens` tokens.
    """
    new = uncached if uncached > 0 else 1
    chunks = -(-new // chunk_tokens)
    linear = per_token_s * (new + half_tokens * chunks) + fixed_s * chunks
    return linear + attention_s * new * (cached + new / 2)


def compute_decode_step_s(
    batch: float, context_sum: float, fixed_s: float, per_sequence_s: float, per_context_token_s: float
) -> float:
    """Seconds of one decode step of `batch` sequences that hold `context_sum` tokens together; 0 for no sequence."""
    if batch <= 0:
        return 0.0
    return fixed_s + per_sequence_s * batch + per_context_token_s * context_sum


def compute_extend_s(
    tokens: float, context: float, fixed_s: float, per_token_s: float, per_context_token_s: float
) -> float:
    """Seconds to recompute the KV of `tokens` tokens behind `context` cached ones in one step; 0 for no tokens."""
    if tokens <= 0:
        return 0.0
    return fixed_s + per_token_s * tokens + per_context_token_s * context


def prefill_s(times: PrefillTime, uncached: int, cached: int = 0) -> float:
    """`compute_prefill_s` with the coefficients of `times`."""
    return compute_prefill_s(
        uncached, cached, times.chunk_tokens, times.per_token_s, times.half_tokens, times.attention_s, times.fixed_s
    )


def decode_step_s(times: DecodeTime, batch: float, context_sum: float) -> float:
    """`compute_decode_step_s` with the coefficients of `times`."""
    return compute_decode_step_s(batch, context_sum, times.fixed_s, times.per_sequence_s, times.per_context_token_s)


def extend_s(times: ExtendTime, tokens: float, context: float = 0.0) -> float:
    """`compute_extend_s` with the coefficients of `times`."""
    return compute_extend_s(tokens, context, times.fixed_s, times.per_token_s, times.per_context_token_s)
