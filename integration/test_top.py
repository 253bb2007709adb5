"""The terminal view in a terminal: a pseudo-terminal, a process, and keys."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time
from collections.abc import Callable

from kinesis_sdk.common.shards import list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.leases.table.dynamodb import DynamoDBLeaseStore
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.testing import FakeAws, FakeAwsServer
from tests import HANG

_SEQUENCE = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """A process in a pseudo-terminal of 100 by 30."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.execve(sys.executable, [sys.executable, *arguments], environment)
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.written = b""

    def read(self, seconds: float) -> None:
        ready, _, _ = select.select([self.descriptor], [], [], seconds)
        if ready:
            try:
                self.written += os.read(self.descriptor, 65536)
            except OSError:  # the process has ended
                time.sleep(0.05)

    def wait_for(self, found: Callable[[str], bool], timeout: float = HANG) -> None:
        deadline = time.monotonic() + timeout
        while not found(self.text):
            assert time.monotonic() < deadline, self.text[-3000:]
            self.read(0.1)

    def press(self, keys: bytes) -> None:
        os.write(self.descriptor, keys)

    @property
    def text(self) -> str:
        return _SEQUENCE.sub(b" ", self.written).decode(errors="replace")

    def end(self, timeout: float = HANG) -> int:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.descriptor)
                return os.waitstatus_to_exitcode(status)
            self.read(0.05)
        os.kill(self.pid, 9)
        raise AssertionError("the process did not end")


def test_top_shows_the_fleet_reads_a_tail_and_ends() -> None:
    fake = FakeAws()
    with FakeAwsServer(fake) as server:
        kinesis = fake.client("kinesis")
        kinesis.create_stream(StreamName="orders", ShardCount=2)
        store = DynamoDBLeaseStore(fake.client("dynamodb"), "billing")
        store.ensure_ready()
        for shard in list_shards(kinesis, StreamId("orders")):
            store.create_if_absent(Lease.for_shard(shard, "TRIM_HORIZON"))
        for lease in store.list():
            store.take(lease, "java-worker")
        for number in range(20):
            kinesis.put_record(
                StreamName="orders",
                Data=b'{"number": %d, "evil": "\\u001b[2J"}' % number,
                PartitionKey=f"k{number}",
            )
        rows = fake.client("dynamodb").scan(TableName="billing")["Items"]
        environment = {**os.environ, "TERM": "xterm-256color"}
        terminal = Terminal(
            ["-m", "kinesis_sdk.cli", "top", "billing", "--endpoint-url", server.endpoint_url], environment
        )
        terminal.wait_for(lambda text: "billing on orders" in text and "java-worker" in text)
        terminal.press(b"\x1b[B")
        terminal.press(b"t")
        terminal.wait_for(lambda text: "Tail of" in text and '"number": ' in text)
        # Escape and a letter at once would be another key, so the letter waits until the fleet is drawn again.
        before = len(terminal.text)
        terminal.press(b"\x1b")
        terminal.wait_for(lambda text: "java-worker" in text[before:])
        terminal.press(b"q")
        assert terminal.end() == 0
        assert fake.client("dynamodb").scan(TableName="billing")["Items"] == rows
