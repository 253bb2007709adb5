"""Looks at all applications of an account: their order, what fails, and what they share."""

from __future__ import annotations

import pytest

from kinesis_sdk.admin import FleetView, Problem, Severity, Totals
from kinesis_sdk.admin.fleet.model import ErrorCode
from kinesis_sdk.admin.fleet.overview import read_fleets, summarize, worst_first
from kinesis_sdk.consumer.leases.table.lease import Lease
from tests.admin.account import Account


def problem(severity: Severity) -> Problem:
    return Problem(code="lag", severity=severity, title="late", text="late", remedy="")


def view(name: str, lag: int | None = None, *severities: Severity, error: str = "") -> FleetView:
    return FleetView(
        application=name,
        at=0.0,
        totals=Totals(leases=1, worst_lag_millis=lag),
        problems=tuple(map(problem, severities)),
        error=error,
    )


def test_errors_come_first_then_what_is_unread_then_warnings_each_by_lag() -> None:
    views = [
        view("calm", 90_000),
        view("calmer"),
        view("warned", 400_000, Severity.WARNING),
        view("unread", error="no permission"),
        view("failed", 5, Severity.ERROR, Severity.WARNING),
        view("failed-late", 10, Severity.ERROR),
    ]
    ordered = worst_first(map(summarize, views))
    assert [one.application for one in ordered] == [
        "failed-late", "failed", "unread", "warned", "calm", "calmer",
    ]  # fmt: skip
    assert (ordered[1].errors, ordered[1].warnings) == (1, 1)


@pytest.fixture
def account() -> Account:
    """Applications on streams of one to four shards, each with a record that no worker has read."""
    account = Account()
    for number in range(1, 5):
        store = account.lease_table(f"app-{number}")
        for shard in account.create(f"stream-{number}", number):
            store.create_if_absent(Lease.for_shard(shard, "TRIM_HORIZON"))
        account.put(f"stream-{number}")
        account.clock.advance(100 * number)
    return account


def look(account: Account, *names: str) -> dict[str, FleetView]:
    views: dict[str, FleetView] = {}
    read_fleets(
        [account.application(name) for name in names],
        lambda one: views.update({one.application: one}),
        clock=account.clock,
        sleep=account.clock.advance,
    )
    return views


def test_each_application_is_measured_and_the_streams_are_listed_once(account: Account) -> None:
    listed = account.calls("ListShards")
    views = look(account, "app-1", "app-2", "app-3", "app-4")
    assert {name: one.streams for name, one in views.items()} == {
        f"app-{n}": (f"stream-{n}",) for n in range(1, 5)
    }
    late = [round((views[f"app-{n}"].totals.worst_lag_millis or 0) / 1000, -2) for n in range(1, 5)]
    assert late == [1000, 900, 700, 400]
    assert account.calls("ListStreams") == 1
    assert account.calls("ListShards") - listed == 4


def test_one_that_cannot_be_read_does_not_keep_the_others_from_it(account: Account) -> None:
    views = look(account, "app-1", "gone", "app-2")
    assert views["gone"].error_code is ErrorCode.NO_LEASE_TABLE
    assert views["app-1"].totals.measured == 1
    assert views["app-2"].totals.measured == 2
    account.kinesis.delete_stream(StreamName="stream-1", EnforceConsumerDeletion=True)
    account.clock.advance(60)
    unfit = look(account, "app-1")["app-1"]
    assert "the stream of app-1 cannot be found" in unfit.error
    assert unfit.totals.leases == 1
