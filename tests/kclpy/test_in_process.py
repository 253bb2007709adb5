"""Processors inside the worker's process: they see what they see in a child, and no failure skips a record."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kinesis_sdk import ConfigError, ConsumerConfig, InvalidCheckpointError, LeaseLostError, RestartShardError
from kinesis_sdk.common.errors import KinesisSdkError, LeaseStoreError, ThrottledError, TransientAwsError
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.response_header import ResponseHeader
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer import RecordBatch, ShardContext
from kinesis_sdk.kclpy import kcl, messages
from kinesis_sdk.kclpy.v3 import processor
from kinesis_sdk.multilang.in_process import InProcessRecord, ProcessorHandler, processor_handlers
from tests.kclpy.processors import make
from tests.kclpy.transcripts import TRANSCRIPTS, Transcript

STREAM = StreamId("s")
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
ERRORS: dict[str, KinesisSdkError] = {
    "ThrottlingException": ThrottledError("slow down"),
    "ShutdownException": LeaseLostError("taken"),
    "InvalidStateException": LeaseStoreError("no table"),
    "KinesisClientLibDependencyException": TransientAwsError("try again"),
    "IllegalArgumentException": InvalidCheckpointError("too far"),
}


class Scripted:
    """A checkpointer that answers as a transcript says."""

    def __init__(self, noted: list[str], answers: Iterator[dict[str, Any]]) -> None:
        self._noted = noted
        self._answers = answers

    def checkpoint(self, position: str | None = None, sub_sequence_number: int | None = None) -> None:
        self._noted.append(f"checkpoint {position} {sub_sequence_number}")
        error = next(self._answers)["error"]
        if error is not None:
            raise ERRORS[error]


def user_record(given: dict[str, Any]) -> UserRecord:
    return UserRecord(
        data=base64.b64decode(given["data"]),
        partition_key=given["partitionKey"],
        sequence_number=given["sequenceNumber"],
        approximate_arrival_timestamp=EPOCH + timedelta(milliseconds=given["approximateArrivalTimestamp"]),
        sub_sequence_number=given["subSequenceNumber"],
    )


def replay(transcript: Transcript) -> tuple[list[str], list[BaseException]]:
    """Call a handler as the daemon of a transcript calls its child; return what was noted, and the errors raised."""
    noted: list[str] = []
    raised: list[BaseException] = []
    sent = [json.loads(line) for line in transcript.sent]
    answers = iter([message for message in sent if message["action"] == "checkpoint"])
    checkpointer: Any = Scripted(noted, answers)
    _, made = make(
        "kinesis_sdk.kclpy", transcript.processor, lambda *event: noted.append(f"! {json.dumps(event)}")
    )
    handler = ProcessorHandler(made)

    def call(message: dict[str, Any]) -> None:
        action = message["action"]
        if action == "initialize":
            position = ExtendedSequenceNumber(message["sequenceNumber"], message["subSequenceNumber"])
            context = ShardContext(
                stream=STREAM, shard_id=message["shardId"], worker_id="w", checkpoint=position
            )
            handler.initialize(context)
        elif action == "processRecords":
            header = ResponseHeader(millis_behind_latest=message["millisBehindLatest"])
            records = [user_record(record) for record in message["records"]]
            handler.process_records(
                RecordBatch(
                    records=records,
                    shard_id="s",
                    stream=STREAM,
                    checkpointer=checkpointer,
                    header=header,
                )
            )
        elif action == "leaseLost":
            handler.lease_lost()
        elif action == "shardEnded":
            handler.shard_ended(checkpointer)
        else:
            handler.shutdown_requested(checkpointer)

    for message in sent:
        if message["action"] != "checkpoint":
            try:
                call(message)
            except Exception as error:  # noqa: BLE001 - whatever a processor raises
                raised.append(error)
    return noted, raised


def in_a_child(transcript: Transcript) -> list[str]:
    """Return calls and checkpoints of a transcript as `replay` notes them."""
    noted = []
    for line in transcript.lines:
        if line.startswith("! "):
            noted.append(line)
        elif line.startswith('< {"action": "checkpoint"'):
            asked = json.loads(line[2:])
            noted.append(f"checkpoint {asked['sequenceNumber']} {asked['subSequenceNumber']}")
    return noted


REPLAYED = [
    one
    for one in TRANSCRIPTS
    if one.name not in {"kclpy-v3-no-checkpoint", "kclpy-exits", "kclpy-refused-RuntimeException"}
]


@pytest.mark.parametrize("transcript", REPLAYED, ids=lambda transcript: transcript.name)
def test_a_processor_sees_what_it_sees_in_a_child(transcript: Transcript) -> None:
    noted, raised = replay(transcript)
    assert noted == in_a_child(transcript)
    # What a child only prints is an error here.
    errors = {
        "kclpy-raises": [ValueError],
        "kclpy-raises-everywhere": [ValueError] * 4,
        "kclpy-overrides-nothing": [NotImplementedError] * 4,
        "kclpy-throttled-always": [ThrottledError],
    }
    assert [type(error) for error in raised] == errors.get(transcript.name, [])


def test_sys_exit_lets_the_shard_start_again() -> None:
    (transcript,) = (one for one in TRANSCRIPTS if one.name == "kclpy-exits")
    _, (error,) = replay(transcript)
    assert isinstance(error, RestartShardError)
    assert str(error) == "the processor called sys.exit(3) in processRecords"


# On a worker


class Seen:
    """What the processors of a test did; a new processor is made for each shard and acquisition."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.fail: list[BaseException] = []
        self.made = 0

    def handlers(self, **behaviour: Any) -> Any:
        seen = self

        class Processor(processor.RecordProcessorBase):
            def __init__(self) -> None:
                seen.made += 1

            def initialize(self, given: messages.InitializeInput) -> None:
                seen.calls.append(("initialize", given.sequence_number, given.sub_sequence_number))

            def process_records(self, given: messages.ProcessRecordsInput) -> None:
                seen.calls.append(("records", *(record.binary_data for record in given.records)))
                if behaviour.get("first_only"):
                    first = given.records[0]
                    given.checkpointer.checkpoint(first.sequence_number, first.sub_sequence_number)
                if seen.fail:
                    raise seen.fail.pop()
                if not behaviour.get("first_only"):
                    given.checkpointer.checkpoint()

            def lease_lost(self, given: messages.LeaseLostInput) -> None:
                seen.calls.append(("lease_lost",))

            def shard_ended(self, given: messages.ShardEndedInput) -> None:
                seen.calls.append(("shard_ended",))
                if seen.fail:
                    raise seen.fail.pop()
                if "shard_end" in behaviour:
                    given.checkpointer.checkpoint(*behaviour["shard_end"].pop())

            def shutdown_requested(self, given: messages.ShutdownRequestedInput) -> None:
                seen.calls.append(("shutdown_requested",))

        return processor_handlers(Processor)

    def records(self) -> list[bytes]:
        return [data for call, *given in self.calls if call == "records" for data in given]


