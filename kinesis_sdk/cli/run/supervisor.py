"""Decisions of the supervisor: which worker processes to start, restart, stop and kill, and when to end. Pure.

```
             start              started                exit, not asked for
 WAITING ───────────► STARTING ─────────► RUNNING ───────────────────────────► WAITING (after a backoff)
    ▲   ▲                 │                  │ stop, reload                      or the supervisor ends: crash loop
    │   └── a failure ────┘                  ▼
    └──────── exit, after a reload ───── STOPPING ── exit ─► ENDED
 exit because `until` is reached: ENDED
```

Time is passed in, and `Supervisor.poll` returns actions, which `processes` carries out. The first process has to load the handler
before all other processes start, so that an error of the user's module is reported once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from random import Random
from typing import NamedTuple

from kinesis_sdk.cli.output import ExitCode
from kinesis_sdk.common.backoff import Backoff

_LOGGER = logging.getLogger(__name__)

_RESTARTS = Backoff(1.0, 30.0)
"""Minimum and maximum seconds before a worker process is started again."""
MAX_FAILURES = 5
"""Consecutive failures of one process that end the supervisor."""
HEALTHY_AFTER = 60.0
"""Seconds after which a running worker's earlier failures no longer count."""
_NEVER = float("inf")


class ChildCode(IntEnum):
    """Exit codes of a worker process."""

    REACHED = 0
    """Everything before ``until`` is processed."""
    FAILED = 1
    """The worker ended with an error."""
    USAGE = 2
    """The handler cannot be loaded, or a setting is wrong."""
    CALL_FAILED = 3
    """The worker could not start: no such stream, access denied, endpoint not reachable."""
    STOPPED = 10
    """A clean stop was requested."""


