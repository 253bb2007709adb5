from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.sequence import LATEST, SHARD_END, TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.consumer.leases import Lease
from kinesis_sdk.consumer.shard_sync.cleanup import plan_cleanup
from kinesis_sdk.consumer.shard_sync.lineage import find_missing_children, plan_by_lineage

RANGE = HashKeyRange(0, 1)


def shard(name: str, parent: str | None = None, *, is_open: bool = False) -> Shard:
    return Shard(name, RANGE, parent, None, "1", None if is_open else "9")


def lease(name: str, checkpoint: str = "5", **more: tuple[str, ...]) -> Lease:
    return Lease(lease_key=name, checkpoint=ExtendedSequenceNumber(checkpoint), **more)  # type: ignore[arg-type]


def plan(
    shards: list[Shard], *leases: Lease, at: str = TRIM_HORIZON, unreadable: tuple[str, ...] = ()
) -> dict[str, str]:
    planned = plan_by_lineage(shards, leases, at, unreadable)
    assert [one.lease_key for one in planned] == sorted(one.lease_key for one in planned)
    return {one.lease_key: one.checkpoint.sequence_number for one in planned}


CHAIN = [shard("s1"), shard("s2", "s1"), shard("s3", "s2", is_open=True)]
TREE = [shard("s1"), shard("s2", "s1", is_open=True), shard("s3", "s1", is_open=True)]


def test_a_new_application_begins_with_the_oldest_shards_or_with_the_open_ones() -> None:
    assert plan(CHAIN) == {"s1": TRIM_HORIZON}
    assert plan(TREE) == {"s1": TRIM_HORIZON}
    assert plan(CHAIN, at="AT_TIMESTAMP") == {"s1": "AT_TIMESTAMP"}
    assert plan(CHAIN, at=LATEST) == {"s3": LATEST}
    assert plan(TREE, at=LATEST) == {"s2": LATEST, "s3": LATEST}
    assert plan([], at=LATEST) == {}
    # A parent that is no longer listed has been forgotten.
    assert plan([shard("s7", "s6"), shard("s8", "s7", is_open=True)]) == {"s7": TRIM_HORIZON}


def test_a_disabled_stream_has_only_closed_shards() -> None:
    assert plan([shard("s1"), shard("s2", "s1")]) == {"s1": TRIM_HORIZON}
    assert plan([shard("s1"), shard("s2", "s1")], at=LATEST) == {"s2": LATEST}, (
        "it has nothing more, and ends at once"
    )
    assert plan([shard("s1"), shard("s2", "s1")], lease("s1", SHARD_END), at=LATEST) == {"s2": TRIM_HORIZON}


def test_latest_means_the_first_start_although_a_child_is_not_listed_yet() -> None:
    closed = shard("s1")
    assert plan([closed], at=LATEST) == {"s1": LATEST}
    child = shard("s2", "s1", is_open=True)
    assert plan([closed, child], lease("s1", LATEST), at=LATEST) == {}, (
        "the end of s1 creates it, at its beginning"
    )
    assert plan([closed, child], lease("s1", SHARD_END), at=LATEST) == {"s2": TRIM_HORIZON}


def test_the_end_of_each_generation_creates_the_next() -> None:
    assert plan(CHAIN, lease("s1")) == {}
    assert plan(CHAIN, lease("s1", LATEST), at=LATEST) == {}
    assert plan(CHAIN, lease("s1", SHARD_END)) == {"s2": TRIM_HORIZON}
    assert plan(CHAIN, lease("s1", SHARD_END), lease("s2"), at=LATEST) == {}
    assert plan(TREE, lease("s1", SHARD_END), lease("s2"), at=LATEST) == {"s3": TRIM_HORIZON}
    assert plan(CHAIN, lease("s3"), at=LATEST) == {}, (
        "its ancestors were skipped, or are finished and cleaned up"
    )


def test_a_sibling_that_is_read_shows_that_the_parent_is_finished() -> None:
    assert plan(TREE, lease("s2"), at=LATEST) == {"s3": TRIM_HORIZON}
    assert plan(TREE, lease("s2", LATEST), at=LATEST) == {"s3": TRIM_HORIZON}


def test_a_start_that_was_interrupted_is_completed() -> None:
    two = [shard("s1", is_open=True), shard("s2", is_open=True)]
    assert plan(two, lease("s1", LATEST), at=LATEST) == {"s2": LATEST}
    assert plan(two, lease("s1"), at=LATEST) == {"s2": TRIM_HORIZON}, "lost track of: nothing may be skipped"


