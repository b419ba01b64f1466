"""Which blocks a sequence stands on: taking them at admission, growing, caching what was computed, giving back.

Joins block numbers (`blocks`) and their bytes (`kvstore`) for sequences; knows nothing of batching or time.
"""

from __future__ import annotations

from enum import StrEnum

from pdd.engine.reference.blocks import BlockManager, Match, chain_digest, chain_digests
from pdd.engine.reference.kvstore import KVStore
from pdd.engine.reference.sequence import BlockRange, Sequence


class Refusal(StrEnum):
    """Why a sequence cannot have its blocks now."""

    DEFERRED = "deferred"
    """Another sequence is about to hold its next block: waiting is cheaper than doing the work twice."""
    NO_ROOM = "no room"
    TOO_LONG = "too long"


class Residency:
    """Owns the blocks. `settle` gives a sequence its blocks, `leave` takes them back."""

    def __init__(self, store: KVStore, root: bytes) -> None:
        self.store = store
        self.blocks = BlockManager(store.num_blocks, store.block_size, root)
        self._pending: dict[bytes, str] = {}
        """Whole blocks that a settled sequence is about to hold, by its request id."""

    def settle(self, sequence: Sequence, *, reserve: int, at_most_new: int) -> int | Refusal:
        """Blocks for all of the sequence's tokens, cached ones first. Returns how many leading tokens hold KV.

        `reserve` blocks stay free, so that each running sequence can take one more. A sequence of which more than
        `at_most_new` tokens are not cached is refused.
        """
        size, tokens = self.store.block_size, sequence.tokens
        whole = len(tokens) // size
        if len(sequence.digests) < whole:
            sequence.digests = chain_digests(self.blocks.root, tokens, size)
        match = self.blocks.match(tokens, sequence.digests)
        held = len(match.blocks)
        if held < whole and sequence.digests[held] in self._pending:
            return Refusal.DEFERRED
        if len(tokens) - match.tokens(size) > at_most_new:
            return Refusal.TOO_LONG
        self.blocks.retain(match.blocks)
        cached = held * size
        needed = -(-len(tokens) // size) - held
        fresh = self._allocate_with_tail(needed, reserve, match)
        if fresh is None:
            fresh = self._allocate(needed, reserve)
        elif match.tail >= 0:
            cached += match.tail_tokens
        if fresh is None:
            self.blocks.release(match.blocks)
            return Refusal.NO_ROOM
        sequence.add_blocks([*match.blocks, *fresh])
        sequence.registered = held
        for digest in sequence.digests[held:]:
            self._pending[digest] = sequence.request.request_id
        return cached

    def _allocate(self, needed: int, reserve: int) -> list[int] | None:
        return self.blocks.allocate(needed) if needed + reserve <= self.blocks.free_blocks else None

    def _allocate_with_tail(self, needed: int, reserve: int, match: Match) -> list[int] | None:
        """The same, the matched part of a cached block copied into the first. That block counts as taken meanwhile."""
        if match.tail < 0:
            return self._allocate(needed, reserve)
        self.blocks.retain([match.tail])
        fresh = self._allocate(needed, reserve)
        if fresh is not None:
            self.store.copy_tokens(match.tail, fresh[0], match.tail_tokens)
        self.blocks.release([match.tail])
        return fresh

    def grow(self, sequence: Sequence) -> bool:
        """Make sure that the next token has a place. False: no block is free."""
        if sequence.computed < len(sequence.blocks) * self.store.block_size:
            return True
        block = self.blocks.allocate(1)
        if block is None:
            return False
        sequence.add_blocks(block)
        return True

    def ranges(self, sequence: Sequence, low: int, high: int) -> tuple[BlockRange, ...]:
        """Positions low .. high as parts of blocks, in order."""
        size = self.store.block_size
        return tuple(
            BlockRange(i, max(low - i * size, 0), min(high - i * size, size), sequence.blocks[i])
            for i in range(low // size, -(-high // size))
        )

    def register_whole(self, sequence: Sequence) -> None:
        """Offer the blocks that have become whole to the prefix cache."""
        size = self.store.block_size
        while (sequence.registered + 1) * size <= sequence.computed:
            index = sequence.registered
            parent = sequence.digests[index - 1] if index else self.blocks.root
            tokens = sequence.tokens[index * size : (index + 1) * size]
            if index == len(sequence.digests):
                sequence.digests.append(chain_digest(parent, tokens))
            self.blocks.register(sequence.blocks[index], parent, tokens)
            self._drop_pending(sequence, index)
            sequence.registered += 1

    def leave(self, sequence: Sequence) -> None:
        """Cache the partial last block too, then drop all references. What was computed may be found again."""
        size = self.store.block_size
        for index in range(sequence.registered, len(sequence.digests)):
            self._drop_pending(sequence, index)
        whole, rest = divmod(sequence.computed, size)
        if rest and sequence.blocks and whole == sequence.registered:
            parent = sequence.digests[whole - 1] if whole else self.blocks.root
            self.blocks.register(sequence.blocks[whole], parent, sequence.tokens[whole * size : sequence.computed])
        self.blocks.release(sequence.blocks)
        sequence.drop_blocks()

    def _drop_pending(self, sequence: Sequence, index: int) -> None:
        if self._pending.get(sequence.digests[index]) == sequence.request.request_id:
            del self._pending[sequence.digests[index]]
