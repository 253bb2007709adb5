"""Identity of a user record, by which readers recognize its repetitions, and the memory of the last attempt to send it."""

from __future__ import annotations

from typing import NamedTuple

from kinesis_sdk.common.once.table import HOLD_OFF


class RecordIdentity(NamedTuple):
    """Identity of a user record for another process, which puts the record again (`Producer.put_again`).

    Attributes:
        incarnation: 8 bytes, drawn for a request; for a named record, a part of the digest of its name and hash key.
        number: Number of the record, below 2^48.
        date: Milliseconds since 1970, at Kinesis, before which the record was not sent; None if no attempt of it may be stored.
        window: Seconds in which readers recognize another record of that name; 0 for a record without one.
    """

    incarnation: bytes
    number: int
    date: int | None = None
    window: float = 0.0


class Identity(NamedTuple):
    """Identity of a user record in its producer: the fields of `RecordIdentity`, and when its first attempt was made.

    Attributes:
        made: Monotonic seconds at which the bytes of the first attempt that may be stored were made; 0 without a date.
        wall: The same by the wall clock, in epoch seconds.
        lapsed: Whether the record may be stored under a former identity, whose first attempt was too long ago to be repeated.
        first: Milliseconds since 1970 that Kinesis had reached before any attempt to put a record of that name began. None if that is not
            known, or an attempt may be stored.
        again: Whether the caller knows that it may have put the record before. Readers then do not warn of a name that was taken.
    """

    incarnation: bytes
    number: int
    date: int | None = None
    window: float = 0.0
    made: float = 0.0
    wall: float = 0.0
    lapsed: bool = False
    first: int | None = None
    again: bool = False

    @property
    def shared(self) -> RecordIdentity | None:
        """The part that another process needs; None if there is none."""
        return RecordIdentity(*self[:4]) if self.incarnation else None

    @property
    def may_be_stored(self) -> bool:
        """Whether an attempt to send the record may be stored."""
        return self.date is not None or self.lapsed

    @property
    def held_until(self) -> float:
        """Monotonic seconds before which the record is not sent; minus infinity if no attempt of it may be stored."""
        return float("-inf") if self.date is None else self.made + HOLD_OFF

    def continues(self, other: Identity) -> bool:
        """Return whether this identity continues the run of another one, which is before it."""
        return self.window == 0 == other.window and (self.incarnation, self.date, self.number - 1) == (
            other.incarnation,
            other.date,
            other.number,
        )


class Stamp(NamedTuple):
    """Identity of the fresh records of one attempt to send a Kinesis record.

    Attributes:
        date: Milliseconds since 1970 that Kinesis had reached before the bytes were made.
        number: Number of the record at index 0. A fresh record at index n has ``number + n``.
        made: Monotonic seconds at which the bytes were made.
        wall: The same by the wall clock, in epoch seconds.
    """

    incarnation: bytes
    date: int
    number: int
    made: float
    wall: float


class Attempted:
    """Memory of the last attempt to send a Kinesis record with identities.

    Attributes:
        stamp: Identifies the fresh records of the last attempt; None before it, and once the records have their identities.
        held_until: Monotonic seconds before which it is not sent, because a record inside may be stored; minus infinity if none is.
    """

    __slots__ = ("held_until", "stamp")

    def __init__(self) -> None:
        self.stamp: Stamp | None = None
        self.held_until: float = float("-inf")


def resumed(identity: RecordIdentity, now: float) -> Identity:
    """Return the identity of a record that this process or another one failed to put.

    If it may be stored, it is held from now on (monotonic seconds of this process), and its age is taken from the wall clock.
    """
    if identity.date is None:
        return Identity(*identity)
    return Identity(*identity, made=now, wall=identity.date / 1000 + identity.window)
