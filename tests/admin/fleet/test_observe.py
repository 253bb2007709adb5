from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.admin.applications import StreamFacts
from kinesis_sdk.admin.fleet.lag import LagProbeResult
from kinesis_sdk.admin.fleet.model import LagReading, LagSource, LeaseState, OwnerKind
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.sequence import SHARD_END
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.consumer.leases.table.attributes import CHANGED_BY
from kinesis_sdk.consumer.leases.table.progress import Progress
from tests.admin.fleet.rows import AT, Fleet, codes, even_shards, held, lease_of, shard_id
from tests.fuzz import how_many


def test_the_first_look_knows_no_times() -> None:
    fleet = Fleet(2)
    fleet.take("a|1", 0)
    view = fleet.scan()
    held, free = view.leases
    assert (held.state, held.owner, held.renewed_ago, held.state_for) == (LeaseState.HELD, "a|1", None, None)
    assert (free.state, free.owner) == (LeaseState.UNOWNED, None)
    assert view.watched == 0.0
    assert json.dumps(view.to_dict())


def test_an_owner_that_does_not_write_falls_silent_after_the_failover_time() -> None:
    fleet = held(2, {"a|1": (0,), "a|2": (1,)})
    fleet.renew("a|2")
    fleet.scan(5)
    fleet.renew("a|2")
    view = fleet.scan(5)
    assert lease_of(view, 0).state is LeaseState.HELD  # exactly the failover time is not longer than it
    view = fleet.scan(1)
    assert lease_of(view, 0).state is LeaseState.SILENT
    assert lease_of(view, 1).state is LeaseState.HELD
    assert lease_of(view, 1).renewed_ago == pytest.approx(1)
    assert [(owner.worker_id, owner.silent_for) for owner in view.owners] == [("a|1", 11.0), ("a|2", None)]
    assert (view.totals.owners, view.totals.silent_owners) == (1, 1)
    fleet.renew("a|1")
    assert lease_of(fleet.scan(1), 0).state is LeaseState.HELD


def test_a_time_between_scans_is_not_silence() -> None:
    """A row is known to be unchanged only until the scan that shows it began."""
    fleet = held(1, {"a|1": (0,)})
    fleet.now += 300  # the page was hidden
    assert fleet.lease(0).state is LeaseState.HELD
    fleet.renew("a|1")
    assert lease_of(fleet.scan(), 0).state is LeaseState.HELD


def test_a_lease_that_a_leader_assigned_is_not_silent_before_its_owner_knows_of_it() -> None:
    fleet = Fleet(1)
    fleet.take_as_java("j1", 0)
    fleet.scan()
    fleet.take_as_java("j2", 0)
    fleet.scan(2)
    assert lease_of(fleet.scan(22), 0).state is LeaseState.HELD
    assert lease_of(fleet.scan(2), 0).state is LeaseState.SILENT


def test_kinds_of_owners() -> None:
    fleet = Fleet(4)
    fleet.take("ours", 0)
    fleet.take_as_java("new-java", 1)
    fleet.take_as_java("old-java", 2)
    fleet.others = {
        "new-java": {
            "leaseKey": {"S": "new-java"},
            "entityType": {"S": "WORKER_METRIC_STATS"},
            "lut": {"N": str(int(AT + 100))},
        },
        "gone-java": {
            "leaseKey": {"S": "gone-java"},
            "entityType": {"S": "WORKER_METRIC_STATS"},
            "lut": {"N": str(int(AT - 86_400))},
        },
        "Leader": {"leaseKey": {"S": "Leader"}, "entityType": {"S": "LEADER"}},
    }
    view = fleet.scan()
    assert {owner.worker_id: owner.kind for owner in view.owners} == {
        "ours": OwnerKind.SDK,
        "new-java": OwnerKind.KCL3,
        "old-java": OwnerKind.OTHER,
    }
    assert view.entities == {"WORKER_METRIC_STATS": 2, "LEADER": 1}


def test_the_metrics_table_of_kcl_3_0_tells_the_kind_too() -> None:
    fleet = Fleet(1)
    fleet.take_as_java("j", 0)
    assert fleet.scan().owners[0].kind is OwnerKind.OTHER
    # The clocks of the machines differ by an hour, so only a change shows that the report is fresh.
    fleet.observer.observe_metrics({"j": AT - 3600}, fleet.now, AT + fleet.now)
    assert fleet.view().owners[0].kind is OwnerKind.OTHER
    fleet.observer.observe_metrics({"j": AT - 3570}, fleet.now + 30, AT + fleet.now + 30)
    assert fleet.view().owners[0].kind is OwnerKind.KCL3


