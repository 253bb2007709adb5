from __future__ import annotations

from collections import Counter

from integration.steering.plan import DECK, make_operations


def test_a_seed_gives_a_plan_and_a_longer_one_begins_with_it() -> None:
    plan = make_operations(7, 100, failover_time=5.0)
    assert plan == make_operations(7, 100, failover_time=5.0)
    assert plan[:40] == make_operations(7, 40, failover_time=5.0)
    assert plan != make_operations(8, 100, failover_time=5.0)
    assert [one.number for one in plan] == [*range(1, 101)]


def test_each_operation_is_made_as_often_as_the_deck_says() -> None:
    plan = make_operations(7, 10 * len(DECK), failover_time=5.0)
    expected = {kind: 10 * count for kind, count in Counter(DECK).items()}
    assert Counter(one.kind for one in plan) == expected


def test_faults_and_reshards_come_on_the_way() -> None:
    plan = make_operations(7, 400, failover_time=5.0)
    found = Counter(one.disturbance for one in plan)
    assert {"split", "merge", "kill", "freeze", "stop"} < set(found)
    assert 200 < found[None] < 320
    freezes = [one.lasts for one in plan if one.disturbance == "freeze"]
    assert min(freezes) < 5.0 < max(freezes), "shorter and longer than the failover time"
