"""`kinesis_handler`: what is processed, what Lambda is told, and what that leads to."""

from __future__ import annotations

import logging
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk import (
    ConfigError,
    ConsumerInterceptor,
    DeliveredBatch,
    DeserializationError,
    InvalidEventError,
    KinesisSdkError,
    UserRecord,
)
from kinesis_sdk.common.aggregate_writer import Aggregate
from kinesis_sdk.common.hashkeys import hash_partition_key
from kinesis_sdk.common.headers import encode_headers
from kinesis_sdk.lambda_events import KinesisEvent, RecentProgress, kinesis_handler
from tests import fuzz
from tests.lambda_events.support import ARN, SHARD, EventSourceMapping, document, event, record


class Function:
    """A function of one record that fails for some payloads.

    Args:
        failing: Payloads, with how often each fails; -1 for always.
        error: What it raises.
    """

    __name__ = "function"

    def __init__(self, failing: dict[str, int] | None = None, error: type[Exception] = RuntimeError) -> None:
        self.failing = dict(failing or {})
        self.error = error
        self.seen: list[str] = []
        self.processed: list[str] = []

    def __call__(self, record: UserRecord) -> None:
        text = record.data.decode()
        self.seen.append(text)
        left = self.failing.get(text, 0)
        if left:
            self.failing[text] = left - 1
            raise self.error(text)
        self.processed.append(text)


THREE = event(["a"], ["b", "c", "d"], ["e"])
AT_101 = {"batchItemFailures": [{"itemIdentifier": "101"}]}
NONE: dict[str, Any] = {"batchItemFailures": []}


def test_every_user_record_is_processed_in_order() -> None:
    function = Function()
    assert kinesis_handler(function)(THREE, None) == NONE
    assert function.processed == ["a", "b", "c", "d", "e"]


