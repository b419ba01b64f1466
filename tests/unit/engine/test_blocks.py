"""Reference counts, the prefix cache and its eviction order."""

from __future__ import annotations

import random

import pytest

from pdd.engine.reference.blocks import BlockManager, chain_digest, chain_digests

ROOT = b"root"


def cache(manager: BlockManager, tokens: list[int]) -> list[int]:
    """Allocate, register and release the blocks of `tokens`, the last one perhaps partial."""
    size = manager.block_size
    blocks = manager.allocate(-(-len(tokens) // size))
    assert blocks is not None
    parent = manager.root
    for index, block in enumerate(blocks):
        parent = manager.register(block, parent, tokens[index * size : (index + 1) * size])
    manager.release(blocks)
    manager.check()
    return blocks


def matched(manager: BlockManager, tokens: list[int]) -> int:
    digests = chain_digests(manager.root, tokens, manager.block_size)
    return manager.match(tokens, digests).tokens(manager.block_size)


def test_a_digest_names_the_whole_prefix() -> None:
    one = chain_digests(ROOT, [1, 2, 3, 4, 5], 2)
    assert len(one) == 2
    assert one[0] == chain_digests(ROOT, [1, 2, 9, 9], 2)[0]
    assert one[1] != chain_digest(chain_digest(ROOT, [2, 1]), [3, 4])
    assert one[0] != chain_digests(b"other weights", [1, 2], 2)[0]


def test_whole_and_partial_blocks_are_found_token_by_token() -> None:
    manager = BlockManager(8, 4, ROOT)
    cache(manager, list(range(10)))
    assert matched(manager, list(range(10))) == 10
    assert matched(manager, list(range(9))) == 9
    assert matched(manager, list(range(20))) == 10
    assert matched(manager, [0, 1, 2, 3, 4, 5, 99]) == 6
    assert matched(manager, [7, 1, 2, 3]) == 0


def test_the_longest_of_several_partial_blocks_is_found() -> None:
    manager = BlockManager(8, 8, ROOT)
    cache(manager, [1, 2, 3, 9])
    cache(manager, [1, 2, 5, 6, 7])
    assert matched(manager, [1, 2, 3, 9, 9]) == 4
    assert matched(manager, [1, 2, 5, 6, 1]) == 4
    assert matched(manager, [1, 2, 8]) == 2


def test_a_longer_partial_block_replaces_the_shorter() -> None:
    manager = BlockManager(8, 8, ROOT)
    cache(manager, [1, 2, 3])
    cache(manager, [1, 2, 3, 4])
    assert manager.cached_blocks == 1
    assert matched(manager, [1, 2, 3, 4, 5]) == 4


def test_a_referenced_partial_block_is_not_replaced() -> None:
    manager = BlockManager(8, 8, ROOT)
    held = manager.allocate(1)
    assert held is not None
    manager.register(held[0], ROOT, [1, 2, 3])
    cache(manager, [1, 2, 3, 4])
    assert manager.cached_blocks == 2
    manager.release(held)
    manager.check()


def test_eviction_takes_the_least_recent_and_the_end_of_a_prefix_first() -> None:
    manager = BlockManager(4, 2, ROOT)
    first = cache(manager, [1, 2, 3, 4])
    cache(manager, [5, 6, 7, 8])
    manager.retain(first)
    manager.release(first)
    taken = manager.allocate(1)
    assert taken is not None
    assert matched(manager, [5, 6, 7, 8]) == 2
    assert matched(manager, [1, 2, 3, 4]) == 4
    manager.release(taken)


def test_allocation_is_all_or_nothing() -> None:
    manager = BlockManager(3, 2, ROOT)
    held = manager.allocate(2)
    assert held is not None
    assert manager.allocate(2) is None
    assert manager.free_blocks == 1
    manager.check()


def test_releasing_too_often_is_an_error() -> None:
    manager = BlockManager(2, 2, ROOT)
    held = manager.allocate(1)
    assert held is not None
    manager.release(held)
    with pytest.raises(AssertionError, match="released more often"):
        manager.release(held)


def test_equal_contents_are_cached_once() -> None:
    manager = BlockManager(4, 2, ROOT)
    cache(manager, [1, 2])
    cache(manager, [1, 2])
    assert manager.cached_blocks == 1


@pytest.mark.parametrize("seed", range(4))
def test_no_block_is_lost_in_random_use(seed: int) -> None:
    rng = random.Random(seed)
    manager = BlockManager(24, 4, ROOT)
    held: list[list[int]] = []
    for _ in range(600):
        tokens = [rng.randrange(3) for _ in range(rng.randint(1, 20))]
        digests = chain_digests(ROOT, tokens, 4)
        match = manager.match(tokens, digests)
        assert len(match.blocks) <= len(digests)
        manager.retain(match.blocks)
        fresh = manager.allocate(-(-len(tokens) // 4) - len(match.blocks))
        if fresh is None:
            manager.release(match.blocks)
        else:
            blocks = [*match.blocks, *fresh]
            parent = ROOT
            for index, block in enumerate(blocks):
                parent = manager.register(block, parent, tokens[index * 4 : index * 4 + 4])
            held.append(blocks)
        while held and (fresh is None or rng.random() < 0.5):
            manager.release(held.pop(rng.randrange(len(held))))
            if rng.random() < 0.3:
                break
        manager.check()
    for blocks in held:
        manager.release(blocks)
    assert manager.free_blocks == 24
