"""The table of runs, which an idempotent producer writes into the first user record of each aggregate.

A *run* is a series of user records with consecutive numbers that share all other properties: the incarnation of the request, the
date before which none of them can have been stored, and whether an earlier attempt may have been stored. A record's
identity is (incarnation, date, number), or (incarnation, number) if the application named it. The table contains
everything that a reader needs to recognize a repetition; see `docs/repetitions.md`.

The table is the value of a tag with the key `TAG_KEY`. Tags are part of the KPL's format; no known reader but ours reads them.
In the value, base64 (URL alphabet, no padding) carries, with big-endian numbers::

    header, 9 bytes      1  version (high 4 bits), which is 1, and features (low 4 bits), of which there are none
                         1  0; number of a key, for a feature that signs tables
                         1  0
                         2  low 16 bits of the CRC-32 of the stream's name
                         4  CRC-32 of the id of the shard that the aggregate was made for; 0 if it was made without a map
    each run, 24 bytes   3  number of user records
                         1  hold-off in seconds (high 4 bits), flags (low 4 bits)
                         8  incarnation
                         6  date, in milliseconds since 1970
                         6  number of the first user record

The header and each run fill whole groups of base64, so sizes are fixed and runs are joined as text. A reader ignores a table of another
version or with an unknown feature: it drops nothing because of it. So a later version may change all bytes after the first.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterator, Sequence
from functools import lru_cache
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from kinesis_sdk.common.headers import varint_size

TAG_KEY = "k1"
"""Key of the tag."""

REPEAT = 1
"""Flag: an earlier attempt to send these records may have been stored."""

NAMED = 2
"""Flag: the application named the record, so another `put` of it has the same identity. The run has one record."""

FIRST = 4
"""Flag of a named run: it is the first attempt since its date, and no other attempt sends the record before the hold-off has passed. So, as
with a run without flags, a copy that arrives in time is the first copy. Never together with `REPEAT`."""

_KNOWN_FLAGS = REPEAT | NAMED | FIRST

HEADER_LENGTH = 12
"""Characters of the header in the value."""

RUN_LENGTH = 32
"""Characters of each run in the value."""

ONE_RUN_LENGTH = HEADER_LENGTH + RUN_LENGTH
"""Characters of a table of one run, which nearly every aggregate has."""

INCARNATION_SIZE = 8
MAX_COUNT = (1 << 24) - 1
MAX_HOLDOFF = 15
MAX_DATE = MAX_NUMBER = (1 << 48) - 1

MAX_RUNS = 8_192
"""Maximum runs of a table: a producer then begins another aggregate, and a reader ignores a longer table. An aggregate of the default
51,200 bytes has at most 1,345 (38 bytes each). So only aggregates of 300 KiB and more with named or repeated records reach this maximum."""

HOLD_OFF = 4
"""Minimum seconds between the first attempt that may have been stored and the producer's next attempt."""

FIRST_HOLD_OFF = MAX_HOLDOFF
"""Maximum hold-off of a `FIRST` run, in seconds. A sender that may repeat such a run waits this long after its own start."""

_MAX_LENGTH = HEADER_LENGTH + MAX_RUNS * RUN_LENGTH

_FLAGS_AT = HEADER_LENGTH + 5
"""Offset of the character in the value that has the lower two bits of the flags, before 4 bits of the incarnation."""

_NO_FLAGS = "ABCDEFGHIJKLMNOP"
"""Values of this character if these bits are 0."""

_NUMBER_AT = HEADER_LENGTH + 24
"""Offset of the number in the value."""

_CHARACTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

_URL_ALPHABET = bytes.maketrans(b"+/", b"-_")

_STANDARD_ALPHABET = bytes.maketrans(b"-_+/", b"+/\0\0")
"""From the URL alphabet to the decoder's. All other characters become, or stay, characters outside both sets."""

_VERSION = b"\x10\0\0"
"""The first bytes of a table: version 1, no feature, no key."""

_VERSION_TEXT = "EAAA"
"""These bytes as a group of base64."""

_HEADER = Struct(">3xHI")
_RUN = Struct(">I8sIQ")
"""Count, hold-off and flags · incarnation · upper 32 bits of the date · lower 16 bits of the date, and the number."""

_ONE_RUN = Struct(">3xHII8sIQ")
"""The header and one run."""

_UNMARKED = Struct(">9xI14sHI")
"""The layout without the header: count, hold-off and flags · incarnation and date · upper 16, lower 32 bits of the number."""

# Makes a named tuple at a third of the cost of its constructor. All fields must be there, in order.
_new = tuple.__new__


