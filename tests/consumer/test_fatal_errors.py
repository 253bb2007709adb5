"""No error leaves a worker that consumes nothing and still renews its leases.

An error of the service is retried, one of the handler goes to its policy, anything else ends `Worker.run`.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from itertools import product

import pytest

from kinesis_sdk.common.errors import ConsumerError, ProtocolError, TransientAwsError
from kinesis_sdk.consumer import BisectBatch, InMemoryLeaseStore
from kinesis_sdk.consumer.fetch.events import Next
from kinesis_sdk.consumer.runtime.scheduler import Scheduler
from kinesis_sdk.consumer.shard import delivery
from kinesis_sdk.testing import VirtualClock
from tests.consumer.fetch.fan_out import GARBLED, Rig
from tests.consumer.fleet.engines import Fleet
from tests.consumer.worker_scenario import QUICK, Scenario, run_to_its_end
from tests.fuzz import share

FIRST = "shardId-000000000000"


class Garbling:
    """Changes the records of the first shard in answers of GetRecords until it is told to stop."""

    def __init__(self, client, change):
        self._client = client
        self._change = change
        self._iterators = set()
        self.meta = client.meta
        self.broken = True

    def __getattr__(self, name):
        return getattr(self._client, name)

    def get_shard_iterator(self, **request):
        answer = self._client.get_shard_iterator(**request)
        if request["ShardId"] == FIRST:
            self._iterators.add(answer["ShardIterator"])
        return answer

    def get_records(self, **request):
        answer = self._client.get_records(**request)
        if request["ShardIterator"] in self._iterators:
            self._iterators.add(answer["NextShardIterator"])
            if self.broken:
                answer["Records"] = [{**record, **self._change} for record in answer["Records"]]
        return answer


def owners(scenario):
    return [
        item.get("leaseOwner") for item in scenario.aws.client("dynamodb").scan(TableName="billing")["Items"]
    ]


class ThreadShortage:
    """`Thread.start` fails, as under a container's pids limit, for threads of these names and so many times."""

    def __init__(self, monkeypatch, prefix, times):
        self.refused = 0
        self.began = threading.Event()
        start = threading.Thread.start

        def refuse(thread):
            if thread.name.startswith(prefix) and self.refused < times:
                self.refused += 1
                self.began.set()
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", refuse)


# What the service sends


@pytest.mark.fuzz
@pytest.mark.parametrize(
    ("concurrency", "change"),
    [
        *((1, {"SequenceNumber": number}) for number in GARBLED),
        *((4, {"SequenceNumber": number}) for number in share(GARBLED, unit=2)),
        *product((1, 4), ({"PartitionKey": ["k"]}, {"Data": "text"})),
    ],
)
def test_a_malformed_record_holds_up_its_shard_only_and_is_read_again(change, concurrency):
    fleet = Fleet(shards=2)
    fleet.config = replace(fleet.config, concurrency=concurrency)
    fleet.kinesis = Garbling(fleet.kinesis, change)
    fleet.put(40)
    engine = fleet.add("a")
    fleet.run(60)
    first, second = engine.shard_health()
    assert first.shard_id == FIRST
    assert "ProtocolError" in first.last_error
    assert next(iter(change)) in first.last_error
    assert first.records_delivered == 0
    assert second.last_error is None
    assert second.records_delivered == len(fleet.delivered) > 0
    fleet.kinesis.broken = False
    assert fleet.run(60, until=fleet.all_delivered)
    assert sorted(fleet.data()) == sorted(fleet.sent), "each once"
    assert engine.shard_health()[0].last_error is None


@pytest.mark.parametrize("operation", ["describe_stream_summary", "describe_stream_consumer"])
@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"StreamDescriptionSummary": {}, "ConsumerDescription": {"ConsumerStatus": "ACTIVE"}},
        {"StreamDescriptionSummary": "s", "ConsumerDescription": "c"},
    ],
)
def test_a_malformed_answer_about_the_registered_consumer_is_asked_for_again(operation, answer):
    rig = Rig()
    rig.put(b"a")
    rig.client.instead[operation] = lambda method, request: answer
    errors = rig.run(3)
    assert errors
    assert {type(error) for error in errors} == {ProtocolError}
    del rig.client.instead[operation]
    rig.run(10)
    assert rig.read == [b"a"]


