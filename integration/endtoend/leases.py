"""Checks of leases: one owner at a time, checkpoints that only go forward, a clean table at the end. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from integration.endtoend.recorded_events import Acquisition, RecordedEvents, Violation
from integration.endtoend.records import listed
from kinesis_sdk.common.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.consumer.leases.table.attributes import CHANGED_BY
from kinesis_sdk.testing.accounting.verify import Delivery

_GRACE = 2.0
"""Seconds after a pause in which a worker may not yet have noticed what it missed."""


def position_of(delivery: Delivery) -> ExtendedSequenceNumber:
    """Return a delivery's position in the form of a checkpoint."""
    return ExtendedSequenceNumber(str(delivery.position[0]), delivery.position[1])


def _by_shard(recorded: RecordedEvents) -> dict[str, list[Acquisition]]:
    found: dict[str, list[Acquisition]] = defaultdict(list)
    for held in sorted(recorded.acquisitions.values(), key=lambda a: a.at):
        found[held.shard_id].append(held)
    return found


def check_checkpoints(recorded: RecordedEvents, deliveries: Sequence[Delivery]) -> Iterator[Violation]:
    """Check that checkpoints go forward, within and across acquisitions, and never beyond the deliveries.

    A worker that was frozen between taking a lease and starting with it, while another worker held the lease, starts from
    an old checkpoint. It can store nothing.
    """
    reached = _reached(deliveries)
    for shard_id, acquisitions in sorted(_by_shard(recorded).items()):
        highest = ExtendedSequenceNumber(TRIM_HORIZON)
        for held in acquisitions:
            is_late = recorded.pause_of(held.worker, held.at - _GRACE, held.at) is not None
            if held.start < highest and not is_late:
                text = f"{shard_id}: {held.worker} was given {held.start} after {highest} was stored"
                yield Violation("checkpoint went back", text)
            last = held.start
            for at, position in held.checkpoints:
                if position < last:
                    text = f"{shard_id}: {held.worker} stored {position} after {last}"
                    yield Violation("checkpoint went back", text)
                last = position
                if not position.is_shard_end and not position.is_sentinel and position != held.start:
                    times, positions = reached.get((held.worker, held.number), ([], []))
                    index = bisect_right(times, at)
                    if index == 0 or positions[index - 1] < position:
                        text = f"{shard_id}: {held.worker} stored {position}, which it did not deliver"
                        yield Violation("checkpoint ahead", text)
            highest = max(highest, last)


def _reached(
    deliveries: Sequence[Delivery],
) -> dict[tuple[str, int], tuple[list[float], list[ExtendedSequenceNumber]]]:
    """Return the positions that each acquisition reached, with times."""
    highest: dict[tuple[str, int], tuple[int, int]] = {}
    found: dict[tuple[str, int], tuple[list[float], list[ExtendedSequenceNumber]]] = {}
    for delivery in deliveries:
        key = (delivery.worker, delivery.acquisition)
        if delivery.position <= highest.get(key, (-1, 0)):
            continue
        highest[key] = delivery.position
        times, positions = found.setdefault(key, ([], []))
        times.append(delivery.at)
        positions.append(position_of(delivery))
    return found


def check_starts(recorded: RecordedEvents, deliveries: Sequence[Delivery]) -> Iterator[Violation]:
    """Check that nothing is delivered that was checkpointed before the lease was taken."""
    wrong = []
    for delivery in deliveries:
        held = recorded.acquisitions.get((delivery.worker, delivery.acquisition))
        if held is None or held.shard_id != delivery.shard_id:
            yield Violation("delivery without a lease", f"{delivery.number} by {delivery.worker}")
        elif position_of(delivery) <= held.start:
            wrong.append(f"{delivery.number} of {delivery.shard_id} by {delivery.worker}")
    yield from listed("delivered below the checkpoint", wrong)


