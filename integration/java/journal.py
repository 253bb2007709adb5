"""Journal of a worker: one JSON line for each event, the same for Java workers, their Python children and our workers.

`Worker.java` writes it too. Standard library only: the MultiLangDaemon's child imports it without this repository. A batch is logged in one
write before it can be checkpointed, so the journal of a killed worker covers everything that it checkpointed. Times are from the machine's
monotonic clock, which all processes share.

| event | fields besides ``t``, ``worker``, ``shard`` |
| --- | --- |
| initialize | ``position``: sequence and sub-sequence number |
| records | ``records``: sequence number, sub-sequence number, text of the data, partition key |
| processed | after the batch and its checkpoint; ``position``: the checkpoint, if any |
| stood | ``position``: checkpointed for the last time, see `Processing` |
| refused | ``error``: why the daemon rejected a checkpoint |
| lease_lost, shard_ended, shutdown_requested | |
| counted | for measuring, instead of ``records`` and ``processed``: ``count``, ``size`` of the data in bytes |
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
        stand_at: Data of records at which a shard's position stops: checkpointed there, in the middle of a batch or
            an aggregate, and never again.
        middle: Fraction of batches that are checkpointed at a random record instead of the last one.
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
        """Append an event."""
        line = {"t": time.monotonic(), "worker": self._worker, "event": event, "shard": shard, **fields}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def process(self, shard: str, records: Sequence[Entry], checkpoint: Checkpoint) -> None:
        """Log a batch and checkpoint it.

        `records` have sequence number, sub-sequence number, data and partition key. `checkpoint` stores a position.
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
        """Return whether the shard's position still moves."""
        return shard not in self._stands


class Reader:
    """Events of a growing file. An incomplete line is left for the next call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._events: list[dict[str, Any]] = []

    def events(self) -> list[dict[str, Any]]:
        """Return all events so far, in order."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._offset)
                whole, end, _ = file.read().rpartition(b"\n")
            self._offset += len(whole) + len(end)
            self._events += [json.loads(line) for line in whole.splitlines()]
        return self._events
