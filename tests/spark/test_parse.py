"""Values to typed columns, without Spark. What Spark's ``from_json`` makes of the same values was read from Spark 4.3.0;
`integration/spark/test_values.py` compares both on generated ones."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.spark.errors import MalformedValueError
from kinesis_sdk.spark.parse.form import ValueFormat
from tests import fuzz

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed here; `make spark` runs this with it")

from kinesis_sdk.spark.parse import ddl, json_values, rows  # noqa: E402 — after the skip
from kinesis_sdk.spark.parse.inference import infer_columns  # noqa: E402
from kinesis_sdk.spark.parse.rows import TypedRows, TypingTask  # noqa: E402
from tests.spark.typed import INTS, OneByOne, many, mapped, raw, rows_of, struct, text_of  # noqa: E402

UTC = timezone.utc


def read(schema: dict[str, Any], *payloads: bytes, **how: Any) -> list[dict[str, Any]]:
    return rows_of(ValueFormat(name="json", **how), schema, *payloads)


# Type, values of a member that fit, with what they are, and values that do not.
FITTING: dict[Any, tuple[dict[str, Any], list[str]]] = {
    "integer": (
        {"1": 1, "-0": 0, "-2147483648": -(2**31), "null": None},
        ["1.0", "1e2", '"1"', "3000000000", "true", "{}", "[1]", "9" * 30, "9" * 2_000],
    ),
    "byte": ({"-128": -128}, ["128", "1.5"]),
    "long": ({"9223372036854775807": 2**63 - 1}, ["9223372036854775808", "NaN"]),
    "string": (
        {
            '"x"': "x",
            "1": "1",
            "1.10": "1.1",
            "1E5": "100000.0",
            "1e7": "1.0E7",
            "-123e-7": "-1.23E-5",
            "true": "true",
            "1e400": '"Infinity"',
            '{ "x" : 1.10 , "y":[ "é😀", 2 ]}': '{"x":1.1,"y":["é\\uD83D\\uDE00",2]}',
            r'"\ud800"': "?",
            r'"\u0000é\ud83d\ude00"': "\0é😀",
            "123456789012345678901234567890": "123456789012345678901234567890",
        },
        [],
    ),
    "double": (
        {"1": 1.0, "1.5": 1.5, '"Infinity"': float("inf"), "-1e400": float("-inf"), "1e-400": 0.0, "9" * 400: float("inf")},
        ['"1.5"', '"inf"', '""', "true"],
    ),
    "float": (
        {"1.1": 1.100000023841858, "1e39": float("inf"), "16777217": 16777216.0, "1.000000178813934215": 1.0000001192092896},
        ["[]"],
    ),
    "boolean": ({"true": True, "false": False}, ['"true"', "1"]),
    "decimal(5,2)": (
        {"1.5": Decimal("1.50"), '"1e2"': Decimal("100.00"), "1.555": Decimal("1.56"), "-1.565": Decimal("-1.57"), "1e-99999": Decimal("0.00")},
        ["12345.6", "999.995", '" 1"', '"1_0"', '""', "NaN", "1e1000000", "true"],
    ),
    "binary": ({'"AAEC"': b"\0\1\2", '""': b""}, ['"abc"', '"!!"', "1"]),
    "date": (
        {
            '"2020-01-01"': date(2020, 1, 1),
            '"2020-2"': date(2020, 2, 1),
            '" 2020 "': date(2020, 1, 1),
            '"2020-12-31 x"': date(2020, 12, 31),
            '"1582-10-10"': date(1582, 10, 10),
        },
        ['"2020-02-30"', '"2020-01-01x"', '"20200101"', '"202-01-01"', '"2020-001-01"', '""', "1", '"today"', '"99999999-01-01"'],
    ),
    "timestamp": (
        {
            '"2020-01-01T00:00:00Z"': datetime(2020, 1, 1, tzinfo=UTC),
            '"2020-1-1 1:2"': datetime(2020, 1, 1, 1, 2, tzinfo=UTC),
            '"2020-01-01 12"': datetime(2020, 1, 1, 12, tzinfo=UTC),
            '"2020-01-01T00:00:00.1234567 +01:0"': datetime(2019, 12, 31, 23, 0, 0, 123456, tzinfo=UTC),
            '"2020-01-01T00:00:00 Europe/Berlin"': datetime(2019, 12, 31, 23, tzinfo=UTC),
            '"2020-01-01T00:00:00UTC+01:00:30"': datetime(2019, 12, 31, 22, 59, 30, tzinfo=UTC),
            '"2020-01-01T00:00:00-1800"': datetime(2020, 1, 1, 18, tzinfo=UTC),
            '"2020-01-01T00:00:00."': datetime(2020, 1, 1, tzinfo=UTC),
            "1577836800": datetime(2020, 1, 1, tzinfo=UTC),
        },
        [
            '"2020-01-01T00:00Z"', '"2020-01-01Z"', '"2020-01-01T24:00:00"', '"2020-01-01T00:00:00+19:00"', '"2020-01-01T00:00:00z"',
            '"2020-01-01T"', '"2020-01-01  00:00:00"', '"2020-01-01T00:00:00.12x"', '"12:30"', '"294248-01-10T04:00:54"', '"now"', "1.5",
            '"2020-01-01T00:00:00 ../UTC"', "99999999999999999999",
        ],
    ),
    "timestamp_ntz": ({'"2020-01-01T00:00:00.5"': datetime(2020, 1, 1, 0, 0, 0, 500000, UTC).replace(tzinfo=None)}, ['"2020-01-01T00:00:00Z"', "1577836800"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", FITTING)
def test_a_member_is_read_as_spark_reads_it(kind: str) -> None:
    fits, misfits = FITTING[kind]
    schema = struct(v=kind, w="integer", _corrupt_record="string")
    good = [f'{{"w":7,"v":{value}}}'.encode() for value in fits]
    bad = [f'{{"v":{value},"w":7}}'.encode() for value in misfits]
    expected = [{"v": value, "w": 7, "_corrupt_record": None} for value in fits.values()]
    assert read(schema, *good) == expected
    assert [read(schema, one) for one in good] == [[one] for one in expected], "beside others, or alone"
    assert read(schema, *bad) == [{"v": None, "w": 7, "_corrupt_record": one.decode()} for one in bad]


S = struct(x="integer", y="string")


@pytest.mark.parametrize(
    ("value", "expected", "fits"),
    [
        ('{"s":{"x":1,"y":"a","z":1}}', {"s": {"x": 1, "y": "a"}}, True),
        ('{"s":{"x":"bad","y":"a"},"l":[1,null]}', {"s": {"x": None, "y": "a"}, "l": [1, None]}, False),
        ('{"s":{}}', {"s": {"x": None, "y": None}}, True),
        ('{"s":[{"x":1}]}', {}, False),
        ('{"l":[1,"x"],"s":{"x":1}}', {"s": {"x": 1, "y": None}}, False),
        ('{"l":{}}', {}, False),
        ('{"l":[]}', {"l": []}, True),
        ('{"m":{"a":1,"a":2,"b":null}}', {"m": [("a", 2), ("b", None)]}, True),
        ('{"m":{"a":"x","b":2}}', {}, False),
        ('{"ls":[{"x":1},null,{"x":"q","y":"r"}]}', {"ls": [{"x": 1, "y": None}, None, {"x": None, "y": "r"}]}, False),
    ],
)  # fmt: skip
def test_a_nested_value_keeps_what_fits(value: str, expected: dict[str, Any], fits: bool) -> None:
    schema = struct(s=S, l=INTS, m=mapped("integer"), ls=many(S), _corrupt_record="string")
    (row,) = read(schema, value.encode())
    assert row == {**dict.fromkeys("slm"), "ls": None, **expected, "_corrupt_record": None if fits else value}


@pytest.mark.parametrize(
    ("payload", "a", "is_malformed"),
    [
        (b'{"a":1}{"a":2}', 1, False),
        (b'{"a":1} garbage', 1, False),
        (b' \n{"a":1}\n ', 1, False),
        (b'{"a":1,"a":2}', 2, False),
        (b'{"\\u0061":7}', 7, False),
        (b'{"x":"\xff","a":1}', 1, False),
        (b'{"A":1}', None, False),
        (b"", None, False),
        (b" \n", None, False),
        (b'{"a":1', None, True),
        (b'{"a":1,}', None, True),
        (b'{"a":01}', None, True),
        (b'{"a":1,"x":nul}', None, True),
        (b'{"a":1,"x":Inf}', None, True),
        (b'{"a":1,"x":"\t"}', None, True),
        (b'\xef\xbb\xbf{"a":1}', None, True),
        (b"null", None, True),
        (b'[{"a":1}]', None, True),
        (b'"x"', None, True),
    ],
)
def test_a_payload_is_read_as_spark_reads_it(payload: bytes, a: int | None, is_malformed: bool) -> None:
    schema = struct(a="integer", _corrupt_record="string")
    corrupt = payload.decode("utf-8", "replace") if is_malformed else None
    expected = {"a": a, "_corrupt_record": corrupt}
    assert read(schema, payload) == [expected]
    other = {"a": 5, "_corrupt_record": None}
    assert read(schema, b'{"a":5}', payload, b'{"a":5}') == [other, expected, other]


def test_pieces_of_values_do_not_move_to_other_records() -> None:
    """As many values as records, but not one of each."""
    schema = struct(a="integer", _sequence_number="string")
    parts = [b'{"a":0}\n{"a":1}', b"", b'{"a":2', b"}", b'{"a":3}{"a":4}', b'{"a":5} {"a":6}', b'{"a":7}']
    assert [(row["_sequence_number"], row["a"]) for row in read(schema, *parts)] == list(
        zip("0123456", [0, None, None, None, 3, 5, 7], strict=True)
    )


def test_columns_of_the_record_keep_their_rows() -> None:
    schema = struct(_sequence_number="string", a="integer", _data="binary", _shard_id="string")
    payloads = [b'{"a":%d}' % number if number % 3 else b"?" for number in range(100)]
    for row in read(schema, *payloads, mode="DROPMALFORMED"):
        number = int(row["_sequence_number"])
        assert row["a"] == number
        assert row["_data"] == payloads[number]
        assert number % 3
    kept = read(schema, *payloads, mode="DROPMALFORMED")
    assert len(kept) == 66
    assert len(read(schema, *payloads)) == 100


def test_failfast_names_the_record_and_not_its_value() -> None:
    with pytest.raises(MalformedValueError) as caught:
        read(struct(a="integer"), b'{"a":1}', b'{"a":"secret"}', mode="FAILFAST")
    assert caught.value.sequence_number == "1"
    assert "shardId-000000000000, sequence number 1, is malformed: field a: text is no int" in str(
        caught.value
    )
    assert "secret" not in str(caught.value)


def test_malformed_values_are_counted() -> None:
    for mode, words in (("PERMISSIVE", "returned with null fields"), ("DROPMALFORMED", "dropped")):
        task = TypedRows(ValueFormat(name="json", mode=mode), struct(a="integer")).begin()
        assert task.report() is None
        assert len(list(task.shape(raw([b"?", b'{"a":"x"}'])))) == (mode == "PERMISSIVE")
        assert task.malformed == 2
        assert words in str(task.report())


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (struct(_shard_id="string"), "at least one column"),
        (struct(a="integer", _shardId="string"), "_shard_id"),
        (struct(a="integer", _arrival="string"), "column _arrival"),
        (struct(a="variant"), "column a"),
        (struct(a=mapped("integer") | {"keyType": "integer"}), "a map with text as keys"),
        (struct(a=struct(b=many("interval day to second"))), "column a.b"),
        (struct(a="integer", _corrupt_record="binary"), "column _corrupt_record"),
        (
            {"type": "struct", "fields": [{"name": "a", "type": "integer", "nullable": False}]},
            "a nullable column",
        ),
    ],
)
def test_a_schema_that_cannot_be_read_is_refused(schema: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        TypedRows(ValueFormat(name="json"), schema)


def test_local_times_are_those_of_the_time_zone() -> None:
    """The clocks of Berlin skip 02:30 on 29 March 2020, and show it twice on 25 October."""
    schema = struct(v="timestamp")
    for local, hour in (
        ("2020-01-01 02:30", 1),
        ("2020-03-29 02:30", 1),
        ("2020-10-25 02:30", 0),
        ("2020-07-01 02:30", 0),
    ):
        (row,) = read(schema, json.dumps({"v": local}).encode(), zone="Europe/Berlin")
        assert (row["v"].hour, row["v"].minute) == (hour, 30), local


# ------------------------------------------------------------------ whole columns and single values agree


ANY = struct(
    i="integer", b="string", d="double", f="float", o="boolean", c="decimal(5,2)", dt="date", ts="timestamp", n="timestamp_ntz",
    st=struct(x="integer", z="timestamp"), l=INTS, ls=many(struct(x="double", d="date")), ll=many(many("string")), _corrupt_record="string",
)  # fmt: skip
_COMMON = {
    "i": "7", "b": '"x"', "d": "1.25", "f": "0.1", "o": "true", "c": "1.25", "dt": '"2020-05-06"', "ts": '"2020-01-01T00:00:00Z"',
    "n": '"2020-01-01 01:02:03"', "st": '{"x":1,"z":"2020-01-01T00:00:00+01:00"}', "l": "[1,2,null]", "ls": '[{"x":1,"d":"2020-01-01"},null]',
    "ll": '[["a"],[],null]', "zz": '{"a":[1]}',
}  # fmt: skip
_RARE = [
    "-0", "2147483648", "-0.0", "1e400", "NaN", "Infinity", "-Inf", "-NaN", "1e39", "99.995", '"1.5"', '""', '"}\\n{"', '"é"', "null", "[]", "{}",
    '"0000-01-01"', '"1850-01-01 02:30"', '"2020-10-25 02:30"', '"2020-03-29T02:30:00"', '"2020-01-01T00:00:00+17:99"', '"2020-01-01 02Z"',
    '{"x":"q"}', "[[1]]", '"Infinity"', "1e5",
]  # fmt: skip
_INSERTED = [b"{", b"}", b"[", b'"', b",", b"\n", b" null ", b"\xff", b"\0", b"}\n{", b"-", b"\\", b"\\ud800", b"NaN", b" Inf"]  # fmt: skip


def _document(rng: Random) -> bytes:
    chosen = rng.sample(sorted(_COMMON), rng.randrange(1, 7))
    members = [f'"{name}":{_COMMON[name] if rng.random() < 0.95 else rng.choice(_RARE)}' for name in chosen]
    document = bytearray(("{" + rng.choice([",", " , "]).join(members) + "}").encode())
    if rng.random() < 0.1:
        place = rng.randrange(len(document) + 1)
        document[place : place + rng.randrange(2)] = rng.choice(_INSERTED)
    return bytes(document)


@pytest.mark.fuzz
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
@pytest.mark.parametrize("seed", fuzz.seeds(unit=1, fuzz=10))
def test_whole_columns_are_what_single_values_are(seed: int, zone: str) -> None:
    """Otherwise a value would depend on its neighbours, which differ when a batch is read again."""
    rng = Random(seed)
    whole = TypedRows(ValueFormat(name="json", zone=zone), ANY).begin()
    single = TypedRows(ValueFormat(name="json", zone=zone), ANY).begin()
    single._parser = OneByOne(single._parser)
    taken = 0
    for _ in range(fuzz.how_many(unit=20, fuzz=1_000)):
        batch = raw([_document(rng) for _ in range(rng.choice([1, 1, 2, 5]))])
        taken += whole._parser.columns(batch.column("data")) is not None
        (one,), (other,) = whole.shape(batch), single.shape(batch)
        assert text_of(one) == text_of(other), batch.to_pylist()
    assert taken > 2
    assert whole.malformed == single.malformed


# ------------------------------------------------------------------ bounds


def test_a_bad_value_costs_its_neighbours_only(monkeypatch: pytest.MonkeyPatch) -> None:
    task = TypedRows(ValueFormat(name="json"), struct(a="integer")).begin()
    exact: list[bytes] = []
    row = task._parser.row

    def noted(payload: bytes) -> Any:
        exact.append(payload)
        return row(payload)

    monkeypatch.setattr(task._parser, "row", noted)
    payloads = [b'{"a":%d}' % number for number in range(3_000)]
    payloads[1_500] = b"?"
    assert [row["a"] for batch in task.shape(raw(payloads)) for row in batch.to_pylist()] == [
        None if number == 1_500 else number for number in range(3_000)
    ]
    assert len(exact) == 32


@pytest.mark.parametrize("opener", ["[", '{"x":'])
def test_levels_and_values_are_bounded(opener: str, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = struct(a="integer", _corrupt_record="string")
    closer = "]" if opener == "[" else "}"
    for depth, fits in ((400, True), (600, False), (100_000, False)):
        middle = "1" if opener != "[" else ""
        payload = f'{{"x":{opener * depth}{middle}{closer * depth},"a":1}}'.encode()
        for row in (read(schema, payload)[0], read(schema, payload, b"?")[0]):
            assert (row["a"], row["_corrupt_record"] is None) == ((1, True) if fits else (None, False))
    task = TypedRows(ValueFormat(name="json"), schema).begin()
    assert next(task.shape(raw([opener.encode() * 50_000]))).to_pylist()[0]["a"] is None
    monkeypatch.setattr(json_values, "MAX_VALUES", 1_000)
    payload = b'{"x":[%s1],"a":1}' % (b"1," * 1_000)
    assert read(schema, payload) == [{"a": None, "_corrupt_record": payload.decode()}]


def test_batches_of_wide_rows_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two bytes of JSON become a row of a hundred columns, and an element of an array a hundred."""
    monkeypatch.setattr(rows, "MAX_BYTES", 100_000)
    wide = struct(**{f"f{number}": "long" for number in range(100)})
    for schema, payload in ((wide, b"{}"), (struct(a=many(wide)), b'{"a":[{},{},{}]}')):
        task: TypingTask = TypedRows(ValueFormat(name="json"), schema).begin()
        found = list(task.shape(raw([payload] * 200)))
        assert sum(batch.num_rows for batch in found) == 200
        assert max(batch.nbytes for batch in found) <= 100_000
        assert all(batch.num_rows > 0 for batch in found)


