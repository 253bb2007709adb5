from __future__ import annotations

import gc
import pickle
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kinesis_sdk.common.errors import ConfigError, InvalidRecordError
from kinesis_sdk.common.once.table import FIRST, NAMED, REPEAT
from kinesis_sdk.producer import Producer, ProducerConfig
from kinesis_sdk.spark import (
    KinesisPartitionWriter,
    PartitionFailedError,
    ProducerSettings,
    logs,
    partition,
    shared_producer,
)
from kinesis_sdk.spark.attempts import Attempt
from kinesis_sdk.spark.partition import TaskProducer
from kinesis_sdk.testing import FakeAws, Fault
from tests.delivered import delivered
from tests.spark.producers import STREAM, account, flags_of, headers_of

SETTINGS = ProducerSettings(config=ProducerConfig(record_max_buffered_time=0.001))
THROTTLED = "ProvisionedThroughputExceededException"


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAws]:
    with account(monkeypatch) as aws:
        yield aws


def origin_upper(row: dict[str, Any]) -> str:
    return str(row["origin"]).upper()


def test_every_row_is_stored_when_the_function_returns(aws: FakeAws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "_SWEEP", 1_000)
    writer = KinesisPartitionWriter(STREAM, partition_key="origin", data="line", settings=SETTINGS)
    rows = [{"origin": f"A{i % 7}", "line": f"row {i}"} for i in range(2_500)]
    writer(iter(rows))
    (producer,) = partition._producers.values()
    stats = producer.stats()
    assert stats.user_records_stored == 2_500
    assert stats.buffered_bytes == 0


class WaitingRecord:
    """A record that the producer accepted and has not sent yet."""

    def __init__(self) -> None:
        self._exception: Exception | None = None
        self.is_final = False
        self.asked = 0

    def done(self) -> bool:
        self.asked += 1
        return self.is_final

    def exception(self) -> Exception | None:
        self.is_final = True
        return self._exception


def task_of_waiting_records() -> tuple[TaskProducer, list[WaitingRecord]]:
    accepted: list[WaitingRecord] = []

    def put(*_record: Any, **_names: Any) -> WaitingRecord:
        accepted.append(WaitingRecord())
        return accepted[-1]

    return TaskProducer(SimpleNamespace(put=put, flush=lambda: None)), accepted  # type: ignore[arg-type]


def test_records_that_became_final_in_the_middle_of_a_task_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "_SWEEP", 3)
    task, accepted = task_of_waiting_records()
    for _ in range(10):
        task.put(STREAM, "a", b"x")
        accepted[-1].is_final = True
    assert task.accepted == 10
    assert task.flush() == 10


def test_columns_stop_at_a_failure_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "_SWEEP", 3)
    task, accepted = task_of_waiting_records()
    task.put(STREAM, "a", b"x")
    accepted[0].is_final, accepted[0]._exception = True, RuntimeError("the shard was full")
    with pytest.raises(PartitionFailedError, match="1 records of this task were not stored"):
        task.put_columns(STREAM, ["k"] * 100, [b"x"] * 100)
    assert len(accepted) == 3


def test_the_failure_of_a_record_is_noticed_however_many_records_wait_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partition, "_SWEEP", 3)
    task, accepted = task_of_waiting_records()
    for _ in range(10):
        task.put(STREAM, "a", b"x")
    assert task.accepted == 10
    assert sum(record.asked for record in accepted) == 3 + 6 + 9, "not all of them at each put"
    accepted[0]._exception = RuntimeError("the shard was full")
    with pytest.raises(PartitionFailedError, match=r"1 records of this task were not stored .* 9 were"):
        task.flush()


def test_tasks_of_one_process_share_a_producer(aws: FakeAws) -> None:
    for _ in range(3):
        with shared_producer(SETTINGS) as producer:
            producer.put(STREAM, "a", b"x")
    assert len(partition._producers) == 1


