"""Duration of the first start of an application: no table, no leases, real processes, real HTTP.

The KCL needs 113 to 140 seconds for the same (facts of a measured run: random wait, sleeps after the shard sync,
polls of an index), and 36 with a table that is ready.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time

import boto3
import pytest

from kinesis_sdk.testing import start_server_process
from tests import HANG

"""Seconds from the start of the process to its first record."""

SCRIPT = textwrap.dedent(
    """
    import sys, time
    from kinesis_sdk.consumer import ConsumerConfig, Worker

    def handle(batch):
        sys.stdout.write(f"{time.time()} {batch.shard_id}\\n")
        sys.stdout.flush()

    async def handle_async(batch):
        handle(batch)

    Worker(
        "orders",
        application_name="billing",
        handler=handle_async if sys.argv[2] == "async" else handle,
        config=ConsumerConfig(initial_position="TRIM_HORIZON"),
        endpoint_url=sys.argv[1],
    ).run()
    """
)


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_first_start_without_a_table(kind):
    with start_server_process("--create-stream", "orders:4") as server:
        kinesis = boto3.client("kinesis", endpoint_url=server.endpoint_url)
        kinesis.put_records(
            StreamName="orders",
            Records=[{"Data": b"%d" % n, "PartitionKey": f"k{n}"} for n in range(100)],
        )
        started = time.time()
        child = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, server.endpoint_url, kind],
            stdout=subprocess.PIPE,
            text=True,
            env=dict(os.environ),
        )
        try:
            assert child.stdout is not None
            seen = {}
            while len(seen) < 4:
                line = child.stdout.readline()
                assert line, "the worker ended"
                moment, shard = line.split()
                seen.setdefault(shard, float(moment) - started)
            child.terminate()
            assert child.wait(HANG) == 0
        finally:
            child.kill()
            child.communicate()
        first, last = min(seen.values()), max(seen.values())
        print(
            f"{kind}: first record after {first:.2f} s, all 4 shards after {last:.2f} s, process start included"
        )
        items = boto3.client("dynamodb", endpoint_url=server.endpoint_url).scan(TableName="billing")["Items"]
        assert all("leaseOwner" not in item and item["checkpoint"]["S"].isdigit() for item in items)
