from __future__ import annotations

from pathlib import Path
from typing import Any

from integration.endtoend.worker_process import Journal
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer import RecordBatch
from kinesis_sdk.testing.accounting.delivery_log import LineWriter
from kinesis_sdk.testing.flights import load_flights, make_payload

FLIGHTS = load_flights()


def record(number: int, data: bytes | None = None, key: str | None = None) -> UserRecord:
    flight = FLIGHTS[number % len(FLIGHTS)]
    payload = make_payload("run1", number, flight) if data is None else data
    return UserRecord(payload, key or flight.origin, "100", None, None, number, None, True)


def batch(*records: UserRecord, checkpointer: Any = None) -> RecordBatch:
    return RecordBatch(
        records=list(records),
        shard_id="s0",
        stream=StreamId.parse("orders"),
        checkpointer=checkpointer,
    )


def test_a_worker_compares_what_it_gets_with_what_was_put(tmp_path: Path) -> None:
    journal = Journal(LineWriter(tmp_path / "log"), "run1", checkpoint_every=0.0)
    good = record(5)
    assert journal.wrong(batch(good)) == []
    assert journal.wrong(batch(record(5, data=good.data[:-1] + b"]"))) == ["5 of s0"]
    assert journal.wrong(batch(record(5, key="XXX"))) == ["5 of s0"]
    assert journal.wrong(batch(record(5, data=b"somebody else's"))) == []
