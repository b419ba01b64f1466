"""Calibrations: laws back from their own times, warnings where they do not hold, documents that can be read again."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from pdd.common.errors import InvalidInput
from pdd.planner.calibration import DecodeSample, EngineFacts, PrefillSample, Samples, calibrate
from pdd.planner.calibration_file import read_engine_times, read_kv_law, read_laws, to_object
from pdd.planner.timing import DecodeTime, EngineTimes, ExtendTime, PrefillTime, decode_step_s, extend_s, prefill_s

TRUTH = EngineTimes(
    prefill=PrefillTime(per_token_s=1e-4, chunk_tokens=256, attention_s=2e-8, fixed_s=0.02),
    decode=DecodeTime(fixed_s=0.012, per_sequence_s=2e-4, per_context_token_s=1e-7),
    extend=ExtendTime(fixed_s=0.02, per_token_s=1e-4, per_context_token_s=1e-6),
    max_sequences=16,
    kv_capacity_tokens=65536,
)
REQUEST_S = 0.005
FACTS = EngineFacts("reference", "tiny", 16, 16, chunk_tokens=256, kv_capacity_tokens=65536, kv_bytes_per_token=4096)


def samples(noise: float = 0.0, seed: int = 1) -> Samples:
    rng = random.Random(seed)

    def shake(seconds: float) -> float:
        return seconds * rng.uniform(1 - noise, 1 + noise)

    prefill = [(n, c) for c in (0, 512, 2048) for n in (16, 128, 256, 300, 700, 1024, 2048)]
    extend = [(n, c) for c in (512, 2048) for n in (1, 8, 64, 128)]
    decode = [(b, c) for b in (1, 2, 4, 16) for c in (128, 1024, 2048)]
    return Samples(
        tuple(PrefillSample(n, c, shake(REQUEST_S + prefill_s(TRUTH.prefill, n, c))) for n, c in prefill),
        tuple(DecodeSample(b, b * c, shake(decode_step_s(TRUTH.decode, b, b * c))) for b, c in decode),
        tuple(PrefillSample(n, c, shake(REQUEST_S + extend_s(TRUTH.extend, n, c))) for n, c in extend),
    )


def test_the_laws_come_back_from_their_own_times() -> None:
    found = calibrate(FACTS, samples(0.02))
    for n, c in ((100, 0), (1500, 1000), (4000, 0)):
        assert found.laws.prefill_alone_s(n, c) == pytest.approx(REQUEST_S + prefill_s(TRUTH.prefill, n, c), rel=0.05)
    for b, c in ((1, 500), (8, 8000)):
        assert decode_step_s(found.times.decode, b, c) == pytest.approx(decode_step_s(TRUTH.decode, b, c), rel=0.05)
    assert extend_s(found.times.extend, 32, 1000) == pytest.approx(extend_s(TRUTH.extend, 32, 1000), rel=0.1)
    assert found.warnings == ()
    assert (found.times.max_sequences, found.times.kv_capacity_tokens) == (16, 65536)


def test_an_unknown_chunk_size_is_found_from_the_steps_in_the_times() -> None:
    found = calibrate(replace(FACTS, chunk_tokens=0), samples(0.01))
    assert found.times.prefill.chunk_tokens == 256
    assert "256 tokens explain" in found.warnings[0]


def test_an_engine_without_chunks_is_not_given_any() -> None:
    smooth = replace(TRUTH.prefill, fixed_s=0.0)
    flat = tuple(replace(s, seconds=REQUEST_S + prefill_s(smooth, s.uncached, s.cached)) for s in samples().prefill)
    found = calibrate(replace(FACTS, chunk_tokens=0), replace(samples(), prefill=flat, extend=samples().extend))
    assert found.times.prefill.chunk_tokens == 2048, "the longest prompt that was measured"
    assert "no effect up to 2048" in " ".join(found.warnings)


def test_a_poor_fit_is_named() -> None:
    wild = tuple(replace(s, seconds=s.seconds * (4 if i % 2 else 1)) for i, s in enumerate(samples().decode))
    found = calibrate(FACTS, replace(samples(), decode=wild))
    assert [w for w in found.warnings if w.startswith("decode: the law fits poorly")]
    assert found.decode.mape > 0.2


def test_a_document_gives_the_times_back(tmp_path: Path) -> None:
    found = calibrate(FACTS, samples(0.01))
    path = tmp_path / "engine.json"
    path.write_text(json.dumps(to_object(found)))
    assert read_engine_times(path) == found.times
    law = read_kv_law(path)
    assert law is not None and law.bytes_per_token == 4096
    assert read_laws(path) == found.laws


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"kind": "Plan"}, "kind"),
        ({"times": None}, "times"),
        ({"times.prefill.per_token_s": -1}, r"times\.prefill: per_token_s"),
        ({"times.prefill.chunk_tokens": 0}, "chunk_tokens"),
        ({"times.decode.fixed_s": "20 ms"}, r"times\.decode: fixed_s"),
        ({"times.extend.fixed_s": None}, r"times\.extend: fixed_s"),
        ({"times.max_sequences": 1.5}, "max_sequences"),
    ],
)
def test_a_broken_document_is_refused_by_file_and_field(tmp_path: Path, change: dict[str, object], named: str) -> None:
    document = to_object(calibrate(FACTS, samples()))
    for dotted, value in change.items():
        *parents, last = dotted.split(".")
        part = document
        for parent in parents:
            part = part[parent]
        part[last] = value
    path = tmp_path / "engine.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InvalidInput, match=rf"engine\.json.*{named}"):
        read_engine_times(path)


def test_a_file_that_is_no_json_or_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "engine.json"
    with pytest.raises(InvalidInput, match=r"engine\.json"):
        read_engine_times(path)
    path.write_text("{")
    with pytest.raises(InvalidInput, match=r"no JSON"):
        read_engine_times(path)
