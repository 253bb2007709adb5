"""Rows of a reader, created from the raw columns of its records: these columns themselves, or typed columns (`kinesis_sdk.spark.parse`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


class ShapingTask(Protocol):
    """Makes the rows of one task."""

    def shape(self, batch: pa.RecordBatch, /) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a raw batch, in order."""
        ...

    def report(self) -> str | None:
        """Return a sentence for the log once the task has read all rows; None if there is nothing to report."""
        ...


class RowShape(Protocol):
    """Rows of a reader; picklable."""

    @property
    def raw(self) -> tuple[str, ...]:
        """Columns of the source that a raw batch needs."""
        ...

    def begin(self) -> ShapingTask:
        """Return a `ShapingTask` that creates the rows of one task."""
        ...


class RawRows:
    """Rows with the columns of the source; this class is both the shape and its task.

    Args:
        raw: Columns, in order.
    """

    def __init__(self, raw: tuple[str, ...]) -> None:
        self.raw = raw

    def begin(self) -> RawRows:
        """Return itself."""
        return self

    def shape(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the batch."""
        yield batch

    def report(self) -> str | None:
        """Return None."""
        return None
