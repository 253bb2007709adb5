from __future__ import annotations

from pathlib import Path
from typing import Any

from integration.endtoend.logs import ProducerLog, WorkerLog
from integration.endtoend.recorded_events import STRIDE, ProducerRun, RecordedEvents, WorkerRun
from integration.endtoend.worker_process import Journal
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer import RecordBatch
from kinesis_sdk.testing.accounting.delivery_log import LineWriter
from kinesis_sdk.testing.accounting.verify import Put
from kinesis_sdk.testing.flights import load_flights, make_payload

FLIGHTS = load_flights()


def record(number: int, data: bytes | None = None, key: str | None = None) -> UserRecord:
    flight = FLIGHTS[number % len(FLIGHTS)]
    payload = make_payload("run1", number, flight) if data is None else data
    return UserRecord(payload, key or flight.origin, "100", None, None, number, None, True)


class Checkpointer:
    """Stores whatever it is told to."""

    def __init__(self) -> None:
        self.largest_delivered = ExtendedSequenceNumber("100", 7)
        self.last_checkpoint = ExtendedSequenceNumber("100", 7)
        self.calls = 0

    def checkpoint(self) -> None:
        self.calls += 1


def batch(*records: UserRecord, checkpointer: Any = None) -> RecordBatch:
    return RecordBatch(
        records=list(records),
        shard_id="s0",
        stream=StreamId.parse("orders"),
        checkpointer=checkpointer,
    )


def test_what_a_producer_wrote(tmp_path: Path) -> None:
    log, recorded = LineWriter(tmp_path / "log"), RecordedEvents()
    run = ProducerRun("p", STRIDE)
    reader = ProducerLog(tmp_path / "log", run, recorded, FLIGHTS)
    number = STRIDE + 20_003
    stored = {
        "n": number,
        "p": 5.0,
        "a": 0.1,
        "s": "s0",
        "q": "100",
        "b": 2,
        "t": 3,
        "c": ["Wrong Shard", "x"],
    }
    log.write({"put": 1})
    log.write(stored)
    log.write({"n": number + 1, "p": 6.0, "t": 4, "failed": "Expired"})
    log.write({**stored, "n": number + 2, "c": ["x"]})
    reader.read()
    assert (reader.put, run.count) == (1, None)
    origin, following, last = (FLIGHTS[(number + one) % 20_000].origin for one in (0, 1, 2))
    assert recorded.puts == {
        number: Put(origin, 5.0, (100, 2), "s0", 3, 0.1),
        number + 1: Put(following, 6.0, None, "", 4, 0.0),
        number + 2: Put(last, 5.0, (100, 2), "s0", 3, 0.1),
    }
    assert recorded.moved == {number}
    assert recorded.retries == {"Wrong Shard": 1, "x": 2}
    log.write({"count": 2})
    reader.read()
    assert (reader.put, run.count) == (2, 2)


def test_what_a_worker_wrote_by_its_own_handler(tmp_path: Path) -> None:
    recorded, run = RecordedEvents(), WorkerRun("w")
    reader = WorkerLog(tmp_path / "log", run, recorded)
    journal = Journal(LineWriter(tmp_path / "log"), "run1", checkpoint_every=0.0)
    reader.read()
    assert not reader.has_started
    checkpointer: Any = Checkpointer()
    handler = journal.make()

    class Shard:
        shard_id = "s0"
        checkpoint = ExtendedSequenceNumber("TRIM_HORIZON")

    handler.initialize(Shard())  # type: ignore[arg-type]
    handler.process_records(batch(record(6), record(7), checkpointer=checkpointer))
    journal.log.write({"leases": 1})
    reader.read()
    assert reader.has_started
    assert reader.processed == {6, 7}
    assert [(d.number, d.worker, d.shard_id, d.position, d.acquisition) for d in recorded.deliveries] == [
        (6, "w", "s0", (100, 6), 1),
        (7, "w", "s0", (100, 7), 1),
    ]
    held = recorded.acquisitions["w", 1]
    assert (held.shard_id, held.start, held.failures) == ("s0", ExtendedSequenceNumber("TRIM_HORIZON"), [])
    assert [position for _, position in held.checkpoints] == [ExtendedSequenceNumber("100", 7)]
    assert recorded.deliveries[0].at <= held.checkpoints[0][0]


def test_a_worker_compares_what_it_gets_with_what_was_put(tmp_path: Path) -> None:
    journal = Journal(LineWriter(tmp_path / "log"), "run1", checkpoint_every=0.0)
    good = record(5)
    assert journal.wrong(batch(good)) == []
    assert journal.wrong(batch(record(5, data=good.data[:-1] + b"]"))) == ["5 of s0"]
    assert journal.wrong(batch(record(5, key="XXX"))) == ["5 of s0"]
    assert journal.wrong(batch(record(5, data=b"somebody else's"))) == []
