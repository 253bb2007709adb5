"""The process of a processor where it differs from amazon_kclpy, and its parts on their own."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from typing import Any

import pytest

from kinesis_sdk.kclpy import dispatch, kcl, messages
from kinesis_sdk.kclpy.checkpoint_error import CheckpointError
from kinesis_sdk.kclpy.v3 import processor
from tests.kclpy.processors import make

INITIALIZE = {
    "action": "initialize",
    "shardId": "shardId-000000000000",
    "sequenceNumber": "LATEST",
    "subSequenceNumber": 0,
}
RECORD = {
    "action": "record",
    "data": "aGk=",
    "partitionKey": "k",
    "sequenceNumber": "101",
    "subSequenceNumber": 0,
    "approximateArrivalTimestamp": 1_700_000_000_123,
}
BATCH = {"action": "processRecords", "records": [RECORD], "millisBehindLatest": 0}


def lines(*sent: dict[str, Any]) -> io.StringIO:
    return io.StringIO("".join(f"{json.dumps(message)}\n" for message in sent))


def answers(output: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.getvalue().splitlines() if line]


def statuses(output: io.StringIO) -> list[str]:
    return [message["responseFor"] for message in answers(output) if message["action"] == "status"]


class Failing(processor.RecordProcessorBase):
    """Fails in one callback."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __getattribute__(self, name: str) -> Any:
        if name in {"initialize", "process_records", "lease_lost", "shard_ended", "shutdown_requested"}:
            return lambda given: self._fail() if name == self._where else None
        return super().__getattribute__(name)

    def _fail(self) -> None:
        raise ValueError(f"{self._where} of the test")


# An error of a callback


@pytest.mark.parametrize(
    ("where", "answered"),
    [
        ("initialize", []),
        ("process_records", ["initialize"]),
        ("shard_ended", ["initialize", "processRecords", "shutdownRequested"]),
    ],
)
def test_on_error_exit_ends_the_process_without_an_answer(where: str, answered: list[str]) -> None:
    output, errors = io.StringIO(), io.StringIO()
    sent = lines(INITIALIZE, BATCH, {"action": "shutdownRequested"}, {"action": "shardEnded"})
    with pytest.raises(SystemExit) as caught:
        kcl.KCLProcess(Failing(where), sent, output, errors, on_error="exit").run()
    assert caught.value.code == 1
    assert statuses(output) == answered
    assert f"Caught exception from action dispatch: {where} of the test\nTraceback" in errors.getvalue()


@pytest.mark.parametrize("where", ["lease_lost", "shutdown_requested"])
def test_on_error_exit_goes_on_where_nothing_can_be_lost(where: str) -> None:
    output, errors = io.StringIO(), io.StringIO()
    sent = lines(INITIALIZE, BATCH, {"action": "shutdownRequested"}, {"action": "leaseLost"})
    kcl.KCLProcess(Failing(where), sent, output, errors, on_error="exit").run()
    assert statuses(output) == ["initialize", "processRecords", "shutdownRequested", "leaseLost"]
    assert f"{where} of the test" in errors.getvalue()


def test_on_error_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match=r'on_error=\'skip\' is invalid: expected "continue" or "exit"'):
        kcl.KCLProcess(Failing("initialize"), on_error="skip")  # type: ignore[arg-type]


# Checkpoints that get no answer, or another one


class Checkpointing(processor.RecordProcessorBase):
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.errors: list[str] = []

    def initialize(self, initialize_input: messages.InitializeInput) -> None:
        self.calls.append("initialize")

    def process_records(self, process_records_input: messages.ProcessRecordsInput) -> None:
        self.calls.append("process_records")
        try:
            process_records_input.checkpointer.checkpoint()
        except kcl.CheckpointError as error:
            self.errors.append(error.value)

    def shutdown_requested(self, shutdown_requested_input: messages.ShutdownRequestedInput) -> None:
        self.calls.append("shutdown_requested")


def test_the_end_of_the_input_refuses_a_checkpoint_as_a_lost_lease_does() -> None:
    handler, output = Checkpointing(), io.StringIO()
    kcl.KCLProcess(handler, lines(INITIALIZE, BATCH), output, io.StringIO()).run()
    assert handler.errors == ["ShutdownException"]
    assert statuses(output) == ["initialize", "processRecords"]


