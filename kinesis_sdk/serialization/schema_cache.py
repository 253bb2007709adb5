"""Bounded cache of a schema registry's responses, which are refreshed after a time, with one load at a time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kinesis_sdk.common.errors import AwsError, KinesisSdkError, SchemaRegistryError
from kinesis_sdk.common.log_fields import FieldLogger

_LOGGER = FieldLogger(logging.getLogger(__name__))

K = TypeVar("K")
V = TypeVar("V")

_STALE_FOR = 60.0
"""Seconds from a failed attempt to refresh an entry to the next attempt."""
_FAILED_FOR = 5.0
"""Seconds for which a failure is remembered, so that not every record leads to a call."""


_ONCE = 1
"""Attempts to refresh an entry. The old value of the entry is used if all attempts fail."""


@dataclass(frozen=True)
class _Entry(Generic[V]):
    value: V
    fresh_until: float


class SchemaCache(Generic[K, V]):
    """Loads values by key. Thread-safe; reading a fresh value takes no lock.

    A schema version does not change once it exists. So an entry that cannot be refreshed, because the registry is down or a
    permission was withdrawn, stays in use; it is removed only if the registry reports that the version no longer exists. While one thread
    refreshes an entry, with a single attempt, other threads use the old value. The entry that was loaded first is evicted first.

    ``load`` is called with a key and the maximum number of attempts; None allows as many attempts as fit into the timeout.
    ``time_to_live`` is in seconds.
    """

    def __init__(
        self, load: Callable[[K, int | None], V], *, size: int, time_to_live: float, now: Callable[[], float]
    ) -> None:
        self._load = load
        self._size = size
        self._time_to_live = time_to_live
        self._now = now
        self._lock = threading.Lock()
        self._entries: dict[K, _Entry[V]] = {}
        self._failures: dict[K, tuple[KinesisSdkError, float]] = {}

    def is_fresh(self, key: K) -> bool:
        """Return whether `get` returns or raises without a call."""
        now = self._now()
        entry, failure = self._entries.get(key), self._failures.get(key)
        return (entry is not None and now < entry.fresh_until) or (failure is not None and now < failure[1])

    def get(self, key: K) -> V:
        """Return the value of a key; raise a `KinesisSdkError` if its load fails, or failed a few seconds ago."""
        entry = self._entries.get(key)
        if entry is not None and self._now() < entry.fresh_until:
            return entry.value
        if not self._lock.acquire(blocking=entry is None):
            assert entry is not None
            return entry.value
        try:
            entry = self._entries.get(key)
            now = self._now()
            if entry is not None and now < entry.fresh_until:
                return entry.value
            failure = self._failures.get(key)
            if failure is not None and now < failure[1]:
                raise failure[0].with_traceback(None)
            return self._loaded(key, entry)
        finally:
            self._lock.release()

    def _loaded(self, key: K, former: _Entry[V] | None) -> V:
        try:
            value = self._load(key, None if former is None else _ONCE)
        except SchemaRegistryError as error:
            if not error.retryable:
                self._entries.pop(key, None)
                self._note_failure(key, error)
            raise
        except AwsError as error:
            if former is None:
                if not error.retryable:
                    self._note_failure(key, error)
                raise
            _LOGGER.warning("a schema could not be loaded again, so the cached one stays in use: %s", error)
            self._put(key, former.value, _STALE_FOR)
            return former.value
        self._failures.pop(key, None)
        self._put(key, value, self._time_to_live)
        return value

    def _put(self, key: K, value: V, seconds: float) -> None:
        self._entries.pop(key, None)
        while len(self._entries) >= self._size:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = _Entry(value, self._now() + seconds)

    def _note_failure(self, key: K, error: KinesisSdkError) -> None:
        if len(self._failures) >= self._size:
            self._failures.clear()
        self._failures[key] = (error, self._now() + _FAILED_FOR)
