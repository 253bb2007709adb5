from __future__ import annotations

from dataclasses import replace

import pytest

from kinesis_sdk.common.errors import (
    InvalidCheckpointError,
    LeaseLostError,
    TransientAwsError,
)
from kinesis_sdk.common.metrics import BoundMetrics, Scope
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.sequence import SHARD_END, ExtendedSequenceNumber
from kinesis_sdk.consumer.leases.ownership.held_lease import HeldLeases
from kinesis_sdk.metrics import MemoryMetrics
from tests.consumer.leases.held_lease import START, Scenario, at


def record(sequence, sub=0):
    return UserRecord(b"", "k", str(sequence), None, None, sub, None, False)


def test_belief_counts_from_when_a_write_was_sent():
    """Peers may have seen its effect at once, however late the response arrives."""
    scenario = Scenario()
    write = scenario.store.renew

    def slow(lease):
        row = write(lease)
        scenario.clock.advance(4)
        return row

    scenario.store.renew = slow
    scenario.clock.advance(3)
    scenario.held.renew()
    assert scenario.held.written_at == 3
    assert scenario.held.is_held(13)
    assert not scenario.held.is_held(13.1)


def test_belief_counts_from_the_first_write_without_a_response():
    """A retry may find the effect of the first attempt, and peers count from that attempt."""
    scenario = Scenario()
    scenario.store.script = ["after"]
    scenario.clock.advance(3)
    with pytest.raises(TransientAwsError):
        scenario.held.renew()
    scenario.clock.advance(2)
    scenario.held.renew()
    assert scenario.held.written_at == 3
    scenario.clock.advance(1)
    scenario.held.renew()
    assert scenario.held.written_at == 6, "known again"


def test_an_old_acquisition_cannot_write_after_the_lease_was_lost_and_regained():
    scenario = Scenario()
    scenario.take("other")
    again = scenario.take("me")
    assert again.token != scenario.held.token
    with pytest.raises(LeaseLostError, match="owner me"):
        scenario.held.renew()
    assert scenario.held.gone is not None
    writes = scenario.store.writes
    with pytest.raises(LeaseLostError):
        scenario.held.checkpoint(at(5))
    assert scenario.store.writes == writes, "a lost lease does not even try"
    again.checkpoint(at(6))
    assert scenario.store.get("s").checkpoint == at(6)


def test_a_holder_stops_believing_after_the_failover_time():
    scenario = Scenario()
    scenario.clock.advance(10)
    assert scenario.held.is_held(scenario.clock.monotonic())
    scenario.clock.advance(0.1)
    assert not scenario.held.is_held(scenario.clock.monotonic())
    with pytest.raises(LeaseLostError, match=r"not renewed for 10\.1 s"):
        scenario.held.checkpoint(at(5))
    assert scenario.store.get("s").checkpoint == START


def test_release_ends_the_acquisition():
    scenario = Scenario()
    scenario.held.release()
    row = scenario.store.get("s")
    assert (row.owner, row.counter) == (None, 2)
    with pytest.raises(LeaseLostError, match="released"):
        scenario.held.renew()


def test_the_set_of_held_leases():
    scenario = Scenario()
    held = HeldLeases()
    held.add(scenario.held)
    assert (held.keys(), len(held), list(held)) == ({"s"}, 1, [scenario.held])
    newer = scenario.take("me")
    held.add(newer)
    held.remove(scenario.held)
    assert list(held) == [newer]
    held.remove(newer)
    assert len(held) == 0


def test_the_last_delivered_position_means_the_end_once_the_shard_ended():
    scenario = Scenario()
    checkpointer = scenario.checkpointer()
    checkpointer.advance(at(10))
    checkpointer.end_shard()
    checkpointer.checkpoint("9")
    assert scenario.store.get("s").checkpoint == at(9)
    checkpointer.checkpoint(record(10))
    assert scenario.store.get("s").checkpoint == ExtendedSequenceNumber(SHARD_END)


