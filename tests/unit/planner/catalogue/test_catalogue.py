"""The data files: complete, sourced, and the KV laws that follow from them are those that others publish."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdd.common.errors import InvalidInput
from pdd.planner.catalogue import PRECISIONS, get_chip, get_model, load_chips, load_models
from pdd.planner.kvlaw import payload_bytes

MODELS = load_models()
GIB = 2.0**30

CHIP = """\
MyChip:
  name: My chip
  bf16_tflops: [100, me]
  fp8_tflops: [200, me]
  memory_gb: [64, me]
  memory_tb_s: [1.5, me]
  interconnect_gb_s: [300, me]
  network_gb_s: [25, me]
  mfu: [0.5, me]
  price_per_h: [1.25, me]
"""
MODEL = """\
MyModel:
  ids: [me/MyModel]
  parameters: 10
  active: 2
  hidden: 2048
  layers: 10
  experts: {routed: 64, per_token: 4, share: 0.9}
  precision: fp8
  attention:
  - {kind: full, layers: 8, heads: 16, kv_heads: 2, head_dim: 128}
  - {kind: linear, layers: 2, heads: 16, key_dim: 64, value_dim: 64}
  source: me
"""


def test_there_are_enough_and_all_have_sources() -> None:
    chips = load_chips()
    assert len(chips) >= 16 and len(MODELS) >= 12
    for chip in chips.values():
        needed = {"bf16_tflops", "memory_gb", "memory_tb_s", "interconnect_gb_s", "network_gb_s", "mfu"}
        assert needed <= set(chip.sources) and all(chip.sources.values())
        assert (chip.price_per_h is None) == ("price_per_h" not in chip.sources)
    assert all(model.source and model.ids for model in MODELS.values())
    assert sum(1 for chip in chips.values() if chip.disputed) >= 5


@pytest.mark.parametrize(
    ("model", "precision"), [(name, precision) for name, model in MODELS.items() for precision in model.published]
)
def test_kv_bytes_are_those_published(model: str, precision: str) -> None:
    value, _ = MODELS[model].published[precision]
    assert MODELS[model].kv_law(precision).bytes_per_token == pytest.approx(value, rel=1e-3)


@pytest.mark.parametrize("model", [name for name, model in MODELS.items() if model.published_state_bytes])
def test_states_are_those_published(model: str) -> None:
    assert MODELS[model].kv_law("bf16").state_bytes == pytest.approx(MODELS[model].published_state_bytes, rel=0.005)


def test_every_model_has_a_check_of_its_kv() -> None:
    assert all(model.published for model in MODELS.values())


def test_deepseek_v4_pro_as_published() -> None:
    """9,848 bytes a token in BF16 are 9.62 GiB at 1M; FP8: 4,521 attention + 990 indexer; 4.56 MB window."""
    model = get_model("DeepSeek-V4-Pro")
    wide, low = model.kv_law("bf16"), model.kv_law("fp8")
    assert wide.bytes_per_token == 9848
    assert round(wide.bytes_per_token * 2**20 / GIB, 2) == 9.62
    assert low.bytes_per_token == pytest.approx(4521 + 990, abs=1)
    assert low.window_bytes_per_token * low.window_tokens == pytest.approx(4.56e6, rel=1e-3)
    assert 0.77e12 < model.weight_bytes("fp4") < 1e12
    # Its routed experts alone: 61 layers x 384 experts x 3 matrices of 7168 x 3072 are 1.55 T.
    assert model.parameters * model.expert_share == pytest.approx(61 * 384 * 3 * 7168 * 3072, rel=0.005)
    # A short increment is dear by its window: 100 tokens weigh 4.1 MB, ten times 100 x 4.5 KB minus the indexer.
    assert payload_bytes(low, 100) == pytest.approx(4.1e6, rel=0.02)


@pytest.mark.parametrize("model", MODELS)
def test_weights_shrink_with_the_precision(model: str) -> None:
    sizes = [MODELS[model].weight_bytes(precision) for precision in PRECISIONS]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == pytest.approx(2 * MODELS[model].parameters)
    whole = MODELS[model].weight_bytes("fp8")
    read = [MODELS[model].active_weight_bytes("fp8", batch) for batch in (1, 10, 100, 10_000)]
    assert read == sorted(read) and read[-1] == pytest.approx(whole, rel=1e-6)
    assert read[0] < 0.6 * whole if MODELS[model].experts else read[0] == whole
    assert sum(group.layers for group in MODELS[model].attention) == MODELS[model].layers


def test_names_in_any_case_and_hub_ids() -> None:
    assert get_chip("h100").name == "H100"
    assert get_model("qwen/qwen3-32b").name == get_model("Qwen3-32B").name == "Qwen3-32B"


@pytest.mark.parametrize(
    ("name", "near"),
    [("H10", "H100"), ("H2000", "H200"), ("MI300", "MI300X"), ("L40s1", "L40S"), ("ascend", "Ascend-910B")],
)
def test_an_unknown_chip_with_the_nearest(name: str, near: str) -> None:
    with pytest.raises(InvalidInput, match=f"did you mean {near}"):
        get_chip(name)


@pytest.mark.parametrize(
    ("name", "near"), [("DeepSeek-V4", "DeepSeek-V4-Pro"), ("Qwen3-31B", "Qwen3-32B"), ("Llama-3-70B", "Llama-3.3-70B")]
)
def test_an_unknown_model_with_the_nearest(name: str, near: str) -> None:
    with pytest.raises(InvalidInput, match=f"did you mean .*{near}"):
        get_model(name)
    with pytest.raises(InvalidInput, match="known: "):
        get_model("@@@@")


def test_a_user_adds_entries(tmp_path: Path) -> None:
    (tmp_path / "chips.yaml").write_text(CHIP + CHIP.replace("MyChip", "H100"))
    chips = load_chips(tmp_path / "chips.yaml")
    assert chips["MyChip"].price_per_h == 1.25 and chips["H100"].bf16_flops == 100e12
    assert load_chips()["H100"].bf16_flops == 989e12
    (tmp_path / "models.yaml").write_text(MODEL)
    model = get_model("me/mymodel", load_models(tmp_path / "models.yaml"))
    assert model.kv_law().bytes_per_token == 8 * 2 * 2 * 128
    assert model.kv_law().state_bytes == 2 * 16 * 64 * 64 * 4


@pytest.mark.parametrize(
    ("text", "change", "to", "line", "field"),
    [
        (CHIP, "[100, me]", "100", 3, "MyChip.bf16_tflops"),
        (CHIP, "[100, me]", "[-100, me]", 3, "MyChip.bf16_tflops[0]"),
        (CHIP, "[100, me]", "[0, me]", 3, "MyChip.bf16_tflops[0]"),
        (CHIP, "[100, me]", "[.nan, me]", 3, "MyChip.bf16_tflops[0]"),
        (CHIP, "[100, me]", "[many, me]", 3, "MyChip.bf16_tflops[0]"),
        (CHIP, "[100, me]", "[100, '']", 3, "MyChip.bf16_tflops"),
        (CHIP, "  memory_gb: [64, me]\n", "", 1, "MyChip.memory_gb"),
        (CHIP, "memory_gb:", "memory_gib:", 5, "MyChip.memory_gib"),
        (CHIP, "[0.5, me]", "[1.5, me]", 9, "MyChip.mfu"),
        (CHIP, "[1.25, me]", "[-1.25, me]", 10, "MyChip.price_per_h[0]"),
        (CHIP, "price_per_h", "mfu", 9, "MyChip.mfu"),
        (MODEL, "parameters: 10", "parameters: 0", 3, "MyModel.parameters"),
        (MODEL, "active: 2", "active: 20", 4, "MyModel.active"),
        (MODEL, "layers: 10", "layers: 1.5", 6, "MyModel.layers"),
        (MODEL, "precision: fp8", "precision: int3", 8, "MyModel.precision"),
        (MODEL, "kind: full", "kind: empty", 10, "MyModel.attention[0].kind"),
        (MODEL, "kv_heads: 2, ", "", 10, "MyModel.attention[0].kv_heads"),
        (MODEL, "head_dim: 128", "head_dims: 128", 10, "MyModel.attention[0].head_dims"),
        (MODEL, "share: 0.9", "share: 1.9", 7, "MyModel.experts.share"),
    ],
)
def test_entries_that_are_refused(tmp_path: Path, text: str, change: str, to: str, line: int, field: str) -> None:
    path = tmp_path / "mine.yaml"
    assert change in text
    path.write_text(text.replace(change, to, 1))
    with pytest.raises(InvalidInput) as caught:
        (load_chips if text is CHIP else load_models)(path)
    assert caught.value.field.startswith(f"{path}:") and caught.value.field.endswith(f": {field}")
    if field != "MyChip.mfu" or change != "price_per_h":  # given twice: named by one of the two places
        assert caught.value.field == f"{path}:{line}: {field}"


@pytest.mark.parametrize("text", ["", "[]", "a: [", "a: 1\n---\nb: 2\n", "{}"])
def test_files_that_are_no_catalogue(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=r"mine\.yaml"):
        load_chips(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        load_models(tmp_path / "none.yaml")
