"""The gateway's answer as values, and what of it is news."""

from __future__ import annotations

import pytest

from pdd.controller.gateway_watch import GatewayReport, measured, parse_members

ANSWER = {
    "gateway": "site-b",
    "members": [
        {"name": "tiny-main-decode-0", "deployment": "tiny", "namespace": "models", "state": "connected", "streams": 4,
         "rtt_ms": 20.0, "goodput_bps": 1e6, "limited_by": "cap"},
        {"name": "other-main-decode-0", "deployment": "other", "namespace": "models", "state": "suspect", "streams": 2,
         "rtt_ms": 40.0, "goodput_bps": 2e6},
    ],
}  # fmt: skip


def test_members_are_told_apart_by_deployment() -> None:
    report = GatewayReport(parse_members(ANSWER))
    (mine,) = report.of("models", "tiny") or ()
    assert mine.connected and mine.limited_by == "cap"
    assert report.of("models", "nobody") == ()
    assert [m.connected for m in report.of("models", "other") or ()] == [False]


def test_no_answer_is_not_no_members() -> None:
    assert GatewayReport(error="refused").of("models", "tiny") is None


def test_sums() -> None:
    assert measured(parse_members(ANSWER)) == (30.0, 3e6)
    assert measured(()) == (None, None)


def test_another_servers_answer_is_refused() -> None:
    with pytest.raises(KeyError):
        parse_members({"members": [{}]})
