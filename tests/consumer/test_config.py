from __future__ import annotations

import functools
from datetime import datetime, timezone

import pytest

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.consumer import BisectBatch, ConsumerConfig, RecordHandler, RetryBatch, StopWorker
from kinesis_sdk.consumer.error_policy import handler_error_policy
from kinesis_sdk.consumer.handler import HandlerSource


def test_defaults_are_the_kcls():
    config = ConsumerConfig()
    assert config.initial_position == "LATEST"
    assert (config.failover_time, config.epsilon, config.max_records) == (10.0, 0.025, 10_000)
    assert ConsumerConfig(lease_renewal_schedule="kcl2").renew_interval == pytest.approx(3.308, abs=0.001)
    assert config.initial_checkpoint == "LATEST"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("table_name", ""),
        ("initial_position", "NOW"),
        ("initial_position", datetime(2026, 1, 1)),  # noqa: DTZ001 - the point
        ("failover_time", 0),
        ("failover_time", float("nan")),
        ("epsilon", 5.0),
        ("max_leases_for_worker", 0),
        ("max_leases_to_steal_at_one_time", -1),
        ("lease_scan_interval", 0.0),
        ("shard_sync_interval", 0),
        ("parent_shard_poll_interval", 0),
        ("lease_cleanup_interval", 0),
        ("max_records", 10_001),
        ("max_records", True),
        ("idle_time_between_reads", 0.1),
        ("task_backoff_time", 0),
        ("max_threads", 0),
        ("checkpoint_interval", -1),
        ("checkpoint_timeout", "1"),
        ("misplaced_aggregates", "drop"),
        ("on_handler_error", "skip"),
        ("min_idle_time_between_reads", 1.5),
        ("min_idle_time_between_reads", 0.1),
        ("max_idle_time_between_reads", 0.5),
        ("max_prefetch_bytes", 1000),
        ("max_fetch_threads", 0),
        ("concurrency", 0),
        ("auto_checkpoint", 1),
        ("checkpoint_records", 0),
        ("stall_timeout", 0),
        ("billing_mode", "FREE"),
        ("initial_lease_table_read_capacity", 0),
        ("initial_lease_table_write_capacity", 0),
    ],
)
def test_a_bad_value_names_field_and_value(field, value):
    with pytest.raises(ConfigError, match=field) as caught:
        ConsumerConfig(**{field: value})
    assert caught.value.field == field


def test_a_timestamp_position():
    moment = datetime(2026, 1, 1, tzinfo=timezone.utc)
    config = ConsumerConfig(initial_position=moment)
    assert (config.initial_checkpoint, config.initial_timestamp) == ("AT_TIMESTAMP", moment)


def test_failure_policies():
    assert handler_error_policy("retry", 0.5) == RetryBatch(initial_delay=0.5, max_delay=30)
    assert handler_error_policy("stop", 0.5) == StopWorker()
    assert ConsumerConfig(on_handler_error=RetryBatch(initial_delay=2)).error_policy.initial_delay == 2
    with pytest.raises(ConfigError):
        RetryBatch(initial_delay=5, max_delay=1)
    bisect = BisectBatch(dead_letter=print)
    assert handler_error_policy(bisect, 0.5) is bisect


@pytest.mark.parametrize(
    "bad",
    [
        {"dead_letter": None},
        {"attempts": 0},
        {"retry_only": [OSError]},
        {"retry_only": (5,)},
        {"retry_only": (SystemExit,)},
        {"max_delay": 0.1},
    ],
)
def test_a_bad_bisecting_policy(bad):
    with pytest.raises(ConfigError, match=f"on_handler_error.{next(iter(bad))}"):
        BisectBatch(**{"dead_letter": print, **bad})


@pytest.mark.parametrize(
    ("more", "times"),
    [
        ({}, (1.0, 0.5, 2.0)),
        ({"idle_time_between_reads": 0.2}, (0.2, 0.2, 0.4)),
        ({"min_idle_time_between_reads": 0.3, "max_idle_time_between_reads": 9}, (1.0, 0.3, 9)),
    ],
)
def test_idle_times(more, times):
    assert ConsumerConfig(**more).idle_times == times


class MyHandler(RecordHandler):
    def __init__(self, dependency=None):
        self.dependency = dependency

    def process_records(self, batch):
        pass


def function(batch):
    pass


async def coroutine(batch):
    pass


def generator(batch):
    yield


async def asynchronous_generator(batch):
    yield


class GeneratorHandler(RecordHandler):
    def process_records(self, batch):
        yield


class CallableObject:
    def __call__(self, batch):
        pass


@pytest.mark.parametrize(
    "form",
    [function, coroutine, lambda batch: None, CallableObject(), CallableObject().__call__, print, [].append],
)
def test_functions_of_a_batch(form):
    source = HandlerSource.of(form)
    assert source.auto_checkpoint
    assert isinstance(source.make(), RecordHandler)


@pytest.mark.parametrize("form", [MyHandler, functools.partial(MyHandler, 5), lambda: MyHandler(5)])
def test_classes_and_factories(form):
    source = HandlerSource.of(form)
    assert not source.auto_checkpoint
    assert source.make() is not source.make()


@pytest.mark.parametrize(
    "form",
    [MyHandler(), generator, asynchronous_generator, GeneratorHandler, 5, None, lambda a, b: None],
)
def test_what_is_no_handler(form):
    with pytest.raises(ConfigError, match="handler"):
        HandlerSource.of(form)


def test_a_factory_that_makes_something_else():
    with pytest.raises(ConfigError, match="RecordHandler"):
        HandlerSource.of(object).make()
