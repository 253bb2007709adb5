"""Every field's range; errors that name field, value and range."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.producer import ProducerConfig

MIB = 1024 * 1024
BIG = 2**63 - 1

INTS: dict[str, tuple[int, int | None]] = {
    "aggregation_max_count": (1, BIG),
    "aggregation_max_size": (64, 10 * MIB),
    "collection_max_count": (1, 500),
    "collection_max_size": (52_224, 10 * MIB),
    "rate_limit": (1, 10_000),
    "max_user_record_size": (64, 10 * MIB),
    "max_connections": (1, 256),
    "max_buffered_bytes": (65_536, None),
}
SECONDS: dict[str, tuple[float, float | None]] = {
    "record_max_buffered_time": (0, 3_600),
    "record_ttl": (0.1, 604_800),
    "request_timeout": (0.1, 600),
    "connect_timeout": (0.1, 300),
    "put_timeout": (0, None),
}
FLAGS = ("aggregation_enabled", "fail_if_throttled")


def make(field: str, value: Any) -> ProducerConfig:
    return ProducerConfig(**{field: value})


def refused(field: str, value: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        make(field, value)
    assert isinstance(caught.value, ValueError)
    assert caught.value.field == field
    assert field in str(caught.value)
    return caught.value


def test_every_field_is_covered_here() -> None:
    names = {field.name for field in dataclasses.fields(ProducerConfig)}
    assert names == {*INTS, *SECONDS, *FLAGS}


def test_defaults_are_the_kpls() -> None:
    config = ProducerConfig()
    assert config.aggregation_enabled
    assert config.aggregation_max_count == 4_294_967_295
    assert config.aggregation_max_size == 51_200
    assert config.collection_max_count == 500
    assert config.collection_max_size == 5 * MIB
    assert config.record_max_buffered_time == 0.1
    assert config.record_ttl == 30.0
    assert config.rate_limit == 150
    assert not config.fail_if_throttled
    assert config.max_connections == 24
    assert config.request_timeout == 6.0


def test_it_is_frozen_and_takes_keywords_only() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ProducerConfig().rate_limit = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        ProducerConfig(True)  # type: ignore[misc]


@pytest.mark.parametrize("field", [*INTS, *SECONDS])
def test_the_ends_of_each_range_are_inside_and_their_neighbours_are_not(field: str) -> None:
    low, high = {**INTS, **SECONDS}[field]
    step = 1 if field in INTS else 1e-6
    make(field, low)
    error = refused(field, low - step)
    assert f"{low:,}" in str(error) or f"{low:g}" in str(error)
    if high is not None:
        make(field, high)
        error = refused(field, high + step)
        assert f"{high:,}" in str(error) or f"{high:g}" in str(error)
        assert repr(high + step)[:8] in str(error)


@pytest.mark.parametrize("field", INTS)
@pytest.mark.parametrize("value", [None, "5", 100_000.0, True, float("nan"), [1]])
def test_an_int_is_an_int(field: str, value: Any) -> None:
    refused(field, value)


@pytest.mark.parametrize("field", SECONDS)
@pytest.mark.parametrize("value", ["5", True, float("nan"), float("inf"), float("-inf"), 10**400, [1]])
def test_seconds_are_finite_numbers(field: str, value: Any) -> None:
    refused(field, value)


@pytest.mark.parametrize("field", FLAGS)
@pytest.mark.parametrize("value", [None, 0, 1, "yes"])
def test_a_flag_is_true_or_false(field: str, value: Any) -> None:
    assert "True or False" in str(refused(field, value))


def test_only_put_timeout_may_be_none() -> None:
    assert ProducerConfig(put_timeout=None).put_timeout is None
    for field in SECONDS:
        if field != "put_timeout":
            refused(field, None)


@given(st.sampled_from(sorted(INTS)), st.integers())
def test_ints_are_accepted_exactly_in_their_range(field: str, value: int) -> None:
    low, high = INTS[field]
    if low <= value and (high is None or value <= high):
        assert getattr(make(field, value), field) == value
    else:
        refused(field, value)


@given(st.sampled_from(sorted(SECONDS)), st.one_of(st.floats(), st.integers(-10, 10**7)))
def test_seconds_are_accepted_exactly_in_their_range(field: str, value: float) -> None:
    low, high = SECONDS[field]
    if low <= value < float("inf") and (high is None or value <= high):
        assert getattr(make(field, value), field) == value
    else:
        refused(field, value)
