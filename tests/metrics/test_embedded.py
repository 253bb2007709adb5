"""Lines in CloudWatch's embedded metric format, and their limits."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from kinesis_sdk import ConfigError
from kinesis_sdk.common.catalogue import RECORDS_PROCESSED, USER_RECORDS_PENDING, USER_RECORDS_PUT
from kinesis_sdk.common.metrics import Scope
from kinesis_sdk.metrics import CustomDimension, EmbeddedMetrics
from kinesis_sdk.metrics import embedded as module
from kinesis_sdk.testing import VirtualClock
from tests.metrics.support import add

NOW = 1_700_000_000.25


def shard(number: int) -> Scope:
    return Scope({"ApplicationName": "billing", "StreamName": "orders", "ShardId": f"shard-{number}"})


class Written:
    """A sink, and the documents that it wrote."""

    def __init__(self, **settings: Any) -> None:
        self.text: list[str] = []
        self.sink = EmbeddedMetrics("kinesis", write=self.text.append, clock=VirtualClock(NOW), **settings)

    def flush(self) -> list[dict[str, Any]]:
        self.text.clear()
        assert self.sink.flush() == len(self.text)
        assert all(line.endswith("}\n") and line.count("\n") == 1 and line.isascii() for line in self.text)
        return [json.loads(line) for line in self.text]


def test_a_stream_is_a_line_with_a_set_of_dimensions_for_each_level() -> None:
    written = Written()
    for number in (0, 1):
        written.sink.add(RECORDS_PROCESSED, shard(number), 5 + number)
    (document,) = written.flush()
    assert document == {
        "_aws": {
            "Timestamp": int(NOW * 1000),
            "CloudWatchMetrics": [
                {
                    "Namespace": "kinesis",
                    "Dimensions": [
                        ["ApplicationName", "Operation"],
                        ["ApplicationName", "Operation", "StreamName"],
                    ],
                    "Metrics": [{"Name": "RecordsProcessed", "Unit": "Count"}],
                }
            ],
        },
        "ApplicationName": "billing",
        "Operation": "ProcessTask",
        "StreamName": "orders",
        "RecordsProcessed": {"Max": 6, "Min": 5, "Count": 2, "Sum": 11},
    }
    assert written.flush() == []


def test_each_shard_is_a_line_if_shards_are_asked_for() -> None:
    written = Written(granularity="shard", level="detailed", custom_dimensions=[CustomDimension("zone", "a")])
    for number in (0, 1):
        written.sink.add(RECORDS_PROCESSED, shard(number), 5 + number)
    documents = written.flush()
    assert [(one["ShardId"], one["RecordsProcessed"], one["zone"]) for one in documents] == [
        ("shard-0", 5, "a"),
        ("shard-1", 6, "a"),
    ]


def test_levels_and_gauges_of_ended_shards_are_as_in_other_sinks() -> None:
    written = Written()
    scope = Scope({"StreamName": "orders"})
    written.sink.add(USER_RECORDS_PUT, scope, 3, 4, 0, 1)
    written.sink.add(USER_RECORDS_PENDING, scope, 7)  # of the level "detailed"
    (document,) = written.flush()
    assert document["UserRecordsPut"] == {"Max": 1, "Min": 0, "Count": 4, "Sum": 3}
    assert "UserRecordsPending" not in document
    detailed = Written(level="detailed")
    detailed.sink.add(USER_RECORDS_PENDING, scope, 7)
    detailed.sink.retire(scope)
    assert detailed.flush() == []


def test_a_line_has_at_most_100_metrics() -> None:
    written = Written(level="detailed")
    for number in range(250):
        add(written.sink, f"made-{number}", number, "Count", {"StreamName": "orders"})
    documents = written.flush()
    defined = [one["_aws"]["CloudWatchMetrics"][0]["Metrics"] for one in documents]
    assert sorted(map(len, defined)) == [50, 100, 100]
    assert sorted(int(one["Name"].removeprefix("made-")) for each in defined for one in each) == list(
        range(250)
    )


def test_a_line_has_at_most_so_many_bytes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MAX_LINE", 500)
    written = Written(level="detailed")
    for number in range(20):
        add(written.sink, f"made-{number}", number, "Count", {"StreamName": "orders"})
    add(written.sink, "x" * 500, 1, "Count", {"StreamName": "bills"})
    documents = written.flush()
    assert len(documents) > 3
    assert max(map(len, written.text)) <= 501
    assert {name for one in documents for name in one if name.startswith("made")} == {
        f"made-{number}" for number in range(20)
    }
    assert "(1 so far)" in caplog.text


def test_what_is_too_much_or_cannot_be_written_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    written = Written(max_series=1)
    written.sink.add(RECORDS_PROCESSED, shard(0), 1)
    written.sink.add(RECORDS_PROCESSED, shard(1), 1)
    assert len(written.flush()) == 1
    assert "observations were dropped" in caplog.text

    def closed(line: str) -> None:
        raise ValueError("I/O operation on closed file")

    broken = EmbeddedMetrics("kinesis", write=closed)
    broken.add(RECORDS_PROCESSED, shard(0), 1)
    with caplog.at_level(logging.WARNING):
        assert broken.flush() == 0
    assert "not written" in caplog.text


def test_lines_go_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    sink = EmbeddedMetrics("kinesis")
    sink.add(RECORDS_PROCESSED, shard(0), 1)
    assert sink.flush() == 1
    assert json.loads(capsys.readouterr().out)["RecordsProcessed"] == 1


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"namespace": "AWS/Kinesis"}, "namespace"),
        ({"namespace": ""}, "namespace"),
        ({"level": "all"}, "level"),
        ({"granularity": "record"}, "granularity"),
        ({"max_series": 0}, "max_series"),
        ({"custom_dimensions": [CustomDimension("_aws", "x")]}, "custom_dimensions"),
        ({"custom_dimensions": [CustomDimension("RecordsProcessed", "x")]}, "custom_dimensions"),
    ],
)
def test_arguments_are_checked(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        EmbeddedMetrics(**{"namespace": "kinesis", **settings})
