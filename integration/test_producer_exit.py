"""Callbacks at a process's end, and signals that strike a busy producer: real processes, real signals."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

import pytest

from integration.commands import execute
from tests import HANG

CALLBACKS = 500
PAUSE = 0.01
"""Seconds that a callback takes: together more than a close that did not count them would wait."""

COMMON = """
    import os, signal, sys, threading, time
    from kinesis_sdk import Producer, ProducerConfig
    from kinesis_sdk.testing import FakeAws

    client = FakeAws(throttle=False).client("kinesis")
    client.create_stream(StreamName="s", ShardCount=1)
"""

EXIT = (
    COMMON
    + """
    def note(record):
        time.sleep(%(pause)s)
        os.write(1, record.result().sequence_number.encode() + b"\\n")

    def put(producer):
        for number in range(%(callbacks)d):
            producer.put("s", "k", b"x").add_done_callback(note)

    producer = Producer(client=client)
    if sys.argv[1] == "with":
        with producer:
            put(producer)
    elif sys.argv[1] == "close":
        put(producer)
        assert producer.close() == 0
    elif sys.argv[1] == "flush":
        put(producer)
        assert producer.flush() == 0
        os._exit(0)
    else:
        put(producer)
    """
)

STORM = (
    COMMON
    + """
    producer = Producer(ProducerConfig(record_max_buffered_time=0.002), client=client)
    futures, called = [], []
    way = sys.argv[1]

    def stop(*_):
        try:
            left = producer.close()
        except Exception as error:
            print("refused", type(error).__name__, flush=True)
            raise SystemExit(3)  # out of the interrupted call, as the documentation says; the exit handler closes
        still = sum(not future.done() for future in futures)
        # The callback of the future that was put last may not have been added yet.
        missing = len(futures) - len(called)
        print("closed", left, still, missing, flush=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    threading.Timer(float(sys.argv[2]), os.kill, (os.getpid(), signal.SIGTERM)).start()
    while True:
        if way == "callbacks":
            future = producer.put("s", "k", b"x")
            futures.append(future)
            for _ in range(20):
                future.add_done_callback(id)
            future.add_done_callback(called.append)
        else:
            part = [producer.put("s", "k", b"x") for _ in range(20)]
            futures += part
            for future in part:
                future.add_done_callback(called.append)
            if way == "result":
                for future in part:
                    future.result()
            else:
                from concurrent.futures import as_completed
                for future in as_completed(part):
                    future.running()
    """
)


def run(script: str, *arguments: str, timeout: float = HANG) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own."""
    return execute([sys.executable, "-c", textwrap.dedent(script), *arguments], timeout=timeout)


@pytest.mark.parametrize("end", ["with", "close", "flush", "forgotten"])
def test_every_callback_runs_before_the_process_ends(end):
    done = run(EXIT % {"pause": PAUSE, "callbacks": CALLBACKS}, end)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == CALLBACKS


@pytest.mark.parametrize("way", ["callbacks", "result", "as_completed"])
def test_a_storm_of_sigterm_that_closes_the_producer(way):
    closed = refused = 0
    for turn in range(200):
        # Where a signal strikes depends on the machine, so it goes on until one struck outside the producer.
        if turn >= 12 and closed:
            break
        done = run(STORM, way, str(0.2 + turn * 0.00173))
        kind, *numbers = done.stdout.split() or ["nothing", done.stderr]
        if kind == "refused":
            refused += 1
            assert numbers == ["ProducerError"]
            assert done.returncode == 3
        else:
            assert kind == "closed", done.stderr
            left, still, missing = map(int, numbers)
            assert left == still == 0
            assert missing <= (20 if way != "callbacks" else 1)
            closed += 1
    print(f"{way}: closed {closed}, refused {refused} of {closed + refused}")
    assert closed, f"{signal.SIGTERM!r} always struck inside the producer"
