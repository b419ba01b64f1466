"""What strangers sent is shown bounded, whatever it is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pdd.common.errors import InvalidInput
from pdd.common.show import MAX_SHOWN_CHARS, shown

DEEP: Any = json.loads("[" * 900 + "]" * 900)
DEEP_OBJECT: Any = json.loads('{"a":' * 900 + "1" + "}" * 900)


@pytest.mark.parametrize("value", [0, -1.5, True, None, "x", "it's", [1, "a"], {"type": "text"}, [], {}, ()])
def test_small_values_are_shown_as_they_are(value: object) -> None:
    assert shown(value) == repr(value)


@pytest.mark.parametrize(
    "value", ["x" * 10**6, [1] * 10**6, dict.fromkeys(range(10**5)), DEEP, DEEP_OBJECT, [DEEP] * 9, {"a": DEEP}]
)
def test_large_and_deep_values_are_cut(value: object) -> None:
    assert len(shown(value)) <= MAX_SHOWN_CHARS
    assert len(str(InvalidInput("messages", value, "is wrong"))) < 200
