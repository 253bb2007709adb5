"""Every recipe beside each KCL and our worker, over a split and a merge; and random operations. They take minutes.

Not part of ``make integration``; ``make java`` runs them. ``OPERATIONS=200`` makes more random operations.
"""

from __future__ import annotations

import os
from datetime import datetime, timezone

import pytest

from integration.java.evidence import wait_for
from integration.java.operations import FLEET, play
from integration.java.processes import METRICS
from integration.java.steered import OURS, SteeredFleet
from kinesis_sdk.admin.changes.description import Status
from kinesis_sdk.admin.changes.marks import plan_drain, plan_pin, plan_undrain
from kinesis_sdk.admin.changes.plans import (
    export_leases,
    plan_import,
    plan_move,
    plan_release,
    plan_rewind,
    plan_skip,
)
from kinesis_sdk.admin.changes.recipes import Recipe
from kinesis_sdk.admin.fleet.model import OwnerKind
from kinesis_sdk.common.errors import ChangeRefusedError
from kinesis_sdk.common.sequence import ExtendedSequenceNumber

COUNT = int(os.environ.get("OPERATIONS", "40"))
SEED = int(os.environ.get("OPERATIONS_SEED", "6"))


@pytest.mark.parametrize("version", METRICS)
def test_every_recipe(stage, tmp_path, version):
    """Java leases are changed while our worker holds others, and ours while Java workers do."""
    hears = not version.startswith("2.")
    kind = OwnerKind.KCL3 if hears else OwnerKind.OTHER
    name = f"recipes-{version.replace('.', '-')}"
    with SteeredFleet(stage, name, tmp_path, rate=60, batch=8, metrics=METRICS[version]) as fleet:
        java, ours = fleet.add(version), fleet.add(OURS)
        operator = fleet.operator
        desk = operator.desk
        fleet.await_owners(java, ours, seconds=240.0)
        fleet.go_on(10)

        def held(worker):
            found = []

            def look():
                found[:] = [
                    row.lease_key for row in fleet.rows() if row.holder == worker.name and not row.is_finished
                ]
                return found

            # A lease that was freed is taken by our worker first; a KCL 2 takes its share every 20 s.
            wait_for(look, 180, fleet.tails)
            return sorted(found)

        def change(make, recipe=None, *, wait=90.0):
            plan = make()
            assert not plan.refusals, plan.refusals
            if recipe is not None:
                assert [(one.kind, one.recipe) for one in plan.changes] == [(kind, recipe)]
            outcomes = operator.apply(plan, wait=wait)
            assert all(one.status is not Status.REFUSED for one in outcomes)
            if wait and plan.changes:
                assert all(one.noticed_after is not None for one in outcomes if one.status is Status.DONE)
            return plan

        def record(shard, back):
            number, sub = fleet.places(shard)[-back]
            return ExtendedSequenceNumber(str(number), sub)

        restart = Recipe.RESTART if hears else Recipe.FREE
        begin = datetime.now(timezone.utc)
        fleet.go_on(4)
        change(lambda: plan_rewind(desk, begin, held(java)[:1]), restart)
        shard = held(java)[-1]
        change(lambda: plan_rewind(desk, record(shard, 40), [shard]), restart)
        shard = held(java)[0]
        change(lambda: plan_rewind(desk, "TRIM_HORIZON", [shard]), restart)
        # It is behind now, so there is something to skip; a position that is a number already stays.
        assert change(lambda: plan_rewind(desk, "LATEST", [shard])).changes == ()
        change(lambda: plan_skip(desk, begin, [shard]), wait=30.0)
        change(lambda: plan_skip(desk, record(shard, 5), [shard]), wait=30.0)
        change(lambda: plan_skip(desk, "LATEST", held(java)[:1]), wait=30.0)
        change(lambda: plan_release(desk, held(java)[:1]))
        change(lambda: plan_release(desk, held(ours)[:1]))

        # Moves and marks: what the Java worker does not hear is refused, and nothing is written.
        for mine, worker in ((held(java)[0], ours), (held(ours)[0], java)):
            plan = plan_move(desk, [mine], worker.name)
            if hears:
                assert not plan.refusals
                operator.apply(plan, wait=30.0)
            else:
                assert "Release the lease instead" in plan.refusals[0].reason
                with pytest.raises(ChangeRefusedError):
                    operator.apply(plan)
        with pytest.raises(ChangeRefusedError, match="SIGTERM"):
            plan_drain(desk, java.name)
        with pytest.raises(ChangeRefusedError, match="does not read pins"):
            plan_pin(desk, held(ours)[0], java.name).apply()
        fleet.await_owners(java, ours, seconds=240.0)
        assert not plan_drain(desk, ours.name).apply(wait=240.0).is_pending
        assert {row.holder for row in fleet.rows() if not row.is_finished} <= {java.name, None}
        plan_undrain(desk, ours.name).apply()

        export = export_leases(desk)
        fleet.go_on(6)
        change(lambda: plan_import(desk, export))

        begin = datetime.now(timezone.utc)
        fleet.go_on(3)
        fleet.stream.split()
        fleet.go_on(12)
        fleet.stream.merge()
        fleet.go_on(12)
        plan = change(lambda: plan_rewind(desk, begin), wait=0.0)
        assert len(plan.changes) >= 6, (
            "both parents of the merge, both halves of the split, and their children"
        )
        fleet.go_on(5)
    fleet.await_everything()
    account = fleet.close_books()
    assert account.problems == {}
    assert account.repeated > 500
    assert len(operator.done.gaps) >= 1


def test_random_operations_on_a_mixed_fleet(stage, tmp_path):
    fleet, account, down = play(stage, "random", tmp_path, seed=SEED, count=COUNT, kinds=FLEET)
    assert account.problems == {}
    assert down == []
    assert account.repeated > 500
    assert sum(fleet.operator.made.values()) > COUNT / 2, fleet.operator.refusals
