"""Workers and the repetitions of idempotent producers: whole engines in virtual time, judged by an oracle over the stored stream."""

from __future__ import annotations

import logging
import re
from collections import Counter
from dataclasses import replace
from functools import lru_cache
from random import Random
from typing import Any

import pytest

from kinesis_sdk.common import catalogue
from kinesis_sdk.common.errors import PermanentAwsError
from kinesis_sdk.common.hashkeys import MAX_HASH_KEY
from kinesis_sdk.common.once.table import NAMED, REPEAT, Run
from kinesis_sdk.consumer import ConsumerConfig, RecordHandler
from kinesis_sdk.metrics.memory import MemoryMetrics
from kinesis_sdk.testing import Fault
from kinesis_sdk.testing.accounting.stored_copies import deliveries, read_copies
from tests.common.once.streams import aggregate
from tests.consumer.fetch.fan_out import FanOutEngine
from tests.consumer.fleet import engines
from tests.consumer.fleet.client import Client
from tests.consumer.fleet.engines import STREAM, Fleet
from tests.consumer.leases.rows import put_row
from tests.fuzz import seeds

PARENT = "shardId-000000000000"
LEFT, RIGHT = 5, MAX_HASH_KEY - 5


class Scene:
    """A fleet, and a producer that stores aggregates whenever it likes."""

    def __init__(self, seed: int = 1, **config: Any) -> None:
        config.setdefault("initial_position", "TRIM_HORIZON")
        config.setdefault("checkpoint_interval", 1.0)
        self.fleet = Fleet(seed=seed, config=ConsumerConfig().with_fields(**config))
        self.metrics = MemoryMetrics()
        self.fleet.more = {"metrics": self.metrics}
        self.looked_up: list[str] = []
        self.fleet.kinesis = Client(self.fleet.kinesis, get_shard_iterator=self._iterator)  # type: ignore[assignment]
        self.fleet.run(5)
        self.began = int(self.fleet.clock.time() * 1000)

    def _iterator(self, method: Any, request: dict[str, Any]) -> Any:
        if request.get("ShardIteratorType") == "AT_TIMESTAMP":
            self.looked_up.append(request["ShardId"])
        return method(**request)

    @property
    def now(self) -> int:
        """Milliseconds since the scene began."""
        return int(self.fleet.clock.time() * 1000) - self.began

    def put(
        self,
        *records: int,
        date: int = 0,
        flags: int = 0,
        keys: list[int] | None = None,
        made_for: str | None = None,
    ) -> str:
        runs = [Run(1, 4, flags, b"producer", self.began + date, number) for number in records]
        places = keys or [LEFT] * len(records)
        data = aggregate(runs, made_for, places)
        response = self.fleet.raw.put_record(
            StreamName=STREAM, PartitionKey="a", ExplicitHashKey=str(places[0]), Data=data
        )
        return str(response["SequenceNumber"])

    def expected(self) -> dict[int, Any]:
        copies = read_copies(self.fleet.raw, STREAM)
        return {number: positions for number, positions in deliveries(copies, int).items() if positions}

    def delivered(self) -> dict[int, set[tuple[str, int, int]]]:
        found: dict[int, set[tuple[str, int, int]]] = {}
        for _, shard, data, sequence, sub in self.fleet.delivered:
            found.setdefault(int(data), set()).add((shard, int(sequence), sub))
        return found

    def check(self) -> None:
        expected = {
            number: {tuple(one) for one in positions} for number, positions in self.expected().items()
        }
        assert self.delivered() == expected
        self.fleet.check_order()

    def count(self, metric: Any) -> float:
        return max(
            (found.total for series, found in self.metrics.snapshot().items() if series.name == metric.name),
            default=0,
        )

    def last(self, metric: Any) -> float:
        return next(
            found.last for series, found in self.metrics.snapshot().items() if series.name == metric.name
        )

    def checkpoint(self, shard_id: str = PARENT) -> tuple[str, int]:
        found = self.fleet.store.get(shard_id).checkpoint
        return found.sequence_number, found.sub_sequence_number


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_lost_answer_costs_nothing_if_the_owner_stays(scene: Scene) -> None:
    scene.fleet.add("a")
    scene.put(1, 2)
    scene.fleet.run(5)
    scene.put(1, 2, flags=REPEAT)
    scene.fleet.run(5)
    scene.check()
    assert scene.looked_up == []
    assert scene.count(catalogue.REPETITIONS_DROPPED) == 2


