from __future__ import annotations

from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from kinesis_sdk.testing import Fault, Faults
from tests.testing.conftest import Account, FanOut


def fire(faults: Faults, times: int, operation: str = "PutRecords") -> list[bool]:
    return [bool(faults.for_call(operation, "s", None)) for _ in range(times)]


def test_the_same_seed_gives_the_same_failures() -> None:
    def run(seed: int) -> list[bool]:
        faults = Faults(seed)
        faults.add(Fault(kind="throttle", probability=0.3))
        return fire(faults, 200)

    assert run(1) == run(1) != run(2)
    assert 30 < sum(run(1)) < 90


def test_another_fault_does_not_change_the_first_ones_choices() -> None:
    alone, together = Faults(1), Faults(1)
    for faults in (alone, together):
        faults.add(Fault(kind="throttle", probability=0.5))
    together.add(Fault(kind="slow", probability=0.5))
    first = ["throttle" in {hit.kind for hit in together.for_call("X", None, None)} for _ in range(50)]
    assert first == fire(alone, 50)


def test_after_and_count() -> None:
    faults = Faults()
    number = faults.add(Fault(kind="error", operation="PutRecords", after=2, count=3))
    assert fire(faults, 7) == [False, False, True, True, True, False, False]
    assert fire(faults, 3, "GetRecords") == [False] * 3
    assert [(one["id"], one["fired"]) for one in faults.active()] == [(number, 3)]
    assert faults.remove(number)
    assert not faults.remove(number)
    assert faults.fired() == {"error": 3}


