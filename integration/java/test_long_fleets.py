"""Fleets of two Java workers and two of ours for minutes, with the KCL's own intervals; deployments from one to the other.

Not part of ``make integration``; ``make java`` runs them.
"""

from __future__ import annotations

import time

import pytest

from integration.java.evidence import overlaps
from integration.java.load import Load
from integration.java.scenes import Fleet

VERSIONS = ("2.7.2", "3.1.3", "3.5.1")


@pytest.mark.parametrize("version", VERSIONS)
def test_two_and_two_rest_on_slow_streams_and_survive_crashes_and_reshards(stage, version):
    """Eight shards of 0.15 KB/s.

    KCL 2.x writes no rates of leases. A worker of ours once took such a lease for a fast one, so that its two and
    two others took leases from each other every 20 s for ever.
    """
    fleet = Fleet(stage, f"two-and-two-{version.replace('.', '-')}", 8, version)
    with fleet.watch, Load(stage, fleet.name, rate=40) as load:
        java_1, java_2 = fleet.two_javas()
        ours_1, ours_2 = fleet.ours("ours-1"), fleet.ours("ours-2")
        fleet.wait(fleet.held_only_by(java_1, java_2, ours_1, ours_2), 300, "each of the four holds a lease")
        equal = (java_1, java_2, ours_1, ours_2) if version == "2.7.2" else ()
        # More than three rounds of the 2.x taker, and one of the 3.x balancing.
        fleet.rest(65, 500, equal=equal)

        java_1.kill()
        fleet.wait(fleet.held_only_by(java_2, ours_1, ours_2), 300, "kill -9 of java-1: its leases are taken")
        java_3 = fleet.java("java-3")
        fleet.wait(fleet.held_only_by(java_2, java_3, ours_1, ours_2), 300, "java-3 has joined")

        fleet.split(fleet.held_by(java_2)[0])
        fleet.split(fleet.held_by(ours_1)[0])
        fleet.wait(fleet.leased, 300, "split a shard of each side: the children are leased")
        pair = fleet.merge_across(
            [*fleet.held_by(java_2), *fleet.held_by(java_3)], [*fleet.held_by(ours_1), *fleet.held_by(ours_2)]
        )
        fleet.wait(fleet.leased, 300, f"merge across the sides, {pair}: the child is leased")

        ours_1.kill()
        fleet.wait(fleet.held_only_by(java_2, java_3, ours_2), 300, "kill -9 of ours-1: its leases are taken")
        ours_3 = fleet.ours("ours-3")
        fleet.wait(fleet.held_only_by(java_2, java_3, ours_2, ours_3), 300, "ours-3 has joined")
        fleet.rest(30, 500)
    fleet.finish(load)
    if version != "2.7.2":
        assert not overlaps(fleet.workers), "between live workers of KCL 3 and ours leases are handed over"


@pytest.mark.parametrize("version", VERSIONS)
def test_java_is_replaced_one_by_one_and_comes_back(stage, version):
    fleet = Fleet(stage, f"rolling-{version.replace('.', '-')}", 4, version)
    with fleet.watch, Load(stage, fleet.name, rate=200) as load:

        def replace(leaving, coming, staying):
            fleet.say(f"{leaving.name} stopped in order in {leaving.stop():.1f} s")
            fleet.wait(
                fleet.held_within(staying, coming), 400, f"{leaving.name} is replaced by {coming.name}"
            )
            time.sleep(5)

        java_1, java_2 = fleet.two_javas()
        fleet.wait(fleet.held_only_by(java_1, java_2), 300, "two Java workers share the leases")
        ours_1 = fleet.ours("ours-1")
        replace(java_1, ours_1, java_2)
        fleet.split(fleet.held_by(java_2)[0])
        ours_2 = fleet.ours("ours-2")
        replace(java_2, ours_2, ours_1)
        fleet.wait(fleet.leased, 300, "split at a Java worker that then left: the children are leased")
        java_3 = fleet.java("java-3")
        replace(ours_1, java_3, ours_2)
        pair = fleet.merge_across(fleet.held_by(ours_2), fleet.held_by(java_3))
        java_4 = fleet.java("java-4")
        replace(ours_2, java_4, java_3)
        fleet.wait(fleet.leased, 300, f"merge across the sides, {pair}, and ours left: the child is leased")
    fleet.finish(load)
