from __future__ import annotations

import base64
import json
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.testing.kinesis.records import data_size
from kinesis_sdk.testing.kinesis.shard import Shard
from tests.fuzz import how_many
from tests.testing.conftest import Account, code_of

MIB = 1 << 20
HALF = 1 << 127


# -- writing ------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=200))
def test_size_of_base64_is_the_decoded_length(data: bytes) -> None:
    assert data_size(base64.b64encode(data).decode()) == len(data)


@pytest.mark.parametrize("text", ["A", "AAA", "AAA*", "A===", "====", "AA=A", "AAAA\n", "é==="])
def test_what_is_not_base64_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        data_size(text)


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ({"Data": b"x"}, "ValidationException"),
        ({"PartitionKey": "k"}, "ValidationException"),
        ({"Data": b"x", "PartitionKey": "k", "ExplicitHashKey": "-1"}, "ValidationException"),
        ({"Data": b"x" * MIB, "PartitionKey": "k"}, "InvalidArgumentException"),
        ({"Data": b"x" * (10 * MIB + 1), "PartitionKey": "k"}, "ValidationException"),
    ],
)
def test_one_bad_entry_refuses_the_whole_call(account: Account, entry: dict[str, Any], code: str) -> None:
    account.stream()
    good = {"Data": b"good", "PartitionKey": "k"}
    assert code_of(account.kinesis.put_records, StreamName="s", Records=[good, entry]) == code
    assert code_of(account.kinesis.put_record, StreamName="s", **entry) == code
    assert account.read() == []


def test_a_request_holds_ten_mebibytes_of_data_and_keys(account: Account, code: Any) -> None:
    account.stream()
    full = [{"Data": b"x" * (MIB - 1), "PartitionKey": "k"}] * 10
    assert account.kinesis.put_records(StreamName="s", Records=full)["FailedRecordCount"] == 0
    over = [*full, {"Data": b"", "PartitionKey": "k"}]
    assert code(account.kinesis.put_records, StreamName="s", Records=over) == "InvalidArgumentException"


def test_throttled_records_fail_one_by_one(make: type[Account], code: Any) -> None:
    account = make()
    account.stream(2)
    records = [{"Data": b"x", "PartitionKey": "k", "ExplicitHashKey": "0"}] * 400
    records += [{"Data": b"x", "PartitionKey": "k", "ExplicitHashKey": str(HALF)}] * 100
    answers = [account.kinesis.put_records(StreamName="s", Records=records) for _ in range(3)]
    assert [answer["FailedRecordCount"] for answer in answers] == [0, 0, 200]
    failed = [entry for entry in answers[2]["Records"] if "ErrorCode" in entry]
    assert {entry["ErrorCode"] for entry in failed} == {"ProvisionedThroughputExceededException"}
    assert "shardId-000000000000 in stream s under account 123456789012" in failed[0]["ErrorMessage"]
    assert code(
        account.kinesis.put_record, StreamName="s", Data=b"x", PartitionKey="k", ExplicitHashKey="0"
    ) == ("ProvisionedThroughputExceededException")
    account.clock.advance(1)
    assert account.kinesis.put_records(StreamName="s", Records=records)["FailedRecordCount"] == 0
    assert len(account.read()) == 1400
    assert account.aws.stats()["records_throttled"] == 201


def test_an_auto_stream_ignores_keys(account: Account) -> None:
    account.kinesis.create_stream(
        StreamName="s",
        StreamModeDetails={"StreamMode": "ON_DEMAND"},
        RecordDistributionStrategy="AUTO",
    )
    answer = account.put(*[b"x"] * 100, ExplicitHashKey="0")
    assert len({entry["ShardId"] for entry in answer["Records"]}) == 4
    answer = account.kinesis.put_record(StreamName="s", Data=b"no key")
    shard = int(answer["ShardId"][-12:])
    record = account.kinesis.get_records(ShardIterator=account.iterator(shard=shard))["Records"][-1]
    assert record["Data"] == b"no key"
    assert "PartitionKey" not in record


# -- reading ------------------------------------------------------------------------------------------------------


@settings(max_examples=how_many(unit=15, fuzz=40))
@given(
    batches=st.lists(st.lists(st.binary(max_size=8), min_size=1, max_size=6), max_size=6),
    limit=st.integers(1, 7),
)
def test_paging_delivers_each_record_once_in_order(batches: list[list[bytes]], limit: int) -> None:
    account = Account(throttle=False)
    account.stream()
    for batch in batches:
        account.put(*batch)
        account.clock.advance(0.7)
    iterator, numbers, data = account.iterator(), [], []
    for _ in range(sum(map(len, batches)) + 1):
        answer = account.kinesis.get_records(ShardIterator=iterator, Limit=limit)
        assert len(answer["Records"]) <= limit
        numbers += [record["SequenceNumber"] for record in answer["Records"]]
        data += [record["Data"] for record in answer["Records"]]
        iterator = answer["NextShardIterator"]
    assert data == [one for batch in batches for one in batch]
    assert numbers == sorted(set(numbers), key=int)


def test_iterators_expire_after_five_minutes(account: Account, code: Any) -> None:
    account.stream()
    iterator = account.iterator()
    account.clock.advance(300)
    account.kinesis.get_records(ShardIterator=iterator)
    account.clock.advance(0.001)
    assert code(account.kinesis.get_records, ShardIterator=iterator) == "ExpiredIteratorException"


def test_an_iterator_of_a_deleted_stream_finds_nothing(account: Account, code: Any) -> None:
    account.stream()
    iterator = account.iterator()
    account.kinesis.delete_stream(StreamName="s")
    assert code(account.kinesis.get_records, ShardIterator=iterator) == "ResourceNotFoundException"
    account.clock.advance(1)
    account.stream()
    assert code(account.kinesis.get_records, ShardIterator=iterator) == "ResourceNotFoundException"


