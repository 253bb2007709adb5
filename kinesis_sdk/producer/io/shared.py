"""State that callers of a producer share with its threads, protected by one lock.

Lock order: no other lock is taken while `SharedState.lock` is held. Futures are completed, callbacks run and network calls made only
after the lock has been released, so a callback may call `put`. The state lock of `record` and the conditions of futures are never taken
under it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import ProducerClosedError, ProducerError
from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.producer.io.agenda import Agenda
from kinesis_sdk.producer.io.buffer_usage import BufferUsage
from kinesis_sdk.producer.stream.pipeline import StreamPipeline

NEVER = float("inf")

_FREEZE = 5.0
"""If at least this number of seconds passes between two readings of the clock while there are records, the process was frozen."""


class _Delivering(threading.local):
    """Whether the current thread delivers results, in which case it must not wait for results."""

    here = False


class SharedState:
    """State shared by callers and the producer's threads. Guarded by `lock`, except where stated.

    Attributes:
        lock: Guards pipelines and counts. The lock is re-entrant only so that a call from a signal handler that interrupted the lock's
            holder is detected.
        held_here: Whether the current thread holds the lock. Callable without it.
        wake: Condition that the I/O loop waits on.
        changed: Condition that is notified of room in the buffer, ended flushes and the end of the producer.
        accepting: Whether `put` is open: False after `close`, a crash or a fork.
        closing: Whether `close` has begun.
        rejection: Error (class, text, cause) after which the producer accepts and sends nothing; None until one occurs.
        stopped: Whether the pool of sender threads accepts no further tasks.
        sleeping_until: Time at which the I/O loop wakes up by itself (monotonic seconds); minus infinity while it is awake.
        flush_requested: Latest flush epoch that the I/O loop should send.
        waiting_puts: One token for each `put` that waits for room.
        delivering: Whether the current thread delivers results (thread-local).
    """

    def __init__(self, config: ProducerConfig, clock: Clock) -> None:
        self.config = config
        self.clock = clock
        self.now: Callable[[], float] = clock.monotonic
        self.usage: BufferUsage = BufferUsage(config.max_buffered_bytes, config.max_buffered_records)
        self.pipelines: dict[str, StreamPipeline] = {}
        self.agenda: Agenda = Agenda()
        self.accepting = True
        self.closing = False
        self.rejection: tuple[type[ProducerError], str, BaseException | None] | None = None
        self.stopped = False
        self.sleeping_until: float = -NEVER
        self.flush_requested = -1
        self.waiting_puts: set[object] = set()
        self._clock_read_at = clock.monotonic()
        self.renew_locks()

    def renew_locks(self) -> None:
        """Make new locks. In a forked child, a thread that does not exist there may have held the old locks."""
        self.lock: threading.RLock = threading.RLock()
        self.held_here: Callable[[], bool] = self.lock._is_owned  # type: ignore[attr-defined]
        self.wake: threading.Condition = threading.Condition(self.lock)
        self.changed: threading.Condition = threading.Condition(self.lock)
        self.delivering: _Delivering = _Delivering()

    def has_ended(self) -> bool:
        """Return whether all records were made to fail, so that responses that arrive later are dropped. Callable without the lock."""
        return self.rejection is not None

    def read_clock(self) -> float:
        """Return the monotonic time. If the process was frozen, the freeze does not count against its records."""
        now = self.now()
        gap, self._clock_read_at = now - self._clock_read_at, now
        if gap > _FREEZE and self.usage.count:
            for pipeline in self.pipelines.values():
                pipeline.queue.forgive(gap, now)
                self.agenda.touch(pipeline)
        return now

    def notify_room(self) -> None:
        """Wake all threads that wait for room, for the end of a flush, or for the end of the producer."""
        self.changed.notify_all()
        self.usage.notify_room()

    def check_open(self) -> None:
        """Raise `ProducerClosedError` if nothing is accepted any longer."""
        self.check_usable()
        if self.closing:
            raise ProducerClosedError("the producer is closed")

    def check_usable(self) -> None:
        """Raise the error that ended the producer, if one did."""
        if self.rejection is not None:
            # A new object each time: an error that is raised repeatedly collects tracebacks.
            kind, text, cause = self.rejection
            raise kind(text) from cause
