"""The service's time from its own answers, without the wall clock of this machine."""

from __future__ import annotations

import time
from datetime import datetime, timezone

import pytest

from kinesis_sdk.common.service_clock import ServiceClock, response_date


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)


def test_the_lag_of_an_answer_says_when_its_newest_record_arrived() -> None:
    assert ServiceClock().arrival(at(5_000), 3_000, 100.0) == 97.0


def test_without_arrival_times_the_lag_is_all_there_is() -> None:
    clock = ServiceClock()
    assert clock.arrival(None, 3_000, 100.0) == 97.0
    assert clock.arrival(None, None, 100.0) == 100.0


def test_at_the_tip_an_old_record_is_as_old_as_the_date_says() -> None:
    clock = ServiceClock()
    clock.observe(5_600.0, 100.0)
    assert clock.arrival(at(5_000), 0, 100.5) == pytest.approx(-500.0 + 0.0, abs=0.01)


def test_a_record_that_is_read_again_is_as_old_as_before() -> None:
    clock = ServiceClock()
    assert clock.arrival(at(5_000), 0, 100.0) == 100.0
    assert clock.arrival(at(5_000), 0, 160.0) == 100.0, "no date, but the clock went on"


def test_the_clock_only_follows_what_shows_it_later() -> None:
    clock = ServiceClock()
    clock.observe(5_000.0, 100.0)
    clock.observe(5_010.0, 150.0)  # of a slow answer: 5,050 was known to have been reached
    assert clock.arrival(at(5_000), 0, 150.0) == pytest.approx(100.0)


def test_what_is_long_ago_is_forgotten_because_clocks_drift() -> None:
    clock = ServiceClock()
    clock.observe(5_000.0, 100.0)
    for minute in range(60):
        clock.observe(4_990.0 + 60 * minute, 100.0 + 60 * minute)  # the service's clock was set back by 10 s
    assert clock.arrival(at(8_000), 0, 3_640.0) == pytest.approx(3_640.0 - 530.0)


def test_a_wrong_date_is_believed_for_two_minutes_at_most() -> None:
    clock = ServiceClock()
    for second in range(200):
        clock.observe(5_000.0 + second + (300 if 10 <= second < 20 else 0), 100.0 + second)
        age = 100.0 + second - clock.arrival(at(5_000 + second - 4), 0, 100.0 + second)
        if not 10 <= second < 140:
            assert age == pytest.approx(4.0)


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"HTTPHeaders": {}},
        {"HTTPHeaders": {"date": "soon"}},
        {"HTTPHeaders": {"date": "Mon, 01 Jan 99999999999 00:00:00 GMT"}},  # parsing it is an OverflowError
        {"HTTPHeaders": {"date": "Mon, 01 Jan 2020 00:00:00 +99999999999999"}},
    ],
)
def test_an_answer_without_a_usable_date(metadata: dict[str, object]) -> None:
    assert response_date(metadata) is None


def test_the_date_of_an_answer() -> None:
    assert response_date({"HTTPHeaders": {"date": "Sun, 06 Nov 1994 08:49:37 GMT"}}) == 784_111_777.0


def test_a_date_without_a_zone_is_utc_wherever_this_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert response_date({"HTTPHeaders": {"date": "Sun, 06 Nov 1994 08:49:38 -0000"}}) == 784_111_778.0
    finally:
        monkeypatch.undo()
        time.tzset()
