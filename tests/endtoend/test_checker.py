"""The judge of the end-to-end tests must itself be able to say no: a good story, and every way to spoil it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from integration.endtoend import records
from integration.endtoend.checker import Findings, check
from integration.endtoend.recorded_events import (
    Acquisition,
    LeaseTableMonitor,
    Pause,
    ProducerRun,
    RecordedEvents,
    WorkerRun,
)
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.testing.accounting.verify import Delivery, Put


def at(number: int | str, sub: int = 0) -> ExtendedSequenceNumber:
    return ExtendedSequenceNumber(str(number), sub)


def shard(shard_id: str, *parents: str, is_open: bool = True) -> Shard:
    return Shard(shard_id, HashKeyRange(0, 9), *parents, ending_sequence_number=None if is_open else "99")  # type: ignore[misc]


def lease(key: str, position: ExtendedSequenceNumber, **more: object) -> Lease:
    return Lease(lease_key=key, checkpoint=position, **more)  # type: ignore[arg-type]


def put(position: tuple[int, int] | None, shard_id: str = "s0", *, key: str = "k", attempts: int = 1) -> Put:
    return Put(key, 0.0, position, shard_id, attempts, 0.1)


def story() -> RecordedEvents:
    """Worker a takes s0, reads 0 to 2 and is stopped; b reads 3 to s0's end, then 4 and 5 of its child s1."""
    recorded = RecordedEvents(failover_time=5.0)
    recorded.producers["p"] = ProducerRun("p", 0, ordered=True, count=6)
    recorded.workers = {name: WorkerRun(name) for name in "ab"}
    recorded.acquisitions = {
        ("a", 1): Acquisition("a", 1, "s0", at("TRIM_HORIZON"), 1.0, [(3.5, at(12))]),
        ("b", 1): Acquisition("b", 1, "s0", at(12), 10.0, [(11.5, at(13)), (12.0, at("SHARD_END"))]),
        ("b", 2): Acquisition("b", 2, "s1", at("TRIM_HORIZON"), 20.0, [(22.5, at(21, 1))]),
    }
    where = [(2.0, "a", "s0", (10, 0), 1), (3.0, "a", "s0", (11, 0), 1), (3.0, "a", "s0", (12, 0), 1)]
    where += [(11.0, "b", "s0", (13, 0), 1), (21.0, "b", "s1", (21, 0), 2), (22.0, "b", "s1", (21, 1), 2)]
    for number, (moment, worker, shard_id, position, acquisition) in enumerate(where):
        recorded.puts[number] = put(position, shard_id)
        recorded.deliveries.append(Delivery(number, worker, shard_id, position, moment, acquisition))
    recorded.shards = {"s0": shard("s0", is_open=False), "s1": shard("s1", "s0")}
    recorded.rows = {"s1": lease("s1", at(21, 1))}
    return recorded


def again(recorded: RecordedEvents, index: int, **changes: object) -> None:
    """A record is delivered once more."""
    recorded.deliveries.append(recorded.deliveries[index]._replace(**changes))


def kinds(recorded: RecordedEvents) -> set[str]:
    return set(check(recorded).kinds)


def test_a_good_story_is_good() -> None:
    findings = check(story())
    assert findings == Findings(
        violations=[],
        acknowledged=6,
        unacknowledged=0,
        processed=6,
        lost=[],
        duplicates={},
        overtaken=0,
        take_overs=[],
        put_to_process=[2.0, 3.0, 3.0, 11.0, 21.0, 22.0],
    )


# -- records ----------------------------------------------------------------------------------------------------


def test_a_lost_record() -> None:
    recorded = story()
    del recorded.deliveries[3]
    recorded.acquisitions["b", 1].checkpoints.pop(0)
    findings = check(recorded)
    assert (findings.lost, set(findings.kinds)) == ([3], {"lost"})


def test_a_record_that_nobody_put() -> None:
    recorded = story()
    again(recorded, 5, number=6, position=(21, 2), at=23.0)
    recorded.rows = {"s1": lease("s1", at(21, 2))}
    assert kinds(recorded) == {"unknown record"}


def test_every_record_of_a_producer_that_ended_has_a_result() -> None:
    recorded = story()
    recorded.producers["p"].count = 7
    assert kinds(recorded) == {"record without a result"}
    recorded.producers["p"].count = None
    assert kinds(recorded) == {"producer did not end"}


def test_a_failed_record() -> None:
    recorded = story()
    recorded.puts[6] = put(None)
    recorded.producers["p"].count = 7
    assert kinds(recorded) == {"record failed"}


def test_a_record_that_is_not_what_was_put() -> None:
    recorded = story()
    recorded.corrupt.append("3 by b")
    assert kinds(recorded) == {"not what was put"}


