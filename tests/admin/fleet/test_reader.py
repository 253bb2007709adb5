"""One look in virtual time: the lag that it tells, and for how long it waits for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kinesis_sdk.admin.command import Command
from kinesis_sdk.admin.fleet.model import LagSource, LeaseView
from kinesis_sdk.admin.fleet.observe import FleetObserver
from kinesis_sdk.admin.fleet.reader import FleetReader
from kinesis_sdk.common.errors import AwsError, ResourceNotFoundError, ThrottledError
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer.leases.table.lease import Lease, lease_to_item
from kinesis_sdk.consumer.leases.table.progress import Progress
from kinesis_sdk.testing import Fault
from kinesis_sdk.testing.faults import FaultKind
from tests.admin.account import Account


class Scene(Account):
    """A shard with a record that is processed, and not checkpointed, for nine seconds."""

    def __init__(self, *, tells: bool = True) -> None:
        super().__init__()
        self.tells = tells
        self.alive = True
        self.slept = 0.0
        self.lease_table("billing")
        (shard,) = self.create("orders")
        first = ExtendedSequenceNumber(self.put("orders", b"old"), 0)
        row = Lease.for_shard(shard, "TRIM_HORIZON")
        self.row = replace(row, owner="w", handoff_owner="w", checkpoint=first)
        self.clock.advance(0.5)
        self.put("orders", b"new")
        self.clock.advance(9)
        self.renew()

    def renew(self, lag_millis: int = 0) -> None:
        """Write the row as its owner does with each renewal."""
        progress = Progress(lag_millis, None, None, "w") if self.tells else None
        self.row = replace(self.row, counter=self.row.counter + 1, progress=progress)
        self.aws.tables.find("billing").put(lease_to_item(self.row))

    def sleep(self, seconds: float) -> None:
        before = self.slept
        self.slept += seconds
        self.clock.advance(seconds)
        if self.alive and before < 3.3 <= self.slept:
            self.renew()

    def reader(self, stream: str | None = "orders") -> FleetReader:
        """A reader whose waits let the owner live on."""
        return FleetReader(
            self.application("billing", stream=stream, sleep=self.sleep),
            observer=FleetObserver("billing", failover_time=10.0),
            clock=self.clock,
            sleep=self.sleep,
        )

    def lease(self) -> LeaseView:
        """What one look shows."""
        reader = self.reader()
        reader.table()
        reader.streams()
        return reader.lag().leases[0]


def test_what_a_live_owner_has_processed_counts_although_it_is_not_checkpointed() -> None:
    scene = Scene()
    lease = scene.lease()
    assert lease.lag is not None
    assert (lease.lag.millis, lease.lag.source) == (0, LagSource.PROGRESS)
    assert lease.checkpoint_lag is not None
    assert lease.checkpoint_lag.millis == pytest.approx(9000, abs=1000)
    assert scene.slept <= 4.0, "it waits for one renewal"


def test_the_word_of_a_dead_owner_does_not_count() -> None:
    scene = Scene()
    scene.alive = False
    lease = scene.lease()
    assert lease.lag == lease.checkpoint_lag
    assert lease.lag is not None
    assert lease.lag.source is LagSource.PROBE
    assert lease.lag.millis == pytest.approx(9000, abs=1000)
    assert 6.0 <= scene.slept <= 7.0, "two thirds of the failover time"


def test_an_owner_that_tells_nothing_is_not_waited_for() -> None:
    scene = Scene(tells=False)
    lease = scene.lease()
    assert lease.lag is not None
    assert lease.lag.millis == pytest.approx(9000, abs=1000)
    assert scene.slept == 0.0


def test_a_stream_that_was_given_has_to_exist_also_where_it_is_not_required() -> None:
    scene = Scene()
    with pytest.raises(ResourceNotFoundError, match="nope"):
        scene.reader("nope").streams(required=False)


TABLE_SHARD = "shardId-00000001795375578588-991082a5"


def of_table(**more: bool) -> Scene:
    """The same application, but on the stream of a DynamoDB table."""
    scene = Scene(**more)
    scene.dynamodb.delete_item(TableName="billing", Key={"leaseKey": {"S": scene.row.lease_key}})
    scene.row = replace(scene.row, lease_key=TABLE_SHARD)
    scene.renew(lag_millis=4000)
    return scene


def told(scene: Scene) -> LeaseView:
    reader = scene.reader()
    reader.table()
    assert reader.reads_table_stream
    return reader.reported_lag().leases[0]


def test_of_a_tables_stream_the_lag_is_what_a_live_owner_tells() -> None:
    scene = of_table()
    calls = dict(scene.aws.stats()["calls"])
    lease = told(scene)
    assert lease.lag is not None
    assert (lease.lag.millis, lease.lag.source) == (0, LagSource.PROGRESS), "of its renewal, which was seen"
    assert scene.slept <= 4.0
    made = {name for name, count in scene.aws.stats()["calls"].items() if count > calls.get(name, 0)}
    assert made <= {"Scan", "PutItem"}, "the Kinesis stream of the table's name is not asked"


@pytest.mark.parametrize("tells", [True, False])
def test_of_a_tables_stream_a_dead_or_silent_owner_leaves_the_lag_unknown(tells: bool) -> None:
    scene = of_table(tells=tells)
    scene.alive = False
    lease = told(scene)
    assert (lease.lag, lease.lag_note) == (None, "no live worker tells it")
    assert scene.slept == pytest.approx(10.0, abs=1.0), "one failover time"


def test_a_table_that_is_throttled_is_read_again_and_given_up_in_the_end() -> None:
    scene = Scene()
    scene.aws.faults.add(Fault(kind="throttle", operation="Scan", count=20))
    look = scene.reader(None)
    assert len(look.table().leases) == 1
    assert 0 < scene.slept < 30
    assert "table-throttled" in [one.code for one in look.view().problems], (
        "what was hidden from the user is told"
    )
    scene.aws.faults.add(Fault(kind="throttle", operation="Scan", count=1_000))
    with pytest.raises(ThrottledError):
        look.table()
    assert scene.slept < 60


@pytest.mark.parametrize("kind", ["expired_credentials", "timeout_before_storing", "error"])
def test_what_does_not_pass_while_a_person_waits_is_told_soon(kind: FaultKind) -> None:
    scene = Scene()
    scene.aws.faults.add(Fault(kind=kind, operation="Scan"))
    with pytest.raises(AwsError):
        scene.reader(None).table()
    assert scene.slept < 10


@pytest.mark.parametrize("allowed", [True, False])
def test_a_busy_shard_is_measured(allowed: bool) -> None:
    """Its row says 700 KB/s, and few bytes arrive, but nearly as many records as a shard accepts."""
    scene = Scene()
    scene.row = replace(scene.row, throughput_kbps=700.0)
    scene.renew()
    for _ in range(4):
        scene.clock.advance(0.5)
        scene.kinesis.put_records(
            StreamName="orders", Records=[{"Data": b"x", "PartitionKey": "p"} for _ in range(480)]
        )
    if not allowed:
        scene.aws.faults.add(Fault(kind="error", operation="GetRecords", count=1_000))
    look = scene.reader()
    look.table()
    found = [one for one in look.streams().problems if one.code == "hot-shard"]
    if not allowed:
        assert found == [], "without the records, the view has what the rows say"
        return
    assert "96% of what a shard accepts arrives: 2 KB/s, 960 records/s" in found[0].text
    assert found[0].command == Command.of("split", stream="orders", shard="0000")
