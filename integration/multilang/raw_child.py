"""A child process without a library, which misbehaves as told.

``python raw_child.py JOURNAL OPTIONS``: OPTIONS is a JSON file, ``{"shard id": "behaviour", …}``; ``*`` is the behaviour for all
other shards. A behaviour that ends in ``once`` applies only to the shard's first child. The journal gets a line of JSON for
each event.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

JOURNAL, BEHAVIOURS = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
NOISE = (
    b"hello\n",
    b"null\n",
    b"12\n",
    b"\xe9\xff\n",
    b'{\n "action": "status"\n}\n',
    b'{"action":"log"}\n',
    b"\n\n",
    b'{"action": "sta\n',
)


class Pipe:
    """Standard input, without reading ahead."""

    def __init__(self):
        self.rest = b""

    def more(self, size=65536):
        data = os.read(0, size)
        self.rest += data
        return data

    def line(self):
        parts = []
        while b"\n" not in self.rest:
            parts.append(self.rest)
            self.rest = b""
            if not self.more():
                return b""
        line, _, self.rest = self.rest.partition(b"\n")
        return b"".join([*parts, line])


class Child:
    def __init__(self):
        self.pipe = Pipe()
        self.shard = "?"
        self.behaviour = BEHAVIOURS.get("*", "good")

    def journal(self, event, **more):
        line = json.dumps({"pid": os.getpid(), "shard": self.shard, "event": event, **more}) + "\n"
        descriptor = os.open(JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, line.encode())
        os.close(descriptor)

    def first(self, behaviour):
        """Return whether the shard has this behaviour and shows it for the first time."""
        if self.behaviour != behaviour:
            return False
        try:
            os.close(os.open(f"{JOURNAL}.{self.shard}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def say(self, message):
        data = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(1, data) :]

    def status(self, action):
        self.say({"action": "status", "responseFor": action})

    def checkpoint(self, number=None, sub=None):
        self.say({"action": "checkpoint", "sequenceNumber": number, "subSequenceNumber": sub})
        answer = json.loads(self.pipe.line())
        assert answer["action"] == "checkpoint", answer
        self.journal("checkpoint", number=number, sub=sub, error=answer["error"])

    def run(self):
        if self.first("dies before initialize once"):
            os._exit(3)
        if self.behaviour == "ignores everything":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            early = self.behaviour == "requests before it reads" and b"\n" not in self.pipe.rest
            if early and self.pipe.more(1000).startswith(b'{"action":"pro'):
                # The daemon is still writing this line, which is larger than the pipe's buffer.
                self.say(b"noise while you write " * 10_000 + b"\n")
                self.say({"action": "checkpoint", "sequenceNumber": None})
                time.sleep(0.3)
            line = self.pipe.line()
            if not line:
                break
            self.take(json.loads(line))
        self.journal("end of input")
        if self.behaviour == "ignores everything":
            time.sleep(3600)

    def take(self, message):
        action = message["action"]
        if action == "initialize":
            self.shard = message["shardId"]
            self.behaviour = BEHAVIOURS.get(self.shard, BEHAVIOURS.get("*", "good"))
            self.journal("initialize", at=[message["sequenceNumber"], message["subSequenceNumber"]])
            self.status(action)
        elif action == "processRecords":
            self.process(message)
        elif action == "checkpoint":
            self.journal("answered later", error=message["error"])
        else:
            self.journal(action)
            if action == "shutdownRequested" and self.behaviour == "ignores everything":
                time.sleep(3600)
            if action != "leaseLost" and not self.first("forgets the last checkpoint once"):
                self.checkpoint()
            self.status(action)

    def process(self, message):
        records = [
            (
                record["sequenceNumber"],
                record["subSequenceNumber"],
                base64.b64decode(record["data"])[:12].decode(),
            )
            for record in message["records"]
        ]
        action = message["action"]
        if self.fail(action):
            return
        names = [name for _, _, name in records]
        if self.first("checkpoints inside of an aggregate once"):
            middle = next(index for index, (_, sub, _) in enumerate(records) if sub == 3)
            self.journal("processed", names=names[: middle + 1])
            self.checkpoint(*records[middle][:2])
            os._exit(6)
        self.journal("processed", names=names)
        if self.behaviour == "checkpoints later":
            self.status(action)
            time.sleep(0.1)
            self.say({"action": "checkpoint", "sequenceNumber": records[-1][0]})
            return
        if self.behaviour != "never checkpoints":
            self.checkpoint()
        self.status(action)
        if self.behaviour == "answers twice":
            self.status(action)
        if self.behaviour == "prints between calls":
            threading.Timer(0.1, self.say, [b"between calls " * 100_000 + b"\n"]).start()

    def fail(self, action):
        """Misbehave in processRecords before anything is processed; return whether that was a response."""
        if self.first("swallows an exception once"):
            sys.stderr.write("Caught exception from action dispatch: boom\nTraceback …\n")
            self.status(action)
            return True
        if self.first("exits once"):
            os._exit(7)
        if self.first("hangs once"):
            time.sleep(3600)
        if self.first("freezes once"):
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.first("closes stdout once"):
            os.close(1)
            time.sleep(3600)
        if self.first("closes stdin once"):
            os.close(0)
            # The daemon rejects it, but this child never reads that.
            self.say({"action": "checkpoint", "sequenceNumber": "1"})
            time.sleep(3600)
        if self.first("answers wrongly once"):
            self.status("initialize")
            time.sleep(3600)
        if self.first("names no call once"):
            self.say({"action": "status"})
            time.sleep(3600)
        if self.first("floods once"):
            self.status(action)  # So that no call of the daemon reads the flood.
            for _ in range(5000):
                self.say({"action": "status", "responseFor": action})
                self.say({"action": "checkpoint", "sequenceNumber": "0"})
            time.sleep(3600)
        if self.first("leaves a process behind once"):
            left = subprocess.Popen(["sleep", "300"])
            self.journal("left", left=left.pid)
            os._exit(9)
        if self.behaviour == "prints rubbish":
            for line in NOISE:
                self.say(line)
            self.say(b"x" * 50_000_000 + b"\n")
            sys.stderr.write("y" * 300_000 + "\n")
        return False


if __name__ == "__main__":
    Child().run()
