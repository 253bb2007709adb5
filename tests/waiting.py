"""Finds what unit tests must not do: wait until real time has passed, or use a network.

Both make a test slow, and its result depend on the machine. `tests/conftest.py` fails each test that does it. A test waits if

- code of ours sleeps, on any thread: `time.sleep`, or `asyncio.sleep` that is not cancelled. Threads of others may, such as those of pyspark;
- a wait of the test itself for more than 0.1 s ends because the time is over: of an `Event`, a `Condition`, a queue, a future, a thread. Waits inside of the
  package do not count: some end every half second to look for a signal, and whether they do in a test depends on the machine.

Waiting for another thread with a limit after which the test would fail is fine, because that time never passes. A
connection is a socket of IPv4 or IPv6 that is bound or connected, or a name that is looked up.
"""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

SHORTEST = 0.005
"""Seconds of sleeping that count. Shorter pauses, for example of the standard library, pass."""

LONGEST_TURN = 0.1
"""Seconds up to which a wait for another thread may time out, as in a loop that does something meanwhile: whether it does depends on the machine."""

ROOT = Path(__file__).parents[1]
OURS = tuple(str(ROOT / folder) + "/" for folder in ("kinesis_sdk", "tests", "integration", "tools"))
INSTEAD = {
    "waits": "pass a clock and a `sleep` of virtual time, as `VirtualClock` and its `advance`, or wait for an event that comes",
    "connects": "use `FakeAws.client`, or a socket pair; tests with servers belong in integration/",
}
_NETWORK = frozenset({"socket.bind", "socket.connect", "socket.getaddrinfo", "socket.sendto"})
_LOCAL = frozenset({"AF_UNIX", "AF_NETLINK"})


class Watch:
    """What the present test did wrong.

    Attributes:
        is_on: Whether a unit test runs; what happens at other times is not noted.
        found: What was found, in words.
    """

    def __init__(self) -> None:
        self.is_on = False
        self.found: list[str] = []

    def note(self, what: str, kind: str, *, of_the_test: bool = False) -> None:
        """Note what the caller does.

        Args:
            what: In words.
            kind: Key of `INSTEAD`.
            of_the_test: Whether only code of tests/ counts that does it itself.
        """
        if not self.is_on or (place := _place()) is None:
            return
        if not of_the_test or place.startswith("tests/"):
            self.found.append(f"{what} at {place}: {INSTEAD[kind]}")

    def on_audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note a use of a network, by the interpreter's audit events."""
        if event in _NETWORK and self.is_on:
            family = getattr(arguments[0], "family", None)
            if getattr(family, "name", None) not in _LOCAL:
                subject = arguments[0] if family is None else arguments[1]
                self.note(f"{event} of {subject!r}", "connects")

    def take(self) -> list[str]:
        """Return what was found, and forget it."""
        found, self.found = self.found, []
        return found


def _place() -> str | None:
    """Return file and line of ours, and those of the test; None for what others do on their own account.

    The standard library waits for a process. Textual's pilot looks every 20 ms whether the app is idle, and has no other way to find out.
    urllib3 tries IPv6 when it is imported.
    """
    lines = []
    for frame, line in traceback.walk_stack(sys._getframe(2)):
        name = frame.f_code.co_filename
        if "/textual/" in name or name.endswith("/subprocess.py") or frame.f_code.co_name == "_has_ipv6":
            return None
        if name.startswith(OURS) and name != __file__:
            lines.append(f"{name[len(str(ROOT)) + 1 :]}:{line}")
            if "/tests/" in name:
                break
    return ", called from ".join(lines[:1] + lines[1:][-1:]) if lines else None


class _Sleep:
    """`time.sleep`, watched. An object, because as an attribute of a class a function would become a method."""

    def __init__(self, watch: Watch, sleep: Callable[[float], None]) -> None:
        self._watch = watch
        self._sleep = sleep

    def __call__(self, seconds: float, /) -> None:
        if seconds >= SHORTEST:
            self._watch.note(f"time.sleep({seconds:.3g})", "waits")
        self._sleep(seconds)


def _watched_async_sleep(
    watch: Watch, sleep: Callable[..., Any], monotonic: Callable[[], float] = time.monotonic
) -> Callable[..., Any]:
    @functools.wraps(sleep)
    async def watched(delay: float, result: Any = None) -> Any:
        begin = monotonic()
        outcome = await sleep(delay, result)
        if delay >= SHORTEST and monotonic() - begin >= 0.9 * delay:  # a loop in virtual time is faster
            watch.note(f"asyncio.sleep({delay:.3g})", "waits")
        return outcome

    return watched


def _watched_wait_for(
    watch: Watch, wait_for: Callable[..., Any], monotonic: Callable[[], float] = time.monotonic
) -> Callable[..., Any]:
    @functools.wraps(wait_for)
    async def watched(awaitable: Any, timeout: float | None) -> Any:
        begin = monotonic()
        try:
            return await wait_for(awaitable, timeout)
        except (TimeoutError, asyncio.TimeoutError):
            if timeout is not None and timeout > LONGEST_TURN and monotonic() - begin >= 0.9 * timeout:
                watch.note(f"asyncio.wait_for(…, {timeout:.3g}) timed out", "waits", of_the_test=True)
            raise

    return watched


def _watched_wait(watch: Watch, wait: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(wait)
    def watched(self: threading.Condition, timeout: float | None = None) -> bool:
        came = wait(self, timeout)
        if (
            not came
            and timeout is not None
            and timeout > LONGEST_TURN
            and threading.current_thread() is threading.main_thread()
        ):
            watch.note(f"a wait of {timeout:.3g} s timed out", "waits", of_the_test=True)
        return came

    return watched


def _watched_join(watch: Watch, join: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(join)
    def watched(self: threading.Thread, timeout: float | None = None) -> None:
        join(self, timeout)
        if timeout is not None and timeout > LONGEST_TURN and self.is_alive():
            watch.note(f"a join of {timeout:.3g} s timed out", "waits", of_the_test=True)

    return watched


def install() -> Watch:
    """Watch this process from now on. Call it before modules are imported that keep a reference to `time.sleep`."""
    watch = Watch()
    time.sleep = _Sleep(watch, time.sleep)
    asyncio.sleep = asyncio.tasks.sleep = _watched_async_sleep(watch, asyncio.sleep)
    asyncio.wait_for = asyncio.tasks.wait_for = _watched_wait_for(watch, asyncio.wait_for)
    threading.Condition.wait = _watched_wait(watch, threading.Condition.wait)  # type: ignore[method-assign]
    threading.Thread.join = _watched_join(watch, threading.Thread.join)  # type: ignore[method-assign]
    sys.addaudithook(watch.on_audit)
    return watch
