"""A healthy fleet, and a scene for each code of a problem that makes a fleet have it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from kinesis_sdk.admin.applications import StreamFacts
from kinesis_sdk.admin.fleet.lag import LagProbeResult
from kinesis_sdk.admin.fleet.model import FleetView
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.sequence import AT_TIMESTAMP, LATEST, SHARD_END, ExtendedSequenceNumber
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.consumer.leases.table.progress import Failing, Progress
from tests.admin.fleet.rows import Fleet, even_shards, shard_id


def healthy(shards: int = 4, **options: object) -> Fleet:
    """Return a fleet of two workers that renew, are at the tip, and were watched for a while."""
    fleet = Fleet(shards, **options)  # type: ignore[arg-type]
    half = shards // 2
    fleet.take("a|1", *range(half))
    fleet.take("b|2", *range(half, shards))
    fleet.scan()
    fleet.observer.observe_stream(None, StreamFacts(name="orders", retention=86_400.0), fleet.now)
    pass_time(fleet, 40)
    return fleet


def pass_time(fleet: Fleet, seconds: float, but: tuple[str, ...] = (), *, behind: int = 0) -> FleetView:
    """Let workers renew each five seconds, except for those named."""
    view = fleet.view()
    for _ in range(round(seconds / 5)):
        for worker in {row.holder for row in fleet.rows.values()} - {None, *but}:
            assert worker is not None
            fleet.renew(worker)
        for row in list(fleet.rows.values()):
            if (
                row.holder is not None
                and row.holder not in but
                and not row.is_finished
                and row.progress is None
            ):
                fleet.observer.observe_lag(row.lease_key, LagProbeResult(millis=behind), fleet.now)
        view = fleet.scan(5)
    return view


def set_position(fleet: Fleet, number: int, name: str) -> None:
    fleet.change(number, checkpoint=ExtendedSequenceNumber(name))


def silent(fleet: Fleet) -> FleetView:
    return pass_time(fleet, 20, but=("a|1",))


def stopped(fleet: Fleet) -> FleetView:
    for number in range(4):
        fleet.release(number)
    return pass_time(fleet, 5)


def unowned(fleet: Fleet) -> FleetView:
    fleet.release(1)
    return pass_time(fleet, 40)


def no_lease(fleet: Fleet) -> FleetView:
    fleet.shards = [*fleet.shards, Shard(shard_id(9), HashKeyRange(0, 5), starting_sequence_number="9000")]
    return pass_time(fleet, 70)


def hole(fleet: Fleet) -> FleetView:
    fleet.checkpoint(2, SHARD_END)
    fleet.shards[2] = replace(fleet.shards[2], ending_sequence_number="9")
    return pass_time(fleet, 70)


def handler(fleet: Fleet) -> FleetView:
    fleet.change(0, progress=Progress(500, None, 70_000, "a|1"))
    return pass_time(fleet, 5)


def unreadable(fleet: Fleet) -> FleetView:
    del fleet.rows[shard_id(3)]
    fleet.unreadable = {shard_id(3): "its parents cannot be read"}
    return pass_time(fleet, 5)


def no_timestamp(fleet: Fleet) -> FleetView:
    set_position(fleet, 0, AT_TIMESTAMP)
    return pass_time(fleet, 5)


def latest(fleet: Fleet) -> FleetView:
    set_position(fleet, 0, LATEST)
    fleet.release(0)
    return pass_time(fleet, 5)


def handoff(fleet: Fleet) -> FleetView:
    fleet.request(0, "b|2")
    return pass_time(fleet, 70)


def waits(fleet: Fleet) -> FleetView:
    fleet.change(1, parent_shard_ids=(shard_id(0),))
    return pass_time(fleet, 310)


def cycle(fleet: Fleet) -> FleetView:
    fleet.change(0, parent_shard_ids=(shard_id(1),))
    fleet.change(1, parent_shard_ids=(shard_id(0),))
    return pass_time(fleet, 5)


def no_checkpoint(fleet: Fleet) -> FleetView:
    return pass_time(fleet, 130, behind=200_000)


def growing(fleet: Fleet) -> FleetView:
    for second in range(0, 120, 5):
        fleet.checkpoint(0, str(5000 + second))
        fleet.observer.observe_lag(shard_id(0), LagProbeResult(millis=60_000 + 900 * second), fleet.now)
        for number in (1, 2, 3):
            fleet.checkpoint(number, str(5000 + second))
        fleet.scan(5)
    return fleet.view()


def hot(fleet: Fleet) -> FleetView:
    fleet.change(0, throughput_kbps=1010.0)
    return pass_time(fleet, 5)


def near_horizon(fleet: Fleet) -> FleetView:
    fleet.observer.observe_lag(shard_id(0), LagProbeResult(millis=81_600_000), fleet.now)
    return fleet.view()


def horizon_soon(fleet: Fleet) -> FleetView:
    fleet.observer.observe_lag(shard_id(0), LagProbeResult(millis=70_000_000), fleet.now)
    return fleet.view()


def trimmed(fleet: Fleet) -> FleetView:
    fleet.observer.observe_lag(shard_id(0), LagProbeResult(millis=86_390_000, trimmed=True), fleet.now)
    return fleet.view()


def foreign(fleet: Fleet) -> FleetView:
    fleet._put(replace(fleet[0], lease_key="someone-else", hash_key_range=HashKeyRange(0, 5)))
    return pass_time(fleet, 5)


def misfit(fleet: Fleet) -> FleetView:
    fleet.checkpoint(0, "5000")
    fleet._put(replace(fleet[1], lease_key=shard_id(777)))
    return pass_time(fleet, 10)


def expired(fleet: Fleet) -> FleetView:
    fleet.shards = even_shards(4, first=4)
    for shard in fleet.shards:
        fleet._put(replace(fleet[0], lease_key=shard.shard_id, hash_key_range=shard.hash_key_range))
    for number in (1, 2, 3):
        del fleet.rows[shard_id(number)]
    return pass_time(fleet, 10)


def damaged(fleet: Fleet) -> FleetView:
    fleet.change(0, damaged=("throughputKBps",))
    return pass_time(fleet, 5)


def throttled(fleet: Fleet) -> FleetView:
    fleet.observer.observe_calls({"Scan": 5}, throttled=2)
    return fleet.view()


def wrong_clock(fleet: Fleet) -> FleetView:
    fleet.observer.observe_calls({}, skew=-5.0)
    return fleet.view()


def unbalanced(fleet: Fleet) -> FleetView:
    fleet.take("a|1", 2)
    fleet.take("b|2", 3)
    fleet.change(1, standby_heartbeats={"c|3": 1})
    fleet.scan()
    for worker in ("a|1", "b|2"):
        fleet.take(worker, *range(4))
    for beat in range(2, 6):
        fleet.change(1, standby_heartbeats={"c|3": beat})
        pass_time(fleet, 5)
    return fleet.view()


def fails(fleet: Fleet) -> FleetView:
    failing = Failing(3, 4_000, 500, 1, ExtendedSequenceNumber("5"), "KeyError: 'price'")
    fleet.change(0, progress=Progress(4_000, None, None, "a|1", failing))
    fleet.renew("a|1")
    fleet.scan(1)
    return fleet.view()


def behind(fleet: Fleet) -> FleetView:
    fleet.observer.observe_lag(shard_id(0), LagProbeResult(millis=61_000), fleet.now)
    return fleet.view()


def recreated_table(fleet: Fleet) -> FleetView:
    fleet.rows = {key: replace(row, counter=1) for key, row in fleet.rows.items()}
    return pass_time(fleet, 5, but=("a|1", "b|2")) and pass_time(fleet, 15, but=("a|1", "b|2"))


def recreated_stream(fleet: Fleet) -> FleetView:
    fleet.observer.observe_stream(None, StreamFacts(name="orders", created=1.0), fleet.now)
    fleet.observer.observe_stream(None, StreamFacts(name="orders", created=2.0), fleet.now)
    return pass_time(fleet, 5)


def missing_stream(fleet: Fleet) -> FleetView:
    fleet.observer.observe_stream(None, None, fleet.now)
    return fleet.view()


def forgetful_tier(fleet: Fleet) -> FleetView:
    fleet.observer.observe_stream(None, StreamFacts(name="orders.retry-86400", retention=86_400.0), fleet.now)
    return fleet.view()


SCENES: dict[str, Callable[[Fleet], FleetView]] = {
    "silent-owner": silent,
    "stopped": stopped,
    "unowned": unowned,
    "no-lease": no_lease,
    "hole": hole,
    "handler": handler,
    "unreadable-row": unreadable,
    "no-timestamp": no_timestamp,
    "latest-unpinned": latest,
    "handoff-stuck": handoff,
    "parent-unfinished": waits,
    "parent-cycle": cycle,
    "no-checkpoint": no_checkpoint,
    "falling-behind": growing,
    "behind": behind,
    "handler-fails": fails,
    "hot-shard": hot,
    "near-horizon": near_horizon,
    "horizon-soon": horizon_soon,
    "trimmed": trimmed,
    "tier-forgets": forgetful_tier,
    "foreign-row": foreign,
    "misfit-row": misfit,
    "shard-expired": expired,
    "damaged-row": damaged,
    "table-throttled": throttled,
    "clock-skew": wrong_clock,
    "unbalanced": unbalanced,
    "table-recreated": recreated_table,
    "stream-recreated": recreated_stream,
    "stream-missing": missing_stream,
}


@cache
def view_of(code: str) -> FleetView:
    """Return a view of the fleet that has a problem, which is made once for all tests that look at it."""
    return SCENES[code](healthy())
