"""The executor's half: read exactly one range of a shard.

A range is fixed by the driver and ends at a record that exists, or at the shard's end. Reading it again gives the
same records, so that task retries, speculation and a second action on a batch are correct.
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
from kinesis_sdk.spark.shardio import ShardIo, arrival_of

_LOGGER = logging.getLogger(__name__)

_MOST_THREADS = 8
_CONFIRMATIONS, _CONFIRM_SECONDS = 5, 5.0
"""Empty pages at the tip, and how long they must go on, before a record that must be there counts as gone."""


@dataclass(frozen=True)
class ShardRange:
    """What one task reads of one shard.

    Attributes:
        shard_id: The shard.
        start: Exclusive if `AfterSequence`, inclusive otherwise.
        end: Inclusive record, or the shard's end.
        via: Where the iterator is opened if the service may not know ``start`` any more.
        before: Only records that arrived before this (epoch milliseconds) belong to the range; for batch reads.
        owned: The shard's hash keys, where aggregates that hold records of other shards are to be discarded.
    """

    shard_id: str
    start: ShardPosition
    end: AfterSequence | Ended
    via: ShardPosition | None = None
    before: int | None = None
    owned: HashKeyRange | None = None


@dataclass(frozen=True, kw_only=True)
class ReadPolicy:
    """How to read.

    Attributes:
        limit: Kinesis records per call.
        interval: Least seconds between two calls for a shard.
        stall_timeout: Seconds without a record after which a range that must have more is given up.
        fail_on_data_loss: Whether a missing end is an error; else it is logged and the range ends there.
    """

    limit: int
    interval: float
    stall_timeout: float
    fail_on_data_loss: bool


def read_range(io: ShardIo, item: ShardRange, policy: ReadPolicy) -> Iterator[list[KinesisRecord]]:
    """The Kinesis records of a range, page by page.

    Raises:
        DataLossError: The record at the range's end is gone.
        StalledError: The shard did not go on for ``stall_timeout``.
        AwsError: A call failed for good.
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
        if records:
            yield records
        if met or (page.ended and last is None):
            return
        if last is not None:
            empty = empty + 1 if page.caught_up and not page.records else empty
            gone = empty >= _CONFIRMATIONS and began - progress >= _CONFIRM_SECONDS
            if passed or page.ended or gone:
                _lose(item, policy)
                return
        if began - progress > policy.stall_timeout:
            raise StalledError(
                f"shard {item.shard_id} brought nothing for {began - progress:.0f} s, "
                f"although it has more up to {_name(item.end)}"
            )
        # While a missing record is waited for there is no hurry, whatever the interval.
        pause = max(policy.interval, 0.2 if empty else 0.0) - (io.clock.monotonic() - began)
        if pause > 0:
            io.sleep(pause)


def _lose(item: ShardRange, policy: ReadPolicy) -> None:
    message = (
        f"shard {item.shard_id}: the last record of this batch ({_name(item.end)}) is not there any more; "
        "records older than the stream's retention are deleted"
    )
    if policy.fail_on_data_loss:
        raise DataLossError(message, shard_id=item.shard_id)
    _LOGGER.error("%s; going on with what is left", message)


def _name(end: AfterSequence | Ended) -> str:
    return "its end" if isinstance(end, Ended) else f"sequence number {end.sequence_number}"


_Item = tuple[ShardRange, list[KinesisRecord]]


def read_ranges(
    make_io: Callable[[], ShardIo], items: Sequence[ShardRange], policy: ReadPolicy
) -> Iterator[_Item]:
    """The pages of several ranges, each shard's in order, fetched by threads while earlier ones are worked on.

    At most one page waits, and one in the hands of each thread; closing the iterator stops the threads at their next
    page. A page is up to 10 MB.

    Args:
        make_io: Makes the calls of one thread.
        items: The ranges.
        policy: How to read.

    Raises:
        KinesisSdkError: The first failure of any range.
    """
    pending: queue.SimpleQueue[ShardRange] = queue.SimpleQueue()
    for item in items:
        pending.put(item)
    threads = min(len(items), _MOST_THREADS)
    results: queue.Queue[_Item | BaseException | None] = queue.Queue(maxsize=1)
    stopped = threading.Event()

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
            while not stopped.is_set():
                try:
                    item = pending.get_nowait()
                except queue.Empty:
                    break
                for records in read_range(io, item, policy):
                    if not put((item, records)):
                        return
        except BaseException as error:  # noqa: BLE001 — it is raised where the pages are consumed
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
