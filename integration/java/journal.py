"""Journal of a worker: one JSON line for each event, the same for Java workers, their Python children and our workers.

`Worker.java` writes it, too. Standard library only: the child of the MultiLangDaemon imports it without this repository. A batch is told before
it can be checkpointed, in one write, so what a killed worker checkpointed it has told. Times are the machine's
monotonic clock, which all processes share.

| event | fields beside ``t``, ``worker``, ``shard`` |
| --- | --- |
| initialize | ``position``: sequence and sub-sequence number |
| records | ``records``: sequence number, sub-sequence number, text of the data, partition key |
| processed | after the batch and its checkpoint; ``position``: what it checkpointed, if anything |
| stood | ``position``: checkpointed for the last time, see `Processing` |
| refused | ``error``: a checkpoint that the daemon did not take |
| lease_lost, shard_ended, shutdown_requested | |
| counted | in place of ``records`` and ``processed``, for measuring: ``count``, ``size`` of the data in bytes |
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Entry = tuple[str, int, bytes, str]
Checkpoint = Callable[[str, int], None]


class Processing:
    """Journal of both kinds of handlers.

    Args:
        path: File to append to.
        worker: Name in the events.
        stand_at: Data of records at which a shard's position stays: checkpointed there, in the middle of a batch or
            an aggregate, and never again.
        middle: Share of batches, 0 to 1, that are checkpointed at a random record in place of the last one.
    """

    def __init__(
        self, path: str | Path, worker: str, *, stand_at: Sequence[str] = (), middle: float = 0.0
    ) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._worker = worker
        self._stand_at = {text.encode() for text in stand_at}
        self._stands: set[str] = set()
        self._middle = middle
        self._random = random.Random(worker)

    def tell(self, event: str, shard: str, **fields: Any) -> None:
        """Append one event."""
        line = {"t": time.monotonic(), "worker": self._worker, "event": event, "shard": shard, **fields}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def process(self, shard: str, records: Sequence[Entry], checkpoint: Checkpoint) -> None:
        """Tell a batch and checkpoint it.

        Args:
            shard: The shard.
            records: Sequence number, sub-sequence number, data, partition key.
            checkpoint: Stores a position.
        """
        if not records:
            return
        told = [(number, sub, data.decode(), key) for number, sub, data, key in records]
        self.tell("records", shard, records=told)
        stored: dict[str, Any] = {}
        if shard not in self._stands:
            stand = next((record for record in records if record[2] in self._stand_at), None)
            is_middle = self._random.random() < self._middle
            number, sub, _, _ = stand or (self._random.choice(records) if is_middle else records[-1])
            checkpoint(number, sub)
            stored = {"position": [number, sub]}
            if stand is not None:
                self._stands.add(shard)
                self.tell("stood", shard, **stored)
        self.tell("processed", shard, **stored)

    def may_checkpoint(self, shard: str) -> bool:
        """Whether the shard's position moves at all."""
        return shard not in self._stands


class Reader:
    """Events of a file that grows. A line that is being written is left for the next time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._events: list[dict[str, Any]] = []

    def events(self) -> list[dict[str, Any]]:
        """All events so far, in their order."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._offset)
                whole, end, _ = file.read().rpartition(b"\n")
            self._offset += len(whole) + len(end)
            self._events += [json.loads(line) for line in whole.splitlines()]
        return self._events
