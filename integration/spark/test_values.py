"""Values parsed by the reader: the same rows as Spark's own functions make of the same values, in all modes, streams and SQL."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 — Spark's habit

from integration.spark.harness import aggregate_entry, assert_same_rows

ROWS = 100_000
DDL = (
    "i INT, l BIGINT, s SMALLINT, b STRING, d DOUBLE, f FLOAT, o BOOLEAN, c DECIMAL(9,3), dt DATE, ts TIMESTAMP, n TIMESTAMP_NTZ, "
    "st STRUCT<x: INT, z: TIMESTAMP, w: STRUCT<q: STRING>>, a ARRAY<INT>, sa ARRAY<STRUCT<x: DOUBLE, d: DATE>>, _corrupt_record STRING"
)


class Documents(Random):
    """Random documents.

    Attributes:
        rare: Whether there are malformed ones and rare forms among them.
    """

    rare = True


def _moment(rng: Documents, name: str) -> str:
    day = f"{rng.randrange(1900, 2100):04d}-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}"
    clock = f"{day}T{rng.randrange(24):02d}:{rng.randrange(60):02d}"
    if not rng.rare or rng.random() < 0.9:
        return day if name == "dt" else f"{clock}:{rng.randrange(60):02d}" + ("Z" if name == "ts" else "")
    local = [day, f"{clock}", f"{clock}:5.25", day[:7], f"{day[:-2]}1 1:2"]
    zoned = [
        f"{clock}:00+01:00",
        f"{clock}:07-0530",
        f"{clock}:00.123456 Europe/Berlin",
        f"{clock}Z",
        f"{day}x",
        "",
    ]
    return rng.choice(local + (zoned if name != "n" or rng.random() < 0.2 else []))


def _value(rng: Documents, name: str, depth: int = 0) -> str:
    """Return JSON that mostly fits the column of this name."""
    chance = rng.random() if rng.rare else 1.0
    if chance < 0.004:
        name = rng.choice(["i", "b", "d", "o", "ts", "a", "st"])
    elif chance < 0.02:
        return "null"
    if name in {"i", "l", "s", "x"}:
        return str(
            rng.choice(
                [
                    0,
                    rng.randrange(-128, 128),
                    rng.randrange(-32_768, 32_768),
                    rng.randrange(-(2**62), 2**62) if name == "l" else 7,
                ]
            )
        )
    if name in {"d", "f"}:
        return rng.choice(
            [
                str(rng.randrange(1000)),
                repr(rng.uniform(-1e6, 1e6)),
                "1.5e3",
                repr(rng.uniform(-1, 1) * 10.0 ** rng.randrange(-40, 39)),
            ]
        )
    if name == "c":
        return rng.choice(
            [
                str(rng.randrange(1000)),
                f"{rng.uniform(-100, 100):.{rng.randrange(8 if rng.rare else 4)}f}",
                "1.5e3",
                '"2.0625"' if rng.rare else "0",
            ]
        )
    if name in {"dt", "ts", "n", "z"}:
        return json.dumps(_moment(rng, "ts" if name == "z" else name))
    if name == "o":
        return rng.choice(["true", "false"])
    if name == "st":
        return f'{{"x":{_value(rng, "x")},"z":{_value(rng, "z")},"w":{{"q":{_value(rng, "b")}}},"other":[1,{{}}]}}'
    if name == "a" and depth < 3:
        return "[" + ",".join(_value(rng, "i", depth + 1) for _ in range(rng.randrange(4))) + "]"
    if name == "sa":
        elements = [
            f'{{"x":{_value(rng, "d")},"d":"2020-01-0{number + 1}"}}' for number in range(rng.randrange(3))
        ]
        return "[" + ",".join(elements) + "]"
    return json.dumps(
        rng.choice(["", "x", "é€😀", 'a"b\\c\n', "{}", "one", "}\n{"]), ensure_ascii=rng.random() < 0.5
    )


def document(rng: Documents) -> bytes:
    names = ["i", "l", "s", "b", "d", "f", "o", "c", "dt", "ts", "n", "st", "a", "sa", "other"]
    if rng.random() < 0.2:
        names = rng.sample(names, rng.randrange(len(names)))
    text = "{" + ",".join(f'"{name}":{_value(rng, name)}' for name in names) + "}"
    if rng.rare and rng.random() < 0.01:
        text = rng.choice([text[:-1], "", "null", "[1]", f"{text} x", f" {text}\n", f"{text}{text}"])
    return text.encode()


def test_rows_are_those_of_from_json(spark: Any, stream: Any) -> None:
    orders = stream(2)
    rng = Documents(31)
    for begin in range(0, ROWS, 1_000):
        rng.rare = begin % 2_000 == 0
        documents = [document(rng) for _ in range(min(1_000, ROWS - begin))]
        orders.put_entries([aggregate_entry(documents, f"key-{begin}")])
    reader = spark.read.format("kinesis_sdk").options(**orders.options())
    raw = reader.schema("data binary").load()
    from_json = F.from_json(
        F.col("data").cast("string"), DDL, {"columnNameOfCorruptRecord": "_corrupt_record"}
    )
    expected = raw.select(from_json.alias("v")).select("v.*")
    found = reader.schema(DDL).option("valueFormat", "json").load()
    malformed = assert_same_rows(found, expected, ROWS)
    assert ROWS * 0.03 < malformed < ROWS * 0.2


def csv_text(rng: Documents, name: str) -> str:
    """Return text that mostly fits the column of this name."""
    chance = rng.random() if rng.rare else 1.0
    if chance < 0.004:
        name = rng.choice(["i", "b", "d", "o", "ts"])
    elif chance < 0.012:
        return rng.choice(
            [
                "",
                "",
                '""',
                " 1",
                "1 ",
                "+5",
                "-",
                ".",
                "1.",
                ".5",
                "-0",
                "-0.0",
                "NaN",
                "Inf",
                "-Infinity",
                "TRUE",
                "1e400",
                "2f",
            ]
        )
    if name == "b":
        texts = [
            "x",
            "é€😀",
            "a b",
            " a ",
            'a"b',
            "\\n",
            "one",
            '"a,b"',
            '"a\\"b"',
            '"\\\\"',
            '"two\nlines"',
            '"x" ',
        ]
        return rng.choice(texts if rng.rare else texts[:7])
    if name in {"dt", "ts", "n"}:
        return _moment(rng, name)
    while True:
        text = _value(rng, name).strip('"')
        if text != "null" and '"' not in text:
            return text


def line(rng: Documents) -> bytes:
    fields = [csv_text(rng, name) for name in ("i", "l", "s", "b", "d", "f", "o", "c", "dt", "ts", "n", "b")]
    text = ",".join(fields)
    if rng.rare and rng.random() < 0.01:
        text = rng.choice([text + ",", text + ",x", ",".join(fields[:-1]), "", f"\n{text}"])
    return text.encode()


@pytest.mark.parametrize("count", [10_000, pytest.param(ROWS, marks=pytest.mark.full)])
def test_rows_are_those_of_from_csv(spark: Any, stream: Any, count: int) -> None:
    orders = stream(2)
    rng = Documents(32)
    for begin in range(0, count, 1_000):
        rng.rare = begin % 2_000 == 0
        orders.put_entries([aggregate_entry([line(rng) for _ in range(1_000)], f"key-{begin}")])
    reader = spark.read.format("kinesis_sdk").options(**orders.options())
    columns = (
        "i INT, l BIGINT, s SMALLINT, b STRING, d DOUBLE, f FLOAT, o BOOLEAN, c DECIMAL(9,3), dt DATE, ts TIMESTAMP, n TIMESTAMP_NTZ, e STRING, "
        "_corrupt_record STRING"
    )
    from_csv = F.from_csv(
        F.col("data").cast("string"), columns, {"columnNameOfCorruptRecord": "_corrupt_record"}
    )
    expected = reader.schema("data binary").load().select(from_csv.alias("v")).select("v.*")
    found = reader.schema(columns).option("valueFormat", "csv").load()
    malformed = assert_same_rows(found, expected, count)
    assert count * 0.01 < malformed < count * 0.2


@pytest.mark.core
def test_streams_and_views_parse_values(spark: Any, stream: Any, folder: Path) -> None:
    orders = stream(2)
    for number in range(50):
        orders.put(
            b'{"id":%d,"origin":"%s"}' % (number, b"AB"[number % 2 : number % 2 + 1]), key=f"key-{number}"
        )
    options = ", ".join(f"{name} '{value}'" for name, value in orders.options(valueFormat="json").items())
    spark.sql(f"CREATE TEMPORARY VIEW typed (id BIGINT, origin STRING) USING kinesis_sdk OPTIONS ({options})")
    assert [
        tuple(row)
        for row in spark.sql("SELECT origin, sum(id) FROM typed GROUP BY origin ORDER BY 1").collect()
    ] == [
        ("A", 600),
        ("B", 625),
    ]
    spark.sql("DROP VIEW typed")
    query = (
        spark.readStream.schema("id BIGINT, _arrival TIMESTAMP")
        .format("kinesis_sdk")
        .options(**orders.reader_options(valueFormat="json"))
        .load()
        .filter("id >= 10")
        .writeStream.format("memory")
        .queryName("typed_rows")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(600)
    assert sorted(row.id for row in spark.table("typed_rows").collect()) == list(range(10, 50))
