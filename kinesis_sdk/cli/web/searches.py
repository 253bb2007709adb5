"""Searches for records that pages have started: each in a thread of its own, with bounded time, results and number."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from typing import Any

from kinesis_sdk.admin.search import Search
from kinesis_sdk.common.errors import ConfigError, KinesisSdkError

MOST_FOUND = 100
"""Maximum number of records that a search shows before it ends."""
MOST_SECONDS = 120.0
"""Seconds after which a search ends."""
_AT_ONCE = 3
_KEPT = 12

Found = Mapping[str, Any]


@dataclass
class _Job:
    search: Search
    found: list[Found] = field(default_factory=list)
    error: str = ""
    is_running: bool = True


class Searches:
    """The searches of one console, each in a thread that ``spawn`` starts. Thread-safe."""

    def __init__(self, *, spawn: Callable[[Callable[[], None]], None] | None = None) -> None:
        self._spawn = spawn or _spawn
        self._lock = threading.Lock()
        self._jobs: OrderedDict[str, _Job] = OrderedDict()

    def start(self, search: Search, show: Callable[[Any], Found], reading: Any) -> str:
        """Start a search, and return its id. ``show`` makes plain data of a record; ``reading`` is closed at the end.

        Raises:
            ConfigError: If too many run.
        """
        identity = secrets.token_urlsafe(12)
        job = _Job(search)
        with self._lock:
            if sum(one.is_running for one in self._jobs.values()) >= _AT_ONCE:
                reading.close()
                raise ConfigError(
                    "search", _AT_ONCE, "fewer running searches: stop one, or wait until one ends"
                )
            self._jobs[identity] = job
            while len(self._jobs) > _KEPT:
                self._jobs.popitem(last=False)[1].search.stop()
        self._spawn(lambda: self._run(job, show, closing(reading)))
        return identity

    def stop(self, identity: str) -> bool:
        """End a search at its next record; return False if it is unknown."""
        with self._lock:
            job = self._jobs.get(identity)
        if job is not None:
            job.search.stop()
        return job is not None

    def close(self) -> None:
        """End all searches."""
        with self._lock:
            for job in self._jobs.values():
                job.search.stop()

    def state(self, identity: str, known: int) -> dict[str, Any] | None:
        """Return the progress of a search, and the results after the first ``known`` records; None if it is unknown."""
        with self._lock:
            job = self._jobs.get(identity)
            if job is None:
                return None
            reached = job.search.reached
            return {
                "running": job.is_running,
                "read": job.search.read,
                "reached": None if reached is None else reached.timestamp(),
                "found": job.found[known:],
                "end": job.search.end,
                "error": job.error,
            }

    def _run(
        self, job: _Job, show: Callable[[Any], Found], reading: AbstractContextManager[Iterator[Any]]
    ) -> None:
        error = ""
        try:
            with reading:
                for one in job.search:
                    found = show(one)
                    with self._lock:
                        job.found.append(found)
        except KinesisSdkError as failure:
            error = str(failure)
        except BaseException as failure:
            error = f"The console failed: {type(failure).__name__}."
            raise
        finally:
            with self._lock:
                job.error, job.is_running = error, False


def _spawn(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="kinesis-sdk-ui-search", daemon=True).start()
