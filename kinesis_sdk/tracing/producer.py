"""Spans of a producer: `create` for each record, `send` for each PutRecords request."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.headers import headers_in
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.validation import check_bool
from kinesis_sdk.producer import ProducerInterceptor, Put, SendRequest
from kinesis_sdk.tracing.spans import Tracing, mark_failed, spans_of


class ProducerTracing(ProducerInterceptor):
    """OpenTelemetry spans of a `Producer` or `AsyncProducer`, and their contexts in the headers of records. Thread-safe.

    | span | kind | what |
    |---|---|---|
    | ``create STREAM`` | PRODUCER | one record, a child of the caller's span; ends before ``put`` returns |
    | ``send STREAM`` | CLIENT | one PutRecords request, the root of a trace, with links to the creation contexts of its records |

    Each request is also recorded in the metrics ``messaging.client.operation.duration`` and ``messaging.client.sent.messages``.
    A record that already has a valid context in its headers keeps this context, and gets no `create` span. An error in tracing is logged,
    and the record is put without a span.

    Args:
        tracing: Where spans and metrics go; None means the defaults of `Tracing`.
        create_spans: Whether each record gets a span. If not, headers contain the context of the caller's span, and `send` spans link to
            that span.
        partition_keys: Whether `create` spans show partition keys, as ``kinesis_sdk.partition_key``.
        without_headers: Names of streams whose records get no headers. Streams that place records themselves reject headers, and readers
            without a library for aggregates cannot read records with headers.

    Raises:
        ImportError: If ``opentelemetry`` is not installed.
        ConfigError: If an argument is not valid.
    """

    def __init__(
        self,
        tracing: Tracing | None = None,
        *,
        create_spans: bool = True,
        partition_keys: bool = False,
        without_headers: Collection[str] = (),
    ) -> None:
        check_bool("create_spans", create_spans)
        check_bool("partition_keys", partition_keys)
        if isinstance(without_headers, str):
            raise ConfigError("without_headers", without_headers, "a list of names of streams")
        self._spans = spans_of(tracing)
        self._create_spans = create_spans
        self._partition_keys = partition_keys
        self._without_headers = frozenset(StreamId.parse(name).name for name in without_headers)

    def on_put(self, put: Put) -> Put:
        """Return the record with the context of its creation in its headers."""
        try:
            return self._created(put)
        except Exception as error:  # noqa: BLE001 - a record does not depend on its trace
            self._spans.log(error)
            return put

    def _created(self, put: Put) -> Put:
        spans = self._spans
        if put.headers and spans.context_in(put.headers) is not None:
            return put
        stream, created = StreamId.parse(put.stream), None
        if self._create_spans:
            shown = self._partition_keys and put.partition_key is not None
            more = {"kinesis_sdk.partition_key": str(put.partition_key)} if shown else {}
            created = spans.start(spans.attributes("create", stream, more))
            spans.end(created)
        if stream.name in self._without_headers:
            return put
        return put._replace(headers=spans.with_context(put.headers, created))

    @contextmanager
    def on_request(self, request: SendRequest) -> Iterator[None]:
        """Create the `send` span."""
        spans, records = self._spans, request.records
        more = {
            "messaging.batch.message_count": len(records),
            "kinesis_sdk.kinesis_records": request.kinesis_records,
        }
        attributes = spans.attributes("send", request.stream, more)
        # Not noted in `on_accepted`: the producer's thread may send a record before its caller's thread gets there.
        links = spans.links_to(headers_in(record.header_fields) for record in records)
        span = spans.start(attributes, links, root=True)
        with spans.around(span, attributes, len(records)):
            yield
            if request.rejected:
                span.set_attribute("kinesis_sdk.rejected", request.rejected)
                mark_failed(span, "rejected")
                attributes["error.type"] = "rejected"
