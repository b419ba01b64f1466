"""What a check is and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

F = TypeVar("F")


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """Outcome of one check. `detail` is what was seen; `why` and `fix` are set unless the verdict is ok."""

    check: str
    verdict: Verdict
    detail: str
    why: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Check(Generic[F]):
    """`name` is `category.subject`. `look` gets the facts and is pure."""

    name: str
    title: str
    look: Callable[[F], tuple[Verdict, str]]
    why: str
    fix: str

    def run(self, facts: F) -> Finding:
        """The finding; why and fix only where they are needed."""
        verdict, detail = self.look(facts)
        if verdict is Verdict.OK:
            return Finding(self.name, verdict, detail)
        return Finding(self.name, verdict, detail, self.why, self.fix)


def chosen(names: Iterable[str], only: Sequence[str], skip: Sequence[str]) -> list[str]:
    """The names that `only` selects (all if empty) without those of `skip`. A selector is a name or its category.

    Raises KeyError with the first selector that matches nothing: a misspelt one must not pass as healthy.
    """
    known = list(names)

    def matches(name: str, selector: str) -> bool:
        return name == selector or name.partition(".")[0] == selector

    for selector in (*only, *skip):
        if not any(matches(name, selector) for name in known):
            raise KeyError(selector)
    return [
        name
        for name in known
        if (not only or any(matches(name, selector) for selector in only))
        and not any(matches(name, selector) for selector in skip)
    ]
