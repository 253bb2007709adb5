from __future__ import annotations

import sys
import threading
from typing import Any

from tests import HANG
from tests.testing.conftest import Account


def summary(account: Account) -> dict[str, Any]:
    return account.kinesis.describe_stream_summary(StreamName="s")["StreamDescriptionSummary"]


def test_creation_takes_its_time(make: type[Account], code: Any) -> None:
    account = make(stream_delay=5)
    account.stream(3)
    assert summary(account)["StreamStatus"] == "CREATING"
    assert code(account.kinesis.put_record, StreamName="s", Data=b"x", PartitionKey="k") == (
        "ResourceNotFoundException"
    )
    account.clock.advance(5)
    assert (summary(account)["StreamStatus"], summary(account)["OpenShardCount"]) == ("ACTIVE", 3)


def test_shard_limit(make: type[Account], code: Any) -> None:
    account = make(shard_limit=4)
    account.stream(3)
    assert code(account.kinesis.create_stream, StreamName="t", ShardCount=2) == "LimitExceededException"
    call = account.kinesis.update_shard_count
    assert code(call, StreamName="s", TargetShardCount=5, ScalingType="UNIFORM_SCALING") == (
        "LimitExceededException"
    )


def test_on_demand_streams_show_their_strategy(account: Account) -> None:
    account.kinesis.create_stream(StreamName="s", StreamModeDetails={"StreamMode": "ON_DEMAND"})
    assert summary(account)["RecordDistributionStrategy"] == "USER_PARTITION_KEY"
    arn = summary(account)["StreamARN"]
    account.kinesis.update_stream_record_distribution_strategy(
        StreamARN=arn, RecordDistributionStrategy="AUTO"
    )
    assert summary(account)["RecordDistributionStrategy"] == "AUTO"


def test_provisioned_streams_have_no_strategy(account: Account, code: Any) -> None:
    account.stream()
    assert "RecordDistributionStrategy" not in summary(account)
    call = account.kinesis.update_stream_record_distribution_strategy
    assert code(call, StreamARN=summary(account)["StreamARN"], RecordDistributionStrategy="AUTO") == (
        "InvalidArgumentException"
    )


def test_a_limit_for_records_is_a_mebibyte_at_least(account: Account, code: Any) -> None:
    account.stream()
    assert code(account.kinesis.update_max_record_size, StreamName="s", MaxRecordSizeInKiB=1023) == (
        "ValidationException"
    )


def test_a_consumer_takes_its_time_and_is_gone_at_once(make: type[Account], code: Any) -> None:
    account = make(consumer_delay=2)
    account.stream()
    arn = summary(account)["StreamARN"]
    kinesis = account.kinesis
    consumer = kinesis.register_stream_consumer(StreamARN=arn, ConsumerName="c")["Consumer"]
    assert consumer["ConsumerARN"] == f"{arn}/consumer/c:{int(account.clock.time())}"
    assert consumer["ConsumerStatus"] == "CREATING"
    account.clock.advance(2)
    described = kinesis.describe_stream_consumer(ConsumerARN=consumer["ConsumerARN"])["ConsumerDescription"]
    assert (described["ConsumerStatus"], described["StreamARN"]) == ("ACTIVE", arn)

    kinesis.deregister_stream_consumer(StreamARN=arn, ConsumerName="c")
    assert code(kinesis.describe_stream_consumer, StreamARN=arn, ConsumerName="c") == (
        "ResourceNotFoundException"
    )


def test_administration_can_be_limited(make: type[Account], code: Any) -> None:
    account = make(throttle_control_plane=True)
    account.stream()
    for _ in range(10):
        account.kinesis.describe_stream(StreamName="s")
    assert code(account.kinesis.describe_stream, StreamName="s") == "LimitExceededException"
    account.clock.advance(0.1)
    account.kinesis.describe_stream(StreamName="s")


def test_threads_that_write_read_reshard_and_delete_neither_block_nor_lose(make: type[Account]) -> None:
    account = make(throttle=False)
    account.stream(2)
    failures: list[BaseException] = []
    numbers: list[str] = []

    def run(work: Any) -> threading.Thread:
        def guarded() -> None:
            try:
                for number in range(30):
                    work(number)
            except BaseException as error:  # noqa: BLE001 — shown below
                failures.append(error)

        return threading.Thread(target=guarded, daemon=True)

    def write(number: int) -> None:
        answer = account.put(*[b"x"] * 10, key=str(number))
        numbers.extend(entry["SequenceNumber"] for entry in answer["Records"])

    def reshard(number: int) -> None:
        count = 2 + number % 2
        if len(account.open_shards()) != count:
            account.kinesis.update_shard_count(
                StreamName="s", TargetShardCount=count, ScalingType="UNIFORM_SCALING"
            )

    def churn(number: int) -> None:
        account.stream(1, name=f"t{number}")
        account.kinesis.list_streams()
        account.kinesis.delete_stream(StreamName=f"t{number}")
        account.aws.stats()

    def read(number: int) -> None:
        del number
        for shard in account.shards():
            account.read(shard=int(shard["ShardId"][-12:]))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [run(work) for work in (write, write, reshard, churn, read)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANG)
    finally:
        sys.setswitchinterval(interval)
    assert failures == []
    assert not any(thread.is_alive() for thread in threads)
    assert len(set(numbers)) == 600
    stored = [
        record["SequenceNumber"]
        for shard in account.shards()
        for record in account.kinesis.get_records(
            ShardIterator=account.iterator(shard=int(shard["ShardId"][-12:]))
        )["Records"]
    ]
    assert sorted(stored) == sorted(numbers)
    assert account.aws.stats()["records_stored"] == 600


def test_consumers_are_listed_in_pages(account: Account, code: Any) -> None:
    account.stream()
    arn = summary(account)["StreamARN"]
    for number in range(5):
        account.kinesis.register_stream_consumer(StreamARN=arn, ConsumerName=f"c{number}")
    found, more = [], {}
    while True:
        page = account.kinesis.list_stream_consumers(StreamARN=arn, MaxResults=2, **more)
        found.append([one["ConsumerName"] for one in page["Consumers"]])
        if "NextToken" not in page:
            break
        more = {"NextToken": page["NextToken"]}
    assert found == [["c0", "c1"], ["c2", "c3"], ["c4"]]
    call = account.kinesis.list_stream_consumers
    assert code(call, StreamARN=arn, NextToken="x") == "InvalidArgumentException"
