"""Requests with the lengths, prefixes and arrivals of a production trace, small enough for the reference engine.

The trace is Mooncake's conversation trace (one JSON object a line: timestamp in ms, input_length, output_length,
hash_ids: one per 512 prompt tokens, equal leading ids mean an equal prefix). It is data, not part of the repository:
$PDD_TRACES, or `../shared/traces` beside the repository. Where it is absent, `synthetic_records` makes records of the
same format and structure: prompts of median 17 blocks with a long tail, all under one common first block, one in four a
later turn of an earlier conversation.

A hash id becomes a block of token ids that depends on (salt, hash id) alone. A salt of its own for each run makes
everything cold, whatever earlier runs left in the engines' caches.
"""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e import paths

SOURCE_BLOCK_TOKENS = 512
FILE = Path("mooncake") / "conversation_trace.jsonl"


@dataclass(frozen=True, slots=True)
class Record:
    """One line of the trace. Lengths in tokens, time in ms since its start."""

    timestamp_ms: int
    input_tokens: int
    output_tokens: int
    hash_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scale:
    """block_tokens: what 512 prompt tokens become. output_divisor: outputs shrink by it. speed: arrivals are so much
    faster than in the trace (below 1: slower)."""

    block_tokens: int
    output_divisor: int
    speed: float


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request of the scaled trace: when it is sent, in seconds since the start, and its prompt."""

    at_s: float
    prompt: tuple[int, ...]
    max_tokens: int


def load_records(count: int) -> tuple[list[Record], str]:
    """The head of the trace, and one line that says where it came from."""
    folder = Path(os.environ.get("PDD_TRACES") or paths.REPOSITORY.parent / "shared" / "traces")
    file = folder / FILE
    if not file.is_file():
        return synthetic_records(
            count
        ), f"trace: synthetic, of the same format and structure: {FILE} is not in {folder}"
    with file.open() as lines:
        records = [_record(json.loads(line)) for line, _ in zip(lines, range(count), strict=False)]
    return records, f"trace: the first {len(records)} requests of {FILE}"


def _record(raw: dict[str, Any]) -> Record:
    return Record(raw["timestamp"], raw["input_length"], raw["output_length"], tuple(raw["hash_ids"]))


def synthetic_records(count: int, seed: int = 1) -> list[Record]:
    """`count` records that look like the real ones, the same for the same seed."""
    rng = random.Random(seed)
    conversations: list[tuple[int, ...]] = []
    records: list[Record] = []
    fresh = 1
    for index in range(count):
        old = rng.choice(conversations) if conversations and rng.random() < 0.25 else (0,)
        blocks = max(1, min(160, round(rng.lognormvariate(math.log(17), 0.9)) - (len(old) - 1) // 2))
        hash_ids = (*old, *range(fresh, fresh + blocks))
        fresh += blocks
        tokens = len(hash_ids) * SOURCE_BLOCK_TOKENS - rng.randrange(SOURCE_BLOCK_TOKENS)
        output = max(1, min(1000, round(rng.lognormvariate(math.log(300), 0.8))))
        records.append(Record(index // 8 * 3000, tokens, output, hash_ids))
        conversations.append(hash_ids)
    return records


def scale_records(records: Iterable[Record], scale: Scale, salt: str) -> list[Arrival]:
    """Keeps order, relative times, prefixes and the spread of the lengths. A prompt has at least one token."""
    arrivals = []
    for record in records:
        tokens = max(1, record.input_tokens * scale.block_tokens // SOURCE_BLOCK_TOKENS)
        blocks = [build_block(salt, hash_id, scale.block_tokens) for hash_id in record.hash_ids]
        prompt = tuple(token for block in blocks for token in block)[:tokens]
        output = max(1, round(record.output_tokens / scale.output_divisor))
        arrivals.append(Arrival(record.timestamp_ms / 1000 / scale.speed, prompt, output))
    return arrivals


def build_block(salt: str, hash_id: int, tokens: int) -> tuple[int, ...]:
    """Printable bytes as token ids, the same for the same arguments."""
    rng = random.Random(f"{salt}/{hash_id}")
    return tuple(rng.randrange(32, 127) for _ in range(tokens))


def compute_missing_bytes(prompts: Sequence[Sequence[int]], block_size: int, bytes_per_token: int) -> int:
    """KV bytes that an engine with an endless cache has to be sent for these prompts, in this order.

    Engines keep whole blocks; a last partial block is sent as a whole one and is not found again.
    """
    known: set[int] = set()
    missing = 0
    for prompt in prompts:
        chain, found, leading = 0, 0, True
        whole = len(prompt) // block_size
        for index in range(whole):
            chain = hash((chain, tuple(prompt[index * block_size : (index + 1) * block_size])))
            leading = leading and chain in known
            found += leading
            known.add(chain)
        missing += -(-len(prompt) // block_size) - found
    return missing * block_size * bytes_per_token
