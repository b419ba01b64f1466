"""What every run must keep: each request ends once, tokens sum, order of stamps, the same again for the same load."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from collections import OrderedDict
from dataclasses import fields, replace

import numpy as np
import pytest
from tests.unit.planner.sim.fleets import fleet, load, times

from pdd.common.errors import InvalidInput
from pdd.planner.fleet import Fleet, LineSpec, Sla, Way
from pdd.planner.load import Blocks, Load
from pdd.planner.sim import SimOptions, SimResult, simulate
from pdd.planner.sim.percentiles import estimate
from pdd.planner.workload import Workload, generate

BUSY_LINE = LineSpec(8e9, rtt_s=0.02, flow_bps=4e8, streams=2, connections=64)


def _mixed(n: int, seed: int = 1) -> Load:
    return replace_rate(generate(Workload(), n, seed), 20.0)


def replace_rate(source: Load, rate: float) -> Load:
    return replace(source, arrival_s=source.arrival_s * (source.rate_per_s / rate))


def _fleet(way: Way) -> Fleet:
    return fleet(
        way, prefills=6, relays=0 if way is not Way.PDD else 4, mains=8,
        prefill=times(token_s=1.5e-5, fixed_s=0.01, chunk=8192, kv=3_000_000),
        relay=times(step_s=0.015, sequence_s=1e-4, context_s=2e-9, most=48, kv=4_000_000),
        main=times(step_s=0.015, sequence_s=1e-4, context_s=2e-9, most=64, kv=5_000_000), line=BUSY_LINE,
        bytes_per_token=4400,
    )  # fmt: skip


def _equal(a: SimResult, b: SimResult) -> bool:
    names = [field.name for field in fields(a.columns)]
    return all(np.array_equal(getattr(a.columns, name), getattr(b.columns, name), equal_nan=True) for name in names)


@pytest.mark.parametrize("way", list(Way))
@pytest.mark.parametrize("steps", [False, True])
def test_every_request_ends_once_and_its_tokens_add_up(way: Way, steps: bool) -> None:
    source = _mixed(5000)
    run = simulate(_fleet(way), source, SimOptions(warmup_share=0.0, prefill_steps=steps))
    done = run.columns
    assert run.requests == len(source)
    assert np.array_equal(np.sort(done.output_tokens), np.sort(source.output_tokens))
    assert np.all(done.arrival_s <= done.first_s)
    many = done.output_tokens > 1
    assert np.all(done.first_s[many] <= done.second_s[many])
    assert np.all(done.second_s[many] <= done.done_s[many] + 1e-9)
    assert np.all((done.relayed >= 0) & (done.relayed <= np.maximum(0, done.output_tokens - 1)))
    assert np.all((done.p_hit >= 0) & (done.p_hit < done.input_tokens))
    assert sum(run.pipelines.values()) == pytest.approx(1.0)
    assert all(0 <= share <= 1 + 1e-9 for share in run.utilisation.values())
    if way is not Way.PDD:
        assert done.relayed.sum() == 0
    else:
        assert done.relayed.sum() > 0
        whole = done.route == 2  # P-RLD: relay decode makes all but P's token
        assert np.array_equal(done.relayed[whole], done.output_tokens[whole] - 1)


def test_the_same_load_gives_the_same_run_and_watching_it_changes_nothing() -> None:
    source = _mixed(4000)
    first = simulate(_fleet(Way.PDD), source)
    seen: list[tuple[int, int]] = []
    again = simulate(_fleet(Way.PDD), source, SimOptions(progress=lambda done, total: seen.append((done, total))))
    other = simulate(_fleet(Way.PDD), _mixed(4000, seed=2))
    assert _equal(first, again)
    assert not _equal(first, other)
    assert seen[-1] == (4000, 4000)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_plain_python_gives_what_the_compiled_loop_gives() -> None:
    """The compiler is not part of the model: an uncompiled run in a process of its own has the same stamps."""
    code = (
        "from tests.unit.planner.sim.plain import print_run\n"
        "print_run()"
    )  # fmt: skip
    shown = []
    for off in ("0", "1"):
        env = {**os.environ, "NUMBA_DISABLE_JIT": off, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=110)
        assert done.returncode == 0, done.stderr
        shown.append(done.stdout)
    assert shown[0] == shown[1]
    assert shown[0].count("\n") == 3


def test_decode_engine_equals_a_loop_over_its_steps() -> None:
    """Answers that begin together: the engine's clock against steps taken one by one."""
    outputs = np.array([2, 50, 51, 300, 301, 1000])
    step_s, sequence_s, context_s, inputs = 0.01, 0.002, 1e-6, 700
    run = simulate(
        fleet(Way.SAME_SITE, main=times(step_s=step_s, sequence_s=sequence_s, context_s=context_s)),
        load(len(outputs), rate=0, inputs=inputs, outputs=outputs),
        SimOptions(caches=False, warmup_share=0.0),
    )
    left, context, now = outputs - 1, np.full(len(outputs), inputs + 1.0), 0.0
    done = np.zeros(len(outputs))
    while np.any(left > 0):
        running = left > 0
        now += step_s + sequence_s * running.sum() + context_s * context[running].sum()
        left[running] -= 1
        context[running] += 1
        done[running & (left == 0)] = now
    assert run.columns.done_s - run.columns.landed_s == pytest.approx(done, rel=1e-9)


