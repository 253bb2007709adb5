"""Search for the copy of a record that readers deliver.

An idempotent producer that got no response sends its records again, and `put().result()` names the copy that was acknowledged. The readers
of this SDK deliver the first valid copy, which may lie before that position; see `kinesis_sdk.common.once.reader`. The search reads the
same records as a reader's look-up, and leaves all decisions to the reader's rules.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kinesis_sdk.common.aggregate_reader import deaggregate, open_aggregate
from kinesis_sdk.common.aws import KinesisClient, call_with_retries
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import AwsError, ConfigError, ResourceNotFoundError
from kinesis_sdk.common.once.budget import LookUpBudget
from kinesis_sdk.common.once.memory import key_of
from kinesis_sdk.common.once.pieces import Part
from kinesis_sdk.common.once.reader import Decision, ListShards, ReadShard, RunReader
from kinesis_sdk.common.once.shell import is_at_end, is_denied, start_of
from kinesis_sdk.common.once.table import NAMED, Run, decode_table
from kinesis_sdk.common.position import AtSequence
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.shard_cursor import ShardCursor, is_at_tip
from kinesis_sdk.common.shards import Shard, list_shards
from kinesis_sdk.common.stream import StreamId

MAX_COPIES = 10_000
"""Maximum Kinesis records with copies that are kept during a search."""
MAX_COPY_BYTES = 64 * 1024 * 1024
"""Maximum bytes of the payloads of these records."""
MAX_SEARCH_BYTES = 600_000_000
"""Maximum bytes that a search reads: a forged record may require 15 minutes of a shard. This is also a worker's default budget."""
_PAGE = 10_000
_REPORT_INTERVAL = 5.0
"""Seconds between two reports of a search."""
_READ_PAUSE = 1.0
"""Seconds between two GetRecords calls of a shard, which leaves the application four of the shard's five calls per second."""


@dataclass(frozen=True, kw_only=True)
class FirstCopy:
    """The copy of a user record that readers of this SDK deliver.

    Attributes:
        shard_id: Shard of the copy: the requested shard or an ancestor.
        sequence_number: Sequence number of its Kinesis record.
        sub_sequence_number: Position inside the aggregate from 0.
        is_repetition: Whether the copy is before the requested record, which is therefore not delivered.
        is_uncertain: Whether an earlier copy may exist that could not be read: it has expired, access is denied, or the search
            would read more than `MAX_SEARCH_BYTES`.
    """

    shard_id: str
    sequence_number: str
    sub_sequence_number: int
    is_repetition: bool
    is_uncertain: bool = False


