"""Events of a fan-out subscription: their content and their readers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from typing import Any, Protocol

from kinesis_sdk.common.errors import ProtocolError
from kinesis_sdk.common.records import KinesisRecord, check_records
from kinesis_sdk.common.response_header import ResponseHeader
from kinesis_sdk.common.sequence import check_sequence_numbers
from kinesis_sdk.common.service_clock import ServiceClock
from kinesis_sdk.consumer.fetch.fetcher import FetchResult, read_child_shards


class Next(Enum):
    """Instruction of a sink to its reader."""

    READ = "the next event"
    WAIT = "the same event again, once there is room for it"
    STOP = "nothing: the shard or the subscription ended"


class EventSink(Protocol):
    """Receiver of the events of a subscription, which never waits."""

    def accept(self, reader: EventReader, event: Mapping[str, Any]) -> Next:
        """Take an event; raise `ProtocolError` if it is malformed. If there is no room for the event, the sink holds it."""
        ...

    def retry(self, reader: EventReader) -> Next:
        """Take the held event, after `EventReader.resume`."""
        ...

    def stream_ended(self, reader: EventReader, error: Exception | None) -> None:
        """Called when a subscription has ended, either normally (None) or with an error."""
        ...


class EventReader:
    """Passes the events of one subscription (boto3's ``EventStream``) to its fetcher, one at a time.

    Attributes:
        stream: The ``EventStream``.
        started: Monotonic time at which the subscription started.
        accepted: Number of events that the sink accepted.
        on_resume: Called from any thread when `read_one` may be called again after it returned WAIT.
    """

    def __init__(self, stream: Any, sink: EventSink, started: float) -> None:
        self.stream: Any = stream
        self.started = started
        self.accepted = 0
        self.on_resume: Callable[[], None] = lambda: None
        self._events: Iterator[Mapping[str, Any]] = iter(stream)
        self._sink = sink
        self._waits = False

    def run(self) -> None:
        """Read events until the subscription ends, on a thread of its own."""
        # Set before the reading begins, and cleared before an event is tried again: a call in between is not lost.
        resumed = threading.Event()
        self.on_resume = resumed.set
        while (following := self.read_one()) is not Next.STOP:
            if following is Next.WAIT:
                resumed.wait()
                resumed.clear()

    def read_one(self) -> Next:
        """Wait for one event, or retry the held event, and pass it to the sink."""
        following = Next.STOP
        try:
            following = self._sink.retry(self) if self._waits else self._sink.accept(self, next(self._events))
            self._waits = following is Next.WAIT
        except StopIteration:
            self._sink.stream_ended(self, None)
        except Exception as error:  # noqa: BLE001 - from botocore, urllib3 or the socket; the sink translates it
            self._sink.stream_ended(self, error)
        finally:
            # Only the reading thread closes the stream. Another thread would block in `close` until the read returns, which may
            # take as long as Kinesis is silent.
            if following is Next.STOP:
                self.close()
        return following

    def close(self) -> None:
        """Close the connection. Call only where no thread reads from it."""
        with suppress(OSError):  # the connection is no longer needed
            self.stream.close()


def start_thread(reader: EventReader, shard_id: str) -> None:
    """Run a reader on a daemon thread of its own."""
    threading.Thread(target=reader.run, name=f"kinesis-fanout-{shard_id}", daemon=True).start()


def read_event(
    content: Mapping[str, Any],
    shard_id: str,
    started_at_millis: int | None,
    read_at: float,
    service_clock: ServiceClock,
) -> tuple[FetchResult, str | None]:
    """Return the records of a ``SubscribeToShardEvent``, and the sequence number after which the subscription continues.

    The sequence number is None at the end of the shard. An event that the KCL's ``FanOutRecordsPublisher.isValidEvent`` rejects
    raises `ProtocolError`.
    """
    following = content.get("ContinuationSequenceNumber")
    children = read_child_shards(content.get("ChildShards"), shard_id)
    records = content.get("Records")
    if not isinstance(records, list) or bool(following) == bool(children):
        raise ProtocolError(
            f"SubscribeToShard: an event of shard {shard_id} has {len(children)} child shards, "
            f"{'a' if following else 'no'} continuation and "
            f"{'records' if isinstance(records, list) else 'no Records'}"
        )
    try:
        read = [KinesisRecord.from_api(item) for item in records]
        check_records(read)
        check_sequence_numbers([following] if following else [])
        header = ResponseHeader.from_api(content, ended=not following)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise ProtocolError(
            f"SubscribeToShard: an event of shard {shard_id} cannot be read ({type(error).__name__}: {error})"
        ) from error
    header = replace(
        header,
        child_shards=children,
        read_at=read_at,
        arrivals=service_clock.arrivals(read, header.millis_behind_latest, read_at),
        service_time=service_clock.time_at(read_at),
    )
    result = FetchResult(records=read, header=header, started_at_millis=started_at_millis, pushed=True)
    return result, following


def joined(results: list[FetchResult]) -> FetchResult:
    """Return consecutive events as one result."""
    if len(results) == 1:
        return results[0]
    last = results[-1]
    arrivals = next((one.header.arrivals for one in reversed(results) if one.records), None)
    count = sum(len(result.records) for result in results)

    def charge(more: int) -> None:
        # Charge each event its share: the next event is expected to take as many bytes as the last event.
        for result in results:
            if result.records:
                result.charge(more * len(result.records) // count)

    def done() -> None:
        for result in results:
            result.on_done()

    return FetchResult(
        records=[record for result in results for record in result.records],
        header=replace(last.header, arrivals=arrivals),
        started_at_millis=last.started_at_millis,
        pushed=last.pushed,
        on_done=done,
        charge=charge,
    )
