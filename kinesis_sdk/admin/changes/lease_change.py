"""A plan of writes to leases, described and carried out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from kinesis_sdk.admin.changes.description import ChangeDescription, Result, Status, Write
from kinesis_sdk.admin.changes.desk import Desk
from kinesis_sdk.admin.changes.execute import ChangeExecutor, Outcome
from kinesis_sdk.admin.changes.plan import Action, ChangePlan, PlannedChange
from kinesis_sdk.admin.changes.plans import (
    plan_import,
    plan_move,
    plan_release,
    plan_rewind,
    plan_skip,
    watch_owners,
)
from kinesis_sdk.admin.changes.positions import Start
from kinesis_sdk.admin.changes.transfer import Export
from kinesis_sdk.admin.command import Command
from kinesis_sdk.admin.fleet.formatting import counted
from kinesis_sdk.common.errors import ChangeRefusedError
from kinesis_sdk.common.text import printable

_QUESTIONS = {
    Action.REWIND: ("Rewind", "shard"),
    Action.SKIP: ("Skip records of", "shard"),
    Action.RELEASE: ("Release", "lease"),
    Action.MOVE: ("Move", "lease"),
    Action.IMPORT: ("Change", "lease"),
}


class LeaseChange:
    """A plan of writes to leases, and the desk with which it was made; see `Planned`."""

    def __init__(self, desk: Desk, plan: ChangePlan) -> None:
        self.plan: ChangePlan = plan
        self._desk = desk
        self._executor: ChangeExecutor | None = None

    @property
    def outcomes(self) -> list[Outcome]:
        """Results of the last `carry_out`, even if it was interrupted."""
        return [] if self._executor is None else self._executor.outcomes

    @property
    def description(self) -> ChangeDescription:
        """See `Planned.description`."""
        plan = self.plan
        shards = [change.goal.shard_id for change in plan.changes]
        named = ", ".join(shards[:3]) or plan.application
        verb, noun = _QUESTIONS[plan.action]
        return ChangeDescription(
            title=f"{plan.action.value} {named}"
            + (f" and {len(shards) - 3} more" if len(shards) > 3 else ""),
            question=f"{verb} {counted(len(shards), noun)} of {plan.application}?",
            command=plan.command,
            writes=tuple(self._write(change) for change in plan.changes),
            unchanged=tuple((one.goal.shard_id, one.reason) for one in plan.unchanged),
            warnings=plan.notes,
            refusals=tuple(one.reason for one in plan.refusals),
        )

    def _write(self, change: PlannedChange) -> Write:
        owner = "no worker" if change.owner is None else printable(change.owner)
        kind = "" if change.kind is None else f" ({change.kind.value})"
        return Write(
            call=self._desk.application.table.operation(change.write.kind),
            row=change.goal.lease_key,
            lines=tuple(change.differences),
            about=f"{change.goal.shard_id}, held by {owner}{kind}: {change.recipe.value}",
            effect=change.goal.effect,
            guarantee=change.guarantee,
        )

    def apply(self, *, wait: float = 60.0) -> Result:
        """See `Planned.apply`."""
        return self._result(self.carry_out(wait=wait), wait)

    def carry_out(self, *, wait: float = 60.0) -> list[Outcome]:
        """Apply the plan as `apply` does, and return the outcome of each row; after an error, they are in `outcomes`."""
        desk, plan = self._desk, self.plan
        self._check_resharding()
        audit = desk.audit(plan.command)
        self._executor = ChangeExecutor(desk, audit)
        if plan.action is Action.IMPORT and not plan.refusals:
            desk.application.store.ensure_ready()
        outcomes = self._executor.apply(plan)
        if wait > 0:
            self._executor.wait(wait)
        return outcomes

    def _check_resharding(self) -> None:
        """Watch the owners again, because the plan may have waited for confirmation; raise ChangeRefusedError if its shards were resharded.

        Children that were created after the plan would keep their positions while their parent is read again.
        """
        desk, plan = self._desk, self.plan
        goals = [change.goal for change in plan.changes]
        if plan.stream is not None and goals:
            parents = {goal.shard_id for goal in goals if goal.action is Action.REWIND}
            born = sorted(
                shard.shard_id
                for shard in desk.application.shards(plan.stream)
                if shard.shard_id not in plan.listed and parents.intersection(shard.parents)
            )
            if born:
                raise ChangeRefusedError(
                    f"the stream was split or merged after the plan was made, and now has {', '.join(born)}: repeat the command"
                )
        if goals:
            read = desk.read(may_be_missing=plan.action is Action.IMPORT)
            moves = plan.action is Action.MOVE
            wanted = {goal.worker for goal in goals if goal.worker is not None}
            watch_owners(desk, goals, read, wanted=wanted if moves else ())

    def remaining(self) -> Command | None:
        """Return the command that makes the remaining changes of the plan; None if all were made.

        An import is repeated as a whole: restored rows stay unchanged. After an interrupted swap, the move remains.
        """
        plan = self.plan
        done = {one.goal.lease_key for one in self.outcomes if one.status is not Status.REFUSED}
        left = [change.goal for change in plan.changes if change.goal.lease_key not in done]
        if not left:
            return None
        if plan.action is Action.IMPORT or (plan.action is Action.MOVE and len(left) == len(plan.changes)):
            return plan.command
        if plan.action is Action.MOVE:
            # All leases go to one worker, so only half of a swap is left.
            keys = [goal.lease_key for goal in left]
            return self._desk.command("move", shard=keys, to=left[0].worker)
        is_position = plan.action in (Action.REWIND, Action.SKIP)
        return plan.command.with_(shard=[goal.shard_id if is_position else goal.lease_key for goal in left])

    def so_far(self) -> Result | None:
        """See `Planned.so_far`."""
        count = sum(1 for one in self.outcomes if one.written is not None)
        return Result(
            status=Status.REFUSED,
            lines=(),
            summary=f"{count} of {len(self.plan.changes)} rows were written, see the audit log.",
            rest=self.remaining(),
        )

    def to_dict(self, result: Result | None) -> dict[str, Any]:
        """See `Planned.to_dict`."""
        outcomes = [] if result is None else self.outcomes
        return {"plan": self.plan.to_dict(), "outcomes": [outcome.to_dict() for outcome in outcomes]}

    def _result(self, outcomes: Sequence[Outcome], wait: float) -> Result:
        refused = [one for one in outcomes if one.status is Status.REFUSED]
        written = [one for one in outcomes if one.written is not None]
        unread = [one for one in written if one.noticed_after is None]
        is_pending = any(one.message.startswith("written, but") for one in unread)
        if refused:
            summary = "; ".join(f"{one.goal.shard_id}: {one.message}" for one in refused)
        elif is_pending:
            rows = "1 row was" if len(unread) == 1 else f"{len(unread)} rows were"
            summary = (
                f"{rows} written, and no worker acts on {'it' if len(unread) == 1 else 'them'}: start one"
            )
        else:
            summary = f"Done: {counted(len(written), 'row')} written." if written else "Nothing to do."
        return Result(
            status=Status.REFUSED if refused else Status.DONE if written else Status.UNCHANGED,
            lines=tuple(_line(one, wait) for one in outcomes),
            summary=summary,
            rest=self.remaining() if refused else None,
            is_pending=is_pending and not refused,
        )


def _line(outcome: Outcome, wait: float) -> str:
    text = f"{outcome.goal.shard_id}: {outcome.message or outcome.status.value}"
    if outcome.status is Status.DONE and outcome.noticed_by is None:
        text += f"; no worker has acted on it within {wait:.0f} s, so start one, or explain the shard"
    return f"{text}."


def change_by_rewind(desk: Desk, to: Start, shards: Collection[str] = ()) -> LeaseChange:
    """Return the plan of `plan_rewind` as a change."""
    return LeaseChange(desk, plan_rewind(desk, to, shards))


def change_by_skip(desk: Desk, to: Start, shards: Collection[str] = ()) -> LeaseChange:
    """Return the plan of `plan_skip` as a change."""
    return LeaseChange(desk, plan_skip(desk, to, shards))


def change_by_release(desk: Desk, shards: Collection[str]) -> LeaseChange:
    """Return the plan of `plan_release` as a change."""
    return LeaseChange(desk, plan_release(desk, shards))


def change_by_move(desk: Desk, shards: Collection[str], worker: str, *, swap: bool = False) -> LeaseChange:
    """Return the plan of `plan_move` as a change."""
    return LeaseChange(desk, plan_move(desk, shards, worker, swap=swap))


def change_by_import(desk: Desk, export: Export) -> LeaseChange:
    """Return the plan of `plan_import` as a change."""
    return LeaseChange(desk, plan_import(desk, export))
