"""When a producer asks about its stream, and which answer it works with."""

from __future__ import annotations

import random

import pytest

from kinesis_sdk.common.errors import ProtocolError
from kinesis_sdk.common.hashkeys import MAX_HASH_KEY
from kinesis_sdk.producer.stream.topology import StreamFacts, Topology
from tests.producer.support import shard, tiling

S0, S1, S2 = (f"shardId-{n:012d}" for n in range(3))
WHOLE = [shard(0, 0, MAX_HASH_KEY)]
HALVES = [shard(1, 0, MAX_HASH_KEY // 2), shard(2, MAX_HASH_KEY // 2 + 1, MAX_HASH_KEY)]


def loaded(now: float = 10.0, took: float = 0.1) -> Topology:
    topology = Topology(random.Random(1))
    topology.begin_load(now)
    topology.finish_load(StreamFacts(WHOLE, 1024, False), now + took)
    return topology


def test_the_first_load_is_wanted_at_once_and_only_one() -> None:
    topology = Topology(random.Random(1))
    assert topology.wants_load(0.0)
    topology.begin_load(0.0)
    assert not topology.wants_load(100.0)
    assert topology.next_load is None
    topology.finish_load(StreamFacts(WHOLE, 1024, False), 0.1)
    assert not topology.wants_load(1e9), "a map does not age by itself"
    assert topology.shard_map is not None
    assert topology.max_record_size == 1024


def test_failures_back_off_up_to_half_a_minute_and_a_success_resets() -> None:
    topology = Topology(random.Random(1))
    now, waits = 0.0, []
    for _ in range(12):
        topology.begin_load(now)
        topology.fail_load(now)
        assert topology.next_load is not None
        waits.append(topology.next_load - now)
        assert not topology.wants_load(now)
        now = topology.next_load
        assert topology.wants_load(now)
    for number, wait in enumerate(waits):
        full = min(30.0, 0.2 * 2**number)
        assert full / 2 <= wait <= full
    assert topology.failures == 12
    for _ in range(2_000):  # half a day of failures
        topology.begin_load(now)
        topology.fail_load(now)
    assert topology.next_load is not None
    assert 15.0 <= topology.next_load - now <= 30.0
    topology.begin_load(now)
    topology.finish_load(StreamFacts(WHOLE, None, False), now)
    assert topology.failures == 0


def test_the_old_map_stays_in_use_while_a_new_one_loads_and_when_that_fails() -> None:
    topology = loaded()
    old = topology.shard_map
    topology.invalidate(20.0, S1)
    topology.begin_load(20.0)
    assert topology.shard_map is old
    topology.fail_load(21.0)
    assert topology.shard_map is old
    topology.begin_load(22.0)
    with pytest.raises(ProtocolError, match="tile"):
        topology.finish_load(StreamFacts([shard(5, 7, MAX_HASH_KEY)], None, False), 22.1)
    topology.fail_load(22.1)
    assert topology.shard_map is old
    topology.begin_load(30.0)
    topology.finish_load(StreamFacts(HALVES, None, False), 30.1)
    assert topology.shard_map is not None
    assert topology.shard_map.ids == [S1, S2]
    assert topology.max_record_size == 1024, "an answer without it does not erase it"


def test_a_mismatch_in_a_request_older_than_the_map_does_not_count() -> None:
    topology = loaded(now=10.0)
    topology.invalidate(9.9, S1)
    topology.invalidate(10.0, S1)
    assert topology.next_load is None
    topology.invalidate(10.1, S1)
    assert topology.next_load is not None


def test_two_loads_are_at_least_half_a_second_apart() -> None:
    topology = loaded(now=10.0)
    topology.invalidate(10.2, S1)
    assert topology.next_load == 10.5
    topology.begin_load(10.5)
    topology.invalidate(10.6, S1)  # the load that is under way may have come too early for this one
    topology.finish_load(StreamFacts(HALVES, None, False), 10.7)
    assert topology.next_load == 11.0


def test_many_mismatches_make_one_load() -> None:
    topology = loaded(now=10.0)
    for number in range(100):
        topology.invalidate(20.0 + number / 1000, S1)
    assert topology.next_load == 10.5
    topology.begin_load(20.2)
    topology.finish_load(StreamFacts(HALVES, None, False), 20.3)
    assert topology.next_load is None


def test_without_the_permission_to_list_shards_there_is_no_map_and_no_more_loads() -> None:
    topology = Topology(random.Random(1))
    topology.begin_load(0.0)
    topology.finish_load(StreamFacts(None, 1024, False), 0.1)
    assert topology.shard_map is None
    assert topology.next_load is None
    lost = loaded(now=10.0)
    lost.invalidate(20.0, S1)
    lost.begin_load(20.0)
    lost.finish_load(StreamFacts(None, None, False), 20.1)
    assert lost.shard_map is None, "an old map that nobody may correct is worse than none"


def test_require_load_does_not_disturb_one_that_comes_or_runs() -> None:
    topology = loaded(now=10.0)
    topology.require_load()
    assert topology.next_load == 10.5
    topology.begin_load(12.0)
    topology.require_load()
    assert topology.next_load is None
    topology.fail_load(12.0)
    planned = topology.next_load
    topology.require_load()
    assert topology.next_load == planned


def test_a_recreated_stream_does_not_inherit_ranges() -> None:
    topology = loaded(now=10.0)
    topology.invalidate(20.0, S0)
    topology.begin_load(20.0)
    topology.finish_load(StreamFacts(tiling((0, 0, 99), (1, 100, MAX_HASH_KEY)), None, False), 20.1)
    assert topology.shard_map is not None
    known = topology.shard_map.range_of(S0)
    assert known is not None
    assert known.end == 99


def test_a_stream_that_is_gone_is_asked_about_anew() -> None:
    topology = loaded(now=10.0)
    topology.forget()
    assert topology.shard_map is None
    assert not topology.described
    assert topology.next_load == 10.5


def failed_often(now: float = 10.0, failures: int = 12) -> Topology:
    """A topology without a map whose last load was at ``now``."""
    topology = Topology(random.Random(1))
    for _ in range(failures):
        topology.begin_load(now)
        topology.fail_load(now)
    return topology


def test_a_request_that_the_stream_takes_cuts_the_backoff_of_failed_loads_short() -> None:
    topology = failed_often()
    backed_off = topology.next_load
    assert backed_off is not None
    assert backed_off >= 25.0
    topology.on_stream_seen(9.9)
    assert topology.next_load == backed_off, "it was on its way when that load began"
    topology.on_stream_seen(10.1)
    assert topology.next_load == 10.5
    topology.begin_load(12.0)
    topology.on_stream_seen(12.1)
    assert topology.next_load is None, "one is under way"
    topology.finish_load(StreamFacts(WHOLE, None, False), 12.2)
    topology.on_stream_seen(12.3)
    assert topology.next_load is None


def test_loads_that_fail_beside_requests_that_succeed_are_not_a_storm() -> None:
    topology = failed_often(failures=0)
    now, loads = 0.0, []
    while now < 300.0:
        if topology.wants_load(now):
            loads.append(now)
            topology.begin_load(now)
            topology.fail_load(now)
        now += 0.01
        topology.on_stream_seen(now)
    assert len(loads) < 30, "10 a minute at most, but for the pauses that begin anew once"
    loads.clear()
    topology.forget()
    while now < 330.0:
        if topology.wants_load(now):
            loads.append(now)
            topology.begin_load(now)
            topology.fail_load(now)
        now += 0.01
        topology.on_stream_seen(now)
    assert 4 < len(loads) < 12, "a stream that went missing again may be back again"


def test_an_open_shard_that_was_not_predicted_raises_the_question_who_places_records() -> None:
    topology = Topology(random.Random(1))
    topology.begin_load(10.0)
    topology.finish_load(StreamFacts(HALVES, None, False), 10.1)
    assert topology.described
    topology.invalidate(20.0, "shardId-000000000007")
    assert topology.described, "a new shard is just a reshard"
    topology.begin_load(20.0)
    topology.finish_load(StreamFacts(HALVES, None, True), 20.1)
    assert not topology.service_places, "this load had not asked"
    topology.invalidate(30.0, S2)
    assert not topology.described
    topology.begin_load(30.0)
    topology.finish_load(StreamFacts(HALVES, None, True), 30.1)
    assert topology.service_places
    assert topology.described


def placed_by_the_service(now: float = 10.0) -> Topology:
    topology = Topology(random.Random(1))
    topology.begin_load(now)
    topology.finish_load(StreamFacts(WHOLE, 1024, True), now + 0.1)
    return topology


def test_a_stream_that_places_records_itself_is_asked_rarely_whether_it_still_does() -> None:
    topology = placed_by_the_service(now=10.0)
    assert not topology.wants_load(309.9)
    assert topology.wants_load(310.0)
    topology.begin_load(310.0)
    assert topology.describing
    topology.finish_load(StreamFacts(WHOLE, 1024, True), 310.1)
    assert topology.service_places
    assert topology.next_load == 610.0
    topology.begin_load(610.0)
    topology.finish_load(StreamFacts(WHOLE, 1024, False), 610.1)
    assert not topology.service_places, "back to partition keys"
    assert topology.next_load is None
    topology.require_load()
    topology.begin_load(620.0)
    assert not topology.describing, "and never asked again"


def test_the_rare_question_does_not_put_an_urgent_load_off() -> None:
    topology = placed_by_the_service(now=10.0)
    topology.require_load()
    assert topology.next_load == 10.5
    now = 10.5
    for _ in range(6):
        topology.begin_load(now)
        topology.fail_load(now)
        backed_off = topology.next_load
        assert backed_off is not None
        now = backed_off
    topology.require_load()
    assert topology.next_load == backed_off, "nor does it cut a pause after a failure short"


def test_a_failed_question_changes_nothing() -> None:
    topology = placed_by_the_service()
    topology.begin_load(310.0)
    topology.fail_load(310.1)
    assert topology.service_places
    assert topology.wants_load(311.0)


def test_a_shard_is_predicted_only_where_hash_keys_place_records() -> None:
    key = (1).to_bytes(16, "big")
    assert Topology(random.Random(1)).predict(key) is None
    assert loaded().predict(key) == S0
    assert placed_by_the_service().predict(key) is None
