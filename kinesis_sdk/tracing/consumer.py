"""Spans of a consumer: `receive` for GetRecords calls, `process` for calls of a handler, `settle` for checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from kinesis_sdk.common.interceptors import ConsumerInterceptor, DeliveredBatch
from kinesis_sdk.common.record_ids import record_id
from kinesis_sdk.common.response_header import ResponseHeader
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.validation import check_text
from kinesis_sdk.tracing.spans import Tracing, spans_of

if TYPE_CHECKING:
    from opentelemetry.trace import Link

_MAX_SHARDS = 10_000
"""Maximum shards whose last response is kept. When it is exceeded, all are forgotten, so a response may have two `receive` spans."""


class ConsumerTracing(ConsumerInterceptor):
    """OpenTelemetry spans of a worker, or of a Lambda function. Thread-safe.

    | span | kind | what |
    |---|---|---|
    | ``receive STREAM`` | CLIENT | a GetRecords call whose records are delivered, the root of a trace; made when its first record is delivered. Not with enhanced fan-out, nor in Lambda |
    | ``process STREAM`` | CONSUMER | a call of the handler, plain or a coroutine, in which it is the current span |
    | ``settle STREAM`` | CLIENT | storing a checkpoint |

    `receive` and `process` have links to the creation contexts in the headers of their records. An invalid context never fails
    a delivery: its record has no link. Each operation is also recorded in the metrics of the messaging conventions.

    Args:
        tracing: Where spans and metrics go; None means the defaults of `Tracing`.
        application_name: Name of the application, for ``messaging.consumer.group.name``; None leaves it out.

    Raises:
        ImportError: If ``opentelemetry`` is not installed.
        ConfigError: If an argument is not valid.
    """

    def __init__(self, tracing: Tracing | None = None, *, application_name: str | None = None) -> None:
        if application_name is not None:
            check_text("application_name", application_name)
        self._spans = spans_of(tracing)
        self._group = {} if application_name is None else {"messaging.consumer.group.name": application_name}
        self._received: dict[tuple[StreamId, str], ResponseHeader] = {}

    def on_batch(self, batch: DeliveredBatch) -> AbstractContextManager[None]:
        """Return the span of a call as a context manager; an empty batch has none."""
        if not batch.records:
            return nullcontext()
        try:
            return self._process(batch)
        except Exception as error:  # noqa: BLE001 - a delivery does not depend on its span
            self._spans.log(error)
            return nullcontext()

    def _process(self, batch: DeliveredBatch) -> AbstractContextManager[None]:
        stream, records = batch.stream, batch.records
        more = self._of_shard(batch.shard_id)
        links = self._spans.links_to(record.headers for record in records)
        header = getattr(batch, "header", None)
        if header is not None and header.requested_at is not None:
            self._receive(stream, batch.shard_id, header, links)
        if len(records) == 1:
            (record,) = records
            more["messaging.message.id"] = record_id(
                stream.name, batch.shard_id, record.sequence_number, record.sub_sequence_number
            )
        else:
            more["messaging.batch.message_count"] = len(records)
        attributes = self._spans.attributes("process", stream, more)
        return self._spans.around(self._spans.start(attributes, links), attributes, len(records))

    def _receive(self, stream: StreamId, shard_id: str, header: ResponseHeader, links: list[Link]) -> None:
        """Create the span of the response that a batch belongs to, unless an earlier batch of the response created it."""
        if self._received.get((stream, shard_id)) is header:
            return
        if len(self._received) >= _MAX_SHARDS:
            self._received.clear()
        self._received[stream, shard_id] = header
        assert header.requested_at is not None
        assert header.read_at is not None
        attributes = self._spans.attributes("receive", stream, self._of_shard(shard_id))
        self._spans.past(attributes, links, header.requested_at, header.read_at)

    @contextmanager
    def on_checkpoint(
        self, stream: StreamId, shard_id: str, position: ExtendedSequenceNumber
    ) -> Iterator[None]:
        """Create the `settle` span."""
        more = {**self._of_shard(shard_id), "kinesis_sdk.position": str(position)}
        attributes = self._spans.attributes("settle", stream, more)
        with self._spans.around(self._spans.start(attributes), attributes):
            yield

    def _of_shard(self, shard_id: str) -> dict[str, str | int]:
        return {"messaging.destination.partition.id": shard_id, **self._group}
