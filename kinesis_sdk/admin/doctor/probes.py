"""The calls of an examination. No call has an effect. A failed call is a fact as well, and does not end the examination.

Number of calls: 17 for all roles, and up to 4 for each sampled shard: a GetShardIterator and a GetRecords for its newest records, and the
same two calls at its checkpoint. ListShards takes one call for 1,000 shards, and Scan one for 1 MB of the lease table. A registered
fan-out consumer adds two calls.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

from kinesis_sdk.admin.connection import Connection
from kinesis_sdk.admin.doctor.facts import Facts, Permission, ShardSample, Tried
from kinesis_sdk.admin.doctor.permissions import ACTIONS, ALLOWED, ROLES, Action, permission_of
from kinesis_sdk.admin.fleet.model import ErrorCode
from kinesis_sdk.admin.lease_tables.factory import lease_tables_of
from kinesis_sdk.common.aggregate_reader import has_outside, open_aggregate
from kinesis_sdk.common.aws import call_with_retries
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import (
    AwsError,
    CodecUnavailableError,
    EndpointUnreachableError,
    KinesisSdkError,
    LeaseTableNotFoundError,
    ResourceNotFoundError,
    ThrottledError,
)
from kinesis_sdk.common.position import AfterSequence, AtTimestamp, Position, TrimHorizon, iterator_request
from kinesis_sdk.common.service_clock import skew_bounds
from kinesis_sdk.common.shards import Shard, list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer import DynamoDBLeaseStore, Lease, TableScan
from kinesis_sdk.consumer.leases import attributes

T = TypeVar("T")

SAMPLE_SECONDS = 600.0
"""Age in seconds of the oldest record of a sample."""
SAMPLE_RECORDS = 500
"""Maximum Kinesis records of a sample."""
DEFAULT_SAMPLES = 8
"""Open shards that are sampled."""

_NOBODY = "kinesis-sdk-doctor"
"""Used as the key of a row, the id of a shard and a namespace of metrics. Nothing with this name exists."""
_CONTRADICTION = {
    "ConditionExpression": "attribute_exists(#key) AND attribute_not_exists(#key)",
    "ExpressionAttributeNames": {"#key": attributes.LEASE_KEY},
}
"""A condition that no row can meet."""
_JAVA_TABLES = ("WorkerMetricStats", "CoordinatorState")


_NO_ANSWER = "ReadTimeoutError"


def _is_hopeless(error: AwsError) -> bool:
    """Return whether further calls to the service would fail as slowly: no endpoint, no credentials, or no response."""
    return (
        isinstance(error, EndpointUnreachableError)
        or ErrorCode.of(error) is ErrorCode.AWS_SETTINGS
        or error.code == _NO_ANSWER
    )


class Probes:
    """Makes the calls of one examination, and collects their results.

    ``samples`` is the maximum number of open shards to sample; 0 reads no records. The wall clock of ``clock`` is compared
    with AWS.
    """

    def __init__(
        self,
        connection: Connection,
        stream: StreamId,
        application: str,
        *,
        roles: tuple[str, ...] = ROLES,
        samples: int = DEFAULT_SAMPLES,
        clock: Clock | None = None,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._application = application
        self._roles = roles
        self._wanted_samples = samples
        self._clock: Clock = clock or SystemClock()
        self._sleep: Callable[[float], None] = sleep or time.sleep
        self._calls: Counter[str] = Counter()
        self._actions: dict[str, Tried] = {}
        self._failures: dict[str, str] = {}
        self._unreachable: dict[str, str] = {}
        self._bounds: tuple[float, float] | None = None
        self._watched: dict[str, Any] = {}
        self._hosts: dict[str, set[str]] = {}
        self._throttled: list[str] = []
        self._table_throttles = 0
        self._stream_missing = False

    @property
    def calls(self) -> dict[str, int]:
        """Number of calls made, by operation."""
        return dict(self._calls)

    def collect(self, required: tuple[str, ...]) -> Facts:
        """Make all calls. ``required`` are the roles that the credentials must have; they are only passed on to the checks."""
        try:
            return self._collect(required)
        finally:
            for service, client in self._watched.items():
                client.meta.events.unregister(f"before-send.{service}", self._note_host)

    def _collect(self, required: tuple[str, ...]) -> Facts:
        named = self._stream.request
        summary = self._read(
            "kinesis", "DescribeStreamSummary", lambda client: client.describe_stream_summary(**named)
        )
        summary = (summary or {}).get("StreamDescriptionSummary")
        shards = self._guard("ListShards", "kinesis", lambda client: list_shards(client, self._stream))
        arn = (summary or {}).get("StreamARN") or self._stream.arn
        limits = consumers = None
        if "admin" in self._roles:
            limits = self._read("kinesis", "DescribeLimits", lambda client: client.describe_limits())
            if arn:
                page = self._read(
                    "kinesis",
                    "ListStreamConsumers",
                    lambda client: client.list_stream_consumers(StreamARN=arn),
                )
                consumers = None if page is None else tuple(page.get("Consumers") or ())
        table: Mapping[str, Any] | None = None
        if self._is_elsewhere:
            scan, missing = self._scan_database()
        else:
            table, missing = self._table(self._application)
            scan = None if table is None else self._scan_table()
        recovery = self._recovery() if table is not None else None
        leases = scan.leases if scan and not self._stream_missing else []
        samples, lags, open_shards = self._sample(shards or [], leases)
        self._try_actions(shards or [], consumers or (), missing=missing)
        return Facts(
            stream=str(self._stream),
            application=self._application,
            roles=required,
            tried_roles=self._roles,
            actions=self._all_actions(),
            skew=self._bounds,
            summary=summary,
            stream_missing=self._stream_missing,
            shards=None if shards is None else tuple(shards),
            limits=limits,
            consumers=consumers,
            lease_store=self._connection.shown_lease_store,
            table=table,
            table_missing=missing,
            point_in_time_recovery=recovery,
            java_tables=tuple(
                f"{self._application}-{suffix}"
                for suffix in _JAVA_TABLES
                if table is not None
                and self._table(f"{self._application}-{suffix}", optional=True)[0] is not None
            ),
            leases=None if scan is None else tuple(scan.leases),
            unreadable=scan.unreadable if scan else {},
            others=scan.others if scan else {},
            samples=tuple(samples),
            sampled_of=open_shards,
            lags=lags,
            throttled=tuple(dict.fromkeys(self._throttled)),
            table_throttles=self._table_throttles,
            failures=self._failures,
            unreachable=self._unreachable,
            hosts={service: tuple(sorted(hosts)) for service, hosts in sorted(self._hosts.items())},
        )

    @property
    def _is_elsewhere(self) -> bool:
        """Whether the leases are not in DynamoDB."""
        return self._connection.lease_store is not None

    def _is_unneeded(self, action: Action) -> bool:
        """Return whether no role needs an action because the leases are not in DynamoDB."""
        return self._is_elsewhere and action.name.startswith("dynamodb:")

    # Calls

    def _client(self, service: str) -> Any:
        client = self._connection.client(service)
        events = getattr(getattr(client, "meta", None), "events", None)
        if service not in self._watched and events is not None:
            self._watched[service] = client
            events.register_first(f"before-send.{service}", self._note_host)
        return _Counted(client, self._count, partial(self._observe, service), self._clock)

    def _note_host(self, request: Any, event_name: str, **_: object) -> None:
        """Note the host of a call, which boto3 chooses for each call."""
        host = urlsplit(str(request.url)).hostname or ""
        self._hosts.setdefault(event_name.split(".")[1], set()).add(host)

    def _count(self, operation: str) -> None:
        self._calls[operation] += 1

    def _call(self, service: str, operation: str, call: Callable[[Any], T], *, attempts: int = 3) -> T:
        """Make one call, and note whether it was permitted; raises if it failed or the response could not be read."""
        action = f"{service}:{operation}"
        if service in self._unreachable:
            raise EndpointUnreachableError(
                self._unreachable[service], operation=operation, code="Unreachable"
            )
        try:
            client = self._client(service)
            response = call_with_retries(
                lambda: call(client),
                operation=operation,
                client=client,
                timeout=10.0,
                attempts=attempts,
                sleep=self._sleep,
            )
        except AwsError as error:
            if _is_hopeless(error):
                self._unreachable[service] = str(error)
            else:
                self._actions[action] = permission_of(error.code, str(error))
            raise
        self._actions[action] = ALLOWED
        return response

    def _observe(self, service: str, response: Any, sent: float) -> None:
        """Narrow the bounds of the clock difference with the ``Date`` of a response, and count throttled calls of the table."""
        response = response if isinstance(response, Mapping) else {}
        code = (response.get("Error") or {}).get("Code")
        # DynamoDB uses ThrottlingException for control-plane calls: it says nothing about the table's capacity.
        if service == "dynamodb" and code == "ProvisionedThroughputExceededException":
            self._table_throttles += 1
        metadata = response.get("ResponseMetadata")
        bounds = skew_bounds(metadata, sent, self._clock.time())
        if bounds is not None:
            before = self._bounds or bounds
            self._bounds = max(bounds[0], before[0]), min(bounds[1], before[1])

    def _guard(self, name: str, service: str, call: Callable[[Any], T], *, attempts: int = 3) -> T | None:
        """Make a call; a failure becomes a fact."""
        try:
            return self._call(service, name, call, attempts=attempts)
        except ResourceNotFoundError as error:
            if service == "kinesis":  # the calls of Kinesis made here name the stream or no resource
                self._stream_missing = True
            else:
                self._failures[name] = str(error)
        except AwsError as error:
            if service not in self._unreachable:
                self._failures[name] = str(error)
        except Exception as error:  # noqa: BLE001 - the examination reports what its own code cannot read
            self._failures[name] = f"{type(error).__name__}: {error}"
        return None

    def _read(self, service: str, operation: str, call: Callable[[Any], Any]) -> dict[str, Any] | None:
        response = self._guard(operation, service, call)
        return None if response is None else dict(response)

    # The lease table

    def _table(self, name: str, *, optional: bool = False) -> tuple[Mapping[str, Any] | None, bool]:
        """Return the description of a table, and whether DynamoDB reports that it does not exist."""
        before = self._actions.get("dynamodb:DescribeTable")
        try:
            response = self._call(
                "dynamodb", "DescribeTable", lambda client: client.describe_table(TableName=name)
            )
            return response["Table"], False
        except ResourceNotFoundError:
            return None, True
        except AwsError as error:
            if not optional and "dynamodb" not in self._unreachable:
                self._failures["DescribeTable"] = str(error)
        except Exception as error:  # noqa: BLE001 - as above
            if not optional:
                self._failures["DescribeTable"] = f"{type(error).__name__}: {error}"
        finally:
            if optional and before is not None:
                # A policy that names only the lease table is right except for fleets with Java KCL 3.0 to 3.4.
                self._actions["dynamodb:DescribeTable"] = before
        return None, False

    def _scan_table(self) -> TableScan | None:
        return self._guard(
            "Scan",
            "dynamodb",
            lambda client: DynamoDBLeaseStore(client, self._application, sleep=self._sleep).scan(),
        )

    def _scan_database(self) -> tuple[TableScan | None, bool]:
        """Return the leases in a SQL database, and whether the application has none there. Creates nothing."""
        self._count("SELECT")
        try:
            tables = lease_tables_of(self._connection, sleep=self._sleep)
            return tables.table(self._application).scan(self._application), False
        except LeaseTableNotFoundError:
            return None, True
        except KinesisSdkError as error:
            self._failures["the lease store"] = str(error)
        return None, False

    def _recovery(self) -> bool | None:
        if "admin" not in self._roles:
            return None
        response = self._read(
            "dynamodb",
            "DescribeContinuousBackups",
            lambda client: client.describe_continuous_backups(TableName=self._application),
        )
        if response is None:
            return None
        state = (response.get("ContinuousBackupsDescription") or {}).get(
            "PointInTimeRecoveryDescription"
        ) or {}
        return bool(state.get("PointInTimeRecoveryStatus") == "ENABLED")

    # Samples

    def _sample(
        self, shards: list[Shard], leases: list[Lease]
    ) -> tuple[list[ShardSample], dict[str, float], int]:
        open_shards = sorted((one for one in shards if one.is_open), key=lambda one: one.hash_key_range.start)
        samples: list[ShardSample] = []
        lags: dict[str, float] = {}
        if "consumer" not in self._roles:
            return samples, lags, len(open_shards)
        since = AtTimestamp(int((self._aws_time() - SAMPLE_SECONDS) * 1000))
        for shard in spread(open_shards, self._wanted_samples):
            sample = self._records(shard.shard_id, since, SAMPLE_RECORDS, partial(measure, shard))
            if sample is not None:
                samples.append(sample)
        for lease in furthest_behind(leases, self._wanted_samples):
            position = _checkpoint_of(lease)
            if position is not None:
                age = self._records(lease.shard, position, 1, self._age_of_first)
                if age is not None:
                    lags[lease.shard] = age
        return samples, lags, len(open_shards)

    def _aws_time(self) -> float:
        """Return a time that AWS has reached, in epoch seconds: Kinesis rejects a start in the future."""
        lower, upper = self._bounds or (0.0, 0.0)
        return self._clock.time() + (0.0 if lower <= 0.0 <= upper else lower)

    def _records(
        self, shard_id: str, position: Position, limit: int, measured: Callable[[Mapping[str, Any]], T]
    ) -> T | None:
        """Read once at a position, and measure the response. A throttled read is not repeated: the read limit is the application's."""
        request = {**self._stream.request, "ShardId": shard_id, **iterator_request(position)}
        named = {"StreamARN": self._stream.arn} if self._stream.arn else {}
        try:
            opened = self._call(
                "kinesis", "GetShardIterator", lambda client: client.get_shard_iterator(**request), attempts=1
            )
            iterator = opened["ShardIterator"]
            response: Mapping[str, Any] = self._call(
                "kinesis",
                "GetRecords",
                lambda client: client.get_records(ShardIterator=iterator, Limit=limit, **named),
                attempts=1,
            )
            return measured(response)
        except ThrottledError:
            self._throttled.append(shard_id)
        except AwsError as error:
            if "kinesis" not in self._unreachable:
                self._failures[f"sample of {shard_id}"] = str(error)
        except Exception as error:  # noqa: BLE001 - as above
            self._failures[f"sample of {shard_id}"] = f"{type(error).__name__}: {error}"
        return None

    def _age_of_first(self, response: Mapping[str, Any]) -> float:
        """Return the seconds since the first record of a response arrived, or its lag if that is larger."""
        behind = (response.get("MillisBehindLatest") or 0) / 1000
        arrived: list[float] = [
            record["ApproximateArrivalTimestamp"].timestamp() for record in response["Records"][:1]
        ]
        return max([behind, *(self._aws_time() - moment for moment in arrived)])

    # Permissions

    def _try_actions(
        self, shards: list[Shard], consumers: Iterable[Mapping[str, Any]], *, missing: bool
    ) -> None:
        named = self._stream.request
        key = {attributes.LEASE_KEY: {"S": _NOBODY}}
        row = {"TableName": self._application, "Key": key}
        shard = shards[-1].shard_id if shards else "shardId-000000000000"
        tries: dict[str, Callable[[Any], Any]] = {
            "kinesis:PutRecords": lambda client: client.put_records(
                **named, Records=[{"Data": b"", "PartitionKey": _NOBODY}], DryRun=True
            ),
            "kinesis:SplitShard": lambda client: client.split_shard(
                **named, ShardToSplit=_NOBODY, NewStartingHashKey="1"
            ),
            "kinesis:MergeShards": lambda client: client.merge_shards(
                **named, ShardToMerge=_NOBODY, AdjacentShardToMerge=f"{_NOBODY}-2"
            ),
            "kinesis:IncreaseStreamRetentionPeriod": lambda client: client.increase_stream_retention_period(
                **named, RetentionPeriodHours=1
            ),
            "kinesis:DecreaseStreamRetentionPeriod": lambda client: client.decrease_stream_retention_period(
                **named, RetentionPeriodHours=1_000_000
            ),
            "dynamodb:Scan": lambda client: client.scan(TableName=self._application, Limit=1),
            "dynamodb:GetItem": lambda client: client.get_item(**row),
            "dynamodb:PutItem": lambda client: client.put_item(
                TableName=self._application, Item=key, **_CONTRADICTION
            ),
            "dynamodb:UpdateItem": lambda client: client.update_item(
                **row, UpdateExpression="REMOVE nothing", **_CONTRADICTION
            ),
            "dynamodb:DeleteItem": lambda client: client.delete_item(**row, **_CONTRADICTION),
            "cloudwatch:PutMetricData": lambda client: client.put_metric_data(
                Namespace=_NOBODY, MetricData=[]
            ),
            "kinesis:GetShardIterator": lambda client: client.get_shard_iterator(
                **named, ShardId=shard, ShardIteratorType="TRIM_HORIZON", DryRun=True
            ),
            "dynamodb:DescribeContinuousBackups": lambda client: client.describe_continuous_backups(
                TableName=self._application
            ),
        }
        arns = [consumer["ConsumerARN"] for consumer in consumers if consumer.get("ConsumerARN")]
        if arns:
            tries["kinesis:DescribeStreamConsumer"] = lambda client: client.describe_stream_consumer(
                ConsumerARN=arns[0]
            )
            tries["kinesis:SubscribeToShard"] = lambda client: client.subscribe_to_shard(
                ConsumerARN=arns[0], ShardId=shard, StartingPosition={"Type": "LATEST"}, DryRun=True
            )
        for action in ACTIONS:
            call = tries.get(action.name)
            if action.name in self._actions or call is None or not set(action.roles) & set(self._roles):
                continue
            if self._is_unneeded(action):
                continue
            service, _, operation = action.name.partition(":")
            self._try(service, operation, call)
        if missing and not self._is_elsewhere:
            for name in (
                "Scan",
                "GetItem",
                "PutItem",
                "UpdateItem",
                "DeleteItem",
                "DescribeContinuousBackups",
            ):
                if (
                    tried := self._actions.get(f"dynamodb:{name}")
                ) and tried.permission is Permission.ALLOWED:
                    # Without a table, the policy may not have been checked against anything.
                    self._actions[f"dynamodb:{name}"] = Tried(
                        Permission.UNKNOWN, "there is no lease table to try it on"
                    )

    def _try(self, service: str, operation: str, call: Callable[[Any], Any]) -> None:
        """Try an action whose failure is expected; the outcome goes to the table of actions."""
        with suppress(AwsError):
            self._call(service, operation, call, attempts=1)

    def _all_actions(self) -> dict[str, Tried]:
        """Return the outcome of each action of the tried roles."""
        result: dict[str, Tried] = {}
        for action in ACTIONS:
            if not set(action.roles) & set(self._roles) or self._is_unneeded(action):
                continue
            service = action.name.partition(":")[0]
            tried = self._actions.get(action.name)
            if tried is None and action.not_tried:
                tried = Tried(Permission.UNKNOWN, action.not_tried)
            elif tried is None and service in self._unreachable:
                tried = Tried(Permission.UNKNOWN, f"{service} could not be called")
            elif tried is None:
                tried = Tried(Permission.UNKNOWN, "there was nothing to try it on")
            result[action.name] = tried
        return result


