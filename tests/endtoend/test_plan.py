from __future__ import annotations

from integration.endtoend.fault_plan import WIRE_FAULTS
from integration.endtoend.plan import make_plan


def test_the_seed_decides_and_a_longer_plan_begins_with_the_shorter_one() -> None:
    short, long = (make_plan(7, seconds, failover_time=5.0) for seconds in (60, 600))
    assert short == make_plan(7, 60, failover_time=5.0)
    assert long[: len(short)] == short
    assert make_plan(8, 60, failover_time=5.0) != short
    assert all(action.at < 60 for action in short)
    assert len(long) > 80


def test_everything_happens_within_two_minutes() -> None:
    for seed in range(50):
        plan = make_plan(seed, 120, failover_time=5.0)
        assert {action.fault for action in plan if action.fault} == set(WIRE_FAULTS), seed
        kinds = {
            "kill worker",
            "stop worker",
            "freeze worker",
            "kill producer",
            "split",
            "merge",
            "scale",
            "wire",
        }
        assert {action.kind for action in plan} == kinds, seed
        assert [action.at for action in plan] == sorted(action.at for action in plan)
        assert all(action.seconds > 0 for action in plan if action.kind in {"wire", "freeze worker"})
        frozen = [action.seconds for action in plan if action.kind == "freeze worker"]
        assert all(2.0 <= seconds <= 10.0 for seconds in frozen)
