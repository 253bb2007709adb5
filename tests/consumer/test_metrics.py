"""What a consumer's metrics say, beside what really happened: in virtual time, through every sink's accumulator."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from kinesis_sdk.common import catalogue
from kinesis_sdk.common.error_policy import CircuitBreaker, Deferred
from kinesis_sdk.common.errors import TransientAwsError
from kinesis_sdk.common.metrics import Kind
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer import BisectBatch, ConsumerConfig, FailureConfig, RetryBatch
from kinesis_sdk.consumer.fetch.budget import ByteBudget
from kinesis_sdk.consumer.leases.table.transitions import checkpointed
from kinesis_sdk.metrics import MemoryMetrics
from kinesis_sdk.producer import Producer, ProducerConfig
from kinesis_sdk.testing import FakeAws, Fault
from tests.consumer.fleet.client import Client
from tests.consumer.fleet.engines import HORIZON, UNHURRIED, Fleet
from tests.consumer.fleet.streams import Streams

CONFIG = UNHURRIED.with_fields(stall_timeout=30.0)
SHARD = "shardId-000000000000"


class Remembering(MemoryMetrics):
    """Knows every metric that was ever recorded, also those that ended."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.recorded = set()

    def add(self, metric, *arguments):
        super().add(metric, *arguments)
        self.recorded.add(metric)


class Measured(Fleet):
    """A fleet whose workers share one sink."""

    def __post_init__(self):
        super().__post_init__()
        self.sink = Remembering()
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
        names = {metric.name for metric in catalogue.CATALOGUE if metric.kind is Kind.GAUGE}
        return {series.name for series in self.sink.snapshot() if series.name in names}


@pytest.fixture(autouse=True)
def no_metric_is_lost(caplog):
    """Emission under a wrong dimension is an error of the sink, which costs a log line."""
    yield
    assert "metrics sink raised" not in caplog.text


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
    lost = [record for record in caplog.records if "metrics sink raised" in record.getMessage()]
    assert lost and all("disk full" in str(record.exc_info[1]) for record in lost)
    assert len(lost) < 15
    caplog.clear()


# Lag


def put_each(fleet, seconds, count=1):
    """A record each so many seconds, for as long as the fleet runs."""

    def put(now):
        fleet.put(count)
        return now + seconds

    fleet.add_script("producer", put)


def ages(fleet, minutes, shard=SHARD):
    """The age of the oldest unprocessed record in seconds, a minute apart."""
    found = []
    for _ in range(minutes):
        fleet.run(60)
        age = fleet.last("OldestUnprocessedRecordAge", shard)
        found.append(None if age is None else age / 1000)
    return found


def test_the_age_of_the_oldest_record_grows_steadily_while_a_handler_fails():
    """D3: the lag froze at the last success, exactly when processing stopped."""
    fleet = Measured(config=CONFIG)
    batches = []

    def handle(batch):
        batches.append(len(batch.records))
        if len(batches) >= 3:
            raise ValueError("the database is down")

    put_each(fleet, 5.0)
    engine = fleet.add("a", handle)
    fleet.run(60)
    assert len(batches) >= 3
    found = ages(fleet, 15)
    assert all(55 <= later - earlier <= 65 for earlier, later in pairwise(found)), found
    assert 900 <= found[-1] <= 970
    (health,) = engine.shard_health()
    assert health.oldest_unprocessed_millis == pytest.approx(found[-1] * 1000, abs=6000)
    assert fleet.total("HandlerFailures") == len(batches) - 2
    behind = fleet.last("MillisBehindLatest")
    assert behind < 60_000, "of the read, as the KCL: nothing was read since"


@pytest.mark.parametrize("concurrency", [1, 4])
def test_the_age_falls_back_when_the_handler_recovers(concurrency):
    fleet = Measured(config=CONFIG.with_fields(concurrency=concurrency))
    down = [True]

    def handle(batch):
        if down[0]:
            raise ValueError("the database is down")
        fleet.note("a", batch)

    fleet.put(20)
    fleet.add("a", handle)
    found = ages(fleet, 5)
    assert found == sorted(found)
    assert 295 <= found[-1] <= 301
    down[0] = False
    assert fleet.run(60, fleet.all_delivered)
    fleet.run(10)
    assert fleet.last("OldestUnprocessedRecordAge") == 0