def check_owners(recorded: RecordedEvents, deliveries: Sequence[Delivery]) -> Iterator[Violation]:
    """Check that an acquisition delivers nothing once the next one of its lease has begun.

    Exception: after a pause, a worker may finish the batch in progress, but start no other.
    """
    next_begins: dict[tuple[str, int], float] = {}
    next_works: dict[
        tuple[str, int], float
    ] = {}  # surely taken: the next one may have been taken after its worker's pause
    for acquisitions in _by_shard(recorded).values():
        in_order = sorted(acquisitions, key=lambda held: _taken_at(recorded, held))
        for held, following in pairwise(in_order):
            next_begins[held.worker, held.number] = _taken_at(recorded, following)
            next_works[held.worker, held.number] = following.at
    wrong = []
    late: dict[tuple[str, int], set[float]] = defaultdict(set)
    for delivery in deliveries:
        lost_at = next_begins.get((delivery.worker, delivery.acquisition), delivery.at)
        if delivery.at <= lost_at:
            continue
        if delivery.at > next_works[delivery.worker, delivery.acquisition]:
            late[delivery.worker, delivery.acquisition].add(delivery.at)
        if recorded.pause_of(delivery.worker, lost_at - recorded.failover_time - _GRACE, delivery.at) is None:
            wrong.append(f"{delivery.number} of {delivery.shard_id} by {delivery.worker}")
    yield from listed("two owners at a time", wrong)
    went_on = [
        f"{worker} with {len(batches)} batches" for (worker, _), batches in late.items() if len(batches) > 1
    ]
    yield from listed("went on without the lease", went_on)


def _taken_at(recorded: RecordedEvents, held: Acquisition) -> float:
    """Return the earliest possible time at which a lease was taken.

    A worker takes a lease and is frozen, another one takes the lease and works, then the first resumes and starts: it had
    the lease earlier although it started later. It can store nothing, which distinguishes it from a worker that took the
    lease after its pause.
    """
    if held.checkpoints:
        return held.at
    # A fault on the wire does not delay the start: the worker starts once it learns that it has the lease.
    pause = recorded.pause_of(held.worker, held.at - _GRACE, held.at, causes=("freeze", "stall"))
    return held.at if pause is None else min(held.at, pause.begin)


def check_deletions(recorded: RecordedEvents) -> Iterator[Violation]:
    """Check that leases are deleted only once their shards are finished."""
    finished: dict[str, float] = {}
    for held in recorded.acquisitions.values():
        for at, position in held.checkpoints:
            if position.is_shard_end:
                finished[held.shard_id] = min(at, finished.get(held.shard_id, at))
    for at, key, position in recorded.table_monitor.vanished:
        if finished.get(key, at) >= at:
            yield Violation("unfinished lease deleted", f"{key} at {position}")


def check_table(recorded: RecordedEvents, deliveries: Sequence[Delivery]) -> Iterator[Violation]:
    """Check the table after a clean stop: each open shard has an unowned lease at its last record, and there is no other lease."""
    last: dict[str, ExtendedSequenceNumber] = {}
    for delivery in deliveries:
        position = position_of(delivery)
        last[delivery.shard_id] = max(position, last.get(delivery.shard_id, position))
    children: dict[str, list[str]] = defaultdict(list)
    for shard_id, shard in recorded.shards.items():
        for parent in shard.parents:
            children[parent].append(shard_id)
    for shard_id, shard in sorted(recorded.shards.items()):
        if shard.is_open and shard_id not in recorded.rows:
            yield Violation("no lease", shard_id)
    for key, row in sorted(recorded.rows.items()):
        listing = recorded.shards.get(key)
        if listing is None:
            yield Violation("foreign lease", key)
            continue
        if row.owner is not None or row.checkpoint_owner is not None:
            yield Violation("lease not released", f"{key} of {row.holder}")
        # An operator leaves its mark in the rows that it changes.
        foreign = sorted(row.extra.keys() - {CHANGED_BY})
        if foreign:
            yield Violation("foreign attributes", f"{key}: {', '.join(foreign)}")
        if row.pending_checkpoint is not None:
            yield Violation("checkpoint left pending", key)
        if row.is_finished:
            if listing.is_open:
                yield Violation("open shard finished", key)
            elif all(
                child not in recorded.rows or recorded.rows[child].is_started for child in children[key]
            ):
                yield Violation("finished lease left over", key)
        elif not listing.is_open:
            yield Violation("closed shard not finished", f"{key} at {row.checkpoint}")
        elif row.checkpoint < last.get(key, row.checkpoint):
            text = f"{key}: processed up to {last[key]}, stored is {row.checkpoint}"
            yield Violation("processed and not checkpointed", text)
