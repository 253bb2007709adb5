"""Renewal loop: heartbeats of held leases, and the end of handoffs that exceed their timeout.

The loop has its own thread, so a slow scan or handler never delays a heartbeat. Writes of the loop run on a small pool, so a
hung write does not delay other leases.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading

from kinesis_sdk.common.errors import KinesisSdkError, LeaseLostError
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.log_throttle import LogThrottle
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer.leases.intervals import retry_pause
from kinesis_sdk.consumer.leases.ownership.held_lease import HeldLease, HeldLeases
from kinesis_sdk.consumer.leases.ownership.listener import LeaseListener
from kinesis_sdk.consumer.runtime.runtime import Runtime

_LOGGER = FieldLogger(logging.getLogger(__name__))

_SLACK = 0.002
"""Seconds by which a lease may be checked early; the check itself compares exact times."""
_NEVER = float("inf")


class LeaseRenewer:
    """Renews the held leases. `tick` belongs to one thread.

    A requested lease is handed off after ``handoff_timeout`` seconds even if its handler still runs.
    """

    def __init__(
        self,
        held: HeldLeases,
        *,
        failover_time: float,
        renew_interval: float,
        handoff_timeout: float,
        runtime: Runtime,
        listener: LeaseListener,
    ) -> None:
        self._held = held
        self._failover_time = failover_time
        self._renew_interval = renew_interval
        self._handoff_timeout = handoff_timeout
        self._runtime = runtime
        self._listener = listener
        self._log_throttle = LogThrottle(_LOGGER)
        self._log_lock = threading.Lock()
        # Heap of the times at which to check leases. An entry is valid only if its time equals its lease's time in `_due`.
        self._planned: list[tuple[float, int, HeldLease]] = []
        self._due: dict[HeldLease, float] = {}
        # Ends of the handoff timeouts of requested leases, which are in `_watched`. The end of a timeout wakes nothing:
        # the next call notices it.
        self._requested: list[tuple[float, int, HeldLease]] = []
        self._watched: set[HeldLease] = set()
        self._order = itertools.count()

    def tick(self, now: float) -> float:
        """Send the heartbeats that are due; return the next due time.

        The cost grows with the leases that are due or have changed, not with the held leases: with 1,000 leases, this is
        called 150 times a second.
        """
        checked = self._held.take_changed()
        while self._planned and self._planned[0][0] <= now + _SLACK:
            held = self._unplan()
            if held is not None:
                checked.add(held)
        while self._requested and self._requested[0][0] <= now + _SLACK:
            held = heapq.heappop(self._requested)[2]
            self._watched.discard(held)
            checked.add(held)
        for held in self._held.in_order(checked):
            self._check(held, now)
        return min(now + self._renew_interval, self._next_due(now))

    def _check(self, held: HeldLease, now: float) -> None:
        """Do the due work for a lease, and plan its next check."""
        if held.gone is not None or not held.is_held(now):
            held.mark_lost(f"not renewed for {now - held.written_at:.1f} s")
            self._held.remove(held)
            self._listener.on_lease_lost(held)
        elif self._is_overdue(held, now):
            if not held.renewing:
                held.renewing = True
                self._runtime.run_renewal(lambda: self._force_handoff(held))
            self._plan(held, now + 1.0)
        else:
            requested_at = held.handoff_requested_at
            if requested_at is not None and held not in self._watched:
                self._watched.add(held)
                heapq.heappush(
                    self._requested, (requested_at + self._handoff_timeout, next(self._order), held)
                )
            due = self._due_of(held, now)
            if due <= now:
                held.renewing = True
                self._runtime.run_renewal(lambda: self._renew_one(held))
                due = self._lost_at(held, now)
            self._plan(held, due)

    def _is_overdue(self, held: HeldLease, now: float) -> bool:
        """Return whether to hand off a requested lease although its handler still runs."""
        requested_at = held.handoff_requested_at
        return requested_at is not None and now - requested_at > self._handoff_timeout

    def _due_of(self, held: HeldLease, now: float) -> float:
        """Return the due time of the next heartbeat, or during a heartbeat, the time at which the lease is lost."""
        if held.renewing:
            return self._lost_at(held, now)
        renew_at = max(held.renew_at, held.written_at + self._renew_interval)
        return min(renew_at, self._lost_at(held, now))

    def _lost_at(self, held: HeldLease, now: float) -> float:
        """Return the time at which the lease is lost without another write, because a hung renewal reports nothing."""
        return max(now, held.written_at + self._failover_time + 0.001)

    def _plan(self, held: HeldLease, due: float) -> None:
        """Plan the next check of a lease, replacing an earlier plan."""
        if self._due.get(held) != due:
            self._due[held] = due
            heapq.heappush(self._planned, (due, next(self._order), held))

    def _unplan(self) -> HeldLease | None:
        """Remove the first entry of the plan; return its lease, or None if the entry was replaced."""
        due, _, held = heapq.heappop(self._planned)
        if self._due.get(held) != due:
            return None
        del self._due[held]
        return held

    def _next_due(self, now: float) -> float:
        """Return the first time of the plan; infinity if the plan is empty."""
        # Checkpoints postpone heartbeats without notifying this loop; `HeldLeases.take_changed` reports every other change of
        # a due time. So correct the first entry until it is right; the entries behind it can only become due later.
        while self._planned:
            planned, _, held = self._planned[0]
            if self._due.get(held) != planned or held.gone is not None or held not in self._held:
                self._unplan()
                continue
            due = planned if self._is_overdue(held, now) else self._due_of(held, now)
            if due <= planned:
                return planned
            self._unplan()
            self._plan(held, due)
        return _NEVER

    def _renew_one(self, held: HeldLease) -> None:
        renewed = False
        was_requested = held.handoff_requester is not None
        try:
            held.renew()
            if held.handoff_requester is not None and not was_requested:
                self._listener.on_handoff_requested(held)
            renewed = True
            held.renew_at = held.written_at + self._renew_interval
        except LeaseLostError:
            self._held.remove(held)
            self._listener.on_lease_lost(held)
        except KinesisSdkError as error:
            now = self._runtime.clock.monotonic()
            if not error.retryable:
                self._listener.on_fatal_error(error)
            pause = retry_pause(self._failover_time)
            held.renew_at = now + pause * (0.4 + 0.6 * self._runtime.rng.random())
            with self._log_lock:
                self._log_throttle.log(
                    now,
                    type(error).__name__,
                    "lease %s: renewal failed, retrying: %s",
                    held.key,
                    error,
                    extra=held.log_fields,
                )
        except BaseException as error:  # noqa: BLE001 - a pool thread must not lose it
            self._listener.on_fatal_error(error)
        finally:
            held.renewing = False
            self._held.note_change(held)
        if not renewed:
            self._runtime.wake("renewals")

    def _force_handoff(self, held: HeldLease) -> None:
        """Release a lease to its requester although its handler still runs; the handler is notified later."""
        try:
            held.release()
            _LOGGER.warning(
                "lease %s: handed off to %s with the handler still running (timeout %g s)",
                held.key,
                printable(held.handoff_requester or ""),
                self._handoff_timeout,
                extra=held.log_fields,
            )
        except LeaseLostError:
            pass  # the requester, or a leader, has taken it already
        except KinesisSdkError as error:
            with self._log_lock:
                self._log_throttle.log(
                    self._runtime.clock.monotonic(),
                    "handoff",
                    "lease %s: handoff failed, retrying: %s",
                    held.key,
                    error,
                    extra=held.log_fields,
                )
            held.renewing = False
            self._held.note_change(held)
            return
        except BaseException as error:  # noqa: BLE001 - a pool thread must not lose it
            self._listener.on_fatal_error(error)
        self._held.remove(held)
        self._listener.on_lease_lost(held)
