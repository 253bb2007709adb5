"""Unusable rows of the lease table: found at each scan, logged, and reported in the worker's health."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping

from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import KinesisSdkError
from kinesis_sdk.common.log_fields import FieldLogger, log_fields
from kinesis_sdk.common.log_throttle import LogThrottle
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer.leases.ownership.held_lease import HeldLease
from kinesis_sdk.consumer.leases.table.lease import Lease, shard_of_key
from kinesis_sdk.consumer.leases.table.store import TableScan
from kinesis_sdk.consumer.shard_sync.audit import find_cycles, find_row_problems
from kinesis_sdk.consumer.streams import StreamDirectory

PROBLEM_LOG_INTERVAL = 600.0
"""Seconds between two log lines about a problem that needs manual repair."""
_UNWRITABLE_PAUSE = 300.0
"""Seconds for which a lease is not taken after DynamoDB rejected a write of its row."""


class RowProblems:
    """The unusable rows, as of the last scan. `find` is for one thread; the other methods are thread-safe.

    Attributes:
        problems: Reasons why no worker can consume a shard, by lease key. Replaced, never modified.
    """

    def __init__(
        self,
        *,
        streams: StreamDirectory,
        misfits: Callable[[Iterable[Lease]], Mapping[str, str]],
        clock: Clock,
        log: FieldLogger,
        fields: Callable[[Lease], Mapping[str, str | None]],
    ) -> None:
        self.problems: Mapping[str, str] = {}
        self._streams = streams
        self._misfits = misfits
        self._clock = clock
        self._fields = fields
        self._log = LogThrottle(log, logging.ERROR, PROBLEM_LOG_INTERVAL)
        # Rows that no worker can write: counter, problem, and monotonic time of the next attempt.
        self._unwritable: dict[str, tuple[int, str, float]] = {}
        self._lock = threading.Lock()

    def find(self, scan: TableScan, leases: list[Lease], held: Iterable[HeldLease], now: float) -> set[str]:
        """Find the unusable rows, log them, and update the held leases' problems.

        Returns:
            Keys of leases whose rows no worker can write, so that a take would fail again.
        """
        with self._lock:
            counters = {lease.lease_key: lease.counter for lease in leases} if self._unwritable else {}
            for key, (counter, _, until) in [*self._unwritable.items()]:
                # A manual repair may leave the counter unchanged, so the row is tried again after a while.
                if counters.get(key) != counter or now >= until:
                    del self._unwritable[key]
            unwritable = {key: problem for key, (_, problem, _) in self._unwritable.items()}
        problems = {
            **self._misfits(leases),
            **find_row_problems(scan, self._streams),
            **find_cycles(leases),
            **unwritable,
        }
        for key, problem in problems.items():
            self._log.log(
                now,
                key,
                "lease %s: needs repair: %s",
                key,
                problem,
                extra=log_fields(shard=shard_of_key(key)),
            )
        for lease in leases:
            if lease.damaged:
                names = printable(", ".join(lease.damaged))
                self._log.log(
                    now,
                    f"{lease.lease_key} damaged",
                    "lease %s: ignored unreadable attributes: %s",
                    lease.lease_key,
                    names,
                    extra=self._fields(lease),
                )
        for one in held:
            one.problem = problems.get(one.key)
        self.problems = problems
        return set(unwritable)

    def skip(self, lease: Lease, error: KinesisSdkError) -> None:
        """Leave a lease alone for a while, because DynamoDB rejected a write of its row."""
        self.note_unwritable(lease, f"its row cannot be written: {error}")

    def note_unwritable(self, lease: Lease, problem: str) -> None:
        """Do not take a lease for a while; ``problem`` is the reason why DynamoDB rejects writes of its row."""
        until = self._clock.monotonic() + _UNWRITABLE_PAUSE
        with self._lock:
            self._unwritable[lease.lease_key] = (lease.counter, problem, until)
