"""Searches: what is found, the bounds, and what becomes of records of every shape."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest

from kinesis_sdk.admin.merge import ShardRecord
from kinesis_sdk.admin.reading import RecordFilter
from kinesis_sdk.admin.search import PROGRESS_INTERVAL, Search
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.testing import VirtualClock

AT = datetime(2026, 11, 26, 9, tzinfo=timezone.utc)


def record(data: object, key: str = "k") -> UserRecord:
    content = data if isinstance(data, bytes) else json.dumps(data).encode()
    return UserRecord(content, key, "1", AT)


@pytest.mark.parametrize(
    ("where", "data", "wanted"),
    [
        ("order.status == 'failed'", {"order": {"status": "failed"}}, True),
        ("order.status == 'failed'", {"order": {"status": "paid"}}, False),
        ("order.id == `0`", {"order": {"id": 0}}, True),
        ("order.id", {"order": {"id": 0}}, True),  # a number is true, as in JMESPath
        ("order.id", {"order": {}}, False),
        ("items[?sku == 'A-7']", {"items": [{"sku": "B"}, {"sku": "A-7"}]}, True),
        ("items[?sku == 'A-7']", {"items": [{"sku": "B"}]}, False),
        ("contains(name, 'x')", {"name": "axe"}, True),
        ("contains(name, 'x')", {"name": 5}, False),  # the function does not fit
        ("@", b"no JSON", False),
        ("@", b"\xff\xfe", False),
        ("@", b"[" * 200_000, False),
        ("@", b"1" * 100_000, False),
        ("@", b"", False),
    ],
)
def test_a_condition_on_json(where: str, data: object, wanted: bool) -> None:
    assert RecordFilter.make(where=where).accepts(record(data)) is wanted


@pytest.mark.parametrize("where", ["order.[", "", "nope(a)", "a ==", "x" * 1001, "[" * 900])
def test_an_expression_that_is_none_is_refused(where: str) -> None:
    with pytest.raises(ConfigError, match="where"):
        RecordFilter.make(where=where)


def test_a_function_that_does_not_fit_the_check_is_accepted() -> None:
    assert RecordFilter.make(where="length(items) > `2`").accepts(record({"items": [1, 2, 3]}))


def records(clock: VirtualClock, step: float = 0.0) -> Iterator[ShardRecord]:
    number = 0
    while True:
        clock.advance(step)
        yield ShardRecord("shardId-000000000000", record({"n": number}, f"k{number % 10}"))
        number += 1


def test_a_search_ends_at_its_limit_and_counts() -> None:
    clock = VirtualClock()
    search = Search(records(clock), RecordFilter.make(["k3"]), limit=5, clock=clock)
    found = [json.loads(one.record.data)["n"] for one in search]
    assert found == [3, 13, 23, 33, 43]
    assert (search.read, search.found, search.end) == (44, 5, "limit")
    assert search.summary() == "44 records read up to 2026-11-26 09:00:00Z, 5 found"


def test_a_search_ends_in_time_and_tells_how_far_it_is() -> None:
    clock = VirtualClock()
    told: list[int] = []
    search = Search(
        records(clock, 0.5),
        RecordFilter.make(["none"]),
        seconds=60.0,
        on_progress=lambda one: told.append(one.read),
        clock=clock,
    )
    assert list(search) == []
    assert (search.end, search.found) == ("time", 0)
    assert search.read == pytest.approx(120, abs=2)
    assert len(told) == int(60 / PROGRESS_INTERVAL) - 1


def test_a_search_ends_when_it_is_stopped_or_all_is_read() -> None:
    clock = VirtualClock()
    search = Search(records(clock), RecordFilter(), clock=clock)
    for one in search:
        assert one.shard_id
        if search.found == 7:
            search.stop()
    assert (search.end, search.read) == ("stopped", 7)
    whole = Search(iter([ShardRecord("s", record(1))]), RecordFilter(), clock=clock)
    assert [one.shard_id for one in whole] == ["s"]
    assert whole.end == "window"


def test_only_a_filter_without_conditions_takes_all() -> None:
    assert RecordFilter.make().is_all
    settings: list[dict[str, Any]] = [{"keys": ["a"]}, {"grep": "a"}, {"where": "a"}]
    assert not any(RecordFilter.make(**one).is_all for one in settings)
