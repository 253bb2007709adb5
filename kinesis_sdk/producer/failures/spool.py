"""File for failed records, and a reader to put them again.

    with Producer(on_record_failed=FileSpool("unsent.jsonl")) as producer:
        ...

    for record in read_spool("unsent.jsonl"):        # later, elsewhere
        producer.put_again(record)

Each line is a JSON object, so the file is readable: ``stream``, ``partition_key``, ``explicit_hash_key``, ``data`` (base64),
``cause``, ``time`` (ISO 8601, UTC). A record that may be stored, or that the application named, also has its identity, with which it is
put again as the same record: ``incarnation`` (hexadecimal), ``number``, ``date`` (milliseconds since 1970, or null) and ``window``
(seconds). A record with headers has ``headers``, an object of names with values in base64.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import SpoolError
from kinesis_sdk.common.headers import NO_HEADERS
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.validation import check_choice, check_int, check_seconds
from kinesis_sdk.producer.failures.hooks import FailedRecord
from kinesis_sdk.producer.records.identity import RecordIdentity
from kinesis_sdk.producer.records.names import MAX_WINDOW

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_LOGGER = FieldLogger(logging.getLogger(__name__))

MAX_SPOOL_BYTES = 1024 * 1024 * 1024
"""Default maximum size of a spool file in bytes."""

_OPEN_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT
for _name in ("O_BINARY", "O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY"):
    # O_BINARY: otherwise Windows writes two bytes for a newline. With the other flags, a link at the path is not followed, and
    # opening does not wait for a FIFO or a terminal.
    _OPEN_FLAGS |= getattr(os, _name, 0)

_FIRST_LOCK_POLL = 0.001
_MAX_LOCK_POLL = 0.05
"""Maximum seconds between two attempts to lock the file; the pauses double from `_FIRST_LOCK_POLL`."""

_LONGEST_LINE = 64 * 1024 * 1024
"""Maximum bytes of a line. A record of 10 MiB is a line of 14 MB; a longer line is not from a spool."""


class SpooledRecord(NamedTuple):
    """Record from a spool, ready to be put again.

    Attributes:
        stream: Name or ARN of the stream.
        partition_key: The user's partition key; None for a record without one.
        explicit_hash_key: Decimal text; None if the user gave none.
        data: Payload.
        cause: Message of the error with which the record failed.
        time: Time at which it was spooled (aware datetime, UTC).
        identity: Its identity, for `Producer.put_again`; None if it has none.
        headers: Its headers; empty without any.
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

    The file is opened with the first record. It is created with permissions for its owner only, because it contains
    payloads. An existing file is used only if it is a regular file of the effective user of this process, with one link
    and no permissions for other users (mode 0600); a symbolic link is not followed. A file that another user placed there
    therefore neither receives payloads nor redirects them. There are no such checks on Windows.

    The producer never removes the file. To read it while producers run, rename it first: they detect this and create a
    new file. Delete it once its records are stored.

    Args:
        path: Path of the file; its directory must exist.
        max_bytes: Maximum size of the file in bytes, at least 1,024 (default 1 GiB). A record that does not fit is rejected
            with `SpoolError`, which the producer logs. The record's future has its error in any case.
        fsync: ``"record"`` (default): a record is on the disk before its future fails, which costs the latency of the disk
            for each record. ``"never"``: the operating system has it, so it survives the process but not the machine.
        lock_timeout: Maximum seconds that a record waits for the lock of another process, 0 to 60 (default 2). The producer
            waits too. After a timeout, later records are rejected with `SpoolError` without waiting, until the lock is
            free again.
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
        check_int("max_bytes", max_bytes, 1_024)
        check_choice("fsync", fsync, ("record", "never"))
        check_seconds("lock_timeout", lock_timeout, 0, 60)
        self.path: str = os.fspath(path)
        self.max_bytes = max_bytes
        self.fsync = fsync
        self.lock_timeout = lock_timeout
        self._clock: Clock = clock or SystemClock()
        self._sleep = sleep
        self._timed_out = False
        self._lock = threading.Lock()
        self._process = os.getpid()

    def __call__(self, record: FailedRecord) -> None:
        """Append one record.

        Raises:
            SpoolError: If the record does not fit into ``max_bytes``, the file cannot be written or must not be used, or
                another process holds its lock.
        """
        line = self._encode(record)
        if self._process != os.getpid():
            # In a forked child, a thread of the parent may hold the lock.
            self._lock, self._process = threading.Lock(), os.getpid()
        try:
            with self._lock:
                while not self._append(line):
                    pass
        except OSError as error:
            raise SpoolError(f"{self.path}: a record could not be spooled: {error}") from error

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
            incarnation, number, date, window = record.identity
            item.update(incarnation=incarnation.hex(), number=number, date=date, window=window)
        if record.headers:
            item["headers"] = {
                name: base64.b64encode(value).decode("ascii") for name, value in record.headers.items()
            }
        # ASCII reads the same as UTF-8 and as Latin-1.
        return json.dumps(item).encode("ascii") + b"\n"

    def _append(self, line: bytes) -> bool:
        """Append a line. Return False, with nothing written, if the file was renamed or removed meanwhile."""
        # The file is opened for each record: failures are rare, and a renamed file must not be written to.
        descriptor = _open(self.path)
        try:
            with self._locked(descriptor):
                status = os.fstat(descriptor)
                if not _is_at(self.path, status):
                    return False
                size = status.st_size
                if size and not _ends_a_line(descriptor):
                    line = b"\n" + line  # a process crashed in the middle of a line
                if size + len(line) > self.max_bytes:
                    raise SpoolError(
                        f"{self.path} is full: it has {size:,} bytes, this record needs {len(line):,}, "
                        f"but max_bytes={self.max_bytes:,}"
                    )
                try:
                    _write_all(descriptor, line)
                    if self.fsync == "record":
                        os.fsync(descriptor)
                except OSError:
                    # A full disk accepts part of a line: remove it.
                    with contextlib.suppress(OSError):  # the part stays, and `read_spool` skips it
                        os.ftruncate(descriptor, size)
                    raise
        finally:
            os.close(descriptor)
        return True

    @contextlib.contextmanager
    def _locked(self, descriptor: int) -> Iterator[None]:
        """Hold the file's advisory lock; wait at most `lock_timeout` for other processes."""
        now = self._clock.monotonic()
        deadline = now if self._timed_out else now + self.lock_timeout
        pause = _FIRST_LOCK_POLL
        while not _try_lock(descriptor):
            now = self._clock.monotonic()
            if now >= deadline:
                waited = "" if self._timed_out else f" for {self.lock_timeout:g} s"
                self._timed_out = True
                raise SpoolError(f"{self.path}: another process holds the lock of the file{waited}")
            self._sleep(min(pause, deadline - now))
            pause = min(2 * pause, _MAX_LOCK_POLL)
        self._timed_out = False
        try:
            yield
        finally:
            # Closing the file is not enough: a child that was forked meanwhile has a copy of the descriptor, and the lock
            # would be held until that copy is closed too.
            _unlock(descriptor)


