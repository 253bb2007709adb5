"""Export and import of the leases of an application, as JSON lines.

The first line describes the application and its stream; each further line is one row, as DynamoDB stores it, with bytes as
base64. An export reads row by row and not at one instant, which is safe because positions only grow.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from kinesis_sdk.admin.changes.audit import item_from_json, item_to_json
from kinesis_sdk.admin.changes.plan import Action, Goal, Refusal, StreamRows, Unchanged, in_creation_order
from kinesis_sdk.admin.changes.positions import ResolvedStart
from kinesis_sdk.admin.changes.rows import Row, TableRead
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.sequence import AT_TIMESTAMP, LATEST, TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.common.shards import Shard, ShardGraph
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer import Lease
from kinesis_sdk.consumer.leases import attributes
from kinesis_sdk.consumer.shard_sync import find_contradiction, find_misfits

FORMAT = "kinesis_sdk leases"
_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Export:
    """The leases of an application at one time.

    Attributes:
        application: Its name.
        stream: Name of its stream.
        stream_created: Creation time of the stream in epoch seconds; None if unknown. A later stream of the same name has
            other records.
        at: Time of the export in epoch seconds.
        rows: The leases, with their items.
        left_out: Why rows of the table could not be read and are missing here, by their key.
        file: Name of the file that it was read from; ``-`` for standard input.
    """

    application: str
    stream: str
    stream_created: float | None
    at: float
    rows: tuple[Row, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    file: str = "-"

    def lines(self) -> Iterator[str]:
        """Yield the lines of the file."""
        header = {
            "format": FORMAT,
            "version": _VERSION,
            "application": self.application,
            "stream": self.stream,
            "streamCreated": _iso(self.stream_created),
            "time": _iso(self.at),
            "rows": len(self.rows),
        }
        if self.left_out:
            header["leftOut"] = dict(self.left_out)
        yield json.dumps(header, ensure_ascii=False)
        for row in self.rows:
            yield json.dumps({"item": item_to_json(row.item)}, ensure_ascii=False)


def _iso(moment: float | None) -> str | None:
    if moment is None:
        return None
    return datetime.fromtimestamp(moment, timezone.utc).isoformat()


def make_export(
    application: str, read: TableRead, *, stream: str, stream_created: float | None, at: float
) -> Export:
    """Return the export of a table that was read."""
    return Export(
        application=application,
        stream=stream,
        stream_created=stream_created,
        at=at,
        rows=tuple(read.rows[key] for key in sorted(read.rows)),
        left_out={key: read.unreadable[key] for key in sorted(read.unreadable)},
    )


def parse_export(lines: Iterable[str], file: str = "-") -> Export:
    """Read the lines of an export.

    Args:
        lines: The lines.
        file: Name of the file.

    Raises:
        ConfigError: If the lines are not a complete export.
    """
    try:
        first, *rest = [line for line in lines if line.strip()]
        header: Mapping[str, Any] = json.loads(first)
        if header["format"] != FORMAT or header["version"] != _VERSION:
            raise ValueError(f"format {header['format']!r}, version {header['version']!r}")
        rows = tuple(Row.of(item_from_json(json.loads(line)["item"])) for line in rest)
        if len(rows) != header["rows"]:
            raise ValueError(f"{len(rows)} of {header['rows']} rows")
        created = header["streamCreated"]
        return Export(
            application=header["application"],
            stream=header["stream"],
            stream_created=None if created is None else datetime.fromisoformat(created).timestamp(),
            at=datetime.fromisoformat(header["time"]).timestamp(),
            rows=rows,
            left_out={str(key): str(reason) for key, reason in header.get("leftOut", {}).items()},
            file=file,
        )
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ConfigError("file", file, f"a complete export of this command ({error})") from error


def restored(row: Row) -> Lease:
    """Return an exported row as an import writes it: without its owner, heartbeats, marks and pending checkpoint."""
    extra = {name: value for name, value in row.lease.extra.items() if name != attributes.CHANGED_BY}
    return replace(
        row.lease,
        counter=0,
        owner=None,
        checkpoint_owner=None,
        handoff_owner=None,
        owner_switches=0,
        # As with each new position: a pending checkpoint would let the next `initialize` jump over records that are to come
        # again.
        pending_checkpoint=None,
        pending_checkpoint_state=None,
        processed_until=None,
        standby_heartbeats={},
        draining=(),
        progress=None,
        handler_request=None,
        extra=extra,
    )


def unresolved(table: StreamRows, export: Export) -> list[Lease]:
    """Return the leases that an import restores and that have no position yet: LATEST or AT_TIMESTAMP.

    If LATEST were restored unchanged, it would mean the time of the next read, and all records since the export would be skipped.
    """
    return [
        row.lease
        for row in export.rows
        if row.lease.stream_name == table.stream_name
        and row.lease.shard not in table.rows
        and row.lease.checkpoint.sequence_number in (LATEST, AT_TIMESTAMP)
    ]


def import_goals(
    table: StreamRows,
    export: Export,
    shards: Sequence[Shard],
    starts: Mapping[str, ResolvedStart] | None = None,
) -> tuple[list[Goal], list[Refusal], list[str]]:
    """Return the goals of an import, parents before children, with refusals and notes.

    Missing rows are put back. A row at another position is rewound or skipped like any other, so an import also works while
    the application runs. If a parent was unfinished at the export, its children that were created since then restart at TRIM_HORIZON, after
    the parent. ``starts`` are the positions of the leases that `unresolved` returns.
    """
    exported = {row.lease.shard: row for row in export.rows if row.lease.stream_name == table.stream_name}
    listed = in_creation_order(shards)
    goals: list[Goal] = []
    notes = [
        f"{shard_id}: the stream no longer has this shard, its records have expired"
        for shard_id in sorted(exported.keys() - {shard.shard_id for shard in listed})
        if shard_id not in table.rows and not exported[shard_id].lease.is_finished
    ]
    notes += [
        f"{printable(key)}: the export lacks this row, because it could not be read then ({printable(reason)})"
        for key, reason in sorted(export.left_out.items())
    ]
    graph = ShardGraph(shards)
    for shard in listed:
        row, current = exported.get(shard.shard_id), table.rows.get(shard.shard_id)
        if row is not None:
            goal = _import_goal(row, current, (starts or {}).get(shard.shard_id), notes)
        else:
            goal = _import_descendant(table, shard.shard_id, current, exported, graph)
            if goal is not None and goal.lease_key in export.left_out:
                goal = replace(
                    goal,
                    effect="not in the export: all of its records come again, after those of its parents",
                )
        if goal is not None:
            goals.append(goal)
    return goals, _refuse_import(table, exported, shards), notes


def unchanged_by_import(table: StreamRows, export: Export) -> list[Unchanged]:
    """Return the rows that are already at the position of the export."""
    return [
        Unchanged(
            goal=Goal(
                lease_key=row.lease.lease_key,
                shard_id=row.lease.shard,
                action=Action.REWIND,
                position=row.lease.checkpoint,
            ),
            reason="it is at the position of the export",
        )
        for row in export.rows
        if row.lease.stream_name == table.stream_name
        and (current := table.rows.get(row.lease.shard)) is not None
        and current.lease.checkpoint == row.lease.checkpoint
    ]


def _import_goal(row: Row, current: Row | None, start: ResolvedStart | None, notes: list[str]) -> Goal | None:
    missing, shard_id = restored(row), row.lease.shard
    position = row.lease.checkpoint
    action = Action.REWIND
    if current is None and start is not None:
        position = start.position
        missing = replace(missing, checkpoint=position, initial_timestamp_millis=None)
    if current is not None:
        there = current.lease.checkpoint
        if position == there:
            return None
        if position.sequence_number in (LATEST, AT_TIMESTAMP):
            notes.append(f"{shard_id}: the export has no position yet, so the row is left as it is")
            return None
        if position.is_shard_end:
            notes.append(f"{shard_id}: finished in the export; its owner reads it to the end")
            return None
        action = Action.REWIND if position < there else Action.SKIP
        if action is Action.SKIP and position.is_sentinel:
            return None
    return Goal(
        lease_key=row.lease.lease_key,
        shard_id=shard_id,
        action=action,
        position=position,
        missing=missing,
        effect=_EFFECTS[action] if current is not None else "the row is put back",
    )


def _import_descendant(
    table: StreamRows, shard_id: str, current: Row | None, exported: Mapping[str, Row], graph: ShardGraph
) -> Goal | None:
    """Return the goal of a shard without an exported row: it had not been read at all if an ancestor was unfinished."""
    position = ExtendedSequenceNumber(TRIM_HORIZON)
    if current is None or current.lease.checkpoint == position:
        return None
    if not any(one in exported and not exported[one].lease.is_finished for one in graph.ancestors(shard_id)):
        return None
    return Goal(
        lease_key=table.lease_key(shard_id),
        shard_id=shard_id,
        action=Action.REWIND,
        position=position,
        missing=replace(restored(current), checkpoint=position),
        effect="born after the export: all of its records come again, after those of its parents",
    )


_EFFECTS = {
    Action.REWIND: "what lies between the two positions is repeated",
    Action.SKIP: "what lies between the two positions is skipped",
}


def _refuse_import(table: StreamRows, exported: Mapping[str, Row], shards: Sequence[Shard]) -> list[Refusal]:
    """Return the reasons why records would be skipped: shards that no row covers, and parents for which a child would not wait."""
    graph = ShardGraph(shards)
    there = {**table.rows, **exported}
    refusals = []
    leases = [replace(row.lease, lease_key=row.lease.shard) for row in exported.values()]
    evidence = find_contradiction(shards, leases) or next(iter(find_misfits(shards, leases).values()), None)
    if evidence is not None:
        refusals.append(Refusal(reason=f"the export does not belong to this stream: {evidence}"))
    for shard in in_creation_order(shards):
        shard_id = shard.shard_id
        if (
            shard.is_open
            and shard_id not in there
            and not any(one in there for one in graph.ancestors(shard_id))
        ):
            refusals.append(
                Refusal(
                    shard_id=shard_id,
                    reason=f"the export has no row for {shard_id} or an ancestor of it: it would start at the initial position",
                )
            )
        row = exported.get(shard_id)
        if row is None or row.lease.checkpoint.sequence_number != TRIM_HORIZON:
            continue
        missing = [parent for parent in graph.parents(shard_id) if parent not in there]
        if missing:
            refusals.append(
                Refusal(
                    shard_id=shard_id,
                    reason=f"{shard_id} has not been read, and its parent {', '.join(missing)} has no row: the parent's records "
                    "would be skipped",
                )
            )
    return refusals


def refuse_other_stream(export: Export, *, stream: str, stream_created: float | None) -> list[Refusal]:
    """Return the reason why an export does not belong to a stream."""
    if export.stream != stream:
        return [Refusal(reason=f"the export is of the stream {export.stream}, and not of {stream}")]
    if (
        export.stream_created is not None
        and stream_created is not None
        and abs(export.stream_created - stream_created) >= 1.0
    ):
        return [
            Refusal(
                reason=f"the stream {stream} was created at {_iso(stream_created)}, and that of the export at "
                f"{_iso(export.stream_created)}: it was deleted and recreated, so the positions are of other records"
            )
        ]
    return []