# -- duplicates -------------------------------------------------------------------------------------------------


def test_a_duplicate_without_an_event() -> None:
    recorded = story()
    again(recorded, 4, at=21.5)
    assert kinds(recorded) == {"duplicate"}


def read_again_by_b(recorded: RecordedEvents) -> None:
    """The last records of a were not checkpointed, and b reads them again."""
    recorded.acquisitions["a", 1].checkpoints = [(3.2, at(11))]
    recorded.acquisitions["b", 1].start = at(11)
    again(recorded, 2, worker="b", at=10.5, acquisition=1)


def freeze(worker: str, begin: float, end: float, cause: str = "freeze") -> Callable[[RecordedEvents], None]:
    return lambda recorded: recorded.workers[worker].pauses.append(Pause(begin, end, cause))


def kill(worker: str, moment: float) -> Callable[[RecordedEvents], None]:
    return lambda recorded: setattr(recorded.workers[worker], "killed_at", moment)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (kill("a", 4.0), records.KILLED),
        (freeze("a", 4.0, 30.0), records.FROZEN),
        (freeze("a", 4.0, 30.0, "stall"), records.STALLED),
        (lambda recorded: recorded.shared_pauses.append(Pause(4.0, 9.0, "wire")), records.WIRE),
        (kill("a", 50.0), None),
        (kill("b", 50.0), None),
        (freeze("a", 0.0, 1.0), None),
        (freeze("a", 11.0, 12.0), None),
    ],
)
def test_what_is_read_again_needs_an_event_of_its_former_reader(
    event: Callable[[RecordedEvents], None], reason: str | None
) -> None:
    recorded = story()
    read_again_by_b(recorded)
    event(recorded)
    findings = check(recorded)
    if reason is None:
        assert set(findings.kinds) == {"duplicate"}
    else:
        assert (findings.violations, findings.duplicates) == ([], {reason: 1})


def test_a_kill_is_no_excuse_for_ignoring_a_checkpoint() -> None:
    recorded = story()
    again(recorded, 2, worker="b", at=10.5, acquisition=1)
    recorded.workers["a"].killed_at = 4.0
    assert kinds(recorded) == {"delivered below the checkpoint"}


def second_copy(recorded: RecordedEvents) -> None:
    again(recorded, 5, position=(21, 2), at=23.0)
    recorded.rows = {"s1": lease("s1", at(21, 2))}


def test_a_second_copy_in_the_stream_needs_a_second_attempt() -> None:
    recorded = story()
    second_copy(recorded)
    assert kinds(recorded) == {"duplicate"}
    recorded.puts[5] = put((21, 1), "s1", attempts=2)
    assert check(recorded).duplicates == {records.STORED_TWICE: 1}
    recorded.moved.add(5)
    assert check(recorded).duplicates == {records.STORED_ACROSS: 1}
    again(recorded, 5, position=(21, 3), at=24.0)
    recorded.rows = {"s1": lease("s1", at(21, 3))}
    assert kinds(recorded) == {"duplicate"}, "three copies of two attempts"


# -- order ------------------------------------------------------------------------------------------------------


def test_out_of_the_order_of_the_shard() -> None:
    recorded = story()
    recorded.deliveries[0] = recorded.deliveries[0]._replace(at=3.2)
    recorded.producers["p"].ordered = False
    assert kinds(recorded) == {"out of the shard's order"}


def test_a_child_before_the_end_of_its_parent() -> None:
    recorded = story()
    recorded.deliveries[3] = recorded.deliveries[3]._replace(at=21.5)
    recorded.acquisitions["b", 1].checkpoints = [(21.7, at(13)), (21.8, at("SHARD_END"))]
    recorded.producers["p"].ordered = False
    assert kinds(recorded) == {"child before parent"}


def test_a_shard_that_is_not_the_streams() -> None:
    recorded = story()
    recorded.shards = {"s0": recorded.shards["s0"]}
    assert "unknown shard" in kinds(recorded)


def test_out_of_the_order_of_the_key() -> None:
    recorded = story()
    first, second = recorded.deliveries[1], recorded.deliveries[2]
    recorded.deliveries[1:3] = [second._replace(position=(11, 0)), first._replace(position=(12, 0))]
    recorded.puts[1], recorded.puts[2] = put((12, 0)), put((11, 0))
    assert kinds(recorded) == {"out of the key's order"}
    recorded.puts[1] = put((12, 0), key="other")
    assert kinds(recorded) == set()
    recorded.puts[1] = put((12, 0))
    recorded.producers["p"].ordered = False
    findings = check(recorded)
    assert (findings.violations, findings.overtaken) == ([], 1)


# -- leases -----------------------------------------------------------------------------------------------------


