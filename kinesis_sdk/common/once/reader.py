"""Rules by which a reader of one shard finds the repetitions among the records of idempotent producers, without any I/O.

A producer that got no answer sends its records again, so a record may be stored several times. All its *valid* copies (those in
aggregates that belong completely into the shard where they are stored) lie on one path of shards, each of which continues the one
before. **The first valid copy is the record, and every other one is dropped.** That depends on the stream alone, and not on
who reads it, from where on and in which batches, so it needs no state beside the checkpoint.

Nearly every record arrives so soon after its date that it can only be the first copy, and is delivered. The others are *suspects*: marked as
repeated, or late. A suspect is looked for in the reader's memory, and if that does not reach far enough back, in the stream.

| rule | |
| --- | --- |
| R1 | A misplaced aggregate is dropped: its producer puts it again. One that is older than `OLDEST_MILLIS` was forwarded from elsewhere; it is treated like that of any other producer. If the shard's range is not known, the shards are listed before an aggregate is judged that was made for another shard. |
| R2 | A run is suspect if it is marked (`REPEAT`, or `NAMED` without `FIRST`), or arrived `EARLY_MILLIS` before the end of its hold-off or later. |
| R3 | A suspect record is dropped if an earlier valid copy arrived at `_earliest` or later, within the reader's reach. |
| R4 | The memory is complete since the first record that was read, and each of its entries has a position. |
| R5 | If the memory begins later than that, the shard is read again from there on, and its parents as far as they reach. |
| R6 | What can no longer be found out, or may not be read, is delivered and counted. |
| R7 | Equal bytes, stored twice in the shard, are one record: something between the producer and Kinesis repeated the request. |
| R8 | Dropped records count as delivered. That is up to the shell. |

How a shell (a worker, a Spark task, a Lambda function) uses it, for the batches of a shard in order:

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

A reader that begins at any record decides as one that has read everything. Where it begins only decides how many suspects have to be looked up.
For a Spark range, make a reader for each range with ``drops_equal=False``, and pass what the driver knows of the shards
to `LookUp.listed`, instead of listing them in each task.
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
from kinesis_sdk.common.once.budget import YOUNG_MILLIS, LookUpBudget
from kinesis_sdk.common.once.memory import (
    ANCESTOR,
    MAX_BYTES,
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
"""Milliseconds by which arrivals may contradict the order of records, and dates the time at which records were sent."""

OLDEST_MILLIS = 900_000
"""Milliseconds after its date at which a record of an idempotent producer arrives at the latest."""

_MARKED_MILLIS = 30_000
"""Milliseconds before its arrival from which on a repeated record is looked for at least, so that a wrong clock of its producer
does little harm. The window of a named record stays as its application wants it."""

RETENTION_MILLIS = 24 * 3600 * 1000
"""Milliseconds for which a stream keeps records at least. Whether it keeps them for longer, a look-up finds out by the oldest
record that is still there: that needs no further permission, and follows a retention period that is changed meanwhile."""

_MARKED = REPEAT | NAMED

_SUB_BITS = 24
"""Bits of a sub-sequence number: an aggregate of 10 MiB has fewer user records than that."""


@dataclass(slots=True)
class Decision:
    """Decision on the tagged aggregates of a batch.

    Attributes:
        dropped: By sequence number, the parts that are dropped, as sub-sequence numbers in order. See `UserRecords.without`.
        repeated: User records that are dropped because an earlier copy is delivered.
        misplaced: User records that are dropped because their aggregate is misplaced.
        unknown: User records that are delivered although an earlier copy may exist, because it could not be looked for.
        named: Those of ``repeated`` that their producer did not put before: an earlier record has their name. Another process put the
            same fact, or a program that may put records took the name.
        first_named: Position of the first of these, as ``sequenceNumber/subSequenceNumber``; None if there is none.
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
        since_millis: Arrival to begin at (``AT_TIMESTAMP``), in milliseconds since 1970; None begins at the oldest record.
        limit: Maximum records of one call that are of use; None for any number.
    """

    shard_id: str
    since_millis: int | None
    limit: int | None = None


class ListShards(NamedTuple):
    """Step of a look-up: list all shards of the stream."""


Step = ReadShard | ListShards


@dataclass(slots=True)
class _Suspect:
    """A run that is looked up.

    Attributes:
        sequence_number: Sequence number of its Kinesis record.
        sequence: The same as a number.
        sub: Sub-sequence number of its first user record.
        run: The run.
        since: Earliest arrival of a copy that matters.
        arrival: Its own arrival.
        found: Numbers of which an earlier copy is in the memory, in disjoint parts.
    """

    sequence_number: str
    sequence: int
    sub: int
    run: Run
    since: int
    arrival: int
    found: list[Part]


class _KeptBack(NamedTuple):
    """An aggregate that is judged once the shard's range is known.

    Attributes:
        carrier: Its Kinesis record.
        table: Its table of runs.
        user_records: Number of its user records.
        is_new: Whether it was not read before.
        hash_keys: Lowest and highest hash key of its user records; None if none has one, or if it was made for the shard.
    """

    carrier: KinesisRecord
    table: RunTable
    user_records: int
    is_new: bool
    hash_keys: tuple[bytes, bytes] | None

    def is_outside(self, owned: HashKeyRange) -> bool:
        """Return whether a user record lies outside of a range."""
        keys = self.hash_keys
        return keys is not None and (keys[0] < owned.start_bytes or keys[1] > owned.end_bytes)


class _Search(NamedTuple):
    """Task of a look-up.

    Attributes:
        suspects: Runs to look for.
        before: Sequence number at which the shard has been read far enough.
        room: Maximum bytes of the copies that it keeps for the memory.
        shortage: Numbers of the memory, if it is too small; else None.
    """

    suspects: Sequence[_Suspect]
    before: int
    room: int
    shortage: Shortage | None


class _Copies:
    """Copies of some names, and of some numbers of runs."""

    __slots__ = ("_names", "_pieces")

    def __init__(self) -> None:
        self._names: dict[bytes, list[Copy]] = {}
        self._pieces: dict[bytes, Pieces] = {}

    def add_name(self, key: bytes, copy: Copy) -> None:
        """Add a copy of a name behind all others."""
        add_copy(self._names.setdefault(key, []), copy)

    def add_numbers(self, key: bytes, first: int, last: int, copy: Copy) -> None:
        """Add a copy of numbers behind all others."""
        self._pieces.setdefault(key, Pieces()).add(first, last, copy)

    def parts(self, key: bytes, run: Run, limit: int, since: int) -> Iterable[Part]:
        """Return the numbers of a run of which a copy is before a place and arrived at a moment or later, in disjoint parts."""
        wanted = run.number, run.number + run.count - 1
        if run.flags & NAMED:
            return [wanted] if has_copy(self._names.get(key, []), limit, since) else ()
        pieces = self._pieces.get(key)
        return () if pieces is None else pieces.parts(wanted, limit, since)


class _Wanted:
    """The suspects of a look-up by what is to be found, and the copies of them that were read.

    What it keeps grows with the suspects, and not with what is read: only their names and numbers, and one copy of each for all that are before
    the first suspect.
    """

    __slots__ = ("_before", "_begin", "_behind", "_names", "_numbers")

    def __init__(self, suspects: Sequence[_Suspect]) -> None:
        self._begin = min([suspect.sequence for suspect in suspects], default=0)
        self._names: set[bytes] = set()
        # Numbers of the suspects with each key, in disjoint parts.
        self._numbers: dict[bytes, list[Part]] = {}
        # Copies before the first suspect, in this shard or in ancestors; those behind it, after a rewind or a gap.
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
        """Keep what a run says of suspects. Those of one shard are noted in order."""
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
        """Return the numbers of a suspect of which an earlier copy was read, in parts that may overlap."""
        run, key, since = suspect.run, key_of(suspect.run), suspect.since
        limit = _place(suspect.sequence, suspect.sub)
        return [*self._before.parts(key, run, limit, since), *self._behind.parts(key, run, limit, since)]


def _place(sequence: int, sub: int) -> int:
    return sequence << _SUB_BITS | sub


def _last_of(part: Part) -> int:
    return part[1]


class RunReader:
    """The rules of a reader, for one shard. Used by one thread at a time.

    For each batch: `begin` and `add` (any number of times), `look_up` and what it asks for, then `decide`.

    Args:
        stream_name: Name of the stream, not its ARN.
        shard_id: The shard.
        hash_key_range: Range of the shard; None if it is not known. It is then found out once, by the first look-up that needs it.
        parents: Ids of the shard's parents; None if they are not known. Without parents the shards need not be listed.
        contiguous: Whether each batch follows the one before without a gap, and has none inside. Otherwise nothing follows
            from a copy that was not read, so every suspect is looked up, unless an earlier copy was read.
        drops_equal: Whether equal bytes in the shard are dropped (R7). That depends on what this reader has read, so it is not
            for readers that have to return equal records for an equal range.
        max_bytes: Maximum bytes of the memory.
        budget: What the look-ups may read; None for any number of bytes.
        reach_millis: Milliseconds before a record's arrival from which on its earlier copies matter at most. Unlike a budget, it leaves out
            the same records in each reading. What it leaves out is delivered, and counted as unknown.
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
        # While the range is not known: the first aggregate that was made for another shard, and all behind it, because they are judged in order.
        self._kept_back: list[_KeptBack] = []
        # Sequence number up to which the records that are added now were read before.
        self._read_before = -1

    @property
    def is_idle(self) -> bool:
        """Whether the batch has nothing to decide and nothing was dropped, so that `decide` is not needed."""
        return not self.needs_look_up and not self._decision.dropped and not self._decision.unknown

    @property
    def needs_look_up(self) -> bool:
        """Whether something was added that has to be looked up before the batch can be decided."""
        self._settle()
        return bool(self._suspects or self._kept_back)

    @property
    def remembered(self) -> int:
        """Number of runs in the memory."""
        self._settle()
        return len(self._memory)

    @property
    def size(self) -> int:
        """Bytes that the memory takes, estimated."""
        self._settle()
        return self._memory.size

    def begin(self, records: Sequence[KinesisRecord]) -> None:
        """Note the Kinesis records that are read now, all of them, in order, before those with tags are added."""
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
            False if it is to be treated like that of any other producer: the table does not fit, or it is misplaced and old.
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
            # Nearly every aggregate: of this stream, made for this shard, and of one run without flags.
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
        """Judge the aggregates of one run without flags that were added since the last time, in order.

        One after the other while they are added, each would take twice as long: between two of them, the processor's caches are filled with
        other code and with payloads.
        """
        if not self._unmarked:
            return
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
        """Judge what waited for the range, which is known now, or never will be in this batch."""
        kept_back, self._kept_back = self._kept_back, []
        for one in kept_back:
            if one.table.made_for != self._checksum:
                if self._range is None:
                    # Whether it is misplaced cannot be known, so it is neither dropped nor a reason to drop another.
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
                    # Nearly every run is not suspect, and the only one of its key.
                    wanted = number, number + length - 1
                    if memory.has_equal(key, wanted, sequence, digest):
                        self._repeat(carrier.sequence_number, sub, run, [wanted])
                if is_new:
                    memory.add_run(key, number, length, sub)
            sub += length

    def _drop_misplaced(self, carrier: KinesisRecord, table: RunTable, count: int) -> bool:
        arrival = _millis(carrier)
        # Without an arrival its age is not known. If it was forwarded, dropping it would lose it.
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
        """Return the earliest arrival of a copy for which a record of a suspect run is dropped, within the reach."""
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
        # Without an arrival, nothing tells from when on it would have to be looked for, nor from when on the memory is complete.
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
        """Return what has to be read before the batch can be decided; None if that is nothing.

        Args:
            now_millis: Time at Kinesis, in milliseconds since 1970. It tells whether copies may have expired, and so whether
                to find out how long the stream keeps records. None takes `RETENTION_MILLIS` for that.
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
        """Take the shard's range, and return what to search for; None if that is nothing.

        Args:
            owned: The range, for the life of the reader; None if it cannot be found out.
        """
        self._range = owned
        self._judge_kept_back()
        suspects, memory = self._suspects, self._memory
        if not suspects:
            return None
        # Up to what the memory has. After a rewind that may be behind the suspects themselves, and their aggregates, too, are no longer
        # in the memory: the other copy may be in the same one. Without `contiguous`, the whole batch is in the memory.
        last = max(suspect.sequence for suspect in suspects)
        return _Search(
            suspects,
            before=int(min(memory.first, last + 1 if self._contiguous else last)),
            room=memory.room if self._contiguous else 0,
            shortage=memory.shortage(min(suspect.since for suspect in suspects)),
        )

    def decide(self, now_millis: int) -> Decision:
        """Return what becomes of the batch; the next one may begin.

        Args:
            now_millis: Time at Kinesis, in milliseconds since 1970. It tells which copies were trimmed, and nothing else.

        Raises:
            ValueError: If a look-up is not complete.
        """
        look_up, self._look_up = self.look_up(), None
        suspects, self._suspects = self._suspects, []
        if look_up is not None:
            if look_up.step is not None:
                raise ValueError("the look-up of this batch is not complete")
            # After a rewind, the memory may begin behind the suspects, and the records between were not read.
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
        """Forget the batch that was begun, because it is read again. What was read stays in the memory."""
        self._settle()
        self._suspects, self._kept_back, self._look_up, self._decision = [], [], None, Decision()


@dataclass(slots=True)
class _History:
    """Facts about the past of a shard that do not change.

    Attributes:
        parents: Its listed parents. They only become fewer, so an empty tuple needs no listing. None if that is not known.
        named: The parents that the shell has named.
        oldest: Arrival of a record of the shard before which its parents end; None if none is known.
        kept: Milliseconds for which the stream has kept a record that was seen, or for which every stream does.
    """

    parents: tuple[str, ...] | None
    named: tuple[str, ...] = ()
    oldest: int | None = None
    kept: int = RETENTION_MILLIS


class LookUp:
    """A look-up: which reads it needs, one after the other, and what becomes of their results.

    The shell carries out `step` and passes on the result, until `step` is None:

    | step | result |
    | --- | --- |
    | `ReadShard` | `page` for each response, in order, while the step is the same object. If the shard no longer exists: `gone` |
    | `ListShards` | `listed` |
    | either, and access is denied | `refused`; there may be another step. Every other failure is tried again |

    Costs of the calls: GetShardIterator and GetRecords for the shard. If it has parents, or if its range is not known, ListShards,
    and while parents are listed: two calls for its oldest record, and two or more for each parent, if that record is not old enough. If the records
    that it looks for may have expired: two calls for the oldest record of each of these shards.

    Args:
        stream_name: Name of the stream.
        shard_id: The shard.
        hash_key_range: Its range; None lists the shards first, because the range shows which copies are valid.
        search: Returns what to search for, given the range; None if that is nothing. Called once, with None if the range cannot be found out.
        history: What is known of the shard's past; a look-up adds to it.
        now_millis: Time at Kinesis, see `RunReader.look_up`.
        budget: What it may read; None for any number of bytes.

    Attributes:
        step: The next step; None if the look-up is complete.
        is_refused: Whether access was denied.
        is_blind: Whether it read a copy of which it cannot tell whether it is valid, because the range is not known.
        over_budget: Sequence number of the record that asked for most, if the budget left something out; None otherwise.
        bytes_read: Bytes of payload that it has read.
        since_millis: Arrival from which on copies matter.
        before: Sequence number at which the shard has been read far enough; -1 if nothing is searched for.
        now_millis: As the argument.
        shortage: Numbers of the memory, if the look-up is needed because the memory is too small. None if it has another reason: the reader
            has begun after the earliest copy, or was rewound, or a window is longer than those before.
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
        # Identities of the suspects that are looked for; None for all of them.
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
        """Begin to search."""
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
        """Take the bytes of a response."""
        self.bytes_read += size
        if self._budget is not None:
            self._budget.take(size)
            self._keep_to_budget()

    def _keep_to_budget(self) -> None:
        """If no more may be read, begin again for young suspects alone, and end if that is not enough."""
        budget = self._budget
        if budget is None:
            return
        while self.step is not None and not budget.allows(only_young=self._only_young):
            young: list[_Suspect] = []
            if not self._only_young:
                self._only_young = True
                young = [suspect for suspect in self._suspects if _span(suspect) <= YOUNG_MILLIS]
                if len(young) == len(self._suspects):
                    continue  # the reserve is for them
            if self.over_budget is None:
                self.over_budget = max(self._suspects, key=_span).sequence_number
            self._waiting.clear()
            self.step = None
            self._sought = {id(suspect) for suspect in young}
            if young:
                self.since_millis = min(suspect.since for suspect in young)
                # What was found stays found.
                self._wanted, self._wanted_before = _Wanted(young), self._wanted
                self._seen = {self._shard_id}
                self._push(ReadShard(self._shard_id, self.since_millis))

    def end(self) -> None:
        """End with what was read, as if the budget were used up: there is no more time."""
        if not self._has_begun:
            self.refused()
        if self.step is not None:
            self.over_budget = self.over_budget or max(self._suspects, key=_span).sequence_number
            self._waiting.clear()
            self.step = None
            self._sought = set()

    def left_out(self, suspect: _Suspect) -> bool:
        """Return whether an earlier copy of a suspect may exist where this look-up did not read."""
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
            at_end: Whether the shard has no records after them: it has ended, or its tip was read.
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
        """Return the numbers of a suspect of which an earlier copy was read, in parts that may overlap."""
        before = self._wanted_before
        return [*self._wanted.found(suspect), *(before.found(suspect) if before is not None else ())]

    def _is_valid(self, table: RunTable, columns: SubRecordColumns, shard_id: str) -> bool:
        """Return whether a reader of the shard delivers the aggregate. One that it drops does not make another one a repetition."""
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
        """Return the listed parents of a shard.

        A listing may lag behind a reshard: the end of a parent names its children, a worker begins to read them, and ListShards
        lists only the parent. Without it, its copies would not be found.
        """
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
        """Arrival of a record of a shard before which nothing of its parents matters."""
        return self.since_millis - EARLY_MILLIS

    @property
    def _may_have_expired(self) -> bool:
        """Whether it is not known that the stream has kept all records of that time."""
        return self.now_millis is not None and self.now_millis - self.since_millis > self._history.kept

    def _probe(self, shard_id: str) -> None:
        """Find out whether the parents of a shard matter, if it has any, and whether the stream keeps records long enough."""
        if not self._parents(shard_id) and not self._may_have_expired:
            return
        if shard_id == self._shard_id and self._history.oldest is not None and not self._may_have_expired:
            self._go_on(shard_id, self._history.oldest)
        else:
            self._push(ReadShard(shard_id, None, limit=1))

    def _take_oldest(self, shard_id: str, arrival: int | None) -> None:
        """Take the arrival of the oldest record of a shard; None if it has none, or if Kinesis reports none."""
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
        """Note that access is denied: without the shards, the look-up goes on as far as it can, and without records it ends."""
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
        """Add what was read to a memory that begins where the look-up ended, as far as it has room."""
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
    """Return from how long before its arrival on a suspect is looked for, in milliseconds."""
    return suspect.arrival - suspect.since


def _millis(record: KinesisRecord) -> int | None:
    arrival = record.approximate_arrival_timestamp
    return None if arrival is None else round(arrival.timestamp() * 1000)


def _earliest(run: Run, arrival: int | None) -> int:
    """Return the earliest arrival of a copy for which a record of a suspect run is dropped."""
    since = run.date - EARLY_MILLIS
    if arrival is None:
        return since
    if run.flags & _MARKED == REPEAT:
        # Not for a named one, repeated or not: an earlier record of its name outside of its window is another record, and
        # dropping this one for it would lose it.
        since = min(since, arrival - _MARKED_MILLIS)
    return max(since, arrival - OLDEST_MILLIS)


def _joined(parts: Iterable[Part]) -> list[Part]:
    """Return parts that may overlap as parts that do not, in order."""
    joined: list[Part] = []
    for first, last in sorted(parts):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(last, joined[-1][1])
        else:
            joined.append((first, last))
    return joined


def _size(parts: Iterable[Part]) -> int:
    return sum(last - first + 1 for first, last in parts)
