"""What every load keeps to, wherever it comes from and however it was changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pdd.planner.fit import fit_workload
from pdd.planner.hit_law import HitMixture
from pdd.planner.laws import ArrivalLaw, Arrivals, LengthLaw, OddLaw, SessionLaw
from pdd.planner.load import Load
from pdd.planner.loads import with_hit_points, with_lengths, with_rate
from pdd.planner.traces import finite_hits, read_trace
from pdd.planner.workload import Workload, generate

DATA = Path(__file__).parents[3] / "tests" / "data" / "traces"
TRACES = ("mooncake.jsonl", "agentic.csv", "azure_2023.csv", "azure_2024.csv", "azure_multimodal.csv")


def broken_rules(load: Load) -> list[str]:
    """The rules of `Load` that the load breaks; empty: none."""
    n = len(load)
    whole = (load.input_tokens, load.output_tokens, load.hit_tokens, load.session, load.previous)
    later = np.flatnonzero(load.previous >= 0)
    before = load.previous[later]
    rules = {
        "n entries": all(len(column) == n for column in (*whole, load.arrival_s, load.think_s)),
        "int64": all(column.dtype == np.int64 for column in whole),
        "float64": load.arrival_s.dtype == np.float64 and load.think_s.dtype == np.float64,
        "arrivals do not fall": bool((np.diff(load.arrival_s) >= 0).all()),
        "arrivals from 0": n == 0 or bool(load.arrival_s[0] >= 0),
        "finite": bool(np.isfinite(load.arrival_s).all() and np.isfinite(load.think_s).all()),
        "prompts": bool((load.input_tokens >= 1).all()),
        "answers": bool((load.output_tokens >= 1).all()),
        "hits": bool(((load.hit_tokens >= 0) & (load.hit_tokens <= load.input_tokens)).all()),
        "previous is earlier": bool((before < later).all() and (load.previous >= -1).all()),
        "previous is of the session": bool((load.session[later] == load.session[before]).all()),
        "a session is a chain": len(np.unique(before)) == len(before),
        "think times": bool((load.think_s >= 0).all()),
    }
    if load.blocks is not None:
        offsets, ids = load.blocks.offsets, load.blocks.ids
        used = np.unique(ids)
        counts = np.diff(offsets)
        rules |= {
            "offsets": len(offsets) == n + 1 and int(offsets[0]) == 0 and int(offsets[-1]) == len(ids),
            "offsets do not fall": bool((counts >= 0).all()),
            "ids are dense": used.tolist() == list(range(len(used))),
            "blocks fit": bool((counts <= -(-load.input_tokens // load.blocks.block_tokens)).all()),
            "hits are those of the ids": np.array_equal(finite_hits(load, [1e15])[0], load.hit_tokens),
        }
    return [rule for rule, kept in rules.items() if not kept]


def draw_workload(seed: int) -> Workload:
    """A workload of random kind and figures."""
    rng = np.random.default_rng(seed)

    def length(low: float, high: float) -> LengthLaw:
        median = float(np.exp(rng.uniform(np.log(low), np.log(high))))
        return LengthLaw(median, float(rng.uniform(0, 2)), 1.0, median * float(rng.uniform(1, 50)))

    sessions = None
    if rng.random() < 0.5:
        sessions = SessionLaw(
            turns=float(rng.uniform(1, 12)),
            growth=length(1, 5000),
            think_s=LengthLaw(float(rng.uniform(0.01, 100)), float(rng.uniform(0, 2)), 0.0, 10_000.0),
            answers_cached=bool(rng.random() < 0.5),
            context_tokens=int(rng.integers(1, 300_000)),
        )
    return Workload(
        rate_per_s=float(np.exp(rng.uniform(-5, 6))),
        input_tokens=length(1, 100_000),
        output_tokens=length(1, 5000),
        hits=HitMixture().with_mean(float(rng.random())),
        arrivals=ArrivalLaw(list(Arrivals)[int(rng.integers(4))], cv=float(rng.uniform(0.1, 5))),
        sessions=sessions,
        odd=OddLaw(float(rng.uniform(0, 0.5))) if rng.random() < 0.4 else None,
        block_tokens=int(rng.integers(1, 1000)),
    )


@pytest.mark.parametrize("seed", range(40))
def test_loads_of_random_workloads(seed: int) -> None:
    load = generate(draw_workload(seed), 1 + 23 * seed, seed)
    assert len(load) == 1 + 23 * seed
    assert broken_rules(load) == []
    assert (load.hit_tokens < load.input_tokens).all()


@pytest.mark.parametrize("limit", [None, 1, 3])
@pytest.mark.parametrize("name", TRACES)
def test_loads_of_traces(name: str, limit: int | None) -> None:
    assert broken_rules(read_trace(DATA / name, limit)) == []


CHANGES: dict[str, Callable[[Load], Load]] = {
    "faster": lambda load: with_rate(load, 1000.0),
    "slower": lambda load: with_rate(load, 1e-3),
    "hits up": lambda load: with_hit_points(load, 0.08),
    "hits down": lambda load: with_hit_points(load, -0.3),
    "all hits": lambda load: with_hit_points(load, 1.0),
    "no hits": lambda load: with_hit_points(load, -1.0),
    "longer": lambda load: with_lengths(load, 1.7, 2.3),
    "shorter": lambda load: with_lengths(load, 0.01, 0.001),
    "all of it": lambda load: with_lengths(with_hit_points(with_rate(load, 5.0), 0.05), 1.3, 0.7),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("source", [*TRACES, "alone", "sessions"])
def test_changed_loads(source: str, change: str) -> None:
    if source == "alone":
        load = generate(Workload(), 2000, 3)
    elif source == "sessions":
        load = generate(Workload(sessions=SessionLaw(), odd=OddLaw()), 2000, 3)
    else:
        load = read_trace(DATA / source)
    changed = CHANGES[change](load)
    assert len(changed) == len(load) and broken_rules(changed) == []


@pytest.mark.parametrize("seed", range(5))
def test_a_fitted_workload_draws_good_loads(seed: int) -> None:
    load = generate(fit_workload(generate(draw_workload(seed), 400, seed)), 400, seed)
    assert broken_rules(load) == []


def test_the_rules_see_what_is_broken() -> None:
    """The checker is no yes-man: one fault at a time is found."""
    good = read_trace(DATA / "mooncake.jsonl")
    faults: dict[str, Callable[[Load], None]] = {
        "arrivals do not fall": lambda load: load.arrival_s.__setitem__(3, 1e9),
        "prompts": lambda load: load.input_tokens.__setitem__(0, 0),
        "answers": lambda load: load.output_tokens.__setitem__(0, 0),
        "hits": lambda load: load.hit_tokens.__setitem__(0, 10**9),
        "think times": lambda load: load.think_s.__setitem__(0, -1.0),
        "previous is earlier": lambda load: load.previous.__setitem__(0, 5),
        "finite": lambda load: load.arrival_s.__setitem__(-1, np.inf),
    }
    assert broken_rules(good) == []
    for rule, spoil in faults.items():
        load = read_trace(DATA / "mooncake.jsonl")
        spoil(load)
        assert rule in broken_rules(load)
