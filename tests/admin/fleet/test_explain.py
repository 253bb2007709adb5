"""Explanations name the owner, what a shard waits for, its checkpoint, its lag, and what to do."""

from __future__ import annotations

import pytest

from kinesis_sdk.admin.applications import StreamFacts
from kinesis_sdk.admin.fleet.explain import explain
from kinesis_sdk.admin.fleet.lag import LagProbeResult
from kinesis_sdk.common.sequence import LATEST, SHARD_END, ExtendedSequenceNumber
from kinesis_sdk.consumer.leases.table.progress import Failing, Progress
from tests.admin.fleet.rows import Fleet, held, shard_id


def text_of(fleet: Fleet, number: int) -> str:
    return "\n".join(explain(fleet.view(), shard_id(number)))


def test_a_single_look_says_what_it_cannot_know() -> None:
    fleet = held(2, {"a": (0,)})
    text = text_of(fleet, 0)
    assert text.startswith("Shard 0000 is owned by a (a worker of this SDK).")
    assert "it starts at TRIM_HORIZON" in text
    assert "Watch for two failover times (20 s) to know." in text


def test_a_shard_that_is_processed() -> None:
    fleet = held()
    fleet.checkpoint(0, "4711", 3)
    fleet.scan(5)
    fleet.observer.observe_stream(None, StreamFacts(name="orders", retention=86_400.0), fleet.now)
    fleet.observer.observe_lag(shard_id(0), LagProbeResult(millis=90_000), fleet.now)
    text = text_of(fleet, 0)
    assert "the lease was renewed 0 s ago" in text
    assert "Checkpoint: record 4711, user record 3 of it, stored 0 s ago." in text
    assert (
        "It is 1 min 30 s behind (as the stream says). The retention passes its oldest unprocessed record in 23 h 58 min."
        in text
    )
    assert text.endswith(
        "Problem (behind): 0000: 1 min 30 s behind, the cause is not known yet. "
        "What to do: watch it for a minute: if it does not catch up, look at the worker's log."
    )
    fleet.observer.observe_lag(shard_id(0), LagProbeResult(millis=50_000), fleet.now)
    assert text_of(fleet, 0).endswith("No problem was found: the lease is renewed.")


def test_a_handler_that_fails_is_named_with_its_record() -> None:
    fleet = held()
    failing = Failing(3, 4_000, 9_000, 1, ExtendedSequenceNumber("4711", 5), "KeyError: 'price'")
    fleet.renew("a")
    fleet.change(0, progress=Progress(4_000, None, None, "a", failing))
    fleet.scan(2)
    text = text_of(fleet, 0)
    said = (
        "process_records has failed on record 4711/5 for 4 s (3 times, next call in 9 s): KeyError: 'price'"
    )
    assert f"P{said[1:]}. No later record of the shard is processed before this call succeeds." in text
    assert f"Problem (handler-fails): 0000: {said}. What to do: read the record and mend the handler" in text
    assert "No problem" not in text
    for action in (
        "To call it again now: retry(application='app', shard='0000')",
        "To leave this record out, and no other: skip-record(application='app', shard='0000')",
        "To open the record: tail(stream='orders', shard='0000', from='at:4711/5', limit='1')",
        "once the handler is mended: rewind(application='app', shard='0000', to='at:4711/5')",
    ):
        assert action in text, action
    fleet.change(0, progress=Progress(4_000, None, None, "a", failing._replace(records=40)))
    fleet.scan(2)
    text = text_of(fleet, 0)
    assert "has failed on 40 records from 4711/5 on" in text
    assert "skip-record" not in text, "it may be any of them"
    assert "To open the records: tail(stream='orders', shard='0000', from='at:4711/5', limit='40')" in text
    fleet.change(0, progress=Progress(4_000, None, None, "a", failing._replace(records=0, position=None)))
    fleet.scan(2)
    text = text_of(fleet, 0)
    assert "its handler has failed for" in text
    assert ("retry(" in text, "tail(" in text) == (True, False)


def test_a_child_tells_of_its_ancestors() -> None:
    fleet = Fleet(3)
    fleet.change(1, parent_shard_ids=(shard_id(0),))
    fleet.change(2, parent_shard_ids=(shard_id(1),))
    fleet.take("a", 0)
    fleet.take("b", 1, 2)
    fleet.scan()
    fleet.renew("b")
    fleet.scan(11)
    text = text_of(fleet, 2)
    assert "Shard 0002 waits for its parents" in text
    assert "Its parent: Shard 0001 waits for its parents" in text
    assert (
        "Its grandparent: Shard 0000 is owned by a (a worker of this SDK), which has not renewed the lease, longer"
        in text
    )
    assert "None of its leases is renewed: the worker is gone, frozen, or cut off from DynamoDB." in text
    assert (
        "Problem (silent-owner): a: 1 lease not renewed for 11 s. What to do: a live worker takes them over"
        in text
    )


def test_a_handler_that_hangs() -> None:
    fleet = held()
    fleet.renew("a")
    fleet.change(0, progress=Progress(0, None, 766_000, "a"))
    fleet.scan(2)
    text = text_of(fleet, 0)
    assert "has been in one call for 12 min 46 s" in text
    assert "Problem (handler): 0000: process_records runs for 12 min 46 s; lease renewed 0 s ago." in text


@pytest.mark.parametrize("worker", ["w", "evil\x1b\nworker"])
def test_other_states(worker: str) -> None:
    fleet = Fleet(5)
    fleet.take(worker, 0, 1, 4)
    fleet.request(0, "next")
    fleet.checkpoint(1, SHARD_END)
    fleet.change(2, checkpoint=ExtendedSequenceNumber(LATEST))
    del fleet.rows[shard_id(3)]
    fleet.change(4, pinned_to="gone", draining=(worker,))
    fleet.scan()
    assert "is being handed off" in text_of(fleet, 0)
    assert "then next begins" in text_of(fleet, 0)
    assert "was processed to its end" in text_of(fleet, 1)
    assert "Shard 0002 has no owner. 1 worker renews other leases and could take it." in text_of(fleet, 2)
    assert "what it means is decided when a worker first reads the shard" in text_of(fleet, 2)
    assert "is open and has no lease" in text_of(fleet, 3)
    assert "pinned to gone, which is not alive" in text_of(fleet, 4)
    assert "drains: it hands off all its leases" in text_of(fleet, 4)
    for number in range(5):
        assert all(paragraph.isprintable() for paragraph in explain(fleet.view(), shard_id(number)))


def test_a_cycle_of_parents_ends() -> None:
    fleet = Fleet(2)
    fleet.change(0, parent_shard_ids=(shard_id(1),))
    fleet.change(1, parent_shard_ids=(shard_id(0),))
    fleet.scan()
    assert "Problem (parent-cycle)" in text_of(fleet, 0)
