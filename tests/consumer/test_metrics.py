"""What a consumer's metrics say, beside what really happened: in virtual time, through every sink's accumulator."""

from __future__ import annotations

import pytest

from kinesis_sdk.common import catalogue
from kinesis_sdk.consumer import ConsumerConfig
from kinesis_sdk.metrics import MemoryMetrics
from kinesis_sdk.testing import Fault
from tests.consumer.simulation import Fleet
from tests.consumer.test_streams import Streams

CONFIG = ConsumerConfig(initial_position="TRIM_HORIZON", stall_timeout=30.0)
SHARD = "shardId-000000000000"


class Measured(Fleet):
    """A fleet whose workers share one sink."""

    def __post_init__(self):
        super().__post_init__()
        self.sink = MemoryMetrics()
        self.more = {"metrics": self.sink, "application_name": "billing"}

    def shard(self, metric, shard=SHARD, **dimensions):
        return self.sink.get(
            metric, ApplicationName="billing", StreamName="orders", ShardId=shard, **dimensions
        )

    def last(self, metric, shard=SHARD):
        found = self.shard(metric, shard)
        return None if found is None else found.last

    def total(self, metric, shard=SHARD):
        found = self.shard(metric, shard)
        return 0 if found is None else found.total

    def worker(self, metric, worker):
        return self.sink.get(metric, ApplicationName="billing", WorkerIdentifier=worker)

    def gauges(self):
        names = {metric.name for metric in catalogue.CATALOGUE if metric.kind is catalogue.Kind.GAUGE}
        return {series.name for series in self.sink.snapshot() if series.name in names}


@pytest.fixture(autouse=True)
def no_metric_is_lost(caplog):
    """Emission under a wrong dimension is an error of the sink, which costs a log line."""
    yield
    assert "metrics are lost" not in caplog.text


def test_two_streams_of_one_worker_and_two_applications_on_one_sink_are_never_one_series():
    sink = MemoryMetrics()
    fleet = Streams("orders", "other", shards=1)
    fleet.put("orders", *[b"o%d" % n for n in range(3)])
    fleet.put("other", *[b"x%d" % n for n in range(50)])
    fleet.add("a", metrics=sink)
    fleet.run(20, lambda: len(fleet.got) == 53)
    second = Streams("orders", shards=1)
    second.put("orders", *[b"s%d" % n for n in range(700)])
    second.add("b", metrics=sink, application_name="audit")
    second.run(20, lambda: len(second.got) == 700)

    def processed(**dimensions):
        return sink.get("RecordsProcessed", ShardId=SHARD, **dimensions).total

    assert processed(ApplicationName="app", StreamName="orders") == 3
    assert processed(ApplicationName="app", StreamName="other") == 50
    assert processed(ApplicationName="audit", StreamName="orders") == 700
    assert sink.get("RecordsProcessed", ApplicationName="app").total == 53


def test_streams_of_one_name_in_two_accounts_are_two_series():
    sink = MemoryMetrics()
    fleet = Streams("orders", shards=1)
    fleet.add("a", streams=lambda: [fleet.arn("orders")], metrics=sink)
    fleet.put("orders", b"1")
    assert fleet.run(20, lambda: len(fleet.got) == 1)
    (series,) = [
        s for s in sink.snapshot() if s.name == "RecordsProcessed" and "ShardId" in dict(s.dimensions)
    ]
    region, account = fleet.arn("orders").split(":")[3:5]
    assert dict(series.dimensions).items() >= {"Region": region, "AccountId": account}.items()


def test_the_states_of_a_lease_that_moved_are_its_new_owners_only():
    fleet = Measured(shards=2, config=CONFIG)
    first, second = MemoryMetrics(), MemoryMetrics()
    fleet.put(20)
    fleet.more["metrics"] = first
    fleet.add("a")
    fleet.run(20)
    fleet.more["metrics"] = second
    fleet.add("b")
    assert fleet.run(60, lambda: sorted(fleet.owners().values()) == ["a", "b"])
    fleet.run(10)  # the handoff was requested
    fleet.put(20)
    fleet.run(20)
    owners = fleet.owners()

    def shown(sink):
        return {
            dict(series.dimensions)["ShardId"]
            for series in sink.snapshot()
            if series.name == "MillisBehindLatest" and "ShardId" in dict(series.dimensions)
        }

    assert shown(first) == {shard for shard, owner in owners.items() if owner == "a"}
    assert shown(second) == {shard for shard, owner in owners.items() if owner == "b"}


def test_a_lost_lease_ends_its_states_at_once_also_while_the_handler_hangs():
    """The handler never returns to notice the loss; its peer's series must not be joined by stale ones."""
    fleet = Measured(config=CONFIG)
    fleet.put(5)
    engine = fleet.add("a")
    fleet.run(10)
    assert fleet.last("MillisBehindLatest") is not None
    (held,) = engine.coordinator.held
    held.mark_lost("another worker took it")
    engine.renew(fleet.clock.monotonic())  # the thread that renews, while the steps' threads hang
    assert fleet.last("MillisBehindLatest") is None


@pytest.mark.parametrize("how", ["request_stop", "abort"])
def test_a_stopped_worker_shows_no_state(how):
    fleet = Measured(shards=2, config=CONFIG)
    fleet.put(20)
    engine = fleet.add("a")
    fleet.run(20)
    assert fleet.worker("CurrentLeases", "a").last == 2
    assert {"MillisBehindLatest", "CurrentLeases", "TotalLeases"} <= fleet.gauges()
    getattr(engine, how)()
    if how == "request_stop":
        fleet.stop("a")
        assert fleet.run(20, lambda: not fleet.engines)
    assert fleet.gauges() == set()
    assert sum(fleet.total("RecordsProcessed", shard) for shard in fleet_shards(2)) == 20, "counts stay"


def fleet_shards(count):
    return [f"shardId-{index:012d}" for index in range(count)]


def test_a_finished_shard_shows_no_state():
    fleet = Measured(config=CONFIG)
    fleet.put(5)
    fleet.add("a")
    fleet.run(10)
    fleet.split()
    assert fleet.run(60, lambda: fleet.store.get(SHARD).is_finished)
    fleet.run(5)
    assert fleet.last("MillisBehindLatest", SHARD) is None


def test_a_stall_is_a_state_that_returns_to_zero_and_ends_with_the_worker():
    fleet = Measured(shards=2, config=CONFIG)
    fleet.add("a")
    fleet.run(60)
    assert fleet.last("ShardStalled") is None, "an idle shard never stalled"
    fleet.aws.faults.add(Fault(kind="error", operation="GetRecords", code="InternalFailure"))
    fleet.run(100)
    assert fleet.last("ShardStalled") > 30_000
    fleet.aws.faults.clear()
    fleet.run(60)
    assert fleet.last("ShardStalled") == 0
    fleet.stop("a")
    assert fleet.run(20, lambda: not fleet.engines)
    assert fleet.last("ShardStalled") is None
    assert fleet.gauges() == set()


def test_a_sink_that_raises_costs_the_consumer_nothing(caplog):
    class Broken:
        def add(self, *_):
            raise OSError("disk full")

        retire = add

    fleet = Measured(config=CONFIG)
    fleet.more["metrics"] = Broken()
    fleet.put(20)
    fleet.add("a")
    assert fleet.run(20, fleet.all_delivered)
    fleet.stop("a")
    assert fleet.run(20, lambda: not fleet.engines)
    lost = [record for record in caplog.records if "metrics are lost" in record.getMessage()]
    assert lost and all("disk full" in str(record.exc_info[1]) for record in lost)
    assert len(lost) < 15
    caplog.clear()