def test_after_an_outage_longer_than_the_retention_everything_is_read() -> None:
    assert plan(CHAIN, lease("s0"), at=LATEST) == {"s1": TRIM_HORIZON}
    assert plan(CHAIN, lease("s0", LATEST), at=LATEST) == {"s1": TRIM_HORIZON}
    assert plan(CHAIN, lease("s0", SHARD_END), at=LATEST) == {"s1": TRIM_HORIZON}


def test_a_row_that_cannot_be_read_counts_as_an_unfinished_lease() -> None:
    assert plan(CHAIN, unreadable=("s1",), at=LATEST) == {}
    assert plan(TREE, unreadable=("s2",), at=LATEST) == {"s3": TRIM_HORIZON}


def test_an_open_shard_with_a_child_is_from_an_older_page_of_the_listing() -> None:
    assert plan([shard("s1", is_open=True), shard("s2", "s1", is_open=True)], at=LATEST) == {"s2": LATEST}
    assert plan([shard("s1", is_open=True), shard("s2", "s1", is_open=True)]) == {"s1": TRIM_HORIZON}


def test_a_broken_listing_does_not_hang() -> None:
    assert plan([shard("s1", "s2"), shard("s2", "s1"), shard("s3", "s2", is_open=True)])


def test_clean_up_keeps_a_generation() -> None:
    parent = lease("s1", SHARD_END, child_shard_ids=("s2",))
    child = lease("s2", parent_shard_ids=("s1",))
    assert plan_cleanup([parent, child]) == ["s1"]
    assert plan_cleanup([parent, child], keep_generation=True) == []
    ended = lease("s2", SHARD_END, parent_shard_ids=("s1",), child_shard_ids=("s3",))
    assert plan_cleanup([parent, ended, lease("s3")], keep_generation=True) == ["s1"]
    # A listing that lags behind shows the parent as open and not its child. While its lease is there, it gets no other.
    stale = [shard("s1", is_open=True)]
    assert plan(stale, parent, child) == {}
    assert plan(stale, child) == {"s1": TRIM_HORIZON}


def test_the_audit_of_the_rows_finds_missing_children() -> None:
    parent = lease("s1", SHARD_END, child_shard_ids=("s2", "s3"))
    assert find_missing_children([parent, lease("s2")]) == ["s3"]
    assert find_missing_children([parent, lease("s2"), lease("s3")]) == []
    assert find_missing_children([lease("s1", child_shard_ids=("s2",))]) == [], "it is still being read"


@example(
    parents=[0, 0, 1, 1],
    states=["finished", "none", "none", "reading", *["none"] * 10],
    position=TRIM_HORIZON,
)
@given(
    parents=st.lists(st.integers(0, 12), min_size=1, max_size=14),
    states=st.lists(st.sampled_from(["none", "reading", "finished"]), min_size=14, max_size=14),
    position=st.sampled_from([TRIM_HORIZON, LATEST, "AT_TIMESTAMP"]),
)
def test_applying_the_plan_again_and_again_reads_every_shard_after_its_parent(
    parents: list[int], states: list[str], position: str
) -> None:
    """Whatever the leases are, each open shard is leased in the end, and none while its parent is being read."""
    names = [f"s{number:02}" for number in range(len(parents))]
    above = {
        name: names[parent] if parent < index else None
        for index, (name, parent) in enumerate(zip(names, parents, strict=True))
    }
    shards = [shard(name, above[name], is_open=name not in above.values()) for name in names]
    # Only states that a run can produce: a shard has a lease only if its parent has a finished one, or none any more.
    leases: dict[str, Lease] = {}
    for name, state in zip(names, states, strict=False):
        parent = above[name]
        if state != "none" and (parent is None or parent not in leases or leases[parent].is_finished):
            closed = name in above.values()
            leases[name] = lease(name, SHARD_END if state == "finished" and closed else "5")
    for _ in range(40):
        before = {**leases}
        for one in plan_by_lineage(shards, leases.values(), position):
            parent = above[one.lease_key]
            assert one.lease_key not in leases
            if parent in leases:
                assert leases[parent].is_finished
            leases[one.lease_key] = one
        if leases == before:
            unfinished = [name for name in leases if not leases[name].is_finished and name in above.values()]
            if not unfinished:
                break
            leases[unfinished[0]] = lease(unfinished[0], SHARD_END)
    assert {name for name in names if name not in above.values()} <= leases.keys()