def test_a_failed_batch_comes_again_and_nothing_passes_it(kinesis_stream: Any, kinesis_worker: Any) -> None:
    kinesis_stream.put("k", b"1", b"2")
    seen = Seen()
    seen.fail = [ValueError("third"), ValueError("second"), ValueError("first")]
    worker = kinesis_worker(seen.handlers())
    worker.run_for(60)
    kinesis_stream.put("k", b"3")
    worker.run_for(60)
    worker.stop()
    assert seen.made == 1
    assert seen.calls == [
        ("initialize", "TRIM_HORIZON", 0),
        *[("records", b"1", b"2")] * 2,
        *[("records", b"1")] * 2,  # in smaller parts from the second failure on
        ("records", b"2"),
        ("records", b"3"),
        ("shutdown_requested",),
    ]


def test_records_that_a_failed_call_checkpointed_do_not_come_again(
    kinesis_stream: Any, kinesis_worker: Any
) -> None:
    kinesis_stream.put_aggregate([("k", b"1"), ("k", b"2"), ("k", b"3")])
    seen = Seen()
    seen.fail = [ValueError("after the first"), ValueError("after the first")]
    worker = kinesis_worker(seen.handlers(first_only=True))
    worker.run_for(60)
    assert seen.calls[1:] == [("records", b"1", b"2", b"3"), ("records", b"2", b"3"), ("records", b"3")]
    (lease,) = worker.leases.list()
    assert lease.checkpoint.sub_sequence_number == 2