def test_behind_is_the_distance_to_the_tip(account: Account) -> None:
    account.stream()
    account.put(b"a")
    account.clock.advance(2)
    account.put(b"b")
    account.clock.advance(3)
    first = account.kinesis.get_records(ShardIterator=account.iterator(), Limit=1)
    assert first["MillisBehindLatest"] == 5000
    last = account.kinesis.get_records(ShardIterator=first["NextShardIterator"], Limit=1)
    assert last["MillisBehindLatest"] == 0


def test_a_page_holds_ten_mebibytes(account: Account) -> None:
    account.stream()
    for _ in range(12):
        account.put(b"x" * (MIB - 1))
    first = account.kinesis.get_records(ShardIterator=account.iterator())
    assert len(first["Records"]) == 10
    assert len(account.kinesis.get_records(ShardIterator=first["NextShardIterator"])["Records"]) == 2


def test_records_leave_with_retention(account: Account) -> None:
    account.stream()
    account.put(*[b"old"] * 500)
    account.clock.advance(3600)
    account.put(b"new")
    account.clock.advance(23 * 3600)
    assert len(account.read()) == 501
    account.clock.advance(0.001)
    assert account.read() == [b"new"]
    account.kinesis.increase_stream_retention_period(StreamName="s", RetentionPeriodHours=48)
    account.put(*[b"later"] * 3)
    account.clock.advance(3600)
    assert account.read() == [b"new", b"later", b"later", b"later"]


def test_reads_are_throttled_per_shard(make: type[Account], code: Any) -> None:
    account = make()
    account.stream(2)
    iterators = [account.iterator(shard=shard) for shard in (0, 1)]
    for _ in range(5):
        account.kinesis.get_records(ShardIterator=iterators[0])
    call = account.kinesis.get_records
    assert code(call, ShardIterator=iterators[0]) == "ProvisionedThroughputExceededException"
    account.kinesis.get_records(ShardIterator=iterators[1])
    account.clock.advance(0.2)
    account.kinesis.get_records(ShardIterator=iterators[0])


@given(st.lists(st.floats(0, 3, allow_subnormal=False), min_size=1, max_size=4))
@settings(max_examples=how_many(unit=15, fuzz=60))
def test_a_record_is_found_at_the_instant_of_its_arrival(pauses: list[float]) -> None:
    """Whatever is below a millisecond: for the record, for an iterator at that time, and for a list of shards."""
    account = Account(throttle=False)
    account.stream(1)
    for number, pause in enumerate(pauses):
        account.clock.advance(pause)
        account.put(b"%d" % number)
        now = datetime.fromtimestamp(account.clock.time(), timezone.utc)
        assert b"%d" % number in account.read("AT_TIMESTAMP", Timestamp=now)
        (shard,) = account.shards(ShardFilter={"Type": "AT_TIMESTAMP", "Timestamp": now})
        assert shard["ShardId"].endswith("0")
        answer = account.kinesis.get_records(ShardIterator=account.iterator())
        arrival = answer["Records"][-1]["ApproximateArrivalTimestamp"]
        assert b"%d" % number in account.read("AT_TIMESTAMP", Timestamp=arrival)


# -- one shard's log ----------------------------------------------------------------------------------------------


def a_shard() -> Shard:
    return Shard(index=0, start=0, end=2 * HALF - 1, created_second=1_700_000_000, now=1.7e9, monotonic=0.0)


def test_arrival_times_rise_even_if_the_clock_goes_back() -> None:
    shard = a_shard()
    numbers = [shard.append("", "", 1, 1_700_000_000_000 + late) for late in (5, 3, 3, 7)]
    assert numbers == sorted(set(numbers))
    records = [json.loads(text) for text in shard.read(0, 10, 100, 0).fragments]
    times = [round(record["ApproximateArrivalTimestamp"] * 1000) % 1000 for record in records]
    assert times == [5, 5, 5, 7]
    assert shard.number_since(1_700_000_000_006) == numbers[3]


def test_a_record_larger_than_a_page_is_a_page() -> None:
    shard = a_shard()
    for size in (10, 500, 10):
        shard.append("", "", size, 1_700_000_000_000)
    position, sizes = 0, []
    for _ in range(3):
        page = shard.read(position, 100, 100, 0)
        position = page.position
        sizes.append(page.size)
    assert sizes == [10, 500, 10]


def test_a_dry_run_of_a_read_names_itself_and_takes_no_read(account: Account, code: Any) -> None:
    account.stream()
    request = {"StreamName": "s", "ShardId": "shardId-000000000000", "ShardIteratorType": "TRIM_HORIZON"}
    for _ in range(20):
        assert code(account.kinesis.get_shard_iterator, **request, DryRun=True) == "DryRunOperationException"
    iterator = account.kinesis.get_shard_iterator(**request)["ShardIterator"]
    for _ in range(20):
        assert (
            code(account.kinesis.get_records, ShardIterator=iterator, DryRun=True)
            == "DryRunOperationException"
        )
    assert account.kinesis.get_records(ShardIterator=iterator)["MillisBehindLatest"] == 0
    missing = {**request, "ShardId": "shardId-000000000099"}
    assert code(account.kinesis.get_shard_iterator, **missing, DryRun=True) == "ResourceNotFoundException"


def test_a_shard_takes_a_mebibyte_a_second() -> None:
    account = Account()
    account.stream(1)
    assert account.put(bytes(600 * 1024), bytes(600 * 1024))["FailedRecordCount"] == 1
    account.clock.advance(1.0)
    assert account.put(bytes(600 * 1024))["FailedRecordCount"] == 0
