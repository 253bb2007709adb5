from __future__ import annotations

import struct
import threading
import zlib
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import EventStreamError
from urllib3.exceptions import ProtocolError

from kinesis_sdk.testing import Fault
from kinesis_sdk.testing.errors import AwsError
from kinesis_sdk.testing.http.eventstream import encode_event, encode_exception
from tests import HANG
from tests.testing.conftest import SHARD, FanOut


def data(event: dict[str, Any]) -> list[bytes]:
    return [record["Data"] for record in event["Records"]]


def test_events_have_records_a_position_and_a_lag() -> None:
    account = FanOut()
    events = account.subscribe()
    first = next(events)
    assert (data(first), first["MillisBehindLatest"]) == ([], 0)
    account.put(b"a", b"b", key="é")
    event = next(events)
    assert data(event) == [b"a", b"b"]
    assert event["Records"][0]["PartitionKey"] == "é"
    assert event["Records"][0]["ApproximateArrivalTimestamp"].timestamp() == account.clock.time()
    assert event["ContinuationSequenceNumber"] == event["Records"][-1]["SequenceNumber"]
    assert "ChildShards" not in event
    # Nothing to tell: an empty event, at the same place.
    idle = next(events)
    assert (data(idle), idle["ContinuationSequenceNumber"]) == ([], event["ContinuationSequenceNumber"])
    assert account.aws.stats()["records_read"] == 2


def test_starting_positions() -> None:
    account = FanOut(sleep=lambda seconds: None)
    numbers = [entry["SequenceNumber"] for entry in account.put(b"a", b"b", b"c")["Records"]]
    account.clock.advance(10)
    moment = account.clock.time()
    account.put(b"d")
    for kind, more, found in [
        ("TRIM_HORIZON", {}, [b"a", b"b", b"c", b"d"]),
        ("LATEST", {}, []),
        ("AT_SEQUENCE_NUMBER", {"SequenceNumber": numbers[1]}, [b"b", b"c", b"d"]),
        ("AFTER_SEQUENCE_NUMBER", {"SequenceNumber": numbers[1]}, [b"c", b"d"]),
        ("AT_TIMESTAMP", {"Timestamp": moment}, [b"d"]),
    ]:
        assert data(next(account.subscribe(kind, **more))) == found, kind
        account.clock.advance(6)


@pytest.mark.parametrize("kind", ["TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"])
def test_the_first_position_can_be_resumed_from(kind: str) -> None:
    account = FanOut()
    if kind == "AT_TIMESTAMP":
        account.put(b"before")
        account.clock.advance(5)
    more = {"Timestamp": account.clock.time()} if kind == "AT_TIMESTAMP" else {}
    first = next(account.subscribe(kind, **more))
    assert data(first) == []
    account.put(b"x")
    account.clock.advance(5)
    events = account.subscribe("AFTER_SEQUENCE_NUMBER", SequenceNumber=first["ContinuationSequenceNumber"])
    assert data(next(events)) == [b"x"]


def test_the_end_of_a_shard_names_its_children_and_ends_the_stream() -> None:
    account = FanOut()
    events = account.subscribe()
    account.put(b"a")
    account.kinesis.split_shard(StreamName="s", ShardToSplit=SHARD, NewStartingHashKey=str(1 << 127))
    (event,) = list(events)
    assert data(event) == [b"a"]
    assert "ContinuationSequenceNumber" not in event
    assert [child["ShardId"][-1] for child in event["ChildShards"]] == ["1", "2"]
    assert all(child["ParentShards"] == [SHARD] for child in event["ChildShards"])
    # Once more, on a shard that is closed already.
    account.clock.advance(5)
    (event,) = list(account.subscribe("LATEST"))
    assert (data(event), len(event["ChildShards"])) == ([], 2)


def test_who_may_subscribe(code: Any) -> None:
    account = FanOut(consumer_delay=3)
    subscribe = account.kinesis.subscribe_to_shard
    assert code(subscribe, **account.request()) == "ResourceInUseException"
    account.clock.advance(3)
    for wrong, error in [
        ({"ShardId": None}, "ValidationException"),
        ({"StartingPosition": {}}, "ValidationException"),
        (
            {"StartingPosition": {"Type": "AT_SEQUENCE_NUMBER", "SequenceNumber": "5"}},
            "InvalidArgumentException",
        ),
        ({"DryRun": True}, "DryRunOperationException"),
    ]:
        assert code(subscribe, **{**account.request(), **wrong}) == error
    # None of them counted as a subscription.
    subscribe(**account.request())


def test_five_seconds_after_a_call_the_next_one_takes_over(code: Any) -> None:
    account = FanOut(shards=2)
    first = account.subscribe()
    next(first)
    account.clock.advance(4.9)
    assert code(account.kinesis.subscribe_to_shard, **account.request()) == "ResourceInUseException"
    # Another shard and another consumer are independent.
    account.kinesis.subscribe_to_shard(**account.request(shard="shardId-000000000001"))
    account.clock.advance(0.1)
    second = account.subscribe()
    with pytest.raises(EventStreamError) as caught:
        next(first)
    assert caught.value.response["Error"]["Code"] == "ResourceInUseException"
    assert data(next(second)) == []
    assert list(first) == []


