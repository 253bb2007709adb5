"""Leases of simulated fleets in the fake's DynamoDB."""

from __future__ import annotations

from typing import Any

from kinesis_sdk.consumer import DynamoDBLeaseStore
from tests.consumer.fleet.engines import Fleet


def dynamodb_store(fleet: Fleet) -> DynamoDBLeaseStore:
    return DynamoDBLeaseStore(
        fleet.aws.client("dynamodb"), "app", sleep=fleet.clock.advance, monotonic=fleet.clock.monotonic
    )


def on_dynamodb(shards: int = 1, **more: Any) -> Fleet:
    fleet = Fleet(shards=shards, **more)
    fleet.store = dynamodb_store(fleet)
    return fleet
