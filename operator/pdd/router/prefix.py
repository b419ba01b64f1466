"""Which prefixes each engine holds, as far as the router knows: chained block hashes with a bounded LRU an engine.

A block's hash covers all tokens before it (its seed is the hash of the block before), so one lookup by block from the
front finds the longest common prefix. Nothing is stored but hashes: about 100 bytes a block, whatever the block size.

The index learns from what was landed or decoded. It is corrected by what engines say they found: a block that an
engine no longer has was evicted, and with it everything that was used less recently (engines evict by LRU too).
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import xxhash

_xxh3 = xxhash.xxh3_64_intdigest


class BlockChain:
    """Hashes of the full blocks of a growing list of ids."""

    __slots__ = ("_block_size", "_tail", "hashes")

    def __init__(self, block_size: int, ids: Sequence[int] = ()) -> None:
        self.hashes: list[int] = []
        self._block_size = block_size
        self._tail: array[int] = array("I")
        self.extend(ids)

    def extend(self, ids: Sequence[int]) -> None:
        """Append ids. Cost: one hash a full block."""
        tail = self._tail
        tail.extend(ids)
        size = self._block_size
        full = len(tail) // size
        if not full:
            return
        raw = memoryview(tail.tobytes())
        step = size * tail.itemsize
        seed = self.hashes[-1] if self.hashes else 0
        for at in range(0, full * step, step):
            seed = _xxh3(raw[at : at + step], seed)
            self.hashes.append(seed)
        self._tail = tail[full * size :]


@dataclass(frozen=True, slots=True)
class Expectation:
    """blocks: leading blocks that an engine should have; oldest: when the least recently used of them was used."""

    blocks: int
    oldest: int


NOTHING_EXPECTED = Expectation(0, 0)


class EngineBlocks:
    """The blocks of one engine: hash -> time of last use (a running number, one a request).

    Evicts whole times, oldest first. `_log` holds, by time, the hashes used then; a hash used again later is skipped
    when its old time goes. Entries of the log are bounded to twice the capacity.
    """

    __slots__ = ("_capacity", "_log", "_logged", "_now", "_used")

    def __init__(self, capacity_blocks: int) -> None:
        self._capacity = capacity_blocks
        self._used: dict[int, int] = {}
        self._log: deque[tuple[int, array[int]]] = deque()
        self._logged = 0
        self._now = 0

    def __len__(self) -> int:
        return len(self._used)

    def match(self, hashes: Sequence[int]) -> int:
        """Number of leading blocks that are known."""
        used = self._used
        if not hashes or hashes[0] not in used:
            return 0
        if hashes[-1] in used:
            return len(hashes)
        return sum(1 for _ in takewhile(used.__contains__, hashes))

    def add(self, hashes: Sequence[int]) -> None:
        """These blocks are there now, and were used now."""
        if not hashes:
            return
        self._now += 1
        kept = array("Q", hashes[: self._capacity])
        self._used.update(dict.fromkeys(kept, self._now))
        self._log.append((self._now, kept))
        self._logged += len(kept)
        while len(self._used) > self._capacity or self._logged > 2 * self._capacity:
            self._forget_oldest()

    def expect(self, hashes: Sequence[int]) -> Expectation:
        """What the engine should find of these blocks, if it has evicted nothing that we think it has."""
        blocks = self.match(hashes)
        if not blocks:
            return NOTHING_EXPECTED
        return Expectation(blocks, min(map(self._used.__getitem__, hashes[:blocks])))

    def correct(self, expected: Expectation, found: int) -> int:
        """The engine found only the first `found` blocks: something as old as the oldest of them was evicted, and so
        was everything older. Returns how many blocks were forgotten for it."""
        if found >= expected.blocks:
            return 0
        before = len(self._used)
        while self._log and self._log[0][0] <= expected.oldest:
            self._forget_oldest()
        return before - len(self._used)

    def _forget_oldest(self) -> None:
        at, hashes = self._log.popleft()
        self._logged -= len(hashes)
        used = self._used
        for one in hashes:
            if used.get(one) == at:
                del used[one]


class PrefixIndex:
    """Blocks by engine. `capacity_blocks`: bound of each engine's part."""

    def __init__(self, capacity_blocks: int) -> None:
        self._capacity = capacity_blocks
        self._engines: dict[str, EngineBlocks] = {}

    def match(self, engine: str, hashes: Sequence[int]) -> int:
        """Leading blocks of `hashes` that `engine` holds."""
        blocks = self._engines.get(engine)
        return blocks.match(hashes) if blocks is not None else 0

    def add(self, engine: str, hashes: Sequence[int]) -> None:
        blocks = self._engines.get(engine)
        if blocks is None:
            blocks = self._engines[engine] = EngineBlocks(self._capacity)
        blocks.add(hashes)

    def expect(self, engine: str, hashes: Sequence[int]) -> Expectation:
        """See EngineBlocks.expect."""
        blocks = self._engines.get(engine)
        return blocks.expect(hashes) if blocks is not None else NOTHING_EXPECTED

    def correct(self, engine: str, expected: Expectation, found: int) -> int:
        """See EngineBlocks.correct."""
        blocks = self._engines.get(engine)
        return blocks.correct(expected, found) if blocks is not None else 0

    def purge(self, engine: str) -> None:
        """`engine` restarted or is gone: it holds nothing."""
        self._engines.pop(engine, None)

    def size(self, engine: str) -> int:
        """Blocks known of `engine`."""
        blocks = self._engines.get(engine)
        return len(blocks) if blocks is not None else 0