# What goes wrong in the worker itself


@pytest.mark.parametrize("concurrency", [1, 4])
def test_an_error_on_the_way_to_the_handler_ends_run_and_releases_the_leases(monkeypatch, concurrency):
    scenario = Scenario()
    scenario.put(*[b"%d" % n for n in range(20)])
    failing = threading.Event()

    def position_of(record):
        failing.set()
        raise ArithmeticError("no position")

    name = "delivery.position_of" if concurrency == 1 else "watermark.position_of"
    monkeypatch.setattr(f"kinesis_sdk.consumer.shard.{name}", position_of)
    error = run_to_its_end(scenario.worker(config=replace(QUICK, concurrency=concurrency)))
    assert failing.is_set()
    assert isinstance(error, ArithmeticError)
    if concurrency == 1:
        assert owners(scenario) == [None, None]


def test_a_call_that_cannot_be_queued_ends_run_and_releases_the_leases(monkeypatch):
    scenario = Scenario()
    scenario.put(*[b"%d" % n for n in range(20)])
    begin = delivery.Delivery._begin

    def refuse(self, lane):
        def run(function):
            raise MemoryError

        self._runtime = replace(self._runtime, run_step=run)
        begin(self, lane)

    monkeypatch.setattr(delivery.Delivery, "_begin", refuse)
    error = run_to_its_end(scenario.worker(config=replace(QUICK, concurrency=4)))
    assert isinstance(error, MemoryError)
    assert owners(scenario) == [None, None]


def test_a_step_that_raises_is_run_again():
    clock = VirtualClock()
    scheduler = Scheduler(lambda function: function(), clock, lambda: None)
    steps = []

    def step(now):
        steps.append(now)
        if len(steps) == 1:
            raise ArithmeticError
        return None

    scheduler.wake(scheduler.add(step))
    with pytest.raises(ArithmeticError):
        scheduler.dispatch(0.0)
    assert scheduler.dispatch(0.0) == 1.0
    clock.advance(1.0)
    assert scheduler.dispatch(1.0) is None
    assert steps == [0.0, 1.0]
    assert len(scheduler) == 0


# No thread can be started


def reject(poison):
    raise AssertionError("a record was taken for poison")


@pytest.mark.parametrize("times", [1, 4])
def test_coroutines_wait_for_their_event_loop_to_start(monkeypatch, times):
    shortage = ThreadShortage(monkeypatch, "kinesis-async", times)
    scenario = Scenario()
    scenario.put(*[b"%d" % n for n in range(20)])
    # Two failed attempts are a poison record; the shortage is not the record's fault.
    policy = BisectBatch(dead_letter=reject, attempts=2, initial_delay=0.001, max_delay=0.01)

    async def handle(batch):
        scenario.handle(batch)

    with scenario.worker(handle, config=replace(QUICK, on_handler_error=policy)) as worker:
        scenario.wait(20)
        assert worker.health().error is None
    assert shortage.refused == times
    assert sorted(scenario.got, key=int) == [b"%d" % n for n in range(20)]
    assert owners(scenario) == [None, None]


