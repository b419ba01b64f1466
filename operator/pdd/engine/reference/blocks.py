"""Blocks by number: reference counts, the prefix cache as a tree of token blocks, least recently used out.

Pure: knows no bytes and no time. A cached block is named by a digest that chains its tokens to all tokens before it, so
an equal digest means an equal prefix, and so (the model being exact) equal KV bits. A block may be cached while only
partly filled; such a block is shared by copying its tokens, never by writing on.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_MAX_CHILDREN_SEEN = 16
"""Siblings compared token by token when the next whole block is not cached."""


def chain_digest(parent: bytes, tokens: Sequence[int]) -> bytes:
    """Digest of a block (whole or partial) after the prefix that `parent` names."""
    body = np.asarray(tokens, dtype="<u4").tobytes()
    return hashlib.blake2b(parent + body, digest_size=16).digest()


def chain_digests(root: bytes, tokens: Sequence[int], block_size: int) -> list[bytes]:
    """Digests of the whole blocks of `tokens`."""
    digests: list[bytes] = []
    parent = root
    for at in range(0, len(tokens) - block_size + 1, block_size):
        parent = chain_digest(parent, tokens[at : at + block_size])
        digests.append(parent)
    return digests


@dataclass(frozen=True, slots=True)
class Match:
    """What the cache holds of a prompt: whole blocks, then the first `tail_tokens` of block `tail` (-1: none)."""

    blocks: tuple[int, ...]
    tail: int
    tail_tokens: int

    def tokens(self, block_size: int) -> int:
        return len(self.blocks) * block_size + self.tail_tokens


@dataclass(slots=True)
class _Cached:
    digest: bytes
    parent: bytes
    tokens: tuple[int, ...]


class BlockManager:
    """Hands out block numbers 0 .. num_blocks - 1.

    A block is blank (never filled, or forgotten), referenced, or idle: cached, unreferenced, and up for eviction.
    """

    def __init__(self, num_blocks: int, block_size: int, root: bytes) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.root = root
        self._blank: list[int] = list(range(num_blocks - 1, -1, -1))
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._references = [0] * num_blocks
        self._cached: dict[int, _Cached] = {}
        self._by_digest: dict[bytes, int] = {}
        self._children: dict[bytes, OrderedDict[int, None]] = {}

    @property
    def free_blocks(self) -> int:
        """Blocks that can be handed out now: blank ones and idle ones."""
        return len(self._blank) + len(self._idle)

    @property
    def cached_blocks(self) -> int:
        return len(self._cached)

    def references(self, block: int) -> int:
        return self._references[block]

    def match(self, tokens: Sequence[int], digests: Sequence[bytes]) -> Match:
        """Longest cached prefix of `tokens`, whose whole blocks have `digests`. Nothing is retained."""
        blocks: list[int] = []
        parent = self.root
        for digest in digests:
            block = self._by_digest.get(digest)
            if block is None:
                break
            blocks.append(block)
            parent = digest
        tail, length = self._best_child(parent, tokens[len(blocks) * self.block_size :][: self.block_size])
        return Match(tuple(blocks), tail, length)

    def _best_child(self, parent: bytes, wanted: Sequence[int]) -> tuple[int, int]:
        best, length = -1, 0
        for count, block in enumerate(reversed(self._children.get(parent, OrderedDict()))):
            if count == _MAX_CHILDREN_SEEN:
                break
            common = 0
            for have, want in zip(self._cached[block].tokens, wanted, strict=False):
                if have != want:
                    break
                common += 1
            if common > length:
                best, length = block, common
        return best, length

    def has(self, digest: bytes) -> bool:
        return digest in self._by_digest

    def retain(self, blocks: Sequence[int]) -> None:
        """Add a reference to each block; an idle block leaves the eviction queue."""
        for block in blocks:
            if self._references[block] == 0:
                self._idle.pop(block, None)
            self._references[block] += 1

    def allocate(self, count: int) -> list[int] | None:
        """`count` blocks with one reference each and unknown contents, or None if so many are not free."""
        if count > self.free_blocks:
            return None
        taken: list[int] = []
        for _ in range(count):
            if self._blank:
                block = self._blank.pop()
            else:
                block, _ = self._idle.popitem(last=False)
                self._forget(block)
            self._references[block] = 1
            taken.append(block)
        return taken

    def release(self, blocks: Sequence[int]) -> None:
        """Drop a reference of each. The last of a prefix becomes evictable before the first."""
        for block in reversed(blocks):
            if self._references[block] <= 0:
                raise AssertionError(f"block {block} released more often than retained")
            self._references[block] -= 1
            if self._references[block] == 0:
                if block in self._cached:
                    self._idle[block] = None
                else:
                    self._blank.append(block)

    def register(self, block: int, parent: bytes, tokens: Sequence[int]) -> bytes:
        """Cache a referenced block that holds the KV of `tokens` (1 .. block_size) after `parent`. Returns its digest.

        When another block already holds the same, that one stays the cached one. A partial block whose tokens this one
        starts with is superseded: it holds nothing more.
        """
        digest = chain_digest(parent, tokens)
        if digest in self._by_digest or block in self._cached:
            return digest
        siblings = self._children.setdefault(parent, OrderedDict())
        held = tuple(tokens)
        for other in list(siblings):
            shorter = self._cached[other].tokens
            if self._references[other] == 0 and len(shorter) < len(held) and held[: len(shorter)] == shorter:
                del self._idle[other]
                self._forget(other)
                self._blank.append(other)
        siblings = self._children.setdefault(parent, OrderedDict())
        siblings[block] = None
        self._cached[block] = _Cached(digest, parent, held)
        self._by_digest[digest] = block
        return digest

    def _forget(self, block: int) -> None:
        entry = self._cached.pop(block)
        del self._by_digest[entry.digest]
        siblings = self._children[entry.parent]
        del siblings[block]
        if not siblings:
            del self._children[entry.parent]

    def check(self) -> None:
        """Raise AssertionError if a block is lost or counted twice (tests call this after every operation)."""
        referenced = sum(1 for count in self._references if count)
        total = referenced + len(self._blank) + len(self._idle)
        assert total == self.num_blocks, f"{referenced} referenced, {len(self._blank)} blank, {len(self._idle)} idle"
        assert len(set(self._blank)) == len(self._blank)
        assert all(self._references[b] == 0 and b in self._cached for b in self._idle)
        assert all(self._references[b] == 0 and b not in self._cached for b in self._blank)
        assert len(self._by_digest) == len(self._cached) == sum(len(c) for c in self._children.values())
