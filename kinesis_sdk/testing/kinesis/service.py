"""Control plane of Kinesis (streams, shards, consumers, tags), and the table of all operations."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from kinesis_sdk.testing.errors import AwsError, constraint, invalid_argument, validation
from kinesis_sdk.testing.kinesis.fanout import FanOut
from kinesis_sdk.testing.kinesis.listing import ShardListing, page_limit
from kinesis_sdk.testing.kinesis.records import RecordPlane
from kinesis_sdk.testing.kinesis.registry import StreamRegistry
from kinesis_sdk.testing.kinesis.streams import Consumer, Stream
from kinesis_sdk.testing.kinesis.throttle import CONTROL_RATES, TokenBucket
from kinesis_sdk.testing.kinesis.tokens import seal, unseal

Operation = Callable[[dict[str, Any]], "dict[str, Any] | bytes"]

_CONSUMER_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}", re.ASCII)
_MODES = ("PROVISIONED", "ON_DEMAND")
_STRATEGIES = ("AUTO", "USER_PARTITION_KEY")
_ON_DEMAND_SHARDS = 4
_CONSUMER_LIMIT = 20
_TAG_LIMIT = 50


def _integer(request: dict[str, Any], member: str, low: int, high: int) -> int:
    value = request.get(member)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        name = member[0].lower() + member[1:]
        raise constraint(name, value, f"be an integer between {low} and {high}, both inclusive")
    return value


def _choice(value: Any, member: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise constraint(member, value, f"satisfy enum value set: [{', '.join(choices)}]")
    return str(value)


class FakeKinesis:
    """The Kinesis service of one account and region. Thread-safe.

    `operations` maps an operation's name to a function that takes a request and returns a response, both in wire form.
    """

    target_prefix = "Kinesis_20131202"

    def __init__(self, registry: StreamRegistry) -> None:
        self.registry = registry
        self.records: RecordPlane = RecordPlane(registry)
        self._listing = ShardListing(registry)
        self._fan_out = FanOut(registry, self.records)
        self._control_limits: dict[str, TokenBucket] = {}
        self.operations: dict[str, Operation] = {
            "PutRecord": self.records.put_record,
            "PutRecords": self.records.put_records,
            "GetShardIterator": self.records.get_shard_iterator,
            "GetRecords": self.records.get_records,
            "ListShards": self._listing.list_shards,
            "ListStreams": self._listing.list_streams,
            "DescribeStream": self._listing.describe_stream,
            "CreateStream": self.create_stream,
            "DeleteStream": self.delete_stream,
            "DescribeStreamSummary": self.describe_stream_summary,
            "DescribeLimits": self.describe_limits,
            "SplitShard": self.split_shard,
            "MergeShards": self.merge_shards,
            "UpdateShardCount": self.update_shard_count,
            "IncreaseStreamRetentionPeriod": self.increase_retention,
            "DecreaseStreamRetentionPeriod": self.decrease_retention,
            "UpdateMaxRecordSize": self.update_max_record_size,
            "UpdateStreamMode": self.update_stream_mode,
            "UpdateStreamRecordDistributionStrategy": self.update_distribution_strategy,
            "AddTagsToStream": self.add_tags,
            "RemoveTagsFromStream": self.remove_tags,
            "ListTagsForStream": self.list_tags,
            "RegisterStreamConsumer": self.register_consumer,
            "DeregisterStreamConsumer": self.deregister_consumer,
            "DescribeStreamConsumer": self.describe_consumer,
            "ListStreamConsumers": self.list_consumers,
            "SubscribeToShard": self.subscribe_to_shard,
        }

    def check_rate(self, operation: str) -> None:
        """Apply the account's limit for a control plane operation, if the registry enforces it."""
        rate = CONTROL_RATES.get(operation)
        if rate is None or not self.registry.throttle_control_plane:
            return
        now = self.registry.clock.monotonic()
        with self.registry.lock:
            bucket = self._control_limits.setdefault(operation, TokenBucket(rate, now))
            if not bucket.take(1, now):
                raise AwsError(
                    "LimitExceededException",
                    f"Rate exceeded for operation {operation} under account {self.registry.account_id}: "
                    f"{rate:g} per second.",
                )

    # -- streams ------------------------------------------------------------------------------------------------

    def create_stream(self, request: dict[str, Any]) -> dict[str, Any]:
        """CreateStream."""
        registry = self.registry
        name = registry.require_name(request.get("StreamName"))
        mode = (request.get("StreamModeDetails") or {}).get("StreamMode", "PROVISIONED")
        _choice(mode, "streamModeDetails.streamMode", _MODES)
        strategy = request.get("RecordDistributionStrategy", "USER_PARTITION_KEY")
        _choice(strategy, "recordDistributionStrategy", _STRATEGIES)
        if mode == "ON_DEMAND" or request.get("ShardCount") is None:
            count = _ON_DEMAND_SHARDS
        else:
            count = _integer(request, "ShardCount", 1, 1_000_000)
        if mode == "PROVISIONED" and "RecordDistributionStrategy" in request:
            raise invalid_argument(
                "RecordDistributionStrategy is only supported for streams in ON_DEMAND capacity mode."
            )
        size = (
            _integer(request, "MaxRecordSizeInKiB", 1024, 10240) if "MaxRecordSizeInKiB" in request else 1024
        )
        with registry.lock:
            if name in registry.streams:
                raise AwsError(
                    "ResourceInUseException",
                    f"Stream {name} under account {registry.account_id} already exists.",
                )
            self._require_shards(count)
            stream = Stream(
                name,
                registry.arn(name),
                registry.clock,
                shard_count=count,
                mode=mode,
                strategy=strategy,
                max_record_kib=size,
                delay=registry.stream_delay,
                reshard_delay=registry.reshard_delay,
                limit_scalings=registry.throttle_control_plane,
            )
            stream.tags.update(request.get("Tags") or {})
            registry.streams[name] = stream
        return {}

    def _require_shards(self, more: int) -> None:
        used = sum(len(stream.open_shards) for stream in self.registry.streams.values())
        if used + more > self.registry.shard_limit:
            raise AwsError(
                "LimitExceededException",
                f"This request would exceed the shard limit for the account {self.registry.account_id} in "
                f"{self.registry.region}. Current shard count for the account: {used}. "
                f"Limit: {self.registry.shard_limit}. Number of additional shards that would have resulted from "
                f"this request: {more}.",
            )

    def delete_stream(self, request: dict[str, Any]) -> dict[str, Any]:
        """DeleteStream: the stream no longer exists when the call returns.

        Registered consumers prevent the deletion unless the call deregisters them.
        """
        stream = self.registry.find(request)
        with self.registry.lock, stream.lock:
            if stream.consumers and not request.get("EnforceConsumerDeletion"):
                raise AwsError(
                    "ResourceInUseException",
                    f"Stream {stream.name} under account {self.registry.account_id} has consumers registered; "
                    "deregister them or set EnforceConsumerDeletion.",
                )
            self.registry.streams.pop(stream.name, None)
            stream.delete()
        return {}

    def describe_stream_summary(self, request: dict[str, Any]) -> dict[str, Any]:
        """DescribeStreamSummary."""
        stream = self.registry.find(request)
        with stream.lock:
            return {"StreamDescriptionSummary": stream.describe_summary()}

    def describe_limits(self, request: dict[str, Any]) -> dict[str, Any]:
        """DescribeLimits."""
        del request
        streams = list(self.registry.streams.values())
        return {
            "ShardLimit": self.registry.shard_limit,
            "OpenShardCount": sum(len(stream.open_shards) for stream in streams),
            "OnDemandStreamCount": sum(stream.mode == "ON_DEMAND" for stream in streams),
            "OnDemandStreamCountLimit": 50,
        }

    # -- shards -------------------------------------------------------------------------------------------------

    def _provisioned(self, request: dict[str, Any], operation: str) -> Stream:
        stream = self.registry.find(request)
        if stream.mode != "PROVISIONED":
            raise validation(f"{operation} is only supported for streams in PROVISIONED mode.")
        return stream

    def split_shard(self, request: dict[str, Any]) -> dict[str, Any]:
        """SplitShard."""
        stream = self._provisioned(request, "SplitShard")
        with self.registry.lock, stream.lock:
            self._require_shards(1)
            stream.split(
                str(request.get("ShardToSplit")),
                str(request.get("NewStartingHashKey")),
                self.registry.account_id,
            )
        return {}

    def merge_shards(self, request: dict[str, Any]) -> dict[str, Any]:
        """MergeShards."""
        stream = self._provisioned(request, "MergeShards")
        with stream.lock:
            stream.merge(
                str(request.get("ShardToMerge")),
                str(request.get("AdjacentShardToMerge")),
                self.registry.account_id,
            )
        return {}

    def update_shard_count(self, request: dict[str, Any]) -> dict[str, Any]:
        """UpdateShardCount with UNIFORM_SCALING."""
        stream = self._provisioned(request, "UpdateShardCount")
        _choice(request.get("ScalingType"), "scalingType", ("UNIFORM_SCALING",))
        target = _integer(request, "TargetShardCount", 1, 1_000_000)
        with self.registry.lock, stream.lock:
            current = len(stream.open_shards)
            self._require_shards(max(0, target - current))
            stream.scale(target)
        return {
            "StreamName": stream.name,
            "CurrentShardCount": current,
            "TargetShardCount": target,
            "StreamARN": stream.arn,
        }

    # -- settings -----------------------------------------------------------------------------------------------

    def increase_retention(self, request: dict[str, Any]) -> dict[str, Any]:
        """IncreaseStreamRetentionPeriod: 24 to 8760 hours, not less than the current period."""
        stream = self.registry.find(request)
        hours = _integer(request, "RetentionPeriodHours", -1, 1 << 31)
        with stream.lock:
            if not stream.retention_hours <= hours <= 8760:
                raise invalid_argument(
                    f"Requested retention period ({hours} hours) for stream {stream.name} must lie between the "
                    f"current one ({stream.retention_hours} hours) and 8760 hours."
                )
            stream.retention_hours = hours
        return {}

    def decrease_retention(self, request: dict[str, Any]) -> dict[str, Any]:
        """DecreaseStreamRetentionPeriod: at least 24 hours, not more than the current period."""
        stream = self.registry.find(request)
        hours = _integer(request, "RetentionPeriodHours", -1, 1 << 31)
        with stream.lock:
            if not 24 <= hours <= stream.retention_hours:
                raise invalid_argument(
                    f"Requested retention period ({hours} hours) for stream {stream.name} must lie between 24 hours "
                    f"and the current one ({stream.retention_hours} hours)."
                )
            stream.retention_hours = hours
        return {}

    def update_max_record_size(self, request: dict[str, Any]) -> dict[str, Any]:
        """UpdateMaxRecordSize: 1024 to 10240 KiB."""
        stream = self.registry.find(request)
        size = _integer(request, "MaxRecordSizeInKiB", 1024, 10240)
        with stream.lock:
            stream.max_record_kib = size
        return {}

    def update_stream_mode(self, request: dict[str, Any]) -> dict[str, Any]:
        """UpdateStreamMode; the shards do not change."""
        stream = self.registry.find(request)
        mode = _choice(
            (request.get("StreamModeDetails") or {}).get("StreamMode"), "streamModeDetails.streamMode", _MODES
        )
        with stream.lock:
            stream.mode = mode
            if mode == "PROVISIONED":
                stream.strategy = "USER_PARTITION_KEY"
        return {}

    def update_distribution_strategy(self, request: dict[str, Any]) -> dict[str, Any]:
        """UpdateStreamRecordDistributionStrategy, for on-demand streams."""
        stream = self.registry.find(request)
        strategy = _choice(
            request.get("RecordDistributionStrategy"), "recordDistributionStrategy", _STRATEGIES
        )
        with stream.lock:
            if stream.mode != "ON_DEMAND":
                raise invalid_argument(
                    "RecordDistributionStrategy is only supported for streams in ON_DEMAND capacity mode."
                )
            stream.strategy = strategy
        return {}

    def add_tags(self, request: dict[str, Any]) -> dict[str, Any]:
        """AddTagsToStream: at most 50 tags in all."""
        stream = self.registry.find(request)
        with stream.lock:
            tags = {**stream.tags, **(request.get("Tags") or {})}
            if len(tags) > _TAG_LIMIT:
                raise invalid_argument(f"A stream can have at most {_TAG_LIMIT} tags, not {len(tags)}.")
            stream.tags = tags
        return {}

    def remove_tags(self, request: dict[str, Any]) -> dict[str, Any]:
        """RemoveTagsFromStream."""
        stream = self.registry.find(request)
        with stream.lock:
            for key in request.get("TagKeys") or []:
                stream.tags.pop(key, None)
        return {}

    def list_tags(self, request: dict[str, Any]) -> dict[str, Any]:
        """ListTagsForStream, in one page."""
        stream = self.registry.find(request)
        with stream.lock:
            tags = [{"Key": key, "Value": value} for key, value in sorted(stream.tags.items())]
        return {"Tags": tags, "HasMoreTags": False}

    # -- consumers ----------------------------------------------------------------------------------------------

    def register_consumer(self, request: dict[str, Any]) -> dict[str, Any]:
        """RegisterStreamConsumer: at most 20 per stream."""
        stream = self.registry.find({"StreamARN": request.get("StreamARN")})
        name = request.get("ConsumerName")
        if not isinstance(name, str) or not _CONSUMER_NAME.fullmatch(name):
            raise constraint("consumerName", name, "satisfy regular expression pattern: [a-zA-Z0-9_.-]+")
        with stream.lock:
            if name in stream.consumers:
                raise AwsError(
                    "ResourceInUseException",
                    f"Consumer {name} already exists for stream {stream.name} "
                    f"under account {self.registry.account_id}.",
                )
            if len(stream.consumers) >= _CONSUMER_LIMIT:
                raise AwsError(
                    "LimitExceededException",
                    f"Stream {stream.name} already has {_CONSUMER_LIMIT} registered consumers.",
                )
            consumer = Consumer(stream, name, delay=self.registry.consumer_delay)
            stream.consumers[name] = consumer
            return {"Consumer": consumer.describe(self.registry.clock.monotonic())}

    def _consumer(self, request: dict[str, Any]) -> tuple[Stream, Consumer]:
        """Return the stream and the consumer that ``ConsumerARN``, or ``StreamARN`` and ``ConsumerName``, name."""
        arn, name, stream_arn = (
            request.get(member) for member in ("ConsumerARN", "ConsumerName", "StreamARN")
        )
        if arn is None and (name is None or stream_arn is None):
            raise invalid_argument("Specify either ConsumerARN, or StreamARN and ConsumerName.")
        if stream_arn is None:
            stream_arn = str(arn).split("/consumer/")[0]
        stream = self.registry.find({"StreamARN": stream_arn})
        for consumer in list(stream.consumers.values()):
            if arn in {None, consumer.arn} and name in {None, consumer.name}:
                return stream, consumer
        raise AwsError(
            "ResourceNotFoundException",
            f"Consumer {arn or name} for stream {stream.name} under account {self.registry.account_id} not found.",
        )

    def deregister_consumer(self, request: dict[str, Any]) -> dict[str, Any]:
        """DeregisterStreamConsumer."""
        stream, consumer = self._consumer(request)
        with stream.lock:
            stream.consumers.pop(consumer.name, None)
            stream.changed.notify_all()
        return {}

    def describe_consumer(self, request: dict[str, Any]) -> dict[str, Any]:
        """DescribeStreamConsumer."""
        stream, consumer = self._consumer(request)
        described = consumer.describe(self.registry.clock.monotonic())
        return {"ConsumerDescription": {**described, "StreamARN": stream.arn}}

    def list_consumers(self, request: dict[str, Any]) -> dict[str, Any]:
        """ListStreamConsumers: 100 consumers per page by default; ``NextToken`` continues."""
        stream = self.registry.find({"StreamARN": request.get("StreamARN")})
        limit = page_limit(request, "MaxResults", 100)
        after = ""
        token = request.get("NextToken")
        if token is not None:
            fields = unseal(token) if isinstance(token, str) else None
            if fields is None or fields[:2] != ["consumers", stream.name]:
                raise invalid_argument("NextToken is invalid.")
            after = fields[2]
        now = self.registry.clock.monotonic()
        with stream.lock:
            found = [consumer for name, consumer in sorted(stream.consumers.items()) if name > after]
            response: dict[str, Any] = {"Consumers": [consumer.describe(now) for consumer in found[:limit]]}
        if len(found) > limit:
            response["NextToken"] = seal("consumers", stream.name, found[limit - 1].name)
        return response

    def subscribe_to_shard(self, request: dict[str, Any]) -> dict[str, Any]:
        """SubscribeToShard. ``EventStream`` of the response is a `Subscription`, from which events are read while it exists."""
        stream, consumer = self._consumer(request)
        return {"EventStream": self._fan_out.subscribe(request, stream, consumer)}
