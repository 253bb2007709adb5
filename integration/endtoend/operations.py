"""``make operations COUNT=200``: random changes of a running fleet's lease table, from a seed, checked record by record.

Producers put, workers process, shards are split and merged, workers are killed, frozen and stopped. Meanwhile an operator rewinds,
skips, releases, moves, pins, drains, exports and imports, as the commands do. Exit status 0 if rewinds repeated exactly what was
requested, skips omitted exactly what they showed, nothing else was lost, and no counter went down; 1 if not.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from integration.commands import set_keys
from integration.endtoend.leases import check_deletions, check_table
from integration.endtoend.recorded_events import RecordedEvents, Violation
from integration.endtoend.records import check_results, in_time, listed
from integration.endtoend.report import render
from integration.endtoend.run import Run, RunOptions
from integration.steering.books import Account, Acquisition, Books, Delivery, Fault, Place
from integration.steering.operator import Operator, place_of
from integration.steering.plan import Operation, make_operations
from kinesis_sdk.admin.applications import Application
from kinesis_sdk.admin.connection import Connection
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.testing import start_server_process

FAILOVER_TIME = 5.0
_WORKERS = 3
_FEWEST, _MOST = 2, 8
"""Minimum and maximum number of open shards."""
_SETTLE = 300.0
"""After the last operation, seconds for drained workers to hand off and for pins to take effect."""
_COUNT_SECONDS = 1.0


class RunScene:
    """The fleet of a run, for an operator."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def rows(self) -> Sequence[Lease]:
        """Return the lease table."""
        return self._run.rows()

    def shards(self) -> Sequence[Shard]:
        """Return all shards of the stream."""
        return self._run.stream.shards(only_open=False)

    def workers(self) -> Sequence[str]:
        """Return the workers that should be alive."""
        return self._run.workers()

    def places(self, shard: str) -> Sequence[Place]:
        """Return the positions of a shard's acknowledged records, in order."""
        return sorted(
            put.position
            for put in self._run.recorded.puts.values()
            if put.shard_id == shard and put.position is not None
        )


def make_options(endpoint: str, seed: int, rate: float = 60.0) -> RunOptions:
    """Return options of a run with operations.

    A shard processes 50 records a second, a few times the rate of puts. So a rewound shard lags for a while, and there is
    something to skip.
    """
    return RunOptions(
        endpoint_url=endpoint,
        control_url=endpoint,
        shards=4,
        workers=_WORKERS,
        producers=(False,),
        rate=rate,
        failover_time=FAILOVER_TIME,
        batch_seconds=0.5,
        consumer={"max_records": 25},
        seed=seed,
    )


def make_operator(run: Run, folder: Path) -> Operator:
    """Return an operator of a run."""
    connection = Connection(endpoint_url=run.options.control_url)

    def expect(positions: Mapping[str, ExtendedSequenceNumber]) -> None:
        if not positions:
            run.go_on(0.5)  # Check the table once more.
        run.recorded.table_monitor.rewinding = positions

    return Operator(
        RunScene(run),
        lambda: Application(connection, run.application, stream=run.application),
        folder,
        failover_time=run.options.failover_time,
        sleep=run.go_on,
        note=lambda text: run.note("steer", text),
        before=expect,
    )


def disturb(run: Run, operation: Operation) -> None:
    """Apply an operation's disturbance to the fleet, if it is possible now."""
    kind = operation.disturbance
    if kind == "kill":
        run.kill_worker(replace_after=operation.lasts)
    elif kind == "stop":
        run.stop_worker(replace_after=operation.lasts)
    elif kind == "freeze":
        run.freeze_worker(operation.lasts)
    elif kind is not None and not run.stream.is_resharding:
        run.stream.reshard(kind, _FEWEST, _MOST)


def acquisitions_of(recorded: RecordedEvents) -> dict[tuple[str, int], Acquisition]:
    """Return the acquisitions of a run, for the books."""
    return {
        key: Acquisition(*key, held.shard_id, place_of(held.start), held.at)
        for key, held in recorded.acquisitions.items()
    }


def deliveries_of(recorded: RecordedEvents) -> list[Delivery]:
    """Return the deliveries of a run, for the books."""
    return [
        Delivery(one.shard_id, one.position, one.at, one.worker, one.acquisition)
        for one in recorded.deliveries
    ]


def stored_of(recorded: RecordedEvents) -> list[tuple[str, Place]]:
    """Return shard and position of each acknowledged record."""
    return [(put.shard_id, put.position) for put in recorded.puts.values() if put.position is not None]


def faults_of(recorded: RecordedEvents) -> list[Fault]:
    """Return the faults of a run's workers, for the books."""
    found = [Fault(None, pause.begin, pause.end) for pause in recorded.shared_pauses]
    for worker in recorded.workers.values():
        found += [Fault(worker.name, pause.begin, pause.end) for pause in worker.pauses]
        if worker.killed_at is not None:
            found.append(Fault(worker.name, worker.killed_at, worker.killed_at))
    return found


class _Missing:
    """Counts the records that workers still have to process, at most once a second."""

    def __init__(self, run: Run, operator: Operator) -> None:
        self._run = run
        self._operator = operator
        self._counted_at = float("-inf")
        self._count = 0

    def __call__(self) -> int:
        now = time.monotonic()
        if now - self._counted_at >= _COUNT_SECONDS:
            self._counted_at = now
            recorded = self._run.recorded
            lost, not_repeated, _ = Books(self._operator.done, ()).missing(
                stored_of(recorded), deliveries_of(recorded), acquisitions_of(recorded)
            )
            self._count = len(lost) + len(not_repeated)
        return self._count