class Noting(ConsumerInterceptor):
    """Notes each call, and delivers the payload in capitals."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    @contextmanager
    def on_batch(self, batch: DeliveredBatch) -> Iterator[Sequence[UserRecord]]:
        (record,) = batch.records
        self.heard.append((str(batch.stream), batch.shard_id, record.data))
        try:
            yield [record._replace(data=record.data.upper())]
        except RuntimeError as error:
            self.heard.append(str(error))
            raise


def test_interceptors_stand_around_each_call() -> None:
    noting, dead = Noting(), []
    function = Function({"B": 2})
    handler = kinesis_handler(
        interceptors=[noting], attempts=2, dead_letter=lambda record, error: dead.append(record.data)
    )(function)
    assert handler(event(["a"], ["b", "c"]), None) == NONE
    assert function.processed == ["A", "C"]
    assert dead == [b"b"], "as it was delivered by Lambda"
    place = (ARN, SHARD)
    assert noting.heard == [(*place, b"a"), (*place, b"b"), "B", (*place, b"b"), "B", (*place, b"c")]
    with pytest.raises(ConfigError, match="interceptors"):
        kinesis_handler(interceptors=[Noting])  # type: ignore[list-item]


def test_headers_reach_the_function() -> None:
    aggregate = Aggregate(10_000, 10)
    for headers in ({"n": "v"}, {}):
        assert aggregate.try_append("k", None, b"x", hash_partition_key("k"), headers=encode_headers(headers))
    given_event = event(["a"])
    given_event["Records"][0]["kinesis"]["data"] = b64encode(aggregate.encode()).decode()
    seen: list[Any] = []
    kinesis_handler(lambda record: seen.append(record.headers))(given_event, None)
    assert seen == [{"n": b"v"}, {}]


def test_the_decorated_function_is_still_there() -> None:
    @kinesis_handler(report_batch_item_failures=True)
    def handler(record: UserRecord) -> None:
        """Store a record."""
        seen.append(record.data)

    seen: list[bytes] = []
    assert handler.__name__ == "handler"
    assert handler.__doc__ == "Store a record."
    handler.__wrapped__(UserRecord(b"x", "k", "1"))  # type: ignore[attr-defined]
    assert seen == [b"x"]


def test_a_failure_inside_an_aggregate_names_its_kinesis_record() -> None:
    function = Function({"c": -1})
    assert kinesis_handler(report_batch_item_failures=True)(function)(THREE, None) == AT_101
    assert function.seen == ["a", "b", "c"]


def test_a_failure_in_the_first_kinesis_record_is_an_error_so_that_lambda_halves_the_batch() -> None:
    function = Function({"b": -1})
    handler = kinesis_handler(report_batch_item_failures=True)(function)
    with pytest.raises(RuntimeError, match="b"):
        handler(event(["a", "b"], ["c"]), None)
    assert function.seen == ["a", "b"]


def test_without_reported_failures_every_failure_is_an_error() -> None:
    """Lambda would take a partial result as success."""
    with pytest.raises(RuntimeError, match="e"):
        kinesis_handler(Function({"e": -1}))(THREE, None)


def test_a_failure_is_logged_with_its_cause_and_without_payloads(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_record: UserRecord) -> None:
        raise RuntimeError("no connection")

    handler = kinesis_handler(report_batch_item_failures=True)(
        lambda r: fail(r) if r.data == b"secret" else None
    )
    handler(event(["a"], ["b", "secret"]), None)
    (line,) = caplog.records
    assert f"record 101 of {SHARD}: 1 of 2" in line.getMessage()
    assert line.levelno == logging.ERROR
    assert "no connection" in caplog.text
    assert "secret" not in line.getMessage()


async def coroutine(record: UserRecord) -> None: ...


def generator(record: UserRecord) -> Iterator[None]:
    yield


async def asynchronous_generator(record: UserRecord) -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize("function", [coroutine, generator, asynchronous_generator])
def test_a_function_that_has_done_nothing_yet_is_rejected(function: Any) -> None:
    """Its record would count as processed; not even a dead letter."""
    handler = kinesis_handler(dead_letter=lambda *_: pytest.fail("not poison"))(function)
    with pytest.raises(TypeError, match="not a coroutine"):
        handler(event(["a"]), None)


def test_a_tumbling_window_needs_the_event() -> None:
    with pytest.raises(InvalidEventError, match=r"window: .* use KinesisEvent"):
        kinesis_handler(Function())(document("kinesis-aws-guide-window"), None)
    assert len(KinesisEvent(document("kinesis-aws-guide-window")).user_records) == 2


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"report_batch_item_failures": 1}, "report_batch_item_failures"),
        ({"attempts": 0, "dead_letter": print}, "attempts"),
        ({"attempts": 2}, "attempts=2 .* 1 without dead_letter"),
        ({"time_reserve": -1}, "time_reserve"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        kinesis_handler(**arguments)
    with pytest.raises(ConfigError, match="function"):
        kinesis_handler()(7)  # type: ignore[arg-type]


# Dead letters


def test_a_dead_letter_counts_as_processed_and_the_rest_of_its_aggregate_goes_on() -> None:
    function = Function({"c": -1})
    dead: list[tuple[bytes, str]] = []
    handler = kinesis_handler(dead_letter=lambda r, e: dead.append((r.data, str(e))), attempts=3)(function)
    assert handler(THREE, None) == NONE
    assert function.seen == ["a", "b", "c", "c", "c", "d", "e"]
    assert dead == [(b"c", "c")]


def test_a_transient_failure_is_no_dead_letter() -> None:
    function = Function({"c": 2})
    handler = kinesis_handler(dead_letter=lambda *_: pytest.fail("not poison"), attempts=3)(function)
    assert handler(THREE, None) == NONE
    assert function.processed == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("error", [ConnectionError, KinesisSdkError])
def test_errors_that_say_nothing_about_the_record_fail_it(error: type[Exception]) -> None:
    function = Function({"c": -1}, error)
    handler = kinesis_handler(
        report_batch_item_failures=True,
        dead_letter=lambda *_: pytest.fail("not poison"),
        attempts=3,
        retry_only=(ConnectionError,),
    )(function)
    assert handler(THREE, None) == AT_101
    assert function.seen == ["a", "b", "c"]


def test_a_payload_that_cannot_be_decoded_is_poison_as_for_a_worker() -> None:
    def wrong(text: str) -> DeserializationError:
        return DeserializationError(
            text, stream="s", shard_id=None, sequence_number="1", sub_sequence_number=0
        )

    function, dead = Function({"c": -1}, wrong), []
    handler = kinesis_handler(dead_letter=lambda r, _: dead.append(r.data))(function)
    assert handler(THREE, None) == NONE
    assert dead == [b"c"]


def test_a_dead_letter_that_is_a_coroutine_has_stored_nothing() -> None:
    async def later(_record: UserRecord, _error: Exception) -> None:
        """Store it."""

    handler = kinesis_handler(dead_letter=later)(Function({"a": -1}))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not a coroutine"):
        handler(event(["a"]), None)


def test_a_record_whose_dead_letter_cannot_be_stored_has_failed() -> None:
    def full(_record: UserRecord, _error: Exception) -> None:
        raise OSError("queue is full")

    handler = kinesis_handler(report_batch_item_failures=True, dead_letter=full)(Function({"c": -1}))
    assert handler(THREE, None) == AT_101


# Time


class Context:
    """Lambda's context: the time that is left, in milliseconds, falls with every record."""

    def __init__(self, *left: int) -> None:
        self.left = list(left)

    def get_remaining_time_in_millis(self) -> int:
        return self.left.pop(0)


