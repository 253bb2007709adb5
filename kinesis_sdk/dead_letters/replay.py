"""Replays of dead letters: their targets, their steps, and the states that a killed replay leaves behind.

A letter is marked as *replaying* before its replay begins, and as *replayed* when its record is stored again or its handler has returned.
If a replay ends in between, the letters of one chunk stay *replaying*, and the next replay includes them.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from kinesis_sdk.common.errors import ConfigError, KinesisSdkError
from kinesis_sdk.common.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.common.shards import is_table_shard_id
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer import Checkpointer, RecordBatch, RecordHandler, ShardContext
from kinesis_sdk.dead_letters.letter import DeadLetter, State
from kinesis_sdk.dead_letters.store import DeadLetterStore
from kinesis_sdk.producer import PendingRecord, Producer, ProducerConfig

if TYPE_CHECKING:
    from kinesis_sdk.admin import Connection

UNCONFIRMED = (
    "name the application whose letters these are with --application (the streams of its leases are accepted), "
    "the streams with --allow-stream, or one stream for all records with --to"
)
"""Advice about letters whose streams are not confirmed."""

NAMESPACE = "kinesis_sdk dead letters"
"""Namespace of the ``dedup_id`` of records that are put back: all replays of a letter, on any machine, share it."""

_CHUNK_BYTES = 8 * 1024 * 1024
"""Maximum bytes of the payloads of a chunk, if it has more than one letter."""

Outcome = tuple[DeadLetter, BaseException | None]
"""A letter, and the error of its replay; None if it was replayed."""


class Target(Protocol):
    """Destination of a replay.

    Attributes:
        at_once: Maximum letters of a chunk; a killed replay may repeat one chunk.
        name: The target, as a sentence names it after "to".
        keeps_errors: Whether an error comes from the handler, and is stored with the letter.
    """

    at_once: int
    name: str
    keeps_errors: bool

    def accepts(self, letter: DeadLetter) -> bool:
        """Return whether this target accepts a letter.

        Raises:
            ConfigError: If this cannot be determined.
        """

    def replay(self, letters: Sequence[DeadLetter]) -> Iterator[Outcome]:
        """Replay letters, and yield the outcome of each."""

    def close(self) -> None:
        """Release connections and event loops."""


class StreamTarget:
    """Puts the records back into a stream, with their key, their headers and their history.

    The record of a letter has a ``dedup_id``, so a repetition within 300 s is not delivered: `docs/repetitions.md`. Every application
    that reads the stream gets the records.

    A letter names the stream of its record. Any program that may write letters, or may put into a stream of the application,
    can forge that name. So records are put back only into streams that ``allowed`` or ``applications`` confirm.

    Args:
        connection: Region, profile and endpoint.
        stream: Name or ARN of a stream for all records; None for the stream of each letter.
        allowed: Names or ARNs of streams into which records may be put back.
        applications: Applications whose streams are also allowed. Their leases are read at the first letter of a stream that is not in
            ``allowed``.

    Raises:
        ConfigError: If a stream is neither a name nor an ARN.
    """

    at_once: int = 100
    keeps_errors: bool = False

    def __init__(
        self,
        connection: Connection,
        stream: str | None = None,
        *,
        allowed: Collection[str] = (),
        applications: Collection[str] = (),
    ) -> None:
        self._allowed = {StreamId.parse(name).name for name in allowed}
        self._stream = None if stream is None else StreamId.parse(stream)
        self._connection = connection
        self._unread = sorted(applications)
        config = ProducerConfig(idempotent=True, dedup_namespace=NAMESPACE)
        self._producer = Producer(config, client=connection.kinesis)
        self.name: str = "the streams they came from" if stream is None else f"stream {stream}"

    def accepts(self, letter: DeadLetter) -> bool:
        """See `Target.accepts`."""
        stream = letter.history.origin.stream
        while self._stream is None and stream not in self._allowed and self._unread:
            self._allowed |= self._streams_of(self._unread[0], stream)
            del self._unread[0]
        return self._stream is not None or stream in self._allowed

    def _streams_of(self, application: str, wanted: str) -> set[str]:
        """Return the streams of an application's leases; ``wanted`` is named in the error."""
        from kinesis_sdk.admin import Application

        try:
            leases = Application(self._connection, application)
            return {stream.name for stream in leases.streams(leases.scan()).values()}
        except KinesisSdkError as error:
            raise ConfigError(
                "allow_stream",
                wanted,
                "a stream of the application",
                problem=f"letters came from stream {wanted}, and the streams of application {application} are not known ({error}). "
                f"If you trust it, give --allow-stream {wanted}",
            ) from error

    def replay(self, letters: Sequence[DeadLetter]) -> Iterator[Outcome]:
        """See `Target.replay`."""
        waiting: list[tuple[DeadLetter, PendingRecord | BaseException]] = []
        for letter in letters:
            try:
                waiting.append((letter, self._put(letter)))
            except KinesisSdkError as error:
                waiting.append((letter, error))
        for letter, pending in waiting:
            if isinstance(pending, BaseException):
                yield letter, pending
                continue
            try:
                pending.result()
            except KinesisSdkError as error:
                yield letter, error
            else:
                yield letter, None

    def _put(self, letter: DeadLetter) -> PendingRecord:
        origin = letter.history.origin
        if self._stream is None and is_table_shard_id(origin.shard_id):
            raise ConfigError(
                "to",
                origin.stream,
                "a Kinesis stream: the record is a change of a DynamoDB table, so name one with --to",
            )
        if not self.accepts(letter):
            # A forged letter with the same id has replaced the letter that the accepted plan showed.
            raise ConfigError("allow_stream", origin.stream, "a confirmed stream")
        return self._producer.put(
            self._stream or StreamId.parse(origin.stream),
            letter.partition_key,
            letter.payload,
            explicit_hash_key=letter.explicit_hash_key,
            headers=letter.copy_headers(),
            # The attempt is part of the name, so that a record that has failed again can be replayed again.
            dedup_id=f"dead-letter/{letter.id}/{letter.history.attempt}",
        )

    def close(self) -> None:
        """Close the producer."""
        self._producer.close()


