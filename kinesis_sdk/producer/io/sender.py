"""Calls to Kinesis: PutRecords, the load of a stream's facts, and the pool of threads that make them."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

from kinesis_sdk.common import transport
from kinesis_sdk.common.aws import KinesisClient, translate_errors
from kinesis_sdk.common.errors import (
    KinesisSdkError,
    PermanentAwsError,
    ProtocolError,
    ResourceNotFoundError,
)
from kinesis_sdk.common.log_fields import FieldLogger, log_fields
from kinesis_sdk.common.sequence import check_sequence_numbers, is_sequence_number
from kinesis_sdk.common.service_clock import response_date
from kinesis_sdk.common.shards import list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer.stream.collector import Batch
from kinesis_sdk.producer.stream.topology import StreamFacts

_LOGGER = FieldLogger(logging.getLogger(__name__))

_new_tuple: Callable[..., Any] = tuple.__new__  # the constructor of a named tuple adds a Python call


def put_records(client: KinesisClient, stream: StreamId, batch: Batch) -> Mapping[str, Any]:
    """Encode and send one request, on a thread of the pool; return its response, with one result for each Kinesis record.

    A result has a textual ``ErrorCode``, or a textual ``ShardId`` and a sequence number; a malformed result is replaced by an empty one.
    Raises `AwsError` if the call fails, `ProtocolError` if its response cannot be read.
    """
    # The encoding is inside, too: only the allocation of memory can fail there, which is transient.
    with translate_errors("PutRecords", client):
        entries: list[transport.PutEntry] = []
        for entry in batch.entries:
            aggregate = entry.aggregate
            key = aggregate.partition_key
            # Only a stream that places records itself accepts records without a key, so they have no hash key either.
            hash_key = aggregate.explicit_hash_key if key else None
            entries.append(_new_tuple(transport.PutEntry, (entry.form.encode(), key or None, hash_key)))
        response = transport.put_records(client, stream, entries)
        results: list[Any] = response["Records"]
        if len(results) != len(entries):
            raise ProtocolError(f"PutRecords: {len(entries)} records sent, {len(results)} results came back")
        # Only this place checks the types; all code that handles the response later relies on it.
        if not _are_stored(results):
            for index, result in enumerate(results):
                if not _is_well_formed(result):
                    results[index] = {}
        return response


def _are_stored(results: list[Any]) -> bool:
    """Return whether all results are well-formed and without an error: `_is_well_formed` for nearly every response, in a third of the time."""
    try:
        numbers = [result["SequenceNumber"] for result in results]
        shard_ids = [result["ShardId"] for result in results]
        if True in ["ErrorCode" in result for result in results]:
            return False
        check_sequence_numbers(numbers)
    except (KeyError, TypeError, ValueError):
        return False
    return set(map(type, shard_ids)) == {str}


def _is_well_formed(result: Any) -> bool:
    """Return whether the result of one Kinesis record has the fields and types that are relied on later."""
    if not isinstance(result, dict):
        return False
    code = result.get("ErrorCode")
    if code:
        return isinstance(code, str)
    return isinstance(result.get("ShardId"), str) and is_sequence_number(result.get("SequenceNumber"))


def without_frames(error: KinesisSdkError) -> KinesisSdkError:
    """Remove the tracebacks of an error and of its causes, and write them to the debug log.

    The frames hold the encoded request, and the error lives as long as the futures of the records that failed with it.
    """
    _LOGGER.debug("a call failed", exc_info=error)
    chain: list[BaseException] = [error]
    for link in chain:
        link.__traceback__ = None
        behind = (link.__cause__, link.__context__)
        chain.extend(other for other in behind if other is not None and other not in chain)
    return error


def load_facts(client: KinesisClient, stream: StreamId, *, describe: bool) -> StreamFacts:
    """Load the shards of a stream and, with ``describe``, its record size limit and its record distribution.

    If the permission for one of the calls is missing, the producer logs this and continues without these facts. A missing stream is an
    error.
    """
    max_record_size: int | None = None
    service_places: bool | None = None
    if describe:
        try:
            with translate_errors("DescribeStreamSummary", client):
                answer = client.describe_stream_summary(**stream.request)
            summary = answer.get("StreamDescriptionSummary") if isinstance(answer, Mapping) else None
            if not isinstance(summary, Mapping):
                raise ProtocolError("DescribeStreamSummary: the response has no StreamDescriptionSummary")
            kib = summary.get("MaxRecordSizeInKiB")
            max_record_size = kib * 1024 if type(kib) is int and kib > 0 else None
            # Only on-demand streams have this field; other streams place records by partition key (API reference).
            service_places = summary.get("RecordDistributionStrategy") == "AUTO"
        except PermanentAwsError as error:
            if error.code != "AccessDeniedException":
                raise
            _LOGGER.warning(
                "stream %s: no permission to read its summary, assuming the default record size limit and "
                "record_distribution_strategy_default: %s",
                stream,
                error,
                extra=log_fields(stream=stream),
            )
    dates: list[float | None] = []
    try:
        shards = list_shards(
            client,
            stream,
            shard_filter={"Type": "AT_LATEST"},
            on_page=lambda page: dates.append(response_date(page.get("ResponseMetadata"))),
        )
    except PermanentAwsError as error:
        if isinstance(error, ResourceNotFoundError) or error.code != "AccessDeniedException":
            raise
        _LOGGER.warning(
            "stream %s: no shard map, aggregating only records with equal hash keys: %s",
            stream,
            error,
            extra=log_fields(stream=stream),
        )
        return StreamFacts(None, max_record_size, service_places)
    # AT_LATEST means open shards. Services that do not know the filter also list closed shards.
    date = max((date for date in dates if date is not None), default=None)
    return StreamFacts([shard for shard in shards if shard.is_open], max_record_size, service_places, date)


class TaskPool:
    """Threads that make calls, started on demand.

    They are daemon threads, unlike those of `concurrent.futures`: a producer that was not closed sends its records from its exit handler,
    when executors no longer accept work.
    """

    def __init__(self, name: str, max_threads: int) -> None:
        self._name = name
        self._max_threads = max_threads
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._idle = 0

    def submit(self, task: Callable[[], None]) -> None:
        """Run a task on a thread of the pool. Tasks must not raise: they report failures themselves.

        The task runs on the calling thread if no thread exists and none can be started. From Python 3.12 on, no thread starts while the
        interpreter ends, and records may still have to be sent.
        """
        inline = False
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
            elif len(self._threads) < self._max_threads and self._start_thread():
                pass
            elif self._threads:
                # All are busy. The first thread that becomes idle takes the task, and must not count as idle then.
                self._idle -= 1
            else:
                inline = True
        if inline:
            task()
        else:
            self._tasks.put(task)

    def stop(self) -> None:
        """Let every thread end when all tasks are done. Tasks that are submitted later may be left out."""
        # Each thread passes the None on. One None per thread would not be enough: the I/O loop may start another thread now.
        self._tasks.put(None)

    def join(self, timeout: float) -> None:
        """Wait for the threads to end, at most ``timeout`` seconds in total."""
        threads = self.threads
        for thread in threads:
            thread.join(timeout / len(threads))

    @property
    def threads(self) -> tuple[threading.Thread, ...]:
        """The threads that were started."""
        return tuple(
            self._threads
        )  # at once, without the lock: a signal handler may have interrupted its holder

    def _start_thread(self) -> bool:
        thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            _LOGGER.warning("cannot start another thread for requests: %s", error)
            return False
        self._threads.append(thread)
        return True

    def _run(self) -> None:
        while True:
            task = self._tasks.get()
            if task is None:
                self._tasks.put(None)
                return
            task()
            # Waiting for the next task must not keep this one's records in memory.
            task = None
            with self._lock:
                self._idle += 1
