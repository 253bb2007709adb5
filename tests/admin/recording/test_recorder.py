"""The recording: the past is what the views said, gaps are gaps, and its size and age are bounded."""

from __future__ import annotations

import logging
import math
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kinesis_sdk.admin import (
    FleetView,
    LagReading,
    LagSource,
    LeaseState,
    LeaseView,
    Move,
    OwnerKind,
    OwnerView,
    Problem,
    Severity,
    Totals,
)
from kinesis_sdk.admin.command import Command
from kinesis_sdk.admin.fleet.model import Action, ErrorCode, HandlerFailure
from kinesis_sdk.admin.recording.recorder import Recording
from kinesis_sdk.admin.recording.ring import MIN_BYTES, Ring
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from tests.cli.web.generated import GeneratedFleet

AT = 1_800_000_000.0


@pytest.fixture(params=["memory", pytest.param("file", marks=pytest.mark.fuzz_only)])
def any_recording(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Recording]:
    """As `recording`, for tests of what does not depend on where it is; files when fuzzing."""
    one = Recording(None if request.param == "memory" else tmp_path / "fleet.db")
    yield one
    one.close()


@pytest.fixture(params=["memory", "file"])
def recording(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Recording]:
    one = Recording(None if request.param == "memory" else tmp_path / "fleet.db")
    yield one
    one.close()


def view(
    at: float,
    owner: str | None = "a",
    *,
    state: LeaseState = LeaseState.HELD,
    lag: int | None = 5,
    key: str = "k",
    error: str = "",
) -> FleetView:
    lease = LeaseView(
        lease_key=key,
        shard_id=key,
        state=state,
        owner=owner,
        lag=None if lag is None else LagReading(millis=lag, age=0.0, source=LagSource.PROBE),
        checkpoint=ExtendedSequenceNumber(str(int(at) + 1), 0),
    )
    totals = Totals(leases=1, measured=0 if lag is None else 1, worst_lag_millis=lag)
    return FleetView(application="x", at=AT + at, leases=(lease,), totals=totals, error=error)


def watch(recording: Recording, *views: FleetView) -> None:
    for one in views:
        recording.update(one)


def past_of(recording: Recording, seconds: float, application: str = "x") -> FleetView:
    """Return the view of a moment of which there is one."""
    past = recording.view_at(application, AT + seconds)
    assert past is not None
    return past


def spans(
    recording: Recording, start: float = -100.0, end: float = 10_000.0
) -> list[tuple[str | None, float, float]]:
    history = recording.history("x", "k", AT + start, AT + end)
    return [(span.owner, span.start - AT, span.end - AT) for span in history.owners]


# The view of a moment


def kept(one: FleetView) -> list[tuple[object, ...]]:
    return [
        (
            lease.lease_key, lease.shard_id, lease.state, lease.owner, lease.next_owner, lease.kind, lease.pinned_to, lease.note,
            lease.parents, lease.children, lease.hash_key_range,
        )
        for lease in one.leases
    ]  # fmt: skip


def test_a_generated_fleet_is_rebuilt_as_it_was(recording: Recording) -> None:
    fleet = GeneratedFleet(40, 7)
    views = [fleet.view() for _ in range(30)]
    watch(recording, *views)
    for seen in (views[5], views[15], views[-1]):
        past = past_of(recording, seen.at - AT, "billing")
        by_key = {lease.lease_key: lease for lease in past.leases}
        assert sorted(kept(past)) == sorted(kept(seen))
        assert past.totals.leases == seen.totals.leases
        assert {(one.code, one.lease_key, one.owner, one.severity) for one in past.problems} == {
            (one.code, one.lease_key, one.owner, one.severity) for one in seen.problems
        }
        assert [owner.worker_id for owner in past.owners] and {
            o.worker_id: o.lease_keys for o in past.owners
        } == {
            o.worker_id: tuple(
                lease.lease_key
                for lease in past.leases
                if lease.owner == o.worker_id and lease.state is not LeaseState.FINISHED
            )
            for o in seen.owners
        }
        for lease in seen.leases:
            if lease.lag is not None and lease.lag.millis > 60_000:
                found = by_key[lease.lease_key].lag
                assert found is not None
                # Two digits, and at most ten seconds old.
                assert abs(found.millis - lease.lag.millis) <= 10_000 + 0.05 * lease.lag.millis
    newest = past_of(recording, views[-1].at - AT, "billing")
    assert set(newest.moves) == set(views[-1].moves)


