"""The threads that feed an observer, for views that stay open. The threads pause while there is no active subscription.

One thread scans the lease table, another describes the streams and measures the lag, so that a hung call to Kinesis does not hide changes
to the table. The timeouts of `Connection` bound every call.

| what | how often |
| --- | --- |
| Scan of the lease table | every 2 s up to 100 rows, else every 5 s |
| ListShards and DescribeStreamSummary, per stream | every 60 s |
| Scan of ``<application>-WorkerMetricStats`` (KCL 3.0 to 3.4), if there are workers of unknown kind | every 60 s |
| GetShardIterator and GetRecords of a busy shard, three at most | every 60 s, if a row has 60 % of a shard's limit |
| probes of the lag | see `kinesis_sdk.admin.fleet.lag`; none for leases whose owner reports it |

Calls of one kind never overlap. A failed call is retried with a growing delay; until it succeeds, `FleetView.error` names the
failure.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from random import Random

from kinesis_sdk.admin.applications import Application
from kinesis_sdk.admin.fleet.busy import measure_busy
from kinesis_sdk.admin.fleet.calls import CallCounter, counted_application
from kinesis_sdk.admin.fleet.lag import LagCandidate, LagProbe, LagSchedule
from kinesis_sdk.admin.fleet.model import ErrorCode, FleetView, OwnerKind
from kinesis_sdk.admin.fleet.observe import FleetObserver
from kinesis_sdk.common.backoff import Backoff
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import ConfigError, KinesisSdkError, ResourceNotFoundError
from kinesis_sdk.common.loop_thread import LoopThread
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer import TableScan

SMALL_TABLE = 100
"""Number of rows up to which a table is scanned every `FAST_SCAN` seconds: one page of half a dozen read units."""
FAST_SCAN, SLOW_SCAN = 2.0, 5.0
STREAM_INTERVAL = 60.0
"""Seconds between two descriptions of a stream."""
_PUBLISH = 1.0
"""Minimum seconds between two views that differ only in lag readings."""
_RETRIES = Backoff(2.0, 60.0)
_THE_TABLE, _THE_STREAM = "the lease table", "the stream"
_IDLE = 3600.0
"""Longest sleep; subscribers wake the thread."""

_LOGGER = logging.getLogger(__name__)

Listener = Callable[[FleetView], None]


class Subscription:
    """One page that shows the fleet. Use it as a context manager, or `close` it."""

    def __init__(
        self,
        listener: Listener | None,
        on_change: Callable[[], None],
        on_close: Callable[[Subscription], None],
    ) -> None:
        self._listener = listener
        self._on_change = on_change
        self._on_close = on_close
        self._focused: frozenset[str] = frozenset()
        self._visible: frozenset[str] = frozenset()
        self._is_active = True

    def focus(self, lease_key: str | None) -> None:
        """Set the lease whose page is open, so that its lag is measured every 5 s; None for none."""
        self._focused = frozenset() if lease_key is None else frozenset((lease_key,))
        self._on_change()

    def show(self, lease_keys: Iterable[str]) -> None:
        """Set the leases on the screen; their lag is measured first, every 30 s."""
        self._visible = frozenset(lease_keys)
        self._on_change()

    def set_active(self, active: bool) -> None:
        """Pause while the page is hidden: a hidden page causes no calls."""
        self._is_active = active
        self._on_change()

    @property
    def is_active(self) -> bool:
        """Whether the page is visible."""
        return self._is_active

    @property
    def focused(self) -> frozenset[str]:
        """The lease whose page is open."""
        return self._focused

    @property
    def visible(self) -> frozenset[str]:
        """The leases on the screen."""
        return self._visible

    def close(self) -> None:
        """Stop watching."""
        self._on_close(self)

    def publish(self, view: FleetView) -> None:
        """Pass a view to the page."""
        if self._listener is not None and self._is_active:
            self._listener(view)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class FleetPoller:
    """Watches one application. Thread-safe; `step` is for tests that play both threads in virtual time.

    Args:
        application: The application.
        observer: Observer to feed; a new one by default.
        probe_lag: Whether to probe the stream for lag that owners do not report.
        clock: Clock.
        rng: Source of jitter for the delays after failures.

    Example::

        with FleetPoller(Application(Connection(), "billing")) as poller, poller.subscribe(print):
            time.sleep(60)
    """

    def __init__(
        self,
        application: Application,
        *,
        observer: FleetObserver | None = None,
        probe_lag: bool = True,
        clock: Clock | None = None,
        rng: Random | None = None,
    ) -> None:
        self._clock: Clock = SystemClock() if clock is None else clock
        self._rng = Random() if rng is None else rng
        self._counter = CallCounter(self._clock)
        self._kinesis = application.connection.kinesis
        self._application = counted_application(application, self._counter)
        self._observer = observer or FleetObserver(application.name)
        self._schedule = LagSchedule()
        self._probe_lag = probe_lag
        self._probe: LagProbe | None = None
        self._wakeup = threading.Condition()
        self._memory = threading.RLock()
        """Guards the observer, the schedule and the due times. Never held during a call."""
        self._publishing = threading.Lock()
        self._subscriptions: list[Subscription] = []
        self._view: FleetView | None = None
        self._stopped = False
        self._loops: tuple[LoopThread, ...] = ()
        # When each part is due, and how often it failed in a row.
        self._scan_due = self._streams_due = float("-inf")
        self._streams: dict[str | None, StreamId] | None = None
        self._newest: TableScan | None = None
        self._publish_due = float("inf")
        self._failures: dict[str, int] = {}
        self._errors: dict[str, tuple[str, ErrorCode]] = {}

    # For pages

    @property
    def application(self) -> Application:
        """The application that is watched."""
        return self._application

    def longest_call(self) -> tuple[str, float] | None:
        """Return the operation of the longest running call, and its seconds; None if no call is running."""
        return self._counter.longest()

    @property
    def failover_time(self) -> float:
        """Seconds without a change after which an owner counts as silent."""
        return self._observer.failover_time

    def start(self) -> None:
        """Start the threads. The threads make no call until a page subscribes."""
        if self._loops or self._stopped:
            return
        self._loops = (
            LoopThread("fleet-poller", lambda _now: self.step_table(), self._clock, self._log),
            LoopThread("fleet-streams", lambda _now: self.step_streams(), self._clock, self._log),
        )
        for loop in self._loops:
            loop.start()

    def stop(self, timeout: float = 10.0) -> None:
        """Stop the threads after their current calls.

        Args:
            timeout: Maximum seconds to wait for them.
        """
        with self._wakeup:
            self._stopped = True
            self._wakeup.notify_all()
        end = self._clock.monotonic() + timeout
        for loop in self._loops:
            loop.stop(0.0)  # so that all end at the same time
        for loop in self._loops:
            loop.stop(max(0.0, end - self._clock.monotonic()))

    def __enter__(self) -> FleetPoller:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def subscribe(self, listener: Listener | None = None) -> Subscription:
        """Subscribe to views. They are made only while there is an active subscription.

        Args:
            listener: Called with each view by the poller's threads, one at a time, so it must return soon and not call back;
                None to use `view` instead.
        """
        subscription = Subscription(listener, self._wake, self._remove)
        with self._wakeup:
            self._subscriptions.append(subscription)
            view = self._view
        if view is not None:
            subscription.publish(view)
        self._wake()
        return subscription

    def view(self) -> FleetView | None:
        """Return the newest view; None before the first scan."""
        return self._view

    def refresh(self) -> None:
        """Read the table again at once, for example after a change."""
        self._scan_due = float("-inf")
        self._wake()

    def wait(self, timeout: float, newer_than: FleetView | None = None) -> FleetView | None:
        """Wait for a view, and return it.

        Args:
            timeout: Maximum seconds to wait.
            newer_than: A view to ignore; only a newer view counts.

        Returns:
            The view; None if there was no such view in time.
        """
        with self._wakeup:
            self._wakeup.wait_for(lambda: self._view is not None and self._view is not newer_than, timeout)
            return None if self._view is newer_than else self._view

    # For the threads

    def step(self) -> float:
        """Do the work that is due for both threads: at most one scan, and one description of the streams or one probe.

        Returns:
            Monotonic time of the next call, in seconds.
        """
        return min(self.step_table(), self.step_streams())

    def step_table(self) -> float:
        """Do the work that is due for the lease table: at most one scan.

        Returns:
            Monotonic time of the next call, in seconds.
        """
        now = self._clock.monotonic()
        if not self._active():
            return now + _IDLE
        if now >= self._scan_due:
            self._guarded(_THE_TABLE, self._scan)
        return self._scan_due

    def step_streams(self) -> float:
        """Do the work that is due for the streams: at most one description of the streams, or one probe.

        Returns:
            Monotonic time of the next call, in seconds.
        """
        now = self._clock.monotonic()
        active = self._active()
        if not active:
            return now + _IDLE
        candidate = None
        describes = now >= self._streams_due and (self._streams is not None or self._newest is not None)
        with self._memory:
            self._schedule.watch(
                focused=[key for one in active for key in one.focused],
                visible=[key for one in active for key in one.visible],
            )
            if self._probe_lag and not describes:
                candidate = self._schedule.take(now)
        if describes:
            self._guarded(_THE_STREAM, self._describe_streams)
        elif candidate is not None:
            self._measure(candidate)
        if self._clock.monotonic() >= self._publish_due:
            self._publish()
        with self._memory:
            due = self._schedule.due() if self._probe_lag else None
        # Before the first scan, the streams are unknown: the scan wakes this thread.
        streams_due = now + _IDLE if self._newest is None else self._streams_due
        moments = [streams_due, self._publish_due]
        return min(moments if due is None else [*moments, due])

    def _active(self) -> list[Subscription]:
        with self._wakeup:
            return [subscription for subscription in self._subscriptions if subscription.is_active]

    def _scan(self) -> None:
        began = self._clock.monotonic()
        self._scan_due = began + SLOW_SCAN
        scan = self._application.scan()
        now = self._clock.monotonic()
        if len(scan.leases) <= SMALL_TABLE:
            self._scan_due = began + FAST_SCAN
        with self._memory:
            self._observer.observe_table(scan, now, self._clock.time(), began=began)
        self._publish()  # the list first; the stream and the lag follow
        with self._memory:
            self._newest = scan
            known = self._streams
            if known is not None and any(lease.stream_name not in known for lease in scan.leases):
                # An application of several streams got another stream.
                self._streams, self._streams_due = None, float("-inf")
            self._schedule.update(self._observer.lag_candidates(now))
        self._wake()

    def _describe_streams(self) -> None:
        began = self._clock.monotonic()
        self._streams_due = began + STREAM_INTERVAL
        streams = self._streams
        if streams is None:
            newest = self._newest
            if newest is None:
                return
            if self._application.reads_table_stream(newest):
                return  # There is no Kinesis stream to probe; the rows have the lag that live workers report.
            streams = self._application.streams(newest)
            with self._memory:
                self._streams = streams
                self._observer.observe_streams(streams)
        for name, stream in streams.items():
            try:
                facts = self._application.stream_facts(stream)
                shards = self._application.shards(stream)
            except ResourceNotFoundError:
                with self._memory:
                    self._observer.observe_stream(name, None, self._clock.monotonic())
                continue
            with self._memory:
                now = self._clock.monotonic()
                self._observer.observe_stream(name, facts, now)
                self._observer.observe_shards(name, shards, now)
        if self._has_unknown_workers():
            metrics = self._application.worker_metrics()
            if metrics is not None:
                with self._memory:
                    self._observer.observe_metrics(metrics, self._clock.monotonic(), self._clock.time())
        with self._memory:
            busy = self._observer.busy_leases(self._clock.monotonic()) if self._probe_lag else []
        loads = measure_busy(self._application.connection, busy, clock=self._clock, sleep=self._wait)
        with self._memory:
            self._observer.observe_loads(loads, self._clock.monotonic())
            self._schedule.update(self._observer.lag_candidates(self._clock.monotonic()))
        self._publish()

    def _wait(self, seconds: float) -> None:
        """Wait between attempts of a call, at most until the poller ends."""
        with self._wakeup:
            self._wakeup.wait_for(lambda: self._stopped, seconds)

    def _has_unknown_workers(self) -> bool:
        view = self._view
        return view is not None and any(owner.kind is not OwnerKind.SDK for owner in view.owners)

    def _measure(self, candidate: LagCandidate) -> None:
        if self._probe is None:
            self._probe = LagProbe(self._kinesis, clock=self._clock, on_call=self._counter.count)
        result = self._probe.measure(candidate)
        now = self._clock.monotonic()
        with self._memory:
            self._schedule.finish(candidate.lease_key, result, now)
            self._observer.observe_lag(candidate.lease_key, result, now)
        self._publish_due = min(self._publish_due, now + _PUBLISH)

    def _publish(self) -> None:
        with self._publishing:  # views are published in the order in which they were made
            with self._memory:
                now = self._clock.monotonic()
                self._publish_due = float("inf")
                self._observer.observe_calls(
                    self._counter.per_minute(), throttled=self._counter.throttled(), skew=self._counter.skew()
                )
                failed = [self._errors[what] for what in (_THE_TABLE, _THE_STREAM) if what in self._errors]
                self._observer.observe_error(
                    "; ".join(text for text, _ in failed), failed[0][1] if failed else None
                )
                view = self._observer.view(now, self._clock.time())
            with self._wakeup:
                self._view = view
                subscriptions = [*self._subscriptions]
                self._wakeup.notify_all()
            for subscription in subscriptions:
                try:
                    subscription.publish(view)
                except Exception:
                    _LOGGER.exception(
                        "a listener of the fleet of %s failed", printable(self._application.name)
                    )

    def _guarded(self, what: str, read: Callable[[], None]) -> None:
        """Run a read. A failure becomes part of the view, and the read is retried after a growing delay."""
        try:
            read()
        except Exception as error:
            if not isinstance(error, KinesisSdkError):
                _LOGGER.exception("reading %s of %s failed", what, printable(self._application.name))
            with self._memory:
                count = self._failures[what] = self._failures.get(what, 0) + 1
                text = f"{what} could not be read: {printable(str(error), 400)}"
                self._errors[what] = text, ErrorCode.of(error)
            due = self._clock.monotonic() + _RETRIES.pause(count, self._rng)
            if isinstance(error, ConfigError):
                due = max(
                    due, self._clock.monotonic() + STREAM_INTERVAL
                )  # an early retry gets the same response
            if what == _THE_STREAM:
                self._streams_due = due
            else:
                self._scan_due = due
            self._publish()
            return
        with self._memory:
            had_failed = self._errors.pop(what, None) is not None
            self._failures.pop(what, None)
        if had_failed:
            self._publish()

    def _log(self, error: BaseException) -> None:
        _LOGGER.error(
            "reading %s of %s failed", "the fleet", printable(self._application.name), exc_info=error
        )

    def _wake(self) -> None:
        for loop in self._loops:
            loop.wake()

    def _remove(self, subscription: Subscription) -> None:
        with self._wakeup:
            if subscription in self._subscriptions:
                self._subscriptions.remove(subscription)
