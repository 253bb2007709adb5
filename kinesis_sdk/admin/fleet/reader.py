"""One read of an application, for commands that print and end; views that stay open use a `FleetPoller`.

A read makes one Scan of the lease table, and ListShards and DescribeStreamSummary calls for each stream. The lag costs two calls for each
lease, at most 200 leases a second, and each shard is probed once. If owners of this SDK may have processed more than they have
checkpointed, the table is read again every second until they have renewed their leases: four times with a failover time
of 10 s.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container

from kinesis_sdk.admin.applications import Application
from kinesis_sdk.admin.fleet.busy import measure_busy
from kinesis_sdk.admin.fleet.calls import CallCounter, counted_application
from kinesis_sdk.admin.fleet.lag import THREADS, LagCandidate, LagProbe, LagProbeResult, measure_all
from kinesis_sdk.admin.fleet.model import (
    ErrorCode,
    FleetView,
    LagSource,
    LeaseState,
    LeaseView,
    OwnerKind,
)
from kinesis_sdk.admin.fleet.observe import FleetObserver
from kinesis_sdk.common.aws import call_with_retries
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import ConfigError, ResourceNotFoundError, ThrottledError
from kinesis_sdk.consumer import TableScan

SCAN_INTERVAL = 2.0
"""Seconds between two scans of a command that watches for a while."""
_RETRIED_FOR = 30.0
"""Seconds for which a throttled read of the table is repeated."""
_RENEWAL_POLL = 1.0
"""Seconds between two scans that wait for the next renewal of an owner."""


class FleetReader:
    """Reads an application in steps, so that its caller can show the list before the lag."""

    def __init__(
        self,
        application: Application,
        *,
        observer: FleetObserver | None = None,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._calls = CallCounter(SystemClock() if clock is None else clock)
        self._counted: Application | None = None
        self._application = application
        self._observer = observer or FleetObserver(application.name)
        self._clock: Clock = SystemClock() if clock is None else clock
        self._sleep = sleep
        self._scan: TableScan | None = None

    def table(self) -> FleetView:
        """Read the table, and return the view. A throttled read is repeated for about half a minute."""
        began = 0.0
        if self._counted is None:
            self._counted = counted_application(self._application, self._calls, services=("dynamodb",))
        table = self._counted

        def scan() -> TableScan:
            nonlocal began
            began = self._clock.monotonic()
            return table.scan()

        try:
            self._scan = scan()
        except ThrottledError:
            # A table is often throttled during an incident, when people need this command. Waiting helps against no other
            # failure.
            self._scan = call_with_retries(scan, operation=None, timeout=_RETRIED_FOR, sleep=self._sleep)
        self._observer.observe_table(self._scan, self._clock.monotonic(), self._clock.time(), began=began)
        return self.view()

    def streams(self, *, required: bool = True) -> FleetView:
        """Read the shards and the retention of the streams, and return the view.

        With ``required``, a stream that cannot be found raises an error; otherwise, `FleetView.error` reports it. A stream given by name
        must always exist; otherwise, ResourceNotFoundError is raised.
        """
        scan = self._scan
        if scan is None:
            self.table()
            scan = self._scan
        assert scan is not None
        try:
            streams = self._application.streams(scan)
        except ConfigError as error:
            if required:
                raise
            self._observer.observe_error(str(error), ErrorCode.of(error))
            return self.view()
        self._observer.observe_streams(streams)
        for name, stream in streams.items():
            try:
                facts, shards = self._application.stream_facts(stream), self._application.shards(stream)
            except ResourceNotFoundError:
                if stream == self._application.given_stream:
                    raise
                self._observer.observe_stream(name, None, self._clock.monotonic())
                continue
            now = self._clock.monotonic()
            self._observer.observe_stream(name, facts, now)
            self._observer.observe_shards(name, shards, now)
        if any(owner.kind is not OwnerKind.SDK for owner in self.view().owners):
            metrics = self._application.worker_metrics()
            if metrics is not None:
                self._observer.observe_metrics(metrics, self._clock.monotonic(), self._clock.time())
        busy = self._observer.busy_leases(self._clock.monotonic())
        loads = measure_busy(self._application.connection, busy, clock=self._clock, sleep=self._sleep)
        self._observer.observe_loads(loads, self._clock.monotonic())
        return self.view()

    @property
    def reads_table_stream(self) -> bool:
        """Whether the application reads the stream of a DynamoDB table, according to the last read of the table."""
        return self._scan is not None and self._application.reads_table_stream(self._scan)

    def reported_lag(self) -> FleetView:
        """Read the table until live owners have reported their lag, for at most one failover time, and return the view.

        Used for the stream of a DynamoDB table, which is not probed. A lag that no live worker of this SDK reports stays unknown.
        """
        return self.watch(
            self._observer.failover_time,
            lambda view: all(
                lease.lag is not None or lease.owner is None or lease.state is LeaseState.FINISHED
                for lease in view.leases
            ),
            interval=_RENEWAL_POLL,
        )

    def watch(
        self,
        seconds: float,
        until: Callable[[FleetView], bool] = lambda _: False,
        *,
        interval: float = SCAN_INTERVAL,
    ) -> FleetView:
        """Read the table every ``interval`` seconds, so that ages become known: for ``seconds``, or until ``until`` is true."""
        end = self._clock.monotonic() + seconds
        view = self.view()
        while (left := end - self._clock.monotonic()) > 0 and not until(view):
            self._sleep(min(interval, left))
            view = self.table()
        return view

    def lag(
        self,
        *,
        only: Container[str] | None = None,
        threads: int = THREADS,
        on_result: Callable[[int, int], None] = lambda done, total: None,  # noqa: ARG005 - a default
    ) -> FleetView:
        """Probe the lag of each lease once, or only of the leases in ``only``, and return the view.

        A probe shows how far the checkpoint is behind. An owner of this SDK may have processed more, and stored its lag in
        the row; but one read of the row does not show whether that owner is alive. So if the two lags differ, the table is read again
        until the row was seen to change, for at most two thirds of the failover time. ``on_result`` is called with the numbers of finished
        probes and of all probes.
        """
        candidates = [
            one
            for one in self._observer.lag_candidates(self._clock.monotonic())
            if only is None or one.lease_key in only
        ]
        done = 0

        def take(candidate: LagCandidate, result: LagProbeResult) -> None:
            nonlocal done
            done += 1
            self._observer.observe_lag(candidate.lease_key, result, self._clock.monotonic())
            on_result(done, len(candidates))

        probe = LagProbe(self._application.connection.kinesis, clock=self._clock)
        measure_all(
            probe,
            candidates,
            take,
            threads=min(threads, len(candidates)),
            clock=self._clock,
            sleep=self._sleep,
        )
        keys = {candidate.lease_key for candidate in candidates}
        if any(self._may_be_less(lease, keys) for lease in self.view().leases):
            self.table()  # probing a large application takes so long that most rows have changed meanwhile
            self.watch(
                self._observer.failover_time * 2 / 3,
                lambda view: not any(self._may_be_less(lease, keys) for lease in view.leases),
                interval=_RENEWAL_POLL,
            )
        return self.view()

    def _may_be_less(self, lease: LeaseView, keys: Container[str]) -> bool:
        """Return whether the owner of a lease may have processed records after the checkpoint."""
        if lease.lease_key not in keys or lease.lag is None or lease.lag.source is LagSource.PROGRESS:
            return False
        told = self._observer.reported_lag(lease.lease_key)
        return told is not None and told < lease.lag.millis

    def view(self) -> FleetView:
        """Return the view of the current state."""
        self._observer.observe_calls({}, throttled=self._calls.throttled(), skew=self._calls.skew())
        return self._observer.view(self._clock.monotonic(), self._clock.time())
