"""Every known difference between the fake and LocalStack 4.13.1 with kinesis-local 0.6.2 and DynamoDB Local 3.3.1.

The AWS documentation decides which side is right. `test_fake.py` fails for a difference that is not listed here, and for a
listed one that no longer exists.
"""

from __future__ import annotations

from typing import Any, Literal

from integration.conformance.notes import Difference

Right = Literal["fake", "localstack", "both", "neither"]
_VALIDATION, _INVALID = "400 ValidationException", "400 InvalidArgumentException"
_MODEL = (
    "The service checks requests against its model (lengths, patterns, enums, required members) before anything else "
    "and answers ValidationException, '1 validation error detected'; InvalidArgumentException is for what the model "
    "allows."
)
_CRASH = "An internal failure of the emulator; the API reference names the client's error."


def _model(*names: str, localstack: str = _INVALID) -> dict[str, Difference]:
    """Return the differences for requests that violate the service model, with LocalStack's responses."""
    return {name: Difference(_VALIDATION, localstack, "fake", _MODEL) for name in names}


def _one(fake: Any, localstack: Any, why: str, right: Right = "fake") -> Difference:
    return Difference(fake, localstack, right, why)


def _not_served(answer: str, *names: str) -> dict[str, Difference]:
    why = (
        "Neither this SDK nor its tools call it. The fake says that it has no such operation; an empty success would "
        "be a lie."
    )
    return {name: Difference("400 UnknownOperationException", answer, "localstack", why) for name in names}


_SHARDS = [f"shardId-{number:012d}" for number in range(6)]
_MEMBERS = [
    "ConsumerCount", "EncryptionType", "EnhancedMonitoring", "OpenShardCount", "RetentionPeriodHours", "StreamARN",
    "StreamCreationTimestamp", "StreamModeDetails", "StreamName", "StreamStatus",
]  # fmt: skip
_RECORD = ["ApproximateArrivalTimestamp", "Data", "PartitionKey", "SequenceNumber"]
_FILTERED = "The API reference of ShardFilter: only shards that were open at (AT) or since (FROM) that time."
_LAST = (1 << 128) - 1
_OFF_BY_ONE = (
    "The ranges of the children have to tile the parent's range. LocalStack lays streams out one short at every "
    "boundary but the first."
)
_ENCRYPTION = "In the reference's examples only streams with encryption show an EncryptionType."
_CLOSED = (
    "The reference names no error for a shard that is closed: InvalidArgumentException ('can't be used') and "
    "ResourceInUseException ('has to be in the ACTIVE state') both read on it. No client of ours depends on it."
)


def _child(number: int, parents: list[int], start: int, end: int) -> dict[str, Any]:
    return {
        "ShardId": _SHARDS[number],
        "ParentShards": [_SHARDS[parent] for parent in parents],
        "HashKeyRange": {"StartingHashKey": str(start), "EndingHashKey": str(end)},
    }


_HALF = 1 << 127
_SCALED = "UpdateShardCount, ScalingType UNIFORM_SCALING: equal sizes. LocalStack's are off by one, and three are not equal."
_DOUBLE = (
    "UpdateShardCount's reference lists 'scale up to more than double' and 'down below half' among its limits, and "
    "LimitExceededException for limits."
)

