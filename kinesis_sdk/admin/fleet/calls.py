"""The calls of a view: their number, a hanging call, and facts such as throttling and the time at AWS."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kinesis_sdk.admin.applications import Application
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.service_clock import least_skew, skew_bounds

_RESPONSES = 20
"""Number of newest responses whose dates are compared with this machine's clock, which may be corrected while a view is open."""


class CallCounter:
    """API calls of the last minute, by operation. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._calls: deque[tuple[float, str]] = deque()
        self._running: dict[object, tuple[float, str]] = {}
        self._throttled: deque[float] = deque()
        self._bounds: deque[tuple[float, float]] = deque(maxlen=_RESPONSES)

    @contextmanager
    def running(self, operation: str) -> Iterator[None]:
        """Count a call, and keep track of it until it ends."""
        self.count(operation)
        key = object()
        with self._lock:
            self._running[key] = (self._clock.monotonic(), operation)
        try:
            yield
        finally:
            with self._lock:
                del self._running[key]

    def longest(self) -> tuple[str, float] | None:
        """Return the operation of the longest running call, and its seconds; None if no call is running."""
        with self._lock:
            if not self._running:
                return None
            began, operation = min(self._running.values())
            return operation, self._clock.monotonic() - began

    def observe(self, service: str, response: object, sent: float) -> None:
        """Note throttling of the lease table and the time of AWS from a response or error document, for a call at wall time ``sent``."""
        document: Mapping[str, Any] = response if isinstance(response, Mapping) else {}
        code = (document.get("Error") or {}).get("Code")
        bounds = skew_bounds(document.get("ResponseMetadata"), sent, self._clock.time())
        with self._lock:
            # DynamoDB uses ThrottlingException for control-plane calls: it says nothing about the table's capacity.
            if service == "dynamodb" and code == "ProvisionedThroughputExceededException":
                self._throttled.append(self._clock.monotonic())
            if bounds is not None:
                self._bounds.append(bounds)

    def throttled(self) -> int:
        """Return the number of calls that the lease table throttled in the last 60 seconds."""
        with self._lock:
            limit = self._clock.monotonic() - 60.0
            while self._throttled and self._throttled[0] <= limit:
                self._throttled.popleft()
            return len(self._throttled)

    def skew(self) -> float | None:
        """Return the minimum seconds by which this machine's clock is behind AWS, negative if it is ahead; None if unknown."""
        with self._lock:
            return least_skew(self._bounds)

    def count(self, operation: str) -> None:
        """Count a call."""
        with self._lock:
            self._calls.append((self._clock.monotonic(), operation))

    def per_minute(self) -> dict[str, int]:
        """Return the calls of the last 60 seconds."""
        with self._lock:
            limit = self._clock.monotonic() - 60.0
            while self._calls and self._calls[0][0] <= limit:
                self._calls.popleft()
            return dict(sorted(Counter(operation for _, operation in self._calls).items()))

    def wall(self) -> float:
        """Return the time of this machine's clock."""
        return self._clock.time()


class _CountingClient:
    """A client whose calls are counted. All other attributes are the client's own."""

    def __init__(self, service: str, client: Any, counter: CallCounter) -> None:
        self._service = service
        self._client = client
        self._counter = counter

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._client, name)
        if not callable(value) or name.startswith("_"):
            return value

        def counted(*args: Any, **kwargs: Any) -> Any:
            with self._counter.running("".join(part.capitalize() for part in name.split("_"))):
                sent = self._counter.wall()
                try:
                    response = value(*args, **kwargs)
                except Exception as error:
                    self._counter.observe(self._service, getattr(error, "response", None), sent)
                    raise
            self._counter.observe(self._service, response, sent)
            return response

        return counted


def counted_application(
    application: Application, counter: CallCounter, *, services: Collection[str] = ("kinesis", "dynamodb")
) -> Application:
    """Return the same application with clients whose calls are counted. DynamoDB calls are counted only if the leases are there."""
    connection = application.connection
    clients: dict[str, Any] = {
        service: _CountingClient(service, connection.client(service), counter)
        for service in services
        if service != "dynamodb" or connection.lease_store is None
    }
    return application.with_connection(connection.counted(clients, counter.count))
