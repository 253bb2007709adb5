"""Copies of runs that overlap, by the numbers of their records.

An honest producer hardly ever writes overlapping runs. An attacker may write runs of any form, so no bound depends on their form:

- Runs are kept as disjoint pieces in order, each with its copies. A query yields disjoint parts, at most one for each number.
- A copy of a piece that arrived no later than an earlier copy is left out, because every query that finds the copy also finds the
  earlier copy. So arrivals rise with places, and one bisection finds the result.
- Pieces are in blocks of `_BLOCK` numbers, so that an insertion moves fewer entries than a block has.
- Each pair of a piece and a copy represents at least one stored user record, even after a piece was divided. So memory grows with the
  bytes of the stream, and time with these bytes times the logarithm of a bisection.

A place is a position as a number: a record that is stored later has a higher place.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

Copy = tuple[int, int]
"""Place of a copy, and its arrival in milliseconds since 1970."""

Part = tuple[int, int]
"""First and last number of user records of a run."""

NO_ARRIVAL = 1 << 62
"""Arrival of a copy for which Kinesis reports none: later than every other arrival, so that the copy counts."""

_BLOCK_BITS = 12
_BLOCK = 1 << _BLOCK_BITS

_BLOCK_BYTES = 380
"""Bytes of a block: its lists, and its share of the dict."""

_PIECE_BYTES = 160
"""Bytes of a piece: two numbers, the list of its copies, and three entries of lists."""

_COPY_BYTES = 125
"""Bytes of a copy: a tuple and two numbers."""

_ENTRY_BYTES = 9
"""Bytes of a copy in the list of a piece."""


def add_copy(copies: list[Copy], copy: Copy) -> bool:
    """Add a copy after all other copies, unless these cover it; return whether the number of copies grew.

    Of two copies at the same place, only the later arrival is kept.
    """
    if copies:
        place, arrival = copies[-1]
        if copy[1] <= arrival:
            return False
        if copy[0] == place:
            copies[-1] = copy
            return False
    copies.append(copy)
    return True


def has_copy(copies: list[Copy], limit: int, since: float) -> bool:
    """Return whether a copy before ``limit`` arrived at ``since`` or later."""
    index = bisect_left(copies, limit, key=_place_of) - 1
    return index >= 0 and copies[index][1] >= since


def _place_of(copy: Copy) -> int:
    return copy[0]


class Pieces:
    """Copies of runs that share a key."""

    __slots__ = ("_blocks",)

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}

    def add(self, first: int, last: int, copy: Copy) -> int:
        """Add a copy of a run's numbers after all other copies; return the bytes that it takes."""
        size = 0
        for number in range(first >> _BLOCK_BITS, (last >> _BLOCK_BITS) + 1):
            block = self._blocks.get(number)
            if block is None:
                block = self._blocks[number] = _Block()
                size += _BLOCK_BYTES
            begin = number << _BLOCK_BITS
            size += block.add(max(first, begin), min(last, begin + _BLOCK - 1), copy)
        return size + _COPY_BYTES if size else 0

    def parts(self, wanted: Part, limit: int, since: float) -> Iterator[Part]:
        """Yield the parts of a run with a copy that lies before ``limit`` and arrived at ``since`` or later; disjoint, in order."""
        first, last = wanted
        for number in range(first >> _BLOCK_BITS, (last >> _BLOCK_BITS) + 1):
            block = self._blocks.get(number)
            if block is not None:
                yield from block.parts(wanted, limit, since)


class _Block:
    """Pieces of neighboring numbers, in order: their first numbers, last numbers and copies."""

    __slots__ = ("copies", "lasts", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.lasts: list[int] = []
        self.copies: list[list[Copy]] = []

    def add(self, first: int, last: int, copy: Copy) -> int:
        """Add a copy after all other copies; return the bytes that its pieces take."""
        size = self._divide(first) + self._divide(last + 1)
        low, high = bisect_left(self.starts, first), bisect_right(self.starts, last)
        if low == high:
            self._insert(low, first, last, [copy])
            return size + _PIECE_BYTES
        starts: list[int] = []
        lasts: list[int] = []
        copies: list[list[Copy]] = []
        begin = first
        for index in range(low, high + 1):
            end = self.starts[index] if index < high else last + 1
            if begin < end:  # no copy has these numbers yet
                starts.append(begin)
                lasts.append(end - 1)
                copies.append([copy])
                size += _PIECE_BYTES
            if index < high:
                known = self.copies[index]
                if add_copy(known, copy):
                    size += _ENTRY_BYTES
                starts.append(end)
                lasts.append(self.lasts[index])
                copies.append(known)
                begin = self.lasts[index] + 1
        self.starts[low:high], self.lasts[low:high], self.copies[low:high] = starts, lasts, copies
        return size

    def _divide(self, number: int) -> int:
        """Divide the piece that contains a number, right before that number; return the additional bytes."""
        index = bisect_left(self.lasts, number)
        if index == len(self.starts) or self.starts[index] >= number:
            return 0
        copies = [*self.copies[index]]
        self._insert(index, self.starts[index], number - 1, copies)
        self.starts[index + 1] = number
        return _PIECE_BYTES + _ENTRY_BYTES * len(copies)

    def _insert(self, index: int, first: int, last: int, copies: list[Copy]) -> None:
        self.starts.insert(index, first)
        self.lasts.insert(index, last)
        self.copies.insert(index, copies)

    def parts(self, wanted: Part, limit: int, since: float) -> Iterator[Part]:
        first, last = wanted
        for index in range(bisect_left(self.lasts, first), bisect_right(self.starts, last)):
            if has_copy(self.copies[index], limit, since):
                yield max(self.starts[index], first), min(self.lasts[index], last)
