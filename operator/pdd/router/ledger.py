"""The ledger (D7): every output token of a request by position, with who made it. What the client gets comes from here.

Several engines may offer the same positions (RLD and MD overlap at the handoff, a replacement starts from a prefix).
The first offer of a position counts; later ones must be equal and are dropped. So no token is lost or doubled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Producer(StrEnum):
    """Who made a token."""

    P = "P"
    RLD = "RLD"
    MD = "MD"


@dataclass(frozen=True, slots=True)
class Offer:
    """What became of an offer.

    fresh: ids that extended the ledger. diverged_at: the first position whose id differs from the ledger's; None if
    none does. After a divergence nothing of the offer is taken: what the client has seen stands.
    """

    fresh: tuple[int, ...]
    diverged_at: int | None = None


class Gap(Exception):
    """An offer begins past the ledger's end: tokens between would be lost. A bug of the caller."""


class Ledger:
    """Token ids by position (0 is the first output token) and runs of producers."""

    __slots__ = ("ids", "runs")

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.runs: list[tuple[Producer, int]] = []

    def __len__(self) -> int:
        return len(self.ids)

    def offer(self, producer: Producer, position: int, ids: Sequence[int]) -> Offer:
        """`producer` made `ids` for the positions from `position` on. Raises Gap if `position` > len(self)."""
        known = len(self.ids)
        if position == known:
            fresh = tuple(ids)
        elif position > known:
            raise Gap(f"{producer.value} offers position {position}, the ledger ends at {known}")
        else:
            overlap = min(known - position, len(ids))
            for k in range(overlap):
                if self.ids[position + k] != ids[k]:
                    return Offer((), position + k)
            fresh = tuple(ids[overlap:])
        if fresh:
            self.ids.extend(fresh)
            if self.runs and self.runs[-1][0] is producer:
                self.runs[-1] = (producer, self.runs[-1][1] + len(fresh))
            else:
                self.runs.append((producer, len(fresh)))
        return Offer(fresh)

    def truncate(self, length: int) -> None:
        """Forget every token from position `length` on (a stop string ended the output before them)."""
        surplus = len(self.ids) - length
        del self.ids[length:]
        while surplus > 0:
            producer, count = self.runs.pop()
            if count > surplus:
                self.runs.append((producer, count - surplus))
            surplus -= count

    def counts(self) -> dict[str, int]:
        """Tokens by producer; every producer is a key."""
        totals = {producer.value: 0 for producer in Producer}
        for producer, count in self.runs:
            totals[producer.value] += count
        return totals
