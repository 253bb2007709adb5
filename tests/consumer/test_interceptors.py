"""Interceptors around the handler of a worker: for plain functions, coroutines, classes and sinks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import pytest

from kinesis_sdk import (
    ConfigError,
    ConsumerConfig,
    ConsumerInterceptor,
    DeliveredBatch,
    HandlerError,
    InMemorySink,
    KinesisSdkError,
    LeaseStoreError,
    RecordBatch,
    RecordHandler,
    UserRecord,
    Worker,
)
from kinesis_sdk.consumer.leases.ownership.held_lease import HeldLease
from kinesis_sdk.pytest_plugin import SteppedWorker, TestStream
from kinesis_sdk.testing import FakeAws, VirtualClock

SPAN: ContextVar[str] = ContextVar("span", default="none")


class Span(ConsumerInterceptor):
    """Sets a context variable around each call, and notes what it sees."""

    def __init__(self, name: str = "a", heard: list[Any] | None = None) -> None:
        self.name = name
        self.heard: list[Any] = [] if heard is None else heard

    @contextmanager
    def on_batch(self, batch: DeliveredBatch) -> Iterator[None]:
        token = SPAN.set(f"{SPAN.get()} > {self.name}")
        self.heard.append((self.name, [record.data for record in batch.records], str(batch.stream)))
        try:
            yield
        except Exception as error:
            self.heard.append((self.name, "raised", str(error)))
            raise
        else:
            self.heard.append((self.name, "done"))
        finally:
            SPAN.reset(token)


@pytest.fixture
def stream() -> TestStream:
    return TestStream(FakeAws(clock=VirtualClock()), "orders")


def consume(
    stream: TestStream, handler: Any, *interceptors: Any, policy: Any = "retry", **more: Any
) -> SteppedWorker:
    config = ConsumerConfig(initial_position="TRIM_HORIZON", on_handler_error=policy)
    worker = SteppedWorker(stream, handler, config, interceptors=interceptors, **more)
    worker.run()
    return worker


def handlers(seen: list[Any], fails: int) -> dict[str, Callable[[], Any]]:
    """A handler of each kind, which fails some times first."""
    left = [fails]

    def note(batch: RecordBatch) -> None:
        seen.append((SPAN.get(), [record.data for record in batch.records]))
        if left[0]:
            left[0] -= 1
            raise ValueError("not yet")

    async def coroutine(batch: RecordBatch) -> None:
        note(batch)

    def returns_one(batch: RecordBatch) -> Any:
        return coroutine(batch)

    class Object:
        async def __call__(self, batch: RecordBatch) -> None:
            note(batch)

    class Plain(RecordHandler):
        def process_records(self, batch: RecordBatch) -> None:
            note(batch)
            batch.checkpoint()

    class Awaiting(RecordHandler):
        async def process_records(self, batch: RecordBatch) -> None:  # type: ignore[override]
            note(batch)
            batch.checkpoint()

    return {
        "function": lambda: note,
        "coroutine function": lambda: coroutine,
        "object with a coroutine": Object,
        "function that returns a coroutine": lambda: returns_one,
        "class": lambda: Plain,
        "class with a coroutine": lambda: Awaiting,
    }


@pytest.mark.parametrize("kind", handlers([], 0))
def test_they_stand_around_every_kind_of_handler(stream: TestStream, kind: str) -> None:
    seen: list[Any] = []
    heard: list[Any] = []
    stream.put("k", b"0", b"1")
    consume(stream, handlers(seen, 1)[kind](), Span("a", heard), Span("b", heard))
    assert seen == [("none > a > b", [b"0", b"1"])] * 2
    around = [("a", [b"0", b"1"], "orders"), ("b", [b"0", b"1"], "orders")]
    assert heard == [
        *around,
        ("b", "raised", "not yet"),
        ("a", "raised", "not yet"),
        *around,
        ("b", "done"),
        ("a", "done"),
    ]
    assert SPAN.get() == "none"


class Upper(ConsumerInterceptor):
    """Delivers other payloads; ``lie`` shifts them."""

    def __init__(self, lie: Callable[[list[UserRecord]], Any] = list) -> None:
        self.lie = lie

    @contextmanager
    def on_batch(self, batch: DeliveredBatch) -> Iterator[Sequence[UserRecord]]:
        yield self.lie([record._replace(data=record.data.upper()) for record in batch.records])


def test_a_batch_may_be_replaced_and_the_next_interceptor_sees_that(stream: TestStream) -> None:
    seen: list[Any] = []
    inner = Span("b")
    stream.put("k", b"a", b"b")
    worker = consume(stream, handlers(seen, 0)["function"](), Upper(), inner)
    assert seen == [("none > b", [b"A", b"B"])]
    assert inner.heard[0] == ("b", [b"A", b"B"], "orders")
    (lease,) = worker.leases.list()
    assert lease.checkpoint.sequence_number == stream.records[-1].sequence_number


@pytest.mark.parametrize(
    "lie",
    [
        lambda records: records[:-1],
        lambda records: [*records, records[-1]],
        lambda records: records[::-1],
        lambda records: [],
    ],
)
def test_other_positions_are_refused(stream: TestStream, lie: Any) -> None:
    seen: list[Any] = []
    outer = Span("a")
    stream.put("k", b"a", b"b")
    with pytest.raises(HandlerError, match=r"Upper\.on_batch"):
        consume(stream, handlers(seen, 0)["function"](), outer, Upper(lie), policy="stop")
    assert seen == []
    assert outer.heard[-1][:2] == ("a", "raised"), "those outside are told"


class Suppressing(ConsumerInterceptor):
    @contextmanager
    def on_batch(self, batch: DeliveredBatch) -> Iterator[None]:
        with suppress(ValueError):
            yield


@pytest.mark.parametrize("kind", ["function", "coroutine function"])
def test_an_error_of_the_handler_cannot_be_suppressed(stream: TestStream, kind: str) -> None:
    seen: list[Any] = []
    stream.put("k", b"0")
    consume(stream, handlers(seen, 3)[kind](), Suppressing())
    assert len(seen) == 4, "delivered until it was processed"


@pytest.mark.parametrize("when", ["call", "enter", "exit"])
def test_what_they_raise_counts_as_raised_by_the_handler(stream: TestStream, when: str) -> None:
    left = [2]

    def fail(now: str) -> None:
        if now == when and left[0]:
            left[0] -= 1
            raise RuntimeError(now)

    class Failing(ConsumerInterceptor):
        def on_batch(self, batch: DeliveredBatch) -> Any:
            fail("call")

            @contextmanager
            def around() -> Iterator[None]:
                fail("enter")
                yield
                fail("exit")

            return around()

    seen: list[Any] = []
    stream.put("k", b"0")
    consume(stream, handlers(seen, 0)["function"](), Failing())
    assert len(seen) == (3 if when == "exit" else 1)
    assert left == [0]


@pytest.mark.parametrize("kind", ["function", "coroutine function"])
def test_the_transaction_of_a_sink_is_inside_of_them(stream: TestStream, kind: str) -> None:
    sink = InMemorySink()
    effects: list[Any] = []

    class Around(ConsumerInterceptor):
        @contextmanager
        def on_batch(self, batch: DeliveredBatch) -> Iterator[None]:
            before = len(sink.effects)
            yield
            effects.append((before, len(sink.effects), threading.current_thread().name))

    def plain(batch: RecordBatch) -> None:
        batch.transaction.extend(record.data for record in batch.records)

    async def coroutine(batch: RecordBatch) -> None:
        plain(batch)

    stream.put("k", b"0", b"1")
    consume(stream, plain if kind == "function" else coroutine, Around(), sink=sink)
    assert [one[:2] for one in effects] == [(0, 2)]
    assert sink.effects == [b"0", b"1"]


def test_keys_side_by_side_are_wrapped_each(stream: TestStream) -> None:
    seen: list[Any] = []
    span = Span()
    for number in range(4):
        stream.put(f"k{number % 2}", b"%d" % number)
    config = ConsumerConfig(initial_position="TRIM_HORIZON", concurrency=2)
    worker = SteppedWorker(stream, handlers(seen, 0)["function"](), config, interceptors=[span])
    worker.run()
    assert sorted(seen) == [("none > a", [b"0", b"2"]), ("none > a", [b"1", b"3"])]


def test_what_is_no_interceptor_is_refused() -> None:
    for wrong in (Span, object()):
        with pytest.raises(ConfigError, match="interceptors"):
            Worker("orders", application_name="billing", handler=print, interceptors=[wrong])  # type: ignore[list-item]


class Storing(ConsumerInterceptor):
    """Notes checkpoints, and fails where it is told to."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.heard: list[str] = []

    @contextmanager
    def on_checkpoint(self, stream: Any, shard_id: str, position: Any) -> Iterator[None]:
        if self.fails == "before":
            raise RuntimeError("broken")
        try:
            yield
        except KinesisSdkError as error:
            self.heard.append(type(error).__name__)
        else:
            self.heard.append(f"{stream} {shard_id} {position}")
        if self.fails == "after":
            raise RuntimeError("broken")


@pytest.mark.parametrize("fails", ["", "before", "after"])
def test_they_stand_around_checkpoints_which_do_not_depend_on_them(
    stream: TestStream, fails: str, caplog: pytest.LogCaptureFixture
) -> None:
    stream.put("k", b"0")
    last, heard = stream.records[-1].sequence_number, Storing()
    worker = consume(stream, lambda batch: None, Storing(fails), heard)
    (lease,) = worker.leases.scan().leases
    assert str(lease.checkpoint) == f"{last}/0"
    assert heard.heard == [f"orders shardId-000000000000 {last}/0"]
    assert ("on_checkpoint raised" in caplog.text) is bool(fails)


def test_an_error_of_a_checkpoint_is_shown_and_cannot_be_suppressed(
    stream: TestStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: Any) -> None:
        raise LeaseStoreError("no")

    stream.put("k", b"0")
    heard = Storing()
    monkeypatch.setattr(HeldLease, "checkpoint", refuse)
    with pytest.raises(LeaseStoreError):
        consume(stream, lambda batch: None, heard)
    assert heard.heard[:1] == ["LeaseStoreError"]
