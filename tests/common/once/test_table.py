"""The table of runs: its bytes, and that no other bytes are taken for a table."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.common.once.table import (
    FIRST,
    HEADER_LENGTH,
    HOLD_OFF,
    MAX_COUNT,
    MAX_DATE,
    MAX_NUMBER,
    NAMED,
    ONE_RUN_LENGTH,
    REPEAT,
    RUN_LENGTH,
    TAG_KEY,
    Run,
    RunTable,
    decode_table,
    decode_unmarked,
    encode_table,
    is_unmarked,
    shard_checksum,
    tag_size,
)
from tests import fuzz

STREAM = "orders"
SHARD = "shardId-000000000007"
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
PLAIN = Run(430, 4, 0, bytes(range(8)), 1_700_000_000_123, 77)
MARKED = Run(1, 4, REPEAT, b"\xff" * 8, 0, 0)
FLAGS = {0, REPEAT, NAMED, REPEAT | NAMED, FIRST | NAMED}


@st.composite
def any_run(draw: st.DrawFn) -> Run:
    flags = draw(st.sampled_from(sorted(FLAGS)))
    count = 1 if flags & NAMED else draw(st.integers(1, 5) | st.integers(1, MAX_COUNT))
    return Run(
        count,
        draw(st.integers(1, 15)),
        flags,
        draw(st.binary(min_size=8, max_size=8)),
        draw(st.integers(0, MAX_DATE)),
        draw(st.integers(0, MAX_NUMBER + 1 - count)),
    )


RUNS = st.lists(any_run(), min_size=1, max_size=9)


def records(runs: list[Run] | tuple[Run, ...]) -> int:
    return sum(run.count for run in runs)


def written_by_hand(stream: str, shard: str | None, runs: list[Run]) -> bytes:
    """The layout, byte for byte, without the code under test."""
    out = b"\x10\0\0" + (crc32(stream.encode()) & 0xFFFF).to_bytes(2, "big")
    out += (0 if shard is None else crc32(shard.encode())).to_bytes(4, "big")
    for run in runs:
        out += run.count.to_bytes(3, "big") + bytes([run.holdoff * 16 + run.flags]) + run.incarnation
        out += run.date.to_bytes(6, "big") + run.number.to_bytes(6, "big")
    return out


def counts_in(value: str) -> int:
    """The sum of what stands where the counts are, so that a damaged table is not refused for its sum alone."""
    total = 0
    for at in range(HEADER_LENGTH, len(value), RUN_LENGTH):
        try:
            total += int.from_bytes(urlsafe_b64decode(value[at : at + 4]), "big")
        except ValueError:
            return 0
    return total


def test_golden_bytes() -> None:
    assert encode_table(STREAM, None, [PLAIN]) == "EAAA_e4AAAAAAAGuQAABAgMEBQYHAYvP5Wh7AAAAAABN"
    assert encode_table(STREAM, SHARD, [PLAIN, MARKED]) == (
        "EAAA_e7El1RTAAGuQAABAgMEBQYHAYvP5Wh7AAAAAABNAAABQf__________AAAAAAAAAAAAAAAA"
    )
    assert TAG_KEY == "k1"


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=30, fuzz=500))
@given(RUNS, st.none() | st.text(max_size=5))
def test_what_is_written_is_read(runs: list[Run], shard: str | None) -> None:
    value = encode_table(STREAM, shard, runs)
    assert urlsafe_b64decode(value) == written_by_hand(STREAM, shard, runs)
    assert len(value) == HEADER_LENGTH + RUN_LENGTH * len(runs)
    made_for = 0 if shard is None else shard_checksum(shard)
    assert decode_table(value, STREAM, records(runs)) == RunTable(made_for, tuple(runs))


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=30, fuzz=500))
@given(RUNS, st.integers(0, 1 << 26))
def test_counts_that_do_not_add_up(runs: list[Run], others: int) -> None:
    found = decode_table(encode_table(STREAM, SHARD, runs), STREAM, others)
    assert (found is not None) == (others == records(runs))


def test_another_stream() -> None:
    for runs in ([PLAIN], [PLAIN, MARKED]):
        table, count = encode_table(STREAM, SHARD, runs), sum(run.count for run in runs)
        assert decode_table(table, "order", count) is None
        assert decode_table(table, STREAM, count) is not None


def read_by_hand(value: str, stream: str, user_records: int) -> RunTable | None:
    """The layout and the rules, field by field and for any number of runs, without the code under test."""
    length = len(value) - HEADER_LENGTH
    if length <= 0 or length % RUN_LENGTH or not value.isascii():
        return None
    try:
        table = urlsafe_b64decode(value)
    except ValueError:
        return None
    if urlsafe_b64encode(table).decode() != value or len(table) % 3:
        return None
    if table[:3] != b"\x10\0\0":
        return None
    if int.from_bytes(table[3:5], "big") != crc32(stream.encode()) & 0xFFFF:
        return None
    runs = []
    for at in range(9, len(table), 24):
        count, flags = int.from_bytes(table[at : at + 3], "big"), table[at + 3] & 0xF
        date, number = (int.from_bytes(table[at + part : at + part + 6], "big") for part in (12, 18))
        if count == 0 or flags not in FLAGS or table[at + 3] < 0x10 or number + count > 1 << 48:
            return None
        if flags & NAMED and count != 1:
            return None
        runs.append(Run(count, table[at + 3] >> 4, flags, table[at + 4 : at + 12], date, number))
    if records(runs) != user_records:
        return None
    return RunTable(int.from_bytes(table[5:9], "big"), tuple(runs))


def mutated(value: str, data: st.DataObject) -> str:
    """Return a value in which up to two bits or characters are others; most often it has the same length."""
    for _ in range(data.draw(st.integers(0, 2))):
        if data.draw(st.booleans()):
            at = data.draw(st.integers(0, len(value)))
            other = data.draw(st.sampled_from([*"Aa0-_+/=\n!~\0\x7f\xe9", ""]))
            times = data.draw(st.sampled_from((1, 4)))  # four characters are a group
            value = value[:at] + other * times + value[at + data.draw(st.sampled_from((0, times))) :]
        else:
            at, character = data.draw(st.sampled_from([*enumerate(value)]))
            if character in ALPHABET:
                index = ALPHABET.index(character) ^ 1 << data.draw(st.integers(0, 5))
                value = value[:at] + ALPHABET[index] + value[at + 1 :]
    return value


def same(found: RunTable | None, expected: RunTable | None) -> bool:
    """Whether two tables are equal, also in the types of which they are made."""
    return repr(found) == repr(expected)


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=30, fuzz=500))
@given(st.lists(any_run(), min_size=1, max_size=3), st.none() | st.just(SHARD), st.data())
def test_one_run_is_read_like_several(runs: list[Run], shard: str | None, data: st.DataObject) -> None:
    """Tables of one run, which have a path of their own, and others, whole and mutated, against the rules written out."""
    value = mutated(encode_table(STREAM, shard, runs), data)
    for count in {records(runs), counts_in(value), counts_in(value) + 1}:
        assert same(decode_table(value, STREAM, count), read_by_hand(value, STREAM, count))
    assert same(decode_table(value, "other", records(runs)), read_by_hand(value, "other", records(runs)))


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=40, fuzz=500))
@given(st.binary(min_size=24, max_size=24) | any_run(), st.text(alphabet="Aa0-_+/=!", max_size=40))
def test_any_run_is_read_by_the_rules(run: bytes | Run, text: str) -> None:
    header = written_by_hand(STREAM, SHARD, [])
    body = run if isinstance(run, bytes) else written_by_hand(STREAM, None, [run])[9:]
    value = urlsafe_b64encode(header + body).decode()
    for candidate in (value, value[: len(value) - len(text)] + text):
        count = counts_in(candidate)
        assert same(decode_table(candidate, STREAM, count), read_by_hand(candidate, STREAM, count))


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=40, fuzz=500))
@given(
    st.binary(min_size=24, max_size=24) | any_run() | any_run().map(lambda run: run._replace(flags=0)),
    st.text(alphabet="Aa0-_+/=!é", max_size=40),
)
def test_the_short_way_reads_what_the_long_one_reads(run: bytes | Run, text: str) -> None:
    """What `is_unmarked` accepts is a table of one run without flags, and `decode_unmarked` reads it."""
    header = written_by_hand(STREAM, SHARD, [])
    body = run if isinstance(run, bytes) else written_by_hand(STREAM, None, [run])[9:]
    value = urlsafe_b64encode(header + body).decode()
    for candidate in (value, value[: max(HEADER_LENGTH, len(value) - len(text))] + text[:32]):
        counted = counts_in(candidate)
        for count in (counted, counted + 1, 0):
            whole = decode_table(candidate, STREAM, count) if len(candidate) == ONE_RUN_LENGTH else None
            if not is_unmarked(candidate, count):
                if whole is not None and not whole.runs[0].flags and whole.runs[0].holdoff == HOLD_OFF:
                    assert whole.runs[0].number >> 24 == 0xFFFFFF, "the last numbers are read the long way"
                continue
            assert whole is not None
            assert not whole.runs[0].flags
            _, holdoff, _, incarnation, date, number = whole.runs[0]
            expected = holdoff, date, incarnation + date.to_bytes(6, "big"), number
            assert [*decode_unmarked([candidate, value, candidate])][::2] == [expected, expected]


def test_the_short_way_is_the_usual_one() -> None:
    for count in (1, 2, 430, MAX_COUNT):
        for first in (0, 255):
            for number in (0, 10**12, MAX_NUMBER >> 1):
                run = Run(count, HOLD_OFF, 0, bytes([first]) * 8, 1_700_000_000_000, number)
                value = encode_table(STREAM, SHARD, [run])
                assert is_unmarked(value, count)
                assert not is_unmarked(value, count + 1)
                key = run.incarnation + run.date.to_bytes(6, "big")
                assert [*decode_unmarked([value])] == [(HOLD_OFF, run.date, key, number)]
                for flags in (REPEAT, NAMED, FIRST | NAMED)[: 3 if count == 1 else 1]:
                    assert not is_unmarked(encode_table(STREAM, SHARD, [run._replace(flags=flags)]), count)


@pytest.mark.parametrize(
    ("at", "byte", "why"),
    [
        (12, 0x44, "a first attempt without a name"),
        (12, 0x48, "a flag of a later version"),
        (12, 0x00, "no hold-off"),
        (12, 0x42, "a named run of several records"),
        (3, 0x00, "another stream"),
        (0, 0x20, "version 2"),
        (0, 0x00, "version 0"),
        (0, 0x11, "a feature"),
        (1, 0x01, "a key, which no feature needs"),
        (2, 0x01, "what is not in use"),
    ],
)
def test_tables_that_do_not_fit(at: int, byte: int, why: str) -> None:
    table = bytearray(written_by_hand(STREAM, SHARD, [PLAIN]))
    value = urlsafe_b64encode(table).decode()
    assert decode_table(value, STREAM, 430) is not None
    assert is_unmarked(value, 430)
    table[at] = byte
    value = urlsafe_b64encode(table).decode()
    assert decode_table(value, STREAM, 430) is None, why
    # The short way leaves the stream to its caller, who compares the whole header.
    assert is_unmarked(value, 430) == (why == "another stream"), why
    several = bytes(table) + written_by_hand(STREAM, SHARD, [MARKED])[9:]
    assert decode_table(urlsafe_b64encode(several).decode(), STREAM, 430 + MARKED.count) is None, why


def test_characters_that_a_lenient_decoder_accepts() -> None:
    value = encode_table(STREAM, SHARD, [PLAIN, MARKED])
    assert "_" in value
    assert decode_table(value.replace("_", "/"), STREAM, 431) is None
    one = encode_table(STREAM, SHARD, [PLAIN])
    assert decode_table(one + "!" * RUN_LENGTH, STREAM, 430) is None
    assert decode_table(one[:-2] + "==", STREAM, 430) is None
    assert decode_table(one + "\n", STREAM, 430) is None


@pytest.mark.parametrize(
    "run",
    [
        PLAIN._replace(count=0),
        PLAIN._replace(count=MAX_COUNT + 1),
        PLAIN._replace(flags=NAMED),
        PLAIN._replace(holdoff=0),
        PLAIN._replace(holdoff=16),
        *(PLAIN._replace(count=1, flags=flags) for flags in range(16) if flags not in FLAGS),
        PLAIN._replace(flags=FIRST | NAMED),
        PLAIN._replace(incarnation=b"1234567"),
        PLAIN._replace(date=-1),
        PLAIN._replace(date=MAX_DATE + 1),
        PLAIN._replace(number=-1),
        PLAIN._replace(number=MAX_NUMBER),
    ],
)
def test_what_cannot_be_written(run: Run) -> None:
    with pytest.raises(ValueError, match="must"):
        encode_table(STREAM, SHARD, [run])


def test_a_table_has_a_run() -> None:
    with pytest.raises(ValueError, match="run"):
        encode_table(STREAM, SHARD, [])
    assert decode_table(encode_table(STREAM, SHARD, [PLAIN])[:HEADER_LENGTH], STREAM, 0) is None


@pytest.mark.parametrize("runs", [*range(1, 10), 510, 511, 512, 513, 65536])
def test_sizes(runs: int) -> None:
    """Against protobuf's own rules: key, length, content."""

    def field(key: int, content: bytes) -> bytes:
        length, size = bytearray(), len(content)
        while size > 0x7F:
            length.append(size & 0x7F | 0x80)
            size >>= 7
        return bytes([key]) + bytes(length) + bytes([size]) + content

    value = b"v" * (HEADER_LENGTH + RUN_LENGTH * runs)
    assert tag_size(runs) == len(field(0x22, field(0x0A, TAG_KEY.encode()) + field(0x12, value)))


def test_sizes_in_words() -> None:
    assert [tag_size(runs) - tag_size(runs - 1) for runs in range(2, 6)] == [32, 32, 34, 32]
    assert tag_size(1) == 52
