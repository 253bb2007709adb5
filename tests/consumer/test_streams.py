"""Several streams in one application: keys, positions, streams that are added, removed and deleted."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from kinesis_sdk.common.errors import ConfigError, PermanentAwsError, ProtocolError, ResourceNotFoundError
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer import Lease, StreamSpec, Worker
from kinesis_sdk.consumer.streams import StreamDirectory, TrackedStream
from tests.consumer.fleet.engines import HORIZON, UNHURRIED
from tests.consumer.fleet.streams import Streams


def test_rows_are_the_kcls_multi_stream_rows():
    scenario = Streams("orders", "refunds")
    scenario.add("a")
    scenario.put("orders", b"1", b"2")
    scenario.put("refunds", b"3")
    assert scenario.run(5, lambda: scenario.data() == {b"1", b"2", b"3"})
    summary = scenario.raw.describe_stream_summary(StreamName="orders")["StreamDescriptionSummary"]
    epoch = int(summary["StreamCreationTimestamp"].timestamp())
    account = summary["StreamARN"].split(":")[4]
    table = scenario.aws.client("dynamodb")
    item = next(
        item
        for item in table.scan(TableName="app")["Items"]
        if item["leaseKey"]["S"] == f"{account}:orders:{epoch}:shardId-000000000000"
    )
    assert item["streamName"] == {"S": f"{account}:orders:{epoch}"}
    assert item["shardId"] == {"S": "shardId-000000000000"}
    assert len(scenario.rows()) == 4
    assert {stream for stream, _, _ in scenario.got} == {"orders", "refunds"}
    assert all(shard.startswith("shardId-") for _, shard, _ in scenario.got)


def test_streams_of_both_workers_are_shared_and_resharded():
    scenario = Streams("orders", "refunds")
    scenario.add("a")
    scenario.add("b")
    scenario.run(15)
    owners = [row.owner for row in scenario.rows().values()]
    assert sorted(owners) == ["a", "a", "b", "b"]
    middle = str(2**126)
    scenario.raw.split_shard(
        StreamName="refunds", ShardToSplit="shardId-000000000000", NewStartingHashKey=middle
    )
    scenario.clock.advance(1)
    scenario.put("refunds", *[b"%d" % n for n in range(30)])
    scenario.put("orders", b"x")
    assert scenario.run(20, lambda: len(scenario.data()) == 31)
    children = [row for row in scenario.rows().values() if row.parent_shard_ids]
    assert [row.parent_shard_ids for row in children] == [("shardId-000000000000",)] * 2, (
        "shard ids, not keys"
    )
    assert scenario.run(200, lambda: not any(row.is_finished for row in scenario.rows().values())), (
        "parents are cleaned up"
    )


def test_a_stream_is_added_and_removed_while_running():
    scenario = Streams("orders", "refunds")
    scenario.listed = ["orders"]
    scenario.add("a")
    scenario.add("b")
    scenario.run(5)
    scenario.put("refunds", b"early")
    scenario.run(5)
    assert scenario.got == []
    scenario.listed = ["orders", "refunds"]
    assert scenario.run(80, lambda: scenario.data() == {b"early"})
    scenario.listed = ["refunds"]
    scenario.run(80)
    scenario.put("orders", b"late")
    scenario.run(30)
    assert scenario.data() == {b"early"}
    dropped = [row for row in scenario.rows().values() if ":orders:" in row.lease_key]
    assert [row.owner for row in dropped] == [None, None], "given back and kept"
    scenario.listed = ["refunds", "orders"]
    assert scenario.run(80, lambda: scenario.data() == {b"early", b"late"}), "it resumes at its checkpoint"


def test_leases_of_former_streams_are_deleted_if_configured():
    config = UNHURRIED.with_fields(wait_period_to_delete_former_streams=200)
    scenario = Streams("orders", "refunds", config=config)
    scenario.add("a")
    scenario.run(5)
    scenario.listed = ["orders"]
    scenario.run(150)
    assert len(scenario.rows()) == 4
    # A worker whose list is newer than ours keeps one of them.
    kept = min(
        (row for row in scenario.rows().values() if ":refunds:" in row.lease_key), key=lambda r: r.lease_key
    )
    kept = scenario.store.take(kept, "elsewhere")
    scenario.run(260)
    assert scenario.store.get(kept.lease_key) == kept
    assert len(scenario.rows()) == 3
    scenario.store.release(kept)
    scenario.run(100)
    assert [row.stream_name.split(":")[1] for row in scenario.rows().values()] == ["orders", "orders"]


def test_positions_per_stream():
    scenario = Streams("orders", "refunds")
    scenario.put("orders", b"1")
    scenario.put("refunds", b"2")
    scenario.clock.advance(5)
    scenario.add("a", [StreamSpec(stream="orders"), StreamSpec(stream="refunds", initial_position="LATEST")])
    scenario.run(5)
    scenario.put("refunds", b"3")
    scenario.run(5)
    assert scenario.data() == {b"1", b"3"}


def test_a_deleted_stream_is_suspended_and_the_others_continue():
    scenario = Streams("orders", "refunds")
    scenario.add("a", ["orders", "refunds"])
    scenario.put("refunds", b"1")
    scenario.run(5)
    scenario.raw.delete_stream(StreamName="refunds", EnforceConsumerDeletion=True)
    scenario.run(20)
    scenario.put("orders", b"2")
    assert scenario.run(5, lambda: scenario.data() == {b"1", b"2"})
    scenario.run(200)
    assert "a" in scenario.engines
    assert {row.owner for row in scenario.rows().values() if ":refunds:" in row.lease_key} == {None}


@pytest.mark.parametrize(
    "operation", ["describe_stream_summary", "list_shards", "get_shard_iterator", "get_records"]
)
def test_a_stream_without_access_is_suspended_until_it_can_be_read(operation, caplog):
    scenario = Streams("orders", "secret", shards=1)
    scenario.listed = ["orders"]
    original = getattr(scenario.raw, operation)
    allowed = []

    def refuse(**request):
        # An iterator does not say whose it is in plain words.
        theirs = request.get("StreamName") == "secret" or (
            "ShardIterator" in request
            and scenario.aws.kinesis.records.position_of(request["ShardIterator"])[0] == "secret"
        )
        if theirs and not allowed:
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, operation)
        return original(**request)

    setattr(scenario.raw, operation, refuse)
    scenario.add("a")
    scenario.put("secret", b"1")
    scenario.run(5)
    scenario.listed = ["orders", "secret"]
    scenario.run(100)
    assert "suspended, cannot be " in caplog.text
    scenario.put("orders", b"2")
    assert scenario.run(5, lambda: scenario.data() == {b"2"}), "the others go on"
    allowed.append(True)
    assert scenario.run(100, lambda: scenario.data() == {b"1", b"2"})


def test_a_stream_without_access_is_an_error_at_the_start():
    scenario = Streams("orders", "secret", shards=1)
    original = scenario.raw.list_shards

    def refuse(**request):
        if request.get("StreamName") == "secret":
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "ListShards")
        return original(**request)

    scenario.raw.list_shards = refuse
    with pytest.raises(PermanentAwsError, match="AccessDenied"):
        scenario.add("a")


def test_a_recreated_stream_gets_new_leases():
    scenario = Streams("orders", "refunds")
    scenario.add("a")
    scenario.put("refunds", b"1")
    scenario.run(5)
    scenario.raw.delete_stream(StreamName="refunds", EnforceConsumerDeletion=True)
    scenario.run(5)
    scenario.raw.create_stream(StreamName="refunds", ShardCount=1)
    scenario.run(2)
    scenario.put("refunds", b"2")
    assert scenario.run(150, lambda: scenario.data() == {b"1", b"2"})
    names = {row.stream_name for row in scenario.rows().values() if ":refunds:" in row.lease_key}
    assert len(names) == 2, "the former incarnation's leases are kept"


def test_a_stream_of_another_account_brings_its_own_registered_consumer():
    """No stream's consumer is asked for as another's, and none is registered where one is given."""
    scenario = Streams("orders", "refunds", config=HORIZON.with_fields(retrieval_mode="fanout"), shards=1)
    asked = []

    def describe(**request):
        asked.append(request)
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "Describe")

    scenario.raw.describe_stream_consumer = describe
    theirs = f"{scenario.arn('orders')}/consumer/theirs:17"
    scenario.add(
        "a", [StreamSpec(stream=scenario.arn("orders"), consumer_arn=theirs), scenario.arn("refunds")]
    )
    scenario.put("orders", b"1")
    assert scenario.run(5, lambda: scenario.data() == {b"1"} and len(asked) == 2), (
        "polled, as nothing else works"
    )
    assert sorted(asked, key=len) == [
        {"ConsumerARN": theirs},
        {"StreamARN": scenario.arn("refunds"), "ConsumerName": "app"},
    ]


def test_leases_of_the_other_form_are_ignored():
    scenario = Streams("orders")
    scenario.store.ensure_ready()
    single = Lease(lease_key="shardId-000000000000", checkpoint=ExtendedSequenceNumber("TRIM_HORIZON"))
    scenario.store.create_if_absent(single)
    scenario.add("a")
    scenario.run(5)
    assert scenario.rows()["shardId-000000000000"].owner is None
    assert len(scenario.rows()) == 3


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


def test_given_epochs_and_accounts_are_not_requested():
    scenario = Streams()
    spec = StreamSpec(stream="elsewhere", creation_epoch=17, account_id="123456789012")
    arn = "arn:aws:kinesis:us-east-1:210987654321:stream/there"
    directory = StreamDirectory(
        HORIZON, scenario.raw, streams=[spec, StreamSpec(stream=arn, creation_epoch=18)], sleep=lambda s: None
    )
    directory.refresh()
    assert [one.key for one in directory.current()] == ["123456789012:elsewhere:17", "210987654321:there:18"]


def test_streams_that_cannot_be_tracked():
    scenario = Streams()
    with pytest.raises(ConfigError, match="stream"):
        StreamDirectory(HORIZON, scenario.raw, sleep=lambda s: None)
    with pytest.raises(ConfigError, match="account_id"):
        StreamSpec(stream="orders", account_id="12")
    with pytest.raises(ConfigError, match="creation_epoch"):
        StreamSpec(stream="orders", creation_epoch=0)
    with pytest.raises(ConfigError, match="initial_position"):
        StreamSpec(stream="orders", initial_position="NOW")
    with pytest.raises(ConfigError, match="consumer_arn"):
        StreamSpec(stream="orders", consumer_arn="arn:aws:kinesis:us-east-1:1:stream/orders")
    with pytest.raises(ConfigError, match="consumer_arn="):
        arn = "arn:aws:kinesis:us-east-1:123456789012:stream/orders/consumer/app:17"
        StreamDirectory(
            HORIZON.with_fields(consumer_arn=arn), scenario.raw, streams=["orders"], sleep=lambda s: None
        )
    with pytest.raises(ConfigError, match="not both"):
        Worker("orders", streams=["refunds"], application_name="app", handler=print)
    with pytest.raises(ConfigError, match="not both"):
        Worker(application_name="app", handler=print)

    class Terse:
        def describe_stream_summary(self, **request):
            return {"StreamDescriptionSummary": {}}

    with pytest.raises(ResourceNotFoundError):
        scenario.add("a", ["no-such-stream"])

    directory = StreamDirectory(HORIZON, Terse(), streams=["orders"], sleep=lambda s: None)
    with pytest.raises(ProtocolError, match="account"):
        directory.refresh()
