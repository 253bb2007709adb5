"""Lease stores for tests: in memory, SQLite, DynamoDB as the fake plays it, and DynamoDB as moto plays it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count
from typing import Any

import boto3
import pytest
from botocore.config import Config

from kinesis_sdk.consumer.leases import DynamoDBLeaseStore, InMemoryLeaseStore, SqlLeaseStore
from kinesis_sdk.testing import FakeAws, VirtualClock


class OneAtATime:
    """Serialises the calls of a client.

    moto checks a condition and writes without a lock in between, so two racers may both win.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._client, name)
        if not callable(value):
            return value

        def call(**request: Any) -> Any:
            with self._lock:
                return value(**request)

        return call


@pytest.fixture(scope="session")
def moto_client() -> Any:
    """One for all tests: creating one takes longer than most of them."""
    from moto import mock_aws

    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    with mock_aws():
        # With a user agent, botocore does not put together its own for each call.
        config = Config(user_agent="tests")
        return boto3.client("dynamodb", region_name="us-east-1", config=config, **keys)


def sqlite_in_memory(application: str = "app") -> SqlLeaseStore:
    """Return a store in memory: one connection, which all threads share."""
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(
        "sqlite://", poolclass=sqlalchemy.pool.StaticPool, connect_args={"check_same_thread": False}
    )
    store = SqlLeaseStore(engine, application)
    store.ensure_ready()
    return store


# SQLAlchemy compiles each statement once for an engine, which takes longer than most tests. So tests share engines, and each has an
# application of its own.
_APPLICATIONS = count()


@pytest.fixture(scope="session")
def in_sqlite() -> Iterator[SqlLeaseStore]:
    store = sqlite_in_memory()
    yield store
    store.engine.dispose()


@pytest.fixture(scope="session")
def in_sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlLeaseStore]:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    store = SqlLeaseStore(f"sqlite:///{tmp_path_factory.mktemp('leases')}/leases.db", "app")
    # Without a wait for the disk with each of thousands of writes.
    sqlalchemy.event.listen(store.engine, "connect", lambda raw, _: raw.execute("PRAGMA synchronous=OFF"))
    store.ensure_ready()
    yield store
    store.close()


@pytest.fixture
def own_application(in_sqlite_file: SqlLeaseStore) -> SqlLeaseStore:
    """A store whose statements were compiled by earlier tests."""
    return SqlLeaseStore(in_sqlite_file.engine, f"app {next(_APPLICATIONS)}", sleep=lambda seconds: None)


@pytest.fixture(
    params=[
        "memory",
        "sqlite file",
        "fake",
        # As a unit test, `test_no_statement_reads_a_clock` plays the whole contract there.
        pytest.param("sqlite", marks=pytest.mark.fuzz_only),
        pytest.param("moto", marks=pytest.mark.fuzz_only),
    ]
)
def store(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param.startswith("sqlite"):
        shared = request.getfixturevalue("in_sqlite" if request.param == "sqlite" else "in_sqlite_file")
        yield SqlLeaseStore(shared.engine, f"app {next(_APPLICATIONS)}")
        return
    if request.param == "memory":
        yield InMemoryLeaseStore()
        return
    if request.param == "fake":
        clock = VirtualClock()
        client = FakeAws(clock=clock).client("dynamodb")
        store = DynamoDBLeaseStore(client, "app", sleep=clock.advance, monotonic=clock.monotonic)
        store.ensure_ready()
        yield store
        return
    from moto import mock_aws

    with mock_aws():  # empty again each time
        client = OneAtATime(request.getfixturevalue("moto_client"))
        store = DynamoDBLeaseStore(client, "app", sleep=lambda seconds: None)
        store.ensure_ready()
        yield store
