"""The exporter as a process: it serves what it sees, at a stated cost, and Ctrl-C ends it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.commands import CLI
from kinesis_sdk.common.shards import list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.leases import SqlLeaseStore
from kinesis_sdk.consumer.leases.table.dynamodb import DynamoDBLeaseStore
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.testing import FakeAws, FakeAwsServer
from tests import HANG


@pytest.fixture
def aws() -> Iterator[tuple[FakeAws, str]]:
    fake = FakeAws()
    with FakeAwsServer(fake) as server:
        kinesis = fake.client("kinesis")
        kinesis.create_stream(StreamName="orders", ShardCount=3)
        kinesis.put_record(StreamName="orders", Data=b"x", PartitionKey="k")
        yield fake, server.endpoint_url


def fill(fake: FakeAws, store: DynamoDBLeaseStore | SqlLeaseStore) -> None:
    store.ensure_ready()
    for shard in list_shards(fake.client("kinesis"), StreamId("orders")):
        store.create_if_absent(Lease.for_shard(shard, "TRIM_HORIZON"))
    store.take(store.list()[0], "java-worker")


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=HANG) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.parametrize("place", ["dynamodb", "sqlite"])
def test_a_process_serves_the_fleet_until_ctrl_c(
    aws: tuple[FakeAws, str], place: str, tmp_path: Path
) -> None:
    fake, url = aws
    options = []
    if place == "sqlite":
        options = ["--lease-store", f"sqlite:///{tmp_path}/leases.db"]
        engine = pytest.importorskip("sqlalchemy").create_engine(options[1])
        fill(fake, SqlLeaseStore(engine, "billing"))
        engine.dispose()
    else:
        fill(fake, DynamoDBLeaseStore(fake.client("dynamodb"), "billing"))
    command = (*CLI, "exporter", "billing", "--port", "0", "--endpoint-url", url, *options)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        base = re.search(r"http://127\.0\.0\.1:\d+", line).group(0)  # type: ignore[union-attr]
        deadline = time.monotonic() + HANG
        while True:
            status, text = get(f"{base}/lag/billing")
            if status == 200 and json.loads(text)["shards_measured"] == 3:
                break
            assert time.monotonic() < deadline, text
            time.sleep(0.2)
        assert json.loads(text)["unowned_shards"] == 2
        metrics = get(f"{base}/metrics")[1]
        assert 'kinesis_fleet_up{application="billing"} 1.0' in metrics
        assert metrics.count("kinesis_fleet_shard_lag_seconds{") == 3
        before, began = sum(fake.stats()["calls"].values()), time.monotonic()
        for _ in range(50):
            get(f"{base}/metrics")
        # A scrape makes no call; what was made meanwhile are the looks of the poller, at most two calls a second.
        made = sum(fake.stats()["calls"].values()) - before
        assert made < 20 + 2 * (time.monotonic() - began)
        assert get(f"{base}/healthz")[0] == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(HANG) == 130
        assert "Traceback" not in process.stderr.read()
        tables = {name for name in fake.stats()["calls"] if name in ("Scan", "DescribeTable")}
        assert bool(tables) == (place == "dynamodb"), "leases in another database need no call to DynamoDB"
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()