@dataclass(frozen=True)
class Verdict:
    """Result of a run with operations.

    Attributes:
        account: Accounting of the records.
        violations: Empty in a good run.
        stored: Acknowledged records.
        operator: Performed the operations.
    """

    account: Account
    violations: list[Violation]
    stored: int
    operator: Operator

    def summary(self, seed: int, seconds: float) -> list[tuple[str, str]]:
        """Return rows for a table."""
        account, operator = self.account, self.operator
        made, idle = (sum(counter.values()) for counter in (operator.made, operator.idle))
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(account.reasons.items()))
        return [
            ("seed", str(seed)),
            ("time", f"{seconds:.0f} s"),
            ("operations", f"{made + idle}: {made} made, {idle} without anything to do or refused"),
            ("made", ", ".join(f"{count} {kind}" for kind, count in operator.made.most_common())),
            ("rewound shards", f"{len(operator.done.rewinds)}"),
            (
                "skipped gaps",
                f"{len(operator.done.gaps)}, {sum(gap.exact for gap in operator.done.gaps)} with the owner's consent",
            ),
            ("acknowledged", f"{self.stored:,}"),
            ("delivered", f"{account.delivered:,}"),
            ("left out by skips", f"{account.skipped:,}"),
            ("repeated by rewinds", f"{account.repeated:,}, missing {len(account.not_repeated):,}"),
            ("delivered again", reasons or "0"),
            ("lost", f"{len(account.lost):,}"),
        ]


def play(run: Run, operator: Operator, operations: Sequence[Operation]) -> Verdict:
    """Perform the operations on a started run, end it in order, and check it."""
    for operation in operations:
        run.go_on(operation.pause)
        disturb(run, operation)
        operator.perform(operation)
    violations = settle(run)
    run.end(_Missing(run, operator))
    return judge(run, operator, violations)


def settle(run: Run) -> list[Violation]:
    """Wait until drained workers hold nothing and pinned leases are at their workers; return what remains wrong."""
    deadline = time.monotonic() + _SETTLE
    drained = {worker for row in run.rows() for worker in row.draining}
    if set(run.workers()) <= drained:
        run.add_worker()
    while True:
        run.go_on(1.0)
        wrong = _misplaced(run)
        if not wrong or time.monotonic() > deadline:
            return wrong


def _misplaced(run: Run) -> list[Violation]:
    rows = [row for row in run.rows() if not row.is_finished]
    drained = {worker for row in run.rows() for worker in row.draining}
    takers = set(run.workers()) - drained
    holding = sorted({row.holder for row in rows if row.holder in drained} & set(run.workers()))
    return [
        *listed("drained worker holds leases", holding),
        *listed(
            "pin not honoured",
            [
                f"{row.lease_key} of {row.holder}, pinned to {row.pinned_to}"
                for row in rows
                if row.pinned_to in takers and row.holder is not None and row.holder != row.pinned_to
            ],
        ),
    ]


def judge(run: Run, operator: Operator, violations: Sequence[Violation] = ()) -> Verdict:
    """Account for everything in a run that has ended."""
    recorded = run.recorded
    stored = stored_of(recorded)
    books = Books(operator.done, faults_of(recorded))
    account = books.close(stored, deliveries_of(recorded), acquisitions_of(recorded))
    found = [
        *violations,
        *(violation for kind, texts in account.problems.items() for violation in listed(kind, texts)),
        *check_results(recorded),
        *listed("unknown record", sorted({d.number for d in recorded.deliveries} - recorded.puts.keys())),
        *check_deletions(recorded),
        *check_table(recorded, in_time(recorded.deliveries)),
        *recorded.table_monitor.violations,
        *run.violations,
    ]
    return Verdict(account, found, len(stored), operator)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make operations", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=40, help="operations (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="repeat another run's operations (default: a random one)")
    parser.add_argument("--rate", type=float, default=60.0, help="records/s (default: %(default)s)")
    parser.add_argument("--logs", type=Path, help="keep the logs of all processes in this folder")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Return the exit status."""
    options = _parse(arguments)
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    set_keys()
    print(f"{options.count} operations, seed {seed}", flush=True)
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(start_server_process("--seed", str(seed), own_session=True))
        if options.logs is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="operations-")))
        else:
            folder = options.logs
            folder.mkdir(parents=True, exist_ok=True)
        run_options = make_options(server.endpoint_url, seed, options.rate)
        run = stack.enter_context(Run(run_options, folder, lambda line: print(line, flush=True)))
        run.start()
        operations = make_operations(seed, options.count, failover_time=FAILOVER_TIME)
        verdict = play(run, make_operator(run, folder), operations)
    command = f"{seed} (make operations COUNT={options.count} SEED={seed})"
    rows = [("seed", command), *verdict.summary(seed, time.monotonic() - began)[1:]]
    print(f"\n{render(rows)}\n")
    for text in verdict.operator.refusals:
        print(f"refused: {text}")
    for violation in verdict.violations:
        print(violation)
    print("FAILED" if verdict.violations else "PASSED")
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
