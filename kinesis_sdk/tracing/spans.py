"""Spans and their attributes, and the contexts that travel in headers: common to producers and consumers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from kinesis_sdk._version import __version__
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.extras import install_hint
from kinesis_sdk.common.headers import MAX_HEADER_BYTES, encode_headers
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.log_throttle import CountingLogThrottle
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.validation import check_int

try:
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.propagators.textmap import Getter, TextMapPropagator
except ImportError as _error:
    raise ImportError(install_hint("Tracing", "opentelemetry-api", "opentelemetry")) from _error

_LOGGER = FieldLogger(logging.getLogger(__name__))

MAX_LINKS = 128
"""Links of a span unless the user says otherwise: what the OpenTelemetry SDK keeps by default."""

_MOST_LINKS = 10_000


_KINDS = {
    "create": trace.SpanKind.PRODUCER,
    "send": trace.SpanKind.CLIENT,
    "process": trace.SpanKind.CONSUMER,
}


class _HeaderGetter(Getter[Mapping[str, "str | bytes"]]):
    """Gives headers to a propagator. A value that is too large or not text does not exist for it."""

    def get(self, carrier: Mapping[str, str | bytes], key: str) -> list[str] | None:
        value = carrier.get(key)
        if value is None or len(value) > MAX_HEADER_BYTES:
            return None
        if isinstance(value, str):
            return [value]
        try:
            return [value.decode()]
        except UnicodeDecodeError:
            return None

    def keys(self, carrier: Mapping[str, str | bytes]) -> list[str]:
        return list(carrier)


_GETTER = _HeaderGetter()


class Spans:
    """Makes spans, writes their contexts into headers and reads contexts there. Thread-safe.

    Args:
        provider: Provider of the tracer; None means the global one.
        propagator: Names and format of the headers; None means the global one.
        max_links: Maximum links of a span, 0 to 10,000.

    Raises:
        ConfigError: If an argument is not valid.
    """

    def __init__(
        self, provider: trace.TracerProvider | None, propagator: TextMapPropagator | None, max_links: int
    ) -> None:
        check_int("max_links", max_links, 0, _MOST_LINKS)
        if provider is not None and not isinstance(provider, trace.TracerProvider):
            raise ConfigError("tracer_provider", provider, "a TracerProvider of OpenTelemetry, or None")
        if propagator is None:
            propagator = propagate.get_global_textmap()
        if not isinstance(propagator, TextMapPropagator):
            raise ConfigError("propagator", propagator, "a TextMapPropagator of OpenTelemetry, or None")
        self._fields = tuple(sorted(propagator.fields))
        try:
            encode_headers(dict.fromkeys(self._fields, ""))
        except ValueError as error:
            raise ConfigError(
                "propagator", self._fields, f"fields that are names of headers ({error})"
            ) from None
        self._tracer = trace.get_tracer("kinesis_sdk", __version__, provider)
        self._propagator = propagator
        self._max_links = max_links
        self._errors = CountingLogThrottle(_LOGGER, logging.WARNING)

    def start(
        self,
        operation: str,
        stream: StreamId,
        attributes: Mapping[str, str | int],
        links: Iterable[trace.Link] = (),
        *,
        root: bool = False,
    ) -> trace.Span:
        """Start the span of an operation, as a child of the current one unless it is a root."""
        common = {
            "messaging.system": "aws_kinesis",
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
            "messaging.destination.name": stream.name,
            "aws.kinesis.stream_name": stream.name,
        }
        if stream.is_of_table:
            common["messaging.system"] = "aws_dynamodb_streams"
            del common["aws.kinesis.stream_name"]
        return self._tracer.start_span(
            f"{operation} {stream.name}",
            Context() if root else None,
            _KINDS[operation],
            {**common, **attributes},
            tuple(links),
        )

    def with_context(
        self, headers: Mapping[str, str | bytes], created: trace.Span | None
    ) -> Mapping[str, str | bytes]:
        """Return headers with a creation context: that of a span, or the current one.

        Raises:
            ValueError: If they are more than a record takes.
        """
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, None if created is None else trace.set_span_in_context(created))
        if not carrier:
            return headers
        merged = {**headers, **carrier}
        encode_headers(merged)
        return merged

    def context_in(self, headers: Mapping[str, str | bytes]) -> trace.SpanContext | None:
        """Return the creation context in headers, from anywhere; None without a valid one."""
        if not any(map(headers.get, self._fields)):
            return None
        try:
            context = self._propagator.extract(headers, Context(), _GETTER)
            found = trace.get_current_span(context).get_span_context()
        except Exception as error:  # noqa: BLE001 - a header may make a propagator raise, and no record depends on it
            self._errors.log(  # without the traceback, whose last line may show the header
                "the headers of a record could not be read as a trace (%d times so far): %s; its span has no link",
                type(error).__qualname__,
            )
            return None
        return found if found.is_valid else None

    def links_to(self, each: Iterable[Mapping[str, bytes]]) -> list[trace.Link]:
        """Return links to the distinct creation contexts in the headers of records.

        Reads at most ``max_links`` distinct sets of headers, so what it does is bounded whatever they contain.
        """
        read: set[tuple[bytes | None, ...]] = set()
        found: dict[tuple[int, int], trace.Link] = {}
        last: Mapping[str, bytes] | None = None
        for headers in each:
            if headers is last:
                continue
            last = headers
            values = tuple(map(headers.get, self._fields))
            if values in read or not any(values):
                continue
            if len(read) == self._max_links:
                break
            read.add(values)
            context = self.context_in(headers)
            if context is not None:
                found.setdefault((context.trace_id, context.span_id), trace.Link(context))
        return list(found.values())

    @contextmanager
    def around(self, span: trace.Span) -> Iterator[None]:
        """Make a span the current one, mark it if an error passes, and end it."""
        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                yield
        except BaseException as error:
            # Neither its text nor its traceback: they may show payloads.
            mark_failed(
                span, f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
            )
            raise
        finally:
            self.end(span)

    def end(self, span: trace.Span) -> None:
        """End a span; log what its processors raise."""
        try:
            span.end()
        except Exception as error:  # noqa: BLE001 - see `log`
            self.log(error)

    def log(self, error: Exception) -> None:
        """Log that a span or its headers are missing: no record and no call of a handler depends on them."""
        self._errors.log("tracing failed (%d times so far); records and batches go on", error=error)


def mark_failed(span: trace.Span, error_type: str) -> None:
    """Give a span the status of a failure."""
    span.set_status(trace.Status(trace.StatusCode.ERROR))
    span.set_attribute("error.type", error_type)
