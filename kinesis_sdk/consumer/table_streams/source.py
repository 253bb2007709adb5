"""`DynamoDbStream`: the stream of a table, and its ARN."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from kinesis_sdk.common.aws import KinesisClient, call_with_retries
from kinesis_sdk.common.errors import ConfigError, ProtocolError, ResourceNotFoundError
from kinesis_sdk.common.paging import PageLimit
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.config import ConsumerConfig
from kinesis_sdk.consumer.table_streams.client import TableStreamClient

_TABLE = re.compile(r"[a-zA-Z0-9_.-]{3,255}")


@dataclass(frozen=True)
class DynamoDbStream:
    """The stream of a DynamoDB table, as the source of a `Worker`.

    Attributes:
        table: Name of the table, whose newest stream is read; or the ARN of a stream
            (``arn:aws:dynamodb:…:table/orders/stream/2026-01-01T00:00:00.000``).

    Raises:
        ConfigError: If it is neither a table name nor the ARN of a table's stream.
    """

    table: str

    def __post_init__(self) -> None:
        if isinstance(self.table, str) and (
            _TABLE.fullmatch(self.table) or StreamId.of_table_stream(self.table) is not None
        ):
            return
        raise ConfigError(
            "table",
            self.table,
            "a table name (3 to 255 of a-z A-Z 0-9 _ . -) or the ARN of a stream (arn:…:dynamodb:…:table/…/stream/…)",
        )

    @property
    def region(self) -> str | None:
        """Region of the ARN; None for a table name."""
        stream = StreamId.of_table_stream(self.table)
        return None if stream is None else stream.region

    def __str__(self) -> str:
        return self.table

    def reader(self, client: Any, former: Sequence[StreamId] = ()) -> KinesisClient:
        """Return a client that has only the calls of Kinesis that read a stream.

        Args:
            client: boto3 client for ``dynamodbstreams``, or an object with its methods.
            former: Earlier streams of the table that can still be read, see `streams`.
        """
        return cast("KinesisClient", TableStreamClient(client, former))

    def resolve(self, client: Any, sleep: Callable[[float], None] | None = None) -> StreamId:
        """Return the stream to read: the last result of `streams`, with the same arguments, cost and errors."""
        return self.streams(client, sleep)[-1]

    def streams(self, client: Any, sleep: Callable[[float], None] | None = None) -> list[StreamId]:
        """Return the stream of an ARN, or all streams that the table has and had within a day, the newest last.

        Cost for a table name: one ListStreams for each 100 streams.

        Args:
            client: boto3 client for ``dynamodbstreams``.
            sleep: Waits between two attempts, in seconds; `time.sleep` by default.

        Raises:
            ResourceNotFoundError: If the table has no stream.
            AwsError: If a call failed.
        """
        known = StreamId.of_table_stream(self.table)
        if known is not None:
            return [known]
        found: dict[str, str] = {}
        request: dict[str, Any] = {"TableName": self.table}
        limit = PageLimit("ListStreams")
        while True:
            page = call_with_retries(
                lambda: client.list_streams(**request), operation="ListStreams", client=client, sleep=sleep
            )
            streams = page.get("Streams")
            if not isinstance(streams, list):
                raise ProtocolError("ListStreams: the response has no list of Streams")
            found.update((stream["StreamLabel"], stream["StreamArn"]) for stream in streams)
            last = page.get("LastEvaluatedStreamArn")
            if not last or last == request.get("ExclusiveStartStreamArn"):
                break
            limit.check(last)
            request["ExclusiveStartStreamArn"] = last
        if not found:
            raise ResourceNotFoundError(
                f"table {self.table} has no stream, or does not exist in this region and account; enable a stream with StreamSpecification",
                operation="ListStreams",
            )
        return [
            _stream_of(found[label]) for label in sorted(found)
        ]  # the time at which the stream was enabled


def _stream_of(arn: str) -> StreamId:
    stream = StreamId.of_table_stream(arn)
    if stream is None:
        raise ProtocolError(f"ListStreams: {arn[:200]!r} is not the ARN of a stream of a table")
    return stream


def check_settings(config: ConsumerConfig) -> None:
    """Raise `ConfigError` for settings that a table's stream does not support: enhanced fan-out and a deserializer."""
    if config.retrieval.retrieval_mode == "fanout":
        raise ConfigError(
            "retrieval.retrieval_mode",
            "fanout",
            '"polling": DynamoDB Streams has no enhanced fan-out (SubscribeToShard is an operation of Kinesis alone)',
        )
    if config.deserializer is not None:
        raise ConfigError(
            "deserializer", config.deserializer, "None: a ChangeRecord decodes the changes of a table"
        )
