"""An operator changes leases of a real KCL 3, alone and beside a worker of ours, under load."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import NamedTuple

from integration.java.evidence import deliveries, wait_for
from integration.java.load import Load
from integration.java.processes import QUICK
from kinesis_sdk.admin.applications import Application
from kinesis_sdk.admin.changes.description import Status
from kinesis_sdk.admin.changes.desk import Desk
from kinesis_sdk.admin.changes.lease_change import LeaseChange
from kinesis_sdk.admin.changes.plans import plan_release, plan_rewind, plan_skip
from kinesis_sdk.admin.changes.recipes import Recipe
from kinesis_sdk.admin.connection import Connection
from kinesis_sdk.admin.fleet.model import OwnerKind
from tests import HANG

SHARDS = 4
PLACES = [str((1 << 128) // SHARDS * shard + 1) for shard in range(SHARDS)]
SLOW = {**QUICK, "maxRecords": 5}
"""Twenty records a second and shard, fewer than arrive, so that there is something to skip."""


class Rewound(NamedTuple):
    """A rewind as it was carried out."""

    shard: str
    position: tuple[int, int]
    written: float


def place(position):
    return (
        (int(position.sequence_number), position.sub_sequence_number) if not position.is_sentinel else (-1, 0)
    )


def books(found, rewinds, skipped, freed, stored):
    """Compare what was delivered with what was put, rewound and skipped; returns what is wrong."""
    by_record = {}
    for one in found:
        by_record.setdefault(one.data, []).append(one)
    wrong = []
    for data, put in stored.items():
        where = (int(put.sequence_number), put.sub_sequence_number or 0)
        seen = by_record.get(data, [])
        gap = skipped.get(put.shard_id)
        is_skipped = gap is not None and gap[0] < where <= gap[1]
        if is_skipped != (not seen):
            wrong.append(f"{data}: {'delivered' if seen else 'missing'}, skipped: {is_skipped}")
        for rewind in rewinds:
            if rewind.shard != put.shard_id or where <= rewind.position or is_skipped:
                continue
            if any(one.t < rewind.written for one in seen) and not any(
                one.t > rewind.written for one in seen
            ):
                wrong.append(f"{data} did not come again after the rewind")
        covered = [one for one in rewinds if one.shard == put.shard_id and where > one.position]
        # A worker that loses its lease processes what it has in its hands until it notices.
        if len(seen) > 1 + 2 * len(covered) + (put.shard_id in freed):
            wrong.append(f"{data} came {len(seen)} times, and {len(covered)} rewinds cover it")
    return wrong


def test_an_operator_steers_a_mixed_fleet(stage, tmp_path):
    stream = application = "steering"
    stage.kinesis.create_stream(StreamName=stream, ShardCount=SHARDS)
    shards = sorted(shard["ShardId"] for shard in stage.kinesis.list_shards(StreamName=stream)["Shards"])
    connection = Connection(clients={"kinesis": stage.kinesis, "dynamodb": stage.dynamodb})
    rewinds: list[Rewound] = []

    def steer(what):
        desk = Desk(
            application=Application(connection, application, stream=stream),
            audit_log=tmp_path / "audit.jsonl",
            report=lambda text: print(f"  {text}"),
        )
        plan = what(desk)
        assert not plan.refusals, plan.refusals
        moment = time.monotonic()
        outcomes = LeaseChange(desk, plan).carry_out()
        for change, outcome in zip(plan.changes, outcomes, strict=True):
            print(
                f"{plan.action.value} {outcome.goal.shard_id}, {change.kind}: {change.recipe.value}, {outcome.message}"
            )
            if plan.action.value == "rewind":
                # An owner that has not stored the point yet begins again at its own checkpoint.
                position = min(place(outcome.goal.position), place(outcome.checkpoint))
                rewinds.append(Rewound(outcome.goal.shard_id, position, moment))
        return plan, outcomes

    java = stage.start_java("java-1", stream, application, properties=SLOW)
    members = [java]
    with Load(
        stage,
        stream,
        rate=100,
        place=lambda number: PLACES[number % SHARDS],
        aggregation_enabled=False,
    ) as load:
        wait_for(lambda: {one.shard for one in deliveries(members)} == set(shards), HANG, java.process.tail)
        time.sleep(10)
        begin = datetime.now(timezone.utc)
        time.sleep(6)

        plan, (outcome,) = steer(lambda desk: plan_rewind(desk, begin, [shards[0]]))
        assert [(change.kind, change.recipe) for change in plan.changes] == [(OwnerKind.KCL3, Recipe.RESTART)]
        assert outcome.noticed_by == "java-1"
        wait_for(lambda: load.backlog(shards[1], deliveries(members)) > 30, HANG, java.process.tail)
        plan, (outcome,) = steer(lambda desk: plan_skip(desk, "LATEST", [shards[1]]))
        assert [(change.kind, change.recipe) for change in plan.changes] == [(OwnerKind.KCL3, Recipe.REQUEST)]
        assert (outcome.status, outcome.recipe) == (Status.DONE, Recipe.REQUEST)
        assert outcome.goal.position is not None
        gap = (place(outcome.checkpoint), place(outcome.goal.position))
        assert gap[0] < gap[1]
        plan, (outcome,) = steer(lambda desk: plan_release(desk, [shards[3]]))
        assert [change.recipe for change in plan.changes] == [Recipe.FREE], "there is no peer"
        assert outcome.noticed_by == "java-1"

        ours = stage.start_ours("ours-1", stream, application)
        members.append(ours)
        # The leader balances bytes, so two workers may rest with three leases and one.
        wait_for(lambda: ours.events("initialize"), HANG, ours.process.tail)
        moved = ours.events("initialize")[0]["shard"]
        time.sleep(5)
        begin = datetime.now(timezone.utc)
        time.sleep(4)
        other = next(shard for shard in shards[2:] if shard != moved)
        plan, outcomes = steer(lambda desk: plan_rewind(desk, begin, [moved, other]))
        assert {change.recipe for change in plan.changes} == {Recipe.RESTART}
        assert all(outcome.noticed_by is not None for outcome in outcomes)
        time.sleep(3)

    skipped = {shards[1]: gap}

    def wrong():
        return books(deliveries(members), rewinds, skipped, {shards[3]}, load.stored)

    wait_for(lambda: not wrong(), HANG, lambda: f"{len(wrong())}: {wrong()[:10]}")
    found = deliveries(members)
    again = len(found) - len({one.data for one in found})
    missing = len(load.stored) - len({one.data for one in found})
    print(f"{load.count} records, {again} delivered again, {missing} skipped")
    assert again > 0
    assert missing > 0
    ours.stop()
    java.kill()