def test_no_record_is_begun_when_the_timeout_is_near(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    function = Function()
    handler = kinesis_handler(report_batch_item_failures=True, time_reserve=2.0)(function)
    assert handler(THREE, Context(5000, 3000, 1999)) == AT_101
    assert function.seen == ["a", "b", "c"]
    assert caplog.records[0].levelno == logging.INFO
    assert "stopped in time" in caplog.text


def test_the_first_record_is_processed_however_little_time_is_left() -> None:
    function = Function()
    handler = kinesis_handler(report_batch_item_failures=True, time_reserve=2.0)(function)
    with pytest.raises(TimeoutError, match="less than 2 s"):
        handler(event(["a", "b"], ["c"]), Context(0))
    assert function.seen == ["a"]
    assert handler(event(["a"]), Context()) == NONE


# Records that come again


def test_user_records_that_were_processed_are_not_processed_again() -> None:
    function = Function({"c": 1})
    progress = RecentProgress()
    handler = kinesis_handler(report_batch_item_failures=True, progress=progress)(function)
    assert handler(THREE, None) == AT_101
    again = {"Records": THREE["Records"][1:]}
    assert handler(again, None) == NONE
    assert function.seen == ["a", "b", "c", "c", "d", "e"]
    assert handler(THREE, None) == NONE
    assert function.processed == ["a", "b", "c", "d", "e"]


def test_the_same_number_in_another_shard_is_another_record() -> None:
    function = Function()
    handler = kinesis_handler(progress=RecentProgress())(function)
    other = event(["b"])
    other["Records"][0]["eventID"] = "shardId-000000000001:100"
    handler(event(["a"]), None)
    handler(other, None)
    assert function.processed == ["a", "b"]


class BrokenProgress:
    def __init__(self, *, loads: bool) -> None:
        self.loads = loads

    def load(self, _key: str) -> int:
        if self.loads:
            return 0
        raise OSError("no table")

    def store(self, _key: str, _processed: int) -> None:
        raise OSError("no table")


def test_progress_that_cannot_be_loaded_fails_the_record_before_it_is_processed() -> None:
    function = Function()
    with pytest.raises(OSError, match="no table"):
        kinesis_handler(progress=BrokenProgress(loads=False))(function)(THREE, None)
    assert function.seen == []


def test_progress_that_cannot_be_stored_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    function = Function()
    assert kinesis_handler(progress=BrokenProgress(loads=True))(function)(event(["a"]), None) == NONE
    assert f"{ARN}:{SHARD}:100 could not" in caplog.text


def test_recent_progress_forgets_what_is_oldest() -> None:
    progress = RecentProgress(max_records=2)
    for key in ("a", "b", "a", "c"):
        progress.store(key, 1)
    assert [progress.load(key) for key in "abc"] == [1, 0, 1]
    assert len(progress) == 2
    with pytest.raises(ConfigError, match="max_records"):
        RecentProgress(0)


# What it leads to, with Lambda's side


SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=12)


