"""The soak as its users run it: one that does each thing once, and one that has to say no after Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import boto3
import pytest

from integration.commands import execute
from kinesis_sdk.testing import start_server_process

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")

LIMIT = 900.0
"""Seconds that the end of a soak takes at most, on a very slow machine."""
SOAK = [sys.executable, "-m", "integration.endtoend.soak"]


def test_each_thing_once() -> None:
    minutes, seed = os.environ.get("SOAK_MINUTES", "1.25"), os.environ.get("SOAK_SEED", "1")
    result = execute([*SOAK, "--minutes", minutes, "--seed", seed], timeout=60 * float(minutes) + LIMIT)
    print(result.stdout)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.rstrip().endswith("PASSED")
    table = dict(line.split("  ", 1) for line in result.stdout.splitlines() if "  " in line)
    assert table["lost"].strip() == "0"
    assert int(table["acknowledged"].replace(",", "")) > 0
    assert "p50" in table["taken over after a kill"]


def test_ctrl_c_ends_in_order_and_a_violation_is_told(tmp_path: Path) -> None:
    with start_server_process() as server:
        process = subprocess.Popen(
            [
                *(*SOAK, "--minutes", "60", "--seed", "5"),
                *("--endpoint-url", server.endpoint_url),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            said = []
            for line in process.stdout:
                said.append(line)
                if " s  " in line:  # the first thing of the plan was done
                    break
            else:
                pytest.fail(f"it ended by itself: {''.join(said)}")
            dynamodb = boto3.client("dynamodb", endpoint_url=server.endpoint_url)
            (table,) = dynamodb.list_tables()["TableNames"]
            rows = dynamodb.scan(TableName=table)["Items"]
            key = next(r["leaseKey"] for r in rows if r["checkpoint"]["S"] != "SHARD_END")
            dynamodb.delete_item(TableName=table, Key={"leaseKey": key})
            dynamodb.close()
            for line in process.stdout:
                said.append(line)
                if " s  " in line:
                    break
            os.killpg(process.pid, signal.SIGINT)  # as the terminal does: to the whole group
            rest, _ = process.communicate(timeout=LIMIT)
        finally:
            process.kill()
            process.wait()
        calls = server.admin("stats")["calls"]
        time.sleep(1.5)  # workers read twice a second
        assert server.admin("stats")["calls"] == calls, "none of its processes is left"
    told = "".join(said) + rest
    assert process.returncode == 1, told
    assert "interrupted: ending in order" in told
    assert "unfinished lease deleted" in told
    assert "Traceback" not in told
    assert told.rstrip().endswith("FAILED")
