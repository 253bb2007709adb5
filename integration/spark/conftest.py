"""One session, one endpoint, a stream per test. Collected only where pyspark is installed (see `environments`)."""

from __future__ import annotations

import importlib.util
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

collect_ignore_glob = [] if importlib.util.find_spec("pyspark") else ["test_*.py"]

ACCOUNT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "core: also run with the oldest Spark version")
    config.addinivalue_line("markers", "localstack: also run against LocalStack")
    config.addinivalue_line("markers", "scene: the part that `make test` runs, against LocalStack")
    config.addinivalue_line("markers", "full: takes minutes, run by `make spark-full`")


@pytest.fixture(scope="session")
def endpoint() -> Iterator[Any]:
    """Return ``AWS_ENDPOINT_URL`` if it is set, else start our own fake, with the service's limits."""
    from integration.spark.harness import Endpoint
    from kinesis_sdk.testing import start_server_process

    os.environ.update(ACCOUNT)
    if url := os.environ.get("AWS_ENDPOINT_URL"):
        yield Endpoint(url, None)
        return
    with start_server_process() as server:
        yield Endpoint(server.endpoint_url, server)


@pytest.fixture(scope="session")
def spark(endpoint: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A local session with two slots; a task may fail twice."""
    from pyspark.sql import SparkSession

    del endpoint  # The account's variables must be set before the JVM starts.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    folder = tmp_path_factory.mktemp("spark")
    full = os.environ.get("SPARK_FULL") == "1"
    session = (
        SparkSession.builder.master("local[2,3]")
        .appName("kinesis_sdk tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "3g" if full else "1g")
        .config("spark.sql.shuffle.partitions", "16" if full else "2")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder))
        .config("spark.sql.session.timeZone", "UTC")
        # A hanging task prints its stacks into the output of the failing test.
        .config("spark.python.worker.tracebackDumpIntervalSeconds", "200")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def stream(endpoint: Any, request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Make streams, and delete them when the test ends."""
    made: list[Any] = []
    counter = itertools.count()

    def make(shards: int = 1) -> Any:
        name = f"{request.node.name[:80]}-{os.getpid()}-{next(counter)}".replace("[", "-").replace("]", "")
        made.append(endpoint.create(name, shards))
        return made[-1]

    yield make
    if endpoint.server is not None:
        endpoint.server.admin("faults", method="DELETE")
    for item in made:
        item.delete()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """For checkpoints and output."""
    return tmp_path