def test_while_a_handler_hangs_health_does_not_say_that_nothing_waits():
    """U4: `health()` said 0 while 15 records waited for a handler that hung."""
    seen = []

    def handle(batch):
        fleet.note("a", batch)
        fleet.clock.advance(6)  # it hangs, and meanwhile another thread asks
        seen.append(fleet.engines["a"].shard_health()[0].oldest_unprocessed_millis)
        fleet.engines["a"]._check_stalls(fleet.clock.monotonic())
        seen.append(fleet.last("OldestUnprocessedRecordAge"))

    fleet = Measured(config=CONFIG)
    fleet.put(15)
    fleet.add("a", handle)
    fleet.run(40)
    assert fleet.all_delivered()
    assert all(6_000 <= age <= 9_000 for age in seen)
    (health,) = fleet.engines["a"].shard_health()
    assert (health.oldest_unprocessed_millis, health.read_lag_millis) == (0, 0)


def test_the_age_of_a_record_counts_from_its_arrival_and_not_from_its_read():
    """A worker that starts on an old backlog is as late as its oldest record, by the service's clock alone."""
    fleet = Measured(config=CONFIG)
    fleet.put(3)
    fleet.clock.advance(600)
    fleet.put(3)
    fleet.clock.advance(30)
    ages_seen = []

    def handle(batch):
        ages_seen.append(fleet.engines["a"].shard_health()[0].oldest_unprocessed_millis)

    fleet.add("a", handle)
    fleet.run(20)
    # The service reports no lag at the tip, but the date of its answer: without fractions of a second.
    assert 630_000 - 1000 <= ages_seen[0] <= 631_000


def test_an_idle_shard_is_zero_behind_and_says_so_all_the_time():
    fleet = Measured(shards=2, config=HORIZON)
    fleet.add("a")
    fleet.run(60)
    before = fleet.shard("MillisBehindLatest").samples
    fleet.run(60)
    assert (fleet.last("MillisBehindLatest"), fleet.last("OldestUnprocessedRecordAge")) == (0, 0)
    assert fleet.shard("MillisBehindLatest").samples > before + 20, "on every read, empty ones too"


def test_what_is_not_known_is_not_zero():
    fleet = Measured(config=CONFIG)
    fleet.aws.faults.add(Fault(kind="error", operation="GetRecords", code="InternalFailure"))
    engine = fleet.add("a")
    fleet.run(30)
    (health,) = engine.shard_health()
    assert (health.oldest_unprocessed_millis, health.read_lag_millis) == (None, None)
    assert fleet.last("OldestUnprocessedRecordAge") is None
    assert fleet.last("MillisBehindLatest") is None


def test_the_age_grows_while_nothing_can_be_read_any_more():
    fleet = Measured(config=CONFIG)
    fleet.put(3)
    fleet.add("a")
    fleet.run(20)
    fleet.aws.faults.add(Fault(kind="error", operation="GetRecords", code="InternalFailure"))
    found = ages(fleet, 3)
    assert found == sorted(found)
    assert 170 <= found[-1] <= 182
    fleet.aws.faults.clear()
    fleet.run(30)
    assert fleet.last("OldestUnprocessedRecordAge") == 0


def test_a_batch_that_gave_its_memory_back_is_still_waiting(monkeypatch):
    """Its records are in no buffer until they are read again; their age does not restart."""
    monkeypatch.setattr(ByteBudget, "is_crowded", True)
    fleet = Measured(config=CONFIG)
    seen = []

    def handle(batch):
        raise ValueError("the database is down")

    fleet.put(20)
    engine = fleet.add("a", handle)
    fleet.run(10)

    def watch(now):
        seen.append(engine.shard_health()[0].oldest_unprocessed_millis)
        return now + 0.1

    fleet.add_script("watch", watch)
    fleet.run(120)
    assert fleet.aws.stats()["calls"]["GetShardIterator"] > 3, "it was read again"
    assert seen == sorted(seen)
    assert seen[-1] >= 128_000


