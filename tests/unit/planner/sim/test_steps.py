"""Prefill step by step: what shares a step, who goes first, and how it meets the closed form."""

from dataclasses import replace

import numpy as np
import pytest

from pdd.planner.fleet import Fleet, LineSpec, Pool, Way
from pdd.planner.kvlaw import KVLaw
from pdd.planner.load import Load
from pdd.planner.sim import SimOptions, simulate
from pdd.planner.timing import DecodeTime, EngineTimes, ExtendTime, PrefillTime

TIMES = EngineTimes(
    prefill=PrefillTime(per_token_s=0.0, chunk_tokens=100, fixed_s=1.0),
    decode=DecodeTime(0.01),
    extend=ExtendTime(0.01, 0.0),
    max_sequences=16,
)
POOL = Pool(1, TIMES)
FLEET = Fleet(Way.SAME_SITE, POOL, replace(POOL, engines=0), POOL, LineSpec(1e9, 0.0), KVLaw(1.0))


def load_of(arrivals: list[float], inputs: list[int]) -> Load:
    n = len(inputs)
    return Load(
        arrival_s=np.array(arrivals),
        input_tokens=np.array(inputs),
        output_tokens=np.full(n, 2),
        hit_tokens=np.zeros(n, np.int64),
        session=np.full(n, -1),
        previous=np.full(n, -1),
        think_s=np.zeros(n),
    )


def first_tokens(load: Load, short_tokens: int, fleet: Fleet = FLEET) -> list[float]:
    options = SimOptions(warmup_share=0.0, prefill_steps=True, short_tokens=short_tokens)
    return [float(at_s) for at_s in simulate(fleet, load, options).columns.first_s]


def test_prompts_in_order_share_the_steps_between_them() -> None:
    """150 and 150 tokens are three steps of 100, not four; what comes during a step waits for its end."""
    assert first_tokens(load_of([0.0, 0.5], [150, 150]), 0) == pytest.approx([2.0, 3.0])


def test_short_rests_pass_long_prompts() -> None:
    load = load_of([0.0, 0.1, 0.2], [500, 300, 20])
    assert first_tokens(load, 0) == pytest.approx([5.0, 8.0, 9.0])
    assert first_tokens(load, 64) == pytest.approx([6.0, 9.0, 2.0]), "the short one in the second step"


def test_short_ones_leave_half_of_the_chunk() -> None:
    """Prompts of 50: while a long one waits one of them a step, then two; the long one's last 50 are short as well."""
    arrivals, shorts = [0.0] + [0.1] * 4, [50] * 4
    assert first_tokens(load_of(arrivals, [250, *shorts]), 64)[1:] == pytest.approx([2.0, 3.0, 4.0, 5.0])
    assert first_tokens(load_of(arrivals, [50, *shorts]), 64) == pytest.approx([1.0, 2.0, 2.0, 3.0, 3.0])


def test_no_more_requests_share_than_may_run() -> None:
    few = replace(FLEET, prefill=Pool(1, replace(TIMES, max_sequences=2)))
    load = load_of([0.0] + [0.1] * 4, [100, 10, 10, 10, 10])
    assert first_tokens(load, 0) == pytest.approx([1.0, 2.0, 2.0, 2.0, 2.0])
    assert first_tokens(load, 0, few) == pytest.approx([1.0, 2.0, 2.0, 3.0, 3.0])


def test_prompts_that_do_not_meet_take_the_closed_form() -> None:
    times = replace(TIMES, prefill=PrefillTime(1e-4, 128, half_tokens=300, attention_s=1e-7, fixed_s=0.02))
    fleet = replace(FLEET, prefill=Pool(1, times))
    load = load_of([100.0 * i for i in range(30)], [1 + 97 * i for i in range(30)])
    closed = simulate(fleet, load, SimOptions(warmup_share=0.0)).columns.first_s
    assert first_tokens(load, 64, fleet) == pytest.approx(closed.tolist(), rel=1e-9)
