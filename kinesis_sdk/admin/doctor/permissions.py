"""Actions that each role needs, and conclusions from an error about the permission of the failed action.

Kinesis has a dry run for the data plane (``DryRun``). Elsewhere an action is tried with arguments that can have no effect *by
their meaning*, so that no changed limit can make them succeed: a write under a condition that contradicts itself, a split of a
shard that does not exist, a retention that is "increased" to one hour. An action without such arguments is not tried.
"""

from __future__ import annotations

from dataclasses import dataclass

from kinesis_sdk.admin.doctor.facts import Permission, Tried
from kinesis_sdk.common.aws import DENIALS

ROLES = ("consumer", "producer", "admin")
"""Purposes of credentials."""


@dataclass(frozen=True)
class Action:
    """An action of IAM. ``only_for`` is empty if its roles always need the action; ``not_tried`` is the reason why it is never tried."""

    name: str
    roles: tuple[str, ...]
    only_for: str = ""
    not_tried: str = ""


_FAN_OUT = "enhanced fan-out"
_NO_DRY_RUN = "it has no dry run, and each valid request would have an effect"

ACTIONS = (
    Action("kinesis:DescribeStreamSummary", ("producer", "admin")),
    Action("kinesis:ListShards", ("producer", "consumer", "admin")),
    Action("kinesis:PutRecords", ("producer",)),
    Action("kinesis:GetShardIterator", ("consumer",)),
    Action("kinesis:GetRecords", ("consumer",)),
    Action("kinesis:SubscribeToShard", ("consumer",), only_for=_FAN_OUT),
    Action("kinesis:DescribeStreamConsumer", ("consumer",), only_for=_FAN_OUT),
    Action("kinesis:RegisterStreamConsumer", ("consumer", "admin"), only_for=_FAN_OUT, not_tried=_NO_DRY_RUN),
    Action("dynamodb:DescribeTable", ("consumer", "admin")),
    Action("dynamodb:Scan", ("consumer", "admin")),
    Action("dynamodb:GetItem", ("consumer", "admin")),
    Action("dynamodb:PutItem", ("consumer",)),
    Action("dynamodb:UpdateItem", ("consumer", "admin")),
    Action("dynamodb:DeleteItem", ("consumer",)),
    Action("dynamodb:CreateTable", ("consumer",), only_for="the first start", not_tried=_NO_DRY_RUN),
    Action("cloudwatch:PutMetricData", ("producer", "consumer"), only_for="metrics in CloudWatch"),
    Action("kinesis:DescribeLimits", ("admin",)),
    Action("kinesis:ListStreamConsumers", ("admin",)),
    Action("kinesis:SplitShard", ("admin",)),
    Action("kinesis:MergeShards", ("admin",)),
    Action("kinesis:IncreaseStreamRetentionPeriod", ("admin",)),
    Action("kinesis:DecreaseStreamRetentionPeriod", ("admin",)),
    Action("dynamodb:DescribeContinuousBackups", ("admin",)),
    Action("kinesis:UpdateShardCount", ("admin",), not_tried=_NO_DRY_RUN),
    Action("kinesis:DeregisterStreamConsumer", ("admin",), only_for=_FAN_OUT, not_tried=_NO_DRY_RUN),
    Action("kinesis:CreateStream", ("admin",), not_tried=_NO_DRY_RUN),
    Action("kinesis:DeleteStream", ("admin",), not_tried=_NO_DRY_RUN),
    Action("dynamodb:DeleteTable", ("admin",), not_tried=_NO_DRY_RUN),
)

_AFTER_AUTHORIZATION = frozenset(
    {
        "ConditionalCheckFailedException",
        "DryRunOperationException",
        "InvalidArgumentException",
        "ProvisionedThroughputExceededException",
        "ResourceInUseException",
        "ResourceNotFoundException",
    }
)
"""Error codes that a service returns only after it has allowed the action, because they depend on the resource."""


def permission_of(code: str, message: str) -> Tried:
    """Return whether the failed action is permitted, as far as its error shows it."""
    if code in DENIALS:
        return Tried(Permission.DENIED, message)
    if code in _AFTER_AUTHORIZATION:
        return Tried(Permission.ALLOWED)
    if code == "ParamValidationError":
        return Tried(
            Permission.UNKNOWN,
            "the installed botocore does not know the dry run of this call (pip install -U boto3)",
        )
    # A request may be checked for its form before it is authorized.
    return Tried(Permission.UNKNOWN, f"the response does not tell ({code})")


ALLOWED = Tried(Permission.ALLOWED)
