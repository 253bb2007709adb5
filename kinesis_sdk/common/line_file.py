"""A file of lines to which several processes append, with checks of its owner and permissions."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import KinesisSdkError
from kinesis_sdk.common.validation import check_choice, check_int, check_seconds

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_OPEN_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT
for _name in ("O_BINARY", "O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY"):
    # O_BINARY: otherwise Windows writes two bytes for a newline. With the other flags, a link at the path is not followed, and
    # opening does not wait for a FIFO or a terminal.
    _OPEN_FLAGS |= getattr(os, _name, 0)

_FIRST_LOCK_POLL = 0.001
_MAX_LOCK_POLL = 0.05
"""Maximum seconds between two attempts to lock the file; the pauses double from `_FIRST_LOCK_POLL`."""


class LineFile:
    """Appends lines to a file. Thread-safe, and safe in a forked child.

    Several processes may append to one file: each line is appended under an advisory lock of the file. If a crash truncates a line, the
    next append starts a new line. A file that was renamed or removed in between is created again.

    The file is opened when the first line is appended, and created with permissions for its owner only. An existing file is used only if
    it is a regular file of the effective user of this process, with one link and no permissions for other users (mode 0600); a
    symbolic link is not followed. There are no such checks on Windows.

    Args:
        path: Path of the file; its directory must exist.
        failure: Class of the errors that `append` raises.
        use: Purpose of the file, for errors: "a spool".
        max_bytes: Maximum size of the file in bytes, at least 1,024 (default 1 GiB).
        fsync: ``"record"`` (default): `append` returns when the line is on the disk. ``"never"``: `append` returns when the operating system has the line.
        lock_timeout: Maximum seconds to wait for the lock of another process, 0 to 60 (default 2). After a timeout, later lines are
            rejected without waiting, until the lock is free again.
        clock: Monotonic clock; replaced in tests.
        sleep: Called to wait between two attempts to lock the file; replaced in tests.

    Attributes:
        path: As given.

    Raises:
        ConfigError: If an argument is out of range.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        failure: type[KinesisSdkError],
        use: str,
        max_bytes: int = 1 << 30,
        fsync: str = "record",
        lock_timeout: float = 2.0,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        check_int("max_bytes", max_bytes, 1_024)
        check_choice("fsync", fsync, ("record", "never"))
        check_seconds("lock_timeout", lock_timeout, 0, 60)
        self.path: str = os.fspath(path)
        self._failure = failure
        self._use = use
        self._max_bytes = max_bytes
        self._fsync = fsync
        self._lock_timeout = lock_timeout
        self._clock: Clock = clock or SystemClock()
        self._sleep = sleep
        self._timed_out = False
        self._lock = threading.Lock()
        self._process = os.getpid()

    def append(self, line: bytes, problem: str) -> None:
        """Append a line, which ends with a newline.

        Args:
            line: The line; or several lines, which are then appended as a whole.
            problem: Beginning of the message if the operating system reports an error.

        Raises:
            KinesisSdkError: An error of the class ``failure``, if the line does not fit into ``max_bytes``, the file cannot be written or
                must not be used, or another process holds its lock.
        """
        if self._process != os.getpid():
            # In a forked child, a thread of the parent may hold the lock.
            self._lock, self._process = threading.Lock(), os.getpid()
        try:
            with self._lock:
                while not self._append(line):
                    pass
        except OSError as error:
            raise self._failure(f"{self.path}: {problem}: {error}") from error

    def _append(self, line: bytes) -> bool:
        """Append a line. Return False, with nothing written, if the file was renamed or removed in between."""
        # The file is opened for each record: failures are rare, and a renamed file must not be written to.
        descriptor = _open(self.path, self._failure, self._use)
        try:
            with self._locked(descriptor):
                status = os.fstat(descriptor)
                if not _is_at(self.path, status):
                    return False
                size = status.st_size
                if size and not _ends_a_line(descriptor):
                    line = b"\n" + line  # a process crashed in the middle of a line
                if size + len(line) > self._max_bytes:
                    raise self._failure(
                        f"{self.path} is full: it has {size:,} bytes, this record needs {len(line):,}, "
                        f"but max_bytes={self._max_bytes:,}"
                    )
                try:
                    _write_all(descriptor, line)
                    if self._fsync == "record":
                        os.fsync(descriptor)
                except OSError:
                    # A full disk accepts part of a line: remove it.
                    with contextlib.suppress(OSError):  # the part stays, and readers skip it
                        os.ftruncate(descriptor, size)
                    raise
        finally:
            os.close(descriptor)
        return True

    @contextlib.contextmanager
    def _locked(self, descriptor: int) -> Iterator[None]:
        """Hold the file's advisory lock; wait at most ``lock_timeout`` for other processes."""
        now = self._clock.monotonic()
        deadline = now if self._timed_out else now + self._lock_timeout
        pause = _FIRST_LOCK_POLL
        while not _try_lock(descriptor):
            now = self._clock.monotonic()
            if now >= deadline:
                waited = "" if self._timed_out else f" for {self._lock_timeout:g} s"
                self._timed_out = True
                raise self._failure(f"{self.path}: another process holds the lock on the file{waited}")
            self._sleep(min(pause, deadline - now))
            pause = min(2 * pause, _MAX_LOCK_POLL)
        self._timed_out = False
        try:
            yield
        finally:
            # Closing the file is not enough: a child that was forked meanwhile has a copy of the descriptor, and the lock
            # would be held until that copy is closed too.
            _unlock(descriptor)


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


def _open(path: str, failure: type[KinesisSdkError], use: str) -> int:
    """Open the file, and create it if it does not exist. Raise ``failure`` for a file that must not be used."""
    try:
        descriptor = os.open(path, _OPEN_FLAGS, 0o600)
    except OSError as error:
        if sys.platform != "win32" and Path(path).is_symlink():
            raise failure(f"{path} is not used as {use}: it is a symbolic link") from error
        raise
    try:
        problem = _why_unusable(os.fstat(descriptor))
        if problem:
            raise failure(f"{path} is not used as {use}: {problem}")
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
