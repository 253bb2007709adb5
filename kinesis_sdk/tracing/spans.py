"""Spans, their attributes and metrics, and the contexts in headers, for both producers and consumers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kinesis_sdk._version import __version__
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.extras import install_hint
from kinesis_sdk.common.headers import MAX_HEADER_BYTES, encode_headers
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.log_throttle import CountingLogThrottle
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.validation import check_int

try:
    from opentelemetry import metrics, propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.propagators.textmap import Getter, TextMapPropagator
except ImportError as _error:
    raise ImportError(install_hint("Tracing", "opentelemetry-api", "opentelemetry")) from _error

_LOGGER = FieldLogger(logging.getLogger(__name__))

MAX_LINKS = 128
"""Default of the maximum links of a span: the number that the OpenTelemetry SDK keeps by default."""

_MOST_LINKS = 10_000


_KINDS = {
    "create": trace.SpanKind.PRODUCER,
    "send": trace.SpanKind.CLIENT,
    "receive": trace.SpanKind.CLIENT,
    "settle": trace.SpanKind.CLIENT,
    "process": trace.SpanKind.CONSUMER,
}

_OF_METRICS = (
    "messaging.system",
    "messaging.operation.name",
    "messaging.operation.type",
    "messaging.destination.name",
    "messaging.destination.partition.id",
    "messaging.consumer.group.name",
    "error.type",
)
"""Attributes of spans that metrics also have."""

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""Bounds of the histograms of durations, as the conventions advise."""


class _HeaderGetter(Getter[Mapping[str, "str | bytes"]]):
    """Passes headers to a propagator, without values that are too large or not text."""

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


class Tracing:
    """Settings that `ProducerTracing`, `ConsumerTracing` and `BatchTracing` share. Thread-safe.

    Args:
        tracer_provider: Provider for spans; None uses the global provider.
        meter_provider: Provider for metrics; None uses the global provider.
        propagator: Defines names and format of the headers; None uses the propagator that is global now (by default, it writes
            ``traceparent``, ``tracestate`` and ``baggage``).
        max_links: Maximum links of a span, 0 to 10,000 (default 128); at most this number of distinct contexts is read. The OpenTelemetry
            SDK keeps 128 links, unless ``OTEL_SPAN_LINK_COUNT_LIMIT`` is set.
        clock: Monotonic and wall clock for durations; replaced in tests.

    Raises:
        ImportError: If ``opentelemetry`` is not installed.
        ConfigError: If an argument is not valid.
    """

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        propagator: TextMapPropagator | None = None,
        max_links: int = MAX_LINKS,
        clock: Clock | None = None,
    ) -> None:
        if meter_provider is not None and not isinstance(meter_provider, metrics.MeterProvider):
            raise ConfigError("meter_provider", meter_provider, "a MeterProvider of OpenTelemetry, or None")
        self._spans = Spans(
            tracer_provider, propagator, max_links, Instruments(meter_provider), clock or SystemClock()
        )


def spans_of(tracing: Tracing | None) -> Spans:
    """Return the `Spans` for the settings; None uses the defaults."""
    if tracing is not None and not isinstance(tracing, Tracing):
        raise ConfigError("tracing", tracing, "a Tracing, or None")
    return (tracing or Tracing())._spans


def _histogram(meter: metrics.Meter, name: str, description: str) -> metrics.Histogram:
    create: Any = meter.create_histogram
    try:
        found: metrics.Histogram = create(
            name, "s", description, explicit_bucket_boundaries_advisory=list(_SECONDS)
        )
    except TypeError:  # an API before 1.29: the buckets come from the reader or a view
        found = create(name, "s", description)
    return found


class Instruments:
    """The metrics of the messaging conventions."""

    def __init__(self, provider: metrics.MeterProvider | None) -> None:
        meter = metrics.get_meter("kinesis_sdk", __version__, provider)
        self._operations = _histogram(
            meter, "messaging.client.operation.duration", "Duration of calls: send, receive, settle."
        )
        self._processing = _histogram(
            meter, "messaging.process.duration", "Duration of calls of the handler."
        )
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "User records in requests to Kinesis."
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "User records delivered to the handler."
        )

    def record(self, seconds: float, attributes: Mapping[str, str | int], messages: int) -> None:
        """Record an operation that has ended, with the attributes of its span."""
        known = {name: attributes[name] for name in _OF_METRICS if name in attributes}
        operation = known["messaging.operation.name"]
        duration = self._processing if operation == "process" else self._operations
        duration.record(max(0.0, seconds), known)
        if messages:
            (self._sent if operation == "send" else self._consumed).add(messages, known)


