"""The ids of a request depend on nothing but the request: the engine's main promise, tried with many random runs."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pdd.engine.reference.attention import Context, _mix, attend
from pdd.engine.reference.config import VALUE_MAX, ModelConfig
from pdd.engine.reference.core import CoreLimits
from pdd.engine.reference.kvstore import KVStore
from pdd.engine.reference.model import Model, Segment
from pdd.engine.reference.sampling import Sampling
from pdd.engine.reference.sequence import Request
from pdd.engine.tokenizer import ByteTokenizer

from .conftest import Bench, MakeBench, handle_of

SAMPLED = Sampling(temperature=0.9, top_p=0.95, top_k=50, seed=11)


def random_prompt(rng: random.Random, low: int, high: int) -> tuple[int, ...]:
    return tuple(rng.randrange(32, 127) for _ in range(rng.randint(low, high)))


def logits_in_pieces(model: Model, tokens: list[int], cuts: list[int], table: np.ndarray) -> list[np.ndarray]:
    """Logits after each piece of `tokens` when it is computed in the pieces that `cuts` makes."""
    store = KVStore(model.config, 64, 16)
    out = []
    for low, high in zip([0, *cuts], [*cuts, len(tokens)], strict=True):
        out.append(model.forward(store, [Segment(tokens[low:high], low, table, True)])[0])
    return out


@pytest.mark.parametrize("seed", range(6))
def test_logits_have_the_same_bits_however_the_prompt_is_cut(model: Model, seed: int) -> None:
    rng = random.Random(seed)
    tokens = list(random_prompt(rng, 300, 700))
    table = np.array(rng.sample(range(64), 64))
    whole = logits_in_pieces(model, tokens, [], table)[-1]
    for _ in range(3):
        cuts = sorted(rng.sample(range(1, len(tokens)), rng.randint(1, 12)))
        pieces = logits_in_pieces(model, tokens, cuts, np.array(rng.sample(range(64), 64)))
        assert np.array_equal(pieces[-1], whole)


def test_one_extend_gives_the_bits_of_token_by_token_decoding(model: Model) -> None:
    rng = random.Random(9)
    tokens = list(random_prompt(rng, 330, 330))
    table = np.arange(64)
    stepwise = logits_in_pieces(model, tokens, list(range(270, 330)), table)
    assert np.array_equal(stepwise[-1], logits_in_pieces(model, tokens, [270], table)[-1])


def test_batching_changes_no_bit(model: Model) -> None:
    rng = random.Random(4)
    prompts = [list(random_prompt(rng, 1, 90)) for _ in range(7)]
    apart = [logits_in_pieces(model, p, [], np.arange(i * 6, i * 6 + 6))[0] for i, p in enumerate(prompts)]
    store = KVStore(model.config, 64, 16)
    segments = [Segment(p, 0, np.arange(i * 6, i * 6 + 6), True) for i, p in enumerate(prompts)]
    assert np.array_equal(model.forward(store, segments), np.stack(apart))


@pytest.mark.parametrize("window", [0, 40])
def test_attention_equals_integer_arithmetic(window: int) -> None:
    """Against a plain loop over integers, at extreme values that force the chunked sum."""
    config = ModelConfig()
    rng = np.random.default_rng(5)
    length, rows = 700, 5
    keys = rng.integers(-511, 512, (length, config.kv_width)).astype(np.float32)
    values = rng.choice([-VALUE_MAX, VALUE_MAX], (length, config.kv_width)).astype(np.float32)
    queries = rng.integers(-3, 4, (rows, config.query_heads, config.head_dim)).astype(np.float32)
    first = length - rows
    out = attend(config, queries * np.float32(512), first, Context(0, keys, values), window)
    for row in range(rows):
        position = first + row
        low = max(0, position - window + 1) if window else 0
        for head in range(config.query_heads):
            kv = slice((head // config.group) * 64, (head // config.group) * 64 + 64)
            scores = keys[low : position + 1, kv].astype(np.int64) @ queries[row, head].astype(np.int64)
            bits = (np.float32(512) * scores.astype(np.float32)) - (
                np.float32(512) * np.float32(scores.max()) - np.float32(136 * 2**23)
            )
            weights = np.rint(np.maximum(bits, np.float32(0)).astype(np.int32).view(np.float32)).astype(np.int64)
            mixed = weights @ values[low : position + 1, kv].astype(np.int64)
            expected = np.rint(mixed * 4.0 / weights.sum())
            assert np.array_equal(out[row, head * 64 : head * 64 + 64], expected)


def test_weighted_values_are_summed_exactly_at_a_rounding_tie() -> None:
    """Means of exactly 126.125, so 504.5 quarters: any lost bit of the sum tips some of them to 505."""
    rng = np.random.default_rng(6)
    weights = np.repeat(rng.integers(0, 256, (1, 64, 512)) * 2 + 1, 8, axis=2)
    values = np.tile(np.array([127, *[126] * 7]), 512)
    order = rng.permutation(4096)
    shuffled = weights[:, :, order].astype(np.float32)
    columns = np.repeat(values[order][None, :, None], 64, axis=2).astype(np.float32)
    sums = weights.sum(axis=2, keepdims=True).astype(np.float32)
    assert float(sums.max()) * VALUE_MAX > 2**24
    assert np.array_equal(_mix(shuffled, sums, columns), np.full((1, 64, 64), 504.0))


def reference_tokens(make_bench: MakeBench, request: Request) -> list[int]:
    """The request alone on an engine of its own, in one chunk."""
    bench = make_bench(limits=CoreLimits(chunk_tokens=10_000))
    bench.add(request)
    bench.run()
    return bench.tokens(request.request_id)


def make_requests(rng: random.Random, count: int) -> list[Request]:
    """Requests that share prefixes, some greedy, some sampled."""
    base = random_prompt(rng, 60, 200)
    requests = []
    for index in range(count):
        shared = base[: rng.randint(0, len(base))] if rng.random() < 0.7 else ()
        prompt = shared + random_prompt(rng, 1, 60)
        sampling = SAMPLED if index % 3 == 2 else Sampling()
        requests.append(Request(f"r{index}", prompt, rng.randint(1, 24), sampling, ignore_eos=True))
    return requests


@pytest.mark.parametrize("seed", range(5))
def test_ids_do_not_depend_on_batch_chunk_block_size_or_cache(make_bench: MakeBench, seed: int) -> None:
    rng = random.Random(100 + seed)
    requests = make_requests(rng, 6)
    expected = {r.request_id: reference_tokens(make_bench, r) for r in requests}
    limits = CoreLimits(max_num_seqs=rng.randint(2, 6), chunk_tokens=rng.choice([1, 7, 33, 64, 256]))
    bench = make_bench(num_blocks=256, block_size=rng.choice([4, 16, 32]), limits=limits)
    todo = list(requests)
    while todo:
        for _ in range(rng.randint(1, 3)):
            if todo:
                bench.add(todo.pop())
        for _ in range(rng.randint(0, 6)):
            bench.step()
    bench.run()
    assert {r.request_id: bench.tokens(r.request_id) for r in requests} == expected


@pytest.mark.parametrize("seed", range(3))
def test_preempted_requests_give_the_same_ids(make_bench: MakeBench, seed: int) -> None:
    rng = random.Random(200 + seed)
    requests = [
        Request(f"r{i}", random_prompt(rng, 20, 60), rng.randint(20, 40), SAMPLED if i % 2 else Sampling())
        for i in range(5)
    ]
    expected = {r.request_id: reference_tokens(make_bench, r) for r in requests}
    bench = make_bench(num_blocks=28, block_size=8, limits=CoreLimits(chunk_tokens=16))
    for request in requests:
        bench.add(request)
    bench.run()
    assert bench.core.counters.preemptions > 0
    assert {r.request_id: bench.tokens(r.request_id) for r in requests} == expected


def hand_over(owner: Bench, reader: Bench, prompt: tuple[int, ...], eager: int, tag: str) -> tuple[list[int], int]:
    """P exports, MD reads and extends by `eager` known tokens. Returns (reader's tokens, tokens read)."""
    owner.add(Request(f"p{tag}", prompt, 1, export=True))
    owner.run()
    request = Request(f"d{tag}", prompt, 20, ignore_eos=True, remote=handle_of(owner.last(f"p{tag}")))
    if eager:
        known = reference_tokens_of(owner, prompt, eager, tag)
        request = Request(f"d{tag}", prompt + tuple(known), 20, ignore_eos=True, remote=request.remote)
    reader.add(request)
    reader.step()
    landed = reader.land(f"d{tag}", owner) if f"d{tag}" in reader.loads.started else 0
    reader.run()
    return reader.tokens(f"d{tag}"), landed


def reference_tokens_of(bench: Bench, prompt: tuple[int, ...], count: int, tag: str) -> list[int]:
    bench.add(Request(f"x{tag}", prompt, count, ignore_eos=True))
    bench.run()
    return bench.tokens(f"x{tag}")


@pytest.mark.parametrize(
    ("length", "eager"), [(100, 0), (100, 8), (128, 5), (127, 1), (127, 40), (96, 32), (500, 16), (16, 1), (1, 3)]
)
def test_pulled_kv_gives_the_ids_of_local_kv(make_bench: MakeBench, length: int, eager: int) -> None:
    rng = random.Random(length * 1000 + eager)
    prompt = random_prompt(rng, length, length)
    whole = reference_tokens(make_bench, Request("whole", prompt, eager + 20, ignore_eos=True))
    owner, reader = make_bench(), make_bench()
    tokens, landed = hand_over(owner, reader, prompt, eager, "0")
    assert tokens == whole[eager:]
    assert landed == length
    usage = reader.last("d0").usage
    assert usage is not None
    assert (usage.local_cached_tokens, usage.remote_tokens, usage.computed_tokens) == (0, length, eager)
    owner.step()
    assert owner.core.blocks.free_blocks == owner.core.blocks.num_blocks


def test_kv_of_another_prompt_gives_other_ids(make_bench: MakeBench) -> None:
    """The pulled KV is really used: with wrong bytes the ids must differ."""
    rng = random.Random(77)
    right, wrong = random_prompt(rng, 90, 90), random_prompt(rng, 90, 90)
    expected = reference_tokens(make_bench, Request("whole", right, 20, ignore_eos=True))
    owner, reader = make_bench(), make_bench()
    owner.add(Request("p", wrong, 1, export=True))
    owner.run()
    reader.add(Request("d", right, 20, ignore_eos=True, remote=handle_of(owner.last("p"))))
    reader.step()
    reader.land("d", owner)
    reader.run()
    assert reader.tokens("d") != expected


def test_sampled_request_goes_on_elsewhere_with_the_same_draws(make_bench: MakeBench) -> None:
    prompt = random_prompt(random.Random(5), 50, 50)
    whole = reference_tokens(make_bench, Request("whole", prompt, 40, SAMPLED, ignore_eos=True))
    assert len(set(whole)) > 5
    for cut in (1, 13, 39):
        rest = Request("rest", prompt + tuple(whole[:cut]), 40 - cut, SAMPLED, ignore_eos=True)
        assert reference_tokens(make_bench, rest) == whole[cut:]


@pytest.mark.parametrize("text", ["What is relay decode?", "The cache crosses the line. " * 40])
def test_greedy_output_is_printable_and_in_no_loop(make_bench: MakeBench, text: str) -> None:
    """Tokens in a loop would hide errors: equal ids would say little."""
    tokenizer = ByteTokenizer()
    prompt = tuple(tokenizer.apply_chat_template([{"role": "user", "content": text}]))
    ids = reference_tokens(make_bench, Request("a", prompt, 150, ignore_eos=True))
    assert len({tuple(ids[at : at + 8]) for at in range(len(ids) - 8)}) > 90
    assert sum(32 <= token < 127 for token in ids) > 145