def test_a_worker_of_ours_is_known_after_a_handoff_removed_its_mark() -> None:
    fleet = held(2, {"a": (0,), "b": (1,)})
    fleet.request(0, "b")
    view = fleet.scan(2)
    assert (lease_of(view, 0).state, lease_of(view, 0).owner, lease_of(view, 0).next_owner) == (
        LeaseState.HANDOFF,
        "a",
        "b",
    )
    fleet.hand_off(0)
    fleet.release(1)
    view = fleet.scan(2)
    assert [(owner.worker_id, owner.kind) for owner in view.owners] == [("b", OwnerKind.SDK)]


# Moves


def reasons(fleet: Fleet) -> list[tuple[str | None, str | None, str]]:
    return [(move.before, move.after, move.reason) for move in reversed(fleet.view().moves)]


def test_moves_have_reasons() -> None:
    fleet = held(3)
    fleet.request(0, "b")
    fleet.scan(1)
    fleet.hand_off(0)
    fleet.scan(1)
    fleet.release(1)
    fleet.scan(1)
    fleet.take("b", 1)
    fleet.renew("a")
    fleet.scan(2)
    fleet.take("b", 2)  # from a worker that renewed a moment ago, and that holds nothing afterwards
    fleet.scan(1)
    assert reasons(fleet) == [
        ("a", "b", "handoff"),
        ("a", None, "released"),
        (None, "b", "taken"),
        ("a", "b", "released"),
    ]
    idle = {move.lease_key: move.idle for move in fleet.view().moves if move.reason in ("taken", "handoff")}
    assert idle == {shard_id(1): 2.0, shard_id(0): 2.0}
    assert fleet.view().totals.moves == 4


def test_a_handoff_between_two_scans_is_told_from_a_take_by_the_mark() -> None:
    fleet = held(3, {"a": (0, 1), "b": (2,)})
    fleet.request(0, "b")
    fleet.hand_off(0)
    fleet.scan(2)
    assert reasons(fleet) == [("a", "b", "handoff")]


@pytest.mark.parametrize("checkpoints", [0, 1])
@pytest.mark.parametrize("switches", [0, 3])
def test_a_handoff_whose_new_owner_has_taken_the_lease_is_no_theft(checkpoints: int, switches: int) -> None:
    """All of it between two scans, with what the store really leaves in the row."""
    for is_handoff in (True, False):
        fleet = Fleet(3)
        fleet.take("a", 0, 1)
        fleet.take("b", 2)
        fleet.change(0, owner_switches=switches)
        fleet.scan()
        for number in range(checkpoints):
            fleet.checkpoint(0, str(5000 + number))
        if is_handoff:
            fleet.request(0, "b")
            fleet.hand_off(0)
        fleet.take("b", 0)
        fleet.scan(2)
        assert reasons(fleet) == [("a", "b", "handoff" if is_handoff else "stolen")]


def test_what_an_operator_moved_is_not_stolen() -> None:
    fleet = held(3, {"a": (0, 1), "b": (2,)})
    fleet.change(0, extra={CHANGED_BY: {"S": "operator:7"}}, owner="b", counter=fleet[0].counter + 1)
    fleet.scan(2)
    assert reasons(fleet) == [("a", "b", "operator")]
    fleet.take("a", 0)
    fleet.scan(2)
    assert reasons(fleet)[-1] == ("b", "a", "stolen"), "the name stays in the row, and is told once"


def test_stolen_and_expired() -> None:
    fleet = Fleet(3)
    fleet.take_as_java("j1", 0, 1, 2)
    fleet.scan()
    fleet.renew("j1")
    fleet.scan(5)
    fleet.take_as_java("j2", 0)
    fleet.scan(2)
    for _ in range(3):
        fleet.renew("j2")
        fleet.scan(5)
    fleet.take_as_java("j2", 1, 2)
    fleet.scan(1)
    assert [move.reason for move in reversed(fleet.view().moves)] == ["stolen", "expired", "expired"]
    assert fleet.view().moves[0].idle == pytest.approx(18)


