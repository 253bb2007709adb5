"""Putting files into a stream."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from kinesis_sdk.admin.connection import Connection
from kinesis_sdk.admin.streams import StreamDescription, Streams
from kinesis_sdk.admin.transfer.files import RecordFile
from kinesis_sdk.admin.transfer.run import Transfer, TransferProgress, TransferRecord, TransferResult
from kinesis_sdk.admin.transfer.state import StateFile
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer import FailedRecord, Producer, ProducerConfig

DEFAULT_TTL = 300.0
"""Seconds for which a record is retried. Files are read faster than streams accept records, so records wait for a long time."""
BUFFER_BYTES = 16 * 1024 * 1024
"""Bytes that the producer buffers: the amount that a shard accepts in a few seconds."""


def put_files(
    connection: Connection,
    stream: str | StreamId,
    files: Sequence[RecordFile],
    *,
    rate: float | None = None,
    state: StateFile | None = None,
    config: ProducerConfig | None = None,
    on_record_failed: Callable[[FailedRecord], object] | None = None,
    on_progress: Callable[[TransferProgress], None] = lambda _progress: None,
    rng: random.Random | None = None,
    clock: Clock | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> TransferResult:
    """Put the records of files into a stream, one file after the other.

    Ctrl-C (KeyboardInterrupt) stops reading and waits for the results of records in flight; a second Ctrl-C does not wait. With a
    state file, the same call continues a stopped or killed run, with the guarantees of `kinesis_sdk.admin.transfer.run`.

    Args:
        connection: Account and region.
        stream: Name or ARN.
        files: The files.
        rate: Maximum records per second; None for no limit.
        state: State file; None for none.
        config: Settings of the producer; `bulk_config` by default.
        on_record_failed: Called for each record that Kinesis did not store, for example a `FileSpool`. Not allowed with a state file,
            because the next run then puts these records again.
        on_progress: Called every 0.2 s at most.
        rng: Source of random keys; replaced in tests.
        clock: Measures; replaced in tests.
        sleep: Called with the seconds to wait for the rate; replaced in tests.

    Raises:
        ConfigError: If an argument is out of range, or the state file belongs to another task.
        ResourceNotFoundError: If there is no such stream.
        AwsError: If the stream cannot be described.
    """
    if state is not None and on_record_failed is not None:
        raise ConfigError(
            "spool",
            "given",
            "not given together with a state file, because the next run puts failed records again",
        )
    if state is None:
        return _put(
            connection, stream, files, rate, None, config, on_record_failed, on_progress, rng, clock, sleep
        )
    with state.locked():
        return _put(connection, stream, files, rate, state, config, None, on_progress, rng, clock, sleep)


def _put(
    connection: Connection,
    stream: str | StreamId,
    files: Sequence[RecordFile],
    rate: float | None,
    state: StateFile | None,
    config: ProducerConfig | None,
    on_record_failed: Callable[[FailedRecord], object] | None,
    on_progress: Callable[[TransferProgress], None],
    rng: random.Random | None,
    clock: Clock | None,
    sleep: Callable[[float], None],
) -> TransferResult:
    # Fail before anything is read if the stream does not exist: otherwise, every record would fail with the same error.
    target = Streams(connection).describe(stream)
    task = {"command": "put", "target": identity(target)}
    saved = {} if state is None else state.load(task).get("sources", {})
    spooled = None if on_record_failed is None else _Spooled(on_record_failed)
    producer = Producer(config or bulk_config(), client=connection.kinesis, on_record_failed=spooled)
    try:
        transfer = Transfer(
            producer,
            str(StreamId.parse(stream)),
            rate=rate,
            state=state,
            task=task,
            on_progress=on_progress,
            clock=clock,
            sleep=sleep,
        )
        for file in files:
            earlier = saved.get(file.name)
            if state is not None and earlier is not None and not file.is_same_as(earlier.get("fingerprint")):
                raise ConfigError(
                    "state",
                    str(state.path),
                    f"a state file of this {file.name}: the beginning of the file has changed",
                )
            transfer.add_source(file.name, earlier, fingerprint=file.fingerprint)
        result = transfer.run(_records(files, rng or random.SystemRandom()), lambda: _fraction(files))
    finally:
        producer.close(timeout=10.0)
    return result if spooled is None else spooled.added_to(result)


class _Spooled:
    """Counts the failed records that a hook accepted, and the records for which it raised. Called by several threads.

    With a full disk, the hook fails for each record: the producer logs the first failure, and the result has the total.
    """

    def __init__(self, hook: Callable[[FailedRecord], object]) -> None:
        self._hook = hook
        self._lock = threading.Lock()
        self._taken = self._refused = 0
        self._problem: str | None = None

    def __call__(self, record: FailedRecord) -> None:
        try:
            self._hook(record)
        except Exception as error:
            with self._lock:
                self._refused += 1
                is_first, self._problem = self._problem is None, self._problem or str(error)
            if is_first:
                raise
        else:
            with self._lock:
                self._taken += 1

    def added_to(self, result: TransferResult) -> TransferResult:
        """Return a result with the numbers of failed records."""
        with self._lock:
            return replace(
                result, spooled=self._taken, not_spooled=self._refused, spool_problem=self._problem
            )


def bulk_config(*, ordered: bool = False, aggregate: bool = True, ttl: float = DEFAULT_TTL) -> ProducerConfig:
    """Return settings for bulk transfers from one source; raises ConfigError if ``ttl`` is out of range.

    ``ordered`` stores the records of a key in their order, which costs throughput. ``aggregate`` packs small records into
    aggregated records, which readers have to open. ``ttl`` is the number of seconds for which a record is retried.
    """
    return ProducerConfig(
        record_ttl=ttl,
        ordering="per_shard" if ordered else "none",
        aggregation_enabled=aggregate,
        max_buffered_bytes=BUFFER_BYTES,
        max_user_record_size=10 * 1024 * 1024,
    )


def identity(stream: StreamDescription) -> str:
    """Return an identity of a stream that differs from the identity of a deleted stream of the same name."""
    created = "" if stream.created_at is None else f" of {stream.created_at.isoformat(timespec='seconds')}"
    return f"{stream.arn or stream.name}{created}"


def _records(files: Sequence[RecordFile], rng: random.Random) -> Iterator[TransferRecord]:
    for file in files:
        for record in file.records():
            key = f"{rng.getrandbits(128):032x}" if file.random_keys else record.partition_key
            yield TransferRecord(
                file.name,
                record.number,
                record.data,
                key,
                record.explicit_hash_key,
                record.problem,
                record.headers,
            )


def _fraction(files: Sequence[RecordFile]) -> float | None:
    sizes = [file.size for file in files]
    total = sum(size for size in sizes if size is not None)
    if None in sizes or not total:
        return None
    return min(1.0, sum(file.bytes_read for file in files) / total)
