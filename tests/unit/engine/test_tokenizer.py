"""Bytes in, bytes out, no character broken in a stream."""

from __future__ import annotations

import pytest

from pdd.common.errors import InvalidInput
from pdd.engine.reference.config import ModelConfig
from pdd.engine.tokenizer import VOCAB_SIZE, ByteTokenizer, Special

TEXT = "naïve Größe € 日本語 🙂 done"


def test_text_survives_the_round_trip() -> None:
    tokenizer = ByteTokenizer()
    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT
    assert all(0 <= i < 256 for i in tokenizer.encode(TEXT))


def test_a_stream_never_shows_half_a_character() -> None:
    tokenizer = ByteTokenizer()
    detokenizer = tokenizer.detokenizer()
    pieces = [detokenizer.feed([i]) for i in tokenizer.encode(TEXT)]
    assert "".join(pieces) == TEXT
    assert not any("\ufffd" in piece for piece in pieces)
    assert detokenizer.flush() == ""


def test_a_cut_off_character_is_flushed_as_replacement() -> None:
    detokenizer = ByteTokenizer().detokenizer()
    assert detokenizer.feed("🙂".encode()[:2]) == ""
    assert detokenizer.flush() == "\ufffd"


def test_broken_bytes_do_not_stop_the_stream() -> None:
    assert ByteTokenizer().decode([0xFF, ord("a"), 0xC3, ord("b")]) == "\ufffda\ufffdb"


def test_special_ids_have_no_text_and_text_makes_no_special_ids() -> None:
    tokenizer = ByteTokenizer()
    assert tokenizer.decode([ord("a"), Special.END, Special.USER, 271, ord("b")]) == "ab"
    assert max(tokenizer.encode("<|end|> " + TEXT)) < 256


def test_the_chat_template_marks_turns_and_is_a_prefix_of_its_continuation() -> None:
    tokenizer = ByteTokenizer()
    first = [{"role": "system", "content": "be brief"}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    ids = tokenizer.apply_chat_template(first)
    assert ids[:2] == [Special.BEGIN, Special.SYSTEM]
    assert ids[-4:] == [ord("h"), ord("i"), Special.END, Special.ASSISTANT]
    more = [*first, {"role": "assistant", "content": "yo"}, {"role": "user", "content": "bye"}]
    assert tokenizer.apply_chat_template(more)[: len(ids)] == ids
    assert tokenizer.apply_chat_template(first, add_generation_prompt=False) == ids[:-1]


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"role": "robot", "content": "x"}, "messages[0].role"),
        ({"content": "x"}, "messages[0].role"),
        ({"role": "user", "content": 5}, "messages[0].content"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages[0].content[0]"),
    ],
)
def test_bad_messages_are_named(message: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        ByteTokenizer().apply_chat_template([message])
    assert caught.value.field == field


def test_lone_surrogates_do_not_crash() -> None:
    assert ByteTokenizer().decode(ByteTokenizer().encode("a\ud83db")) == "a?b"


def test_model_and_tokenizer_agree_on_the_vocabulary() -> None:
    assert ModelConfig().vocab_size == VOCAB_SIZE == ByteTokenizer.vocab_size
    assert max(Special) < VOCAB_SIZE
