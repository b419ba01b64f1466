"""Times from data sheets: near what was measured elsewhere, and monotone in what they depend on."""

from __future__ import annotations

import pytest

from pdd.common.errors import InvalidInput
from pdd.planner.catalogue import get_chip, get_model, load_chips, load_models
from pdd.planner.roles import DIMENSIONS, build_radar, choose_roles, compare_roles, score_chips
from pdd.planner.roofline import estimate_times
from pdd.planner.timing import decode_step_s, prefill_s


def test_deepseek_v3_on_h800_prefills_about_as_fast_as_measured() -> None:
    """InferSim reports 7,839 tokens a second and chip, measured with expert parallelism, in prompts of about 4K."""
    times = estimate_times(get_chip("H800"), 32, get_model("DeepSeek-V3"), "fp8", 16_384, 256).prefill
    fused = times.per_token_s * (1 + times.half_tokens / 16_384) + times.attention_s * 2048 + times.fixed_s / 16_384
    assert 1 / fused / 32 == pytest.approx(7839, rel=0.25)


@pytest.mark.parametrize("model", load_models())
@pytest.mark.parametrize("chip", ["H100", "B200", "A100", "MI300X"])
def test_laws_are_sane_for_every_model(chip: str, model: str) -> None:
    times = estimate_times(get_chip(chip), 32, get_model(model), "", 8192, 256)
    assert 0 < prefill_s(times.prefill, 1000) < prefill_s(times.prefill, 2000) < prefill_s(times.prefill, 64_000) < 60
    assert prefill_s(times.prefill, 1000, 50_000) >= prefill_s(times.prefill, 1000)
    steps = [decode_step_s(times.decode, batch, batch * 4096) for batch in (1, 8, 64, 256)]
    assert steps == sorted(steps) and 1e-4 < steps[0] < steps[-1] < 1
    assert times.kv_capacity_tokens > 10_000 and times.max_sequences == 256


def test_more_chips_are_faster_and_hold_more() -> None:
    chip, model = get_chip("H100"), get_model("Llama-3.3-70B")
    few, many = (estimate_times(chip, count, model, "fp8", 8192, 128) for count in (2, 8))
    assert prefill_s(many.prefill, 32_000) < prefill_s(few.prefill, 32_000)
    assert decode_step_s(many.decode, 64, 64 * 8000) < decode_step_s(few.decode, 64, 64 * 8000)
    assert many.kv_capacity_tokens > few.kv_capacity_tokens


def test_weights_that_do_not_fit() -> None:
    with pytest.raises(InvalidInput, match=r"needs at least 13 x H100"):
        estimate_times(get_chip("H100"), 8, get_model("DeepSeek-V4-Pro"), "", 8192, 256)


def test_scores_are_powers_of_two_against_the_reference() -> None:
    reference = get_chip("H100")
    scores = {score.chip: score for score in score_chips(load_chips().values(), reference)}
    assert scores["H100"].values == (0, 0, 0, 0) and set(scores["H100"].fit.values()) == {0}
    assert scores["H200"].values[1] == pytest.approx(0.8176, abs=1e-3)
    assert scores["H20"].fit["decode"] > scores["H20"].fit["prefill"]
    assert scores["L40S"].fit["prefill"] < 0
    radar = build_radar(load_chips().values(), reference)
    assert all(len(values) == len(DIMENSIONS) and all(0 <= v <= 1 for v in values) for values in radar.values())


def test_h20_decodes_and_h100_prefills() -> None:
    """The fleet of the prefill-as-a-service paper, with the price premium that makes it interesting."""
    chips = [get_chip("H100"), get_chip("H20")]
    times = compare_roles(
        chips, get_model("Qwen3-235B-A22B"), input_tokens=32_000, hit_rate=0.5, output_tokens=1000,
        prices={"H100": 3.0, "H20": 1.5},
    )  # fmt: skip
    assert choose_roles(times) == {"prefill": "H100", "decode": "H20"}
    assert all(each.tpot_s <= 0.0501 for each in times)


def test_roles_without_prices_are_not_chosen() -> None:
    times = compare_roles([get_chip("H20")], get_model("Qwen3-8B"), input_tokens=1000, hit_rate=0, output_tokens=10)
    assert times[0].prefill_cost is None and choose_roles(times) == {}


def test_chips_that_cannot_hold_the_model_are_left_out() -> None:
    chips = [get_chip("RTX-4090"), get_chip("B200")]
    times = compare_roles(
        chips, get_model("Kimi-K2"), input_tokens=1000, hit_rate=0, output_tokens=10, precision="bf16"
    )  # fmt: skip
    assert [each.chip for each in times] == ["B200"]


@pytest.mark.parametrize(("tokens", "rate"), [(0, 0.5), (-5, 0.5), (100, -0.1), (100, 1.1), (100, float("nan"))])
def test_questions_that_cannot_be(tokens: int, rate: float) -> None:
    with pytest.raises(InvalidInput):
        compare_roles([get_chip("H20")], get_model("Qwen3-8B"), input_tokens=tokens, hit_rate=rate, output_tokens=10)
