"""Spans of micro-batches of Spark, on the driver. This module does not import Spark."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.validation import check_text
from kinesis_sdk.tracing.spans import Tracing, spans_of

if TYPE_CHECKING:
    from opentelemetry.trace import Link


class BatchTracing:
    """Decorator that makes an OpenTelemetry span of each call of a Spark query's ``foreachBatch`` function.

        frame = spark.readStream.format("kinesis_sdk").option("includeHeaders", True)...load()
        frame.writeStream.foreachBatch(BatchTracing(stream="orders")(function)).start()

    Each call is a span ``process STREAM`` of the kind CONSUMER with links to creation contexts in the column ``headers``: at most
    ``max_links`` distinct ones. It is the current span in the function, on the driver, and has the attribute ``kinesis_sdk.batch_id``.
    Finding the contexts takes another Spark job over the batch, so persist the frame if reading it twice costs too much.

    Args:
        tracing: Settings for spans and metrics; None uses the defaults of `Tracing`.
        stream: Name or ARN of the stream, for the spans' names.
        application_name: Name of the application, for ``messaging.consumer.group.name``; None leaves it out.

    Raises:
        ImportError: If ``opentelemetry`` is not installed.
        ConfigError: If an argument is not valid.
    """

    def __init__(
        self,
        tracing: Tracing | None = None,
        *,
        stream: str | StreamId,
        application_name: str | None = None,
    ) -> None:
        if application_name is not None:
            check_text("application_name", application_name)
        self._spans = spans_of(tracing)
        self._stream = StreamId.parse(stream)
        self._group = {} if application_name is None else {"messaging.consumer.group.name": application_name}

    def __call__(self, function: Callable[[Any, int], Any]) -> Callable[[Any, int], Any]:
        """Return the function with a span around each call."""

        @wraps(function)
        def traced(frame: Any, batch_id: int) -> Any:
            spans = self._spans
            more: dict[str, str | int] = {**self._group, "kinesis_sdk.batch_id": batch_id}
            attributes = spans.attributes("process", self._stream, more)
            with spans.around(spans.start(attributes, self._links(frame)), attributes):
                return function(frame, batch_id)

        return traced

    def _links(self, frame: Any) -> list[Link]:
        """Return links to the contexts of a batch; an empty list if they cannot be read."""
        spans = self._spans
        if "headers" not in frame.columns:
            return []
        try:
            names = spans.fields
            columns = [frame["headers"][name].alias(str(number)) for number, name in enumerate(names)]
            # Rows without a context are one row of nulls.
            rows = frame.select(*columns).distinct().limit(spans.max_links + 1).collect()
        except Exception as error:  # noqa: BLE001 - the batch does not depend on its span
            spans.log(error)
            return []
        return spans.links_to(
            {name: bytes(value) for name, value in zip(names, row, strict=True) if value is not None}
            for row in rows
        )
