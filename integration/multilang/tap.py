"""A wire tap between a daemon and its child: passes every line on unchanged and logs it.

``tap.py OPTIONS`` is the executable of a daemon. The first line it gets names the shard, which decides the child to start:

    {"folder": "…", "children": {"0": {"command": ["python", "app.py"], "environment": {"PYTHONPATH": "…"}}}}

The keys are numbers of shards. Each conversation is a file ``SHARD-NUMBER.tap`` of JSON lines: time, ``>`` for the daemon,
``<`` for the child or ``=`` for the child's exit status, and the line. Standard library only. A line is logged before it is
passed on, so the order in the file is the order of cause and effect.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path


def _create(folder, shard):
    """Create the file of this conversation; each conversation of a shard has its own."""
    number = 0
    while True:
        try:
            return os.open(
                folder / f"{shard}-{number}.tap", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644
            )
        except FileExistsError:
            number += 1


def main():
    options = json.loads(Path(sys.argv[1]).read_text())
    first = sys.stdin.buffer.readline()
    if not first:
        return 0
    shard = json.loads(first)["shardId"]
    child = options["children"][str(int(shard.rpartition("-")[2]))]
    file = _create(Path(options["folder"]), shard)

    def note(who, what):
        os.write(file, json.dumps([time.monotonic(), who, what]).encode() + b"\n")

    process = subprocess.Popen(
        child["command"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **child["environment"]},
    )

    def downwards():
        line = first
        try:
            while line:
                note(">", line.decode())
                process.stdin.write(line)
                process.stdin.flush()
                line = sys.stdin.buffer.readline()
            process.stdin.close()
        except BrokenPipeError:
            pass  # The child has ended; its exit status tells why.

    threading.Thread(target=downwards, daemon=True).start()
    for line in process.stdout:
        if line.strip():
            note("<", line.decode())
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
    status = process.wait()
    note("=", status)
    return status


if __name__ == "__main__":
    # Do not join the threads: one may still wait for a daemon that does not close the pipe.
    code = main()
    sys.stdout.flush()
    os._exit(code)
