"""Records that fail and wait in streams, in virtual time."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest

from kinesis_sdk.common.aggregate_writer import Aggregate
from kinesis_sdk.common.dead_letters import ATTEMPT, DUE, FIRST_FAILED, ORIGIN, History
from kinesis_sdk.common.errors import ConfigError, InvalidRecordError
from kinesis_sdk.common.hashkeys import hash_partition_key
from kinesis_sdk.common.headers import encode_headers
from kinesis_sdk.common.retry_tiers import delay_of
from kinesis_sdk.consumer import CircuitBreaker, ConsumerConfig, LeaseConfig
from kinesis_sdk.consumer.engine.engine import ConsumerEngine
from kinesis_sdk.consumer.handler import HandlerSource
from kinesis_sdk.consumer.runtime.runtime import InlineRuntime
from kinesis_sdk.retries import RetryTable, RetryTiers, StreamTiers
from tests.consumer.fleet.streams import Streams

DELAYS = (10, 30)
TIERS = ("orders.retry-10", "orders.retry-30")


class DirectProducer:
    """Puts each record at once, as an aggregate of one with its headers."""

    def __init__(self, client, **config):
        self.config = SimpleNamespace(dedup_namespace=None, **config)
        self.client, self.put_count, self.names = client, 0, []
        self.failing = None

    def put(self, stream, key, data, explicit_hash_key=None, *, headers, **names):
        if self.failing is not None:
            raise self.failing
        aggregate = Aggregate(2**20, 2**30)
        aggregate.try_append(key, None, data, hash_partition_key(key), headers=encode_headers(headers))
        self.client.put_record(StreamName=stream.name, PartitionKey=key, Data=aggregate.encode())
        self.put_count += 1
        self.names.append(names)
        return SimpleNamespace(result=lambda: None)


class Scene(Streams):
    """A worker of the stream and of its tiers, whose handler fails on what `bad` says."""

    def __init__(self, *, bad=lambda record: record.data.startswith(b"bad"), breaker=None, **options):
        super().__init__("orders", *TIERS, shards=1)
        self.bad, self.calls, self.dead, self.breaker = bad, [], [], breaker
        self.producer = DirectProducer(self.raw, **options)

    def begin(self, name="a"):
        """Start a worker process: with objects of its own."""
        self.tiers = RetryTiers(
            DELAYS,
            to=StreamTiers(self.producer, "orders", clock=self.clock),
            dead_letter=self.dead.append,
            attempts=1,
        )

        def handle(batch):
            for record in batch.records:
                self.calls.append(
                    (self.clock.monotonic(), batch.stream.name, record.data, dict(record.headers))
                )
                if self.bad(record):
                    raise ValueError("secret")
            self.got.extend(record.data for record in batch.records)

        policy = self.tiers if self.breaker is None else CircuitBreaker(self.tiers, **self.breaker)
        self.config = ConsumerConfig(
            initial_position="TRIM_HORIZON",
            on_handler_error=policy,
            leases=LeaseConfig(lease_scan_interval=3.0, failover_time=5),
        )
        engine = ConsumerEngine(
            streams=["orders", *self.tiers.streams()],
            worker_id=name,
            config=self.config,
            handlers=HandlerSource.of(handle),
            store=self.store,
            kinesis=self.kinesis,
            runtime=InlineRuntime(self.clock, Random(name), self.clock.advance),
            application_name="app",
        )
        engine.start()
        self.engines[name] = engine

    def run(self, seconds, until=lambda: False):
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end and not until():
            for engine in [*self.engines.values()]:
                engine.tick(self.clock.monotonic())
                assert engine.error is None
            self.clock.advance(0.5)
        return until()

    def of(self, data):
        return [(round(at), stream) for at, stream, one, _ in self.calls if one == data]


def test_a_record_waits_in_each_tier_and_then_becomes_a_dead_letter():
    scene = Scene()
    scene.begin()
    scene.put("orders", b"good", b"bad", b"later")
    began = scene.clock.monotonic()
    scene.run(60)
    assert scene.got == [b"good", b"later"]
    # Alone at last, after it was in a batch.
    places = scene.of(b"bad")
    assert [stream for _, stream in dict.fromkeys((0, one) for _, one in places)] == ["orders", *TIERS]
    second, third = (next(at for at, one in places if one == name) for name in TIERS)
    assert began + 10 <= second <= began + 16
    assert second + 30 <= third <= second + 34
    (dead,) = scene.dead
    history = History.of(dead.record.headers)
    assert (history.origin.stream, history.attempt, history.error) == ("orders", 2, "ValueError")
    assert dead.stream.name == TIERS[1]
    *_, headers = scene.calls[-1]
    assert b"secret" not in b"".join(headers.values())
    assert int(headers[DUE]) - int(headers[FIRST_FAILED]) > 30_000


def test_a_record_that_works_again_is_done():
    scene = Scene(bad=lambda record: ATTEMPT not in record.headers)
    scene.begin()
    scene.put("orders", b"1")
    scene.run(60)
    assert scene.got == [b"1"]
    assert not scene.dead


def test_a_crash_between_put_and_checkpoint_makes_a_second_copy_with_the_same_name():
    """Repetition, and no loss; a reader of an idempotent producer's stream drops the second copy by its name."""
    scene = Scene()
    scene.producer.config.dedup_namespace = "billing"
    scene.begin("a")
    scene.put("orders", b"bad")
    assert scene.run(20, lambda: scene.producer.put_count == 1)
    del scene.engines["a"]  # no checkpoint was made
    scene.bad = lambda record: ORIGIN not in record.headers
    scene.begin("b")
    scene.run(60)
    assert scene.producer.put_count == 2
    assert scene.got == [b"bad", b"bad"]
    assert scene.producer.names[0] == scene.producer.names[1] != {}
    assert not scene.dead


