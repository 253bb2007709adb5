"""Estimate of the number of records that arrive in a shard within a time.

The estimate affects costs only: the size of reads, and the shards of a task.
"""

from __future__ import annotations

from collections.abc import Sequence

_LEAST_GAP = 500.0
"""Milliseconds; arrivals during a shorter time do not show the rate. A burst would be mistaken for the rate of the stream, and an estimate
that is too high lets a task read up to 10 MB too much. An estimate that is too low costs one or two additional reads.
"""

_UNKNOWN = 1_000
"""Expected records if no rate is known."""


class ArrivalRate:
    """Rate of a shard's arrivals, in records per millisecond.

    Attributes:
        at_tip: Rate since the last time at which no record followed the position; 0 if unknown.
    """

    def __init__(self) -> None:
        self.at_tip: float = 0.0
        self._at_cut = 0.0

    def note_arrived(self, records: int, gap: float) -> None:
        """Note the number of records that arrived in the last ``gap`` milliseconds; the gap is 0 if it is unknown."""
        if gap:
            self.at_tip = records / max(gap, _LEAST_GAP)

    def note_at_cut(self, arrivals: Sequence[int], cut: int) -> None:
        """Note the arrival times of the records after a cut, in epoch milliseconds."""
        # Measure from the cut, not from the first record, which may begin a burst after a silence.
        if len(arrivals) > 1:
            self._at_cut = (len(arrivals) - 1) / max(arrivals[-1] - cut, _LEAST_GAP)

    def expected(self, millis: int) -> int:
        """Return the number of records to expect in this many milliseconds."""
        rate = self.at_tip or self._at_cut
        return max(1, round(rate * millis)) if rate else _UNKNOWN
