"""Estimate of how many records arrive in a shard within a time. It affects costs only: the size of reads, and the shards of a task."""

from __future__ import annotations

from collections.abc import Sequence

_LEAST_GAP = 500.0
"""Milliseconds; the arrivals of a shorter time say little about the rate. A burst would be taken for the rate of the stream, and a guess
that is too high
lets a task read up to 10 MB too much. If the estimate is too low, it costs one or two more reads.
"""

_UNKNOWN = 1_000
"""Expected records if no rate is known."""


class ArrivalRate:
    """Rate of a shard's arrivals, in records per millisecond.

    Attributes:
        at_tip: Rate since the last moment at which nothing followed the position; 0 if it is not known.
    """

    def __init__(self) -> None:
        self.at_tip: float = 0.0
        self._at_cut = 0.0

    def note_arrived(self, records: int, gap: float) -> None:
        """Note how many records arrived in the last ``gap`` milliseconds; 0 if the gap is not known."""
        if gap:
            self.at_tip = records / max(gap, _LEAST_GAP)

    def note_at_cut(self, arrivals: Sequence[int], cut: int) -> None:
        """Note the arrival times of the records behind a cut, in epoch milliseconds."""
        # From the cut, not from the first record, which may begin a burst after a silence.
        if len(arrivals) > 1:
            self._at_cut = (len(arrivals) - 1) / max(arrivals[-1] - cut, _LEAST_GAP)

    def expected(self, millis: int) -> int:
        """Return the number of records to expect in this many milliseconds."""
        rate = self.at_tip or self._at_cut
        return max(1, round(rate * millis)) if rate else _UNKNOWN
