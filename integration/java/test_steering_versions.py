"""An operator changes leases of each KCL: the recipes that its kind of owner needs, and what they promise, record by record."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from integration.java.evidence import deliveries, wait_for
from integration.java.steered import SteeredFleet
from kinesis_sdk.admin.changes.description import Status
from kinesis_sdk.admin.changes.plans import plan_rewind, plan_skip
from kinesis_sdk.admin.changes.recipes import Recipe
from kinesis_sdk.admin.fleet.model import OwnerKind
from tests import HANG

HEARS = {"2.7.2": OwnerKind.OTHER, "3.5.1": OwnerKind.KCL3}
"""How each version is told: a KCL 2 does not answer requests, and a rewind with its name kept would take until its lease expires."""


@pytest.mark.parametrize("version", HEARS)
def test_a_rewind_and_a_skip(stage, tmp_path, version):
    kind = HEARS[version]
    with SteeredFleet(stage, f"steered-{version.replace('.', '-')}", tmp_path, shards=2, rate=60) as fleet:
        java = fleet.add(version)
        fleet.await_owners(java)
        wait_for(lambda: len({one.shard for one in deliveries([java])}) == 2, HANG, fleet.tails)
        first, second = sorted(shard.shard_id for shard in fleet.shards())
        fleet.go_on(3)
        begin = datetime.now(timezone.utc)
        fleet.go_on(4)
        desk = fleet.operator.desk
        plan = plan_rewind(desk, begin, [first])
        restart = Recipe.RESTART if kind is OwnerKind.KCL3 else Recipe.FREE
        assert [(change.kind, change.recipe) for change in plan.changes] == [(kind, restart)]
        (outcome,) = fleet.operator.apply(plan)
        assert outcome.noticed_by == java.name
        # A worker reads 20 records a second of a shard, and 30 arrive: but on a machine that is busy, they may arrive late.
        wait_for(lambda: fleet.load.backlog(second, deliveries([java])) > 50, HANG, fleet.tails)
        plan = plan_skip(desk, "LATEST", [second])
        request = Recipe.REQUEST if kind is OwnerKind.KCL3 else Recipe.FREE
        assert [(change.kind, change.recipe) for change in plan.changes] == [(kind, request)]
        (outcome,) = fleet.operator.apply(plan, wait=0.0)
        assert (outcome.status, outcome.recipe) == (Status.DONE, request)
    fleet.await_everything()
    account = fleet.close_books()
    assert account.problems == {}
    assert account.repeated > 0
    (gap,) = fleet.operator.done.gaps
    assert gap.begin < gap.end
    assert gap.exact == (kind is OwnerKind.KCL3)
    # A KCL 2 may have processed a part of the gap; a KCL 3 was asked, and has processed nothing of it.
    assert account.skipped > (20 if gap.exact else -1)
