"""The runtime of a real worker: three pools, three loops and one event loop, all on daemon threads.

The number of threads does not depend on the number of shards. Threads of a pool start when they are first needed, and the
event loop starts with the first coroutine.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping
from random import Random

from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.daemon_pool import DaemonPool
from kinesis_sdk.common.loop_thread import LoopThread
from kinesis_sdk.consumer.runtime.runtime import Function, Loop, OnDone, Pool
from kinesis_sdk.consumer.runtime.threads import EventLoopThread

RENEWAL_THREADS = 8
"""Maximum concurrent lease writes of the renewal loop."""
_ABORT_JOIN_TIMEOUT = 1.0
"""Seconds to wait for each loop after an abort, because its call may hang."""


class WorkerThreads:
    """Runs the steps, reads, renewals and coroutines of one worker. Implements `Runtime`.

    ``on_error`` is called with each error that escapes from a function or a loop.
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

    # Methods for the engine

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

    # Methods for the worker

    def start(self, ticks: Mapping[Loop, Callable[[float], float | None]]) -> None:
        """Start the loops in the given order. Raise `RuntimeError` if the operating system allows no more threads.

        Each function in ``ticks`` does the work that is due at a monotonic time and returns the next due time.
        """
        self._loops = {
            name: LoopThread(f"kinesis-{name}", tick, self.clock, self._on_error)
            for name, tick in ticks.items()
        }
        for loop in self._loops.values():
            loop.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on a thread of the event loop or of a pool, as callbacks of handlers do."""
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
        """Return the loops that have ended by themselves, or whose call has run for more than ``timeout`` seconds."""
        return tuple(name for name, loop in self._loops.items() if loop.is_stuck(timeout))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until a stop is complete; return whether it completed within the timeout."""
        return self._stopped.wait(timeout)

    def end_sleeps(self) -> None:
        """Make every `sleep` return at once from now on."""
        self._aborted.set()

    def cancel_coroutines(self) -> None:
        """Cancel all coroutines on the event loop."""
        self._event_loop.close()

    def close(self) -> None:
        """End all threads and wait for the loops. Before `start`, only close the event loop."""
        self._event_loop.close()
        if not self._loops:
            return  # `Worker.stop` was called before `start`, which still needs the pools for the steps of the stop
        for pool in (self._steps, self._fetches, self._renewals):
            pool.close()
        for loop in self._loops.values():
            loop.stop(timeout=_ABORT_JOIN_TIMEOUT if self.is_aborted else None)
