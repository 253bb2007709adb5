"""Dead letters over HTTP, with boto3's own clients, and replays that are killed in real processes."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import boto3
import pytest

from integration.commands import CLI, execute
from integration.postgres import postgres
from integration.waiting import eventually
from kinesis_sdk import BisectBatch, ConsumerConfig, Producer, RecordBatch, Worker
from kinesis_sdk.admin import Connection
from kinesis_sdk.dead_letters import DeadLetters, DeadLetterStore, State, open_dead_letters
from kinesis_sdk.testing import start_server_process
from tests import HANG
from tests.dead_letters.letters import letter

__all__ = ["postgres"]

LETTERS = 250
HANDLER = """
import os, time
file = os.open(os.environ["SEEN"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def handle(batch):
    os.write(file, f"{batch.records[0].id}\\n".encode())
    time.sleep(0.002)
"""


@pytest.fixture
def endpoint() -> Iterator[str]:
    with start_server_process("--create-stream", "orders:2", "--create-stream", "dead:1") as server:
        yield server.endpoint_url


def replay(folder: Path, place: str, *more: str) -> subprocess.Popen[bytes]:
    command = [*CLI, "dlq", "replay", place, "--all", "--yes"]
    return subprocess.Popen([*command, "--audit-log", str(folder / "audit.jsonl"), *more], cwd=folder)


def kept(folder: Path) -> tuple[str, DeadLetterStore]:
    place = f"sqlite:///{folder}/letters.db"
    store = open_dead_letters(place)
    for n in range(LETTERS):
        store.keep(letter(n))
    return place, store


def test_postgresql_keeps_what_no_text_of_its_own_can_hold(postgres: str) -> None:
    store = open_dead_letters(postgres)
    assert list(store.letters()) == []
    letters = [letter(n, partition_key="a\0\ud800", data=bytes(range(256))) for n in range(4)]
    for one in letters:
        store.keep(one)
    store.mark(letters[:2], State.REPLAYING)
    store.mark(letters[:2], State.REPLAYED)
    store.drop(letters[2:3])
    store.keep(letters[0])
    again = open_dead_letters(postgres)
    assert list(again.letters(payload=True)) == [
        letters[0],
        replace(letters[1], state=State.REPLAYED),
        letters[3],
    ]
    again.close()
    store.close()


def states(store: DeadLetterStore) -> Counter[State]:
    return Counter(one.state for one in store.letters())


def test_a_killed_replay_to_a_handler_repeats_one_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    seen.touch()
    monkeypatch.setenv("SEEN", str(seen))
    (tmp_path / "handler.py").write_text(HANDLER)
    place, store = kept(tmp_path)
    kills = 0
    for _ in range(4):
        before = len(seen.read_text().splitlines())
        process = replay(tmp_path, place, "--handler", "handler:handle")

        def is_due(before=before, process=process):
            return len(seen.read_text().splitlines()) > before + 30 or process.poll() is not None

        eventually(is_due, pause=0.005)
        process.send_signal(signal.SIGKILL)
        kills += process.wait(HANG) == -signal.SIGKILL
    assert replay(tmp_path, place, "--handler", "handler:handle").wait(HANG) == 0
    calls = Counter(seen.read_text().splitlines())
    assert len(calls) == LETTERS
    assert calls.total() <= LETTERS + kills
    assert kills > 0
    assert states(store) == {State.REPLAYED: LETTERS}


def test_a_killed_replay_to_a_stream_is_delivered_once(tmp_path: Path, endpoint: str) -> None:
    place, store = kept(tmp_path)
    into = ("--allow-stream", "orders", "--endpoint-url", endpoint)
    process = replay(tmp_path, place, *into)
    eventually(lambda: State.REPLAYING in states(store) or process.poll() is not None, pause=0.005)
    process.send_signal(signal.SIGKILL)
    process.wait(HANG)
    assert replay(tmp_path, place, *into).wait(HANG) == 0
    assert states(store) == {State.REPLAYED: LETTERS}
    delivered: Counter[str] = Counter()

    def handle(batch: RecordBatch) -> None:
        delivered.update(record.headers["retry-origin"].decode() for record in batch.records)

    config = ConsumerConfig(initial_position="TRIM_HORIZON")
    Worker(
        "orders",
        application_name="billing",
        handler=handle,
        config=config,
        until="now",
        endpoint_url=endpoint,
    ).run()
    assert len(delivered) == delivered.total() == LETTERS


def test_letters_of_a_worker_go_through_a_queue_and_back(tmp_path: Path, endpoint: str) -> None:
    queue = boto3.client("sqs", endpoint_url=endpoint).create_queue(QueueName="letters")["QueueUrl"]
    store = open_dead_letters(f"sqs:{queue}", connection=Connection(endpoint_url=endpoint))
    broken = True

    def handle(batch: RecordBatch) -> None:
        if broken and any(record.data == b"7" for record in batch.records):
            raise ValueError("secret")

    with Producer(endpoint_url=endpoint) as producer:
        producer.put_many("orders", [(f"k{n}", b"%d" % n) for n in range(20)])
    policy = BisectBatch(
        dead_letter=DeadLetters(store, application="billing"), attempts=1, initial_delay=0.001
    )
    config = ConsumerConfig(initial_position="TRIM_HORIZON", on_handler_error=policy)
    worker = {"application_name": "billing", "handler": handle, "config": config, "endpoint_url": endpoint}
    Worker("orders", until="now", **worker).run()  # type: ignore[arg-type]
    listed = json.loads(
        execute([*CLI, "dlq", "list", store.location, "--json", "--endpoint-url", endpoint]).stdout
    )
    assert [(group["error"], group["letters"]) for group in listed["groups"]] == [("ValueError", 1)]
    # The place has the letters of one application. The streams of its leases are found by themselves.
    command = [*CLI, "dlq", "replay", store.location, "--application", "billing", "--yes"]
    audit = ["--audit-log", str(tmp_path / "audit.jsonl")]
    assert execute([*command, *audit, "--endpoint-url", endpoint]).returncode == 0
    assert list(store.letters()) == []
    broken = False
    again: list[bytes] = []
    later = {**worker, "handler": lambda batch: again.extend(record.data for record in batch.records)}
    Worker("orders", until="now", **later).run()  # type: ignore[arg-type]
    assert again == [b"7"]
