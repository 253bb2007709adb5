"""A stream of two shards, a client that can be stopped, and producers that are closed after the test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from kinesis_sdk.producer import Producer, ProducerConfig
from kinesis_sdk.testing import FakeAws
from tests.producer.simulation import STREAM
from tests.producer.support import LONG, Gate, Make


@pytest.fixture
def aws() -> FakeAws:
    account = FakeAws(throttle=False)
    account.client("kinesis").create_stream(StreamName=STREAM, ShardCount=2)
    return account


@pytest.fixture
def gate(aws: FakeAws) -> Iterator[Gate]:
    gate = Gate(aws)
    yield gate
    gate.open.set()


@pytest.fixture
def make(gate: Gate) -> Iterator[Make]:
    """Make producers that buffer for 5 ms unless told otherwise; keywords that are no argument of theirs are settings."""
    made: list[Any] = []

    def build(kind: Any = Producer, **given: Any) -> Any:
        names = {"clock", "metrics", "interceptors", "on_send_error", "on_record_failed"} & given.keys()
        arguments = {name: given.pop(name) for name in names}
        config = ProducerConfig(**{"record_max_buffered_time": 0.005, **given})
        made.append(kind(config, client=gate, **arguments))
        return made[-1]

    yield build
    gate.open.set()
    for producer in made:
        getattr(producer, "producer", producer).close(LONG)


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads change places as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