def test_sessions_in_a_closed_loop_wait_for_the_answer_and_think() -> None:
    turns, sessions = 5, 40
    n = turns * sessions
    order = np.arange(n)
    previous = np.where(order >= sessions, order - sessions, -1)
    source = load(n, rate=5, outputs=100, session=order % sessions, previous=previous, think_s=7.0)
    run = simulate(fleet(main=times(step_s=0.05)), source, SimOptions(closed_loop=True, warmup_share=0.0))
    done = run.columns.done_s - run.columns.arrival_s
    whole_s = run.span_s
    assert run.requests == n
    # The last conversation's five turns take five answers and four pauses, and the first turns' arrivals a few seconds.
    least_s = turns * float(done.min()) + (turns - 1) * 7.0
    assert least_s <= whole_s <= least_s + float(source.arrival_s[sessions - 1]) + turns * float(done.max())


def test_prefix_cache_of_blocks_is_an_exact_lru() -> None:
    """One prefill engine, requests one at a time, against an OrderedDict."""
    rng = np.random.default_rng(4)
    prompts = [
        [group * 100 + k for k in range(rng.integers(1, 30))] for group in rng.integers(0, 12, 400)
    ]  # fmt: skip
    sizes = np.array([len(p) for p in prompts])
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    source = load(len(prompts), rate=0.01, inputs=sizes * 64 + 1)
    source = replace(source, blocks=Blocks(offsets, np.concatenate(prompts), 64))
    room = 90
    run = simulate(fleet(prefill=times(kv=room * 64)), source, SimOptions(warmup_share=0.0))
    cache: OrderedDict[int, None] = OrderedDict()
    expected = []
    for prompt in prompts:
        held = 0
        while held < len(prompt) and prompt[held] in cache:
            held += 1
        expected.append(held * 64)
        for block in reversed(prompt):
            cache[block] = None
            cache.move_to_end(block)
        while len(cache) > room:
            cache.popitem(last=False)
    assert run.columns.p_hit.tolist() == expected
    assert 0 < sum(expected) < sum(64 * (len(p) - 1) for p in prompts)


def test_smaller_main_caches_put_more_on_the_line() -> None:
    source = replace_rate(generate(Workload(), 4000, 1), 10.0)
    no_drc = simulate(_fleet(Way.PDD), source, SimOptions(main_cache=False))
    drc = simulate(_fleet(Way.PDD), source)
    assert no_drc.line_bytes > 3 * drc.line_bytes


def test_a_percentile_needs_twenty_samples_beyond_it() -> None:
    samples = np.random.default_rng(1).exponential(1.0, 2000)
    assert estimate(samples, 0.99) is not None
    assert estimate(samples[:1999], 0.99) is None
    run = simulate(fleet(), load(500, rate=1), SimOptions(warmup_share=0.0))
    assert run.ttft[0.99] is None
    assert run.ttft[0.9] is not None
    assert any("P99 needs 2000 requests" in note for note in run.notes)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """M/M/1 sojourn is exponential with rate mu - lambda: its P90 is known. 95 % intervals of 60 runs."""
    service_s, busy, n = 0.1, 0.5, 20_000
    truth = -np.log(0.1) * service_s / (1 - busy)
    held = 0
    for seed in range(60):
        tokens = np.random.default_rng(1000 + seed).exponential(100_000, n).astype(np.int64) + 1
        run = simulate(
            fleet(prefill=times(token_s=service_s / 100_000)),
            load(n, rate=busy / service_s, seed=seed, inputs=tokens),
            SimOptions(caches=False, fuse_tails=False),
        )
        found = run.ttft[0.9]
        assert found is not None and found.low is not None and found.high is not None
        held += found.low <= truth <= found.high
    assert held >= 52  # 57 expected; fewer than 52 has a chance of 1.5 %


def test_goodput_counts_requests_within_the_promise() -> None:
    source = _mixed(3000)
    loose = simulate(_fleet(Way.PDD), source, SimOptions(sla=Sla(ttft_p99_s=1e6, tpot_p99_s=1e6)))
    tight = simulate(_fleet(Way.PDD), source, SimOptions(sla=Sla(ttft_p99_s=0.25)))
    assert loose.goodput_per_s == pytest.approx(20.0, rel=0.06)
    within = float((tight.columns.ttft_s <= 0.25).mean())
    assert tight.goodput_per_s == pytest.approx(within * loose.goodput_per_s)
    assert 0 < within < 1


def test_memory_is_bounded_by_the_number_of_requests() -> None:
    source = load(200_000, rate=50, outputs=5)
    simulate(fleet(), load(10, rate=1))
    tracemalloc.start()
    run = simulate(fleet(), source)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert run.requests == 180_000
    assert peak < 900 * 200_000


def test_what_cannot_be_simulated_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no requests"):
        simulate(fleet(), load(0, rate=1))
    with pytest.raises(InvalidInput, match="warmup"):
        simulate(fleet(), load(1, rate=1), SimOptions(warmup_share=1.0))
    with pytest.raises(InvalidInput, match="at least one engine"):
        simulate(fleet(mains=0), load(1, rate=1))
