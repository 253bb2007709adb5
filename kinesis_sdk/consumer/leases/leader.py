"""Who does what one worker has to do for all: a rule over the rows that every look reads anyway.

*Among workers of this package* the leader is whoever holds the first unfinished lease in key order, as long as that
holder renews. Nothing is stored and nothing is asked for; when the leader dies its first lease moves as any
other, and leadership with it. Two workers may both believe for the length of a look; all duties are idempotent
(conditional creates, deletes by rules that every worker decides alike), so that costs a call and no more. Workers
without leases, however many, never lead while anybody holds one.

*Java's* leader is another one: the KCL 3 worker that holds the ``Leader`` lock. `LeaderWatch` tells whether it lives.
It is only read: a Python worker does not compete for it, because its holder must assign leases to Java workers.
The lock outlives a leader that crashed by 120 s. Its leases tell earlier, see `keeps_nothing`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kinesis_sdk.consumer.leases.lease import Item, Lease


def is_leader(leases: Iterable[Lease], me: str, is_expired: Callable[[Lease], bool]) -> bool:
    """Whether this worker leads.

    Only holders of this package count, since only they follow this rule. Where Java workers hold everything, they have a
    leader of their own and we do nothing; where nobody holds anything, everybody leads (a first start, a fleet that
    comes back).

    Args:
        leases: Every lease of the table.
        me: This worker's id.
        is_expired: Whether nobody keeps a lease.
    """
    first: Lease | None = None
    foreign = False
    for lease in leases:
        if lease.holder is None or lease.is_finished or is_expired(lease):
            continue
        # Who asks for a lease writes its own name there, and asks only who understands it: most likely one of us.
        if lease.handover_owner not in (lease.holder, lease.owner):
            foreign = True
        elif first is None or lease.lease_key < first.lease_key:
            first = lease
    if first is not None:
        return first.holder == me
    return not foreign


CLAIM_TIME = 4 / 3
"""Failover times until a KCL 3 worker first writes a lease that it was given: it looks for new leases once a failover time
(9.975 s by default), and renews what it found within a third of one (3.308 s)."""


def keeps_nothing(
    leases: Iterable[Lease],
    worker: str,
    is_expired: Callable[[Lease], bool],
    has_stopped: Callable[[Lease], bool],
) -> bool:
    """Return whether a worker holds leases and let all of them expire: it has crashed, or hangs.

    The sequence of events that ``has_stopped`` is for: this worker hands the leader its first lease, the leader looks for
    new leases 9.5 s later and writes 3.3 s after that. In between the lease is expired and the leader is well.

    Finished leases count: the KCL renews them as well. Of a worker without leases nothing is known.

    Args:
        leases: Every lease of the table.
        worker: Its id.
        is_expired: Whether nobody keeps a lease.
        has_stopped: Whether a lease is expired and its holder had begun to renew it, or had the time to;
            see `LeaseObserver.has_stopped`.
    """
    held = [lease for lease in leases if lease.holder == worker]
    return all(map(is_expired, held)) and any(map(has_stopped, held))


_SEED = 1947
_MULTIPLIER, _INCREMENT, _BITS_48, _BITS_31 = 0x5DEECE66D, 0xB, 2**48 - 1, 2**31


def kcl2_leader(leases: Iterable[Lease]) -> str | None:
    """Return the worker that KCL 2.x elects, and KCL 3.x while it is compatible with 2.x.

    It is the first of the sorted owners after ``Collections.shuffle(owners, new Random(1947))``, whatever kind of worker it
    is (``DeterministicShuffleShardSyncLeaderDecider``). Only the elected worker checks whether a fleet is ready to go
    from 2.x to 3.x, which a worker of this package does not do.

    Args:
        leases: Every lease of the table.

    Returns:
        A worker id; None if no lease has an owner.
    """
    # Java compares strings by UTF-16 code units.
    owners = sorted(
        {lease.owner for lease in leases if lease.owner is not None},
        key=lambda owner: owner.encode("utf-16-be", "surrogatepass"),
    )
    state = (_SEED ^ _MULTIPLIER) & _BITS_48

    def next_int(bound: int) -> int:
        """``java.util.Random.nextInt(bound)``."""
        nonlocal state
        while True:
            state = (state * _MULTIPLIER + _INCREMENT) & _BITS_48
            drawn = state >> 17
            if bound & (bound - 1) == 0:
                return bound * drawn >> 31
            rest = drawn % bound
            if drawn - rest + bound - 1 < _BITS_31:
                return rest

    for size in range(len(owners), 1, -1):
        other = next_int(size)
        owners[size - 1], owners[other] = owners[other], owners[size - 1]
    return owners[0] if owners else None


MIGRATION_KEY = "Migration3.0"
"""Key of the item in which a fleet of KCL workers keeps how far it has come from 2.x to 3.x."""


def is_upgrading_from_2x(item: Item | None) -> bool:
    """Return whether the item of `MIGRATION_KEY` says that a fleet waits to leave the mode of KCL 2.x."""
    version = item.get("cv") if item is not None else None
    return isinstance(version, Mapping) and version.get("S") == "CLIENT_VERSION_UPGRADE_FROM_2X"


@dataclass(frozen=True)
class LeaderLock:
    """KCL 3's leader lock.

    Attributes:
        owner: Worker id.
        version: Changes with every heartbeat (30 s).
        duration: Seconds without a change after which it counts as given up; stored in the item (120 s).
    """

    owner: str
    version: str
    duration: float

    @classmethod
    def from_item(cls, item: Item) -> LeaderLock | None:
        """Read the item ``Leader``; None if it is not held.

        Raises:
            ValueError: It is no such item.
        """
        try:
            if "isReleased" in item:
                return None
            return cls(
                item["ownerName"]["S"],
                item["recordVersionNumber"]["S"],
                int(item["leaseDuration"]["S"]) / 1000,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a leader lock: {type(error).__name__}: {error}") from error


class LeaderWatch:
    """Whether a lock's holder lives, by this observer's own clock (``AmazonDynamoDBLockClient``)."""

    def __init__(self) -> None:
        self._lock: LeaderLock | None = None
        self._since = 0.0

    def observe(self, lock: LeaderLock | None, now: float) -> None:
        """Take in a read."""
        if lock is None or self._lock is None or lock.version != self._lock.version:
            self._since = now
        self._lock = lock

    def give_up(self) -> None:
        """Hold the lock's owner for dead until its next heartbeat."""
        self._since = -math.inf

    def owner(self, now: float) -> str | None:
        """The living leader; None if there is none."""
        lock = self._lock
        return lock.owner if lock is not None and now - self._since <= lock.duration else None