# ------------------------------------------------------------------ columns as text


def test_columns_are_read_as_sql_writes_them() -> None:
    text = (
        "id BIGINT, `an odd ``name` decimal(9, 2), t: timestamp_ntz, tags array<String>, m MAP<STRING, INT>, "
        "s STRUCT<a: INT, b STRUCT<c DOUBLE>>, n numeric"
    )
    schema = ddl.schema_of(text, "columns")
    assert [(field["name"], field["type"]) for field in schema["fields"]] == [
        ("id", "long"),
        ("an odd `name", "decimal(9,2)"),
        ("t", "timestamp_ntz"),
        ("tags", many("string")),
        ("m", mapped("integer")),
        ("s", {"type": "struct", "fields": [
            {"name": "a", "type": "integer", "nullable": True, "metadata": {}},
            {"name": "b", "type": {"type": "struct", "fields": [{"name": "c", "type": "double", "nullable": True, "metadata": {}}]},
             "nullable": True, "metadata": {}},
        ]}),
        ("n", "decimal(10,0)"),
    ]  # fmt: skip
    assert ddl.schema_of(ddl.ddl_of(schema), "columns") == schema
    assert ddl.ddl_of(schema).startswith(
        "id BIGINT, `an odd ``name` DECIMAL(9,2), t TIMESTAMP_NTZ, tags ARRAY<STRING>"
    )


