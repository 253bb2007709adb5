"""Accounting of a run whose lease table operators change: every record, every repetition, every gap. Pure.

The rules, for a record at a position of a shard:

- A *rewind* to P, written at T: acquisitions that began after T deliver every record after P again, and one of them begins exactly
  at P. Only a later skip can exempt records from this.
- A *skip* from C to S: records in (C, S] can stay undelivered; all other records are delivered. If the owner was asked, it delivers
  nothing in (C, S] after the request, until a later rewind covers it.
- A record that is delivered twice needs a reason between the beginnings of the two acquisitions: a rewind that covers it, a lease that
  the operator took from its owner, or a worker that was killed, frozen or stalled. One acquisition delivers a record once.

All times are seconds of one clock.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Place = tuple[int, int]
"""A position in a shard: sequence number and sub-sequence number. (-1, 0) is before the first record."""

START: Place = (-1, 0)

REWOUND = "rewound by an operator"
FREED = "taken from its owner by an operator"
FAULT = "a worker was killed, frozen or stalled"
LOST = "its worker lost the lease to another one"
"""A reason for Java workers only: a KCL 2 takes leases without asking."""


class Acquisition(NamedTuple):
    """A worker's hold on a lease, from ``initialize`` on.

    Attributes:
        number: Number of the acquisition within the worker.
        start: Checkpoint passed to ``initialize``.
        at: Time of ``initialize``.
    """

    worker: str
    number: int
    shard: str
    start: Place
    at: float


class Delivery(NamedTuple):
    """One delivery of a record to a worker.

    Attributes:
        place: The record's position.
        number: Number of the worker's acquisition.
    """

    shard: str
    place: Place
    at: float
    worker: str
    number: int


class Rewind(NamedTuple):
    """A shard that was rewound.

    Attributes:
        place: New position; everything after it must be delivered again.
        at: A time between the read of the row and the write.
        noticed_at: When a worker was seen to act on it; None if none was.
    """

    shard: str
    place: Place
    at: float
    noticed_at: float | None = None


class Gap(NamedTuple):
    """A shard that skipped records.

    Attributes:
        begin: Checkpoint after which records are left out.
        end: Last record that is left out.
        at: A time between the read of the row and the write.
        exact: Whether the owner was asked and has released the lease, so that it delivers nothing of the gap.
    """

    shard: str
    begin: Place
    end: Place
    at: float
    exact: bool = True


class Freed(NamedTuple):
    """A lease that was taken from its owner without asking.

    Attributes:
        at: A time between the read of the row and the write.
    """

    shard: str
    at: float


class Fault(NamedTuple):
    """Time in which workers could not do their work.

    Attributes:
        worker: The worker; None for all.
        end: When its effects were over.
        reason: What happened to it.
        shard: The only shard that it affects; None for all.
    """

    worker: str | None
    begin: float
    end: float
    reason: str = FAULT
    shard: str | None = None


@dataclass
class Operations:
    """What operators did.

    Attributes:
        rewinds: Shards that were rewound.
        gaps: Shards that skipped records.
        freed: Leases that were taken without asking.
        created: Shards whose deleted rows were restored, with counters that start at 0 again.
    """

    rewinds: list[Rewind] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    freed: list[Freed] = field(default_factory=list)
    created: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Account:
    """Result of the accounting. The first five are empty in a good run.

    Attributes:
        lost: Records that were never delivered, without a skip that covers them.
        not_repeated: Records that were not delivered again after a rewind.
        not_skipped: Records delivered although a skip with the owner's consent covered them.
        without_reason: Repetitions that nothing explains.
        wrong_starts: Rewinds after which no acquisition began at the requested position.
        delivered: Different records delivered.
        skipped: Records never delivered because of a skip.
        repeated: Records that a rewind had to repeat and did; once for each rewind.
        reasons: Repetitions by reason.
    """

    lost: list[str]
    not_repeated: list[str]
    not_skipped: list[str]
    without_reason: list[str]
    wrong_starts: list[str]
    delivered: int
    skipped: int
    repeated: int
    reasons: Mapping[str, int]

    @property
    def problems(self) -> dict[str, list[str]]:
        """Everything wrong, by kind; empty in a good run."""
        found = {
            "lost": self.lost,
            "not repeated after a rewind": self.not_repeated,
            "delivered although skipped": self.not_skipped,
            "delivered again without a reason": self.without_reason,
            "began elsewhere after a rewind": self.wrong_starts,
        }
        return {kind: texts for kind, texts in found.items() if texts}


class _Shard:
    """What operators did to one shard, by time."""

    def __init__(self) -> None:
        self.rewinds: list[Rewind] = []
        self.gaps: list[Gap] = []
        self.freed: list[float] = []
        self._times: list[float] = []

    def sort(self) -> None:
        self.rewinds.sort(key=lambda one: one.at)
        self.gaps.sort(key=lambda one: one.at)
        self.freed.sort()
        self._times = sorted([one.at for one in self.rewinds] + [one.at for one in self.gaps] + self.freed)

    def needed_since(self, place: Place) -> list[float]:
        """Return the times of the rewinds after which a record must be delivered again."""
        excused = max((gap.at for gap in self.gaps if gap.begin < place <= gap.end), default=float("-inf"))
        return [one.at for one in self.rewinds if one.place < place and one.at > excused]

    def may_be_missing(self, place: Place) -> bool:
        return any(gap.begin < place <= gap.end for gap in self.gaps)

    def was_rewound(self, place: Place, begin: float, end: float) -> bool:
        return any(one.place < place and begin <= one.at <= end for one in self.rewinds)

    def was_freed(self, begin: float, end: float) -> bool:
        return any(begin <= at <= end for at in self.freed)

    def next_after(self, at: float) -> float:
        """Return the time of the first change after `at`; infinity if there is none."""
        return next((one for one in self._times if one > at), float("inf"))


_SLACK = 2.0
"""Seconds between the write that takes a lease and ``initialize``, on a busy machine."""
_START_TIME = 5.0
"""Seconds after which a worker that took a lease has certainly begun; see `Books._wrong_starts`."""


class Books:
    """Accounts for the records of a run, given what operators did and what happened to workers."""

    def __init__(self, operations: Operations, faults: Iterable[Fault]) -> None:
        self._operations = operations
        self._faults = list(faults)
        self._shards: dict[str, _Shard] = defaultdict(_Shard)
        for rewind in operations.rewinds:
            self._shards[rewind.shard].rewinds.append(rewind)
        for gap in operations.gaps:
            self._shards[gap.shard].gaps.append(gap)
        for freed in operations.freed:
            self._shards[freed.shard].freed.append(freed.at)
        for shard in self._shards.values():
            shard.sort()

    def missing(
        self,
        stored: Iterable[tuple[str, Place]],
        deliveries: Iterable[Delivery],
        acquisitions: Mapping[tuple[str, int], Acquisition],
    ) -> tuple[list[str], list[str], int]:
        """Return records never delivered, records not delivered again, and the number of records that were delivered again."""
        newest: dict[tuple[str, Place], float] = {}
        for one in deliveries:
            began = acquisitions[one.worker, one.number].at
            key = (one.shard, one.place)
            if newest.get(key, float("-inf")) < began:
                newest[key] = began
        lost, not_repeated, repeated = [], [], 0
        for shard_id, place in stored:
            shard = self._shards.get(shard_id)
            since = newest.get((shard_id, place))
            needed = [] if shard is None else shard.needed_since(place)
            if since is None and (shard is None or not shard.may_be_missing(place)):
                lost.append(f"{_told(shard_id, place)}")
            elif needed and (since is None or since < needed[-1]):
                not_repeated.append(f"{_told(shard_id, place)} after the rewind at {needed[-1]:.1f}")
            repeated += len(needed)
        return lost, not_repeated, repeated

    def close(
        self,
        stored: Sequence[tuple[str, Place]],
        deliveries: Iterable[Delivery],
        acquisitions: Mapping[tuple[str, int], Acquisition],
    ) -> Account:
        """Account for everything.

        `stored` has shard and position of each acknowledged record; `acquisitions` are by worker and number.
        """
        found = sorted(deliveries, key=lambda one: (one.at, one.place))
        lost, not_repeated, repeated = self.missing(stored, found, acquisitions)
        reasons: Counter[str] = Counter()
        without_reason = []
        last: dict[tuple[str, Place], Delivery] = {}
        for one in found:
            before = last.get((one.shard, one.place))
            last[one.shard, one.place] = one
            if before is None:
                continue
            reason = self._reason(before, one, acquisitions)
            if reason is None:
                without_reason.append(
                    f"{_told(one.shard, one.place)} by {one.worker} at {one.at:.1f} after {before.worker} at {before.at:.1f}"
                )
            else:
                reasons[reason] += 1
        return Account(
            lost=lost,
            not_repeated=not_repeated,
            not_skipped=list(self._not_skipped(found, acquisitions)),
            without_reason=without_reason,
            wrong_starts=list(self._wrong_starts(acquisitions)),
            delivered=len(last),
            skipped=len(set(stored) - last.keys()),
            repeated=repeated - len(not_repeated),
            reasons=reasons,
        )

    def _reason(
        self, before: Delivery, again: Delivery, acquisitions: Mapping[tuple[str, int], Acquisition]
    ) -> str | None:
        first, second = (acquisitions[one.worker, one.number] for one in (before, again))
        if (first.worker, first.number) == (second.worker, second.number):
            return None
        # The older one may deliver last: it still has a batch when the lease is taken from it.
        begin, end = min(first.at, second.at) - _SLACK, max(first.at, second.at)
        shard = self._shards.get(again.shard)
        if shard is not None and shard.was_rewound(again.place, begin, end):
            return REWOUND
        if shard is not None and shard.was_freed(begin, end):
            return FREED
        return self._fault({first.worker, second.worker}, again.shard, begin, again.at)

    def _fault(self, workers: set[str], shard: str, begin: float, end: float) -> str | None:
        """Return the fault of one of the workers in an interval; None if there was none."""
        return next(
            (
                fault.reason
                for fault in self._faults
                if (fault.worker is None or fault.worker in workers)
                and (fault.shard is None or fault.shard == shard)
                and fault.begin <= end
                and fault.end >= begin
            ),
            None,
        )

    def _not_skipped(
        self, deliveries: Iterable[Delivery], acquisitions: Mapping[tuple[str, int], Acquisition]
    ) -> Iterable[str]:
        for one in deliveries:
            shard = self._shards.get(one.shard)
            if shard is None:
                continue
            for gap in shard.gaps:
                if not gap.exact or one.at <= gap.at or not gap.begin < one.place <= gap.end:
                    continue
                began = acquisitions[one.worker, one.number].at
                # An acquisition that an earlier change ended may still have had a batch when the skip was requested.
                is_stale = began < gap.at and any(
                    began - _SLACK <= at <= gap.at
                    for at in [*shard.freed, *(rewind.at for rewind in shard.rewinds)]
                )
                if (
                    not is_stale
                    and not shard.was_rewound(one.place, gap.at, max(began, one.at))
                    and self._fault({one.worker}, one.shard, began, one.at) is None
                ):
                    yield f"{_told(one.shard, one.place)} by {one.worker} at {one.at:.1f}"

    def _wrong_starts(self, acquisitions: Mapping[tuple[str, int], Acquisition]) -> Iterable[str]:
        by_shard: dict[str, list[Acquisition]] = defaultdict(list)
        for held in acquisitions.values():
            by_shard[held.shard].append(held)
        for shard_id, shard in self._shards.items():
            for rewind in shard.rewinds:
                if rewind.noticed_at is None:
                    continue
                # A worker notices a child that waits for its parents; the child may be changed again before a worker begins with it.
                following = shard.next_after(rewind.at)
                begun = [held for held in by_shard[shard_id] if rewind.at <= held.at < following]
                is_right = any(held.start == rewind.place for held in begun)
                is_waiting = not begun and following < float("inf")
                # A fault, or the next change, may come between the write that takes the lease and `initialize`.
                until = rewind.noticed_at + _START_TIME
                workers = {held.worker for held in by_shard[shard_id]}
                is_disturbed = (
                    following < until
                    or self._fault(workers, shard_id, rewind.at - _START_TIME, until) is not None
                )
                if not is_right and not is_waiting and not is_disturbed:
                    yield f"{shard_id}: none began at {rewind.place} after {rewind.at:.1f}"


def _told(shard: str, place: Place) -> str:
    return f"…{place[0] % 10**12}/{place[1]} of {shard}"
