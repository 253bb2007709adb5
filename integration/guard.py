"""Runs a command that must not outlive this repository's tests: ``python guard.py LOG COMMAND…``.

Prints the command's process id and ends with the command. At the end of standard input it kills the command: the test run has
died, or wants that. Otherwise a JVM and its children would outlive a killed test run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path


def main() -> int:
    with Path(sys.argv[1]).open("ab") as log:
        child = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: child.send_signal(received))

    def watch() -> None:
        os.read(0, 1)
        child.kill()

    threading.Thread(target=watch, daemon=True).start()
    print(child.pid, flush=True)
    return child.wait()


if __name__ == "__main__":
    sys.exit(main())