@pytest.mark.parametrize(
    "text",
    ["", "id", "id BIGINT,", "id BIGINT name", "id VARIANT", "a ARRAY<INT", "a DECIMAL(39)", "1 INT", "a INT; b", "a " + "ARRAY<" * 5_000 + "INT"],
)  # fmt: skip
def test_text_without_columns_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="columns"):
        ddl.schema_of(text, "columns")


def test_columns_are_inferred_from_a_sample() -> None:
    text = '{"id":2,"x":"q","s":{"b":{}},"l":[],"n":null,"o":"t","big":9223372036854775808}'
    sample: list[bytes | str] = [
        b'{"id":1,"x":1,"s":{"a":true},"l":[1,2.5],"n":null,"o":"t","odd name":[]}',
        text,
        b"?",
        b"",
    ]
    columns = infer_columns(sample)
    assert columns == (
        "big DOUBLE, id BIGINT, l ARRAY<DOUBLE>, n STRING, o STRING, `odd name` ARRAY<STRING>, s STRUCT<a: BOOLEAN, b: STRING>, x STRING"
    )
    (row,) = read(ddl.schema_of(columns, "columns"), text.encode())
    assert (row["id"], row["x"], row["s"]) == (2, "q", {"a": None, "b": "{}"})
    with pytest.raises(ConfigError, match="a JSON object"):
        infer_columns([b"?", b"{}"])
    with pytest.raises(ConfigError, match="at most 10,000"):
        infer_columns(json.dumps({f"{number}-{part}": 1 for part in range(6_000)}) for number in range(2))


@pytest.mark.parametrize("text", ["17e36", '"34e30"', "34e36", "9" * 39, "[0, 99e28]"])
def test_decimals_that_wrap_in_arrow_are_malformed(text: str) -> None:
    kind = many("decimal(38,10)") if text.startswith("[") else "decimal(38,10)"
    rows = rows_of(ValueFormat(name="json"), struct(v=kind), b'{"v":null}', f'{{"v":{text}}}'.encode())
    assert [row["v"] for row in rows] == [None, None]