def test_a_take_over_between_two_copies_looks_up(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.fleet.add("a")
    scene.put(1, 2)
    scene.put(4)
    scene.fleet.run(5)
    scene.fleet.crash("a")
    scene.put(1, 2, flags=REPEAT)
    scene.put(3, date=scene.now)
    with caplog.at_level(logging.INFO):
        scene.fleet.add("b")
        scene.fleet.run(30)
    scene.check()
    assert scene.looked_up == [PARENT]
    assert scene.count(catalogue.REPETITION_LOOK_UP_BYTES) > 100
    assert scene.count(catalogue.REPETITION_LOOK_UPS_OVER_BUDGET) == 0
    assert "dropped 2 repeated" in caplog.text
    assert sorted(int(data) for data in scene.fleet.data()) == [1, 2, 3, 4]


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_batch_that_is_dropped_whole_moves_the_checkpoint(concurrency: int) -> None:
    scene = Scene(concurrency=concurrency)
    scene.fleet.add("a")
    scene.put(1)
    scene.fleet.run(5)
    last = scene.put(7, 1, flags=REPEAT)
    scene.fleet.run(5)
    assert scene.checkpoint() == (last, 1)  # 7 is new, and the end of its batch was dropped
    last = scene.put(1, 7, flags=REPEAT)
    scene.fleet.run(5)
    assert scene.checkpoint() == (last, 1)
    last = scene.put(1, 9, flags=REPEAT)
    scene.fleet.run(5)
    assert scene.checkpoint() == (last, 1)  # what was dropped is not the end
    scene.check()


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_dropped_record_does_not_pass_one_that_is_being_processed(concurrency: int) -> None:
    scene = Scene(concurrency=concurrency)
    failing = True

    def handle(batch: Any) -> None:
        if failing and any(record.data == b"2" for record in batch.records):
            raise RuntimeError("not yet")
        scene.fleet.note("a", batch)

    scene.put(1)
    scene.fleet.run(5)
    scene.put(2, date=scene.now)
    last = scene.put(1, flags=REPEAT)
    scene.fleet.add("a", handle)
    scene.fleet.run(20)
    assert scene.checkpoint() != (last, 0)
    failing = False
    scene.fleet.run(60)
    assert scene.checkpoint() == (last, 0)
    scene.check()


def test_a_shard_that_ends_with_repetitions_ends(scene: Scene) -> None:
    scene.fleet.add("a", scene.fleet.recorder("a"))
    scene.put(1)
    scene.fleet.run(5)
    scene.put(1, flags=REPEAT)
    scene.fleet.split()
    scene.fleet.run(40)
    scene.put(1, flags=REPEAT)
    scene.put(2, date=scene.now, keys=[RIGHT])
    scene.fleet.run(20)
    scene.check()
    assert scene.fleet.store.get(PARENT).is_finished
    assert Counter(scene.fleet.data()) == {b"1": 1, b"2": 1}


def test_order_is_kept_while_a_look_up_fails(scene: Scene) -> None:
    scene.put(1)
    scene.fleet.add("a")
    scene.fleet.split()
    scene.fleet.run(40)
    assert scene.fleet.store.get(PARENT).is_finished
    scene.fleet.aws.faults.add(Fault(kind="error", operation="GetRecords", shard_id=PARENT, count=4))
    scene.put(1, 8, flags=REPEAT)
    for number in (2, 3, 4):
        scene.put(number, date=scene.now - 100)
    scene.fleet.run(60)
    scene.check()
    assert [data for data in scene.fleet.data() if data != b"1"] == [b"8", b"2", b"3", b"4"]


def test_without_recognition_every_stored_copy_is_delivered_and_nothing_is_read_again(scene: Scene) -> None:
    object.__setattr__(scene.fleet.config.retrieval, "recognize_repetitions", False)
    scene.fleet.add("a")
    scene.put(1, 2)
    scene.put(1, 2, flags=REPEAT)
    scene.put(3, flags=NAMED, date=scene.now - 300_000)
    scene.put(3, flags=NAMED, date=scene.now - 300_000)
    scene.fleet.run(30)
    assert list(map(int, scene.fleet.data())) == [1, 2, 1, 2, 3, 3]
    assert scene.looked_up == []
    assert scene.count(catalogue.REPETITIONS_DROPPED) == scene.count(catalogue.REPETITIONS_UNKNOWN) == 0


@pytest.mark.parametrize(("flags", "named"), [(NAMED, 1), (NAMED | REPEAT, 0)])
def test_a_record_whose_name_was_taken_is_named_in_the_log_and_counted(
    scene: Scene, caplog: pytest.LogCaptureFixture, flags: int, named: int
) -> None:
    scene.fleet.add("a")
    scene.put(3, flags=NAMED, date=scene.now - 300_000)
    scene.fleet.run(5)
    scene.put(3, flags=flags, date=scene.now - 300_000)
    scene.fleet.run(30)
    assert list(map(int, scene.fleet.data())) == [3]
    assert scene.count(catalogue.REPETITIONS_DROPPED) == 1
    assert scene.count(catalogue.NAMES_DROPPED) == named
    assert ("dropped 1 user records" in caplog.text) is bool(named)


def test_a_look_up_beyond_its_budget_delivers_and_counts(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    object.__setattr__(scene.fleet.config.retrieval, "max_look_up_bytes", 0)
    scene.fleet.add("a")
    scene.put(1, 2)
    scene.put(4)
    scene.fleet.run(5)
    scene.fleet.crash("a")
    scene.put(1, 2, flags=REPEAT)
    scene.fleet.add("b")
    scene.fleet.run(30)
    assert sorted(map(int, scene.fleet.data())) == [1, 1, 2, 2, 4], "nothing is lost"
    assert scene.count(catalogue.REPETITIONS_UNKNOWN) == 2
    assert scene.count(catalogue.REPETITION_LOOK_UPS_OVER_BUDGET) == 1
    assert scene.count(catalogue.REPETITION_LOOK_UP_BYTES) == 0
    assert "max_look_up_bytes ended" in caplog.text


def test_a_look_up_that_is_denied_delivers_and_counts(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.put(1)
    scene.fleet.add("a")
    scene.fleet.run(6)
    scene.fleet.split()
    scene.fleet.run(40)
    scene.fleet.crash("a")
    scene.put(1, flags=REPEAT)
    denied = Fault(
        kind="error", operation="GetShardIterator", shard_id=PARENT, code="AccessDeniedException", status=400
    )
    scene.fleet.aws.faults.add(denied)
    scene.fleet.add("b")
    scene.fleet.run(40)
    assert Counter(scene.fleet.data())[b"1"] == 2
    assert scene.count(catalogue.REPETITIONS_UNKNOWN) == 1
    assert "cannot be searched" in caplog.text


def test_a_read_that_is_restarted_during_a_look_up_begins_again(scene: Scene) -> None:
    scene.put(1)
    engine = scene.fleet.add("a")
    scene.fleet.split()
    scene.fleet.run(40)
    fault = scene.fleet.aws.faults.add(Fault(kind="error", operation="GetRecords", shard_id=PARENT))
    scene.put(1, flags=REPEAT)
    scene.fleet.run(10)
    assert scene.looked_up
    for consumer, _ in engine._consumers.values():
        consumer.restart_read()
    scene.fleet.aws.faults.remove(fault)
    scene.fleet.run(60)
    scene.check()
    assert scene.count(catalogue.REPETITIONS_DROPPED) == 1


def test_what_was_judged_before_a_restarted_read_is_judged_once(scene: Scene) -> None:
    """The batch has a repetition that memory knows, and one that needs a look-up, during which the read is restarted."""
    scene.put(1)
    engine = scene.fleet.add("a")
    scene.fleet.split()
    scene.fleet.run(40)
    scene.put(2, date=scene.now)
    scene.fleet.run(10)
    assert scene.fleet.data() == [b"1", b"2"]
    fault = scene.fleet.aws.faults.add(Fault(kind="error", operation="GetRecords", shard_id=PARENT))
    scene.put(2, flags=REPEAT, date=scene.now - 10_000)
    scene.put(1, flags=REPEAT)
    scene.fleet.run(10)
    assert scene.looked_up
    for consumer, _ in engine._consumers.values():
        consumer.restart_read()
    scene.fleet.aws.faults.remove(fault)
    scene.fleet.run(60)
    assert scene.count(catalogue.REPETITIONS_DROPPED) == 2
    assert scene.fleet.data() == [b"1", b"2"]


def test_a_worker_stops_during_a_look_up(scene: Scene) -> None:
    scene.put(1)
    scene.fleet.split()
    scene.fleet.run(31)
    scene.put(1, flags=REPEAT)
    scene.fleet.add("a")
    scene.fleet.aws.faults.add(Fault(kind="error", operation="ListShards", after=3))
    scene.fleet.run(20)
    scene.fleet.stop("a")
    scene.fleet.run(20)
    assert "a" not in scene.fleet.engines
    scene.fleet.aws.faults.clear()
    scene.fleet.add("b")
    scene.fleet.run(60)
    scene.check()


@pytest.mark.parametrize("misplaced_aggregates", ["deliver", "discard"])
def test_misplaced_aggregates_are_dropped_whatever_the_setting(misplaced_aggregates: str) -> None:
    scene = Scene(misplaced_aggregates=misplaced_aggregates)
    scene.fleet.split()
    scene.fleet.run(31)
    scene.put(1, 2, date=scene.now, keys=[LEFT, RIGHT], made_for=PARENT)
    last = scene.put(1, date=scene.now, flags=REPEAT)
    scene.fleet.add("a")
    scene.fleet.run(60)
    scene.check()
    assert scene.fleet.data() == [b"1"]
    assert scene.checkpoint("shardId-000000000001") == (last, 0)


def test_what_an_older_memory_has_is_not_dropped_for_itself_after_a_failure() -> None:
    """A handler fails, its batch is dropped because others need the memory, and the same reader reads it again."""
    scene = Scene()
    failures = 6

    class Failing(RecordHandler):
        def process_records(self, batch: Any) -> None:
            nonlocal failures
            if failures:
                failures -= 1
                raise RuntimeError("not yet")
            scene.fleet.note("a", batch)

    scene.put(1)
    scene.fleet.run(5)
    scene.put(1, 2, flags=REPEAT)
    engine = scene.fleet.add("a", Failing)
    # Another shard always waits for memory.
    type_of = type(engine._budget)
    crowded = type("Crowded", (type_of,), {"is_crowded": True})
    engine._budget.__class__ = crowded
    scene.fleet.run(120)
    assert failures == 0
    scene.check()


@lru_cache(maxsize=4)
def play(seed: int) -> Scene:
    """Play a random fleet on a random stream."""
    rng = Random(seed)
    scene = Scene(
        seed,
        concurrency=rng.choice((1, 1, 3)),
        max_records=rng.choice((1, 2, 5, 1000)),
        # Idle workers take most of the processor's time.
        lease_scan_interval=3.0,
        max_idle_time_between_reads=5.0,
    )
    fleet = scene.fleet
    events: list[tuple[float, Any]] = []
    for group in range(rng.randrange(3, 9)):
        _plan(rng, scene, group, events)
    events.append((rng.uniform(5, 30), fleet.split))
    if rng.random() < 0.5:
        events.append((rng.uniform(70, 100), fleet.merge))
    names = iter(f"w{number}" for number in range(100))
    current = next(names)

    def handler(name: str) -> Any:
        def handle(batch: Any) -> None:
            if rng.random() < 0.15:
                raise RuntimeError("fails now and then")
            fleet.note(name, batch)

        return handle

    def take_over() -> None:
        nonlocal current
        fleet.crash(current)
        current = next(names)
        fleet.add(current, handler(current))

    events += [(rng.uniform(0, 150), take_over) for _ in range(rng.randrange(5))]
    fleet.add(current, handler(current))
    for moment, event in sorted(events, key=lambda item: item[0]):
        fleet.run(max(0.0, moment - scene.now / 1000))
        event()
    fleet.run(200)
    return scene


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", seeds(unit=4, fuzz=200))
def test_random_fleets_deliver_the_first_valid_copies(seed: int) -> None:
    play(seed).check()


def test_the_random_fleets_have_what_they_are_for() -> None:
    scenes = [play(seed) for seed in range(2)]
    assert any(scene.looked_up for scene in scenes), "a suspect behind a take-over or a split"
    assert any(scene.count(catalogue.REPETITIONS_DROPPED) for scene in scenes)


def _plan(rng: Random, scene: Scene, group: int, events: list[tuple[float, Any]]) -> None:
    """Plan the puts of some records: the original, perhaps late or never stored, and copies after its hold-off."""
    numbers = [10 * group + index for index in range(rng.randrange(1, 4))]
    places = {number: rng.choice((LEFT, RIGHT)) for number in numbers}
    date = rng.randrange(60_000)

    def put(chosen: list[int], flags: int, made_for: str | None) -> Any:
        return lambda: scene.put(
            *chosen, date=date, flags=flags, keys=[places[number] for number in chosen], made_for=made_for
        )

    def store(chosen: list[int], flags: int, at: float) -> None:
        mixed = rng.random() < 0.5
        parts = [chosen] if mixed else [[n for n in chosen if places[n] == side] for side in (LEFT, RIGHT)]
        events.extend((at, put(part, flags, PARENT if mixed else None)) for part in parts if part)

    if rng.random() < 0.9:
        store(numbers, 0, date / 1000 + rng.choice((0.05, 0.5, 8, 40)))
    at = date / 1000
    for _ in range(rng.randrange(4)):
        at = max(at + rng.uniform(0, 6), date / 1000 + 4)
        store([number for number in numbers if rng.random() < 0.8], REPEAT, at + rng.choice((0.05, 0.5, 20)))


def test_a_look_up_that_waits_for_the_read_limits_is_no_progress() -> None:
    """Its shard is throttled. Health keeps the error, and names what is searched, until a call succeeds."""
    scene = Scene()
    scene.put(1)
    engine = scene.fleet.add("a")
    scene.fleet.split()
    scene.fleet.run(40)
    fault = scene.fleet.aws.faults.add(Fault(kind="throttle", operation="GetRecords", shard_id=PARENT))
    scene.put(1, flags=REPEAT)
    scene.fleet.run(40)
    health = next(one for one in engine.shard_health() if one.last_error)
    assert health.last_error is not None
    assert f"searching shard {PARENT}" in health.last_error
    assert "ThrottledError" in health.last_error
    assert health.seconds_since_progress > 20
    scene.fleet.aws.faults.remove(fault)
    scene.fleet.run(40)
    assert not [one for one in engine.shard_health() if one.last_error]
    scene.check()
    assert scene.count(catalogue.REPETITIONS_DROPPED) == 1


def test_a_backfill_of_days_counts_nothing_as_unknown() -> None:
    scene = Scene()
    scene.fleet.raw.increase_stream_retention_period(StreamName=STREAM, RetentionPeriodHours=168)
    scene.put(1)
    scene.fleet.add("a")
    scene.fleet.run(50)
    scene.put(3, date=scene.now - 50)
    scene.fleet.run(10)
    scene.fleet.stop("a")
    scene.fleet.run(5)
    scene.put(2, date=scene.now - 50, flags=REPEAT)
    scene.fleet.run(3 * 24 * 3600)
    scene.fleet.add("b")
    scene.fleet.run(60)
    scene.check()
    assert scene.looked_up == [PARENT]
    assert scene.count(catalogue.REPETITIONS_UNKNOWN) == 0


@pytest.mark.parametrize(("breaks", "pause"), [(False, 105), (True, 30)])
def test_a_look_up_beside_a_subscription(monkeypatch: pytest.MonkeyPatch, breaks: bool, pause: int) -> None:
    """Records are pushed, and a look-up polls: its calls share the limits of the shard with other applications.

    Meanwhile, further events arrive, the subscription breaks or ends after five minutes, and none of them overtakes the
    record that waits.
    """
    monkeypatch.setattr(engines, "ConsumerEngine", FanOutEngine)
    scene = Scene()
    fleet = scene.fleet
    scene.put(1)
    fleet.add("a")
    fleet.run(10)
    fleet.crash("a")
    throttled = fleet.aws.faults.add(Fault(kind="throttle", operation="GetRecords"))
    scene.put(1, 5, flags=REPEAT)
    engine = fleet.add("b")
    fleet.run(60)
    if breaks:
        fleet.aws.faults.add(Fault(kind="broken_stream", count=3))
    for number in (2, 3, 4):
        scene.put(number, date=scene.now - 50)
        fleet.run(pause)
    assert fleet.data() == [b"1"], "everything waits for the look-up"
    (health,) = engine.shard_health()
    assert health.last_error is not None
    assert f"searching shard {PARENT}" in health.last_error
    assert "ThrottledError" in health.last_error
    calls = fleet.aws.stats()["calls"]
    assert calls["GetRecords"] < 3 * pause, "it backs off: less than one call a second"
    fleet.aws.faults.remove(throttled)
    fleet.run(60)
    assert fleet.data() == [b"1", b"5", b"2", b"3", b"4"]
    scene.check()
    assert calls["SubscribeToShard"] >= 3
    assert scene.count(catalogue.REPETITIONS_DROPPED) == 1
    (health,) = engine.shard_health()
    assert health.last_error is None


def test_a_memory_that_is_too_small_is_told_once_and_measured(caplog: pytest.LogCaptureFixture) -> None:
    """Every batch then reads the stream again, and the shard may fall behind. Nothing else shows why."""
    scene = Scene()
    # Less than is accepted from users, so that fewer records fill it.
    object.__setattr__(scene.fleet.config.retrieval, "max_repetition_bytes", 200_000)
    scene.fleet.add("a")
    for index in range(8):
        scene.put(*range(1600 * index, 1600 * (index + 1)), flags=NAMED, date=scene.now - 30_000)
        scene.fleet.run(5)
    told = [record.getMessage() for record in caplog.records if "max_repetition_bytes" in record.getMessage()]
    (line,) = told
    found = re.search(r"([0-9.]+) MiB are allowed, and the last (\d+) s need about ([0-9.]+) MiB", line)
    assert found is not None
    assert line.startswith(f"shard {PARENT}: ")
    assert float(found[1]) == 0.2
    assert 30 <= int(found[2]) <= 40
    assert 0.3 <= float(found[3]) < 5, "9,600 names of 33 to 112 bytes, and more because they come in bursts"
    looked_up = scene.count(catalogue.REPETITION_LOOK_UPS)
    beyond = scene.count(catalogue.REPETITION_LOOK_UPS_BEYOND_MEMORY)
    assert 3 <= beyond < looked_up == len(scene.looked_up), "the first one had nothing to remember"
    assert 100_000 < scene.last(catalogue.REPETITION_MEMORY_USED) < 400_000
    assert sorted(map(int, scene.fleet.data())) == [*range(12_800)]


def test_a_memory_that_is_large_enough_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.fleet.add("a")
    for index in range(4):
        scene.put(*range(100 * index, 100 * (index + 1)), flags=NAMED, date=scene.now - 30_000)
        scene.fleet.run(5)
    assert "max_repetition_bytes" not in caplog.text
    assert scene.count(catalogue.REPETITION_LOOK_UPS) == len(scene.looked_up) == 1
    assert scene.count(catalogue.REPETITION_LOOK_UPS_BEYOND_MEMORY) == 0
    assert 400 * 50 < scene.last(catalogue.REPETITION_MEMORY_USED) < 400 * 200


def test_a_shard_without_idempotent_producers_has_no_memory_to_measure() -> None:
    scene = Scene()
    scene.fleet.add("a")
    scene.fleet.put(5)
    scene.fleet.run(5)
    names = {series.name for series in scene.metrics.snapshot()}
    assert catalogue.RECORDS_READ.name in names
    assert catalogue.REPETITION_MEMORY_USED.name not in names


@pytest.mark.parametrize("listing", ["allowed", "denied"])
def test_a_lease_without_a_range_finds_the_copies_all_the_same(
    scene: Scene, listing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is one of a KCL 1.x: only the range shows that an aggregate is valid that was made without a map."""
    scene.fleet.add("a")
    scene.fleet.run(20)
    scene.fleet.crash("a")
    for row in scene.fleet.store.list():
        put_row(scene.fleet.store, replace(row, hash_key_range=None))
    # The leader fills it in when it audits the rows, which may be later than the shard is read.
    monkeypatch.setattr(scene.fleet.store, "set_hash_key_range", lambda *_: False)
    scene.put(1, 2)
    scene.fleet.run(5)
    scene.put(1, 2, flags=REPEAT)
    if listing == "denied":
        monkeypatch.setattr("kinesis_sdk.consumer.engine.engine.list_shards", _denied)
    scene.fleet.add("b")
    scene.fleet.run(40)
    if listing == "denied":
        assert Counter(scene.fleet.data()) == {b"1": 2, b"2": 2}
        assert scene.count(catalogue.REPETITIONS_UNKNOWN) == 4
    else:
        scene.check()
        assert scene.count(catalogue.REPETITIONS_UNKNOWN) == 0


def _denied(*_: Any) -> None:
    raise PermanentAwsError("no", operation="ListShards", code="AccessDeniedException")
