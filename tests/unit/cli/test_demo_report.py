"""The demo's verdict: what counts as met, and the document that scripts read."""

from __future__ import annotations

from typing import Any

from pdd.cli.chat import ChatRun
from pdd.cli.demo_report import LineFacts, Measured, demo_document, demo_table, handoff_line, unmet_promises

LINE = LineFacts(rate_mbps=100, rtt_ms=20, streams=4)


def run(pipeline: str = "P-RLD-MD", gap_ms: float = 30.0, ids: tuple[int, ...] = (1, 2, 3), **trace: Any) -> ChatRun:
    given = {
        "prompt_tokens": 8000,
        "producers": {"P": 1, "RLD": 1, "MD": 1},
        "handoff": {"mode": "CatchUp", "rounds": 3, "tokens": 120, "payload_bytes": 480, "stall_ms": 31.0, "more": 1},
        "kv": {"missing_bytes": 32_000_000},
        "itl_ms": {"p50": 21.0},
        **trace,
    }
    return ChatRun(
        pipeline, "TransferTooLong", ids, (900.0, 900.0 + gap_ms, 1000.0)[: len(ids)], "abc", "length", given
    )


def measured(name: str = "long prompt", single: tuple[int, ...] = (1, 2, 3), **kwargs: Any) -> Measured:
    return Measured(name, run(**kwargs), single, 32_100_000)


def test_all_promises_met() -> None:
    assert unmet_promises(measured(), [measured("naive", pipeline="P-MD", gap_ms=2800.0)]) == []


def test_a_differing_token_is_told_with_its_position() -> None:
    (sentence,) = unmet_promises(measured(single=(1, 2, 4)), [])
    assert sentence == "long prompt: the tokens differ from one engine's, first at position 2"


def test_a_shorter_answer_is_not_identical() -> None:
    (sentence,) = unmet_promises(measured(), [measured("naive", single=(1, 2, 3, 4))])
    assert sentence.startswith("naive: the tokens differ") and sentence.endswith("position 3")


def test_another_pipeline_a_missing_handoff_and_a_late_second_token_are_failures() -> None:
    assert "took pipeline P-RLD" in unmet_promises(measured(pipeline="P-RLD"), [])[0]
    assert "MD made no token" in unmet_promises(measured(producers={"P": 1, "RLD": 2, "MD": 0}), [])[0]
    assert "came 301 ms after the first" in unmet_promises(measured(gap_ms=301.0), [])[0]
    assert unmet_promises(measured(gap_ms=301.0), [], second_token_limit_ms=500.0) == []
    assert "never came" in unmet_promises(measured(ids=(1,), single=(1,)), [])[0]


def test_the_document_has_the_fields_that_scripts_rely_on() -> None:
    document = demo_document(
        LINE, measured(), measured("naive", pipeline="P-MD", gap_ms=2800.0, handoff=None), None, unmet=[], seconds=20.0
    )
    fields = {
        "pipeline", "ttft_ms", "second_token_ms", "tokens", "producers", "identical", "handoff", "kv_bytes_on_line",
        "kv_bytes_missing",
    }  # fmt: skip
    for record in (document, document["naive"], *document["requests"]):
        assert fields <= set(record)
    assert document["met"] is True and document["unmet"] == []
    assert document["second_token_ms"] == 30.0 and document["naive"]["second_token_ms"] == 2800.0
    assert set(document["handoff"]) == {"mode", "rounds", "tokens", "payload_bytes", "stall_ms"}
    assert document["naive"]["handoff"] is None
    assert document["line"] == {"rate_mbps": 100, "rtt_ms": 20, "streams": 4, "emulated": True}


def test_the_table_shows_a_mismatch_and_no_escape_codes() -> None:
    text = demo_table(measured(single=(9,)), measured("naive", gap_ms=2800.0), None)
    assert "NO" in text and "2.80 s" in text and "\x1b" not in text


def test_the_handoff_in_one_sentence() -> None:
    assert handoff_line(run()) == "handoff CatchUp, 3 rounds, 120 tokens: pause 31 ms (normal 21 ms), 480 B sent"
    assert handoff_line(run(handoff=None)) == ""
