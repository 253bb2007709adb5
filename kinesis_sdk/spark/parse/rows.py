"""Conversion of batches of raw records to batches of typed rows.

A batch is parsed as a whole. If a parser declines it, smaller and smaller parts of it are tried, and the remaining values are parsed one
by one. So a bad value slows down only some rows around it, and in a batch of bad values, each value is parsed singly only once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kinesis_sdk.spark.errors import MalformedValueError
from kinesis_sdk.spark.parse.columns import METADATA, Columns, Kind
from kinesis_sdk.spark.parse.form import DROP, FAIL, PERMISSIVE, ValueFormat

if TYPE_CHECKING:
    import pyarrow as pa

MAX_BYTES = 64 * 1024 * 1024
"""Maximum bytes of the columns of a batch with several rows; the estimate is an upper bound."""


class Parser(Protocol):
    """Parser of a format of values."""

    def columns(self, payloads: pa.Array) -> list[pa.Array] | None:
        """Return the columns of payloads; None if a payload may need `row`."""
        ...

    def row(self, payload: bytes) -> tuple[Sequence[Any] | None, str | None]:
        """Return the values of the fields in the form that Arrow accepts, and the problem of the payload; either may be None."""
        ...


class _Format(NamedTuple):
    """A format; the modules of parsers are imported only where they are used.

    Attributes:
        check: Raises `ConfigError` for a field that values of the format cannot have. The driver also calls it.
        parser: Returns a parser for a task.
        parts: Numbers of rows of the parts that are tried after a whole batch.
        is_text: Whether values are text.
        element_bytes: Minimum bytes of an array element in a value.
    """

    check: Callable[[ValueFormat, Mapping[str, Kind]], object]
    parser: Callable[[ValueFormat, Mapping[str, Kind]], Parser]
    parts: tuple[int, ...] = (1_024, 32)
    is_text: bool = True
    element_bytes: int = 2


def _json(form: ValueFormat, fields: Mapping[str, Kind]) -> Parser:
    from kinesis_sdk.spark.parse.json_values import JsonParser

    parser: Parser = JsonParser(fields, form.zone)
    if form.registry is None:
        return parser
    from kinesis_sdk.spark.parse.registry import FramedParser, Frames, shared_registry

    return FramedParser(parser, Frames(shared_registry(form.registry)), "JSON")


def _csv(form: ValueFormat, fields: Mapping[str, Kind]) -> Parser:
    from kinesis_sdk.spark.parse.csv_values import CsvParser

    return CsvParser(fields, form.zone, **form.settings)


def _check_csv(_form: ValueFormat, fields: Mapping[str, Kind]) -> None:
    from kinesis_sdk.spark.parse.csv_values import check_fields

    check_fields(fields)


def _avro(form: ValueFormat, fields: Mapping[str, Kind]) -> Parser:
    from kinesis_sdk.spark.parse.avro_values import AvroParser
    from kinesis_sdk.spark.parse.registry import Frames, shared_registry

    frames = None if form.registry is None else Frames(shared_registry(form.registry))
    return AvroParser(fields, form.settings.get("schema"), frames)


def _check_avro(form: ValueFormat, fields: Mapping[str, Kind]) -> None:
    from kinesis_sdk.spark.parse.avro_values import AvroPlan

    if (schema := form.settings.get("schema")) is not None:
        AvroPlan(schema, fields, complete=True)


def _protobuf(form: ValueFormat, fields: Mapping[str, Kind]) -> Parser:
    from kinesis_sdk.spark.parse.protobuf_values import ProtobufParser, message_type
    from kinesis_sdk.spark.parse.registry import Frames, shared_registry

    settings = dict(form.settings)
    message = message_type(settings.pop("descriptor"), settings.pop("message"))
    frames = None if form.registry is None else Frames(shared_registry(form.registry))
    return ProtobufParser(fields, message, frames=frames, **settings)


def _check_protobuf(form: ValueFormat, fields: Mapping[str, Kind]) -> None:
    from kinesis_sdk.spark.parse.protobuf_values import check_fields, message_type

    check_fields(message_type(form.settings["descriptor"], form.settings["message"]), fields)


_FORMATS = {
    "json": _Format(lambda _form, _fields: None, _json),
    "csv": _Format(_check_csv, _csv),
    "avro": _Format(_check_avro, _avro, (1_024,), is_text=False, element_bytes=1),
    "protobuf": _Format(_check_protobuf, _protobuf, (1_024,), is_text=False, element_bytes=1),
}


class TypedRows:
    """Rows of a schema, parsed from the values of records.

    Args:
        form: Format and mode.
        schema: JSON form of Spark's schema.

    Raises:
        ConfigError: If the schema has a column that cannot be created.
    """

    def __init__(self, form: ValueFormat, schema: Mapping[str, Any]) -> None:
        self.form = form
        kind = "string" if _FORMATS[form.name].is_text else "binary"
        self.columns: Columns = Columns.of(schema, form.corrupt_name, kind)
        _FORMATS[form.name].check(form, self.columns.fields)

    @property
    def raw(self) -> tuple[str, ...]:
        """Columns of the source from which a task creates these rows."""
        located = ("shardId", "sequenceNumber") if self.form.mode == FAIL else ()
        return tuple(dict.fromkeys([*self.columns.raw, *located]))

    def begin(self) -> TypingTask:
        """Return a `TypingTask` that creates the rows of one task."""
        return TypingTask(self.form, self.columns)


class TypingTask:
    """Creates the rows of one task.

    Attributes:
        malformed: Number of malformed values so far.
    """

    def __init__(self, form: ValueFormat, columns: Columns) -> None:
        self.malformed: int = 0
        self._mode = form.mode
        self._is_framed = form.registry is not None
        self._columns = columns
        self._schema: pa.Schema = columns.schema()
        self._format = _FORMATS[form.name]
        self._parser = self._format.parser(form, columns.fields)
        self._types = [kind.arrow() for kind in columns.fields.values()]
        self._row_bytes = sum(kind.width for kind in columns.fields.values())
        widest = max(kind.element_width for kind in columns.fields.values())
        self._bytes_per_byte = 1 + widest // self._format.element_bytes

    def shape(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a raw batch, in order.

        Raises:
            MalformedValueError: In mode ``FAILFAST``, for the first malformed value.
        """
        for part in self._parts(batch) if batch.num_rows else ():
            shaped = self._shaped(part)
            if shaped.num_rows:
                yield shaped

    def report(self) -> str | None:
        """Return a sentence about malformed values; None if there were none."""
        if not self.malformed:
            return None
        became = "dropped (mode=DROPMALFORMED)" if self._mode == DROP else "returned with null fields"
        return f"{self.malformed:,} malformed values {became}"

    def _parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield parts whose columns are small enough."""
        import pyarrow as pa
        import pyarrow.compute as pc

        payloads = batch.column("data")
        if self._is_framed:
            from kinesis_sdk.spark.parse.registry import opened_length

            lengths = pa.array([opened_length(one.as_py()) for one in payloads])
        else:
            lengths = pc.binary_length(payloads)
        total = batch.num_rows * self._row_bytes + (pc.sum(lengths).as_py() or 0) * self._bytes_per_byte
        if total <= MAX_BYTES:
            yield batch
            return
        begin = size = 0
        for row, length in enumerate(lengths.to_pylist()):
            needed = self._row_bytes + length * self._bytes_per_byte
            if size and size + needed > MAX_BYTES:
                yield batch.slice(begin, row - begin)
                begin, size = row, 0
            size += needed
        yield batch.slice(begin)

    def _shaped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        payloads = batch.column("data")
        pieces: list[list[pa.Array]] = []
        flaws: dict[int, str] = {}
        self._parse(payloads, 0, self._format.parts, pieces, flaws)
        self.malformed += len(flaws)
        if flaws and self._mode == FAIL:
            row = min(flaws)
            raise MalformedValueError(
                flaws[row],
                shard_id=batch.column("shardId")[row].as_py(),
                sequence_number=batch.column("sequenceNumber")[row].as_py(),
            )
        values = dict(
            zip(
                self._columns.fields,
                pieces[0]
                if len(pieces) == 1
                else [pa.concat_arrays(parts) for parts in zip(*pieces, strict=True)],
                strict=True,
            )
        )
        arrays: list[pa.Array] = []
        for name, kind in zip(self._schema.names, self._schema.types, strict=True):
            if name in values:
                arrays.append(values[name])
            elif name in METADATA:
                arrays.append(batch.column(METADATA[name][0]))
            else:
                arrays.append(self._corrupt(payloads, flaws, kind))
        shaped = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if flaws and self._mode == DROP:
            kept = [row not in flaws for row in range(batch.num_rows)]
            shaped = shaped.filter(pa.array(kept))
        return shaped

    def _corrupt(self, payloads: pa.Array, flaws: Mapping[int, str], kind: pa.DataType) -> pa.Array:
        """Return the column with malformed values."""
        import pyarrow as pa

        if not flaws or self._mode != PERMISSIVE:
            return pa.nulls(len(payloads), kind)
        values: list[str | bytes | None] = [None] * len(payloads)
        for row in flaws:
            value: bytes = payloads[row].as_py()
            values[row] = value.decode("utf-8", "replace") if self._format.is_text else value
        return pa.array(values, kind)

    def _parse(
        self,
        payloads: pa.Array,
        first: int,
        parts: Sequence[int],
        pieces: list[list[pa.Array]],
        flaws: dict[int, str],
    ) -> None:
        """Append the columns of payloads to ``pieces``, and the flaws of rows to ``flaws``; the first payload is row ``first``."""
        found = self._parser.columns(payloads)
        if found is not None:
            pieces.append(found)
            return
        smaller = [size for size in parts if size < len(payloads)]
        if not smaller:
            pieces.append(self._exactly(payloads, first, flaws))
            return
        for begin in range(0, len(payloads), smaller[0]):
            self._parse(payloads.slice(begin, smaller[0]), first + begin, smaller[1:], pieces, flaws)

    def _exactly(self, payloads: pa.Array, first: int, flaws: dict[int, str]) -> list[pa.Array]:
        import pyarrow as pa

        nothing = [None] * len(self._types)
        rows: list[Sequence[Any]] = []
        for row, payload in enumerate(payloads.to_pylist(), first):
            values, flaw = self._parser.row(payload)
            if flaw is not None:
                flaws[row] = flaw
            rows.append(nothing if values is None else values)
        try:
            return self._arrays(rows)
        except (pa.ArrowInvalid, OverflowError):
            # Damaged bytes can decode to numbers that their type does not have.
            for number, values in enumerate(rows):
                try:
                    self._arrays([values])
                except (pa.ArrowInvalid, OverflowError):
                    flaws[first + number] = "a number that its column cannot have"
                    rows[number] = nothing
            return self._arrays(rows)

    def _arrays(self, rows: Sequence[Sequence[Any]]) -> list[pa.Array]:
        import pyarrow as pa

        return [
            pa.array(list(column), kind)
            for column, kind in zip(zip(*rows, strict=True), self._types, strict=True)
        ]
