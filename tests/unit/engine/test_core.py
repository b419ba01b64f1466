"""Admission, prefix reuse, leases, loading, abort and preemption of the engine core."""

from __future__ import annotations

import pytest

from pdd.engine.reference.core import CoreLimits
from pdd.engine.reference.numerics import Floats
from pdd.engine.reference.sampling import Sampling, choose
from pdd.engine.reference.sequence import Request, Usage

from .conftest import Bench, MakeBench, handle_of

PROMPT = tuple(b"The relay decodes while the cache of the prompt crosses the line between both sites." * 2)


def run_one(bench: Bench, request: Request) -> Usage:
    bench.add(request)
    bench.run()
    usage = bench.last(request.request_id).usage
    assert usage is not None
    return usage


def all_free(bench: Bench) -> bool:
    return bench.core.blocks.free_blocks == bench.core.blocks.num_blocks


def test_max_tokens_ends_with_length_and_frees_all(make_bench: MakeBench) -> None:
    bench = make_bench()
    run_one(bench, Request("a", PROMPT, 5, ignore_eos=True))
    assert len(bench.tokens("a")) == 5
    assert [o.finish_reason for o in bench.outputs["a"]] == [None] * 4 + ["length"]
    assert all_free(bench)


def test_stop_token_ends_with_stop_and_is_in_the_output(make_bench: MakeBench) -> None:
    bench = make_bench()
    run_one(bench, Request("a", PROMPT, 5, ignore_eos=True))
    third = bench.tokens("a")[2]
    stopped = bench.tokens("a").index(third) + 1
    run_one(bench, Request("b", PROMPT, 5, stop_token_ids=frozenset({third}), ignore_eos=True))
    assert bench.tokens("b") == bench.tokens("a")[:stopped]
    assert bench.last("b").finish_reason == "stop"


def test_eos_ends_unless_ignored(make_bench: MakeBench) -> None:
    bench = make_bench()
    run_one(bench, Request("a", PROMPT, 3, ignore_eos=True))
    bench.core._eos = bench.tokens("a")[0]
    run_one(bench, Request("b", PROMPT, 3))
    assert (bench.tokens("b"), bench.last("b").finish_reason) == (bench.tokens("a")[:1], "stop")
    run_one(bench, Request("c", PROMPT, 3, ignore_eos=True))
    assert bench.tokens("c") == bench.tokens("a")


def test_the_same_prompt_again_computes_one_token(make_bench: MakeBench) -> None:
    bench = make_bench()
    assert run_one(bench, Request("a", PROMPT, 1)).computed_tokens == len(PROMPT)
    usage = run_one(bench, Request("b", PROMPT, 1))
    assert (usage.local_cached_tokens, usage.computed_tokens) == (len(PROMPT) - 1, 1)
    assert bench.tokens("a") == bench.tokens("b")


def test_going_on_after_the_prompt_computes_only_what_is_new(make_bench: MakeBench) -> None:
    """The partial last block is reused too: an extend computes its own tokens and no more."""
    bench = make_bench()
    run_one(bench, Request("a", PROMPT, 9, ignore_eos=True))
    eager = tuple(bench.tokens("a"))
    usage = run_one(bench, Request("b", (*PROMPT, *eager), 4, ignore_eos=True))
    assert usage.computed_tokens == 1
    run_one(bench, Request("land", PROMPT[:100], 1))
    usage = run_one(bench, Request("c", (*PROMPT[:100], 1, 2, 3), 1))
    assert usage.computed_tokens == 3


def test_two_equal_prompts_at_once_are_computed_once(make_bench: MakeBench) -> None:
    bench = make_bench(limits=CoreLimits(chunk_tokens=32))
    bench.add(Request("a", PROMPT, 1, export=True))
    bench.add(Request("b", PROMPT, 1, export=True))
    bench.step()
    assert bench.core.deferred == 1
    bench.run()
    usage = bench.last("b").usage
    assert usage is not None and usage.computed_tokens <= bench.store.block_size
    assert bench.tokens("a") == bench.tokens("b")
    assert bench.leases.counts().held == 2