def test_a_closed_subscription_still_counts_for_five_seconds(code: Any) -> None:
    account = FanOut()
    stream = account.kinesis.subscribe_to_shard(**account.request())["EventStream"]
    stream.close()
    assert list(stream) == []
    assert code(account.kinesis.subscribe_to_shard, **account.request()) == "ResourceInUseException"


def test_five_minutes() -> None:
    account = FanOut()
    account.aws.sleep = account.clock.advance
    moments = [account.clock.monotonic() for _ in account.subscribe()]
    assert moments == [5.0 * count for count in range(60)]
    assert account.clock.monotonic() == 300.0


def test_two_mebibytes_a_second() -> None:
    account = FanOut(throttle=True)
    account.aws.sleep = lambda seconds: account.clock.advance(max(seconds, 0.05))
    for _ in range(8):
        account.put(b"x" * ((1 << 20) - 1))
        account.clock.advance(1)
    start, sizes, events = account.clock.monotonic(), [], account.subscribe()
    subscription = account.aws.kinesis.registry.streams["s"].consumers["c"].subscriptions[SHARD]
    while len(sizes) < 8:
        payload = subscription.take()
        if payload is None:
            account.clock.advance(0.05)
        else:
            assert len(payload) < 2 << 20
            sizes.append(account.clock.monotonic() - start)
    # Two seconds' worth is there at once (the bucket and its overdraft), the rest comes at 2 MiB/s.
    assert sizes[:3] == [0, 0, 0]
    assert sizes[-1] == pytest.approx(2.5, abs=0.15)
    assert next(events)["MillisBehindLatest"] == 0


def test_a_subscription_ends_with_its_consumer_or_its_stream() -> None:
    for end in (
        lambda account: account.kinesis.deregister_stream_consumer(ConsumerARN=account.consumer),
        lambda account: account.kinesis.delete_stream(StreamName="s", EnforceConsumerDeletion=True),
        lambda account: account.aws.reset(),
    ):
        account = FanOut()
        events = account.subscribe()
        next(events)
        end(account)
        with pytest.raises(EventStreamError, match="ResourceNotFoundException"):
            next(events)


def test_broken_streams() -> None:
    account = FanOut()
    account.aws.faults.add(Fault(kind="broken_stream", after=1, count=1))
    events = account.subscribe()
    account.put(b"a")
    assert data(next(events)) == [b"a"]
    with pytest.raises(ProtocolError):
        next(events)
    assert account.aws.stats()["faults"] == {"broken_stream": 1}
    assert Fault(kind="broken_stream", operation="SubscribeToShard")


def test_a_reader_that_waits_is_woken_by_a_writer_and_by_the_next_reader() -> None:
    # The machine's clock: the reader really waits, and what wakes it is the write, not time.
    account = FanOut(clock=None)
    events = account.subscribe("LATEST")
    found: list[bytes] = []
    begun = threading.Event()

    def read() -> None:
        for event in events:
            found.extend(data(event))
            begun.set()
            if found:
                return

    thread = threading.Thread(target=read)
    thread.start()
    assert begun.wait(HANG)
    account.put(b"x")
    thread.join(HANG)
    assert found == [b"x"]


def test_retention_takes_records_from_a_subscription() -> None:
    account = FanOut()
    account.put(b"old")
    account.clock.advance(timedelta(hours=25).total_seconds())
    account.put(b"new")
    assert data(next(account.subscribe())) == [b"new"]


def read_message(message: bytes) -> tuple[dict[str, str], bytes]:
    """An independent reading of a frame, by the published layout."""
    total, length = struct.unpack_from("!II", message)
    assert total == len(message)
    assert struct.unpack_from("!I", message, 8)[0] == zlib.crc32(message[:8])
    assert struct.unpack("!I", message[-4:])[0] == zlib.crc32(message[:-4])
    headers, at = {}, 12
    while at < 12 + length:
        size = message[at]
        name = message[at + 1 : at + 1 + size].decode()
        at += 1 + size
        kind, size = struct.unpack_from("!BH", message, at)
        assert kind == 7
        headers[name] = message[at + 3 : at + 3 + size].decode()
        at += 3 + size
    return headers, message[at:-4]


def test_frames() -> None:
    headers, payload = read_message(encode_event("SubscribeToShardEvent", b"{}"))
    assert headers[":message-type"] == "event"
    assert headers[":event-type"] == "SubscribeToShardEvent"
    assert payload == b"{}"
    headers, payload = read_message(encode_exception(AwsError("ResourceInUseException", "taken over")))
    assert headers[":message-type"] == "exception"
    assert headers[":exception-type"] == "ResourceInUseException"
    assert payload == b'{"message": "taken over"}'
