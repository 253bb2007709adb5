"""Deletion of an application that has stopped, and of single rows that no worker can use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kinesis_sdk.admin.applications import short_shard
from kinesis_sdk.admin.changes.audit import item_to_json
from kinesis_sdk.admin.changes.description import ChangeDescription, Result, SingleChange, Write, done
from kinesis_sdk.admin.changes.desk import POLL, Desk
from kinesis_sdk.admin.changes.rows import RowWrite, TableRead, WriteKind
from kinesis_sdk.admin.fleet.formatting import counted
from kinesis_sdk.admin.fleet.model import OwnerKind
from kinesis_sdk.common.errors import ChangeRefusedError, ConfigError, KinesisSdkError
from kinesis_sdk.common.shards import is_shard_id
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer import Lease
from kinesis_sdk.consumer.leases import attributes


def plan_app_deletion(desk: Desk) -> SingleChange:
    """Plan to delete an application: its lease table, and the tables that a KCL 3 keeps in addition.

    The table is watched for two failover times, during which no worker may write to it.
    """
    name, table = desk.application.info().name, desk.application.table
    leases = _watch(desk, name)
    counters = _counters(leases)
    tables = table.parts(name)
    command = desk.command("delete-app")
    lost = f"{counted(len(leases), 'lease')} and {'its position is' if len(leases) == 1 else 'their positions are'} lost"
    description = ChangeDescription(
        title=f"delete {printable(name)}",
        question=f"Delete {printable(name)}?",
        command=command,
        writes=tuple(
            Write(call=table.deletion(part), row=part, about=printable(table.deletion(part)))
            for part in tables
        ),
        effects=(f"{lost}; a worker that starts later begins at its initial position.",),
    )

    def make(_wait: float) -> Result:
        # The confirmation may have taken minutes, and a worker may have started meanwhile.
        if _counters(desk.leases()) != counters:
            raise ChangeRefusedError(
                f"a worker has written to {desk.application.table_name} since you were asked; nothing was deleted"
            )
        audit = desk.audit(command)
        for part in tables:
            audit.around(lambda part=part: _delete(desk, part), delete_table=part)  # type: ignore[misc]
        return done(f"Done: {printable(name)} is deleted.")

    return SingleChange(
        description=description,
        make=make,
        data=lambda result: {"tables": tables, "deleted": result is not None},
    )


def _watch(desk: Desk, name: str) -> list[Lease]:
    """Watch the table for two failover times, and return its leases; raises ChangeRefusedError if a worker is alive."""
    owners, begun = desk.owners, desk.clock.monotonic()
    desk.report(f"watching the table for {2 * desk.failover_time:g} s: no worker may write to it")
    while True:
        leases = desk.leases()
        now = desk.clock.monotonic()
        for worker in owners.workers():
            if owners.is_alive(worker, now):
                raise ChangeRefusedError(
                    f"the application {name} is running: {printable(worker)} writes to its table. Stop all workers first"
                )
            if owners.kind(worker) is OwnerKind.KCL3:
                raise ChangeRefusedError(
                    f"the Java worker {printable(worker)} reported to its fleet within the last two minutes. Stop it, or wait"
                )
        if now - begun >= 2 * desk.failover_time:
            return leases
        desk.sleep(POLL)


def _counters(leases: list[Lease]) -> Mapping[str, int]:
    return {lease.lease_key: lease.counter for lease in leases}


def _delete(desk: Desk, table: str) -> bool:
    if not desk.application.table.delete(table):
        desk.report(f"{table}: deleted already")
    desk.report(f"{table}: deleted")
    return True


def plan_row_deletion(desk: Desk, row: str) -> SingleChange:
    """Plan to delete one row, named by its lease key or its shard, such as ``3``.

    A lease with an owner is watched for its failover time first.
    """
    table = desk.application.table
    read = table.read()
    key = _key_of(read, row)
    found = read.rows.get(key)
    if found is not None and found.lease.holder is not None and not found.lease.is_finished:
        holder = printable(found.lease.holder)
        desk.report(f"watching the row for {desk.failover_time:g} s: its owner, {holder}, may not renew it")
        desk.sleep(desk.failover_time)
        read = table.read()
        now = read.rows.get(key)
        if now is None or now.lease.counter != found.lease.counter:
            raise ChangeRefusedError(
                f"{printable(key)} is in use: {holder} renews it. To change its position, rewind or skip; to delete it, stop the "
                "workers first"
            )
    item = next((one for one in read.items if one.get(attributes.LEASE_KEY, {}).get("S") == key), {})
    equals = {name: value for name, value in item.items() if name != attributes.LEASE_KEY}
    write = RowWrite(lease_key=key, kind=WriteKind.DELETE, equals=equals)
    effects = _effects(desk, read, key)
    command = desk.command("delete-row", row=key)
    call = table.operation(write.kind)
    description = ChangeDescription(
        title=f"delete the row {printable(key)}",
        question=f"Delete the row {printable(key)}?",
        command=command,
        writes=(
            Write(
                call=call,
                row=key,
                about=f"{call} {printable(key)}, on condition that the row is as it was read",
            ),
        ),
        effects=tuple(f"{effect}." for effect in effects),
    )

    def make(_wait: float) -> Result:
        if not desk.audit(command).around(
            lambda: table.send(write), otherwise="refused", delete_row=key, before=item_to_json(item)
        ):
            raise ChangeRefusedError(f"{printable(key)} has changed meanwhile; nothing was deleted")
        return done("Done: 1 row deleted. The audit log has it as it was.")

    def data(result: Result | None) -> dict[str, Any]:
        return {"row": key, "effects": effects, "deleted": result is not None}

    return SingleChange(description=description, make=make, data=data)


def _effects(desk: Desk, read: TableRead, key: str) -> list[str]:
    if key in read.others:
        return ["the row is not a lease: no worker of this SDK uses it"]
    row, shard_id = read.rows.get(key), key.rpartition(":")[2]
    position = f"its position, {row.lease.checkpoint}, is lost" if row is not None else "it cannot be read"
    try:
        streams = desk.application.streams(desk.application.scan(consistent=True))
        stream = streams.get(None if row is None else row.lease.stream_name) or next(iter(streams.values()))
        listed = {shard.shard_id for shard in desk.application.shards(stream)}
    except (KinesisSdkError, StopIteration) as error:
        return [position, f"whether the stream has its shard is not known: {error}"]
    if shard_id not in listed:
        what = (
            "no record is concerned"
            if not is_shard_id(shard_id) or shard_id > max(listed, default="")
            else "what was not read of it is lost already"
        )
        return [position, f"{stream} has no such shard: {what}"]
    again = (
        "workers create the row again: at the beginning of the shard if its parents were read to their end, else at their initial "
        f"position. With LATEST, what arrives before is skipped: rewind shard {short_shard(shard_id)} afterwards"
    )
    return [position, again]


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