class HandlerTarget:
    """Calls a handler in this process, once for each letter, with the record as a batch of its own.

    The record has its original ``id``. Checkpoints of the handler do nothing. There is no sink and no deserializer: if a handler needs
    one, replay its letters to the stream.

    Args:
        handler: A function of a batch, plain or a coroutine function, or a `RecordHandler` class.
        name: Name of the handler.
    """

    at_once: int = 1
    keeps_errors: bool = True

    def __init__(self, handler: object, name: str) -> None:
        self._make: Callable[[], RecordHandler] | None = None
        self._function: Callable[[RecordBatch], Any] | None = None
        if isinstance(handler, type) and issubclass(handler, RecordHandler):
            self._make = handler
        elif callable(handler) and not isinstance(handler, type):
            self._function = handler
        else:
            raise ConfigError("handler", name, "a function of a RecordBatch, or a RecordHandler class")
        self._handlers: dict[tuple[str, str], RecordHandler] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.name: str = f"handler {name}, in this process"

    def accepts(self, letter: DeadLetter) -> bool:  # noqa: ARG002 - the handler gets it, wherever it came from
        """See `Target.accepts`."""
        return True

    def replay(self, letters: Sequence[DeadLetter]) -> Iterator[Outcome]:
        """See `Target.replay`."""
        for letter in letters:
            try:
                self._call(letter)
            except Exception as error:  # noqa: BLE001 - it is the user's, and is kept with the letter
                yield letter, error
            else:
                yield letter, None

    def _call(self, letter: DeadLetter) -> None:
        origin = letter.history.origin
        if is_table_shard_id(origin.shard_id):
            raise ConfigError(
                "handler",
                origin.stream,
                "a letter from a Kinesis stream",
                problem=f"{origin.stream}: the letter is a change of a DynamoDB table, and handlers can replay only records of Kinesis streams",
            )
        stream = StreamId(origin.stream)
        batch = RecordBatch(
            records=[letter.record()],
            shard_id=origin.shard_id,
            stream=stream,
            checkpointer=cast("Checkpointer", _NoCheckpoints(origin.shard_id)),
        )
        if self._function is not None:
            self._await(self._function(batch))
        else:
            self._await(self._handler(stream, origin.shard_id).process_records(batch))

    def _handler(self, stream: StreamId, shard_id: str) -> RecordHandler:
        key = (stream.name, shard_id)
        if key not in self._handlers:
            assert self._make is not None
            made = self._make()
            start = ExtendedSequenceNumber(TRIM_HORIZON)
            self._await(
                made.initialize(
                    ShardContext(stream=stream, shard_id=shard_id, worker_id="dead-letters", checkpoint=start)
                )
            )
            self._handlers[key] = made
        return self._handlers[key]

    def _await(self, result: Any) -> None:
        if not inspect.isawaitable(result):
            return
        if self._loop is None:
            self._loop = asyncio.new_event_loop()

        async def wait() -> None:
            await result

        self._loop.run_until_complete(wait())

    def close(self) -> None:
        """Close the event loop."""
        if self._loop is not None:
            self._loop.close()
            self._loop = None