class Spans:
    """Creates spans, writes their contexts into headers, and reads contexts from headers. Thread-safe.

    It takes the arguments of `Tracing`. Attributes: `max_links`, and `fields`, the names of the propagator's headers.
    """

    def __init__(
        self,
        provider: trace.TracerProvider | None,
        propagator: TextMapPropagator | None,
        max_links: int,
        instruments: Instruments,
        clock: Clock,
    ) -> None:
        self._instruments = instruments
        self.clock: Clock = clock
        check_int("max_links", max_links, 0, _MOST_LINKS)
        if provider is not None and not isinstance(provider, trace.TracerProvider):
            raise ConfigError("tracer_provider", provider, "a TracerProvider of OpenTelemetry, or None")
        if propagator is None:
            propagator = propagate.get_global_textmap()
        if not isinstance(propagator, TextMapPropagator):
            raise ConfigError("propagator", propagator, "a TextMapPropagator of OpenTelemetry, or None")
        self.fields: tuple[str, ...] = tuple(sorted(propagator.fields))
        try:
            encode_headers(dict.fromkeys(self.fields, ""))
        except ValueError as error:
            raise ConfigError(
                "propagator", self.fields, f"fields that are names of headers ({error})"
            ) from None
        self._tracer = trace.get_tracer("kinesis_sdk", __version__, provider)
        self._propagator = propagator
        self.max_links: int = max_links
        self._errors = CountingLogThrottle(_LOGGER, logging.WARNING)

    def attributes(
        self, operation: str, stream: StreamId, more: Mapping[str, str | int]
    ) -> dict[str, str | int]:
        """Return the attributes of an operation on a stream, and ``more`` attributes."""
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
        return {**common, **more}

    def start(
        self,
        attributes: Mapping[str, str | int],
        links: Iterable[trace.Link] = (),
        *,
        root: bool = False,
        nanos: int | None = None,
    ) -> trace.Span:
        """Start the span of an operation, as a child of the current span unless it is a root. ``nanos``: its start; None for now."""
        operation = str(attributes["messaging.operation.name"])
        return self._tracer.start_span(
            f"{operation} {attributes['messaging.destination.name']}",
            Context() if root else None,
            _KINDS[operation],
            attributes,
            tuple(links),
            nanos,
        )

    def past(
        self, attributes: Mapping[str, str | int], links: Iterable[trace.Link], began: float, ended: float
    ) -> None:
        """Record the root span and the metrics of an operation that has ended; ``began`` and ``ended`` are monotonic seconds."""
        wall, now = self.clock.time(), self.clock.monotonic()
        span = self.start(attributes, links, root=True, nanos=int((wall - now + began) * 1e9))
        self.end(span, int((wall - now + ended) * 1e9))
        self._record(ended - began, attributes, 0)

    def with_context(
        self, headers: Mapping[str, str | bytes], created: trace.Span | None
    ) -> Mapping[str, str | bytes]:
        """Return headers with a creation context: the context of a span, or the current context.

        Raises:
            ValueError: If the headers exceed the limits of a record.
        """
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, None if created is None else trace.set_span_in_context(created))
        if not carrier:
            return headers
        merged = {**headers, **carrier}
        encode_headers(merged)
        return merged

    def context_in(self, headers: Mapping[str, str | bytes]) -> trace.SpanContext | None:
        """Return the creation context in headers, which may be forged; None without a valid context."""
        if not any(map(headers.get, self.fields)):
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

        Reads at most ``max_links`` distinct sets of headers, so its work is bounded for all contents.
        """
        read: set[tuple[bytes | None, ...]] = set()
        found: dict[tuple[int, int], trace.Link] = {}
        last: Mapping[str, bytes] | None = None
        for headers in each:
            if headers is last:
                continue
            last = headers
            values = tuple(map(headers.get, self.fields))
            if values in read or not any(values):
                continue
            if len(read) == self.max_links:
                break
            read.add(values)
            context = self.context_in(headers)
            if context is not None:
                found.setdefault((context.trace_id, context.span_id), trace.Link(context))
        return list(found.values())

    @contextmanager
    def around(
        self, span: trace.Span, attributes: Mapping[str, str | int], messages: int = 0
    ) -> Iterator[None]:
        """Make a span the current span, mark it if an error is raised, end it, and record its metrics.

        ``messages`` is the number of records that it sends or delivers.
        """
        began = self.clock.monotonic()
        failure: dict[str, str | int] = {}
        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                yield
        except BaseException as error:
            # Neither its text nor its traceback: they may show payloads.
            kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
            failure["error.type"] = kind
            mark_failed(span, kind)
            raise
        finally:
            self.end(span)
            self._record(self.clock.monotonic() - began, {**attributes, **failure}, messages)

    def _record(self, seconds: float, attributes: Mapping[str, str | int], messages: int) -> None:
        try:
            self._instruments.record(seconds, attributes, messages)
        except Exception as error:  # noqa: BLE001 - see `log`
            self.log(error)

    def end(self, span: trace.Span, nanos: int | None = None) -> None:
        """End a span; log errors of its processors."""
        try:
            span.end(nanos)
        except Exception as error:  # noqa: BLE001 - see `log`
            self.log(error)

    def log(self, error: Exception) -> None:
        """Log that a span or its headers are missing; no record and no call of a handler depends on them."""
        self._errors.log(
            "tracing failed (%d times so far); records and batches are not affected", error=error
        )


def mark_failed(span: trace.Span, error_type: str) -> None:
    """Give a span the status of a failure."""
    span.set_status(trace.Status(trace.StatusCode.ERROR))
    span.set_attribute("error.type", error_type)
