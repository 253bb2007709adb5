"""How much a call of the handler gets: never more than the limit, less after failures, and every schedule ends."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from math import log2
from random import Random

import pytest

from kinesis_sdk.common import catalogue
from kinesis_sdk.common.backoff import Backoff
from kinesis_sdk.common.error_policy import (
    DEFAULT_PAUSES,
    Failure,
    Halve,
    Retry,
    SetAside,
    Stop,
)
from kinesis_sdk.common.errors import ConfigError, SinkError, TransientSinkError
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.response_header import ResponseHeader
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.user_records import AggregatedRun, UserRecords
from kinesis_sdk.consumer import BisectBatch, ConsumerConfig, RetryBatch, StopWorker, Worker
from kinesis_sdk.consumer.shard.batch_size import BatchSize
from kinesis_sdk.consumer.sinks.memory import InMemorySink
from tests import fuzz
from tests.consumer.leases.held_lease import at
from tests.consumer.shard.delivery_scene import Scene, record
from tests.consumer.shard.flaky import WAYS, best, play
from tests.consumer.sinks.house import House


@pytest.fixture(autouse=True)
def quiet(request):
    """Thousands of failures would be thousands of log records."""
    if "caplog" in request.fixturenames:
        yield
        return
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


# The pure object


def bound(progress, limit):
    return 4 / 3 * progress + log2(limit) + 2


@pytest.mark.parametrize("limit", [1, 2, 3, 8])
def test_no_order_of_outcomes_passes_the_bound(limit):
    """Every one of some length, with as many records left as there may be, and with few."""
    for outcomes in itertools.product("fsg", repeat=7):
        for left in (limit, 2):
            size, failed, progress = BatchSize(limit), 0, 0
            for outcome in outcomes:
                count = size.take(left)
                assert 1 <= count <= limit
                if outcome == "f":
                    failed += count > 1
                    size.failed(count)
                else:
                    progress += 1
                    size.succeeded(count) if outcome == "s" else size.got_on()
                assert failed <= bound(progress, limit)


@pytest.mark.fuzz
def test_every_schedule_ends_within_the_bound():
    """Flaky records, sick ones that fail a number of times, outages, and calls that checkpoint before they fail."""
    for seed in fuzz.seeds(unit=200, fuzz=10_000):
        random = Random(seed)
        total = random.choice((1, 2, 3, 10, 100, 999, 1_000, 1_001, 3_000))
        limit = random.choice((1, 2, 7, 100, 1_000, 10_000))
        chance = random.choice((0, 0, 0.001, 0.01, 0.1, 0.5))
        checkpoints = random.choice((0, 0, 0.3))
        outage = random.choice((0, 0, 5, 40))
        sick = Counter({random.randrange(total): random.randrange(1, 60) for _ in range(random.randrange(4))})
        size, done, progress, failed = BatchSize(limit), 0, 0, 0
        while done < total:
            count = size.take(total - done)
            assert 1 <= count <= min(limit, total - done)
            place = next((i for i in range(count) if sick[done + i] > 0 or random.random() < chance), None)
            if outage and place is None:
                outage -= 1
                place = 0
            if place is None:
                size.succeeded(count)
                done, progress = done + count, progress + 1
                continue
            sick[done + place] -= 1
            if place and random.random() < checkpoints:
                size.got_on()
                done, progress = done + place, progress + 1
            else:
                failed += count > 1
                size.failed(count)
        assert failed <= bound(progress, limit), seed


def test_one_failure_says_nothing_and_three_successes_make_it_larger():
    size = BatchSize(1_000)
    size.failed(1_000)
    assert size.take(5_000) == 1_000
    size.failed(1_000)
    size.failed(500)
    assert (size.take(5_000), size.failures) == (250, 3)
    size.succeeded(250)
    assert (size.take(5_000), size.failures) == (250, 0)
    size.succeeded(250)
    size.failed(250)
    size.succeeded(250)
    size.succeeded(250)
    assert size.take(5_000) == 250, "three in a row"
    size.succeeded(250)
    assert size.take(5_000) == 500
    for _ in range(6):
        size.succeeded(500)
    assert size.take(5_000) == 1_000
    unlimited = BatchSize(None)
    assert unlimited.take(10**6) == 10**6
    unlimited.failed(10**6)
    unlimited.failed(10**6)
    assert unlimited.take(10**6) == 500_000


# Policies decide by table


SLOW, FAST = Backoff(2, 9), Backoff(0.5, 5)


@pytest.mark.parametrize(
    ("policy", "error", "size", "attempts", "halved", "decision"),
    [
        ("retry", ValueError(), 9, 7, False, Retry(SLOW, may_reread=True)),
        ("retry", TransientSinkError(""), 1, 1, False, Retry(SLOW, may_reread=True)),
        ("retry", ValueError(), 0, 1, False, Retry(SLOW, may_reread=True)),
        ("stop", ValueError(), 9, 1, False, Stop()),
        ("stop", TransientSinkError(""), 9, 1, False, Retry(DEFAULT_PAUSES)),
        ("stop", ValueError(), 0, 1, False, Stop()),
        ("bisect", ValueError(), 9, 0, False, Retry(FAST, together=True)),
        ("bisect", ValueError(), 9, 2, False, Retry(FAST, together=True)),
        ("bisect", ValueError(), 9, 3, False, Halve()),
        ("bisect", ValueError(), 2, 1, True, Halve()),
        ("bisect", ValueError(), 1, 1, True, Retry(FAST, together=True)),
        ("bisect", ValueError(), 1, 2, False, Retry(FAST, together=True)),
        ("bisect", ValueError(), 1, 3, False, SetAside(print)),
        ("bisect", OSError(), 9, 30, True, Retry(FAST)),
        ("bisect", OSError(), 1, 30, True, Retry(FAST)),
        ("bisect", SinkError(""), 1, 30, True, Retry(FAST)),
        ("bisect", ValueError(), 0, 30, False, Retry(FAST)),
    ],
)
def test_what_a_policy_decides(policy, error, size, attempts, halved, decision):
    policies = {
        "retry": RetryBatch(initial_delay=2, max_delay=9),
        "stop": StopWorker(),
        "bisect": BisectBatch(dead_letter=print, attempts=3, retry_only=(OSError,), max_delay=5),
    }
    failure = Failure(error=error, size=size, attempts=attempts, halved=halved)
    assert policies[policy].decide(failure) == decision


# Delivery


@pytest.mark.fuzz
@pytest.mark.parametrize("way", list(WAYS))
def test_a_service_that_fails_for_one_record_in_300_takes_at_most_twice_the_calls_of_the_best_way(way):
    """Whole batches never end. A single run of so few records may have bad luck, and all of it before calls are small."""
    # Those that go through the whole engine see the failures of `retry`, and take ten times as long.
    engine = way in ("sink", "a restart for each failure")
    calls = [play(way, seed).calls for seed in fuzz.seeds(unit=1 if engine else 10, fuzz=60)]
    assert sum(calls) / len(calls) <= 2 * best()
    assert max(calls) <= 3 * best()


@pytest.mark.fuzz
def test_each_key_stays_in_order_whatever_fails():
    """Policies, limits, keys, late ends of calls; failures before and after effects, checkpoints inside the calls; within the bound."""
    for seed in fuzz.seeds(unit=80, fuzz=3_000):
        random = Random(seed)
        concurrency = random.choice((1, 1, 2, 7))
        limit = random.choice((None, 1, 2, 5, 30))
        chance = random.choice((0.0, 0.1, 0.3))
        poison = {number for number in range(1, 121) if random.random() < random.choice((0, 0.05))}
        dead, finished, offered, offers = [], [], 0, 0
        progress, failed = 0, 0
        policy = random.choice(
            (
                RetryBatch(),
                BisectBatch(
                    dead_letter=dead.append, attempts=random.choice((1, 2, 3)), retry_only=(OSError,)
                ),
            )
        )
        if isinstance(policy, RetryBatch):
            poison = set()

        def handle(
            batch,
            *,
            random=random,
            limit=limit,
            chance=chance,
            poison=poison,
            finished=finished,
            concurrency=concurrency,
        ):
            nonlocal progress, failed
            assert limit is None or len(batch.records) <= limit
            numbers = [int(one.sequence_number) for one in batch.records]
            assert numbers == sorted(numbers)
            credit = 0
            if concurrency == 1 and random.random() < 0.3:
                credit = random.randrange(len(numbers))
                if not poison & set(numbers[:credit]):
                    finished.extend(numbers[:credit])
                    if credit:
                        batch.checkpoint(batch.records[credit - 1])
                else:
                    credit = 0
            if random.random() < chance:
                progress, failed = progress + (credit > 0), failed + (credit == 0 and len(numbers) > 1)
                raise OSError("busy")
            if poison & set(numbers):
                raise ValueError("poison")
            progress += 1
            finished.extend(numbers[credit:])

        scene = Scene(
            handle, limit=limit, policy=policy, concurrency=concurrency, deferred=concurrency > 1, rng=random
        )
        while offered < 120 or not scene.delivery.lanes.is_empty:
            if offered < 120 and scene.delivery.lanes.has_room:
                count = random.randint(1, min(40, 120 - offered))
                scene.offer(*[record(n, f"k{n % 3}") for n in range(offered + 1, offered + count + 1)])
                offered, offers = offered + count, offers + 1
            due = scene.step()
            if scene.waiting:
                scene.waiting.pop(random.randrange(len(scene.waiting)))()
            elif due is not None:
                scene.clock.advance_to(max(due, scene.clock.monotonic()))
            bound_now = scene.checkpointer.largest_delivered
            known = {*finished, *(int(one.record.sequence_number) for one in dead)}
            if not scene.waiting and not bound_now.is_sentinel and scene.delivery.is_pausing:
                assert set(range(1, int(bound_now.sequence_number) + 1)) <= known, (
                    "nothing unprocessed is passed"
                )
        assert {int(one.record.sequence_number) for one in dead} == poison
        by_key = {key: [n for n in finished if n % 3 == key] for key in range(3)}
        for key, numbers in by_key.items():
            # A record may come again only as part of what failed, and never after a later one of its key was finished for good.
            assert sorted(set(numbers)) == [n for n in range(1, 121) if n % 3 == key and n not in poison]
            assert numbers == sorted(numbers)
        assert scene.delivery.records_delivered == 120
        if isinstance(policy, RetryBatch):
            lanes = 1 if concurrency == 1 else 3 * offers
            assert failed <= bound(progress, 120 if limit is None else limit) + (lanes - 1) * bound(0, 120)


@pytest.mark.parametrize(
    ("limit", "sizes"),
    [(1_000, [1_000, 1_000, 500]), (2_500, [2_500]), (None, [2_500]), (2_400, [2_400, 100])],
)
def test_a_batch_comes_in_parts_of_at_most_the_limit(limit, sizes):
    got = []
    scene = Scene(lambda batch: got.append(len(batch.records)), limit=limit)
    scene.offer(*[record(number) for number in range(2_500)])
    scene.step()
    assert got == sizes, "in one step, because the calls are short"
    assert ConsumerConfig().batch_records == 1_000


@pytest.mark.parametrize("lost", [False, True])
def test_a_step_ends_with_a_call_that_takes_long_or_loses_the_lease(lost):
    got = []

    def handle(batch):
        got.append(len(batch.records))
        scene.held.mark_lost("taken") if lost else scene.clock.advance(1.0)

    scene = Scene(handle, limit=10)
    scene.offer(*[record(number) for number in range(1, 31)])
    assert scene.step() == 0.0, "its step asks whether to go on"
    assert got == [10]
    assert scene.checkpointer.largest_delivered == at(10)


def test_what_a_failed_call_checkpointed_is_progress():
    """The size stays, the backoff begins anew, and nothing that is done comes again."""
    calls, pauses = [], []

    def handle(batch):
        numbers = [int(one.sequence_number) for one in batch.records]
        calls.append((numbers[0], len(numbers)))
        if len(numbers) > 2:
            batch.checkpoint(batch.records[1])
            raise OSError("busy")

    scene = Scene(handle, limit=8)
    scene.offer(*[record(number) for number in range(1, 21)])
    while (due := scene.step()) is not None:
        if scene.delivery.is_pausing:
            pauses.append(due - scene.clock.monotonic())
        scene.clock.advance_to(due)
    assert calls == [(n, min(8, 21 - n)) for n in range(1, 20, 2)]
    assert max(pauses) <= 0.5
    assert scene.delivery.records_delivered == 20


@pytest.mark.parametrize("attempts", [1, 3])
def test_a_record_is_dead_lettered_after_it_was_alone_as_often_as_the_policy_says(attempts):
    calls, dead = [], []

    def handle(batch):
        numbers = [int(one.sequence_number) for one in batch.records]
        calls.append(numbers)
        if numbers[0] == 1 and len(numbers) == 2:
            batch.checkpoint(batch.records[0])
        if 2 in numbers:
            raise ValueError("poison")

    scene = Scene(handle, policy=BisectBatch(dead_letter=dead.append, attempts=attempts))
    scene.offer(record(1), record(2))
    assert scene.run() is None
    assert calls == [[1, 2]] + [[2]] * attempts
    assert [(one.attempts, one.shard_id) for one in dead] == [(attempts, "s")]


def test_a_service_that_is_down_counts_as_no_attempt_of_what_is_then_poison():
    """Failures that make calls smaller are those of other calls."""
    calls, dead = [], []

    def handle(batch):
        numbers = [int(one.sequence_number) for one in batch.records]
        calls.append(numbers)
        if len(calls) <= 3:
            raise OSError("down")
        if 1 in numbers:
            raise ValueError("poison")

    scene = Scene(handle, policy=BisectBatch(dead_letter=dead.append, attempts=2, retry_only=(OSError,)))
    scene.offer(*[record(number) for number in range(1, 5)])
    assert scene.run() is None
    assert calls[:5] == [[1, 2, 3, 4], [1, 2, 3, 4], [1, 2], [1], [1]]
    assert [(one.record.sequence_number, one.attempts) for one in dead] == [("1", 2)]
    assert [number for numbers in calls[5:] for number in numbers] == [2, 3, 4]


def aggregate(number, size, payloads=None):
    carrier = KinesisRecord(b"", "k", str(number), None, None)
    payloads = [b"%d" % n for n in range(size)] if payloads is None else payloads
    return AggregatedRun(carrier, payloads, ["k"] * size, None)


@pytest.mark.parametrize("fails", [False, True])
def test_parts_of_an_aggregate_keep_their_numbers_and_their_checkpoints(fails):
    got, stored, failures = [], [], itertools.cycle([fails, fails, False])

    def handle(batch):
        if next(failures):
            raise OSError("busy")
        got.extend((one.sequence_number, one.sub_sequence_number, one.data) for one in batch.records)
        batch.checkpoint()
        last = batch.records[-1]
        stored.append((last.sequence_number, last.sub_sequence_number))
        assert scene.checkpointer.last_checkpoint == ExtendedSequenceNumber(*stored[-1])

    scene = Scene(handle, limit=3)
    batch = UserRecords([aggregate(7, 7), aggregate(8, 4)])
    scene.delivery.lanes.offer(batch, ResponseHeader(), lambda: None)
    assert scene.run() is None
    assert got == [(str(n), i, b"%d" % i) for n, size in ((7, 7), (8, 4)) for i in range(size)]
    assert stored == sorted(stored)
    if not fails:
        assert stored == [("7", 2), ("7", 5), ("8", 1), ("8", 3)]


def test_an_aggregate_of_many_records_costs_the_same_in_parts_of_one():
    """Counted steps: a forged aggregate of 300,000 records must not cost the square of that when calls get small."""
    copied = 0

    class Column(list):
        def __getitem__(self, index):
            nonlocal copied
            if isinstance(index, slice):
                copied += len(range(*index.indices(len(self))))
            return super().__getitem__(index)

    size = 1_500
    scene = Scene(lambda batch: None, limit=1)
    batch = UserRecords([aggregate(1, size, Column([b"x"] * size))])
    scene.delivery.lanes.offer(batch, ResponseHeader(), lambda: None)
    assert scene.run() is None
    assert scene.delivery.records_delivered == size
    assert copied == size


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_handler_that_empties_its_list_changes_nothing(concurrency):
    got = []

    def handle(batch):
        got.extend(one.sequence_number for one in batch.records)
        if isinstance(batch.records, list):
            batch.records.clear()
        if len(got) == 3:
            raise OSError("busy")

    scene = Scene(handle, limit=3, concurrency=concurrency)
    scene.offer(*[record(number) for number in range(1, 8)])
    assert scene.run() is None
    assert got == ["1", "2", "3", "1", "2", "3", "4", "5", "6", "7"]


def test_what_is_finished_takes_no_memory_in_a_key_that_goes_on():
    """Else a hot key whose lane never empties would keep all that it ever had, while only what is open is counted."""
    scene = Scene(lambda batch: None, limit=4, concurrency=2, deferred=True)
    number = itertools.count(1)
    for _ in range(50):
        scene.offer(*[record(next(number)) for _ in range(4)])
        scene.step()
        while scene.waiting:
            scene.waiting.pop()()
        scene.offer(*[record(next(number)) for _ in range(4)])
        scene.step()
        if scene.waiting:
            scene.waiting.pop()()
        kept = sum(len(one.records) for lane in scene.delivery.lanes._lanes.values() for one in lane.pending)
        left = sum(one.left for lane in scene.delivery.lanes._lanes.values() for one in lane.pending)
        assert kept <= 2 * left + 4


def test_calls_without_records_say_nothing_about_the_size():
    got = []

    def handle(batch):
        got.append(len(batch.records))
        if not batch.records:
            raise OSError("busy")

    scene = Scene(handle, limit=8)
    for _ in range(4):
        scene.delivery.lanes.offer([], ResponseHeader(), lambda: None)
        assert scene.run() is None
    scene.offer(*[record(number) for number in range(1, 9)])
    assert scene.run() is None
    assert got == [0] * 4 + [8]


# What is seen of it


class Recorded:
    """A metrics sink that lists what it gets."""

    def __init__(self):
        self.sizes = []

    def add(self, metric, value, *_):
        if metric is catalogue.HANDLER_BATCH_SIZE:
            self.sizes.append(value)


@pytest.mark.parametrize("concurrency", [1, 2])
def test_the_size_is_told_while_it_is_below_the_limit(caplog, concurrency):
    left = [4]

    def handle(batch):
        if left[0]:
            left[0] -= 1
            raise OSError("busy")

    caplog.set_level(logging.INFO)
    scene = Scene(handle, limit=8, concurrency=concurrency)
    recorded = scene.delivery._metrics = Recorded()
    scene.offer(*[record(number) for number in range(1, 41)])
    assert scene.run() is None
    assert recorded.sizes == [4, 2, 1, 1, 1, 2, 2, 2, 4, 4, 4, 8]
    told = [one.getMessage() for one in caplog.records if "at once" in one.getMessage()]
    assert len(told) == 2, "when it begins, and when it ends"


def test_a_key_that_ends_with_small_calls_leaves_no_gauge_behind():
    left = [2]

    def handle(batch):
        if left[0]:
            left[0] -= 1
            raise OSError("busy")

    scene = Scene(handle, limit=8, concurrency=2)
    recorded = scene.delivery._metrics = Recorded()
    scene.offer(record(1), record(2))
    assert scene.run() is None
    assert recorded.sizes[-1] == 8
    assert scene.delivery.lanes.is_empty


# Sinks


@pytest.mark.fuzz
def test_transactions_that_fail_at_random_end_within_the_bound_and_leave_no_effect_twice():
    """Limits, chances, failures of handlers before and after what they write, and of the store."""
    for seed in fuzz.seeds(unit=4, fuzz=150):
        random = Random(seed)
        limit, chance = random.choice((1, 3, 10, 100)), random.choice((0.003, 0.03, 0.3))
        house = House(config=ConsumerConfig(initial_position="TRIM_HORIZON", batch_records=limit))
        progress = failed = 0

        def handle(batch, *, random=random, chance=chance, limit=limit):
            nonlocal progress, failed
            count = len(batch.records)
            assert count <= limit
            begins = random.random() < 0.5
            if begins:
                batch.transaction.extend(("w1", one.data) for one in batch.records)
            if random.random() < 1 - (1 - chance) ** count:
                failed += count > 1
                raise random.choice((OSError, TransientSinkError))("busy")
            if not begins:
                batch.transaction.extend(("w1", one.data) for one in batch.records)
            progress += 1

        house.fleet.put(200)
        house.fleet.add("w1", handle)
        assert house.fleet.run(100_000, lambda effects=house.sink.effects: len(effects) == 200), seed
        assert house.data == house.fleet.sent
        assert failed <= bound(progress, limit), seed


# The limit of a sink


class Small(InMemorySink):
    max_records = 3


@pytest.mark.parametrize(
    ("sink", "limit", "largest"), [(Small, 1_000, 3), (Small, 2, 2), (InMemorySink, 4, 4), (Small, None, 3)]
)
def test_the_smaller_one_of_both_limits_counts(sink, limit, largest):
    config = ConsumerConfig(initial_position="TRIM_HORIZON", batch_records=limit)
    house = House(config=config, sink=sink())
    transactions = []
    house.hook = lambda name, place, batch: place == "end" and transactions.append(len(batch.records))
    house.fleet.put(10)
    house.add("w1")
    house.fleet.run(30)
    assert max(transactions) == largest
    assert sum(transactions) == 10
    assert house.data == house.fleet.sent


@pytest.mark.parametrize("number", [0, -1, 2.5, "3"])
def test_a_sink_whose_limit_is_no_number_of_records_is_refused(number):
    sink = InMemorySink()
    sink.max_records = number
    with pytest.raises(ConfigError, match=r"sink\.max_records="):
        Worker("orders", application_name="totals", handler=print, sink=sink)
