"""Deletion of one row of a lease table: one that no worker can use, or whose position is of no use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kinesis_sdk.admin.applications import Application, short_shard
from kinesis_sdk.admin.changes.audit import AuditLog, default_audit_log, item_to_json
from kinesis_sdk.admin.changes.rows import RowWrite, TableRead, WriteKind
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import ChangeRefusedError, ConfigError, KinesisSdkError
from kinesis_sdk.common.shards import is_shard_id
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer.leases import Item, attributes


@dataclass(frozen=True, kw_only=True)
class RowRemovalPlan:
    """A row that may be deleted.

    Attributes:
        lease_key: Its key.
        write: The conditional call: the row must be as it was read.
        effects: What follows, in sentences.
        item: The row, in DynamoDB's wire form; empty if the database cannot read it.
    """

    lease_key: str
    write: RowWrite
    effects: tuple[str, ...]
    item: Item = field(repr=False)


class RowRemoval:
    """Deletes single rows. Not thread-safe. Arguments as for `Removal`."""

    def __init__(
        self,
        application: Application,
        *,
        failover_time: float = 10.0,
        audit_log: Path | None = None,
        clock: Clock,
        sleep: Callable[[float], None],
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._application = application
        self._failover_time = failover_time
        self._audit_log = audit_log or default_audit_log()
        self._clock = clock
        self._sleep = sleep
        self._report = report

    def plan(self, row: str) -> RowRemovalPlan:
        """Return what would be deleted. A lease with an owner is watched for its failover time first.

        Args:
            row: Lease key, or a shard as it is written elsewhere: ``3``.

        Raises:
            ChangeRefusedError: If its owner is alive.
            ConfigError: If there is no such row.
            AwsError: If a call failed.
        """
        table = self._application.table
        read = table.read()
        key = _key_of(read, row)
        found = read.rows.get(key)
        if found is not None and found.lease.holder is not None and not found.lease.is_finished:
            holder = printable(found.lease.holder)
            self._report(
                f"watching the row for {self._failover_time:g} s: its owner, {holder}, may not renew it"
            )
            self._sleep(self._failover_time)
            read = table.read()
            now = read.rows.get(key)
            if now is None or now.lease.counter != found.lease.counter:
                raise ChangeRefusedError(
                    f"{printable(key)} is in use: {holder} renews it. To change its position, rewind or skip; to delete it, stop the "
                    "workers first"
                )
        item = next((one for one in read.items if one.get(attributes.LEASE_KEY, {}).get("S") == key), {})
        return RowRemovalPlan(
            lease_key=key,
            write=RowWrite(
                lease_key=key,
                kind=WriteKind.DELETE,
                equals={name: value for name, value in item.items() if name != attributes.LEASE_KEY},
            ),
            effects=tuple(self._effects(read, key)),
            item=item,
        )

    def _effects(self, read: TableRead, key: str) -> list[str]:
        if key in read.others:
            return ["the row is not a lease: no worker of this SDK uses it"]
        row, shard_id = read.rows.get(key), key.rpartition(":")[2]
        position = (
            f"its position, {row.lease.checkpoint}, is lost" if row is not None else "it cannot be read"
        )
        try:
            scan = self._application.scan(consistent=True)
            streams = self._application.streams(scan)
            stream = streams.get(None if row is None else row.lease.stream_name) or next(
                iter(streams.values())
            )
            listed = {shard.shard_id for shard in self._application.shards(stream)}
        except (KinesisSdkError, StopIteration) as error:
            return [position, f"whether the stream has its shard is not known: {error}"]
        if shard_id not in listed:
            what = (
                "no record is concerned"
                if not is_shard_id(shard_id) or shard_id > max(listed, default="")
                else ("what was not read of it is lost already")
            )
            return [position, f"{stream} has no such shard: {what}"]
        again = (
            "workers create the row again: at the beginning of the shard if its parents were read to their end, else at their initial "
            f"position. With LATEST, what arrives before is skipped: rewind afterwards (leases rewind --shard {short_shard(shard_id)})"
        )
        return [position, again]

    def delete(self, plan: RowRemovalPlan, *, command: tuple[str, ...] = ()) -> None:
        """Delete the row of a plan. The audit log keeps it.

        Raises:
            ChangeRefusedError: If the row has changed since it was read; nothing is deleted.
            AuditLogError: If the audit log cannot be written; nothing is deleted.
            AwsError: If the call failed; repeating it is safe.
        """
        audit = AuditLog(
            self._audit_log,
            clock=self._clock,
            command=("kinesis-sdk", *command),
            table=self._application.table.label,
        )
        audit.append("begin", delete_row=plan.lease_key, before=item_to_json(plan.item))
        if not self._application.table.send(plan.write):
            audit.append("refused", delete_row=plan.lease_key)
            raise ChangeRefusedError(
                f"{printable(plan.lease_key)} has changed meanwhile; nothing was deleted"
            )
        audit.append("done", delete_row=plan.lease_key)


def _key_of(read: TableRead, row: str) -> str:
    keys = sorted({*read.rows, *read.others, *read.unreadable})
    if row in keys:
        return row
    found = [
        key
        for key in keys
        if row.isdigit() and is_shard_id(key.rpartition(":")[2]) and int(key.rpartition("-")[2]) == int(row)
    ]
    if len(found) == 1:
        return found[0]
    raise ConfigError(
        "row",
        row,
        f"one of {', '.join(map(printable, found))}"
        if found
        else f"the key of one of the {len(keys)} rows of the table",
    )
