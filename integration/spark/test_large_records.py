"""Records that could become gigabytes: in a real query each is delivered by rule, and no process grows with it.

An aggregate contains a partition key once for all its user records, and Arrow writes it out for each row. So 1 MiB on the
stream can stand for terabytes of rows. `kinesis_sdk.spark.arrow` documents what is delivered.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from hashlib import md5
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from integration.spark.conftest import ACCOUNT
from integration.spark.driver import running
from integration.spark.harness import Endpoint, TestStream, wait_for
from kinesis_sdk.common.aggregate_reader import DIGEST_SIZE, MAGIC
from kinesis_sdk.spark.source import HAS_ADMISSION_CONTROL
from kinesis_sdk.testing import start_server_process

MIB = 1024 * 1024
LARGEST = 10 * MIB
"""Bytes of the largest record that a stream can be made to accept (UpdateMaxRecordSize)."""

SHARDS = 8
"""As many as a task reads at the same time, so that one Python worker meets several of these records at once."""

WORKER_LIMIT = 900 * MIB
"""Maximum resident memory of a Python worker: two pages of 10 MiB that are being read, seven that wait, and the conversion of
a record of 10 MiB into a million rows."""

JVM_LIMIT = 2_560 * MIB
"""Maximum resident memory of the JVM with a heap of 1 GiB; it may allocate as much again for Arrow outside of the heap."""


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _seal(body: bytes) -> bytes:
    return MAGIC + body + md5(body, usedforsecurity=False).digest()


class Case(NamedTuple):
    """A Kinesis record, and how it must be delivered.

    Attributes:
        name: Its partition key.
        data: What is put.
        rows: User records that it becomes; None if it is delivered as it is stored.
        key: Partition key of each user record.
        explicit: Explicit hash key of each user record.
    """

    name: str
    data: bytes
    rows: int | None = None
    key: str = ""
    explicit: str | None = None

    def expected(self) -> dict[str, Any]:
        """The summary of its rows; see `integration.spark.driver.SummarySink`."""
        if self.rows is None:
            return {
                "rows": 1,
                "subs": 0,
                "first": None,
                "last": None,
                "payloads": [_digest(self.data)] * 2,
                "keys": [_digest(self.name.encode())] * 2,
                "explicit": [None, None],
            }
        explicit = None if self.explicit is None else _digest(self.explicit.encode())
        return {
            "rows": self.rows,
            "subs": self.rows,
            "first": 0,
            "last": self.rows - 1,
            "payloads": [_digest(b"")] * 2,
            "keys": [_digest(self.key.encode())] * 2,
            "explicit": [explicit, explicit],
        }


def _digest(data: bytes) -> str:
    return md5(data, usedforsecurity=False).hexdigest()


def aggregate(
    name: str, key: bytes, explicit: bytes | None = None, *, size: int = MIB, delivered: bool
) -> Case:
    """An aggregate filled to ``size`` with empty user records, all with the same keys.

    Args:
        name: Name of the case.
        key: Partition key of each user record.
        explicit: Explicit hash key of each user record.
        size: Bytes of the Kinesis record, at most.
        delivered: Whether the user records are delivered, not the aggregate as it is stored.
    """
    table, fields = _field(1, key), b"\x08\x00"
    if explicit is not None:
        table, fields = table + _field(2, explicit), fields + b"\x10\x00"
    record = _field(3, fields + b"\x1a\x00")
    count = (size - len(name) - len(MAGIC) - DIGEST_SIZE - len(table)) // len(record)
    return Case(
        name,
        _seal(table + record * count),
        count if delivered else None,
        key.decode("utf-8", "replace"),
        None if explicit is None else explicit.decode(),
    )


def cases() -> Iterator[Case]:
    """Make the records one at a time."""
    smile = "\N{GRINNING FACE}".encode()
    yield aggregate("key-500B", b"k" * 500, delivered=True)
    yield aggregate("key-10kB", b"k" * 10_000, delivered=False)
    yield aggregate("key-500kB", b"k" * 500_000, delivered=False)
    yield aggregate("hash-500B", b"k", b"1" * 500, delivered=True)
    yield aggregate("hash-10kB", b"k", b"1" * 10_000, delivered=False)
    yield aggregate("hash-500kB", b"k", b"1" * 500_000, delivered=False)
    # As much as the rule lets through: 1 GB of rows from 1 MiB.
    yield aggregate("just-delivered", smile * 1_500, delivered=True)
    yield aggregate("not-utf-8", b"\xff" * 1_000, delivered=True)
    # Keys that Kinesis itself accepts are always delivered.
    yield aggregate("10MiB-of-rows", b"k" * 200, size=LARGEST, delivered=True)
    yield aggregate("10MiB-one-long-key", b"k" * 5_000_000, b"1", size=LARGEST, delivered=False)
    yield aggregate("10MiB-hash", b"k" * 300, b"1" * 300, size=LARGEST, delivered=False)
    # One row of 30 MB: each of these bytes becomes a character of three bytes.
    key = b"\xff" * (LARGEST - 100)
    yield Case(
        "10MiB-key",
        _seal(_field(1, key) + _field(3, b"\x08\x00\x1a\x00")),
        1,
        key.decode("utf-8", "replace"),
    )
    yield Case("10MiB-plain", b"p" * (LARGEST - len("10MiB-plain")))
    # User records without the fields that the format requires: not an aggregate.
    yield Case("500,000-empty", _seal(b"\x1a\x00" * 500_000))
    yield Case("5,000,000-empty", _seal(b"\x1a\x00" * 5_000_000))


def peak_memory(pids: list[int]) -> int:
    """Bytes of the largest resident size that any of these processes has had."""
    peaks = [0]
    for pid in pids:
        try:
            status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        except OSError:
            continue  # it has just ended
        peaks += [int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")]
    return max(peaks)


def read_summary(folder: Path) -> dict[str, dict[str, Any]]:
    """Each Kinesis record's summary, by sequence number."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.json")):
        for number, summary in json.loads(path.read_text()).items():
            assert number not in found, "a Kinesis record is never in two batches"
            found[number] = summary
    return found


