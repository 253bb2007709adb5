from __future__ import annotations

import pytest

from kinesis_sdk.testing.errors import AwsError
from kinesis_sdk.testing.http.query import parse_query, render_error, render_response


def test_numbered_members_become_lists_and_metric_values_numbers() -> None:
    pairs = {
        "Namespace": "ns",
        "MetricData.member.1.MetricName": "m",
        "MetricData.member.1.Value": "1.5",
        "MetricData.member.1.Dimensions.member.1.Name": "shard",
        "MetricData.member.1.Dimensions.member.1.Value": "7",
        "MetricData.member.2.Values.member.1": "3",
        "MetricData.member.10.MetricName": "last",
    }
    assert parse_query(pairs) == {
        "Namespace": "ns",
        "MetricData": [
            {"MetricName": "m", "Value": 1.5, "Dimensions": [{"Name": "shard", "Value": "7"}]},
            {"Values": [3.0]},
            {"MetricName": "last"},
        ],
    }


def test_contradictions_are_refused() -> None:
    with pytest.raises(AwsError):
        parse_query({"a": "1", "a.b": "2"})
    with pytest.raises(AwsError):
        parse_query({"a.member.x": "2"})


def test_documents_are_escaped() -> None:
    assert b"<Account>1&amp;2</Account>" in render_response("GetCallerIdentity", {"Account": "1&2"})
    assert b"<Message>&lt;</Message>" in render_error(AwsError("X", "<"))
