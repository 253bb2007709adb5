"""The handler on the SDK's own engine, in virtual time, with children that live in memory."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, cast

import pytest

from kinesis_sdk.common.errors import RestartShardError
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.consumer import ShardContext
from kinesis_sdk.multilang.children import Children
from kinesis_sdk.multilang.handler import ChildHandler
from kinesis_sdk.multilang.process import ChildEndedError, ChildProcess
from kinesis_sdk.multilang.protocol import (
    CheckpointAnswer,
    CheckpointRequest,
    ChildMessage,
    DaemonMessage,
    Initialize,
    LeaseLost,
    ProcessRecords,
    ShardEnded,
    ShutdownRequested,
    Status,
    decode_daemon_line,
)
from kinesis_sdk.multilang.session import CallFailedError, ChildSession
from kinesis_sdk.pytest_plugin import TestStream
from kinesis_sdk.testing import VirtualClock
from tests import fuzz


class MemoryChild:
    """A child that answers in memory, and dies where its dice say so."""

    def __init__(self, world: World, pid: int) -> None:
        self.world = world
        self.pid = pid
        self.written_in = 0
        self.ended: str | None = None
        self.messages: deque[tuple[ChildMessage, int]] = deque()
        self.got: list[str] = []
        self.history: list[str] = []
        self.after_answer: Callable[[], None] | None = None

    @property
    def has_messages(self) -> bool:
        return bool(self.messages)

    def write(self, pieces: Iterable[bytes], stalled_after: float | None = None) -> None:
        if self.ended is not None:
            raise ChildEndedError(self.ended)
        self.take(decode_daemon_line(b"".join(pieces)))

    def receive(self, deadline: float | None) -> tuple[ChildMessage, int]:
        if self.messages:
            return self.messages.popleft()
        raise ChildEndedError(self.ended or "it would hang")

    def put_back(self, message: ChildMessage, written_in: int) -> None:
        self.messages.appendleft((message, written_in))

    def say(self, message: ChildMessage) -> None:
        self.messages.append((message, self.written_in))

    def die(self) -> None:
        self.ended = "it exited with code 1"

    def take(self, message: DaemonMessage) -> None:
        self.history.append(message.action)
        if isinstance(message, CheckpointAnswer):
            assert self.after_answer is not None
            then, self.after_answer = self.after_answer, None
            then()
            return
        if isinstance(message, Initialize):
            assert self.history == ["initialize"]
            self.world.starts.append((message.sequence_number, message.sub_sequence_number))
        dice = self.world.rng.random() if self.world.deaths else 1.0
        if dice < 0.1:
            self.world.deaths -= 1
            self.die()
        elif isinstance(message, ProcessRecords):
            numbers = [(record.sequence_number, record.sub_sequence_number) for record in message.records]
            self.got += [f"{number}/{sub}" for number, sub in numbers]
            done = numbers if dice > 0.3 else numbers[: len(numbers) // 2]
            self.world.processed += [record.payload.decode() for record in message.records[: len(done)]]
            if dice < 0.3 and not done:
                self.die()
            elif dice < 0.6 or dice == 1.0:
                self.request(
                    CheckpointRequest(*done[-1]),
                    self.die if dice < 0.3 else lambda: self.say(Status(message.action)),
                )
                self.world.deaths -= dice < 0.3
            else:
                self.say(Status(message.action))
        elif isinstance(message, (ShardEnded, ShutdownRequested)):
            self.request(CheckpointRequest(), lambda: self.say(Status(message.action)))
        else:
            assert isinstance(message, (Initialize, LeaseLost))
            self.say(Status(message.action))

    def request(self, request: CheckpointRequest, then: Callable[[], None]) -> None:
        self.after_answer = then
        self.say(request)


class World:
    """Takes the place of `Children`."""

    empty_batches = False

    def __init__(self, seed: int, deaths: int) -> None:
        self.rng = Random(seed)
        self.deaths = deaths
        self.children: list[MemoryChild] = []
        self.ended: list[int] = []
        self.failed: list[str] = []
        self.processed: list[str] = []
        self.starts: list[tuple[str | None, int | None]] = []
        self.clock = VirtualClock()

    def start(self, shard: ShardContext, on_ended: Callable[[], None]) -> ChildSession:
        self.children.append(MemoryChild(self, len(self.children)))
        return ChildSession(
            cast(ChildProcess, self.children[-1]),
            shard_id=shard.shard_id,
            timeout=None,
            clock=self.clock,
            run_soon=lambda function: function(),
            wait_for_stop=lambda seconds: False,
            on_ended=on_ended,
            logger=FieldLogger(logging.getLogger("test")),
        )

    def end(self, session: ChildSession) -> None:
        self.ended.append(session.process.pid)

    def end_failed(self, session: ChildSession, error: CallFailedError) -> RestartShardError:
        self.ended.append(session.process.pid)
        self.failed.append(str(error))
        return RestartShardError(str(error))

    def handler(self) -> ChildHandler:
        return ChildHandler(cast(Children, self))


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", fuzz.seeds(unit=2, fuzz=200))
def test_every_record_is_processed_whenever_children_die(
    seed: int, kinesis_stream: TestStream, kinesis_worker: Callable[..., Any]
) -> None:
    world = World(seed, deaths=6)
    worker = kinesis_worker(world.handler)
    names: list[str] = []
    for part in range(8):
        more = [f"{part}-{number}" for number in range(world.rng.randrange(1, 6))]
        names += more
        if world.rng.random() < 0.5:
            kinesis_stream.put_aggregate([("k", name.encode()) for name in more])
        else:
            kinesis_stream.put("k", *(name.encode() for name in more))
        worker.run_for(world.rng.choice([0.5, 5, 60]))
    world.deaths = 0
    worker.run_for(300)
    worker.stop()
    assert set(world.processed) == set(names)
    # In order, apart from what came again after a restart.
    assert list(dict.fromkeys(world.processed)) == names
    assert sorted(world.ended) == list(range(len(world.children)))
    every = [f"{record.sequence_number}/{record.sub_sequence_number}" for record in kinesis_stream.records]
    for child, (number, sub) in zip(world.children, world.starts, strict=True):
        # A child gets what comes after the checkpoint that it was started with, each record once and none left out.
        begin = every.index(f"{number}/{sub}") + 1 if f"{number}/{sub}" in every else 0
        assert child.got == every[begin : begin + len(child.got)]
    (lease,) = worker.leases.list()
    assert lease.owner is None
    assert world.children[-1].history[-3:] == ["shutdownRequested", "checkpoint", "leaseLost"]


def test_a_child_that_dies_between_two_calls_is_noticed_without_new_records(
    kinesis_stream: TestStream, kinesis_worker: Callable[..., Any]
) -> None:
    world = World(0, deaths=0)
    worker = kinesis_worker(world.handler)
    kinesis_stream.put("k", b"1")
    worker.run_for(5)
    world.children[0].die()
    ((consumer, _),) = worker._engine._consumers.values()
    consumer._handler.inner._session.on_message()  # as the reader of a real child does at its end
    worker.run_for(30)
    assert len(world.children) == 2
    assert world.failed == ["it exited with code 1 during processRecords"]


def test_a_failure_while_the_lease_is_lost_ends_the_child_without_an_error() -> None:
    world = World(0, deaths=0)
    handler = world.handler()
    handler.lease_lost()  # without a child: its start had failed
    assert world.ended == []
    with pytest.raises(RestartShardError, match="there is no child for shardEnded"):
        handler.shard_ended(cast(Any, None))
