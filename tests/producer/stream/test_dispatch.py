"""Dispatch policies: when the head of a lane may leave, and what comes back for what was sent."""

from __future__ import annotations

import random

import pytest

from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.producer.stream.dispatch import NEVER, CallPause, InFlightLimit, Lane, Returned
from kinesis_sdk.producer.stream.ordered import OneInFlight, ReshardBarrier
from tests.producer.simulation import Simulation
from tests.producer.stream.schedules import play
from tests.producer.support import make_entry, shard_map

HALF = 2**127
S0, S1 = "shardId-000000000000", "shardId-000000000001"


def no_load() -> None:
    raise AssertionError("no shard map is needed")


def test_a_lane_waits_for_the_latest_moment_of_its_policies() -> None:
    pause = CallPause(random.Random(0))
    limit = InFlightLimit(1, 500)
    lane = Lane((limit, pause))
    assert lane.next_event(0.0) is None
    lane.add(make_entry(expires=30.0))
    pause.until = 2.0
    assert lane.next_event(1.0) == 2.0
    assert list(lane.release(1.0)) == []
    (entry,) = lane.release(2.0)
    limit.on_request([entry])
    lane.add(make_entry(expires=30.0))
    assert lane.next_event(2.0) == 30.0, "only the response lets it leave; until then it can expire"
    limit.on_returned(entry, Returned.STORED, None)
    assert lane.next_event(2.0) == 2.0


def test_an_entry_passes_an_empty_lane_if_all_policies_allow_it() -> None:
    pause, limit = CallPause(random.Random(0)), InFlightLimit(1, 1)
    lane = Lane((limit, pause))
    first, second = make_entry(), make_entry()
    assert lane.passes(first, 1.0)
    assert first.dispatched
    assert limit.outstanding == 2, "the policies were told"
    assert not lane.passes(second, 1.0), "one policy refuses"
    limit.on_returned(first, Returned.STORED, None)
    pause.until = 2.0
    assert not lane.passes(second, 1.0), "the other one refuses"
    lane.not_before = 3.0
    assert not lane.passes(second, 2.0), "the lane waits"
    lane.add(second)
    assert not lane.passes(make_entry(), 3.0), "another entry waits before it"
    assert not second.dispatched
    assert limit.outstanding == 0


@pytest.mark.parametrize("seed", [11_751, 12_558])
def test_entries_that_return_to_an_empty_lane_do_not_bring_back_an_old_expiry(seed: int) -> None:
    # Seeds in which `next_event` was in the past afterwards.
    play(seed, limit=1).check()


def test_entries_share_a_request_until_it_is_cut() -> None:
    limit = InFlightLimit(1, 3)
    entries = [make_entry() for _ in range(4)]
    for entry in entries[:3]:
        assert limit.may_send(entry, 5.0) == 5.0
        limit.on_sent(entry, 5.0)
    assert limit.may_send(entries[3], 5.0) == NEVER, "a request takes three"
    limit.on_request(entries[:2])
    assert not limit.admits(entries[2]), "another request is in flight"
    limit.on_returned(entries[2], Returned.WITHDRAWN, None)
    assert limit.may_send(entries[3], 5.0) == NEVER
    limit.on_returned(entries[0], Returned.RETRY, None)
    assert limit.may_send(entries[3], 5.0) == NEVER, "the request is not over"
    limit.on_returned(entries[1], Returned.DEFERRED, S0)
    assert limit.may_send(entries[3], 5.0) == 5.0, "the call is over, whatever becomes of the entry"
    limit.on_returned(entries[1], Returned.STORED, None)
    assert limit.outstanding == 0


def test_shards_have_a_limit_each_and_unknown_shards_have_none() -> None:
    limit = InFlightLimit(1, 500)
    here, there, anywhere = make_entry(shard_id=S0), make_entry(shard_id=S1), make_entry(shard_id=None)
    limit.on_sent(here, 0.0)
    limit.on_sent(anywhere, 0.0)
    limit.on_request([here, anywhere])
    assert not limit.admits(make_entry(shard_id=S0))
    assert limit.may_send(there, 0.0) == 0.0
    assert limit.may_send(make_entry(shard_id=None), 0.0) == 0.0


