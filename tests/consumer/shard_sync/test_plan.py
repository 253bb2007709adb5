from __future__ import annotations

from datetime import datetime, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.common.errors import ProtocolError
from kinesis_sdk.common.hashkeys import MAX_HASH_KEY, HashKeyRange
from kinesis_sdk.common.sequence import AT_TIMESTAMP, LATEST, SHARD_END, TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.common.shards import ShardGraph
from kinesis_sdk.consumer.leases import InMemoryLeaseStore, Lease
from kinesis_sdk.consumer.shard_sync import (
    ChildLeases,
    bootstrap_filter,
    needs_listing,
    plan_bootstrap,
    plan_bootstrap_from_all,
    plan_children,
    plan_cleanup,
    plan_sync,
)
from tests.consumer.shard_sync.shards import shard
from tests.fuzz import how_many

# The example of the KCL's lease life cycle document: three epochs, of which the last one is open.
#   0 1 2 3 4 5     until 102
#    6   7  4 5     103 - 205
#      8    4 9 10  from 206
EXAMPLE = [
    *(shard(n, closed=True, start=1) for n in (0, 1, 2, 3)),
    shard(4, start=1),
    shard(5, closed=True, start=1),
    shard(6, (0, 1), closed=True, start=103),
    shard(7, (2, 3), closed=True, start=103),
    shard(8, (6, 7), start=206),
    shard(9, (5,), start=206),
    shard(10, (5,), start=206),
]


def leases_of(*numbers, checkpoint="500"):
    return [Lease(lease_key=f"s{n}", checkpoint=ExtendedSequenceNumber(checkpoint)) for n in numbers]


def made(plan):
    return [(lease.lease_key, lease.checkpoint.sequence_number) for lease in plan]


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (LATEST, [("s6", LATEST)]),
        (TRIM_HORIZON, [("s0", TRIM_HORIZON), ("s1", TRIM_HORIZON)]),
        (AT_TIMESTAMP, [("s0", AT_TIMESTAMP), ("s1", AT_TIMESTAMP)]),
    ],
)
def test_the_documented_example(position, expected):
    assert made(plan_sync(EXAMPLE, leases_of(4, 5, 7), position)) == expected


def test_without_lineage_open_shards_start_at_latest():
    assert made(plan_sync(EXAMPLE, leases_of(4), LATEST)) == [("s10", LATEST), ("s8", LATEST), ("s9", LATEST)]


def test_from_the_horizon_only_the_oldest_generation_is_created():
    plan = plan_sync(EXAMPLE, [], TRIM_HORIZON)
    assert {key for key, _ in made(plan)} == {f"s{n}" for n in (0, 1, 2, 3, 4, 5)}


def test_a_complete_table_needs_nothing():
    for position in (LATEST, TRIM_HORIZON, AT_TIMESTAMP):
        assert plan_sync(EXAMPLE, leases_of(4, 8, 9, 10), position) == []
        assert plan_sync(EXAMPLE, leases_of(4, 5, 6, 7), position) == []


def test_missing_children_of_a_finished_shard_start_at_trim_horizon():
    leases = leases_of(4, 6, 7) + leases_of(5, checkpoint=SHARD_END)
    for position in (LATEST, TRIM_HORIZON, AT_TIMESTAMP):
        assert made(plan_sync(EXAMPLE, leases, position)) == [("s10", TRIM_HORIZON), ("s9", TRIM_HORIZON)]


def test_a_merged_child_waits_for_both_parents():
    leases = leases_of(4, 5, 6) + leases_of(7, checkpoint=SHARD_END)
    assert plan_sync(EXAMPLE, leases, LATEST) == []


def test_parents_that_are_no_longer_listed_do_not_count():
    assert made(plan_sync([shard(8, (6, 7))], leases_of(1), TRIM_HORIZON)) == [("s8", TRIM_HORIZON)]


def test_an_open_child_of_an_open_parent_is_an_inconsistent_listing():
    with pytest.raises(ProtocolError, match=r"s1 .* s0 is open"):
        plan_sync([shard(0), shard(1, (0,))], [], LATEST)


