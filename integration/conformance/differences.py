"""Why the fake and LocalStack 4.13.1 (kinesis-local 0.6.2, DynamoDB Local 3.3.1) differ, fact by fact.

What each of them answers is recorded in docs/verify (`kinesis-sdk verify --report`). The AWS documentation decides which side is
right; AWS has not been recorded yet. `test_fake.py` fails for a difference without a reason, for a reason without a difference, and
for an answer that is not as recorded.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from integration.conformance.comparing import Difference

Right = Literal["fake", "localstack", "both", "neither"]
RECORDS = Path(__file__).parents[2] / "docs" / "verify"
"""Where the JSON of `kinesis-sdk verify` is kept, one file a service."""

_MODEL = (
    "The service checks requests against its model (lengths, patterns, enums, required members) before anything else "
    "and answers ValidationException, '1 validation error detected'; InvalidArgumentException is for what the model "
    "allows."
)
_CRASH = "An internal failure of the emulator; the API reference names the client's error."


@dataclass(frozen=True)
class Reason:
    """Why a difference is as it is.

    Attributes:
        why: The rule that decides, or the reason for leaving the fake as it is.
        right: Which side responds as AWS documents it.
    """

    why: str
    right: Right = "fake"


def _model(*names: str) -> dict[str, Reason]:
    """Return the reasons for requests that violate the service model."""
    return dict.fromkeys(names, Reason(_MODEL))


_FILTERED = "The API reference of ShardFilter: only shards that were open at (AT) or since (FROM) that time."
_OFF_BY_ONE = (
    "The ranges of the children have to tile the parent's range. LocalStack lays streams out one short at every "
    "boundary but the first."
)
_ENCRYPTION = "In the reference's examples only streams with encryption show an EncryptionType."
_CLOSED = (
    "The reference names no error for a shard that is closed: InvalidArgumentException ('can't be used') and "
    "ResourceInUseException ('has to be in the ACTIVE state') both read on it. No client of ours depends on it."
)
_SCALED = "UpdateShardCount, ScalingType UNIFORM_SCALING: equal sizes. LocalStack's are off by one, and three are not equal."
_DOUBLE = (
    "UpdateShardCount's reference lists 'scale up to more than double' and 'down below half' among its limits, and "
    "LimitExceededException for limits."
)

REASONS: dict[str, dict[str, Reason]] = {
    "kinesis-streams": {
        **_model("create: bad name", "create: no shards", "list streams: bad limit"),
        "summary: members": Reason("The model has MaxRecordSizeInKiB."),
        "summary: MaxRecordSizeInKiB": Reason("The model has it; 1024 is its default."),
    },
    "kinesis-listing": {
        **_model("bad page size", "filter: unknown"),
        "filter: AT_TRIM_HORIZON": Reason(_FILTERED),
    },
    "kinesis-writing": {
        **_model(
            *(
                f"{call}: {what}"
                for call in ("PutRecord", "PutRecords")
                for what in ("empty key", "key of 257 characters", "hash key 01", "hash key abc")
            ),
            "PutRecord: no key", "PutRecords: none", "PutRecords: 501",
        ),
        "answer: members": Reason(_ENCRYPTION),
        **dict.fromkeys(
            ("PutRecord: 1 MiB of data", "PutRecords: 1 MiB and 1"),
            Reason("The limit holds for data and partition key together (PutRecord, Data)."),
        ),
    },
    "kinesis-sequence-numbers": {
        "end of the shard is above": Reason(
            "SequenceNumberRange is the range of possible numbers: no record may lie above its end."
        ),
    },
    "kinesis-iterators": {
        **_model("refused: unknown type", "GetRecords: none", "refused: bad number"),
        "refused: small number": Reason("The shard is there; the number is not one of its numbers."),
        "refused: number of another shard": Reason(
            "The service refuses it; a reader at a wrong place would skip or repeat records."
        ),
        "GetRecords: nonsense": Reason(_CRASH),
    },
    "kinesis-reading": {
        **_model("Limit 0", "Limit 10001"),
        "record: members": Reason(_ENCRYPTION),
        "behind": Reason(
            "MillisBehindLatest is the distance to the current time, not to the shard's last record."
        ),
    },
    "kinesis-split-and-merge": {
        "split: at its start": Reason("It would make an empty child (LocalStack: 10 to 9)."),
        "split: no number": Reason(_CRASH),
        "split: closed shard": Reason(_CLOSED, "both"),
        "split: ranges": Reason(_OFF_BY_ONE),
        "split: end has children": Reason(_OFF_BY_ONE),
        "merge: closed": Reason(_CLOSED, "both"),
        "merge: end has children": Reason(
            "The reference promises no order of ParentShards; the fake's is parent, then adjacent parent.", "both"
        ),
    },
    "kinesis-scaling": {
        **_model("scale: none", "scale: unknown kind"),
        "scale: more than double": Reason(_DOUBLE),
        "scale: less than half": Reason(_DOUBLE),
        "scaled: starts": Reason(_SCALED),
        "scaled down: starts": Reason(_SCALED),
    },
    "kinesis-settings": {
        **_model("mode: unknown", "record size: too large"),
        "on-demand: scaling": Reason(
            "UpdateShardCount: only for streams in provisioned mode (ValidationException)."
        ),
        "on-demand: splitting": Reason("SplitShard: ValidationException in on-demand mode."),
    },
    "kinesis-consumers": {
        **_model("register: bad name"),
        "delete the stream: refused, and then": Reason(
            "What is refused does not happen: LocalStack deletes it all the same."
        ),
    },
    "kinesis-subscriptions": {
        **dict.fromkeys(
            (f"subscribe: {what}" for what in ("unknown consumer", "unknown shard", "unknown position", "no number")),
            Reason(_CRASH),
        ),
        "subscribe: a second time at once": Reason(
            "SubscribeToShard: within 5 seconds of a successful call."
        ),
        "shard end: children": Reason(
            "SubscribeToShardEvent has ChildShards when the shard's end is reached."
        ),
        "shard end: then": Reason("LocalStack passes a null iterator to itself and breaks off."),
    },
    "dynamodb-tables": {
        "index: unknown": Reason(
            "The service says 'The table does not have the specified index'; DynamoDB Local has its own mind here."
        ),
    },
}  # fmt: skip
"""Reasons by step and fact."""


def recorded(service: str) -> dict[str, dict[str, Any]] | None:
    """Return the recorded facts of a service by step; None if there is no recording."""
    path = RECORDS / f"{service}.json"
    if not path.exists():
        return None
    document = json.loads(path.read_text(encoding="utf-8"))
    return {step["name"]: step["facts"] for step in document["steps"]}


def known_differences(step: str) -> dict[str, Difference]:
    """Return the recorded differences between the fake and LocalStack with their reasons; raises KeyError if one has none."""
    fake, localstack = (recorded(service) or {} for service in ("fake", "localstack"))
    mine, theirs = fake[step], localstack[step]
    return {
        fact: Difference(mine.get(fact), theirs.get(fact), REASONS[step][fact].right, REASONS[step][fact].why)
        for fact in dict.fromkeys([*mine, *theirs])
        if mine.get(fact) != theirs.get(fact)
    }
