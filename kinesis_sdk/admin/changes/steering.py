"""Steering of a live application: rewind, skip, release, move. Makes plans from the table and the stream, and applies them.

```python
steering = Steering(Application(Connection(region="eu-west-1"), "billing"))
plan = steering.plan_rewind(datetime(2026, 11, 21, 9, tzinfo=timezone.utc))
for change in plan.changes:
    print(change.goal.shard_id, change.differences)
steering.apply(plan)
```
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TypeVar

from kinesis_sdk.admin.applications import Application, find_lease_key, metrics_in
from kinesis_sdk.admin.changes.audit import AuditLog, default_audit_log
from kinesis_sdk.admin.changes.execute import HANDOFF_WAIT, ChangeExecutor, Outcome, Status, new_operator
from kinesis_sdk.admin.changes.owners import OwnerWatch
from kinesis_sdk.admin.changes.plan import (
    NOT_REACHED,
    Action,
    ChangePlan,
    Goal,
    PlannedChange,
    Refusal,
    StreamRows,
    build,
    is_unread,
    least_loaded,
    refuse_rewind,
    rewind_goals,
    roots,
    skip_goals,
)
from kinesis_sdk.admin.changes.positions import (
    AfterRecord,
    PositionResolver,
    ResolvedStart,
    Start,
    show_start,
)
from kinesis_sdk.admin.changes.rows import Row, TableRead
from kinesis_sdk.admin.changes.transfer import (
    Export,
    import_goals,
    make_export,
    refuse_other_stream,
    unchanged_by_import,
    unresolved,
)
from kinesis_sdk.admin.fleet.model import OwnerKind
from kinesis_sdk.admin.fleet.words import counted, duration
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import AwsError, ChangeRefusedError, ConfigError, InvalidPositionError
from kinesis_sdk.common.once import CopySearch
from kinesis_sdk.common.sequence import AT_TIMESTAMP, LATEST, TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.common.shards import Shard, ShardGraph, is_shard_id, list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer.shard_sync import find_contradiction

_WATCH_POLL = 1.0
_T = TypeVar("_T")


class Steering:
    """Plans and applies changes of one application. Not thread-safe.

    Args:
        application: The application; its stream is found, or given there.
        failover_time: Seconds without a change after which an owner counts as dead: the workers' own setting.
        audit_log: The audit log; by default `default_audit_log`.
        clock: Monotonic and wall clock.
        sleep: Waits, given seconds.
        report: Told what happens, in words.
        threads: Shards that are read at the same time.
    """

    def __init__(
        self,
        application: Application,
        *,
        failover_time: float = 10.0,
        audit_log: Path | None = None,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
        report: Callable[[str], None] = lambda _: None,
        threads: int = 16,
    ) -> None:
        self._application = application
        self._failover_time = failover_time
        self._audit_log = audit_log or default_audit_log()
        self._clock: Clock = clock or SystemClock()
        self._sleep = sleep
        self._report = report
        self._threads = threads
        self._table = application.table
        self.owners: OwnerWatch = OwnerWatch(failover_time)
        self._operator = new_operator()
        self._executor: ChangeExecutor | None = None

    @property
    def outcomes(self) -> list[Outcome]:
        """Results of the last `apply`, also if it was interrupted."""
        return [] if self._executor is None else self._executor.outcomes

    # Plans

    def plan_rewind(self, to: Start, shards: Collection[str] = ()) -> ChangePlan:
        """Plan to process records again.

        Shards that were open at the start get its position, and all shards that were born later begin at TRIM_HORIZON. Finished
        shards become unfinished, and rows that were deleted are put back. ``LATEST`` stores a position in rows that have none
        yet, so that nothing that arrives from now on is skipped.

        Args:
            to: Time, record (inclusive; needs exactly one shard), ``TRIM_HORIZON`` or ``LATEST``. Of a record that is a
                repetition, the copy that is delivered is meant.
            shards: Shards to which it is restricted; all by default.

        Raises:
            ConfigError: If an argument is not accepted, or the stream is not known.
            AwsError: If a call failed.
        """
        if isinstance(to, AfterRecord):
            raise ConfigError("to", str(to), "the record itself: a rewind begins with it")
        read, stream = self.read(shards)
        rows = self._rows_of(read, stream)
        resolver = self._resolver(stream)
        listed = self._application.shards(stream)
        refusals = self._refuse_other_stream(rows, listed, stream)
        shards = [text.rpartition(":")[2] for text in shards]
        chosen = self._chosen(shards, [*rows.rows, *(shard.shard_id for shard in listed)])
        copies: list[str] = []
        if isinstance(to, ExtendedSequenceNumber):
            if len(chosen) != 1:
                raise ConfigError("shard", sorted(chosen), "exactly one shard for a sequence number")
            (shard_id,) = chosen
            to, copies = self._at_first_copies(stream, shard_id, to, resolver, listed)
        affected: Sequence[Shard]
        if to == LATEST:
            affected = [shard for shard in listed if self._is_unresolved(rows, shard.shard_id)]
            starts = self._resolve_pins(resolver, rows, affected)
        else:
            if isinstance(to, datetime):
                affected = self._list_from(stream, to)
            elif isinstance(to, ExtendedSequenceNumber) or copies:
                affected = [shard for shard in listed if shard.shard_id in chosen]
            else:
                affected = listed
            begin = roots(affected)
            wanted = [shard_id for shard_id in begin if not chosen or shard_id in chosen]
            starts = self._each(wanted, lambda shard_id: resolver.resolve(shard_id, to))
        effects, notes = self._rewind_effects(rows, starts, resolver)
        notes = copies + notes
        notes += [
            f"{shard_id}: left as it is, because it "
            + ("has a position already" if to == LATEST else f"ended before {show_start(to)}")
            for shard_id in sorted(chosen - {shard.shard_id for shard in affected})
        ]
        goals = rewind_goals(
            rows, affected, starts, listed=listed, chosen=chosen, resolves=to == LATEST, effects=effects
        )
        graph = ShardGraph(listed)
        notes += [
            f"{shard.shard_id}: not read yet, because a parent is still being read; all of it follows then"
            for shard in affected
            if (not chosen or shard.shard_id in chosen) and is_unread(rows, graph, shard.shard_id)
        ]
        self._judge_owners(goals, read)
        now = self._clock.monotonic()
        refusals += refuse_rewind(rows, affected, goals, self.owners, now)
        return self._plan(
            Action.REWIND,
            goals,
            self._command("rewind", stream, to=show_start(to), shards=chosen),
            refusals,
            [*notes, *_skipped_rows(rows), NOT_REACHED],
            stream,
            listed,
        )

    def _at_first_copies(
        self,
        stream: StreamId,
        shard_id: str,
        to: ExtendedSequenceNumber,
        resolver: PositionResolver,
        listed: Sequence[Shard],
    ) -> tuple[Start, list[str]]:
        """Return where to rewind to so that a record is delivered, and what to tell if that is not where it is stored."""
        record = resolver.record_at(shard_id, to)
        search = CopySearch(
            self._application.connection.kinesis,
            stream,
            shard_id,
            record,
            clock=self._clock,
            sleep=self._sleep,
            shards=listed,
            report=self._report,
        )
        copies = search.earliest(to.sub_sequence_number)
        if not copies:
            doubt = f"record {to} may be a repetition of one that has expired or may not be read; then it is not delivered"
            return to, [doubt] if search.is_uncertain else []
        notes = [
            f"record {to} is a repetition; it is delivered at {one.sequence_number} in {one.shard_id}"
            for one in copies
        ]
        for one in copies:
            if one.shard_id != shard_id:
                copy = show_start(ExtendedSequenceNumber(one.sequence_number))
                command = self._command("rewind", stream, to=copy, shards=[one.shard_id])
                notes.append(f"rewind {one.shard_id} as well: kinesis-sdk {shlex.join(command)}")
        if copies[0].shard_id != shard_id:
            return TRIM_HORIZON, notes
        return ExtendedSequenceNumber(copies[0].sequence_number), notes

    def plan_skip(self, to: Start, shards: Collection[str] = ()) -> ChangePlan:
        """Plan to leave records out: every unfinished shard continues at a later position.

        Args:
            to: Time, record (the first one to process) or what follows a record (both need exactly one shard), or ``LATEST``.
            shards: Shards to which it is restricted; all by default.

        Raises:
            ConfigError: If an argument is not accepted, or the stream is not known.
            AwsError: If a call failed.
        """
        read, stream = self.read(shards)
        rows = self._rows_of(read, stream)
        resolver = self._resolver(stream)
        listed = self._application.shards(stream)
        refusals = self._refuse_other_stream(rows, listed, stream)
        shards = [text.rpartition(":")[2] for text in shards]
        chosen = self._chosen(shards, [*rows.rows, *(shard.shard_id for shard in listed)])
        if to == TRIM_HORIZON:
            raise ConfigError("to", to, "a moment, LATEST or a sequence number")
        if isinstance(to, (ExtendedSequenceNumber, AfterRecord)) and len(chosen) != 1:
            raise ConfigError("shard", sorted(chosen), "exactly one shard for a sequence number")
        wanted = [
            shard.shard_id
            for shard in listed
            if shard.shard_id in rows.rows
            and not rows.rows[shard.shard_id].lease.is_finished
            and (not chosen or shard.shard_id in chosen)
        ]
        starts = self._each(wanted, lambda shard_id: resolver.resolve(shard_id, to))
        effects = self._skip_effects(rows, starts, resolver)
        goals = skip_goals(rows, listed, starts, effects=effects)
        self._judge_owners(goals, read)
        return self._plan(
            Action.SKIP,
            goals,
            self._command("skip-to", stream, to=show_start(to), shards=chosen),
            refusals,
            [*_skipped_rows(rows), NOT_REACHED],
        )

    def plan_release(self, shards: Collection[str]) -> ChangePlan:
        """Plan to take leases from their owners: to the live peer with the least to do, else to any worker.

        Args:
            shards: Shards, or lease keys in a table of several streams.

        Raises:
            ConfigError: If a shard has no row.
            AwsError: If a call failed.
        """
        read = self._scan()
        chosen = sorted(self._chosen(shards, read.rows))
        for _ in range(2):
            now = self._clock.monotonic()
            goals = []
            for key in chosen:
                lease = read.rows[key].lease
                peer = least_loaded(self.owners, now, without={lease.holder} if lease.holder else ())
                goals.append(Goal(lease_key=key, shard_id=lease.shard, action=Action.RELEASE, worker=peer))
            if all(goal.worker is not None for goal in goals):
                break
            self._judge_owners(goals, read, others=True)
        self._judge_owners(goals, read)
        notes = [
            "Workers may move a lease back within seconds, if they balance better with it: drain the worker, or pin the lease",
            *_pin_notes(read, chosen, None),
        ]
        return self._plan(Action.RELEASE, goals, self._command("release", None, shards=chosen), [], notes)

    def plan_move(self, shards: Collection[str], worker: str, *, swap: bool = False) -> ChangePlan:
        """Plan to move leases to a live worker.

        Args:
            shards: Shards, or lease keys in a table of several streams.
            worker: Worker that is to hold the leases.
            swap: Whether the worker gives one of its leases to the present owner, so that the balance stays; for one shard.

        Raises:
            ConfigError: If a shard has no row, the table does not name the worker, or several shards are to be swapped.
            AwsError: If a call failed.
        """
        if not shards or (swap and len(shards) > 1):
            raise ConfigError(
                "shard", sorted(shards), "exactly one shard for a swap" if swap else "at least one shard"
            )
        read = self._scan()
        self.owners.check_known("to", worker)  # before the wait that tells who is alive
        chosen = sorted(self._chosen(shards, read.rows))
        goals = [
            Goal(lease_key=key, shard_id=read.rows[key].lease.shard, action=Action.MOVE, worker=worker)
            for key in chosen
        ]
        notes = _pin_notes(read, chosen, worker)
        lease = read.rows[chosen[0]].lease
        if swap and lease.holder is not None and lease.holder != worker:
            back = min(
                (
                    row.lease
                    for row in read.rows.values()
                    if row.lease.holder == worker
                    and not row.lease.is_finished
                    and row.lease.lease_key != lease.lease_key
                ),
                key=lambda one: one.lease_key,
                default=None,
            )
            if back is None:
                notes.append(f"{printable(worker)} holds no lease that it could give in return")
            else:
                goals.append(
                    Goal(
                        lease_key=back.lease_key,
                        shard_id=back.shard,
                        action=Action.MOVE,
                        worker=lease.holder,
                    )
                )
        elif not swap:
            notes.append(
                "A move that unbalances the fleet is undone by its strategy within seconds: use --swap, or pin the lease "
                "(kinesis-sdk leases pin)"
            )
        self._judge_owners(goals, read, others=True, wanted={worker})
        self.owners.check_known("to", worker)
        command = self._command("move", None, shards=chosen)
        command = (*command, "--to", worker, *(("--swap",) if swap else ()))
        return self._plan(Action.MOVE, goals, command, [], notes)

    def export(self, *, skip_unreadable: bool = False) -> Export:
        """Return the leases of the application, as they are now.

        Args:
            skip_unreadable: Whether to leave out rows that cannot be read, see `Export.left_out`. An import does not bring
                back the positions of their shards.

        Raises:
            ChangeRefusedError: If rows cannot be read, and ``skip_unreadable`` is False.
            ConfigError: If there is no such table, or its stream is not known.
            AwsError: If a call failed.
        """
        read, stream = self.read()
        if read.unreadable and not skip_unreadable:
            named = "; ".join(f"{key}: {printable(read.unreadable[key])}" for key in sorted(read.unreadable))
            raise ChangeRefusedError(
                f"the export would lack the positions of {counted(len(read.unreadable), 'row')} that cannot be read ({named})"
            )
        facts = self._application.stream_facts(stream)
        return make_export(
            self._application.name,
            read,
            stream=stream.name,
            stream_created=facts.created,
            at=self._clock.time(),
        )

    def plan_import(self, export: Export, *, file: str = "-") -> ChangePlan:
        """Plan to bring the rows to the positions of an export. `apply` creates the table if it is missing.

        Args:
            export: The export.
            file: Name of its file, for the command of the plan.

        Raises:
            AwsError: If a call failed.
        """
        stream = self._application.given_stream or StreamId.parse(export.stream)
        facts = self._application.stream_facts(stream)
        read = self._scan(may_be_missing=True)
        listed = self._application.shards(stream)
        names = {row.lease.stream_name for row in export.rows}
        if read.rows or names <= {None}:
            rows = self._rows_of(read, stream)
        else:
            own = [name for name in names if name is not None and name.split(":")[1:2] == [stream.name]]
            rows = StreamRows(rows={}, stream_name=own[0] if len(own) == 1 else None)
        refusals = refuse_other_stream(export, stream=stream.name, stream_created=facts.created)
        refusals += self._refuse_other_stream(rows, listed, stream)
        starts = {} if refusals else self._resolve_exported(rows, export, stream, listed)
        goals, more, notes = import_goals(rows, export, listed, starts)
        self._judge_owners(goals, read)
        rewinds = [goal for goal in goals if goal.action is Action.REWIND]
        more += refuse_rewind(rows, listed, rewinds, self.owners, self._clock.monotonic())
        command = self._command("import", stream)
        command = (*command[:3], file, *command[3:])
        plan = self._plan(
            Action.IMPORT, goals, command, [*refusals, *more], [*notes, NOT_REACHED], stream, listed
        )
        return replace(plan, unchanged=(*plan.unchanged, *unchanged_by_import(rows, export)))

    # Applying

    def apply(self, plan: ChangePlan, *, wait: float = 60.0) -> list[Outcome]:
        """Apply a plan, and wait until owners act on it.

        Args:
            plan: The plan.
            wait: Seconds to wait; 0 returns after the writes.

        Raises:
            ChangeRefusedError: If the plan has refusals; nothing is written.
            AuditLogError: If the audit log cannot be written; nothing more is written.
            AwsError: If a call failed; `outcomes` says what was done before.
        """
        self._look_again(plan)
        audit = AuditLog(
            self._audit_log,
            clock=self._clock,
            command=("kinesis-sdk", *plan.command),
            table=self._table.label,
        )
        self._executor = ChangeExecutor(
            self._table,
            audit,
            self.owners,
            clock=self._clock,
            sleep=self._sleep,
            report=self._report,
            operator=self._operator,
        )
        if plan.action is Action.IMPORT and not plan.refusals:
            audit.check()
            self._application.store.ensure_ready()
        outcomes = self._executor.apply(plan)
        if wait > 0:
            self._executor.wait(wait)
        return outcomes

    def _look_again(self, plan: ChangePlan) -> None:
        """Watch the owners again if the plan has waited for its confirmation, and refuse it if its shards were resharded.

        Children that were born after the plan would keep their positions while their parent is read again.

        Raises:
            ChangeRefusedError: If the stream has children of a shard of the plan that it did not have then.
        """
        goals = [change.goal for change in plan.changes]
        if plan.stream is not None and goals:
            parents = {goal.shard_id for goal in goals if goal.action is Action.REWIND}
            born = sorted(
                shard.shard_id
                for shard in self._application.shards(plan.stream)
                if shard.shard_id not in plan.listed and parents.intersection(shard.parents)
            )
            if born:
                raise ChangeRefusedError(
                    f"the stream was split or merged after the plan was made, and now has {', '.join(born)}: repeat the command"
                )
        if goals:
            read = self._scan(may_be_missing=plan.action is Action.IMPORT)
            moves = plan.action is Action.MOVE
            wanted = {goal.worker for goal in goals if goal.worker is not None}
            self._judge_owners(goals, read, wanted=wanted if moves else ())

    def remaining(self, plan: ChangePlan) -> tuple[str, ...]:
        """Return the command that makes the changes of a plan that were not made; empty if all were.

        An import is repeated as a whole: rows that are restored already stay as they are. After an interrupted swap, it is the move
        that is left.
        """
        done = {one.goal.lease_key for one in self.outcomes if one.status is not Status.REFUSED}
        left = [change.goal for change in plan.changes if change.goal.lease_key not in done]
        if not left:
            return ()
        if plan.action is Action.IMPORT:
            return plan.command
        if plan.action is Action.MOVE and len(left) < len(plan.changes):
            # All to one worker: of a swap, one half is left.
            base = self._command("move", None, shards=[goal.lease_key for goal in left])
            return (*base, "--to", left[0].worker or "")
        if plan.action is Action.MOVE:
            return plan.command
        command = list(plan.command)
        while "--shard" in command:
            place = command.index("--shard")
            del command[place : place + 2]
        for goal in left:
            command += [
                "--shard",
                goal.shard_id if plan.action in (Action.REWIND, Action.SKIP) else goal.lease_key,
            ]
        return tuple(command)

    # Reading

    def read(self, shards: Collection[str] = ()) -> tuple[TableRead, StreamId]:
        """Read the table, and find its stream.

        Args:
            shards: Shards or lease keys; in a table of several streams, ``orders:3`` names the stream.

        Raises:
            ConfigError: If the stream is not known, or if the table has several and none of them was given.
            AwsError: If a call failed.
        """
        read = self._scan()
        scan = self._application.scan(consistent=True)
        streams = self._application.streams(scan)
        given = self._application.given_stream
        found = [stream for stream in streams.values() if given is None or stream.name == given.name]
        if len(found) > 1 and shards:
            prefixes = [text.rpartition(":")[0] for text in shards]
            found = [
                stream
                for name, stream in streams.items()
                if all(prefix and prefix in (stream.name, name) for prefix in prefixes)
            ]
        if len(found) != 1:
            names = ", ".join(sorted(stream.name for stream in streams.values()))
            raise ConfigError(
                "stream", "" if given is None else str(given), f"one of the streams of the table: {names}"
            )
        return read, given or found[0]

    def _scan(self, *, may_be_missing: bool = False) -> TableRead:
        read = self._table.read(may_be_missing=may_be_missing)
        self._observe(read)
        reports = {**(self._application.worker_metrics() or {}), **metrics_in(read.others)}
        self.owners.observe_metrics(reports, wall=self._clock.time(), now=self._clock.monotonic())
        return read

    def _observe(self, read: TableRead) -> None:
        self.owners.observe((row.lease for row in read.rows.values()), self._clock.monotonic())

    def _rows_of(self, read: TableRead, stream: StreamId) -> StreamRows:
        names = {row.lease.stream_name for row in read.rows.values()}
        if names <= {None}:
            return StreamRows(
                rows={key: row for key, row in read.rows.items() if is_shard_id(key)},
                unreadable=read.unreadable,
            )
        found = [name for name in names if name is not None and name.split(":")[1:2] == [stream.name]]
        if len(found) != 1:
            raise ConfigError("stream", str(stream), f"a stream with one set of leases, not {len(found)}")
        own: dict[str, Row] = {
            row.lease.shard: row for row in read.rows.values() if row.lease.stream_name == found[0]
        }
        return StreamRows(rows=own, stream_name=found[0], unreadable=read.unreadable)

    def _chosen(self, shards: Iterable[str], there: Iterable[str]) -> set[str]:
        known = list(dict.fromkeys(there))
        return {find_lease_key(text, known) for text in shards}

    def _resolver(self, stream: StreamId) -> PositionResolver:
        facts = self._application.stream_facts(stream)
        horizon = max(self._clock.time() - facts.retention, facts.created or 0.0)
        return PositionResolver(
            self._application.connection.kinesis,
            stream,
            clock=self._clock,
            sleep=self._sleep,
            horizon=horizon,
        )

    def _list_from(self, stream: StreamId, moment: datetime) -> list[Shard]:
        if moment.timestamp() > self._clock.time():
            raise ConfigError("to", show_start(moment), "a moment in the past")
        chosen = {"Type": "FROM_TIMESTAMP", "Timestamp": moment}
        return list_shards(self._application.connection.kinesis, stream, shard_filter=chosen)

    def _refuse_other_stream(
        self, rows: StreamRows, listed: Sequence[Shard], stream: StreamId
    ) -> list[Refusal]:
        leases = [row.lease for row in rows.rows.values()]
        if rows.stream_name is not None:
            # account:name:creationEpoch
            epoch, created = (
                rows.stream_name.rpartition(":")[2],
                self._application.stream_facts(stream).created,
            )
            if created is None or not epoch.isdigit() or abs(int(epoch) - int(created)) <= 1:
                return []
            reason = (
                f"the rows are of {printable(rows.stream_name)}, and the stream {stream.name} was created at {int(created)}: it was "
                "deleted and recreated, so the positions are of other records"
            )
            return [Refusal(reason=reason)]
        evidence = find_contradiction(listed, leases)
        if evidence is None:
            return []
        return [Refusal(reason=f"the table does not belong to this stream: {evidence}")]

    def _is_unresolved(self, rows: StreamRows, shard_id: str) -> bool:
        row = rows.rows.get(shard_id)
        return row is not None and row.lease.checkpoint.sequence_number in (LATEST, AT_TIMESTAMP)

    def _resolve_exported(
        self, rows: StreamRows, export: Export, stream: StreamId, listed: Sequence[Shard]
    ) -> dict[str, ResolvedStart]:
        """Resolve the sentinels of rows that an import puts back: LATEST stands for the time of the export, if for no other."""
        resolver = self._resolver(stream)
        there = {shard.shard_id for shard in listed}
        leases = {lease.shard: lease for lease in unresolved(rows, export) if lease.shard in there}

        def start_of(shard_id: str) -> ResolvedStart:
            lease = leases[shard_id]
            millis = lease.initial_timestamp_millis
            if millis is None and lease.checkpoint.sequence_number == AT_TIMESTAMP:
                raise ConfigError(
                    "file", "", f"an export that says at which time {shard_id} starts: it is at AT_TIMESTAMP"
                )
            moment = min(export.at if millis is None else millis / 1000, self._clock.time())
            return resolver.resolve(shard_id, datetime.fromtimestamp(moment, timezone.utc))

        return self._each(leases, start_of)

    def _resolve_pins(
        self, resolver: PositionResolver, rows: StreamRows, shards: Sequence[Shard]
    ) -> dict[str, ResolvedStart]:
        def start_of(shard_id: str) -> ResolvedStart:
            lease = rows.rows[shard_id].lease
            millis = lease.initial_timestamp_millis
            if millis is not None:
                return resolver.resolve(shard_id, datetime.fromtimestamp(millis / 1000, timezone.utc))
            if lease.checkpoint.sequence_number == AT_TIMESTAMP:
                raise ConfigError(
                    "to",
                    LATEST,
                    f"a moment: {shard_id} starts at AT_TIMESTAMP, and the row does not say when",
                )
            return resolver.resolve(shard_id, LATEST)

        return self._each([shard.shard_id for shard in shards], start_of)

    # What it means, in words

    def _rewind_effects(
        self, rows: StreamRows, starts: Mapping[str, ResolvedStart], resolver: PositionResolver
    ) -> tuple[dict[str, str], list[str]]:
        notes = sorted({start.note for start in starts.values() if start.note})

        def effect_of(shard_id: str) -> str:
            start = starts[shard_id]
            row = rows.rows.get(shard_id)
            if row is None:
                return "the row is put back, and the shard is read from there"
            if row.lease.is_finished:
                return "the shard was finished, and is read from there again"
            return "repeats " + self._span(shard_id, start.arrival, row.lease.checkpoint, start, resolver)

        return self._each(starts, effect_of), notes

    def _skip_effects(
        self, rows: StreamRows, starts: Mapping[str, ResolvedStart], resolver: PositionResolver
    ) -> dict[str, str]:
        def effect_of(shard_id: str) -> str:
            start, lease = starts[shard_id], rows.rows[shard_id].lease
            if start.position.is_sentinel or lease.checkpoint >= start.position:
                return "skips nothing"
            begin = self._arrival(resolver, shard_id, lease.checkpoint)
            return "skips " + self._span(shard_id, begin, start.position, start, resolver)

        return self._each(starts, effect_of)

    def _span(
        self,
        shard_id: str,
        begin: datetime | None,
        end: ExtendedSequenceNumber,
        start: ResolvedStart,
        resolver: PositionResolver,
    ) -> str:
        until = self._arrival(resolver, shard_id, end)
        if begin is None or until is None:
            return "what lies between the two positions"
        seconds = max((until - begin).total_seconds(), 0.0)
        count = "" if start.rate is None else f", about {max(round(start.rate * seconds), 1):,} records"
        return f"{duration(seconds)} of records{count}"

    def _arrival(
        self, resolver: PositionResolver, shard_id: str, position: ExtendedSequenceNumber
    ) -> datetime | None:
        try:
            return resolver.arrival_of(shard_id, position)
        except InvalidPositionError:
            return None
        except AwsError as error:
            if not error.retryable:
                raise
            return None  # only an estimate is missing

    # Owners

    def _judge_owners(
        self,
        goals: Sequence[Goal],
        read: TableRead,
        *,
        others: bool = False,
        wanted: Collection[str] = (),
    ) -> None:
        """Watch the table until it is known of each owner concerned whether it is alive.

        A live worker renews its leases within two thirds of the failover time, so this takes a few seconds, and one failover
        time if an owner is dead.
        """
        names = set(wanted)
        for goal in goals:
            row = read.rows.get(goal.lease_key)
            if row is not None and row.lease.holder is not None and not row.lease.is_finished:
                names.add(row.lease.holder)
        if others:
            names.update(self.owners.workers())
        until = self._clock.monotonic() + self._failover_time + 2 * _WATCH_POLL
        told = False
        while True:
            now = self._clock.monotonic()
            if all(self.owners.is_judged(name, now) for name in names) or now >= until:
                return
            if not told:
                self._report("checking which owners are alive (their leases change within a few seconds)")
                told = True
            self._sleep(_WATCH_POLL)
            self._observe(self._table.read())

    def _plan(
        self,
        action: Action,
        goals: Sequence[Goal],
        command: tuple[str, ...],
        refusals: Sequence[Refusal],
        notes: Sequence[str],
        stream: StreamId | None = None,
        listed: Iterable[Shard] = (),
    ) -> ChangePlan:
        until = self._clock.monotonic() + HANDOFF_WAIT
        while True:
            read = self._table.read(may_be_missing=action is Action.IMPORT)
            self._observe(read)
            now = self._clock.monotonic()
            changes, unchanged, refused = build(goals, read.rows, self.owners, now, operator=self._operator)
            if now >= until or not any(refusal.waits_for_handoff for refusal in refused):
                break
            self._report("waiting for the end of a handoff between two workers")
            self._sleep(_WATCH_POLL)
        return ChangePlan(
            action=action,
            application=self._application.name,
            command=command,
            changes=tuple(changes),
            unchanged=tuple(unchanged),
            refusals=(*refusals, *refused),
            notes=(*notes, *self._kind_notes(changes)),
            stream=stream,
            listed=frozenset(shard.shard_id for shard in listed),
        )

    def _kind_notes(self, changes: Sequence[PlannedChange]) -> list[str]:
        if all(change.kind is not OwnerKind.OTHER for change in changes):
            return []
        note = (
            "Owners of KCL 1 or 2, or unknown ones, are not asked: they lose the lease, and may work on for up to 4 s beside "
            "the next owner"
        )
        return [note]

    def _command(
        self, verb: str, stream: StreamId | None, *, to: str | None = None, shards: Collection[str] = ()
    ) -> tuple[str, ...]:
        application = self._application
        several = any(lease.stream_name is not None for lease in self.owners.leases)
        command = ["leases", verb, application.name]
        if application.table_name != application.name:
            command += ["--table", application.table_name]
        if stream is not None and (several or application.given_stream is not None):
            command += ["--stream", str(stream)]
        if to is not None:
            command += ["--to", to]
        for shard in sorted(shards):
            command += ["--shard", shard]
        return (*command, *application.connection.options)

    def _each(self, keys: Iterable[str], function: Callable[[str], _T]) -> dict[str, _T]:
        """Call a function for each shard, several at a time."""
        listed = list(keys)
        if self._threads == 1 or len(listed) < 2:
            return {key: function(key) for key in listed}
        with ThreadPoolExecutor(min(self._threads, len(listed))) as pool:
            return dict(zip(listed, pool.map(function, listed), strict=True))


def _pin_notes(read: TableRead, keys: Iterable[str], worker: str | None) -> list[str]:
    """Return what to tell of leases that are pinned to another worker than the one that is to get them."""
    pins = [(key, read.rows[key].lease.pinned_to) for key in keys]
    return [
        f"{printable(key)} is pinned to {printable(pin)}, to which workers give it back: remove the pin first (kinesis-sdk leases unpin)"
        for key, pin in pins
        if pin is not None and pin != worker
    ]


def _skipped_rows(rows: StreamRows) -> list[str]:
    if not rows.unreadable:
        return []
    return [
        f"{len(rows.unreadable)} rows cannot be read and are left alone: {', '.join(sorted(rows.unreadable)[:5])}"
    ]
