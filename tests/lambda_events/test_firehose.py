"""`firehose_transform`: one result for each record of Firehose, whatever is inside it."""

from __future__ import annotations

import json
from base64 import b64decode
from datetime import datetime, timezone
from typing import Any

import pytest

from kinesis_sdk import ConfigError, InvalidEventError
from kinesis_sdk.lambda_events import FirehoseRecord, Transformed, firehose_transform
from kinesis_sdk.lambda_events.firehose import MAX_RESPONSE
from tests.lambda_events.support import aggregate, document, firehose_event


def results(response: dict[str, Any]) -> list[tuple[str, str, bytes]]:
    return [(item["recordId"], item["result"], b64decode(item["data"])) for item in response["records"]]


def upper(record: FirehoseRecord) -> bytes | None:
    if record.data == b"bad":
        raise RuntimeError("bad record")
    return None if record.data == b"drop" else record.data.upper() + b"\n"


def test_the_event_of_the_developer_guide() -> None:
    seen: list[FirehoseRecord] = []

    @firehose_transform
    def handler(record: FirehoseRecord) -> str:
        seen.append(record)
        return record.data.decode().upper()

    response = handler(document("firehose-aws-guide"), None)
    assert results(response) == [("record1", "Ok", b"HELLO WORLD"), ("record2", "Ok", b"HELLO WORLD")]
    assert seen[0] == FirehoseRecord(
        b"Hello World",
        "record1",
        datetime(2017, 11, 15, 18, 56, tzinfo=timezone.utc),
        "4d1ad2b9-24f8-4b9d-a088-76e9947c317a",
        "49546986683135544286507457936321625675700192471156785154",
        0,
        "shardId-000000000000",
    )
    assert "Hello" not in repr(seen)


def test_the_number_in_an_aggregate_that_firehose_opened() -> None:
    found = document("firehose-aws-guide")
    found["records"][0]["kinesisRecordMetadata"]["subsequenceNumber"] = "3"
    seen: list[int] = []
    firehose_transform(lambda r: seen.append(r.sub_sequence_number))(found, None)
    assert seen == [3, 0]


def test_an_aggregate_has_one_result_with_the_outputs_of_all_its_user_records() -> None:
    seen: list[tuple[str, str, int, bool]] = []

    def function(record: FirehoseRecord) -> bytes | None:
        seen.append((record.record_id, record.partition_key, record.sub_sequence_number, record.aggregated))
        return upper(record)

    response = firehose_transform(function)(
        firehose_event(aggregate(["a", "drop", "c"]), b"d", b"drop"), None
    )
    assert results(response) == [("r0", "Ok", b"A\nC\n"), ("r1", "Ok", b"D\n"), ("r2", "Dropped", b"drop")]
    assert seen == [
        ("r0", "key-a", 0, True),
        ("r0", "key-drop", 1, True),
        ("r0", "key-c", 2, True),
        ("r1", "", 0, False),
        ("r2", "", 0, False),
    ]


def test_a_failed_user_record_sends_its_whole_record_to_the_error_output(
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole = aggregate(["a", "bad", "c"])
    response = firehose_transform(upper)(firehose_event(whole, b"d"), None)
    assert results(response) == [("r0", "ProcessingFailed", whole), ("r1", "Ok", b"D\n")]
    assert "record r0 failed" in caplog.text
    assert "bad record" in caplog.text


def test_an_error_that_says_nothing_about_the_record_fails_the_invocation() -> None:
    def function(_record: FirehoseRecord) -> bytes:
        raise ConnectionError("no database")

    with pytest.raises(ConnectionError):
        firehose_transform(retry_only=(ConnectionError,))(function)(firehose_event(b"a"), None)


@pytest.mark.parametrize("output", [7, ["x"], bytearray(b"x")])
def test_another_output_is_a_failure(output: Any, caplog: pytest.LogCaptureFixture) -> None:
    response = firehose_transform(lambda _: output)(firehose_event(b"a"), None)
    assert results(response) == [("r0", "ProcessingFailed", b"a")]
    assert f"returned {type(output).__name__}" in caplog.text


def test_keys_for_dynamic_partitioning() -> None:
    def function(record: FirehoseRecord) -> Transformed:
        return Transformed(record.data, {"customer": record.data.decode()[0]})

    response = firehose_transform(function)(firehose_event(aggregate(["a1", "a2"]), b"b"), None)
    assert [item["metadata"] for item in response["records"]] == [
        {"partitionKeys": {"customer": "a"}},
        {"partitionKeys": {"customer": "b"}},
    ]
    assert "a1" not in repr(Transformed(b"a1", {"k": "v"}))


@pytest.mark.parametrize(
    "outputs",
    [
        {b"a": Transformed(b"", {"k": "1"}), b"b": Transformed(b"", {"k": "2"})},
        {b"a": Transformed(b"", {"k": "1"}), b"b": b""},
        {b"a": b"", b"b": Transformed(b"", {"k": "1"})},
    ],
)
def test_one_result_cannot_have_two_partition_keys(outputs: dict[bytes, Any]) -> None:
    response = firehose_transform(lambda r: outputs[r.data])(firehose_event(aggregate(["a", "b"])), None)
    assert [item["result"] for item in response["records"]] == ["ProcessingFailed"]


@pytest.mark.parametrize("first", [Transformed(b"a", {}), b"a"])
def test_an_output_without_keys_has_none_however_it_says_so(first: Any) -> None:
    outputs = [first, b"b" if isinstance(first, Transformed) else Transformed(b"b", {})]
    response = firehose_transform(lambda r: outputs[r.sub_sequence_number])(
        firehose_event(aggregate(["a", "b"])), None
    )
    assert results(response) == [("r0", "Ok", b"ab")]
    assert response["records"][0]["metadata"] == {"partitionKeys": {}}


def test_records_that_do_not_fit_into_the_response_go_to_the_error_output(
    caplog: pytest.LogCaptureFixture,
) -> None:
    response = firehose_transform(lambda r: r.data * 1_000_000)(firehose_event(*[b"x"] * 9), None)
    assert len(json.dumps(response)) <= MAX_RESPONSE
    assert [item["result"] for item in response["records"]] == ["Ok"] * 4 + ["ProcessingFailed"] * 5
    assert "data" not in response["records"][-1]
    assert caplog.text.count("is full") == 5


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "records: expected a list"),
        ({"records": [{}]}, r"records\[0\]\.recordId"),
        ({"records": [{"recordId": "r", "data": 7}]}, r"records\[0\]\.data"),
        ({"records": [{"recordId": "r", "data": "", "kinesisRecordMetadata": 7}]}, "kinesisRecordMetadata"),
        ({"records": [{"recordId": "r", "data": "", "approximateArrivalTimestamp": "x"}]}, "Timestamp"),
    ],
)
def test_anything_else_is_an_error(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidEventError, match=message):
        firehose_transform(upper)(wrong, None)


def test_the_function_must_be_callable() -> None:
    with pytest.raises(ConfigError, match="function"):
        firehose_transform(7)  # type: ignore[call-overload]
