"""An idempotent producer: who gets which identity, what is held back, and what is known of a record that failed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from kinesis_sdk.common.errors import ProducerClosedError
from kinesis_sdk.common.hashkeys import hash_partition_key
from kinesis_sdk.common.once.identity import Identity, RecordIdentity, resumed
from kinesis_sdk.common.once.names import Names
from kinesis_sdk.common.once.runs import Runs
from kinesis_sdk.common.once.stamps import Stamps, fresh_entropy
from kinesis_sdk.common.once.table import FIRST, HOLD_OFF, NAMED, REPEAT, Run, RunTable, decode_table
from kinesis_sdk.common.shards import list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.producer.records.entry import Entry
from kinesis_sdk.testing import Fault
from tests.producer.simulation import STREAM, Simulation
from tests.producer.stream.distribution import AUTO
from tests.producer.support import failure_of, make_record

SHARD = "shardId-000000000000"
NAMES = Names("orders")
NEVER_AGAIN = 10**9


def idempotent(**settings: Any) -> ProducerConfig:
    return ProducerConfig(idempotent=True, **settings)


def started(**settings: Any) -> Simulation:
    """A producer with one shard that has stored one record, so that it has its map."""
    simulation = Simulation(idempotent(**settings), shards=1, latency=0.01)
    simulation.warm()
    return simulation


def lose(simulation: Simulation, *, stored: bool = True, count: int = 1) -> None:
    kind = "timeout_after_storing" if stored else "timeout_before_storing"
    simulation.aws.faults.add(Fault(kind=kind, operation="PutRecords", count=count))  # type: ignore[arg-type]


def throttle(simulation: Simulation, count: int = 1) -> None:
    simulation.aws.faults.add(Fault(kind="partial", operation="PutRecords", count=count))


def watched(simulation: Simulation) -> list[tuple[float, RunTable | None]]:
    """When each Kinesis record is sent from now on, by the clock of the service, and its table of runs."""
    sent: list[tuple[float, RunTable | None]] = []
    check = simulation.check_attempt

    def watch(entries: list[Entry]) -> None:
        check(entries)
        for entry in entries:
            runs = entry.aggregate.runs
            table = None if runs is None else decode_table(runs.tag, STREAM, entry.aggregate.count)
            assert runs is None or table is not None
            sent.append((simulation.clock.time(), table))

    simulation.check_attempt = watch  # type: ignore[method-assign]
    return sent


def observed(**settings: Any) -> tuple[Simulation, list[tuple[float, RunTable | None]]]:
    simulation = started(**settings)
    return simulation, watched(simulation)


def runs(sent: list[tuple[float, RunTable | None]]) -> list[Run]:
    return [run for _, table in sent if table is not None for run in table.runs]


# ---------------------------------------------------------------------- attempts


def test_a_lost_answer_is_repeated_with_the_same_identity_and_a_mark_after_the_hold_off() -> None:
    simulation, sent = observed()
    lose(simulation)
    records = [simulation.put(f"k{number}", b"%d" % number) for number in range(5)]
    simulation.finish()
    first, second = runs(sent)
    assert first == Run(5, HOLD_OFF, 0, first.incarnation, first.date, first.number)
    assert second == first._replace(flags=REPEAT)
    (at, _), (again, _) = sent
    assert first.date / 1000 <= at
    assert HOLD_OFF <= again - first.date / 1000 <= HOLD_OFF + 1.5, "it is held, and no longer than that"
    assert all(record.done() for record in records)
    assert len(simulation.copies()) == 11


def test_a_rejection_that_stored_nothing_leaves_no_trace() -> None:
    simulation, sent = observed()
    throttle(simulation)
    begin = simulation.clock.time()
    record = simulation.put_and_run("a", b"x")
    first, second = runs(sent)
    assert (first.flags, second.flags) == (0, 0)
    assert second.number > first.number
    assert simulation.clock.time() - begin < 2.0, "it is retried as without idempotent"
    assert record.identity is None


def test_a_rejection_after_a_lost_answer_forgets_nothing() -> None:
    simulation, sent = observed()
    lose(simulation)
    record = simulation.put("a", b"x")
    simulation.run(simulation.clock.monotonic() + 1.0)
    throttle(simulation, 2)
    simulation.finish()
    assert record.done()
    first, *repeats = runs(sent)
    assert repeats == [first._replace(flags=REPEAT)] * 3


def test_a_second_lost_answer_does_not_hold_it_again() -> None:
    simulation, sent = observed()
    lose(simulation, count=2)
    simulation.put("a", b"x")
    simulation.finish()
    times = [at for at, _ in sent]
    assert times[1] - times[0] > HOLD_OFF - 1
    assert times[2] - times[1] < HOLD_OFF, "the hold-off counts from the first attempt"
    assert {run.date for run in runs(sent)} == {runs(sent)[0].date}


def test_held_and_fresh_records_share_an_aggregate_in_runs() -> None:
    simulation, sent = observed(record_max_buffered_time=1.0)
    lose(simulation)
    simulation.put("a", b"held 0")
    simulation.put("b", b"held 1")
    simulation.flush()
    simulation.run(simulation.clock.monotonic() + 3.0)
    assert simulation.pipeline.queue.next_retry < float("inf")
    simulation.clock.advance_to(simulation.pipeline.queue.next_retry - 0.01)
    simulation.put("c", b"fresh")
    simulation.finish()
    assert simulation.pipeline.pending_count == 0
    tables = [table for _, table in sent[1:] if table is not None]
    flags = [[(run.count, run.flags) for run in table.runs] for table in tables]
    assert flags in ([[(1, 0), (2, REPEAT)]], [[(2, REPEAT)], [(1, 0)]])


def test_fresh_records_before_and_behind_others_have_identities_of_their_own() -> None:
    simulation, sent = observed(record_max_buffered_time=1.0)
    for number, name in enumerate((None, "order-1", None, None, "order-2", None)):
        identity = None if name is None else NAMES.identity(name, 300.0, bytes(16))
        simulation.put("a", b"%d" % number, identity=identity)
    simulation.finish()
    (table,) = [table for _, table in sent if table is not None]
    fresh = [run for run in table.runs if run.incarnation == table.runs[0].incarnation]
    numbers = [run.number + index for run in fresh for index in range(run.count)]
    assert [run.count for run in table.runs] == [1, 1, 2, 1, 1]
    assert len(set(numbers)) == 4


def test_a_misplaced_record_of_one_is_sent_again() -> None:
    """As an aggregate, it is not stored wherever it landed: readers drop it there."""
    simulation = Simulation(idempotent(aggregation_enabled=False), shards=1)
    simulation.warm()
    simulation.split()
    sent = watched(simulation)
    record = simulation.put("a", b"second")
    simulation.finish()
    assert len(record.result().attempts) == 1, (
        "its hash key is in the range of the child: valid, whatever was predicted"
    )
    assert [run.flags for run in runs(sent)] == [0]


def test_a_record_of_one_that_landed_outside_of_its_range_is_void(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(idempotent(aggregation_enabled=False), shards=2)
    simulation.warm()
    shards = {
        shard.shard_id: shard.hash_key_range for shard in list_shards(simulation.client, StreamId(STREAM))
    }
    place = hash_partition_key("a")
    wrong = next(name for name, owned in shards.items() if not owned.start_bytes <= place <= owned.end_bytes)
    sent = watched(simulation)
    answers = []
    original = simulation.client.put_records

    def misplaced(**request: Any) -> Any:
        response = original(**request)
        if not answers:  # as if the service had begun to place records itself
            response["Records"][0]["ShardId"] = wrong
        answers.append(response)
        return response

    monkeypatch.setattr(simulation.client, "put_records", misplaced)
    record = simulation.put_and_run("a", b"second")
    assert [attempt.code for attempt in record.result().attempts] == ["Wrong Shard", ""]
    first, second = runs(sent)
    assert second.flags == 0, "the shard is known, so nothing valid is stored"
    assert second.number != first.number


def test_an_unknown_shard_is_an_unknown_outcome() -> None:
    """The shard has no known range because ListShards fails: the copy may be valid, so it is repeated with a mark."""
    simulation = started()
    simulation.split()
    simulation.aws.faults.add(Fault(kind="error", operation="ListShards", count=5))
    sent = watched(simulation)
    record = simulation.put("a", b"x")
    simulation.finish()
    assert record.done()
    assert [run.flags for run in runs(sent)] == [0, REPEAT]


def test_a_rejected_aggregate_is_divided_into_parts_with_identities() -> None:
    simulation = started(record_max_buffered_time=0.5)
    simulation.aws.faults.add(
        Fault(kind="error", operation="PutRecords", code="ValidationException", status=400, count=1)
    )
    sent = watched(simulation)
    for number in range(4):
        simulation.put(f"k{number}", b"%d" % number)
    simulation.finish()
    assert sorted(run.count for run in runs(sent)) == [2, 2, 4]
    assert all(run.flags == 0 for run in runs(sent))


# ---------------------------------------------------------------------- the map and the time


def test_the_first_request_waits_for_the_shard_map() -> None:
    simulation = Simulation(idempotent(record_max_buffered_time=0.0), shards=2)
    simulation.aws.faults.add(Fault(kind="error", operation="ListShards", count=3))
    record = simulation.put("a", b"x")
    simulation.flush()
    simulation.run(0.3)
    assert not simulation.requests
    simulation.run()
    assert record.exception() is None
    assert len(simulation.requests) == 1


def test_a_record_that_waits_for_the_map_expires() -> None:
    simulation = Simulation(idempotent(record_ttl=10.0), shards=2)
    simulation.aws.faults.add(Fault(kind="error", operation="ListShards", count=NEVER_AGAIN))
    record = simulation.put_and_run("a", b"x")
    error = failure_of(record)
    assert error.attempts[-1].code == "Expired"
    assert error.maybe_stored is False


def test_without_the_permission_to_list_shards_it_is_refused() -> None:
    simulation = Simulation(idempotent(), shards=2)
    simulation.aws.faults.add(
        Fault(kind="error", operation="ListShards", code="AccessDeniedException", status=400)
    )
    record = simulation.put_and_run("a", b"x")
    error = failure_of(record)
    assert error.attempts[-1].code == "IdempotenceImpossible"
    assert "kinesis:ListShards" in str(error.__cause__)
    assert not simulation.requests


def test_dates_follow_the_service_and_not_this_machine(caplog: pytest.LogCaptureFixture) -> None:
    wall, stamps = made(wall=5_000.0)
    stamps.observe({"HTTPHeaders": {"date": "Fri, 02 Jan 2026 12:00:00 GMT"}}, 100.0)
    noon = 1_767_355_200
    assert stamps._date(100.0, wall()) == noon * 1000
    assert stamps._date(107.5, wall()) == noon * 1000 + 7500
    stamps.observe({"HTTPHeaders": {"date": "Fri, 02 Jan 2026 12:00:00 GMT"}}, 108.0)
    assert stamps._date(108.0, wall()) == noon * 1000 + 8000
    stamps.observe({"HTTPHeaders": {"date": "Fri, 02 Jan 2026 12:00:02 GMT"}}, 110.0)
    assert stamps._date(110.0, wall()) == noon * 1000 + 10_000, "a later answer that says less is ignored"
    stamps.observe({}, 111.0)
    stamps.observe(None, 111.0)
    assert not caplog.records


def test_an_old_date_is_not_moved_on_for_ever() -> None:
    """The monotonic clock drifts: a day later it would be seconds ahead of the service."""
    wall, stamps = made(wall=1_000_900.0)
    stamps.observe_date(1_000_000.0, 0.0)
    assert stamps._date(600.0, wall()) == 1_000_600_000
    assert stamps._date(901.0, wall()) == 1_000_898_000, "the wall clock less 2 s is lower"
    assert stamps._date(700.0, 2_000_000.0) == 1_000_700_000


def test_without_a_date_the_wall_clock_less_two_seconds_counts(caplog: pytest.LogCaptureFixture) -> None:
    wall, stamps = made(wall=5_000.0)
    for _ in range(2):
        assert stamps._date(100.0, wall()) == 4_998_000
    assert len(caplog.records) == 1


def made(*, wall: float = 1_000_000.0, enabled: bool = True) -> tuple[Callable[[], float], Stamps]:
    drawn = iter(range(1, 1_000_000))
    stamps = Stamps(
        StreamId(STREAM),
        enabled=enabled,
        wall_clock=lambda: wall,
        entropy=lambda size: next(drawn).to_bytes(size, "big"),
    )
    return (lambda: wall), stamps


# ---------------------------------------------------------------------- too late


def test_a_suspended_machine_shows_its_age_by_the_wall_clock_only() -> None:
    now = [1_000_000.0]
    stamps = Stamps(
        StreamId(STREAM), enabled=True, wall_clock=lambda: now[0], entropy=lambda size: b"\x01" * size
    )
    entry = tagged_entry(2)
    stamps.observe_date(1_000_000.0, 0.0)
    stamps.stamp([entry], 0.0)
    stamps.keep(entry)
    now[0] += 600.0
    stamps.stamp([entry], 5.0)
    assert stamps.begun_anew == 0
    now[0] += 1.0
    stamps.stamp([entry], 6.0)
    assert stamps.begun_anew == 2
    assert table_of(entry).runs[0].flags == 0
    stamps.stamp([entry], 7.0)
    assert stamps.begun_anew == 2, "once for each record"
    assert all(record.identity is not None and record.identity.may_be_stored for record in entry.records), (
        "its first attempt still may be stored"
    )
    assert all(record.identity is not None and record.identity.shared is None for record in entry.records)
    stamps.keep(entry)
    assert [record.identity.number for record in entry.records if record.identity] == [
        table_of(entry).runs[0].number + offset for offset in range(2)
    ]


def tagged_entry(count: int) -> Entry:
    from kinesis_sdk.common.aggregate_writer import Aggregate

    entry = Entry(Aggregate(10**9, 10**9, runs=Runs()), SHARD)
    for _ in range(count):
        record = make_record()
        assert entry.take(record, b"x", record.hash_key, 0.1, 30.0)
    return entry


def table_of(entry: Entry) -> RunTable:
    assert entry.aggregate.runs is not None
    table = decode_table(entry.aggregate.runs.tag, STREAM, len(entry.records))
    assert table is not None
    return table


def test_each_request_has_an_incarnation_of_its_own_and_a_repetition_keeps_its_first() -> None:
    simulation = Simulation(idempotent(), shards=2, latency=0.01)
    sent = watched(simulation)
    lose(simulation)
    for data in (b"1", b"2", b"3"):
        for key in ("a", "d"):  # one in each shard
            simulation.put(key, data)
        simulation.run(simulation.clock.monotonic() + 1.0)
    simulation.run()
    fresh = [run for run in runs(sent) if run.flags == 0]
    repeated = [run for run in runs(sent) if run.flags == REPEAT]
    assert [run.incarnation for run in fresh[::2]] == [run.incarnation for run in fresh[1::2]], (
        "the Kinesis records of a request have one"
    )
    assert len({run.incarnation for run in fresh}) == 3, "nothing is continued from one request to the next"
    numbers = [run.number for run in fresh]
    assert numbers == [*range(numbers[0], numbers[0] + 6)]
    assert repeated == [run._replace(flags=REPEAT) for run in fresh[:2]]


def test_what_is_not_sent_with_identities_draws_nothing() -> None:
    from kinesis_sdk.common.aggregate_writer import Aggregate

    drawn: list[int] = []

    def entropy(size: int) -> bytes:
        drawn.append(size)
        return bytes(size)

    stamps = Stamps(StreamId(STREAM), enabled=True, wall_clock=lambda: 0.0, entropy=entropy)
    del drawn[:]
    stamps.stamp([Entry(Aggregate(10**9, 10**9), SHARD)], 0.0)
    assert not drawn
    stamps.stamp([tagged_entry(1), tagged_entry(1)], 0.0)
    assert drawn == [8], "once for each request"


def test_producers_draw_from_the_operating_system() -> None:
    """Not from the generator that a user may seed: two processes with one seed would lose records."""
    import random

    from kinesis_sdk.producer.stream.pipeline import StreamPipeline

    drawn = []
    for _ in range(2):
        stamps = StreamPipeline(StreamId(STREAM), idempotent(), random.Random(0)).stamps
        entry = tagged_entry(1)
        stamps.stamp([entry], 0.0)
        drawn.append(table_of(entry).runs[0])
        assert drawn[-1].number < 2**40
    assert drawn[0].incarnation != drawn[1].incarnation


def test_equal_random_bytes_of_two_machines_are_told_apart_by_their_clocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A restored virtual machine may go on with the random state of its image."""
    monkeypatch.setattr("kinesis_sdk.common.once.stamps.os.urandom", bytes)
    assert len(fresh_entropy(8)) == 8
    assert len({fresh_entropy(8) for _ in range(100)}) == 100