def test_a_service_that_reports_no_lag_leaves_it_unknown():
    """Some emulators report none. A batch that waits still has an age."""

    def silent(method, request):
        answer = method(**request)
        answer.pop("MillisBehindLatest")
        return answer

    fleet = Measured(config=CONFIG)
    fleet.kinesis = Client(fleet.kinesis, get_records=silent)
    seen = []

    def handle(batch):
        fleet.clock.advance(5)
        seen.append(
            (batch.millis_behind_latest, fleet.engines["a"].shard_health()[0].oldest_unprocessed_millis)
        )

    fleet.put(3)
    fleet.add("a", handle)
    fleet.run(20)
    assert seen[0][0] is None
    assert seen[0][1] >= 5000
    (health,) = fleet.engines["a"].shard_health()
    assert (health.oldest_unprocessed_millis, health.read_lag_millis) == (None, None)
    assert fleet.last("MillisBehindLatest") is None


# Reads, checkpoints, leases


def test_reads_are_counted_with_their_records_bytes_times_and_throttles():
    fleet = Measured(config=CONFIG)
    fleet.put(12)
    fleet.aws.faults.add(
        Fault(kind="error", operation="GetRecords", code="ProvisionedThroughputExceededException", count=2)
    )
    fleet.add("a")
    assert fleet.run(30, fleet.all_delivered)
    fleet.run(5)
    assert fleet.total("ReadsThrottled") == 2
    assert fleet.total("RecordsRead") == 12
    assert fleet.total("DataBytesRead") == sum(map(len, fleet.sent))
    success = fleet.shard("KinesisDataFetcher.getRecords.Success")
    assert success.samples - success.total == 2
    assert success.samples == fleet.shard("KinesisDataFetcher.getRecords.Time").samples


def test_checkpoints_and_renewals_are_timed_with_their_failures():
    fleet = Measured(config=CONFIG)
    fleet.put(3)
    failing = [False]
    original = fleet.store.renew

    def renew(lease):
        if failing[0]:
            raise TransientAwsError("no answer")
        return original(lease)

    fleet.store.renew = renew
    fleet.add("a")
    fleet.run(30)
    checkpoints = fleet.shard("UpdateLease.Success")
    assert checkpoints.samples == checkpoints.total > 0
    assert fleet.shard("UpdateLease.Time").samples == checkpoints.samples
    renewals = fleet.worker("RenewLease.Success", "a")
    assert renewals.samples == renewals.total > 0
    failing[0] = True
    fleet.run(8)
    failing[0] = False
    fleet.run(3)
    renewals = fleet.worker("RenewLease.Success", "a")
    assert renewals.samples > renewals.total
    assert fleet.worker("RenewLease.Time", "a").samples == renewals.samples
    assert fleet.worker("LostLeases", "a") is None, "it was renewed in time"


def test_a_crash_is_seen_in_the_survivors_numbers():
    fleet = Measured(shards=4, config=CONFIG)
    fleet.add("a")
    fleet.add("b")
    fleet.run(60)
    assert fleet.worker("NumWorkers", "b").last == 2
    assert fleet.worker("ListLeases.Success", "b").mean == 1
    moved = fleet.worker("LeaseHandoffsRequested", "b")
    if moved is not None:  # unless b was the first to take its share
        assert moved.total == fleet.worker("LeasesHandedOff", "a").total
    before = fleet.worker("TakenLeases", "b").total
    fleet.crash("a")
    assert fleet.run(60, lambda: set(fleet.owners().values()) == {"b"})
    assert fleet.worker("ExpiredLeases", "b").total == 2
    assert fleet.worker("ExpiredLeasesTaken", "b").total == 2
    assert fleet.worker("TakenLeases", "b").total == before + 2
    fleet.run(20)
    assert fleet.worker("NumWorkers", "b").last == 1
    assert fleet.worker("ExpiredLeases", "b").last == 0
    assert fleet.worker("CurrentLeases", "b").last == 4


