"""A program that produces and consumes, on each Python that the package declares, with the oldest libraries that it declares.

All other tests run on one Python, with the newest libraries (`.ci/requirements.txt`). `make lock` writes ``lowest.txt``.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from integration.building import ROOT
from integration.commands import execute
from integration.interpreters import PYTHONS, interpreter
from integration.localstack.install import CannotInstallError, build_once, cache_folder, run

PINS = Path(__file__).with_name("lowest.txt")
PROGRAM = """
import json, sys
from importlib.metadata import version

from kinesis_sdk import ConsumerConfig, Producer, Worker
from kinesis_sdk.testing import FakeAws, FakeAwsServer

with FakeAwsServer(FakeAws()) as server:
    options = {"region_name": "us-east-1", "endpoint_url": server.endpoint_url}
    import boto3
    kinesis = boto3.client("kinesis", aws_access_key_id="x", aws_secret_access_key="x", **options)
    kinesis.create_stream(StreamName="orders", ShardCount=2)
    found = []
    with Producer(**options) as producer:
        for number in range(1000):
            producer.put("orders", f"customer-{number % 10}", b"%d" % number)
    config = ConsumerConfig(initial_position="TRIM_HORIZON")
    worker = Worker(
        "orders",
        application_name="report",
        handler=lambda batch: found.extend(int(record.data) for record in batch.records),
        config=config,
        until="now",
        **options,
    )
    worker.run()
versions = {name: version(name) for name in ("boto3", "protobuf", "tenacity")}
print(json.dumps({"python": "%d.%d" % sys.version_info[:2], "all": sorted(found) == list(range(1000)), **versions}))
"""


def pinned_for(python: str) -> dict[str, str]:
    """Return the version of each library that is pinned for a Python."""
    lines = re.findall(r"^([\w-]+==.+?) *\\?$", PINS.read_text(encoding="utf-8"), re.MULTILINE)
    pinned = [Requirement(line) for line in lines]
    running = {"python_version": python, "python_full_version": f"{python}.0"}
    return {
        one.name: str(one.specifier).removeprefix("==")
        for one in pinned
        if one.marker is None or one.marker.evaluate(running)
    }


@pytest.mark.parametrize("version", PYTHONS)
def test_a_program_runs_on_the_oldest_libraries(version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")

    def build(root: Path) -> None:
        run(python, "-m", "venv", root, cwd=root)
        run(
            root / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
            "--require-hashes", "--requirement", PINS, cwd=root,
        )  # fmt: skip

    name = f"lowest-py{version}"
    try:
        folder = build_once(name, cache_folder(name, PINS.read_text(encoding="utf-8")), build)
    except CannotInstallError as error:
        pytest.skip(str(error))
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYTHON"))
    }
    done = execute(
        [folder / "bin" / "python", "-c", PROGRAM],
        cwd=tmp_path,
        env={
            **environment,
            "PYTHONPATH": str(ROOT),
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
            "AWS_EC2_METADATA_DISABLED": "true",
        },
    )
    assert done.returncode == 0, done.stderr[-3000:]
    pins = pinned_for(version)
    assert json.loads(done.stdout) == {
        "python": version,
        "all": True,
        **{library: pins[library] for library in ("boto3", "protobuf", "tenacity")},
    }


WITHOUT_POSIX = """
import sys
sys.modules.update(dict.fromkeys(["fcntl", "grp", "pty", "pwd", "resource", "termios"]))
from kinesis_sdk import AsyncProducer, DynamoDBSink, Producer, SqlSink, Worker
from kinesis_sdk.admin import Application
from kinesis_sdk.cli.main import cli
from kinesis_sdk.lambda_events import kinesis_handler
from kinesis_sdk.spark import register
from kinesis_sdk.testing import FakeAws
"""


def test_nothing_but_what_the_page_names_imports_modules_of_posix() -> None:
    """docs/versions.md says so of Windows, which is not here."""
    done = execute([sys.executable, "-c", WITHOUT_POSIX])
    assert done.returncode == 0, done.stderr