class _NoCheckpoints:
    """Stands in for the checkpointer: letters have no lease."""

    def __init__(self, shard_id: str) -> None:
        self.shard_id = shard_id

    def checkpoint(self, position: object = None, sub_sequence_number: object = None) -> None:
        """Do nothing."""

    def prepare_checkpoint(
        self, position: object = None, sub_sequence_number: object = None, *, state: object = None
    ) -> _NoCheckpoints:
        """Return this object."""
        del position, sub_sequence_number, state
        return self


@dataclass(kw_only=True)
class ReplayProgress:
    """Progress of a replay.

    Attributes:
        total: Letters that were planned.
        replayed: Letters that were replayed.
        failed: Letters whose replay failed; they are open again.
        problem: Class of the newest error.
    """

    total: int
    replayed: int = 0
    failed: int = 0
    problem: str = ""


def replay(
    store: DeadLetterStore,
    letters: Iterable[DeadLetter],
    target: Target,
    *,
    progress: ReplayProgress,
    now_millis: Callable[[], int],
    on_progress: Callable[[ReplayProgress], None] = lambda _: None,
) -> None:
    """Replay letters, and store the new state of each.

    Args:
        store: The store of the letters.
        letters: The letters, with their payloads.
        target: Target of the replay.
        progress: Progress to update.
        now_millis: Returns epoch milliseconds.
        on_progress: Called after each chunk.

    Raises:
        DeadLetterError: If the store fails.
        KeyboardInterrupt: If the user interrupts it; the results so far are in the store.
    """
    for chunk in _chunks(letters, target.at_once):
        store.mark(chunk, State.REPLAYING)
        done: list[DeadLetter] = []
        failed: list[tuple[DeadLetter, BaseException]] = []
        try:
            for letter, error in target.replay(chunk):
                if error is None:
                    done.append(letter)
                else:
                    failed.append((letter, error))
        finally:
            # Ctrl-C in the middle of a chunk: records that are stored already must not be delivered again.
            _settle(store, target, done, failed, now_millis)
            progress.replayed += len(done)
            progress.failed += len(failed)
            if failed:
                progress.problem = type(failed[-1][1]).__name__
        on_progress(progress)


def _settle(
    store: DeadLetterStore,
    target: Target,
    done: Sequence[DeadLetter],
    failed: Sequence[tuple[DeadLetter, BaseException]],
    now_millis: Callable[[], int],
) -> None:
    if done:
        # A record that was put back may have failed again already. Then its letter is open, and stays open.
        store.mark(done, State.REPLAYED)
    if failed and target.keeps_errors:
        for letter, error in failed:
            store.keep(letter.failed_again(error, now_millis()))
    elif failed:
        store.mark([letter for letter, _ in failed], State.OPEN)


def _chunks(letters: Iterable[DeadLetter], most: int) -> Iterator[list[DeadLetter]]:
    """Yield the letters in chunks of bounded number and size."""
    chunk: list[DeadLetter] = []
    size = 0
    for letter in letters:
        if chunk and (len(chunk) >= most or size + letter.size > _CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(letter)
        size += letter.size
    if chunk:
        yield chunk
