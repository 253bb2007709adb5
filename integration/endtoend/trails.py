"""Reads what the processes of a run wrote down, while they write, into its `History`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from integration.endtoend.history import WRONG_SHARD, Acquisition, History, Pause, ProducerLife, WorkerLife
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.testing.accounting.delivery_log import LineReader, read_groups
from kinesis_sdk.testing.accounting.verify import Put
from kinesis_sdk.testing.flights import Flight

_EFFECT = 2.0
"""Seconds after a stall in which what it delayed may still happen."""


class ProducerTrail:
    """What one producer process wrote.

    Args:
        path: Its log.
        life: The process.
        history: Takes it.
        flights: What it puts, in a circle.

    Attributes:
        put: Records that it said it has put.
    """

    def __init__(self, path: Path, life: ProducerLife, history: History, flights: list[Flight]) -> None:
        self.life = life
        self.put = 0
        self._lines = LineReader(path)
        self._history = history
        self._flights = flights

    def read(self) -> None:
        """Take in what is new."""
        for item in self._lines.read():
            if "n" in item:
                self._result(item)
            elif "put" in item:
                self.put = item["put"]
            else:
                self.put = self.life.count = item["count"]

    def _result(self, item: dict[str, Any]) -> None:
        number, put_at, attempts = item["n"], item["p"], item["t"]
        key = self._flights[number % len(self._flights)].origin
        if "failed" in item:
            self._history.puts[number] = Put(key, put_at, None, "", attempts, 0.0)
            return
        position = (int(item["q"]), item["b"])
        self._history.puts[number] = Put(key, put_at, position, item["s"], attempts, item["a"])
        if WRONG_SHARD in item["c"]:
            self._history.moved.add(number)
        self._history.retries.update(item["c"])


class WorkerTrail:
    """What one worker process wrote.

    Args:
        path: Its log.
        life: The process.
        history: Takes it.

    Attributes:
        leases: Leases that it said it holds.
        has_started: Whether it consumes, and knows how to stop.
        error: Why it ended, if it said so.
        processed: Numbers of what it processed since somebody last emptied this.
    """

    def __init__(self, path: Path, life: WorkerLife, history: History) -> None:
        self.life = life
        self.leases = 0
        self.has_started = False
        self.error: str | None = None
        self.processed: set[int] = set()
        self._lines = LineReader(path)
        self._history = history

    def read(self) -> None:
        """Take in what is new."""
        for item in self._lines.read():
            if "groups" in item:
                for delivery in read_groups(item, self.life.name):
                    self._history.deliveries.append(delivery)
                    self.processed.add(delivery.number)
            elif "leases" in item:
                self.leases = item["leases"]
                self.has_started = True
            elif "error" in item:
                self.error = item["error"]
            elif "corrupt" in item:
                self._history.corrupt.append(f"{item['corrupt']} by {self.life.name}")
            elif "stalled" in item:
                begin, end = item["at"] - item["stalled"], item["at"] + _EFFECT
                self.life.pauses.append(Pause(begin, end, "stall"))
            else:
                self._lease(item)

    def _lease(self, item: dict[str, Any]) -> None:
        key = (self.life.name, item["acquisition"])
        position = ExtendedSequenceNumber(*item["position"]) if "position" in item else None
        if "init" in item:
            assert position is not None
            self._history.acquisitions[key] = Acquisition(*key, item["init"], position, item["at"])
        elif "checkpointed" in item:
            assert position is not None
            self._history.acquisitions[key].checkpoints.append((item["at"], position))
        elif "checkpoint_failed" in item:
            self._history.acquisitions[key].failures.append(item["at"])
