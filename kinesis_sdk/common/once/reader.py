"""Rules by which a reader of one shard finds the repetitions among the records of idempotent producers, without any I/O.

A producer that got no response sends its records again, so a record may be stored several times. A copy is *valid* if its whole aggregate
belongs to the shard where it is stored. The valid copies of a record lie on one path of shards, each the child of the shard
before it. **The first valid copy is the record, and readers drop every other copy.** The stream alone determines the first copy, not the
reader, its start or its batches, so no state is needed except the checkpoint.

Nearly every record arrives so soon after its date that it can only be the first copy, and is delivered. Records that are late or marked
as repeated are *suspects*. The reader searches its memory for their earlier copies and, if the memory is too short, the stream.

| rule | |
| --- | --- |
| R1 | A misplaced aggregate is dropped: its producer puts it again. A misplaced aggregate older than `OLDEST_MILLIS` was forwarded from elsewhere and is treated like an aggregate without a tag. An aggregate that was made for another shard is judged after the shard's range is known, if necessary from ListShards. |
| R2 | A run is suspect if it is marked (`REPEAT`, or `NAMED` without `FIRST`), or arrived no earlier than `EARLY_MILLIS` before the end of its hold-off. |
| R3 | A suspect record is dropped if an earlier valid copy arrived at `_earliest` or later, within the reader's reach. |
| R4 | The memory is complete since the first record that was read, and each of its entries has a position. |
| R5 | If the memory begins later than `_earliest`, the shard is read again from there on, and its parents as far as they reach. |
| R6 | If the earlier copies have expired, or reading them is not permitted, the record is delivered and counted as unknown. |
| R7 | Equal bytes, stored twice in the shard, are one record: something between the producer and Kinesis repeated the request. |
| R8 | Dropped records count as delivered; the caller ensures this. |

A worker, a Spark task or a Lambda function does this for the batches of a shard, in order:

```python
reader = RunReader(stream_name, shard_id, hash_key_range, parents=parent_ids)
...
reader.begin(kinesis_records)
users = deaggregate(kinesis_records, on_tagged=reader.add)
look_up = reader.look_up()
while look_up is not None and (step := look_up.step) is not None:
    ...                     # carry out the step; see `LookUp`, and `kinesis_sdk.common.once.shell` for loops that may block
decision = reader.decide(now_millis)
users = users.without(decision.dropped)
```

A reader decides the same wherever it begins; its start only affects the number of suspects to look up.
For Spark, create a reader for each range with ``drops_equal=False``, and pass the driver's list of shards to `LookUp.listed`
instead of listing the shards in each task.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kinesis_sdk.common.aggregate_reader import (
    DIGEST_SIZE,
    SubRecordColumns,
    has_outside,
    hash_keys_of,
    open_aggregate,
)
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.once.budget import MAX_BYTES, OLDEST_MILLIS, YOUNG_MILLIS, LookUpBudget
from kinesis_sdk.common.once.memory import (
    ANCESTOR,
    NEVER,
    Recollection,
    RunMemory,
    Shortage,
    key_of,
)
from kinesis_sdk.common.once.pieces import NO_ARRIVAL, Copy, Part, Pieces, add_copy, has_copy
from kinesis_sdk.common.once.table import (
    FIRST,
    NAMED,
    REPEAT,
    Run,
    RunTable,
    decode_table,
    decode_unmarked,
    encode_header,
    is_unmarked,
    shard_checksum,
)
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.shards import Shard, ShardGraph

EARLY_MILLIS = 2000
"""Milliseconds by which arrivals may contradict the order of records, and dates the time of sending."""

_MARKED_MILLIS = 30_000
"""The search for copies of a repeated record begins at least this many milliseconds before its arrival, so that a wrong clock of
the producer does little harm. Named records are excepted: their window is the application's choice."""

RETENTION_MILLIS = 24 * 3600 * 1000
"""Minimum milliseconds for which a stream keeps records. A look-up detects a longer retention by the oldest record that still exists,
which needs no further permission and follows changes of the retention period."""

_MARKED = REPEAT | NAMED

_SUB_BITS = 24
"""Bits of a sub-sequence number: an aggregate of 10 MiB has fewer than 2**24 user records."""


@dataclass(slots=True)
class Decision:
    """Decision on the tagged aggregates of a batch.

    Attributes:
        dropped: By sequence number, the dropped parts as ranges of sub-sequence numbers, in order. See `UserRecords.without`.
        repeated: User records that are dropped because an earlier copy is delivered.
        misplaced: User records that are dropped because their aggregate is misplaced.
        unknown: User records that are delivered although an earlier copy may exist that could not be searched for.
        named: Records counted in ``repeated`` that are not retries by their producer: an earlier record has the same name. Another
            process put a record of the same fact, or a program that is allowed to put records took the name.
        first_named: Position of the first record counted in ``named``, as ``sequenceNumber/subSequenceNumber``; None if there is no such
            record.
    """

    dropped: dict[str, list[Part]] = field(default_factory=dict)
    repeated: int = 0
    misplaced: int = 0
    unknown: int = 0
    named: int = 0
    first_named: str | None = None