def test_an_expired_lease_was_silent_for_longer_than_two_scans_show() -> None:
    """a|1 renews right after a scan, and its lease is taken after exactly the failover time, right before a scan."""
    fleet = held(3, {"a|1": (0, 1), "a|2": (2,)})
    fleet.renew("a|1")
    for _ in range(5):
        fleet.renew("a|2")
        fleet.scan(2)
    fleet.take("a|2", 0, 1)
    fleet.scan(1)
    assert reasons(fleet) == [("a|1", "a|2", "expired")] * 2
    assert fleet.view().moves[0].idle == pytest.approx(9)


@pytest.mark.parametrize(("seconds", "reason"), [(4, "stolen"), (6, "expired")])
def test_a_lease_that_was_not_renewed_since_the_first_look_had_expired(seconds: float, reason: str) -> None:
    """A look of some seconds begins in the middle of a failover."""
    fleet = held(3, {"a|1": (0, 1), "a|2": (2,)})
    fleet.take("a|2", 0)
    fleet.scan(seconds)
    assert reasons(fleet) == [("a|1", "a|2", reason)]


def test_a_row_that_appears_is_a_new_shard() -> None:
    fleet = Fleet(2)
    fleet.take("a", 0, 1)
    late = fleet.rows.pop(shard_id(1))
    fleet.scan()
    fleet._put(replace(late, owner=None, counter=0, handoff_owner=None))
    fleet.scan(2)
    assert reasons(fleet) == []
    fleet.take("a", 1)
    fleet.scan(2)
    assert reasons(fleet) == [(None, "a", "new shard")]


def test_nothing_is_claimed_of_a_move_that_was_not_watched() -> None:
    fleet = held()
    fleet.take("b", 0)
    fleet.scan(3600)
    (move,) = fleet.view().moves
    assert (move.reason, move.idle) == ("unobserved", None)


# Stale scans


def test_a_stale_scan_changes_nothing() -> None:
    fleet = held()
    old = fleet[0]
    fleet.renew("a")
    fleet.checkpoint(0, "5")
    fleet.scan(2)
    view = fleet.scan(2, rows=[old])
    assert (view.leases[0].counter, str(view.leases[0].checkpoint)) == (old.counter + 2, "5/0")
    assert view.leases[0].renewed_ago == 2.0
    assert not view.moves


def test_a_counter_that_stays_lower_is_believed_in_the_end() -> None:
    fleet = Fleet(2)
    fleet.take("a", 0, 1)
    for _ in range(5):
        fleet.renew("a")
    fleet.scan()
    old = dict(fleet.rows)
    fleet.rows = {key: replace(row, counter=1, owner="b", handoff_owner="b") for key, row in old.items()}
    assert fleet.scan(2).leases[0].owner == "a"
    for _ in range(5):
        view = fleet.scan(2)
    assert view.leases[0].owner == "b"
    assert "table-recreated" in codes(view)


def test_a_row_that_one_scan_misses_stays() -> None:
    fleet = Fleet(2)
    fleet.scan()
    view = fleet.scan(2, rows=[fleet[0]])
    assert [lease.state for lease in view.leases] == [LeaseState.UNOWNED] * 2
    view = fleet.scan(2, rows=[fleet[0]])
    assert [lease.state for lease in view.leases] == [LeaseState.UNOWNED, LeaseState.MISSING]


# Shards


def test_a_child_waits_for_its_parent() -> None:
    fleet = Fleet(1)
    whole = fleet.shards[0].hash_key_range
    middle = whole.end // 2
    fleet.shards = [
        replace(fleet.shards[0], ending_sequence_number="999"),
        Shard(
            shard_id(1), HashKeyRange(0, middle), parent_shard_id=shard_id(0), starting_sequence_number="1000"
        ),
        Shard(
            shard_id(2),
            HashKeyRange(middle + 1, whole.end),
            parent_shard_id=shard_id(0),
            starting_sequence_number="1000",
        ),
    ]
    fleet.take("a", 0)
    view = fleet.scan()
    # Ours creates the children's leases when the parent ends; a KCL may have created them before.
    assert [lease.state for lease in view.leases] == [LeaseState.HELD, LeaseState.WAITING, LeaseState.WAITING]
    assert lease_of(view, 0).children == (shard_id(1), shard_id(2))
    assert "no-lease" not in codes(view)
    assert lease_of(view, 1).state_for is None  # it may have been so for long
    fleet._put(
        replace(fleet[0], lease_key=shard_id(1), parent_shard_ids=(shard_id(0),), owner=None, counter=0)
    )
    assert lease_of(fleet.scan(2), 1).state is LeaseState.WAITING
    fleet.checkpoint(0, SHARD_END)
    view = fleet.scan(2)
    assert [lease.state for lease in view.leases] == [
        LeaseState.FINISHED,
        LeaseState.UNOWNED,
        LeaseState.MISSING,
    ]


