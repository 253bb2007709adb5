"""Events of a fan-out subscription: their content, and the thread that waits for them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from kinesis_sdk.common.errors import ProtocolError
from kinesis_sdk.common.records import KinesisRecord, check_records
from kinesis_sdk.common.response_header import ResponseHeader
from kinesis_sdk.common.sequence import check_sequence_numbers
from kinesis_sdk.common.service_clock import ServiceClock
from kinesis_sdk.consumer.fetch.fetcher import FetchResult, read_child_shards


class EventSink(Protocol):
    """Receiver of the events of a subscription."""

    def accept(self, reader: EventReader, event: Mapping[str, Any]) -> bool:
        """Queue an event once there is room; raise `ProtocolError` if it is malformed.

        Return False if the shard ended with the event, or if another subscription has replaced this one.
        """
        ...

    def stream_ended(self, reader: EventReader, error: Exception | None) -> None:
        """Called when a subscription has ended: by itself (None), or with an error."""
        ...


class EventReader:
    """Passes the events of one subscription (boto3's ``EventStream``) to its fetcher, on a thread of its own.

    `started` is the monotonic time at which the subscription started, `accepted` the number of events that the sink accepted.
    """

    def __init__(self, stream: Any, sink: EventSink, started: float) -> None:
        self.started = started
        self.accepted = 0
        self._stream = stream
        self._events: Iterator[Mapping[str, Any]] = iter(stream)
        self._sink = sink

    def run(self) -> None:
        """Read events until the subscription ends."""
        while self.read_one():
            pass

    def read_one(self) -> bool:
        """Wait for one event and pass it to the sink; return whether more may follow."""
        more = False
        try:
            event = next(self._events)
            more = self._sink.accept(self, event)
        except StopIteration:
            self._sink.stream_ended(self, None)
        except Exception as error:  # noqa: BLE001 - from botocore, urllib3 or the socket; the sink translates it
            self._sink.stream_ended(self, error)
        finally:
            # Only the reading thread closes the stream. Another thread would block in `close` until the read returns, which may
            # take as long as Kinesis is silent.
            if not more:
                self.close()
        return more

    def close(self) -> None:
        """Close the connection. Call only where no thread reads from it."""
        with suppress(OSError):  # the connection is no longer needed
            self._stream.close()


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
        # Charge each event its share: the next event is expected to take as many bytes as the last one.
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