# ---------------------------------------------------------------------- failures


def test_what_expires_while_it_is_held_may_be_stored() -> None:
    simulation = started(record_ttl=10.0)
    lose(simulation, count=NEVER_AGAIN)
    record = simulation.put_and_run("a", b"x")
    assert failure_of(record).maybe_stored is True
    assert any(copy.data == b"x" for copy in simulation.copies())


def test_what_expires_before_its_hold_off_ends_says_so() -> None:
    simulation = started(record_ttl=4.5, request_timeout=0.5)
    simulation.down = True
    record = simulation.put("a", b"x")
    simulation.run(simulation.clock.monotonic() + 3.0)
    simulation.down = False
    lose(simulation)
    simulation.run()
    error = failure_of(record)
    assert error.maybe_stored is True
    assert "the hold-off" in str(error)
    assert record.arrived + 4.5 <= simulation.clock.monotonic() <= record.arrived + 5.0


@pytest.mark.parametrize("ordering", ["none", "per_shard"])
def test_what_was_only_rejected_is_not_stored(ordering: Any) -> None:
    simulation = started(record_ttl=10.0, ordering=ordering)
    throttle(simulation, NEVER_AGAIN)
    record = simulation.put_and_run("a", b"x")
    assert failure_of(record).maybe_stored is False


