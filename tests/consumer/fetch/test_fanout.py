from __future__ import annotations

import threading
from itertools import pairwise

import pytest
from botocore.exceptions import ClientError

from kinesis_sdk.common.errors import (
    ConfigError,
    InvalidPositionError,
    PermanentAwsError,
    ProtocolError,
    ResourceNotFoundError,
    ThrottledError,
    TransientAwsError,
)
from kinesis_sdk.common.position import AfterSequence, AtSequence, AtTimestamp, Latest, TrimHorizon
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.response_header import ResponseHeader
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer import ConsumerConfig, LeaseConfig
from kinesis_sdk.consumer.fetch import ByteBudget, FetchResult
from kinesis_sdk.consumer.fetch.budget import Expansion
from kinesis_sdk.consumer.fetch.events import joined
from kinesis_sdk.consumer.fetch.registration import ConsumerRegistration
from kinesis_sdk.testing import Fault
from tests import HANG
from tests.consumer.fetch.fan_out import GARBLED, GOOD, SHARD, FanOutEngine, Rig
from tests.consumer.fleet import engines
from tests.consumer.fleet.engines import Fleet
from tests.fuzz import seeds

NEVER = float("inf")


def refuse(code, status=400):
    def call(method, request):
        raise ClientError(
            {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}, "X"
        )

    return call


def counter():
    numbers = iter(range(1_000_000))
    return lambda: b"%d" % next(numbers)


# Registration


def test_it_registers_under_the_applications_name_and_waits_until_active():
    rig = Rig(consumer_delay=3.0)
    rig.put(b"a")
    rig.run(2.5)
    assert rig.read == []
    assert rig.client.subscribed == []
    rig.run(2.0)
    assert rig.read == [b"a"]
    (consumer,) = rig.raw.list_stream_consumers(StreamARN=rig.arn)["Consumers"]
    assert consumer["ConsumerName"] == "app"
    assert rig.calls("RegisterStreamConsumer") == 1
    # Once a second while it is being created.
    assert rig.calls("DescribeStreamConsumer") <= 5


def test_a_registration_is_shared_and_costs_two_calls():
    rig = Rig()
    rig.raw.register_stream_consumer(StreamARN=rig.arn, ConsumerName="app")
    before = rig.calls("DescribeStreamSummary")
    for _ in range(50):
        assert rig.registration.step(0.0)
    assert rig.calls("DescribeStreamSummary") == before + 1
    assert rig.calls("DescribeStreamConsumer") == 1
    assert rig.calls("RegisterStreamConsumer") == 1


def test_two_workers_that_register_at_once():
    rig = Rig()

    def race(method, request):
        rig.raw.register_stream_consumer(StreamARN=rig.arn, ConsumerName="app")
        return method(**request)

    rig.client.instead["register_stream_consumer"] = race
    assert rig.registration.step(0.0) is None
    assert rig.registration.due == 1.0
    assert rig.registration.step(0.5) is None
    assert rig.registration.step(1.0).startswith(f"{rig.arn}/consumer/app:")


def test_one_look_at_a_time():
    rig = Rig()
    answers = []
    rig.client.instead["describe_stream_consumer"] = lambda method, request: (
        answers.append(rig.registration.step(0.0)),
        method(**request),
    )[1]
    assert rig.registration.step(0.0)
    assert answers == [None]


def test_a_consumer_that_exists_already():
    other = Rig()
    arn = other.raw.register_stream_consumer(StreamARN=other.arn, ConsumerName="mine")["Consumer"][
        "ConsumerARN"
    ]
    rig = Rig(arn=arn, polling=False)
    with pytest.raises(ResourceNotFoundError, match="DescribeStreamConsumer"):
        rig.registration.step(0.0)
    assert rig.calls("RegisterStreamConsumer") == 0
    rig.raw.register_stream_consumer(StreamARN=rig.arn, ConsumerName="mine")
    assert rig.registration.step(0.0) == arn
    assert rig.calls("RegisterStreamConsumer") == 1


@pytest.mark.parametrize(
    "named", [{"name": "a b"}, {"name": "x" * 129}, {}, {"arn": "arn:aws:kinesis:eu:1:stream/s"}]
)
def test_names_that_the_service_would_refuse(named):
    with pytest.raises(ConfigError, match="consumer_"):
        ConsumerRegistration(Rig().client, StreamId("s"), **named)


