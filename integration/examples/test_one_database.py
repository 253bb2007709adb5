"""`examples/one_database.py` as its first lines say, in SQLite and PostgreSQL, with a worker that is killed on the way."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from integration.postgres import postgres
from kinesis_sdk.testing import FakeAws, FakeAwsServer
from tests import HANG

sqlalchemy = pytest.importorskip("sqlalchemy")

__all__ = ["postgres"]

PROGRAM = Path(__file__).parents[2] / "examples" / "one_database.py"


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: Any, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/orders.db"
    url: str = request.getfixturevalue("postgres")
    return url


def total(database: str) -> int:
    engine = sqlalchemy.create_engine(database)
    try:
        if not sqlalchemy.inspect(engine).has_table("totals"):
            return 0
        with engine.connect() as connection:
            return int(connection.scalar(sqlalchemy.text("SELECT coalesce(sum(count), 0) FROM totals")))
    finally:
        engine.dispose()


def test_each_record_counts_once_whenever_a_worker_is_killed(tmp_path: Path, database: str) -> None:
    aws = FakeAws()
    aws.client("kinesis").create_stream(StreamName="orders", ShardCount=2)
    with FakeAwsServer(aws) as server:
        environment = {
            **os.environ,
            "AWS_ENDPOINT_URL": server.endpoint_url,
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

        def start(*words: str) -> subprocess.Popen[str]:
            command = [sys.executable, str(PROGRAM), *words, "--database", database]
            return subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)

        def run(*words: str) -> str:
            process = start(*words)
            printed, _ = process.communicate(timeout=HANG)
            assert process.returncode == 0
            return printed

        run("put")
        killed, other = start("consume"), start("consume")  # at the same moment: both find no tables
        deadline = time.monotonic() + HANG
        while not total(database):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        killed.kill()
        killed.communicate()
        other.communicate(timeout=HANG)
        assert other.returncode == 0
        assert total(database) == 1000
        run("put")
        for _ in range(2):  # the second one finds nothing to do
            run("consume")
        lines = run("show").splitlines()
    assert lines[:10] == [f"customer-{number} 200" for number in range(10)]
    assert [line.rpartition(" ")[0] for line in lines[10:]] == [
        f"shardId-00000000000{n} free" for n in range(2)
    ]
    assert not [name for name in aws.stats()["calls"] if "Item" in name or "Table" in name], "no DynamoDB"