def test_sys_exit_brings_another_processor_at_the_checkpoint(
    kinesis_stream: Any, kinesis_worker: Any
) -> None:
    kinesis_stream.put_aggregate([("k", b"1"), ("k", b"2")])
    seen = Seen()
    seen.fail = [SystemExit(3)]
    worker = kinesis_worker(seen.handlers(first_only=True))
    worker.run_for(60)
    worker.stop()
    (number,) = {record.sequence_number for record in kinesis_stream.records}
    assert seen.made == 2
    assert seen.calls == [
        ("initialize", "TRIM_HORIZON", 0),
        ("records", b"1", b"2"),
        ("initialize", number, 0),
        ("records", b"2"),
        ("shutdown_requested",),
    ]


def split(stream: Any) -> None:
    stream.aws.clock.advance(1)  # a shard that is closed at the moment of its creation has never existed
    (shard,) = stream.client.list_shards(StreamName=stream.name)["Shards"]
    stream.client.split_shard(
        StreamName=stream.name, ShardToSplit=shard["ShardId"], NewStartingHashKey=str(1 << 127)
    )


@pytest.mark.parametrize("position", [(), ("SHARD_END",), (None, 7)])
def test_the_end_of_a_shard_needs_a_checkpoint(
    kinesis_stream: Any, kinesis_worker: Any, position: tuple[Any, ...]
) -> None:
    kinesis_stream.put("k", b"1")
    split(kinesis_stream)
    seen = Seen()
    ends = [position]
    worker = kinesis_worker(seen.handlers(shard_end=ends))
    worker.run_for(120)
    assert ends == []
    assert seen.calls[:3] == [("initialize", "TRIM_HORIZON", 0), ("records", b"1"), ("shard_ended",)]
    assert seen.calls[3:] == [("initialize", "TRIM_HORIZON", 0)] * 2, "the children of the split"


def test_shard_ended_is_called_again_until_it_checkpoints(kinesis_stream: Any, kinesis_worker: Any) -> None:
    split(kinesis_stream)
    seen = Seen()
    seen.fail = [ValueError("again"), ValueError("again")]
    worker = kinesis_worker(seen.handlers(shard_end=[()]))
    worker.run_for(120)
    assert [call for call, *_ in seen.calls] == ["initialize", *["shard_ended"] * 3, *["initialize"] * 2]


def test_positions_that_cannot_be_stored(kinesis_stream: Any, kinesis_worker: Any) -> None:
    kinesis_stream.put("k", b"1")
    refused: list[tuple[str, type[BaseException] | None]] = []
    stored: list[int] = []

    class Asking(processor.RecordProcessorBase):
        def initialize(self, given: Any) -> None:
            pass

        def process_records(self, given: Any) -> None:
            number = given.records[0].sequence_number
            for position in (
                (str(int(number) + 1),),
                ("TRIM_HORIZON",),
                ("SHARD_END",),
                ("x",),
                (number, -1),
                (number, "x"),
                (number, 1),
            ):
                with pytest.raises(kcl.CheckpointError) as caught:
                    given.checkpointer.checkpoint(*position)
                refused.append((caught.value.value, type(caught.value.__cause__)))
            given.checkpointer.checkpoint(int(number), "0")
            stored.append(1)

        def shutdown_requested(self, given: Any) -> None:
            pass

    worker = kinesis_worker(processor_handlers(Asking))
    worker.run_for(10)
    assert refused == [("IllegalArgumentException", InvalidCheckpointError)] * 7
    (record,) = kinesis_stream.records
    (lease,) = worker.leases.list()
    assert (stored, lease.checkpoint) == ([1], ExtendedSequenceNumber(record.sequence_number, 0))


