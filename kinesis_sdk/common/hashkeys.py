"""Hash keys: positions of records in the 128-bit space that the shards of a stream divide.

A hash key is kept as 16 big-endian bytes, so two hash keys are compared with one `bytes` comparison. For arithmetic, a hash key is an
``int``; in requests, it is canonical decimal text. Kinesis uses the MD5 of the UTF-8 partition
key unless the request has an explicit hash key (PutRecords API reference).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from hashlib import md5

from kinesis_sdk.common.errors import InvalidRecordError

MAX_HASH_KEY = 2**128 - 1
"""Largest hash key. The hash key space is the closed range from 0 to MAX_HASH_KEY."""

_DECIMAL = re.compile(r"[0-9]{1,64}")


def hash_partition_key(partition_key: str) -> bytes:
    """Return the hash key of a partition key: 16 bytes, the MD5 of its UTF-8 form."""
    return md5(partition_key.encode(), usedforsecurity=False).digest()


def parse_explicit_hash_key(value: str | int) -> str:
    """Return the canonical decimal text of an explicit hash key.

    Args:
        value: Decimal text of up to 64 digits, or an int. Leading zeros are accepted and removed, as by the
            KPL's BigInteger. Surrounding white space is also removed; the KPL rejects it.

    Returns:
        Decimal text without leading zeros, the only form that the API accepts.

    Raises:
        InvalidRecordError: If the value is not a decimal integer from 0 to 2^128 - 1.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise InvalidRecordError(
            "explicit_hash_key", f"expected decimal text or an int, not {type(value).__name__}"
        )
    if isinstance(value, str):
        text = value.strip()
        if not _DECIMAL.fullmatch(text):
            raise InvalidRecordError(
                "explicit_hash_key",
                f"expected a decimal integer from 0 to 2^128-1 ({MAX_HASH_KEY}), not {value[:60]!r}",
            )
        number = int(text)
    else:
        number = value
    if not 0 <= number <= MAX_HASH_KEY:
        shown = str(number) if number.bit_length() < 256 else f"a {number.bit_length()}-bit integer"
        raise InvalidRecordError("explicit_hash_key", f"expected 0 to 2^128-1 ({MAX_HASH_KEY}), not {shown}")
    return str(number)


def explicit_hash_key_to_bytes(decimal: str) -> bytes:
    """Return the 16 bytes of a canonical explicit hash key."""
    return int(decimal).to_bytes(16, "big")


def hash_key_to_decimal(digest: bytes) -> str:
    """Return the canonical decimal text of 16 hash key bytes, as ``ExplicitHashKey`` requires it."""
    return str(int.from_bytes(digest, "big"))


@dataclass(frozen=True, order=True)
class HashKeyRange:
    """A closed range of hash keys, as ``ListShards`` reports it.

    Attributes:
        start: First hash key of the range, 0 … 2^128 - 1.
        end: Last hash key of the range, not below ``start``.
    """

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end <= MAX_HASH_KEY:
            raise ValueError(f"not a hash key range: {self.start} … {self.end}")

    def __contains__(self, hash_key: int | bytes) -> bool:
        """Return whether a hash key (int or 16 bytes) lies in the range."""
        number = hash_key if isinstance(hash_key, int) else int.from_bytes(hash_key, "big")
        return self.start <= number <= self.end

    def overlaps(self, other: HashKeyRange) -> bool:
        """Return whether the ranges have a hash key in common."""
        return self.start <= other.end and other.start <= self.end

    @cached_property
    def start_bytes(self) -> bytes:
        """``start`` as 16 big-endian bytes."""
        return self.start.to_bytes(16, "big")

    @cached_property
    def end_bytes(self) -> bytes:
        """``end`` as 16 big-endian bytes."""
        return self.end.to_bytes(16, "big")


FULL_RANGE = HashKeyRange(0, MAX_HASH_KEY)
"""The whole hash key space."""
