"""Events as AWS documents them, with the bytes of the real KPL, opened."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timezone
from typing import Any

import pytest

from kinesis_sdk import InvalidEventError, UserRecord
from kinesis_sdk.common.aggregate_reader import MAGIC
from kinesis_sdk.lambda_events import KinesisEvent
from tests.lambda_events.support import ARN, SHARD, document, event


def test_the_event_of_the_developer_guide() -> None:
    opened = KinesisEvent(document("kinesis-aws-guide"))
    assert opened.stream_arn == "arn:aws:kinesis:us-east-2:123456789012:stream/lambda-stream"
    assert opened.shard_id == "shardId-000000000006"
    assert [record.data for record in opened.user_records] == [
        b"Hello, this is a test.",
        b"This is only a test.",
    ]
    assert opened.user_records[0] == UserRecord(
        b"Hello, this is a test.",
        "1",
        "49590338271490256608559692538361571095921575989136588898",
        datetime(2018, 12, 17, 22, 10, 50, 987000, tzinfo=timezone.utc),
    )


def test_the_bytes_of_the_kpl() -> None:
    """Two single records, and an aggregate of eight, as the KPL 1.1.1 stored them."""
    opened = KinesisEvent(document("kinesis-kpl-1.1.1"))
    users = opened.user_records
    assert [record.data for record in users] == [
        b'{"order": %d}' % n for n in (9, 11, 0, 1, 2, 4, 7, 8, 9, 11)
    ]
    assert [record.partition_key for record in users][2:] == [
        *("customer-0", "kundé-1", "kundé-2", "kundé-4", "kundé-2", "kundé-3", "customer-4", "kundé-1")
    ]
    assert [record.explicit_hash_key for record in users][2:] == ["5", None, None, "5", None, "5", None, None]
    assert [(record.aggregated, record.sub_sequence_number) for record in users] == [
        (False, 0),
        (False, 0),
        *((True, sub) for sub in range(8)),
    ]
    carrier = opened.kinesis_records[2]
    assert carrier.data.startswith(MAGIC)
    assert {record.sequence_number for record in users[2:]} == {carrier.sequence_number}


def test_records_come_one_kinesis_record_at_a_time() -> None:
    opened = KinesisEvent(event(["a", "b"], ["c"]))
    assert [(key, [user.data for user in users]) for key, _, users in opened] == [
        (f"{ARN}:{SHARD}:100", [b"a", b"b"]),
        (f"{ARN}:{SHARD}:101", [b"c"]),
    ]
    assert len(opened) == 2
    assert repr(opened) == f"<KinesisEvent: 2 Kinesis records of {SHARD}>"


def test_a_failure_names_the_kinesis_record() -> None:
    opened = KinesisEvent(event(["a", "b"], ["c", "d"]))
    assert opened.success() == {"batchItemFailures": []}
    assert opened.failure_at(opened.user_records[3]) == {"batchItemFailures": [{"itemIdentifier": "101"}]}
    with pytest.raises(ValueError, match="102"):
        opened.failure_at(UserRecord(b"", "k", "102"))


def test_the_last_event_of_a_tumbling_window_may_be_empty() -> None:
    opened = KinesisEvent({**document("kinesis-aws-guide-window"), "Records": []})
    assert (len(opened), opened.shard_id, list(opened.user_records)) == (0, "", [])


def test_a_record_without_a_partition_key() -> None:
    """As on streams that place records themselves."""
    found = event(["a"])
    del found["Records"][0]["kinesis"]["partitionKey"]
    assert KinesisEvent(found).user_records[0].partition_key == ""


def damaged(**changes: Any) -> dict[str, Any]:
    found = event(["a"], ["b"])
    for name, value in changes.items():
        part = found["Records"][1]
        (part if name in part else part["kinesis"])[name] = value
    return found


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "Records: expected a list"),
        ([], "Records: expected a list"),
        ({"Records": {}}, "Records: expected a list"),
        ({"Records": [None]}, r"Records\[0\]\.eventSource: expected 'aws:kinesis', not None"),
        (damaged(eventSource="aws:dynamodb"), r"Records\[1\]\.eventSource: .* not 'aws:dynamodb'"),
        (damaged(kinesis=None), r"Records\[1\]: expected kinesis"),
        (damaged(eventID=7), r"Records\[1\]: expected kinesis"),
        (damaged(data="not base64!"), r"Records\[1\]\.kinesis\.data: not base64"),
        (damaged(data=None), r"Records\[1\]\.kinesis\.data: expected base64 text, not NoneType"),
        (damaged(sequenceNumber="LATEST"), r"Records\[1\]\.kinesis\.sequenceNumber"),
        (damaged(partitionKey=7), r"Records\[1\]\.kinesis\.partitionKey: expected text, not int"),
        (
            damaged(approximateArrivalTimestamp="now"),
            r"approximateArrivalTimestamp: expected a number, not str",
        ),
        (damaged(approximateArrivalTimestamp=1e30), r"approximateArrivalTimestamp: not a time"),
        (damaged(approximateArrivalTimestamp=float("nan")), r"approximateArrivalTimestamp: not a time"),
    ],
)
def test_anything_else_is_an_error_that_names_the_place(wrong: Any, message: str) -> None:
    with pytest.raises(InvalidEventError, match=message):
        KinesisEvent(wrong)


def test_a_function_loads_next_to_nothing() -> None:
    """What a cold start pays for: a few modules of this package, and of the standard library what Lambda's runtime has loaded."""
    code = (
        "import sys, logging, json, datetime; before = set(sys.modules);"
        "from kinesis_sdk.lambda_events import kinesis_handler, firehose_transform;"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(done.stdout.split())
    ours = {name for name in loaded if name.startswith("kinesis_sdk.")}
    assert ours == {
        *(f"kinesis_sdk.{name}" for name in ("_lazy", "_version", "common", "lambda_events")),
        *(
            f"kinesis_sdk.lambda_events.{name}"
            for name in ("copies", "events", "firehose", "handler", "progress")
        ),
        *(
            f"kinesis_sdk.common.{name}"
            for name in (
                "aggregate_reader",
                "aggregate_writer",
                "backoff",
                "base64coding",
                "codec",
                "error_policy",
            )
        ),
        *(
            f"kinesis_sdk.common.{name}"
            for name in (
                "errors",
                "hashkeys",
                "headers",
                "interceptors",
                "log_fields",
                "record_ids",
                "records",
            )
        ),
        *(
            f"kinesis_sdk.common.{name}"
            for name in ("once", "once.table", "sequence", "stream", "user_records", "validation")
        ),
    }
    assert {name.partition(".")[0] for name in loaded} & {
        "google",
        "boto3",
        "botocore",
        "asyncio",
        "tenacity",
    } == set()
    # pybase64, if it is installed, has three.
    assert len(loaded - ours) <= 40, sorted(loaded - ours)
