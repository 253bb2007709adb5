"""Health of all worker processes, as one endpoint."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kinesis_sdk.cli.run.supervisor import SlotState, Supervisor
from kinesis_sdk.common.page_server import Page, PageServer, json_page, pages_by_path, probe_page

if TYPE_CHECKING:
    from kinesis_sdk.cli.run.processes import ChildProcess

_LOGGER = logging.getLogger(__name__)

_SILENT_AFTER = 60.0
"""Seconds without a report after which a worker process counts as stuck. A process reports every second, but an extension module
of the handler may block its interpreter for a while.
"""


@dataclass(frozen=True, kw_only=True)
class ProcessHealth:
    """The supervisor's information about the health of one process.

    Attributes:
        pid: Process id; None if there is no process.
        restarts: Restarts so far.
        last_failure: Description of its last failure; None if there was none.
        reported: Last report: ``health``, ``live``, ``ready`` and ``failover_time``; None before the first report.
        silent: Seconds since that report, or since the worker started; None if it has not started.
    """

    number: int
    state: SlotState
    pid: int | None
    restarts: int
    last_failure: str | None
    reported: Mapping[str, Any] | None
    silent: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return the health as data that ``json.dumps`` accepts."""
        return {
            "process": self.number,
            "state": self.state.value,
            "pid": self.pid,
            "restarts": self.restarts,
            "last_failure": self.last_failure,
            "seconds_since_report": self.silent,
            "health": None if self.reported is None else self.reported["health"],
        }


def live_problems(processes: Sequence[ProcessHealth]) -> Iterator[str]:
    """Decide ``/live``: yield the problems that only a restart of all processes solves. A process that is being replaced does not count."""
    for process in processes:
        if process.state is not SlotState.RUNNING:
            continue
        if process.silent is not None and process.silent > _SILENT_AFTER:
            yield f"worker process {process.number} has not reported for {process.silent:.0f} s"
        for problem in (process.reported or {}).get("live", ()):
            yield f"worker process {process.number}: {problem}"


def ready_problems(processes: Sequence[ProcessHealth]) -> Iterator[str]:
    """Decide ``/ready``: yield why some process does not take or process shards now."""
    yield from live_problems(processes)
    for process in processes:
        if process.state is SlotState.ENDED:
            continue
        if process.state is not SlotState.RUNNING:
            yield f"worker process {process.number} is {process.state.value}"
        elif process.reported is None:
            yield f"worker process {process.number} has not reported yet"
        else:
            failover_time = process.reported["failover_time"]
            if process.silent is not None and failover_time < process.silent <= _SILENT_AFTER:
                yield (
                    f"worker process {process.number} has not reported for {process.silent:.0f} s: other workers may have taken "
                    "its leases"
                )
            for problem in process.reported["ready"]:
                yield f"worker process {process.number}: {problem}"


class SupervisorHealth:
    """The endpoint. The supervisor's loop calls `observe`; the server's threads respond. With a ``port`` of None, there is no endpoint."""

    def __init__(
        self,
        supervisor: Supervisor,
        host: str,
        port: int | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._supervisor = supervisor
        self._address = None if port is None else (host, port)
        self._clock = clock
        self._lock = threading.Lock()
        self._processes: tuple[ProcessHealth, ...] = ()
        self._observed_at: float | None = None
        self._stopping = False
        self.server: PageServer | None = None

    def __enter__(self) -> SupervisorHealth:
        """Open the endpoint.

        Raises:
            ConfigError: If the port is in use.
        """
        if self._address is not None:
            page = pages_by_path(
                {
                    "/live": lambda: self._probe("live", live_problems),
                    "/ready": lambda: self._probe("ready", ready_problems),
                    "/status": self._status,
                }
            )
            self.server = PageServer(page, *self._address, setting="health_port")
            _LOGGER.info("health endpoint at http://%s:%d", self._address[0], self.server.port)
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the endpoint."""
        if self.server is not None:
            self.server.close()

    def observe(self, running: Mapping[int, ChildProcess]) -> None:
        """Note the current state of all processes."""
        now = self._clock()
        found = []
        for slot in self._supervisor.slots:
            child = running.get(slot.number)
            heard = None if child is None or child.reported_at is None else child.reported_at
            since = heard if heard is not None else slot.since
            found.append(
                ProcessHealth(
                    number=slot.number,
                    state=slot.state,
                    pid=None if child is None else child.pid,
                    restarts=slot.restarts,
                    last_failure=slot.last_failure,
                    reported=None if child is None else child.reported,
                    silent=None if since is None else now - since,
                )
            )
        with self._lock:
            self._processes = tuple(found)
            self._observed_at = now
            self._stopping = self._supervisor.is_ending

    def _probe(self, name: str, decide: Callable[[Sequence[ProcessHealth]], Iterator[str]]) -> Page:
        with self._lock:
            processes, observed_at, stopping = self._processes, self._observed_at, self._stopping
        problems = [*decide(processes)]
        if observed_at is None:
            if name == "ready":
                problems.append("no worker process was started yet")
        elif self._clock() - observed_at > _SILENT_AFTER:
            problems.append(f"the supervisor makes no progress for {self._clock() - observed_at:.0f} s")
        if stopping and name == "ready":
            problems.append("the worker processes stop")
        return probe_page(name, problems)

    def _status(self) -> Page:
        with self._lock:
            processes, stopping = self._processes, self._stopping
        return json_page(
            200, {"stopping": stopping, "processes": [process.to_dict() for process in processes]}
        )
