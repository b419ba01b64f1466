from __future__ import annotations

import pytest

from pdd.cli.demo_text import Messages, follow_up, incident_log, long_chat


def count(messages: Messages) -> int:
    return sum(len(message["content"]) + 5 for message in messages) + 3


def test_the_prompt_has_exactly_the_wanted_number_of_tokens() -> None:
    for wanted in (120, 800, 8000):
        assert count(long_chat(1, wanted, count)) == wanted


def test_prompts_of_two_seeds_differ_from_the_start() -> None:
    first, second = incident_log(1, 4000), incident_log(2, 4000)
    assert len(first) == len(second) == 4000
    assert first[:16] != second[:16]
    assert incident_log(1, 4000) == first


def test_a_prompt_shorter_than_the_template_is_refused() -> None:
    with pytest.raises(ValueError, match="10 were asked for"):
        long_chat(1, 10, count)


def test_a_follow_up_begins_with_the_first_conversation() -> None:
    first = long_chat(1, 800, count)
    later = follow_up(first, "an\x07 \ufffdanswer\n", "and then?")
    assert later[1]["content"] == "an answer\n"
    assert later[:1] == first
    assert [message["role"] for message in later] == ["user", "assistant", "user"]