def test_a_put_that_fails_holds_the_record_back():
    scene = Scene()
    scene.producer.failing = OSError("no network")
    scene.begin()
    scene.put("orders", b"bad", b"next")
    scene.run(10)
    assert b"next" not in scene.got
    scene.producer.failing = None
    scene.run(60)
    assert scene.got == [b"next"]
    assert len(scene.dead) == 1


def test_a_record_that_no_tier_can_take_becomes_a_dead_letter(caplog):
    scene = Scene()
    scene.producer.failing = InvalidRecordError("headers", "too large")
    scene.begin()
    scene.put("orders", b"bad")
    scene.run(10)
    assert len(scene.dead) == 1
    assert caplog.records


def test_forged_headers_change_neither_tier_nor_time():
    """A record of the original stream that claims many attempts and a due time in a thousand years waits in the first tier, and for its delay."""
    scene = Scene(bad=lambda record: len([one for one in scene.calls if one[2] == b"forged"]) < 2)
    scene.begin()
    aggregate = Aggregate(2**20, 2**30)
    forged = {ORIGIN: "other/shardId-000000000000/1/0", ATTEMPT: "99999", DUE: "9" * 14, FIRST_FAILED: "-1"}
    aggregate.try_append("k", None, b"forged", hash_partition_key("k"), headers=encode_headers(forged))
    scene.raw.put_record(StreamName="orders", PartitionKey="k", Data=aggregate.encode())
    scene.run(25)
    assert [stream for _, stream in scene.of(b"forged")] == ["orders", TIERS[0]]
    *_, headers = scene.calls[-1]
    assert headers[ATTEMPT] == b"10000", "bounded"
    assert int(headers[DUE]) < (scene.clock.time() + 60) * 1000, "the due time is this worker's"
    assert scene.got == [b"forged"]


def test_records_that_claim_one_origin_are_no_repetitions_of_each_other():
    """One is forged, or is a dead letter that was replayed and fails again soon: readers would drop the second copy."""
    scene = Scene(bad=lambda record: record.data == b"claims")
    scene.producer.config.dedup_namespace = "billing"
    scene.begin()
    for _ in range(2):
        aggregate = Aggregate(2**20, 2**30)
        claimed = {ORIGIN: "orders/shardId-000000000000/1/0", ATTEMPT: "1"}
        aggregate.try_append("k", None, b"claims", hash_partition_key("k"), headers=encode_headers(claimed))
        scene.raw.put_record(StreamName="orders", PartitionKey="k", Data=aggregate.encode())
    assert scene.run(30, lambda: len(scene.producer.names) == 2)
    assert len({names["dedup_id"] for names in scene.producer.names}) == 2


def test_an_outage_does_not_empty_the_stream_into_its_tiers():
    scene = Scene(
        bad=lambda record: scene.clock.monotonic() < 1040,
        breaker={"failures": 5, "first_pause": 1, "longest_pause": 30},
    )
    scene.begin()
    scene.put("orders", *(b"%d" % number for number in range(50)))
    scene.run(200)
    assert sorted(set(scene.got)) == sorted(b"%d" % number for number in range(50))
    assert scene.producer.put_count <= 2 * 4, "fewer than five of each shard"
    assert not scene.dead


@pytest.mark.parametrize(
    ("delays", "names", "field"),
    [
        ((), None, "delays"),
        ("60", None, "delays"),
        ((0.5,), None, "delays"),
        ((31_536_001,), None, "delays"),
        ((60,) * 21, None, "delays"),
        ((60, 60), None, "names"),
        ((60,), ["a", "b"], "names"),
        ((60,), ["orders"], "names"),
    ],
)
def test_tiers_that_cannot_be_are_refused(delays, names, field):
    with pytest.raises(ConfigError, match=f"^{field}="):
        RetryTiers(delays, to=StreamTiers(DirectProducer(None), "orders", names=names), dead_letter=print)


def test_tiers_are_named_after_their_delays_which_views_read_from_the_names():
    delays = (1.5, 60, 1_000_000, 31_536_000)
    tiers = RetryTiers(delays, to=StreamTiers(DirectProducer(None), "orders"), dead_letter=print)
    names = [one.stream.name for one in tiers.streams()]
    assert names == [f"orders.retry-{delay}" for delay in delays]
    assert [delay_of(name) for name in names] == list(delays)


def test_a_store_has_one_policy_and_rows_are_no_streams(tmp_path):
    store = StreamTiers(DirectProducer(None), "orders")
    RetryTiers((60,), to=store, dead_letter=print)
    with pytest.raises(ConfigError, match=r"^to="):
        RetryTiers((60,), to=store, dead_letter=print)
    with pytest.raises(ConfigError, match=r"^dead_letter="):
        RetryTiers((60,), to=StreamTiers(DirectProducer(None), "orders"), dead_letter=None)
    pytest.importorskip("sqlalchemy")
    table = RetryTable(f"sqlite:///{tmp_path}/r.db", application_name="billing")
    with pytest.raises(ConfigError, match="RetryWorker"):
        RetryTiers((60,), to=table, dead_letter=print).streams()
    table.close()


def test_a_stream_that_forgets_records_before_they_are_due_is_named():
    scene = Scene()
    fits = StreamTiers(scene.producer, "orders")
    RetryTiers(DELAYS, to=fits, dead_letter=print)
    fits.check(scene.raw)
    short = StreamTiers(scene.producer, "orders", names=["orders.retry-10"])
    RetryTiers((86_400,), to=short, dead_letter=print)
    with pytest.raises(ConfigError, match=r"retention orders.retry-10 25"):
        short.check(scene.raw)
