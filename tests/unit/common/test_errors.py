"""Errors name what is wrong, where, and what to do."""

from pdd.common.errors import InvalidInput, Overloaded, PDDError, Unreachable


def test_invalid_input_names_field_value_and_remedy() -> None:
    error = InvalidInput("spec.router.replicas", -1, "must be at least 0")
    assert str(error) == "spec.router.replicas: -1: must be at least 0"
    assert (error.reason, error.retryable) == ("InvalidInput", False)


def test_a_huge_value_is_cut_in_the_message() -> None:
    assert len(str(InvalidInput("prompt", "x" * 10_000, "is too long"))) < 200


def test_every_error_has_a_camel_case_reason() -> None:
    def tree(cls: type[PDDError]) -> list[type[PDDError]]:
        return [cls, *(d for child in cls.__subclasses__() for d in tree(child))]

    for cls in tree(PDDError):
        assert cls.reason[0].isupper() and cls.reason.isalnum(), cls


def test_retryable_says_whether_waiting_can_help() -> None:
    assert Unreachable("x").retryable
    assert Overloaded("full", retry_after_s=2).retry_after_s == 2
