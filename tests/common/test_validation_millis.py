"""Values that look like the milliseconds of the KPL and the KCL are warned of."""

from __future__ import annotations

from typing import Any

import pytest

from kinesis_sdk.common import validation
from kinesis_sdk.consumer import ConsumerConfig
from kinesis_sdk.producer import ProducerConfig

CASES = [
    (ProducerConfig, "record_max_buffered_time", 100, 59.9, "0:01:40"),
    (ProducerConfig, "record_ttl", 30_000, 29_999, "8:20:00"),
    (ConsumerConfig().with_fields, "idle_time_between_reads", 1000, 199, "0:16:40"),
    (ConsumerConfig().with_fields, "checkpoint_interval", 10_000, 9_999, "2:46:40"),
]


@pytest.mark.parametrize(("make", "field", "suspect", "fine", "shown"), CASES)
def test_a_value_in_milliseconds_is_warned_of_once(
    make: Any,
    field: str,
    suspect: float,
    fine: float,
    shown: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(validation, "_told", set())
    make(**{field: fine})
    assert caplog.messages == []
    for _ in range(3):
        make(**{field: suspect})
    (message,) = caplog.messages
    assert f"{field}={suspect}" in message
    assert f"so this is {shown}. If you mean milliseconds, write {suspect / 1000:g}" in message


def test_the_defaults_are_no_milliseconds(caplog: pytest.LogCaptureFixture) -> None:
    ProducerConfig()
    ConsumerConfig()
    assert caplog.messages == []
