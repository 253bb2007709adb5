"""Workers that end at a moment: fleets in virtual time, with splits, merges, kills and freezes."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from random import Random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kinesis_sdk.common.errors import ConfigError, ProtocolError
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.response_header import ResponseHeader
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer import ConsumerConfig, Lease, TableScan, Worker
from kinesis_sdk.consumer.engine.engine import ConsumerEngine
from kinesis_sdk.consumer.handler import HandlerSource
from kinesis_sdk.consumer.leases.table.lease import ProcessedUntil
from kinesis_sdk.consumer.runtime.runtime import InlineRuntime
from kinesis_sdk.consumer.until import Until, check_until
from kinesis_sdk.testing import Fault
from tests.consumer.fleet import engines
from tests.consumer.fleet.dynamodb import dynamodb_store
from tests.consumer.fleet.engines import HORIZON, STREAM
from tests.consumer.fleet.table import LeaseTable
from tests.consumer.leases.rows import put_row
from tests.fuzz import how_many

# The shipped settings, with which the random runs were recorded.
Fleet = partial(engines.Fleet, config=HORIZON)


def moment(fleet: engines.Fleet, after: float = 0.0) -> datetime:
    return datetime.fromtimestamp(fleet.clock.time() + after, timezone.utc)


def a_fleet(until: object = None, after: float = 0.0, **more: object) -> engines.Fleet:
    fleet = Fleet(**more)
    fleet.more["until"] = until or moment(fleet, after)
    return fleet


def ended(fleet: engines.Fleet):
    return lambda: not fleet.engines


def stored(fleet: engines.Fleet, before: datetime) -> set[bytes]:
    """Return the data of all records that arrived before a moment."""
    found = set()
    for shard in fleet.raw.list_shards(StreamName=STREAM)["Shards"]:
        iterator = fleet.raw.get_shard_iterator(
            StreamName=STREAM, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        while iterator:
            page = fleet.raw.get_records(ShardIterator=iterator)
            iterator = page.get("NextShardIterator") if page["MillisBehindLatest"] else None
            found |= {
                record["Data"] for record in page["Records"] if record["ApproximateArrivalTimestamp"] < before
            }
    return found


# One worker


def test_records_that_were_acknowledged_before_the_start_count_as_before_now():
    """The Date header has whole seconds; "now" must not cut off what arrived in the second of the start."""
    for fraction in (0.0, 0.001, 0.5, 0.999):
        fleet = a_fleet("now", shards=2)
        fleet.clock.advance(100 + fraction)
        fleet.put(20)
        fleet.add("a")
        assert fleet.run(15, ended(fleet))
        assert fleet.all_delivered()


@pytest.mark.parametrize("recorder", [False, True])
def test_the_checkpoint_stands_before_the_first_record_that_comes_later(recorder):
    fleet = a_fleet(after=5.0, shards=1)
    until = fleet.more["until"]
    for _ in range(10):
        fleet.put(3)
        fleet.clock.advance(1)
    before = stored(fleet, until)
    assert 0 < len(before) < len(fleet.sent)
    fleet.add("a", fleet.recorder("a", checkpoint=False, last_words=True) if recorder else None)
    assert fleet.run(15, ended(fleet))
    assert set(fleet.data()) == before
    last = max(ExtendedSequenceNumber(sequence, sub) for _, _, _, sequence, sub in fleet.delivered)
    assert [lease.checkpoint for lease in fleet.store.list()] == [last]
    # The next run continues exactly there.
    fleet.more["until"] = "now"
    fleet.add("b")
    assert fleet.run(15, ended(fleet))
    assert fleet.data() == fleet.sent


def test_an_idle_shard_ends_once_its_tip_was_read_after_the_moment():
    fleet = a_fleet(after=30.0, shards=3)
    fleet.add("a")
    fleet.run(29)
    assert fleet.engines, "records may still arrive before the moment"
    fleet.put(30)
    assert fleet.run(15, ended(fleet))
    assert fleet.all_delivered()


def test_a_record_that_becomes_visible_late_is_processed():
    """Kinesis may acknowledge a record before it is in the responses of its shard."""
    fleet = a_fleet("now", shards=1)
    hidden = True
    original = fleet.raw.get_records

    def get_records(**request):
        response = original(**request)
        if hidden and response["Records"]:
            response["Records"] = []
            response["NextShardIterator"] = request["ShardIterator"]
            response["MillisBehindLatest"] = 0
        return response

    fleet.raw.get_records = get_records
    fleet.put(5)
    fleet.add("a")
    fleet.run(1.5)
    hidden = False
    assert fleet.run(15, ended(fleet))
    assert fleet.all_delivered()


def test_a_moment_before_all_records_ends_at_once_and_delivers_nothing():
    fleet = a_fleet(after=-3600.0, shards=2, config=HORIZON)
    fleet.put(20)
    fleet.add("a")
    assert fleet.run(5, ended(fleet))
    assert fleet.data() == []
    assert {lease.checkpoint.sequence_number for lease in fleet.store.list()} == {"TRIM_HORIZON"}


def test_a_second_run_until_the_same_moment_takes_no_lease():
    fleet = a_fleet("now", shards=2)
    fleet.put(20)
    fleet.add("a")
    assert fleet.run(15, ended(fleet))
    fleet.more["until"] = Until(min(lease.processed_until.millis for lease in fleet.store.list())).moment
    transfers = fleet.store.transfers
    fleet.add("b")
    assert fleet.run(5, ended(fleet))
    assert fleet.store.transfers == transfers


# Handlers


def test_a_handler_that_never_checkpoints_still_ends(caplog):
    fleet = a_fleet("now", shards=1)
    fleet.put(5)
    fleet.add("a", fleet.recorder("a", checkpoint=False))
    assert fleet.run(15, ended(fleet))
    assert len(fleet.data()) == 5
    assert "the handler checkpointed TRIM_HORIZON/0 only" in caplog.text


# Fleets


def test_a_worker_without_shards_waits_for_the_others_and_takes_over():
    """One worker of a batch job dies while the other has nothing left to do."""
    fleet = a_fleet("now", shards=2)
    fleet.put(100)
    blocked = {"on": True}

    def slow(batch):
        if blocked["on"]:
            raise RuntimeError("still busy")
        fleet.note("slow", batch)

    fleet.add("slow", slow)
    fleet.run(2)
    fleet.add("fast")
    fleet.run(60)
    assert set(fleet.engines) == {"slow", "fast"}, "the other worker's shard is not done"
    fleet.crash("slow")
    assert fleet.run(60, ended(fleet))
    assert fleet.all_delivered()


def test_finished_shards_are_not_taken_again():
    fleet = a_fleet("now", shards=4)
    fleet.put(40)

    def handle(batch):
        if batch.shard_id.endswith("3") and fleet.clock.monotonic() < 200:
            raise RuntimeError("not yet")
        fleet.note("a", batch)

    fleet.add("a", handle)
    fleet.add("b", handle)
    fleet.run(30)
    transfers = fleet.store.transfers
    fleet.run(150)
    assert len(fleet.engines) == 2
    assert fleet.store.transfers <= transfers + 1
    assert fleet.run(60, ended(fleet))


def test_workers_with_different_moments_do_not_disturb_each_other():
    fleet = a_fleet("now", shards=3)
    fleet.put(30)
    fleet.add("a")
    fleet.run(1.3)
    fleet.put(30)
    fleet.add("b")
    assert fleet.run(30, ended(fleet))
    assert sorted(fleet.data()) == sorted(fleet.sent)


def test_a_worker_without_an_end_continues_what_others_left():
    fleet = a_fleet("now", shards=2)
    fleet.put(20)
    fleet.add("a")
    assert fleet.run(15, ended(fleet))
    fleet.more.clear()
    fleet.add("service")
    fleet.put(20)
    assert fleet.run(5, fleet.all_delivered)
    fleet.run(60)
    assert set(fleet.engines) == {"service"}


# Generations


def rewound(lease: Lease) -> Lease:
    start = ExtendedSequenceNumber("TRIM_HORIZON")
    return replace(lease, checkpoint=start, counter=lease.counter + 2, processed_until=None)


def test_children_of_a_shard_that_still_has_later_records_do_not_hold_up_the_end():
    """A rewound parent has leases of children beside it; they have nothing from before the moment."""
    fleet = a_fleet("now", shards=1)
    fleet.put(10)
    fleet.clock.advance(1)
    fleet.split()
    fleet.put(10)
    fleet.add(
        "a",
        fleet.recorder("a"),
        ConsumerConfig(initial_position="TRIM_HORIZON").with_fields(
            cleanup_leases_upon_shard_completion=False
        ),
    )
    assert fleet.run(60, ended(fleet))
    parent = fleet.store.get("shardId-000000000000")
    for lease in fleet.store.list():
        put_row(fleet.store, rewound(lease))
    assert parent.is_finished
    fleet.delivered.clear()
    fleet.more["until"] = datetime(2001, 9, 10, tzinfo=timezone.utc)
    fleet.add("b")
    assert fleet.run(30, ended(fleet))
    assert fleet.data() == []
    assert fleet.store.transfers == 1 + 3, "the children were not even taken"


def test_the_child_of_a_merge_whose_other_parent_comes_later_does_not_hold_up_the_end():
    """Shard 1 is processed up to the moment, then split, and one half merged with shard 0, which was not processed yet."""
    fleet = a_fleet("now", shards=2)
    fleet.put(20)
    before = set(fleet.sent)
    fleet.clock.advance(1)
    until = fleet.more["until"] = moment(fleet, 0)
    fleet.clock.advance(5)
    fleet.add("a")
    assert fleet.run(60, ended(fleet))
    first = fleet.store.get("shardId-000000000000")
    put_row(fleet.store, rewound(first))
    fleet.split(1)
    fleet.merge(0)
    fleet.put(20)
    again = {data for _, shard, data, _, _ in fleet.delivered if shard == first.shard}
    fleet.delivered.clear()
    fleet.add("b")
    assert fleet.run(60, ended(fleet))
    assert set(fleet.data()) == again
    assert all(lease.was_processed_until(int(until.timestamp() * 1000)) for lease in fleet.store.list())
    fleet.more["until"] = "now"
    fleet.add("c")
    assert fleet.run(60, ended(fleet))
    assert set(fleet.data()) >= set(fleet.sent) - before, "the next run has the rest"
    fleet.check_order()


def test_faults_delay_the_end_and_lose_nothing():
    fleet = a_fleet("now", shards=3, seed=5)
    fleet.store = dynamodb_store(fleet)
    fleet.put(90)
    for name in ("a", "b"):
        fleet.add(name)
    for operation in ("GetRecords", "UpdateItem", "Scan", "ListShards", "GetItem"):
        fleet.aws.faults.add(
            Fault(kind="error", operation=operation, code="InternalFailure", probability=0.3)
        )
        fleet.aws.faults.add(Fault(kind="timeout_after_storing", operation=operation, probability=0.1))
    assert fleet.run(300, ended(fleet))
    assert set(fleet.data()) == set(fleet.sent)


ACTIONS = ["put", "put", "run", "split", "merge", "crash", "add", "stop", "pause"]


# A lease is requested while its owner ends it, so that no plan takes it after the handoff.
@example(1940, ["split", "split", "put", "split"], 2)
@example(411, ["put", "put", "split", "run", "split"], 1)
@example(0, ["run", "split", "crash", "run", "merge"], -2)
@pytest.mark.fuzz
@settings(max_examples=how_many(unit=8, fuzz=400), suppress_health_check=list(HealthCheck))
@given(
    st.integers(0, 10**6), st.lists(st.sampled_from(ACTIONS), min_size=3, max_size=14), st.integers(-20, 20)
)
def test_random_runs_end_with_everything_from_before_the_moment(seed, actions, after):
    rng = Random(seed)
    fleet = Fleet(shards=rng.randint(1, 3), seed=seed)
    fleet.clock.advance(100)
    fleet.put(rng.randint(1, 30))
    fleet.clock.advance(rng.randint(0, 20))
    until = fleet.more["until"] = moment(fleet, after)
    number = 0

    def add():
        nonlocal number
        number += 1
        fleet.add(f"w{number}", fleet.recorder(f"w{number}", last_words=True) if seed % 2 else None)

    add()
    for action in actions:
        if action == "put":
            fleet.put(rng.randint(1, 40))
        elif action == "run":
            fleet.run(rng.choice([0.3, 2.0, 12.0]))
        elif action == "split" and len(fleet.open_shards()) < 6:
            fleet.split(rng.randrange(len(fleet.open_shards())))
        elif action == "merge" and len(fleet.open_shards()) > 1:
            fleet.merge(rng.randrange(len(fleet.open_shards()) - 1))
        elif action == "add" and len(fleet.engines) < 4:
            add()
        elif action in ("crash", "stop", "pause") and fleet.engines:
            name = rng.choice(sorted(fleet.engines))
            if action == "pause":
                fleet.freeze(name, rng.choice([4.0, 15.0]))
            else:
                getattr(fleet, action)(name)
        fleet.run(rng.random())
    add()
    assert fleet.run(300, ended(fleet))
    assert moment(fleet) >= until
    assert set(fleet.data()) == stored(fleet, until)
    fleet.check_order()
    for lease in fleet.store.list():
        assert lease.owner is None
    # Nothing that came later is lost for the next run.
    fleet.more["until"] = "now"
    fleet.add("last")
    assert fleet.run(200, ended(fleet))
    assert set(fleet.data()) == set(fleet.sent)


# Proof of the end


class StaleTable(LeaseTable):
    """Scans that are not consistent do not show new rows for some seconds."""

    def __init__(self, clock, delay):
        super().__init__()
        self._clock, self._delay = clock, delay
        self._created = {}

    def create_if_absent(self, lease):
        self._created.setdefault(lease.lease_key, self._clock.monotonic())
        return super().create_if_absent(lease)

    def scan(self, *, consistent=False):
        rows = super().scan().leases
        visible_before = self._clock.monotonic() - self._delay
        return TableScan(
            leases=[row for row in rows if consistent or self._created[row.lease_key] <= visible_before]
        )


def test_a_stale_scan_that_misses_children_ends_nothing():
    fleet = Fleet(shards=1)
    fleet.store = StaleTable(fleet.clock, 4.0)
    fleet.put(20)
    fleet.clock.advance(1)
    fleet.split()
    fleet.put(20)
    fleet.more["until"] = "now"
    fleet.add("a")
    assert fleet.run(60, ended(fleet))
    assert sorted(fleet.data()) == sorted(fleet.sent)


def test_a_scan_is_no_snapshot():
    """The second scan may show the end of a shard that the first one missed, and miss the children of that shard."""
    fleet = a_fleet(after=1000.0, shards=1)
    engine = fleet.add("a")
    until = engine.until
    coordinator = engine.coordinator
    coordinator._leader_tasks.sync = lambda: False
    parent, child, grandchild = (lease(name, "SHARD_END") for name in ("p", "c", "g"))
    fleet.store.scan = lambda *, consistent=False: TableScan(leases=[parent, child])
    assert not coordinator._is_all_processed(until, [parent])
    assert coordinator._is_all_processed(until, [parent, child])
    assert coordinator._is_all_processed(until, [parent, child, grandchild]), (
        "a row may be cleaned up meanwhile"
    )


def test_a_shard_without_a_lease_gets_one_before_the_end():
    fleet = a_fleet("now", shards=2)
    fleet.put(40)
    fleet.add("a")
    fleet.store.delete("shardId-000000000001")
    assert fleet.run(60, ended(fleet))
    assert fleet.all_delivered()


def test_a_slow_response_does_not_count_as_a_read_of_a_later_time():
    """It shows the shard as it was before its record arrived, and comes after the moment."""
    fleet = a_fleet(after=3.0, shards=1)
    original = fleet.raw.get_records
    slow = [True]

    def get_records(**request):
        response = original(**request)
        if slow[0] and fleet.clock.monotonic() >= 2.0:
            slow[0] = False
            fleet.put(1)
            fleet.clock.advance(4.0)
        return response

    fleet.raw.get_records = get_records
    fleet.add("a")
    assert fleet.run(60, ended(fleet))
    assert not slow[0]
    assert fleet.all_delivered()


def test_a_row_that_cannot_be_read_keeps_the_worker():
    fleet = a_fleet("now", shards=2)
    dynamodb = fleet.aws.client("dynamodb")
    fleet.store = dynamodb_store(fleet)
    fleet.put(20)
    fleet.add("a")
    row = dynamodb.get_item(TableName="app", Key={"leaseKey": {"S": "shardId-000000000001"}})["Item"]
    dynamodb.put_item(TableName="app", Item={**row, "checkpoint": {"S": "damaged"}})
    fleet.run(60)
    assert fleet.engines
    dynamodb.put_item(TableName="app", Item=row)
    assert fleet.run(60, ended(fleet))
    assert fleet.all_delivered()


# Several streams


def add_with_streams(fleet: engines.Fleet, streams: list[str]) -> list[bytes]:
    seen: list[bytes] = []
    engine = ConsumerEngine(
        streams=streams,
        worker_id="a",
        config=HORIZON,
        handlers=HandlerSource.of(lambda batch: seen.extend(record.data for record in batch.records)),
        store=fleet.store,
        kinesis=fleet.kinesis,
        runtime=InlineRuntime(fleet.clock, Random(1), fleet.clock.advance),
        until="now",
    )
    engine.start()
    fleet.engines["a"] = engine
    fleet._join("a", lambda: fleet._tick("a", engine))
    return seen


def test_every_stream_is_processed():
    fleet = Fleet(shards=2)
    fleet.raw.create_stream(StreamName="clicks", ShardCount=3)
    fleet.put(20)
    clicks = [b"c%d" % number for number in range(30)]
    fleet.raw.put_records(
        StreamName="clicks", Records=[{"Data": data, "PartitionKey": data.decode()} for data in clicks]
    )
    seen = add_with_streams(fleet, [STREAM, "clicks"])
    assert fleet.run(20, ended(fleet))
    assert sorted(seen) == sorted([*fleet.sent, *clicks])
    assert len(fleet.store.list()) == 5


def test_a_suspended_stream_keeps_the_worker():
    fleet = Fleet(shards=2)
    fleet.raw.create_stream(StreamName="clicks", ShardCount=1)
    fleet.put(20)
    add_with_streams(fleet, [STREAM, "clicks"])
    fleet.raw.delete_stream(StreamName="clicks")
    fleet.run(120)
    assert fleet.engines, "its records were not processed"


# Values


@pytest.mark.parametrize("value", ["NOW", "yesterday", 5, datetime(2026, 1, 1)])  # noqa: DTZ001 - that is the mistake
def test_a_value_that_is_no_moment_is_rejected(value):
    with pytest.raises(ConfigError, match="until"):
        check_until(value)
    with pytest.raises(ConfigError, match="until"):
        Worker("orders", application_name="app", handler=lambda batch: None, until=value)


def test_now_needs_the_date_of_a_response():
    fleet = a_fleet("now")
    fleet.kinesis.dated = False
    with pytest.raises(ProtocolError, match="Date"):
        fleet.add("a")


def header(behind: int | None, service_time: float | None) -> ResponseHeader:
    return ResponseHeader(millis_behind_latest=behind, service_time=service_time)


def test_only_a_read_of_the_tip_that_began_after_the_moment_is_proof():
    until = Until(100_000)
    assert until.is_tip_after(header(0, 102.0), empty=True)
    assert until.is_tip_after(header(0, 102.0), empty=False)
    assert not until.is_tip_after(header(0, 101.9), empty=True)
    assert not until.is_tip_after(header(0, None), empty=True)
    assert not until.is_tip_after(header(1, 200.0), empty=True)
    assert until.is_tip_after(header(None, 200.0), empty=True)
    assert not until.is_tip_after(header(None, 200.0), empty=False)


def test_the_cut_is_before_the_first_record_at_the_moment():
    def record(seconds: float | None) -> KinesisRecord:
        arrived = None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc)
        return KinesisRecord(b"", "k", "1", arrived)

    until = Until(100_000)
    assert until.cut([]) is None
    assert until.cut([record(99.999), record(None)]) is None
    assert until.cut([record(99.999), record(100.0), record(99.0)]) == 1
    assert until.cut([record(100.001)]) == 0


def lease(key: str, checkpoint: str = "5", parents: tuple[str, ...] = (), marked: int | None = None) -> Lease:
    position = ExtendedSequenceNumber(checkpoint)
    mark = None if marked is None else ProcessedUntil(marked, position)
    return Lease(lease_key=key, checkpoint=position, parent_shard_ids=parents, processed_until=mark)


def test_open_leases():
    until = Until(100)
    rows = [
        lease("done", marked=100),
        lease("earlier", marked=99),
        lease("finished", "SHARD_END"),
        lease("open"),
        lease("child of done", parents=("done", "open")),
        lease("grandchild", parents=("child of done",)),
        lease("child of finished", parents=("finished",)),
        lease("marked child", parents=("open",), marked=200),
    ]
    assert [row.lease_key for row in until.open_leases(rows)] == ["earlier", "open", "child of finished"]
    cycle = [lease("a", parents=("b",)), lease("b", parents=("a",)), lease("c", parents=("c",), marked=100)]
    assert [row.lease_key for row in until.open_leases(cycle)] == ["a", "b"]