def test_the_waiting_twin_goes_on_when_the_first_is_aborted(make_bench: MakeBench) -> None:
    bench = make_bench(limits=CoreLimits(chunk_tokens=32))
    bench.add(Request("a", PROMPT, 1))
    bench.add(Request("b", PROMPT, 1))
    bench.step()
    bench.core.abort("a")
    bench.run()
    usage = bench.last("b").usage
    assert usage is not None and usage.local_cached_tokens >= 32 - bench.store.block_size


def test_exported_blocks_stay_until_read(make_bench: MakeBench) -> None:
    bench = make_bench()
    run_one(bench, Request("p", PROMPT, 1, export=True))
    lease = bench.last("p").lease
    assert lease is not None and lease.num_tokens == len(PROMPT)
    assert bench.core.blocks.free_blocks == bench.core.blocks.num_blocks - len(lease.blocks)
    bench.leases.begin_read("p", "r", bench.clock())
    bench.leases.finish("p", "r", bench.clock())
    bench.step()
    assert all_free(bench)


def test_exported_blocks_go_when_the_lease_expires(make_bench: MakeBench) -> None:
    bench = make_bench(lease_s=30)
    run_one(bench, Request("p", PROMPT, 1, export=True))
    bench.clock.now_s += 29
    bench.step()
    assert not all_free(bench)
    bench.clock.now_s += 2
    bench.step()
    assert all_free(bench)
    assert bench.leases.counts().expired == 1


def test_a_prompt_that_ends_at_once_exports_nothing(make_bench: MakeBench) -> None:
    """As vLLM: a handle is given only when the answer ran to its length."""
    bench = make_bench()
    run_one(bench, Request("a", PROMPT, 1, ignore_eos=True))
    stop = frozenset(bench.tokens("a"))
    run_one(bench, Request("p", PROMPT, 1, stop_token_ids=stop, export=True))
    assert bench.last("p").lease is None
    assert all_free(bench)


def test_requests_wait_for_blocks_that_leases_hold(make_bench: MakeBench) -> None:
    bench = make_bench(num_blocks=12, lease_s=30)
    run_one(bench, Request("p", PROMPT, 1, export=True))
    bench.add(Request("q", PROMPT[::-1], 1))
    assert not bench.step()
    assert bench.core.waiting == 1
    bench.clock.now_s += 31
    bench.run()
    assert len(bench.tokens("q")) == 1


