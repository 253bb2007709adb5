"""Batches that Lambda discarded: the message to the on-failure destination contains their position in the stream."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kinesis_sdk.common.base64coding import encode
from kinesis_sdk.common.errors import ConfigError, InvalidEventError, ProtocolError
from kinesis_sdk.common.sequence import is_sequence_number
from kinesis_sdk.lambda_events.events import SOURCE

if TYPE_CHECKING:
    from kinesis_sdk.common.aws import KinesisClient

MAX_MESSAGE = 1 << 20
"""Maximum characters of a message; SQS and SNS pass on at most 256 KiB, and 1 MiB since August 2025."""
_MAX_RECORDS = 10_000
"""Maximum records of a batch (Lambda API)."""
_MAX_BYTES = 6 * 1024 * 1024
"""Maximum bytes of the records of a batch: Lambda passes no larger event to a function."""
_MAX_CALLS = 1_000
"""Maximum GetRecords calls until the end of the batch."""


def discarded_event(message: str | Mapping[str, Any], client: KinesisClient) -> dict[str, Any]:
    """Return the event of a batch that Lambda discarded, read again from the stream.

    The message to the on-failure destination has no records, only their positions. The batch can be processed again for as long
    as the stream keeps it:

        handler(discarded_event(body, boto3.client("kinesis")), None)

    Check the handler's response: records that it names have failed again.

    Args:
        message: The message as text or parsed: the body of an SQS message, or the SNS message; up to 1 MiB.
        client: boto3 client of Kinesis in the region of the stream. It makes one GetShardIterator call, and GetRecords until the batch is read.

    Raises:
        InvalidEventError: If this is not a message about a batch of Kinesis.
        ConfigError: If ``client`` is not a client of Kinesis.
        AwsError: If a call fails.
        ProtocolError: If the stream no longer has all records of the batch, or the end of the batch is not reached.
    """
    if not hasattr(client, "get_shard_iterator"):
        raise ConfigError("client", type(client).__name__, "a boto3 client of Kinesis")
    batch = _batch(message)
    arn, shard_id, size = batch["streamArn"], batch["shardId"], batch["batchSize"]
    records = list(_records(client, batch))
    if len(records) != size:
        raise ProtocolError(
            f"{shard_id}: {len(records)} of {size} records of the batch are in the stream; the other records have expired"
        )
    return {
        "Records": [
            {
                "kinesis": {
                    "kinesisSchemaVersion": "1.0",
                    "partitionKey": record["PartitionKey"],
                    "sequenceNumber": record["SequenceNumber"],
                    "data": encode(record["Data"]).decode(),
                    "approximateArrivalTimestamp": record["ApproximateArrivalTimestamp"].timestamp(),
                },
                "eventSource": SOURCE,
                "eventID": f"{shard_id}:{record['SequenceNumber']}",
                "eventSourceARN": arn,
            }
            for record in records
        ]
    }


def _batch(message: str | Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the position of a batch, checked."""
    if isinstance(message, str):
        if len(message) > MAX_MESSAGE:
            raise InvalidEventError("message", f"expected at most {MAX_MESSAGE} characters")
        try:
            message = json.loads(message)
        except (ValueError, RecursionError) as error:
            raise InvalidEventError("message", f"not JSON: {error}") from error
    batch = message.get("KinesisBatchInfo") if isinstance(message, Mapping) else None
    if not isinstance(batch, Mapping):
        raise InvalidEventError("KinesisBatchInfo", "expected the position of a batch in Kinesis")
    for name in ("streamArn", "shardId"):
        if not isinstance(batch.get(name), str):
            raise InvalidEventError(f"KinesisBatchInfo.{name}", "expected text")
    for name in ("startSequenceNumber", "endSequenceNumber"):
        if not is_sequence_number(batch.get(name)):
            raise InvalidEventError(f"KinesisBatchInfo.{name}", "expected decimal text of 1 to 129 digits")
    size = batch.get("batchSize")
    if type(size) is not int or not 1 <= size <= _MAX_RECORDS:
        raise InvalidEventError("KinesisBatchInfo.batchSize", f"expected 1 to {_MAX_RECORDS}")
    return batch


def _records(client: KinesisClient, batch: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the records of the shard from the first to the last record of the batch."""
    from kinesis_sdk.common.aws import translate_errors  # a function that replays nothing does not load it

    arn, first, last = batch["streamArn"], int(batch["startSequenceNumber"]), int(batch["endSequenceNumber"])
    left: int = batch["batchSize"]
    room = _MAX_BYTES
    with translate_errors("GetShardIterator", client):
        iterator = client.get_shard_iterator(
            StreamARN=arn.partition("/consumer/")[0],
            ShardId=batch["shardId"],
            ShardIteratorType="AT_SEQUENCE_NUMBER",
            StartingSequenceNumber=batch["startSequenceNumber"],
        ).get("ShardIterator")
    for _ in range(_MAX_CALLS):
        with translate_errors("GetRecords", client):
            page = client.get_records(ShardIterator=iterator, Limit=_MAX_RECORDS)
        for record in page["Records"]:
            number = int(record["SequenceNumber"])
            if number > last:
                return
            if number >= first:
                left -= 1
                room -= len(record["Data"])
                if room < 0:
                    raise ProtocolError(f"{batch['shardId']}: the batch has more than {_MAX_BYTES:,} bytes")
                if left < 0:
                    raise ProtocolError(
                        f"{batch['shardId']}: the batch has more records than its message says"
                    )
                yield record
            if number == last:
                return
        iterator = page.get("NextShardIterator")
        if iterator is None:
            return
    raise ProtocolError(f"{batch['shardId']}: the end of the batch was not reached in {_MAX_CALLS} calls")
