"""Conversations drawn from a SessionLaw, already under way when the load begins: no ramp at its start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pdd.planner.hit_law import HitMixture
from pdd.planner.laws import ArrivalLaw, LengthLaw, Reals, SessionLaw
from pdd.planner.load import Load, Tokens

PILOT_SESSIONS = 4096
PILOT_REQUESTS = 500_000
MAX_BEFORE = 500_000
"""Requests drawn before the load's begin at most; sessions longer than they span still ramp up."""
CAP = 2
"""No session has more than so many times the turns of the longest in the pilot: what its context cuts is not drawn."""
ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class FirstTurns:
    """What does not depend on the session so far: first prompts and their hits, and all answers."""

    input_tokens: LengthLaw
    output_tokens: LengthLaw
    hits: HitMixture
    block_tokens: int

    def draw_hits(self, inputs: Tokens, rng: np.random.Generator) -> Tokens:
        """Hit tokens in whole blocks; at least one token is left to compute."""
        return self.round_hits(np.rint(inputs * self.hits.draw(len(inputs), rng)).astype(np.int64), inputs)

    def round_hits(self, hits: Tokens, inputs: Tokens) -> Tokens:
        """Down to whole blocks, below the prompt's length."""
        bounded = np.minimum(hits, inputs - 1)
        return bounded if self.block_tokens == 1 else bounded - bounded % self.block_tokens


@dataclass(frozen=True, slots=True)
class _Turns:
    """All turns of some sessions, session by session. at_s: since the session began. turn: 0 for the first."""

    session: Tokens
    turn: Tokens
    at_s: Reals
    inputs: Tokens
    outputs: Tokens
    hits: Tokens
    think_s: Reals


def to_tokens(values: Reals) -> Tokens:
    """Rounded, at least 1."""
    return np.maximum(1, np.rint(values)).astype(np.int64)


def draw_sessions(
    law: SessionLaw, first: FirstTurns, arrivals: ArrivalLaw, n: int, rate_per_s: float, seed: np.random.SeedSequence
) -> Load:
    """n requests of conversations, sorted by arrival, in the steady state from the start."""
    pilot_seed, *seeds = seed.spawn(1 + ATTEMPTS)
    sample = max(64, min(PILOT_SESSIONS, int(PILOT_REQUESTS / law.turns)))
    pilot, kept = _draw_turns(law, first, sample, np.random.default_rng(pilot_seed))
    session_rate = rate_per_s / (law.turns * kept)
    most = CAP * (int(pilot.turn.max()) + 1)
    drawn_turns = law.turns * -np.expm1(most * np.log1p(-min(1 / law.turns, 1 - 1e-12)))
    before_s = min(float(pilot.at_s.max()), MAX_BEFORE / (session_rate * drawn_turns))
    count = 16 + int((before_s + 1.05 * n / rate_per_s) * session_rate)
    for attempt in seeds:
        times, rest = (np.random.default_rng(s) for s in attempt.spawn(2))
        starts = arrivals.draw(count, session_rate, times) - before_s
        turns, _ = _draw_turns(law, first, count, rest, most)
        at_s = starts[turns.session] + turns.at_s
        covered = int(np.count_nonzero((at_s >= 0) & (at_s <= starts[-1])))
        if covered >= n:
            return _to_load(turns, at_s, n)
        count = int(count * 1.3) + 16
    raise AssertionError(f"{count} sessions do not hold {n} requests")


def _draw_turns(
    law: SessionLaw, first: FirstTurns, sessions: int, rng: np.random.Generator, most: int = 1 << 40
) -> tuple[_Turns, float]:
    """All their turns (at most so many of each), and the share of turns that the cut at context_tokens left."""
    counts = np.minimum(rng.geometric(1 / law.turns, sessions), most)
    begin = np.cumsum(counts) - counts
    session = np.repeat(np.arange(sessions), counts)
    turn = np.arange(len(session)) - begin[session]
    later = turn > 0
    outputs = to_tokens(first.output_tokens.draw(len(session), rng))
    growth = to_tokens(law.growth.draw(len(session), rng))
    think_s = np.where(later, law.think_s.draw(len(session), rng), 0.0)
    answer_before = np.where(later, np.roll(outputs, 1), 0)
    first_prompts = np.minimum(to_tokens(first.input_tokens.draw(sessions, rng)), law.context_tokens)
    tokens = np.where(later, answer_before + growth, first_prompts[session]).astype(np.float64)
    inputs = _running(tokens, begin, session).astype(np.int64)
    gap_s = np.where(later, law.first_token_s + law.token_s * answer_before + think_s, 0.0)
    known = np.roll(inputs, 1) + (answer_before if law.answers_cached else 0)
    first_hits = first.draw_hits(first_prompts, rng)
    hits = np.where(later, first.round_hits(known, inputs), first_hits[session])
    at_s = _running(gap_s, begin, session)
    kept = inputs <= law.context_tokens
    left = _Turns(
        session[kept], turn[kept], at_s[kept], inputs[kept], outputs[kept], hits[kept].astype(np.int64), think_s[kept]
    )
    return left, float(np.mean(kept))


def _running(values: Reals, begin: Tokens, session: Tokens) -> Reals:
    """Sums that begin anew with each session. Whole numbers stay exact: they are far below 2^53."""
    sums: Reals = np.cumsum(values)
    before: Reals = sums[begin] - values[begin]
    return sums - before[session]


def _to_load(turns: _Turns, at_s: Reals, n: int) -> Load:
    kept = np.flatnonzero(at_s >= 0)
    kept = kept[np.argsort(at_s[kept], kind="stable")][:n]
    place = np.full(len(at_s) + 1, -1)
    place[kept] = np.arange(len(kept))
    previous = np.where(turns.turn[kept] > 0, place[kept - 1], -1)
    _, session = np.unique(turns.session[kept], return_inverse=True)
    return Load(
        arrival_s=at_s[kept],
        input_tokens=turns.inputs[kept],
        output_tokens=turns.outputs[kept],
        hit_tokens=turns.hits[kept],
        session=session.astype(np.int64),
        previous=previous,
        think_s=np.where(previous >= 0, turns.think_s[kept], 0.0),
    )
