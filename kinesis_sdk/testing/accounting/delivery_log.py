"""How worker processes tell the demo what they processed: a file each, one JSON line a batch.

A line is written with one `write` before the batch is checkpointed, so that a worker that is killed has told
everything that it checkpointed. The demo reads the files while they grow.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.testing.accounting.verify import Delivery
from kinesis_sdk.testing.flights import read_number


class LineWriter:
    """Appends JSON lines to a file, each with one `write`: what was written survives the process.

    Args:
        path: File to append to.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, item: Mapping[str, Any]) -> None:
        """Append one object."""
        line = json.dumps(item, separators=(",", ":")).encode() + b"\n"
        while line:
            line = line[os.write(self._file, line) :]


class LineReader:
    """Reads a file of JSON lines while it grows; call `read` again for more."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> Iterator[dict[str, Any]]:
        """Objects that are new since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            fresh = file.read()
        complete = fresh.rfind(b"\n") + 1  # a killed process may leave half a line
        self._offset += complete
        for line in fresh[:complete].splitlines():
            yield json.loads(line)


def write_groups(run: bytes, records: Sequence[UserRecord]) -> list[tuple[str, int, list[int]]]:
    """A batch as it is written down: records that share a sequence number share a group.

    Args:
        run: Name of the run; records of other runs are left out.
        records: The batch.

    Returns:
        Groups of sequence number, first sub-sequence number and the records' numbers.
    """
    groups: list[tuple[str, int, list[int]]] = []
    numbers: list[int] = []
    sequence_number = ""
    following = 0
    for record in records:
        number = read_number(run, record.data)
        if number is None:
            continue
        if record.sequence_number != sequence_number or record.sub_sequence_number != following:
            sequence_number, following = record.sequence_number, record.sub_sequence_number
            numbers = []
            groups.append((sequence_number, following, numbers))
        numbers.append(number)
        following += 1
    return groups


def read_groups(item: Mapping[str, Any], worker: str) -> Iterator[Delivery]:
    """The deliveries of a line with ``shard``, ``at``, ``groups`` and perhaps ``acquisition``."""
    shard_id, at, acquisition = item["shard"], item["at"], item.get("acquisition", 0)
    for sequence_number, first, numbers in item["groups"]:
        sequence = int(sequence_number)
        for index, number in enumerate(numbers):
            yield Delivery(number, worker, shard_id, (sequence, first + index), at, acquisition)


class DeliveryWriter:
    """Writes what one worker process of the demo did.

    Args:
        path: File to append to.
        run: Name of the run; records of other runs are left out.
    """

    def __init__(self, path: Path, run: str) -> None:
        self._run = run.encode()
        self._lines = LineWriter(path)

    def batch(self, shard_id: str, records: Sequence[UserRecord], *, acquisition: int) -> None:
        """Write down a batch, and under which of the worker's acquisitions of a lease it was processed."""
        groups = write_groups(self._run, records)
        if groups:
            self._lines.write(
                {"shard": shard_id, "at": time.time(), "acquisition": acquisition, "groups": groups}
            )

    def lease_lost(self, acquisition: int) -> None:
        """Write down that an acquisition ended because the lease was lost."""
        self._lines.write({"lost": acquisition})

    def stalled(self, seconds: float) -> None:
        """Write down that the process got no time to run."""
        self._lines.write({"stalled": seconds})

    def leases(self, count: int) -> None:
        """Write down how many leases the worker holds."""
        self._lines.write({"leases": count})

    def error(self, text: str) -> None:
        """Write down why the worker ends."""
        self._lines.write({"error": text})


class DeliveryReader:
    """Reads what one worker process wrote so far; call `read` again for more.

    Attributes:
        leases: Leases that the worker said it holds.
        lost_leases: Its acquisitions that ended because the lease was lost.
        longest_stall: Seconds of the longest time in which it said it could not run.
        error: Why it ended, if it said so.
    """

    def __init__(self, path: Path, worker: str) -> None:
        self._lines = LineReader(path)
        self._worker = worker
        self.leases = 0
        self.lost_leases: set[int] = set()
        self.longest_stall = 0.0
        self.error: str | None = None

    def read(self) -> Iterator[Delivery]:
        """Deliveries that are new since the last call."""
        for item in self._lines.read():
            if "leases" in item:
                self.leases = item["leases"]
            elif "lost" in item:
                self.lost_leases.add(item["lost"])
            elif "stalled" in item:
                self.longest_stall = max(self.longest_stall, item["stalled"])
            elif "error" in item:
                self.error = item["error"]
            else:
                yield from read_groups(item, self._worker)