class Run(NamedTuple):
    """User records with consecutive numbers that share all other properties.

    Attributes:
        count: Number of user records, 1 to 16,777,215. A named run has 1.
        holdoff: Seconds, 1 to 15. Unless the run is marked, no further copy is sent earlier than this time after ``date``.
        flags: `REPEAT`, `NAMED`, both or 0; or `NAMED` and `FIRST`.
        incarnation: 8 bytes: the request's, or for a named run a part of the digest of its name and hash key.
        date: Milliseconds since 1970. No attempt to send these records was made before.
        number: Number of the first user record, below 2^48; the numbers of the other user records count up.
    """

    count: int  # type: ignore[assignment]  # a field of this name hides `tuple.count`, which nothing needs here
    holdoff: int
    flags: int
    incarnation: bytes
    date: int
    number: int


class RunTable(NamedTuple):
    """The runs of one aggregate.

    Attributes:
        made_for: `shard_checksum` of the shard that the aggregate was made for, 0 if it was made without a shard map.
        runs: The runs, in the order of the user records. Their counts add up to the number of user records.
    """

    made_for: int
    runs: tuple[Run, ...]


@lru_cache(maxsize=4096)
def shard_checksum(shard_id: str) -> int:
    """Return the value of `RunTable.made_for` for a shard."""
    return crc32(shard_id.encode())


@lru_cache(maxsize=1024)
def _stream_checksum(stream_name: str) -> int:
    return crc32(stream_name.encode()) & 0xFFFF


@lru_cache(maxsize=4096)
def encode_header(stream_name: str, made_for_shard: str | None) -> bytes:
    """Return the first `HEADER_LENGTH` characters of a value; see `encode_table`."""
    made_for = 0 if made_for_shard is None else shard_checksum(made_for_shard)
    return urlsafe_b64encode(
        _VERSION + _HEADER.pack(_stream_checksum(stream_name), made_for)[len(_VERSION) :]
    )


def encode_run(run: Run) -> bytes:
    """Return the 32 characters of a run.

    Raises:
        ValueError: If a field is out of range.
    """
    count, holdoff, flags, incarnation, date, number = run
    if not 1 <= count <= (1 if flags & NAMED else MAX_COUNT):
        raise ValueError(f"count must be 1 to {MAX_COUNT}, and 1 for a named run, got {count}")
    if not 1 <= holdoff <= MAX_HOLDOFF:
        raise ValueError(f"holdoff must be 1 to {MAX_HOLDOFF} s, got {holdoff}")
    if not 0 <= flags <= _KNOWN_FLAGS or not _fit(flags):
        raise ValueError(f"flags must be 0 to {_KNOWN_FLAGS}, and FIRST only with NAMED alone, got {flags}")
    if len(incarnation) != INCARNATION_SIZE:
        raise ValueError(f"incarnation must have {INCARNATION_SIZE} bytes, got {len(incarnation)}")
    if not 0 <= date <= MAX_DATE:
        raise ValueError(f"date must be 0 to {MAX_DATE} ms, got {date}")
    if not 0 <= number <= MAX_NUMBER + 1 - count:
        raise ValueError(
            f"number must be 0 to {MAX_NUMBER}, also that of the last record, got {number} + {count - 1}"
        )
    packed = _RUN.pack(
        count << 8 | holdoff << 4 | flags, incarnation, date >> 16, (date & 0xFFFF) << 48 | number
    )
    return b2a_base64(packed, newline=False).translate(_URL_ALPHABET)


def encode_table(stream_name: str, made_for_shard: str | None, runs: Sequence[Run]) -> str:
    """Return the value of the tag.

    Args:
        stream_name: Name of the stream, not its ARN.
        made_for_shard: Id of the shard that the aggregate was made for; None if it was made without a shard map.
        runs: The runs of the aggregate's user records, in order.

    Raises:
        ValueError: If there is no run, or if a field is out of range.
    """
    if not runs:
        raise ValueError("a table has at least one run")
    if len(runs) == 1:  # nearly every aggregate
        return (encode_header(stream_name, made_for_shard) + encode_run(runs[0])).decode("ascii")
    return b"".join((encode_header(stream_name, made_for_shard), *map(encode_run, runs))).decode("ascii")


