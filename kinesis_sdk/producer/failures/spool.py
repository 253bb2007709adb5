"""File for failed records, and a reader with which they can be put again.

    with Producer(on_record_failed=FileSpool("unsent.jsonl")) as producer:
        ...

    for record in read_spool("unsent.jsonl"):        # later, elsewhere
        producer.put_again(record)

Each line is a JSON object, so the file is readable: ``stream``, ``partition_key``, ``explicit_hash_key``, ``data`` (base64),
``cause``, ``time`` (ISO 8601, UTC). A record that an attempt may have stored, or that has a ``dedup_id``, also has its identity, with
which it is put again as the same record. The identity is ``incarnation`` (hexadecimal), ``number``, ``date`` (milliseconds
since 1970, or null) and ``window`` (seconds). A record with headers has ``headers``, an object of names with values in base64.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import SpoolError
from kinesis_sdk.common.headers import NO_HEADERS
from kinesis_sdk.common.line_file import LineFile
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.once.identity import RecordIdentity, identity_fields, identity_in
from kinesis_sdk.producer.failures.hooks import FailedRecord

_LOGGER = FieldLogger(logging.getLogger(__name__))

MAX_SPOOL_BYTES = 1024 * 1024 * 1024
"""Default maximum size of a spool file in bytes."""

_LONGEST_LINE = 64 * 1024 * 1024
"""Maximum bytes of a line. A record of 10 MiB is a line of 14 MB; a longer line was not written by a spool."""


class SpooledRecord(NamedTuple):
    """Record from a spool, ready to be put again.

    Attributes:
        stream: Name or ARN of the stream.
        partition_key: The user's partition key; None for a record without a partition key.
        explicit_hash_key: Decimal text; None if the user did not pass one.
        data: Payload.
        cause: Message of the error with which the record failed.
        time: Time at which the record was written to the spool (aware datetime, UTC).
        identity: Its identity, for `Producer.put_again`; None if it has none.
        headers: Its headers, possibly empty.
    """

    stream: str
    partition_key: str | None
    explicit_hash_key: str | None
    data: bytes
    cause: str
    time: datetime
    identity: RecordIdentity | None = None
    headers: Mapping[str, bytes] = NO_HEADERS

    def __repr__(self) -> str:
        return (
            f"<SpooledRecord stream={self.stream!r} key={self.partition_key!r} time={self.time.isoformat()}>"
        )


class FileSpool:
    """Hook for ``Producer(on_record_failed=…)`` that appends failed records to a file. Thread-safe.

    Several processes may append to one file: each record is appended under an advisory lock of the file. If a crash
    truncates a line, the next append starts a new line, and `read_spool` skips the damaged one.

    The file is opened when the first record fails. Only the file's owner gets permissions, because the file contains payloads. An
    existing file is used only if it is a regular file of the effective user of this process, with one link and no permissions for other
    users (mode 0600); a symbolic link is not followed. So a file that another user placed there neither receives payloads nor redirects
    them. There are no such checks on Windows.

    The producer never removes the file. To read it while producers run, rename it first: they detect this and create a
    new file. Delete it once its records are stored.

    Args:
        path: Path of the file; its directory must exist.
        max_bytes: Maximum size of the file in bytes, at least 1,024 (default 1 GiB). A record that does not fit is rejected
            with `SpoolError`, which the producer logs. The record's future has the record's error in any case.
        fsync: ``"record"`` (default): a record is on the disk before its future fails, which adds the latency of the disk to each record.
            ``"never"``: the record is in the buffers of the operating system, so it survives a crash of the process but not of the machine.
        lock_timeout: Maximum seconds that a record waits for the lock of another process, 0 to 60 (default 2). The producer also waits.
            After a timeout, later records are rejected with `SpoolError` without waiting, until the lock is free again.
        clock: Monotonic and wall clock; replaced in tests.
        sleep: Called to wait between two attempts to lock the file; replaced in tests.

    Raises:
        ConfigError: If an argument is out of range.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_bytes: int = MAX_SPOOL_BYTES,
        fsync: str = "record",
        lock_timeout: float = 2.0,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.path: str = os.fspath(path)
        self.max_bytes = max_bytes
        self.fsync = fsync
        self.lock_timeout = lock_timeout
        self._clock: Clock = clock or SystemClock()
        self._file = LineFile(
            path,
            failure=SpoolError,
            use="a spool",
            max_bytes=max_bytes,
            fsync=fsync,
            lock_timeout=lock_timeout,
            clock=self._clock,
            sleep=sleep,
        )

    def __call__(self, record: FailedRecord) -> None:
        """Append one record.

        Raises:
            SpoolError: If the record does not fit into ``max_bytes``, the file cannot be written or must not be used, or
                another process holds the file's lock.
        """
        self._file.append(self._encode(record), "a record could not be spooled")

    def __repr__(self) -> str:
        return f"FileSpool({self.path!r})"

    def _encode(self, record: FailedRecord) -> bytes:
        moment = datetime.fromtimestamp(self._clock.time(), timezone.utc)
        item: dict[str, Any] = {
            "stream": record.stream,
            "partition_key": record.partition_key,
            "explicit_hash_key": record.explicit_hash_key,
            "data": base64.b64encode(record.data).decode("ascii"),
            "cause": str(record.error),
            "time": moment.isoformat(timespec="milliseconds"),
        }
        if record.identity is not None:
            item.update(identity_fields(record.identity))
        if record.headers:
            item["headers"] = {
                name: base64.b64encode(value).decode("ascii") for name, value in record.headers.items()
            }
        # ASCII reads the same as UTF-8 and as Latin-1.
        return json.dumps(item).encode("ascii") + b"\n"


def read_spool(path: str | os.PathLike[str]) -> Iterator[SpooledRecord]:
    """Yield the records of a spool, oldest first, to put them again.

    One line is read at a time, so the file may be larger than memory. A line that is not a record (for example one that was
    truncated by a crash) is skipped with a warning that gives its line number.

    Args:
        path: Path of the file. Rename it first if producers may still append to it.

    Raises:
        OSError: If the file cannot be read.
    """
    with Path(path).open("rb") as file:
        number = 0
        while line := file.readline(_LONGEST_LINE):
            number += 1
            if not line.strip():
                continue
            try:
                yield _decode(line)
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                # Without the line itself, which contains a payload.
                _LOGGER.warning(
                    "%s: line %d skipped, it is not a record (%s)", path, number, type(error).__name__
                )


def _decode(line: bytes) -> SpooledRecord:
    item: Any = json.loads(line)
    if not isinstance(item, dict):
        raise TypeError("expected an object")
    explicit_hash_key = item.get("explicit_hash_key")
    for text in (item["stream"], item["partition_key"] or "", item["cause"], explicit_hash_key or ""):
        if not isinstance(text, str):
            raise TypeError("expected text")
    return SpooledRecord(
        item["stream"],
        item["partition_key"],
        explicit_hash_key,
        base64.b64decode(item["data"], validate=True),
        item["cause"],
        # Python 3.10 accepts neither another precision nor "Z"; isoformat writes neither.
        datetime.fromisoformat(item["time"]),
        identity_in(item),
        _headers(item),
    )


def _headers(item: dict[str, Any]) -> Mapping[str, bytes]:
    if "headers" not in item:
        return NO_HEADERS
    headers = item["headers"]
    if not isinstance(headers, dict):
        raise TypeError("expected an object")
    return {name: base64.b64decode(value, validate=True) for name, value in headers.items()}