def test_a_consumer_that_somebody_deregistered_is_registered_again():
    rig = Rig()
    rig.put(b"a")
    rig.run(1)
    rig.raw.deregister_stream_consumer(StreamARN=rig.arn, ConsumerName="app")
    rig.put(b"b")
    errors = rig.run(20)
    assert rig.read == [b"a", b"b"]
    assert len(errors) == 1
    assert rig.calls("RegisterStreamConsumer") == 2
    assert not rig.fetcher.is_polling


# Reading


def test_events_come_out_in_order_with_their_lag():
    rig = Rig()
    rig.step()
    rig.pump()
    first = rig.fetch()
    assert (first.records, first.header.millis_behind_latest, first.header.ended) == ([], 0, False)
    assert rig.fetcher.due == NEVER
    rig.put(b"a", b"b")
    rig.pump()
    rig.put(b"c")
    rig.pump()
    assert rig.ready == 3
    assert rig.fetcher.due < 0
    # Everything that has arrived is one batch.
    result = rig.fetch()
    assert [record.data for record in result.records] == [b"a", b"b", b"c"]
    assert result.records[0].partition_key == "k"
    assert rig.fetch().records == []


def test_start_positions():
    rig = Rig()
    rig.put(b"a", b"b")
    numbers = []
    rig.step()
    rig.pump()
    numbers = [record.sequence_number for record in rig.fetch().records]
    for start, found in [
        (AtSequence(numbers[1]), [b"b", b"c"]),
        (AfterSequence(numbers[1]), [b"c"]),
        (AtTimestamp(int(rig.clock.time() * 1000) + 3000), [b"c"]),
        (Latest(), []),
    ]:
        rig.clock.advance(6)
        if len(rig.sent) == 2:
            rig.put(b"c")
        rig.fetcher, rig.readers, rig.due, rig.read = rig.make(start), [], rig.clock.monotonic(), []
        rig.step()
        rig.pump()
        rig.fetch()
        assert rig.read == found, start


def test_subscriptions_are_renewed_every_five_minutes_without_a_gap():
    rig = Rig()
    put = counter()
    assert rig.run(950, put=put) == []
    rig.run(2)
    assert rig.read == rig.sent
    gaps = [after - before for before, after in pairwise(rig.times())]
    # Half a second late at most, which is how often this test looks.
    assert len(gaps) == 3
    assert all(300 <= gap <= 301 for gap in gaps)
    assert all(position["Type"] == "AFTER_SEQUENCE_NUMBER" for _, position in rig.client.subscribed[1:])
    assert rig.calls("GetRecords") == 0
    assert rig.calls("DescribeStreamConsumer") == 1


def test_an_idle_shard_is_renewed_where_it_is():
    rig = Rig(Latest())
    rig.run(301)
    assert [position["Type"] for _, position in rig.client.subscribed] == ["LATEST", "AFTER_SEQUENCE_NUMBER"]
    rig.put(b"a")
    rig.run(1)
    assert rig.read == [b"a"]


def test_broken_subscriptions_lose_nothing_and_keep_the_services_rule():
    rig = Rig(seed=3)
    rig.aws.faults.add(Fault(kind="broken_stream", probability=0.05))
    put = counter()
    assert rig.run(600, put=put) == []
    rig.aws.faults.clear()
    rig.run(10)
    assert rig.read == rig.sent
    gaps = [after - before for before, after in pairwise(rig.times())]
    assert len(gaps) > 20
    assert min(gaps) >= 5.0
    # The service never had to refuse one.
    assert not any("ResourceInUse" in name for name in rig.aws.stats()["errors"])


def test_the_end_of_a_shard():
    rig = Rig()
    rig.put(b"a")
    rig.run(1)
    rig.raw.split_shard(StreamName="s", ShardToSplit=SHARD, NewStartingHashKey=str(1 << 127))
    rig.pump()
    result = rig.fetch()
    assert result.header.ended
    assert [child.shard_id[-1] for child in result.header.child_shards] == ["1", "2"]
    assert all(child.parents == (SHARD,) for child in result.header.child_shards)
    assert rig.readers == []
    assert rig.fetcher.step(rig.clock.monotonic()) is None


CHILD = {
    "ShardId": "shardId-000000000001",
    "ParentShards": [SHARD],
    "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"},
}


