"""Limit of the pages that the threads of a task read at the same time.

A page is up to 10 MB long, and while it is received and decoded, its content exists several times: as bytes of the response, as
text, as base64 and as payloads. Eight threads that all read full pages need half a gigabyte of memory, which is more than a Python worker
gets in an ordinary executor. Small pages need almost no memory, and concurrent reads then hide the latency of the calls.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from kinesis_sdk.common.records import KinesisRecord

LARGE_PAGE = 1024 * 1024
"""Bytes of payload from which a page counts as large."""

MAX_LARGE_PAGES = 2
"""Maximum number of threads that read while pages are large."""


class PageGate:
    """Gate that the threads of one task enter to read. Thread-safe.

    At first, and after a large page, at most `MAX_LARGE_PAGES` threads are inside; after a small page, any number of threads.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._limited = True

    def pages(self, pages: Iterator[list[KinesisRecord]]) -> Iterator[list[KinesisRecord]]:
        """Yield the pages of a range. The thread stays inside the gate until it requests the next page or closes the iterator."""
        self._enter()
        try:
            for records in pages:
                yield records
                self._leave(sum([len(record.data) for record in records]))
                del records
                self._enter()
        finally:
            self._leave()

    def outside(self, sleep: Callable[[float], None]) -> Callable[[float], None]:
        """Return a function that leaves the gate while it sleeps, for threads that are inside.

        A shard rejects reads for up to five seconds after a large page. A thread that waits for this time must not block others.
        """

        def rest(seconds: float) -> None:
            self._leave()
            try:
                sleep(seconds)
            finally:
                self._enter()

        return rest

    def _enter(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._limited or self._inside < MAX_LARGE_PAGES)
            self._inside += 1

    def _leave(self, size: int | None = None) -> None:
        """Leave the gate. ``size`` is the number of bytes of the page that was read; None if no page was read."""
        with self._changed:
            self._inside -= 1
            if size is not None:
                self._limited = size >= LARGE_PAGE
            self._changed.notify_all()
