"""Stop strings and UTF-8 over any cut."""

from __future__ import annotations

import random

import pytest

from pdd.engine.tokenizer import ByteTokenizer
from pdd.router.text import TextAssembler

TOKENIZER = ByteTokenizer()


def assemble(text: str, cuts: list[int], stops: tuple[str, ...] = (), include: bool = False) -> tuple[str, int | None]:
    """(text given out, id count at the stop) of `text` fed in pieces of these sizes."""
    assembler = TextAssembler(TOKENIZER.detokenizer(), stops, include_stop=include)
    ids = TOKENIZER.encode(text)
    out, used = "", 0
    for cut in [*cuts, len(ids)]:
        fed = assembler.feed(ids[:cut])
        out += fed.text
        if fed.stopped_after is not None:
            return out + assembler.flush(), used + fed.stopped_after
        used += len(ids[:cut])
        ids = ids[cut:]
    return out + assembler.flush(), None


def expected(text: str, stops: tuple[str, ...]) -> str:
    """The text before the first stop string that is complete, reading byte by byte."""
    for end in range(1, len(text) + 1):
        found = [text.find(stop, 0, end) for stop in stops]
        if any(at >= 0 for at in found):
            return text[: min(at for at in found if at >= 0)]
    return text


@pytest.mark.parametrize("seed", range(50))
def test_any_cut_gives_the_same_text(seed: int) -> None:
    rng = random.Random(seed)
    text = "".join(rng.choice("abé€😀 ") for _ in range(60))
    cuts = [rng.randint(1, 5) for _ in range(40)]
    assert assemble(text, cuts) == (text, None)


@pytest.mark.parametrize("seed", range(200))
def test_a_stop_string_is_found_over_any_cut(seed: int) -> None:
    rng = random.Random(seed)
    text = "".join(rng.choice("abé") for _ in range(30))
    stops = tuple({"".join(rng.choice("abé") for _ in range(rng.randint(1, 5))) for _ in range(rng.randint(1, 3))})
    cuts = [rng.randint(1, 6) for _ in range(30)]
    assert assemble(text, cuts, stops)[0] == expected(text, stops)


def test_the_stopping_token_is_known_exactly() -> None:
    assert assemble("hello STOP world", [3, 9], ("STOP",)) == ("hello ", 10)


def test_a_stop_string_can_be_part_of_the_output() -> None:
    assert assemble("hello STOP world", [], ("STOP",), include=True)[0] == "hello STOP"


def test_the_start_of_a_stop_string_is_held_and_given_back_at_the_end() -> None:
    assembler = TextAssembler(TOKENIZER.detokenizer(), ("END!",))
    assert assembler.feed(TOKENIZER.encode("the EN")).text == "the "
    assert assembler.feed(TOKENIZER.encode("D")).text == ""
    assert assembler.flush() == "END"


def test_an_unfinished_character_at_the_end_is_marked() -> None:
    assembler = TextAssembler(TOKENIZER.detokenizer())
    assert assembler.feed([0xE2, 0x82]).text == ""
    assert assembler.flush() == "\ufffd"
