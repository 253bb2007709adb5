"""Changes that a page has planned, and their outcomes. They are kept in memory, in bounded number, and each plan runs at most once."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kinesis_sdk.common.errors import KinesisSdkError

Act = Callable[[Callable[[str], None]], Mapping[str, Any]]
"""Makes a change. Is passed a callback for lines of progress, and returns the outcome."""

_KEPT = 200
"""Maximum number of plans; beyond it, the oldest plan is forgotten."""
PLAN_LIFETIME = 300.0
"""Seconds after which a plan expires, because it may be outdated."""


@dataclass
class _Job:
    plan: Mapping[str, Any]
    act: Act
    after: Callable[[], None]
    planned_at: float
    state: str = "planned"
    lines: list[str] = field(default_factory=list)
    outcome: Mapping[str, Any] | None = None
    error: str = ""


class ChangeJobs:
    """The plans of one console, and their outcomes. Thread-safe.

    States of a plan: *planned* → *running* → *done* or *failed*. `start` takes a plan out of *planned* under the lock,
    so that two clicks, or two pages, run it only once. ``spawn`` runs a function in a thread of its own.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        spawn: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self._clock = clock
        self._spawn = spawn or _spawn
        self._lock = threading.Lock()
        self._jobs: OrderedDict[str, _Job] = OrderedDict()

    def add(self, plan: Mapping[str, Any], act: Act, after: Callable[[], None] = lambda: None) -> str:
        """Keep a plan, and return the id that runs it. ``after`` is called when the change has ended in any way."""
        identity = secrets.token_urlsafe(12)
        with self._lock:
            self._jobs[identity] = _Job(plan, act, after, self._clock())
            while len(self._jobs) > _KEPT:
                self._jobs.popitem(last=False)
        return identity

    def start(self, identity: str) -> bool:
        """Run a plan in a thread of its own; return False if it is unknown, too old, or was started before."""
        with self._lock:
            job = self._jobs.get(identity)
            if job is None or job.state != "planned" or self._clock() - job.planned_at > PLAN_LIFETIME:
                return False
            job.state = "running"
        self._spawn(lambda: self._run(job))
        return True

    def state(self, identity: str) -> dict[str, Any] | None:
        """Return the state of a plan for the page; None if it is unknown."""
        with self._lock:
            job = self._jobs.get(identity)
            if job is None:
                return None
            return {
                "state": job.state,
                "lines": list(job.lines),
                "outcome": dict(job.outcome) if job.outcome is not None else None,
                "error": job.error,
            }

    def _run(self, job: _Job) -> None:
        def line(text: str) -> None:
            with self._lock:
                job.lines.append(text)

        state, outcome, error = "failed", None, ""
        try:
            outcome = job.act(line)
            state = "done"
        except KinesisSdkError as failure:
            error = str(failure)
        except BaseException as failure:
            error = f"The console failed: {type(failure).__name__}."
            raise
        finally:
            with self._lock:
                job.state, job.outcome, job.error = state, outcome, error
            job.after()


def _spawn(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="kinesis-sdk-ui-change", daemon=True).start()