def test_each_part_of_a_lease_comes_back(recording: Recording) -> None:
    failing = HandlerFailure(
        attempts=3,
        seconds=12.0,
        retry_in=4.0,
        records=1,
        position=ExtendedSequenceNumber("7", 2),
        error="KeyError",
    )
    lease = replace(
        view(0).leases[0],
        next_owner="b",
        kind=OwnerKind.SDK,
        pinned_to="c",
        note="odd",
        throughput_kbps=12.0,
        handler_seconds=30.0,
        checkpointed_ago=40.0,
        failing=failing,
        other_attributes=("x",),
        initial_timestamp_millis=5,
        checkpoint_trimmed=True,
    )
    problem = Problem(
        code="lag",
        severity=Severity.ERROR,
        title="late",
        text="late",
        remedy="wait",
        command=Command.of("show", application="x"),
        lease_key="k",
        actions=(Action(title="retry", command=Command.of("retry", application="x", shard=["0", "1"])),),
    )
    owner = OwnerView(worker_id="a", group="zone", kind=OwnerKind.SDK, silent_for=20.0, is_draining=True)
    whole = replace(
        view(0),
        leases=(lease,),
        problems=(problem,),
        owners=(owner,),
        retention=100.0,
        streams=("orders",),
        watched=9.0,
    )
    recording.update(whole)
    past = past_of(recording, 10)
    (found,) = past.leases
    assert found == replace(
        lease,
        handler_seconds=40.0,
        checkpointed_ago=50.0,
        failing=replace(failing, seconds=22.0, retry_in=0.0),
        lag=LagReading(millis=5, age=10.0, source=LagSource.PROBE),
        retention_left=100.0 - 0.005,
        trend=found.trend,
    )
    assert found.trend[-2:] == (None, 5)
    assert past.problems == (problem,)
    assert (past.owners[0].silent_for, past.owners[0].group, past.owners[0].is_draining) == (
        30.0,
        "zone",
        True,
    )
    assert (past.streams, past.retention, past.watched, past.table_age) == (("orders",), 100.0, 19.0, 10.0)


def test_what_ended_is_gone_and_what_was_not_looked_at_is_not_known(any_recording: Recording) -> None:
    watch(any_recording, view(0), view(2, key="other"))
    assert [lease.lease_key for lease in past_of(any_recording, 1).leases] == ["k"]
    assert [lease.lease_key for lease in past_of(any_recording, 3).leases] == ["other"]
    assert any_recording.view_at("x", AT - 1) is None
    assert any_recording.view_at("x", AT + 100) is None, "no view was taken for more than a minute"
    assert any_recording.view_at("y", AT + 1) is None


def test_a_failed_look_shows_its_error_over_what_was_seen_before(any_recording: Recording) -> None:
    any_recording.update(view(0))
    for at in range(2, 200, 2):
        any_recording.update(replace(view(at, "b", error="throttled"), error_code=ErrorCode.OTHER))
    past = past_of(any_recording, 150)
    assert (past.error, past.error_code, past.leases[0].owner) == ("throttled", ErrorCode.OTHER, "a")
    assert spans(any_recording) == [("a", 0.0, 0.0)], "what was not seen is no span"
    any_recording.update(view(200, "b"))
    healed = past_of(any_recording, 201)
    assert (healed.error, healed.leases[0].owner) == ("", "b")


def test_a_trend_goes_on_where_nothing_changed(any_recording: Recording) -> None:
    watch(any_recording, *(view(at, lag=90_000 if at < 300 else 5_000) for at in range(0, 620, 2)))
    past = past_of(any_recording, 600)
    assert past.leases[0].trend == (90_000,) * 30 + (5_000,) * 30


# The history of a shard


def test_equal_neighbours_are_one_span(any_recording: Recording) -> None:
    watch(any_recording, *(view(at) for at in range(0, 40, 2)), *(view(at, "b") for at in range(40, 82, 2)))
    watch(any_recording, *(view(at, None, state=LeaseState.UNOWNED) for at in range(82, 122, 2)))
    assert spans(any_recording) == [("a", 0.0, 40.0), ("b", 40.0, 82.0), (None, 82.0, 120.0)]
    assert spans(any_recording, 50, 100) == [("b", 50.0, 82.0), (None, 82.0, 100.0)]