@pytest.mark.core
def test_no_record_becomes_gigabytes_or_stops_the_query(folder: Path) -> None:
    os.environ.update(ACCOUNT)
    # Spark's own limit, which does not apply to our batches. One version runs with the default, the other with the extreme.
    rows_per_arrow_batch = "10000" if HAS_ADMISSION_CONTROL else "1"
    with start_server_process("--no-throttle") as server:
        orders = TestStream(Endpoint(server.endpoint_url, server), "large-records")
        kinesis = orders.kinesis
        kinesis.create_stream(StreamName=orders.name, ShardCount=SHARDS, MaxRecordSizeInKiB=LARGEST // 1024)
        orders.settle()
        expected: dict[str, dict[str, Any]] = {}
        names: dict[str, str] = {}

        def put(case: Case, shard: int) -> None:
            answer = kinesis.put_record(
                StreamName=orders.name,
                Data=case.data,
                PartitionKey=case.name,
                ExplicitHashKey=str((shard << 128) // SHARDS),
            )
            expected[answer["SequenceNumber"]] = case.expected()
            names[answer["SequenceNumber"]] = case.name

        for number, case in enumerate(cases()):
            for name in ("before-", "after-"):
                put(Case(f"{name}{case.name}", b"a good neighbour"), number % SHARDS)
                if name == "before-":
                    put(case, number % SHARDS)
        task = {
            "options": orders.reader_options(shardsPerTask=str(SHARDS)),
            "sink": str(folder / "sink"),
            "checkpoint": str(folder / "checkpoint"),
            "format": "summary",
            "master": "local[1,1]",
            "conf": {
                # Protects the machine: what a limit in `kinesis_sdk.spark.arrow` prevents may need 100 GB.
                "spark.executor.pyspark.memory": "3g",
                "spark.sql.execution.arrow.maxRecordsPerBatch": rows_per_arrow_batch,
            },
        }
        worker = jvm = 0
        with running(folder / "driver.log", **task) as driver:

            def is_read() -> bool:
                nonlocal worker, jvm
                driver.check()
                worker = max(worker, peak_memory(driver.family("-m pyspark.")))
                jvm = max(jvm, peak_memory(driver.family("org.apache.spark.deploy.SparkSubmit")))
                return len(read_summary(folder / "sink")) >= len(expected)

            wait_for(is_read, 400, "the delivery of every record")
        found = read_summary(folder / "sink")
    wrong = {names[number]: found.get(number) for number in expected if found.get(number) != expected[number]}
    assert not wrong
    assert found.keys() == expected.keys()
    print(f"  peak of a Python worker {worker / MIB:,.0f} MiB, of the JVM {jvm / MIB:,.0f} MiB")
    assert 50 * MIB < worker < WORKER_LIMIT
    assert 50 * MIB < jvm < JVM_LIMIT
