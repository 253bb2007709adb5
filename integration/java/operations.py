"""Random operations on a fleet of Java workers and ours, from a seed, checked record by record.

``python -m integration.java.operations --count 200 --seed 7`` prints what it does and the figures. Exit status 0 if rewinds repeated
exactly what was requested, skips omitted exactly what they showed, nothing else was lost, and no counter went down.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from integration.commands import set_keys
from integration.java.evidence import TableWatch
from integration.java.processes import Stage, open_stage
from integration.java.steered import OURS, SteeredFleet
from integration.steering.books import Account
from integration.steering.plan import DECK, Operation, make_operations
from kinesis_sdk.admin.changes.marks import plan_undrain

FLEET = ("2.7.2", "3.5.1", OURS, OURS)
_FEWEST, _MOST = 2, 6
"""Minimum and maximum number of open shards."""
_FAILOVER_TIME = 10.0


def disturb(fleet: SteeredFleet, operation: Operation) -> None:
    """Apply an operation's disturbance to the fleet, if it is possible now."""
    kind = operation.disturbance
    if kind in ("kill", "stop"):
        fleet.kill(operation.lasts)
    elif kind == "freeze":
        fleet.freeze(operation.lasts)
    elif kind is not None and not fleet.stream.is_resharding:
        fleet.stream.reshard(kind, _FEWEST, _MOST)


def play(
    stage: Stage,
    name: str,
    folder: Path,
    *,
    seed: int,
    count: int,
    kinds: tuple[str, ...] = FLEET,
    rate: int = 40,
) -> tuple[SteeredFleet, Account, list[str]]:
    """Perform `count` operations on a fleet; return the fleet, the account of its records, and counters that went down.

    Args:
        stage: The account.
        name: Name of the stream and the application.
        folder: For the audit log.
        seed: Decides what is done.
        count: Number of operations.
        kinds: Kinds of the workers: versions of the KCL, and `OURS`.
        rate: Records per second.
    """
    with SteeredFleet(stage, name, folder, shards=4, rate=rate, seed=seed, batch=15) as fleet:
        for kind in kinds:
            fleet.add(kind)
        fleet.await_owners(seconds=240.0)
        fleet.go_on(5.0)
        with TableWatch(stage, name) as watch:
            for operation in make_operations(seed, count, failover_time=_FAILOVER_TIME, deck=DECK):
                fleet.go_on(operation.pause)
                disturb(fleet, operation)
                fleet.operator.perform(operation)
            fleet.calm()
            for worker in {one for row in fleet.rows() for one in row.draining}:
                plan_undrain(fleet.operator.desk, worker).apply()
    fleet.await_everything()
    created = fleet.operator.done.created
    down = [text for text in watch.faults if "counter" in text and text.partition(":")[0] not in created]
    return fleet, fleet.close_books(), down


def main(arguments: list[str] | None = None) -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m integration.java.operations",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--count", type=int, default=40, help="operations (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="repeat another run's operations (default: a random one)")
    parser.add_argument("--rate", type=int, default=40, help="records/s (default: %(default)s)")
    parser.add_argument("--logs", type=Path, help="keep logs and journals in this folder")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    set_keys()
    print(f"{options.count} operations on {', '.join(FLEET)}, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="operations-") as scratch:
        folder = options.logs or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        with open_stage(folder, "--no-throttle") as stage:
            fleet, account, down = play(
                stage, "operations", folder, seed=seed, count=options.count, rate=options.rate
            )
    for text in fleet.operator.refusals:
        print(f"refused: {text}")
    for kind, texts in {**account.problems, "counter went down": down}.items():
        if texts:
            print(f"{kind}: {len(texts)}, for example {', '.join(texts[:5])}")
    failed = bool(account.problems or down)
    print("FAILED" if failed else "PASSED")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
