"""The built-in byte-level tokenizer: ids 0-255 are bytes, the ids after them mark the turns of a chat."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

from pdd.common.errors import InvalidInput


class Special(IntEnum):
    """Ids that stand for no text. Each role opens its turn; END closes a turn and an answer (it is the EOS)."""

    END = 256
    BEGIN = 257
    SYSTEM = 258
    USER = 259
    ASSISTANT = 260
    TOOL = 261


_ROLES = {
    "system": Special.SYSTEM,
    "developer": Special.SYSTEM,
    "user": Special.USER,
    "assistant": Special.ASSISTANT,
    "tool": Special.TOOL,
}
VOCAB_SIZE = 272
"""Ids up to here exist in the model's head; those after the last Special are unused."""


class ByteTokenizer:
    """UTF-8 bytes as token ids. Text never encodes to a special id."""

    eos_token_id: int = Special.END
    vocab_size: int = VOCAB_SIZE

    def encode(self, text: str) -> list[int]:
        """Ids of the text's UTF-8 bytes. Lone surrogates (half an emoji in broken JSON) become U+FFFD."""
        return list(text.encode("utf-8", errors="replace"))

    def decode(self, ids: Iterable[int]) -> str:
        """Text of the ids; special ids are left out, broken UTF-8 becomes U+FFFD."""
        detokenizer = self.detokenizer()
        return detokenizer.feed(ids) + detokenizer.flush()

    def detokenizer(self) -> Detokenizer:
        return Detokenizer()

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True
    ) -> list[int]:
        """BEGIN, then for each message its role's mark, its text, END; then ASSISTANT. Raises InvalidInput."""
        ids: list[int] = [Special.BEGIN]
        for index, message in enumerate(messages):
            role = message.get("role")
            if not isinstance(role, str) or role not in _ROLES:
                raise InvalidInput(f"messages[{index}].role", role, f"must be one of {', '.join(_ROLES)}")
            ids.append(_ROLES[role])
            ids.extend(self.encode(message_text(message.get("content"), f"messages[{index}].content")))
            ids.append(Special.END)
        if add_generation_prompt:
            ids.append(Special.ASSISTANT)
        return ids


class Detokenizer:
    """Ids to text as they come. A character whose bytes are not all there yet is held back until they are."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, ids: Iterable[int]) -> str:
        """Text that these ids complete."""
        return self._decoder.decode(bytes(i for i in ids if 0 <= i < 256))

    def flush(self) -> str:
        """What was held back, as U+FFFD."""
        return self._decoder.decode(b"", True)


def message_text(content: object, field: str) -> str:
    """A chat message's text: a string, or OpenAI's list of {"type": "text"} parts joined. Raises InvalidInput."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        parts: list[str] = []
        for index, part in enumerate(content):
            text = part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None
            if not isinstance(text, str):
                raise InvalidInput(
                    f"{field}[{index}]", part, 'only parts {"type": "text", "text": "..."} are supported'
                )
            parts.append(text)
        return "".join(parts)
    raise InvalidInput(field, content, "must be a string or a list of text parts")
