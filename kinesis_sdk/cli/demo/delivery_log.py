"""How worker processes tell the demo what they processed: a file each, one JSON line a batch.

A line is written with one `write` before the batch is checkpointed, so that a worker that is killed has told
everything that it checkpointed. The demo reads the files while they grow.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kinesis_sdk.cli.demo.flights import read_number
from kinesis_sdk.cli.demo.verify import Delivery
from kinesis_sdk.common.records import UserRecord


class DeliveryWriter:
    """Writes what one worker process did.

    Args:
        path: File to append to.
        run: Name of the run; records of other runs are left out.
    """

    def __init__(self, path: Path, run: str) -> None:
        self._run = run.encode()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def batch(self, shard_id: str, records: Sequence[UserRecord]) -> None:
        """Write down a batch. Records that share a sequence number share a group."""
        groups: list[tuple[str, int, list[int]]] = []
        numbers: list[int] = []
        sequence_number = ""
        following = 0
        for record in records:
            number = read_number(self._run, record.data)
            if number is None:
                continue
            if record.sequence_number != sequence_number or record.sub_sequence_number != following:
                sequence_number, following = record.sequence_number, record.sub_sequence_number
                numbers = []
                groups.append((sequence_number, following, numbers))
            numbers.append(number)
            following += 1
        if groups:
            self._write({"shard": shard_id, "at": time.time(), "groups": groups})

    def leases(self, count: int) -> None:
        """Write down how many leases the worker holds."""
        self._write({"leases": count})

    def error(self, text: str) -> None:
        """Write down why the worker ends."""
        self._write({"error": text})

    def _write(self, item: dict[str, Any]) -> None:
        line = json.dumps(item, separators=(",", ":")).encode() + b"\n"
        while line:
            line = line[os.write(self._file, line) :]


class DeliveryReader:
    """Reads what one worker process wrote so far; call `read` again for more.

    Attributes:
        leases: Leases that the worker said it holds.
        error: Why it ended, if it said so.
    """

    def __init__(self, path: Path, worker: str) -> None:
        self._path = path
        self._worker = worker
        self._offset = 0
        self.leases = 0
        self.error: str | None = None

    def read(self) -> Iterator[Delivery]:
        """Deliveries that are new since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            fresh = file.read()
        complete = fresh.rfind(b"\n") + 1  # a killed worker may leave half a line
        self._offset += complete
        for line in fresh[:complete].splitlines():
            item = json.loads(line)
            if "leases" in item:
                self.leases = item["leases"]
            elif "error" in item:
                self.error = item["error"]
            else:
                shard_id, at = item["shard"], item["at"]
                for sequence_number, first, numbers in item["groups"]:
                    sequence = int(sequence_number)
                    for index, number in enumerate(numbers):
                        yield Delivery(number, self._worker, shard_id, (sequence, first + index), at)
