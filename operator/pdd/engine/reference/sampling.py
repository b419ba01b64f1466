"""Choosing a token: greedy, or drawn with a generator keyed by (seed, absolute position).

The generator has no state, so a request that moves to another engine in mid-stream draws the same numbers there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pdd.engine.reference.numerics import Floats

_MASK = (1 << 64) - 1
_WEIGHT_ONE = 2.0**40
"""Weights are integers of this scale: their sums are exact, and a last-bit difference of `exp` is rounded away."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """temperature 0 is greedy. top_k 0 or -1 and top_p 1 leave all tokens in."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0


GREEDY = Sampling()


def _mix(value: int) -> int:
    """One round of splitmix64's finaliser: a bijection of 64-bit integers that scatters neighbours."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def draw(seed: int, position: int) -> int:
    """64 bits that depend on (seed, position) alone."""
    return _mix(_mix(seed & _MASK) ^ _mix(position ^ 0x5851F42D4C957F2D))


def choose(logits: Floats, sampling: Sampling, position: int) -> int:
    """Token id for `position` (the absolute position that the new token takes). Ties go to the lowest id."""
    if sampling.temperature <= 0.0:
        return int(logits.argmax())
    below = logits.astype(np.float64)
    below -= below.max()  # before the division: the best stays 0 however small the temperature is
    with np.errstate(over="ignore"):
        below /= sampling.temperature
    weights = np.rint(np.exp(below) * _WEIGHT_ONE)
    order = np.argsort(-weights, kind="stable")
    if sampling.top_k > 0:
        order = order[: sampling.top_k]
    cumulative = np.cumsum(weights[order])
    if sampling.top_p < 1.0:
        keep = int(np.searchsorted(cumulative, sampling.top_p * cumulative[-1], side="left")) + 1
        order, cumulative = order[:keep], cumulative[:keep]
    threshold = (draw(sampling.seed, position) * int(cumulative[-1])) >> 64
    return int(order[int(np.searchsorted(cumulative, threshold, side="right"))])
