from __future__ import annotations

import copy
import dataclasses
import functools
import pickle
from datetime import datetime, timezone

import pytest

from kinesis_sdk.common.error_policy import Stop, handler_error_policy
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.consumer import (
    BisectBatch,
    ConsumerConfig,
    CoordinationConfig,
    FailureConfig,
    LeaseConfig,
    LeaseTableConfig,
    RecordHandler,
    RetrievalConfig,
    RetryBatch,
    StopWorker,
)
from kinesis_sdk.consumer.config import GROUP_OF_FIELD
from kinesis_sdk.consumer.handler import HandlerSource

GROUPS = {
    "leases": LeaseConfig,
    "lease_table": LeaseTableConfig,
    "retrieval": RetrievalConfig,
    "coordination": CoordinationConfig,
    "failure": FailureConfig,
}


def test_defaults_are_the_kcls():
    config = ConsumerConfig()
    assert config.initial_position == "LATEST"
    assert config.leases == LeaseConfig(failover_time=10.0, epsilon=0.025)
    assert config.retrieval.max_records == 10_000
    assert LeaseConfig(lease_renewal_schedule="kcl2").renew_interval == pytest.approx(3.308, abs=0.001)
    assert config.initial_checkpoint == "LATEST"


BAD_VALUES = {
    "initial_position": ["NOW", datetime(2026, 1, 1)],  # noqa: DTZ001 - the point
    "on_handler_error": ["skip"],
    "concurrency": [0, 1001],
    "batch_records": [0, -1, 2.5, True, "all"],
    "max_threads": [0, 1001],
    "auto_checkpoint": [1],
    "deserializer": [7, "json", object()],
    "checkpoint_interval": [-1, 86_401],
    "delivery_delay": [-1, float("nan"), 31_536_001, "60", True],
    "checkpoint_records": [0],
    "leases": [None, {"failover_time": 3}, FailureConfig()],
    "lease_table": ["orders"],
    "retrieval": ["fanout"],
    "coordination": [LeaseConfig],
    "failure": ["retry"],
    "leases.failover_time": [0, float("nan"), 3601, "10"],
    "leases.epsilon": [5.0, -1],
    "leases.lease_renewal_schedule": ["rarely"],
    "leases.lease_scan_interval": [0.0, 3601],
    "leases.lease_scan_read_capacity": [0],
    "leases.graceful_lease_handoff_timeout": [-1],
    "leases.initial_rebalance_delay": [-1],
    "leases.lease_strategy": ["fair"],
    "leases.balance_by": ["bytes"],
    "leases.enable_priority_lease_assignment": ["false"],
    "leases.max_leases_for_worker": [0],
    "leases.max_leases_to_steal_at_one_time": [-1],
    "leases.worker_group": ["", "a|b"],
    "leases.worker_group_separator": [""],
    "lease_table.table_name": ["", "ab"],
    "lease_table.lease_store": ["", "leases.db", "redis://host", 5],
    "lease_table.billing_mode": ["FREE"],
    "lease_table.initial_lease_table_read_capacity": [0],
    "lease_table.initial_lease_table_write_capacity": [0],
    "lease_table.lease_table_deletion_protection_enabled": [None],
    "lease_table.lease_table_pitr_enabled": ["false"],
    "lease_table.lease_table_tags": [{"": "x"}, {"team": 5}, {"team": "x" * 257}, ["team"]],
    "retrieval.retrieval_mode": ["efo"],
    "retrieval.wire_format": ["CBOR", None],
    "retrieval.fanout_http": ["3", 2],
    "retrieval.max_records": [10_001, True],
    "retrieval.idle_time_between_reads": [0.1],
    "retrieval.min_idle_time_between_reads": [1.5, 0.1],
    "retrieval.max_idle_time_between_reads": [0.5],
    "retrieval.max_prefetch_bytes": [1000],
    "retrieval.max_repetition_bytes": [(1 << 20) - 1, (4 << 30) + 1],
    "retrieval.recognize_repetitions": [1, None],
    "retrieval.max_look_up_bytes": [-1, (1 << 40) + 1],
    "retrieval.max_fetch_threads": [0],
    "retrieval.consumer_name": [""],
    "retrieval.consumer_arn": [""],
    "coordination.shard_sync_interval": [0],
    "coordination.parent_shard_poll_interval": [0],
    "coordination.cleanup_leases_upon_shard_completion": ["true"],
    "coordination.lease_cleanup_interval": [0],
    "coordination.leases_recovery_auditor_execution_frequency": [0],
    "coordination.leases_recovery_auditor_inconsistency_confidence_threshold": [0],
    "coordination.stream_list_interval": [0],
    "coordination.wait_period_to_delete_former_streams": [-1],
    "coordination.worker_metrics": ["on"],
    "failure.task_backoff_time": [0],
    "failure.checkpoint_timeout": ["1"],
    "failure.stall_timeout": [0],
    "failure.handler_timeout": [0],
    "failure.misplaced_aggregates": ["drop"],
}


