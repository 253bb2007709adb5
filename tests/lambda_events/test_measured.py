"""Metrics of a Lambda function, and the flush behind each event."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from kinesis_sdk import ConfigError, UserRecord
from kinesis_sdk.lambda_events import kinesis_handler
from kinesis_sdk.metrics import EmbeddedMetrics, MemoryMetrics
from tests.lambda_events.support import event

CONTEXT = SimpleNamespace(function_name="billing")


def process(record: UserRecord) -> None:
    if record.data == b"bad":
        raise RuntimeError("bad")


def test_an_event_is_one_line_with_what_happened_to_its_records() -> None:
    written: list[str] = []
    letters: list[Any] = []
    handler = kinesis_handler(
        metrics=EmbeddedMetrics("kinesis", write=written.append),
        dead_letter=lambda *letter: letters.append(letter),
        attempts=2,
    )(process)
    handler(event(["a", "bad", "ccc"], ["dd"]), CONTEXT)
    handler(event(["e"]), CONTEXT)
    first, second = map(json.loads, written)
    assert len(letters) == 1
    dimensions = {"ApplicationName": "billing", "StreamName": "orders", "Operation": "ProcessTask"}
    assert (
        first.items()
        >= {
            **dimensions,
            "RecordsProcessed": 3,
            "DataBytesProcessed": 6,
            "HandlerFailures": 2,
            "RecordsDeadLettered": 1,
        }.items()
    )
    assert first["RecordProcessor.processRecords.Time"] >= 0
    assert second.items() >= {**dimensions, "RecordsProcessed": 1, "DataBytesProcessed": 1}.items()
    assert "HandlerFailures" not in second


def test_an_event_that_fails_is_told_before_the_error() -> None:
    written: list[str] = []
    handler = kinesis_handler(metrics=EmbeddedMetrics("kinesis", write=written.append))(process)
    with pytest.raises(RuntimeError, match="bad"):
        handler(event(["good"], ["bad"]), None)
    (document,) = map(json.loads, written)
    assert (document["RecordsProcessed"], document["HandlerFailures"]) == (1, 1)
    assert document["ApplicationName"] == "function"
    assert "RecordProcessor.processRecords.Time" not in document


def test_any_sink_will_do() -> None:
    metrics = MemoryMetrics()
    kinesis_handler(metrics=metrics)(process)(event(["a"], ["b"]), CONTEXT)
    found = metrics.get("RecordsProcessed", ApplicationName="billing", StreamName="orders")
    assert found is not None
    assert found.total == 2


def test_what_is_no_sink_is_refused() -> None:
    with pytest.raises(ConfigError, match="metrics"):
        kinesis_handler(metrics="kinesis")  # type: ignore[call-overload]
