"""Every field's range; errors that name field, value and range."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any

import pytest

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
    "max_buffered_records": (1, None),
    "max_inflight_requests_per_shard": (1, 256),
}
SECONDS: dict[str, tuple[float, float | None]] = {
    "record_max_buffered_time": (0, 3_600),
    "record_ttl": (0.1, 604_800),
    "request_timeout": (0.1, 600),
    "connect_timeout": (0.1, 300),
    "put_timeout": (0, None),
    "describe_stream_summary_interval": (0.5, 604_800),
    "metrics_upload_delay": (0.001, 60),
}
FLAGS = ("aggregation_enabled", "fail_if_throttled", "idempotent")
DEDUP = ("dedup_namespace", "dedup_secret")
CHOICES = {
    "missing_stream": ("fail", "wait"),
    "record_distribution_strategy_default": ("UNSET", "AUTO", "USER_PARTITION_KEY"),
    "ordering": ("none", "per_shard"),
    "metrics_level": ("none", "summary", "detailed"),
    "metrics_granularity": ("global", "stream", "shard"),
    "compression": ("zstd",),
    "wire_format": ("json", "cbor"),
}


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
    assert names == {*INTS, *SECONDS, *FLAGS, *CHOICES, "metrics_namespace", "serializer", *DEDUP}


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


@pytest.mark.parametrize("value", ["5", 100_000.0, True, float("nan"), [1]])
def test_an_int_is_an_int(value: Any) -> None:
    for field in INTS:
        refused(field, value)


@pytest.mark.parametrize("value", ["5", True, float("nan"), float("inf"), float("-inf"), 10**400, [1]])
def test_seconds_are_finite_numbers(value: Any) -> None:
    for field in SECONDS:
        refused(field, value)


@pytest.mark.parametrize("value", [None, 0, 1, "yes"])
def test_a_flag_is_true_or_false(value: Any) -> None:
    for field in FLAGS:
        assert "True or False" in str(refused(field, value))


def test_only_what_has_no_bound_may_be_none() -> None:
    for field in (*INTS, *SECONDS):
        if field in {"put_timeout", "max_buffered_records", "max_inflight_requests_per_shard"}:
            assert getattr(make(field, None), field) is None
        else:
            refused(field, None)


@pytest.mark.parametrize("field", CHOICES)
def test_choices(field: str) -> None:
    for choice in CHOICES[field]:
        make(field, choice)
        assert choice in str(refused(field, choice.swapcase()))
    if field == "compression":
        assert make(field, None).compression is None
    else:
        refused(field, None)


@pytest.mark.parametrize(
    "value", ["", "a" * 256, "AWS/Kinesis", ":x", "  ", "bestellungen-ä", "a\n", None, 5]
)
def test_the_namespace_is_one_that_cloudwatch_takes(value: Any) -> None:
    refused("metrics_namespace", value)


def test_a_kpls_properties_become_a_config(tmp_path: Path) -> None:
    path = tmp_path / "kpl.properties"
    path.write_text(
        "RecordMaxBufferedTime = 250\nRateLimit=90\nMetricsLevel=summary\nMetricsNamespace=orders\n"
        "MetricsUploadDelay=30000\nLogLevel=debug\nRegion=eu-west-1\n",
        "ascii",
    )
    config = ProducerConfig.from_properties(path)
    assert config == ProducerConfig(
        record_max_buffered_time=0.25,
        rate_limit=90,
        metrics_level="summary",
        metrics_namespace="orders",
        metrics_upload_delay=30.0,
    )
    path.write_text("", "ascii")
    assert ProducerConfig.from_properties(path).metrics_level == "detailed"
    path.write_text("RateLimit=0", "ascii")
    with pytest.raises(ConfigError, match="RateLimit"):
        ProducerConfig.from_properties(path)
    with pytest.raises(OSError):
        ProducerConfig.from_properties(tmp_path / "nowhere")


def test_what_a_properties_file_says_in_vain_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "kpl.properties"
    path.write_text(
        "RecordTtl=9223372036854775807\nLogLevel=debug\nrecord_ttl=5\nNoSuchKey=1\nRegion=eu-west-1\n"
        "ProxyPassword=secret\nCloudwatchEndpoint=localhost\nMaxConnections=7\n",
        "ascii",
    )
    with caplog.at_level(logging.WARNING):
        ProducerConfig.from_properties(path)
    # The file is not all that may be warned of: durations are, once in a process.
    lines = [record.getMessage() for record in caplog.records if record.name.endswith(".config")]
    assert all(str(path) in line for line in lines)
    for key in (
        "RecordTtl",
        "LogLevel",
        "record_ttl",
        "NoSuchKey",
        "Region",
        "ProxyPassword",
        "CloudwatchEndpoint",
    ):
        assert sum(f" {key} " in line for line in lines) == 1, key
    assert "MaxConnections" not in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("ttl", "timeout", "accepted"),
    [(9.9, 6.0, False), (10.0, 6.0, True), (4.5, 0.5, True), (4.4, 0.5, False)],
)
def test_an_idempotent_producer_can_repeat_a_request_that_timed_out(
    ttl: float, timeout: float, accepted: bool
) -> None:
    """Otherwise every record of such a request would expire while it is held."""
    assert ProducerConfig(record_ttl=ttl, request_timeout=timeout).idempotent is False
    if accepted:
        assert ProducerConfig(idempotent=True, record_ttl=ttl, request_timeout=timeout).idempotent
        return
    with pytest.raises(ConfigError) as caught:
        ProducerConfig(idempotent=True, record_ttl=ttl, request_timeout=timeout)
    assert caught.value.field == "record_ttl"


@pytest.mark.parametrize("value", ["", "x" * 129, b"billing", 5, "\ud800"])
def test_a_namespace_is_text(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"^dedup_namespace="):
        ProducerConfig(idempotent=True, dedup_namespace=value)
    ProducerConfig(idempotent=True, dedup_namespace="x" * 128)


def test_a_namespace_needs_an_idempotent_producer_and_a_secret_needs_a_namespace() -> None:
    with pytest.raises(ConfigError, match=r"^dedup_namespace="):
        ProducerConfig(dedup_namespace="billing")
    with pytest.raises(ConfigError, match=r"^dedup_secret="):
        ProducerConfig(idempotent=True, dedup_secret=b"s" * 16)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (b"hush" * 3, "12 bytes"),
        (b"hush" * 17, "68 bytes"),
        ("hush" * 8, "a value of type str"),
        (7, "of type int"),
    ],
)
def test_a_secret_that_is_refused_is_not_quoted(value: Any, named: str) -> None:
    with pytest.raises(ConfigError, match="expected 16 to 64 bytes") as caught:
        ProducerConfig(idempotent=True, dedup_namespace="billing", dedup_secret=value)
    assert named in str(caught.value)
    assert "hush" not in f"{caught.value} {caught.value.value!r}"
