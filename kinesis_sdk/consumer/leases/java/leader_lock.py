"""The leader of a KCL 3 fleet: the owner of the ``Leader`` lock, and whether it is alive.

The lock is only read. A Python worker does not compete for the lock, because its owner must assign leases to Java workers.
The lock of a crashed leader stays valid for 120 s. The leader's leases show the crash earlier, see `all_leases_expired`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kinesis_sdk.consumer.leases.table.lease import Item, Lease

CLAIM_TIME = 4 / 3
"""Failover times until a KCL 3 worker first writes a newly assigned lease: it scans for new leases once per failover time
(9.975 s by default), and renews them within a third of it (3.308 s)."""


def all_leases_expired(
    leases: Iterable[Lease],
    worker: str,
    is_expired: Callable[[Lease], bool],
    has_stopped: Callable[[Lease], bool],
) -> bool:
    """Return whether a worker owns leases and all of them have expired, which means that the worker has crashed or hangs.

    Finished leases also count, because the KCL renews them. A worker without leases is never reported.

    ``has_stopped`` (see `LeaseObserver.has_stopped`) defends against this sequence: this worker hands off the leader's first
    lease; the leader scans for new leases 9.5 s later, and renews the lease 3.3 s after that scan. In between, the
    lease is expired although the leader is healthy.
    """
    held = [lease for lease in leases if lease.holder == worker]
    return all(map(is_expired, held)) and any(map(has_stopped, held))


@dataclass(frozen=True)
class LeaderLock:
    """State of the leader lock of KCL 3.

    Attributes:
        version: Value that changes with every heartbeat (30 s).
        duration: Seconds without a change after which the owner counts as dead; stored in the item (120 s).
    """

    owner: str
    version: str
    duration: float

    @classmethod
    def from_item(cls, item: Item) -> LeaderLock | None:
        """Parse the item ``Leader``; return None if the lock was released. Raises `ValueError` if it is not a lock."""
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
    """Decides by this observer's own clock whether the lock's owner is alive, like the KCL's ``AmazonDynamoDBLockClient``."""

    def __init__(self) -> None:
        self._lock: LeaderLock | None = None
        self._since = 0.0

    def observe(self, lock: LeaderLock | None, now: float) -> None:
        """Process the result of a read of the lock, which is None if no worker holds it."""
        if lock is None or self._lock is None or lock.version != self._lock.version:
            self._since = now
        self._lock = lock

    def presume_dead(self) -> None:
        """Treat the lock owner as dead until its next heartbeat."""
        self._since = -math.inf

    def owner(self, now: float) -> str | None:
        """Return the id of the live leader; None if there is none."""
        lock = self._lock
        return lock.owner if lock is not None and now - self._since <= lock.duration else None
