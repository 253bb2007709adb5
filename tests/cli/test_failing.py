"""The commands for a shard whose handler fails, on fleets of real engines in virtual time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kinesis_sdk.admin.changes.requests import plan_retry, plan_skip_record
from kinesis_sdk.common.errors import ChangeRefusedError
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer import RecordBatch, RetryBatch
from kinesis_sdk.consumer.leases.table.handler_request import HandlerRequest, HandlerVerb
from tests.admin.changes.operators import SHARD
from tests.admin.changes.places import both_places, place  # noqa: F401 - a fixture
from tests.cli.operators import Operator


class Poisoned:
    """A worker whose handler fails on one record."""

    def __init__(self, acts: Operator, monkeypatch: Any, *, pause: float = 0.5) -> None:
        self.fleet = fleet = acts.fleet
        self.bad = b""
        self.dead: list[bytes] = []
        self.processed: list[bytes] = []
        self.calls = 0
        self.is_mended = False
        policy = RetryBatch(
            initial_delay=pause,
            max_delay=max(30.0, pause),
            dead_letter=lambda poison: self.dead.append(poison.record.data),
        )
        fleet.add("a", self.handle, config=fleet.config.with_fields(on_handler_error=policy))
        fleet.run(3)
        self.first = fleet.put_count
        fleet.put(5)
        self.bad = b"%d" % (self.first + 2)
        fleet.run(40)

    def handle(self, batch: RecordBatch) -> None:
        self.calls += 1
        if not self.is_mended and any(record.data == self.bad for record in batch.records):
            raise ValueError("no price")
        self.processed += [record.data for record in batch.records]

    @property
    def position(self) -> ExtendedSequenceNumber:
        failing = self.fleet.store.get(SHARD).current_progress.failing
        assert (failing.records, failing.error) == (1, "ValueError: no price")
        return failing.position


@pytest.fixture
def poisoned(operator: Any, monkeypatch: Any) -> Any:
    def make(**more: Any) -> tuple[Operator, Poisoned]:
        one = operator(workers=())
        return one, Poisoned(one, monkeypatch, **more)

    return make


@both_places
def test_exactly_the_failing_record_is_left_out(poisoned, tmp_path):
    acts, worker = poisoned()
    position, file = worker.position, tmp_path / "poison.jsonl"
    shown = acts.run("leases", "skip-record", "app", "--stream", "orders", "--shard", "0", "--dry-run")
    assert f"handlerRequest: – → leave-out,{position}" not in shown.stderr, "the id comes between"
    assert f",{position}; on condition: the row exists" in shown.stderr
    assert worker.fleet.store.get(SHARD).handler_request is None

    result = acts.change("leases", "skip-record", "app", "--shard", "0", "--save", str(file), "--json")
    told = json.loads(result.stdout)
    assert told["done"]
    assert told["outcome"].startswith(("Done after", "The record was left out after"))
    assert worker.dead == [worker.bad]
    worker.fleet.run(15)
    assert worker.processed[-4:] == [b"%d" % (worker.first + n) for n in (0, 1, 3, 4)]
    row = worker.fleet.store.get(SHARD)
    assert (row.handler_request, row.current_progress.failing) == (None, None)
    saved = json.loads(file.read_text())
    assert (saved["data"], saved["sequence_number"]) == (worker.bad.decode(), position.sequence_number)
    lines = [json.loads(line) for line in acts.audit.read_text().splitlines()]
    assert [(line["event"], line["request"].split(",")[0]) for line in lines] == [
        ("begin", "leave-out"),
        ("done", "leave-out"),
    ]
    assert (lines[0]["operation"], lines[0]["parameters"]["shard"]) == ("skip-record", "0")


@both_places
@pytest.mark.parametrize("back", ["rewind", "import"])
def test_a_new_position_forgets_what_was_to_be_left_out(poisoned, tmp_path, back):
    acts, worker = poisoned()
    position, file = worker.position, str(tmp_path / "leases.jsonl")
    worker.fleet.stop("a")
    worker.fleet.run(20)
    asked = acts.change(
        "leases", "skip-record", "app", "--shard", "0", "--record", f"at:{position}", "--timeout", "0s"
    )
    assert "the next owner acts on the request" in asked.stderr
    assert worker.fleet.store.get(SHARD).handler_request.record == position
    if back == "rewind":
        result = acts.change("leases", "rewind", "app", "--to", "TRIM_HORIZON", "--timeout", "0s")
    else:
        acts.run("leases", "export", "app", "--stream", "orders", "-o", file)
        worker.fleet.store.delete(SHARD)
        result = acts.change("leases", "import", "app", file, "--timeout", "0s")
    assert "1 row written" in result.stderr, result.stderr
    assert worker.fleet.store.get(SHARD).handler_request is None


@both_places
def test_a_retry_ends_the_pause(poisoned):
    acts, worker = poisoned(pause=3600)
    assert worker.calls >= 1
    calls, worker.is_mended = worker.calls, True
    result = acts.change("leases", "retry", "app", "--shard", "0")
    assert "Done after" in result.stderr
    assert worker.calls > calls
    assert worker.bad in worker.processed


def test_a_record_that_may_be_good_is_not_left_out(poisoned, monkeypatch):
    acts, worker = poisoned(pause=600)
    failing = worker.fleet.store.get(SHARD).current_progress.failing
    assert failing.records == 5
    result = acts.change("leases", "skip-record", "app", "--shard", "0", code=2)
    assert f"fails on 5 records from {failing.position} on, and one of them is the cause" in result.stderr
    result = acts.change("leases", "skip-record", "app", "--shard", "0", "--record", "LATEST", code=2)
    assert "expected at:<sequence number>[/<index>]" in result.stderr


def test_the_record_is_opened_by_its_position(poisoned):
    acts, worker = poisoned()
    position = str(worker.position)
    result = acts.run("tail", "orders", "--shard", "0", "--from", f"at:{position}", "--limit", "1", "--raw")
    assert result.stdout == worker.bad.decode() + "\n"
    result = acts.run(
        "tail", "orders", "--shard", "0", "--from", f"after:{position}", "--limit", "1", "--raw"
    )
    assert result.stdout == f"{worker.first + 3}\n"
    result = acts.run("tail", "orders", "--from", f"at:{position}", "--limit", "1", code=2)
    assert "exactly one shard for a sequence number" in result.stderr


def test_a_request_that_no_worker_can_act_on_is_refused(poisoned):
    _, worker = poisoned()
    fleet, position = worker.fleet, worker.position
    desk = fleet.desk()
    done = fleet.store.get(SHARD).checkpoint
    with pytest.raises(ChangeRefusedError, match=f"record {done} is processed"):
        plan_skip_record(desk, SHARD, done)
    plan = plan_skip_record(desk, SHARD, position)
    fleet.stop("a")
    fleet.run(20)
    with pytest.raises(ChangeRefusedError, match="no worker holds the lease: start one"):
        plan_retry(desk, SHARD)
    assert plan_skip_record(desk, SHARD, position).description.warnings == (
        "no worker holds the lease; the next owner acts on the request",
    )
    assert plan.apply(wait=5).summary.startswith("Written, but no worker has acted on it for 5 s")
    other = HandlerRequest(HandlerVerb.RETRY, "other")
    (warning,) = [
        text
        for text in plan_skip_record(
            desk, SHARD, ExtendedSequenceNumber(position.sequence_number, 9)
        ).description.warnings
        if "replaces" in text
    ]
    assert str(position) in warning
    fleet.store.set_handler_request(SHARD, other)
    assert plan._watch(5).startswith("Another operator has replaced the request")
    fleet.store.delete(SHARD)
    with pytest.raises(ChangeRefusedError, match="nothing was written"):
        plan.apply(wait=0)
