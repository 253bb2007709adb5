"""Positions in a shard: sequence numbers extended by a sub-sequence number, and the KCL's sentinels.

The order is the KCL's (`ExtendedSequenceNumber.compareTo`):
AT_TIMESTAMP < TRIM_HORIZON < LATEST < numbers < SHARD_END, then the sub-sequence number.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import total_ordering
from operator import lt

TRIM_HORIZON = "TRIM_HORIZON"
"""Sentinel: the oldest record that the shard still has."""
LATEST = "LATEST"
"""Sentinel: after the newest record, at the time of the first read."""
AT_TIMESTAMP = "AT_TIMESTAMP"
"""Sentinel: a time, which is stored beside the sentinel."""
SHARD_END = "SHARD_END"
"""Sentinel: the end of a shard, after its last record."""

_RANKS = {AT_TIMESTAMP: 0, TRIM_HORIZON: 1, LATEST: 2, SHARD_END: 4}
_NUMBER_RANK = 3
_MAX_DIGITS = 129
"""Maximum digits of a sequence number (pattern of ``SequenceNumber`` in the API reference)."""


def check_sequence_numbers(numbers: Sequence[object]) -> None:
    """Check that all of a response's sequence numbers are decimal text of 1 to 129 digits.

    A sentinel is rejected as well: a record at ``SHARD_END`` would end its shard with the next checkpoint.

    Raises:
        ValueError: If a sequence number has another form. The message names the first invalid number.
    """
    try:
        # One pass in C, because every record that is read pays for it. `bytes.isdigit` accepts only ASCII digits.
        good = "".join(numbers).encode().isdigit()  # type: ignore[arg-type]  # a TypeError is caught below
        lengths = set(map(len, numbers))  # type: ignore[arg-type]
        good = good and 0 not in lengths and max(lengths) <= _MAX_DIGITS
    except (TypeError, UnicodeEncodeError):
        good = False
    if numbers and not good:
        bad = next(number for number in numbers if not is_sequence_number(number))
        raise ValueError(f"SequenceNumber {str(bad)[:80]!r} is not decimal text of 1 to {_MAX_DIGITS} digits")


def is_sequence_number(number: object) -> bool:
    """Return whether a value from a response is a sequence number: decimal text of 1 to 129 digits."""
    return (
        isinstance(number, str)
        and number.isascii()
        and number.isdigit()  # false for empty text
        and len(number) <= _MAX_DIGITS
    )


def rise(numbers: Sequence[str]) -> bool:
    """Return whether each sequence number is greater than the one before it; the numbers are decimal text."""
    # In C, because every record that Spark reads pays for it. Text of the same length compares like the numbers, at a third of the cost.
    if len(set(map(len, numbers))) > 1:
        values = list(map(int, numbers))
        return all(map(lt, values, values[1:]))
    return all(map(lt, numbers, numbers[1:]))


@total_ordering
class ExtendedSequenceNumber:
    """A checkpoint: a sequence number (or sentinel) and a sub-sequence number inside an aggregate.

    Immutable and hashable, with the order of the KCL.

    Args:
        sequence_number: Decimal sequence number, or ``TRIM_HORIZON``, ``LATEST``, ``AT_TIMESTAMP``,
            ``SHARD_END``.
        sub_sequence_number: Position inside an aggregated record, from 0; 0 for a record that was not aggregated and for sentinels. A
            negative number is the position before all user records of the Kinesis record: reading begins exactly at that record. Only
            operators write negative numbers; the Java KCL reads them in the same way.

    Raises:
        TypeError: If the sequence number is not text.
        ValueError: If the sequence number is neither decimal (1 to 129 digits) nor a sentinel, or if the sub-sequence
            number is not an int.
    """

    __slots__ = ("_key", "sequence_number", "sub_sequence_number")

    sequence_number: str
    sub_sequence_number: int
    _key: tuple[int, int, int]

    def __init__(self, sequence_number: str, sub_sequence_number: int = 0) -> None:
        if not isinstance(sequence_number, str):
            raise TypeError(f"a sequence number is decimal text, not {type(sequence_number).__name__}")
        rank = _RANKS.get(sequence_number, _NUMBER_RANK)
        if rank == _NUMBER_RANK and not is_sequence_number(sequence_number):
            raise ValueError(f"not a sequence number or sentinel: {sequence_number[:80]!r}")
        if not isinstance(sub_sequence_number, int):
            raise ValueError(f"sub-sequence number must be an int, not {sub_sequence_number!r}")  # noqa: TRY004 - as documented
        number = int(sequence_number) if rank == _NUMBER_RANK else 0
        object.__setattr__(self, "sequence_number", sequence_number)
        object.__setattr__(self, "sub_sequence_number", sub_sequence_number)
        object.__setattr__(self, "_key", (rank, number, sub_sequence_number))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __reduce__(self) -> tuple[type[ExtendedSequenceNumber], tuple[str, int]]:
        return (type(self), (self.sequence_number, self.sub_sequence_number))

    @property
    def is_sentinel(self) -> bool:
        """Whether this is a named position rather than a number."""
        return self._key[0] != _NUMBER_RANK

    @property
    def is_shard_end(self) -> bool:
        """Whether the shard was processed to its end."""
        return self.sequence_number == SHARD_END

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ExtendedSequenceNumber):
            return NotImplemented
        return self._key == other._key

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, ExtendedSequenceNumber):
            return NotImplemented
        return self._key < other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"ExtendedSequenceNumber({self.sequence_number!r}, {self.sub_sequence_number})"

    def __str__(self) -> str:
        return f"{self.sequence_number}/{self.sub_sequence_number}"
