"""The header of a response: unknown is None, never 0."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.response_header import NO_RESPONSE, ArrivalTimes, ResponseHeader


@pytest.mark.parametrize(
    ("response", "expected"),
    [({}, None), ({"MillisBehindLatest": None}, None), ({"MillisBehindLatest": 0}, 0)],
)
def test_unknown_lag_is_none(response: dict[str, Any], expected: int | None) -> None:
    header = ResponseHeader.from_api(response, ended=False)
    assert header.millis_behind_latest == expected
    assert NO_RESPONSE.millis_behind_latest is None


@pytest.mark.parametrize(
    "value", ["soon", "9" * 4000, [], {}, 10**400, -(10**400), float("inf"), float("nan")]
)
def test_a_malformed_lag_is_rejected(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        ResponseHeader.from_api({"MillisBehindLatest": value}, ended=False)


def test_arrival_times_follow_the_clock_of_kinesis() -> None:
    newest = datetime(2026, 1, 2, tzinfo=timezone.utc)
    times = ArrivalTimes(100.0, newest)
    older = KinesisRecord(b"", "k", "1", newest - timedelta(seconds=3))
    assert times.of(older) == 97.0
    assert times.of(KinesisRecord(b"", "k", "1", newest + timedelta(seconds=3))) == 100.0
    assert times.of(KinesisRecord(b"", "k", "1")) == 100.0