def test_a_rejection_that_need_not_be_the_services_leaves_open_what_is_stored() -> None:
    """A proxy between the two may answer after it passed the request on."""
    simulation = started()
    simulation.aws.faults.add(Fault(kind="error", operation="PutRecords", status=413, code="413", count=1))
    record = simulation.put_and_run("a", b"x")
    assert failure_of(record).maybe_stored is True
    assert record.identity is not None
    assert record.identity.date is not None


def test_without_idempotent_nothing_is_known() -> None:
    simulation = Simulation(ProducerConfig(record_ttl=10.0), shards=1)
    lose(simulation, count=NEVER_AGAIN)
    record = simulation.put_and_run("a", b"x")
    assert failure_of(record).maybe_stored is None


def test_what_is_abandoned_in_flight_may_be_stored() -> None:
    simulation = started()
    flying = simulation.put("a", b"flying")
    simulation.flush()
    now = simulation.clock.monotonic()
    simulation.turn(now)
    assert simulation.pipeline.queue.poll(now, 1) == []
    waiting = simulation.put("b", b"waiting")
    simulation.pipeline.responses.abandon(now, ProducerClosedError("closed"))
    simulation._settle()
    assert failure_of(flying).maybe_stored is True
    assert failure_of(waiting).maybe_stored is False
    assert flying.identity is not None
    assert flying.identity.date is not None


