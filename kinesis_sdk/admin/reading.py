"""Reading a window of a stream, or following it: all shards merged by arrival time, across splits and merges.

    for shard_id, record in read_stream(connection, "orders", start=fifteen_minutes_ago):
        ...

A reader makes one ListShards call at the start and one for each shard that ends; one GetShardIterator call for each shard; GetRecords
at most four times a second for a shard that is behind, and once a second at the tip.
"""

from __future__ import annotations

import json
import math
import queue
import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from random import Random
from typing import Any, NamedTuple

from kinesis_sdk.admin.connection import Connection
from kinesis_sdk.admin.lineage import find_shard, shard_label
from kinesis_sdk.admin.merge import DEFAULT_BUDGET, ReadRequest, ShardRecord, StreamMerge
from kinesis_sdk.admin.records import child_ids, user_records_after
from kinesis_sdk.common.aws import call_with_retries
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.codec import locating
from kinesis_sdk.common.daemon_pool import DaemonPool
from kinesis_sdk.common.errors import (
    CodecUnavailableError,
    ConfigError,
    KinesisSdkError,
    PermanentAwsError,
    ProtocolError,
    ThrottledError,
)
from kinesis_sdk.common.position import AtTimestamp, Ended, Latest, Position, TrimHorizon
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.service_clock import EstimatedServiceClock
from kinesis_sdk.common.shard_cursor import ShardCursor, is_at_tip
from kinesis_sdk.common.shards import Shard, find_hole, list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.transport import GetRecordsPage, Transport
from kinesis_sdk.common.validation import check_int

DEFAULT_THREADS = 8
_LONGEST_WAIT = 0.5
"""Maximum seconds of one wait, so that Ctrl-C takes effect soon on every platform."""
_MAX_EXPRESSION = 1_000
"""Maximum number of characters of a JMESPath expression."""
_GIVE_UP_AFTER = 20
"""Consecutive failures of one shard, about three minutes, after which the error is raised. Throttling is never raised."""

Notice = Callable[[str], None]
"""Called with a message about the stream, for example that a shard ended or is throttled."""


@dataclass(frozen=True, kw_only=True)
class RecordFilter:
    """Selection of records to show.

    Attributes:
        keys: Partition keys; empty for all.
        pattern: Regular expression to search for in the bytes of the payload; None for all.
        where: Returns whether to select the JSON value of a payload; None for all. Other payloads are not selected.
    """

    keys: frozenset[str] = frozenset()
    pattern: re.Pattern[bytes] | None = None
    where: Callable[[Any], bool] | None = None

    @classmethod
    def make(
        cls, keys: Sequence[str] = (), grep: str | None = None, where: str | None = None
    ) -> RecordFilter:
        """Return the filter of a user's options.

        Args:
            keys: Partition keys.
            grep: Regular expression of Python for the payload's UTF-8 text.
            where: JMESPath expression for JSON payloads, as ``--query`` of the AWS command line; selects payloads for which its result is
                neither false, null nor empty, for example ``order.status == 'failed'``.

        Raises:
            ConfigError: If an expression is invalid.
        """
        pattern = None
        if grep is not None:
            try:
                pattern = re.compile(grep.encode())
            except (re.error, UnicodeEncodeError) as error:
                raise ConfigError("grep", grep, f"a regular expression ({error})") from error
        return cls(
            keys=frozenset(keys), pattern=pattern, where=None if where is None else _json_condition(where)
        )

    @property
    def is_all(self) -> bool:
        """Whether every record is selected."""
        return not self.keys and self.pattern is None and self.where is None

    def accepts(self, record: UserRecord) -> bool:
        """Return whether a record is selected."""
        return (
            (not self.keys or record.partition_key in self.keys)
            and (self.pattern is None or self.pattern.search(record.data) is not None)
            and (self.where is None or self._is_where(record.data))
        )

    def _is_where(self, data: bytes) -> bool:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
            return False
        return self.where is not None and self.where(value)


