"""Membership in a fleet of Java KCL 3 workers: the worker metrics item, and the state of the leader.

The leader of a KCL 3 fleet assigns leases only to workers whose metrics item is fresh. Empty measurements are valid: the
leader then rates the worker by its share of the throughput (``WorkerMetricStats``, ``LeaseAssignmentManager``).
KCL 3.0 to 3.4 keep these items in ``<application>-WorkerMetricStats`` and the leader's lock in
``<application>-CoordinatorState``; 3.5 keeps both in the lease table, under the worker's id and ``Leader``.

Cost with membership: two writes and six reads per minute (GetItem of 0.5 units), two more reads with separate tables. No cost
without membership.
"""

from __future__ import annotations

import logging
from typing import Any, Literal

from kinesis_sdk.common.aws import DynamoDBClient, translate_errors
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import AwsError, ResourceNotFoundError
from kinesis_sdk.common.log_fields import FieldLogger, log_fields
from kinesis_sdk.common.log_throttle import LogThrottle
from kinesis_sdk.consumer.leases.java.leader_lock import LeaderLock, LeaderLockMonitor
from kinesis_sdk.consumer.leases.java.migration import MIGRATION_KEY
from kinesis_sdk.consumer.leases.table.attributes import ENTITY_TYPE, LEASE_KEY
from kinesis_sdk.consumer.leases.table.lease import Item

REPORT_INTERVAL = 30.0
"""Seconds between two reports (as in the KCL). A worker counts as dead after twice this time without a report."""
WATCH_INTERVAL = 10.0
"""Seconds between two reads of the leader lock, which changes every 30 s."""
LEADER_GRACE = 120.0
"""Seconds for which an unowned or expired lease is left to a live KCL 3 leader: six of its assignment rounds, and more than the
60 s for which the leader counts a dead worker as alive."""

_ENTITY = "WORKER_METRIC_STATS"
_LEADER = "Leader"
_SUPPORT_CODE = 1
"""Support code of KCL 3.5: this worker can read a lease table that contains other entities."""
_LOGGER = FieldLogger(logging.getLogger(__name__))

Mode = Literal["separate_table", "lease_table"]