def test_an_owner_that_falls_silent_is_another_span(any_recording: Recording) -> None:
    watch(any_recording, view(0), view(20, state=LeaseState.SILENT), view(40, state=LeaseState.SILENT))
    history = any_recording.history("x", "k", AT, AT + 100)
    assert [span.state for span in history.owners] == [LeaseState.HELD, LeaseState.SILENT]


def test_a_time_without_views_is_a_gap(any_recording: Recording) -> None:
    watch(any_recording, view(0), view(20), view(1000), view(1020))
    assert spans(any_recording) == [("a", 0.0, 20.0), ("a", 1000.0, 1020.0)]
    ats = [sample.at - AT for sample in any_recording.history("x", "k", AT, AT + 2000).samples]
    assert ats == [0.0, 10.0, 20.0, 1000.0, 1010.0, 1020.0]


def test_samples_are_even_although_only_changes_are_kept(any_recording: Recording) -> None:
    watch(any_recording, *(view(at, lag=70_000 if 100 <= at < 200 else 5) for at in range(0, 302, 2)))
    samples = any_recording.history("x", "k", AT, AT + 300).samples
    assert [sample.lag_millis for sample in samples] == [5] * 10 + [70_000] * 10 + [5] * 11
    assert len({sample.checkpoint for sample in samples}) == 11, "a checkpoint each 30 s"
    assert len(any_recording.history("x", "k", AT, AT + 300, points=10).samples) == 11


def test_the_course_of_an_application(any_recording: Recording) -> None:
    move = Move(at=AT + 50, lease_key="k", shard_id="k", before="a", after="b", reason="handoff")
    problem = Problem(
        code="lag", severity=Severity.ERROR, title="late", text="0", remedy="wait", lease_key="k"
    )
    for at in range(0, 302, 2):
        one = view(at, lag=70_000 if 100 <= at < 200 else 5)
        if at >= 50:
            one = replace(one, moves=(move,))
        if 100 <= at < 200:
            one = replace(one, problems=(replace(problem, text=str(at)),))
        any_recording.update(one)
    course = any_recording.course("x", AT, AT + 300, points=3)
    assert (course.first, course.last, course.step) == (AT, AT + 300, 100.0)
    assert [(step.worst_lag_millis, step.moves, step.problems) for step in course.steps] == [
        (5, 1, 0),
        (70_000, 0, 1),
        (5, 0, 0),
    ]
    assert any_recording.course("y", AT, AT + 300).first is None


def test_a_course_has_no_hole_where_nothing_changed_and_one_where_nothing_looked(
    any_recording: Recording,
) -> None:
    watch(any_recording, *(view(at) for at in range(0, 202, 2)), *(view(at) for at in range(500, 602, 2)))
    course = any_recording.course("x", AT, AT + 600)
    assert [step.at - AT for step in course.steps] == [*range(0, 210, 10), *range(500, 600, 10)]
    assert {step.worst_lag_millis for step in course.steps} == {5}


# Several processes


def test_of_two_processes_one_writes_and_the_other_follows(tmp_path: Path) -> None:
    one, two = Recording(tmp_path / "fleet.db"), Recording(tmp_path / "fleet.db")
    one._name, two._name = "a", "b"
    one.update(view(0, "from-a"))
    two.update(view(2, "from-b"))
    seen = past_of(two, 3)
    assert seen.leases[0].owner == "from-a"
    two.update(view(200, "from-b"))  # the other one has ended
    seen = past_of(two, 201)
    assert seen.leases[0].owner == "from-b"
    one.close()
    two.close()


def test_a_process_that_begins_goes_on_with_what_is_there(tmp_path: Path) -> None:
    for at in (0, 20):
        recording = Recording(tmp_path / "fleet.db")
        recording._name = "a"
        watch(recording, view(at), view(at + 2, key="k" if at == 0 else "other"))
        recording.close()
    after = past_of(Recording(tmp_path / "fleet.db"), 23)
    assert [lease.lease_key for lease in after.leases] == ["other"], "a lease that has gone meanwhile is gone"


# Bounds


