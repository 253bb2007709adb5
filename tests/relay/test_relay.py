"""Consume → produce: outputs with ids, and the position that waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from kinesis_sdk import BisectBatch, ConfigError, ConsumerConfig, Producer, ProducerConfig, Put, UserRecord
from kinesis_sdk.consumer import HandlerErrorPolicy
from kinesis_sdk.lambda_events import KinesisEvent
from kinesis_sdk.pytest_plugin import SteppedWorker, TestStream
from kinesis_sdk.relay import Relay
from kinesis_sdk.testing import FakeAws, VirtualClock
from tests.lambda_events.support import event

NAMED = ProducerConfig(idempotent=True, dedup_namespace="tests", record_max_buffered_time=0.001)


def copies(record: UserRecord) -> Iterator[Put]:
    """Return as many outputs as the payload says."""
    for index in range(int(record.data)):
        yield Put("bills", record.partition_key, b"%s.%d" % (record.data, index))


class Streams:
    """An input and an output, and a producer for the output."""

    def __init__(self, orders: str = "orders") -> None:
        self.aws = FakeAws(clock=VirtualClock(), throttle=False)
        self.orders, self.bills = TestStream(self.aws, orders), TestStream(self.aws, "bills")
        self.producer = Producer(NAMED, client=self.orders.client)

    def run(self, relay: Any, policy: HandlerErrorPolicy | str = "retry") -> SteppedWorker:
        """Let a new worker process all of the input, as one does that takes a shard over without a checkpoint."""
        config: Any = ConsumerConfig(initial_position="TRIM_HORIZON", on_handler_error=policy)  # type: ignore[arg-type]
        worker = SteppedWorker(self.orders, relay, config)
        worker.run()
        return worker

    def delivered(self, stream: TestStream | None = None) -> list[bytes]:
        """Return what a reader of this SDK gets from the output."""
        found: list[bytes] = []
        SteppedWorker(
            stream or self.bills, lambda batch: found.extend(one.data for one in batch.records)
        ).run()
        return sorted(found)

    def stored(self, stream: TestStream | None = None) -> list[bytes]:
        return sorted(one.data for one in (stream or self.bills).records)


@pytest.fixture
def streams() -> Iterator[Streams]:
    made = Streams()
    yield made
    made.producer.close()


@pytest.mark.parametrize("orders", ["orders", "o" * 128])
def test_outputs_of_a_record_that_comes_again_are_delivered_once(orders: str) -> None:
    streams = Streams(orders)
    streams.orders.put_aggregate([("k", b"1"), ("k", b"0"), ("l", b"2")])
    streams.orders.put("k", b"2")
    wanted = [b"1.0", b"2.0", b"2.0", b"2.1", b"2.1"]
    for relay in (Relay(streams.producer, copies, name="n" * 100) for _ in range(2)):
        streams.run(relay)
    assert streams.stored() == sorted(2 * wanted)
    assert streams.delivered() == wanted
    streams.run(Relay(streams.producer, copies, name="another"))
    assert streams.delivered() == sorted(2 * wanted)
    streams.producer.close()


def test_a_function_returns_a_put_several_or_none(streams: Streams) -> None:
    streams.orders.put("k", b"one", b"list", b"none")
    made = Put("bills", "k", b"x", headers={"tenant": "acme"})
    returned: dict[bytes, Any] = {b"one": made, b"list": [made, made], b"none": None}
    streams.run(Relay(streams.producer, lambda record: returned[record.data], name="r"))
    assert streams.delivered() == [b"x", b"x", b"x"]
    assert {dict(one.headers).get("tenant") for one in streams.bills.records} == {b"acme"}


def test_the_position_waits_for_every_output_and_stored_ones_are_not_put_again(streams: Streams) -> None:
    streams.orders.put("k", b"0", b"1", b"2")
    calls, late = [], []

    def both(record: UserRecord) -> Iterator[Put]:
        calls.append(record.data)
        yield Put("bills", "k", record.data)
        if record.data == b"1":
            yield Put("late", "k", record.data)

    def after_two_calls(batch: Any) -> None:
        if len(calls) >= 6 and not late:
            late.append(TestStream(streams.aws, "late"))
        relay(batch)

    relay = Relay(streams.producer, both, name="r")
    worker = SteppedWorker(streams.orders, after_two_calls)
    while not late:
        worker.step()
    (lease,) = worker.leases.scan().leases
    assert lease.checkpoint.sequence_number == "TRIM_HORIZON"
    worker.run_for(60)
    assert streams.stored() == [b"0", b"1", b"2"], "of three calls"
    assert streams.stored(late[0]) == [b"1"]
    assert not any(relay._stored.values())
    worker.stop()


def test_another_acquisition_of_the_shard_puts_again_what_a_failed_call_had_stored(streams: Streams) -> None:
    streams.orders.put("k", b"1")
    broken = [True]

    def fails(record: UserRecord) -> Iterator[Put]:
        yield Put("bills", "k", record.data)
        if broken[0]:
            raise ConnectionError

    relay = Relay(streams.producer, fails, name="r")
    lost = SteppedWorker(streams.orders, relay)
    while not any(relay._stored.values()):
        lost.step()
    broken[0] = False
    streams.run(relay)
    assert streams.stored() == [b"1", b"1"]
    assert streams.delivered() == [b"1"]


@pytest.mark.parametrize(
    ("returned", "error"),
    [
        (b"payload", TypeError),
        ([Put("bills", "k", b"x"), "text"], TypeError),
        (Put("bills", "k", b"x" * 2_000_000), ValueError),
        (Put("bills", "", b"x"), ValueError),
        (Put("bills", "k", b"x", dedup_id="mine"), ValueError),
        (Put("bills", "k", b"x", dedup_window=0), ValueError),
        ((Put("bills", "k", b"x") for _ in iter(int, 1)), ValueError),
    ],
)
def test_what_cannot_be_put_is_an_error_of_its_record_only(
    streams: Streams, returned: Any, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kinesis_sdk.relay.handler.MAX_OUTPUTS", 10)
    streams.orders.put("k", b"good", b"bad", b"good")
    letters: list[Any] = []

    def function(record: UserRecord) -> Any:
        return Put("bills", "k", b"ok") if record.data == b"good" else returned

    streams.run(
        Relay(streams.producer, function, name="r"), BisectBatch(dead_letter=letters.append, attempts=1)
    )
    assert [(letter.record.data, type(letter.error)) for letter in letters] == [(b"bad", error)]
    assert streams.delivered().count(b"ok") == 2


async def later(record: UserRecord) -> list[Put]:
    await asyncio.sleep(0)
    if record.data == b"bad":
        raise ValueError("secret")
    return list(copies(record))


def test_a_coroutine_function_is_awaited_and_keeps_the_promises_of_a_plain_one(streams: Streams) -> None:
    streams.orders.put("k", b"2", b"bad", b"1")
    relay, letters = Relay(streams.producer, later, name="r"), []
    for _ in range(2):
        streams.run(relay, BisectBatch(dead_letter=letters.append, attempts=1))
    assert [letter.record.data for letter in letters] == [b"bad", b"bad"]
    assert len(streams.stored()) >= 6
    assert streams.delivered() == [b"1.0", b"2.0", b"2.1"]
    assert not any(relay._stored.values())
    with pytest.raises(ConfigError, match="for relay"):
        relay.relay([])


def test_an_event_that_lambda_delivers_again_has_the_same_ids(streams: Streams) -> None:
    given = event(["2"], ["1"])
    broken = [True]

    def fails(record: UserRecord) -> Iterator[Put]:
        yield from copies(record)
        if broken[0] and record.data == b"1":
            raise ConnectionError

    relay = Relay(streams.producer, fails, name="r")
    with pytest.raises(ConnectionError):
        relay.relay(KinesisEvent(given).user_records)
    assert streams.stored() == [b"1.0", b"2.0", b"2.1"], "before it raised, all were stored"
    broken[0] = False
    relay.relay(KinesisEvent(given).user_records)
    assert len(streams.stored()) == 6
    assert streams.delivered() == [b"1.0", b"2.0", b"2.1"]


async def generator(record: UserRecord) -> AsyncIterator[Put]:
    yield Put("bills", "k", record.data)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"producer": None}, "producer"),
        ({"producer": ProducerConfig(idempotent=True)}, "producer"),
        ({"function": generator}, "function"),
        ({"function": None}, "function"),
        ({"name": ""}, "name"),
        ({"name": "n" * 101}, "name"),
    ],
)
def test_arguments_are_checked(streams: Streams, changed: dict[str, Any], field: str) -> None:
    arguments: dict[str, Any] = {"producer": streams.producer, "function": copies, "name": "r", **changed}
    if isinstance(arguments["producer"], ProducerConfig):
        arguments["producer"] = Producer(arguments["producer"], client=streams.orders.client)
    with pytest.raises(ConfigError, match=field):
        Relay(**arguments)
