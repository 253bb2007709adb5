"""The leader of KCL 3 workers: the holder of the ``Leader`` lock, and whether it is alive.

The lock is only read. A Python worker does not compete for it, because its holder must assign leases to Java workers.
The lock of a leader that crashed stands for another 120 s; its leases tell earlier, see `keeps_nothing`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kinesis_sdk.consumer.leases.table.lease import Item, Lease

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


class LeaderLockMonitor:
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
