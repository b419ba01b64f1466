"""Which whole numbers have been seen, when they come nearly in order: a floor, and the few ranges above it."""

from __future__ import annotations

from bisect import bisect_right


class SeenNumbers:
    """Numbers from `first` on. Memory grows with the number of holes, not with the number of elements.

    Streams deliver nearly in order, so the holes are about as many as the streams.
    """

    __slots__ = ("_ends", "_starts", "floor")

    def __init__(self, first: int = 1) -> None:
        self.floor = first
        """Every number below it has been seen."""
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __contains__(self, number: int) -> bool:
        if number < self.floor:
            return True
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and number < self._ends[at]

    def add(self, number: int) -> bool:
        """Note `number`; False if it had been seen before."""
        if number == self.floor and not self._starts:  # the usual case: in order, no holes
            self.floor += 1
            return True
        if number in self:
            return False
        if number == self.floor:
            self.floor += 1
            if self._starts[0] == self.floor:
                self.floor = self._ends[0]
                del self._starts[0], self._ends[0]
            return True
        at = bisect_right(self._starts, number)
        joins_left = at > 0 and self._ends[at - 1] == number
        joins_right = at < len(self._starts) and self._starts[at] == number + 1
        if joins_left and joins_right:
            self._ends[at - 1] = self._ends[at]
            del self._starts[at], self._ends[at]
        elif joins_left:
            self._ends[at - 1] = number + 1
        elif joins_right:
            self._starts[at] = number
        else:
            self._starts.insert(at, number)
            self._ends.insert(at, number + 1)
        return True

    def ranges(self, limit: int) -> list[tuple[int, int]]:
        """The lowest `limit` ranges above the floor, as half-open (first, end)."""
        return list(zip(self._starts[:limit], self._ends[:limit], strict=True))
