"""The handoff from RLD to MD: one-shot or catch-up, and the law of catch-up's batches.

When the KV has landed, MD lacks the KV of the eager tokens. It gets their ids and computes their KV in one *extend*
step. While it does, RLD goes on and makes new tokens; the user's pause at the switch is the last extend plus one RTT.

Catch-up: round k extends the n_k tokens that exist when it starts and takes `rtt + extend(n_k)`. RLD makes
`n_{k+1} = (rtt + extend(n_k)) / tpot` tokens meanwhile. An extend is memory-bound up to some tens of tokens (the way
speculative decoding verifies), so n_k falls geometrically to the floor `rtt / tpot`, where no further round helps.
"""

from __future__ import annotations

from dataclasses import dataclass

from pdd.api.config import HandoffMode

MAX_ROUNDS = 6
"""Catch-up ends here at the latest: a batch that still grows means RLD is faster than MD's extend."""
SMALL_BATCH_TOKENS = 4
"""A batch as small as this costs one decode step: no further round can shorten the pause."""


@dataclass(frozen=True, slots=True)
class Switch:
    """The next step: `last` means MD takes over with it; otherwise it only extends, and RLD goes on."""

    last: bool


def choose_mode(configured: HandoffMode, eager_tokens: int, one_shot_limit_tokens: int) -> HandoffMode:
    """`configured`, or for Auto: one-shot while the eager tokens fit one cheap extend, else catch-up."""
    if configured is not HandoffMode.AUTO:
        return configured
    return HandoffMode.ONE_SHOT if fits_one_shot(eager_tokens, one_shot_limit_tokens) else HandoffMode.CATCH_UP


def fits_one_shot(eager_tokens: int, one_shot_limit_tokens: int) -> bool:
    """Auto's choice in plain numbers; the simulator compiles this very function."""
    return eager_tokens <= one_shot_limit_tokens


def choose_step(mode: HandoffMode, rounds: int, batch_tokens: int, previous_batch_tokens: int | None) -> Switch:
    """What to do with the `batch_tokens` that MD does not have yet, after `rounds` extends.

    previous_batch_tokens: size of the batch of the last extend; None before the first. The switch comes when the batch
    is small, when it no longer shrinks by at least a quarter (the floor is reached), or after MAX_ROUNDS.
    """
    previous = -1 if previous_batch_tokens is None else previous_batch_tokens
    return Switch(last=is_last_step(mode is HandoffMode.ONE_SHOT, rounds, batch_tokens, previous))


def is_last_step(one_shot: bool, rounds: int, batch_tokens: int, previous_batch_tokens: int) -> bool:
    """`choose_step` in plain numbers (-1: no extend before); the simulator compiles this very function."""
    if one_shot or batch_tokens <= SMALL_BATCH_TOKENS or rounds >= MAX_ROUNDS:
        return True
    return previous_batch_tokens >= 0 and batch_tokens * 4 > previous_batch_tokens * 3
