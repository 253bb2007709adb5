"""Delivery logs of worker processes: one file for each process, one JSON line for each batch.

A line is written with one `write` before the batch is checkpointed, so the log of a killed worker covers everything that
it checkpointed. The files can be read while they grow.
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
    """Appends JSON lines to a file, each with one `write`, so that complete lines survive the process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, item: Mapping[str, Any]) -> None:
        """Append one object as a line."""
        line = json.dumps(item, separators=(",", ":")).encode() + b"\n"
        while line:
            line = line[os.write(self._file, line) :]


class LineReader:
    """Reads a file of JSON lines while lines are appended. The file need not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield the objects added since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            fresh = file.read()
        complete = fresh.rfind(b"\n") + 1  # A killed process may leave an incomplete line.
        self._offset += complete
        for line in fresh[:complete].splitlines():
            yield json.loads(line)


def write_groups(run: bytes, records: Sequence[UserRecord]) -> list[tuple[str, int, list[int]]]:
    """Group the records of a batch by sequence number, as the log stores them. Records of other runs are skipped.

    A group has the sequence number, the first sub-sequence number, and the numbers of its records.
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
    """Yield the deliveries of a line with ``shard``, ``at``, ``groups`` and optionally ``acquisition``."""
    shard_id, at, acquisition = item["shard"], item["at"], item.get("acquisition", 0)
    for sequence_number, first, numbers in item["groups"]:
        sequence = int(sequence_number)
        for index, number in enumerate(numbers):
            yield Delivery(number, worker, shard_id, (sequence, first + index), at, acquisition)


class DeliveryWriter:
    """Writes the delivery log of one worker process. Records of other runs are skipped."""

    def __init__(self, path: Path, run: str) -> None:
        self._run = run.encode()
        self._lines = LineWriter(path)

    def batch(self, shard_id: str, records: Sequence[UserRecord], *, acquisition: int) -> None:
        """Log a batch before it is processed; `acquisition` numbers the worker's acquisitions of the lease."""
        groups = write_groups(self._run, records)
        if groups:
            self._lines.write(
                {"shard": shard_id, "at": time.time(), "acquisition": acquisition, "groups": groups}
            )

    def lease_lost(self, acquisition: int) -> None:
        """Log that an acquisition ended because the lease was lost."""
        self._lines.write({"lost": acquisition})

    def stalled(self, seconds: float) -> None:
        """Log that the process could not run for some seconds."""
        self._lines.write({"stalled": seconds})

    def leases(self, count: int) -> None:
        """Log the number of leases that the worker holds."""
        self._lines.write({"leases": count})

    def error(self, text: str) -> None:
        """Log why the worker ends."""
        self._lines.write({"error": text})


class DeliveryReader:
    """Reads the delivery log of one worker process while lines are appended. The log need not exist yet.

    Attributes:
        leases: Last logged number of leases that the worker holds.
        lost_leases: Acquisitions that ended because the lease was lost.
        longest_stall: Longest time, in seconds, for which the process could not run.
        error: Error that ended the worker, if it logged one.
    """

    def __init__(self, path: Path, worker: str) -> None:
        self._lines = LineReader(path)
        self._worker = worker
        self.leases: int = 0
        self.lost_leases: set[int] = set()
        self.longest_stall: float = 0.0
        self.error: str | None = None

    def read(self) -> Iterator[Delivery]:
        """Yield the deliveries added since the last call."""
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
