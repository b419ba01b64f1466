"""What is asked of an engine, and how its streams' times become a step's."""

import json

import pytest

from pdd.cli.calibration.client import Stream, token_times
from pdd.cli.calibration.measure import plan_grid, step_seconds
from pdd.common.errors import EngineError, InvalidInput


def event(ids: list[int]) -> bytes:
    return b"data: " + json.dumps({"choices": [{"text": "x", "token_ids": ids}]}).encode() + b"\n\n"


def test_tokens_have_the_time_of_the_piece_that_ends_their_event() -> None:
    first, second = event([1]), event([2, 3])
    pieces = [(1.0, first + second[:9]), (2.0, second[9:]), (3.0, b"data: [DONE]\n\n")]
    assert token_times(pieces) == (1.0, 2.0, 2.0)


def test_an_error_in_a_stream_is_not_taken_for_its_end() -> None:
    with pytest.raises(EngineError, match="no room"):
        token_times([(1.0, event([1]) + b'data: {"error": "no room"}\n\n')])


def test_a_step_is_timed_only_while_all_streams_run() -> None:
    """Alone, the early stream makes a token in 10 ms; together both need 30 ms."""
    early = [i * 0.01 for i in range(10)] + [0.1 + i * 0.03 for i in range(10)]
    late = [0.1 + i * 0.03 for i in range(14)]
    assert step_seconds([Stream(tuple(early)), Stream(tuple(late))]) == pytest.approx(0.03)


def test_streams_that_never_ran_together_are_refused() -> None:
    a, b = Stream(tuple(i * 0.01 for i in range(10))), Stream(tuple(5 + i * 0.01 for i in range(10)))
    with pytest.raises(EngineError, match="max-sequences"):
        step_seconds([a, b])


@pytest.mark.parametrize(("most", "chunk", "sequences"), [(512, 128, 4), (4096, 512, 16), (100_000, 0, 256)])
def test_a_grid_can_be_fitted_and_fits_the_engine(most: int, chunk: int, sequences: int) -> None:
    grid = plan_grid(most, sequences, chunk)
    assert all(n > 0 and n + c <= most for n, c in (*grid.prefill, *grid.extend))
    assert len({n for n, c in grid.prefill if c == 0}) >= 4
    assert any(c > 0 for _, c in grid.prefill)
    assert len({b for b, _ in grid.decode}) >= 2 and max(b for b, _ in grid.decode) <= sequences
    assert len({c for _, c in grid.decode}) >= 2
    assert len({n for n, _ in grid.extend}) >= 3 and len({c for _, c in grid.extend}) >= 2


def test_decodes_that_the_engine_has_no_kv_for_are_left_out() -> None:
    roomy, small = plan_grid(4096, 16, 512), plan_grid(4096, 16, 512, kv_capacity_tokens=8192)
    assert max(b * c for b, c in small.decode) < 8192 < max(b * c for b, c in roomy.decode)


def test_prompts_too_short_to_tell_anything_are_refused() -> None:
    with pytest.raises(InvalidInput, match="max-tokens"):
        plan_grid(200, 16, 512)
