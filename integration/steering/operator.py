"""An operator: performs the operations of a plan through `kinesis_sdk.admin`, as the commands do, and records their effects."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Protocol

from integration.steering.books import START, Freed, Gap, Operations, Place, Rewind
from integration.steering.plan import Kind, Operation
from kinesis_sdk.admin.applications import Application
from kinesis_sdk.admin.changes.description import Status
from kinesis_sdk.admin.changes.desk import Desk
from kinesis_sdk.admin.changes.execute import Outcome
from kinesis_sdk.admin.changes.lease_change import LeaseChange
from kinesis_sdk.admin.changes.marks import plan_drain, plan_pin, plan_undrain
from kinesis_sdk.admin.changes.plan import Action, ChangePlan
from kinesis_sdk.admin.changes.plans import (
    export_leases,
    plan_import,
    plan_move,
    plan_release,
    plan_rewind,
    plan_skip,
)
from kinesis_sdk.admin.changes.recipes import Recipe
from kinesis_sdk.admin.changes.transfer import Export
from kinesis_sdk.common.errors import ChangeRefusedError, ConfigError
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.shards import Shard, ShardGraph
from kinesis_sdk.consumer.leases.table.lease import Lease

_WAIT = 15.0
"""Seconds that an operation waits for owners, if it does."""
_EXPORTS = 3
"""Number of exports kept for imports."""
_END = (2**256, 0)


def place_of(position: ExtendedSequenceNumber) -> Place:
    """Return a position in the form of `books`."""
    if position.is_shard_end:
        return _END
    return START if position.is_sentinel else (int(position.sequence_number), position.sub_sequence_number)


class Scene(Protocol):
    """The fleet to steer."""

    def rows(self) -> Sequence[Lease]:
        """Return the lease table."""

    def shards(self) -> Sequence[Shard]:
        """Return all shards of the stream."""

    def workers(self) -> Sequence[str]:
        """Return the workers that should be alive, by id."""

    def places(self, shard: str) -> Sequence[Place]:
        """Return the positions of a shard's acknowledged records, in order."""


