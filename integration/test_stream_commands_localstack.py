"""The stream commands in front of LocalStack, another implementation of the service than our fake."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import HANG

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(localstack: str) -> Run:
    def command(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        result = subprocess.run(
            [sys.executable, "-m", "kinesis_sdk.cli", *arguments, "--endpoint-url", localstack],
            capture_output=True,
            text=True,
            timeout=HANG,
            check=False,
        )
        assert result.returncode == code, result.stdout + result.stderr
        return result

    return command


@pytest.fixture
def stream(run: Run) -> Iterator[str]:
    name = f"commands-{uuid.uuid4().hex[:8]}"
    run("stream", "create", name, "--shards", "2", "--tag", "team=billing")
    yield name
    run("stream", "delete", name, "--yes", "--with-consumers")


def test_streams(run: Run, stream: str) -> None:
    assert stream in run("stream", "list").stdout
    run("stream", "split", stream, "0", "--yes")
    run("stream", "merge", stream, "1", "3", "--yes")
    described = json.loads(run("stream", "describe", stream, "--json").stdout)
    assert described["stream"]["tags"] == {"team": "billing"}
    assert described["stream"]["open_shards"] == 2
    assert [one["origin"] for one in described["lineage"]["shards"]] == [
        "created",
        "created",
        "split",
        "split",
        "merge",
    ]
    assert json.loads(run("stream", "scale", stream, "3", "--yes", "--json").stdout)["after"] == 3
    run("stream", "retention", stream, "48")
    run("stream", "consumers", stream, "--register", "billing")


def test_put_tail_and_copy(run: Run, stream: str, tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    path.write_text("".join(f'{{"id": {number}}}\n' for number in range(300)))
    run("put", stream, str(path), "--key", "id")
    shown = run("tail", stream, "--from", "TRIM_HORIZON", "--until", "now", "--raw").stdout
    assert sorted(json.loads(line)["id"] for line in shown.splitlines()) == list(range(300))
    target = f"{stream}-copy"
    run("stream", "create", target, "--shards", "1")
    try:
        result = json.loads(run("copy", stream, target, "--json").stdout)
        assert result["transfer"]["acknowledged"] == 300
        lines = run("tail", target, "--from", "-1h", "--until", "now", "--json").stdout.splitlines()
        assert {json.loads(line)["partition_key"] for line in lines} == {str(number) for number in range(300)}
    finally:
        run("stream", "delete", target, "--yes")
