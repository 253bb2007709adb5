"""Carries out planned changes: read, decide, write conditionally, and watch the row until its owner acts.

Every write follows the same steps, and each can fail:

```
 read the row ──► decide ──► audit "begin" ──► UpdateItem on condition ──► audit "done" ──► wait for the owner
      ▲                                          │ the row was changed meanwhile
      └──────────────────────────────────────────┘ five tries
                                                 │ no response: the row names the operator if it took effect
```

A handoff that is requested for a skip passes through the operator's hands:

```
 old owner ──► requested (marker) ──► operator ──► old owner, new position
                  │ no response           │ killed here: the old owner takes it back after 3 s, or it expires
                  ▼
               withdrawn; decided again without a request
```
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kinesis_sdk.admin.changes import recipes
from kinesis_sdk.admin.changes.audit import AuditLog
from kinesis_sdk.admin.changes.description import Status
from kinesis_sdk.admin.changes.desk import Desk
from kinesis_sdk.admin.changes.plan import (
    Action,
    ChangePlan,
    Goal,
    PlannedChange,
    Refusal,
    Unchanged,
    decide,
)
from kinesis_sdk.admin.changes.recipes import Recipe
from kinesis_sdk.admin.changes.rows import Row, RowWrite, shows
from kinesis_sdk.admin.fleet.model import OwnerKind
from kinesis_sdk.common.errors import AwsError, ChangeRefusedError, KinesisSdkError
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer.leases import Item, attributes

TRIES = 5
"""Maximum number of decisions about a change, which is decided again if the row changed in between."""
HANDOFF_WAIT = 40.0
"""Seconds to wait for the end of a handoff between two workers: its timeout of 30 s and one failover time."""
ANSWER_WAIT = {OwnerKind.SDK: 40.0, OwnerKind.KCL3: 5.0}
"""Seconds to wait for the response to a request. A worker of this SDK finishes its batch first; an attribute of its rows
proves that it supports handoffs. For a Java worker, this is only inferred from its metrics, so the wait is shorter.
"""
_REQUEST_POLL = 0.2
_WATCH_POLL = 0.5
_LOST_ANSWER_PAUSE = 0.5
_SETTLE_SECONDS = 5.0
"""Seconds after a move during which the workers' strategy may move the lease again."""
_MANY = 8
"""Number of rows above which one scan is cheaper than reading each row."""


