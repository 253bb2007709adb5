"""Drain: a worker that holds no leases, takes none, and stays up.

An operator puts the attribute ``drain:<worker id>`` on any row of the lease table (a separate item would break the scans of KCL
1.x to 3.4). The worker finds it in its regular scan. Its peers request its leases and no longer count the worker; the worker
releases leases that no peer requests within two scans. The mark stays until an operator removes it, even across a restart under the same
worker id.

The mark must not vanish with its row, so the draining worker moves it when the row is finished or deleted. Marks of dead workers
stay, because a dead worker looks like a worker that is being restarted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from zlib import crc32

from kinesis_sdk.common.errors import KinesisSdkError, ProtocolError
from kinesis_sdk.common.log_fields import FieldLogger, log_fields
from kinesis_sdk.consumer.leases.table.lease import Lease, shard_of_key
from kinesis_sdk.consumer.leases.table.store import LeaseStore, is_rejected_row

_LOGGER = FieldLogger(logging.getLogger(__name__))

_NEVER = float("inf")


class Drain:
    """Whether this worker drains, and the place of its mark. Used by the table loop.

    Attributes:
        active: Whether this worker drains.
        since: Monotonic time at which the drain began; infinity while there is none.
        due: Monotonic time of the next work of `tick`.
        workers: Ids of all draining workers, by the last scan.
    """

    def __init__(self, store: LeaseStore, worker_id: str) -> None:
        self.active: bool = False
        self.since: float = _NEVER
        self.due: float = _NEVER
        self.workers: frozenset[str] = frozenset()
        self._store = store
        self._worker_id = worker_id
        # Rows that carried the mark when last seen, and unfinished rows that could carry it.
        self._marked: set[str] = set()
        self._candidates: list[str] = []
        # Rows that cannot grow, because they have DynamoDB's maximum size.
        self._full_rows: set[str] = set()

    def observe(self, leases: Iterable[Lease], now: float) -> None:
        """Process a scan of the whole table."""
        marked: dict[str, bool] = {}
        workers: set[str] = set()
        self._candidates = []
        for lease in leases:
            if not lease.is_finished and lease.lease_key not in self._full_rows:
                self._candidates.append(lease.lease_key)
            if lease.draining:
                workers.update(lease.draining)
                if self._worker_id in lease.draining:
                    marked[lease.lease_key] = lease.is_finished
        self.workers = frozenset(workers)
        self.due = _NEVER
        if marked:
            is_moving = all(marked.values())
            # A stale scan may show the mark on a finished row from which this worker has moved it, so also reread the rows
            # known to carry it.
            self._marked = {*marked, *self._marked} if is_moving else {*marked}
            if not self.active:
                self.active, self.since = True, now
                _LOGGER.info(
                    "worker %s: draining: it hands off all leases, and takes none until its mark is removed from the lease table",
                    self._worker_id,
                    extra=log_fields(worker=self._worker_id),
                )
            if is_moving:
                self.due = now  # the row will be deleted soon
        elif self.active:
            self.due = now  # the mark was removed, its row was deleted, or the scan is stale

    def tick(self, now: float) -> float:
        """Move the mark or end the drain if due; return the monotonic time of the next call. Safe to repeat after an error."""
        if now < self.due:
            return self.due
        # Scans are eventually consistent, so read the rows that carried the mark again before deciding. Otherwise: the scan
        # shows the mark on a finished row; the operator removes it; a move by the scan alone would put it on another row, and
        # the drain would never end. The consistent read reduces this race to a few milliseconds; an operator who scans again
        # after removing the mark finds it.
        rows = [self._read(key) for key in sorted(self._marked)]
        present = [row for row in rows if row is not None]
        carriers = [row for row in present if self._worker_id in row.draining]
        if any(not row.is_finished for row in carriers):
            self.due = _NEVER
        elif present and not carriers:
            self._end()
        else:
            self._move(carriers, now)
        return self.due

    def _read(self, lease_key: str) -> Lease | None:
        try:
            return self._store.get(lease_key)
        except ProtocolError:
            return None  # the row was damaged, so no worker can read its mark

    def _end(self) -> None:
        self.active, self.since, self.due = False, _NEVER, _NEVER
        self._marked = set()
        _LOGGER.info(
            "worker %s: no longer drains, takes leases again",
            self._worker_id,
            extra=log_fields(worker=self._worker_id),
        )

    def _move(self, carriers: list[Lease], now: float) -> None:
        candidates = sorted(self._candidates)
        self.due = _NEVER
        if not candidates:
            return  # the next scan tries again
        target = candidates[crc32(self._worker_id.encode()) % len(candidates)]
        try:
            stored = self._store.set_drain(target, self._worker_id, True)
        except KinesisSdkError as error:
            self.due = now
            if not is_rejected_row(error):
                raise
            _LOGGER.warning(
                "lease %s: cannot store a drain mark, using another row: %s",
                target,
                error,
                extra=log_fields(shard=shard_of_key(target), worker=self._worker_id),
            )
            self._full_rows.add(target)
            self._candidates.remove(target)
            return
        if not stored:
            return  # the row was deleted after the scan; the next scan tries again
        # First the new mark, then the old one: if this process dies in between, the worker still drains when it restarts.
        self._marked.add(target)
        for row in carriers:
            self._store.set_drain(row.lease_key, self._worker_id, False)
        self._marked = {target}
        _LOGGER.info(
            "worker %s: moved its drain mark to lease %s",
            self._worker_id,
            target,
            extra=log_fields(shard=shard_of_key(target), worker=self._worker_id),
        )
