"""Exact LRU over prompts, for all cache sizes at once: how much lies above each reused piece in the recency order.

A request touches its whole prompt, the end first, so that a prefix is never older than what follows it and eviction
takes the ends of prompts first, as radix caches do. In the order of recency every request then owns one stretch: what
of its prompt nobody has touched since. A later prompt reuses *runs*, parts of such stretches; a run whose owner has D
tokens above it in the order is there in a cache of C tokens up to C - D (stack distances, Mattson et al. 1970).
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np

from pdd.planner.load import Load, Tokens


@dataclass(frozen=True, slots=True)
class Reuse:
    """Runs of reused units (blocks or tokens). request: who reuses. above: units more recent than the run's first.

    given: units by request that count as a hit in any cache that holds the prompt (n entries). unit_tokens: tokens of a
    unit. distinct: all units that were ever touched.
    """

    load: Load
    request: Tokens
    above: Tokens
    length: Tokens
    given: Tokens
    unit_tokens: int
    distinct: int

    def hit_tokens(self, cache_tokens: float) -> Tokens:
        """By request, what a cache of that many tokens holds on arrival."""
        size = cache_tokens // self.unit_tokens
        held = np.clip(size - self.above, 0, self.length)
        units = np.bincount(self.request, weights=held, minlength=len(self.load)).astype(np.int64)
        inputs = self.load.input_tokens
        units += np.where(inputs <= cache_tokens, self.given, 0)
        return np.minimum(units * self.unit_tokens, inputs)


class Stretches:
    """What each request still owns, in the order of recency: a Fenwick tree over requests."""

    def __init__(self, requests: int) -> None:
        self._tree = [0] * (requests + 1)
        self._owned = [0] * requests
        self._total = 0

    @property
    def total(self) -> int:
        """Units that somebody owns: all that were ever touched, each once."""
        return self._total

    def change(self, request: int, units: int) -> None:
        """The request owns so many units more (or fewer, down to none)."""
        units = max(units, -self._owned[request])
        self._owned[request] += units
        self._total += units
        tree, i, end = self._tree, request + 1, len(self._tree)
        while i < end:
            tree[i] += units
            i += i & -i

    def above(self, request: int) -> int:
        """Units of all requests after this one."""
        tree, i, below = self._tree, request + 1, 0
        while i:
            below += tree[i]
            i &= i - 1
        return self._total - below


class Runs:
    """Collects the runs of a load, request after request."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._stretches = Stretches(len(load))
        self._request, self._above, self._length = array("q"), array("q"), array("q")
        self._given = np.zeros(len(load), np.int64)

    def touch(self, request: int, runs: list[tuple[int, int]], units: int) -> None:
        """The request has `units` and reuses runs (owner, length), from the prompt's begin on."""
        stretches = self._stretches
        for owner, length in runs:
            self._request.append(request)
            self._above.append(stretches.above(owner))
            self._length.append(length)
        for owner, length in runs:
            stretches.change(owner, -length)
        stretches.change(request, units)

    def give(self, request: int, units: int) -> None:
        """Units that are a hit for a reason outside the load."""
        self._given[request] = units

    def finish(self, unit_tokens: int) -> Reuse:
        """All runs as columns."""
        return Reuse(
            load=self._load,
            request=np.array(self._request, np.int64),
            above=np.array(self._above, np.int64),
            length=np.array(self._length, np.int64),
            given=self._given,
            unit_tokens=unit_tokens,
            distinct=self._stretches.total,
        )
