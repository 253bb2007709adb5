"""Per-record acknowledgement in a whole worker, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from kinesis_sdk import BisectBatch, ConsumerConfig, InMemorySink, RecordBatch
from kinesis_sdk.acknowledgement import Acknowledging, ReceivedRecord
from kinesis_sdk.acknowledgement.gaps import GapMap
from kinesis_sdk.common.errors import ConfigError, SinkError
from kinesis_sdk.common.records import position_of
from kinesis_sdk.common.sequence import ExtendedSequenceNumber

CONFIG = ConsumerConfig(initial_position="TRIM_HORIZON")


class Application:
    """Holds the records that it gets, until it is told to acknowledge them."""

    def __init__(self, stream: Any, worker: Any, **settings: Any) -> None:
        self.stream, self.make, self.settings = stream, worker, settings
        self.got: list[ReceivedRecord] = []
        self.leases: Any = None
        self.config = settings.pop("config", CONFIG)

    def start(self) -> Any:
        """Start a worker, as after the end of the one before."""
        self.got = []
        handler = Acknowledging(self.got.append, clock=self.stream.aws.clock, **self.settings)
        more = {} if self.leases is None else {"leases": self.leases}
        self.worker = self.make(handler, self.config, worker_id=f"worker-{id(handler)}", **more)
        return self.worker

    def run(self, seconds: float = 15) -> None:
        self.worker.run_for(seconds)
        self.leases = self.worker.leases

    def ack(self, *numbers: int) -> None:
        for received in self.got:
            if int(received.record.data) in numbers:
                received.ack()

    @property
    def numbers(self) -> list[int]:
        return [int(received.record.data) for received in self.got]

    def position(self, number: int) -> Any:
        """Return the position of a record."""
        (found,) = [record for record in self.stream.records if record.data == b"%d" % number]
        return position_of(found)

    @property
    def row(self) -> Any:
        (lease,) = self.leases.scan().leases
        return lease


@pytest.fixture
def application(kinesis_stream: Any, kinesis_worker: Any) -> Application:
    kinesis_stream.put("k", *(b"%d" % n for n in range(6)))
    made = Application(kinesis_stream, kinesis_worker)
    made.start()
    made.run()
    return made


def test_what_is_acknowledged_does_not_come_again_after_a_crash(application: Application) -> None:
    assert application.numbers == [0, 1, 2, 3, 4, 5]
    application.ack(4, 1, 5)
    application.run(5)
    application.start()  # the first worker ended without a word
    application.run()
    assert application.numbers == [0, 2, 3]
    application.ack(0)
    application.run(5)
    assert application.row.checkpoint == application.position(1)
    application.ack(2, 3)
    application.run(5)
    assert (application.row.checkpoint, application.row.pending_checkpoint_state) == (
        application.position(5),
        None,
    )
    application.start()
    application.stream.put("k", b"6")
    application.run()
    assert application.numbers == [6]


def test_a_clean_stop_stores_the_newest_acknowledgements(application: Application) -> None:
    application.ack(0, 2)
    application.worker.stop()
    application.start()
    application.run()
    assert application.numbers == [1, 3, 4, 5]


def test_a_bound_stops_the_reading_until_gaps_close(kinesis_stream: Any, kinesis_worker: Any) -> None:
    kinesis_stream.put("k", *(b"%d" % n for n in range(20)))
    application = Application(kinesis_stream, kinesis_worker, max_unacknowledged=3)
    application.start()
    application.run(45)
    assert application.numbers == [0, 1, 2]
    told = str(application.row.progress)
    assert "UnacknowledgedError: shard shardId-000000000000: 3 records" in told
    application.ack(1)
    application.run(35)
    assert application.numbers == [0, 1, 2, 3]
    for _ in range(8):
        application.ack(*range(20))
        application.run(35)
    assert application.numbers == list(range(20))
    assert application.row.checkpoint == application.position(19)


@pytest.mark.parametrize(
    "policy", ["stop", BisectBatch(dead_letter=lambda _: pytest.fail("not a dead letter"))]
)
def test_no_policy_sets_records_aside_or_stops_because_of_the_bound(
    kinesis_stream: Any, kinesis_worker: Any, policy: Any
) -> None:
    kinesis_stream.put("k", *(b"%d" % n for n in range(4)))
    config = ConsumerConfig(initial_position="TRIM_HORIZON", on_handler_error=policy)
    application = Application(kinesis_stream, kinesis_worker, max_unacknowledged=2, config=config)
    application.start()
    application.run(120)
    assert application.numbers == [0, 1]
    application.ack(0, 1)
    application.run(35)
    assert application.numbers == [0, 1, 2, 3]


def test_a_function_that_raises_gets_the_record_again_and_only_that(
    kinesis_stream: Any, kinesis_worker: Any
) -> None:
    calls: list[int] = []

    def handle(received: ReceivedRecord) -> None:
        calls.append(int(received.record.data))
        if calls == [0, 1]:
            raise ConnectionError("no database")
        if calls[-1] != 0:
            received.ack()

    kinesis_stream.put("k", b"0", b"1", b"2")
    worker = kinesis_worker(Acknowledging(handle, clock=kinesis_stream.aws.clock), CONFIG)
    worker.run_for(60)
    assert calls == [0, 1, 1, 2]


def test_at_the_bound_the_record_that_failed_comes_again(kinesis_stream: Any, kinesis_worker: Any) -> None:
    calls: list[int] = []

    def handle(received: ReceivedRecord) -> None:
        calls.append(int(received.record.data))
        if len(calls) == 1:
            raise ConnectionError("no database")
        received.ack()

    kinesis_stream.put("k", b"0", b"1")
    handler = Acknowledging(handle, max_unacknowledged=1, clock=kinesis_stream.aws.clock)
    kinesis_worker(handler, CONFIG).run_for(60)
    assert calls == [0, 0, 1]


@pytest.mark.parametrize("poison", [1, 3])
def test_a_record_that_is_set_aside_counts_as_acknowledged(
    kinesis_stream: Any, kinesis_worker: Any, poison: int
) -> None:
    dead: list[Any] = []

    def handle(received: ReceivedRecord) -> None:
        if int(received.record.data) == poison:
            raise ValueError("poison")
        received.ack()

    kinesis_stream.put("k", b"0", b"1", b"2", b"3")
    config = ConsumerConfig(
        initial_position="TRIM_HORIZON", on_handler_error=BisectBatch(dead_letter=dead.append)
    )
    worker = kinesis_worker(Acknowledging(handle, clock=kinesis_stream.aws.clock), config)
    worker.run_for(60)
    assert [int(one.record.data) for one in dead] == [poison]
    (lease,) = worker.leases.scan().leases
    assert (lease.checkpoint, lease.pending_checkpoint_state) == (
        position_of(kinesis_stream.records[3]),
        None,
    )


def test_a_shard_ends_when_its_last_record_is_acknowledged(application: Application) -> None:
    client = application.stream.client
    client.split_shard(
        StreamName=application.stream.name,
        ShardToSplit="shardId-000000000000",
        NewStartingHashKey=str(1 << 127),
    )
    application.ack(0, 1, 3, 4, 5)
    application.run(45)
    parent = application.leases.get("shardId-000000000000")
    assert parent.checkpoint == application.position(1)
    application.ack(2)
    application.run(45)
    assert application.leases.get("shardId-000000000000").checkpoint.sequence_number == "SHARD_END"


def test_a_rewind_makes_acknowledged_records_come_again(application: Application) -> None:
    application.ack(0, 1, 3)
    application.run(5)
    application.worker.stop()
    lease = application.row
    taken = application.leases.take(lease, "operator")
    application.leases.release(application.leases.checkpoint(taken, application.position(1)))
    application.start()
    application.run()
    assert application.numbers == [2, 3, 4, 5]


def test_a_state_that_cannot_be_read_is_said_and_not_used(
    application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    application.worker.stop()
    taken = application.leases.take(application.row, "operator")
    application.leases.release(
        application.leases.prepare(taken, taken.checkpoint, b"state of another application")
    )
    application.start()
    application.run()
    assert application.numbers == [0, 1, 2, 3, 4, 5]
    assert "not compressed JSON" in caplog.text


def test_a_quiet_shard_costs_no_write(application: Application) -> None:
    application.ack(0, 1, 2, 3, 4)
    application.run(10)
    state = application.row.pending_checkpoint_state
    calls = []
    store = application.worker.leases
    real = store.prepare, store.checkpoint
    store.prepare = lambda *given: calls.append(given) or real[0](*given)
    store.checkpoint = lambda *given: calls.append(given) or real[1](*given)
    application.run(45)
    assert calls == []
    assert application.row.pending_checkpoint_state == state


def test_a_worker_that_checkpoints_by_itself_passes_no_gap(kinesis_stream: Any, kinesis_worker: Any) -> None:
    kinesis_stream.put("k", *(b"%d" % n for n in range(4)))
    config = ConsumerConfig(initial_position="TRIM_HORIZON", auto_checkpoint=True)
    application = Application(kinesis_stream, kinesis_worker, config=config)
    application.start()
    application.run(45)
    application.ack(0, 2, 3)
    application.run(45)
    assert application.row.checkpoint <= application.position(0)
    application.start()
    application.run()
    assert 1 in application.numbers
    application.ack(0, 1, 2, 3)
    application.worker.stop()
    application.start()
    application.run()
    assert application.numbers == []


def test_a_sink_beside_it_stops_the_worker_before_anything_is_skipped(
    kinesis_stream: Any, kinesis_worker: Any
) -> None:
    kinesis_stream.put("k", b"0")
    got: list[ReceivedRecord] = []
    worker = kinesis_worker(Acknowledging(got.append), CONFIG, sink=InMemorySink())
    with pytest.raises(SinkError, match="a sink"):
        worker.run_for(60)
    assert got == []


class Bounded:
    """A checkpointer after a failed call: the next call got fewer records, and no checkpoint may pass those."""

    def __init__(self, largest: Any) -> None:
        self.last_checkpoint = ExtendedSequenceNumber("TRIM_HORIZON")
        self.largest_delivered = largest
        self.delivered = None
        self.stored: list[tuple[Any, Any]] = []

    def limit_to(self, limit: Any) -> None:
        """Take it."""

    def checkpoint_with_state(self, position: Any, state: Any) -> None:
        self.stored.append((position, state))


def test_acknowledgements_behind_the_largest_checkpoint_are_in_the_state(application: Application) -> None:
    records = application.stream.records
    handler: Any = Acknowledging(ReceivedRecord.ack, clock=application.stream.aws.clock)()
    checkpointer = Bounded(position_of(records[2]))
    stream = application.got[0].stream
    batch: Any = RecordBatch(
        records=records,
        shard_id="shardId-000000000000",
        stream=stream,
        checkpointer=cast("Any", checkpointer),
    )
    handler.process_records(batch)
    handler.shutdown_requested(checkpointer)
    ((base, state),) = checkpointer.stored
    assert base == position_of(records[2])
    heir = GapMap(10)
    assert heir.restore(state, base)
    assert not any(heir.receive(position_of(record)) for record in records[3:])


def test_a_coroutine_function_gets_one_record_after_the_other_and_a_failed_one_again(
    kinesis_stream: Any, kinesis_worker: Any
) -> None:
    events: list[str] = []

    async def handle(received: ReceivedRecord) -> None:
        number = received.record.data.decode()
        events.append(f"begin {number}")
        await asyncio.sleep(0)
        if events.count("begin 1") == 1 and number == "1":
            raise ConnectionError("no database")
        events.append(f"end {number}")
        if number != "0":
            received.ack()

    kinesis_stream.put("k", b"0", b"1", b"2")
    worker = kinesis_worker(Acknowledging(handle, clock=kinesis_stream.aws.clock), CONFIG)
    worker.run_for(60)
    assert events == ["begin 0", "end 0", "begin 1", "begin 1", "end 1", "begin 2", "end 2"]
    # The next owner gets what is not acknowledged: the gaps were stored beside the checkpoint.
    del events[:]
    kinesis_worker(
        Acknowledging(handle, clock=kinesis_stream.aws.clock), CONFIG, worker_id="heir", leases=worker.leases
    ).run_for(60)
    assert events == ["begin 0", "end 0"]


@pytest.mark.parametrize(
    ("function", "settings"),
    [
        (5, {}),
        (print, {"max_unacknowledged": 0}),
        (print, {"max_unacknowledged": 2_001}),
        (print, {"store_interval": 0}),
    ],
)
def test_a_wrong_setting_is_refused(function: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Acknowledging(function, **settings)


def test_a_received_record_shows_no_payload(application: Application) -> None:
    assert "data=<1 bytes>" in repr(application.got[0])
