"""Rows that can never be stored, because Kinesis would reject them: they are counted, and dropped or put into another stream.

With ``badRows=fail``, the task ends without an error, and its commit message names the row. The commit then fails the write. After an
error, Spark would run the task up to four times, and each attempt would store the rows before the bad row again.
"""

from __future__ import annotations

import base64
import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from kinesis_sdk.common.errors import InvalidRecordError

if TYPE_CHECKING:
    import pyarrow as pa

    from kinesis_sdk.spark.partition import TaskProducer

_LOGGER = logging.getLogger(__name__)

FAIL = "fail"


class BadRows:
    """Rows of a task that are left out.

    Args:
        producer: The task's producer.
        stream: Stream into which the rows are put as JSON; None drops them.
        names: Names of the columns of a row, by their roles: ``data``, ``partitionKey``, ….

    Attributes:
        count: Number of rows by invalid field.
        payload_bytes: Bytes of their payloads.
    """

    def __init__(self, producer: TaskProducer, stream: str | None, names: Mapping[str, str]) -> None:
        self.count: Counter[str] = Counter()
        self.payload_bytes: int = 0
        self._producer = producer
        self._stream = stream
        self._names = names

    def leaving_out(self, batch: pa.RecordBatch) -> Callable[[int, InvalidRecordError], None]:
        """Return a function that leaves a row of a batch out, given its index and its problem."""
        return lambda row, error: self._leave_out(batch, row, error)

    def _leave_out(self, batch: pa.RecordBatch, row: int, error: InvalidRecordError) -> None:
        """Leave a row out.

        Raises:
            InvalidRecordError: If even without its payload the row does not fit into the stream of bad rows.
        """
        if not self.count:
            _LOGGER.warning("a row is left out, the first one of this task: %s", error)
        self.count[error.field] += 1
        values = {known: batch.column(name)[row].as_py() for known, name in self._names.items()}
        if isinstance(values["data"], str):
            values["data"] = values["data"].encode()
        self.payload_bytes += len(values["data"] or b"")
        if self._stream is None:
            return
        try:
            self._put(values, error)
        except InvalidRecordError as refused:
            raise InvalidRecordError(
                error.field,
                f"{error.problem}; nor can it be put into {self._stream}: {refused.problem}",
            ) from None

    def _put(self, values: Mapping[str, Any], error: InvalidRecordError) -> None:
        """Put a row into the stream of bad rows, without its payload if the row would be too large with it."""
        assert self._stream is not None
        try:
            self._producer.put(self._stream, token_hex(8), letter(values, error))
        except InvalidRecordError:
            # A row that is too large for its stream is larger as Base64. Kinesis can reject the letter only for its size.
            self._producer.put(self._stream, token_hex(8), letter(values, error, with_data=False))


def letter(values: Mapping[str, Any], error: InvalidRecordError, *, with_data: bool = True) -> bytes:
    """Return a bad row as JSON: its columns, bytes as Base64, and its problem.

    If the data is omitted, ``dataBytes`` is its size.
    """
    row = {name: _jsonable(value) for name, value in values.items() if with_data or name != "data"}
    if not with_data:
        row = {"data": None, "dataBytes": len(values["data"] or b""), **row}
    return json.dumps({**row, "field": error.field, "problem": error.problem}).encode()


def _jsonable(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list | tuple):  # a map, as Arrow passes it
        return {name: _jsonable(one) for name, one in value}
    return value


def counted(count: Mapping[str, int]) -> str:
    """Return counts by field in words."""
    return ", ".join(f"{number:,} by {field}" for field, number in sorted(count.items()))
