"""Mutations of files that people write: bytes, lines and values that a slip of the hand or a broken tool may leave."""

from __future__ import annotations

import random
from collections.abc import Iterator

VALUES = (
    "", "null", "~", "true", "[]", "{}", "[1]", "{a: 1}", "-1", "0", "1e400", ".nan", ".inf", "-.inf", "9" * 40, "1_0",
    "0x10", "2026-01-01", "12:30:45", "!!binary aGk=", "!!python/none", "&x 1", "*x", "|", ">", "''", "\u00e9\u4e2d",
    "64 GB", "64 GiB", "20 Gb", "5 ms", "5", "90 %", "190 %", "-5 s", "1/0", "nan", "inf %", "1e999/s", "1 USD/h",
)  # fmt: skip
BYTES = "\x00\x07\t\ufeff\u2028 :-[]{}#&*!|>'\"%@`,\\\r\n0aZ"


def mutate(text: str, seed: int, count: int) -> Iterator[str]:
    """`count` texts with one to three mutations each, the same for the same seed."""
    rng = random.Random(seed)
    for _ in range(count):
        changed = text
        for _ in range(rng.randint(1, 3)):
            changed = rng.choice((_line, _value, _byte, _cut, _swap))(changed, rng)
        yield changed


def _value(text: str, rng: random.Random) -> str:
    """What stands behind a colon becomes something else."""
    lines = text.split("\n")
    places = [i for i, line in enumerate(lines) if ":" in line and not line.lstrip().startswith("#")]
    if not places:
        return text
    at = rng.choice(places)
    key = lines[at].split(":", 1)[0]
    lines[at] = f"{key}: {rng.choice(VALUES)}"
    return "\n".join(lines)


def _line(text: str, rng: random.Random) -> str:
    """A line is lost, doubled, or moved to the right or left."""
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    change = rng.randrange(4)
    if change == 0:
        del lines[at]
    elif change == 1:
        lines.insert(at, lines[at])
    elif change == 2:
        lines[at] = "  " + lines[at]
    else:
        lines[at] = lines[at][2:]
    return "\n".join(lines)


def _byte(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(BYTES) + text[at + rng.randrange(2) :]


def _cut(text: str, rng: random.Random) -> str:
    return text[: rng.randrange(len(text) + 1)] if rng.random() < 0.3 else text


def _swap(text: str, rng: random.Random) -> str:
    lines = text.split("\n")
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return "\n".join(lines)