def shard(shape: list[int]) -> tuple[list[dict[str, Any]], list[str]]:
    """A shard's records by the number of user records in each, and all payloads."""
    names = [[f"{index}.{sub}" for sub in range(count)] for index, count in enumerate(shape)]
    return [record(100 + index, item) for index, item in enumerate(names)], [
        name for item in names for name in item
    ]


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=25, fuzz=1_000))
@given(SHAPES, st.data(), st.booleans(), st.booleans(), st.booleans(), st.integers(1, 12))
def test_nothing_is_lost_and_nothing_overtakes(
    shape: list[int], data: st.DataObject, report: bool, bisect: bool, remember: bool, batch_size: int
) -> None:
    """Failures that pass: every user record is processed, and none before all earlier ones were."""
    records, payloads = shard(shape)
    failing = data.draw(st.dictionaries(st.sampled_from(payloads), st.integers(1, 3)))
    function = Function(failing)
    progress = RecentProgress() if remember else None
    handler = kinesis_handler(report_batch_item_failures=report, progress=progress)(function)
    mapping = EventSourceMapping(handler, batch_size=batch_size, report=report, bisect=bisect)
    mapping.run(records)
    assert list(dict.fromkeys(function.processed)) == payloads
    counts = Counter(function.processed)
    if remember:
        assert set(counts.values()) == {1}
    if report:
        # Only what stands before a failure in the same Kinesis record, or in the first one of its event, is repeated.
        assert max(counts.values()) <= 1 + sum(failing.values())


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=40, fuzz=1_000))
@given(SHAPES, st.data(), st.booleans(), st.integers(1, 12), st.integers(0, 3))
def test_bisecting_isolates_a_poison_record(
    shape: list[int], data: st.DataObject, report: bool, batch_size: int, max_retries: int
) -> None:
    """The mapping discards the Kinesis record with the poison, and nothing else."""
    records, payloads = shard(shape)
    poison = data.draw(st.sampled_from(payloads))
    function = Function({poison: -1})
    handler = kinesis_handler(report_batch_item_failures=report)(function)
    mapping = EventSourceMapping(
        handler, batch_size=batch_size, report=report, bisect=True, max_retries=max_retries
    )
    mapping.run(records)
    index = int(poison.split(".")[0])
    assert mapping.discarded == [records[index]]
    behind = [name for name in payloads if name.split(".")[0] == str(index) and name >= poison]
    assert set(payloads) - set(function.processed) == set(behind)


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=50, fuzz=1_000))
@given(SHAPES, st.data(), st.integers(1, 12))
def test_a_dead_letter_saves_the_rest_of_the_aggregate(
    shape: list[int], data: st.DataObject, batch_size: int
) -> None:
    records, payloads = shard(shape)
    poison = data.draw(st.sampled_from(payloads))
    dead: list[str] = []
    function = Function({poison: -1})
    handler = kinesis_handler(dead_letter=lambda r, _: dead.append(r.data.decode()))(function)
    mapping = EventSourceMapping(handler, batch_size=batch_size, max_retries=0)
    mapping.run(records)
    assert (dead, mapping.discarded) == ([poison], [])
    assert function.processed == [name for name in payloads if name != poison]
