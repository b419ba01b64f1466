"""Tokenizers by name: the built-in one, or a folder with a Hugging Face `tokenizer.json`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pdd.common.errors import InvalidInput
from pdd.engine.tokenizer import ByteTokenizer, message_text

_HELD_BACK_TOKENS = 16
"""A character is never spread over more tokens than this; longer runs of U+FFFD are shown as they are."""


class StreamDetokenizer(Protocol):
    """Ids to text as they come; `flush` gives what was held back."""

    def feed(self, ids: Iterable[int]) -> str: ...

    def flush(self) -> str: ...


class Tokenizer(Protocol):
    """What the router needs of a model's tokenizer."""

    @property
    def eos_token_id(self) -> int: ...

    @property
    def vocab_size(self) -> int: ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Iterable[int]) -> str: ...

    def detokenizer(self) -> StreamDetokenizer: ...

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True
    ) -> list[int]: ...


def load_tokenizer(name_or_path: str) -> Tokenizer:
    """`bytes` is the built-in tokenizer; anything else a folder with tokenizer.json. Raises InvalidInput."""
    if name_or_path == "bytes":
        return ByteTokenizer()
    folder = Path(name_or_path)
    if not (folder / "tokenizer.json").is_file():
        raise InvalidInput("tokenizer", name_or_path, 'must be "bytes" or a folder that holds tokenizer.json')
    return HuggingFaceTokenizer(folder)


class HuggingFaceTokenizer:
    """`tokenizer.json` by the `tokenizers` library; the folder's chat template by Jinja2 in its sandbox."""

    def __init__(self, folder: Path) -> None:
        try:
            from tokenizers import Tokenizer as Fast
        except ImportError as error:
            raise InvalidInput(
                "tokenizer", str(folder), "needs the package `tokenizers`: pip install tokenizers"
            ) from error
        self._fast = Fast.from_file(str(folder / "tokenizer.json"))
        self._config = _read_json(folder / "tokenizer_config.json")
        template_file = folder / "chat_template.jinja"
        template = template_file.read_text() if template_file.is_file() else self._config.get("chat_template")
        self._template: str | None = template if isinstance(template, str) else None
        self._eos = self._find_eos(folder)

    def _find_eos(self, folder: Path) -> int:
        declared = _read_json(folder / "generation_config.json").get("eos_token_id")
        if isinstance(declared, list) and declared:
            declared = declared[0]
        if isinstance(declared, int):
            return declared
        token_id = self._fast.token_to_id(_token_text(self._config.get("eos_token")))
        return -1 if token_id is None else int(token_id)

    @property
    def eos_token_id(self) -> int:
        """-1 when the folder does not say."""
        return self._eos

    @property
    def vocab_size(self) -> int:
        return int(self._fast.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str) -> list[int]:
        return list(self._fast.encode(text, add_special_tokens=True).ids)

    def decode(self, ids: Iterable[int]) -> str:
        return str(self._fast.decode(list(ids), skip_special_tokens=True))

    def detokenizer(self) -> StreamDetokenizer:
        return _WindowDetokenizer(self)

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True
    ) -> list[int]:
        """Render the model's own template. Raises InvalidInput when it has none or refuses the messages."""
        if self._template is None:
            raise InvalidInput("messages", "...", "this model has no chat template; use /v1/completions")
        try:
            from jinja2 import TemplateError
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError as error:
            raise InvalidInput(
                "tokenizer", "chat template", "needs the package `jinja2`: pip install jinja2"
            ) from error

        def refuse(message: str) -> str:
            raise TemplateError(message)

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = refuse
        plain = [
            {**message, "content": message_text(message.get("content"), f"messages[{index}].content")}
            for index, message in enumerate(messages)
        ]
        names = {key: _token_text(self._config.get(key)) for key in ("bos_token", "eos_token")}
        try:
            template = environment.from_string(self._template)
            text = template.render(messages=plain, add_generation_prompt=add_generation_prompt, **names)
        except TemplateError as error:
            raise InvalidInput("messages", "...", f"the chat template refuses them: {error}") from error
        return list(self._fast.encode(text, add_special_tokens=False).ids)


class _WindowDetokenizer:
    """Decodes a short window twice, with and without the news: joining pieces is not a function of one token alone."""

    def __init__(self, tokenizer: HuggingFaceTokenizer) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._shown = 0
        """Ids at the window's start whose text is out; they stay for their context."""

    def feed(self, ids: Iterable[int]) -> str:
        self._window.extend(ids)
        before = self._tokenizer.decode(self._window[: self._shown])
        after = self._tokenizer.decode(self._window)
        held = len(self._window) - self._shown
        if after.endswith("\ufffd") and held <= _HELD_BACK_TOKENS:
            return ""
        self._window, self._shown = self._window[self._shown :], held
        return after[len(before) :]

    def flush(self) -> str:
        before = self._tokenizer.decode(self._window[: self._shown])
        after = self._tokenizer.decode(self._window)
        self._window, self._shown = [], 0
        return after[len(before) :]


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    raw = json.loads(path.read_text())
    return raw if isinstance(raw, dict) else {}


def _token_text(value: object) -> str:
    """A special token is written as its text or as {"content": text}."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else ""