DIFFERENCES: dict[str, dict[str, Difference]] = {
    "kinesis streams": {
        **_model("create: bad name", "list streams: bad limit"),
        **_model("create: no shards", localstack="400 LimitExceededException"),
        "summary: members": _one(
            sorted([*_MEMBERS, "MaxRecordSizeInKiB"]), _MEMBERS, "The model has MaxRecordSizeInKiB."
        ),
        "summary: MaxRecordSizeInKiB": _one(1024, None, "The model has it; 1024 is its default."),
    },
    "kinesis listing": {
        **_model("bad page size", localstack="500 500"),
        **_model("filter: unknown", localstack="400 SerializationException"),
        "filter: AT_TRIM_HORIZON": _one(_SHARDS[:3], _SHARDS[:5], _FILTERED),
    },
    "kinesis writing": {
        **_model(
            *(f"{call}: {what}" for call in ("PutRecord", "PutRecords") for what in ("empty key", "key of 257 characters", "hash key 01"))
        ),
        **_model("PutRecord: hash key abc", "PutRecords: hash key abc", localstack="500 500"),
        **_model("PutRecord: no key", localstack="400 SerializationException"),
        **_model("PutRecords: none", "PutRecords: 501", localstack="ok"),
        "answer: members": _one(
            (["FailedRecordCount", "Records"], ["SequenceNumber", "ShardId"]),
            (["EncryptionType", "FailedRecordCount", "Records"], ["SequenceNumber", "ShardId"]),
            _ENCRYPTION,
        ),
        **{
            name: _one(_INVALID, "ok", "The limit holds for data and partition key together (PutRecord, Data).")
            for name in ("PutRecord: 1 MiB of data", "PutRecords: 1 MiB and 1")
        },
    },
    "kinesis sequence numbers": {
        "end of the shard is above": _one(
            True, False, "SequenceNumberRange is the range of possible numbers: no record may lie above its end."
        ),
    },
    "kinesis iterators": {
        **_model("refused: unknown type", "GetRecords: none", localstack="400 SerializationException"),
        **_model("refused: bad number"),
        "refused: small number": _one(
            _INVALID, "400 ResourceNotFoundException", "The shard is there; the number is not one of its numbers."
        ),
        "refused: number of another shard": _one(
            _INVALID, "ok", "The service refuses it; a reader at a wrong place would skip or repeat records."
        ),
        "GetRecords: nonsense": _one(_INVALID, "500 500", _CRASH),
    },
    "kinesis reading": {
        **_model("Limit 0", "Limit 10001"),
        "record: members": _one(_RECORD, sorted([*_RECORD, "EncryptionType"]), _ENCRYPTION),
        "behind": _one(
            True, False, "MillisBehindLatest is the distance to the current time, not to the shard's last record."
        ),
    },
    "kinesis split and merge": {
        "split: at its start": _one(_INVALID, "ok", "It would make an empty child (LocalStack: 0 to -1)."),
        "split: no number": _one(_INVALID, "500 500", _CRASH),
        "split: closed shard": _one(_INVALID, "400 ResourceInUseException", _CLOSED, "both"),
        "split: ranges": _one(
            [{"StartingHashKey": "0", "EndingHashKey": "9"}, {"StartingHashKey": "10", "EndingHashKey": str(_HALF - 1)}],
            [{"StartingHashKey": "0", "EndingHashKey": "9"}, {"StartingHashKey": "10", "EndingHashKey": str(_HALF - 2)}],
            _OFF_BY_ONE,
        ),
        "split: end has children": _one(
            [_child(2, [0], 0, 9), _child(3, [0], 10, _HALF - 1)],
            [_child(2, [0], 0, 9), _child(3, [0], 10, _HALF - 2)],
            _OFF_BY_ONE,
        ),
        "merge: closed": _one(_INVALID, "400 ResourceInUseException", _CLOSED, "both"),
        "merge: end has children": _one(
            [_child(4, [3, 1], 10, _LAST)],
            [_child(4, [1, 3], 10, _LAST)],
            "The reference promises no order of ParentShards; the fake's is parent, then adjacent parent.",
            "both",
        ),
    },
    "kinesis scaling": {
        **_model("scale: none"),
        **_model("scale: unknown kind", localstack="400 SerializationException"),
        "scale: more than double": _one("400 LimitExceededException", _INVALID, _DOUBLE),
        "scale: less than half": _one("400 LimitExceededException", _INVALID, _DOUBLE),
        "scaled: starts": _one([0, _HALF // 2, _HALF, _HALF + _HALF // 2], [0, _HALF // 2 - 1, _HALF - 1, _HALF + _HALF // 2 - 1], _SCALED),
        "scaled down: starts": _one([0, (1 << 128) // 3, (1 << 128) // 3 * 2], [0, _HALF - 1, _HALF + _HALF // 2 - 1], _SCALED),
    },
    "kinesis settings": {
        **_model("mode: unknown", localstack="400 SerializationException"),
        **_model("record size: too large"),
        "on-demand: scaling": _one(
            _VALIDATION, "ok", "UpdateShardCount: only for streams in provisioned mode (ValidationException)."
        ),
        "on-demand: splitting": _one(
            _VALIDATION, "400 ResourceInUseException", "SplitShard: ValidationException in on-demand mode."
        ),
    },
    "kinesis consumers": {
        **_model("register: bad name"),
        "delete the stream: refused, and then": _one(
            "ok", "400 ResourceNotFoundException", "What is refused does not happen: LocalStack deletes it all the same."
        ),
    },
    "kinesis subscriptions": {
        **{
            f"subscribe: {name}": _one(answer, "500 InternalError", _CRASH)
            for name, answer in {
                "unknown consumer": "400 ResourceNotFoundException",
                "unknown shard": "400 ResourceNotFoundException",
                "unknown position": _VALIDATION,
                "no number": _INVALID,
            }.items()
        },
        "subscribe: a second time at once": _one(
            "400 ResourceInUseException", "ok", "SubscribeToShard: within 5 seconds of a successful call."
        ),
        "shard end: children": _one(
            _SHARDS[1:3], [], "SubscribeToShardEvent has ChildShards when the shard's end is reached."
        ),
        "shard end: then": _one(
            "the stream ends", "ProtocolError", "LocalStack passes a null iterator to itself and breaks off."
        ),
    },
    "kinesis other operations": {
        **_not_served(
            "ok", "DescribeAccountSettings", "DisableEnhancedMonitoring", "EnableEnhancedMonitoring",
            "GetResourcePolicy", "ListTagsForResource", "PutResourcePolicy", "DeleteResourcePolicy",
            "StartStreamEncryption", "StopStreamEncryption", "TagResource", "UntagResource",
        ),
        **_not_served("500 InternalError", "UpdateAccountSettings"),
        **_not_served(_INVALID, "UpdateStreamWarmThroughput"),
    },
    "dynamodb tables": {
        "index: unknown": _one(
            _VALIDATION,
            "400 ResourceNotFoundException",
            "The service says 'The table does not have the specified index'; DynamoDB Local has its own mind here.",
        ),
    },
    "dynamodb other operations": _not_served(
        "ok", "TransactGetItems", "DescribeTimeToLive", "UpdateTimeToLive", "ExecuteStatement", "DescribeLimits"
    ),
}  # fmt: skip