@dataclass(kw_only=True)
class Outcome:
    """Result of one change.

    Attributes:
        recipe: The form in which it was written; None if it was not.
        written: Item as the write left it; None if nothing was written.
        at: Monotonic time of the write.
        noticed_by: Worker that acted on the change; None while no worker did.
        noticed_after: Seconds between the write and the first read that showed a reaction.
        former_owner: Worker that held the lease before; None if no worker did.
        final_owner: Holder of a released or moved lease some seconds after the change was noticed; None if that was not checked.
    """

    goal: Goal
    status: Status
    recipe: Recipe | None = None
    message: str = ""
    checkpoint: ExtendedSequenceNumber | None = None
    written: Item | None = None
    at: float = 0.0
    noticed_by: str | None = None
    noticed_after: float | None = None
    former_owner: str | None = None
    final_owner: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as data for JSON."""
        return {
            "lease_key": self.goal.lease_key,
            "shard_id": self.goal.shard_id,
            "status": self.status.value,
            "recipe": None if self.recipe is None else self.recipe.value,
            "message": self.message,
            "checkpoint_before": None if self.checkpoint is None else str(self.checkpoint),
            "position": None if self.goal.position is None else str(self.goal.position),
            "noticed_by": self.noticed_by,
            "noticed_after": None if self.noticed_after is None else round(self.noticed_after, 1),
            "final_owner": self.final_owner,
        }


class _Result(Enum):
    WRITTEN = "written"
    CONFLICT = "conflict"


class ChangeExecutor:
    """Applies a plan to the lease table of the `Desk` that made it.

    ``outcomes`` has one entry for each change that was begun, in order, even after an interruption.
    """

    def __init__(self, desk: Desk, audit: AuditLog) -> None:
        self._table = desk.application.table
        self._audit = audit
        self._owners = desk.owners
        self._clock = desk.clock
        self._sleep = desk.sleep
        self._report = desk.report
        self._operator = desk.operator
        self.outcomes: list[Outcome] = []

    def apply(self, plan: ChangePlan) -> list[Outcome]:
        """Write the changes of a plan in their order.

        The rows are read again, and each write is decided again, so a plan that is some minutes old is safe to apply. This
        method stops at the first change that cannot be written: children must not begin before their parents.

        Raises:
            ChangeRefusedError: If the plan has refusals; nothing is written.
            AuditLogError: If the audit log cannot be written; nothing more is written.
            AwsError: If a call failed. Earlier results are in ``outcomes``.
        """
        if plan.refusals:
            raise ChangeRefusedError("; ".join(refusal.reason for refusal in plan.refusals))
        self._audit.check()
        for change in plan.changes:
            outcome = self._bring(change.goal, self.outcomes)
            if outcome.status is Status.REFUSED:
                break
        self._repair()
        return self.outcomes

    def wait(self, timeout: float = 60.0) -> bool:
        """Wait until an owner has acted on each change; return whether all did within ``timeout`` seconds."""
        begun = self._clock.monotonic()
        while True:
            waiting = [
                one
                for one in self.outcomes
                if one.written is not None
                and one.noticed_after is None
                # No worker acts on the row of a finished shard.
                and not Row.of(one.written).lease.is_finished
            ]
            if not waiting:
                break
            now = self._clock.monotonic()
            if now - begun > timeout:
                for one in waiting:
                    one.message = "written, but no worker acts on it"
                    self._report(
                        f"{one.goal.shard_id}: written, no worker reads. Start one, or explain the shard"
                    )
                return False
            items = self._items([one.goal.lease_key for one in waiting])
            for one in waiting:
                self._notice(one, items.get(one.goal.lease_key))
            if any(one.noticed_after is None for one in waiting):
                self._sleep(_WATCH_POLL)
        self._repair()
        self._settle()
        return True

    def _settle(self) -> None:
        """Report the holders of the released or moved leases, once the workers' strategy has had time to balance."""
        moved = [
            one
            for one in self.outcomes
            if one.noticed_by is not None and one.goal.action in (Action.RELEASE, Action.MOVE)
        ]
        if not moved:
            return
        self._sleep(_SETTLE_SECONDS)
        items = self._items([one.goal.lease_key for one in moved])
        for one in moved:
            item = items.get(one.goal.lease_key)
            one.final_owner = None if item is None else Row.of(item).lease.holder
            if one.final_owner is None or one.final_owner == one.noticed_by:
                continue
            name = printable(one.final_owner)
            is_back = one.final_owner == one.former_owner
            one.message += f"; {_SETTLE_SECONDS:.0f} s later, {name} " + (
                "has it again" if is_back else "has it"
            )
            self._report(
                f"{one.goal.shard_id}: {one.message}. The workers' strategy balances by itself; to keep a lease at a worker, pin it, "
                "or swap two leases"
            )

    def _notice(self, outcome: Outcome, item: Item | None) -> None:
        if outcome.written is None:
            return
        if item is None:
            if not self._owners.java_workers(self._clock.monotonic()):
                # Workers of this SDK delete only rows at SHARD_END, so a worker has read the shard to its end since the
                # last check.
                outcome.noticed_after = self._clock.monotonic() - outcome.at
                outcome.message = (
                    f"read to the end again within {outcome.noticed_after:.1f} s, and its row deleted"
                )
                self._report(f"{outcome.goal.shard_id}: {outcome.message}")
            return
        lease, written = Row.of(item).lease, Row.of(outcome.written).lease
        # Every write of an owner adds to the counter, and the conditions of writes that were in flight at the time of the change
        # have failed. So a higher counter means that an owner has seen the change.
        if lease.counter <= written.counter:
            return
        outcome.noticed_after = self._clock.monotonic() - outcome.at
        if attributes.CHANGED_BY in item and item[attributes.CHANGED_BY] != outcome.written.get(
            attributes.CHANGED_BY
        ):
            # Another operator may have raised the counter, so it does not show that a worker has acted.
            outcome.message = "another operator has changed it since"
            self._report(f"{outcome.goal.shard_id}: {outcome.message}")
            return
        outcome.noticed_by = lease.holder
        name = printable(lease.holder or "a worker")
        outcome.message = f"noticed after {outcome.noticed_after:.1f} s by {name}"
        self._report(f"{outcome.goal.shard_id}: {outcome.message}")
        wanted = outcome.goal.worker
        if outcome.goal.action is Action.MOVE and wanted is not None and lease.holder != wanted:
            outcome.message = f"taken by {name} instead of {printable(wanted)}"
            self._report(
                f"{outcome.goal.shard_id}: {outcome.message}; the workers' strategy balances by itself"
            )

    def _items(self, keys: Sequence[str]) -> dict[str, Item | None]:
        if len(keys) > _MANY:
            rows = self._table.read().rows
            return {key: rows[key].item if key in rows else None for key in keys}
        return {key: self._table.get(key) for key in keys}

    def _repair(self) -> None:
        """Put rows back that a Java worker deleted after they were written.

        A Java worker lists finished leases, the rewind makes one of these leases unfinished, and the worker still deletes its row. A row
        that an owner has since changed may also be missing because its shard was read to the end again. Workers of this SDK delete only
        finished rows: without Java workers, a missing row was read to its end and must not be read once more.
        """
        done = [
            one
            for one in self.outcomes
            if one.written is not None
            and one.goal.missing is not None
            and one.noticed_after is None
            and not Row.of(one.written).lease.is_finished
        ]
        if not self._owners.java_workers(self._clock.monotonic()):
            return
        if not done:
            return
        items = self._items([one.goal.lease_key for one in done])
        for one in done:
            if items.get(one.goal.lease_key) is None:
                self._report(f"{one.goal.shard_id}: its row was deleted by a worker; it is put back")
                again = self._bring(one.goal, [])
                one.written, one.at, one.recipe = again.written, again.at, again.recipe
                one.noticed_after = None

    # One change

    def _bring(self, goal: Goal, outcomes: list[Outcome]) -> Outcome:
        """Bring a row to its goal, and append the outcome.

        The outcome is appended right after the row is written, before another step can fail: the command for the remaining changes must
        not repeat this change.
        """
        outcome = self._write_goal(goal, outcomes)
        if outcome.written is None:
            outcomes.append(outcome)
        return outcome

    def _write_goal(self, goal: Goal, outcomes: list[Outcome]) -> Outcome:
        may_request = True
        waited_since: float | None = None
        first: ExtendedSequenceNumber | None = None
        tries = 0
        while tries < TRIES:
            row = self._row(goal.lease_key)
            now = self._clock.monotonic()
            if row is not None and first is None:
                first = row.lease.checkpoint
            if tries and row is not None and _was_rewound_meanwhile(goal, first, row):
                message = "another operator has rewound it meanwhile"
                self._report(f"{goal.shard_id}: nothing to do, {message}")
                return Outcome(goal=goal, status=Status.UNCHANGED, message=message, checkpoint=first)
            decision = decide(goal, row, self._owners, now, may_request=may_request, operator=self._operator)
            checkpoint = None if row is None else row.lease.checkpoint
            holder = None if row is None else row.lease.holder
            if isinstance(decision, Unchanged):
                self._report(f"{goal.shard_id}: nothing to do, {decision.reason}")
                return Outcome(
                    goal=goal, status=Status.UNCHANGED, message=decision.reason, checkpoint=checkpoint
                )
            if isinstance(decision, Refusal):
                waited_since = now if waited_since is None else waited_since
                if decision.waits_for_handoff and now - waited_since < HANDOFF_WAIT:
                    self._sleep(_WATCH_POLL)
                    continue
                self._report(f"{goal.shard_id}: refused, {decision.reason}")
                return Outcome(
                    goal=goal, status=Status.REFUSED, message=decision.reason, checkpoint=checkpoint
                )
            tries += 1
            self._log("begin", decision)
            try:
                if decision.recipe is Recipe.REQUEST:
                    result, after, heard = self._request(decision)
                    may_request = heard
                else:
                    result, after = self._write(decision.write, decision.before)
            except BaseException as error:
                self._log("interrupted", decision, error=type(error).__name__)
                raise
            if result is _Result.CONFLICT:
                self._log("failed", decision, after=after)
                self._report(f"{goal.shard_id}: the row was changed meanwhile, deciding again")
                continue
            if decision.recipe is Recipe.REQUEST and goal.action is Action.SKIP and after is not None:
                checkpoint = self._answered_at
            outcome = Outcome(
                goal=goal,
                status=Status.DONE,
                recipe=decision.recipe,
                message="written",
                checkpoint=checkpoint,
                written=after,
                at=self._clock.monotonic(),
                former_owner=holder,
            )
            outcomes.append(outcome)
            self._log("done", decision, after=after)
            self._report(f"{goal.shard_id}: written")
            return outcome
        message = f"other writers changed the row {TRIES} times in a row; nothing was written"
        self._report(f"{goal.shard_id}: {message}")
        return Outcome(goal=goal, status=Status.REFUSED, message=message)

    def _write(self, write: RowWrite, before: Row | None) -> tuple[_Result, Item | None]:
        """Repeat a write until there is a response, or the row shows whether it took effect."""
        seen = None if before is None else before.item
        lost = False
        for _ in range(TRIES):
            try:
                is_written = self._table.send(write)
            except KinesisSdkError as error:
                if not error.retryable:
                    raise
                lost = True
                code = error.code if isinstance(error, AwsError) else type(error).__name__
                self._report(f"{write.lease_key}: no response ({code or 'timeout'}), reading the row")
                result, current = self._effect_of(write, seen)
                if result is _Result.WRITTEN:
                    return result, current
                # No effect so far. Repeating the same write with the same condition is safe: if the first write arrives
                # late, only one of the two writes can take effect.
                self._sleep(_LOST_ANSWER_PAUSE)
                continue
            if is_written:
                return _Result.WRITTEN, write.applied(seen)
            if not lost:
                return _Result.CONFLICT, None
            # An earlier attempt had no response: this attempt may have lost against it.
            return self._effect_of(write, seen)
        return self._effect_of(write, seen)

    def _effect_of(self, write: RowWrite, seen: Item | None) -> tuple[_Result, Item | None]:
        current = self._table.get(write.lease_key)
        if shows(current, write):
            # Return the item as the write left it: its owner may have changed it since.
            return _Result.WRITTEN, write.applied(seen)
        return _Result.CONFLICT, None

    # Handoffs

    _answered_at: ExtendedSequenceNumber | None = None

    def _request(self, change: PlannedChange) -> tuple[_Result, Item | None, bool]:
        """Request a lease; for a skip, write the position once the owner has released the lease.

        Returns the result, the item as the last write left it, and whether a handoff may be requested again.
        """
        assert change.before is not None
        before = change.before
        requester = self._operator if change.goal.action is Action.SKIP else change.goal.worker or ""
        try:
            result, _ = self._write(change.write, before)
            if result is not _Result.WRITTEN:
                current = self._row(change.goal.lease_key)
                # If the response was lost, the owner may have responded already.
                if current is None or current.lease.owner != requester:
                    return result, None, True
            answered = self._await_answer(change, requester)
            if answered is None:
                result, _ = self._write(recipes.withdraw(before, requester), self._row(change.goal.lease_key))
                self._report(f"{change.goal.shard_id}: {printable(change.owner or '')} did not answer")
                return _Result.CONFLICT, None, False
            if answered.lease.owner != requester:
                return _Result.CONFLICT, None, True
            self._answered_at = answered.lease.checkpoint
            if change.goal.action is not Action.SKIP:
                return _Result.WRITTEN, answered.item, True
            return self._give_back(change, answered)
        except BaseException:
            self._withdraw_after_interruption(change, requester)
            raise

    def _give_back(self, change: PlannedChange, answered: Row) -> tuple[_Result, Item | None, bool]:
        position = change.goal.position
        assert position is not None
        passed = answered.lease.checkpoint >= position
        # The owner may have reached the end of its shard, or passed the position, before it released the lease.
        if answered.lease.is_finished:
            return _Result.CONFLICT, None, True
        write = recipes.give_back(
            answered, change.owner or "", None if passed else position, by=self._operator
        )
        result, current = self._write(write, answered)
        if result is _Result.WRITTEN:
            self._report(
                f"{change.goal.shard_id}: the owner stopped at {answered.lease.checkpoint}; "
                + ("it had passed the position by itself" if passed else f"skipped from there to {position}")
            )
        if result is _Result.WRITTEN and passed:
            return _Result.CONFLICT, current, True  # decided again: nothing to do
        return result, current, True

    def _await_answer(self, change: PlannedChange, requester: str) -> Row | None:
        """Wait until the owner releases a row or another writer changes it, and return the row; None if the owner does not respond."""
        assert change.kind is not None
        until = self._clock.monotonic() + ANSWER_WAIT.get(change.kind, 5.0)
        description = self._clock.monotonic() + 2.0
        while True:
            row = self._row(change.goal.lease_key)
            if row is None or not row.lease.in_handoff or row.lease.owner != requester:
                return row
            now = self._clock.monotonic()
            if now >= until:
                return None
            if now >= description:
                self._report(
                    f"{change.goal.shard_id}: waiting for {printable(change.owner or '')} to finish its batch"
                )
                description = until
            self._sleep(_REQUEST_POLL)

    def _withdraw_after_interruption(self, change: PlannedChange, requester: str) -> None:
        """Withdraw the request, so that the owner keeps its row.

        If this also fails, the owner takes the lease back after three seconds, or the lease expires.
        """
        assert change.before is not None
        try:
            row = self._row(change.goal.lease_key)
            if row is None or row.lease.owner != requester:
                return
            if row.lease.in_handoff:
                write = recipes.withdraw(change.before, requester)
            elif requester == self._operator:
                write = recipes.give_back(row, change.owner or "", None, by=self._operator)
            else:
                return
            if self._table.send(write):
                self._log("withdrawn", change)
            else:
                self._report(
                    f"{change.goal.shard_id}: the row was changed meanwhile, so the request is not withdrawn"
                )
        except KinesisSdkError as error:
            self._report(
                f"{change.goal.shard_id}: the request could not be withdrawn, and ends by itself: {error}"
            )

    def _row(self, lease_key: str) -> Row | None:
        item = self._table.get(lease_key)
        return None if item is None else Row.of(item)

    def _log(self, event: str, change: PlannedChange, **more: Any) -> None:
        self._audit.append(
            event,
            action=change.goal.action,
            recipe=change.recipe,
            lease_key=change.goal.lease_key,
            position=None if change.goal.position is None else str(change.goal.position),
            worker=change.goal.worker,
            before=None if change.before is None else change.before.item,
            **({"write": self._table.request(change.write)} if event == "begin" else {}),
            **more,
        )


def _was_rewound_meanwhile(goal: Goal, first: ExtendedSequenceNumber | None, row: Row) -> bool:
    """Return whether another operator already did this rewind; a second rewind would repeat the records once more."""
    position = goal.position
    return (
        goal.action is Action.REWIND
        and first is not None
        and position is not None
        and row.lease.checkpoint <= position < first
    )