def test_the_file_keeps_its_size_and_the_newest_state(tmp_path: Path) -> None:
    path = tmp_path / "fleet.db"
    recording = Recording(path, max_bytes=MIN_BYTES)
    fleet = GeneratedFleet(60, 5)
    written = 0
    for number in range(64):
        one = fleet.view()
        # Everything changes with every view.
        leases = tuple(
            replace(
                lease,
                note=f"{number} {'x' * 1400}",
                lag=LagReading(millis=number * 100_000, age=0.0, source=LagSource.PROBE),
            )
            for lease in one.leases
        )
        recording.update(replace(one, leases=leases))
        written += 60 * 1400
    assert written > 5 * MIN_BYTES
    assert path.stat().st_size <= MIN_BYTES
    assert sum(part.stat().st_size for part in tmp_path.iterdir()) <= MIN_BYTES + 8 * 1024 * 1024
    past = past_of(recording, one.at - AT, "billing")
    assert {lease.note for lease in past.leases} == {f"63 {'x' * 1400}"}
    course = recording.course("billing", one.at - 160, one.at)
    assert course.first is not None
    assert course.first > one.at - 120, "the oldest made room"
    recording.close()


def test_a_fleet_that_does_not_fit_begins_anew_instead_of_growing(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "fleet.db", max_bytes=MIN_BYTES)
    for number in range(4):
        leases = tuple(
            replace(view(0).leases[0], lease_key=f"{number} {n}", note="x" * 2000) for n in range(700)
        )
        recording.update(replace(view(number), leases=leases))
    assert (tmp_path / "fleet.db").stat().st_size <= MIN_BYTES
    recording.close()


def test_what_is_too_old_is_deleted_and_the_state_stays() -> None:
    recording = Recording(max_age=1000.0)
    watch(recording, view(0, lag=70_000), view(2, lag=70_000, key="gone"))
    watch(recording, *(view(at, "b", lag=80_000) for at in range(4, 2500, 2)))
    course = recording.course("x", AT, AT + 2500)
    assert course.first == pytest.approx(AT + 1500, abs=100)
    past = past_of(recording, 2490)
    assert (past.leases[0].owner, past.leases[0].lag and past.leases[0].lag.millis) == ("b", 80_000)
    ((names,),) = recording._ring._read("SELECT count(*) FROM name", ())
    assert names == 3, "the application, its own key, and the one lease"


def test_a_quiet_fleet_costs_next_to_nothing() -> None:
    recording = Recording()
    leases = tuple(replace(view(0).leases[0], lease_key=f"k{n}") for n in range(40))
    for at in range(0, 200, 2):
        lag = LagReading(millis=at % 900, age=0.0, source=LagSource.PROBE)
        recording.update(replace(view(at), leases=tuple(replace(lease, lag=lag) for lease in leases)))
    ((rows,),) = recording._ring._read("SELECT count(*) FROM change", ())
    assert rows <= 5 * 40 + 200 / 10 + 2, "one row of each kind for each lease, and one look each ten seconds"


# Failures


def test_a_disk_that_fails_is_told_once_and_does_not_end_the_view(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    recording = Recording()
    real = Ring.put

    def fails(*_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(Ring, "put", fails)
    with caplog.at_level(logging.WARNING):
        watch(recording, view(0), view(2), view(4))
    assert [record.getMessage() for record in caplog.records] == ["views cannot be recorded: disk I/O error"]
    monkeypatch.setattr(Ring, "put", real)
    recording.update(view(6))
    assert recording.view_at("x", AT + 7) is not None


@pytest.mark.parametrize("content", [b"no database at all" * 100, None])
def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "other.db"
    if content is None:
        other = sqlite3.connect(path)
        other.execute("CREATE TABLE mine (x)")
        other.close()
        content = path.read_bytes()
    else:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"other\.db"):
        Recording(path)
    assert path.read_bytes() == content


def test_settings_are_checked_and_the_file_is_its_owners(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="recording-size"):
        Recording(tmp_path / "fleet.db", max_bytes=1000)
    with pytest.raises(ConfigError, match="cannot be opened"):
        Recording(tmp_path / "missing" / "fleet.db")
    Recording(tmp_path / "fleet.db").close()
    assert (tmp_path / "fleet.db").stat().st_mode & 0o077 == 0


def test_numbers_that_are_not_finite_do_no_harm(recording: Recording) -> None:
    lease = replace(view(0).leases[0], throughput_kbps=math.inf)
    recording.update(replace(view(0), leases=(lease,), retention=math.inf))
    past = past_of(recording, 1)
    assert past.leases[0].throughput_kbps == 0.0
