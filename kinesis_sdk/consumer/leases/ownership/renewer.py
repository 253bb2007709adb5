"""The renewal loop: heartbeats of held leases, and the end of handoffs that take too long.

It has a thread of its own, so a slow look or handler never delays a heartbeat, and runs its writes on a small pool,
so that one that hangs delays no other.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from random import Random

from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import AwsError, LeaseLostError
from kinesis_sdk.common.log_throttle import LogThrottle
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer.config import ConsumerConfig
from kinesis_sdk.consumer.leases.intervals import retry_pause
from kinesis_sdk.consumer.leases.ownership.held_lease import HeldLease, HeldLeases

_LOGGER = logging.getLogger(__name__)


class LeaseRenewer:
    """Renews what is held. `tick` belongs to one thread.

    Args:
        held: The leases.
        config: Settings.
        clock: Time.
        rng: Jitter.
        run: Runs a renewal now or soon (a small pool, or the caller).
        on_lost: Told about each lease that turns out to be lost.
        on_handoff_requested: Told about each lease that somebody turns out to have asked for.
        on_fatal: Told about an error that repeating does not cure.
        on_failed: Told that a renewal has to be repeated sooner than `tick` said.
    """

    def __init__(
        self,
        held: HeldLeases,
        *,
        config: ConsumerConfig,
        clock: Clock,
        rng: Random,
        run: Callable[[Callable[[], None]], object],
        on_lost: Callable[[HeldLease], None],
        on_handoff_requested: Callable[[HeldLease], None],
        on_fatal: Callable[[BaseException], None],
        on_failed: Callable[[], None],
    ) -> None:
        self._held = held
        self._config = config
        self._interval = config.renew_interval
        self._clock = clock
        self._rng = rng
        self._run = run
        self._on_lost = on_lost
        self._on_handoff_requested = on_handoff_requested
        self._on_fatal = on_fatal
        self._on_failed = on_failed
        self._log_throttle = LogThrottle(_LOGGER)
        self._repeats_lock = threading.Lock()

    def tick(self, now: float) -> float:
        """Send the heartbeats that are due; returns when the next one is."""
        due = now + self._interval
        for held in self._held:
            if held.gone is not None or not held.is_held(now):
                held.mark_lost(f"not renewed for {now - held.written_at:.1f} s")
                self._held.remove(held)
                self._on_lost(held)
                continue
            since = held.handover_since
            if since is not None and now - since > self._config.graceful_lease_handoff_timeout:
                if not held.renewing:
                    held.renewing = True
                    self._run(lambda held=held: self._force(held))  # type: ignore[misc]
                due = min(due, now + 1.0)
                continue
            # A checkpoint is a heartbeat too.
            renew_at = max(held.renew_at, held.written_at + self._interval)
            if held.renewing:
                continue
            if renew_at <= now:
                held.renewing = True
                self._run(lambda held=held: self._renew_one(held))  # type: ignore[misc]
            else:
                due = min(due, renew_at)
            # However long the next heartbeat is away, the moment of self-expiry is looked at.
            due = min(due, max(now, held.written_at + self._config.failover_time + 0.001))
        return due

    def _renew_one(self, held: HeldLease) -> None:
        renewed = False
        wanted = held.handoff_requester is not None
        try:
            held.renew()
            if held.handoff_requester is not None and not wanted:
                self._on_handoff_requested(held)
            renewed = True
            held.renew_at = held.written_at + self._interval
        except LeaseLostError:
            self._held.remove(held)
            self._on_lost(held)
        except AwsError as error:
            now = self._clock.monotonic()
            if not error.retryable:
                self._on_fatal(error)
            held.renew_at = now + retry_pause(self._config.failover_time) * (0.4 + 0.6 * self._rng.random())
            with self._repeats_lock:
                self._log_throttle.log(now, type(error).__name__, "renewal of %s failed: %s", held.key, error)
        except BaseException as error:  # noqa: BLE001 - a pool thread must not lose it
            self._on_fatal(error)
        finally:
            held.renewing = False
        if not renewed:
            self._on_failed()

    def _force(self, held: HeldLease) -> None:
        """The handler had its time to finish: the lease goes to who asked for it, the handler learns it later."""
        try:
            held.release()
            _LOGGER.warning(
                "lease %s: handed to %s while its handler still runs, after %g s",
                held.key,
                printable(held.handoff_requester or ""),
                self._config.graceful_lease_handoff_timeout,
            )
        except LeaseLostError:
            pass  # it was taken already
        except AwsError as error:
            with self._repeats_lock:
                self._log_throttle.log(
                    self._clock.monotonic(), "handoff", "handoff of %s failed: %s", held.key, error
                )
            held.renewing = False
            return
        except BaseException as error:  # noqa: BLE001 - a pool thread must not lose it
            self._on_fatal(error)
        self._held.remove(held)
        self._on_lost(held)