class ReadShard(NamedTuple):
    """Step of a look-up: read a shard.

    Attributes:
        shard_id: The shard.
        since_millis: Arrival at which to begin (``AT_TIMESTAMP``), in milliseconds since 1970; None begins at the oldest record.
        limit: Maximum number of records that are useful in one call; None for any number.
    """

    shard_id: str
    since_millis: int | None
    limit: int | None = None


class ListShards(NamedTuple):
    """Step of a look-up: list all shards of the stream."""


Step = ReadShard | ListShards


@dataclass(slots=True)
class _Suspect:
    """A run that is looked up."""

    sequence_number: str  # of its Kinesis record
    sequence: int
    sub: int  # sub-sequence number of its first user record
    run: Run
    since: int  # earliest arrival of a copy that matters
    arrival: int
    found: list[Part]  # numbers with an earlier copy in the memory, in disjoint parts


class _KeptBack(NamedTuple):
    """An aggregate that is judged once the shard's range is known."""

    carrier: KinesisRecord
    table: RunTable
    user_records: int
    is_new: bool  # False if it is read again
    # Lowest and highest hash key of its user records; None if none has one, or if it was made for this shard.
    hash_keys: tuple[bytes, bytes] | None

    def is_outside(self, owned: HashKeyRange) -> bool:
        """Return whether a user record lies outside the range."""
        keys = self.hash_keys
        return keys is not None and (keys[0] < owned.start_bytes or keys[1] > owned.end_bytes)


class _Search(NamedTuple):
    """Task of a look-up."""

    suspects: Sequence[_Suspect]
    before: int  # sequence number at which the shard has been read far enough
    room: int  # maximum bytes of the copies that are kept for the memory
    shortage: Shortage | None  # None if the memory is large enough


class _Copies:
    """Copies of names and of numbers of runs, added in order."""

    __slots__ = ("_names", "_pieces")

    def __init__(self) -> None:
        self._names: dict[bytes, list[Copy]] = {}
        self._pieces: dict[bytes, Pieces] = {}

    def add_name(self, key: bytes, copy: Copy) -> None:
        add_copy(self._names.setdefault(key, []), copy)

    def add_numbers(self, key: bytes, first: int, last: int, copy: Copy) -> None:
        self._pieces.setdefault(key, Pieces()).add(first, last, copy)

    def parts(self, key: bytes, run: Run, limit: int, since: int) -> Iterable[Part]:
        """Return the parts of a run with a copy that lies before ``limit`` and arrived at ``since`` or later; they are disjoint."""
        wanted = run.number, run.number + run.count - 1
        if run.flags & NAMED:
            return [wanted] if has_copy(self._names.get(key, []), limit, since) else ()
        pieces = self._pieces.get(key)
        return () if pieces is None else pieces.parts(wanted, limit, since)


class _Wanted:
    """The names and numbers that a look-up searches for, and the copies of these records that were read.

    The size of this object grows with the suspects, not with the records that are read: it keeps the names and numbers of the suspects,
    and one copy of each from before the first suspect.
    """

    __slots__ = ("_before", "_begin", "_behind", "_names", "_numbers")

    def __init__(self, suspects: Sequence[_Suspect]) -> None:
        self._begin = min([suspect.sequence for suspect in suspects], default=0)
        self._names: set[bytes] = set()
        # Numbers of the suspects with each key, in disjoint parts.
        self._numbers: dict[bytes, list[Part]] = {}
        # Copies before the first suspect, in this shard or in ancestors; and copies after it, which a rewind or a gap leaves.
        self._before, self._behind = _Copies(), _Copies()
        for suspect in suspects:
            run, key = suspect.run, key_of(suspect.run)
            if run.flags & NAMED:
                self._names.add(key)
            else:
                self._numbers.setdefault(key, []).append((run.number, run.number + run.count - 1))
        for key, parts in self._numbers.items():
            self._numbers[key] = _joined(parts)

    def note(self, key: bytes, run: Run, sequence: int, sub: int, arrival: int | None) -> None:
        """Keep the names or numbers of a run that the search needs. The runs of one shard must be added in order."""
        if sequence < self._begin:
            copies, place = self._before, -1
        else:
            copies, place = self._behind, _place(sequence, sub)
        copy = place, NO_ARRIVAL if arrival is None else arrival
        if run.flags & NAMED:
            if key in self._names:
                copies.add_name(key, copy)
            return
        wanted = self._numbers.get(key, ())
        first, last = run.number, run.number + run.count - 1
        for index in range(bisect_left(wanted, first, key=_last_of), len(wanted)):
            begin, end = wanted[index]
            if begin > last:
                break
            copies.add_numbers(key, max(first, begin), min(last, end), copy)

    def found(self, suspect: _Suspect) -> list[Part]:
        """Return the suspect's numbers that have an earlier copy, in parts that may overlap."""
        run, key, since = suspect.run, key_of(suspect.run), suspect.since
        limit = _place(suspect.sequence, suspect.sub)
        return [*self._before.parts(key, run, limit, since), *self._behind.parts(key, run, limit, since)]


