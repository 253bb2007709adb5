"""Costs of lease stores: renewals, checkpoints and scans on each, in one run.

    python benchmarks/bench_lease_stores.py [--postgres URL] [--leases 100] [--rounds 20]

Each round renews every lease, checkpoints every lease and scans the table, on one store after the other, in one thread. The columns are
microseconds of wall time and of this process's CPU time for one call (the median round), and the wall time as a multiple of the fake DynamoDB's,
which runs in this process, without a network. A worker with 100 leases renews 15 times a second and scans once a second.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from kinesis_sdk.common.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.consumer import DynamoDBLeaseStore, InMemoryLeaseStore, Lease, SqlLeaseStore
from kinesis_sdk.testing import FakeAws


def measure(call: Callable[[], int]) -> tuple[float, float]:
    """Return the microseconds of wall time and of CPU time for each of the calls that a function makes and counts."""
    wall, cpu = time.perf_counter(), time.process_time()
    count = call()
    return (time.perf_counter() - wall) / count * 1e6, (time.process_time() - cpu) / count * 1e6


class Bench:
    """The leases of one worker in one store."""

    def __init__(self, store: Any, leases: int) -> None:
        self._store = store
        store.ensure_ready()
        self._rows: list[Lease] = []
        for number in range(leases):
            lease = Lease(lease_key=f"shardId-{number:012}", checkpoint=ExtendedSequenceNumber(TRIM_HORIZON))
            store.create_if_absent(lease)
            self._rows.append(store.take(store.get(lease.lease_key), "worker"))
        self._position = 0

    def renew(self) -> int:
        """Renew every lease."""
        self._rows = [self._store.renew(row) for row in self._rows]
        return len(self._rows)

    def checkpoint(self) -> int:
        """Checkpoint every lease."""
        self._position += 1
        position = ExtendedSequenceNumber(str(self._position))
        self._rows = [self._store.checkpoint(row, position) for row in self._rows]
        return len(self._rows)

    def scan(self) -> int:
        """Scan the table."""
        assert len(self._store.scan().leases) == len(self._rows)
        return 1


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--postgres", metavar="URL", help="an empty database: postgresql+psycopg://…")
    parser.add_argument("--leases", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stores: dict[str, Any] = {
            "fake DynamoDB": DynamoDBLeaseStore(FakeAws().client("dynamodb"), "app"),
            "memory": InMemoryLeaseStore(),
            "SQLite": SqlLeaseStore(f"sqlite:///{folder}/leases.db", "app"),
        }
        if options.postgres:
            stores["PostgreSQL"] = SqlLeaseStore(options.postgres, "app")
        benches = {name: Bench(store, options.leases) for name, store in stores.items()}
        found: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for _ in range(options.rounds):
            for what in ("renew", "checkpoint", "scan"):
                for name, bench in benches.items():
                    found.setdefault((what, name), []).append(measure(getattr(bench, what)))
        print(f"{'call':<12}{'store':<16}{'µs':>9}{'CPU µs':>9}{'multiple':>10}")
        for (what, name), times in found.items():
            wall, cpu = (median(column) for column in zip(*times, strict=True))
            fake = median(one for one, _ in found[what, "fake DynamoDB"])
            print(f"{what:<12}{name:<16}{wall:>9.0f}{cpu:>9.0f}{wall / fake:>10.2f}")
        for store in stores.values():
            if isinstance(store, SqlLeaseStore):
                store.close()


if __name__ == "__main__":
    main()
