"""The runs of one aggregate's user records, while the aggregate is filled and in each attempt to send it."""

from __future__ import annotations

from kinesis_sdk.common.headers import tag_field, varint, varint_size
from kinesis_sdk.common.once.identity import Identity, Stamp
from kinesis_sdk.common.once.table import MAX_RUNS, TAG_KEY, tag_size


class Runs:
    """The runs of a tagged aggregate, and the tag that contains their table. `Aggregate` fills it, and `Stamps` sets the tag.

    Attributes:
        starts: Index of the first user record of each run.
        tag: Value of the tag, for all runs; empty until it is set, before the aggregate is encoded.
        first_length: Length of the first user record without its tag.
        stamp: Identifies the fresh records of the last attempt; None before the first attempt, and once the records have their identities.
        held_until: Monotonic seconds before which the aggregate is not sent, because a record inside may have been stored; otherwise minus
            infinity.
    """

    __slots__ = ("_last", "first_length", "held_until", "stamp", "starts", "tag")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.tag: str = ""
        self.first_length: int = 0
        self.stamp: Stamp | None = None
        self.held_until: float = float("-inf")
        self._last: Identity | None = None  # of the last record

    def begin(self, length: int) -> None:
        """Begin with a first user record of that length."""
        self.first_length = length
        self.starts = []

    def growth(self, identity: Identity | None) -> int | None:
        """Return the bytes by which the tag grows if the next record has this identity; None if the next record must not have it."""
        if not self._begins_run(identity):
            return 0
        runs = len(self.starts)
        return None if runs == MAX_RUNS else self._size(runs + 1) - self._size(runs)

    def take(self, identity: Identity | None, index: int) -> None:
        """Take a user record with its index in the aggregate."""
        if self._begins_run(identity):
            self.starts.append(index)
        self._last = identity
        if identity is not None:
            self.held_until = max(self.held_until, identity.held_until)

    def _begins_run(self, identity: Identity | None) -> bool:
        """Return whether a record with this identity begins a new run."""
        last = self._last
        if not self.starts:
            return True
        if identity is None or last is None:
            return identity is not last
        return not identity.continues(last)

    def _size(self, runs: int) -> int:
        """Return the bytes that the tag adds to an aggregate with this number of runs."""
        if not runs:
            return 0
        size = tag_size(runs)
        return size + varint_size(self.first_length + size) - varint_size(self.first_length)

    @property
    def tag_size(self) -> int:
        """Bytes of the encoded tag."""
        return tag_size(len(self.starts))

    @property
    def field(self) -> bytes:
        """Encoding of the tag.

        Raises:
            ValueError: If the tag has not been set.
        """
        if not self.tag:
            raise ValueError("the table of runs of a tagged aggregate has not been set")
        return tag_field(TAG_KEY, self.tag.encode("ascii"))

    def add_tag(self, parts: list[bytes], first: int) -> None:
        """Add the tag to the encoded first user record, whose prefix is ``parts[first]`` and whose payload follows.

        Raises:
            ValueError: If the tag has not been set.
        """
        field = self.field
        fields = parts[first][1 + varint_size(self.first_length) :]
        parts[first] = b"".join((b"\x1a", varint(self.first_length + len(field)), fields))
        parts.insert(first + 2, field)
