"""Logging of conditions that repeat: the first one at once, then one line per minute with a count."""

from __future__ import annotations

import logging


class LogThrottle:
    """Coalesces repeated messages. Used by one thread at a time.

    Args:
        logger: Where to log.
        level: At which level.
        interval: Least seconds between two lines of one kind.
    """

    def __init__(self, logger: logging.Logger, level: int = logging.WARNING, interval: float = 60.0) -> None:
        self._logger = logger
        self._level = level
        self._interval = interval
        self._said: dict[str, float] = {}
        self._held_back: dict[str, int] = {}

    def log(self, now: float, kind: str, message: str, *arguments: object) -> None:
        """Log now, or count.

        Args:
            now: Monotonic time.
            kind: What repeats, for example an error's class.
            message: Format string of `logging`.
            arguments: Its arguments.
        """
        last = self._said.get(kind)
        if last is not None and now - last < self._interval:
            self._held_back[kind] = self._held_back.get(kind, 0) + 1
            return
        more = self._held_back.pop(kind, 0)
        self._said[kind] = now
        if more:
            message, arguments = message + " (%d more since the last such line)", (*arguments, more)
        self._logger.log(self._level, message, *arguments)
