"""The runtime of a real worker: three pools, three loops and one event loop, all on daemon threads.

The number of threads does not depend on the number of shards. Threads of a pool start when they are first needed, the
event loop starts with the first coroutine.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping
from random import Random

from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.daemon_pool import DaemonPool
from kinesis_sdk.consumer.runtime.runtime import Function, Loop, OnDone, Pool
from kinesis_sdk.consumer.runtime.threads import EventLoopThread, LoopThread

RENEWAL_THREADS = 8
"""Maximum lease writes of the renewal loop that are under way at once."""
_ABORT_JOIN_TIMEOUT = 1.0
"""Seconds to wait for each loop after an abort: the call that it is in may hang."""


class WorkerThreads:
    """Runs the steps, reads, renewals and coroutines of one worker. Implements `Runtime`.

    Args:
        clock: Monotonic and wall clock.
        rng: Source of jitter and random choice.
        max_threads: Maximum threads for steps of shard consumers.
        max_fetch_threads: Maximum threads for reads.
        on_error: Called with an error that escaped from a function or a loop.
        worker_id: Id of the worker, for the log.
    """

    def __init__(
        self,
        clock: Clock,
        rng: Random,
        *,
        max_threads: int,
        max_fetch_threads: int,
        on_error: Callable[[BaseException], None],
        worker_id: str | None = None,
    ) -> None:
        self.clock = clock
        self.rng = rng
        self._on_error = on_error
        self._steps = DaemonPool(max_threads, "kinesis-shard", on_error, worker_id)
        self._fetches = DaemonPool(max_fetch_threads, "kinesis-fetch", on_error, worker_id)
        self._renewals = DaemonPool(RENEWAL_THREADS, "kinesis-renewal", on_error, worker_id)
        self._event_loop = EventLoopThread("kinesis-async", on_error)
        self._loops: dict[Loop, LoopThread] = {}
        self._aborted = threading.Event()
        self._stopped = threading.Event()

    # What the engine uses

    def sleep(self, seconds: float, /) -> None:
        """Wait; an abort ends the wait."""
        self._aborted.wait(seconds)

    def run_step(self, function: Function, /) -> None:
        """Run a step on the pool for handlers and checkpoints."""
        self._steps.submit(function)

    def run_fetch(self, function: Function, /) -> None:
        """Run a read on the pool for reads."""
        self._fetches.submit(function)

    def run_renewal(self, function: Function, /) -> None:
        """Run a lease write on the pool for renewals."""
        self._renewals.submit(function)

    def run_async(self, awaitable: Awaitable[None], on_done: OnDone, /) -> None:
        """Run an awaitable on the event loop."""
        self._event_loop.run(awaitable, on_done)

    def wake(self, loop: Loop, /) -> None:
        """Run a loop now."""
        thread = self._loops.get(loop)
        if thread is not None:
            thread.wake()

    def replace_stuck_thread(self, pool: Pool, /) -> None:
        """Allow one more thread in a pool, because one of its threads hangs."""
        (self._steps if pool == "steps" else self._fetches).widen()

    def on_stopped(self) -> None:
        """Wake every `wait`."""
        self._stopped.set()

    # What the worker uses

    def start(self, ticks: Mapping[Loop, Callable[[float], float | None]]) -> None:
        """Start the loops, in the order in which they are given.

        Args:
            ticks: Body of each loop: it does what is due at a monotonic time and returns its next due time.

        Raises:
            RuntimeError: If the operating system gives no more threads.
        """
        self._loops = {
            name: LoopThread(f"kinesis-{name}", tick, self.clock, self._on_error)
            for name, tick in ticks.items()
        }
        for loop in self._loops.values():
            loop.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on a thread that runs callbacks of handlers."""
        pools = (self._steps, self._fetches, self._renewals)
        return self._event_loop.is_current or any(pool.is_current for pool in pools)

    @property
    def is_stopped(self) -> bool:
        """Whether a stop is complete."""
        return self._stopped.is_set()

    @property
    def is_aborted(self) -> bool:
        """Whether the worker was aborted."""
        return self._aborted.is_set()

    def stuck_loops(self, timeout: float) -> tuple[str, ...]:
        """Return the names of the loops that have ended by themselves, or whose call runs for longer than ``timeout`` seconds."""
        return tuple(name for name, loop in self._loops.items() if loop.is_stuck(timeout))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end of a stop; return whether it came within the timeout."""
        return self._stopped.wait(timeout)

    def end_sleeps(self) -> None:
        """Let every `sleep` return at once from now on."""
        self._aborted.set()

    def cancel_coroutines(self) -> None:
        """Cancel what runs on the event loop."""
        self._event_loop.close()

    def close(self) -> None:
        """End all threads and wait for the loops. Before `start` it only closes the event loop."""
        self._event_loop.close()
        if not self._loops:
            return  # `stop` was called before `start`, which must still be able to run the steps of a stop
        for pool in (self._steps, self._fetches, self._renewals):
            pool.close()
        for loop in self._loops.values():
            loop.stop(timeout=_ABORT_JOIN_TIMEOUT if self.is_aborted else None)
