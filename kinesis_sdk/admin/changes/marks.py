"""Workers of an application, and marks that they honor: drain, and leases pinned to a worker.

These marks are attributes of lease rows, which only workers of this SDK read. Marks change no counter, so no worker is disturbed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kinesis_sdk.admin.changes.audit import AuditLog
from kinesis_sdk.admin.changes.description import ChangeDescription, Result, SingleChange, Write, done
from kinesis_sdk.admin.changes.desk import POLL, Desk
from kinesis_sdk.admin.changes.rows import WriteKind
from kinesis_sdk.admin.fleet.model import OwnerKind
from kinesis_sdk.common.errors import ChangeRefusedError
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer import Lease
from kinesis_sdk.consumer.leases import attributes


@dataclass(frozen=True, kw_only=True)
class WorkerInfo:
    """A worker, as the table shows it.

    Attributes:
        worker_id: Its id.
        kind: Kind of the worker.
        leases: Number of unfinished leases that it holds.
        is_alive: Whether it was seen to write; False if it did not write for the failover time; None if unknown yet.
        is_draining: Whether an operator marked it to hold no leases.
        pinned: Number of leases that are pinned to it.
    """

    worker_id: str
    kind: OwnerKind
    leases: int
    is_alive: bool | None
    is_draining: bool
    pinned: int


def list_workers(desk: Desk, *, watch: bool = True) -> tuple[WorkerInfo, ...]:
    """Return the workers of an application, in the order of their ids.

    Args:
        desk: The application.
        watch: Whether to read the table until each is known to be alive or silent, for at most one failover time.

    Raises:
        ConfigError: If there is no such table.
        AwsError: If a call failed.
    """
    desk.read()
    owners = desk.owners
    if watch:
        desk.judge(owners.workers())
    now = desk.clock.monotonic()
    pins = [lease.pinned_to for lease in owners.leases]
    return tuple(
        WorkerInfo(
            worker_id=worker,
            kind=owners.kind(worker) or OwnerKind.OTHER,
            leases=owners.load(worker),
            is_alive=owners.is_alive(worker, now) if owners.is_judged(worker, now) else None,
            is_draining=owners.is_draining(worker),
            pinned=pins.count(worker),
        )
        for worker in owners.workers()
    )


def plan_drain(desk: Desk, worker: str) -> SingleChange:
    """Plan to make a worker hand off all leases, take none, and keep running."""
    carrier, name = _check_drain(desk, worker, desk.leases()), printable(worker)
    command = desk.command("drain", worker=worker)
    description = ChangeDescription(
        title=f"drain {name}",
        question=f"Drain {name}?",
        command=command,
        writes=(_mark(desk, carrier, f"{attributes.DRAIN}{worker}: – → 1; on condition: the row exists"),),
        effects=(
            f"{name} hands off all its leases, takes none, and stays up until the drain is ended or it stops.",
            "Each shard is idle for less than a second.",
        ),
        undo=desk.command("undrain", worker=worker),
    )

    def make(wait: float) -> Result:
        _drain(desk, worker, desk.audit(command))
        if _is_drained(desk, worker, wait):
            return done(f"No lease names {name}. Stop it, or end the drain.")
        return done(
            f"{name} still holds leases; the drain goes on. the list of workers shows how many",
            is_pending=True,
        )

    return SingleChange(
        description=description,
        make=make,
        data=lambda result: {
            **_writes(description),
            "drained": result is not None and not result.is_pending,
        },
    )


def plan_undrain(desk: Desk, worker: str) -> SingleChange:
    """Plan to let a worker take leases again."""
    name, command = printable(worker), desk.command("undrain", worker=worker)
    marked = _find_marked(desk, worker)
    description = ChangeDescription(
        title=f"undrain {name}",
        question=f"Let {name} take leases again?",
        command=command,
        writes=tuple(_mark(desk, lease, f"{attributes.DRAIN}{worker}: 1 → –") for lease in marked),
        effects=(f"{name} takes leases again." if marked else f"{name} does not drain.",),
    )

    def make(_wait: float) -> Result:
        is_done = _undrain(desk, worker, desk.audit(command))
        return done(f"{name} takes leases again.") if is_done else done(f"{name} does not drain.")

    return _marks(description, make)


def plan_pin(desk: Desk, shard: str, worker: str | None = None) -> SingleChange:
    """Plan to pin a lease to a worker, which holds it while it is alive; None removes the pin.

    Only workers of this SDK honor the pin: a Java worker takes the lease like any other.
    """
    lease = desk.lease(shard)
    verb = "unpin" if worker is None else "pin"
    effect = "The workers balance the lease as any other."
    if worker is not None:
        desk.owners.check_known("to", worker)
        effect = f"Workers of this SDK give the lease to {printable(worker)} while it is alive and not drained. Java workers do not read pins."
    command = desk.command(verb, shard=shard, to=worker)
    change = f"{attributes.PINNED_TO}: {printable(lease.pinned_to or '–')} → {printable(worker or '–')}"
    description = ChangeDescription(
        title=f"{verb} {printable(shard)}",
        question="Write this?",
        command=command,
        writes=(_mark(desk, lease, f"{change}; on condition: the row exists"),),
        effects=(effect,),
    )
    return _marks(description, lambda _wait: _pin(desk, shard, worker, desk.audit(command)))


def plan_unpin(desk: Desk, shard: str) -> SingleChange:
    """Plan to remove the pin of a lease; see `plan_pin`."""
    return plan_pin(desk, shard)


def _mark(desk: Desk, lease: Lease, change: str) -> Write:
    return Write(
        call=desk.application.table.operation(WriteKind.UPDATE), row=lease.lease_key, lines=(change,)
    )


def _writes(description: ChangeDescription) -> dict[str, list[str]]:
    return {"writes": [str(write) for write in description.writes]}


def _marks(description: ChangeDescription, make: Callable[[float], Result]) -> SingleChange:
    return SingleChange(
        description=description,
        make=make,
        data=lambda result: {**_writes(description), "done": result is not None},
    )


def _drain(desk: Desk, worker: str, audit: AuditLog) -> None:
    store = desk.application.store
    for _ in range(5):
        carrier = _check_drain(desk, worker, desk.leases())
        audit.around(
            lambda key=carrier.lease_key: store.set_drain(key, worker, True),  # type: ignore[misc]
            lease_key=carrier.lease_key,
            drain=worker,
        )
        leases = desk.leases()
        if any(worker in lease.draining for lease in leases):
            try:
                _check_drain(desk, worker, leases)
            except ChangeRefusedError:
                # Another operator drained the other workers at the same time: no worker would hold a lease.
                _undrain(desk, worker, audit)
                raise
            return
        desk.report("the row was deleted meanwhile, using another one")
    raise ChangeRefusedError("the rows of the table are deleted as fast as they are marked; try again")


def _undrain(desk: Desk, worker: str, audit: AuditLog) -> bool:
    """Remove the mark of a worker, and return whether there was one."""
    store = desk.application.store
    was_draining = False
    quiet_since = desk.clock.monotonic()
    while True:
        for lease in _find_marked(desk, worker):
            was_draining = True
            audit.around(
                lambda key=lease.lease_key: store.set_drain(key, worker, False),  # type: ignore[misc]
                lease_key=lease.lease_key,
                undrain=worker,
            )
            quiet_since = desk.clock.monotonic()
        # The worker moves its mark when a row is finished: the worker may have written the new mark after this scan.
        if not was_draining or desk.clock.monotonic() - quiet_since >= 2 * POLL:
            return was_draining
        desk.sleep(POLL)


def _find_marked(desk: Desk, worker: str) -> list[Lease]:
    """Return the rows with the drain mark of a worker.

    If the marked row was deleted, the mark is nowhere until the worker puts it on another row after its next scan. So the mark counts as
    missing only after the table was read for two seconds.
    """
    until = desk.clock.monotonic() + 2 * POLL
    while True:
        marked = [lease for lease in desk.leases() if worker in lease.draining]
        if marked or desk.clock.monotonic() >= until:
            return marked
        desk.sleep(POLL)


def _is_drained(desk: Desk, worker: str, timeout: float) -> bool:
    """Wait until no row has named a worker for two failover times, and return whether that happened."""
    begun = desk.clock.monotonic()
    empty_since: float | None = None
    description: int | None = None
    while True:
        count = sum(
            1
            for lease in desk.leases()
            if worker in (lease.owner, lease.checkpoint_owner) and not lease.is_finished
        )
        now = desk.clock.monotonic()
        if count != description:
            desk.report(f"{printable(worker)} holds {count} leases")
            description = count
        empty_since = None if count else now if empty_since is None else empty_since
        if empty_since is not None and now - empty_since >= 2 * desk.failover_time:
            return True
        if now - begun > timeout:
            return False
        desk.sleep(POLL)


def _pin(desk: Desk, shard: str, worker: str | None, audit: AuditLog) -> Result:
    lease = desk.lease(shard)
    if worker is not None:
        desk.owners.check_known("to", worker)
        desk.judge([worker])
        if desk.owners.kind(worker) is not OwnerKind.SDK:
            raise ChangeRefusedError(f"{printable(worker)} is a Java worker: it does not read pins")
    if not audit.around(
        lambda: desk.application.store.set_pin(lease.lease_key, worker), lease_key=lease.lease_key, pin=worker
    ):
        raise ChangeRefusedError(f"the row of {lease.lease_key} was deleted meanwhile; nothing was pinned")
    return done("Done. The workers act on it with their next balancing, within seconds.")


def _check_drain(desk: Desk, worker: str, leases: Sequence[Lease]) -> Lease:
    """Return the row for the drain mark of a worker; raises ChangeRefusedError if the drain is not possible."""
    owners = desk.owners
    owners.check_known("worker", worker)  # before the wait that shows which owners are alive
    desk.judge([worker])
    name = printable(worker)
    if owners.kind(worker) is not OwnerKind.SDK:
        raise ChangeRefusedError(
            f"{name} is a Java worker or an unknown one, which does not read the mark: stop its process with SIGTERM; its leases "
            "move after 20 to 40 s"
        )
    now = desk.clock.monotonic()
    if all(
        one == worker or owners.is_draining(one) or owners.is_silent(one, now) for one in owners.workers()
    ):
        raise ChangeRefusedError(
            f"no other worker would hold the leases of {name}: start one, or stop {name}"
        )
    unfinished = sorted((lease for lease in leases if not lease.is_finished), key=lambda one: one.lease_key)
    if not unfinished:
        raise ChangeRefusedError("the table has no unfinished lease that could carry the mark")
    return unfinished[0]
