"""All processes that a program started, and their children: those of its session, if it was started with ``start_new_session``.

Spark's daemons start process groups of their own, but stay in the session.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time


def members(session: int, text: str = "") -> list[int]:
    """Return the ids of the processes of a session whose command line contains a text, zombies left out."""
    listed = subprocess.run(
        ["ps", "-ww", "-eo", "pid=,stat=,args="], capture_output=True, text=True, check=True
    )
    found = []
    for line in listed.stdout.splitlines():
        pid, state, *command = line.split(None, 2)
        with contextlib.suppress(ProcessLookupError):
            if not state.startswith("Z") and os.getsid(int(pid)) == session:
                found += [int(pid)] if text in "".join(command) else []
    return found


def signal_all(session: int, number: signal.Signals) -> list[int]:
    """Send a signal to each process of a session, and return their ids."""
    alive = members(session)
    for pid in alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    return alive


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL each process of the session that a process leads, until none is left, and reap it."""
    while signal_all(process.pid, signal.SIGKILL):
        process.poll()
        time.sleep(0.05)
    process.wait(10)
