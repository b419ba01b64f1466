"""Requests of a Mooncake trace, scaled down to what a small engine can run, with their prefix structure kept.

The trace gives one hash id for each 512-token block of a prompt; equal leading ids mean an equal prefix. Each id
becomes a block of made-up token ids of the scaled length, the same wherever the id occurs: hit rates stay as they were.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pdd.common.errors import InvalidInput
from pdd.planner.load import Blocks, Load
from pdd.planner.traces import read_trace

_FIRST_ID, _LAST_ID = 32, 126
"""Printable ASCII in the byte-level vocabulary: no special token, and any text stays valid UTF-8."""


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request. `at_s`: arrival since the trace began, in seconds."""

    at_s: float
    prompt: tuple[int, ...]
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Scale:
    """How a trace is shrunk: `block_tokens` tokens for each 512; outputs by the same factor within the bounds; time by
    `speed` (2.0: twice as fast); prompts are cut at `max_prompt_tokens`."""

    block_tokens: int = 32
    min_output_tokens: int = 4
    max_output_tokens: int = 64
    max_prompt_tokens: int = 4096
    speed: float = 1.0


def load_mooncake(path: Path, count: int, scale: Scale) -> list[TraceRequest]:
    """The first `count` requests of the trace. Raises InvalidInput: missing, broken, too short, no hashes."""
    load = read_trace(path, count)
    if load.blocks is None:
        raise InvalidInput("--trace", str(path), "has no block hashes to build prompts from: give a Mooncake trace")
    if len(load) < count:
        raise InvalidInput("--requests", count, f"the trace has {len(load)}")
    return [_request(load, load.blocks, i, scale) for i in range(count)]


def block_ids(hash_id: int, block_tokens: int) -> list[int]:
    """Token ids of one block, a function of its hash id."""
    rng = random.Random(hash_id * 1_000_003 + block_tokens)
    return [rng.randint(_FIRST_ID, _LAST_ID) for _ in range(block_tokens)]


def mean_hit_rate(requests: list[TraceRequest], block_tokens: int) -> float:
    """Share of prompt tokens whose block prefix an earlier request had, with an infinite cache."""
    seen: set[int] = set()
    hits = total = 0
    for request in requests:
        total += len(request.prompt)
        for prefix, size in _prefixes(request.prompt, block_tokens):
            if prefix in seen:
                hits += size
            seen.add(prefix)
    return hits / total if total else 0.0


def _prefixes(prompt: tuple[int, ...], block_tokens: int) -> Iterator[tuple[int, int]]:
    chain = 0
    for start in range(0, len(prompt) - block_tokens + 1, block_tokens):
        chain = hash((chain, prompt[start : start + block_tokens]))
        yield chain, block_tokens


def _request(load: Load, blocks: Blocks, index: int, scale: Scale) -> TraceRequest:
    hash_ids = blocks.ids[blocks.offsets[index] : blocks.offsets[index + 1]].tolist()
    prompt = [token for hash_id in hash_ids for token in block_ids(hash_id, scale.block_tokens)]
    wanted = max(1, int(load.input_tokens[index]) * scale.block_tokens // blocks.block_tokens)
    output = round(int(load.output_tokens[index]) * scale.block_tokens / blocks.block_tokens)
    return TraceRequest(
        at_s=float(load.arrival_s[index]) / scale.speed,
        prompt=tuple(prompt[: min(wanted, scale.max_prompt_tokens)]),
        output_tokens=min(max(output, scale.min_output_tokens), scale.max_output_tokens),
    )