def test_a_failed_delivery_takes_its_positions_back():
    scenario = Scenario()
    checkpointer = scenario.checkpointer()
    before = checkpointer.advance(at(10))
    checkpointer.checkpoint("4")
    checkpointer.retreat(before)
    assert checkpointer.largest_delivered == at(4)
    with pytest.raises(InvalidCheckpointError):
        checkpointer.checkpoint("10")


def test_a_lost_lease_refuses_even_a_checkpoint_that_would_write_nothing():
    scenario = Scenario()
    scenario.held.mark_lost("test")
    with pytest.raises(LeaseLostError):
        scenario.checkpointer().checkpoint()


def test_a_marker_from_before_the_take_is_ignored():
    """Reads of the table may be stale: this one shows the last handoff of the same lease, away from us."""
    scenario = Scenario()
    before = replace(scenario.store.get("s"), counter=0, owner="other", checkpoint_owner="me")
    assert not scenario.held.observe_handoff_request(before, 1)
    assert scenario.held.handoff_requester is None
    asked = scenario.store.request_handoff(scenario.store.get("s"), "other")
    assert not scenario.held.observe_handoff_request(replace(asked, checkpoint_owner="x"), 1)
    assert scenario.held.observe_handoff_request(asked, 2)
    assert not scenario.held.observe_handoff_request(asked, 3), "news once"
    assert (scenario.held.handoff_requester, scenario.held.handoff_requested_at) == ("other", 2)
    scenario.held.release()
    row = scenario.store.get("s")
    assert (row.owner, row.checkpoint_owner) == ("other", None)
    assert scenario.held.gone == "handed off to other"


def test_throughput_goes_into_renewals_and_decays():
    scenario = Scenario()
    scenario.held.renew()
    assert scenario.store.get("s").throughput_kbps is None, "nothing was delivered yet"
    scenario.held.meter.add(40 * 1024)
    scenario.clock.advance(4)
    scenario.held.renew()
    assert scenario.store.get("s").throughput_kbps == 10.0
    scenario.clock.advance(4)
    scenario.held.checkpoint(at(5))
    assert scenario.store.get("s").throughput_kbps == 5.0


def rates_of_a_jittering_shard(*, has_kcl3_leader):
    scenario = Scenario()
    held = scenario.take("me", has_kcl3_leader=lambda _now: has_kcl3_leader)
    written = []
    for kilobytes in (40, 44, 40, 44, 40, 44, 48, 36, 44):
        held.meter.add(kilobytes * 1024)
        scenario.clock.advance(4)
        held.renew()
        written.append(scenario.store.get("s").throughput_kbps)
    return written


def test_a_fluctuating_rate_is_stored_as_one_number_or_as_measured_for_a_kcl_3_leader():
    ours, javas = (rates_of_a_jittering_shard(has_kcl3_leader=flag) for flag in (False, True))
    assert len(set(ours[-4:])) == 1, "followed at first, then kept"
    assert len(set(javas[-4:])) == 4
    assert javas[:5] == ours[:5] == [10.0, 10.5, 10.25, 10.625, 10.3125]


def test_a_loss_that_two_threads_find_is_counted_once():
    sink = MemoryMetrics()
    scope = Scope({"ApplicationName": "billing", "WorkerIdentifier": "me"})
    scenario = Scenario()
    held = scenario.take("me", metrics=BoundMetrics(sink, scope))
    held.mark_lost("its counter is 9, owner you")
    held.mark_lost("not renewed for 11.0 s")
    held.let_expire("its handler hangs")
    assert held.gone == "its counter is 9, owner you"
    assert sink.get("LostLeases", **scope.dimensions).total == 1


def test_a_lease_that_is_left_to_expire_is_not_lost():
    sink = MemoryMetrics()
    held = Scenario().take(
        "me", metrics=BoundMetrics(sink, Scope({"ApplicationName": "b", "WorkerIdentifier": "me"}))
    )
    held.let_expire("its release failed")
    held.mark_lost("not renewed for 11.0 s")
    assert sink.get("LostLeases", ApplicationName="b", WorkerIdentifier="me") is None