@pytest.mark.parametrize(
    ("path", "value"), [(path, bad) for path, values in BAD_VALUES.items() for bad in values]
)
def test_a_bad_value_is_rejected_with_the_path_of_its_field(path, value):
    group, _, field = path.rpartition(".")
    with pytest.raises(ConfigError, match=f"^{path}=.* is invalid: expected ") as caught:
        GROUPS.get(group, ConsumerConfig)(**{field: value})
    assert caught.value.field == path


def test_every_field_is_covered_here():
    own = {field.name for field in dataclasses.fields(ConsumerConfig)}
    grouped = {
        f"{name}.{field.name}" for name, group in GROUPS.items() for field in dataclasses.fields(group)
    }
    assert own | grouped == set(BAD_VALUES)


@pytest.mark.parametrize("kind", [ConsumerConfig, *GROUPS.values()])
def test_settings_are_immutable_and_take_keywords_only(kind):
    config = kind()
    for field in dataclasses.fields(kind):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(config, field.name, getattr(config, field.name))
    with pytest.raises(TypeError, match="positional"):
        kind("LATEST")


def test_a_field_name_occurs_in_one_group_only():
    names = [field.name for kind in (ConsumerConfig, *GROUPS.values()) for field in dataclasses.fields(kind)]
    assert len(names) == len(set(names)) == 60 + len(GROUPS)
    assert {name: GROUPS[group] for name, group in GROUP_OF_FIELD.items()} == {
        field.name: kind for kind in GROUPS.values() for field in dataclasses.fields(kind)
    }


def test_fields_can_be_set_by_their_name_alone():
    config = ConsumerConfig(on_handler_error="stop", leases=LeaseConfig(failover_time=5))
    changed = config.with_fields(
        initial_position="TRIM_HORIZON", balance_by="count", lease_scan_interval=2, stall_timeout=30
    )
    assert changed == ConsumerConfig(
        initial_position="TRIM_HORIZON",
        on_handler_error="stop",
        leases=LeaseConfig(failover_time=5, balance_by="count", lease_scan_interval=2),
        failure=FailureConfig(stall_timeout=30),
    )
    assert config.leases == LeaseConfig(failover_time=5)
    assert config.with_fields() == config
    assert config.with_fields(leases=LeaseConfig(epsilon=0), failover_time=3).leases == LeaseConfig(
        epsilon=0, failover_time=3
    )


def test_fields_that_depend_on_each_other_can_be_set_together():
    assert ConsumerConfig().with_fields(epsilon=5.0, failover_time=60).leases.epsilon == 5.0


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"failover_times": 3}, "failover_times=3 is invalid: expected the name of a field"),
        ({"error_policy": 3}, "error_policy=3 is invalid: expected the name of a field"),
        ({"failover_time": 0}, r"leases\.failover_time=0 is invalid: expected seconds from 0.5 to 3600"),
    ],
)
def test_a_bad_field_set_by_its_name_is_rejected(fields, error):
    with pytest.raises(ConfigError, match=error):
        ConsumerConfig().with_fields(**fields)


def test_settings_can_be_pickled_and_copied():
    config = ConsumerConfig(lease_table=LeaseTableConfig(lease_table_tags={"team": "billing"}))
    assert pickle.loads(pickle.dumps(config)) == copy.deepcopy(config) == config


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

    class Own:
        def decide(self, _failure):
            return Stop()

    own = Own()
    assert ConsumerConfig(on_handler_error=own).error_policy is own
    for wrong in (Own, "bisect", None, 5):
        with pytest.raises(ConfigError, match="on_handler_error="):
            ConsumerConfig(on_handler_error=wrong)


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
        ({}, (1.0, 0.5, 1.0)),
        ({"idle_time_between_reads": 0.2}, (0.2, 0.2, 0.2)),
        ({"min_idle_time_between_reads": 0.3, "max_idle_time_between_reads": 9}, (1.0, 0.3, 9)),
    ],
)
def test_idle_times(more, times):
    assert RetrievalConfig(**more).idle_times(billed=False) == times


def test_billed_reads_are_rarer_at_rest():
    assert RetrievalConfig().idle_times(billed=True) == (1.0, 0.5, 2.0)
    assert RetrievalConfig(max_idle_time_between_reads=9).idle_times(billed=True)[2] == 9


def test_http2_needs_its_package(monkeypatch):
    assert RetrievalConfig(retrieval_mode="fanout", fanout_http="2").fanout_http == "2"
    monkeypatch.setattr("kinesis_sdk.consumer.config.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"fanout_http.*http2"):
        RetrievalConfig(retrieval_mode="fanout", fanout_http="2")


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


def test_a_setting_outside_its_group_is_told_where_it_belongs():
    with pytest.raises(ConfigError) as caught:
        ConsumerConfig(failover_time=5)
    assert str(caught.value) == (
        "failover_time is a setting of LeaseConfig: ConsumerConfig(leases=LeaseConfig(failover_time=5)), "
        "or ConsumerConfig().with_fields(failover_time=5)"
    )
    with pytest.raises(TypeError, match="no_such_setting"):
        ConsumerConfig(no_such_setting=5)
    config = ConsumerConfig(leases=LeaseConfig(failover_time=5))
    assert pickle.loads(pickle.dumps(config)) == copy.deepcopy(config) == config
