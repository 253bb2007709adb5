"""Responses without records: the thread that read one takes note of it, unless the shard's step has something to do for it."""

from __future__ import annotations

import pytest

from kinesis_sdk.common.sequence import LATEST, ExtendedSequenceNumber
from kinesis_sdk.consumer import Lease, RecordHandler
from kinesis_sdk.consumer.leases.table.handler_request import HandlerRequest, HandlerVerb
from kinesis_sdk.consumer.shard.state import ShardState
from tests.consumer.shard.consumer_scene import FULL, Scene, got


def settled(scene, *, between=True):
    """Whether a response without records needs no step."""
    scene.consumer.between_steps = lambda function: between and function()
    return scene.consumer._settle_quiet(got(millis_behind_latest=7, read_at=scene.clock.monotonic()))


def quiet(*results, **more):
    scene = Scene(*results, **more)
    scene.run(1.0)
    return scene


def test_a_quiet_shard_needs_no_step():
    scene = quiet(got(1))
    scene.clock.advance(9.0)
    assert settled(scene)
    progress = scene.consumer.progress
    assert progress.at == scene.clock.monotonic()
    assert progress.last_read.millis_behind_latest == 7
    assert progress.oldest_unprocessed_age(scene.clock.monotonic() + 1) == 1.007


class WantsEmpty(RecordHandler):
    empty_batches = True

    def process_records(self, batch):
        pass


def not_started(scene):
    scene.consumer.state = ShardState.INITIALIZING


def leaving(scene):
    scene.consumer.request_stop()


def lost(scene):
    scene.held.let_expire("of no interest")


def asked(scene):
    scene.held.handler_request = HandlerRequest(HandlerVerb.RETRY, "1")


def restarted(scene):
    scene.consumer.restart_read()


@pytest.mark.parametrize("change", [not_started, leaving, lost, asked, restarted], ids=lambda f: f.__name__)
def test_a_shard_with_something_to_do_needs_a_step(change):
    scene = quiet()
    assert settled(scene)
    change(scene)
    assert not settled(scene)


def test_what_waits_for_the_handler_needs_a_step():
    scene = Scene(got(1))
    scene.errors = [RuntimeError("fails")] * 9
    scene.run(1.0)
    assert not settled(scene)


def test_a_handler_that_wants_empty_batches_gets_them():
    assert not settled(quiet(handler=WantsEmpty))


def test_a_start_that_must_be_stored_needs_a_step():
    lease = Lease(lease_key="s", checkpoint=ExtendedSequenceNumber(LATEST), hash_key_range=FULL)
    assert not settled(quiet(lease=lease, initial_position="LATEST"))


def test_nothing_is_noted_while_a_step_runs():
    scene = quiet()
    before = scene.consumer.progress.last_read
    assert not settled(scene, between=False)
    assert scene.consumer.progress.last_read is before