def test_unreadable_rows_stay_visible() -> None:
    fleet = Fleet(2)
    del fleet.rows[shard_id(1)]
    fleet.unreadable = {shard_id(1): "it has no checkpoint"}
    view = fleet.scan()
    assert (lease_of(view, 1).state, lease_of(view, 1).note) == (
        LeaseState.UNREADABLE,
        "it has no checkpoint",
    )
    assert set(codes(view)) == {"stopped", "unreadable-row", "hole"}


# Lag


def test_progress_counts_only_once_it_was_seen_to_be_written() -> None:
    fleet = Fleet(1)
    fleet.take("a", 0)
    fleet.change(0, progress=Progress(4000, None, None, "a"))
    assert fleet.scan().leases[0].lag is None  # it may be days old
    fleet.renew("a")
    fleet.change(0, progress=Progress(5000, None, None, "a"))
    reading = fleet.scan(2).leases[0].lag
    assert reading is not None
    assert (reading.millis, reading.age, reading.source) == (5000, 0.0, LagSource.PROGRESS)
    assert not [one for one in fleet.observer.lag_candidates(fleet.now) if not one.is_known]
    fleet.take_as_java("j", 0)  # leaves the attribute as it is
    assert [one.is_known for one in fleet.observer.lag_candidates(fleet.now)] == [True]
    fleet.scan(2)
    assert [one.is_known for one in fleet.observer.lag_candidates(fleet.now)] == [False]


def test_a_handler_that_hangs_costs_no_read() -> None:
    """The owner tells the age of the record that the handler has in its hands."""
    fleet = held()
    fleet.renew("a")
    fleet.change(0, progress=Progress(71_000, None, 70_000, "a"))
    view = fleet.scan(2)
    assert view.leases[0].lag == LagReading(millis=71_000, age=0.0, source=LagSource.PROGRESS)
    assert view.leases[0].handler_seconds == 70.0
    assert [one.is_known for one in fleet.observer.lag_candidates(fleet.now)] == [True]
    fleet.now += 3
    assert fleet.lease(0).handler_seconds == 73.0
    assert codes(fleet.view()) == ["handler"]


def test_the_word_of_a_live_owner_wins_over_a_probe_at_its_checkpoint() -> None:
    fleet = held()
    fleet.renew("a")
    fleet.change(0, progress=Progress(0, None, None, "a"))
    fleet.scan(2)
    fleet.now += 1
    fleet.observer.observe_lag(shard_id(0), LagProbeResult(millis=8000), fleet.now)
    lease = fleet.lease(0)
    assert lease.lag == LagReading(millis=0, age=1.0, source=LagSource.PROGRESS)
    assert lease.checkpoint_lag == LagReading(millis=8000, age=0.0, source=LagSource.PROBE)
    fleet.scan(15)  # the owner is silent: what it knew dies with it
    fleet.observer.observe_lag(shard_id(0), LagProbeResult(millis=9000), fleet.now)
    assert fleet.lease(0).lag == LagReading(millis=9000, age=0.0, source=LagSource.PROBE)


def test_the_time_that_is_left_shrinks_while_nothing_is_processed() -> None:
    fleet = held()
    fleet.observer.observe_stream(None, StreamFacts(name="orders", retention=86_400.0), fleet.now)
    fleet.observer.observe_lag(shard_id(0), LagProbeResult(millis=80_000_000), fleet.now)
    assert fleet.lease(0).retention_left == 6400.0
    fleet.now += 400
    assert fleet.lease(0).retention_left == 6000.0
    assert codes(fleet.view())[0] == "near-horizon"
    (problem,) = [one for one in fleet.view().problems if one.code == "near-horizon"]
    assert problem.text == "0000: 22 h 13 min behind, retention 1 d: loses records in 1 h 40 min"


