"""All applications of an account at a glance, worst first.

Each application is read once by a `FleetReader`, with its lag. Applications whose rows do not name their stream share one ListStreams call,
and one ListShards call for each stream.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kinesis_sdk.admin.applications import Application
from kinesis_sdk.admin.fleet.model import ErrorCode, FleetView, Problem, Severity, Totals
from kinesis_sdk.admin.fleet.observe import FleetObserver
from kinesis_sdk.admin.fleet.reader import FleetReader
from kinesis_sdk.admin.parallel import for_each
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import KinesisSdkError

AT_ONCE = 4
"""Maximum applications read at the same time."""
_PROBES_AT_ONCE = 4
"""Maximum probes of one application at the same time."""


@dataclass(frozen=True, kw_only=True)
class ApplicationSummary:
    """State of one application among many.

    Attributes:
        application: Its name.
        streams: Names of its streams, as far as they are known.
        at: When it was read, in epoch seconds.
        totals: Sums over its shards.
        errors: Number of its problems that are errors.
        warnings: Number of its other problems.
        worst: Its worst problem; None if it has none.
        error: Reason why it could not be read completely; otherwise empty.
    """

    application: str
    streams: tuple[str, ...] = ()
    at: float
    totals: Totals
    errors: int = 0
    warnings: int = 0
    worst: Problem | None = None
    error: str = ""


def summarize(view: FleetView) -> ApplicationSummary:
    """Return the summary of a view."""
    errors = sum(problem.severity is Severity.ERROR for problem in view.problems)
    return ApplicationSummary(
        application=view.application,
        streams=view.streams,
        at=view.at,
        totals=view.totals,
        errors=errors,
        warnings=len(view.problems) - errors,
        worst=view.problems[0] if view.problems else None,
        error=view.error,
    )


def worst_first(summaries: Iterable[ApplicationSummary]) -> list[ApplicationSummary]:
    """Sort applications: errors first, then unreadable applications, warnings, all others; the largest lag first in each group."""

    def order(one: ApplicationSummary) -> tuple[int, int, str]:
        rank = 0 if one.errors else 1 if one.error else 2 if one.warnings else 3
        return rank, -(one.totals.worst_lag_millis or 0), one.application

    return sorted(summaries, key=order)


def read_fleets(
    applications: Iterable[Application],
    on_view: Callable[[FleetView], None],
    *,
    observer: Callable[[str], FleetObserver] = FleetObserver,
    at_once: int = AT_ONCE,
    clock: Clock | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Read each application once, with its lag. If that fails, ``error`` of its view has the reason.

    Args:
        applications: The applications.
        on_view: Called with each view, by one thread at a time.
        observer: Makes the observer of an application.
        at_once: Maximum applications read at the same time.
        clock: Clock.
        sleep: Replaces `time.sleep`.
    """
    clock = SystemClock() if clock is None else clock
    shared: dict[int, _SharedListings] = {}

    def read(application: Application) -> FleetView:
        try:
            return _read(application, observer(application.name), clock, sleep)
        except KinesisSdkError as error:
            return FleetView(
                application=application.name,
                at=clock.time(),
                error=str(error),
                error_code=ErrorCode.of(error),
            )

    def with_shared_listings(application: Application) -> Application:
        connection = application.connection
        listings = shared.setdefault(id(connection.kinesis), _SharedListings(connection.kinesis))
        clients: dict[str, Any] = {"kinesis": listings}
        if connection.lease_store is None:
            clients["dynamodb"] = connection.dynamodb
        return application.with_connection(connection.counted(clients, lambda _operation: None))

    for_each(
        map(with_shared_listings, applications),
        read,
        lambda _, view: on_view(view),
        threads=at_once,
        name="overview",
    )


def _read(
    application: Application, observer: FleetObserver, clock: Clock, sleep: Callable[[float], None]
) -> FleetView:
    reader = FleetReader(application, observer=observer, clock=clock, sleep=sleep)
    view = reader.table()
    if not view.totals.leases + view.totals.finished:
        return view
    if reader.reads_table_stream:
        return reader.reported_lag()
    reader.streams(required=False)
    return reader.lag(threads=_PROBES_AT_ONCE)


class _SharedListings:
    """A Kinesis client that lists the streams, and the shards of each stream, only once. All other calls go to the wrapped client."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._known: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def list_streams(self, **request: Any) -> Any:
        return self._once(f"list_streams {request}", lambda: self._client.list_streams(**request))

    def list_shards(self, **request: Any) -> Any:
        return self._once(f"list_shards {request}", lambda: self._client.list_shards(**request))

    def _once(self, key: str, call: Callable[[], Any]) -> Any:
        with self._lock:  # so that applications that begin at the same time also share the listings
            if key not in self._known:
                self._known[key] = call()
            return self._known[key]
