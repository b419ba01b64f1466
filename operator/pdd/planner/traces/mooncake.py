"""Mooncake traces (JSON lines): `timestamp` (ms), `input_length`, `output_length`, `hash_ids` (one for 512 tokens).

An id stands for a block *and all before it*. Files in which one id follows different blocks are read as well: ids are
numbered anew by what stands before them, so that equal ids always mean equal prefixes.
"""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from pdd.planner.load import Blocks, Load
from pdd.planner.traces.columns import Columns
from pdd.planner.traces.text import Place, describe_missing, read_lines, read_number, read_whole

BLOCK_TOKENS = 512
KEYS = ("timestamp", "input_length", "output_length", "hash_ids")


class Trie:
    """Gives each (prefix, block) a number, dense from 0, in the order of first sight."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int], int] = {}

    def add(self, hash_ids: list[int]) -> tuple[list[int], int]:
        """The numbers of the prompt's blocks, and how many of its leading blocks were there before."""
        numbers = self._numbers
        parent, known, path = -1, 0, []
        for position, hash_id in enumerate(hash_ids):
            fresh = len(numbers)
            parent = numbers.setdefault((parent, hash_id), fresh)
            if parent != fresh:
                known = position + 1
            path.append(parent)
        return path, known


def read_mooncake(path: Path, limit: int | None = None) -> Load:
    """The (first `limit`) requests, with blocks and the hits of an unlimited cache. Raises InvalidInput."""
    columns, trie = Columns(), Trie()
    offsets, ids = array("q", [0]), array("q")
    last_ms = 0.0
    for place, line in read_lines(path):
        row = _parse(place, line)
        at_ms = read_number(place, "timestamp", row["timestamp"])
        if at_ms < last_ms:
            raise place.error(
                "timestamp", row["timestamp"], f"earlier than the line before ({last_ms:g}): sort by time"
            )
        last_ms = at_ms
        inputs = read_whole(place, "input_length", row["input_length"], low=1)
        outputs = read_whole(place, "output_length", row["output_length"])
        blocks, known = trie.add(_hash_ids(place, row["hash_ids"], inputs))
        ids.extend(blocks)
        offsets.append(len(ids))
        columns.add(at_ms / 1000, inputs, outputs, min(known * BLOCK_TOKENS, inputs), -1, -1, 0.0)
        if len(columns) == limit:
            break
    return columns.to_load(Blocks(np.array(offsets, np.int64), np.array(ids, np.int64), BLOCK_TOKENS))


def _parse(place: Place, line: str) -> dict[str, Any]:
    def refuse(name: str) -> NoReturn:
        raise place.error("JSON", name, "is no number: remove the line, or repair it")

    try:
        row = json.loads(line, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise place.error("JSON", line, f"is broken: {error}") from None
    if not isinstance(row, dict):
        raise place.error("JSON", row, f"must be an object with {', '.join(KEYS)}")
    for key in KEYS:
        if key not in row:
            raise place.error(key, None, describe_missing(key, list(row)))
        if isinstance(row[key], str):
            raise place.error(
                key, row[key], f"must be {'whole numbers' if key == 'hash_ids' else 'a number'}, not a text"
            )
    return row


def _hash_ids(place: Place, value: object, inputs: int) -> list[int]:
    if not isinstance(value, list):
        raise place.error("hash_ids", value, "must be a list of whole numbers")
    for hash_id in value:
        if type(hash_id) is not int or hash_id < 0:
            raise place.error("hash_ids", hash_id, "must be whole numbers, at least 0")
    most = -(-inputs // BLOCK_TOKENS)
    if len(value) > most:
        remedy = f"{inputs} tokens make at most {most} blocks of {BLOCK_TOKENS}: other block sizes are not read"
        raise place.error("hash_ids", f"{len(value)} ids", remedy)
    return value
