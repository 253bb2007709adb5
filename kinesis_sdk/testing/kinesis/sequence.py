"""Sequence numbers: 186-bit numbers, 56 decimal digits, in the layout the service has used since 2013.

```
bits 184–185  version, always 2
bits 148–183  second in which the shard was created
bits  80–143  position of the record in the shard
bits  36–71   second in which the record was stored
bits   4–35   index of the shard in the stream
bits   0–3    version again
```
The creation second is on top, so every number of a child is larger than every number of its parents as long as
a child is created in a later second; `streams` sees to that. The position comes next, so numbers of one shard
rise in storage order even when the clock is set back. The shard index is at bit 4, where the Java KCL's
validator looks for it.
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
    """The numbers of one shard, handed out in rising order.

    Not locked: the stream's lock guards it.

    Args:
        shard_index: The number in the shard id.
        created_second: Epoch second in the top bits; later than the parents' one.
    """

    __slots__ = ("_position", "base", "created_second", "shard_index")

    def __init__(self, shard_index: int, created_second: int) -> None:
        self.shard_index = shard_index
        self.created_second = created_second
        self.base = (
            (_VERSION << _VERSION_SHIFT)
            | (created_second << _CREATED_SHIFT)
            | (shard_index << _SHARD_SHIFT)
            | _VERSION
        )
        self._position = 0

    @property
    def starting(self) -> int:
        """The shard's ``StartingSequenceNumber``: smaller than any record's number."""
        return self.base | (self.created_second << _SECOND_SHIFT)

    def ending(self, second: int) -> int:
        """Return the shard's ``EndingSequenceNumber`` when it is closed at `second`: larger than any record's number."""
        return self.base | (_LAST_POSITION << _POSITION_SHIFT) | (second << _SECOND_SHIFT)

    def take(self, second: int) -> int:
        """Return the number of the next record, stored at epoch second `second`."""
        self._position += 1
        return self.base | (self._position << _POSITION_SHIFT) | (second << _SECOND_SHIFT)

    def owns(self, number: int) -> bool:
        """Return whether `number` can have come from this shard: version, creation second and shard index match."""
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
