"""Several streams in one application: keys, positions, streams that are added, removed and deleted."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from botocore.exceptions import ClientError

from kinesis_sdk.common.errors import ConfigError, PermanentAwsError, ProtocolError, ResourceNotFoundError
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer import ConsumerConfig, DynamoDBLeaseStore, Lease, StreamSpec, Worker
from kinesis_sdk.consumer.engine.engine import ConsumerEngine
from kinesis_sdk.consumer.handler import HandlerSource
from kinesis_sdk.consumer.streams import StreamDirectory, TrackedStream
from kinesis_sdk.testing import FakeAws, VirtualClock

HORIZON = ConsumerConfig(initial_position="TRIM_HORIZON")


class Streams:
    """Engines over several streams of one fake account, in virtual time."""

    def __init__(self, *names, config=HORIZON, shards=2):
        self.clock = VirtualClock()
        self.aws = FakeAws(clock=self.clock)
        self.raw = self.aws.client("kinesis")
        self.kinesis = self.raw
        self.config = config
        self.clock.advance(1000)
        for name in names:
            self.raw.create_stream(StreamName=name, ShardCount=shards)
        self.store = DynamoDBLeaseStore(
            self.aws.client("dynamodb"), "app", sleep=self.clock.advance, monotonic=self.clock.monotonic
        )
        self.listed = [*names]
        self.engines = {}
        self.got = []

    def arn(self, name):
        return self.raw.describe_stream_summary(StreamName=name)["StreamDescriptionSummary"]["StreamARN"]

    def add(self, name, streams=None, **more):
        def handle(batch):
            self.got.extend((str(batch.stream), batch.shard_id, record.data) for record in batch.records)

        engine = ConsumerEngine(
            streams=streams or (lambda: [*self.listed]),
            worker_id=name,
            config=self.config,
            handlers=HandlerSource.of(handle),
            store=self.store,
            kinesis=self.kinesis,
            clock=self.clock,
            rng=Random(name),
            sleep=self.clock.advance,
            **{"application_name": "app", **more},
        )
        engine.start()
        self.engines[name] = engine

    def put(self, stream, *data):
        for one in data:
            self.raw.put_record(StreamName=stream, Data=one, PartitionKey=one.decode())

    def run(self, seconds, until=lambda: False):
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            if until():
                return True
            for name in [*self.engines]:
                engine = self.engines[name]
                if engine.tick(self.clock.monotonic()) is None:
                    del self.engines[name]
                if engine.error is not None:
                    raise engine.error
            self.clock.advance(0.1)
        return until()

    def rows(self):
        return {row.lease_key: row for row in self.store.list()}

    def data(self):
        return {data for _, _, data in self.got}


def test_rows_are_the_kcls_multi_stream_rows():
    scene = Streams("orders", "refunds")
    scene.add("a")
    scene.put("orders", b"1", b"2")
    scene.put("refunds", b"3")
    assert scene.run(5, lambda: scene.data() == {b"1", b"2", b"3"})
    summary = scene.raw.describe_stream_summary(StreamName="orders")["StreamDescriptionSummary"]
    epoch = int(summary["StreamCreationTimestamp"].timestamp())
    account = summary["StreamARN"].split(":")[4]
    table = scene.aws.client("dynamodb")
    item = next(
        item
        for item in table.scan(TableName="app")["Items"]
        if item["leaseKey"]["S"] == f"{account}:orders:{epoch}:shardId-000000000000"
    )
    assert item["streamName"] == {"S": f"{account}:orders:{epoch}"}
    assert item["shardId"] == {"S": "shardId-000000000000"}
    assert len(scene.rows()) == 4
    assert {stream for stream, _, _ in scene.got} == {"orders", "refunds"}
    assert all(shard.startswith("shardId-") for _, shard, _ in scene.got)


def test_streams_of_both_workers_are_shared_and_resharded():
    scene = Streams("orders", "refunds")
    scene.add("a")
    scene.add("b")
    scene.run(15)
    owners = [row.owner for row in scene.rows().values()]
    assert sorted(owners) == ["a", "a", "b", "b"]
    middle = str(2**126)
    scene.raw.split_shard(
        StreamName="refunds", ShardToSplit="shardId-000000000000", NewStartingHashKey=middle
    )
    scene.clock.advance(1)
    scene.put("refunds", *[b"%d" % n for n in range(30)])
    scene.put("orders", b"x")
    assert scene.run(20, lambda: len(scene.data()) == 31)
    children = [row for row in scene.rows().values() if row.parent_shard_ids]
    assert [row.parent_shard_ids for row in children] == [("shardId-000000000000",)] * 2, (
        "shard ids, not keys"
    )
    scene.run(200)
    assert not [row for row in scene.rows().values() if row.is_finished], "parents are cleaned up"


def test_a_stream_is_added_and_removed_while_running():
    scene = Streams("orders", "refunds")
    scene.listed = ["orders"]
    scene.add("a")
    scene.add("b")
    scene.run(5)
    scene.put("refunds", b"early")
    scene.run(5)
    assert scene.got == []
    scene.listed = ["orders", "refunds"]
    assert scene.run(80, lambda: scene.data() == {b"early"})
    scene.listed = ["refunds"]
    scene.run(80)
    scene.put("orders", b"late")
    scene.run(30)
    assert scene.data() == {b"early"}
    dropped = [row for row in scene.rows().values() if ":orders:" in row.lease_key]
    assert [row.owner for row in dropped] == [None, None], "given back and kept"
    scene.listed = ["refunds", "orders"]
    assert scene.run(80, lambda: scene.data() == {b"early", b"late"}), "it goes on where it was"


def test_former_leases_are_deleted_if_wanted():
    config = ConsumerConfig(initial_position="TRIM_HORIZON", wait_period_to_delete_former_streams=600)
    scene = Streams("orders", "refunds", config=config)
    scene.add("a")
    scene.run(5)
    scene.listed = ["orders"]
    scene.run(500)
    assert len(scene.rows()) == 4
    # A worker whose list is newer than ours keeps one of them.
    kept = min(
        (row for row in scene.rows().values() if ":refunds:" in row.lease_key), key=lambda r: r.lease_key
    )
    kept = scene.store.take(kept, "elsewhere")
    scene.run(400)
    assert scene.store.get(kept.lease_key) == kept
    assert len(scene.rows()) == 3
    scene.store.release(kept)
    scene.run(100)
    assert [row.stream_name.split(":")[1] for row in scene.rows().values()] == ["orders", "orders"]


def test_positions_per_stream():
    scene = Streams("orders", "refunds")
    scene.put("orders", b"1")
    scene.put("refunds", b"2")
    scene.clock.advance(5)
    scene.add("a", [StreamSpec(stream="orders"), StreamSpec(stream="refunds", initial_position="LATEST")])
    scene.run(5)
    scene.put("refunds", b"3")
    scene.run(5)
    assert scene.data() == {b"1", b"3"}


def test_a_deleted_stream_is_left_out_and_the_others_go_on():
    scene = Streams("orders", "refunds")
    scene.add("a", ["orders", "refunds"])
    scene.put("refunds", b"1")
    scene.run(5)
    scene.raw.delete_stream(StreamName="refunds", EnforceConsumerDeletion=True)
    scene.run(20)
    scene.put("orders", b"2")
    assert scene.run(5, lambda: scene.data() == {b"1", b"2"})
    scene.run(200)
    assert "a" in scene.engines
    assert {row.owner for row in scene.rows().values() if ":refunds:" in row.lease_key} == {None}


@pytest.mark.parametrize(
    "operation", ["describe_stream_summary", "list_shards", "get_shard_iterator", "get_records"]
)
def test_a_stream_that_may_not_be_read_is_left_out_until_it_may(operation, caplog):
    scene = Streams("orders", "secret", shards=1)
    scene.listed = ["orders"]
    original = getattr(scene.raw, operation)
    allowed = []

    def refuse(**request):
        # An iterator does not say whose it is in plain words.
        theirs = request.get("StreamName") == "secret" or (
            "ShardIterator" in request
            and scene.aws.kinesis.records.position_of(request["ShardIterator"])[0] == "secret"
        )
        if theirs and not allowed:
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, operation)
        return original(**request)

    setattr(scene.raw, operation, refuse)
    scene.add("a")
    scene.put("secret", b"1")
    scene.run(5)
    scene.listed = ["orders", "secret"]
    scene.run(100)
    assert "left out" in caplog.text
    scene.put("orders", b"2")
    assert scene.run(5, lambda: scene.data() == {b"2"}), "the others go on"
    allowed.append(True)
    assert scene.run(100, lambda: scene.data() == {b"1", b"2"})


def test_a_stream_that_may_not_be_read_is_an_error_at_the_start():
    scene = Streams("orders", "secret", shards=1)
    original = scene.raw.list_shards

    def refuse(**request):
        if request.get("StreamName") == "secret":
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "ListShards")
        return original(**request)

    scene.raw.list_shards = refuse
    with pytest.raises(PermanentAwsError, match="AccessDenied"):
        scene.add("a")


def test_a_recreated_stream_gets_new_leases():
    scene = Streams("orders", "refunds")
    scene.add("a")
    scene.put("refunds", b"1")
    scene.run(5)
    scene.raw.delete_stream(StreamName="refunds", EnforceConsumerDeletion=True)
    scene.run(5)
    scene.raw.create_stream(StreamName="refunds", ShardCount=1)
    scene.run(2)
    scene.put("refunds", b"2")
    assert scene.run(150, lambda: scene.data() == {b"1", b"2"})
    names = {row.stream_name for row in scene.rows().values() if ":refunds:" in row.lease_key}
    assert len(names) == 2, "the former incarnation's leases are kept"


def test_an_arn_goes_into_every_request():
    scene = Streams("orders")
    seen = []
    original = scene.raw.get_shard_iterator
    scene.raw.get_shard_iterator = lambda **request: seen.append(request) or original(**request)
    scene.add("a", [scene.arn("orders")])
    scene.run(3)
    assert seen
    assert all(request.get("StreamARN") == scene.arn("orders") for request in seen)


def test_a_stream_of_another_account_brings_its_own_registered_consumer():
    """No stream's consumer is asked for as another's, and none is registered where one is given."""
    scene = Streams("orders", "refunds", config=replace(HORIZON, retrieval_mode="fanout"), shards=1)
    asked = []

    def describe(**request):
        asked.append(request)
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "Describe")

    scene.raw.describe_stream_consumer = describe
    theirs = f"{scene.arn('orders')}/consumer/theirs:17"
    scene.add("a", [StreamSpec(stream=scene.arn("orders"), consumer_arn=theirs), scene.arn("refunds")])
    scene.put("orders", b"1")
    assert scene.run(5, lambda: scene.data() == {b"1"} and len(asked) == 2), "polled, as nothing else works"
    assert sorted(asked, key=len) == [
        {"ConsumerARN": theirs},
        {"StreamARN": scene.arn("refunds"), "ConsumerName": "app"},
    ]


def test_leases_of_the_other_form_are_not_seen():
    scene = Streams("orders")
    scene.store.ensure_ready()
    single = Lease(lease_key="shardId-000000000000", checkpoint=ExtendedSequenceNumber("TRIM_HORIZON"))
    scene.store.create_if_absent(single)
    scene.add("a")
    scene.run(5)
    assert scene.rows()["shardId-000000000000"].owner is None
    assert len(scene.rows()) == 3


# Names


def test_a_tracked_stream_translates_leases():
    tracked = TrackedStream(StreamId("orders"), HORIZON, "123456789012:orders:17")
    plain = Lease(lease_key="shardId-1", checkpoint=ExtendedSequenceNumber("TRIM_HORIZON"))
    stored = tracked.stored(plain)
    assert stored.lease_key == "123456789012:orders:17:shardId-1" == tracked.lease_key("shardId-1")
    assert stored.shard == "shardId-1"
    assert tracked.owns(stored) and not tracked.owns(plain)
    assert [row.lease_key for row in tracked.by_shard([stored, plain])] == ["shardId-1"]
    single = TrackedStream(StreamId("orders"), HORIZON)
    assert single.stored(plain) is plain
    assert single.owns(plain) and not single.owns(stored)


def test_given_epochs_and_accounts_are_not_asked_for():
    scene = Streams()
    spec = StreamSpec(stream="elsewhere", creation_epoch=17, account_id="123456789012")
    arn = "arn:aws:kinesis:us-east-1:210987654321:stream/there"
    directory = StreamDirectory(
        HORIZON, scene.raw, streams=[spec, StreamSpec(stream=arn, creation_epoch=18)], sleep=lambda s: None
    )
    directory.refresh()
    assert [one.key for one in directory.current()] == ["123456789012:elsewhere:17", "210987654321:there:18"]


def test_what_can_not_be_tracked():
    scene = Streams()
    with pytest.raises(ConfigError, match="one stream or several"):
        StreamDirectory(HORIZON, scene.raw, sleep=lambda s: None)
    with pytest.raises(ConfigError, match="account_id"):
        StreamSpec(stream="orders", account_id="12")
    with pytest.raises(ConfigError, match="creation_epoch"):
        StreamSpec(stream="orders", creation_epoch=0)
    with pytest.raises(ConfigError, match="initial_position"):
        StreamSpec(stream="orders", initial_position="NOW")
    with pytest.raises(ConfigError, match="consumer_arn"):
        StreamSpec(stream="orders", consumer_arn="arn:aws:kinesis:us-east-1:1:stream/orders")
    with pytest.raises(ConfigError, match=r"consumer_arn=.*each StreamSpec has its own"):
        arn = "arn:aws:kinesis:us-east-1:123456789012:stream/orders/consumer/app:17"
        StreamDirectory(
            replace(HORIZON, consumer_arn=arn), scene.raw, streams=["orders"], sleep=lambda s: None
        )
    with pytest.raises(ConfigError, match="not both"):
        Worker("orders", streams=["refunds"], application_name="app", handler=print)
    with pytest.raises(ConfigError, match="not both"):
        Worker(application_name="app", handler=print)

    class Terse:
        def describe_stream_summary(self, **request):
            return {"StreamDescriptionSummary": {}}

    with pytest.raises(ResourceNotFoundError):
        scene.add("a", ["no-such-stream"])

    directory = StreamDirectory(HORIZON, Terse(), streams=["orders"], sleep=lambda s: None)
    with pytest.raises(ProtocolError, match="no account or creation time"):
        directory.refresh()
