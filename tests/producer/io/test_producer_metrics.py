"""A producer and its metrics: what it did is what they say."""

from __future__ import annotations

from kinesis_sdk.metrics import CloudWatchMetrics, MemoryMetrics
from kinesis_sdk.producer import Producer, ProducerConfig
from kinesis_sdk.testing import FakeAws, Fault


def make_aws() -> FakeAws:
    aws = FakeAws(throttle=False)
    aws.client("kinesis").create_stream(StreamName="orders", ShardCount=2)
    return aws


def test_metrics_agree_with_the_statistics() -> None:
    aws = make_aws()
    metrics = MemoryMetrics()
    aws.faults.add(Fault(kind="partial", operation="PutRecords", count=2))
    aws.faults.add(Fault(kind="error", operation="PutRecords", count=1, status=503))
    producer = Producer(
        ProducerConfig(record_max_buffered_time=0.01, aggregation_max_count=10),
        client=aws.client("kinesis"),
        metrics=metrics,
    )
    for index in range(200):
        producer.put("orders", f"key-{index}", b"x" * 50)
    assert producer.close() == 0
    stats = producer.stats()
    found = {name: metrics.get(name) for name in {series.name for series in metrics.snapshot()}}
    received, put, kinesis = found["UserRecordsReceived"], found["UserRecordsPut"], found["KinesisRecordsPut"]
    assert received is not None and put is not None and kinesis is not None
    assert received.total == 200
    assert put[:4] == (200, 200, 1, 1)
    assert kinesis.total == stats.kinesis_records_stored
    assert kinesis.samples - kinesis.total == stats.failed_entries == 2
    data, errors, codes = found["UserRecordsDataPut"], found["AllErrors"], found["ErrorsByCode"]
    assert data is not None and errors is not None and codes is not None
    assert data.total == stats.user_bytes_stored == 10_000
    assert errors.total == codes.total == 3
    requests, retries = found["RequestTime"], found["RetriesPerRecord"]
    assert requests is not None and retries is not None
    assert requests.samples == stats.put_records_calls
    assert retries.total == stats.user_record_retries
    assert metrics.get("ErrorsByCode", ErrorCode="ServiceUnavailable", StreamName="orders") is not None
    assert "UserRecordsPending" not in found, "a closed producer has no state"
    shards = [
        s.dimensions for s in metrics.snapshot() if s.name == "UserRecordsPut" and len(s.dimensions) == 2
    ]
    assert len(shards) == 2


def test_a_producers_metrics_reach_cloudwatch() -> None:
    aws = make_aws()
    metrics = CloudWatchMetrics(aws.client("cloudwatch"), level="summary", granularity="stream")
    with metrics, Producer(client=aws.client("kinesis"), metrics=metrics) as producer:
        producer.put("orders", "a", b"x")
    names = {(datum["MetricName"], len(datum["Dimensions"])) for datum in aws.cloudwatch.metric_data()}
    expected = {"UserRecordsPut", "KinesisRecordsPut", "AllErrors", "BufferingTime"}
    assert names == {(name, depth) for name in expected for depth in (0, 1)}
