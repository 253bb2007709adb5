"""The fake AWS over HTTP, and programs of `examples/` as processes."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3

from integration.commands import execute
from integration.stored import stored_records
from kinesis_sdk.common.aggregate_reader import deaggregate
from kinesis_sdk.common.records import KinesisRecord, UserRecord
from kinesis_sdk.testing import FakeAws

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
BIN = Path(sys.executable).parent
TIMEOUT = 300.0


@dataclass(frozen=True)
class Account:
    """A fake account over HTTP.

    Attributes:
        aws: The fake itself, for injecting faults.
        environment: Environment of programs that use it.
    """

    aws: FakeAws
    environment: dict[str, str]

    def client(self, service: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=self.environment["AWS_ENDPOINT_URL"],
            region_name="us-east-1",
            aws_access_key_id="x",
            aws_secret_access_key="x",
        )

    def create_stream(self, name: str, shards: int) -> None:
        self.client("kinesis").create_stream(StreamName=name, ShardCount=shards)

    def records(self, stream: str) -> list[UserRecord]:
        """Return all user records of a stream."""
        return records_of(self.client("kinesis"), stream)

    def start(
        self, *command: object, folder: Path, log: Path | None = None, **environment: str
    ) -> subprocess.Popen[str]:
        """Start a program; its output, errors included, goes to a file or a pipe."""
        with (log or Path(os.devnull)).open("w") as file:
            return subprocess.Popen(
                [str(part) for part in command],
                cwd=folder,
                env={**self.environment, **environment},
                stdout=file if log else subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )

    def run(self, example: str, *arguments: str, folder: Path) -> str:
        """Run a program of `examples/` to its end, and return its output."""
        done = execute([sys.executable, EXAMPLES / example, *arguments], cwd=folder, env=self.environment)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout


def records_of(kinesis: Any, stream: str) -> list[UserRecord]:
    """Return all user records of a stream, shard by shard."""
    stored = (KinesisRecord.from_api(record) for _, record in stored_records(kinesis, stream))
    return list(deaggregate(stored))


def environment_for(endpoint_url: str) -> dict[str, str]:
    """Return the variables that the fake tells a reader to export, without any other variable of AWS."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {
        **inherited,
        "AWS_ENDPOINT_URL": endpoint_url,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
    }