# ---------------------------------------------------------------------- order


def test_ordered_mode_waits_for_a_head_that_is_held() -> None:
    simulation, sent = observed(ordering="per_shard")
    lose(simulation)
    simulation.put("a", b"1")
    simulation.run(simulation.clock.monotonic() + 1.0)
    simulation.put("a", b"2")
    simulation.run(simulation.clock.monotonic() + 1.0)
    assert len(sent) == 1, "the lane waits"
    simulation.finish()
    first, repeated, *_ = runs(sent)
    assert repeated == first._replace(flags=REPEAT)
    assert sent[1][0] * 1000 >= first.date + HOLD_OFF * 1000


# ---------------------------------------------------------------------- streams that place records themselves


def test_a_stream_that_places_records_gets_what_it_got_before(caplog: pytest.LogCaptureFixture) -> None:
    simulation = Simulation(idempotent(), shards=1)
    simulation.recreate(**AUTO)
    simulation.service_placed = True
    sent = watched(simulation)
    with caplog.at_level(logging.WARNING):
        records = [simulation.put("a", b"%d" % number) for number in range(3)]
        simulation.run()
        simulation.put_and_run("a", b"3")
    assert all(record.exception() is None for record in records)
    assert [table for _, table in sent] == [None] * 4
    (message,) = caplog.messages
    assert "idempotent=True" in message