@pytest.mark.parametrize(
    "event",
    [
        {},
        *({**GOOD, "Records": [{"Data": b"x", "PartitionKey": "k", "SequenceNumber": n}]} for n in GARBLED),
        {**GOOD, "Records": [None]},
        {**GOOD, "Records": [{"Data": "text", "PartitionKey": "k", "SequenceNumber": "1"}]},
        {**GOOD, "ContinuationSequenceNumber": "abc"},
        {**GOOD, "ContinuationSequenceNumber": 7},
        {**GOOD, "MillisBehindLatest": "much"},
        {**GOOD, "Records": None},
        {**GOOD, "ContinuationSequenceNumber": None},
        {**GOOD, "ChildShards": [CHILD]},
        {**GOOD, "ContinuationSequenceNumber": None, "ChildShards": [{**CHILD, "ParentShards": []}]},
    ],
)
def test_events_that_break_the_contract_end_the_subscription_not_the_shard(event):
    rig = Rig()
    rig.put(b"a")
    closed = []

    class Stream:
        def __iter__(self):
            return iter([{"SomethingNew": {}}, {"SubscribeToShardEvent": event}])

        def close(self):
            closed.append(True)

    rig.client.instead["subscribe_to_shard"] = lambda method, request: {"EventStream": Stream()}
    rig.run(2)
    assert (rig.read, closed, rig.budget.used) == ([], [True], 0)
    assert isinstance(rig.fetcher._cause, ProtocolError)
    del rig.client.instead["subscribe_to_shard"]
    rig.run(6)
    assert rig.read == [b"a"]
    assert rig.client.subscribed[1][1] == {"Type": "TRIM_HORIZON"}


# Others who subscribe


def subscribe(rig, kind="LATEST"):
    arn = rig.raw.describe_stream_consumer(StreamARN=rig.arn, ConsumerName="app")["ConsumerDescription"]
    return iter(
        rig.raw.subscribe_to_shard(
            ConsumerARN=arn["ConsumerARN"], ShardId=SHARD, StartingPosition={"Type": kind}
        )["EventStream"]
    )


def test_a_subscription_that_still_counts_is_waited_for():
    rig = Rig()
    rig.raw.register_stream_consumer(StreamARN=rig.arn, ConsumerName="app")
    theirs = subscribe(rig)
    next(theirs)
    rig.put(b"a")
    assert rig.run(8, every=0.25) == []
    assert rig.read == [b"a"]
    times = rig.times()
    assert 4 <= len(times) <= 6
    assert all(1.0 <= after - before <= 1.75 for before, after in pairwise(times))
    with pytest.raises(ClientError, match="ResourceInUseException"):
        next(theirs)


def test_whoever_takes_over_is_left_in_peace():
    rig = Rig()
    rig.put(b"a")
    rig.run(6)
    theirs = subscribe(rig)
    rig.put(b"b")
    rig.run(14)
    assert rig.read == [b"a"]
    assert next(theirs)
    # It did not want the shard for good, then.
    rig.run(3)
    assert rig.read == [b"a", b"b"]
    assert len(rig.times()) == 2
    assert 21 <= rig.times()[1] <= 22


# Falling back


def test_it_polls_while_subscribing_fails_and_comes_back(caplog):
    caplog.set_level("INFO")
    rig = Rig()
    put = counter()
    rig.run(10, put=put)
    rig.aws.faults.add(Fault(kind="throttle", operation="SubscribeToShard", code="LimitExceededException"))
    rig.aws.faults.add(Fault(kind="broken_stream", count=1))
    errors = rig.run(60, put=put)
    assert 2 <= len(errors) <= 8
    assert all(isinstance(error, ThrottledError) for error in errors)
    assert rig.fetcher.is_polling
    assert len(rig.read) > len(rig.sent) - 20
    assert "polling" in caplog.text
    before = len(rig.times())
    rig.run(600, put=put)
    assert 2 <= len(rig.times()) - before <= 6, "attempts become rare"
    rig.aws.faults.clear()
    rig.run(400, put=put)
    assert not rig.fetcher.is_polling
    reads = rig.calls("GetRecords")
    rig.run(30, put=put)
    assert rig.calls("GetRecords") == reads
    assert rig.read == rig.sent, "nothing twice, nothing lost, in order"


