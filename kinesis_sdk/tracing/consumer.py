"""Spans of a consumer: `process` for each call of a handler."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from kinesis_sdk.common.interceptors import ConsumerInterceptor, DeliveredBatch
from kinesis_sdk.common.record_ids import record_id
from kinesis_sdk.common.validation import check_text
from kinesis_sdk.tracing.spans import MAX_LINKS, Spans

if TYPE_CHECKING:
    from opentelemetry import trace
    from opentelemetry.propagators.textmap import TextMapPropagator


class ConsumerTracing(ConsumerInterceptor):
    """OpenTelemetry spans of a worker's handler, or of a Lambda function's. Thread-safe.

    Each call of the handler is a span ``process STREAM`` of the kind CONSUMER with links to the creation contexts in the headers of its records. It is
    the current span in the handler, plain or a coroutine. Contexts in headers cannot fail a delivery: what is not valid has no link.

    Args:
        tracer_provider: Where the spans go; None means the global one.
        propagator: Names and format of the headers; None means the global one at this moment (by default ``traceparent``, ``tracestate`` and
            ``baggage``).
        application_name: Name of the application, for ``messaging.consumer.group.name``; None leaves it out.
        max_links: Maximum links of a span, 0 to 10,000; no more distinct contexts are read. The OpenTelemetry SDK keeps 128 links, unless
            ``OTEL_SPAN_LINK_COUNT_LIMIT`` says otherwise.

    Raises:
        ImportError: If ``opentelemetry`` is not installed.
        ConfigError: If an argument is not valid.
    """

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        propagator: TextMapPropagator | None = None,
        application_name: str | None = None,
        max_links: int = MAX_LINKS,
    ) -> None:
        if application_name is not None:
            check_text("application_name", application_name)
        self._spans = Spans(tracer_provider, propagator, max_links)
        self._application_name = application_name

    def on_batch(self, batch: DeliveredBatch) -> AbstractContextManager[None]:
        """Return the span of a call as a context manager; an empty batch has none."""
        if not batch.records:
            return nullcontext()
        try:
            return self._spans.around(self._started(batch))
        except Exception as error:  # noqa: BLE001 - a delivery does not depend on its span
            self._spans.log(error)
            return nullcontext()

    def _started(self, batch: DeliveredBatch) -> trace.Span:
        stream, records = batch.stream, batch.records
        attributes: dict[str, str | int] = {"messaging.destination.partition.id": batch.shard_id}
        if self._application_name is not None:
            attributes["messaging.consumer.group.name"] = self._application_name
        if len(records) == 1:
            (record,) = records
            attributes["messaging.message.id"] = record_id(
                stream.name, batch.shard_id, record.sequence_number, record.sub_sequence_number
            )
        else:
            attributes["messaging.batch.message_count"] = len(records)
        links = self._spans.links_to(record.headers for record in records)
        return self._spans.start("process", stream, attributes, links)