class SlotState(str, Enum):
    """State of one of the processes."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"


class Verb(Enum):
    """Kinds of actions."""

    START = "start"
    STOP = "stop"
    KILL = "kill"


class Action(NamedTuple):
    """An action for a process, by its number (from 1)."""

    verb: Verb
    number: int


class Outcome(NamedTuple):
    """End of the supervisor: the exit code of the command, and a message for the user, or None."""

    code: ExitCode
    message: str | None = None


@dataclass
class Slot:
    """One process and its successors.

    Attributes:
        number: Number of the process, from 1.
        due: Monotonic seconds at which to start or kill the process; infinity for never.
        failures: Consecutive failures.
        restarts: Restarts so far, reloads excluded.
        last_failure: Description of the last failure; None if there was none.
        since: Monotonic seconds at which the worker started; None while it does not run.
    """

    number: int
    state: SlotState = SlotState.WAITING
    due: float = _NEVER
    failures: int = 0
    restarts: int = 0
    last_failure: str | None = None
    since: float | None = None

    @property
    def is_alive(self) -> bool:
        """Whether there is a process."""
        return self.state in (SlotState.STARTING, SlotState.RUNNING, SlotState.STOPPING)


@dataclass
class Supervisor:
    """Supervisor of a number of worker processes.

    Args:
        stop_timeout: Seconds that a clean stop may take before the process is killed.
        reloads: Whether files are watched. A handler that cannot be loaded, or that fails again and again, then waits for a change instead
            of ending the command.

    Attributes:
        outcome: Result of the supervisor; None while it runs.
    """

    processes: int
    stop_timeout: float
    reloads: bool
    rng: Random
    slots: list[Slot] = field(init=False)
    outcome: Outcome | None = field(default=None, init=False)
    _ending: Outcome | None = field(default=None, init=False)
    _is_loaded: bool = field(default=False, init=False)
    _has_started: bool = field(default=False, init=False)
    _is_reloading: bool = field(default=False, init=False)
    _is_reached: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.slots = [Slot(number) for number in range(1, self.processes + 1)]

    def begin(self, now: float) -> None:
        """Start the first process; all other processes follow once it has loaded the handler."""
        self.slots[0].due = now

    @property
    def is_ending(self) -> bool:
        """Whether a stop was requested, or became necessary."""
        return self._ending is not None

    @property
    def is_complete(self) -> bool:
        """Whether all processes ended because all records are processed."""
        return self.outcome is not None and not self.is_ending

    @property
    def next_due(self) -> float:
        """Monotonic seconds of the next action of `poll`; infinity if there is none."""
        return min((slot.due for slot in self.slots), default=_NEVER)

    def poll(self, now: float) -> list[Action]:
        """Return the actions that are due now."""
        return list(self._due(now))

    def _due(self, now: float) -> Iterator[Action]:
        for slot in self.slots:
            if slot.due > now:
                continue
            slot.due = _NEVER
            if slot.state is SlotState.WAITING:
                slot.state = SlotState.STARTING
                yield Action(Verb.START, slot.number)
            elif slot.is_alive:
                _LOGGER.error(
                    "worker process %d: did not stop within %g s, killing it", slot.number, self.stop_timeout
                )
                self._spoil(f"worker process {slot.number} did not stop within {self.stop_timeout:g} s")
                yield Action(Verb.KILL, slot.number)

    # Events

    def on_loaded(self, now: float) -> None:
        """Start the other processes, because the first process has loaded the handler."""
        if self._is_loaded or self.is_ending or self._is_reloading:
            return
        self._is_loaded = True
        for slot in self.slots:
            if slot.state is SlotState.WAITING and slot.due == _NEVER:
                slot.due = now

    def on_started(self, number: int, now: float) -> None:
        """Note that the worker of a process runs."""
        slot = self.slots[number - 1]
        if slot.state is SlotState.STARTING:
            slot.state, slot.since = SlotState.RUNNING, now
        self._has_started = True

    def on_exit(self, number: int, code: int, reason: str, now: float) -> list[Action]:
        """Decide whether and when to replace a process that has ended.

        ``code`` is a `ChildCode`, another exit code, or the negative number of the signal that ended it; ``reason`` is
        for the log.
        """
        slot = self.slots[number - 1]
        since, slot.since, slot.due = slot.since, None, _NEVER
        was_asked = slot.state is SlotState.STOPPING
        slot.state = SlotState.ENDED
        if self.is_ending:
            self._finish_if_ended()
            return []
        if self._is_reloading and was_asked:
            slot.state = SlotState.WAITING
            self._begin_again(now)
            return []
        if code == ChildCode.REACHED:
            self._is_reached = True
            self._finish_if_ended()
            return []
        if self._is_reached:
            # Another worker found everything processed, so this worker is not restarted.
            _LOGGER.warning("worker process %d: %s, after everything was processed", number, reason)
            self._finish_if_ended()
            return []
        slot.state = SlotState.WAITING
        if code == ChildCode.STOPPED:
            _LOGGER.warning(
                "worker process %d: stopped by a signal that the supervisor did not send, starting it again",
                number,
            )
            slot.restarts += 1
            slot.due = now
            return []
        return self._failed(slot, code, reason, since, now)

    def _failed(self, slot: Slot, code: int, reason: str, since: float | None, now: float) -> list[Action]:
        slot.last_failure = reason
        was_healthy = since is not None and now - since >= HEALTHY_AFTER
        slot.failures = 1 if was_healthy else slot.failures + 1
        if code == ChildCode.USAGE:
            return self._give_up(slot, ExitCode.USAGE, reason, now)
        if code == ChildCode.CALL_FAILED and not self._has_started:
            return self._give_up(slot, ExitCode.CALL_FAILED, reason, now)
        if slot.failures >= MAX_FAILURES:
            message = (
                f"worker process {slot.number} failed {slot.failures} times in a row without running for "
                f"{HEALTHY_AFTER:g} s; the last time: {reason}"
            )
            return self._give_up(slot, ExitCode.BAD_ANSWER, message, now)
        pause = _RESTARTS.pause(slot.failures, self.rng)
        slot.due = now + pause
        slot.restarts += 1
        _LOGGER.error("worker process %d: %s; starting it again in %.1f s", slot.number, reason, pause)
        return []

    def _give_up(self, slot: Slot, code: ExitCode, message: str, now: float) -> list[Action]:
        """End all processes; with reloads, leave this process stopped until a file changes."""
        if not self.reloads:
            return self._end(Outcome(code, message), now)
        _LOGGER.error("worker process %d: %s; starting it again when a file changes", slot.number, message)
        return []

    def on_change(self, now: float) -> list[Action]:
        """Stop all processes and start new ones, because a file changed."""
        if self.is_ending:
            return []
        self._is_loaded = False
        self._is_reloading = True
        actions = []
        for slot in self.slots:
            slot.failures = 0
            if slot.is_alive:
                actions += self._stop(slot, now)
            else:
                slot.state, slot.due = SlotState.WAITING, _NEVER
        self._begin_again(now)
        return actions

    def _begin_again(self, now: float) -> None:
        if not any(slot.is_alive for slot in self.slots):
            self._is_reloading = False
            self.begin(now)

    def request_stop(self, code: ExitCode, now: float) -> list[Action]:
        """Begin a clean stop; the second time, kill the remaining processes.

        ``code`` is the exit code of the command, once all processes have ended cleanly.
        """
        if not self.is_ending:
            return self._end(Outcome(code), now)
        self._spoil("stopped immediately; the leases of the workers expire")
        return [Action(Verb.KILL, slot.number) for slot in self.slots if slot.is_alive]

    def _end(self, outcome: Outcome, now: float) -> list[Action]:
        self._ending = outcome
        actions = []
        for slot in self.slots:
            if slot.is_alive:
                actions += self._stop(slot, now)
            else:
                slot.state, slot.due = SlotState.ENDED, _NEVER
        self._finish_if_ended()
        return actions

    def _stop(self, slot: Slot, now: float) -> list[Action]:
        if slot.state is SlotState.STOPPING:
            return []
        slot.state, slot.due = SlotState.STOPPING, now + self.stop_timeout
        return [Action(Verb.STOP, slot.number)]

    def _spoil(self, message: str) -> None:
        """Note that the stop was not clean."""
        if self._ending is not None and self._ending.code == ExitCode.DONE:
            self._ending = Outcome(ExitCode.BAD_ANSWER, message)

    def _finish_if_ended(self) -> None:
        if all(slot.state is SlotState.ENDED for slot in self.slots):
            self.outcome = self._ending or Outcome(ExitCode.DONE)