def test_a_processor_gets_one_batch_at_a_time_whatever_the_concurrency(
    kinesis_stream: Any, kinesis_worker: Any
) -> None:
    kinesis_stream.put("a", b"1")
    kinesis_stream.put("b", b"2")
    seen = Seen()
    config = ConsumerConfig(initial_position="TRIM_HORIZON", concurrency=8)
    kinesis_worker(seen.handlers(), config).run_for(10)
    assert seen.calls == [("initialize", "TRIM_HORIZON", 0), ("records", b"1", b"2")]


# What is a processor


def test_a_record_without_an_arrival_time_as_the_daemon_sends_it() -> None:
    record = InProcessRecord(UserRecord(b"hi", "k", "1"))
    assert (record.timestamp_millis, record.approximate_arrival_timestamp.timestamp()) == (0, 0)
    assert [record[name] for name in ("data", "action", "subSequenceNumber", "approximateArrivalTimestamp")] == [
        "aGk=", "record", 0, 0,
    ]  # fmt: skip
    with pytest.raises(KeyError):
        record.get("nothing")


class Needy(processor.RecordProcessorBase):
    def __init__(self, database: str) -> None:
        pass


class Awaiting(processor.RecordProcessorBase):
    async def process_records(self, given: Any) -> None:  # type: ignore[override]
        pass


class Yielding(processor.RecordProcessorBase):
    def process_records(self, given: Any) -> Any:
        yield given


class Unversioned:
    pass


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("module:Name", "a class of record processors"),
        (Needy, "called without arguments"),
        (Needy("x"), "a class of record processors"),
        (Awaiting, "process_records is a coroutine or a generator"),
        (Yielding, "process_records is a coroutine or a generator"),
        (Unversioned, "version is 1, 2 or 3, not None"),
    ],
)
def test_what_is_no_processor_is_refused(target: object, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        processor_handlers(target)
    assert caught.value.field == "--in-process"


def test_a_function_that_returns_a_processor() -> None:
    assert isinstance(processor_handlers(lambda: Needy("x"))(), ProcessorHandler)
    with pytest.raises(ConfigError, match="not None"):
        processor_handlers(partial(Unversioned))()


def test_processors_of_amazon_kclpy_catch_their_own_error(
    kinesis_stream: Any, kinesis_worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class TheirsError(Exception):
        def __init__(self, value: str) -> None:
            self.value = value

    module = ModuleType("amazon_kclpy.checkpoint_error")
    module.CheckpointError = TheirsError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    caught: list[str] = []

    class Processor(processor.RecordProcessorBase):
        def initialize(self, given: Any) -> None:
            pass

        def process_records(self, given: Any) -> None:
            try:
                given.checkpointer.checkpoint("x")
            except TheirsError as error:
                caught.append(error.value)

        def shutdown_requested(self, given: Any) -> None:
            pass

    kinesis_stream.put("k", b"1")
    kinesis_worker(processor_handlers(Processor)).run_for(10)
    assert caught == ["IllegalArgumentException"]


# The command

PROPERTIES = "streamName = s\napplicationName = a\nregionName = us-east-1\n"
MODULE = """
from kinesis_sdk.kclpy.v3 import processor

class Processor(processor.RecordProcessorBase):
    pass

class Other:
    pass
"""


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("processor_of_a_test:Processor", 0, "can be run"),
        ("processor_of_a_test:Other", 2, "version is 1, 2 or 3, not None"),
        (
            "processor_of_a_test:Missing",
            2,
            "--in-process: module 'processor_of_a_test' has no attribute 'Missing'",
        ),
        ("no_such_module_here:Processor", 2, "--in-process: there is no module 'no_such_module_here'"),
        ("Processor", 2, "expected module:attribute"),
    ],
)
def test_the_command_takes_a_processor_in_place_of_an_executable(
    name: str, code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    from kinesis_sdk.cli.main import cli

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "processor_of_a_test.py").write_text(MODULE)
    (tmp_path / "app.properties").write_text(PROPERTIES)
    try:
        result = CliRunner().invoke(cli, ["multilang", "app.properties", "--check", "--in-process", name])
    finally:
        sys.modules.pop("processor_of_a_test", None)
    assert (result.exit_code, said in result.output) == (code, True), result.output