# ---------------------------------------------------------------------- names


def test_a_name_is_an_identity_in_every_producer() -> None:
    identity = NAMES.identity("order-77", 300.0, bytes(16))
    assert (identity.incarnation.hex(), identity.number) == ("3d80932187274a7e", 0xDFE065F23274)
    simulation = started()
    other = Simulation(idempotent(), beside=simulation, seed=1)
    found = []
    for producer in (simulation, other):
        sent = watched(producer)
        producer.put("a", b"named %d" % len(found), identity=identity)
        producer.put("a", b"fresh %d" % len(found))
        producer.run()
        now = int(producer.clock.time() * 1000)
        run, fresh = runs(sent)
        assert (run.count, run.flags, run.number) == (1, NAMED, identity.number)
        assert now - 302_500 < run.date <= now - 300_000, "readers look back for one window"
        assert (fresh.count, fresh.flags) == (1, 0)
        found.append(run.incarnation)
    assert found == [identity.incarnation] * 2


def test_a_named_record_that_may_be_stored_keeps_its_date() -> None:
    simulation, sent = observed()
    lose(simulation, count=2)
    simulation.put("a", b"x", identity=NAMES.identity("n", 1.0, bytes(16)))
    simulation.finish()
    first, second, third = runs(sent)
    assert second == third == first._replace(flags=NAMED | REPEAT)
    assert sent[1][0] - sent[0][0] > HOLD_OFF - 0.5


