"""Real threads, real HTTP, real boto3 and real signals, against the fake account."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import boto3
import pytest

from integration.waiting import eventually
from kinesis_sdk.consumer import ConsumerConfig, LeaseConfig, Worker
from kinesis_sdk.testing import FakeAws, FakeAwsServer
from tests import HANG

CONFIG = ConsumerConfig(initial_position="TRIM_HORIZON", leases=LeaseConfig(failover_time=3.0))


@pytest.fixture
def account():
    aws = FakeAws()
    with FakeAwsServer(aws) as server:
        aws.client("kinesis").create_stream(StreamName="orders", ShardCount=4)
        yield aws, server.endpoint_url


@pytest.fixture
def process():
    children = []

    def start(endpoint, seconds, failover_time=10 * HANG):  # by default, no lease expires
        child = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, endpoint, str(seconds), str(failover_time)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=dict(os.environ),
        )
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill()
        child.communicate()


class Collected:
    def __init__(self):
        self.condition = threading.Condition()
        self.records = []

    def handler(self, name):
        def handle(batch):
            with self.condition:
                self.records += [(name, batch.shard_id, record.data) for record in batch.records]
                self.condition.notify_all()

        return handle

    def wait(self, wanted, timeout=HANG):
        with self.condition:
            return self.condition.wait_for(lambda: {data for _, _, data in self.records} >= wanted, timeout)


def put(aws, start, count):
    data = [b"%d" % n for n in range(start, start + count)]
    aws.client("kinesis").put_records(
        StreamName="orders", Records=[{"Data": one, "PartitionKey": one.decode()} for one in data]
    )
    return set(data)


def worker(endpoint, collected, name, config=CONFIG):
    return Worker(
        "orders",
        application_name="billing",
        handler=collected.handler(name),
        config=config,
        endpoint_url=endpoint,
        worker_id=name,
    )


def owners(endpoint):
    table = boto3.client("dynamodb", endpoint_url=endpoint)
    return sorted(
        item.get("leaseOwner", {}).get("S", "-") for item in table.scan(TableName="billing")["Items"]
    )


def test_the_first_record_and_a_handoff_without_waiting_for_expiry(account):
    aws, endpoint = account
    config = ConsumerConfig(
        initial_position="TRIM_HORIZON", leases=LeaseConfig(failover_time=10 * HANG)
    )  # no lease expires
    collected = Collected()
    wanted = put(aws, 0, 100)
    started = time.monotonic()
    first = worker(endpoint, collected, "a", config)
    first.start()
    assert collected.wait(wanted)
    print(f"first records after {time.monotonic() - started:.2f} s")
    second = worker(endpoint, collected, "b", config)
    second.start()
    eventually(lambda: owners(endpoint) == ["a", "a", "b", "b"])
    stopped = time.monotonic()
    assert first.stop(HANG)
    wanted |= put(aws, 100, 100)
    assert collected.wait(wanted)
    print(f"taken over {time.monotonic() - stopped:.2f} s after the stop began")
    assert second.stop(HANG)
    assert owners(endpoint) == ["-"] * 4


def test_a_latest_start_is_pinned_with_the_date_of_a_real_answer(account):
    aws, endpoint = account
    collected = Collected()
    put(aws, 0, 10)
    time.sleep(0.1)
    began = time.time()
    running = worker(endpoint, collected, "a", ConsumerConfig())
    running.start()
    table = boto3.client("dynamodb", endpoint_url=endpoint)

    def pins():
        items = table.scan(TableName="billing")["Items"]
        return [int(one["initialTimestampMillis"]["N"]) for one in items if "initialTimestampMillis" in one]

    eventually(lambda: len(pins()) == 4)
    # The header has whole seconds, and the start is taken one second earlier for that.
    assert all(began - 2 <= pin / 1000 <= time.time() + 1 for pin in pins())
    assert running.stop(HANG)
    assert collected.records == []


SCRIPT = textwrap.dedent(
    """
    import logging, sys, time
    from kinesis_sdk.consumer import ConsumerConfig, LeaseConfig, Worker
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    def handle(batch):
        for record in batch.records:
            sys.stdout.write(record.data.decode() + "\\n")  # one write: other threads print, too
        sys.stdout.flush()
        time.sleep(float(sys.argv[2]))
    config = ConsumerConfig(initial_position="TRIM_HORIZON", leases=LeaseConfig(failover_time=float(sys.argv[3])))
    Worker("orders", application_name="billing", handler=handle, config=config, endpoint_url=sys.argv[1]).run()
    print("stopped", flush=True)
    """
)


def read(child, count):
    assert child.stdout is not None
    return [child.stdout.readline().strip() for _ in range(count)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_cleanly(account, process, number):
    aws, endpoint = account
    put(aws, 0, 20)
    child = process(endpoint, 0)
    assert len(set(read(child, 20))) == 20
    child.send_signal(number)
    rest, _ = child.communicate(timeout=HANG)
    assert rest == "stopped\n"
    assert child.returncode == 0
    assert owners(endpoint) == ["-"] * 4


def test_a_signal_that_another_thread_receives_stops_as_well(account):
    """The system may hand SIGTERM to any thread; Python runs its handler in the main thread, which waits then."""
    aws, endpoint = account
    put(aws, 0, 1)
    script = textwrap.dedent(
        """
        import signal, sys, threading
        from kinesis_sdk import ConsumerConfig, Worker

        def handle(batch):
            if batch.records:
                signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

        config = ConsumerConfig(initial_position="TRIM_HORIZON")
        Worker("orders", application_name="billing", handler=handle, config=config, endpoint_url=sys.argv[1]).run()
        print("stopped")
        """
    )
    command = [sys.executable, "-c", script, endpoint]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=HANG, check=True)
    assert ended.stdout == "stopped\n"


def test_a_second_signal_stops_at_once_even_if_a_handler_hangs(account, process):
    aws, endpoint = account
    put(aws, 0, 20)
    child = process(endpoint, 3600)
    read(child, 1)
    child.send_signal(signal.SIGTERM)
    time.sleep(1.0)
    assert child.poll() is None, "the running batch is waited for"
    # A second signal that comes before the first was handled is the same one, so it is sent until it is heard.
    end = time.monotonic() + HANG
    while child.poll() is None:
        assert time.monotonic() < end
        child.send_signal(signal.SIGTERM)
        time.sleep(0.5)
    rest, _ = child.communicate(timeout=HANG)
    assert rest.endswith("stopped\n")
