"""`GapMap`: the acknowledged records of a shard, and the state with which they are passed to the next owner."""

from __future__ import annotations

import json
import zlib
from typing import Any

from kinesis_sdk.common.sequence import ExtendedSequenceNumber, is_sequence_number

MAX_UNACKNOWLEDGED = 2_000
"""Maximum unacknowledged records of a shard: this many positions, compressed, fit into the row of a lease with room to
spare."""

_VERSION = 1
_MAX_STATE = 512 * 1024
"""Maximum bytes of a decompressed state: 2,000 positions have 160 KB."""
_MAX_SUB_DIGITS = 12


class GapMap:
    """Acknowledgements of one shard. Not thread-safe.

    Records are received in the order of the shard, and again after a failed call or a restart of the shard. All records up to
    the *watermark* are acknowledged. The records beyond it that are not acknowledged are the gaps.

    Args:
        most: Maximum unacknowledged records.

    Attributes:
        changed: Whether a record was acknowledged or received since `stored`.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        # Unacknowledged records in the order of the shard, each with the position that was received just before it: None for the first
        # record under this lease.
        self._open: dict[ExtendedSequenceNumber, ExtendedSequenceNumber | None] = {}
        # Unacknowledged records on which the function failed; it holds all other unacknowledged records.
        self._failed: set[ExtendedSequenceNumber] = set()
        self._last: ExtendedSequenceNumber | None = None
        # From an earlier owner: up to `_end`, only the records of `_left` are not acknowledged.
        self._end: ExtendedSequenceNumber | None = None
        self._left: set[ExtendedSequenceNumber] = set()
        self.changed: bool = False

    @property
    def unacknowledged(self) -> int:
        """Number of received records that are not acknowledged."""
        return len(self._open)

    @property
    def oldest(self) -> ExtendedSequenceNumber | None:
        """Position of the oldest unacknowledged record; None if there is none."""
        return next(iter(self._open), None)

    def has_room(self, position: ExtendedSequenceNumber) -> bool:
        """Return whether a record may be received; at the limit, only records that were received before may be."""
        return len(self._open) < self._most or (self._last is not None and position <= self._last)

    @property
    def is_complete(self) -> bool:
        """Whether no record after the watermark is acknowledged, so that no state is needed."""
        is_past = self._end is None or (self._last is not None and self._last >= self._end)
        return not self._open and not self._left and is_past

    @property
    def watermark(self) -> ExtendedSequenceNumber | None:
        """Position up to which all received records are acknowledged; None if that is the checkpoint of the lease."""
        if not self._open:
            return self._last
        return next(iter(self._open.values()))

    def receive(self, position: ExtendedSequenceNumber) -> bool:
        """Note a record, and return whether to pass it to the function: False if it is acknowledged, or the function still holds it."""
        if self._last is not None and position <= self._last:
            is_wanted = position in self._failed
            self._failed.discard(position)
            return is_wanted
        before, self._last = self._last, position
        self.changed = True
        if self._end is not None and position <= self._end and position not in self._left:
            return False
        self._left.discard(position)
        self._open[position] = before
        return True

    def give_back(self, position: ExtendedSequenceNumber) -> None:
        """Note that the function failed on a record, which is then received again."""
        if position in self._open:
            self._failed.add(position)

    def pass_over(self, position: ExtendedSequenceNumber, *, itself: bool) -> None:
        """Note that the worker has finished all records before a position and, with ``itself``, the record at the position.

        Records on which the function failed, or that it never got, were set aside: they are not delivered again.
        """

        def is_passed(one: ExtendedSequenceNumber) -> bool:
            return one < position or (itself and one == position)

        for one in filter(is_passed, tuple(self._failed)):
            self.acknowledge(one)
        passed = set(filter(is_passed, self._left))
        if passed:
            self._left -= passed
            self.changed = True

    def acknowledge(self, position: ExtendedSequenceNumber) -> None:
        """Note that the work for a record is done. A second call has no effect."""
        if position in self._open:
            del self._open[position]
            self._failed.discard(position)
            self.changed = True

    def to_state(self, base: ExtendedSequenceNumber) -> bytes:
        """Return the state for the next owner, whose checkpoint is ``base``."""
        end = (
            self._last
            if self._end is None or (self._last is not None and self._last > self._end)
            else self._end
        )
        left = sorted([*self._open, *self._left])
        item = {"v": _VERSION, "base": str(base), "end": str(end), "left": [str(one) for one in left]}
        return zlib.compress(json.dumps(item, separators=(",", ":")).encode("ascii"))

    def restore(self, state: bytes, base: ExtendedSequenceNumber) -> bool:
        """Continue with the state of an earlier owner.

        Args:
            state: A result of `to_state`.
            base: Checkpoint of the lease.

        Returns:
            Whether the state belongs to this checkpoint. If it does not, for example because an operator changed the position, records are
            delivered again.

        Raises:
            ValueError: If `to_state` cannot have returned ``state``.
        """
        item = _opened(state)
        if item["base"] != str(base):
            return False
        left = item["left"]
        if not isinstance(left, list) or len(left) > MAX_UNACKNOWLEDGED:
            raise ValueError("left: not a list of positions")
        self._end, self._left = _position(item["end"]), set(map(_position, left))
        return True


def _opened(state: bytes) -> dict[str, Any]:
    opener = zlib.decompressobj()
    try:
        text = opener.decompress(state, _MAX_STATE)
        if not opener.eof:
            raise ValueError("too long, or cut off")
        item = json.loads(text)
    except (zlib.error, RecursionError) as error:
        raise ValueError("not compressed JSON") from error
    if not isinstance(item, dict) or item.get("v") != _VERSION or not {"base", "end", "left"} <= item.keys():
        raise ValueError("not a state of this release")
    return item


def _position(text: object) -> ExtendedSequenceNumber:
    if not isinstance(text, str):
        raise ValueError("not a position")  # noqa: TRY004 - as for its other parts
    sequence, _, sub = text[:200].partition("/")
    if not (is_sequence_number(sequence) and sub.isascii() and sub.isdigit() and len(sub) <= _MAX_SUB_DIGITS):
        raise ValueError("not a position")
    return ExtendedSequenceNumber(sequence, int(sub))
