"""Identity of a user record, by which readers recognize its repetitions: in its producer, for another process, and in a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kinesis_sdk.common.once.table import HOLD_OFF, INCARNATION_SIZE, MAX_DATE, MAX_NUMBER

MAX_WINDOW = 300.0
"""Maximum window, in seconds, in which readers recognize a record that the application named."""

DEFAULT_WINDOW = 300.0


class RecordIdentity(NamedTuple):
    """Identity of a user record for another process, which puts the record again (`Producer.put_again`).

    Attributes:
        incarnation: 8 bytes, drawn for a request; for a named record, a part of the digest of its name and hash key.
        number: Number of the record, below 2^48.
        date: Milliseconds since 1970, at Kinesis, before which the record was not sent; None if no attempt may have been stored.
        window: Seconds in which readers recognize another record of that name; 0 for a record without a name.
    """

    incarnation: bytes
    number: int
    date: int | None = None
    window: float = 0.0


class Identity(NamedTuple):
    """Identity of a user record in its producer: the fields of `RecordIdentity`, and when its first attempt was made.

    Attributes:
        made: Monotonic seconds at which the bytes of the first attempt that may have been stored were encoded; 0 without a date.
        wall: The same moment by the wall clock, in epoch seconds.
        lapsed: Whether the record may have been stored under a former identity, whose first attempt was too long ago to be repeated.
        first: Milliseconds since 1970 that Kinesis had reached before any attempt to put a record of that name began. None if this moment
            is unknown, or an attempt may have been stored.
        again: Whether the caller knows that it may have put the record before. Readers then do not warn that another record has this name.
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
        """The part that another process needs; None if there is no such part."""
        return RecordIdentity(*self[:4]) if self.incarnation else None

    @property
    def may_be_stored(self) -> bool:
        """Whether an attempt to send the record may have been stored."""
        return self.date is not None or self.lapsed

    @property
    def held_until(self) -> float:
        """Monotonic seconds before which the record is not sent; minus infinity if no attempt may have been stored."""
        return float("-inf") if self.date is None else self.made + HOLD_OFF

    def continues(self, other: Identity) -> bool:
        """Return whether this identity continues the run of another identity, which precedes it."""
        return self.window == 0 == other.window and (self.incarnation, self.date, self.number - 1) == (
            other.incarnation,
            other.date,
            other.number,
        )


class Stamp(NamedTuple):
    """Identity of the fresh records of one attempt to send a Kinesis record.

    Attributes:
        date: Milliseconds since 1970 that Kinesis had reached before the bytes were encoded.
        number: Number of the record at index 0. A fresh record at index n has ``number + n``.
        made: Monotonic seconds at which the bytes were encoded.
        wall: The same moment by the wall clock, in epoch seconds.
    """

    incarnation: bytes
    date: int
    number: int
    made: float
    wall: float


def resumed(identity: RecordIdentity, now: float) -> Identity:
    """Return the identity of a record that this process or another process failed to put.

    If the record may have been stored, it is held from now on (monotonic seconds of this process), and its age is taken from
    the wall clock.
    """
    if identity.date is None:
        return Identity(*identity)
    return Identity(*identity, made=now, wall=identity.date / 1000 + identity.window)


def identity_fields(identity: RecordIdentity) -> dict[str, Any]:
    """Return an identity as the members of a JSON object."""
    return {**identity._asdict(), "incarnation": identity.incarnation.hex()}


def identity_in(item: Mapping[str, Any]) -> RecordIdentity | None:
    """Return the identity among the members of a JSON object from any source; None if there is none.

    Raises:
        KeyError, TypeError, ValueError: If it is not the result of `identity_fields`.
    """
    if "incarnation" not in item:
        return None
    incarnation = bytes.fromhex(item["incarnation"])
    number, date, window = item["number"], item["date"], item["window"]
    if type(number) is not int or (date is not None and type(date) is not int):
        raise TypeError("expected integers")
    if type(window) not in {int, float}:
        raise TypeError("expected seconds")
    valid = len(incarnation) == INCARNATION_SIZE and 0 <= number <= MAX_NUMBER and 0 <= window <= MAX_WINDOW
    if not valid or (date is not None and not 0 <= date <= MAX_DATE):
        raise ValueError("out of range")
    return RecordIdentity(incarnation, number, date, float(window))
