"""Generated views of fleets: from healthy ones of four shards to 1,000 shards and 200 workers, and hostile ones."""

from __future__ import annotations

from dataclasses import replace
from math import fsum
from random import Random

from kinesis_sdk.admin.command import Command
from kinesis_sdk.admin.fleet.model import (
    FleetView,
    LagReading,
    LagSource,
    LeaseState,
    LeaseView,
    Move,
    OwnerKind,
    OwnerView,
    Problem,
    Severity,
    Totals,
)
from kinesis_sdk.common.sequence import ExtendedSequenceNumber

AT = 1_700_000_000.0
"""2023-11-14 22:13:20 UTC."""
HOSTILE = "[red]zone[/]|\x1b[31mevil\x07\u202eweb\n01:[bold"
"""A worker id with markup, terminal sequences, a change of direction and a line break."""


def make_view(
    *,
    shards: int = 12,
    workers: int = 3,
    seed: int = 1,
    problems: int = 0,
    moves: int = 0,
    unowned: int = 0,
    silent: int = 0,
    names: tuple[str, ...] = (),
) -> FleetView:
    """A fleet with made-up lags; the same for the same arguments."""
    rng = Random(seed)
    ids = [
        names[number]
        if number < len(names)
        else f"zone-{'abc'[number % 3]}|web{number:02}:{1000 + 37 * number}"
        for number in range(workers)
    ]
    ids.sort()
    leases = []
    for number in range(shards):
        owner = None if number < unowned else ids[number % workers] if workers else None
        lag = int(rng.lognormvariate(7, 1.5))
        is_silent = owner is not None and ids.index(owner) < silent
        leases.append(
            LeaseView(
                lease_key=f"shardId-{number:012}",
                shard_id=f"shardId-{number:012}",
                state=LeaseState.UNOWNED
                if owner is None
                else LeaseState.SILENT
                if is_silent
                else LeaseState.HELD,
                owner=owner,
                kind=None if owner is None else OwnerKind.SDK,
                counter=1000 + number,
                checkpoint=ExtendedSequenceNumber(str(49_600_000 + number), 0),
                throughput_kbps=round(rng.uniform(1, 900), 1),
                renewed_ago=60.0 if is_silent else 1.5,
                checkpointed_ago=float(number % 7),
                lag=None
                if number % 11 == 10
                else LagReading(millis=lag, age=float(number % 30), source=LagSource.PROBE),
                trend=tuple(lag // (one + 1) for one in reversed(range(20))),
                retention_left=86_400 - lag / 1000,
            )
        )
    owners = []
    for place, worker_id in enumerate(ids):
        own = [lease for lease in leases if lease.owner == worker_id]
        known = [lease.lag.millis for lease in own if lease.lag]
        owners.append(
            OwnerView(
                worker_id=worker_id,
                group=worker_id.split("|")[0] if "|" in worker_id else None,
                kind=list(OwnerKind)[place % 3],
                lease_keys=tuple(lease.lease_key for lease in own),
                silent_for=48.0 if place < silent else None,
                worst_lag_millis=max(known, default=None),
                throughput_kbps=fsum(lease.throughput_kbps or 0.0 for lease in own),
                trend=max((lease.trend for lease in own), default=()),
            )
        )
    measured = [(lease.lag.millis, lease.shard_id) for lease in leases if lease.lag]
    return FleetView(
        application="billing",
        streams=("orders",),
        at=AT,
        watched=125.0,
        table_age=1.0,
        retention=86_400.0,
        totals=Totals(
            leases=shards,
            unowned=unowned,
            owners=workers - silent,
            silent_owners=silent,
            measured=len(measured),
            worst_lag_millis=max(measured)[0] if measured else None,
            worst_shard=max(measured)[1] if measured else None,
            behind_a_minute=sum(millis > 60_000 for millis, _ in measured),
            moves=moves,
        ),
        problems=tuple(
            Problem(
                code=("near-horizon", "handler", "silent-owner", "hot-shard")[number % 4],
                severity=Severity.ERROR if number % 4 < 3 else Severity.WARNING,
                title=("near the horizon", "handler", "silent owner", "hot shard")[number % 4],
                text=f"{22 - number % 20} h 40 min behind, retention 24 h: loses records in 1 h 20 min",
                remedy="Find out why, and raise the retention meanwhile.",
                command=Command.of("explain", application="billing", shard=leases[number % shards].lease_key),
                lease_key=leases[number % shards].lease_key,
                shard_id=leases[number % shards].shard_id,
                owner=leases[number % shards].owner,
            )
            for number in range(problems)
        ),
        owners=tuple(owners),
        leases=tuple(leases),
        moves=tuple(
            Move(
                at=AT - 17 * number,
                lease_key=leases[number % shards].lease_key,
                shard_id=leases[number % shards].shard_id,
                before=ids[number % workers],
                after=ids[(number + 1) % workers],
                reason=("handoff", "expired", "taken")[number % 3],
                idle=0.9 + number,
            )
            for number in range(moves)
        ),
        calls_per_minute={"Scan": 30, "ListShards": 1, "DescribeStreamSummary": 1, "GetRecords": 15},
    )


def later(view: FleetView, seconds: float, seed: int) -> FleetView:
    """The same fleet some seconds later, with other lags."""
    rng = Random(seed)
    return replace(
        view,
        at=view.at + seconds,
        watched=view.watched + seconds,
        leases=tuple(
            replace(
                lease,
                lag=LagReading(millis=int(rng.lognormvariate(7, 1.5)), age=1.0, source=LagSource.PROBE),
            )
            for lease in view.leases
        ),
        owners=tuple(replace(owner, worst_lag_millis=int(rng.lognormvariate(8, 2))) for owner in view.owners),
    )