def test_a_call_in_place_of_an_answer_is_not_lost() -> None:
    handler, output = Checkpointing(), io.StringIO()
    sent = lines(INITIALIZE, BATCH, {"action": "shutdownRequested"})
    kcl.KCLProcess(handler, sent, output, io.StringIO()).run()
    assert handler.errors == ["InvalidStateException"]
    assert handler.calls == ["initialize", "process_records", "shutdown_requested"]
    assert statuses(output) == ["initialize", "processRecords", "shutdownRequested"]


# Input


def test_standard_input_is_utf_8_in_every_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    class Keys(Checkpointing):
        def process_records(self, process_records_input: messages.ProcessRecordsInput) -> None:
            seen.extend(record.partition_key for record in process_records_input.records)

    batch = json.dumps({**BATCH, "records": [{**RECORD, "partitionKey": "kö€"}]}, ensure_ascii=False)
    wrapped = io.TextIOWrapper(io.BytesIO(f"{batch}\n".encode()), encoding="latin-1")
    monkeypatch.setattr(sys, "stdin", wrapped)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    kcl.KCLProcess(Keys()).run()
    assert seen == ["kö€"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"action":"shutdown","reason":"ZOMBIE"}', "unknown action 'shutdown'"),
        ('{"shardId":"s"}', "a message without an action"),
        ('{"action":{"a":1}}', "unknown action"),
        ("[]", "a message without an action"),
        ('{"action":"checkpoint","sequenceNumber":null,"subSequenceNumber":null}', "no callback was running"),
        (json.dumps(RECORD), "no callback was running"),
    ],
)
def test_a_malformed_message_ends_the_process(line: str, problem: str) -> None:
    output = io.StringIO()
    with pytest.raises(dispatch.MalformedAction, match=problem) as caught:
        kcl.KCLProcess(Checkpointing(), io.StringIO(line), output, io.StringIO()).run()
    assert output.getvalue() == ""
    assert "aGk=" not in str(caught.value), "payloads are not shown"


@pytest.mark.parametrize("missing", sorted(RECORD.keys() - {"action"}))
def test_a_record_without_a_field_ends_the_process(missing: str) -> None:
    record = {name: value for name, value in RECORD.items() if name != missing}
    with pytest.raises(KeyError, match=missing):
        kcl.KCLProcess(
            Checkpointing(), lines({**BATCH, "records": [record]}), io.StringIO(), io.StringIO()
        ).run()


# The parts


def test_which_errors_may_be_retried() -> None:
    retryable = {"ThrottlingException", "KinesisClientLibDependencyException"}
    for name in (
        *retryable,
        "ShutdownException",
        "InvalidStateException",
        "IllegalArgumentException",
        "RuntimeException",
    ):
        error = CheckpointError(name)
        assert (error.value, str(error), error.retryable) == (name, repr(name), name in retryable)
    assert kcl.CheckpointError is CheckpointError


def test_inputs_of_a_users_own_tests() -> None:
    batch = messages.ProcessRecordsInput(BATCH)
    with pytest.raises(CheckpointError, match="InvalidStateException"):
        batch.checkpointer.checkpoint()
    again = json.loads(json.dumps(BATCH), object_hook=dispatch.message_decode)
    assert isinstance(again, messages.ProcessRecordsInput)
    assert [record.binary_data for record in again.records] == [b"hi"]
    with pytest.raises(KeyError, match="nothing"):
        again.records[0].get("nothing")
    with pytest.raises(CheckpointError, match="not allowed when the lease is lost"):
        messages.ShutdownInput.zombie().checkpointer.checkpoint()
    mine = messages.NO_CHECKPOINTER
    assert messages.ShutdownInput.terminate(mine).checkpointer is mine


def test_make_wraps_each_version() -> None:
    for name, wrapped in (("Version1", 2), ("Version2", 1), ("Version3", 0)):
        process, handler = make("kinesis_sdk.kclpy", name, print)
        found, depth = process(handler).processor, 0
        while hasattr(found, "delegate"):
            found, depth = found.delegate, depth + 1
        assert (found, depth) == (handler, wrapped)


def test_a_child_imports_the_standard_library_only() -> None:
    code = (
        "import sys; before = set(sys.modules); from kinesis_sdk.kclpy import kcl; from kinesis_sdk.kclpy.v2 import processor;"
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)));"
        "print(*sorted(name for name in sys.modules if name.startswith('kinesis_sdk.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    top, ours = done.stdout.splitlines()
    assert top == "kinesis_sdk"
    assert all(
        name.startswith(("kinesis_sdk.kclpy", "kinesis_sdk._lazy", "kinesis_sdk._version"))
        for name in ours.split()
    )