def test_a_stop_and_a_handoff_lose_no_lease():
    fleet = Measured(shards=2, config=CONFIG)
    fleet.add("a")
    fleet.run(20)
    fleet.add("b")
    assert fleet.run(60, lambda: sorted(fleet.owners().values()) == ["a", "b"])
    fleet.run(20)
    fleet.stop("a")
    fleet.run(20)
    assert (
        fleet.worker("LeasesHandedOff", "a").total == fleet.worker("LeaseHandoffsRequested", "b").total == 1
    )
    assert fleet.worker("LostLeases", "a") is None
    assert fleet.worker("ExpiredLeasesTaken", "b") is None
    assert fleet.worker("TakenLeases", "b").total == 2


def test_a_quarantine_is_a_state_that_ends_with_the_repair():
    fleet = Measured(config=CONFIG)
    fleet.put(5)
    fleet.add("a")
    fleet.run(20)
    fleet.stop("a")
    fleet.run(5)
    right = fleet.store.get(SHARD)
    fleet.store._rows[SHARD] = checkpointed(right, ExtendedSequenceNumber("9" * 56))
    fleet.add("b")
    fleet.run(60)
    assert fleet.last("ShardQuarantined") == 1
    row = fleet.store.get(SHARD)
    fleet.store._rows[SHARD] = replace(row, checkpoint=right.checkpoint)
    fleet.put(1)
    assert fleet.run(900, fleet.all_delivered)
    assert fleet.last("ShardQuarantined") == 0


def test_every_metric_of_the_catalogue_is_recorded():
    """A name that is only in the catalogue is a dashboard that stays empty."""
    sink = Remembering()
    aws = FakeAws(throttle=False)
    aws.client("kinesis").create_stream(StreamName="orders", ShardCount=1)
    aws.faults.add(Fault(kind="partial", operation="PutRecords", count=1))
    with Producer(
        ProducerConfig(record_max_buffered_time=0.01), client=aws.client("kinesis"), metrics=sink
    ) as producer:
        producer.put("orders", "k", b"x")
        producer.flush()
    # Another producer, because a slow machine may take longer than this time to live for the record above.
    short = ProducerConfig(record_ttl=0.1, record_max_buffered_time=0.01)
    with Producer(short, client=aws.client("kinesis"), metrics=sink) as producer:
        aws.faults.add(Fault(kind="error", operation="PutRecords", status=503))
        producer.put("orders", "k", b"expires")
        producer.flush()
    elsewhere = {
        catalogue.BEGUN_ANEW  # tests/producer/io/test_metrics.py: test_records_that_are_begun_anew_are_counted_once
    }
    assert sink.recorded | elsewhere == {*catalogue.PRODUCER_METRICS}

    fleet = Measured(
        shards=4,
        config=ConsumerConfig(
            initial_position="TRIM_HORIZON",
            failure=FailureConfig(stall_timeout=30.0),
            on_handler_error=BisectBatch(
                dead_letter=lambda poison: Deferred(60) if poison.record.data == b"7" else None,
                initial_delay=0.1,
            ),
        ),
    )

    def handle(batch):
        fleet.note("a", batch)
        if any(record.data in (b"7", b"8") for record in batch.records):
            raise ValueError("poison")

    fleet.put(20)
    fleet.aws.faults.add(
        Fault(kind="error", operation="GetRecords", code="ProvisionedThroughputExceededException", count=1)
    )
    fleet.add("a", handle)
    fleet.run(30)
    fleet.add("b", handle)
    fleet.run(30)
    fleet.aws.faults.add(Fault(kind="error", operation="GetRecords", code="InternalFailure"))
    fleet.run(60)
    fleet.aws.faults.clear()
    fleet.freeze("a", 60)
    fleet.run(100)
    # Rare ones, each with the test that records it.
    elsewhere = {
        catalogue.SHARD_QUARANTINED,  # test_a_quarantine_is_a_state_that_ends_with_the_repair
        catalogue.HANDLER_BATCH_SIZE,  # test_the_size_of_calls_is_measured_while_failures_keep_them_small
        catalogue.CIRCUIT_OPEN,  # test_an_open_circuit_is_one_and_a_closed_one_zero
        catalogue.CHECKPOINT_EXPIRED,  # test_a_checkpoint_that_expired_is_in_the_summary
        catalogue.AGGREGATES_UNREADABLE,  # tests/consumer/test_compressed.py
        # In test_repetitions.py:
        catalogue.REPETITIONS_DROPPED,  # test_a_lost_answer_costs_nothing_if_the_owner_stays
        catalogue.NAMES_DROPPED,  # test_a_record_whose_name_was_taken_is_named_in_the_log_and_counted
        catalogue.REPETITIONS_UNKNOWN,  # test_a_look_up_that_is_denied_delivers_and_counts
        catalogue.REPETITION_LOOK_UPS,  # test_a_memory_that_is_too_small_is_told_once_and_measured
        catalogue.REPETITION_LOOK_UPS_BEYOND_MEMORY,  # the same
        catalogue.REPETITION_LOOK_UP_BYTES,  # the same
        catalogue.REPETITION_LOOK_UPS_OVER_BUDGET,  # the same
        catalogue.REPETITION_MEMORY_USED,  # the same
    }
    assert fleet.sink.recorded | elsewhere == {*catalogue.CONSUMER_METRICS}