def test_a_worker_process_that_was_forked_makes_a_producer_of_its_own(
    aws: FakeAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shared_producer(SETTINGS) as producer:
        producer.put(STREAM, "a", b"x")
    (parents,) = partition._producers.values()
    # After a fork the child has the parent's dictionary, and its producer is dead: no thread survives a fork.
    monkeypatch.setattr(partition, "os", SimpleNamespace(getpid=lambda: -1))
    with shared_producer(SETTINGS) as producer:
        producer.put(STREAM, "a", b"x")
    with shared_producer(SETTINGS) as producer:
        producer.put(STREAM, "a", b"x")
    own = [producer for producer in partition._producers.values() if producer is not parents]
    assert [producer.stats().user_records_stored for producer in own] == [2]
    assert parents.stats().user_records_stored == 1


def test_functions_and_explicit_hash_keys(aws: FakeAws) -> None:
    writer = KinesisPartitionWriter(
        STREAM,
        partition_key=origin_upper,
        data="line",
        explicit_hash_key=lambda _row: 2**127,
        settings=SETTINGS,
    )
    writer([{"origin": "lax", "line": b"x"}])
    (producer,) = partition._producers.values()
    assert producer.stats().user_records_stored == 1


def test_a_failed_record_fails_the_task_with_counts_by_cause(aws: FakeAws) -> None:
    aws.faults.add(Fault(kind="partial", operation="PutRecords", code=THROTTLED))
    settings = ProducerSettings(config=ProducerConfig(record_max_buffered_time=0.001, fail_if_throttled=True))
    writer = KinesisPartitionWriter(STREAM, partition_key="origin", data="line", settings=settings)
    with pytest.raises(PartitionFailedError) as caught:
        writer([{"origin": "LAX", "line": b"x"}, {"origin": "SFO", "line": b"y"}])
    assert caught.value.failed == 2
    assert caught.value.causes == {THROTTLED: 2}
    assert THROTTLED in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.causes == {THROTTLED: 2}


def test_a_failure_of_one_task_does_not_haunt_the_next(aws: FakeAws) -> None:
    aws.faults.add(Fault(kind="partial", operation="PutRecords", code=THROTTLED))
    settings = ProducerSettings(config=ProducerConfig(record_max_buffered_time=0.001, fail_if_throttled=True))
    with pytest.raises(PartitionFailedError), shared_producer(settings) as producer:
        producer.put(STREAM, "a", b"x")
    aws.faults.clear()
    with shared_producer(settings) as producer:
        producer.put(STREAM, "a", b"x")
        assert producer.flush() == 1


def test_the_writer_travels_to_executors() -> None:
    writer = KinesisPartitionWriter(STREAM, partition_key=origin_upper, data="line", settings=SETTINGS)
    again = pickle.loads(pickle.dumps(writer))
    assert again.stream == STREAM
    assert again.settings == SETTINGS


def test_a_missing_column_is_named(aws: FakeAws) -> None:
    writer = KinesisPartitionWriter(STREAM, partition_key="orgin", data="line", settings=SETTINGS)
    with pytest.raises(InvalidRecordError, match="orgin"):
        writer([{"origin": "LAX", "line": b"x"}])


def test_a_partition_key_that_is_neither_column_nor_function_is_refused() -> None:
    with pytest.raises(ConfigError, match="partition_key=7"):
        KinesisPartitionWriter(STREAM, partition_key=7, data="line")  # type: ignore[arg-type]


def test_a_producer_caught_in_a_closure_names_the_fix() -> None:
    with (
        Producer(client=FakeAws().client("kinesis")) as producer,
        pytest.raises(TypeError, match="shared_producer"),
    ):
        pickle.dumps(producer)


def test_the_garbage_collector_runs_seldom_in_a_task_and_as_before_after_it(aws: FakeAws) -> None:
    before = gc.get_threshold()
    inside = []

    def note(_row: Any) -> str:
        inside.append(gc.get_threshold())
        return "k"

    writer = KinesisPartitionWriter(STREAM, partition_key=note, data="line", settings=SETTINGS)
    with pytest.raises(InvalidRecordError):
        writer([{"line": "x"}, {"other": "x"}])
    assert inside[0][0] > before[0]
    assert gc.get_threshold() == before


IDEMPOTENT = ProducerSettings(
    config=ProducerConfig(record_max_buffered_time=0.001, idempotent=True, dedup_namespace=STREAM)
)


def test_rows_with_names_are_delivered_once_although_the_task_runs_twice(aws: FakeAws) -> None:
    rows = [{"origin": f"A{i % 7}", "line": b"row %03d" % i, "id": f"row {i}"} for i in range(200)]
    named = KinesisPartitionWriter(
        STREAM, partition_key="origin", data="line", dedup_id="id", settings=IDEMPOTENT
    )
    named(iter(rows[:150]))  # the task dies here, and Spark runs it again
    named(iter(rows))
    assert delivered(aws, STREAM) == [row["line"] for row in rows]


def test_columns_with_names_are_recognized(aws: FakeAws) -> None:
    for _ in range(2):
        with shared_producer(IDEMPOTENT) as producer:
            producer.put_columns(STREAM, ["k", "k", "k"], [b"1", b"2", b"3"], dedup_ids=["1", None, "3"])
    assert delivered(aws, STREAM) == [b"1", b"2", b"2", b"3"]


def test_columns_with_headers(aws: FakeAws) -> None:
    maps = [{"n": b"v"}, None, {"n": "w"}]
    with shared_producer(IDEMPOTENT) as producer:
        producer.put_columns(STREAM, ["k"] * 3, [b"1", b"2", b"3"], headers=maps)
        producer.put_columns(STREAM, ["k"], [b"4"], headers=[{"n": b"x"}], dedup_ids=["4"])
    assert headers_of(aws) == {b"1": {"n": b"v"}, b"2": {}, b"3": {"n": b"w"}, b"4": {"n": b"x"}}


def test_rows_after_one_that_is_left_out_keep_their_names_and_headers(aws: FakeAws) -> None:
    payloads: list[Any] = [b"1", None, b"3", b"4", b"5"]
    names = ["1", "2", "3", "x" * 300, "5"]
    left_out: list[int] = []
    for _ in range(2):
        with shared_producer(IDEMPOTENT) as producer:
            producer.put_columns(
                STREAM,
                ["k"] * 5,
                payloads,
                dedup_ids=names,
                headers=[{"n": name[:1]} for name in names],
                leave_out=lambda row, _error: left_out.append(row),
            )
    assert left_out == [1, 3] * 2
    assert headers_of(aws) == {b"1": {"n": b"1"}, b"3": {"n": b"3"}, b"5": {"n": b"5"}}
    with shared_producer(IDEMPOTENT) as producer:
        producer.put_columns(STREAM, ["k"] * 3, [b"1", b"3", b"5"], dedup_ids=["1", "3", "5"])
    assert delivered(aws, STREAM) == [b"1", b"3", b"5"], "their names were their own"


def test_columns_of_a_first_attempt_say_so(aws: FakeAws) -> None:
    with shared_producer(IDEMPOTENT) as producer:
        assert producer.time_at_kinesis(STREAM) is None, "nothing has told it yet"
        producer.put_columns(STREAM, ["k"], [b"0"], dedup_ids=["0"])
    now = producer.time_at_kinesis(STREAM)
    assert now is not None
    assert -3000 < now - time.time() * 1000 <= 0
    with shared_producer(IDEMPOTENT) as producer:
        producer.put_columns(
            STREAM,
            ["k", "k", "k"],
            [b"1", b"2", b"3"],
            ["7", None, None],
            dedup_ids=["1", None, "3"],
            attempt=Attempt(now, is_first=True),
        )
    assert flags_of(aws) == {b"0": NAMED, b"1": NAMED | FIRST, b"2": 0, b"3": NAMED | FIRST}
    assert delivered(aws, STREAM) == [b"0", b"1", b"2", b"3"]


def test_names_need_an_idempotent_producer_and_fit() -> None:
    with pytest.raises(ConfigError, match="idempotent=True"):
        KinesisPartitionWriter(STREAM, partition_key="k", data="d", dedup_id="id", settings=SETTINGS)
    with pytest.raises(ConfigError, match="dedup_id"):
        KinesisPartitionWriter(STREAM, partition_key="k", data="d", dedup_id=3, settings=IDEMPOTENT)  # type: ignore[arg-type]


@pytest.mark.parametrize("attempt", [Attempt(), Attempt(1, is_first=True)], ids=["any", "first"])
def test_a_name_that_is_too_long_shows_its_row(aws: FakeAws, attempt: Attempt) -> None:
    with (
        pytest.raises(InvalidRecordError, match=r"row 2 of this task"),
        shared_producer(IDEMPOTENT) as producer,
    ):
        producer.put_columns(STREAM, ["k", "k"], [b"1", b"2"], dedup_ids=["1", "x" * 257], attempt=attempt)


def test_rows_of_a_task_that_runs_again_say_that_they_may_be_copies(
    aws: FakeAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So readers that leave them out warn of no name that was taken."""
    rows = [{"origin": "A", "line": b"put", "id": "row"}]
    writer = KinesisPartitionWriter(
        STREAM, partition_key="origin", data="line", dedup_id="id", settings=IDEMPOTENT
    )
    for attempt in (0, 1):
        task = SimpleNamespace(attemptNumber=lambda attempt=attempt: attempt, partitionId=lambda: 0)
        monkeypatch.setattr(logs, "_task_context", lambda task=task: task)
        writer(iter([{**rows[0], "line": b"put %d" % attempt}]))
        with shared_producer(IDEMPOTENT) as producer:
            producer.put_columns(STREAM, ["k"], [b"columns %d" % attempt], dedup_ids=["c"])
    assert flags_of(aws) == {
        b"put 0": NAMED,
        b"columns 0": NAMED,
        b"put 1": NAMED | REPEAT,
        b"columns 1": NAMED | REPEAT,
    }
    assert delivered(aws, STREAM) == [b"columns 0", b"put 0"]
