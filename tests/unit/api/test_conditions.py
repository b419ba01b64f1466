"""Conditions: a status flip moves the time, anything else does not."""

from pdd.api.conditions import (
    MAX_MESSAGE_CHARS,
    ConditionStatus,
    ConditionType,
    Reason,
    get_condition,
    is_true,
    set_condition,
)

READY = ConditionType.READY


def test_a_new_condition_takes_the_time_of_now() -> None:
    made = set_condition((), READY, True, Reason.READY, "serving", generation=3, now="T1")
    assert made[0].status is ConditionStatus.TRUE
    assert (made[0].last_transition_time, made[0].observed_generation) == ("T1", 3)


def test_the_same_condition_gives_the_very_same_tuple_so_that_nothing_is_written() -> None:
    first = set_condition((), READY, True, Reason.READY, "serving", generation=3, now="T1")
    assert set_condition(first, READY, True, Reason.READY, "serving", generation=3, now="T2") is first


def test_another_reason_or_message_keeps_the_transition_time() -> None:
    first = set_condition((), READY, False, Reason.CONNECTING, "a", generation=1, now="T1")
    second = set_condition(first, READY, False, Reason.UNREACHABLE, "b", generation=2, now="T2")
    assert second[0].last_transition_time == "T1"
    assert (second[0].reason, second[0].observed_generation) == ("Unreachable", 2)


def test_a_flip_moves_the_time_and_the_place_in_the_list_stays() -> None:
    both = set_condition((), READY, False, Reason.CONNECTING, "", generation=1, now="T1")
    both = set_condition(both, ConditionType.PLANNED, True, Reason.PLANNED, "", generation=1, now="T1")
    flipped = set_condition(both, READY, None, Reason.MEMBER_LOST, "", generation=1, now="T2")
    assert [c.type for c in flipped] == ["Ready", "Planned"]
    assert flipped[0].status is ConditionStatus.UNKNOWN
    assert flipped[0].last_transition_time == "T2"
    assert flipped[1].last_transition_time == "T1"


def test_a_long_message_is_cut_to_what_the_schema_allows() -> None:
    made = set_condition((), READY, False, Reason.APPLY_FAILED, "x" * 5000, generation=1, now="T1")
    assert len(made[0].message) == MAX_MESSAGE_CHARS
    assert made[0].message.endswith("...")


def test_true_of_an_older_generation_is_not_true_of_a_newer_one() -> None:
    made = set_condition((), READY, True, Reason.READY, "", generation=3, now="T1")
    assert is_true(made, READY, generation=3)
    assert not is_true(made, READY, generation=4)
    assert get_condition(made, ConditionType.PLANNED) is None


def test_every_reason_and_type_is_camel_case() -> None:
    for value in (*Reason, *ConditionType):
        assert value.value.isalnum() and value.value[0].isupper(), value