def test_an_open_circuit_is_one_and_a_closed_one_zero():
    policy = CircuitBreaker(RetryBatch(initial_delay=0.1), failures=2, first_pause=1)
    fleet = Measured(config=replace(CONFIG, on_handler_error=policy))

    def handle(batch):
        if fleet.clock.monotonic() < 10:
            raise ConnectionError

    fleet.put(1)
    fleet.add("a", handle)
    fleet.run(8)
    assert fleet.last("CircuitOpen") == 1
    fleet.run(12)
    assert fleet.last("CircuitOpen") == 0


def test_a_checkpoint_that_expired_is_in_the_summary():
    """D2: it was dropped at the level ``summary``, and no counter elsewhere."""
    fleet = Measured(config=CONFIG)
    fleet.sink = fleet.more["metrics"] = Remembering(level="summary")
    fleet.put(5)
    fleet.add("a")
    fleet.run(20)
    fleet.stop("a")
    fleet.run(5)
    fleet.clock.advance(25 * 3600)
    fleet.put(1)
    fleet.add("b")
    assert fleet.run(30, fleet.all_delivered)
    assert fleet.total("CheckpointExpired") == 1
    assert catalogue.CHECKPOINT_EXPIRED.kind is Kind.COUNTER


@pytest.mark.parametrize(("level", "of_shard", "of_worker"), [("summary", 7, 5), ("detailed", 11, 11)])
def test_what_a_healthy_shard_costs_in_cloudwatch(level, of_shard, of_worker):
    """The numbers in docs/metrics.md: CloudWatch charges for each metric. A new metric raises them here and there."""
    fleet = Measured(shards=2, config=CONFIG)
    fleet.sink = fleet.more["metrics"] = MemoryMetrics(level=level)
    put_each(fleet, 1.0)
    fleet.add("a")
    fleet.run(120)
    found = [dict(series.dimensions) for series in fleet.sink.snapshot()]
    assert sum(one.get("ShardId") == SHARD for one in found) == of_shard
    assert sum("WorkerIdentifier" in one for one in found) == of_worker


def test_the_size_of_calls_is_measured_while_failures_keep_them_small():
    fleet = Measured(config=replace(CONFIG, batch_records=16))
    sizes, left = [], [5]

    def handle(batch):
        sizes.append((len(batch.records), fleet.last("HandlerBatchSize")))
        if left[0]:
            left[0] -= 1
            raise ValueError("busy")
        fleet.note("a", batch)

    fleet.put(100)
    fleet.add("a", handle)
    assert fleet.run(120, fleet.all_delivered)
    assert sizes[:7] == [(16, None), (16, None), (8, 8), (4, 4), (2, 2), (1, 1), (1, 1)]
    assert fleet.last("HandlerBatchSize") == 16, "as large as before"
    assert fleet.total("RecordsProcessed") == 100
