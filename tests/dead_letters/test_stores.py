"""What every store of dead letters does, and the bounds of what each one reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kinesis_sdk.admin import Connection
from kinesis_sdk.common.clock import SystemClock
from kinesis_sdk.common.errors import ConfigError, DeadLetterError
from kinesis_sdk.dead_letters import files, open_dead_letters, sqs, stream
from kinesis_sdk.dead_letters.letter import DeadLetter, State
from kinesis_sdk.dead_letters.store import DeadLetterStore, LetterLog
from kinesis_sdk.producer import Producer
from kinesis_sdk.testing import FakeAws, VirtualClock
from tests.dead_letters.letters import letter

Open = Callable[[], DeadLetterStore]


@pytest.fixture(params=["file", "sql", "stream", "sqs"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    if request.param == "sql":
        pytest.importorskip("sqlalchemy")
    aws = FakeAws(clock=SystemClock(), streams={"dead": 2}, throttle=False)
    queue = aws.client("sqs").create_queue(QueueName="dead")["QueueUrl"]
    connection = Connection(clients={name: aws.client(name) for name in ("kinesis", "sqs")})
    place = {
        "file": f"file:{tmp_path}/letters.jsonl",
        "sql": f"sqlite:///{tmp_path}/letters.db",
        "stream": "stream:dead",
        "sqs": f"sqs:{queue}",
    }[request.param]
    return lambda: open_dead_letters(place, connection=connection)


def read(store: DeadLetterStore, *, payload: bool = True) -> list[DeadLetter]:
    """Return the letters in the order of their keys; a stream has its own times."""
    found = sorted(store.letters(payload=payload), key=lambda one: one.history.origin.sequence_number)
    return [replace(one, set_aside=0) for one in found] if store.location == "stream:dead" else found


def kept_in(store: DeadLetterStore, count: int, **changes: Any) -> list[DeadLetter]:
    letters = [
        letter(n, set_aside=0, explicit_hash_key=str((n % 4) << 126), **changes) for n in range(count)
    ]  # a shard of the stream has two
    for one in letters:
        store.keep(one)
    return letters


def test_letters_are_kept_marked_and_dropped(reopen: Open) -> None:
    store = reopen()
    kept = kept_in(store, 4, partition_key="a\0\u00fc")
    assert read(store) == kept
    store.mark([kept[1], letter(99)], State.REPLAYING)
    store.drop([kept[2]])
    store.close()
    store = reopen()
    is_queue = store.location.startswith("sqs:")
    expected = [kept[0], kept[1] if is_queue else replace(kept[1], state=State.REPLAYING), kept[3]]
    assert read(store, payload=False) == [one.without_payload() for one in expected]
    store.close()
    store = reopen()
    assert read(store) == expected
    assert store.unreadable == 0
    for state in (State.REPLAYING, State.REPLAYED):
        store.mark(expected, state)
    assert {one.state for one in store.letters()} == (set() if is_queue else {State.REPLAYED})
    store.close()


def test_a_record_that_fails_again_is_open_again_and_is_one_letter(reopen: Open) -> None:
    store = reopen()
    first, second = kept_in(store, 2)
    assert len(read(store)) == 2
    is_queue = store.location.startswith("sqs:")
    store.mark([first], State.REPLAYED if is_queue else State.REPLAYING)
    again = replace(first, history=replace(first.history, attempt=2, error="KeyError"))
    store.keep(again)
    store.keep(again)  # the worker ended between the hook and its checkpoint
    if not is_queue:
        store.mark([first], State.REPLAYED)  # the replay ends after its record has failed again
    store.close()
    assert read(store) == [again, second]
    store.drop([again])
    store.close()
    assert read(store) == [second]
    store.close()


def test_a_file_with_other_lines_is_read_around_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "letters.jsonl"
    store = open_dead_letters(f"file:{path}")
    store.keep(letter(1))
    good = json.loads(letter(2).to_line())
    hostile = [
        b"secret",
        b"[" * 100_000,
        b"[]",
        b'{"mark": "dropped"}',
        b'{"mark": "dropped", "letters": ["no id"]}',
        json.dumps({"mark": "gone", "letters": [letter(1).id]}).encode(),
        json.dumps({"mark": "replayed", "letters": [letter(9).id]}).encode(),  # of a letter that is not here
        *(
            json.dumps({**good, name: value}).encode()
            for name, value in {
                "headers": {"tenant": "eA=="},
                "data": "=secret",
                "set_aside": 10**18,
                "partition_key": "x" * 300,
                "explicit_hash_key": "9" * 40,
                "application": 5,
            }.items()
        ),
        json.dumps({**good, "application": "\ud800"}).encode(),
        json.dumps({**good, "headers": {**good["headers"], "bad name": "eA=="}}).encode(),
    ]
    with path.open("ab") as file:
        file.write(b"\n".join(hostile) + b"\n\n" + letter(3).to_line() + b'{"torn')
    assert [one.id for one in store.letters()] == [letter(1).id, letter(3).id]
    assert store.unreadable == len(hostile) - 1
    assert len(caplog.records) == 5, "the rest is counted"
    assert "secret" not in caplog.text
    store.keep(letter(4))
    assert len(list(store.letters())) == 3, "what follows the torn line"


def test_a_line_without_an_end_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE", 1_000)
    path = tmp_path / "letters.jsonl"
    path.write_bytes(b"x" * 5_000 + b"\n" + letter(1).to_line())
    store = open_dead_letters(f"file:{path}")
    assert [one.id for one in store.letters()] == [letter(1).id]
    assert store.unreadable == 5
    with pytest.raises(ValueError, match="more than"):
        DeadLetter.from_line(b" " * (25 << 20))


def test_a_mark_has_at_most_a_thousand_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_PER_MARK", 2)
    store = open_dead_letters(f"file:{tmp_path}/letters.jsonl")
    kept = kept_in(store, 5)
    store.mark(kept, State.REPLAYING)
    assert {one.state for one in store.letters()} == {State.REPLAYING}
    store.drop(kept)
    assert list(store.letters()) == []


def test_the_letters_of_a_log_are_bounded() -> None:
    log = LetterLog("file:letters.jsonl", most=2)
    log.add("a", 1)
    log.add("b", 2)
    log.add("a", 3)
    log.mark("b", None)
    log.add("c", 4)
    with pytest.raises(DeadLetterError, match="more than 2"):
        log.add("d", 5)


def test_rows_that_another_program_wrote_are_counted(tmp_path: Path) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    url = f"sqlite:///{tmp_path}/letters.db"
    store = open_dead_letters(url)
    assert list(store.letters()) == [], "there is no table yet"
    for n in range(4):
        store.keep(letter(n))
    engine = sqlalchemy.create_engine(url)
    changes = {0: "letter = '[]'", 1: "state = 'lost'", 2: "id = '0123456789abcdef'"}
    with engine.begin() as connection:
        for n, change in changes.items():
            connection.execute(
                sqlalchemy.text(f"UPDATE kinesis_sdk_dead_letters SET {change} WHERE id = '{letter(n).id}'")
            )
    engine.dispose()
    assert list(store.letters(payload=True)) == [letter(3)]
    assert store.unreadable == 3
    store.close()


def test_the_second_of_two_workers_that_insert_the_same_letter_updates_it(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")
    store = open_dead_letters(f"sqlite:///{tmp_path}/letters.db")
    run, outcomes = store._run, []

    def raced(work):
        outcomes.append(run(work))
        return 0 if len(outcomes) == 2 else outcomes[-1]

    store.keep(letter(1))
    store._run = raced
    store.keep(letter(2))
    again = letter(1, attempt=2)
    outcomes[:] = [0]
    store.keep(again)  # its first update finds no row, as if the other worker inserted it then
    store._run = run
    assert list(store.letters(payload=True)) == [again, letter(2)]
    store.close()


def test_a_place_that_fails_is_named_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(DeadLetterError, match="No such file"):
        list(open_dead_letters(f"file:{tmp_path}/none.jsonl").letters())
    sqlalchemy = pytest.importorskip("sqlalchemy")
    url = f"sqlite:///{tmp_path}/letters.db"
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE kinesis_sdk_dead_letters (number INTEGER)"))
    engine.dispose()
    store = open_dead_letters(url)
    with pytest.raises(DeadLetterError, match=r"letters.db: .*no such column"):
        store.keep(letter(1, data=b"secret"))
    store.close()


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "letters.jsonl",
        "file:",
        "stream:a b",
        "sqs:letters",
        "sqs:https://x/1/q",
        "ftp:x",
        5,
        "sqlite:///",
    ],
)
def test_a_wrong_place_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigError):
        open_dead_letters(wrong)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- streams and queues


def connected(aws: FakeAws) -> Connection:
    return Connection(clients={name: aws.client(name) for name in ("kinesis", "sqs")})


def test_a_stream_with_other_records_is_read_around_them(monkeypatch: pytest.MonkeyPatch) -> None:
    aws = FakeAws(streams={"dead": 1}, throttle=False)
    store = stream.StreamDeadLetters("dead", connection=connected(aws))
    kept = kept_in(store, 3)
    put = aws.client("kinesis").put_record
    put(StreamName="dead", PartitionKey="k", Data=b"no letter")
    with Producer(client=aws.client("kinesis")) as producer:
        origin = str(kept[0].history.origin)
        forged = {"retry-origin": origin, "retry-application": "billing"}
        producer.put("dead", "k", b"", headers={**forged, "retry-state": "gone"})
        producer.put("dead", "k", b"", headers={**forged, "retry-origin": "orders", "retry-state": "dropped"})
    monkeypatch.setattr(stream, "_PAGE", 2)
    assert read(store) == kept
    assert store.unreadable == 3
    monkeypatch.setattr(stream, "MAX_PAGES", 2)
    with pytest.raises(DeadLetterError, match="more than 2 pages"):
        read(store)
    store.close()
    with pytest.raises(DeadLetterError, match="stream:none"):
        list(open_dead_letters("stream:none", connection=connected(aws)).letters())


def test_a_queue_hides_what_was_read_until_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock()
    aws = FakeAws(clock=clock)
    client = aws.client("sqs")
    url = client.create_queue(QueueName="dead.fifo")["QueueUrl"]
    store, other = (sqs.SqsDeadLetters(url, connection=connected(aws)) for _ in range(2))
    kept = kept_in(store, 25)
    store.keep(kept[0])  # a FIFO queue takes it once
    client.send_message(QueueUrl=url, MessageBody="no letter", MessageGroupId="g", MessageDeduplicationId="d")
    assert read(store) == kept
    assert store.unreadable == 1
    assert read(other) == []
    assert read(store) == kept, "a second pass begins again"
    store.drop(kept[:1])
    store.keep(letter(0, set_aside=1))
    assert read(store)[0].set_aside == 1, "a FIFO queue takes it again when it failed again"
    store.drop([letter(0)])
    store.keep(letter(0, set_aside=2))
    store.close()
    monkeypatch.setattr(sqs, "MAX_RECEIVED", 20)
    assert len(read(other)) == 20
    clock.advance(601)
    assert len(read(store)) == 20
    with pytest.raises(DeadLetterError, match="1 letters"):
        other.drop(kept[1:2])
    store.close()


def test_a_record_that_is_too_large_for_a_message_is_refused() -> None:
    aws = FakeAws()
    url = aws.client("sqs").create_queue(QueueName="dead")["QueueUrl"]
    store = sqs.SqsDeadLetters(url, connection=connected(aws))
    with pytest.raises(DeadLetterError, match="900,000 bytes"):
        store.keep(letter(1, data=bytes(900_000)))
    with pytest.raises(DeadLetterError, match="QueueDoesNotExist"):
        sqs.SqsDeadLetters(url + "2", connection=connected(aws)).keep(letter(1))
