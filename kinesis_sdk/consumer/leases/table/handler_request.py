"""Request of an operator to the owner of a lease whose handler fails: one attribute of the lease's row.

The text is ``verb,id`` or ``verb,id,sequenceNumber/subSequenceNumber``. The id distinguishes requests, so that an owner removes
only the request that it has carried out. The Java KCL ignores and keeps the attribute.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from kinesis_sdk.common.sequence import ExtendedSequenceNumber, is_sequence_number

_MAX_ID = 64
_MAX_SUB_DIGITS = 12


class HandlerVerb(str, Enum):
    """Kind of a request."""

    RETRY = "retry"
    """Call the handler now instead of after the pause."""
    LEAVE_OUT = "leave-out"
    """Pass one record to the dead-letter hook and continue after it."""


class HandlerRequest(NamedTuple):
    """A request to the owner of a lease.

    Attributes:
        verb: Kind of the request.
        id: Unique text of 1 to 64 ASCII letters, digits and hyphens.
        record: Position of the record that is left out; None for `HandlerVerb.RETRY`.
    """

    verb: HandlerVerb
    id: str
    record: ExtendedSequenceNumber | None = None

    def to_text(self) -> str:
        """Return the value of the attribute."""
        parts = (self.verb.value, self.id)
        return ",".join(parts if self.record is None else (*parts, str(self.record)))

    @classmethod
    def from_text(cls, text: str) -> HandlerRequest:
        """Read the value of the attribute.

        Raises:
            ValueError: If the value is malformed.
        """
        word, identity, *position = text[:400].split(",")
        verb = HandlerVerb(word)
        letters = identity.replace("-", "")
        if not (letters.isascii() and letters.isalnum() and len(identity) <= _MAX_ID):
            raise ValueError(f"not an id: {identity[:80]!r}")
        if len(position) != (verb is HandlerVerb.LEAVE_OUT):
            raise ValueError(f"{verb.value}: {len(position)} positions")
        return cls(verb, identity, _position(position[0]) if position else None)


def _position(text: str) -> ExtendedSequenceNumber:
    sequence, _, sub = text.partition("/")
    if not (is_sequence_number(sequence) and sub.isascii() and sub.isdigit() and len(sub) <= _MAX_SUB_DIGITS):
        raise ValueError(f"not the position of a record: {text[:80]!r}")
    return ExtendedSequenceNumber(sequence, int(sub))
