"""Renewal loop: heartbeats of held leases, and the end of handoffs that exceed their timeout.

It has a thread of its own, so a slow scan or handler never delays a heartbeat. Its writes run on a small pool, so a write
that hangs does not delay the others.
"""

from __future__ import annotations

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


class LeaseRenewer:
    """Renews the held leases. `tick` belongs to one thread.

    Args:
        held: The leases held by this worker.
        failover_time: Seconds without a renewal after which a lease expires.
        renew_interval: Seconds between two renewals of a lease.
        handoff_timeout: Seconds after a request at which a lease is handed off even if its handler still runs.
        runtime: Time, jitter and the pool for renewals.
        listener: Told about lost leases, requested leases and fatal errors.
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

    def tick(self, now: float) -> float:
        """Send the heartbeats that are due and return when the next one is."""
        due = now + self._renew_interval
        for held in self._held:
            if held.gone is not None or not held.is_held(now):
                held.mark_lost(f"not renewed for {now - held.written_at:.1f} s")
                self._held.remove(held)
                self._listener.on_lease_lost(held)
                continue
            requested_at = held.handoff_requested_at
            if requested_at is not None and now - requested_at > self._handoff_timeout:
                if not held.renewing:
                    held.renewing = True
                    self._runtime.run_renewal(lambda held=held: self._force_handoff(held))  # type: ignore[misc]
                due = min(due, now + 1.0)
                continue
            # A checkpoint counts as a heartbeat.
            renew_at = max(held.renew_at, held.written_at + self._renew_interval)
            if held.renewing:
                continue
            if renew_at <= now:
                held.renewing = True
                self._runtime.run_renewal(lambda held=held: self._renew_one(held))  # type: ignore[misc]
            else:
                due = min(due, renew_at)
            # Be back when the lease would be lost, even if the next heartbeat is later: a renewal that hangs does not
            # report anything.
            due = min(due, max(now, held.written_at + self._failover_time + 0.001))
        return due

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
        if not renewed:
            self._runtime.wake("renewals")

    def _force_handoff(self, held: HeldLease) -> None:
        """Release a requested lease to its requester although its handler still runs; the handler learns it later."""
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
            return
        except BaseException as error:  # noqa: BLE001 - a pool thread must not lose it
            self._listener.on_fatal_error(error)
        self._held.remove(held)
        self._listener.on_lease_lost(held)