@pytest.mark.parametrize("how", list(Returned))
def test_a_lane_is_busy_until_the_final_result_of_its_entry(how: Returned) -> None:
    policy = OneInFlight()
    entry, next_one, elsewhere = make_entry(), make_entry(), make_entry(shard_id=S1)
    policy.on_sent(entry, 0.0)
    assert policy.may_send(next_one, 0.0) == NEVER
    assert policy.may_send(elsewhere, 0.0) == 0.0
    policy.on_returned(next_one, Returned.EXPIRED, None)
    assert policy.outstanding == 1, "it was not on its way"
    policy.on_returned(entry, how, None)
    assert policy.outstanding == (0 if how.is_final else 1)


def test_lanes_stop_until_what_the_old_map_sent_is_back() -> None:
    barrier = ReshardBarrier(no_load)
    old, kept = make_entry(shard_id=S0), make_entry(shard_id=S1, hash_keys=(HALF + 1,))
    waiting = make_entry(shard_id="shardId-000000000002")
    # Shard 0 was split into 2 and 3; shard 1 is as before.
    after = shard_map((2, 0, HALF // 2 - 1), (3, HALF // 2, HALF - 1), (1, HALF, 2 * HALF - 1))
    barrier.on_shard_map(after, [old, kept])
    assert barrier.outstanding == 1
    barrier.on_regrouped()
    assert barrier.may_send(waiting, 0.0) == NEVER
    barrier.on_returned(old, Returned.DEFERRED, None)
    barrier.resume(reloaded=False)
    assert barrier.may_send(waiting, 0.0) == NEVER
    barrier.on_returned(old, Returned.RETRY, None)
    assert barrier.may_send(waiting, 0.0) == NEVER, "other entries of the same response are not handled yet"
    barrier.resume(reloaded=False)
    assert barrier.may_send(waiting, 0.0) == 0.0


def test_a_shard_that_turned_out_to_be_closed_waits_for_a_map() -> None:
    loads: list[None] = []
    barrier = ReshardBarrier(lambda: loads.append(None))
    entry, behind = make_entry(shard_id=S0), make_entry(shard_id=S0)
    barrier.on_returned(entry, Returned.STORED, S1)
    barrier.resume(reloaded=False)
    assert len(loads) == 1
    assert barrier.may_send(behind, 0.0) == NEVER
    assert barrier.may_send(make_entry(shard_id=S1), 0.0) == 0.0
    barrier.resume(reloaded=True)
    assert barrier.may_send(behind, 0.0) == 0.0


def simulation(
    limit: int | None, *, collection_max_count: int = 2, aggregation_max_count: int = 1
) -> Simulation:
    config = ProducerConfig(
        record_max_buffered_time=0.0,
        max_inflight_requests_per_shard=limit,
        collection_max_count=collection_max_count,
        aggregation_max_count=aggregation_max_count,
    )
    made = Simulation(config, shards=1, latency=0.05, throttle=False)
    made.warm()
    return made


@pytest.mark.parametrize("limit", [None, 1, 3])
def test_so_many_requests_of_a_shard_are_in_flight_and_no_more(limit: int | None) -> None:
    made = simulation(limit)
    for number in range(40):
        made.put(f"k{number}", b"%d" % number)
    most = 0
    send = made._send

    def counted(batch: object) -> None:
        nonlocal most
        send(batch)
        most = max(most, *made.requests_of.values())

    made._send = counted  # type: ignore[method-assign]
    made.finish()
    assert most == (20 if limit is None else limit)


def test_rejected_requests_and_aggregates_are_divided_within_the_limit() -> None:
    made = simulation(1, collection_max_count=500, aggregation_max_count=4)
    made.refuse(lambda records: any(b"bad" in record["Data"] for record in records))
    for number in range(16):
        made.put(f"k{number}", b"%s %d" % (b"bad" if number in {1, 7} else b"good", number))
    made.finish()
    assert len(made.requests) > 5
    failed = [data for record, data in zip(made.records, made.payloads, strict=True) if record.exception(0)]
    assert failed == [b"bad 1", b"bad 7"]
