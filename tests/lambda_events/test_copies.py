"""Repetitions of idempotent producers behind Lambda: partial batches, retries, and look-ups."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kinesis_sdk import ConfigError, UserRecord
from kinesis_sdk.common.errors import TransientAwsError
from kinesis_sdk.common.once.table import NAMED, REPEAT
from kinesis_sdk.lambda_events import KinesisEvent, RecentProgress, kinesis_handler
from kinesis_sdk.lambda_events.copies import LOOK_UP_BYTES, open_records
from kinesis_sdk.testing import Fault
from tests.lambda_events.repetitions import CHILD, LEFT, RIGHT, SHARD, STREAM, World
from tests.lambda_events.support import ARN


@pytest.fixture
def world() -> World:
    return World()


def data(event: KinesisEvent) -> list[int]:
    return [int(record.data) for record in event.user_records]


def test_copies_in_one_event_are_dropped_without_a_client(world: World) -> None:
    world.put(1, 2)
    world.put(2, 1, 3, flags=REPEAT)
    opened = KinesisEvent(world.event())
    assert data(opened) == [1, 2, 3]
    assert [[int(user.data) for user in delivery.user_records] for delivery in opened] == [[1, 2], [3]]
    last = opened.user_records[-1]
    assert (last.sub_sequence_number, last.id.rsplit("/", 1)[1]) == (2, "2")


@pytest.mark.parametrize("looks_up", [True, False])
def test_a_copy_of_an_earlier_event_is_looked_up(world: World, looks_up: bool) -> None:
    world.put(1)
    world.put(1, flags=REPEAT)
    world.put(2, date=int(world.clock.time() * 1000))
    opened = KinesisEvent(world.event(1), look_up=world.client if looks_up else None)
    assert data(opened) == ([2] if looks_up else [1, 2])
    assert opened.success() == {"batchItemFailures": []}


def test_a_record_whose_name_was_taken_is_named_in_the_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.put(1, flags=NAMED)
    world.put(1, flags=NAMED)
    assert data(KinesisEvent(world.event())) == [1]
    assert "dedup_id" in caplog.text


def test_without_recognition_every_copy_is_processed(world: World) -> None:
    world.put(1)
    world.put(1, 2, flags=REPEAT)
    seen = []

    @kinesis_handler(look_up=world.client, recognize=False)
    def handler(record: UserRecord) -> None:
        seen.append(int(record.data))

    event = world.event()
    before = world.aws.stats()["calls"].get("GetRecords")
    handler(event, None)
    assert seen == [1, 1, 2]
    assert world.aws.stats()["calls"].get("GetRecords") == before
    with pytest.raises(ConfigError, match="recognize=1"):
        kinesis_handler(recognize=1)  # type: ignore[call-overload]


def test_beyond_the_budget_a_copy_is_delivered_and_said(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.put(1)
    world.put(1, flags=REPEAT)
    opened = KinesisEvent(world.event(1), look_up=world.client, look_up_bytes=0)
    calls = dict(world.aws.stats()["calls"])
    assert data(opened) == [1]
    assert world.aws.stats()["calls"].get("GetRecords") == calls.get("GetRecords")
    assert "may be repetitions: look_up_bytes" in caplog.text
    with pytest.raises(ConfigError, match="look_up_bytes=-1"):
        KinesisEvent(world.event(), look_up_bytes=-1)


@pytest.mark.parametrize(
    ("left", "reserve", "looks_up"), [(9.0, 2.0, True), (2.0, 2.0, False), (1.0, 2.0, False)]
)
def test_a_look_up_leaves_time_for_the_records(
    world: World, left: float, reserve: float, looks_up: bool
) -> None:
    class Context:
        def get_remaining_time_in_millis(self) -> int:
            return int(left * 1000)

    world.put(1)
    world.put(1, flags=REPEAT)
    seen = []

    @kinesis_handler(look_up=world.client, time_reserve=reserve)
    def handler(record: UserRecord) -> None:
        seen.append(int(record.data))

    handler(world.event(1), Context())
    assert seen == ([] if looks_up else [1])


def test_a_look_up_may_take_a_quarter_of_the_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    class Context:
        def get_remaining_time_in_millis(self) -> int:
            return 10_000

    asked: list[tuple[float | None, int]] = []

    def spy(*args: Any, **settings: Any) -> list[Any]:
        asked.append((settings["look_up_seconds"], settings["look_up_bytes"]))
        return open_records(*args, **settings)

    monkeypatch.setattr("kinesis_sdk.lambda_events.events.open_records", spy)
    world.put(1)
    for client, context in ((world.client, Context()), (world.client, None), (None, Context())):
        kinesis_handler(look_up=client, time_reserve=2.0)(lambda record: None)(world.event(), context)
    assert asked == [(2.0, 4_000_000), (None, LOOK_UP_BYTES), (None, LOOK_UP_BYTES)]
    with pytest.raises(ConfigError, match="look_up_seconds=901"):
        KinesisEvent(world.event(), look_up_seconds=901)


def test_a_throttled_look_up_ends_in_time_and_says_so(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.put(1)
    world.put(1, flags=REPEAT)
    carriers = KinesisEvent(world.event(1)).kinesis_records
    world.aws.faults.add(
        Fault(kind="error", operation="GetRecords", code="ProvisionedThroughputExceededException", status=400)
    )
    opened = open_records(
        carriers,
        stream_arn=ARN,
        shard_id=SHARD,
        look_up=world.client,
        look_up_seconds=3.0,
        clock=world.clock,
        sleep=world.clock.advance,
    )
    assert [len(users) for users in opened] == [1]
    assert "may be repetitions: look_up_bytes" in caplog.text


def test_a_batch_with_gaps_is_no_proof_that_there_is_no_copy(world: World) -> None:
    world.put(9)
    world.put(1)
    world.put(1, flags=REPEAT)
    event = world.event()
    event["Records"].pop(1)  # a caller left it out, or a filter of the mapping
    assert data(KinesisEvent(event, look_up=world.client)) == [9]


def test_a_misplaced_aggregate_needs_the_range_of_the_shard(world: World) -> None:
    world.client.split_shard(StreamName=STREAM, ShardToSplit=SHARD, NewStartingHashKey=str(2**127))
    world.clock.advance(30)
    world.put(1, 2, date=int(world.clock.time() * 1000), keys=[LEFT, RIGHT])
    world.put(1, date=int(world.clock.time() * 1000), keys=[LEFT], made_for=CHILD)
    event = world.event(shard_id=CHILD)
    assert data(KinesisEvent(event)) == [1, 2, 1]
    assert data(KinesisEvent(event, look_up=world.client)) == [1]


def test_no_call_is_made_for_ordinary_records(world: World) -> None:
    world.client.put_record(StreamName=STREAM, PartitionKey="k", Data=b"7")
    world.put(1, date=int(world.clock.time() * 1000) + 5000)
    assert data(KinesisEvent(world.event(), look_up=object())) == [7, 1]  # type: ignore[arg-type]


def test_a_denied_look_up_processes_the_record_and_says_so(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.put(1)
    world.put(1, flags=REPEAT)
    event = world.event(1)
    world.aws.faults.add(
        Fault(kind="error", operation="GetShardIterator", code="AccessDeniedException", status=400)
    )
    with caplog.at_level(logging.WARNING):
        assert data(KinesisEvent(event, look_up=world.client)) == [1]
    assert "may be repetitions" in caplog.text


def test_a_look_up_that_keeps_failing_fails_the_batch(world: World) -> None:
    world.put(1)
    world.put(1, flags=REPEAT)
    carriers = KinesisEvent(world.event(1)).kinesis_records
    world.aws.faults.add(Fault(kind="error", operation="GetRecords"))
    with pytest.raises(TransientAwsError):
        open_records(
            carriers, stream_arn=ARN, shard_id=SHARD, look_up=world.client, sleep=world.clock.advance
        )


def test_the_handler_skips_what_is_dropped(world: World) -> None:
    world.put(1, 2)
    world.put(1, 2, flags=REPEAT)
    world.put(2, 3, flags=REPEAT)
    seen: list[int] = []

    @kinesis_handler(report_batch_item_failures=True, look_up=world.client)
    def handler(record: UserRecord) -> None:
        seen.append(int(record.data))

    assert handler(world.event(), None) == {"batchItemFailures": []}
    assert handler(world.event(1), None) == {"batchItemFailures": []}
    assert seen == [1, 2, 3, 3]


def test_progress_is_kept_where_two_invocations_drop_different_records(world: World) -> None:
    """The first attempt may not look up and delivers 1, then fails at 2; the second one drops 1, and must not skip 2 for it."""
    world.put(1)
    world.put(1, 2, flags=REPEAT)
    event = world.event(1)
    seen: list[int] = []
    fails = True

    def function(record: UserRecord) -> None:
        if fails and record.data == b"2":
            raise RuntimeError("not yet")
        seen.append(int(record.data))

    progress = RecentProgress()
    with pytest.raises(RuntimeError):
        kinesis_handler(report_batch_item_failures=True, progress=progress)(function)(event, None)
    fails = False
    second = kinesis_handler(report_batch_item_failures=True, progress=progress, look_up=world.client)(
        function
    )
    assert second(event, None) == {"batchItemFailures": []}
    assert seen == [1, 2]


def test_progress_behind_a_dropped_record_is_a_position_and_no_count(world: World) -> None:
    world.put(2)
    world.put(1, 2, 3, 4, flags=REPEAT)
    seen: list[int] = []

    @kinesis_handler(report_batch_item_failures=True, progress=RecentProgress())
    def handler(record: UserRecord) -> None:
        seen.append(int(record.data))
        if seen.count(4) == 1 and seen[-1] == 4:
            raise RuntimeError("not yet")

    event = world.event()
    assert handler(event, None) != {"batchItemFailures": []}
    assert seen == [2, 1, 3, 4]
    assert handler(event, None) == {"batchItemFailures": []}
    assert seen == [2, 1, 3, 4, 4], "each record before the failed one was processed once"


def test_without_a_stream_nothing_is_dropped(world: World) -> None:
    world.put(1)
    world.put(1, flags=REPEAT)
    carriers = KinesisEvent(world.event()).kinesis_records
    for arn in ("", "arn:aws:dynamodb:eu-west-1:1:table/orders/stream/x", "nonsense/"):
        assert sum(map(len, open_records(carriers, stream_arn=arn, shard_id=SHARD))) == 2


def test_the_client_is_checked() -> None:
    with pytest.raises(ConfigError, match="look_up"):
        kinesis_handler(look_up=True)  # type: ignore[call-overload]


@pytest.mark.parametrize("made_for", [SHARD, CHILD])
@pytest.mark.parametrize("together", [True, False])
def test_a_copy_that_was_made_for_the_parent_is_valid_in_the_child(
    world: World, made_for: str, together: bool
) -> None:
    """The producer's map was old, and the answer was lost. Only the child's range shows that its first copy counts."""
    world.client.split_shard(StreamName=STREAM, ShardToSplit=SHARD, NewStartingHashKey=str(2**127))
    world.clock.advance(30)
    world.put(1, made_for=SHARD)
    world.put(1, flags=REPEAT, made_for=made_for)
    ends = [(0, None)] if together else [(0, 1), (1, None)]
    found = [
        number
        for begin, end in ends
        for number in data(KinesisEvent(world.event(begin, end, CHILD), look_up=world.client))
    ]
    assert found == [1]


def test_a_look_up_lists_the_shards_once(world: World) -> None:
    world.put(1)
    world.put(1, flags=REPEAT)
    calls: list[str] = []

    class Counting:
        def __getattr__(self, name: str) -> Any:
            calls.append(name)
            return getattr(world.client, name)

    event = world.event(1)
    assert data(KinesisEvent(event, look_up=Counting())) == []  # type: ignore[arg-type]
    assert sorted(set(calls)) == ["get_records", "get_shard_iterator", "list_shards"]
    assert calls.count("list_shards") == 1
