"""The arithmetic that makes tokens independent of batch, order and place in an array."""

from __future__ import annotations

import numpy as np
import pytest

from pdd.engine.reference import config as c
from pdd.engine.reference import numerics
from pdd.engine.reference.model import SCORE_UNITS


def test_every_integer_product_of_the_model_stays_exact_in_float32() -> None:
    sizes = c.ModelConfig()
    assert c.ACTIVATION_MAX * c.WEIGHT_MAX * sizes.hidden_size < c.FLOAT32_EXACT
    assert c.HIDDEN_MAX * c.WEIGHT_MAX * sizes.ffn_size < c.FLOAT32_EXACT
    assert c.QUERY_MAX * c.QUERY_MAX * sizes.head_dim < c.FLOAT32_EXACT
    assert c.VALUE_CHUNK * c.PROBABILITY_ONE * c.VALUE_MAX < c.FLOAT32_EXACT
    heads = sizes.query_heads * sizes.head_dim
    assert int(c.ATTENTION_SCALE) * c.VALUE_MAX * c.WEIGHT_MAX * heads < c.FLOAT32_EXACT
    assert c.PROBABILITY_ONE * sizes.max_context <= c.FLOAT32_EXACT
    assert c.RESIDUAL_MAX**2 * sizes.hidden_size <= 2**53


def test_largest_products_equal_python_integers() -> None:
    rng = np.random.default_rng(1)
    left = rng.choice([-c.ACTIVATION_MAX, c.ACTIVATION_MAX], (7, 256)).astype(np.float32)
    right = rng.choice([-c.WEIGHT_MAX, c.WEIGHT_MAX], (256, 33)).astype(np.float32)
    exact = left.astype(np.int64) @ right.astype(np.int64)
    assert np.array_equal(left @ right, exact)
    full = np.full((1, 256), c.ACTIVATION_MAX, np.float32) @ np.full((256, 1), c.WEIGHT_MAX, np.float32)
    assert int(full[0, 0]) == c.ACTIVATION_MAX * c.WEIGHT_MAX * 256


@pytest.mark.parametrize("offset", range(0, 17))
def test_rows_have_the_same_bits_wherever_they_stand(offset: int) -> None:
    """SIMD bodies and tails, aligned and unaligned starts, one row or many: the same bits."""
    rng = np.random.default_rng(2)
    rows = np.rint(rng.normal(0, 3000, (19, 256))).astype(np.float32)
    alone = numerics.normalise(rows[3:4].copy())
    buffer = np.zeros(19 * 256 + 32, np.float32)
    moved = buffer[offset : offset + 19 * 256].reshape(19, 256)
    moved[:] = rows
    assert np.array_equal(numerics.normalise(moved)[3], alone[0])
    gates = rng.normal(0, 3, 512 + offset).astype(np.float32)
    table = numerics.build_sigmoid_table()
    one_by_one = np.concatenate([numerics.silu(gates[i : i + 1], table) for i in range(len(gates))])
    assert np.array_equal(numerics.silu(gates, table), one_by_one)
    scores = (rng.integers(-(2**22), 2**22, (3, 300 + offset)) * SCORE_UNITS).astype(np.float32)
    weights, sums = numerics.softmax_weights(scores.copy())
    for row in range(3):
        single, total = numerics.softmax_weights(scores[row : row + 1].copy())
        assert np.array_equal(single[0], weights[row])
        assert total[0, 0] == sums[row, 0] == int(weights[row].astype(np.int64).sum())


def test_softmax_weights_follow_powers_of_two() -> None:
    octave = np.float32(1 << 23)
    scores = np.array([[0, -octave, -2 * octave, -9 * octave, -11 * octave, numerics.MASKED]], np.float32)
    weights, sums = numerics.softmax_weights(scores)
    assert weights[0].tolist() == [512, 256, 128, 1, 0, 0]
    assert sums[0, 0] == 897


def test_softmax_weights_do_not_depend_on_hidden_keys() -> None:
    rng = np.random.default_rng(3)
    seen = (rng.integers(-(2**20), 2**20, (4, 50)) * 512).astype(np.float32)
    padded = np.full((4, 90), numerics.MASKED, np.float32)
    padded[:, 20:70] = seen
    weights, sums = numerics.softmax_weights(padded)
    expected, expected_sums = numerics.softmax_weights(seen.copy())
    assert np.array_equal(weights[:, 20:70], expected)
    assert np.array_equal(sums, expected_sums)
    assert not weights[:, :20].any() and not weights[:, 70:].any()


def test_tables_lie_on_coarse_grids() -> None:
    cos, sin = numerics.build_rope_tables(4096, 64, 10_000.0)
    for table, grid in ((cos, 16384), (sin, 16384), (numerics.build_sigmoid_table(), 4096)):
        assert np.array_equal(np.rint(table * grid), table * grid)
    assert cos[0].tolist() == [1.0] * 32 and sin[0].tolist() == [0.0] * 32


def test_grid_points_are_far_from_rounding_ties() -> None:
    """A table entry would differ between machines only if `exp` or `cos` put it within an ulp of a tie."""
    import math

    for i in range(-256, 257):
        scaled = 4096 / (1 + math.exp(-i / 32))
        assert abs(scaled - math.floor(scaled) - 0.5) > 1e-9 or scaled == math.floor(scaled)


def test_residual_is_clipped_and_integer() -> None:
    big = np.full((1, 4), c.RESIDUAL_MAX, np.float32)
    update = np.array([[1e9, -1e9, 0.4, -0.6]], np.float32)
    out = numerics.add_residual(big, update)
    assert out[0].tolist() == [c.RESIDUAL_MAX, -c.RESIDUAL_MAX, c.RESIDUAL_MAX, c.RESIDUAL_MAX - 1]
