"""Leases on exported prompts: one handle, one reader, a deadline that a live reader pushes on.

The table is shared by two threads (the engine grants and reclaims, the KV server authorises reads), so it has a lock.
Time is an argument everywhere.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from pdd.engine.reference.sequence import Lease


class LeaseRefused(Exception):
    """A reader may not have what it asks for. The message goes to the reader."""


@dataclass(slots=True)
class _Entry:
    lease: Lease
    deadline_s: float
    reader: str = ""
    reading: bool = False
    ended: bool = False


@dataclass(frozen=True, slots=True)
class LeaseCounts:
    """Totals since the start, and how many leases are held now."""

    held: int
    granted: int
    read: int
    expired: int
    refused: int


class LeaseTable:
    """Leases by id. `lease_s` seconds pass from the last sign of the reader until a lease expires."""

    def __init__(self, lease_s: float) -> None:
        self.lease_s = lease_s
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._granted = self._read = self._expired = self._refused = 0

    def grant(self, lease: Lease, now_s: float) -> None:
        with self._lock:
            self._granted += 1
            self._entries[lease.lease_id] = _Entry(lease, now_s + self.lease_s)

    def begin_read(self, lease_id: str, reader: str, now_s: float) -> Lease:
        """Let `reader` (its own random name) read. It alone may come back after a broken connection.

        Raises LeaseRefused.
        """
        with self._lock:
            entry = self._live(lease_id, reader, now_s)
            entry.reader, entry.reading = reader, True
            entry.deadline_s = now_s + self.lease_s
            return entry.lease

    def extend(self, lease_id: str, reader: str, now_s: float) -> None:
        """A sign of life of a reader that reads or still queues. Raises LeaseRefused."""
        with self._lock:
            entry = self._live(lease_id, reader, now_s)
            entry.reader = reader
            entry.deadline_s = max(entry.deadline_s, now_s + self.lease_s)

    def break_read(self, lease_id: str, reader: str, now_s: float) -> None:
        """The reader's connection broke: it has a third of a lease to come back."""
        with self._lock:
            entry = self._entries.get(lease_id)
            if entry is not None and entry.reader == reader and not entry.ended:
                entry.reading = False
                entry.deadline_s = min(entry.deadline_s, now_s + self.lease_s / 3)

    def finish(self, lease_id: str, reader: str, now_s: float) -> None:
        """The reader has all it wanted: the blocks may go. Raises LeaseRefused."""
        with self._lock:
            entry = self._live(lease_id, reader, now_s)
            entry.ended = True
            self._read += 1

    def withdraw(self, lease_id: str) -> bool:
        """The handle never reached anybody: the blocks may go. False if there is no such lease, or it has a reader."""
        with self._lock:
            entry = self._entries.get(lease_id)
            if entry is None or entry.ended or entry.reader:
                return False
            entry.ended = True
            return True

    def take_ended(self, now_s: float) -> list[Lease]:
        """Remove and return the leases that were read or have expired.

        While a reader is reading, the KV server's own time-outs bound it (they end in `break_read`), not the deadline.
        """
        with self._lock:
            gone = [e for e in self._entries.values() if e.ended or (e.deadline_s <= now_s and not e.reading)]
            for entry in gone:
                del self._entries[entry.lease.lease_id]
                self._expired += not entry.ended
            return [entry.lease for entry in gone]

    def next_deadline_s(self) -> float | None:
        with self._lock:
            return min(
                (0.0 if e.ended else e.deadline_s for e in self._entries.values() if e.ended or not e.reading),
                default=None,
            )

    def counts(self) -> LeaseCounts:
        with self._lock:
            held = sum(not entry.ended for entry in self._entries.values())
            return LeaseCounts(held, self._granted, self._read, self._expired, self._refused)

    def _live(self, lease_id: str, reader: str, now_s: float) -> _Entry:
        entry = self._entries.get(lease_id)
        if entry is None or entry.ended or (entry.deadline_s <= now_s and not entry.reading):
            self._refused += 1
            raise LeaseRefused(f"handle {lease_id} is unknown, already read, or expired after {self.lease_s:g} s")
        if entry.reader and entry.reader != reader:
            self._refused += 1
            raise LeaseRefused(f"handle {lease_id} belongs to another reader; ask the prefill engine for one more")
        return entry
