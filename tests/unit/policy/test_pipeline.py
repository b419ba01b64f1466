"""The pipeline's choice."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from pdd.policy.pipeline import Choice, Pipeline, Reason, Rules, Situation, choose_pipeline

RULES = Rules(0.2, abnormal_enabled=True, abnormal_max_output_tokens=500, abnormal_min_transfer_s=5.0)
NORMAL = Situation(
    wait_s=1.0,
    missing_bytes=1000,
    max_output_tokens=2000,
    main_ready=True,
    line_open=True,
    relay_exists=True,
    relay_free=True,
)


@pytest.mark.parametrize(
    ("change", "pipeline", "reason"),
    [
        ({}, Pipeline.P_RLD_MD, Reason.LONG_TRANSFER),
        ({"wait_s": 0.1}, Pipeline.P_MD, Reason.SHORT_TRANSFER),
        ({"wait_s": 0.0, "missing_bytes": 0}, Pipeline.P_MD, Reason.PREFIX_CACHED),
        ({"relay_free": False}, Pipeline.P_MD, Reason.RELAY_FULL),
        ({"relay_free": False, "relay_exists": False}, Pipeline.P_MD, Reason.NO_RELAY_ENGINE),
        ({"wait_s": 6.0, "max_output_tokens": 400}, Pipeline.P_RLD, Reason.ABNORMAL_TRAFFIC),
        ({"wait_s": 6.0, "max_output_tokens": 501}, Pipeline.P_RLD_MD, Reason.LONG_TRANSFER),
        ({"wait_s": 4.9, "max_output_tokens": 400}, Pipeline.P_RLD_MD, Reason.LONG_TRANSFER),
        ({"wait_s": 6.0, "max_output_tokens": 400, "relay_free": False}, Pipeline.P_MD, Reason.RELAY_FULL),
        ({"main_ready": False}, Pipeline.P_RLD, Reason.LINE_LOST),
        ({"line_open": False}, Pipeline.P_RLD, Reason.LINE_RECOVERING),
        ({"line_open": False, "relay_free": False}, Pipeline.P_MD, Reason.LINE_RECOVERING),
        ({"main_ready": False, "relay_free": False}, Pipeline.REFUSED, Reason.RELAY_FULL_LINE_LOST),
        ({"main_ready": False, "relay_free": False, "relay_exists": False}, Pipeline.REFUSED, Reason.NO_DECODE_ENGINE),
        ({"pinned": True}, Pipeline.PINNED, Reason.PINNED_FEATURE),
        ({"pinned": True, "main_ready": False}, Pipeline.PINNED, Reason.LINE_LOST),
        ({"override": Pipeline.P_MD}, Pipeline.P_MD, Reason.OVERRIDE),
        ({"override": Pipeline.P_RLD, "main_ready": False}, Pipeline.P_RLD, Reason.OVERRIDE),
        ({"override": Pipeline.P_RLD_MD, "main_ready": False}, Pipeline.REFUSED, Reason.NO_DECODE_ENGINE),
    ],
)
def test_choice_and_its_reason(change: dict[str, object], pipeline: Pipeline, reason: Reason) -> None:
    choice = choose_pipeline(RULES, replace(NORMAL, **change))  # type: ignore[arg-type]
    assert (choice.pipeline, choice.reason) == (pipeline, reason)


@pytest.mark.parametrize(
    ("previous", "wait_s", "pipeline"),
    [
        (None, 0.205, Pipeline.P_RLD_MD),
        (Pipeline.P_MD, 0.205, Pipeline.P_MD),
        (Pipeline.P_MD, 0.225, Pipeline.P_RLD_MD),
        (Pipeline.P_RLD_MD, 0.195, Pipeline.P_RLD_MD),
        (Pipeline.P_RLD_MD, 0.175, Pipeline.P_MD),
    ],
)
def test_requests_near_the_threshold_follow_the_last_choice(
    previous: Pipeline | None, wait_s: float, pipeline: Pipeline
) -> None:
    assert choose_pipeline(RULES, replace(NORMAL, wait_s=wait_s, previous=previous)).pipeline is pipeline


def test_a_wait_that_swings_about_the_threshold_does_not_flap() -> None:
    previous: Pipeline | None = None
    changes = 0
    for wait_s in itertools.islice(itertools.cycle([0.19, 0.21]), 100):
        choice = choose_pipeline(RULES, replace(NORMAL, wait_s=wait_s, previous=previous))
        changes += previous is not None and choice.pipeline is not previous
        previous = choice.pipeline
    assert changes == 0


def test_relay_is_never_chosen_when_full_and_main_never_when_it_cannot_be_reached() -> None:
    flags = list(itertools.product([True, False], repeat=5))
    for main_ready, line_open, relay_exists, relay_free, pinned in flags:
        for wait_s in (0.0, 0.1, 1.0, 9.0):
            now = replace(
                NORMAL, wait_s=wait_s, max_output_tokens=100, main_ready=main_ready, line_open=line_open,
                relay_exists=relay_exists or relay_free, relay_free=relay_free, pinned=pinned,
            )  # fmt: skip
            choice = choose_pipeline(RULES, now)
            assert isinstance(choice, Choice)
            if choice.pipeline in (Pipeline.P_RLD, Pipeline.P_RLD_MD):
                assert relay_free
            assert not choice.crosses_line or main_ready
            if choice.pipeline in (Pipeline.P_MD, Pipeline.P_RLD_MD):
                assert choice.crosses_line
            if choice.pipeline is Pipeline.PINNED and not choice.crosses_line:
                assert relay_free