def _json_condition(text: str) -> Callable[[Any], bool]:
    """Return the condition of a JMESPath expression. The library is a dependency of boto3."""
    import jmespath
    from jmespath.exceptions import JMESPathError, JMESPathTypeError

    expected = "a JMESPath expression, such as order.status == 'failed'"
    if len(text) > _MAX_EXPRESSION:
        raise ConfigError("where", f"{len(text)} characters", f"at most {_MAX_EXPRESSION} characters")
    try:
        expression = jmespath.compile(text)
        expression.search({})  # an unknown function is noticed when it is called
    except JMESPathTypeError:
        pass  # a function that does not fit this value
    except (JMESPathError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError("where", text, f"{expected} ({reason})") from error

    def condition(value: Any) -> bool:
        try:
            found = expression.search(value)
        except (JMESPathError, RecursionError):
            return False  # a function does not fit the shape of this record
        return found is not None and found is not False and found not in ("", [], {})

    return condition


class _Answer(NamedTuple):
    """The result of a read on a thread."""

    shard_id: str
    limit: int
    page: GetRecordsPage | None
    records: list[UserRecord]
    error: BaseException | None
    sent_millis: int
    sent: float


@dataclass
class ReadProgress:
    """State of a reader; the fields change while it runs.

    Attributes:
        worst_behind_millis: Largest lag that an open shard reported; None before the first response.
        shards: Number of shards being read.
        reads: GetRecords calls with a response.
    """

    worst_behind_millis: int | None = None
    shards: int = 0
    reads: int = field(default=0)


def read_stream(
    connection: Connection,
    stream: str | StreamId,
    *,
    start: Position | datetime,
    until: datetime | None = None,
    shards: Sequence[str] = (),
    positions: Mapping[str, Position] | None = None,
    budget: int = DEFAULT_BUDGET,
    threads: int = DEFAULT_THREADS,
    notice: Notice = lambda _message: None,
    progress: ReadProgress | None = None,
    clock: Clock | None = None,
    sleep: Callable[[float], None] = time.sleep,
    rng: Random | None = None,
) -> Generator[ShardRecord, None, None]:
    """Yield the user records of a stream, merged over its shards by arrival time.

    Records of a shard are yielded in its order, and a parent's records before its children's records. Records of other shards are ordered
    by
    arrival time, which Kinesis calls approximate. Splits and merges are followed. No record is skipped: a failed read is retried, and
    other shards wait for it if the order requires this.

    Args:
        connection: Account and region.
        stream: Name or ARN.
        start: A time, `TrimHorizon`, `Latest`, or `AtTimestamp`.
        until: Excludes records that arrived at this time or later, and ends the reader there; None follows the stream until
            the generator is closed.
        shards: Ids or numbers of the shards to read; all by default. The children of a chosen shard are not read.
        positions: Positions of single shards that replace ``start``, to resume a reader; `Ended` for shards that were read
            completely.
        budget: Bytes of payload to buffer, at least one record for each shard.
        threads: Maximum reads at a time, 1 to 64; 0 reads on the caller's thread.
        notice: Called with messages for the user.
        progress: Object whose fields are updated while reading.
        clock: Measures pauses; replaced in tests.
        sleep: Called with the seconds to wait while no read is in flight; replaced in tests.
        rng: Source of jitter; replaced in tests.

    Yields:
        The records with their shards.

    Raises:
        ConfigError: If a shard does not exist, or an argument is out of range.
        AwsError: If a call fails permanently, or a shard could not be read for about three minutes.
    """
    check_int("threads", threads, 0, 64)
    check_int("budget", budget, 1)
    clock = clock or SystemClock()
    if isinstance(start, datetime):
        if start.timestamp() > clock.time():
            raise ConfigError("start", start.isoformat(), "a time that has passed")
        start = AtTimestamp(_millis(start))
    reader = _Reader(
        connection,
        StreamId.parse(stream),
        start=start,
        merge=StreamMerge(
            # Arrival times have milliseconds, so a record of the same millisecond is before the end.
            until_millis=None if until is None else math.ceil(until.timestamp() * 1000),
            budget=budget,
            rng=rng,
        ),
        chosen=tuple(shards),
        positions=positions or {},
        threads=threads,
        notice=notice,
        progress=progress or ReadProgress(),
        clock=clock,
        sleep=sleep,
    )
    yield from reader.records()


def _millis(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


class _Reader:
    """One run of `read_stream`: makes the reads that the merge requests."""

    def __init__(
        self,
        connection: Connection,
        stream: StreamId,
        *,
        start: Position,
        merge: StreamMerge,
        chosen: tuple[str, ...],
        positions: Mapping[str, Position],
        threads: int,
        notice: Notice,
        progress: ReadProgress,
        clock: Clock,
        sleep: Callable[[float], None],
    ) -> None:
        self._client = Transport(connection.kinesis)
        self._stream = stream
        self._start = start
        self._merge = merge
        self._chosen = chosen
        self._positions = positions
        self._threads = threads
        self._notice = notice
        self._progress = progress
        self._clock = clock
        self._sleep = sleep
        self._service_clock = EstimatedServiceClock(clock)
        self._cursors: dict[str, ShardCursor] = {}
        self._answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
        self._pool: DaemonPool | None = None
        self._in_flight = 0

    def records(self) -> Iterator[ShardRecord]:
        """Yield the records."""
        if self._threads:
            self._pool = DaemonPool(self._threads, "kinesis-sdk-read", self._escaped)
        try:
            self._add_first()
            while not self._merge.is_done:
                for request in self._merge.due_reads(self._clock.monotonic()):
                    self._in_flight += 1
                    if self._pool is None:
                        self._read(request)
                    else:
                        self._pool.submit(lambda request=request: self._read(request))  # type: ignore[misc]
                given = 0
                for record in self._merge.pop():
                    given += 1
                    yield record
                self._take_answers(wait=not given)
        finally:
            if self._pool is not None:
                self._pool.close()

    # -- shards -------------------------------------------------------------------------------------------------

    def _list(self, shard_filter: Mapping[str, object] | None = None) -> list[Shard]:
        """Return the shards of a complete listing, because a listing during a reshard may lack shards."""

        def complete() -> list[Shard]:
            listed = list_shards(self._client, self._stream, shard_filter=shard_filter)
            hole = find_hole(shard.hash_key_range for shard in listed if shard.is_open)
            if hole is not None:
                raise ProtocolError(f"ListShards: no open shard covers {hole.start} to {hole.end}")
            return listed

        return call_with_retries(complete, operation=None, client=self._client, sleep=self._sleep)

    def _children_of(self, shard_id: str) -> list[tuple[str, Sequence[str]]]:
        """Return the listed children of a shard that has ended, with their parents."""

        def listed_children() -> list[tuple[str, Sequence[str]]]:
            children = self._children_of(shard_id)
            if not children:
                # The listing may be older than the end of the shard.
                raise ProtocolError(f"ListShards: no child of {shard_id}, which has ended")
            return children

        try:
            return call_with_retries(
                listed_children, operation=None, client=self._client, attempts=6, sleep=self._sleep
            )
        except ProtocolError:
            self._notice(f"shard {shard_label(shard_id)} has ended, and no shard follows it")
            return []

    def _listed_since(self, start: Position) -> list[Shard]:
        """Return the shards that may have records from a position on."""
        if isinstance(start, AtTimestamp):
            # Add a second, because the times of shards and of records come from different clocks.
            since = datetime.fromtimestamp(max(0, start.millis - 1000) / 1000, timezone.utc)
            try:
                return self._list({"Type": "FROM_TIMESTAMP", "Timestamp": since})
            except PermanentAwsError:
                # A time in the future, or an emulator without filters. The complete list contains what is needed.
                return self._list()
        return self._list()

    def _add_first(self) -> None:
        now = self._clock.monotonic()
        if self._chosen:
            listed = self._list()
            wanted = [find_shard(text, listed) for text in self._chosen]
        else:
            # A resumed reader may need shards that ended before its start.
            listed = self._list() if self._positions else self._listed_since(self._start)
            wanted = listed
            if isinstance(self._start, Latest):
                wanted = [one for one in listed if one.is_open or one.shard_id in self._positions]
        for shard in sorted(wanted, key=lambda one: one.shard_id):
            self._add(shard.shard_id, shard.parents, self._positions.get(shard.shard_id, self._start), now)
        if isinstance(self._start, Latest):
            # Get all iterators at once: the tip is the position at the time of the user's request, not at the time of
            # the first read.
            for cursor in self._cursors.values():
                if cursor.position == self._start:
                    call_with_retries(cursor.open, operation=None, client=self._client, sleep=self._sleep)

    def _add(self, shard_id: str, parents: Sequence[str], start: Position, now: float) -> None:
        if not self._merge.add(shard_id, start, parents, now):
            return
        if not isinstance(start, Ended):
            self._cursors[shard_id] = ShardCursor(
                self._client,
                self._stream,
                shard_id,
                start,
                clock=self._clock,
                on_response=self._service_clock.observe,
            )

    def _add_children(self, shard_id: str, page: GetRecordsPage) -> None:
        if self._chosen:
            names = ", ".join(map(shard_label, child_ids(page))) or "not known"
            self._notice(f"shard {shard_label(shard_id)} has ended; the shards after it are {names}")
            return
        children: list[tuple[str, Sequence[str]]] = [
            (str(child["ShardId"]), [str(parent) for parent in child.get("ParentShards") or [shard_id]])
            for child in page.child_shards or ()
            if child.get("ShardId")
        ]
        if not children:
            children = [(one.shard_id, one.parents) for one in self._list() if shard_id in one.parents]
        now = self._clock.monotonic()
        # A child that did not exist at the start has no records before the start.
        start = TrimHorizon() if isinstance(self._start, Latest) else self._start
        new = [child for child, _ in children if child not in self._merge]
        for child, parents in children:
            self._add(child, parents, self._positions.get(child, start), now)
        if new:
            names = ", ".join(map(shard_label, new))
            self._notice(f"shard {shard_label(shard_id)} has ended; going on with {names}")

    # -- reads --------------------------------------------------------------------------------------------------

    def _read(self, request: ReadRequest) -> None:
        """Make one read, on a thread of the pool; the caller's thread raises its errors."""
        shard_id, limit = request
        cursor = self._cursors[shard_id]
        sent = self._clock.monotonic()
        sent_millis = self._service_clock.past_millis()
        try:
            page = cursor.fetch(limit)
            with locating(stream=self._stream.name, shard_id=shard_id):
                records = user_records_after(page, cursor.position)
        except BaseException as error:  # noqa: BLE001 - the caller's thread raises it
            self._answers.put(_Answer(shard_id, limit, None, [], error, sent_millis, sent))
        else:
            self._answers.put(_Answer(shard_id, limit, page, records, None, sent_millis, sent))

    def _escaped(self, error: BaseException) -> None:
        raise error

    def _take_answers(self, *, wait: bool) -> None:
        """Take the available results; if there is no other work, wait for a result or for the next read."""
        if wait and self._in_flight:
            try:
                answer = self._answers.get(timeout=_LONGEST_WAIT)
            except queue.Empty:
                return
            self._take(answer)
        elif wait:
            due = self._merge.next_due()
            if due is not None:
                pause = due - self._clock.monotonic()
                if pause > 0:
                    self._sleep(min(pause, _LONGEST_WAIT))
            return
        while True:
            try:
                self._take(self._answers.get_nowait())
            except queue.Empty:
                return

    def _take(self, answer: _Answer) -> None:
        self._in_flight -= 1
        shard_id, page = answer.shard_id, answer.page
        if page is None:
            self._failed(shard_id, answer.error)
            return
        self._cursors[shard_id].advance(page)
        ended = page.next_iterator is None
        if ended:
            # Add the children before the page: they must be known when the last record of their parent is given out.
            self._add_children(shard_id, page)
        self._merge.on_page(
            shard_id,
            answer.records,
            kinesis_records=len(page.records),
            at_tip=not ended and is_at_tip(page, answer.limit),
            ended=ended,
            behind_millis=page.header.millis_behind_latest,
            sent_millis=answer.sent_millis,
            sent=answer.sent,
        )
        self._progress.reads += 1
        self._progress.shards = self._merge.active
        self._progress.worst_behind_millis = self._merge.worst_behind_millis

    def _failed(self, shard_id: str, error: BaseException | None) -> None:
        assert error is not None
        if not isinstance(error, KinesisSdkError) or not error.retryable:
            raise error
        if isinstance(error, CodecUnavailableError):
            raise error  # a missing library stays missing while a command runs
        failures = self._merge.failures(shard_id)
        if failures >= _GIVE_UP_AFTER and not isinstance(error, ThrottledError):
            raise error
        pause = self._merge.on_failure(shard_id, self._clock.monotonic())
        if failures in (2, 10):
            why = (
                "its reads are used up by other readers"
                if isinstance(error, ThrottledError)
                else f"{type(error).__name__}"
            )
            self._notice(f"shard {shard_label(shard_id)} is waited for: {why}; next read in {pause:.1f} s")