@pytest.mark.parametrize("position", [LATEST, TRIM_HORIZON])
def test_an_open_grandparent_is_an_inconsistent_listing(position):
    """Shard 3 is listed as of before its split, its grandchild 8 as of after the next reshard."""
    torn = [shard(3, start=1), shard(7, (3,), closed=True, start=103), shard(8, (7,), start=206)]
    with pytest.raises(ProtocolError, match=r"s7 .* s3 is open"):
        plan_sync(torn, [], position)


def test_a_created_lease_carries_range_and_parents():
    (lease,) = plan_sync([shard(8, (7, 6), low=3, high=9)], leases_of(1), LATEST)
    assert lease.parent_shard_ids == ("s6", "s7")
    assert lease.hash_key_range == HashKeyRange(3, 9)
    assert (lease.counter, lease.owner) == (0, None)


HALF = MAX_HASH_KEY // 2


def test_bootstrap_covers_the_whole_space():
    shards = [shard(1, low=HALF + 1, high=MAX_HASH_KEY, start=5), shard(0, low=0, high=HALF, start=5)]
    assert made(plan_bootstrap(shards, LATEST)) == [("s0", LATEST), ("s1", LATEST)]
    with pytest.raises(ProtocolError, match="uncovered"):
        plan_bootstrap(shards[:1], LATEST)


def test_bootstrap_at_latest_leaves_closed_shards_out():
    shards = [
        shard(0, low=0, high=MAX_HASH_KEY, closed=True),
        shard(1, (0,), low=0, high=HALF),
        shard(2, (0,), low=HALF + 1, high=MAX_HASH_KEY),
    ]
    assert [key for key, _ in made(plan_bootstrap(shards, LATEST))] == ["s1", "s2"]
    assert len(plan_bootstrap(shards, TRIM_HORIZON)) == 3


def test_bootstrap_from_a_complete_listing():
    shards = [
        shard(0, low=0, high=MAX_HASH_KEY, closed=True),
        shard(1, (0,), low=0, high=HALF),
        shard(2, (0,), low=HALF + 1, high=MAX_HASH_KEY),
    ]
    assert made(plan_bootstrap_from_all(shards, AT_TIMESTAMP)) == [("s0", AT_TIMESTAMP)]
    with pytest.raises(ProtocolError, match="uncovered"):
        plan_bootstrap_from_all(shards[:2], TRIM_HORIZON)


def test_bootstrap_filters():
    moment = datetime(2026, 1, 1, tzinfo=timezone.utc)
    assert bootstrap_filter(LATEST, None) == {"Type": "AT_LATEST"}
    assert bootstrap_filter(TRIM_HORIZON, None) == {"Type": "AT_TRIM_HORIZON"}
    assert bootstrap_filter(AT_TIMESTAMP, moment) == {"Type": "AT_TIMESTAMP", "Timestamp": moment}


@st.composite
def histories(draw):
    """A stream's shards after random splits and merges of unit ranges."""
    width = 8
    live = [(0, width - 1, 0)]
    shards = {0: shard(0, low=0, high=width - 1)}
    for moment in range(1, draw(st.integers(1, 12))):
        number = len(shards)
        index = draw(st.integers(0, len(live) - 1))
        low, high, parent = live[index]
        if draw(st.booleans()) and low < high:
            middle = draw(st.integers(low, high - 1))
            shards[parent] = shard(
                parent, _parents(shards[parent]), closed=True, start=_start(shards[parent])
            )
            for part, (_a, _b) in enumerate([(low, middle), (middle + 1, high)]):
                shards[number + part] = shard(number + part, (parent,), start=moment)
            live[index : index + 1] = [(low, middle, number), (middle + 1, high, number + 1)]
        elif index + 1 < len(live):
            other = live[index + 1][2]
            for old in (parent, other):
                shards[old] = shard(old, _parents(shards[old]), closed=True, start=_start(shards[old]))
            shards[number] = shard(number, (parent, other), start=moment)
            live[index : index + 2] = [(low, live[index + 1][1], number)]
    return list(shards.values())


def _parents(item):
    return tuple(int(parent[1:]) for parent in item.parents)


def _start(item):
    return int(item.starting_sequence_number)


