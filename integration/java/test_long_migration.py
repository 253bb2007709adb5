"""A fleet goes from KCL 2.7.2 to 3.5.1 with a worker of ours in it all along: to the end, and back again.

The KCL's own intervals; readiness is watched for ten minutes, which nothing shortens. Each scene takes about twenty
minutes. Not part of ``make integration``; ``make java`` runs them.
"""

from __future__ import annotations

import time

import pytest

from integration.java.load import Load
from integration.java.processes import PATIENT
from integration.java.scenes import Fleet

MIGRATION = "Migration3.0"


class Migration:
    """The fleet: two Java workers, which are replaced one by one, and one of ours.

    Args:
        fleet: Begins with 2.7.2.
    """

    def __init__(self, fleet):
        self.fleet = fleet
        self.javas = []
        self.ours = None
        self._count = 0

    def state(self):
        """The client version that the fleet has agreed on."""
        item = self.fleet.stage.foreign(self.fleet.name).get(MIGRATION)
        return item and item["cv"]["S"]

    def start_java(self, version, mode=None):
        self._count += 1
        settings = {} if mode is None else {"clientVersionConfig": f"CLIENT_VERSION_CONFIG_{mode}"}
        worker = self.fleet.java(f"java-{self._count}", version=version, properties={**PATIENT, **settings})
        self.javas.append(worker)
        return worker

    def start_ours(self, name, metrics):
        self.ours = self.fleet.ours(name, worker_metrics=metrics)

    def settle(self, what):
        """Wait until every worker holds a lease."""
        self.fleet.wait(self.fleet.held_only_by(*self.javas, self.ours), 400, what)

    def roll(self, version, mode=None):
        """Replace the Java workers one by one, each stopped in order."""
        for _ in range(2):
            leaving = self.javas.pop(0)
            seconds = leaving.stop()
            coming = self.start_java(version, mode)
            self.settle(f"{leaving.name} stopped in {seconds:.1f} s, {coming.name} is {version} {mode or ''}")

    def replace_ours(self, name, metrics):
        self.ours.stop()
        self.start_ours(name, metrics)
        self.settle(f"{name} with worker_metrics={metrics!r}")


def to_three_with_rollback(migration):
    """From 2.7.2 to the state in which the 3.x algorithms run and the way back is still open."""
    fleet = migration.fleet
    for _ in range(2):
        migration.start_java("2.7.2")
    migration.start_ours("ours-1", "off")
    migration.settle("two workers of 2.7.2 and one of ours share the leases")
    migration.roll("3.5.1", "COMPATIBLE_WITH_2X_PHASE1")
    assert not fleet.stage.foreign(fleet.name), "nobody writes what KCL 2.x could not read"
    # The last one in the order of ids is the one that KCL 2.x elects among three.
    migration.replace_ours("ours-2", "lease_table")
    migration.roll("3.5.1", "COMPATIBLE_WITH_2X")
    assert migration.state() == "CLIENT_VERSION_UPGRADE_FROM_2X"
    fleet.wait(
        lambda: "cannot complete" in migration.ours.process.log.read_text(),
        120,
        "ours-2 is elected, and warns that the migration cannot complete",
    )
    migration.replace_ours("a-ours-3", "lease_table")
    fleet.split(fleet.held_by(migration.ours)[0])
    fleet.wait(fleet.leased, 300, "split a shard of ours: the children are leased")
    fleet.wait(
        lambda: migration.state() == "CLIENT_VERSION_3X_WITH_ROLLBACK",
        1200,
        "with another id of ours the fleet is ready (KCL watches for 600 s)",
    )
    fleet.split(fleet.held_by(migration.javas[0])[0])
    fleet.wait(fleet.leased, 300, "split a shard of Java: the children are leased")
    migration.settle("everybody holds leases in the 3.x algorithms")


@pytest.fixture
def migration(stage, request):
    name = f"migration-{request.node.name.rpartition('_')[2]}"
    return Migration(Fleet(stage, name, 6, "2.7.2"))


def test_a_migration_with_ours_inside_ends(migration):
    fleet = migration.fleet
    with fleet.watch, Load(fleet.stage, fleet.name, rate=100) as load:
        to_three_with_rollback(migration)
        migration.roll("3.5.1", "3X")
        fleet.wait(lambda: migration.state() == "CLIENT_VERSION_3X", 300, "the migration is complete")
        time.sleep(30)
        migration.settle("everybody holds leases")
    fleet.finish(load)


def test_a_migration_with_ours_inside_rolls_back(migration):
    fleet = migration.fleet
    with fleet.watch, Load(fleet.stage, fleet.name, rate=100) as load:
        to_three_with_rollback(migration)
        # What the KCL's tool for a way back writes.
        fleet.stage.dynamodb.update_item(
            TableName=fleet.name,
            Key={"leaseKey": {"S": MIGRATION}},
            UpdateExpression="SET cv = :two, mb = :by, mts = :now",
            ConditionExpression="cv = :three",
            ExpressionAttributeValues={
                ":two": {"S": "CLIENT_VERSION_2X"},
                ":three": {"S": "CLIENT_VERSION_3X_WITH_ROLLBACK"},
                ":by": {"S": "test"},
                ":now": {"N": str(int(time.time() * 1000))},
            },
        )
        time.sleep(90)  # each Java worker looks once a minute
        assert migration.state() == "CLIENT_VERSION_2X"
        migration.settle("everybody holds leases in the 2.x algorithms again")
        migration.roll("3.5.1", "COMPATIBLE_WITH_2X_PHASE1")
        migration.replace_ours("a-ours-4", "off")
        for key in fleet.stage.foreign(fleet.name):
            fleet.stage.dynamodb.delete_item(TableName=fleet.name, Key={"leaseKey": {"S": key}})
        migration.roll("2.7.2")
        assert not fleet.stage.foreign(fleet.name)
        time.sleep(30)
        migration.settle("everybody holds leases in 2.7.2")
    fleet.finish(load)
