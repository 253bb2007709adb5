"""The contract of lease stores, and tests of the DynamoDB store, on Amazon's DynamoDB Local behind LocalStack."""

from __future__ import annotations

import inspect
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config

from kinesis_sdk.consumer.leases import Conflict, DynamoDBLeaseStore, Lease
from kinesis_sdk.testing.contracts.lease_stores import LEASE_STORE_CHECKS, Check
from tests import HANG

pytest.register_assert_rewrite("tests.consumer.leases.test_store")

from tests.consumer.leases import test_store as suite  # noqa: E402

# Tests that create a table of their own and need nothing that only the fake has.
TABLE_TESTS = (
    suite.test_provisioned_tables,
    suite.test_a_foreign_table_is_refused,
    suite.test_foreign_attributes_survive_every_write,
    suite.test_other_entities_and_malformed_items_are_told_apart,
)
RACERS = 16
ROUNDS = 15


def connect(endpoint: str) -> Any:
    config = Config(retries={"total_max_attempts": 1}, max_pool_connections=RACERS)
    return boto3.client("dynamodb", endpoint_url=endpoint, config=config)


@pytest.fixture
def client(localstack: str) -> Any:
    return connect(localstack)


@pytest.fixture
def store(client: Any) -> Iterator[DynamoDBLeaseStore]:
    name = f"app-{uuid.uuid4().hex}"
    store = DynamoDBLeaseStore(client, name)
    store.ensure_ready()
    yield store
    client.delete_table(TableName=name)


@pytest.mark.parametrize("check", LEASE_STORE_CHECKS, ids=lambda check: check.__name__)
def test_contract(check: Check, store: DynamoDBLeaseStore) -> None:
    check(store)


def test_multi_stream_rows(store: DynamoDBLeaseStore) -> None:
    suite.test_multi_stream_rows(store)


@pytest.mark.parametrize("test", TABLE_TESTS, ids=lambda test: test.__name__)
def test_tables(test: Any, client: Any, monkeypatch: pytest.MonkeyPatch, request: Any) -> None:
    class Table:
        def __init__(self) -> None:
            self.client = client

        def store(self, **more: Any) -> DynamoDBLeaseStore:
            return DynamoDBLeaseStore(client, "app", **more)

    monkeypatch.setattr(suite, "Table", Table)
    fixtures = [request.getfixturevalue(name) for name in inspect.signature(test).parameters]
    try:
        test(*fixtures)
    finally:
        client.delete_table(TableName="app")


def test_sixteen_racers_and_one_winner(store: DynamoDBLeaseStore) -> None:
    assert store.create_if_absent(suite.lease())
    barrier = threading.Barrier(RACERS)
    outcomes: list[list[tuple[str, Lease | Conflict]]] = [[] for _ in range(ROUNDS)]

    def race(name: str) -> None:
        for outcome in outcomes:
            seen = store.get("shard-0")
            assert seen is not None
            barrier.wait(HANG)
            outcome.append((name, store.take(seen, name)))
            barrier.wait(HANG)

    threads = [threading.Thread(target=race, args=(f"w{number}",)) for number in range(RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for counter, outcome in enumerate(outcomes, 1):
        assert len(outcome) == RACERS
        ((winner, lease),) = [(name, taken) for name, taken in outcome if isinstance(taken, Lease)]
        assert (lease.owner, lease.counter) == (winner, counter)
        # The losers are shown who has it.
        assert [lost.current for _, lost in outcome if isinstance(lost, Conflict)] == [lease] * (RACERS - 1)