def read_spool(path: str | os.PathLike[str]) -> Iterator[SpooledRecord]:
    """Yield the records of a spool, oldest first, to put them again.

    One line is read at a time, so the file may be larger than memory. A line that is not a record (for example one that was
    truncated by a crash) is skipped with a warning that has its number.

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
        _identity(item),
        _headers(item),
    )


def _headers(item: dict[str, Any]) -> Mapping[str, bytes]:
    if "headers" not in item:
        return NO_HEADERS
    headers = item["headers"]
    if not isinstance(headers, dict):
        raise TypeError("expected an object")
    return {name: base64.b64decode(value, validate=True) for name, value in headers.items()}


def _identity(item: dict[str, Any]) -> RecordIdentity | None:
    if "incarnation" not in item:
        return None
    incarnation = bytes.fromhex(item["incarnation"])
    number, date, window = item["number"], item["date"], item["window"]
    if type(number) is not int or (date is not None and type(date) is not int):
        raise TypeError("expected integers")
    if type(window) not in {int, float}:
        raise TypeError("expected seconds")
    largest = (1 << 48) - 1
    valid = len(incarnation) == 8 and 0 <= number <= largest and 0 <= window <= MAX_WINDOW
    if not valid or (date is not None and not 0 <= date <= largest):
        raise ValueError("out of range")
    return RecordIdentity(incarnation, number, date, float(window))


def _ends_a_line(descriptor: int) -> bool:
    os.lseek(descriptor, -1, os.SEEK_END)  # pread does not exist on Windows; writing appends in any case
    return os.read(descriptor, 1) == b"\n"


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _is_at(path: str, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(Path(path).stat(), status)
    except FileNotFoundError:
        return False


def _open(path: str) -> int:
    """Open the spool, and create it if it does not exist. Raise `SpoolError` for a file that must not be used."""
    try:
        descriptor = os.open(path, _OPEN_FLAGS, 0o600)
    except OSError as error:
        if sys.platform != "win32" and Path(path).is_symlink():
            raise SpoolError(f"{path} is not used as a spool: it is a symbolic link") from error
        raise
    try:
        problem = _why_unusable(os.fstat(descriptor))
        if problem:
            raise SpoolError(f"{path} is not used as a spool: {problem}")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _why_unusable(status: os.stat_result) -> str | None:
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    if sys.platform != "win32":
        if status.st_uid != os.geteuid():
            return f"it belongs to user id {status.st_uid}, and this process runs as {os.geteuid()}"
        if status.st_nlink > 1:
            return f"it has {status.st_nlink} hard links, so the same file has another path"
        mode = stat.S_IMODE(status.st_mode)
        if mode & 0o077:
            return f"its mode is {mode:04o}, which gives other users access; expected 0600"
    return None


if sys.platform == "win32":

    def _try_lock(descriptor: int) -> bool:
        os.lseek(descriptor, 0, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
