"""Throttled logging of repeated conditions, like the KCL's ``ThrottlingReporter``."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesis_sdk.common.log_fields import AnyLogger


class LogThrottle:
    """Throttle by time: logs the first message of a kind at once, then one line per interval with a count.

    Thread-safe.

    Args:
        logger: Logger for the messages; a `FieldLogger` adds its fields to them.
        level: Level of the messages.
        interval: Minimum seconds between two lines of one kind.
    """

    def __init__(self, logger: AnyLogger, level: int = logging.WARNING, interval: float = 60.0) -> None:
        self._logger = logger
        self._level = level
        self._interval = interval
        self._lock = threading.Lock()
        self._logged_at: dict[str, float] = {}
        self._suppressed: dict[str, int] = {}

    def log(
        self,
        now: float,
        kind: str,
        message: str,
        *arguments: object,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        """Log a message, or count it if its kind was logged less than an interval ago.

        Args:
            now: Monotonic seconds.
            kind: Kind of message that repeats, for example the class of an error.
            message: Format string of `logging`.
            arguments: Arguments of the format string.
            extra: Fields of the line, see `log_fields`.
        """
        with self._lock:
            logged_at = self._logged_at.get(kind)
            if logged_at is not None and now - logged_at < self._interval:
                self._suppressed[kind] = self._suppressed.get(kind, 0) + 1
                return
            suppressed = self._suppressed.pop(kind, 0)
            self._logged_at[kind] = now
        if suppressed:
            message, arguments = message + " (%d similar lines suppressed)", (*arguments, suppressed)
        self._logger.log(self._level, message, *arguments, extra=extra)


class CountingLogThrottle:
    """Throttle by number, for code without a clock: logs occurrences 1, 2, 4, 8 and so on. Thread-safe.

    Args:
        logger: Logger for the messages; a `FieldLogger` adds its fields to them.
        level: Level of the messages.
    """

    __slots__ = ("_count", "_level", "_lock", "_logger")

    def __init__(self, logger: AnyLogger, level: int = logging.WARNING) -> None:
        self._logger = logger
        self._level = level
        self._count = 0
        self._lock = threading.Lock()

    def log(
        self,
        message: str,
        *arguments: object,
        error: BaseException | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        """Log an occurrence, or only count it.

        Args:
            message: Format string of `logging`, whose first field is the number of occurrences so far.
            arguments: Arguments of the further fields.
            error: Error to log with its traceback; None for no traceback.
            extra: Fields of the line, see `log_fields`.
        """
        with self._lock:
            self._count += 1
            count = self._count
        if count & (count - 1) == 0:
            self._logger.log(self._level, message, count, *arguments, exc_info=error, extra=extra)
