"""Sequence numbers: 186 bits, 56 decimal digits, in the layout that Kinesis has used since 2013.

```
bits 184–185  version, always 2
bits 148–183  second in which the shard was created
bits  80–143  position of the record in the shard
bits  36–71   second in which the record was stored
bits   4–35   index of the shard in the stream
bits   0–3    version again
```
The creation second is in the highest bits, so a child's numbers exceed its parents' numbers if it was created in a later second, which
`streams` ensures. The position follows, so the numbers of one shard increase in storage order even if the clock is set back.
The validator of the Java KCL expects the shard index at bit 4.
"""

from __future__ import annotations

DIGITS = 56
_VERSION = 2
_VERSION_SHIFT = 184
_CREATED_SHIFT = 148
_POSITION_SHIFT = 80
_SECOND_SHIFT = 36
_SHARD_SHIFT = 4
_SHARD_BITS = 32
_LAST_POSITION = (1 << 63) - 1


class SequenceNumbers:
    """Sequence numbers of one shard, in increasing order. It has no lock, because the stream's lock guards it.

    `created_second` (epoch) fills the top bits and must be later than the parents'.
    """

    __slots__ = ("_position", "base", "created_second", "shard_index")

    def __init__(self, shard_index: int, created_second: int) -> None:
        self.shard_index: int = shard_index
        self.created_second: int = created_second
        self.base: int = (
            (_VERSION << _VERSION_SHIFT)
            | (created_second << _CREATED_SHIFT)
            | (shard_index << _SHARD_SHIFT)
            | _VERSION
        )
        self._position = 0

    @property
    def starting(self) -> int:
        """The shard's ``StartingSequenceNumber``, below any record's number."""
        return self.base | (self.created_second << _SECOND_SHIFT)

    def ending(self, second: int) -> int:
        """Return the ``EndingSequenceNumber`` of a shard closed at `second`, above any record's number."""
        return self.base | (_LAST_POSITION << _POSITION_SHIFT) | (second << _SECOND_SHIFT)

    def take(self, second: int) -> int:
        """Return the number of the next record, stored at epoch second `second`."""
        self._position += 1
        return self.base | (self._position << _POSITION_SHIFT) | (second << _SECOND_SHIFT)

    def owns(self, number: int) -> bool:
        """Return whether version, creation second and shard index of `number` match this shard."""
        return (
            number >> _VERSION_SHIFT == _VERSION
            and number & 0xF == _VERSION
            and number >> _CREATED_SHIFT == self.base >> _CREATED_SHIFT
            and shard_index_of(number) == self.shard_index
        )


def shard_index_of(number: int) -> int:
    """Return the shard index encoded in a sequence number."""
    return (number >> _SHARD_SHIFT) & ((1 << _SHARD_BITS) - 1)


def stored_second_of(number: int) -> int:
    """Return the epoch second in which the record with this sequence number was stored."""
    return (number >> _SECOND_SHIFT) & ((1 << 36) - 1)