def metrics_item(worker_id: str, mode: Mode, epoch_seconds: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return key and attributes of a worker's report. The leader compares ``epoch_seconds`` with its own wall clock."""
    attributes: dict[str, Any] = {"lut": {"N": str(epoch_seconds)}, "sts": {"M": {}}, "opr": {"M": {}}}
    if mode == "separate_table":
        return {"wid": {"S": worker_id}}, attributes
    attributes["sup"] = {"N": str(_SUPPORT_CODE)}
    attributes["slu"] = {"N": str(epoch_seconds)}
    attributes[ENTITY_TYPE] = {"S": _ENTITY}
    return {LEASE_KEY: {"S": worker_id}}, attributes


class JavaMembership:
    """Reports this worker to the fleet and monitors its leader. Used by the table loop.

    Args:
        mode: ``"separate_table"`` for KCL 3.0 to 3.4, ``"lease_table"`` for 3.5 and later.
        application_name: Prefix of the names of the separate tables.
        clock: Monotonic and wall clock; the wall clock is written to the item, because the leader compares it with its own clock.

    Attributes:
        is_reported: Whether the table may contain an item of this worker.
        migration: Item with the state of the migration from KCL 2.x to 3.x in a separate table; None if there is none, and before the
            first report.
    """

    def __init__(
        self,
        client: DynamoDBClient,
        *,
        mode: Mode,
        application_name: str,
        table_name: str,
        worker_id: str,
        clock: Clock,
    ) -> None:
        self._client = client
        self._mode: Mode = mode
        separate = mode == "separate_table"
        self._metrics_table = f"{application_name}-WorkerMetricStats" if separate else table_name
        self._state_table = f"{application_name}-CoordinatorState" if separate else table_name
        self._state_key = "key" if separate else LEASE_KEY
        self._worker_id = worker_id
        self._fields = log_fields(worker=worker_id)
        self._clock = clock
        self._monitor = LeaderLockMonitor()
        self._report_due = 0.0
        self.is_reported: bool = False
        self.migration: Item | None = None
        self._log_throttle = LogThrottle(_LOGGER)

    def tick(self, now: float) -> float:
        """Report this worker and read the leader lock if due; return when to call again. Failures are logged and retried."""
        try:
            if now >= self._report_due:
                self._report()
                self._report_due = now + REPORT_INTERVAL
                if self._mode == "separate_table":  # otherwise every scan shows the migration
                    self.migration = self._read_state(MIGRATION_KEY)
            lock = self._read_state(_LEADER)
            self._monitor.observe(None if lock is None else LeaderLock.from_item(lock), now)
        except ResourceNotFoundError as error:
            self.is_reported = False
            self._log_throttle.log(
                now,
                "tables",
                "worker %s: the KCL 3 fleet has no tables yet: %s",
                self._worker_id,
                error,
                extra=self._fields,
            )
        except AwsError as error:
            if not error.retryable:
                raise
            self._log_throttle.log(
                now,
                type(error).__name__,
                "worker %s: worker metrics failed, retrying: %s",
                self._worker_id,
                error,
                extra=self._fields,
            )
        except ValueError as error:
            self._log_throttle.log(
                now,
                "lock",
                "worker %s: cannot read the leader lock: %s",
                self._worker_id,
                error,
                extra=self._fields,
            )
        return now + WATCH_INTERVAL

    def leader(self, now: float) -> str | None:
        """Return the id of the live KCL 3 leader; None if there is none."""
        return self._monitor.owner(now)

    def presume_leader_dead(self) -> None:
        """Treat the leader as dead until its next heartbeat."""
        self._monitor.presume_dead()

    def has_metrics(self, worker_id: str) -> bool:
        """Return whether a worker publishes metrics, so that it runs KCL 3 and supports handoffs."""
        key, _ = metrics_item(worker_id, self._mode, 0)
        try:
            with translate_errors("GetItem", self._client):
                item = self._client.get_item(TableName=self._metrics_table, Key=key).get("Item")
        except ResourceNotFoundError:
            return False  # no KCL 3 worker has created its tables yet, as in `tick`
        return item is not None and "lut" in item

    def withdraw(self) -> None:
        """Delete the report, so that the leader assigns no more leases to this worker. A failure is only logged."""
        if not self.is_reported:
            return
        key, _ = metrics_item(self._worker_id, self._mode, 0)
        try:
            with translate_errors("DeleteItem", self._client):
                self._client.delete_item(TableName=self._metrics_table, Key=key)
        except AwsError as error:
            _LOGGER.warning(
                "worker %s: failed to delete worker metrics, leaving them to expire: %s",
                self._worker_id,
                error,
                extra=self._fields,
            )
        self.is_reported = False
        self._report_due = 0.0

    def _report(self) -> None:
        key, values = metrics_item(self._worker_id, self._mode, int(self._clock.time()))
        names = {f"#n{position}": name for position, name in enumerate(values)}
        self.is_reported = True  # before the call: it may succeed although its response is lost
        with translate_errors("UpdateItem", self._client):
            self._client.update_item(
                TableName=self._metrics_table,
                Key=key,
                UpdateExpression="SET " + ", ".join(f"#n{n} = :n{n}" for n in range(len(names))),
                ExpressionAttributeNames=names,
                ExpressionAttributeValues={
                    f":n{position}": value for position, value in enumerate(values.values())
                },
            )

    def _read_state(self, key: str) -> Item | None:
        with translate_errors("GetItem", self._client):
            item: Item | None = self._client.get_item(
                TableName=self._state_table, Key={self._state_key: {"S": key}}
            ).get("Item")
        return item