def test_an_event_ends_a_row_of_failures():
    rig = Rig()
    for _ in range(2):
        rig.aws.faults.add(Fault(kind="throttle", operation="SubscribeToShard"))
        rig.aws.faults.add(Fault(kind="broken_stream", count=1))
        assert rig.run(7)
        rig.aws.faults.clear()
        rig.put(b"x")
        rig.run(20)
    assert rig.read == rig.sent
    assert not rig.fetcher.is_polling
    assert rig.calls("GetRecords") == 0


def test_without_polling_what_is_not_allowed_is_raised():
    rig = Rig(polling=False)
    rig.client.instead["register_stream_consumer"] = refuse("AccessDeniedException")
    rig.step()
    with pytest.raises(PermanentAwsError, match="AccessDenied"):
        rig.fetch()
    # Whoever asks again gets another attempt.
    del rig.client.instead["register_stream_consumer"]
    rig.put(b"a")
    rig.run(2)
    assert rig.read == [b"a"]


def test_subscriptions_that_break_before_their_first_event_are_in_vain():
    rig = Rig()
    rig.put(b"a")
    rig.aws.faults.add(Fault(kind="broken_stream"))
    rig.run(9)
    assert not rig.fetcher.is_polling
    rig.run(3)
    assert rig.fetcher.is_polling
    assert rig.read == [b"a"]
    rig.put(b"b")
    rig.aws.faults.clear()
    rig.run(60)
    assert not rig.fetcher.is_polling
    assert rig.read == [b"a", b"b"]


def test_polling_stands_still_during_an_attempt_to_come_back():
    rig = Rig()
    rig.client.instead["subscribe_to_shard"] = refuse("AccessDeniedException")
    rig.run(2)
    rig.put(b"a")
    seen = []

    def look(method, request):
        seen.append((rig.fetcher.due, rig.fetch().records))
        return method(**request)

    rig.client.instead["subscribe_to_shard"] = look
    while not seen:
        rig.clock.advance_to(rig.due)
        rig.step()
    assert seen == [(NEVER, [])]
    rig.run(2)
    assert rig.read == [b"a"]


def test_the_end_of_a_shard_that_is_polled():
    rig = Rig()
    rig.put(b"a")
    rig.client.instead["subscribe_to_shard"] = refuse("AccessDeniedException")
    rig.run(2)
    rig.raw.split_shard(StreamName="s", ShardToSplit=SHARD, NewStartingHashKey="5")
    rig.run(5)
    assert rig.fetcher.step(rig.clock.monotonic() + 1000) is None


def test_a_shard_that_is_gone_and_a_position_that_never_was():
    rig = Rig()
    rig.client.instead["subscribe_to_shard"] = refuse("ResourceNotFoundException")
    rig.step()
    with pytest.raises(TransientAwsError):
        rig.fetch()
    rig.clock.advance(2)
    rig.step()
    with pytest.raises(ResourceNotFoundError):
        rig.fetch()
    rig = Rig(AtSequence("12345"))
    rig.step()
    with pytest.raises(InvalidPositionError, match="AT_SEQUENCE_NUMBER 12345"):
        rig.fetch()


# Memory


class Counted:
    """An event stream that counts what was taken from it."""

    def __init__(self, events):
        self.events = iter(events)
        self.taken = 0
        self.closed = threading.Event()

    def __iter__(self):
        return self

    def __next__(self):
        event = next(self.events)
        self.taken += 1
        return event

    def close(self):
        self.closed.set()


def events(count, size):
    return [
        {
            "SubscribeToShardEvent": {
                "Records": [{"Data": bytes(size), "PartitionKey": "k", "SequenceNumber": str(number)}],
                "ContinuationSequenceNumber": str(number),
                "MillisBehindLatest": 0,
            }
        }
        for number in range(1, count + 1)
    ]


def reading(rig, pushed):
    """Let a reader's thread take these events; the stream, what is released with each event that is ready, and the thread."""
    stream, arrived = Counted(pushed), threading.Semaphore(0)
    rig.client.instead["subscribe_to_shard"] = lambda method, request: {"EventStream": stream}
    rig.on_ready = arrived.release
    rig.fetcher = rig.make(TrimHorizon())
    rig.step()
    thread = threading.Thread(target=rig.readers.pop().run)
    thread.start()
    return stream, arrived, thread


