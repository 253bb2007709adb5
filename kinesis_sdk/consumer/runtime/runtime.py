"""Runtime of a worker: time, randomness and threads, as one object.

`WorkerThreads` is the runtime of a real worker. `InlineRuntime` runs all functions on the caller's thread. With a virtual clock, a
fleet of workers then runs in one thread, and every run repeats exactly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Literal, Protocol

from kinesis_sdk.common.clock import Clock
from kinesis_sdk.consumer.runtime.threads import run_inline

Loop = Literal["renewals", "table", "steps"]
"""The three loops of a worker: `ConsumerEngine.renew`, ``tick_table`` and ``scheduler.dispatch``."""

Pool = Literal["steps", "fetches"]
"""The pools whose threads run code that may hang: handlers, and reads."""

Function = Callable[[], None]
OnDone = Callable[["BaseException | None"], None]
"""Called once, from any thread, with the error of an awaitable, or with None if it succeeded."""


def run_now(function: Function) -> None:
    """Run a function at once, on the thread of the caller."""
    function()


class Runtime(Protocol):
    """Time, randomness and threads of one worker. Every method may be called from any thread."""

    @property
    def clock(self) -> Clock:
        """Monotonic and wall clock."""

    @property
    def rng(self) -> Random:
        """Source of jitter and random choice."""

    def sleep(self, seconds: float, /) -> None:
        """Wait inside a call, for example between two attempts; an abort of the worker ends the wait."""

    def run_step(self, function: Function, /) -> None:
        """Run a step of a shard consumer (handler, checkpoint) now or soon."""

    def run_fetch(self, function: Function, /) -> None:
        """Run a read of a shard now or soon."""

    def run_renewal(self, function: Function, /) -> None:
        """Run a lease write now or soon, without waiting for handlers or reads."""

    def run_async(self, awaitable: Awaitable[None], on_done: OnDone, /) -> None:
        """Run an awaitable and report its outcome once; see `EventLoopThread.run`."""

    def wake(self, loop: Loop, /) -> None:
        """Run a loop now, because it may be due earlier than planned."""

    def replace_stuck_thread(self, pool: Pool, /) -> None:
        """Allow one more thread in a pool, because a thread of the pool hangs."""

    def on_stopped(self) -> None:
        """Record that a requested stop is complete. May be called more than once."""


class InlineRuntime:
    """A runtime without threads: every function runs at once, on the caller's thread.

    ``sleep`` is called instead of waiting; a test advances its clock there.
    """

    def __init__(self, clock: Clock, rng: Random, sleep: Callable[[float], None]) -> None:
        self.clock = clock
        self.rng = rng
        self._sleep = sleep

    def sleep(self, seconds: float, /) -> None:
        """Advance the time."""
        self._sleep(seconds)

    def run_step(self, function: Function, /) -> None:
        """Run the function."""
        function()

    def run_fetch(self, function: Function, /) -> None:
        """Run the function."""
        function()

    def run_renewal(self, function: Function, /) -> None:
        """Run the function."""
        function()

    def run_async(self, awaitable: Awaitable[None], on_done: OnDone, /) -> None:
        """Run the awaitable on an event loop of its own."""
        run_inline(awaitable, on_done)

    def wake(self, loop: Loop, /) -> None:
        """Do nothing: `ConsumerEngine.tick` runs all loops."""

    def replace_stuck_thread(self, pool: Pool, /) -> None:
        """Do nothing: there are no threads."""

    def on_stopped(self) -> None:
        """Do nothing: `ConsumerEngine.tick` returns None."""
