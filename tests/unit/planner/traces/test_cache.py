"""Hits of finite caches, against a cache that is really run, block by block and token by token."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pdd.common.errors import InvalidInput
from pdd.planner.laws import LengthLaw, SessionLaw
from pdd.planner.load import Blocks, Load
from pdd.planner.traces import find_cache, finite_hits, measure_reuse, read_trace
from pdd.planner.traces.mooncake import Trie
from pdd.planner.workload import Workload, generate

DATA = Path(__file__).parents[4] / "tests" / "data" / "traces"


def run_lru(load: Load, capacity_blocks: int) -> list[int]:
    """Hit tokens by request: a cache of blocks that evicts the least recent; ends of prompts are the oldest."""
    blocks = load.blocks
    assert blocks is not None
    cache: OrderedDict[int, None] = OrderedDict()
    hits = []
    for i in range(len(load)):
        path = blocks.ids[blocks.offsets[i] : blocks.offsets[i + 1]].tolist()
        held = 0
        while held < len(path) and path[held] in cache:
            held += 1
        hits.append(min(held * blocks.block_tokens, int(load.input_tokens[i])))
        for block in reversed(path):
            cache.pop(block, None)
            cache[block] = None
        while len(cache) > capacity_blocks:
            cache.popitem(last=False)
    return hits


def random_load(seed: int, requests: int = 300, block_tokens: int = 16) -> Load:
    """Prompts that branch off from earlier ones at random places, as conversations and system prompts do."""
    rng = np.random.default_rng(seed)
    trie, paths, prompts, fresh = Trie(), [], [], 0
    for _ in range(requests):
        start: list[int] = []
        if prompts and rng.random() < 0.8:
            start = prompts[int(rng.integers(max(0, len(prompts) - 40), len(prompts)))]
            start = start[: int(rng.integers(0, len(start) + 1))]
        more = int(rng.integers(1, 9))
        prompts.append([*start, *range(fresh, fresh + more)])
        fresh += more
        paths.append(trie.add(prompts[-1])[0])
    lengths = np.array([len(path) * block_tokens - int(rng.integers(0, block_tokens)) for path in paths])
    offsets = np.cumsum([0, *(len(path) for path in paths)])
    ids = np.array([block for path in paths for block in path])
    none = np.full(requests, -1)
    load = Load(
        np.arange(requests, dtype=float), lengths, np.ones(requests, int), np.zeros(requests, int), none, none,
        np.zeros(requests), Blocks(offsets, ids, block_tokens),
    )  # fmt: skip
    return replace(load, hit_tokens=np.array(run_lru(load, 1 << 40)))


@pytest.mark.parametrize("seed", range(8))
def test_block_hits_are_those_of_a_real_lru_cache_of_every_size(seed: int) -> None:
    load = random_load(seed)
    sizes = [0, 1, 2, 3, 5, 8, 13, 21, 50, 100, 300, 1000, 10_000]
    for size, hits in zip(sizes, finite_hits(load, [size * 16 for size in sizes]), strict=True):
        assert hits.tolist() == run_lru(load, size)


def test_block_hits_of_the_recorded_file() -> None:
    load = read_trace(DATA / "mooncake.jsonl")
    for size in (0, 3, 7, 20, 40, 80):
        assert finite_hits(load, [size * 512])[0].tolist() == run_lru(load, size)


def as_blocks(load: Load) -> Load:
    """The same conversations with one block for each token, each prompt built as `measure_reuse` says it is."""
    contents: list[list[int]] = []
    trie, fresh, ids, offsets = Trie(), 0, [], [0]
    for i in range(len(load)):
        before, hit = int(load.previous[i]), int(load.hit_tokens[i])
        start = contents[before][:hit] if before >= 0 else []
        assert len(start) == hit
        prompt = start + list(range(fresh, fresh + int(load.input_tokens[i]) - hit))
        fresh += len(prompt)
        contents.append(prompt)
        ids += trie.add(prompt)[0]
        offsets.append(len(ids))
    return replace(load, blocks=Blocks(np.array(offsets), np.array(ids), 1))


@pytest.mark.parametrize("seed", range(4))
def test_session_hits_are_those_of_a_real_lru_cache_over_tokens(seed: int) -> None:
    workload = Workload(
        rate_per_s=5.0,
        input_tokens=LengthLaw(60.0, 0.6, 1.0, 500.0),
        output_tokens=LengthLaw(5.0),
        sessions=SessionLaw(
            5.0, LengthLaw(12.0, 1.0, 1.0, 100.0), LengthLaw(3.0, 1.0, 0.0, 60.0), answers_cached=False
        ),
    )
    drawn = generate(workload, 250, seed)
    load = replace(drawn, hit_tokens=np.where(drawn.previous < 0, 0, drawn.hit_tokens))
    cut = np.random.default_rng(seed).random(len(load))  # some prompts go on from the middle of the one before
    load = replace(load, hit_tokens=np.where(cut < 0.2, load.hit_tokens // 2, load.hit_tokens))
    blocks = as_blocks(load)
    for size in (0, 10, 60, 150, 400, 1000, 3000, 100_000):
        assert finite_hits(load, [size])[0].tolist() == run_lru(blocks, size)


@pytest.mark.parametrize("name", ["mooncake.jsonl", "agentic.csv"])
def test_an_unlimited_cache_gives_the_hits_of_the_trace(name: str) -> None:
    load = read_trace(DATA / name)
    assert finite_hits(load, [1e15])[0].tolist() == load.hit_tokens.tolist()


@pytest.mark.parametrize("load", [random_load(1), read_trace(DATA / "agentic.csv"), generate(
    Workload(sessions=SessionLaw()), 3000, 3)], ids=["blocks", "agentic", "sessions"])  # fmt: skip
def test_a_larger_cache_never_has_fewer_hits_for_any_request(load: Load) -> None:
    reuse = measure_reuse(load)
    last = np.zeros(len(load), int)
    for size in np.geomspace(1, 1e10, 40):
        hits = reuse.hit_tokens(float(size))
        assert (hits >= last).all() and (hits <= load.hit_tokens).all()
        last = hits
    assert last.tolist() == load.hit_tokens.tolist()


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99, 1.0])
def test_the_least_cache_for_a_share_of_the_hits(share: float) -> None:
    load = random_load(2)
    reuse = measure_reuse(load)
    size = find_cache(reuse, share)
    assert size is not None
    wanted = share * load.hit_tokens.sum()
    assert reuse.hit_tokens(size).sum() >= wanted > reuse.hit_tokens(size - 2 * 16).sum()


def test_no_reuse_is_known_without_hashes_and_sessions() -> None:
    with pytest.raises(InvalidInput, match="no hashes"):
        measure_reuse(read_trace(DATA / "azure_2023.csv"))
    assert find_cache(measure_reuse(replace(random_load(0, 1))), 0.5) is None


def test_a_hit_longer_than_the_turn_before_is_held_by_an_older_turn() -> None:
    """100 tokens, then a side question that shares 20 of them, then 90 of the first prompt again."""
    load = Load(
        arrival_s=np.arange(3.0),
        input_tokens=np.array([100, 30, 120]),
        output_tokens=np.array([1, 1, 1]),
        hit_tokens=np.array([0, 20, 90]),
        session=np.zeros(3, int),
        previous=np.array([-1, 0, 1]),
        think_s=np.zeros(3),
    )
    # On top of the order: 30 of the second prompt (its first 20 are the first prompt's, too), then 80 of the first.
    expected = {10: 10, 20: 20, 30: 20, 31: 21, 99: 89, 100: 90, 1000: 90}
    assert {size: int(finite_hits(load, [size])[0][2]) for size in expected} == expected