def _place(sequence: int, sub: int) -> int:
    return sequence << _SUB_BITS | sub


def _last_of(part: Part) -> int:
    return part[1]


class RunReader:
    """The rules of a reader, for one shard. Used by one thread at a time.

    For each batch: `begin`, `add` (any number of times), `look_up` with the steps that it needs, then `decide`.

    Args:
        stream_name: Name of the stream, not its ARN.
        shard_id: The shard.
        hash_key_range: Range of the shard; None if unknown. If unknown, the first look-up that needs the range determines it once.
        parents: Ids of the shard's parents; None if unknown. Without parents the shards need not be listed.
        contiguous: Whether there are no gaps within a batch or between two batches. Otherwise a copy that was
            not read proves nothing, so every suspect without a known earlier copy is looked up.
        drops_equal: Whether equal bytes in the shard are dropped (R7). The decision depends on the records read before, so
            pass False for readers that have to return equal records for an equal range.
        max_bytes: Maximum bytes of the memory.
        budget: Limit of the bytes that look-ups read; None for any number.
        reach_millis: Maximum milliseconds between the arrivals of a record and of an earlier copy that matters. Unlike a budget, this
            limit leaves out the same records each time. Such records are delivered, and counted as unknown.
    """

    def __init__(
        self,
        stream_name: str,
        shard_id: str,
        hash_key_range: HashKeyRange | None,
        *,
        parents: Sequence[str] | None = None,
        contiguous: bool = True,
        drops_equal: bool = True,
        max_bytes: int = MAX_BYTES,
        budget: LookUpBudget | None = None,
        reach_millis: int = OLDEST_MILLIS,
    ) -> None:
        self._budget = budget
        self._reach_millis = reach_millis
        self._stream_name = stream_name
        self._shard_id = shard_id
        self._range = hash_key_range
        self._checksum = shard_checksum(shard_id)
        self._header = encode_header(stream_name, shard_id).decode("ascii")
        self._contiguous = contiguous
        self._drops_equal = drops_equal
        self._memory = RunMemory(max_bytes)
        self._history = _History(() if parents is not None and not parents else None, tuple(parents or ()))
        self._decision = Decision()
        self._suspects: list[_Suspect] = []
        self._look_up: LookUp | None = None
        # Aggregates that wait for `_settle`: each with its tag and number of user records.
        self._unmarked: list[tuple[KinesisRecord, str, int]] = []
        # While the range is not known: the first aggregate that was made for another shard and all after it, because they are judged in order.
        self._kept_back: list[_KeptBack] = []
        # Records of this batch up to this sequence number were read before.
        self._read_before = -1

    @property
    def is_idle(self) -> bool:
        """Whether the batch has no suspect and no dropped record, so that `decide` is not needed."""
        return not self.needs_look_up and not self._decision.dropped and not self._decision.unknown

    @property
    def needs_look_up(self) -> bool:
        """Whether the batch can be decided only after a look-up."""
        self._settle()
        return bool(self._suspects or self._kept_back)

    @property
    def remembered(self) -> int:
        """Number of runs in the memory."""
        self._settle()
        return len(self._memory)

    @property
    def size(self) -> int:
        """Estimated bytes of the memory."""
        self._settle()
        return self._memory.size

    def begin(self, records: Sequence[KinesisRecord]) -> None:
        """Begin a batch with all its Kinesis records, in order, before aggregates are added."""
        self._settle()
        if not records:
            return
        memory = self._memory
        if memory.last < 0 and self._contiguous:
            arrival = _millis(records[0])
            memory.first = int(records[0].sequence_number)
            # A copy before the first record may have a later arrival, by as much as arrivals contradict the order.
            memory.since = NEVER if arrival is None else arrival + EARLY_MILLIS
        self._read_before = memory.last
        memory.last = max(memory.last, int(records[-1].sequence_number))

    def add(self, carrier: KinesisRecord, columns: SubRecordColumns) -> bool:
        """Judge an aggregate with a tag; the ``on_tagged`` of `deaggregate`.

        Returns:
            False if the aggregate must be treated like one without a tag: the table does not fit, or it is misplaced and old.
        """
        count = len(columns.payloads)
        tag = columns.tag
        if tag is None:
            return False
        if (
            tag.startswith(self._header)
            and carrier.approximate_arrival_timestamp is not None
            and is_unmarked(tag, count)
            and not self._kept_back
        ):
            # Nearly every aggregate: of this stream, made for this shard, one run without flags.
            self._unmarked.append((carrier, tag, count))
            return True
        self._settle()
        table = decode_table(tag, self._stream_name, count)
        if table is None:
            return False
        is_new = int(carrier.sequence_number) > self._read_before
        is_made_for_another = table.made_for != self._checksum
        if self._range is None:
            if is_made_for_another or self._kept_back:
                keys = hash_keys_of(columns) if is_made_for_another else None
                self._kept_back.append(_KeptBack(carrier, table, count, is_new, keys))
                return True
        elif is_made_for_another and has_outside(columns, self._range):
            return self._drop_misplaced(carrier, table, count)
        self._judge_runs(carrier, table.runs, is_new=is_new)
        return True

    def _settle(self) -> None:
        """Judge, in order, the aggregates of one run without flags that were added since the last time."""
        if not self._unmarked:
            return
        # Judging each while it is added would take twice as long: other code and payloads fill the processor's caches in between.
        added, self._unmarked = self._unmarked, []
        add_single, read_before = self._memory.add_single, self._read_before
        runs = decode_unmarked([tag for _, tag, _ in added])
        for (carrier, tag, count), (holdoff, date, key, number) in zip(added, runs, strict=True):
            data, _, sequence_number, arrived = carrier[:4]
            sequence = int(sequence_number)
            arrival = round(arrived.timestamp() * 1000)  # type: ignore[union-attr]  # others are not in the list
            if (
                arrival >= date + holdoff * 1000 - EARLY_MILLIS
                or sequence <= read_before
                or not add_single(
                    sequence, arrival, data[-DIGEST_SIZE:], key, number, count, date - EARLY_MILLIS
                )
            ):
                table = decode_table(tag, self._stream_name, count)
                assert table is not None, "what is unmarked is a table"
                self._judge_runs(carrier, table.runs, is_new=sequence > read_before)

    def _judge_kept_back(self) -> None:
        """Judge the aggregates that waited for the range, which is known now, or cannot be determined in this batch."""
        kept_back, self._kept_back = self._kept_back, []
        for one in kept_back:
            if one.table.made_for != self._checksum:
                if self._range is None:
                    # The aggregate may be misplaced, so it is not dropped, and no other copy is dropped because of it.
                    self._decision.unknown += one.user_records
                    continue
                if one.is_outside(self._range):
                    self._drop_misplaced(one.carrier, one.table, one.user_records)
                    continue
            self._judge_runs(one.carrier, one.table.runs, is_new=one.is_new)

    def _judge_runs(self, carrier: KinesisRecord, runs: Sequence[Run], *, is_new: bool) -> None:
        sequence, arrival = int(carrier.sequence_number), _millis(carrier)
        digest = carrier.data[-DIGEST_SIZE:]
        memory = self._memory
        if is_new:
            memory.begin(sequence, arrival, digest)
        sub = 0
        for run in runs:
            length, holdoff, flags, incarnation, date, number = run
            if flags & NAMED:
                key = incarnation + number.to_bytes(6, "big")
                if not flags & FIRST or arrival is None or arrival >= date + holdoff * 1000 - EARLY_MILLIS:
                    self._judge_name(carrier.sequence_number, sequence, sub, run, key, arrival)
                elif self._drops_equal and memory.has_equal_name(key, sequence, date - EARLY_MILLIS, digest):
                    self._repeat(carrier.sequence_number, sub, run, [(number, number)])
                if is_new:
                    memory.add_name(key, sub)
            else:
                key = incarnation + date.to_bytes(6, "big")
                if flags or arrival is None or arrival >= date + holdoff * 1000 - EARLY_MILLIS:
                    self._judge(carrier.sequence_number, sequence, sub, run, key, arrival)
                elif self._drops_equal and memory.has_run(key, date - EARLY_MILLIS):
                    # Nearly every run is not suspect, and is the only run of its key.
                    wanted = number, number + length - 1
                    if memory.has_equal(key, wanted, sequence, digest):
                        self._repeat(carrier.sequence_number, sub, run, [wanted])
                if is_new:
                    memory.add_run(key, number, length, sub)
            sub += length

    def _drop_misplaced(self, carrier: KinesisRecord, table: RunTable, count: int) -> bool:
        arrival = _millis(carrier)
        # Without an arrival, the aggregate's age is unknown, and dropping a forwarded record would lose it.
        if arrival is None or any(arrival > run.date + OLDEST_MILLIS for run in table.runs):
            return False
        self._drop(carrier.sequence_number, [(0, count - 1)])
        self._decision.misplaced += count
        return True

    def _judge_name(
        self, sequence_number: str, sequence: int, sub: int, run: Run, key: bytes, arrival: int | None
    ) -> None:
        since = self._since(run, arrival)
        memory = self._memory
        if arrival is not None:
            memory.reach(arrival - since, arrival)
        if memory.has_name(key, sequence, sub, since):
            self._repeat(sequence_number, sub, run, [(run.number, run.number)])
        elif arrival is None:
            self._decision.unknown += 1
        elif since < memory.since:
            self._suspects.append(_Suspect(sequence_number, sequence, sub, run, since, arrival, []))
        elif since > _earliest(run, arrival):
            self._decision.unknown += 1

    def _since(self, run: Run, arrival: int | None) -> int:
        """Return the earliest arrival of a copy within the reach that would make a suspect a repetition."""
        since = _earliest(run, arrival)
        return since if arrival is None else max(since, arrival - self._reach_millis)

    def _judge(
        self, sequence_number: str, sequence: int, sub: int, run: Run, key: bytes, arrival: int | None
    ) -> None:
        since = self._since(run, arrival)
        memory = self._memory
        if arrival is not None:
            memory.reach(arrival - since, arrival)
        wanted = run.number, run.number + run.count - 1
        found = _joined(memory.parts(key, wanted, sequence, sub, since))
        missing = run.count - _size(found)
        if missing and arrival is not None and since < memory.since:
            self._suspects.append(_Suspect(sequence_number, sequence, sub, run, since, arrival, found))
            return
        self._repeat(sequence_number, sub, run, found)
        # Without an arrival, neither the start of a search nor the time since which the memory is complete is known.
        if run.flags & REPEAT if arrival is None else since > _earliest(run, arrival):
            self._decision.unknown += missing

    def _repeat(self, sequence_number: str, sub: int, run: Run, found: Iterable[Part]) -> None:
        parts = [(first - run.number + sub, last - run.number + sub) for first, last in found]
        if not parts:
            return
        self._drop(sequence_number, parts)
        decision = self._decision
        decision.repeated += _size(parts)
        if run.flags & _MARKED == NAMED:
            decision.named += _size(parts)
            decision.first_named = decision.first_named or f"{sequence_number}/{parts[0][0]}"

    def _drop(self, sequence_number: str, parts: list[Part]) -> None:
        dropped = self._decision.dropped.setdefault(sequence_number, [])
        dropped.extend(parts)

    def look_up(self, now_millis: int | None = None) -> LookUp | None:
        """Return the reads that the batch needs before it can be decided; None if it needs none.

        Args:
            now_millis: Time at Kinesis, in milliseconds since 1970. This time shows whether copies may have expired, and therefore whether
                to determine the retention of the stream. None assumes `RETENTION_MILLIS`.
        """
        if self._look_up is None and self.needs_look_up:
            if self._budget is not None:
                self._budget.fill(now_millis)
            self._look_up = LookUp(
                self._stream_name,
                self._shard_id,
                self._range,
                self._search,
                history=self._history,
                now_millis=now_millis,
                budget=self._budget,
            )
        return self._look_up

    def _search(self, owned: HashKeyRange | None) -> _Search | None:
        """Take the shard's range (None if unknown) and return the names and numbers to search for; None if there are none."""
        self._range = owned
        self._judge_kept_back()
        suspects, memory = self._suspects, self._memory
        if not suspects:
            return None
        # Read up to where the memory begins. After a rewind it may begin after the suspects. Then their own aggregates have to be read
        # too, because an aggregate may contain both copies. Without `contiguous`, the whole batch is in the memory.
        last = max(suspect.sequence for suspect in suspects)
        return _Search(
            suspects,
            before=int(min(memory.first, last + 1 if self._contiguous else last)),
            room=memory.room if self._contiguous else 0,
            shortage=memory.shortage(min(suspect.since for suspect in suspects)),
        )

    def decide(self, now_millis: int) -> Decision:
        """Return the decision on the batch. The next one may begin.

        Args:
            now_millis: Time at Kinesis, in milliseconds since 1970. This time is used only to decide which copies were trimmed.

        Raises:
            ValueError: If a look-up is not complete.
        """
        look_up, self._look_up = self.look_up(), None
        suspects, self._suspects = self._suspects, []
        if look_up is not None:
            if look_up.step is not None:
                raise ValueError("the look-up of this batch is not complete")
            # After a rewind, the memory may begin after the suspects, and the records in between were not read.
            if self._contiguous and look_up.before >= self._memory.first:
                look_up.remember(self._memory)
            for suspect in suspects:
                self._decide_suspect(suspect, look_up, now_millis)
        decision, self._decision = self._decision, Decision()
        for parts in decision.dropped.values():
            parts.sort()
        return decision

    def _decide_suspect(self, suspect: _Suspect, look_up: LookUp, now_millis: int) -> None:
        found = _joined([*suspect.found, *look_up.found(suspect)])
        self._repeat(suspect.sequence_number, suspect.sub, suspect.run, found)
        now = now_millis if look_up.now_millis is None else look_up.now_millis
        if (
            look_up.left_out(suspect)
            or now - suspect.since > self._history.kept
            or suspect.since > _earliest(suspect.run, suspect.arrival)
        ):
            self._decision.unknown += suspect.run.count - _size(found)

    def forget_batch(self) -> None:
        """Forget the current batch because it will be read again. The records of the batch stay in the memory."""
        self._settle()
        self._suspects, self._kept_back, self._look_up, self._decision = [], [], None, Decision()


