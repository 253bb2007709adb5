from __future__ import annotations

import itertools

from kinesis_sdk.admin import FleetView, LagReading, LagSource, LeaseState, LeaseView
from kinesis_sdk.admin.fleet.history import HISTORY_STEP, FleetHistory
from kinesis_sdk.common.sequence import ExtendedSequenceNumber


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
    return FleetView(application="x", at=at, leases=(lease,), error=error)


def spans(history: FleetHistory) -> list[tuple[str | None, float, float]]:
    return [(span.owner, span.start, span.end) for span in history.of("k").owners]


def test_equal_neighbours_are_one_span() -> None:
    history = FleetHistory()
    for at in (0.0, 2.0, 4.0):
        history.add(view(at))
    for at in (6.0, 8.0):
        history.add(view(at, "b"))
    history.add(view(10.0, None, state=LeaseState.UNOWNED))
    assert spans(history) == [("a", 0.0, 4.0), ("b", 4.0, 8.0), (None, 8.0, 10.0)]


def test_an_owner_that_falls_silent_is_another_span() -> None:
    history = FleetHistory()
    history.add(view(0.0))
    history.add(view(2.0, state=LeaseState.SILENT))
    assert [span.state for span in history.of("k").owners] == [LeaseState.HELD, LeaseState.SILENT]


def test_a_time_without_views_is_a_gap() -> None:
    history = FleetHistory()
    history.add(view(0.0))
    history.add(view(2.0))
    history.add(view(1000.0))
    assert spans(history) == [("a", 0.0, 2.0), ("a", 1000.0, 1000.0)]


def test_samples_are_taken_each_step_and_are_bounded() -> None:
    history = FleetHistory(length=5)
    for n in range(200):
        history.add(view(n * 2.0, lag=n if n % 2 else None))
    samples = history.of("k").samples
    assert len(samples) == 5
    assert all(b.at - a.at == HISTORY_STEP for a, b in itertools.pairwise(samples))
    assert samples[-1].checkpoint == str(int(samples[-1].at) + 1)


def test_a_view_of_a_failed_look_adds_nothing() -> None:
    history = FleetHistory()
    history.add(view(0.0))
    history.add(view(2.0, "b", error="throttled"))
    assert spans(history) == [("a", 0.0, 0.0)]


def test_a_lease_that_is_gone_is_forgotten() -> None:
    history = FleetHistory()
    history.add(view(0.0))
    history.add(view(2.0, key="another"))
    assert history.of("k").owners == ()
    assert history.of("k").samples == ()
    assert len(history.of("another").owners) == 1
