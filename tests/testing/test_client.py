from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from botocore.exceptions import ClientError

from kinesis_sdk import Producer
from kinesis_sdk.testing import FakeAws, VirtualClock
from kinesis_sdk.testing.errors import AwsError
from tests.testing.conftest import Account


def test_answers_have_boto3s_types(account: Account) -> None:
    account.stream()
    when = datetime.fromtimestamp(account.clock.time(), tz=timezone.utc)
    account.kinesis.put_record(StreamName="s", Data="text", PartitionKey="é")
    account.put(bytearray(b"\x00\xff"))
    answer = account.kinesis.get_records(ShardIterator=account.iterator())
    assert [record["Data"] for record in answer["Records"]] == [b"text", b"\x00\xff"]
    assert answer["Records"][0]["PartitionKey"] == "é"
    assert answer["Records"][0]["ApproximateArrivalTimestamp"] == when
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 200
    described = account.kinesis.describe_stream_summary(StreamName="s")["StreamDescriptionSummary"]
    assert described["StreamCreationTimestamp"] == when


def test_timestamps_may_be_datetimes_numbers_or_naive_utc(account: Account) -> None:
    account.stream()
    account.clock.advance(5)
    account.put(b"x")
    when = datetime.fromtimestamp(account.clock.time(), tz=timezone.utc)
    for timestamp in (when, when.timestamp(), when.replace(tzinfo=None)):
        assert account.read("AT_TIMESTAMP", Timestamp=timestamp) == [b"x"]
    late = when.astimezone(timezone(timedelta(hours=5)))
    assert account.read("AT_TIMESTAMP", Timestamp=late) == [b"x"]


def test_errors_are_botocores(account: Account) -> None:
    with pytest.raises(ClientError) as caught:
        account.kinesis.describe_stream(StreamName="nothing")
    response = caught.value.response
    assert response["Error"] == {
        "Code": "ResourceNotFoundException",
        "Message": "Stream nothing under account 123456789012 not found.",
    }
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert caught.value.operation_name == "DescribeStream"


def test_what_is_not_there_says_so(account: Account) -> None:
    with pytest.raises(AttributeError, match="put_recordz"):
        account.kinesis.put_recordz()
    with pytest.raises(ValueError, match="s3"):
        account.aws.client("s3")


@pytest.mark.parametrize(
    ("service", "operation"),
    [
        ("kinesis", "PutResourcePolicy"),
        ("kinesis", "EnableEnhancedMonitoring"),
        ("kinesis", "StartStreamEncryption"),
        ("kinesis", "UpdateStreamWarmThroughput"),
        ("kinesis", "UpdateAccountSettings"),
        ("kinesis", "TagResource"),
        ("dynamodb", "UpdateTimeToLive"),
    ],
)
def test_an_operation_that_the_guide_calls_absent_says_so(
    account: Account, service: str, operation: str
) -> None:
    with pytest.raises(AwsError, match=f"no operation {operation} of {service}"):
        account.aws.call(service, operation, {})


def test_requests_are_not_changed_and_answers_not_shared(account: Account) -> None:
    account.table()
    item = {"pk": {"S": "a"}, "b": {"B": b"1"}}
    account.dynamodb.put_item(TableName="tab", Item=item)
    assert item == {"pk": {"S": "a"}, "b": {"B": b"1"}}
    account.dynamodb.get_item(TableName="tab", Key={"pk": {"S": "a"}})["Item"]["pk"]["S"] = "changed"
    assert account.dynamodb.get_item(TableName="tab", Key={"pk": {"S": "a"}})["Item"] == item


def test_meta_and_close() -> None:
    client = FakeAws(clock=VirtualClock()).client("kinesis", region_name="eu-west-1", config=None)
    assert client.meta.region_name == "eu-west-1"
    assert client.meta.endpoint_url.startswith("memory://")
    client.close()


def test_stats_and_reset(account: Account) -> None:
    account.stream()
    account.put(b"abc", key="k")
    account.read()
    with pytest.raises(ClientError):
        account.stream()
    stats = account.aws.stats()
    assert stats["calls"] == {"CreateStream": 2, "PutRecords": 1, "GetShardIterator": 1, "GetRecords": 1}
    assert stats["errors"] == {"CreateStream:ResourceInUseException": 1}
    assert (stats["records_stored"], stats["bytes_stored"], stats["records_read"]) == (1, 4, 1)
    account.aws.reset()
    assert account.aws.stats()["calls"] == {}
    account.stream()


def test_metrics_and_identity(account: Account) -> None:
    cloudwatch = account.aws.client("cloudwatch")
    cloudwatch.put_metric_data(Namespace="ns", MetricData=[{"MetricName": "m", "Value": 1.5}])
    assert account.aws.cloudwatch.metric_data() == [{"Namespace": "ns", "MetricName": "m", "Value": 1.5}]
    assert cloudwatch.list_metrics(Namespace="ns")["Metrics"][0]["MetricName"] == "m"
    with pytest.raises(ClientError, match="MissingParameter"):
        cloudwatch.put_metric_data(MetricData=[])
    assert account.aws.client("sts").get_caller_identity()["Account"] == "123456789012"


def test_a_fake_account_makes_streams_and_clients() -> None:
    aws = FakeAws(streams={"orders": 2, "returns": 1})
    with Producer(session=aws) as producer:
        results = [producer.put("orders", str(key), b"x") for key in range(20)]
    assert {result.result().shard_id for result in results} == {
        "shardId-000000000000",
        "shardId-000000000001",
    }
    returns = aws.client("kinesis").list_shards(StreamName="returns")["Shards"]
    assert [shard["ShardId"] for shard in returns] == ["shardId-000000000000"]
