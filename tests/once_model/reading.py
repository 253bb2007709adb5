"""What readers deliver of a log: the rules of the specification, and rules that were considered instead.

A position is (shard, Kinesis record, user record). A sink makes one effect of any number of deliveries of one position, so the
model counts the positions at which a record is delivered. Every shard is read by one owner or, at a take-over, by two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tests.once_model.layout import HASH_KEYS, Plan
from tests.once_model.producing import Copy, Log, Stored

Position = tuple[str, int, int]
Identity = tuple[int, int]


class TakeOver(NamedTuple):
    """The first owner of a shard ends after `delivered` user records, and has a checkpoint after `checkpoint` of them."""

    shard: str
    delivered: int
    checkpoint: int


@dataclass(frozen=True)
class ReaderRules:
    """Rules of a reader; the defaults are those of the specification.

    Attributes:
        drops_misplaced: Whether misplaced Kinesis records are dropped.
        suspects: For which copies the stream is searched for an earlier one: none, marked ones, those that arrived after their
            date's period (``late``), or both.
        looks_in: Where it is searched: on the path, or only in the shard itself.
        counts_misplaced: Whether misplaced copies count as earlier ones.
        forgets_dates: Whether the search ignores the date, and finds copies of any age.
        memory: Whether identities that were read are dropped if they come again: not at all; those since this owner
            began (``owner``); also those before in the shard (``shard``) or on the path (``path``).
        reread: Periods before the checkpoint for which memory is read again; None for all.
        keeps_marks: Whether identities of marked copies are stored with the checkpoint, for this shard or for children too.
        drops_equal: Whether a Kinesis record is dropped that equals one which this owner has read in this shard.
        rewinds: Whether the take-over is none: a delivery failed, and the same owner reads again from the checkpoint.
        kcl_before: Whether the first owner is a KCL, which recognizes nothing.
    """

    drops_misplaced: bool = True
    suspects: Literal["none", "marked", "late", "both"] = "both"
    looks_in: Literal["path", "shard"] = "path"
    counts_misplaced: bool = False
    forgets_dates: bool = False
    memory: Literal["none", "owner", "shard", "path"] = "none"
    reread: int | None = None
    keeps_marks: Literal["no", "shard", "path"] = "no"
    drops_equal: bool = False
    rewinds: bool = False
    kcl_before: bool = False


class _Item(NamedTuple):
    """A user record of a shard."""

    position: Position
    copy: Copy
    stored: Stored
    is_valid: bool

    @property
    def identity(self) -> Identity:
        return self.copy.name, self.copy.date


def items_of(plan: Plan, log: Log) -> dict[str, list[_Item]]:
    """Return the user records of each shard in their order."""
    return {
        shard: [
            _Item((shard, index, sub), copy, stored, is_valid)
            for index, stored in enumerate(records)
            for is_valid in (plan.is_valid(shard, [copy.record for copy in stored.copies]),)
            for sub, copy in enumerate(stored.copies)
        ]
        for shard, records in zip(plan.shards, log, strict=True)
    }


def first_valid_copies(plan: Plan, log: Log) -> set[Position]:
    """Return the positions that the specification delivers: of each record the first valid copy on its path."""
    first: dict[int, Position] = {}
    for items in items_of(plan, log).values():
        for item in items:
            if item.is_valid:
                first.setdefault(item.copy.record, item.position)
    return set(first.values())


class Reading:
    """Reads one log by rules, with any take-over."""

    def __init__(self, rules: ReaderRules, plan: Plan, log: Log) -> None:
        self._rules, self._plan = rules, plan
        self._items = items_of(plan, log)

    def take_overs(self) -> Iterator[TakeOver | None]:
        """Yield every schedule of at most one take-over."""
        yield None
        for shard, items in self._items.items():
            for delivered in range(1, len(items) + 1):
                for checkpoint in range(min(delivered + 1, len(items))):
                    yield TakeOver(shard, delivered, checkpoint)

    def record_at(self, position: Position) -> int:
        """Return the number of the record at a position."""
        shard, index, sub = position
        return next(item.copy.record for item in self._items[shard] if item.position[1:] == (index, sub))

    def deliver(self, take_over: TakeOver | None) -> set[Position]:
        """Return the positions that the owners of all shards deliver together."""
        delivered: set[Position] = set()
        left_marks: dict[str, set[Identity]] = {}
        for shard, items in self._items.items():
            marks: set[Identity] = set()
            if self._rules.keeps_marks == "path":
                marks.update(*(left_marks.get(parent, ()) for parent in self._plan.ancestors[shard]))
            begin = 0
            memory = self._memory_at(shard, 0)
            if take_over is not None and take_over.shard == shard:
                begin = take_over.checkpoint
                first = _Owner(self, shard, set(memory), set(marks), is_kcl=self._rules.kcl_before)
                before = first.read(0, take_over.delivered)
                if self._rules.rewinds:
                    # What was delivered behind the checkpoint failed; the owner lives on, with its memory.
                    before = {position for position in before if position < items[begin].position}
                    memory = first.memory
                else:
                    memory = self._memory_at(shard, begin)
                delivered |= before
                if self._rules.keeps_marks != "no":
                    marks |= {
                        item.identity for item in items[:begin] if item.copy.marked and self.counts(item)
                    }
            second = _Owner(self, shard, memory, marks, is_kcl=False)
            delivered |= second.read(begin, len(items))
            left_marks[shard] = second.marks
        return delivered

    def counts(self, item: _Item) -> bool:
        """Return whether a copy counts as an earlier one."""
        return item.is_valid or self._rules.counts_misplaced or not self._rules.drops_misplaced

    def before(self, shard: str, index: int, where: Literal["path", "shard"]) -> Iterator[_Item]:
        """Yield what lies before a Kinesis record: in its shard, or on its path."""
        for name in self._plan.ancestors[shard] if where == "path" else ():
            yield from filter(self.counts, self._items[name])
        yield from (item for item in self._items[shard] if item.position[1] < index and self.counts(item))

    def _memory_at(self, shard: str, begin: int) -> set[Identity]:
        where = self._rules.memory
        items = self._items[shard]
        if where in {"none", "owner"} or begin == len(items):
            return set()
        first = items[begin]
        since = -1 if self._rules.reread is None else first.stored.arrived - self._rules.reread
        return {
            item.identity
            for item in self.before(shard, first.position[1], "path" if where == "path" else "shard")
            if item.stored.arrived >= since
        }

    def items(self, shard: str) -> list[_Item]:
        """Return the user records of a shard."""
        return self._items[shard]

    def is_wanted(self, item: _Item, *, is_kcl: bool) -> bool:
        """Return whether a user record passes the check of hash keys. A KCL looks at each user record by itself."""
        if is_kcl:
            return HASH_KEYS[item.copy.record] in self._plan.ranges[item.position[0]]
        return item.is_valid or not self._rules.drops_misplaced

    def has_earlier_copy(self, item: _Item) -> bool:
        """Return whether a copy is suspect, and the stream has an earlier valid copy of it since its date."""
        rules, (shard, index, _) = self._rules, item.position
        is_late = item.stored.arrived > item.copy.date
        is_suspect = {
            "none": False,
            "marked": item.copy.marked,
            "late": is_late,
            "both": item.copy.marked or is_late,
        }[rules.suspects]
        return is_suspect and any(
            earlier.identity == item.identity
            and (rules.forgets_dates or earlier.stored.arrived >= item.copy.date)
            for earlier in self.before(shard, index, rules.looks_in)
        )

    @property
    def rules(self) -> ReaderRules:
        """The rules."""
        return self._rules


class _Owner:
    """One owner of one shard."""

    def __init__(
        self, reading: Reading, shard: str, memory: set[Identity], marks: set[Identity], *, is_kcl: bool
    ) -> None:
        self._reading, self._shard, self._is_kcl = reading, shard, is_kcl
        self.memory, self.marks = memory, marks
        self._whole: dict[tuple[Copy, ...], int] = {}

    def read(self, begin: int, end: int) -> set[Position]:
        """Read user records `begin` to `end` and return the positions that are delivered.

        Reading begins with the whole Kinesis record of the checkpoint: what lies before the checkpoint in it is not delivered,
        but known.
        """
        items = self._reading.items(self._shard)
        delivered: set[Position] = set()
        for number, item in enumerate(items[:end]):
            if item.position[1] < items[begin].position[1]:
                continue
            if self._is_wanted(item) and number >= begin:
                delivered.add(item.position)
            if self._reading.counts(item):
                self.memory.add(item.identity)
                if item.copy.marked:
                    self.marks.add(item.identity)
        return delivered

    def _is_wanted(self, item: _Item) -> bool:
        reading = self._reading
        if not reading.is_wanted(item, is_kcl=self._is_kcl):
            return False
        if self._is_kcl:
            return True
        rules = reading.rules
        if rules.drops_equal:
            index = item.position[1]
            if self._whole.setdefault(item.stored.copies, index) < index:
                return False
        if rules.memory != "none" and item.identity in self.memory:
            return False
        if rules.keeps_marks != "no" and item.identity in self.marks:
            return False
        return not reading.has_earlier_copy(item)