@pytest.mark.parametrize(
    "values",
    [
        {"kind": "nonsense"},
        {"kind": "throttle", "probability": 2},
        {"kind": "slow", "seconds": -1},
        {"kind": "partial", "operation": "GetRecords"},
        {"kind": "throttle", "operation": "PutRecords", "shard_id": "x"},
        {"kind": "throttle", "what": 1},
        {"kind": "early_arrival", "operation": "GetRecords"},
        {"kind": "torn_listing", "operation": "DescribeStreamSummary"},
        {"kind": "broken_stream", "operation": "GetRecords"},
        {},
    ],
)
def test_faults_that_make_no_sense(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Fault.from_dict(values)


def test_partial_failures_by_shard(account: Account) -> None:
    account.stream(2)
    account.aws.faults.add(
        Fault(kind="partial", shard_id="shardId-000000000001", code="InternalFailure", count=1)
    )
    for failed in (1, 0):
        low = account.put(b"low", ExplicitHashKey="0")
        high = account.put(b"high", ExplicitHashKey=str(1 << 127))
        assert (low["FailedRecordCount"], high["FailedRecordCount"]) == (0, failed)
        if failed:
            assert high["Records"] == [
                {"ErrorCode": "InternalFailure", "ErrorMessage": "Internal Service Failure"}
            ]
    assert account.read(shard=1) == [b"high"]
    assert account.aws.stats()["faults"] == {"partial": 1}


@pytest.mark.parametrize(
    ("fault", "code_", "status"),
    [
        (Fault(kind="throttle"), "ProvisionedThroughputExceededException", 400),
        (Fault(kind="error"), "InternalFailure", 500),
        (Fault(kind="error", status=503), "ServiceUnavailable", 503),
        (Fault(kind="error", code="KMSThrottlingException", status=400), "KMSThrottlingException", 400),
        (Fault(kind="expired_credentials"), "ExpiredTokenException", 400),
    ],
)
def test_whole_calls_fail_before_anything_is_stored(
    account: Account, fault: Fault, code_: str, status: int
) -> None:
    account.stream()
    account.aws.faults.add(fault)
    with pytest.raises(ClientError) as caught:
        account.put(b"x")
    assert caught.value.response["Error"]["Code"] == code_
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == status
    account.aws.faults.clear()
    assert account.read() == []


@pytest.mark.parametrize(("kind", "stored"), [("timeout_after_storing", 1), ("timeout_before_storing", 0)])
def test_a_lost_answer(account: Account, kind: Any, stored: int) -> None:
    account.stream()
    account.aws.faults.add(Fault(kind=kind, operation="PutRecords", count=1))
    with pytest.raises(ReadTimeoutError):
        account.put(b"x")
    assert len(account.read()) == stored


def test_reads(account: Account, code: Any) -> None:
    account.stream(2)
    account.put(b"x", ExplicitHashKey="0")
    iterator = account.iterator()
    account.aws.faults.add(Fault(kind="empty_read", shard_id="shardId-000000000000", count=1))
    answer = account.kinesis.get_records(ShardIterator=iterator)
    assert answer["Records"] == []
    assert answer["MillisBehindLatest"] > 0
    answer = account.kinesis.get_records(ShardIterator=answer["NextShardIterator"])
    assert len(answer["Records"]) == 1
    account.aws.faults.add(Fault(kind="empty_read", shard_id="shardId-000000000000", count=1))
    assert account.kinesis.get_records(ShardIterator=answer["NextShardIterator"])["MillisBehindLatest"] == 0
    account.aws.faults.add(Fault(kind="expired_iterator", shard_id="shardId-000000000001"))
    account.kinesis.get_records(ShardIterator=iterator)
    assert code(account.kinesis.get_records, ShardIterator=account.iterator(shard=1)) == (
        "ExpiredIteratorException"
    )


def test_conditional_writes_can_lose_for_no_reason(account: Account, code: Any) -> None:
    account.table()
    account.aws.faults.add(Fault(kind="conditional", stream="tab", count=1))
    request = {"TableName": "tab", "Item": {"pk": {"S": "a"}}}
    assert code(account.dynamodb.put_item, **request) == "ConditionalCheckFailedException"
    account.dynamodb.put_item(**request)


def test_slow_calls_ask_the_given_function_to_wait(make: type[Account]) -> None:
    waited: list[float] = []
    account = make(sleep=waited.append)
    account.aws.faults.add(Fault(kind="slow", seconds=2.5))
    account.stream()
    assert waited == [2.5]
    silent = make()
    silent.aws.faults.add(Fault(kind="slow", seconds=1e9))
    silent.stream()


def arrivals(account: Account, **where: Any) -> list[float]:
    answer = account.kinesis.get_records(ShardIterator=account.iterator(**where))
    return [record["ApproximateArrivalTimestamp"].timestamp() for record in answer["Records"]]


def test_arrival_times_fall_where_a_fault_says_so(account: Account) -> None:
    account.stream()
    start = account.clock.time()
    account.put(b"0")
    account.aws.faults.add(Fault(kind="early_arrival", seconds=2.5, after=1, count=1))
    for data in (b"1", b"2", b"3"):
        account.clock.advance(1)
        account.put(data)
    assert [round(at - start, 3) for at in arrivals(account)] == [0, 1, -0.5, 3]
    assert account.read() == [b"0", b"1", b"2", b"3"], "the order in the shard does not change"
    later = datetime.fromtimestamp(start + 2, tz=timezone.utc)
    assert account.read("AT_TIMESTAMP", Timestamp=later) == [b"2", b"3"], (
        "positions go by the time of storing"
    )
    numbers = account.kinesis.get_records(ShardIterator=account.iterator())["Records"]
    assert sorted(numbers, key=lambda record: int(record["SequenceNumber"])) == numbers


def test_records_with_early_arrival_times_live_as_long_as_others(account: Account) -> None:
    account.stream()
    for _ in range(300):
        account.put(b"old")
    account.clock.advance(23 * 3600)
    account.aws.faults.add(Fault(kind="early_arrival", seconds=7200))
    account.put(b"new")
    account.clock.advance(3600)
    account.put(b"newer")
    account.clock.advance(60)
    assert account.read() == [b"new", b"newer"]


def test_a_torn_listing_lacks_a_shard_once(account: Account) -> None:
    account.stream(3)
    account.aws.faults.add(Fault(kind="torn_listing", count=1))
    assert [shard["ShardId"][-1] for shard in account.shards()] == ["0", "1"]
    assert len(account.shards()) == 3


@pytest.mark.parametrize("operation", ["PutRecords", "PutRecord"])
def test_a_late_write_appears_when_its_seconds_have_passed(account: Account, operation: str) -> None:
    account.stream()
    start = account.clock.time()
    account.aws.faults.add(Fault(kind="late_store", operation=operation, seconds=30, count=1))
    with pytest.raises(ReadTimeoutError):
        if operation == "PutRecords":
            account.put(b"late")
        else:
            account.kinesis.put_record(StreamName="s", PartitionKey="k", Data=b"late")
    account.put(b"in time")

    account.clock.advance(29.9)
    assert account.read() == [b"in time"]
    account.clock.advance(50)

    assert account.read() == [b"in time", b"late"]
    assert [round(at - start, 3) for at in arrivals(account)] == [0, 30], "it arrived when it was stored"
    assert account.aws.stats()["records_stored"] == 2


def test_a_late_write_may_fail_with_an_error_and_is_checked_at_once(account: Account, code: Any) -> None:
    account.stream()
    account.aws.faults.add(
        Fault(kind="late_store", seconds=1, code="InternalFailure", message="It broke.", status=500)
    )
    with pytest.raises(ClientError) as caught:
        account.put(b"late")
    assert caught.value.response["Error"] == {"Code": "InternalFailure", "Message": "It broke."}
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500
    assert code(account.kinesis.put_record, StreamName="s", PartitionKey="", Data=b"x") == (
        "ValidationException"
    )
    account.clock.advance(1)
    assert account.read() == [b"late"]


def test_a_late_write_goes_to_the_shard_that_is_open_when_it_is_stored(make: type[Account]) -> None:
    account = make(throttle=False, reshard_delay=10)
    account.stream()
    for seconds in (5, 15):
        account.aws.faults.add(Fault(kind="late_store", seconds=seconds, count=1))
        with pytest.raises(ReadTimeoutError):
            account.put(b"after %d s" % seconds, ExplicitHashKey="0")
        account.aws.faults.clear()
    account.kinesis.split_shard(
        StreamName="s", ShardToSplit="shardId-000000000000", NewStartingHashKey=str(1 << 127)
    )

    account.clock.advance(60)  # the split and both writes are due, and are carried out in their order

    assert account.read(shard=0) == [b"after 5 s"]
    assert account.read(shard=1) == [b"after 15 s"]


def test_a_subscription_sees_a_late_write() -> None:
    account = FanOut()
    events = account.subscribe()
    assert next(events)["Records"] == []
    account.aws.faults.add(Fault(kind="late_store", seconds=3))
    with pytest.raises(ReadTimeoutError):
        account.put(b"late")
    account.clock.advance(3)
    assert [record["Data"] for record in next(events)["Records"]] == [b"late"]


def test_an_entry_that_failed_may_be_stored_later(account: Account) -> None:
    account.stream()
    account.aws.faults.add(Fault(kind="partial", seconds=2, after=1, count=1))
    answer = account.put(b"0", b"1", b"2")
    assert [entry.get("ErrorCode") for entry in answer["Records"]] == [None, "InternalFailure", None]
    account.clock.advance(2)
    assert account.read() == [b"0", b"2", b"1"]
    account.aws.faults.add(Fault(kind="partial", seconds=2))
    account.put(b"3")
    account.clock.advance(2)
    assert account.read()[-1] == b"3", "a fault that hits every record does not delay one for ever"


@pytest.mark.parametrize("offset", [0.0, 7.0, -3600.0])
def test_the_date_of_responses_may_be_off(account: Account, offset: float) -> None:
    account.aws.date_offset = offset
    for call in (account.kinesis.list_streams, lambda: _failed(account)):
        date = call()["ResponseMetadata"]["HTTPHeaders"]["date"]
        assert parsedate_to_datetime(date).timestamp() == int(account.clock.time() + offset)


def test_responses_may_have_no_date() -> None:
    account = Account(date_offset=None)
    assert "date" not in account.kinesis.list_streams()["ResponseMetadata"]["HTTPHeaders"]


def _failed(account: Account) -> Any:
    with pytest.raises(ClientError) as caught:
        account.put(b"x")
    return caught.value.response