@pytest.mark.fuzz
@settings(max_examples=how_many(unit=25, fuzz=1500))
@given(histories(), st.sampled_from([LATEST, TRIM_HORIZON, AT_TIMESTAMP]), st.data())
def test_every_open_shard_is_covered_and_processing_reaches_it(shards, position, data):
    """Whatever leases exist: after the plan, finishing shards one by one reaches every open shard."""
    graph = ShardGraph(shards)
    have = data.draw(st.sets(st.sampled_from(sorted(graph.shards)), max_size=4))
    leases = {key: leases_of(key[1:])[0] for key in have}
    plan = plan_sync(shards, leases.values(), position)
    assert not {lease.lease_key for lease in plan} & have
    order = [(_start(graph.shards[lease.lease_key]), lease.lease_key) for lease in plan]
    assert order == sorted(order)
    leases.update({lease.lease_key: lease for lease in plan})
    for shard_id in graph.shards:
        # A shard that ends creates its children, unless a merge's other parent has no lease yet.
        for _ in range(len(graph.shards)):
            for key in list(leases):
                for child in graph.children(key):
                    if all(parent in leases for parent in graph.parents(child)):
                        leases.setdefault(child, leases_of(child[1:])[0])
            for lease in plan_sync(shards, leases.values(), position):
                leases.setdefault(lease.lease_key, lease)
        if graph.shards[shard_id].is_open:
            assert shard_id in leases


def finished(number, children=(), parents=()):
    return Lease(
        lease_key=f"s{number}",
        checkpoint=ExtendedSequenceNumber(SHARD_END),
        child_shard_ids=tuple(f"s{c}" for c in children),
        parent_shard_ids=tuple(f"s{p}" for p in parents),
    )


def child(number, checkpoint, parents):
    return Lease(
        lease_key=f"s{number}",
        checkpoint=ExtendedSequenceNumber(checkpoint),
        parent_shard_ids=tuple(f"s{p}" for p in parents),
    )


@pytest.mark.parametrize("standing", [TRIM_HORIZON, LATEST, AT_TIMESTAMP])
def test_a_parent_stays_until_every_child_moved(standing):
    parent = finished(0, (1, 2))
    assert plan_cleanup([parent, child(1, "5", (0,))]) == []
    assert plan_cleanup([parent, child(1, "5", (0,)), child(2, standing, (0,))]) == []
    assert plan_cleanup([parent, child(1, "5", (0,)), child(2, SHARD_END, (0,))]) == ["s0"]


def test_a_grandparent_is_deleted_first():
    rows = [finished(0, (1,)), finished(1, (2,), (0,)), child(2, "5", (1,))]
    assert plan_cleanup(rows) == ["s0"]
    assert plan_cleanup(rows[1:]) == ["s1"]


def test_a_shard_without_children_is_deleted_once_it_is_no_longer_listed():
    assert needs_listing([finished(0)])
    assert not needs_listing([finished(0, (1,)), child(1, "4", (0,))])
    assert plan_cleanup([finished(0)]) == []
    assert plan_cleanup([finished(0)], {"s0"}) == []
    assert plan_cleanup([finished(0)], {"s1"}) == ["s0"]
    assert plan_cleanup([finished(2)], {"s0", "s1"}) == [], "the listing is behind"
    assert plan_cleanup([child(1, "4", ())], set()) == []


def test_idle_children_do_not_keep_a_shard_that_is_no_longer_listed():
    rows = [finished(0, (1, 2)), child(1, TRIM_HORIZON, (0,)), child(2, TRIM_HORIZON, (0,))]
    assert not needs_listing(rows)
    assert needs_listing(rows, garbage=True)
    assert not needs_listing(rows[1:], garbage=True)
    assert plan_cleanup(rows) == []
    assert plan_cleanup(rows, {"s0", "s1", "s2"}) == []
    assert plan_cleanup(rows, {"s1", "s2"}) == ["s0"]
    assert plan_cleanup(rows[:2], {"s1", "s2"}) == [], "the other child's lease has to be created first"
    assert plan_cleanup(rows[:2], {"s1"}) == ["s0"]


class Ending:
    def __init__(self, *listed):
        self.store = InMemoryLeaseStore()
        self.syncs = 0
        self.children = ChildLeases(self.store, lambda: list(listed), self.sync)

    def sync(self):
        self.syncs += 1


