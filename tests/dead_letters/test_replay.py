"""Replays: to a stream, to a handler, interrupted anywhere, and continued."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import pytest

from kinesis_sdk.admin import Command, Connection, Result
from kinesis_sdk.common.dead_letters import History, Origin
from kinesis_sdk.common.errors import ConfigError, ConsumerError, DeadLetterError
from kinesis_sdk.common.shards import list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer import RecordBatch, RecordHandler, ShardContext
from kinesis_sdk.consumer.leases.table.dynamodb import DynamoDBLeaseStore
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.dead_letters import Selection, State, StreamDeadLetters, plans
from kinesis_sdk.dead_letters import replay as module
from kinesis_sdk.dead_letters.letter import DeadLetter
from kinesis_sdk.dead_letters.plans import LetterChange
from kinesis_sdk.dead_letters.replay import HandlerTarget, Outcome, StreamTarget, Target
from kinesis_sdk.testing import FakeAws, VirtualClock
from tests.dead_letters.letters import MemoryLetters, letter


@pytest.fixture
def store() -> MemoryLetters:
    made = MemoryLetters()
    for n in range(5):
        made.keep(letter(n, error="KeyError" if n < 2 else "ValueError"))
    return made


def change(store: MemoryLetters, target: Target | None, **more: object) -> LetterChange:
    return LetterChange(
        store=store,
        selection=Selection(**more.pop("selection", {})),  # type: ignore[arg-type]
        command=Command.of("replay-letters", location=store.location),
        target=target,
        now_millis=lambda: 1_900_000_000_000,
        **more,  # type: ignore[arg-type]
    )


def done(planned: LetterChange, result: Result) -> tuple[int, int]:
    """Return how many letters were replayed or dropped, and how many failed."""
    found = planned.to_dict(result)
    return found["done"], found["failed"]


def states(store: MemoryLetters) -> str:
    """Return the initial letter of each state, in the order of the letters: o, replayinG, replayeD."""
    letters = {State.OPEN: "o", State.REPLAYING: "g", State.REPLAYED: "d"}
    found = sorted(store.letters(), key=lambda one: one.history.origin.sequence_number)
    return "".join(letters[one.state] for one in found)


class Scripted:
    """A target that does what a script says: ``.`` replays, ``x`` fails, ``!`` is killed before, ``k`` is killed after."""

    name = "a script"

    def __init__(self, script: str, at_once: int = 1, *, keeps_errors: bool = True) -> None:
        self.script = iter(script)
        self.at_once = at_once
        self.keeps_errors = keeps_errors
        self.seen: list[str] = []

    def accepts(self, _letter: DeadLetter) -> bool:
        return True

    def replay(self, letters: Sequence[DeadLetter]) -> Iterator[Outcome]:
        for one in letters:
            step = next(self.script)
            if step == "!":
                raise KeyboardInterrupt
            self.seen.append(one.payload.decode())
            if step == "k":
                raise KeyboardInterrupt
            yield one, TimeoutError("secret") if step == "x" else None

    def close(self) -> None:
        pass


def test_a_replay_is_planned_by_group_and_marks_what_is_done(store: MemoryLetters) -> None:
    planned = change(store, Scripted("....."))
    description = planned.description
    assert [(write.row, write.lines) for write in description.writes] == [
        ("billing: ValueError, orders, shardId-000000000003", ("3 letters, 24 bytes",)),
        ("billing: KeyError, orders, shardId-000000000003", ("2 letters, 16 bytes",)),
    ]
    assert planned.so_far() is None
    result = planned.apply()
    assert (done(planned, result), result.rest, result.is_pending) == ((5, 0), None, False)
    assert states(store) == "ddddd"
    assert change(store, Scripted("")).description.writes == (), "nothing is left"


@pytest.mark.parametrize(
    ("script", "at_once", "after"),
    [
        ("..!", 1, "ddgoo"),
        ("..k", 1, "ddgoo"),
        ("!", 3, "gggoo"),
        (".k", 3, "dggoo"),
        ("....!", 3, "ddddg"),
    ],
)
def test_an_interrupted_replay_repeats_at_most_what_was_in_hand(
    store: MemoryLetters, script: str, at_once: int, after: str
) -> None:
    planned = change(store, Scripted(script, at_once))
    with pytest.raises(KeyboardInterrupt):
        planned.apply()
    assert states(store) == after
    so_far = planned.so_far()
    assert so_far is not None
    assert so_far.rest == planned.command
    rest = Scripted("." * 5)
    again = change(store, rest)
    assert bool(again.description.warnings) == ("g" in after)
    again.apply()
    assert states(store) == "ddddd"
    assert len(rest.seen) == 5 - after.count("d")


@pytest.mark.parametrize("fatal", range(12))
def test_a_kill_at_any_write_loses_no_letter_and_repeats_at_most_a_chunk(
    store: MemoryLetters, fatal: int
) -> None:
    steps = iter(range(20))

    def die(_is_before: bool) -> None:
        if next(steps) == fatal:
            raise SystemExit

    target = Scripted("." * 10, 2)
    store.on_write = die
    with pytest.raises(SystemExit):
        change(store, target).apply()
    store.on_write = lambda _: None
    change(store, target).apply()
    assert states(store) == "ddddd"
    assert {*target.seen} == {f'{{"n": {n}}}' for n in range(5)}
    assert len(target.seen) <= 7


def test_a_letter_whose_handler_fails_is_open_again_with_its_new_error(store: MemoryLetters) -> None:
    planned = change(store, Scripted(".x.x."))
    result = planned.apply()
    assert result.is_pending
    assert done(planned, result) == (3, 2)
    assert "TimeoutError" in result.summary
    failed = [one for one in store.letters() if one.state is State.OPEN]
    assert {(one.history.error, one.history.attempt, one.set_aside) for one in failed} == {
        ("TimeoutError", 2, 1_900_000_000_000)
    }
    change(store, Scripted("xx", 2, keeps_errors=False)).apply()
    assert {one.history.attempt for one in store.letters() if one.state is State.OPEN} == {2}


def test_a_choice_and_a_limit_are_kept(store: MemoryLetters) -> None:
    target = Scripted("..")
    change(store, target, selection={"errors": frozenset(["ValueError"])}, limit=2).apply()
    assert states(store) == "ooddo"


def test_letters_are_dropped(store: MemoryLetters) -> None:
    audit: list[tuple[str, dict[str, object]]] = []
    planned = change(
        store,
        None,
        selection={"errors": frozenset(["KeyError"])},
        audit=lambda event, **fields: audit.append((event, fields)),
    )
    assert planned.description.question.startswith("Drop 2 ")
    assert planned.apply().summary.startswith("2 of 2 ")
    assert states(store) == "ooo"
    assert audit == [("begin", {"letters": 2}), ("done", {"done": 2, "failed": 0})]


@pytest.mark.parametrize("target", [None, Scripted("....")])
def test_what_arrived_after_the_plan_is_left_alone(store: MemoryLetters, target: Target | None) -> None:
    planned = change(store, target, limit=4)
    store.drop([letter(0)])
    store.keep(letter(7))
    assert planned.apply().summary.startswith("3 of 4 ")
    assert states(store) == ("oo" if target is None else "dddoo")


def test_a_plan_has_a_maximum_of_letters(store: MemoryLetters, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MAX_LETTERS", 3)
    planned = change(store, None)
    assert "first 3" in planned.description.warnings[0]
    result = planned.apply()
    assert (done(planned, result), result.rest) == ((3, 0), planned.command)


def test_chunks_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK_BYTES", 10)
    sizes = [4, 4, 4, 50, 1, 1]
    letters = [letter(n, data=bytes(size)) for n, size in enumerate(sizes)]
    assert [[one.size for one in chunk] for chunk in module._chunks(letters, 100)] == [
        [4, 4],
        [4],
        [50],
        [1, 1],
    ]


# ---------------------------------------------------------------------- targets


def test_records_are_put_back_with_their_key_and_history_and_once() -> None:
    aws = FakeAws(streams={"orders": 1, "dead": 1}, throttle=False)
    connection = Connection(clients={"kinesis": aws.client("kinesis")})
    kept = [letter(n, explicit_hash_key="7") for n in range(2)]
    table = letter(2, shard="shardId-00000001700000000000-0123abcd")
    target = StreamTarget(connection, allowed=["orders"])
    outcomes = [error for _, error in target.replay([*kept, table])]
    assert outcomes[:2] == [None, None]
    assert isinstance(outcomes[2], ConfigError)
    assert list(target.replay(kept[:1])) == [(kept[0], None)]  # it was killed before it was marked
    target.close()
    stored = [
        record
        for shard in ["shardId-000000000000"]
        for record in StreamDeadLetters("orders", connection=connection)._records(shard)
    ]
    assert [(record.partition_key, record.explicit_hash_key, record.data) for record in stored] == [
        (one.partition_key, "7", one.payload) for one in (*kept, kept[0])
    ]
    assert History.of(stored[0].headers) == kept[0].history
    assert stored[0].headers["tenant"] == b"a\xff"
    assert stored[0].headers["retry-application"] == b"billing"
    elsewhere = StreamTarget(connection, "dead")
    assert list(elsewhere.replay([table])) == [(table, None)]
    elsewhere.close()


def test_a_repetition_has_the_same_name_and_a_record_that_failed_again_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    aws = FakeAws(streams={"orders": 1}, throttle=False)
    target = StreamTarget(Connection(clients={"kinesis": aws.client("kinesis")}), allowed=["orders"])
    put, names = target._producer.put, []

    def named(*arguments: Any, dedup_id: str, **more: Any) -> Any:
        names.append(dedup_id)
        return put(*arguments, dedup_id=dedup_id, **more)

    monkeypatch.setattr(target._producer, "put", named)
    list(target.replay([letter(1), letter(1), letter(1, attempt=2), letter(2)]))
    target.close()
    first, repeated, failed_again, other = names
    assert first == repeated
    assert len({first, failed_again, other}) == 3


def test_a_stream_that_does_not_take_a_record_fails_its_letter() -> None:
    aws = FakeAws(throttle=False)
    target = StreamTarget(Connection(clients={"kinesis": aws.client("kinesis")}), allowed=["orders"])
    ((_, error),) = target.replay([letter(1)])
    assert "orders" in str(error)
    ((_, error),) = target.replay([letter(1, partition_key="")])
    assert "partition_key" in str(error)
    target.close()


def test_a_record_goes_back_only_into_a_stream_that_is_confirmed(store: MemoryLetters) -> None:
    aws = FakeAws(streams={"orders": 1, "payments": 2}, clock=(clock := VirtualClock()), throttle=False)
    connection = Connection(clients={name: aws.client(name) for name in ("kinesis", "dynamodb")})
    leases = DynamoDBLeaseStore(
        connection.dynamodb, "billing", sleep=clock.advance, monotonic=clock.monotonic
    )
    leases.ensure_ready()
    for shard in list_shards(connection.kinesis, StreamId("orders")):
        leases.create_if_absent(Lease.for_shard(shard, "TRIM_HORIZON"))
    forged = letter(9, origin=Origin("payments", "shardId-000000000000", "7", 0))
    own = StreamTarget(connection, applications=["billing"])
    assert change(store, own).found.letters == 5, "the streams of the application's leases"
    store.keep(forged)
    with pytest.raises(ConfigError, match=r"from payments.*--allow-stream"):
        change(store, own)
    with pytest.raises(ConfigError, match="from orders, payments"):
        change(store, StreamTarget(connection))
    unknown = StreamTarget(connection, applications=["shipping"])
    with pytest.raises(ConfigError, match=r"shipping.*--allow-stream orders"):
        change(store, unknown)
    named = StreamTarget(connection, allowed=["arn:aws:kinesis:eu-west-1:123456789012:stream/payments"])
    assert [named.accepts(one) for one in (forged, letter(1))] == [True, False]
    assert StreamTarget(connection, "orders").accepts(forged)
    # It has the identity of a letter of the plan, and takes its place before the plan is carried out.
    ((_, error),) = own.replay([forged])
    assert isinstance(error, ConfigError)


class Shards(RecordHandler):
    begun: ClassVar[list[str]] = []

    def initialize(self, shard: ShardContext) -> None:
        self.begun.append(shard.shard_id)

    async def process_records(self, batch: RecordBatch) -> None:
        if batch.records[0].data == b"bad":
            raise ValueError("secret")


def test_a_handler_gets_one_record_at_a_time_with_its_identity() -> None:
    got: list[tuple[str, str, str]] = []

    def handle(batch: RecordBatch) -> None:
        (record,) = batch.records
        got.append((record.id, batch.shard_id, batch.stream.name))
        batch.checkpoint(record)
        batch.checkpointer.prepare_checkpoint(record, state=b"").checkpoint()

    target = HandlerTarget(handle, "m:handle")
    assert list(target.replay([letter(1), letter(2)])) == [(letter(1), None), (letter(2), None)]
    assert got == [
        (str(Origin("orders", "shardId-000000000003", str(n), 0)), "shardId-000000000003", "orders")
        for n in (1001, 1002)
    ]
    target.close()


def test_a_handler_class_is_made_once_for_a_shard() -> None:
    Shards.begun.clear()
    target = HandlerTarget(Shards, "m:Shards")
    letters = [letter(1), letter(2, data=b"bad"), letter(3, shard="shardId-000000000004")]
    errors = [error for _, error in target.replay(letters)]
    assert [type(error) for error in errors] == [type(None), ValueError, type(None)]
    assert Shards.begun == ["shardId-000000000003", "shardId-000000000004"]
    target.close()


def uses_a_sink(batch: RecordBatch) -> None:
    batch.transaction.execute("secret")


@pytest.mark.parametrize(
    ("handler", "record", "error"),
    [
        (uses_a_sink, letter(1), ConsumerError),
        (print, letter(1, shard="shardId-00000001700000000000-0123abcd"), ConfigError),
    ],
)
def test_what_a_handler_cannot_get_here_fails_its_letter(
    handler: Callable[[RecordBatch], None], record: DeadLetter, error: type[Exception]
) -> None:
    ((_, found),) = HandlerTarget(handler, "m:handle").replay([record])
    assert isinstance(found, error)


def test_what_is_not_a_handler_is_refused() -> None:
    for wrong in (5, dict):
        with pytest.raises(ConfigError, match="RecordBatch"):
            HandlerTarget(wrong, "m:x")


def test_a_store_that_fails_ends_the_replay_and_says_how_far_it_came(store: MemoryLetters) -> None:
    planned, steps = change(store, Scripted(".....")), iter([None] * 8)

    def full(_is_before: bool) -> None:
        if next(steps, "full"):
            raise DeadLetterError("disk full")

    store.on_write = full
    with pytest.raises(DeadLetterError):
        planned.apply()
    so_far = planned.so_far()
    assert so_far is not None
    assert done(planned, so_far) == (2, 0)
