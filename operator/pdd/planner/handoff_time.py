"""How long a handoff takes, by the very rules that the router uses (`pdd.policy.handoff`)."""

from __future__ import annotations

from dataclasses import dataclass

from pdd.planner.fleet import RuleSpec
from pdd.planner.timing import ExtendTime, extend_s
from pdd.policy.handoff import choose_mode, choose_step


@dataclass(frozen=True, slots=True)
class Handoff:
    """seconds: from landing until MD goes on. stall_s: the user's pause within it. extend_s: what all extends add to
    MD's steps (one joins a step of the batch, whose fixed part is paid anyway). batches: tokens of each extend."""

    seconds: float
    stall_s: float
    extend_s: float
    batches: tuple[int, ...]

    @property
    def rounds(self) -> int:
        return len(self.batches)


def compute_handoff(
    rules: RuleSpec, extend: ExtendTime, rtt_s: float, relay_step_s: float, eager_tokens: float, context: float
) -> Handoff:
    """The handoff of `eager_tokens` tokens that RLD made while the KV crossed, one each `relay_step_s`."""
    batch = max(1, round(eager_tokens))
    mode = choose_mode(rules.handoff_mode, batch, rules.one_shot_limit_tokens)
    batches: list[int] = []
    total = work = 0.0
    while True:
        step = choose_step(mode, len(batches), batch, batches[-1] if batches else None)
        one = extend_s(extend, batch, context)
        batches.append(batch)
        total += rtt_s + one
        work += one - extend.fixed_s
        if step.last:
            return Handoff(total, rtt_s + one, work, tuple(batches))
        batch = max(1, round((rtt_s + one) / relay_step_s)) if relay_step_s > 0 else 1
