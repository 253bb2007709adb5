"""A file for records that could not be stored, and the way back from it.

    with Producer(on_record_failed=FileSpool("unsent.jsonl")) as producer:
        ...

    for record in read_spool("unsent.jsonl"):        # later, elsewhere
        producer.put(record.stream, record.partition_key, record.data, record.explicit_hash_key)

One JSON object a line, so that people can read it: ``stream``, ``partition_key``, ``explicit_hash_key``, ``data``
(base64), ``cause``, ``time`` (ISO 8601, UTC).
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
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import SpoolError
from kinesis_sdk.common.validation import check_choice, check_int, check_seconds
from kinesis_sdk.producer.failure_hooks import FailedRecord

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_LOGGER = logging.getLogger(__name__)

MAX_SPOOL_BYTES = 1024 * 1024 * 1024
"""Default bound of a spool file."""

_OPEN_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT
for _name in ("O_BINARY", "O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY"):
    # O_BINARY: Windows would write two bytes for a newline. The others: a link, a FIFO or a terminal at the path is
    # neither followed nor waited for.
    _OPEN_FLAGS |= getattr(os, _name, 0)

_FIRST_LOCK_POLL = 0.001
_MAX_LOCK_POLL = 0.05
"""Seconds between two attempts to lock the file; each pause is twice as long as the one before."""

_LONGEST_LINE = 64 * 1024 * 1024
"""Bytes; a record of 10 MiB is a line of 14 MB. What is longer was not written by us."""


class SpooledRecord(NamedTuple):
    """A record out of a spool, ready to be put again.

    Attributes:
        stream: Name or ARN.
        partition_key: The user's partition key.
        explicit_hash_key: Decimal text, if the user gave one.
        data: Payload.
        cause: Why it was not stored.
        time: When it was spooled (aware datetime, UTC).
    """

    stream: str
    partition_key: str
    explicit_hash_key: str | None
    data: bytes
    cause: str
    time: datetime

    def __repr__(self) -> str:
        return (
            f"<SpooledRecord stream={self.stream!r} key={self.partition_key!r} time={self.time.isoformat()}>"
        )


class FileSpool:
    """Appends failed records to a file; the hook for ``Producer(on_record_failed=…)``. Thread-safe.

    Several processes may append to one file: each record is appended under an advisory lock of the file. A line
    that a crash cut short stays alone: the next append starts a line of its own, and `read_spool` skips it.

    Nothing is opened before the first record. The file is made readable for its owner only, because payloads are
    in it. What is at the path already is used only if it is a regular file that belongs to the effective user of
    this process, with one link and no permissions for other users (mode 0600); a symbolic link is not followed. So
    a file that another user put there neither receives payloads nor redirects them. Windows has no such checks.

    The file is never removed by the producer: rename it before you read it while producers run (they notice that
    and start a new one), delete it when its records are stored.

    Args:
        path: The file; its directory has to exist.
        max_bytes: Bound on the file's size, 1,024 and more (default 1 GiB). A record that does not fit is refused
            with `SpoolError`, which the producer logs; the record's future has its error in any case.
        fsync: ``"record"`` (default): a record has reached the disk when its future fails, which costs a disk's
            latency each. ``"never"``: it has reached the operating system: it survives the process, not the machine.
        lock_timeout: Seconds for which a record waits for a lock that another process holds, 0 to 60 (default 2). The
            producer waits with it. Once a record has waited for all of that time, later ones are refused without
            waiting, with `SpoolError`, until the lock is free again.
        clock: Monotonic and wall clock; replaced in tests.
        sleep: Waits between two attempts to lock the file; replaced in tests.

    Raises:
        ConfigError: A setting is out of its range.
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
            SpoolError: It would not fit into ``max_bytes``, the file cannot be written or must not be used, or
                another process keeps it locked.
        """
        line = self._encode(record)
        if self._process != os.getpid():
            # A forked child: a thread that does not exist here may hold the lock.
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
        item = {
            "stream": record.stream,
            "partition_key": record.partition_key,
            "explicit_hash_key": record.explicit_hash_key,
            "data": base64.b64encode(record.data).decode("ascii"),
            "cause": str(record.error),
            "time": moment.isoformat(timespec="milliseconds"),
        }
        # ASCII: a file that is read as UTF-8 or Latin-1 by whatever comes is the same text.
        return json.dumps(item).encode("ascii") + b"\n"

    def _append(self, line: bytes) -> bool:
        """Append a line; False if the file was renamed or removed meanwhile, and nothing was written."""
        # Opened each time: failures are rare, and a file that was renamed to be read is left alone at once.
        descriptor = _open(self.path)
        try:
            with self._locked(descriptor):
                status = os.fstat(descriptor)
                if not _is_at(self.path, status):
                    return False
                size = status.st_size
                if size and not _ends_a_line(descriptor):
                    line = b"\n" + line  # somebody crashed in the middle of a line
                if size + len(line) > self.max_bytes:
                    raise SpoolError(
                        f"{self.path} is full: {size:,} bytes are in it, this record needs {len(line):,}, "
                        f"the bound is max_bytes={self.max_bytes:,}"
                    )
                try:
                    _write_all(descriptor, line)
                    if self.fsync == "record":
                        os.fsync(descriptor)
                except OSError:
                    # A full disk takes half a line: give its room back rather than leave garbage.
                    with contextlib.suppress(OSError):  # then it stays, and whoever reads skips it
                        os.ftruncate(descriptor, size)
                    raise
        finally:
            os.close(descriptor)
        return True

    @contextlib.contextmanager
    def _locked(self, descriptor: int) -> Iterator[None]:
        """Hold the file's advisory lock; wait for other processes, but not longer than the setting says."""
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
            # Closing alone would not do: a child that was forked meanwhile has a copy of the descriptor, and the
            # lock would stay until that one is closed, too.
            _unlock(descriptor)


def read_spool(path: str | os.PathLike[str]) -> Iterator[SpooledRecord]:
    """Yield the records of a spool, oldest first, to put them again.

    Reads a line at a time, so the file may be larger than memory. Lines that are no record (half of one, which a
    crash left) are skipped, with a warning that says which line.

    Args:
        path: The file. Rename it first if producers may still append to it.

    Raises:
        OSError: The file can not be read.
    """
    with Path(path).open("rb") as file:
        number = 0
        while line := file.readline(_LONGEST_LINE):
            number += 1
            if not line.strip():
                continue
            try:
                yield _decode(line)
            except (ValueError, KeyError, TypeError) as error:
                # Not the line itself: a payload is in it.
                _LOGGER.warning(
                    "%s: line %d is no record and is skipped (%s)", path, number, type(error).__name__
                )


def _decode(line: bytes) -> SpooledRecord:
    item: Any = json.loads(line)
    if not isinstance(item, dict):
        raise TypeError("expected an object")
    explicit_hash_key = item.get("explicit_hash_key")
    for text in (item["stream"], item["partition_key"], item["cause"], explicit_hash_key or ""):
        if not isinstance(text, str):
            raise TypeError("expected text")
    return SpooledRecord(
        item["stream"],
        item["partition_key"],
        explicit_hash_key,
        base64.b64decode(item["data"], validate=True),
        item["cause"],
        # Python 3.10 reads no other precision and no "Z"; isoformat writes neither.
        datetime.fromisoformat(item["time"]),
    )


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
    """Open the spool, and make it if there is none.

    Raises:
        SpoolError: What is at the path belongs to another user, or leads elsewhere.
    """
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
            return f"it has {status.st_nlink} hard links, so the same file has another path, too"
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