class _Counted:
    """A client that counts its calls and times their responses.

    ``count`` is called with the operation before each call; ``observe`` with the response, or the document of an error, and
    the wall time before the call.
    """

    def __init__(
        self,
        client: Any,
        count: Callable[[str], None],
        observe: Callable[[Any, float], None],
        clock: Clock,
    ) -> None:
        self._client = client
        self._count = count
        self._observe = observe
        self._clock = clock
        self.meta = client.meta

    def __getattr__(self, method: str) -> Callable[..., Any]:
        call = getattr(self._client, method)
        operation = "".join(part.capitalize() for part in method.split("_"))

        def counted(**request: Any) -> Any:
            self._count(operation)
            sent = self._clock.time()
            try:
                response = call(**request)
            except Exception as error:
                # A rejected call has a date as well, and that date matters if the clock is the cause.
                self._observe(getattr(error, "response", None), sent)
                raise
            self._observe(response, sent)
            return response

        return counted


def spread(items: list[T], count: int) -> list[T]:
    """Return up to `count` items, evenly spread over the list, including the first and the last item if there are two or more."""
    if len(items) <= count:
        return items
    if count < 2:
        return items[:count]
    return [items[round(position * (len(items) - 1) / (count - 1))] for position in range(count)]


def furthest_behind(leases: Iterable[Lease], count: int) -> list[Lease]:
    """Return up to `count` unfinished leases: half of them have the largest reported lags, and the other half is spread over all leases."""
    unfinished = sorted((one for one in leases if not one.is_finished), key=lambda one: one.shard)
    told = [(one.current_progress.lag_millis or 0, one) for one in unfinished if one.current_progress]
    worst = [one for _, one in sorted(told, key=lambda pair: -pair[0])[: count // 2]]
    rest = [one for one in unfinished if one not in worst]
    return [*worst, *spread(rest, count - len(worst))]


def measure(shard: Shard, response: Mapping[str, Any]) -> ShardSample:
    """Return the facts about a shard in a GetRecords response. The read began `SAMPLE_SECONDS` ago."""
    records = response["Records"]
    sizes = [len(record["Data"]) + len((record.get("PartitionKey") or "").encode()) for record in records]
    keys: Counter[bytes] = Counter()
    users = aggregates = compressed = misplaced = 0
    unavailable: set[str] = set()
    for record in records:
        try:
            found = open_aggregate(record["Data"])
        except CodecUnavailableError as error:
            found = None
            aggregates += 1
            unavailable.add(error.codec)
        if found is None:
            users += 1
            keys[_digest(record.get("PartitionKey"))] += 1
            continue
        aggregates += 1
        compressed += found.sealed_size is not None
        users += len(found.payloads)
        misplaced += has_outside(found, shard.hash_key_range)
        keys.update(map(_digest, found.partition_keys))
    seconds = SAMPLE_SECONDS
    if records and response.get("MillisBehindLatest"):
        # The page was full: it covers only the time between its first record and its last record.
        first, last = (records[at]["ApproximateArrivalTimestamp"].timestamp() for at in (0, -1))
        seconds = last - first
    return ShardSample(
        shard_id=shard.shard_id,
        records=len(records),
        data_bytes=sum(sizes),
        seconds=max(1.0, seconds),
        user_records=users,
        aggregates=aggregates,
        largest=max(sizes, default=0),
        misplaced=misplaced,
        compressed=compressed,
        unavailable=frozenset(unavailable),
        without_key=sum(not record.get("PartitionKey") for record in records),
        keys=keys,
    )


def _digest(key: str | None) -> bytes:
    """Return a digest of a partition key. Keys may be personal data, so they are counted and not kept."""
    return hashlib.blake2b((key or "").encode(), digest_size=8).digest()


def _checkpoint_of(lease: Lease) -> Position | None:
    """Return the position at which the owner continues; None if it is resolved only at the first read."""
    if not lease.checkpoint.is_sentinel:
        return AfterSequence(printable(lease.checkpoint.sequence_number))
    return TrimHorizon() if lease.checkpoint.sequence_number == "TRIM_HORIZON" else None
