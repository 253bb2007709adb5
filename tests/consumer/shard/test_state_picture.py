"""docs/pictures/shard-states.svg shows the states of a shard consumer, and the transitions that runs make."""

from __future__ import annotations

from kinesis_sdk.common.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.consumer.shard.consumer import ShardConsumer
from kinesis_sdk.consumer.shard.state import ShardState
from tests.consumer.shard.consumer_scene import END, ENDED, FULL, got, recorded, restarting
from tools.pictures import PICTURES, read_picture

PICTURE = read_picture((PICTURES / "shard-states.txt").read_text(encoding="utf-8"))
DRAWN = {(arrow.source, arrow.target) for arrow in PICTURE.arrows}


def test_every_state_is_drawn():
    assert set(PICTURE.nodes) == {state.value for state in ShardState}


def waiting(**more):
    """Return a shard whose parent is not finished."""
    parent = Lease(lease_key="p", checkpoint=ExtendedSequenceNumber(TRIM_HORIZON), hash_key_range=FULL)
    child = Lease(
        lease_key="s",
        checkpoint=ExtendedSequenceNumber(TRIM_HORIZON),
        hash_key_range=FULL,
        parent_shard_ids=("p",),
    )
    return recorded(rows=[parent], lease=child, **more)


def test_every_transition_is_drawn_and_every_arrow_is_a_transition(monkeypatch):
    seen = set()

    def change(consumer, state):
        before = consumer.__dict__.get("state")
        consumer.__dict__["state"] = state
        if before is not None and before is not state:
            seen.add((before.value, state.value))

    monkeypatch.setattr(
        ShardConsumer, "state", property(lambda consumer: consumer.__dict__["state"], change), raising=False
    )
    # From the beginning of a shard to its end; a restart in the middle, and one at the end.
    recorded(got(1), got(2, **ENDED), checkpoint=True).run()
    restarting(got(1), got(3), got(3, **ENDED), process_records=1).run(30)
    restarting(got(1, **ENDED), got(1, **ENDED), shard_ended=1).run(30)
    # A stop in each state.
    for scene in (waiting(), recorded(got(1), fail={"initialize": 99}), recorded(got(1))):
        scene.run()
        scene.consumer.request_stop()
        scene.run()
        assert scene.consumer.state is ShardState.COMPLETE
    # The lease is taken away in each state.
    for scene in (waiting(), recorded(got(1), fail={"initialize": 99}), recorded(got(1))):
        scene.run()
        scene.held.mark_lost("another worker owns it")
        scene.run(renew=False)
        assert scene.consumer.state is ShardState.COMPLETE
    # There is nothing to do.
    recorded(lease=Lease(lease_key="s", checkpoint=END, hash_key_range=FULL)).run()
    assert seen == DRAWN


def test_an_aborted_worker_completes_a_shard_in_every_state():
    for scene in (waiting(), recorded(got(1), fail={"initialize": 99}), recorded(got(1))):
        scene.run()
        assert scene.consumer.state is not ShardState.COMPLETE
        scene.consumer.abandon("the worker was aborted")
        assert scene.consumer.state is ShardState.COMPLETE
