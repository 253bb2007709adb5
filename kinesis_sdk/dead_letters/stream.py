"""Dead letters in a Kinesis stream: each original record with its history in headers, and marks with later states."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from kinesis_sdk.admin import Connection, read_page
from kinesis_sdk.common.dead_letters import ORIGIN, PREFIX
from kinesis_sdk.common.errors import DeadLetterError, KinesisSdkError
from kinesis_sdk.common.position import Ended, Position, TrimHorizon
from kinesis_sdk.common.records import UserRecord, position_of
from kinesis_sdk.common.shards import list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.dead_letters.letter import APPLICATION, DeadLetter, State
from kinesis_sdk.dead_letters.store import LetterLog
from kinesis_sdk.producer import Producer, ProducerConfig

STATE = f"{PREFIX}state"
"""Header of a mark: a state, or ``dropped``."""

_DROPPED = "dropped"
_STATES = {one.value.encode(): one for one in State}
_PAGE = 1_000
MAX_PAGES = 10_000
"""Maximum pages of one shard that a pass reads: 10 million records."""


class StreamDeadLetters:
    """Dead letters in a Kinesis stream, where any consumer finds the original records.

    A letter has the payload, the partition key and the headers of the record, and the headers of `kinesis_sdk.common.dead_letters`. A
    mark is a record without a payload and with the same key, so it comes after its letter. A pass reads the stream twice. Letters and
    marks expire with the stream's retention.

    Streams that place records themselves accept no headers, so they accept no dead letters.

    Args:
        stream: Name or ARN.
        connection: Region, profile and endpoint; None uses the usual AWS settings.
        sleep: Called with the seconds between two reads; replaced in tests.

    Attributes:
        location: ``stream:`` and the stream.
        unreadable: Records of the last pass that are neither letters nor marks.
    """

    def __init__(
        self,
        stream: str | StreamId,
        *,
        connection: Connection | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._stream = StreamId.parse(stream)
        self._connection = connection or Connection()
        self._sleep = sleep
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self.location: str = f"stream:{self._stream}"
        self.unreadable: int = 0

    def keep(self, letter: DeadLetter) -> None:
        """See `DeadLetterStore.keep`."""
        self._put([(letter, letter.payload, letter.copy_headers())])

    def mark(self, letters: Sequence[DeadLetter], state: State) -> None:
        """See `DeadLetterStore.mark`."""
        self._mark(letters, state.value)

    def drop(self, letters: Sequence[DeadLetter]) -> None:
        """See `DeadLetterStore.drop`. The letters stay in the stream until they expire, and no reader of this package shows them."""
        self._mark(letters, _DROPPED)

    def _mark(self, letters: Sequence[DeadLetter], word: str) -> None:
        marks = []
        for letter in letters:
            headers: dict[str, str | bytes] = {ORIGIN: str(letter.history.origin), STATE: word}
            if letter.application:
                headers[APPLICATION] = letter.application
            marks.append((letter, b"", headers))
        self._put(marks)

    def _put(self, records: Sequence[tuple[DeadLetter, bytes, dict[str, str | bytes]]]) -> None:
        producer = self._opened()
        try:
            waiting = [
                producer.put(
                    self._stream,
                    letter.partition_key,
                    data,
                    explicit_hash_key=letter.explicit_hash_key,
                    headers=headers,
                )
                for letter, data, headers in records
            ]
            for one in waiting:
                one.result()
        except KinesisSdkError as error:
            raise DeadLetterError(f"{self.location}: {error}") from error

    def _opened(self) -> Producer:
        with self._lock:
            if self._producer is None:
                config = ProducerConfig(record_max_buffered_time=0.02)
                self._producer = Producer(config, client=self._connection.kinesis)
            return self._producer

    def letters(self, *, payload: bool = False) -> Iterator[DeadLetter]:
        """See `DeadLetterStore.letters`. Every shard is read twice, from its beginning to its tip."""
        log = LetterLog(self.location)
        self.unreadable = 0
        try:
            shards = [shard.shard_id for shard in list_shards(self._connection.kinesis, self._stream)]
            for shard in sorted(shards):  # a child has a higher number than its parents
                for record in self._records(shard):
                    self._note(log, shard, record)
            for shard in sorted(shards):
                for record in self._records(shard):
                    letter = None if STATE in record.headers else _letter(record)
                    if letter is None:
                        continue
                    state = log.state_of(letter.id, (shard, position_of(record)))
                    if state is not None:
                        yield replace(letter if payload else letter.without_payload(), state=state)
        except KinesisSdkError as error:
            if isinstance(error, DeadLetterError):
                raise
            raise DeadLetterError(f"{self.location}: {error}") from error

    def _note(self, log: LetterLog, shard: str, record: UserRecord) -> None:
        letter, word = _letter(record), record.headers.get(STATE)
        if letter is None or (word is not None and word != _DROPPED.encode() and word not in _STATES):
            self.unreadable += 1
        elif word is None:
            log.add(letter.id, (shard, position_of(record)))
        else:
            log.mark(letter.id, _STATES.get(word))

    def _records(self, shard: str) -> Iterator[UserRecord]:
        """Yield the records of a shard up to its tip."""
        position: Position = TrimHorizon()
        iterator = None
        for _ in range(MAX_PAGES):
            page = read_page(
                self._connection,
                self._stream,
                shard,
                position,
                limit=_PAGE,
                iterator=iterator,
                sleep=self._sleep,
            )
            yield from page.records
            position, iterator = page.next_position, page.iterator
            if page.at_tip or isinstance(position, Ended):
                return
        raise DeadLetterError(
            f"{self.location}: shard {shard} has more than {MAX_PAGES:,} pages: is it a stream of dead letters?"
        )

    def close(self) -> None:
        """Close the producer."""
        with self._lock:
            producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()


def _letter(record: UserRecord) -> DeadLetter | None:
    arrived = record.approximate_arrival_timestamp
    return DeadLetter.of_copy(record, 0 if arrived is None else round(arrived.timestamp() * 1000))
