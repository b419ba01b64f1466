"""Tokenizers by name, and a Hugging Face folder made on the spot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pdd.common.errors import InvalidInput
from pdd.engine.tokenizer import ByteTokenizer
from pdd.engine.tokenizers import Tokenizer, load_tokenizer

TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'robot' %}{{ raise_exception('no robots') }}{% endif %}"
    "{{ m['role'] }}: {{ m['content'] }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tokenizers import Tokenizer as Fast
    from tokenizers import decoders, models, pre_tokenizers, trainers

    path = tmp_path_factory.mktemp("model")
    fast = Fast(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<eos>"], initial_alphabet=alphabet, show_progress=False
    )
    fast.train_from_iterator(["the relay decodes while the cache crosses the line"] * 20, trainer)
    fast.save(str(path / "tokenizer.json"))
    config = {"eos_token": {"content": "<eos>"}, "chat_template": TEMPLATE}
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return load_tokenizer(str(folder))


def test_bytes_is_the_built_in_one() -> None:
    assert isinstance(load_tokenizer("bytes"), ByteTokenizer)


def test_a_folder_without_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"tokenizer\.json"):
        load_tokenizer(str(tmp_path))


def test_text_survives(tokenizer: Tokenizer) -> None:
    text = "the line: naïve 日本語 🙂"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.vocab_size > 256
    assert tokenizer.eos_token_id == 0


def test_streaming_gives_the_same_text_without_broken_characters(tokenizer: Tokenizer) -> None:
    text = "the cache 🙂 crosses 日本語 the line"
    detokenizer = tokenizer.detokenizer()
    pieces = [detokenizer.feed([i]) for i in tokenizer.encode(text)]
    assert "".join(pieces) + detokenizer.flush() == text
    assert not any("\ufffd" in piece for piece in pieces)


def test_a_character_that_never_completes_is_flushed(tokenizer: Tokenizer) -> None:
    detokenizer = tokenizer.detokenizer()
    half = tokenizer.encode("🙂")[:2]
    assert detokenizer.feed(half) == ""
    assert "\ufffd" in detokenizer.flush()


def test_the_chat_template_is_the_folders(tokenizer: Tokenizer) -> None:
    ids = tokenizer.apply_chat_template([{"role": "user", "content": "the line"}])
    assert tokenizer.decode(ids) == "user: the line\nassistant:"
    assert tokenizer.eos_token_id in ids
    assert ids == tokenizer.apply_chat_template([{"role": "user", "content": [{"type": "text", "text": "the line"}]}])


def test_what_the_template_refuses_is_invalid_input(tokenizer: Tokenizer) -> None:
    with pytest.raises(InvalidInput, match="no robots"):
        tokenizer.apply_chat_template([{"role": "robot", "content": "x"}])


def test_the_template_runs_in_a_sandbox(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text((folder / "tokenizer.json").read_text())
    (tmp_path / "chat_template.jinja").write_text("{{ ''.__class__.__mro__[1].__subclasses__() }}")
    with pytest.raises(InvalidInput, match="unsafe"):
        load_tokenizer(str(tmp_path)).apply_chat_template([{"role": "user", "content": "x"}])


def test_a_model_without_template_says_so(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text((folder / "tokenizer.json").read_text())
    with pytest.raises(InvalidInput, match="no chat template"):
        load_tokenizer(str(tmp_path)).apply_chat_template([{"role": "user", "content": "x"}])
