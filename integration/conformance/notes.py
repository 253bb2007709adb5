"""Notes of the feature scripts, and the comparison of two sets of notes."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tests import HANG


@dataclass(frozen=True)
class Difference:
    """One fact on which the fake and LocalStack are known to differ.

    Attributes:
        fake: The fake's response.
        localstack: LocalStack's response.
        right: Which of the two responds as AWS documents it.
        why: The rule that decides, or the reason for leaving the fake as it is.
    """

    fake: Any
    localstack: Any
    right: Literal["fake", "localstack", "both", "neither"]
    why: str


class Notes:
    """Clients of one endpoint, and the facts that a script found there."""

    def __init__(self, endpoint: str) -> None:
        self.facts: dict[str, Any] = {}
        self.kinesis = self._client("kinesis", endpoint)
        self.dynamodb = self._client("dynamodb", endpoint)
        self.streams = self._client("dynamodbstreams", endpoint)
        self._made: list[Callable[[], Any]] = []

    @staticmethod
    def _client(service: str, endpoint: str) -> Any:
        config = Config(
            retries={"total_max_attempts": 1},
            # Wrong requests must reach the server.
            parameter_validation=False,
            read_timeout=HANG,
        )
        return boto3.client(service, endpoint_url=endpoint, config=config)

    def fact(self, name: str, value: Any) -> None:
        """Note a value."""
        assert name not in self.facts, f"two facts are named {name!r}"
        self.facts[name] = value

    def call(
        self, name: str, method: Callable[..., Any], see: Callable[[Any], Any] | None = None, **request: Any
    ) -> Any:
        """Make a call and note its error, or what `see` finds in its response."""
        try:
            answer = method(**request)
            value = "ok" if see is None else see(answer)
        except ClientError as error:
            answer = None
            metadata = error.response["ResponseMetadata"]
            value = f"{metadata.get('HTTPStatusCode')} {error.response['Error']['Code']}"
        except BotoCoreError as error:
            answer, value = None, type(error).__name__
        self.fact(name, value)
        return answer

    # -- streams and tables that are gone afterwards ------------------------------------------------------------

    def name(self) -> str:
        """Return a new name."""
        return f"conformance-{uuid.uuid4().hex[:16]}"

    def stream(self, shards: int = 1, **more: Any) -> str:
        """Create a stream and wait until it is ACTIVE."""
        name = self.name()
        self.kinesis.create_stream(StreamName=name, ShardCount=shards, **more)
        self._made.append(lambda: self.kinesis.delete_stream(StreamName=name, EnforceConsumerDeletion=True))
        self.active(name)
        return name

    def active(self, name: str) -> dict[str, Any]:
        """Wait until a stream is ACTIVE; return its summary."""
        deadline = time.monotonic() + HANG
        while True:
            summary = self.kinesis.describe_stream_summary(StreamName=name)["StreamDescriptionSummary"]
            if summary["StreamStatus"] == "ACTIVE":
                return dict(summary)
            assert time.monotonic() < deadline, f"{name} is not ACTIVE in time"
            time.sleep(0.03)

    def table(self, *, sort: bool = False, **more: Any) -> str:
        """Create a table with the key ``k`` (text) and, with `sort`, ``s`` (a number)."""
        name = self.name()
        keys = [("k", "HASH", "S")] + ([("s", "RANGE", "N")] if sort else [])
        self.dynamodb.create_table(
            TableName=name,
            KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind, _ in keys],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": type_} for key, _, type_ in keys]
            + more.pop("definitions", []),
            BillingMode="PAY_PER_REQUEST",
            **more,
        )
        self._made.append(lambda: self.dynamodb.delete_table(TableName=name))
        self.table_active(name)
        return name

    def table_active(self, name: str) -> dict[str, Any]:
        """Wait until a table and its indexes are ACTIVE; return its description."""
        deadline = time.monotonic() + HANG
        while True:
            table = self.dynamodb.describe_table(TableName=name)["Table"]
            states = [table["TableStatus"]]
            states += [index["IndexStatus"] for index in table.get("GlobalSecondaryIndexes", ())]
            if set(states) == {"ACTIVE"}:
                return dict(table)
            assert time.monotonic() < deadline, f"{name} is not ACTIVE in time"
            time.sleep(0.03)

    def clean(self) -> None:
        """Delete everything that was created."""
        for delete in self._made:
            try:
                delete()
            except ClientError as error:
                # The script has deleted it, possibly without waiting for the end.
                if error.response["Error"]["Code"] not in {
                    "ResourceNotFoundException",
                    "ResourceInUseException",
                }:
                    raise


def compare(fake: dict[str, Any], localstack: dict[str, Any], known: dict[str, Difference]) -> list[str]:
    """Return contradictions to the list of known differences, one line each: new, changed and obsolete differences."""
    problems = []
    for name in sorted({*fake, *localstack, *known}):
        absent = "(no such fact)"
        mine, theirs = fake.get(name, absent), localstack.get(name, absent)
        listed = known.get(name)
        if listed is None:
            if mine != theirs:
                problems.append(f"unlisted: {name}: the fake: {mine!r}, LocalStack: {theirs!r}")
        elif (mine, theirs) != (listed.fake, listed.localstack):
            word = "is no longer a difference" if mine == theirs else "has changed"
            problems.append(f"listed, but {word}: {name}: the fake: {mine!r}, LocalStack: {theirs!r}")
    return problems