@pytest.mark.parametrize(("budget", "ready"), [(64 << 20, 2), (1 << 20, 1)])
def test_a_slow_handler_stops_the_reading(budget, ready):
    rig = Rig(budget=budget)
    stream, arrived, thread = reading(rig, events(12, 1_100_000))
    read = most = 0
    while read < 12:
        assert arrived.acquire(timeout=HANG)
        result = rig.fetcher.fetch(0.0)
        read += len(result.records)
        # Handed out, waiting, and the one that the reader holds.
        most = max(most, stream.taken - (read - len(result.records)))
        result.on_done()
    thread.join(HANG)
    assert not thread.is_alive()
    assert stream.closed.is_set()
    assert most <= ready + ready + 1
    assert rig.budget.used == 0


def test_events_that_come_out_as_one_are_charged_once():
    """Their user records take 9,000 bytes in all: each event is charged a share, and so is the next one."""
    budget, expansion = ByteBudget(1 << 20), Expansion()
    at_tip = ResponseHeader(millis_behind_latest=0)

    def event(count):
        reservation = budget.reserve("shard", 100, lambda: None)
        records = [KinesisRecord(b"", "k", str(number)) for number in range(count)]
        return FetchResult(
            records=records,
            header=at_tip,
            charge=expansion.charge(reservation, 100),
            on_done=reservation.release,
        )

    one = joined([event(1), FetchResult(records=[], header=at_tip), event(1), event(1)])
    assert budget.used == 300
    one.charge(9_000)
    assert budget.used == 300 + 9_000
    assert expansion.expected == 3_000, "of one event"
    one.on_done()
    assert budget.used == 0
    another = joined([event(1), event(2)])
    assert budget.used == 2 * (100 + 3_000)
    another.charge(9_000)
    assert budget.used == 200 + 9_000
    another.on_done()
    assert budget.used == 0


def test_closing_frees_a_reader_that_waits_for_room_and_gives_bytes_back():
    rig = Rig(budget=1 << 20)
    stream, arrived, thread = reading(rig, events(3, 1_000_000))
    assert arrived.acquire(timeout=HANG)
    rig.fetcher.close()
    thread.join(HANG)
    assert not thread.is_alive()
    assert stream.closed.is_set()
    assert rig.budget.used == 0
    assert not rig.budget.is_crowded
    assert rig.fetcher.step(0.0) is None
    assert rig.fetcher.due == NEVER


def test_a_handler_that_hangs_collects_no_empty_events():
    rig = Rig()
    rig.put(b"a")
    rig.step()
    for _ in range(20):
        rig.pump()
        rig.clock.advance(5)
    assert len(rig.fetcher._ready) == 1
    assert rig.fetch().records[0].data == b"a"


# A fleet


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", seeds(unit=1, fuzz=30))
def test_a_fleet_over_resharding_crashes_and_broken_streams(monkeypatch, seed):
    monkeypatch.setattr(engines, "ConsumerEngine", FanOutEngine)
    config = ConsumerConfig(initial_position="TRIM_HORIZON", checkpoint_interval=1.0)
    fleet = Fleet(shards=3, seed=seed, config=config)
    fleet.aws.faults.add(Fault(kind="broken_stream", probability=0.01))
    fleet.add("a")
    fleet.add("b")
    for minute in range(6):
        for _ in range(6):
            fleet.put(20)
            fleet.run(5)
        if minute == 1:
            fleet.split()
        if minute == 2:
            fleet.crash("a")
            fleet.add("c")
        if minute == 3:
            fleet.merge()
        if minute == 4:
            fleet.stop("b")
    assert fleet.run(300, until=fleet.all_delivered)
    fleet.check_order()
    calls = fleet.aws.stats()["calls"]
    assert calls["SubscribeToShard"] > 20
    assert "GetRecords" not in calls
    assert calls["RegisterStreamConsumer"] == 1
    repeated = len(fleet.data()) - len(set(fleet.data()))
    assert repeated <= 60, "only what a crash left without a checkpoint"


def test_a_latest_start_is_remembered(monkeypatch):
    monkeypatch.setattr(engines, "ConsumerEngine", FanOutEngine)
    fleet = Fleet(config=ConsumerConfig(initial_position="LATEST", leases=LeaseConfig(failover_time=3.0)))
    fleet.put(5)
    fleet.run(10)
    fleet.sent.clear()
    fleet.add("a", handler=fleet.recorder("a", checkpoint=False))
    fleet.run(3)
    fleet.crash("a")
    fleet.put(5)
    fleet.run(1)
    fleet.add("b")
    assert fleet.run(60, until=fleet.all_delivered)
    assert set(fleet.data()) == set(fleet.sent)
