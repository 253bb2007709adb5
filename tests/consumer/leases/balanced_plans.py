"""Plans of one worker, and fleets that plan in rounds until they rest."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

from kinesis_sdk.common.sequence import LATEST, SHARD_END, ExtendedSequenceNumber
from kinesis_sdk.consumer.leases import (
    BalancedStrategy,
    Lease,
    LeaseObserver,
    TableView,
    TakeLimits,
    TakeReason,
)

NO_LIMIT = 10**9


def lease(key, owner=None, *, counter=1, ended=False, marker=None, kbps=None):
    return Lease(
        lease_key=f"s{key:05d}",
        owner=owner,
        counter=counter,
        checkpoint=ExtendedSequenceNumber(SHARD_END if ended else LATEST),
        checkpoint_owner=marker,
        throughput_kbps=kbps,
    )


def plan(leases, me="me", *, held=None, expired=(), gathering=False, looks=3, seed=0, strategy=None, **view):
    """A plan of a worker that has looked at this table for a while; ``expired`` names stand still."""
    observer = LeaseObserver(10)
    now = 0.0
    for look in range(looks):
        now = look * 9.0
        seen = [
            item
            if item.lease_key in expired or item.owner is None
            else replace(item, counter=item.counter + look)
            for item in leases
        ]
        observer.observe([i for i in seen if not gathering or look or i.owner == me], now)
        leases_now = seen
    most = view.pop("most", NO_LIMIT)
    steals = view.pop("steals", None)
    return (strategy or BalancedStrategy()).plan(
        TableView(
            leases=leases_now,
            observed=observer,
            me=me,
            now=now,
            limits=TakeLimits(max_leases=most, max_steals=steals),
            held={i.lease_key for i in leases if i.owner == me and not i.checkpoint_owner}
            if held is None
            else held,
            claim_grace=view.pop("claim_grace", 1000.0),
            **view,
        ),
        Random(seed),
    )


def moves(result):
    """Takes from live workers."""
    return tuple(take for take in result.takes if take.reason is TakeReason.STOLEN)


def reasons(result):
    return Counter(take.reason for take in result.takes)


def rounds(
    names_and_leases, strategy, limit=40, seed=0, lockstep=False, calm=7, draining=(), final=None, steals=None
):
    """Let all workers scan, one after the other in random order or all at once; return loads and moves.

    All workers know from the next round on which of them stand by. Workers that drain do not scan. ``final`` gets
    the table in the end.
    """
    rng = Random(seed)
    workers, table = names_and_leases
    table = dict(table)
    observers = {name: LeaseObserver(1000) for name in workers}
    moves = quiet = 0
    marks: set[str] = set()
    for number in range(limit):
        before, known, marks = moves, marks, set()
        scan = [*table.values()]
        for name in rng.sample(workers, len(workers)):
            seen = scan if lockstep else [*table.values()]
            observers[name].observe(seen, float(number))
            result = strategy.plan(
                TableView(
                    leases=seen,
                    observed=observers[name],
                    me=name,
                    now=float(number),
                    limits=TakeLimits(max_leases=NO_LIMIT, max_steals=steals),
                    held={row.lease_key for row in seen if row.owner == name},
                    claim_grace=1000.0,
                    workers=known,
                    draining=draining,
                ),
                rng,
            )
            marks |= {name} if result.put_standby_heartbeat else set()
            won = 0
            for take in result.takes:
                current = table[take.lease.lease_key]
                if won != result.most and current.counter == take.lease.counter:
                    table[current.lease_key] = replace(current, owner=name, counter=current.counter + 1)
                    won += 1
            moves += won
        # Several looks without a move: a fleet that gathers only waits.
        quiet = quiet + 1 if moves == before and marks == known else 0
        if quiet == calm:
            break
    else:
        raise AssertionError(f"no rest after {limit} rounds")
    if final is not None:
        final.update(table)
    return Counter(dict.fromkeys(workers, 0)) + Counter(row.owner for row in table.values()), moves
