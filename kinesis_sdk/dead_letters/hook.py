"""`DeadLetters`: the hook that keeps the records that an error policy sets aside."""

from __future__ import annotations

import threading
from collections.abc import Awaitable

from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.dead_letters import Origin
from kinesis_sdk.common.error_policy import PoisonRecord
from kinesis_sdk.common.errors import ConfigError, DeadLetterError
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.dead_letters.letter import DeadLetter, check_application
from kinesis_sdk.dead_letters.location import check_location, open_dead_letters
from kinesis_sdk.dead_letters.sql import SqlDeadLetters
from kinesis_sdk.dead_letters.store import DeadLetterStore


class DeadLetters:
    """Hook for ``dead_letter=`` of an error policy: keeps each record where ``kinesis-sdk dlq`` finds it.

    ```python
    policy = BisectBatch(dead_letter=DeadLetters("sqlite:///letters.db", application="billing"))
    ```

    The record counts as processed once it is stored. If it cannot be stored, the hook raises, and the record is delivered again.

    Args:
        place: Location such as ``sqlite:///letters.db``, ``file:letters.jsonl``, ``stream:orders-dead`` or ``sqs:`` and the URL of a
            queue, which is opened when the first record is kept; or a `DeadLetterStore`.
        application: Name of the application, at most 255 characters: letters of several applications may share a store.
        clock: Wall clock; replaced in tests.

    Raises:
        ConfigError: If ``place`` is not a location, or the name is too long.
    """

    def __init__(
        self, place: str | DeadLetterStore, *, application: str = "", clock: Clock | None = None
    ) -> None:
        check_application(application)
        if isinstance(place, str):
            check_location("place", place)
        elif not callable(getattr(place, "keep", None)):
            raise ConfigError(
                "place", place, "a location such as 'sqlite:///letters.db', or a DeadLetterStore"
            )
        self._place = place
        self._application = application
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._store: DeadLetterStore | None = None

    def __call__(self, poison: PoisonRecord) -> Awaitable[None] | None:
        """Keep a record; if a sink uses the same SQL database, this happens in the sink's transaction.

        Raises:
            DeadLetterError: If the record cannot be stored.
        """
        letter = DeadLetter.of(poison, self._application, round(self._clock.time() * 1000))
        store = self._opened()
        if isinstance(store, SqlDeadLetters) and poison.transaction is not None:
            return store.keep_with(letter, poison.transaction)
        store.keep(letter)
        return None

    def take(self, record: UserRecord, error: Exception) -> None:
        """Keep a record and its error, for hooks called with both: ``kinesis_handler(dead_letter=letters.take)`` in Lambda.

        Args:
            record: A record that a worker or a Lambda function delivered.
            error: The error of its handler.

        Raises:
            ConsumerError: If the stream and shard of the record are not known.
            DeadLetterError: If the record cannot be stored.
        """
        origin = Origin.parse(record.id)
        if origin is None:
            raise DeadLetterError(
                f"record {record.id[:80]!r} does not name its stream and shard, so it cannot be kept"
            )
        stream = StreamId(origin.stream)
        poison = PoisonRecord(record=record, error=error, attempts=1, shard_id=origin.shard_id, stream=stream)
        self._opened().keep(DeadLetter.of(poison, self._application, round(self._clock.time() * 1000)))

    def _opened(self) -> DeadLetterStore:
        with self._lock:
            if self._store is None:
                self._store = open_dead_letters(self._place) if isinstance(self._place, str) else self._place
            return self._store

    def close(self) -> None:
        """Close the store, if it was opened here."""
        with self._lock:
            if self._store is not None and isinstance(self._place, str):
                self._store.close()
                self._store = None

    def __repr__(self) -> str:
        return f"DeadLetters(application={self._application!r})"
