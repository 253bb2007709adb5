"""The event loop of a worker's coroutines, on a thread of its own."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kinesis_sdk.common.errors import ConsumerError, HandlerError
from kinesis_sdk.common.log_fields import FieldLogger

_T = TypeVar("_T")

_LOGGER = FieldLogger(logging.getLogger(__name__))

_CANCELLED_WITHIN = 1.0
"""Seconds that cancelled coroutines have for their cleanup."""

_AFTER_ERROR = 1.0
"""Seconds until the loop continues after an error."""


def _close(awaitable: Awaitable[None]) -> None:
    """Close a coroutine that will not run, so that Python does not warn that it was never awaited."""
    if asyncio.iscoroutine(awaitable):
        awaitable.close()


async def _settled(awaitable: Awaitable[None]) -> BaseException | None:
    """Await, and return an exception instead of raising it, because a `SystemExit` that escapes from a task would end the whole loop."""
    try:
        await awaitable
    except BaseException as error:  # noqa: BLE001 - reported to the caller of `run`
        return error
    return None


class EventLoopThread:
    """One event loop on one daemon thread, for all coroutines of a worker. Started on first use.

    ``on_error`` gets each error that escapes from the loop, for example a `SystemExit` in a task that a handler started. The loop
    continues.
    """

    def __init__(self, name: str, on_error: Callable[[BaseException], None]) -> None:
        self._name = name
        self._on_error = on_error
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[BaseException | None]] = set()
        self._closed = False
        self._ident: int | None = None

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on the loop's thread."""
        return threading.get_ident() == self._ident

    def run(self, awaitable: Awaitable[None], on_done: Callable[[BaseException | None], None]) -> None:
        """Run an awaitable and report its outcome once, on the loop's thread, or on the caller's thread if the loop cannot start.

        A closed loop reports a `CancelledError`. A loop that cannot start reports a `ConsumerError`, and the next call tries
        again.
        """
        rejection: BaseException
        with self._lock:
            if self._closed:
                rejection = asyncio.CancelledError("the worker was aborted")
            else:
                try:
                    if self._loop is None:
                        self._loop = self._started()
                    self._loop.call_soon_threadsafe(self._begin, self._loop, awaitable, on_done)
                except (RuntimeError, OSError) as error:  # the system allows no more threads or files
                    rejection = ConsumerError(f"cannot start the event loop of the worker: {error}")
                    rejection.__cause__ = error
                else:
                    return
        _close(awaitable)
        on_done(rejection)

    def _started(self) -> asyncio.AbstractEventLoop:
        """Start an event loop on a thread of its own and return it."""
        # The caller stores the loop only once its thread runs: functions passed to a loop without a thread would never run.
        loop = asyncio.new_event_loop()
        try:
            threading.Thread(target=self._main, args=(loop,), name=self._name, daemon=True).start()
        except BaseException:
            loop.close()
            raise
        return loop

    def wait_for(self, awaitable: Awaitable[None]) -> None:
        """As the function `wait_for`. Must not be called on the loop's own thread."""
        wait_for(self.run, awaitable)

    def close(self) -> None:
        """Cancel all coroutines and end the loop. Idempotent.

        Every outcome is still reported, except for a coroutine that resists its cancellation for more than a second.
        """
        with self._lock:
            first, self._closed = not self._closed, True
            if first and self._loop is not None:  # later the loop itself may be closed
                self._loop.call_soon_threadsafe(self._cancel, self._loop)

    def _main(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ident = threading.get_ident()
        asyncio.set_event_loop(loop)
        while True:
            try:
                loop.run_forever()
            except BaseException as error:  # noqa: BLE001 - other coroutines must still end; the owner raises it
                self._on_error(error)
                if isinstance(error, Exception):  # an error of the loop itself, which may repeat immediately
                    time.sleep(_AFTER_ERROR)
            else:
                break
        self._ident = None
        loop.close()

    def _begin(
        self,
        loop: asyncio.AbstractEventLoop,
        awaitable: Awaitable[None],
        on_done: Callable[[BaseException | None], None],
    ) -> None:
        def done(task: asyncio.Task[BaseException | None]) -> None:
            self._tasks.discard(task)
            if task.cancelled():  # before its start, by a handler that cancels all tasks of the loop
                _close(awaitable)
                on_done(asyncio.CancelledError("cancelled before it started"))
            else:
                on_done(task.result())

        task = loop.create_task(_settled(awaitable))
        self._tasks.add(task)
        task.add_done_callback(done)

    def _cancel(self, loop: asyncio.AbstractEventLoop) -> None:
        async def end() -> None:
            for task in tuple(self._tasks):
                task.cancel()
            if self._tasks:
                await asyncio.wait(tuple(self._tasks), timeout=_CANCELLED_WITHIN)
            loop.stop()

        self._ending = loop.create_task(end())


def wait_for(
    run: Callable[[Awaitable[None], Callable[[BaseException | None], None]], None], awaitable: Awaitable[None]
) -> None:
    """Run an awaitable through an event loop's ``run`` and wait; raise its error, or `HandlerError` if it was cancelled."""
    ended = threading.Event()
    outcome: list[BaseException | None] = []

    def note(error: BaseException | None) -> None:
        outcome.append(error)
        ended.set()

    run(awaitable, note)
    ended.wait()
    error = outcome[0]
    if isinstance(error, asyncio.CancelledError):
        # Do not raise the CancelledError itself: this thread was not cancelled, and `except Exception` does not catch it.
        raise HandlerError(f"the coroutine was cancelled: {error}") from error
    if error is not None:
        raise error


def result_of(
    run: Callable[[Awaitable[None], Callable[[BaseException | None], None]], None], value: Awaitable[_T] | _T
) -> _T:
    """Return a value, or the result of an awaitable that runs as in `wait_for`."""
    if not inspect.isawaitable(value):
        return value
    results: list[_T] = []

    async def keep() -> None:
        results.append(await value)

    wait_for(run, keep())
    return results[0]


def run_inline(awaitable: Awaitable[None], on_done: Callable[[BaseException | None], None]) -> None:
    """Run an awaitable on the caller's thread, on an event loop of its own."""
    loop = asyncio.new_event_loop()
    try:
        outcome = loop.run_until_complete(_settled(awaitable))
    finally:
        loop.close()
    on_done(outcome)
