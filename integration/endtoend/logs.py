"""Logs of the processes of a run, read into its `RecordedEvents` while the processes write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from integration.endtoend.recorded_events import (
    WRONG_SHARD,
    Acquisition,
    Pause,
    ProducerRun,
    RecordedEvents,
    WorkerRun,
)
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.testing.accounting.delivery_log import LineReader, read_groups
from kinesis_sdk.testing.accounting.verify import Put
from kinesis_sdk.testing.flights import Flight

_EFFECT = 2.0
"""Seconds after a stall in which its consequences may still occur."""


class ProducerLog:
    """Log of one producer process.

    Args:
        path: The log.
        run: Facts about the process.
        recorded: Receives the content of the log.
        flights: The records that it puts, in a cycle.

    Attributes:
        put: Number of records put, as last logged.
    """

    def __init__(self, path: Path, run: ProducerRun, recorded: RecordedEvents, flights: list[Flight]) -> None:
        self.run = run
        self.put = 0
        self._lines = LineReader(path)
        self._recorded = recorded
        self._flights = flights

    def read(self) -> None:
        """Read the new lines."""
        for item in self._lines.read():
            if "n" in item:
                self._result(item)
            elif "put" in item:
                self.put = item["put"]
            else:
                self.put = self.run.count = item["count"]

    def _result(self, item: dict[str, Any]) -> None:
        number, put_at, attempts = item["n"], item["p"], item["t"]
        key = self._flights[number % len(self._flights)].origin
        if "failed" in item:
            self._recorded.puts[number] = Put(key, put_at, None, "", attempts, 0.0)
            return
        position = (int(item["q"]), item["b"])
        self._recorded.puts[number] = Put(key, put_at, position, item["s"], attempts, item["a"])
        if WRONG_SHARD in item["c"]:
            self._recorded.moved.add(number)
        self._recorded.retries.update(item["c"])


class WorkerLog:
    """Log of one worker process.

    Args:
        path: The log.
        run: Facts about the process.
        recorded: Receives the content of the log.

    Attributes:
        leases: Number of leases held, as last logged.
        has_started: Whether it consumes, and handles SIGTERM.
        error: Why it ended, if it logged a reason.
        processed: Numbers of the records processed since the reader last cleared this set.
    """

    def __init__(self, path: Path, run: WorkerRun, recorded: RecordedEvents) -> None:
        self.run = run
        self.leases = 0
        self.has_started = False
        self.error: str | None = None
        self.processed: set[int] = set()
        self._lines = LineReader(path)
        self._recorded = recorded

    def read(self) -> None:
        """Read the new lines."""
        for item in self._lines.read():
            if "groups" in item:
                for delivery in read_groups(item, self.run.name):
                    self._recorded.deliveries.append(delivery)
                    self.processed.add(delivery.number)
            elif "leases" in item:
                self.leases = item["leases"]
                self.has_started = True
            elif "error" in item:
                self.error = item["error"]
            elif "corrupt" in item:
                self._recorded.corrupt.append(f"{item['corrupt']} by {self.run.name}")
            elif "stalled" in item:
                begin, end = item["at"] - item["stalled"], item["at"] + _EFFECT
                self.run.pauses.append(Pause(begin, end, "stall"))
            else:
                self._lease(item)

    def _lease(self, item: dict[str, Any]) -> None:
        key = (self.run.name, item["acquisition"])
        position = ExtendedSequenceNumber(*item["position"]) if "position" in item else None
        if "init" in item:
            assert position is not None
            self._recorded.acquisitions[key] = Acquisition(*key, item["init"], position, item["at"])
        elif "checkpointed" in item:
            assert position is not None
            self._recorded.acquisitions[key].checkpoints.append((item["at"], position))
        elif "checkpoint_failed" in item:
            self._recorded.acquisitions[key].failures.append(item["at"])
