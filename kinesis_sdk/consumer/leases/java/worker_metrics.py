"""Being a member of a fleet of Java KCL 3 workers: the worker-metrics item, and whether their leader lives.

The leader of a KCL 3 fleet gives leases only to workers whose metrics item is fresh. Empty measurements are valid: the
leader then judges the worker by its share of the throughput (``WorkerMetricStats``, ``LeaseAssignmentManager``).
KCL 3.0 to 3.4 keep these items in ``<application>-WorkerMetricStats`` and the leader's lock in
``<application>-CoordinatorState``; 3.5 keeps both in the lease table, under the worker's id and ``Leader``.

Cost with membership: two writes and six reads a minute (GetItem of 0.5 units), two more with separate tables; without it
nothing.
"""

from __future__ import annotations

import logging
from typing import Any, Literal

from kinesis_sdk.common.aws import DynamoDBClient, translate_errors
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import AwsError, ResourceNotFoundError
from kinesis_sdk.common.log_throttle import LogThrottle
from kinesis_sdk.consumer.leases.java.leader_lock import LeaderLock, LeaderLockMonitor
from kinesis_sdk.consumer.leases.java.migration import MIGRATION_KEY
from kinesis_sdk.consumer.leases.table.lease import ENTITY_TYPE, LEASE_KEY, Item

REPORT_INTERVAL = 30.0
"""Seconds between two reports; the KCL's. A worker counts as gone after two of them."""
WATCH_INTERVAL = 10.0
"""Seconds between two looks at the leader's lock, which changes every 30 s."""
PATIENCE = 120.0
"""Seconds for which a lease that nobody keeps is left to a living leader: six of its rounds, and longer than the
60 s for which it takes a dead worker for a living one."""

_ENTITY = "WORKER_METRIC_STATS"
_LEADER = "Leader"
_SUPPORT_CODE = 1
"""Of KCL 3.5: this worker can read a table with other entities in it."""
_LOGGER = logging.getLogger(__name__)

Mode = Literal["separate_table", "lease_table"]


def metrics_item(worker_id: str, mode: Mode, epoch_seconds: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Key and attributes of a worker's report.

    Args:
        worker_id: This worker.
        mode: Where it lives.
        epoch_seconds: Now; the leader compares it with its own wall clock.
    """
    attributes: dict[str, Any] = {"lut": {"N": str(epoch_seconds)}, "sts": {"M": {}}, "opr": {"M": {}}}
    if mode == "separate_table":
        return {"wid": {"S": worker_id}}, attributes
    attributes["sup"] = {"N": str(_SUPPORT_CODE)}
    attributes["slu"] = {"N": str(epoch_seconds)}
    attributes[ENTITY_TYPE] = {"S": _ENTITY}
    return {LEASE_KEY: {"S": worker_id}}, attributes


class JavaMembership:
    """Reports this worker and watches the leader. Used by the loop that looks at the table.

    Args:
        client: boto3 DynamoDB client or one of its shape.
        mode: ``"separate_table"`` for KCL 3.0 to 3.4, ``"lease_table"`` for 3.5 and later.
        application_name: Beginning of the separate tables' names.
        table_name: Lease table.
        worker_id: This worker.
        clock: Time; the wall clock goes into the item, because the leader compares it with its own.

    Attributes:
        is_reported: Whether an item of ours may stand in the table.
        migration: The item that says how far the fleet has come from KCL 2.x to 3.x, where it does not stand in the lease
            table; None if there is none, or before the first report.
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
        self._clock = clock
        self._watch = LeaderLockMonitor()
        self._report_due = 0.0
        self.is_reported = False
        self.migration: Item | None = None
        self._log_throttle = LogThrottle(_LOGGER)

    def tick(self, now: float) -> float:
        """Report and watch; returns when to do so again. A failure is told and repeated at that time."""
        try:
            if now >= self._report_due:
                self._report()
                self._report_due = now + REPORT_INTERVAL
                if self._mode == "separate_table":  # else every scan of the lease table shows it
                    self.migration = self._read_state(MIGRATION_KEY)
            lock = self._read_state(_LEADER)
            self._watch.observe(None if lock is None else LeaderLock.from_item(lock), now)
        except ResourceNotFoundError as error:
            self.is_reported = False
            self._log_throttle.log(now, "tables", "the KCL 3 fleet has no tables yet: %s", error)
        except AwsError as error:
            if not error.retryable:
                raise
            self._log_throttle.log(now, type(error).__name__, "worker metrics: %s; trying again", error)
        except ValueError as error:
            self._log_throttle.log(now, "lock", "leader lock: %s", error)
        return now + WATCH_INTERVAL

    def leader(self, now: float) -> str | None:
        """The living Java leader; None if there is none."""
        return self._watch.owner(now)

    def give_leader_up(self) -> None:
        """Hold the leader for dead until its next heartbeat."""
        self._watch.give_up()

    def has_metrics(self, worker_id: str) -> bool:
        """Whether a worker publishes metrics, so is a KCL 3 and understands a handoff."""
        key, _ = metrics_item(worker_id, self._mode, 0)
        with translate_errors("GetItem", self._client):
            item = self._client.get_item(TableName=self._metrics_table, Key=key).get("Item")
        return item is not None and "lut" in item

    def withdraw(self) -> None:
        """Take the report back, so that the leader gives us nothing more; a failure is told and left."""
        if not self.is_reported:
            return
        key, _ = metrics_item(self._worker_id, self._mode, 0)
        try:
            with translate_errors("DeleteItem", self._client):
                self._client.delete_item(TableName=self._metrics_table, Key=key)
        except AwsError as error:
            _LOGGER.warning("worker metrics of %s stay behind until they are old: %s", self._worker_id, error)
        self.is_reported = False

    def _report(self) -> None:
        key, values = metrics_item(self._worker_id, self._mode, int(self._clock.time()))
        names = {f"#n{position}": name for position, name in enumerate(values)}
        self.is_reported = True  # perhaps even if no answer comes
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