def first_copy(
    client: KinesisClient,
    stream: str | StreamId,
    shard_id: str,
    sequence_number: str,
    sub_sequence_number: int = 0,
    *,
    clock: Clock | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> FirstCopy:
    """Return the position at which readers of this SDK deliver a record, given the position of one of its copies (see `PutResult`).

    Calls GetShardIterator and GetRecords for the record. If it may be a repetition, also calls ListShards, and reads the period in which
    an earlier copy may have arrived: a few seconds, or for a record with a ``dedup_id``, its ``dedup_window``.

    Args:
        client: boto3 Kinesis client.
        stream: Name or ARN.
        shard_id: Shard of the record.
        sequence_number: Sequence number of its Kinesis record.
        sub_sequence_number: Position inside the aggregate from 0.
        clock: Clock that measures calls and returns the time; replaced in tests.
        sleep: Called with the seconds to wait; replaced in tests.

    Raises:
        ConfigError: If the shard no longer has the record, or there are too many copies.
        InvalidPositionError: If the sequence number does not belong to this shard.
        AwsError: If a call fails; throttled calls are retried for a few seconds.
    """
    clock = clock or SystemClock()
    stream = StreamId.parse(stream)
    cursor = ShardCursor(client, stream, shard_id, AtSequence(sequence_number), clock=clock)
    while True:
        page = call_with_retries(lambda: cursor.fetch(1), operation=None, client=client, sleep=sleep)
        cursor.advance(page)
        if page.records or page.next_iterator is None or is_at_tip(page, 1):
            break
        sleep(_READ_PAUSE)
    record = page.records[0] if page.records else None
    if record is None or record.sequence_number != sequence_number:
        raise ConfigError(
            "sequence_number", sequence_number, f"the number of a record that shard {shard_id} still has"
        )
    last = len(deaggregate([record])) - 1
    if not 0 <= sub_sequence_number <= last:
        raise ConfigError(
            "sub_sequence_number", sub_sequence_number, f"a number from 0 to {last}, in this aggregate"
        )
    search = CopySearch(client, stream, shard_id, record, clock=clock, sleep=sleep)
    return search.first_of(sub_sequence_number)


class CopySearch:
    """A search for the earlier copies of the user records of one Kinesis record. The search makes its calls when it is created.

    Nearly every record cannot have another copy, and costs no call.

    Args:
        client: boto3 Kinesis client.
        stream: The stream.
        shard_id: Shard of the record.
        record: The Kinesis record.
        clock: Clock that measures calls and returns the time.
        sleep: Called with the seconds to wait.
        shards: All shards of the stream, if they are known; by default they are listed when needed.
        report: Called with a progress message every few seconds of a long search.

    Raises:
        ConfigError: If there are more than `MAX_COPIES`.
        AwsError: If a call fails.
    """

    def __init__(
        self,
        client: KinesisClient,
        stream: StreamId,
        shard_id: str,
        record: KinesisRecord,
        *,
        clock: Clock,
        sleep: Callable[[float], None],
        shards: Iterable[Shard] | None = None,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._report = report
        self._reported_at = clock.monotonic()
        self._read_bytes = 0
        self._client = client
        self._stream = stream
        self._shard_id = shard_id
        self._record = record
        self._clock = clock
        self._sleep = sleep
        self._shards = None if shards is None else list(shards)
        self._denied: AwsError | None = None
        self._runs = _runs_of(record, stream)
        self._keys = {key_of(run) for run in self._runs}
        # By shard, in the order in which a reader reads them; ancestors come last here.
        self._copies: dict[str, list[KinesisRecord]] = {}
        self._count = self._bytes = 0
        self._decision = Decision()
        if self._runs:
            self._decision = self._decide(self._read, LookUpBudget(MAX_SEARCH_BYTES))

    @property
    def is_uncertain(self) -> bool:
        """Whether earlier copies may exist that have expired, cannot be read, or are too far back."""
        return self._decision.unknown > 0

    def first_of(self, sub: int) -> FirstCopy:
        """Return the copy of a user record of the Kinesis record that readers deliver."""
        place = self._shard_id, self._record.sequence_number, sub
        if not _covers(self._parts(self._decision), sub):
            return _copy(*place, is_repetition=False, is_uncertain=self.is_uncertain)
        path = self._path()
        count = _least(len(path), lambda some: _covers(self._parts(self._judge(path[:some])), sub))
        if count == 0:  # it is dropped because it is misplaced
            return _copy(*place, is_repetition=False)
        shard_id, record = path[count - 1]
        return _copy(shard_id, record.sequence_number, self._place_in(record, sub), is_repetition=True)

    def earliest(self, first_sub: int = 0) -> list[FirstCopy]:
        """Return, for each shard, the earliest copy that is delivered instead of user records of the Kinesis record.

        Args:
            first_sub: Sub-sequence number of the first user record to consider.

        Returns:
            The copies, ancestors first; none if no user record is a repetition.
        """
        found: list[FirstCopy] = []
        path = self._path()
        if not self._dropped(self._decision, first_sub):
            return found
        done = begin = 0
        while begin < len(path):
            shard_id = path[begin][0]
            end = begin + len(self._copies[shard_id])
            if self._dropped(self._judge(path[:end]), first_sub) > done:
                seen = done
                count = (
                    begin
                    + _least(
                        end - begin,
                        lambda some, begin=begin, seen=seen: (  # type: ignore[misc]
                            self._dropped(self._judge(path[: begin + some]), first_sub) > seen
                        ),
                    )
                )
                number = path[count - 1][1].sequence_number
                found.append(_copy(shard_id, number, 0, is_repetition=True))
                done = self._dropped(self._judge(path[:end]), first_sub)
            begin = end
        return found

    def _parts(self, decision: Decision) -> Sequence[Part]:
        return decision.dropped.get(self._record.sequence_number, ())

    def _dropped(self, decision: Decision, first_sub: int) -> int:
        """Return the number of user records from ``first_sub`` on that are dropped."""
        return sum(max(last - max(first, first_sub) + 1, 0) for first, last in self._parts(decision))

    def _path(self) -> list[tuple[str, KinesisRecord]]:
        return [
            (shard_id, record) for shard_id in reversed(self._copies) for record in self._copies[shard_id]
        ]

    def _place_in(self, record: KinesisRecord, sub: int) -> int:
        """Return the sub-sequence number of the first copy of user record ``sub`` in ``record``, an aggregate that contains a copy."""
        first = 0
        for run in self._runs:
            if sub < first + run.count:
                break
            first += run.count
        key, number, place = key_of(run), run.number + sub - first, 0
        for other in _runs_of(record, self._stream):
            inside = other.number <= number < other.number + other.count
            if inside and key_of(other) == key and bool(other.flags & NAMED) == bool(run.flags & NAMED):
                return place + number - other.number
            place += other.count
        raise AssertionError("the copy is in this aggregate")

    # Decisions by the rules of a reader

    def _judge(self, copies: Sequence[tuple[str, KinesisRecord]]) -> Decision:
        """Return the decision of a reader for which these are the only copies."""

        def answer(step: ReadShard) -> Iterable[tuple[list[KinesisRecord], bool]]:
            some = (
                [] if step.since_millis is None else [one for where, one in copies if where == step.shard_id]
            )
            yield some, True

        return self._decide(answer)

    def _decide(
        self,
        pages_of: Callable[[ReadShard], Iterable[tuple[list[KinesisRecord], bool]]],
        budget: LookUpBudget | None = None,
    ) -> Decision:
        reader = RunReader(self._stream.name, self._shard_id, None, contiguous=False, budget=budget)
        reader.begin([self._record])
        deaggregate([self._record], on_tagged=reader.add)
        now = round(self._clock.time() * 1000)
        look_up = reader.look_up(now)
        while look_up is not None and (step := look_up.step) is not None:
            try:
                if isinstance(step, ListShards):
                    look_up.listed(self._list())
                    continue
                for records, at_end in pages_of(step):
                    look_up.page(records, at_end=at_end)
                    if look_up.step is not step:
                        break
            except ResourceNotFoundError:
                if not isinstance(step, ReadShard) or step.shard_id == self._shard_id:
                    raise
                look_up.gone()
            except AwsError as error:
                if not is_denied(error):
                    raise
                look_up.refused()
        return reader.decide(now)

    # The stream

    def _list(self) -> list[Shard]:
        if self._denied is not None:
            raise self._denied
        if self._shards is None:
            try:
                self._shards = call_with_retries(
                    lambda: list_shards(self._client, self._stream), operation=None, sleep=self._sleep
                )
            except AwsError as error:
                if is_denied(error):
                    self._denied = error  # the rules ask for the shards several times
                raise
        return self._shards

    def _read(self, step: ReadShard) -> Iterable[tuple[list[KinesisRecord], bool]]:
        """Read a shard, and keep records that may be copies."""
        cursor = ShardCursor(self._client, self._stream, step.shard_id, start_of(step), clock=self._clock)
        own = step.shard_id == self._shard_id
        while True:
            page = call_with_retries(
                lambda: cursor.fetch(step.limit or _PAGE),
                operation=None,
                client=self._client,
                sleep=self._sleep,
            )
            cursor.advance(page)
            if step.since_millis is not None:
                for record in page.records:
                    if own and int(record.sequence_number) >= int(self._record.sequence_number):
                        break
                    self._keep(step.shard_id, record)
            self._read_bytes += sum(len(record.data) for record in page.records)
            yield page.records, is_at_end(page.records, page.header)
            self._sleep(_READ_PAUSE)
            self._show_progress(step.shard_id)

    def _show_progress(self, shard_id: str) -> None:
        now = self._clock.monotonic()
        if now < self._reported_at + _REPORT_INTERVAL:
            return
        self._reported_at = now
        self._report(
            f"searching {shard_id} for the first copy of record {self._record.sequence_number}: "
            f"{self._read_bytes / 1e6:,.0f} MB read, of {MAX_SEARCH_BYTES / 1e6:,.0f} MB at most"
        )

    def _keep(self, shard_id: str, record: KinesisRecord) -> None:
        kept = self._copies.setdefault(shard_id, [])
        if not any(key_of(run) in self._keys for run in _runs_of(record, self._stream)):
            return
        kept.append(record)
        self._count += 1
        self._bytes += len(record.data)
        if self._count > MAX_COPIES or self._bytes > MAX_COPY_BYTES:
            raise ConfigError(
                "sequence_number",
                self._record.sequence_number,
                f"a record of fewer than {MAX_COPIES:,} copies",
            )


def _runs_of(record: KinesisRecord, stream: StreamId) -> Sequence[Run]:
    columns = open_aggregate(record.data)
    if columns is None or columns.tag is None:
        return ()
    table = decode_table(columns.tag, stream.name, len(columns.payloads))
    return () if table is None else table.runs


def _copy(
    shard_id: str, number: str, sub: int, *, is_repetition: bool, is_uncertain: bool = False
) -> FirstCopy:
    return FirstCopy(
        shard_id=shard_id,
        sequence_number=number,
        sub_sequence_number=sub,
        is_repetition=is_repetition,
        is_uncertain=is_uncertain,
    )


def _covers(parts: Iterable[Part], sub: int) -> bool:
    return any(first <= sub <= last for first, last in parts)


def _least(count: int, is_enough: Callable[[int], bool]) -> int:
    """Return the smallest sufficient number up to ``count``; 0 if even ``count`` is not sufficient."""
    if not is_enough(count):
        return 0
    low, high = 0, count  # `low` is too small, `high` is enough
    while high - low > 1:
        middle = (low + high) // 2
        if is_enough(middle):
            high = middle
        else:
            low = middle
    return high
