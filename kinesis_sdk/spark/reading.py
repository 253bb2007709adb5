"""The executor's part of the reader: read exactly one range of a shard.

The driver fixes a range, which ends at a record that exists, or at the end of the shard. Reading it again returns the same
records, so task retries, speculation and a second action on a batch are correct.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kinesis_sdk.common.errors import KinesisSdkError
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.position import AfterSequence, Ended
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.spark.errors import DataLossError, StalledError
from kinesis_sdk.spark.offsets import ShardPosition
from kinesis_sdk.spark.page_gate import PageGate
from kinesis_sdk.spark.shardio import ShardIo, arrival_of

_LOGGER = logging.getLogger(__name__)

_MAX_THREADS = 8
_CONFIRMATIONS, _CONFIRM_SECONDS = 5, 5.0
"""Number of empty pages at the tip, and their minimum duration in seconds, after which a missing record counts as deleted."""


@dataclass(frozen=True)
class ShardRange:
    """Range of one shard that one task reads.

    Attributes:
        shard_id: The shard.
        start: Position before the first record.
        end: Last record, inclusive, or the end of the shard.
        via: Position to open the iterator at, if Kinesis may no longer know ``start``; None opens it at ``start``.
        before: Epoch milliseconds. In batch reads, only records that arrived before this time belong to the range; None for
            all records.
        owned: Hash key range of the shard, if aggregates with records of other shards are discarded; None otherwise.
    """

    shard_id: str
    start: ShardPosition
    end: AfterSequence | Ended
    via: ShardPosition | None = None
    before: int | None = None
    owned: HashKeyRange | None = None


@dataclass(frozen=True, kw_only=True)
class ReadPolicy:
    """Limits and timeouts for reading ranges.

    Attributes:
        limit: Maximum Kinesis records per call.
        interval: Minimum seconds between two calls for a shard.
        stall_timeout: Seconds without a record after which reading a range that must have more fails.
        fail_on_data_loss: Whether a missing end is an error; otherwise it is logged, and the range ends there.
    """

    limit: int
    interval: float
    stall_timeout: float
    fail_on_data_loss: bool


def read_range(io: ShardIo, item: ShardRange, policy: ReadPolicy) -> Iterator[list[KinesisRecord]]:
    """Yield the Kinesis records of a range, page by page.

    Args:
        io: Calls of the stream.
        item: The range.
        policy: Limits and timeouts.

    Raises:
        DataLossError: If the record at the end of the range is deleted.
        StalledError: If the shard returned no record for ``stall_timeout``.
        AwsError: If a call failed permanently.
    """
    cursor = io.cursor(item.shard_id, item.start, via=item.via)
    last = item.end.number if isinstance(item.end, AfterSequence) else None
    empty = 0
    progress = io.clock.monotonic()
    while True:
        began = io.clock.monotonic()
        page = cursor.read(policy.limit)
        records = page.records
        if records:
            empty, progress = 0, began
        met = passed = False
        if last is not None and records:
            newest = int(records[-1].sequence_number)
            met = newest == last
            if newest > last:
                records = [record for record in records if int(record.sequence_number) <= last]
                met = bool(records) and int(records[-1].sequence_number) == last
                passed = not met
        if item.before is not None:
            records = [record for record in records if arrival_of(record) < item.before]
        is_empty = not page.records
        if records:
            yield records
            # Pages have up to 10 MB: this one must be gone when the next one is read.
            records, page = [], page._replace(records=[])
        if met or (page.ended and last is None):
            return
        if last is not None:
            empty = empty + 1 if page.caught_up and is_empty else empty
            gone = empty >= _CONFIRMATIONS and began - progress >= _CONFIRM_SECONDS
            if passed or page.ended or gone:
                _lose(item, policy)
                return
        if began - progress > policy.stall_timeout:
            raise StalledError(
                f"shard {item.shard_id} returned no record for {began - progress:.0f} s, "
                f"although the batch continues up to {_name(item.end)}"
            )
        # While the range waits for a missing record, read at most five times per second, whatever the interval is.
        pause = max(policy.interval, 0.2 if empty else 0.0) - (io.clock.monotonic() - began)
        if pause > 0:
            io.sleep(pause)


def _lose(item: ShardRange, policy: ReadPolicy) -> None:
    message = (
        f"shard {item.shard_id}: the last record of this batch ({_name(item.end)}) is no longer in the stream; "
        "records older than the retention period are deleted"
    )
    if policy.fail_on_data_loss:
        raise DataLossError(message, shard_id=item.shard_id)
    _LOGGER.error("%s; continuing with the remaining data", message)


def _name(end: AfterSequence | Ended) -> str:
    return "its end" if isinstance(end, Ended) else f"sequence number {end.sequence_number}"


_Item = tuple[ShardRange, list[KinesisRecord]]


def read_ranges(
    make_io: Callable[[], ShardIo], items: Sequence[ShardRange], policy: ReadPolicy
) -> Iterator[_Item]:
    """Yield the pages of several ranges, those of each shard in order. Threads read ahead of the caller.

    At most one page waits, and each thread holds another one. Closing the iterator stops the threads at their next page. A page
    has up to 10 MB; see `kinesis_sdk.spark.page_gate`.

    Args:
        make_io: Called by each thread to create its calls.
        items: The ranges.
        policy: Limits and timeouts.

    Raises:
        KinesisSdkError: If reading a range failed; the first failure.
    """
    pending: queue.SimpleQueue[ShardRange] = queue.SimpleQueue()
    for item in items:
        pending.put(item)
    threads = min(len(items), _MAX_THREADS)
    results: queue.Queue[_Item | BaseException | None] = queue.Queue(maxsize=1)
    stopped = threading.Event()
    gate = PageGate()

    def put(result: _Item | BaseException | None) -> bool:
        while not stopped.is_set():
            try:
                results.put(result, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def work() -> None:
        try:
            io = make_io()
            io.sleep = gate.outside(io.sleep)
            while not stopped.is_set():
                try:
                    item = pending.get_nowait()
                except queue.Empty:
                    break
                for records in gate.pages(read_range(io, item, policy)):
                    if not put((item, records)):
                        return
                    del records
        except BaseException as error:  # noqa: BLE001 — raised on the thread that consumes the pages
            put(error)
        else:
            put(None)

    for number in range(threads):
        threading.Thread(target=work, name=f"kinesis-read-{number}", daemon=True).start()
    running = threads
    try:
        while running:
            result = results.get()
            if result is None:
                running -= 1
            elif isinstance(result, BaseException):
                if isinstance(result, KinesisSdkError):
                    raise result
                raise RuntimeError("reading a shard failed") from result
            else:
                yield result
    finally:
        stopped.set()
