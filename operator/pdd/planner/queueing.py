"""Queues in closed form: Erlang, Allen-Cunneen, M/G/1 and M/D/1. Times in seconds, rates per second.

Sources: Erlang 1917; Pollaczek-Khinchine; Allen-Cunneen's approximation of G/G/c,
Wq = ErlangC(c, a) / (c mu - lambda) x (C_a^2 + C_s^2) / 2, exact for M/M/c and M/G/1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

MAX_SERVERS = 200_000


@dataclass(frozen=True, slots=True)
class Service:
    """Moments of a service time: mean in s, scv = variance / mean^2, third: E[S^3] in s^3."""

    mean_s: float
    scv: float
    third: float

    @property
    def residual_s(self) -> float:
        """Mean of what is left of a service found under way (inspection paradox): E[S^2] / (2 E[S])."""
        return self.mean_s * (1.0 + self.scv) / 2.0

    @property
    def residual_scv(self) -> float:
        """Squared coefficient of variation of that rest: its second moment is E[S^3] / (3 E[S])."""
        if self.mean_s <= 0:
            return 1.0
        return max(0.0, self.third / (3.0 * self.mean_s) / self.residual_s**2 - 1.0)


@dataclass(frozen=True, slots=True)
class Wait:
    """Waiting time W: P(W > 0) = probability; given that, mean_s and scv. Not stable: probability 1, mean infinite."""

    probability: float
    mean_s: float
    scv: float

    @property
    def overall_s(self) -> float:
        """E[W] over all customers."""
        return self.probability * self.mean_s if self.probability > 0 else 0.0


NO_WAIT = Wait(0.0, 0.0, 1.0)


def summarize_service(times_s: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Service:
    """The moments of a sample of service times, equal weights."""
    mean = float(times_s.mean())
    second = float((times_s * times_s).mean())
    scv = second / mean**2 - 1.0 if mean > 0 else 0.0
    return Service(mean, max(scv, 0.0), float((times_s**3).mean()))


def erlang_b(servers: int, offered: float) -> float:
    """Share of customers that find all `servers` busy and leave; offered = lambda E[S] (Erlang)."""
    if offered <= 0:
        return 0.0
    if servers <= 0:
        return 1.0
    if servers > MAX_SERVERS:
        raise ValueError(f"servers {servers}: at most {MAX_SERVERS}")
    # 1/B = sum over j of c (c-1) .. (c-j+1) / a^j: terms grow while c - j > a, so it may overflow to "never blocked".
    with np.errstate(over="ignore"):
        terms = np.cumprod((servers - np.arange(servers)) / offered)
        inverse = 1.0 + float(terms.sum())
    return 1.0 / inverse


def erlang_c(servers: int, offered: float) -> float:
    """P(wait > 0) in M/M/c; 1 when it is not stable."""
    if offered <= 0:
        return 0.0
    if offered >= servers:
        return 1.0
    blocked = erlang_b(servers, offered)
    load = offered / servers
    return blocked / (1.0 - load * (1.0 - blocked))


def compute_wait(rate_per_s: float, service: Service, servers: int, arrival_scv: float = 1.0) -> Wait:
    """Waiting time in G/G/c. Mean: Allen-Cunneen.

    The second moment: in M/G/1 a delayed customer waits a geometric number of residual services, so the squared
    coefficient of variation given delay is rho + (1 - rho) C_R^2, exactly. With c servers one long service holds up
    only 1/c of the capacity: rho + (1 - rho) (1 + (C_R^2 - 1) / c), exact for M/M/c too. Bursts keep the shape.
    """
    offered = rate_per_s * service.mean_s
    if offered <= 0:
        return NO_WAIT
    if servers <= 0 or offered >= servers:
        return Wait(1.0, math.inf, 1.0)
    load = offered / servers
    mean_s = (arrival_scv + service.scv) / 2.0 * service.mean_s / (servers - offered)
    scv = load + (1.0 - load) * (1.0 + (service.residual_scv - 1.0) / servers)
    return Wait(erlang_c(servers, offered), mean_s, scv)


def wait_md1_s(rate_per_s: float, service_s: float) -> float:
    """Mean wait in M/D/1, the DistServe prefill model: R D^2 / (2 (1 - R D))."""
    load = rate_per_s * service_s
    return math.inf if load >= 1 else rate_per_s * service_s**2 / (2.0 * (1.0 - load))
