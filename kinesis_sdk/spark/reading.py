"""The executor's part of the reader: read exactly the ranges of one task.

The driver fixes a range, which ends at or before a record that exists, or at the end of the shard. Reading it again returns the
same records, so task retries, speculation and a second action on a batch are correct.
"""

from __future__ import annotations

import logging
import queue
import threading
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from kinesis_sdk.common.errors import KinesisSdkError
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.position import AfterSequence, AtSequence, Ended
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.spark.errors import DataLossError, StalledError
from kinesis_sdk.spark.offsets import ShardPosition
from kinesis_sdk.spark.page_gate import PageGate
from kinesis_sdk.spark.shardio import ShardIo, arrival_of

_LOGGER = logging.getLogger(__name__)

_MAX_THREADS = 8

_SPARE = 5
"""Records requested in addition to the expected number and a quarter of it. They are few, because a record may be 10 MB long."""

_NEXT = 100
"""Minimum number of records to request once a range turns out to be longer than expected."""

_CONFIRMATIONS, _CONFIRM_SECONDS = 5, 5.0
"""Number of empty pages at the tip, and their minimum duration in seconds, after which a missing record counts as deleted."""


@dataclass(frozen=True)
class ShardRange:
    """Range of one shard that one task reads.

    Attributes:
        start: Position before the first record.
        end: `AfterSequence`: the last record, inclusive. `AtSequence`: the record after the last one; the range ends
            before it, and the record must still exist. `Ended`: the end of the shard.
        via: Position to open the iterator at, if Kinesis may no longer accept ``start``; None opens it at ``start``.
        before: Epoch milliseconds. In batch reads, only records that arrived before this time belong to the range; None for
            all records.
        owned: Hash key range of the shard, if aggregates with records of other shards are discarded; None otherwise.
        lineage: The shard and its ancestors, as far as they are listed, to recognize repetitions of idempotent producers;
            empty if the shard is not listed.
        parents: Ids of the parent shards that have a range in the same batch. The same task reads their ranges first.
        weight: Expected number of Kinesis records, or None. It balances tasks (`tasks.group`), and keeps a task from reading a whole page
            past a near end.
    """

    stream: StreamId
    shard_id: str
    start: ShardPosition
    end: AfterSequence | AtSequence | Ended
    via: ShardPosition | None = None
    before: int | None = None
    owned: HashKeyRange | None = None
    parents: tuple[str, ...] = ()
    weight: int | None = None
    lineage: tuple[Shard, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class ReadPolicy:
    """Limits and timeouts for reading ranges.

    Attributes:
        limit: Maximum Kinesis records per call.
        interval: Minimum seconds between two calls for a shard.
        stall_timeout: Seconds without a record after which reading fails, if the range must have more records.
        fail_on_data_loss: Whether a missing end is an error; otherwise it is logged, and the range ends there.
    """

    limit: int
    interval: float
    stall_timeout: float
    fail_on_data_loss: bool


def read_range(io: ShardIo, item: ShardRange, policy: ReadPolicy) -> Iterator[list[KinesisRecord]]:
    """Yield the Kinesis records of a range, page by page.

    Raises:
        DataLossError: If the record at which the range ends is deleted.
        StalledError: If the shard returned no record for ``stall_timeout``.
        AwsError: If a call failed permanently.
    """
    cursor = io.cursor(item.shard_id, item.start, via=item.via)
    # The record that must be seen: the last one of the range, or the first one after it.
    goal = None if isinstance(item.end, Ended) else item.end.number
    exclusive = isinstance(item.end, AtSequence)
    empty = read = 0
    progress = io.clock.monotonic()
    while True:
        began = io.clock.monotonic()
        page = cursor.read(_next_limit(item, policy, read))
        records = page.records
        read += len(records)
        if records:
            empty, progress = 0, began
        elif page.caught_up:
            empty += 1
        met = passed = False
        if goal is not None and records and int(records[-1].sequence_number) >= goal:
            records = records[: bisect_right(records, goal, key=_number)]
            met = bool(records) and int(records[-1].sequence_number) == goal
            passed = not met
            if met and exclusive:
                records.pop()
        if item.before is not None:
            records = [record for record in records if arrival_of(record) < item.before]
        if records:
            yield records
            progress = io.clock.monotonic()  # the time for which the caller kept the page does not count
            # Pages are up to 10 MB long: this one must be released before the next one is read.
            records, page = [], page._replace(records=[])
        if met or (page.ended and goal is None):
            return
        if goal is not None:
            gone = empty >= _CONFIRMATIONS and began - progress >= _CONFIRM_SECONDS
            if passed or page.ended or gone:
                _lose(item, policy)
                return
        if began - progress > policy.stall_timeout:
            raise StalledError(
                f"stream {item.stream.name}, shard {item.shard_id} returned no record for {began - progress:.0f} s, "
                f"although the batch continues {_name(item.end)}"
            )
        # While the range waits for a missing record, or for a closed shard to end, read at most five times per second, whatever the
        # interval is.
        pause = max(policy.interval, 0.2 if empty else 0.0) - (io.clock.monotonic() - began)
        if pause > 0:
            io.sleep(pause)


def _number(record: KinesisRecord) -> int:
    return int(record.sequence_number)


def _next_limit(item: ShardRange, policy: ReadPolicy, read: int) -> int:
    """Return the number of records to request: a quarter more than expected, and growing if the range turns out to be longer."""
    if item.weight is None:
        return policy.limit
    if read > item.weight:
        return min(policy.limit, max(_NEXT, 4 * read))
    return min(policy.limit, item.weight - read + _SPARE + item.weight // 4)


def _lose(item: ShardRange, policy: ReadPolicy) -> None:
    message = (
        f"stream {item.stream.name}, shard {item.shard_id}: this batch continues {_name(item.end)}, but the record with this number is no longer "
        "in the stream; records older than the retention period are deleted"
    )
    if policy.fail_on_data_loss:
        raise DataLossError(message, shard_id=item.shard_id)
    _LOGGER.error("%s; continuing with the remaining data", message)


def _name(end: AfterSequence | AtSequence | Ended) -> str:
    if isinstance(end, Ended):
        return "to the end of the shard"
    return f"{'to the record before' if isinstance(end, AtSequence) else 'up to'} sequence number {end.sequence_number}"


_Item = tuple[ShardRange, list[KinesisRecord]]


class _Finished(NamedTuple):
    """Marker after all pages of the range with this index."""

    number: int


def read_ranges(
    make_io: Callable[[StreamId], ShardIo], items: Sequence[ShardRange], policy: ReadPolicy
) -> Generator[_Item, None, None]:
    """Yield the pages of several ranges: the pages of each shard in order, and after the pages of its parents.

    Up to eight threads read ahead of the caller. At most one page waits, and each thread holds another one. A page has
    up to 10 MB; see `kinesis_sdk.spark.page_gate`. No call is made for a range with parents until the caller has requested the next page
    after the last page of each parent. Closing the iterator stops the threads at their next page. Each thread
    calls ``make_io`` for each stream that it reads.

    Raises:
        KinesisSdkError: If reading a range failed; the first failure. The ranges of its children are not read.
        ValueError: If a range's parent is not among the ranges, or if parents form a cycle.
    """
    # Only the thread that consumes the pages uses `order`. It decides when a range may start, so nothing here needs a lock:
    #
    #   reader 1                 consumer                           reader 2
    #   put parent's last page
    #   put _Finished(parent)    yield the page; the caller         waits in ready.get()
    #   waits in ready.get()     handles it and asks for more
    #                            get _Finished(parent)
    #                            order.done(parent): child is ready
    #                            ready.put(child)  ───────────────► get child, first call for it
    #
    # Marker and pages pass through one queue, so the marker cannot overtake a page. A reader takes only a range that may start and
    # never waits for another range while it holds one. Even a single reader would therefore finish all of them.
    order = _order(items)
    ready: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    results: queue.SimpleQueue[_Item | _Finished | BaseException] = queue.SimpleQueue()
    room = threading.Semaphore(1)  # for one result
    stopped = threading.Event()
    gate = PageGate()

    def put(result: _Item | _Finished | BaseException) -> bool:
        room.acquire()
        if stopped.is_set():
            room.release()  # for the next reader that waits here
            return False
        results.put(result)
        return True

    def work() -> None:
        calls: dict[StreamId, ShardIo] = {}
        try:
            while (number := ready.get()) is not None and not stopped.is_set():
                item = items[number]
                io = calls.get(item.stream)
                if io is None:
                    io = calls[item.stream] = make_io(item.stream)
                    io.sleep = gate.outside(io.sleep)
                for records in gate.pages(read_range(io, item, policy)):
                    if not put((item, records)):
                        return
                    del records
                put(_Finished(number))
        except BaseException as error:  # noqa: BLE001 — raised on the thread that consumes the pages
            # There is no marker for this range, so its children cannot start, even before the consumer gets the error.
            put(error)

    threads = min(len(items), _MAX_THREADS)
    for number in range(threads):
        threading.Thread(target=work, name=f"kinesis-read-{number}", daemon=True).start()
    try:
        while order.is_active():
            for number in order.get_ready():
                ready.put(number)
            result = results.get()
            room.release()
            if isinstance(result, _Finished):
                order.done(result.number)
            elif isinstance(result, KinesisSdkError):
                raise result
            elif isinstance(result, BaseException):
                raise RuntimeError("reading a shard failed") from result  # noqa: TRY004 - a failure, not a type
            else:
                yield result
    finally:
        # A reader is in one of three places when the iterator is closed or has failed: in put(), which gets room, or gets it from the
        # reader before it; in a call or a pause, after which it comes to put(); or in ready.get(), which returns a range or None.
        # `stopped` is set first, so that no reader puts a result, and no waiting range is read.
        stopped.set()
        room.release()
        for _ in range(threads):
            ready.put(None)


def _order(items: Sequence[ShardRange]) -> TopologicalSorter[int]:
    """Return the order of the ranges, by index: a range is ready when its parents are done."""
    numbers: dict[tuple[StreamId, str], int] = {}
    for number, item in enumerate(items):
        if numbers.setdefault((item.stream, item.shard_id), number) != number:
            raise ValueError(f"stream {item.stream.name}, shard {item.shard_id} has two ranges in one task")
    order: TopologicalSorter[int] = TopologicalSorter()
    for number, item in enumerate(items):
        try:
            order.add(number, *(numbers[item.stream, parent] for parent in item.parents))
        except KeyError as error:
            raise ValueError(
                f"stream {item.stream.name}, shard {item.shard_id}: its parents ({', '.join(item.parents)}) have no range in "
                "this task"
            ) from error
    try:
        order.prepare()
    except CycleError as error:
        cycle = ", ".join(items[number].shard_id for number in error.args[1])
        raise ValueError(f"shards are parents of each other: {cycle}") from error
    return order
