"""Prompts of a wanted length: incident logs, different for each seed from the first line on."""

from __future__ import annotations

import random
from collections.abc import Callable

Messages = list[dict[str, str]]

_PARTS = ("router", "gateway", "prefill", "relay", "decode", "cache", "scheduler", "storage", "billing", "search")
_EVENTS = (
    "restarted after the disk was full",
    "lost its connection and dialled again",
    "served the request from its cache",
    "waited for a free block",
    "was drained before the upgrade",
    "answered late because of a full queue",
    "moved its sessions to a neighbour",
    "reported a healthy line",
)
_QUESTION = "\nWhat happened, and what should be done first?"


def incident_log(seed: int, characters: int) -> str:
    """Exactly `characters` ASCII characters of a made-up log, the same for the same seed."""
    rng = random.Random(seed)
    lines = [f"Report {rng.randrange(10**8):08d}.\n"]
    size = len(lines[0])
    minute = rng.randrange(60 * 12)
    while size < characters:
        minute += rng.randrange(1, 4)
        part, event = rng.choice(_PARTS), rng.choice(_EVENTS)
        line = f"{minute // 60 % 24:02d}:{minute % 60:02d} {part}-{rng.randrange(32)} {event}.\n"
        lines.append(line)
        size += len(line)
    return "".join(lines)[:characters]


def long_chat(seed: int, prompt_tokens: int, count_tokens: Callable[[Messages], int]) -> Messages:
    """One user message whose chat prompt has `prompt_tokens` tokens, or the most that does not exceed it.

    `count_tokens` applies the model's chat template. Raises ValueError when the template alone is longer.
    """

    def chat(characters: int) -> Messages:
        return [{"role": "user", "content": incident_log(seed, characters) + _QUESTION}]

    overhead = count_tokens(chat(0))
    if overhead > prompt_tokens:
        raise ValueError(f"the shortest chat prompt has {overhead} tokens, {prompt_tokens} were asked for")
    low, high = 0, prompt_tokens * 16
    while low < high:  # the longest text that still fits
        middle = (low + high + 1) // 2
        if count_tokens(chat(middle)) <= prompt_tokens:
            low = middle
        else:
            high = middle - 1
    return chat(low)


def follow_up(first: Messages, answer: str, question: str) -> Messages:
    """The conversation one turn later: its prompt begins with all of the first one's.

    Of the answer the readable characters are kept. A small model's bytes are not always text, and each that is none
    would come back as a replacement character of three bytes.
    """
    readable = "".join(c for c in answer if c == "\n" or (c.isprintable() and c != "\N{REPLACEMENT CHARACTER}"))
    return [*first, {"role": "assistant", "content": readable}, {"role": "user", "content": question}]