def test_a_named_record_that_was_rejected_is_dated_when_it_is_sent() -> None:
    simulation, sent = observed(record_ttl=100.0)
    simulation.put("a", b"x", identity=NAMES.identity("n", 1.0, bytes(16)))
    simulation.down = True
    simulation.run(simulation.clock.monotonic() + 50.0)
    simulation.down = False
    throttle(simulation)
    simulation.run()
    assert runs(sent)[-1].flags == NAMED
    assert runs(sent)[-1].date >= sent[-1][0] * 1000 - 3_000


def first_of(simulation: Simulation, seconds: float, window: float = 300.0) -> tuple[Identity, int]:
    """The identity of a record that nobody began to put until some seconds ago, and that moment."""
    began = int((simulation.clock.time() - seconds) * 1000)
    return NAMES.identity("n", window, bytes(16))._replace(first=began), began


@pytest.mark.parametrize(("seconds", "holdoff"), [(0, 4), (5.5, 9), (20, 15)])
def test_a_first_attempt_says_so_and_a_repetition_waits_until_its_hold_off_has_passed(
    seconds: float, holdoff: int
) -> None:
    simulation, sent = observed()
    lose(simulation)
    identity, began = first_of(simulation, seconds)
    simulation.put("a", b"x", identity=identity)
    simulation.finish()
    first, second = runs(sent)
    assert first.flags == NAMED | FIRST
    # The producer's clock may be behind, and nobody began before that either.
    assert began - 1500 < first.date <= began
    assert holdoff - 2 <= first.holdoff <= holdoff
    assert second == first._replace(flags=NAMED | REPEAT, holdoff=HOLD_OFF), "and looks back as far"
    assert sent[1][0] * 1000 >= first.date + first.holdoff * 1000
    assert sent[1][0] - sent[0][0] < HOLD_OFF + 1, "and not for longer than any other"


def test_a_first_attempt_that_was_rejected_is_still_the_first() -> None:
    simulation, sent = observed()
    simulation.put("a", b"x", identity=first_of(simulation, 2)[0])
    throttle(simulation)
    simulation.run()
    assert [run.flags for run in runs(sent)] == [NAMED | FIRST] * 2
    assert len({run.date for run in runs(sent)}) == 1


def test_a_first_attempt_whose_beginning_is_long_ago_looks_back_for_its_window_only() -> None:
    simulation, sent = observed()
    simulation.put_and_run("a", b"x", identity=first_of(simulation, 200, 30.0)[0])
    (run,) = runs(sent)
    assert simulation.clock.time() * 1000 - 33_000 < run.date


def test_a_first_attempt_that_fails_is_put_again_as_a_repetition_with_its_real_age() -> None:
    """By another process, which knows nothing of a first attempt."""
    simulation = started()
    lose(simulation, count=NEVER_AGAIN)
    failed = simulation.put("a", b"x", identity=first_of(simulation, 2)[0])
    sent_at = simulation.clock.time()
    simulation.run()
    shared = failed.identity.shared if failed.identity is not None else None
    assert shared is not None
    assert shared.date is not None
    again = resumed(shared, 5.0)
    assert (again.first, again.may_be_stored) == (None, True)
    assert sent_at - 2 < again.wall < sent_at + 2
    never_sent = first_of(simulation, 2)[0].shared
    assert never_sent is not None
    assert resumed(never_sent, 5.0).first is None


def test_a_first_attempt_of_long_ago_is_not_the_first_one_any_more() -> None:
    simulation, sent = observed(record_ttl=3_000.0)
    lose(simulation)
    simulation.put("a", b"x", identity=first_of(simulation, 0)[0])
    simulation.run(simulation.clock.monotonic() + 1.0)
    simulation.down = True
    simulation.run(simulation.clock.monotonic() + 700.0)
    simulation.down = False
    simulation.run()
    flags = [run.flags for run in runs(sent)]
    assert (flags[0], flags[-1]) == (NAMED | FIRST, NAMED)