def test_the_end_of_a_split_shard():
    ending = Ending()
    ending.store.create_if_absent(finished(0))
    assert ending.children.create("s0", [shard(2, (0,)), shard(1, (0,))])
    assert ending.store.get("s0").child_shard_ids == ("s1", "s2")
    assert ending.store.get("s1").checkpoint == ExtendedSequenceNumber(TRIM_HORIZON)
    assert ending.children.create("s0", [shard(2, (0,)), shard(1, (0,))]), "again after a crash"


def test_a_merge_waits_until_the_other_parent_has_a_lease():
    ending = Ending(shard(0, closed=True), shard(1, closed=True))
    ending.store.create_if_absent(finished(0))
    merged = shard(2, (0, 1))
    assert not ending.children.create("s0", [merged])
    assert ending.syncs == 1
    assert ending.store.get("s2") is None
    ending.store.create_if_absent(child(1, "5", ()))
    assert ending.children.create("s0", [merged])
    assert ending.store.get("s2") is not None


def test_a_merge_does_not_wait_for_a_parent_that_was_trimmed_or_is_done():
    ending = Ending(shard(0, closed=True), shard(2, (0, 1)))
    ending.store.create_if_absent(finished(0))
    assert ending.children.create("s0", [shard(2, (0, 1))])
    again = Ending(shard(0, closed=True), shard(1, closed=True))
    again.store.create_if_absent(finished(0))
    again.store.create_if_absent(child(2, "7", (0, 1)))
    assert again.children.create("s0", [shard(2, (0, 1))])


def test_a_merge_waits_for_a_parent_that_a_listing_does_not_show_yet():
    behind = Ending(shard(0))
    behind.store.create_if_absent(finished(0))
    assert not behind.children.create("s0", [shard(2, (0, 1))])
    assert behind.store.get("s2") is None


def test_a_child_that_was_finished_and_deleted_gets_no_lease_again():
    """An operator put s0 back. Its child s2 was read, and s2's child s3 is; s1, the other parent of s2, is gone as well."""
    listed = [shard(0, closed=True), shard(1, closed=True), shard(2, (0, 1), closed=True), shard(3, (2,))]
    ending = Ending(*listed)
    ending.store.create_if_absent(child(0, "5", ()))
    ending.store.create_if_absent(child(3, "7", (2,)))
    assert ending.children.create("s0", [listed[2]], heirs=("s3",))
    assert ending.store.get("s2") is None
    assert ending.syncs == 0
    assert ending.store.get("s0").child_shard_ids == ("s3",), (
        "cleanup waits for the one that is read in its place"
    )


def test_an_end_that_is_repeated_creates_the_children_that_are_missing():
    """The worker died after it had stored the ids; the lease of s2 was damaged and removed since."""
    listed = [shard(0, closed=True), shard(1, (0,)), shard(2, (0,))]
    ending = Ending(*listed)
    ending.store.create_if_absent(child(0, "5", ()))
    ending.store.create_if_absent(child(1, "7", (0,)))
    assert ending.children.create("s0", listed[1:], heirs=("s1", "s2"))
    assert ending.store.get("s2").checkpoint == ExtendedSequenceNumber(TRIM_HORIZON)
    assert ending.store.get("s1").checkpoint != ExtendedSequenceNumber(TRIM_HORIZON)


def test_a_merge_does_not_wait_for_a_parent_that_was_read_before():
    """An import put s0 back. The leases of s1 and of the merged s2 were deleted; s2's child s3 is read."""
    listed = [shard(0, closed=True), shard(1, closed=True), shard(2, (0, 1), closed=True), shard(3, (2,))]
    ending = Ending(*listed)
    ending.store.create_if_absent(child(0, "5", ()))
    ending.store.create_if_absent(child(3, "7", (2,)))
    assert ending.children.create("s0", [listed[2]])
    assert ending.syncs == 0
    assert ending.store.get("s2").checkpoint == ExtendedSequenceNumber(TRIM_HORIZON)


def test_children_are_created_in_the_order_of_their_ids():
    plan = plan_children([shard(3, (0,)), shard(2, (0,))])
    assert [lease.lease_key for lease in plan] == ["s2", "s3"]
