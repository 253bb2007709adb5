"""Looks at all applications of an account: their order, what fails, and what they share."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kinesis_sdk.admin import Application, Connection, FleetView, Problem, Severity, Totals
from kinesis_sdk.admin.fleet.model import ErrorCode
from kinesis_sdk.admin.fleet.overview import read_fleets, summarize, worst_first
from kinesis_sdk.common.shards import list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.leases.table.dynamodb import DynamoDBLeaseStore
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.testing import FakeAws, VirtualClock


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


class Calls:
    """A client whose calls are counted."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.count: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.client, name)
        if not callable(found) or name.startswith("_"):
            return found

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.count[name] += 1
            return found(*args, **kwargs)

        return counted


class Account:
    """Applications on streams of one to four shards, each with a record that no worker has read."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.aws = FakeAws(clock=self.clock)
        self.kinesis, dynamodb = Calls(self.aws.client("kinesis")), self.aws.client("dynamodb")
        self.connection = Connection(clients={"kinesis": self.kinesis, "dynamodb": dynamodb})
        for number in range(1, 5):
            self.kinesis.create_stream(StreamName=f"stream-{number}", ShardCount=number)
            store = DynamoDBLeaseStore(
                dynamodb, f"app-{number}", sleep=self.clock.advance, monotonic=self.clock.monotonic
            )
            store.ensure_ready()
            for shard in list_shards(self.kinesis, StreamId(f"stream-{number}")):
                store.create_if_absent(Lease.for_shard(shard, "TRIM_HORIZON"))
            self.kinesis.put_record(StreamName=f"stream-{number}", Data=b"x", PartitionKey="p")
            self.clock.advance(100 * number)
        self.kinesis.count.clear()

    def look(self, *names: str) -> dict[str, FleetView]:
        views: dict[str, FleetView] = {}
        read_fleets(
            [Application(self.connection, name, sleep=self.clock.advance) for name in names],
            lambda one: views.update({one.application: one}),
            clock=self.clock,
            sleep=self.clock.advance,
        )
        return views


def test_each_application_is_measured_and_the_streams_are_listed_once() -> None:
    account = Account()
    views = account.look("app-1", "app-2", "app-3", "app-4")
    assert {name: one.streams for name, one in views.items()} == {
        f"app-{n}": (f"stream-{n}",) for n in range(1, 5)
    }
    late = [round((views[f"app-{n}"].totals.worst_lag_millis or 0) / 1000, -2) for n in range(1, 5)]
    assert late == [1000, 900, 700, 400]
    assert account.kinesis.count["list_streams"] == 1
    assert account.kinesis.count["list_shards"] == 4


def test_one_that_cannot_be_read_does_not_keep_the_others_from_it() -> None:
    account = Account()
    views = account.look("app-1", "gone", "app-2")
    assert views["gone"].error_code is ErrorCode.NO_LEASE_TABLE
    assert views["app-1"].totals.measured == 1
    assert views["app-2"].totals.measured == 2
    account.kinesis.delete_stream(StreamName="stream-1", EnforceConsumerDeletion=True)
    account.clock.advance(60)
    unfit = account.look("app-1")["app-1"]
    assert "the stream of app-1 cannot be found" in unfit.error
    assert unfit.totals.leases == 1