def test_trends_have_one_value_in_ten_seconds() -> None:
    fleet = held()
    for second in range(2, 62, 2):
        fleet.renew("a")
        fleet.change(0, progress=Progress(second * 1000, None, None, "a"))
        fleet.scan(2)
    assert fleet.lease(0).trend == (None, 10_000, 20_000, 30_000, 40_000, 50_000, 60_000)
    assert fleet.view().owners[0].trend == fleet.lease(0).trend


def test_totals() -> None:
    fleet = Fleet(4)
    fleet.take("a", 0, 1)
    fleet.change(1, throughput_kbps=12.5)
    fleet.scan()
    fleet.observer.observe_lag(shard_id(1), LagProbeResult(millis=61_000), fleet.now)
    fleet.observer.observe_lag(shard_id(0), LagProbeResult(millis=5), fleet.now)
    totals = fleet.view().totals
    assert (totals.leases, totals.unowned, totals.owners, totals.measured) == (4, 2, 1, 2)
    assert (totals.worst_lag_millis, totals.worst_shard, totals.behind_a_minute) == (61_000, shard_id(1), 1)
    assert (totals.total_lag_millis, totals.throughput_kbps) == (61_005, 12.5)


def test_what_no_worker_reads_has_no_throughput() -> None:
    fleet = Fleet(2)
    fleet.take("a", 0)
    for number in (0, 1):
        fleet.change(number, throughput_kbps=12.5)
    fleet.scan()
    assert [fleet.lease(number).throughput_kbps for number in (0, 1)] == [12.5, None]


def test_a_standby_worker_is_shown_until_its_heartbeat_stops() -> None:
    fleet = Fleet(1)
    fleet.take("a", 0)
    fleet.change(0, standby_heartbeats={"z|idle": 5}, draining=("a",))
    view = fleet.scan()
    assert [(owner.worker_id, owner.is_standby, owner.is_draining) for owner in view.owners] == [
        ("a", False, True),
        ("z|idle", True, False),
    ]
    fleet.renew("a")
    assert [owner.worker_id for owner in fleet.scan(11).owners] == ["a"]


def test_a_recreated_stream_shows_in_its_shards() -> None:
    fleet = Fleet(4)
    fleet.take("a", 0, 1, 2, 3)
    fleet.checkpoint(2, "999999")
    fleet.shards = even_shards(3)
    view = fleet.scan()
    assert "stream-recreated" in codes(view)


actions = st.lists(
    st.sampled_from(["take", "renew", "release", "request", "hand_off", "finish", "stale", "drop"]),
    max_size=60,
)


@settings(max_examples=how_many(unit=15, fuzz=60))
@given(seed=st.integers(0, 10_000), acts=actions)
def test_every_view_of_a_random_history_is_consistent(seed: int, acts: list[str]) -> None:
    """Each lease is shown once, held leases belong to exactly one owner, and the totals agree with the leases."""
    rng = Random(seed)
    fleet = Fleet(5)
    old = list(fleet.rows.values())
    fleet.scan()
    for act in acts:
        number = rng.randrange(5)
        row = fleet[number]
        rows = None
        if act == "take" and not row.in_handoff and not row.is_finished:
            fleet.take(f"w{rng.randrange(3)}", number)
        elif act == "renew" and row.holder is not None:
            fleet.renew(row.holder)
        elif act == "release" and row.owner is not None and not row.in_handoff:
            fleet.release(number)
        elif act == "request" and row.owner is not None and not row.in_handoff:
            fleet.request(number, "w9")
        elif act == "hand_off" and row.in_handoff:
            fleet.hand_off(number)
        elif act == "finish" and row.owner is not None:
            fleet.checkpoint(number, SHARD_END)
        elif act == "stale":
            rows = old
        elif act == "drop":
            rows = [one for one in fleet.rows.values() if rng.random() < 0.5]
        if act != "stale":
            old = list(fleet.rows.values())
        view = fleet.scan(rng.choice([1.0, 2.0, 12.0]), rows=rows)
        keys = [lease.lease_key for lease in view.leases]
        assert len(keys) == len(set(keys)) == 5
        held = [key for owner in view.owners for key in owner.lease_keys]
        assert len(held) == len(set(held))
        assert set(held) == {
            lease.lease_key for lease in view.leases if lease.owner and lease.state is not LeaseState.FINISHED
        }
        assert view.totals.leases + view.totals.finished == 5
        for lease in view.leases:
            assert lease.renewed_ago is None or lease.renewed_ago >= 0
        assert json.dumps(view.to_dict())