@dataclass(slots=True)
class _History:
    """Facts about the past of a shard that do not change."""

    # Its listed parents; None if they are not known. Their number only shrinks, so an empty tuple needs no listing.
    parents: tuple[str, ...] | None
    named: tuple[str, ...] = ()  # parents that the caller of the reader knows
    oldest: int | None = None  # arrival of a record of the shard, before which its parents end
    kept: int = RETENTION_MILLIS  # milliseconds for which the stream keeps records, as far as is known


class LookUp:
    """A look-up: the reads that it needs, one after another, and the use of their results.

    The caller carries out `step` and passes on the result, until `step` is None:

    | step | result |
    | --- | --- |
    | `ReadShard` | `page` for each response, in order, while the step is the same object. If the shard no longer exists: `gone` |
    | `ListShards` | `listed` |
    | either, and access is denied | `refused`; there may be another step. Every other failure is retried |

    Calls: GetShardIterator and GetRecords for the shard. If the shard has parents, or if its range is not known, ListShards. For each
    shard with listed parents, two calls for its oldest record; unless that record is old enough, two or more for each parent.
    If the wanted copies may have expired, two calls for the oldest record of each of these shards.

    Args:
        stream_name: Name of the stream.
        shard_id: The shard.
        hash_key_range: Its range; None lists the shards first, because the range shows which copies are valid.
        search: Returns the names and numbers to search for, given the range; None for nothing. Called once, with None if the range cannot
            be determined.
        history: Known facts about the shard's past; a look-up adds to it.
        now_millis: Time at Kinesis, see `RunReader.look_up`.
        budget: Limit of the bytes that it reads; None for any number.

    Attributes:
        step: The next step; None if the look-up is complete.
        is_refused: Whether access was denied.
        is_blind: Whether it read a copy whose validity it cannot decide, because the shard's range is not known.
        over_budget: Sequence number of the record with the longest search, if the budget left copies out; otherwise None.
        bytes_read: Bytes of payload that it has read.
        since_millis: Earliest arrival of a copy that matters.
        before: Sequence number up to which the shard must be read; -1 if no search is needed.
        now_millis: As the argument.
        shortage: Sizes of the memory, if the look-up is needed because the memory is too small. None for other reasons: the
            reader began after the earliest copy, or was rewound, or a window is longer than the earlier windows.
    """

    def __init__(
        self,
        stream_name: str,
        shard_id: str,
        hash_key_range: HashKeyRange | None,
        search: Callable[[HashKeyRange | None], _Search | None],
        *,
        history: _History,
        now_millis: int | None = None,
        budget: LookUpBudget | None = None,
    ) -> None:
        self.step: Step | None = None
        self.is_refused: bool = False
        self.is_blind: bool = False
        self.over_budget: str | None = None
        self.bytes_read: int = 0
        self._budget = budget
        self._only_young = False
        self._suspects: Sequence[_Suspect] = ()
        # Identities of the suspects that are still searched for; None for all.
        self._sought: set[int] | None = None
        self.since_millis: int = 0
        self.before: int = -1
        self.now_millis: int | None = now_millis
        self.shortage: Shortage | None = None
        self._stream_name = stream_name
        self._shard_id = shard_id
        self._own_range = hash_key_range
        self._search = search
        self._has_begun = False
        self._history = history
        self._wanted = _Wanted(())
        self._wanted_before: _Wanted | None = None
        self._copies: Recollection | None = None
        self._first: float = NEVER
        # None before the shards were listed, and if that was denied.
        self._graph: ShardGraph | None = None
        self._may_list = True
        self._seen = {shard_id}
        self._waiting: deque[Step] = deque()
        if hash_key_range is None:
            self._push(ListShards())
        else:
            self._begin(hash_key_range)

    def _begin(self, owned: HashKeyRange | None) -> None:
        self._has_begun = True
        self._own_range = owned
        search = self._search(owned)
        if search is None:
            return
        self.since_millis = min(suspect.since for suspect in search.suspects)
        self.before, self.shortage = search.before, search.shortage
        self._suspects = search.suspects
        self._wanted = _Wanted(search.suspects)
        self._copies = Recollection(search.room) if search.room else None
        self._push(ReadShard(self._shard_id, self.since_millis))
        self._keep_to_budget()

    def _charge(self, size: int) -> None:
        self.bytes_read += size
        if self._budget is not None:
            self._budget.take(size)
            self._keep_to_budget()

    def _keep_to_budget(self) -> None:
        """Stop at the budget: begin again for young suspects only, and end when their reserve is used up."""
        budget = self._budget
        if budget is None:
            return
        while self.step is not None and not budget.allows(only_young=self._only_young):
            young: list[_Suspect] = []
            if not self._only_young:
                self._only_young = True
                young = [suspect for suspect in self._suspects if _span(suspect) <= YOUNG_MILLIS]
                if len(young) == len(self._suspects):
                    continue  # the reserve is for young suspects
            if self.over_budget is None:
                self.over_budget = max(self._suspects, key=_span).sequence_number
            self._waiting.clear()
            self.step = None
            self._sought = {id(suspect) for suspect in young}
            if young:
                self.since_millis = min(suspect.since for suspect in young)
                # Keep the copies found so far.
                self._wanted, self._wanted_before = _Wanted(young), self._wanted
                self._seen = {self._shard_id}
                self._push(ReadShard(self._shard_id, self.since_millis))

    def end(self) -> None:
        """End with the results so far, as if the budget were used up. Used by a caller that has no more time."""
        if not self._has_begun:
            self.refused()
        if self.step is not None:
            self.over_budget = self.over_budget or max(self._suspects, key=_span).sequence_number
            self._waiting.clear()
            self.step = None
            self._sought = set()

    def left_out(self, suspect: _Suspect) -> bool:
        """Return whether a suspect may have an earlier copy that this look-up did not read."""
        if self.is_refused or self.is_blind:
            return True
        return self._sought is not None and id(suspect) not in self._sought

    @property
    def _is_probe(self) -> bool:
        return isinstance(self.step, ReadShard) and self.step.since_millis is None

    def page(self, records: Sequence[KinesisRecord], *, at_end: bool) -> None:
        """Take the records of a response.

        Args:
            records: The records.
            at_end: Whether the shard has no records after these: it has ended, or its tip was read.
        """
        step = self.step
        if not isinstance(step, ReadShard):
            raise ValueError("no shard is being read")  # noqa: TRY004 - a state, not a type
        if self._is_probe:
            if records or at_end:
                self._take_oldest(step.shard_id, _millis(records[0]) if records else None)
            self._charge(sum(len(record.data) for record in records))
            return
        own = step.shard_id == self._shard_id
        size = sum(len(record.data) for record in records)
        for record in records:
            sequence = int(record.sequence_number)
            if own and sequence >= self.before:
                at_end = True
                break
            if own:
                self._first = min(self._first, sequence)
            self._take(record, sequence if own else ANCESTOR, step.shard_id)
        if at_end:
            self._finish_shard(step.shard_id)
        self._charge(size)

    def _take(self, record: KinesisRecord, sequence: int, shard_id: str) -> None:
        columns = open_aggregate(record.data)
        if columns is None or columns.tag is None:
            return
        table = decode_table(columns.tag, self._stream_name, len(columns.payloads))
        if table is None or not self._is_valid(table, columns, shard_id):
            return
        arrival, sub, copies = _millis(record), 0, self._copies
        if copies is not None:
            copies.begin(sequence, arrival, record.data[-DIGEST_SIZE:])
        for run in table.runs:
            key = key_of(run)
            self._wanted.note(key, run, sequence, sub, arrival)
            if copies is None:
                pass
            elif run.flags & NAMED:
                copies.add_name(key, sub)
            else:
                copies.add_run(key, run.number, run.count, sub)
            sub += run.count

    def found(self, suspect: _Suspect) -> list[Part]:
        """Return the suspect's numbers that have an earlier copy, in parts that may overlap."""
        before = self._wanted_before
        return [*self._wanted.found(suspect), *(before.found(suspect) if before is not None else ())]

    def _is_valid(self, table: RunTable, columns: SubRecordColumns, shard_id: str) -> bool:
        """Return whether a reader of the shard delivers the aggregate; only then are later copies repetitions."""
        if table.made_for == shard_checksum(shard_id):
            return True
        owned = self._own_range if shard_id == self._shard_id else self._listed[shard_id].hash_key_range
        if owned is None:
            self.is_blind = True  # if it is valid, a later copy is a repetition
            return False
        return not has_outside(columns, owned)

    @property
    def _listed(self) -> Mapping[str, Shard]:
        return {} if self._graph is None else self._graph.shards

    def listed(self, shards: Iterable[Shard]) -> None:
        """Take the shards of the stream; the shard's ancestors are enough."""
        if not isinstance(self.step, ListShards):
            raise ValueError("the shards are not needed")  # noqa: TRY004 - a state, not a type
        self._graph = ShardGraph(shards)
        own = self._listed.get(self._shard_id)
        if own is not None:
            self._history.parents = self._graph.parents(self._shard_id)
        self._next()
        if self._has_begun:
            self._probe(self._shard_id)
        else:
            self._begin(None if own is None else own.hash_key_range)

    def _parents(self, shard_id: str) -> tuple[str, ...]:
        """Return the listed parents of a shard."""
        # ListShards may lag behind a reshard: the end of a parent names its children, a worker begins to read them, and ListShards
        # lists only the parent. Without the parents that the worker names, copies in these parents would not be found.
        if shard_id == self._shard_id and shard_id not in self._listed:
            return tuple(parent for parent in self._history.named if parent in self._listed)
        return () if self._graph is None else self._graph.parents(shard_id)

    def _finish_shard(self, shard_id: str) -> None:
        if shard_id != self._shard_id:
            self._next()
            self._probe(shard_id)
            return
        oldest, parents = self._history.oldest, self._history.parents
        self._next()
        if parents == () or (oldest is not None and oldest < self._horizon):
            if self._may_have_expired:
                self._push(ReadShard(shard_id, None, limit=1))
        elif self._graph is not None:
            self._probe(shard_id)
        elif self._may_list:
            self._push(ListShards())
        else:
            self.refused()

    @property
    def _horizon(self) -> int:
        """Arrival before which a record of a shard shows that the shard's parents do not matter."""
        return self.since_millis - EARLY_MILLIS

    @property
    def _may_have_expired(self) -> bool:
        """Whether records since `since_millis` may have expired."""
        return self.now_millis is not None and self.now_millis - self.since_millis > self._history.kept

    def _probe(self, shard_id: str) -> None:
        """Read the oldest record of a shard if its parents may matter, or if the retention of the stream matters."""
        if not self._parents(shard_id) and not self._may_have_expired:
            return
        if shard_id == self._shard_id and self._history.oldest is not None and not self._may_have_expired:
            self._go_on(shard_id, self._history.oldest)
        else:
            self._push(ReadShard(shard_id, None, limit=1))

    def _take_oldest(self, shard_id: str, arrival: int | None) -> None:
        """Take the arrival of a shard's oldest record; None if the shard is empty, or if Kinesis reports no arrival."""
        if shard_id == self._shard_id:
            self._history.oldest = arrival
        if arrival is not None and self.now_millis is not None:
            self._history.kept = max(self._history.kept, self.now_millis - arrival)
        self._next()
        self._go_on(shard_id, arrival)

    def _go_on(self, shard_id: str, oldest: int | None) -> None:
        if oldest is not None and oldest < self._horizon:
            return
        for parent in self._parents(shard_id):
            if parent not in self._seen:
                self._seen.add(parent)
                self._push(ReadShard(parent, self.since_millis))

    def _push(self, step: Step) -> None:
        self._waiting.append(step)
        if self.step is None:
            self._next()

    def _next(self) -> None:
        self.step = self._waiting.popleft() if self._waiting else None
        if isinstance(self.step, ReadShard) and not self._is_probe:
            self._begin_shard()

    def _begin_shard(self) -> None:
        if self._copies is not None:
            self._copies.begin_shard()

    def gone(self) -> None:
        """Note that the shard of the step no longer exists: its records are older than the retention."""
        step = self.step
        if not isinstance(step, ReadShard):
            raise ValueError("no shard is being read")  # noqa: TRY004 - a state, not a type
        if self._is_probe:
            self._take_oldest(step.shard_id, None)
        else:
            self._finish_shard(step.shard_id)

    def refused(self) -> None:
        """Note that access is denied. Without a list of shards, the look-up continues; without records, it ends."""
        if isinstance(self.step, ListShards):
            self._may_list = False
        if not self._has_begun:
            self._next()
            self._begin(None)
            return
        self.is_refused = True
        self._waiting.clear()
        self.step = None

    def remember(self, memory: RunMemory) -> None:
        """Add the copies that were read to a memory that begins where the look-up ended, as far as the memory has room."""
        copies = self._copies
        if self.is_refused or self.over_budget is not None:
            return
        if copies is None:
            memory.leave_out()
            return
        found = copies.finish()
        since: float = max(self.since_millis, copies.since or 0)
        first = self._first if copies.first is None else copies.first
        memory.restore(found, since, first, left_out=copies.since is not None)


def _span(suspect: _Suspect) -> int:
    """Return the milliseconds before its arrival at which the search for a suspect begins."""
    return suspect.arrival - suspect.since


def _millis(record: KinesisRecord) -> int | None:
    arrival = record.approximate_arrival_timestamp
    return None if arrival is None else round(arrival.timestamp() * 1000)


def _earliest(run: Run, arrival: int | None) -> int:
    """Return the earliest arrival of a copy that makes a record of a suspect run a repetition."""
    since = run.date - EARLY_MILLIS
    if arrival is None:
        return since
    if run.flags & _MARKED == REPEAT:
        # Not for named records: an earlier record of the same name outside the window is another record, and dropping
        # this record as its copy would lose it.
        since = min(since, arrival - _MARKED_MILLIS)
    return max(since, arrival - OLDEST_MILLIS)


def _joined(parts: Iterable[Part]) -> list[Part]:
    """Merge parts that may overlap into disjoint parts, in order."""
    joined: list[Part] = []
    for first, last in sorted(parts):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(last, joined[-1][1])
        else:
            joined.append((first, last))
    return joined


def _size(parts: Iterable[Part]) -> int:
    return sum(last - first + 1 for first, last in parts)