class Operator:
    """Performs operations one after another.

    Args:
        scene: The fleet.
        application: Makes the application; each command has its own.
        folder: For the audit log.
        failover_time: The workers', in seconds.
        sleep: Waits in the main thread while the run goes on.
        note: Called with a description of each operation.
        offset: Seconds from the wall clock to the clock of the books.
        before: Called with the positions that are about to be written, by lease key.

    Attributes:
        done: What was done, for the books.
        made: Operations that changed something, by kind.
        idle: Operations that had nothing to do or were rejected, by kind.
        refusals: Why operations were rejected.
        desk: Makes the plans for `apply`.
    """

    def __init__(
        self,
        scene: Scene,
        application: Callable[[], Application],
        folder: Path,
        *,
        failover_time: float,
        sleep: Callable[[float], None],
        note: Callable[[str], None],
        offset: float = 0.0,
        before: Callable[[dict[str, ExtendedSequenceNumber]], None] = lambda _: None,
    ) -> None:
        self._scene = scene
        self._audit = folder / "audit.jsonl"
        self._failover_time = failover_time
        self._sleep = sleep
        self._note = note
        self._offset = offset
        self._before = before
        self._exports: list[Export] = []
        self.done = Operations()
        self.made: Counter[Kind] = Counter()
        self.idle: Counter[Kind] = Counter()
        self.refusals: list[str] = []
        self.desk = Desk(
            application=application(),
            failover_time=failover_time,
            audit_log=self._audit,
            sleep=self._go_on,
            report=lambda text: note(f"  {text}"),
        )

    def _go_on(self, seconds: float) -> None:
        """Wait. Only the main thread lets the run go on: other threads read shards concurrently and must not touch it."""
        if threading.current_thread() is threading.main_thread():
            self._sleep(seconds)
        else:
            time.sleep(seconds)

    def perform(self, operation: Operation) -> bool:
        """Perform an operation; return whether it changed anything. The API rejects one that is not possible now."""
        self._note(f"operation {operation}")
        try:
            changed = self._perform(operation)
        except (ChangeRefusedError, ConfigError) as error:
            # ConfigError: a row or worker that existed a moment ago is gone.
            self.refusals.append(f"{operation}: {error}")
            self._note(f"  refused: {error}")
            changed = False
        (self.made if changed else self.idle)[operation.kind] += 1
        return changed

    def _perform(self, operation: Operation) -> bool:
        kind = operation.kind
        if kind.startswith(("rewind", "skip")):
            return self._position(operation)
        rows = sorted(
            (row for row in self._scene.rows() if not row.is_finished), key=lambda row: row.lease_key
        )
        workers = sorted(self._scene.workers())
        if not rows or not workers:
            return False
        row, worker = _pick(rows, operation.choice), _pick(workers, operation.other)
        if kind == "release":
            keys = [one.lease_key for one in rows[:2]] if operation.several else [row.lease_key]
            return self._apply(plan_release(self.desk, keys), operation)
        if kind in ("move", "swap"):
            others = [one for one in workers if one != row.holder]
            if not others:
                return False
            target = _pick(others, operation.other)
            return self._apply(plan_move(self.desk, [row.lease_key], target, swap=kind == "swap"), operation)
        if kind == "pin":
            plan_pin(self.desk, row.lease_key, worker).apply()
            return True
        if kind == "unpin":
            pinned = [one for one in rows if one.pinned_to]
            if pinned:
                plan_pin(self.desk, _pick(pinned, operation.choice).lease_key).apply()
            return bool(pinned)
        if kind == "drain":
            plan_drain(self.desk, worker).apply(wait=0.0)
            return True
        if kind == "undrain":
            drained = sorted({one for lease in self._scene.rows() for one in lease.draining})
            changes = [plan_undrain(self.desk, one) for one in drained]
            for change in changes:
                change.apply()
            return any(change.description.writes for change in changes)
        if kind == "export":
            self._exports = [*self._exports, export_leases(self.desk)][-_EXPORTS:]
            return True
        exports = [one for one in self._exports if not self._rewinds_more(one)]
        if not exports:
            return False
        return self._apply(plan_import(self.desk, _pick(exports, operation.choice)), operation)

    def _rewinds_more(self, export: Export) -> bool:
        """Return whether an import would also rewind shards because of their parents' ends, which no outcome names."""
        exported = {row.lease.shard: row.lease for row in export.rows}
        there = {row.lease_key for row in self._scene.rows()}
        graph = ShardGraph(self._scene.shards())
        return any(
            shard_id not in exported
            and shard_id not in there
            and any(one in exported and not exported[one].is_finished for one in graph.ancestors(shard_id))
            for shard_id in graph.shards
        )

    def _position(self, operation: Operation) -> bool:
        kind = operation.kind
        is_rewind = kind.startswith("rewind")
        there = {row.lease_key for row in self._scene.rows() if not row.is_finished}
        candidates = [
            shard.shard_id
            for shard in self._scene.shards()
            # A rewind can bring back finished shards, but mostly choose shards that are being read.
            if shard.shard_id in there or (is_rewind and operation.other > 0.8)
        ]
        if not candidates:
            return False
        shard = _pick(candidates, operation.choice) if is_rewind else self._most_behind(candidates)
        chosen = [] if operation.several else [shard]
        start: datetime | ExtendedSequenceNumber | str
        if kind.endswith("a time"):
            start = datetime.now(timezone.utc) - timedelta(
                seconds=operation.reach if is_rewind else operation.reach / 10
            )
        elif kind.endswith("a record"):
            places = self._scene.places(shard)
            if not places:
                return False
            # From the newer half for a rewind. A skip needs the newest records, or there would be nothing to skip.
            first = len(places) // 2 if is_rewind else max(len(places) - 20, 0)
            number, sub = _pick(places[first:], operation.other)
            start, chosen = ExtendedSequenceNumber(str(number), sub), [shard]
        else:
            start = "LATEST" if kind.endswith("LATEST") else "TRIM_HORIZON"
        make = plan_rewind if is_rewind else plan_skip
        return self._apply(make(self.desk, start, chosen), operation)

    def _most_behind(self, shards: Sequence[str]) -> str:
        """Return the shard with the most records after its checkpoint, so that there is something to skip."""
        checkpoints = {row.lease_key: place_of(row.checkpoint) for row in self._scene.rows()}
        return max(
            shards,
            key=lambda shard: sum(
                place > checkpoints.get(shard, _END) for place in self._scene.places(shard)
            ),
        )

    def _apply(self, plan: ChangePlan, operation: Operation) -> bool:
        outcomes = self.apply(plan, wait=_WAIT if operation.waits else 0.0)
        return any(one.status is Status.DONE for one in outcomes)

    def apply(self, plan: ChangePlan, *, wait: float = 60.0) -> list[Outcome]:
        """Apply a plan of `desk` and record its effects. Raises ChangeRefusedError if it is rejected; nothing is written then."""
        self._before(
            {
                change.goal.lease_key: _lower(change.goal.position, change.before)
                for change in plan.changes
                if change.goal.position is not None
            }
        )
        logged = self._audit.stat().st_size if self._audit.exists() else 0
        try:
            outcomes = LeaseChange(self.desk, plan).carry_out(wait=wait)
        finally:
            self._before({})
        self._remember(outcomes, self._begins(logged))
        return outcomes

    def _begins(self, offset: int) -> dict[str, float]:
        """Return when the last write of each row began, from the audit log after an offset."""
        if not self._audit.exists():
            return {}
        with self._audit.open("rb") as file:
            file.seek(offset)
            lines = [json.loads(line) for line in file]
        return {
            line["lease_key"]: datetime.fromisoformat(line["time"]).timestamp() + self._offset
            for line in lines
            if line["event"] == "begin"
        }

    def _remember(self, outcomes: Sequence[Outcome], begins: dict[str, float]) -> None:
        now, monotonic = time.time() + self._offset, time.monotonic()
        for one in outcomes:
            goal = one.goal
            if one.status is Status.REFUSED:
                self.refusals.append(f"{goal.action.value} {goal.shard_id}: {one.message}")
            if one.status is not Status.DONE:
                continue
            at = begins[goal.lease_key]
            if one.recipe is Recipe.CREATE:
                self.done.created.add(goal.shard_id)
            if one.recipe in (Recipe.FREE, Recipe.ASSIGN):
                self.done.freed.append(Freed(goal.shard_id, at))
            if goal.position is None:
                continue
            if goal.action is Action.SKIP:
                assert one.checkpoint is not None
                is_exact = one.recipe is Recipe.REQUEST
                self.done.gaps.append(
                    Gap(goal.shard_id, place_of(one.checkpoint), place_of(goal.position), at, is_exact)
                )
                continue
            noticed_at = None
            if one.noticed_by is not None and one.noticed_after is not None:
                noticed_at = now - (monotonic - one.at) + one.noticed_after
            position = goal.position
            if one.checkpoint is not None and one.checkpoint < position:
                position = one.checkpoint
            self.done.rewinds.append(Rewind(goal.shard_id, place_of(position), at, noticed_at))


def _lower(position: ExtendedSequenceNumber, before: object) -> ExtendedSequenceNumber:
    checkpoint = getattr(getattr(before, "lease", None), "checkpoint", None)
    return position if checkpoint is None or position < checkpoint else checkpoint


def _pick(things: Sequence, choice: float):  # type: ignore[no-untyped-def,type-arg]
    return things[min(int(choice * len(things)), len(things) - 1)]
