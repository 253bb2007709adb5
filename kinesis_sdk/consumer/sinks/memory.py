"""A sink in memory, for tests and simulations, and the reference for sinks on other stores."""

from __future__ import annotations

import threading
from typing import Any

from kinesis_sdk.consumer.sinks.sink import SinkKey, SinkRow


class InMemoryTransaction:
    """A transaction of an `InMemorySink`. `handle` is a list, to which the handler appends its effects."""

    def __init__(self, sink: InMemorySink, key: SinkKey, seen: SinkRow) -> None:
        self.handle: list[Any] = []
        self._sink = sink
        self._key = key
        self._seen = seen

    def commit(self, row: SinkRow) -> bool:
        """Append the effects to `InMemorySink.effects` and change the row."""
        return self._sink.change(self._key, self._seen, row, self.handle)

    def rollback(self) -> None:
        """Discard the effects."""
        self.handle.clear()


class InMemorySink:
    """A `Sink` in this process. Thread-safe; its lock is a leaf.

    Attributes:
        effects: All committed effects, in order.
        rows: The rows.
    """

    max_records: int | None = None
    serves_coroutines: bool = True

    def __init__(self) -> None:
        self.effects: list[Any] = []
        self.rows: dict[SinkKey, SinkRow] = {}
        self._lock = threading.Lock()

    def ensure_ready(self) -> None:
        """Do nothing; there is nothing to create."""

    def read(self, key: SinkKey) -> SinkRow | None:
        """Return a row, or None."""
        with self._lock:
            return self.rows.get(key)

    def write(self, key: SinkKey, seen: SinkRow | None, row: SinkRow) -> bool:
        """Change or create a row."""
        return self.change(key, seen, row, [])

    def begin(self, key: SinkKey, seen: SinkRow) -> InMemoryTransaction | None:
        """Begin a transaction."""
        return InMemoryTransaction(self, key, seen) if self.read(key) == seen else None

    def lease_keys(self, application: str, stream: str) -> list[str]:
        """Return the lease keys of all rows of an application and a stream."""
        with self._lock:
            return [key.lease_key for key in self.rows if key[:2] == (application, stream)]

    def delete_ended(self, key: SinkKey) -> bool:
        """Delete the row of a finished shard."""
        with self._lock:
            row = self.rows.get(key)
            if row is None or not row.ended:
                return False
            del self.rows[key]
            return True

    def translate(self, error: BaseException) -> BaseException:
        """Return the error: memory does not fail."""
        return error

    def change(self, key: SinkKey, seen: SinkRow | None, row: SinkRow, effects: list[Any]) -> bool:
        """Change a row and add effects in one step, if the current row is ``seen``."""
        with self._lock:
            if self.rows.get(key) != seen:
                return False
            self.rows[key] = row
            self.effects += effects
            return True
