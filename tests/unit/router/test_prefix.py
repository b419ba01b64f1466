"""The prefix index: chains, bound, correction."""

from __future__ import annotations

import random

from pdd.router.prefix import BlockChain, EngineBlocks, PrefixIndex


def chain(ids: list[int]) -> list[int]:
    return BlockChain(16, ids).hashes


def test_a_chain_grows_the_same_however_it_is_fed() -> None:
    ids = list(range(1000))
    grown = BlockChain(16)
    rng = random.Random(0)
    rest = ids
    while rest:
        cut = rng.randint(1, 50)
        grown.extend(rest[:cut])
        rest = rest[cut:]
    assert grown.hashes == chain(ids) and len(grown.hashes) == 1000 // 16


def test_a_block_counts_only_behind_the_same_blocks() -> None:
    a, b = list(range(64)), [99, *range(1, 64)]
    assert not set(chain(a)) & set(chain(b))
    assert chain(a)[:2] == chain([*a[:32], *range(500, 532)])[:2]


def test_match_is_the_longest_known_prefix() -> None:
    index = PrefixIndex(1000)
    hashes = chain(list(range(160)))
    index.add("md", hashes[:6])
    assert index.match("md", hashes) == 6
    assert index.match("md", chain(list(range(1, 161)))) == 0
    assert index.match("other", hashes) == 0


def test_least_recently_used_goes_first_and_the_bound_holds() -> None:
    blocks = EngineBlocks(100)
    old, kept = chain(list(range(640))), chain(list(range(1000, 1640)))
    blocks.add(old)
    blocks.add(kept)
    for start in range(2000, 9000, 320):
        blocks.add(chain(list(range(start, start + 320))))
        blocks.add(kept)
        assert len(blocks) <= 100
    assert blocks.match(kept) == 40 and blocks.match(old) == 0


def test_memory_of_uses_is_bounded_too() -> None:
    blocks = EngineBlocks(100)
    hashes = chain(list(range(800)))
    for _ in range(10_000):
        blocks.add(hashes)
    assert len(blocks) == 50 and blocks._logged <= 200
    assert blocks.match(hashes) == 50


def test_a_prompt_longer_than_the_bound_keeps_its_start() -> None:
    blocks = EngineBlocks(10)
    hashes = chain(list(range(800)))
    blocks.add(hashes)
    assert blocks.match(hashes) == 10


def test_a_missing_block_takes_everything_older_with_it() -> None:
    index = PrefixIndex(1000)
    oldest, older, newer = (chain(list(range(s, s + 160))) for s in (0, 1000, 2000))
    for hashes in (oldest, older, newer):
        index.add("md", hashes)
    expected = index.expect("md", older)
    assert expected.blocks == 10
    assert index.correct("md", expected, 4) == 20
    assert [index.match("md", hashes) for hashes in (oldest, older, newer)] == [0, 0, 10]


def test_what_was_found_corrects_nothing() -> None:
    index = PrefixIndex(1000)
    hashes = chain(list(range(160)))
    index.add("md", hashes)
    assert index.correct("md", index.expect("md", hashes), 10) == 0
    assert index.match("md", hashes) == 10


def test_blocks_learnt_since_the_call_began_survive_its_correction() -> None:
    index = PrefixIndex(1000)
    hashes = chain(list(range(160)))
    index.add("md", hashes)
    expected = index.expect("md", hashes)
    index.add("md", hashes)  # landed meanwhile
    assert index.correct("md", expected, 0) == 0
    assert index.match("md", hashes) == 10


def test_a_restart_purges() -> None:
    index = PrefixIndex(1000)
    hashes = chain(list(range(160)))
    index.add("md", hashes)
    index.purge("md")
    assert index.match("md", hashes) == 0 and index.size("md") == 0