def test_the_time_at_kinesis_is_told_by_its_responses_only() -> None:
    simulation = Simulation(idempotent(), shards=1, latency=0.01)
    assert simulation.pipeline.stamps.time_at_kinesis(simulation.clock.monotonic()) is None
    simulation.put_and_run("a", b"x")
    told = simulation.pipeline.stamps.time_at_kinesis(simulation.clock.monotonic())
    assert told is not None
    assert -1500 < told - simulation.clock.time() * 1000 <= 0


def test_runs_of_identities() -> None:
    def begins_run(identity: Identity | None, before: Identity | None) -> bool:
        runs = Runs()
        runs.take(before, 0)
        runs.take(identity, 1)
        return runs.starts == [0, 1]

    held = Identity(b"12345678", 7, 1000, 0.0, 1.0, 1.0)
    assert not begins_run(None, None)
    assert not begins_run(held._replace(number=8), held)
    assert begins_run(held, held), "not consecutive"
    assert begins_run(held, None)
    assert begins_run(None, held)
    assert begins_run(held._replace(number=8, date=1001), held)
    assert begins_run(held._replace(number=8, incarnation=b"87654321"), held)
    assert begins_run(NAMES.identity("a", 1, bytes(16)), NAMES.identity("b", 1, bytes(16)))


# ---------------------------------------------------------------------- put again


def test_what_another_process_could_not_finish_is_held_and_repeated_as_the_same_record() -> None:
    simulation = started()
    lose(simulation, count=NEVER_AGAIN)
    failed = simulation.put_and_run("a", b"x")
    identity = failed.identity
    assert identity is not None
    assert identity.shared is not None
    simulation.aws.faults.clear()
    other = Simulation(idempotent(), beside=simulation, seed=1)
    other.put("b", b"first")
    other.run()
    sent = watched(other)
    begin = other.clock.monotonic()
    record = other.put("a", b"x", identity=resumed(identity.shared, begin))
    other.resumed.append(record)
    fresh = other.put("a", b"y")
    other.run(begin + 1.0)
    assert fresh.done(), "others do not wait for it"
    assert not record.done()
    other.run()
    assert record.exception() is None
    assert other.clock.monotonic() >= begin + HOLD_OFF
    (run,) = [run for run in runs(sent) if run.flags]
    assert run == Run(1, HOLD_OFF, REPEAT, identity.incarnation, identity.date, identity.number)
    other.check()


def test_what_failed_too_long_ago_gets_a_new_identity() -> None:
    simulation = started()
    date = int((simulation.clock.time() - 601) * 1000)
    sent = watched(simulation)
    identity = resumed(RecordIdentity(b"12345678", 5, date), simulation.clock.monotonic())
    record = simulation.put("a", b"x", identity=identity)
    simulation.resumed.append(record)
    simulation.run()
    assert record.exception() is None
    (run,) = runs(sent)
    assert (run.flags, run.incarnation == b"12345678") == (0, False)
    assert simulation.pipeline.counters.begun_anew_records == 1


def test_a_name_that_was_never_sent_is_put_again_at_once() -> None:
    identity = NAMES.identity("n", 60.0, bytes(16))
    assert identity.shared is not None
    assert resumed(identity.shared, 5.0) == identity
    simulation = started()
    record = simulation.put("a", b"x", identity=resumed(identity.shared, simulation.clock.monotonic()))
    begin = simulation.clock.monotonic()
    simulation.run()
    assert record.exception() is None
    assert simulation.clock.monotonic() - begin < 1.0


def test_a_name_keeps_its_identity_until_the_end_of_its_window() -> None:
    """Its date is the beginning of the window, which is long ago: what counts is when it may have been sent last."""
    simulation = started()
    date = int((simulation.clock.time() - 700) * 1000)
    sent = watched(simulation)
    identity = resumed(RecordIdentity(b"12345678", 5, date, 300.0), simulation.clock.monotonic())
    record = simulation.put("a", b"x", identity=identity)
    simulation.resumed.append(record)
    simulation.run()
    assert record.exception() is None
    (run,) = runs(sent)
    assert run.flags & REPEAT
    assert simulation.pipeline.counters.begun_anew_records == 0