def test_a_prompt_as_large_as_the_cache_is_served_after_its_twin(make_bench: MakeBench) -> None:
    """The cached last block cannot be copied when every block is needed: it is computed again, not waited for."""
    bench = make_bench(num_blocks=11)
    assert -(-(len(PROMPT) + 3) // 16) == 11
    run_one(bench, Request("a", PROMPT, 3, ignore_eos=True))
    run_one(bench, Request("b", PROMPT, 3, ignore_eos=True))
    assert bench.tokens("a") == bench.tokens("b")


def test_only_missing_tokens_are_asked_of_the_owner(make_bench: MakeBench) -> None:
    owner, reader = make_bench(), make_bench()
    run_one(owner, Request("p", PROMPT, 1, export=True))
    run_one(reader, Request("before", (*PROMPT[:70], 5), 1))
    reader.add(Request("d", PROMPT, 4, ignore_eos=True, remote=handle_of(owner.last("p"))))
    reader.step()
    _, ranges = reader.loads.started["d"]
    assert (ranges[0].index, ranges[0].start) == (4, 6)
    assert sum(r.end - r.start for r in ranges) == len(PROMPT) - 70
    assert reader.land("d", owner) == len(PROMPT) - 70
    reader.run()
    run_one(owner, Request("whole", PROMPT, 4, ignore_eos=True))
    assert reader.tokens("d") == owner.tokens("whole")


def test_a_prompt_that_is_here_already_is_not_read_and_its_handle_released(make_bench: MakeBench) -> None:
    owner, reader = make_bench(), make_bench()
    run_one(owner, Request("p", PROMPT, 1, export=True))
    run_one(reader, Request("before", PROMPT, 1))
    run_one(reader, Request("d", PROMPT, 1, remote=handle_of(owner.last("p"))))
    assert reader.loads.released == ["d"]
    assert not reader.loads.started


def test_two_readers_of_one_prompt_read_it_once(make_bench: MakeBench) -> None:
    owner, reader = make_bench(), make_bench()
    for name in ("p", "q"):
        run_one(owner, Request(name, PROMPT, 1, export=True))
    reader.add(Request("d", PROMPT, 2, remote=handle_of(owner.last("p"))))
    reader.add(Request("e", PROMPT, 2, remote=handle_of(owner.last("q"))))
    reader.step()
    assert list(reader.loads.started) == ["d"]
    reader.land("d", owner)
    reader.step()
    if "e" in reader.loads.started:
        assert reader.land("e", owner) < reader.store.block_size
    else:
        assert reader.loads.released == ["e"]
    reader.run()
    assert reader.tokens("d") == reader.tokens("e")


def test_a_handle_longer_than_the_prompt_is_clamped(make_bench: MakeBench) -> None:
    owner, reader = make_bench(), make_bench()
    run_one(owner, Request("p", PROMPT, 1, export=True))
    reader.add(Request("d", PROMPT[:50], 3, ignore_eos=True, remote=handle_of(owner.last("p"))))
    reader.step()
    assert reader.land("d", owner) == 50
    reader.run()
    run_one(owner, Request("whole", PROMPT[:50], 3, ignore_eos=True))
    assert reader.tokens("d") == owner.tokens("whole")


def loading_bench(make_bench: MakeBench, *, recompute: bool = False) -> tuple[Bench, Bench]:
    owner = make_bench()
    reader = make_bench(limits=CoreLimits(recompute_on_load_failure=recompute))
    run_one(owner, Request("p", PROMPT, 1, export=True))
    reader.add(Request("d", PROMPT, 3, ignore_eos=True, remote=handle_of(owner.last("p"))))
    reader.step()
    return owner, reader


def test_a_failed_read_is_an_error_by_default(make_bench: MakeBench) -> None:
    _, reader = loading_bench(make_bench)
    reader.core.finish_load("d", 0, "the owner is gone")
    reader.step()
    assert reader.last("d").finish_reason == "error"
    assert "the owner is gone" in (reader.last("d").error or "")
    assert all_free(reader) and reader.core.idle
    assert reader.core.counters.failed_transfers == 1


def test_a_failed_read_is_computed_here_if_told_so(make_bench: MakeBench) -> None:
    owner, reader = loading_bench(make_bench, recompute=True)
    handle, ranges = reader.loads.started["d"]
    lease = owner.leases.begin_read(handle.request_id, "d", owner.clock())
    for wanted in ranges[:3]:
        payload = owner.store.export_tokens(lease.blocks[wanted.index], wanted.start, wanted.end)
        reader.store.import_tokens(wanted.target, wanted.start, wanted.end, payload)
    reader.core.finish_load("d", 48, "the owner died")
    reader.run()
    run_one(owner, Request("whole", PROMPT, 3, ignore_eos=True))
    assert reader.tokens("d") == owner.tokens("whole")
    usage = reader.last("d").usage
    assert usage is not None
    assert (usage.remote_tokens, usage.computed_tokens) == (48, len(PROMPT) - 48)


def test_abort_while_loading_frees_only_when_the_reading_has_stopped(make_bench: MakeBench) -> None:
    _, reader = loading_bench(make_bench)
    reader.core.abort("d")
    assert reader.loads.cancelled == ["d"]
    reader.step()
    assert not all_free(reader)
    reader.core.finish_load("d", 0, "aborted")
    reader.step()
    assert all_free(reader) and reader.core.idle
    assert reader.outputs["d"] == []


def test_abort_while_waiting_releases_the_handle(make_bench: MakeBench) -> None:
    owner, reader = make_bench(), make_bench(limits=CoreLimits(max_num_seqs=1))
    run_one(owner, Request("p", PROMPT, 1, export=True))
    reader.add(Request("busy", PROMPT[::-1], 50, ignore_eos=True))
    reader.step()
    reader.add(Request("d", PROMPT, 3, remote=handle_of(owner.last("p"))))
    reader.step()
    reader.core.abort("d")
    assert reader.loads.released == ["d"]
    reader.core.abort("busy")
    assert all_free(reader) and reader.core.idle


@pytest.mark.parametrize("steps", [0, 1, 3, 9])
def test_abort_while_running_frees_all(make_bench: MakeBench, steps: int) -> None:
    bench = make_bench(limits=CoreLimits(chunk_tokens=32))
    bench.add(Request("a", PROMPT, 50, ignore_eos=True))
    for _ in range(steps):
        bench.step()
    bench.core.abort("a")
    assert all_free(bench) and bench.core.idle
    assert len(bench.tokens("a")) < 50


def test_abort_all_tells_every_client(make_bench: MakeBench) -> None:
    _, reader = loading_bench(make_bench)
    reader.add(Request("run", PROMPT[::-1], 50, ignore_eos=True))
    reader.step()
    reader.core.abort_all("going down")
    reader.core.finish_load("d", 0, "aborted")
    reader.step()
    assert reader.last("d").error == reader.last("run").error == "going down"
    assert all_free(reader) and reader.core.idle


def test_no_more_than_max_num_seqs_run(make_bench: MakeBench) -> None:
    bench = make_bench(limits=CoreLimits(max_num_seqs=2))
    for index in range(5):
        bench.add(Request(f"r{index}", (index + 1, 2, 3), 4, Sampling(), ignore_eos=True))
    while not bench.core.idle:
        bench.step()
        assert bench.core.running <= 2
    assert all(len(bench.tokens(f"r{i}")) == 4 for i in range(5))


def test_a_cached_prompt_does_not_wait_behind_long_prompts(make_bench: MakeBench) -> None:
    """The call for a second reader's handle, at a prefill engine whose slots and chunk are full of long prompts."""
    bench = make_bench(num_blocks=256, limits=CoreLimits(max_num_seqs=2, chunk_tokens=32))
    run_one(bench, Request("first", PROMPT, 1, export=True))
    for index in range(5):
        bench.add(Request(f"long{index}", (index, *PROMPT * 3), 1))
    bench.step()
    bench.add(Request("second", PROMPT, 1, export=True))
    bench.step()
    assert bench.last("second").lease is not None
    assert bench.tokens("second") == bench.tokens("first")
    assert not bench.outputs["long0"]
    bench.run()


def test_a_cached_prompt_passes_one_that_waits_for_blocks(make_bench: MakeBench) -> None:
    bench = make_bench(num_blocks=16)
    run_one(bench, Request("first", PROMPT, 1, export=True))
    bench.add(Request("large", PROMPT[::-1], 1))
    bench.step()
    bench.add(Request("second", PROMPT, 1))
    bench.step()
    assert bench.tokens("second") == bench.tokens("first")
    assert bench.core.waiting == 1
    bench.clock.now_s += 60
    bench.run()
    assert len(bench.tokens("large")) == 1


def test_long_prompts_still_end_under_a_stream_of_short_ones(make_bench: MakeBench) -> None:
    bench = make_bench(limits=CoreLimits(max_num_seqs=2, chunk_tokens=64))
    bench.add(Request("long", PROMPT * 3, 1))
    for index in range(60):
        bench.add(Request(f"s{index}", (index, 1, 2, 3), 1))
        bench.step()
    assert len(bench.tokens("long")) == 1


def test_a_request_that_breaks_the_sampler_ends_alone(make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its neighbours in the batch keep their tokens, and the engine lives."""
    alone = make_bench()
    run_one(alone, Request("a", PROMPT, 6, ignore_eos=True))

    def choose_or_break(logits: Floats, sampling: Sampling, position: int) -> int:
        if sampling.seed == 13:
            raise ValueError("cannot convert float NaN to integer")
        return choose(logits, sampling, position)

    monkeypatch.setattr("pdd.engine.reference.core.choose", choose_or_break)
    bench = make_bench()
    bench.add(Request("a", PROMPT, 6, ignore_eos=True))
    bench.add(Request("b", PROMPT[:20], 6, sampling=Sampling(temperature=1.0, seed=13), ignore_eos=True, export=True))
    bench.run()
    assert bench.tokens("a") == alone.tokens("a")
    assert bench.last("b").finish_reason == "error" and "NaN" in str(bench.last("b").error)
    assert all_free(bench) and bench.leases.counts().held == 0


def test_an_abort_that_comes_just_after_the_end_takes_the_lease_back(make_bench: MakeBench) -> None:
    """The asker left while the answer was on its way: nobody has the handle."""
    bench = make_bench()
    bench.add(Request("a", PROMPT, 1, ignore_eos=True, export=True))
    bench.run()
    assert bench.last("a").lease is not None and bench.leases.counts().held == 1
    bench.core.abort("a")
    assert bench.leases.counts().held == 0 and all_free(bench)
