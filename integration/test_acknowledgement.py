"""Single acknowledgements in a real worker that is killed: what was acknowledged and stored does not come again, all else does."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import boto3

from kinesis_sdk.acknowledgement.gaps import GapMap
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer import DynamoDBLeaseStore
from kinesis_sdk.testing import start_server_process
from tests import HANG

RECORDS = 600
KILLS = int(os.environ.get("KINESIS_SDK_ACK_KILLS", "4"))

SCRIPT = textwrap.dedent(
    """
    import os, random, sys, threading, time
    from kinesis_sdk import ConsumerConfig, LeaseConfig, Worker
    from kinesis_sdk.acknowledgement import Acknowledging

    endpoint, log, seed = sys.argv[1:]
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    rng = random.Random(int(seed))
    held, lock = [], threading.Lock()

    def tell(word, received):
        record = received.record
        line = f"{word} {record.data.decode()} {received.shard_id} {record.sequence_number}\\n"
        os.write(file, line.encode())

    def handle(received):
        tell("got", received)
        with lock:
            held.append(received)

    def acknowledge():
        while True:
            time.sleep(0.003)
            with lock:
                if len(held) < 40:
                    continue
                received = held.pop(rng.randrange(len(held)))
            # First the line, then the acknowledgement: what is stored without its line would be an invented acknowledgement.
            tell("ack", received)
            received.ack()

    threading.Thread(target=acknowledge, daemon=True).start()
    config = ConsumerConfig(
        initial_position="TRIM_HORIZON",
        leases=LeaseConfig(failover_time=1.0),
        batch_records=20,
    ).with_fields(idle_time_between_reads=0.2)
    handler = Acknowledging(handle, max_unacknowledged=150, store_interval=0.2)
    Worker("orders", application_name="app", handler=handler, config=config, endpoint_url=endpoint).run()
    """
)


def test_a_worker_that_is_killed_repeats_only_what_its_row_does_not_acknowledge(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    script = tmp_path / "worker.py"
    script.write_text(SCRIPT)
    rng = random.Random(7)
    settled: set[str] = set()
    beyond = repeated = 0
    with start_server_process("--create-stream", "orders:2") as server:
        endpoint = server.endpoint_url
        kinesis = boto3.client("kinesis", endpoint_url=endpoint)
        store = DynamoDBLeaseStore(boto3.client("dynamodb", endpoint_url=endpoint), "app")
        for n in range(RECORDS):
            kinesis.put_record(StreamName="orders", PartitionKey=f"k{n}", Data=b"%d" % n)
        for kill in range(KILLS + 1):
            before = lines_of(log)
            # Each worker but the last is killed in the middle; the last one acknowledges all but the 39 that it holds.
            enough = RECORDS - 39 if kill == KILLS else len(words(before, "ack")) + rng.randrange(60, 100)
            process = subprocess.Popen([sys.executable, str(script), endpoint, str(log), str(kill)])
            try:
                wait_for(lambda enough=enough: len(words(lines_of(log), "ack")) >= enough, process)
            finally:
                process.send_signal(signal.SIGKILL)
                process.wait(HANG)
            lines = lines_of(log)
            new = words(lines[len(before) :], "got")
            assert not new & settled, "acknowledged in the row, and delivered again"
            repeated += len(new & words(before, "got"))
            stored, behind = stored_acknowledgements(store, lines)
            assert stored <= words(lines, "ack"), "the row acknowledges what the function did not"
            assert stored >= settled
            settled, beyond = stored, beyond + len(behind)
        assert words(lines, "got") == {str(n) for n in range(RECORDS)}
    assert beyond, "no row had an acknowledgement behind a gap"
    assert repeated, "no kill hit a record that was held"


def stored_acknowledgements(store: DynamoDBLeaseStore, lines: list[list[str]]) -> tuple[set[str], set[str]]:
    """Return the records that the rows acknowledge, and those of them that are behind a gap."""
    places = {number: (shard, ExtendedSequenceNumber(sequence)) for _, number, shard, sequence in lines}
    found: set[str] = set()
    behind: set[str] = set()
    for lease in store.scan().leases:
        gaps = GapMap(2_000)
        if lease.pending_checkpoint_state is not None:
            assert gaps.restore(lease.pending_checkpoint_state, lease.checkpoint)
        for number, (shard, position) in sorted(places.items(), key=lambda one: one[1]):
            if shard != lease.lease_key:
                continue
            if not lease.checkpoint.is_sentinel and position <= lease.checkpoint:
                found.add(number)
            elif not gaps.receive(position):
                behind.add(number)
    return found | behind, behind


def words(lines: list[list[str]], word: str) -> set[str]:
    return {line[1] for line in lines if line[0] == word}


def lines_of(log: Path) -> list[list[str]]:
    return [line.split() for line in log.read_text().splitlines()]


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + HANG
    while not condition():
        assert process.poll() is None, "the worker has ended"
        assert time.monotonic() < deadline
        time.sleep(0.05)
