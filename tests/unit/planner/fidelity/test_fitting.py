"""The fit finds known coefficients, whatever a few disturbed measurements say."""

import random

import pytest

from pdd.planner.fitting import fit_nonnegative


def rows_of(count: int, seed: int = 3) -> list[tuple[float, float, float]]:
    rng = random.Random(seed)
    return [(1.0, rng.uniform(1, 5000), rng.uniform(0, 1e6)) for _ in range(count)]


def times(rows: list[tuple[float, float, float]], truth: tuple[float, float, float]) -> list[float]:
    return [sum(a * b for a, b in zip(row, truth, strict=True)) for row in rows]


def test_exact_measurements_give_the_coefficients_back() -> None:
    truth = (0.004, 2e-5, 3e-8)
    rows = rows_of(12)
    fit = fit_nonnegative(rows, times(rows, truth))
    assert fit.coefficients == pytest.approx(truth, rel=1e-6)
    assert fit.mape < 1e-9
    assert fit.r2 == pytest.approx(1.0)


def test_pauses_of_the_machine_do_not_move_the_fit() -> None:
    truth = (0.004, 2e-5, 3e-8)
    rows = rows_of(30)
    measured = times(rows, truth)
    for i in (2, 11, 17, 23):
        measured[i] *= 4
    fit = fit_nonnegative(rows, measured)
    assert fit.coefficients == pytest.approx(truth, rel=0.02)
    assert fit.worst > 0.5, "the disturbed points must show as errors"


def test_no_coefficient_is_negative_even_where_least_squares_wants_it() -> None:
    rows = [(1.0, float(n), float(n * n)) for n in range(1, 10)]
    measured = [1.0 + 2.0 * n - 0.05 * n * n for n in range(1, 10)]
    fit = fit_nonnegative(rows, measured)
    assert min(fit.coefficients) >= 0
    assert fit.coefficients[2] == 0.0
    assert fit.mape < 0.1


def test_small_times_count_as_much_as_large_ones() -> None:
    """A law that misses in the milliseconds is a bad one, though seconds dominate the squares."""
    rows = [(1.0, 1.0), (1.0, 2.0), (1.0, 10_000.0), (1.0, 10_500.0)]
    fit = fit_nonnegative(rows, [0.011, 0.012, 10.6, 9.9])
    assert fit.predicted[0] == pytest.approx(0.011, rel=0.05)


@pytest.mark.parametrize(
    ("rows", "measured"),
    [([(1.0, 2.0)], [1.0]), ([(1.0,), (1.0,)], [1.0, 0.0]), ([(1.0,), (1.0,)], [1.0, float("nan")])],
)
def test_what_cannot_be_fitted_is_refused(rows: list[tuple[float, ...]], measured: list[float]) -> None:
    with pytest.raises(ValueError, match=r"measurements"):
        fit_nonnegative(rows, measured)
