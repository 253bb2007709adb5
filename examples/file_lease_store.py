"""A lease store of your own: leases in one JSON file, for the workers of one machine, without a DynamoDB table.

A worker keeps its leases and checkpoints in an object with the methods of `LeaseStore`. What each method changes, and under
which condition, exists already: here `InMemoryLeaseStore` does it. A store only has to make each method one atomic step, here
with a lock on a file. `kinesis_sdk.testing.contracts.lease_stores` holds the tests that every store has to pass.

Against the fake AWS, which prints the variables to export in the second terminal::

    kinesis-sdk fake --create-stream orders:4
    python examples/file_lease_store.py       # in two terminals: each worker gets two shards; Ctrl-C ends one

On AWS, set AWS_DEFAULT_REGION instead. Needs a POSIX system, for the lock.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kinesis_sdk import (
    Conflict,
    ConsumerConfig,
    ExtendedSequenceNumber,
    InMemoryLeaseStore,
    Lease,
    LeaseStoreError,
    RecordBatch,
    TableScan,
    Worker,
)
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.consumer.leases import HandlerRequest, lease_from_item, lease_to_item


class FileLeaseStore:
    """A `LeaseStore` in a file. Thread-safe, and safe for several processes of one machine.

    Args:
        path: The file; a second one with the suffix ``.lock`` stands beside it.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._lock = threading.Lock()

    # region file
    @contextmanager
    def _table(self) -> Iterator[InMemoryLeaseStore]:
        """Lock the file, yield its rows, and write them if they were changed."""
        try:
            with self._lock, self._path.with_suffix(".lock").open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                rows = self._read()
                table = InMemoryLeaseStore(rows)
                yield table
                if table.list() != rows:
                    self._write(table.list())
        except OSError as error:
            raise LeaseStoreError(f"the file of leases {self._path}: {error}") from error

    def _read(self) -> list[Lease]:
        if not self._path.exists():
            return []
        items = json.loads(self._path.read_text(encoding="utf-8"), object_hook=_from_json)
        return [lease_from_item(item) for item in items]

    def _write(self, rows: list[Lease]) -> None:
        # A crash leaves the old file or the new one, and never a part of it.
        new = self._path.with_suffix(".new")
        with new.open("w", encoding="utf-8") as file:
            json.dump([lease_to_item(lease) for lease in rows], file, default=_to_json, indent=1)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)

    # endregion

    def ensure_ready(self) -> None:
        """See that the file can be read and locked."""
        with self._table():
            pass

    def scan(self, *, consistent: bool = False) -> TableScan:
        """Read all leases."""
        with self._table() as table:
            return table.scan(consistent=consistent)

    def get(self, lease_key: str) -> Lease | None:
        """Read one lease."""
        with self._table() as table:
            return table.get(lease_key)

    def create_if_absent(self, lease: Lease) -> bool:
        """Create a lease unless its key exists."""
        with self._table() as table:
            return table.create_if_absent(lease)

    # region take
    def take(self, lease: Lease, owner: str) -> Lease | Conflict:
        """Make ``owner`` the owner."""
        with self._table() as table:
            return table.take(lease, owner)

    # endregion

    def renew(self, lease: Lease) -> Lease | Conflict:
        """Renew a lease."""
        with self._table() as table:
            return table.renew(lease)

    def checkpoint(
        self, lease: Lease, checkpoint: ExtendedSequenceNumber, state: bytes | None = None
    ) -> Lease | Conflict:
        """Store a position."""
        with self._table() as table:
            return table.checkpoint(lease, checkpoint, state)

    def prepare(
        self, lease: Lease, checkpoint: ExtendedSequenceNumber, state: bytes | None = None
    ) -> Lease | Conflict:
        """Store a pending position."""
        with self._table() as table:
            return table.prepare(lease, checkpoint, state)

    def pin(self, lease: Lease, timestamp_millis: int) -> Lease | Conflict:
        """Store the instant of a resolved initial position."""
        with self._table() as table:
            return table.pin(lease, timestamp_millis)

    def mark_processed(self, lease: Lease, millis: int) -> Lease | Conflict:
        """Store that every record which arrived before a time is processed."""
        with self._table() as table:
            return table.mark_processed(lease, millis)

    def release(self, lease: Lease) -> Lease | Conflict:
        """Remove the owner."""
        with self._table() as table:
            return table.release(lease)

    def request_handoff(self, lease: Lease, owner: str) -> Lease | Conflict:
        """Request a lease from its owner."""
        with self._table() as table:
            return table.request_handoff(lease, owner)

    def complete_handoff(self, lease: Lease) -> Lease | Conflict:
        """Hand a lease off to its next owner."""
        with self._table() as table:
            return table.complete_handoff(lease)

    def set_child_shard_ids(self, lease_key: str, child_shard_ids: Iterable[str]) -> bool:
        """Store the children of an ended shard."""
        with self._table() as table:
            return table.set_child_shard_ids(lease_key, child_shard_ids)

    def set_hash_key_range(self, lease_key: str, hash_key_range: HashKeyRange) -> bool:
        """Store the range of a shard."""
        with self._table() as table:
            return table.set_hash_key_range(lease_key, hash_key_range)

    def put_standby_heartbeat(self, lease_key: str, worker_id: str, heartbeat: int | None) -> bool:
        """Store or remove the heartbeat of a worker without leases."""
        with self._table() as table:
            return table.put_standby_heartbeat(lease_key, worker_id, heartbeat)

    def set_drain(self, lease_key: str, worker_id: str, on: bool) -> bool:
        """Put or remove the mark that tells a worker to hold no leases."""
        with self._table() as table:
            return table.set_drain(lease_key, worker_id, on)

    def set_pin(self, lease_key: str, worker_id: str | None) -> bool:
        """Store the worker that gets a lease while it is alive."""
        with self._table() as table:
            return table.set_pin(lease_key, worker_id)

    def set_handler_request(
        self, lease_key: str, request: HandlerRequest | None, *, instead_of: HandlerRequest | None = None
    ) -> bool:
        """Store what an operator asks the holder of a lease for."""
        with self._table() as table:
            return table.set_handler_request(lease_key, request, instead_of=instead_of)

    def delete(self, lease_key: str, *, unowned: Lease | None = None, finished: bool = False) -> bool:
        """Remove a lease."""
        with self._table() as table:
            return table.delete(lease_key, unowned=unowned, finished=finished)


def _to_json(value: object) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    raise TypeError(f"a lease has a value of the type {type(value).__name__}")


def _from_json(value: dict[str, Any]) -> Any:
    return base64.b64decode(value["base64"]) if value.keys() == {"base64"} else value


def handle(batch: RecordBatch) -> None:
    """Print how many records came of which shard."""
    print(len(batch.records), "records of", batch.shard_id, flush=True)


def main() -> None:
    """Consume until Ctrl-C or SIGTERM."""
    config = ConsumerConfig(initial_position="TRIM_HORIZON")
    store = FileLeaseStore("leases.json")
    Worker("orders", application_name="billing", handler=handle, config=config, lease_store=store).run()


if __name__ == "__main__":
    main()
