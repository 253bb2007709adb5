"""Lines to typed columns, without Spark; `integration/spark/test_values.py` compares them with Spark's ``from_csv``."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.spark.errors import MalformedValueError
from kinesis_sdk.spark.parse.form import ValueFormat
from tests import fuzz

pytest.importorskip("pyarrow", reason="pyarrow is not installed here; `make spark` runs this with it")

from kinesis_sdk.spark.parse.rows import TypedRows
from tests.spark.typed import OneByOne, many, raw, rows_of, struct, text_of

UTC = timezone.utc


def read(schema: dict[str, Any], *payloads: bytes, **settings: str) -> list[dict[str, Any]]:
    return rows_of(ValueFormat(name="csv", settings=settings), schema, *payloads)


# Type, texts of a field that fit, with what they are, and texts that do not.
FITTING: dict[str, tuple[dict[str, Any], list[str]]] = {
    "integer": ({"1": 1, "+7": 7, "-0012": -12, "": None}, ["1.0", " 1", "0x1", "3000000000", "1_0", "9" * 5_000]),
    "byte": ({"-128": -128}, ["128"]),
    "string": ({"x": "x", " x ": " x ", "": None, 'a"b"': 'a"b"', "é😀": "é😀", "\\n": "\\n"}, []),
    "double": (
        {"1": 1.0, " 1.5 ": 1.5, "+.5e1d": 5.0, "Inf": float("inf"), "-Infinity": float("-inf"), "1e400": float("inf"), "-0.0": -0.0},
        ["inf", "nan", "1,5", "1_0", "0x1p3", "e"],
    ),
    "float": ({"1.1": 1.100000023841858, "1e39": float("inf"), "1.000000178813934215": 1.0000001192092896}, ["x"]),
    "boolean": ({"true": True, "FALSE": False}, ["1", "0", "yes", " true"]),
    "decimal(5,2)": ({"1.5": Decimal("1.50"), "1e2": Decimal("100.00"), "1.555": Decimal("1.56")}, ["12345.6", " 1", "NaN"]),
    "binary": ({"AAé": "AAé".encode()}, []),
    "date": ({"2020-01-01": date(2020, 1, 1), "2020-2": date(2020, 2, 1)}, ["2020-02-30", "20200101", "today"]),
    "timestamp": (
        {"2020-01-01T00:00:00Z": datetime(2020, 1, 1, tzinfo=UTC), "2020-01-01 02:00:00 Europe/Berlin": datetime(2020, 1, 1, 1, tzinfo=UTC)},
        ["12:30", "1577836800", "2020-01-01T24:00:00"],
    ),
    "decimal(38,10)": (
        {"1": Decimal(1), "-12345678901234567890.5": Decimal("-12345678901234567890.5")}, ["17e36", "34e30", "9" * 39, "3402823" + "0" * 32]
    ),
    "timestamp_ntz": ({"2020-01-01 00:00:00": datetime(2020, 1, 1, tzinfo=UTC).replace(tzinfo=None)}, ["2020-01-01T00:00:00Z"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", FITTING)
def test_a_field_is_read_as_spark_reads_it(kind: str) -> None:
    fits, misfits = FITTING[kind]
    schema = struct(v=kind, w="integer", _corrupt_record="string")
    good = [f"{value},7".encode() for value in fits]
    expected = [{"v": value, "w": 7, "_corrupt_record": None} for value in fits.values()]
    assert read(schema, *good) == expected
    assert [read(schema, one) for one in good] == [[one] for one in expected], "beside others, or alone"
    bad = [f'"{value}",7'.encode() for value in misfits]
    assert read(schema, *bad) == [{"v": None, "w": 7, "_corrupt_record": one.decode()} for one in bad]


@pytest.mark.parametrize(
    ("payload", "values", "is_malformed"),
    [
        (b"1,x", (1, "x"), False),
        (b"1,x\n", (1, "x"), False),
        (b"1,x\r\n", (1, "x"), False),
        (b"1,x\n\n", (1, "x\n"), False),
        (b"1,x\ny", (1, "x\ny"), False),
        (b"1,x\r", (1, "x\r"), False),
        (b'"1","x,y"', (1, "x,y"), False),
        (b'1,"x\ny"', (1, "x\ny"), False),
        (b'1,"x" \t', (1, "x"), False),
        (rb'1,"a\"b\\c\d"', (1, r'a"b\c\d'), False),
        (b'1,""', (1, None), False),
        (b"1,", (1, None), False),
        (b",", (None, None), False),
        (b"1,x\xff", (1, "x\N{REPLACEMENT CHARACTER}"), False),
        (b"\xef\xbb\xbf1,x", (1, "x"), False),
        (b"1", (1, None), True),
        (b"1,x,", (1, "x"), True),
        (b"1,x," + b"," * 100_000, (1, "x"), True),
        (b"?,x", (None, "x"), True),
        (b"", (None, None), False),
        (b"\n", (None, None), False),
        (b" ", (None, None), True),
        (b'1,"a""b"', (None, None), True),
        (b'1,"a', (None, None), True),
        (b'1,"a\\"', (None, None), True),
        (b'1,"a"b', (None, None), True),
    ],
)
def test_a_line_is_divided_as_spark_divides_it(payload: bytes, values: Any, is_malformed: bool) -> None:
    schema = struct(i="integer", s="string", _corrupt_record="string")
    text = payload.decode("utf-8", "replace") if is_malformed else None
    expected = {"i": values[0], "s": values[1], "_corrupt_record": text}
    other = {"i": 5, "s": "o", "_corrupt_record": None}
    assert read(schema, payload) == [expected]
    assert read(schema, b"5,o", payload, b"5,o") == [other, expected, other]


def test_separator_quotation_mark_and_null_are_options() -> None:
    schema = struct(a="string", b="string")
    assert read(schema, b"x,y|'it''s|'", sep="|", quote="'", escape="'") == [{"a": "x,y", "b": "it's|"}]
    assert read(schema, b'"x"\ty', sep="\t", quote="") == [{"a": '"x"', "b": "y"}]
    assert read(schema, b'NA,""', b',"NA"', null="NA") == [{"a": None, "b": ""}, {"a": None, "b": None}]
    assert read(schema, b'"x\\","y"', escape="") == [{"a": "x\\", "b": "y"}]


def test_clocks_that_change_after_the_listed_years_are_read_alike() -> None:
    form = ValueFormat(name="csv", zone="Europe/Berlin")
    rows = rows_of(
        form, struct(t="timestamp", i="integer"), b"2038-07-01 00:00:00,1", b"2020-07-01 00:00:00,1"
    )
    assert [row["t"].astimezone(UTC).hour for row in rows] == [22, 22]


def test_what_is_wrong_is_named_without_the_value() -> None:
    schema = struct(a="integer", b="string")
    for payload, flaw in (
        (b"secret,x", "field a: text is no int"),
        (b"1", "fewer than 2 fields"),
        (b'1,"secret', "never closed"),
    ):
        with pytest.raises(MalformedValueError, match=flaw) as caught:
            rows_of(ValueFormat(name="csv", mode="FAILFAST"), schema, b"1,x", payload)
        assert "secret" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"column a=.*no struct, array or map with valueFormat=csv"):
        TypedRows(ValueFormat(name="csv"), struct(a=many("integer")))


ANY = struct(
    i="integer", b="string", d="double", f="float", o="boolean", c="decimal(5,2)", dt="date", ts="timestamp", n="timestamp_ntz", _corrupt_record="string"
)  # fmt: skip
_COMMON = [
    "7",
    "x",
    "1.25",
    "0.1",
    "true",
    "1.25",
    "2020-05-06",
    "2020-01-01T00:00:00Z",
    "2020-01-01 01:02:03",
]
_RARE = [
    "", '""', '"x"', '"a,b"', '"a\\"b"', '"a""b"', "-0", "-0.0", "+1", "007", "0x1F", "1e400", "1e39", "99.995", ".", "-", " 1", "1 ", "1.", ".5", "1e5",
    "nan", "inf", "TRUE", "1", "é", "2147483648", "\0", "1850-01-01 02:30", "2020-10-25 02:30", "2020-01-01 02Z", "1_0", "٣", "1f", '"', "\\",
    '"" ', '"x" ', '"x"y',
]  # fmt: skip
_INSERTED = [b'"', b",", b"\n", b"\r", b" ", b"\xff", b"\0", b"\\", b"-", b"x", b"\xef\xbb\xbf"]


def _line(rng: Random) -> bytes:
    fields = [one if rng.random() < 0.97 else rng.choice(_RARE) for one in _COMMON]
    line = bytearray(",".join(fields).encode())
    if rng.random() < 0.1:
        place = rng.randrange(len(line) + 1)
        line[place : place + rng.randrange(2)] = rng.choice(_INSERTED)
    return bytes(line)


@pytest.mark.fuzz
@pytest.mark.parametrize("settings", [{}, {"escape": '"'}, {"null": "x", "quote": ""}], ids=str)
@pytest.mark.parametrize("seed", fuzz.seeds(unit=1, fuzz=10))
def test_whole_columns_are_what_single_lines_are(seed: int, settings: dict[str, str]) -> None:
    """Otherwise a value would depend on its neighbours, which differ when a batch is read again."""
    rng = Random(seed)
    form = ValueFormat(name="csv", zone="Europe/Berlin", settings=settings)
    whole, single = TypedRows(form, ANY).begin(), TypedRows(form, ANY).begin()
    single._parser = OneByOne(single._parser)
    taken = 0
    for _ in range(fuzz.how_many(unit=20, fuzz=1_000)):
        batch = raw([_line(rng) for _ in range(rng.choice([1, 1, 2, 5]))])
        taken += whole._parser.columns(batch.column("data")) is not None
        (one,), (other,) = whole.shape(batch), single.shape(batch)
        assert text_of(one) == text_of(other), batch.to_pylist()
    assert taken > 2
    assert whole.malformed == single.malformed
