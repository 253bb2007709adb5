"""Log of the output of children, on a thread of its own, so that a slow log never stops the reader of a child."""

from __future__ import annotations

import threading
from collections import deque

from kinesis_sdk.common.log_fields import FieldLogger

_MAX_LINES = 10_000
_MAX_CHARACTERS = 4 * 1024 * 1024


class ChildLog:
    """Bounded queue of lines, which one thread writes to the log. Thread-safe.

    `has_room` is False above ``max_lines`` or ``max_characters``.
    """

    def __init__(self, max_lines: int = _MAX_LINES, max_characters: int = _MAX_CHARACTERS) -> None:
        self._max_lines = max_lines
        self._max_characters = max_characters
        self._condition = threading.Condition()
        self._lines: deque[tuple[FieldLogger, int, str]] = deque()
        self._characters = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def has_room(self) -> bool:
        """Whether a line can be added without exceeding the bounds."""
        return len(self._lines) < self._max_lines and self._characters < self._max_characters

    def add(self, logger: FieldLogger, level: int, text: str) -> bool:
        """Add a line, and return True; return False if there is no room, or no thread can be started."""
        with self._condition:
            if not self.has_room:
                return False
            if self._thread is None and not self._closed:
                thread = threading.Thread(target=self._run, name="kinesis-child-log", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    # The system has no thread left. The caller keeps the line or counts it as lost, as for a full queue, and
                    # the next line tries again.
                    return False
                self._thread = thread
            self._lines.append((logger, level, text))
            self._characters += len(text)
            self._condition.notify()
        return True

    def close(self, timeout: float = 2.0) -> None:
        """Write the remaining lines, and end the thread; waits for at most ``timeout`` seconds."""
        with self._condition:
            self._closed = True
            self._condition.notify()
            thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._lines:
                    if self._closed:
                        return
                    self._condition.wait()
                logger, level, text = self._lines.popleft()
                self._characters -= len(text)
            logger.log(level, "%s", text)
