"""An operator rewinds and skips an application under load, with live, killed and frozen workers.

The run's own accounting demands a reason for each duplicate and knows nothing of operators, so this test reads its recorded events and
accounts for the operator's changes as well: what a rewind covers comes again, what a skip shows is left out, and nothing else changes.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

import pytest

from integration.endtoend.run import Run, RunOptions
from kinesis_sdk.admin.applications import Application
from kinesis_sdk.admin.changes.description import Status
from kinesis_sdk.admin.changes.desk import Desk
from kinesis_sdk.admin.changes.execute import Outcome
from kinesis_sdk.admin.changes.lease_change import LeaseChange
from kinesis_sdk.admin.changes.plans import plan_rewind, plan_skip
from kinesis_sdk.admin.connection import Connection
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.testing import ServerProcess, start_server_process
from kinesis_sdk.testing.accounting.verify import Delivery, Put, account_for
from tests import HANG

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")

FAILOVER = 5.0


@pytest.fixture(scope="module")
def fake() -> Iterator[ServerProcess]:
    with start_server_process() as server:
        yield server


def place(position: ExtendedSequenceNumber) -> tuple[int, int]:
    return (-1, 0) if position.is_sentinel else (int(position.sequence_number), position.sub_sequence_number)


class Operator:
    """Steers the application of a run, and remembers what it did.

    Attributes:
        rewinds: Shard, position and wall time of each rewind.
        gaps: Shard, checkpoint and new position of each skip.
    """

    def __init__(self, run: Run, folder: Path) -> None:
        self._run = run
        self._connection = Connection(endpoint_url=run.options.control_url)
        self._audit = folder / "audit.jsonl"
        self.rewinds: list[tuple[str, tuple[int, int], float]] = []
        self.gaps: list[tuple[str, tuple[int, int], tuple[int, int]]] = []

    def _desk(self) -> Desk:
        name = self._run._name
        return Desk(
            application=Application(self._connection, name, stream=name),
            failover_time=FAILOVER,
            audit_log=self._audit,
            sleep=self._go_on,
            report=lambda text: self._run.note("steer", text),
        )

    def _go_on(self, seconds: float) -> None:
        """Wait. In the main thread the run goes on meanwhile; the others, which read shards side by side, must not touch it."""
        if threading.current_thread() is threading.main_thread():
            self._run.go_on(seconds)
        else:
            time.sleep(seconds)

    def rewind(self, to: datetime) -> list[Outcome]:
        desk = self._desk()
        plan = plan_rewind(desk, to)
        written = time.time()
        outcomes = LeaseChange(desk, plan).carry_out(wait=3 * FAILOVER)
        for outcome in outcomes:
            if outcome.status is Status.DONE and outcome.goal.position is not None:
                checkpoint = outcome.checkpoint
                position = outcome.goal.position
                if checkpoint is not None and checkpoint < position:
                    position = checkpoint
                self.rewinds.append((outcome.goal.shard_id, place(position), written))
        return outcomes

    def skip(self, shard: str) -> list[Outcome]:
        desk = self._desk()
        plan = plan_skip(desk, "LATEST", [shard])
        outcomes = LeaseChange(desk, plan).carry_out(wait=3 * FAILOVER)
        for outcome in outcomes:
            if outcome.status is Status.DONE:
                assert outcome.checkpoint is not None
                assert outcome.goal.position is not None
                self.gaps.append(
                    (outcome.goal.shard_id, place(outcome.checkpoint), place(outcome.goal.position))
                )
        return outcomes


def outstanding(run: Run, operator: Operator) -> list[int]:
    """Records that are stored and will still be processed, or processed again because of a rewind."""
    seen: dict[int, list[float]] = {}
    for delivery in run.recorded.deliveries:
        seen.setdefault(delivery.number, []).append(delivery.at)
    found = []
    for number, put in run.recorded.puts.items():
        if put.position is None:
            continue
        times = seen.get(number, [])
        skipped = any(
            shard == put.shard_id and begin < put.position <= end for shard, begin, end in operator.gaps
        )
        again = any(
            shard == put.shard_id and position < put.position and times and max(times) <= written
            for shard, position, written in operator.rewinds
        )
        if (not times and not skipped) or again:
            found.append(number)
    return found


def end(run: Run, operator: Operator) -> None:
    """Stop the producers, and let the workers finish: until nothing is due, and nothing has been processed for three seconds."""
    for name in list(run._producers):
        run.stop_producer(name)
    run.until(lambda: not run._producers, HANG, "the producers to end")
    run.until(lambda: not outstanding(run, operator), HANG, "the workers to process what is left")
    count = -1
    while len(run.recorded.deliveries) != count:
        count = len(run.recorded.deliveries)
        run.go_on(3)


@pytest.mark.parametrize(
    ("steps", "fault"),
    [
        (["split", "merge"], "none"),
        (["merge"], "killed"),
        (["merge"], "frozen"),
        (["split", "merge"], "killed"),
        (["merge", "split"], "frozen"),
    ],
)
def test_a_rewind_over_reshards_under_load(
    steps: list[str], fault: str, fake: ServerProcess, tmp_path: Path
) -> None:
    options = RunOptions(
        endpoint_url=fake.endpoint_url,
        control_url=fake.endpoint_url,
        shards=4,
        workers=2,
        producers=(False,),
        failover_time=FAILOVER,
    )
    with Run(options, tmp_path) as run:
        run.start()
        run.go_on(3)
        run.stream.split()
        run.go_on(3)
        begin = datetime.now(timezone.utc)
        for step in steps:
            run.go_on(3)
            run.until(lambda: not run.stream.is_resharding, HANG, "the stream to be ACTIVE")
            getattr(run.stream, step)()
        run.go_on(3)
        operator = Operator(run, tmp_path)
        if fault == "killed":
            run.kill_worker()
        elif fault == "frozen":
            run.freeze_worker(FAILOVER + 3.0)
        outcomes = operator.rewind(begin)
        assert all(outcome.status is not Status.REFUSED for outcome in outcomes)
        run.go_on(4)
        end(run, operator)
        lost, repeated = account(run, operator, faulty=fault != "none")
        check_order(run, operator, run.stream.shards(only_open=False))
    assert lost == []
    assert repeated > 0, "the window was not empty"


def check_order(run: Run, operator: Operator, shards: Sequence[Shard]) -> None:
    """Check that after the rewind, no child was begun before all of the window of its parents had come again."""
    # The rows are written one after the other, which takes seconds on a busy machine. A lease that was taken before its own row
    # was written goes on where it was.
    rows = {event.text.split(":")[0]: event.at for event in run.events if event.text.endswith(": written")}
    positions = {
        shard: (position, max(written, rows.get(shard, written)))
        for shard, position, written in operator.rewinds
    }
    acquisitions = run.recorded.acquisitions
    again: dict[str, dict[tuple[int, int], float]] = {}
    for delivery in sorted(run.recorded.deliveries, key=lambda one: one.at):
        position, written = positions.get(delivery.shard_id, ((-1, 0), float("inf")))
        if acquisitions[delivery.worker, delivery.acquisition].at > written and delivery.position > position:
            again.setdefault(delivery.shard_id, {}).setdefault(delivery.position, delivery.at)
    pairs = [(shard, parent) for shard in shards for parent in shard.parents if parent in positions]
    assert pairs, "the rewind covers a reshard"
    for shard, parent in pairs:
        begun, ended = again.get(shard.shard_id, {}), again.get(parent, {})
        if begun and ended:
            assert max(ended.values()) <= min(begun.values()), f"{shard.shard_id} before the end of {parent}"


@pytest.mark.parametrize("fault", ["none", "killed", "frozen"])
def test_a_skip_under_load(fault: str, fake: ServerProcess, tmp_path: Path) -> None:
    options = RunOptions(
        endpoint_url=fake.endpoint_url,
        control_url=fake.endpoint_url,
        shards=2,
        workers=2,
        producers=(False,),
        failover_time=FAILOVER,
        batch_seconds=0.5,
        consumer={"max_records": 3},
    )
    with Run(options, tmp_path) as run:
        run.start()
        run.go_on(8)
        operator = Operator(run, tmp_path)
        name = run.pick_worker()
        assert name is not None
        (shard, *_) = run._workers[name].log.run and sorted(
            row.lease_key for row in run._store.list() if row.owner == name
        )
        if fault == "killed":
            run.kill_worker(name, replace_after=None)
        elif fault == "frozen":
            run.freeze_worker(FAILOVER + 4.0, name)
        (outcome,) = operator.skip(shard)
        assert outcome.status is Status.DONE
        run.go_on(3)
        end(run, operator)
        lost, _ = account(run, operator, faulty=fault != "none")
    ((_, begin, position),) = operator.gaps
    assert begin < position
    # Everything that is missing lies in the gap that was shown; an owner that could not be asked may have worked on in it.
    puts = run.recorded.puts
    assert all(puts[number].shard_id == shard for number in lost)
    assert all(begin < (puts[number].position or (0, 0)) <= position for number in lost)
    inside = [
        number
        for number, put in puts.items()
        if put.shard_id == shard and put.position is not None and begin < put.position <= position
    ]
    assert len(lost) > 0
    if fault == "none":
        assert sorted(lost) == sorted(inside)


def account(run: Run, operator: Operator, *, faulty: bool) -> tuple[list[int], int]:
    """Account for every record.

    Returns:
        Records that no worker processed, and the number of those that a rewind covers and that came again.
    """
    puts: dict[int, Put] = run.recorded.puts
    deliveries: list[Delivery] = run.recorded.deliveries

    def explain(again: Delivery, before: Sequence[Delivery], put: Put) -> str | None:
        for shard, position, _ in operator.rewinds:
            if again.shard_id == shard and again.position > position:
                return "rewound"
        if put.attempts > 1:
            return "the producer sent it again"
        # A worker that was killed, frozen or not asked processed more than it had stored.
        return "a fault" if faulty or run.recorded.shared_pauses else None

    result = account_for(puts, deliveries, explain=explain)
    assert result.unexplained == 0, result.without_reason[:5]
    assert not result.unknown
    seen: dict[int, list[float]] = {}
    for delivery in deliveries:
        seen.setdefault(delivery.number, []).append(delivery.at)
    repeated = 0
    for number, put in puts.items():
        for shard, position, written in operator.rewinds:
            if put.shard_id != shard or put.position is None or put.position <= position:
                continue
            if any(at < written for at in seen.get(number, ())):
                repeated += 1
                assert any(at > written for at in seen[number]), f"{number} of {shard} did not come again"
    return sorted(result.lost), repeated