def test_a_checkpoint_that_goes_back_within_an_acquisition() -> None:
    recorded = story()
    recorded.acquisitions["a", 1].checkpoints = [(3.2, at(12)), (3.4, at(11))]
    assert kinds(recorded) == {"checkpoint went back"}


def test_a_worker_that_begins_below_what_was_stored() -> None:
    recorded = story()
    recorded.acquisitions["b", 1].start = at(11)
    assert kinds(recorded) == {"checkpoint went back"}
    recorded.workers["b"].pauses.append(Pause(4.0, 9.0, "freeze"))
    assert kinds(recorded) == set(), "it was frozen in between, and can store nothing"


def test_a_checkpoint_beyond_what_was_delivered() -> None:
    recorded = story()
    recorded.acquisitions["a", 1].checkpoints = [(2.5, at(12))]
    assert kinds(recorded) == {"checkpoint ahead"}, "it came to 12 later"


def test_two_owners_at_a_time() -> None:
    recorded = story()
    recorded.deliveries[2] = recorded.deliveries[2]._replace(at=10.5)
    recorded.acquisitions["a", 1].checkpoints = [(3.2, at(11))]
    recorded.acquisitions["b", 1].start = at(11)
    assert kinds(recorded) == {"two owners at a time"}
    recorded.workers["a"].pauses.append(Pause(3.5, 10.4, "freeze"))
    assert kinds(recorded) == set()
    recorded.workers["a"].pauses = [Pause(1.0, 2.0, "freeze")]
    assert kinds(recorded) == {"two owners at a time"}, "it had time enough to notice"


def test_a_worker_that_comes_back_late_finishes_one_batch_and_begins_no_other() -> None:
    recorded = story()
    recorded.workers["a"].pauses.append(Pause(3.5, 30.0, "freeze"))
    again(recorded, 3, worker="a", at=10.5, acquisition=1)
    assert kinds(recorded) == set()
    again(recorded, 3, worker="a", at=10.6, acquisition=1)
    assert "went on without the lease" in kinds(recorded)


def test_a_delivery_without_a_lease() -> None:
    recorded = story()
    recorded.deliveries[4] = recorded.deliveries[4]._replace(acquisition=1)
    assert "delivery without a lease" in kinds(recorded)


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([], "no lease"),
        ([lease("s1", at(21, 1), owner="b")], "lease not released"),
        ([lease("s1", at(21, 1), checkpoint_owner="b")], "lease not released"),
        ([lease("s1", at(21, 0))], "processed and not checkpointed"),
        ([lease("s1", at("SHARD_END"))], "open shard finished"),
        ([lease("s1", at(21, 1), extra={"x": {"S": "y"}})], "foreign attributes"),
        ([lease("s1", at(21, 1), pending_checkpoint=at(22))], "checkpoint left pending"),
        ([lease("s1", at(21, 1)), lease("s7", at(1))], "foreign lease"),
        ([lease("s1", at(21, 1)), lease("s0", at(13))], "closed shard not finished"),
        ([lease("s1", at(21, 1)), lease("s0", at("SHARD_END"))], "finished lease left over"),
    ],
)
def test_an_untidy_table(rows: list[Lease], kind: str) -> None:
    recorded = story()
    recorded.rows = {row.lease_key: row for row in rows}
    assert kinds(recorded) == {kind}


def test_the_table_is_watched() -> None:
    def watched(*checks: list[Lease]) -> list[str]:
        watch = LeaseTableMonitor()
        for number, rows in enumerate(checks):
            watch.check(rows, float(number))
        assert watch.checks == len(checks)
        assert watch.vanished == []
        return [violation.kind for violation in watch.violations]

    one, two = lease("s0", at(1), counter=5), lease("s0", at(2), counter=6)
    done = lease("s0", at("SHARD_END"), counter=7)
    assert watched([], [one], [two], [done], []) == []
    assert watched([two], [replace(one, counter=7)]) == ["checkpoint went back"]
    assert watched([two], [replace(two, counter=5)]) == ["counter went back"]
    assert watched([done], [], [one]) == ["lease reappeared"]
    recorded = story()
    recorded.table_monitor.check([two], 1.0)
    recorded.table_monitor.check([one], 2.0)
    assert kinds(recorded) == {"checkpoint went back", "counter went back"}


@pytest.mark.parametrize(("gone_at", "is_bad"), [(12.5, False), (11.9, True)])
def test_a_lease_may_be_finished_and_deleted_between_two_looks(gone_at: float, is_bad: bool) -> None:
    recorded = story()
    recorded.table_monitor.check([lease("s0", at(13))], 11.6)
    recorded.table_monitor.check([], gone_at)
    assert kinds(recorded) == ({"unfinished lease deleted"} if is_bad else set()), (
        "its worker finished it at 12.0"
    )
