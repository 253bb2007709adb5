"""Repeated log lines: at most one an interval, or exponentially rarer ones."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

import pytest

from kinesis_sdk.common.log_throttle import CountingLogThrottle, LogThrottle

LOGGER = logging.getLogger("kinesis_sdk.consumer")


def test_repeated_messages_are_counted_by_kind(caplog: pytest.LogCaptureFixture) -> None:
    log = LogThrottle(LOGGER)
    for second in range(130):
        log.log(float(second), "a", "slow down, %s", "please")
    log.log(0.0, "b", "other")
    assert [record.getMessage() for record in caplog.records] == [
        "slow down, please",
        "slow down, please (59 similar lines suppressed)",
        "slow down, please (59 similar lines suppressed)",
        "other",
    ]


def test_level_and_interval(caplog: pytest.LogCaptureFixture) -> None:
    log = LogThrottle(LOGGER, logging.ERROR, interval=5.0)
    for second in (0.0, 4.9, 5.0):
        log.log(second, "a", "row damaged")
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]


def test_without_a_clock_lines_become_exponentially_rarer(caplog: pytest.LogCaptureFixture) -> None:
    log = CountingLogThrottle(LOGGER, logging.ERROR)
    error = OSError("disk full")
    for _ in range(10):
        log.log("failed %d times so far: %s", error, error=error)
    assert [record.getMessage() for record in caplog.records] == [
        f"failed {count} times so far: disk full" for count in (1, 2, 4, 8)
    ]
    assert {record.levelname for record in caplog.records} == {"ERROR"}
    assert caplog.records[0].exc_info is not None
    assert caplog.records[0].exc_info[1] is error


def test_threads_count_together(caplog: pytest.LogCaptureFixture) -> None:
    log = CountingLogThrottle(LOGGER)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: log.log("failed %d times so far"), range(64)))
    assert sorted(record.args for record in caplog.records) == [(1,), (2,), (4,), (8,), (16,), (32,), (64,)]
