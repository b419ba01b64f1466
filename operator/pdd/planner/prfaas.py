"""Prefill-as-a-service (arXiv 2604.15039): its throughput model, re-implemented to hold ours against its numbers.

Requests longer than a threshold t are prefilled in a remote cluster, the others beside decode:

    Theta_prfaas = min(N / T(l_long), B / S(l_long))    Theta_pdp = N_p / T'(l_short)    Theta_pdd = N_d x rate of one
    Lambda = min(Theta_prfaas / p, Theta_pdp / (1 - p), Theta_pdd)        p = P(L > t)

T and S interpolate the published tables, linearly between lengths; lengths follow a truncated lognormal law.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np


@dataclass(frozen=True, slots=True)
class TruncatedLognormal:
    """ln L is normal(mu, sigma), L between low and high (tokens)."""

    mu: float
    sigma: float
    low: float
    high: float

    def _cdf(self, tokens: float) -> float:
        return NormalDist(self.mu, self.sigma).cdf(math.log(tokens))

    def share_above(self, tokens: float) -> float:
        """P(L > tokens)."""
        below, above = self._cdf(self.low), self._cdf(self.high)
        return (above - self._cdf(min(max(tokens, self.low), self.high))) / (above - below)

    def mean_between(self, low: float, high: float) -> float:
        """E[L | low < L <= high], closed form."""
        low, high = max(low, self.low), min(high, self.high)
        normal = NormalDist()
        shifted = [normal.cdf((math.log(x) - self.mu) / self.sigma - self.sigma) for x in (low, high)]
        plain = self._cdf(high) - self._cdf(low)
        return math.exp(self.mu + self.sigma**2 / 2.0) * (shifted[1] - shifted[0]) / plain


@dataclass(frozen=True, slots=True)
class Table:
    """A measured curve over lengths in tokens; linear between its points and beyond its last two."""

    tokens: Sequence[float]
    values: Sequence[float]

    def at(self, tokens: float) -> float:
        """The value at a length."""
        if tokens > self.tokens[-1]:
            slope = (self.values[-1] - self.values[-2]) / (self.tokens[-1] - self.tokens[-2])
            return self.values[-1] + slope * (tokens - self.tokens[-1])
        return float(np.interp(tokens, self.tokens, self.values))


@dataclass(frozen=True, slots=True)
class Remote:
    """theta_per_s: long requests a second that the remote cluster can do; egress_bps: bits/s of KV that leave it."""

    long_share: float
    long_tokens: float
    short_tokens: float
    theta_per_s: float
    egress_bps: float


def predict_remote(
    lengths: TruncatedLognormal,
    threshold_tokens: float,
    instances: float,
    prefill_s: Table,
    payload_bytes: Table,
    line_bps: float,
) -> Remote:
    """The remote prefill cluster at its capacity."""
    long_tokens = lengths.mean_between(threshold_tokens, lengths.high)
    short_tokens = lengths.mean_between(lengths.low, threshold_tokens)
    payload_bits = payload_bytes.at(long_tokens) * 8.0
    theta = min(instances / prefill_s.at(long_tokens), line_bps / payload_bits)
    share = lengths.share_above(threshold_tokens)
    return Remote(share, long_tokens, short_tokens, theta, theta * payload_bits)


def compute_capacity(theta_remote: float, long_share: float, theta_local: float, theta_decode: float) -> float:
    """Lambda_max of the three: requests a second."""
    return min(theta_remote / long_share, theta_local / (1.0 - long_share), theta_decode)