def decode_table(value: str, stream_name: str, user_records: int) -> RunTable | None:
    """Return the table in the value of a tag.

    This function never raises an exception, because tags may be forged.

    Args:
        value: Value of the first user record's tag with the key `TAG_KEY`.
        stream_name: Name of the stream that the aggregate was read from, not its ARN.
        user_records: Number of user records in the aggregate.

    Returns:
        None if the value is not a table for this aggregate: it was written for another stream or has another version, it does
        not parse, it is longer than producers write, or its counts do not add up. The aggregate then counts as untagged.
    """
    length = len(value)
    if not ONE_RUN_LENGTH <= length <= _MAX_LENGTH or (length - HEADER_LENGTH) % RUN_LENGTH:
        return None
    if not value.startswith(_VERSION_TEXT):
        return None
    try:
        table = a2b_base64(value.encode("ascii").translate(_STANDARD_ALPHABET))
    except ValueError:  # not ASCII, or not base64
        return None
    # The decoder skips characters that are not in its alphabet, and then returns fewer bytes. Otherwise the text is whole
    # groups of the alphabet, and no other text stands for the same bytes.
    if len(table) * 4 != length * 3:
        return None
    if length == HEADER_LENGTH + RUN_LENGTH:  # nearly every aggregate
        stream, made_for, head, incarnation, high, low = _ONE_RUN.unpack(table)
        run = _run(head, incarnation, high, low)
        if run is None or run[0] != user_records or stream != _stream_checksum(stream_name):
            return None
        return _new(RunTable, (made_for, (run,)))
    stream, made_for = _HEADER.unpack_from(table)
    if stream != _stream_checksum(stream_name):
        return None
    runs: list[Run] = []
    records = 0
    for fields in _RUN.iter_unpack(table[_HEADER.size :]):
        run = _run(*fields)
        if run is None:
            return None
        records += run[0]
        runs.append(run)
    return RunTable(made_for, tuple(runs)) if records == user_records else None


def is_unmarked(value: str, user_records: int) -> bool:
    """Return whether a value is a table of one run without flags; a fast path, because nearly all tables are.

    Args:
        value: Value of the tag. Of stream and shard in the header, only the characters are checked.
        user_records: Number of user records in the aggregate.

    Returns:
        The result is also False for a few tables of this kind, which `decode_table` then checks.
    """
    return (
        # The count, the hold-off and the flags are in these characters. The second one also has a part of the incarnation.
        len(value) == ONE_RUN_LENGTH
        and value.startswith(_VERSION_TEXT)
        and value[HEADER_LENGTH:_FLAGS_AT] == _unmarked_head(user_records)
        and value[_FLAGS_AT] in _NO_FLAGS
        and not value.encode().translate(None, _CHARACTERS)
        # With this upper half of the first number, the last number of the run may be too large.
        and value[_NUMBER_AT : _NUMBER_AT + 4] != "____"
    )


@lru_cache(maxsize=4096)
def _unmarked_head(user_records: int) -> str | None:
    """Return the characters of a count and of the hold-off that producers write; None if the count is out of range."""
    if not 1 <= user_records <= MAX_COUNT:
        return None
    packed = (user_records << 8 | HOLD_OFF << 4).to_bytes(4, "big") + bytes(2)
    return b2a_base64(packed, newline=False).translate(_URL_ALPHABET)[:5].decode("ascii")


def decode_unmarked(values: Sequence[str]) -> Iterator[tuple[int, int, bytes, int]]:
    """Yield for each value (see `is_unmarked`): its hold-off, its date, incarnation and date together as 14 bytes, and its number."""
    tables = a2b_base64("".join(values).encode("ascii").translate(_STANDARD_ALPHABET))
    for head, key, high, low in _UNMARKED.iter_unpack(tables):
        yield head >> 4 & 0xF, int.from_bytes(key[INCARNATION_SIZE:], "big"), key, high << 32 | low


def _run(head: int, incarnation: bytes, high: int, low: int) -> Run | None:
    """Return the run with the fields of `_RUN`; None if they are not valid."""
    # The count cannot exceed `MAX_COUNT`: it has 24 bits.
    count, flags, number = head >> 8, head & 0xF, low & MAX_NUMBER
    if count == 0 or head & 0xF0 == 0 or flags > _KNOWN_FLAGS or number + count > MAX_NUMBER + 1:
        return None
    if (count > 1 and flags & NAMED) or not _fit(flags):
        return None
    return _new(Run, (count, head >> 4 & 0xF, flags, incarnation, high << 16 | low >> 48, number))


def _fit(flags: int) -> bool:
    """Return whether the flags may occur together."""
    return not flags & FIRST or flags == FIRST | NAMED


def tag_size(runs: int) -> int:
    """Return the size in bytes of the whole tag with this number of runs, inside its user record.

    52 for one run and 32 for each further run, but 34 for the fourth and 2 more at 16 KiB, where lengths need a further byte. The length
    of the user record that contains it may also take another byte.
    """
    value = HEADER_LENGTH + RUN_LENGTH * runs
    inner = 2 + len(TAG_KEY) + 1 + varint_size(value) + value
    return 1 + varint_size(inner) + inner
