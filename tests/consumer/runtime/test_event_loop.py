"""Coroutines on a worker's event loop: many shards await on one thread; what is cancelled and what is not."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kinesis_sdk.common.errors import HandlerError
from kinesis_sdk.consumer import (
    ConsumerConfig,
    InMemoryLeaseStore,
    LeaseConfig,
    RetrievalConfig,
)
from kinesis_sdk.consumer.runtime.threads import EventLoopThread
from tests import HANG
from tests.consumer.worker_scenario import Scenario

ONE_THREAD = ConsumerConfig(
    initial_position="TRIM_HORIZON",
    leases=LeaseConfig(lease_scan_interval=0.1),
    retrieval=RetrievalConfig(idle_time_between_reads=0.2),
    max_threads=1,
)


def test_outcomes_are_reported_once_and_errors_are_kept_whole():
    loop = EventLoopThread("test", lambda error: None)
    told = []
    done = threading.Semaphore(0)

    def note(error):
        told.append(error)
        done.release()

    async def succeed():
        await asyncio.sleep(0)

    async def fail():
        raise SystemExit(7)

    for coroutine in (succeed(), fail(), succeed()):
        loop.run(coroutine, note)
        assert done.acquire(timeout=HANG)
    assert [type(error) for error in told] == [type(None), SystemExit, type(None)]
    with pytest.raises(SystemExit):
        loop.wait_for(fail())
    loop.close()
    with pytest.raises(HandlerError, match="cancelled"):
        loop.wait_for(succeed())


def test_closing_cancels_and_still_reports_outcomes():
    loop = EventLoopThread("test-closing", lambda error: None)
    started, ended = threading.Event(), threading.Event()
    told = []

    async def wait():
        started.set()
        try:
            await asyncio.sleep(3600)
        finally:
            told.append("cleaned up")

    def note(error):
        told.append(type(error))
        ended.set()

    loop.run(wait(), note)
    assert started.wait(HANG)
    loop.close()
    assert ended.wait(HANG)
    assert told == ["cleaned up", asyncio.CancelledError]
    thread = next((t for t in threading.enumerate() if t.name == "test-closing"), None)
    if thread is not None:
        thread.join(HANG)
    loop.close()


def test_shards_await_at_the_same_time_on_one_thread():
    scenario = Scenario(shards=12)
    scenario.put(*[b"%d" % n for n in range(200)])
    together = set()
    threads = set()
    everybody = []

    async def handle(batch):
        # No call returns before all twelve shards have arrived.
        if not everybody:
            everybody.append(asyncio.Event())
        together.add(batch.shard_id)
        threads.add(threading.current_thread().name)
        if len(together) == 12:
            everybody[0].set()
        await everybody[0].wait()
        scenario.handle(batch)

    with scenario.worker(handle, config=ONE_THREAD, lease_store=InMemoryLeaseStore()):
        scenario.wait(200)
    assert threads == {"kinesis-async"}
    assert len(scenario.got) == 200


def test_a_clean_stop_waits_for_a_coroutine_and_keeps_what_it_did():
    scenario = Scenario(shards=1)
    scenario.put(b"1")
    started = threading.Event()
    events = []
    finish = []

    async def handle(batch):
        event = asyncio.Event()
        loop = asyncio.get_running_loop()
        finish.append(lambda: loop.call_soon_threadsafe(event.set))
        started.set()
        try:
            await event.wait()
            events.append("done")
        except asyncio.CancelledError:
            events.append("cancelled")
            raise

    worker = scenario.worker(handle)
    worker.start()
    assert started.wait(HANG)
    worker.request_stop()
    assert worker.health().running
    finish[0]()
    assert worker.stop(20)
    assert events == ["done"]
    (item,) = scenario.aws.client("dynamodb").scan(TableName="billing")["Items"]
    assert item["checkpoint"]["S"].isdigit()


def test_an_immediate_stop_cancels_and_checkpoints_nothing():
    scenario = Scenario(shards=1)
    scenario.put(b"1")
    started, ended = threading.Event(), threading.Event()

    async def handle(batch):
        started.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    worker = scenario.worker(handle)
    worker.start()
    assert started.wait(HANG)
    assert not worker.stop(0.05)
    assert ended.wait(HANG)
    (item,) = scenario.aws.client("dynamodb").scan(TableName="billing")["Items"]
    assert item["checkpoint"]["S"] == "TRIM_HORIZON"
    assert item["leaseOwner"]["S"] == worker.worker_id, "left to expire"
