"""The poller in virtual time: what an open page costs, when it pauses, and what it does when calls fail."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from datetime import datetime, timezone
from email.utils import format_datetime
from random import Random
from typing import Any

import pytest

from kinesis_sdk.admin import Application, FleetPoller, FleetView, Subscription
from kinesis_sdk.admin.fleet.calls import CallCounter
from kinesis_sdk.admin.fleet.model import ErrorCode
from kinesis_sdk.cli.web.wire import picture
from kinesis_sdk.common.clock import SystemClock
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer.leases.table.lease import Lease, lease_to_item
from kinesis_sdk.consumer.leases.table.progress import Progress
from kinesis_sdk.testing import Fault, VirtualClock
from tests.admin.account import Account


class Page(Account):
    """An application in a fake account, with a page that shows it.

    Args:
        shards: Number of shards.
        ours: Whether the worker is one of this SDK, and tells its lag.
        subscribe: Whether the page is open.
    """

    def __init__(self, shards: int, *, ours: bool = False, subscribe: bool = True) -> None:
        super().__init__()
        self.ours = ours
        self.lease_table("billing")
        self.rows = [
            replace(Lease.for_shard(shard, "TRIM_HORIZON"), owner="w", handoff_owner="w" if ours else None)
            for shard in self.create("orders", shards)
        ]
        self.write()
        application = self.application("billing", stream="orders")
        self.poller = FleetPoller(application, clock=self.clock, rng=Random(1))
        self.views: list[FleetView] = []
        self.subscription: Subscription | None = (
            self.poller.subscribe(self.views.append) if subscribe else None
        )

    def write(self) -> None:
        """Renew all leases, past the counters of the API."""
        for place, row in enumerate(self.rows):
            progress = Progress(0, None, None, "w") if self.ours else None
            self.rows[place] = replace(row, counter=row.counter + 1, progress=progress)
        table = self.aws.tables.find("billing")
        for row in self.rows:
            table.put(lease_to_item(row))

    def run(self, seconds: float, renew_every: float = 6.0) -> dict[str, int]:
        """Let time pass, and return the calls of this time."""
        before = dict(self.aws.stats()["calls"])
        end = self.clock.monotonic() + seconds
        renewal = self.clock.monotonic() + renew_every
        while True:
            due = self.poller.step()
            if renewal <= min(due, end):
                self.clock.advance_to(renewal)
                self.write()
                renewal += renew_every
                continue
            if due >= end:
                self.clock.advance_to(end)
                break
            self.clock.advance_to(due)
        made = Counter(self.aws.stats()["calls"]) - Counter(before)
        del made["PutItem"]
        return dict(made)


@pytest.mark.parametrize(
    ("shards", "scans"),
    [
        pytest.param(4, 30, id="4"),
        pytest.param(40, 30, id="40"),
        pytest.param(1000, 12, id="1000", marks=pytest.mark.fuzz_only),
    ],
)
def test_a_fleet_of_ours_costs_scans_and_two_calls_for_the_stream(shards: int, scans: int) -> None:
    page = Page(shards, ours=True)
    page.run(25)  # until its workers were seen to write, some lags are asked of the stream
    calls = page.run(60)
    assert calls.pop("Scan") == pytest.approx(scans, abs=1)
    assert calls == {"ListShards": 1, "DescribeStreamSummary": 1}
    view = page.views[-1]
    assert view.totals.measured == shards
    assert view.calls_per_minute["Scan"] == pytest.approx(scans, abs=1)
    assert scans - 1 <= sum(view.calls_per_minute.values()) <= scans + 3


def test_of_a_tables_stream_the_rows_alone_are_read_and_tell_the_lag() -> None:
    page = Page(1, ours=True)
    page.dynamodb.delete_item(TableName="billing", Key={"leaseKey": {"S": page.rows[0].lease_key}})
    shards = ["shardId-00000001795375578588-991082a5", "shardId-00000001795375578589-09ce4e42"]
    page.rows = [
        Lease(lease_key=shard, checkpoint=ExtendedSequenceNumber("5"), owner="w", handoff_owner="w")
        for shard in shards
    ]
    page.write()
    calls = page.run(60)
    assert set(calls) == {"Scan"}, "the Kinesis stream of the given name is another one"
    view = page.views[-1]
    assert view.error == ""
    assert [(lease.lease_key, lease.lag and lease.lag.millis) for lease in view.leases] == [
        (shard, 0) for shard in shards
    ]


@pytest.mark.parametrize(
    ("shards", "seconds", "probes"),
    [
        pytest.param(4, 60, 8, id="4"),
        pytest.param(40, 60, 80, id="40"),
        pytest.param(1000, 20, 200, id="1000", marks=pytest.mark.fuzz_only),
    ],
)
def test_a_java_fleet_that_looks_stuck_costs_bounded_probes(shards: int, seconds: float, probes: int) -> None:
    """Renewed, and never a checkpoint: each shard is asked once in 30 s, and all of them 20 calls a second at most."""
    page = Page(shards)
    page.run(30)
    calls = page.run(seconds)
    assert calls["GetRecords"] == calls["GetShardIterator"] == pytest.approx(probes, rel=0.03, abs=1)
    assert calls["Scan"] <= 31 + 1  # one for the metrics table of KCL 3.0 to 3.4


def test_an_open_shard_costs_24_calls_more() -> None:
    page = Page(4)
    page.run(60)
    usual = page.run(60)["GetRecords"]
    assert page.subscription is not None
    page.subscription.focus(page.rows[0].lease_key)
    page.run(60)
    focused = page.run(60)["GetRecords"]
    assert 2 * (focused - usual) == pytest.approx(20, abs=4)  # 24, less the two probes that it costs anyway


def test_a_page_that_is_hidden_or_closed_costs_nothing() -> None:
    page = Page(4, subscribe=False)
    assert page.run(600) == {}
    subscription = page.poller.subscribe(page.views.append)
    assert page.run(60)["Scan"] > 20
    subscription.set_active(False)
    assert page.run(600) == {}
    assert len(page.views) == (shown := len(page.views))
    subscription.set_active(True)
    assert page.run(10)["Scan"] > 3
    assert len(page.views) > shown
    subscription.close()
    assert page.run(600) == {}


def test_several_pages_share_the_calls() -> None:
    page = Page(4, ours=True)
    others: list[FleetView] = []
    page.poller.subscribe(others.append)
    page.run(60)
    assert page.run(60)["Scan"] == pytest.approx(30, abs=1)
    assert others[-1] is page.views[-1]


def test_the_list_comes_before_the_stream_and_the_lag() -> None:
    page = Page(4)
    page.poller.step_table()
    assert len(page.views) == 1
    assert page.views[0].totals.leases == 4
    assert page.views[0].totals.measured == 0
    assert page.calls("GetRecords") == 0


def test_a_failing_call_shows_in_the_view_and_is_repeated_ever_more_slowly() -> None:
    page = Page(4, ours=True)
    page.run(30)
    page.aws.faults.add(
        Fault(kind="error", operation="Scan", code="AccessDeniedException", message="not allowed", status=400)
    )
    calls = page.run(300)
    view = page.views[-1]
    assert "the lease table could not be read" in view.error
    assert "not allowed" in view.error
    assert view.table_age > 200
    assert 5 <= calls["Scan"] <= 20
    assert view.totals.leases == 4  # what was known stays
    page.aws.faults.clear()
    page.run(90)
    assert page.views[-1].error == ""
    assert page.views[-1].table_age < 3


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        ("ResourceNotFoundException", ErrorCode.NO_LEASE_TABLE),
        ("UnrecognizedClientException", ErrorCode.AWS_SETTINGS),
        ("ExpiredTokenException", ErrorCode.AWS_SETTINGS),
        ("AccessDeniedException", ErrorCode.OTHER),
    ],
)
def test_pages_need_not_read_the_words_of_an_error(failure: str, code: ErrorCode) -> None:
    page = Page(4)
    page.aws.faults.add(Fault(kind="error", operation="Scan", code=failure, message="no", status=400))
    page.run(10)
    assert page.views[-1].error_code is code
    assert picture(page.views[-1])["head"]["errorCode"] == code.value
    page.aws.faults.clear()
    page.run(90)
    assert (page.views[-1].error, page.views[-1].error_code) == ("", None)


def test_the_code_of_two_errors_is_that_of_the_lease_table() -> None:
    page = Page(4, ours=True)
    page.run(10)
    for operation, failure in (
        ("DescribeStreamSummary", "ExpiredTokenException"),
        ("Scan", "AccessDeniedException"),
    ):
        page.aws.faults.add(Fault(kind="error", operation=operation, code=failure, message="no", status=400))
    page.run(120)
    assert "the stream could not be read" in page.views[-1].error
    assert page.views[-1].error_code is ErrorCode.OTHER


def test_a_stream_that_is_gone_is_a_problem_and_not_the_end() -> None:
    page = Page(4)
    page.run(30)
    page.kinesis.delete_stream(StreamName="orders")
    page.run(120)
    assert "stream-missing" in [problem.code for problem in page.views[-1].problems]
    page.kinesis.create_stream(StreamName="orders", ShardCount=2)
    page.run(120)
    codes = [problem.code for problem in page.views[-1].problems]
    assert "stream-missing" not in codes
    assert "stream-recreated" in codes


def test_a_stream_that_is_not_known_is_looked_for_once_a_minute() -> None:
    page = Page(4)
    page.kinesis.create_stream(StreamName="twin", ShardCount=4)
    page.poller = FleetPoller(page.application("billing"), clock=page.clock, rng=Random(1))
    page.poller.subscribe(page.views.append)
    calls = page.run(240)
    assert "no checkpoint distinguishes them" in page.views[-1].error
    assert calls["ListStreams"] <= 5
    assert page.views[-1].totals.leases == 4


def test_a_listener_that_fails_does_not_end_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    page = Page(4)

    def broken(view: FleetView) -> None:
        raise ZeroDivisionError

    page.poller.subscribe(broken)
    page.run(10)
    assert len(page.views) > 3
    assert "a listener of the fleet of billing failed" in caplog.text


@pytest.mark.parametrize("operation", ["ListShards", "GetRecords"])
def test_a_call_to_kinesis_that_hangs_does_not_delay_the_scans(
    operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Page(4)
    page.run(20)
    hangs, answered = threading.Event(), threading.Event()
    call = page.aws.call

    def hanging(service: str, name: str, *rest: Any, **named: Any) -> Any:
        if name == operation:
            hangs.set()
            assert answered.wait(60)
        return call(service, name, *rest, **named)

    monkeypatch.setattr(page.aws, "call", hanging)
    page.clock.advance(120)

    def follow_streams() -> None:
        while not answered.is_set():
            page.poller.step_streams()

    streams = threading.Thread(target=follow_streams, daemon=True)
    streams.start()
    assert hangs.wait(60)
    for _ in range(3):
        page.clock.advance(2)
        page.write()
        scan = threading.Thread(target=page.poller.step_table, daemon=True)
        scan.start()
        scan.join(60)
        assert not scan.is_alive()
        assert page.views[-1].table_age == 0.0
        assert page.views[-1].leases[0].counter == page.rows[0].counter
    answered.set()
    streams.join(60)
    assert not streams.is_alive()


def test_a_poller_that_was_stopped_before_has_no_threads() -> None:
    page = Page(2)
    before = threading.active_count()
    page.poller.stop()
    page.poller.start()
    assert threading.active_count() == before


def test_the_threads_take_views_and_end() -> None:
    page = Page(2, ours=True, subscribe=False)
    application = Application(page.connection, "billing", stream="orders")
    before = threading.active_count()
    with FleetPoller(application, clock=SystemClock()) as poller:
        assert poller.view() is None
        with poller.subscribe():
            view = poller.wait(30)
            assert view is not None
            assert view.totals.leases == 2
            poller.refresh()
            assert poller.wait(30, newer_than=view) is not None
    assert threading.active_count() <= before


def test_a_call_is_known_while_it_runs() -> None:
    clock = VirtualClock()
    counter = CallCounter(clock)
    assert counter.longest() is None
    with counter.running("Scan"):
        clock.advance(4.0)
        with counter.running("ListShards"):
            clock.advance(2.0)
            assert counter.longest() == ("Scan", 6.0)
        assert counter.per_minute() == {"ListShards": 1, "Scan": 1}
    assert counter.longest() is None


def test_responses_tell_of_the_clock_and_of_throttling_for_a_while() -> None:
    clock = VirtualClock(1_790_000_000.0)
    counter = CallCounter(clock)
    assert (counter.skew(), counter.throttled()) == (None, 0)

    def response(ahead: float, code: str | None = None) -> dict[str, Any]:
        date = format_datetime(datetime.fromtimestamp(clock.time() + ahead, timezone.utc), usegmt=True)
        document: dict[str, Any] = {"ResponseMetadata": {"HTTPHeaders": {"date": date}}}
        return document if code is None else {**document, "Error": {"Code": code}}

    counter.observe("dynamodb", response(-300), clock.time())
    assert counter.skew() == pytest.approx(-299, abs=1)
    for _ in range(20):
        counter.observe("dynamodb", response(0), clock.time())
    assert counter.skew() == 0, "the clock was set"
    counter.observe("kinesis", response(0, "ProvisionedThroughputExceededException"), clock.time())
    counter.observe("dynamodb", response(0, "ThrottlingException"), clock.time())
    counter.observe("dynamodb", None, clock.time())
    assert counter.throttled() == 0
    counter.observe("dynamodb", response(0, "ProvisionedThroughputExceededException"), clock.time())
    assert counter.throttled() == 1
    clock.advance(61)
    assert counter.throttled() == 0