@pytest.mark.parametrize("times", [1, 10**9])
@pytest.mark.parametrize(
    ("pool", "concurrency"),
    [("kinesis-shard", 1), ("kinesis-shard", 4), ("kinesis-fetch", 1), ("kinesis-renewal", 1)],
)
def test_a_worker_goes_on_with_the_threads_it_has(monkeypatch, pool, times, concurrency, caplog):
    shortage = ThreadShortage(monkeypatch, f"{pool}-", times)
    scenario = Scenario(shards=3)
    scenario.put(*[b"%d" % n for n in range(30)])
    # Renewed every 2 s, so that a renewal meets the shortage soon, and a slow machine still renews in time.
    config = QUICK.with_fields(max_threads=1, max_fetch_threads=1, concurrency=concurrency, failover_time=3.0)
    with scenario.worker(config=config) as worker:
        scenario.wait(30)
        assert shortage.began.wait(20)
        assert worker.health().error is None
    assert sorted(scenario.got, key=int) == [b"%d" % n for n in range(30)]
    assert owners(scenario) == [None, None, None]
    assert f"pool {pool}: cannot start" in caplog.text


def test_a_callback_that_runs_without_the_pool_cannot_wait_for_itself(monkeypatch):
    ThreadShortage(monkeypatch, "kinesis-shard", 10**9)
    scenario = Scenario()
    scenario.put(b"0")
    refused = []

    def handle(batch):
        try:
            worker.stop()
        except ConsumerError as error:
            refused.append(error)
        worker.request_stop()

    worker = scenario.worker(handle)
    assert run_to_its_end(worker) is None
    assert len(refused) == 1


@pytest.mark.parametrize("loop", ["kinesis-steps", "kinesis-renewals", "kinesis-table"])
def test_a_worker_without_its_loops_does_not_start_and_takes_no_lease(monkeypatch, loop):
    ThreadShortage(monkeypatch, loop, 1)
    scenario = Scenario()
    store = InMemoryLeaseStore()
    worker = scenario.worker(lease_store=store)
    with pytest.raises(ConsumerError, match="threads of the worker"):
        worker.start()
    assert not worker.health().running
    assert [lease.owner for lease in store.list()] == [None, None]
    assert not [thread for thread in threading.enumerate() if thread.name == loop]


def test_a_subscription_without_a_thread_is_made_again():
    rig = Rig()
    rig.put(b"a")
    begin, short = rig.fetcher._start_reader, []

    def refuse(reader, shard_id):
        short.append(reader)
        if len(short) == 1:
            raise RuntimeError("can't start new thread")
        begin(reader, shard_id)

    rig.fetcher._start_reader = refuse
    rig.run(2)
    assert isinstance(rig.fetcher._cause, TransientAwsError)
    rig.run(6)
    assert len(short) == 2
    assert rig.read == [b"a"]
    assert short[0].read_one() is Next.STOP, "its connection is closed"


# What a handler does to the event loop


def test_an_exit_in_a_task_of_the_handlers_own_ends_run(monkeypatch):
    scenario = Scenario()
    scenario.put(*[b"%d" % n for n in range(20)])
    exiting = []

    async def leave():
        raise SystemExit(7)

    async def handle(batch):
        exiting.append(asyncio.ensure_future(leave()))
        exiting[-1].add_done_callback(lambda task: task.exception())
        await asyncio.sleep(0)  # the loop breaks off here and has to continue
        await asyncio.sleep(0)
        scenario.handle(batch)

    error = run_to_its_end(scenario.worker(handle))
    assert isinstance(error, SystemExit)
    assert error.code == 7
    assert scenario.got, "the call itself came to its end"
    assert owners(scenario) == [None, None]


def test_a_coroutine_that_is_cancelled_before_it_began_has_failed():
    scenario = Scenario(shards=1)
    scenario.put(b"0", b"1")

    async def handle(batch):
        scenario.handle(batch)

    worker = scenario.worker(handle, config=QUICK.with_fields(task_backoff_time=0.001))
    begin = worker._threads._event_loop._begin
    cancelled = []

    def begin_and_cancel(loop, awaitable, on_done):
        """As a handler of another shard may do: this one's task is made and has not run yet."""
        begin(loop, awaitable, on_done)
        if not cancelled:
            cancelled.extend(task.cancel() for task in asyncio.all_tasks(loop))

    worker._threads._event_loop._begin = begin_and_cancel
    with worker:
        scenario.wait(2)
    assert cancelled == [True]
    assert scenario.got == [b"0", b"1"]
