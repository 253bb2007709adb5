"""Records from files: lines, NDJSON, CSV, Parquet and spools, plain or compressed with gzip.

A record that cannot be used (no JSON, no such field) is reported with its number, and reading continues after it.
"""

from __future__ import annotations

import base64
import csv
import datetime as dt
import gzip
import hashlib
import io
import json
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, Literal

from kinesis_sdk.common.errors import ConfigError, InvalidRecordError
from kinesis_sdk.common.extras import install_hint
from kinesis_sdk.common.hashkeys import parse_explicit_hash_key

FileFormat = Literal["auto", "lines", "ndjson", "csv", "parquet", "spool"]
FORMATS: tuple[str, ...] = ("auto", "lines", "ndjson", "csv", "parquet", "spool")
RANDOM_KEY = "random"
STDIN = "-"

_SUFFIXES = {
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".csv": "csv",
    ".parquet": "parquet",
    ".spool": "spool",
}
_FINGERPRINT_BYTES = 64 * 1024
_LONGEST_LINE = 64 * 1024 * 1024
_BATCH_ROWS = 1000


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One record of a file.

    Attributes:
        number: Its number in the file, from 1.
        data: Payload; ``repr`` leaves it out.
        explicit_hash_key: Decimal text, or None.
        problem: Reason why the record cannot be put; None if it can.
        headers: Headers of the record; only a spool has them. None for a record without headers.
    """

    number: int
    data: bytes = field(repr=False)
    partition_key: str | None = None
    explicit_hash_key: str | None = None
    problem: str | None = None
    headers: Mapping[str, bytes] | None = field(default=None, repr=False)


class RecordFile:
    """A file of records.

    Args:
        path: Path of the file, or ``-`` for standard input.
        file_format: ``auto`` decides by the name: ``.ndjson``, ``.jsonl``, ``.csv``, ``.parquet``, ``.spool``, each also with
            ``.gz``; lines otherwise.
        key: Field whose value is the partition key, with dots for nested objects; ``random`` gives each record a random key.
        hash_key: Field whose value is the explicit hash key; None for none.
        stdin: Binary file to read for ``-``; standard input by default.

    Attributes:
        name: Absolute path, or ``-``: identifies the file in a state file.
        size: Bytes of the file; None for standard input.
        random_keys: Whether each record is to get a random partition key. Records of a spool keep their partition key, or have none.

    Raises:
        ConfigError: If the format is unknown or has no fields, or the file cannot be read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        file_format: FileFormat = "auto",
        key: str = RANDOM_KEY,
        hash_key: str | None = None,
        stdin: IO[bytes] | None = None,
    ) -> None:
        if file_format not in FORMATS:
            raise ConfigError("format", file_format, f"one of {', '.join(FORMATS)}")
        text = os.fspath(path)
        self._stdin = stdin
        self._path = None if text == STDIN else Path(text)
        self.name: str = STDIN if self._path is None else str(self._path.resolve())
        self.size: int | None = None
        self.fingerprint: str | None = None
        self._position: Callable[[], int] = lambda: 0
        suffixes = [] if self._path is None else [one.lower() for one in self._path.suffixes]
        self._compressed = suffixes[-1:] == [".gz"]
        if self._compressed:
            suffixes.pop()
        self.format: str = (
            _SUFFIXES.get(suffixes[-1] if suffixes else "", "lines") if file_format == "auto" else file_format
        )
        if self.format == "lines":
            for option, value in (("key", key), ("explicit_hash_key", hash_key)):
                if value not in (RANDOM_KEY, None):
                    raise ConfigError(
                        option,
                        value,
                        "random for lines, which have no fields (see the format: ndjson, csv, parquet)",
                    )
        if self.format == "parquet" and self._path is None:
            raise ConfigError("file", STDIN, "a file: Parquet cannot be read from standard input")
        self._key = None if key == RANDOM_KEY else key
        self._hash_key = hash_key
        self.random_keys: bool = self._key is None and self.format != "spool"
        if self._path is not None:
            try:
                self.size = self._path.stat().st_size
                with self._path.open("rb") as file:
                    begin = file.read(_FINGERPRINT_BYTES)
            except OSError as error:
                raise ConfigError(
                    "file", text, f"a file that can be read ({error.strerror or error})"
                ) from error
            self.fingerprint = _fingerprint(begin)

    @property
    def bytes_read(self) -> int:
        """Bytes of the file that have been read, for progress."""
        return self._position()

    def is_same_as(self, fingerprint: str | None) -> bool:
        """Return whether a file with this fingerprint may be this file: the beginning is equal, and the file may have grown."""
        if fingerprint is None or self.fingerprint is None or self._path is None:
            return fingerprint == self.fingerprint
        length = int(fingerprint.partition(":")[0])
        with self._path.open("rb") as file:
            return _fingerprint(file.read(length)) == fingerprint

    def records(self) -> Iterator[FileRecord]:
        """Yield the records in order. A record with a `FileRecord.problem` cannot be put.

        Raises:
            ConfigError: If a package is missing, or the file does not have its format.
            OSError: If the file cannot be read further.
        """
        if self.format == "parquet":
            yield from self._parquet()
        elif self.format == "spool":
            yield from self._spool()
        else:
            with self._open() as file:
                yield from self._until_damage(self._csv(file) if self.format == "csv" else self._lines(file))

    def _until_damage(self, records: Iterator[FileRecord]) -> Iterator[FileRecord]:
        """End with a problem where a compressed file is truncated or damaged: the records before this place are complete, and are put."""
        number = 0
        try:
            for record in records:
                number = record.number
                yield record
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            what = f"the gzip data is cut off or damaged here, and nothing behind it was read ({error})"
            yield FileRecord(number + 1, b"", problem=what)

    @contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        if self._path is None:
            yield self._stdin or sys.stdin.buffer
            return
        with self._path.open("rb") as raw:
            self._position = raw.tell
            try:
                if self._compressed:
                    with gzip.open(raw) as file:
                        yield file  # type: ignore[misc]
                else:
                    yield raw
            finally:
                reached = raw.tell()
                self._position = lambda: reached

    def _lines(self, file: IO[bytes]) -> Iterator[FileRecord]:
        number = 0
        while line := file.readline(_LONGEST_LINE):
            if len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
                # The rest of the line is not a record.
                while line and not line.endswith(b"\n"):
                    line = file.readline(_LONGEST_LINE)
                number += 1
                yield FileRecord(number, b"", problem=f"a line of more than {_LONGEST_LINE:,} bytes")
                continue
            data = line.removesuffix(b"\n").removesuffix(b"\r")
            if self.format == "lines":
                number += 1
                yield FileRecord(number, data)
            elif data.strip():
                number += 1
                yield self._json_record(number, data)

    def _json_record(self, number: int, data: bytes) -> FileRecord:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as error:
            return FileRecord(number, data, problem=f"not JSON ({type(error).__name__})")
        return self._keyed(number, data, value)

    def _keyed(self, number: int, data: bytes, value: object) -> FileRecord:
        key = None
        try:
            if self._key is not None:
                key = _field(value, self._key)
            hash_key = None if self._hash_key is None else _field(value, self._hash_key)
            if hash_key is not None:
                hash_key = parse_explicit_hash_key(hash_key)
        except (LookupError, InvalidRecordError) as error:
            message = str(error.args[0]) if isinstance(error, LookupError) else str(error)
            return FileRecord(number, data, problem=message)
        return FileRecord(number, data, key, hash_key)

    def _csv(self, file: IO[bytes]) -> Iterator[FileRecord]:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        rows = csv.reader(text)
        try:
            names = next(rows, None)
            if names is None:
                return
            for option, name in (("key", self._key), ("explicit_hash_key", self._hash_key)):
                if name is not None and name not in names:
                    raise ConfigError(option, name, f"a column of {self.name}: {', '.join(names)}")
            number = 0
            for row in rows:
                if not row:
                    continue
                number += 1
                if len(row) != len(names):
                    problem = f"{len(row)} columns instead of {len(names)}"
                    yield FileRecord(number, b"", problem=problem)
                    continue
                value = dict(zip(names, row, strict=True))
                yield self._keyed(number, json.dumps(value, ensure_ascii=False).encode(), value)
        except (csv.Error, UnicodeDecodeError) as error:
            raise ConfigError("file", self.name, f"CSV in UTF-8 (line {rows.line_num}: {error})") from error
        finally:
            text.detach()  # otherwise, it would close the file, which may be standard input

    def _parquet(self) -> Iterator[FileRecord]:
        try:
            import pyarrow as pa
            from pyarrow import parquet
        except ImportError as error:
            raise ConfigError(
                "format", "parquet", f"jsonl or csv; {install_hint('Parquet', 'pyarrow', 'spark')}"
            ) from error
        assert self._path is not None
        assert self.size is not None
        try:
            source = parquet.ParquetFile(self._path)
            names = source.schema_arrow.names
            for option, name in (("key", self._key), ("explicit_hash_key", self._hash_key)):
                if name is not None and name.partition(".")[0] not in names:
                    raise ConfigError(option, name, f"a column of {self.name}: {', '.join(names)}")
            total, number, size = max(1, source.metadata.num_rows), 0, self.size
            for batch in source.iter_batches(batch_size=_BATCH_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    data = json.dumps(row, ensure_ascii=False, default=_json_value).encode()
                    yield self._keyed(number, data, row)
                self._position = lambda done=number: size * done // total  # type: ignore[misc]
        except (pa.ArrowException, OSError) as error:
            raise ConfigError("file", self.name, f"a Parquet file ({error})") from error

    def _spool(self) -> Iterator[FileRecord]:
        from kinesis_sdk.producer import read_spool

        if self._path is None or self._compressed:
            raise ConfigError("file", self.name, "a plain file: a spool is read from its path")
        for number, record in enumerate(read_spool(self._path), 1):
            yield FileRecord(
                number,
                record.data,
                record.partition_key,
                record.explicit_hash_key,
                headers=record.headers,
            )


def open_files(
    paths: Sequence[str],
    *,
    file_format: FileFormat = "auto",
    key: str = RANDOM_KEY,
    hash_key: str | None = None,
    stdin: IO[bytes] | None = None,
) -> list[RecordFile]:
    """Return the files of a command line; standard input without any. Raises ConfigError if a file cannot be used, or is named twice."""
    files = [
        RecordFile(path, file_format=file_format, key=key, hash_key=hash_key, stdin=stdin)
        for path in paths or [STDIN]
    ]
    names = [file.name for file in files]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError("file", twice, "each file once")
    return files


def _fingerprint(begin: bytes) -> str:
    return f"{len(begin)}:{hashlib.sha256(begin).hexdigest()[:32]}"


def _field(value: object, path: str) -> str:
    """Return a field as text; raises LookupError if there is none, or it is not a text, a number or a truth value."""
    # A field whose name has dots wins over a path.
    if isinstance(value, Mapping) and path in value:
        found: object = value[path]
    else:
        found = value
        for name in path.split("."):
            if not isinstance(found, Mapping) or name not in found:
                raise LookupError(f"no field {path!r}")
            found = found[name]
    if isinstance(found, bool):
        return str(found).lower()
    if isinstance(found, (str, int, float, Decimal)):
        return str(found)
    if isinstance(found, (dt.date, dt.time)):
        return found.isoformat()
    raise LookupError(f"field {path!r} is {type(found).__name__}, not a text or a number")


def _json_value(value: object) -> Any:
    """Return the JSON form of a value of Parquet."""
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return str(value)
