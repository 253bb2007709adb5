"""The fake account: its services, one clock, one set of faults, and counters of every call."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.testing.client import FakeClient
from kinesis_sdk.testing.clock import VirtualClock
from kinesis_sdk.testing.cloudwatch import FakeCloudWatch, FakeSts
from kinesis_sdk.testing.credentials import Credentials
from kinesis_sdk.testing.dynamodb.change_streams import ChangeStreams
from kinesis_sdk.testing.dynamodb.service import FakeDynamoDB
from kinesis_sdk.testing.dynamodb.streams_service import FakeDynamoDBStreams, table_of
from kinesis_sdk.testing.dynamodb.table_admin import TableAdmin
from kinesis_sdk.testing.errors import AwsError, ResponseLostError
from kinesis_sdk.testing.faults import Faults
from kinesis_sdk.testing.glue.service import FakeGlue
from kinesis_sdk.testing.kinesis.registry import StreamRegistry
from kinesis_sdk.testing.kinesis.service import FakeKinesis
from kinesis_sdk.testing.sqs import FakeSqs

SERVICES = ("kinesis", "dynamodb", "dynamodbstreams", "cloudwatch", "glue", "sqs", "sts")


class FakeAws:
    """Kinesis, DynamoDB and its streams, CloudWatch, the schema registry of Glue, SQS and STS, in memory. Thread-safe.

    This is one account in one region.

    Use it in the same process through `client`, pass it as ``session`` of a `Producer` or a `Worker`, or serve it to any AWS client with
    `FakeAwsServer`; all callers see the same state.

    Args:
        clock: Clock for record timestamps, iterator expiry, retention, throttles and delays. The system clock by
            default; pass a `VirtualClock` to control time.
        streams: Streams that exist from the beginning, each with its number of shards: ``{"orders": 2}``.
        seed: Seed of the faults and of the placement of records on AUTO streams.
        throttle: Whether shards enforce the limits of Kinesis: 1,000 records and 1 MiB written, 5 reads, 2 MiB read
            and 5 iterators per second.
        throttle_control_plane: Whether control plane calls are also limited for the account (LimitExceededException), and UpdateShardCount
            to ten calls in 24 hours for each stream.
        region: Region in ARNs. The region for which requests are signed is ignored.
        account_id: Twelve digits.
        shard_limit: Maximum open shards in the account.
        stream_delay: Seconds for which a new stream is CREATING.
        reshard_delay: Seconds for which a stream is UPDATING after a split, merge or scaling.
        consumer_delay: Seconds for which a registered consumer is CREATING.
        table_delay: Seconds for which a new table is CREATING.
        index_delay: Seconds for which an index added to a table is CREATING.
        table_partitions: Open shards of the stream of a new table, at least 1.
        table_shard_seconds: Seconds for which a shard of a table's stream accepts records before it is replaced by its child.
        schema_delay: Seconds for which a new version of a schema in the registry is PENDING.
        sleep: Called with the seconds of `slow` faults in this process, and of waiting subscriptions on a virtual clock.
            The default sleeps on a system clock and does nothing on a virtual clock.
        access_keys: Permanent access key ids that are valid over HTTP; None accepts every id.
        date_offset: Seconds by which the ``Date`` header of responses is ahead of the clock, negative if it is behind; None for responses
            without the header.

    Attributes:
        date_offset: The same as the argument; it may be changed at any time.
        credentials: Access keys for calls over HTTP; ``credentials.issue(60)`` creates temporary keys, which the server rejects with
            ExpiredTokenException after 60 s.

    Raises:
        ValueError: If `account_id` is not twelve digits.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        streams: Mapping[str, int] | None = None,
        seed: int = 0,
        throttle: bool = True,
        throttle_control_plane: bool = False,
        region: str = "us-east-1",
        account_id: str = "123456789012",
        shard_limit: int = 20_000,
        stream_delay: float = 0.0,
        reshard_delay: float = 0.0,
        consumer_delay: float = 0.0,
        table_delay: float = 0.0,
        index_delay: float = 0.0,
        table_partitions: int = 1,
        table_shard_seconds: float = 4 * 3600.0,
        schema_delay: float = 0.0,
        sleep: Callable[[float], None] | None = None,
        access_keys: Collection[str] | None = None,
        date_offset: float | None = 0.0,
    ) -> None:
        if len(account_id) != 12 or not account_id.isdecimal():
            raise ValueError(f"account_id must be twelve digits, not {account_id!r}")
        self.clock: Clock = SystemClock() if clock is None else clock
        self.faults: Faults = Faults(seed)
        self.region = region
        self.account_id = account_id
        self.date_offset: float | None = date_offset
        self.credentials: Credentials = Credentials(self.clock, access_keys)
        self.is_virtual: bool = isinstance(self.clock, VirtualClock)
        if sleep is None:
            sleep = _no_sleep if self.is_virtual else time.sleep
        self.sleep = sleep
        self._registry = StreamRegistry(
            self.clock,
            self.faults,
            region=region,
            account_id=account_id,
            seed=seed,
            throttle=throttle,
            throttle_control_plane=throttle_control_plane,
            stream_delay=stream_delay,
            reshard_delay=reshard_delay,
            consumer_delay=consumer_delay,
            shard_limit=shard_limit,
        )
        self.kinesis: FakeKinesis = FakeKinesis(self._registry)
        self.table_streams: ChangeStreams = ChangeStreams(
            self.clock, region=region, partitions=table_partitions, shard_seconds=table_shard_seconds
        )
        self.tables: TableAdmin = TableAdmin(
            self.clock,
            region=region,
            account_id=account_id,
            table_delay=table_delay,
            index_delay=index_delay,
            streams=self.table_streams,
        )
        self.dynamodb: FakeDynamoDB = FakeDynamoDB(self.tables)
        self.dynamodbstreams: FakeDynamoDBStreams = FakeDynamoDBStreams(self.table_streams, self.clock)
        self.cloudwatch: FakeCloudWatch = FakeCloudWatch()
        self.glue: FakeGlue = FakeGlue(
            self.clock, region=region, account_id=account_id, schema_delay=schema_delay
        )
        self.sqs: FakeSqs = FakeSqs(self.clock, region=region, account_id=account_id)
        self.sts: FakeSts = FakeSts(account_id)
        self._services: dict[str, Any] = {
            "kinesis": self.kinesis,
            "dynamodb": self.dynamodb,
            "dynamodbstreams": self.dynamodbstreams,
            "cloudwatch": self.cloudwatch,
            "glue": self.glue,
            "sqs": self.sqs,
            "sts": self.sts,
        }
        self._targets = {service.target_prefix: name for name, service in self._services.items()}
        self._lock = threading.Lock()
        self._calls: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        for name, shards in (streams or {}).items():
            self.client("kinesis").create_stream(StreamName=name, ShardCount=shards)

    # -- calls --------------------------------------------------------------------------------------------------

    def service_of_target(self, prefix: str) -> str | None:
        """Return the service whose ``X-Amz-Target`` starts with `prefix`; None if there is none."""
        return self._targets.get(prefix)

    def operations(self, service: str) -> Collection[str]:
        """Return the names of the operations that the fake service supports.

        Raises:
            ValueError: If the fake does not have this service.
        """
        if service not in self._services:
            raise ValueError(f"no fake service {service!r}; there are {', '.join(SERVICES)}")
        return list(self._services[service].operations)

    def authorise(self, operation: str, access_key: str | None, session_token: str | None) -> None:
        """Check the credentials of a call over HTTP, and count the call as an error if they are rejected.

        Raises:
            AwsError: As `Credentials.check`.
        """
        try:
            self.credentials.check(access_key, session_token)
        except AwsError as error:
            with self._lock:
                self._errors[f"{operation}:{error.code}"] += 1
            raise

    def call(
        self,
        service: str,
        operation: str,
        request: dict[str, Any],
        *,
        sleep: Callable[[float], None] | None = None,
    ) -> dict[str, Any] | bytes:
        """Carry out one call.

        Args:
            service: ``kinesis``, ``dynamodb``, ``dynamodbstreams``, ``cloudwatch``, ``glue``, ``sqs`` or ``sts``.
            operation: Operation name as in the API.
            request: The request in wire form: base64 text for blobs, epoch seconds for timestamps.
            sleep: Called with the seconds of `slow` faults; by default, the account's function.

        Returns:
            The response in wire form: an object, or its JSON text. SubscribeToShard's holds a `Subscription`.

        Raises:
            AwsError: If the response is an error document.
            ResponseLostError: If a fault drops the response.
        """
        with self._lock:
            self._calls[operation] += 1
        try:
            return self._carry_out(service, operation, request, sleep or self.sleep)
        except AwsError as error:
            with self._lock:
                self._errors[f"{operation}:{error.code}"] += 1
            raise

    def _carry_out(
        self, service: str, operation: str, request: dict[str, Any], sleep: Callable[[float], None]
    ) -> dict[str, Any] | bytes:
        handler = self._services[service].operations.get(operation)
        if handler is None:
            raise AwsError(
                "UnknownOperationException", f"The fake has no operation {operation} of {service}."
            )
        lost = empty = torn = False
        if self.faults:
            name, shard_id = self._subject(service, request)
            for fault in self.faults.for_call(operation, name, shard_id):
                if fault.kind == "slow":
                    sleep(fault.seconds)
                elif fault.kind == "timeout_before_storing":
                    raise ResponseLostError(f"{operation}: injected timeout before the call was carried out")
                elif fault.kind == "timeout_after_storing":
                    lost = True
                elif fault.kind == "late_store":
                    self.kinesis.records.put_later(operation, request, fault.seconds)
                    if fault.code is not None:
                        raise fault.error()
                    raise ResponseLostError(
                        f"{operation}: injected timeout, carried out {fault.seconds:g} s later"
                    )
                elif fault.kind == "empty_read":
                    empty = True
                elif fault.kind == "torn_listing":
                    torn = True
                else:
                    raise fault.error()
        if service == "kinesis":
            self.kinesis.check_rate(operation)
        response: dict[str, Any] | bytes
        if empty:
            reader = self.dynamodbstreams if service == "dynamodbstreams" else self.kinesis.records
            response = reader.get_records(request, empty=True)
        else:
            response = handler(request)
        if torn:
            assert isinstance(response, dict)
            listing = response["StreamDescription"] if operation == "DescribeStream" else response
            listing["Shards"] = listing["Shards"][:-1]
        if lost:
            raise ResponseLostError(f"{operation}: injected timeout after the call was carried out")
        return response

    def _subject(self, service: str, request: dict[str, Any]) -> tuple[str | None, str | None]:
        """Return the stream or table, and the shard, of a call."""
        if service == "dynamodb":
            return request.get("TableName"), None
        if service == "dynamodbstreams":
            if "ShardIterator" in request:
                return self.dynamodbstreams.position_of(request["ShardIterator"]) or (None, None)
            return request.get("TableName") or table_of(request.get("StreamArn") or ""), request.get(
                "ShardId"
            )
        if service != "kinesis":
            return None, None
        if "ShardIterator" in request:
            return self.kinesis.records.position_of(request["ShardIterator"]) or (None, None)
        return self._registry.name_in(request), request.get("ShardId") or request.get("ShardToSplit")

    def client(self, service: str, **options: Any) -> FakeClient:
        """Return a boto3-shaped client that calls this account in process, without sockets.

        Args:
            service: ``kinesis``, ``dynamodb``, ``dynamodbstreams``, ``cloudwatch``, ``glue``, ``sqs`` or ``sts``.
            options: Arguments of boto3's ``client``. ``region_name`` appears in ``client.meta``; other arguments are ignored.

        Raises:
            ValueError: If the fake does not have this service.
        """
        self.operations(service)
        return FakeClient(self, service, region=options.get("region_name") or self.region)

    # -- inspection ---------------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Return counters since the start or the last `reset`.

        Returns:
            ``calls`` by operation, ``errors`` by ``Operation:Code``, ``faults`` that fired, by kind, and for Kinesis ``records_stored``,
            ``bytes_stored`` (data and partition keys), ``records_read``, ``records_throttled`` and ``reads_throttled``.
        """
        with self._lock:
            calls, errors = dict(self._calls), dict(self._errors)
        names = ("records_stored", "bytes_stored", "records_read", "records_throttled", "reads_throttled")
        return {
            "calls": calls,
            "errors": errors,
            "faults": self.faults.fired(),
            **{name: self._registry.counted(name) for name in names},
        }

    def reset(self) -> None:
        """Forget streams, tables, metrics, schemas, faults and counters. The clock is not reset."""
        self._registry.reset()
        self.tables.reset()
        self.cloudwatch.reset()
        self.glue.reset()
        self.sqs.reset()
        self.faults.clear()
        with self._lock:
            self._calls.clear()
            self._errors.clear()


def _no_sleep(seconds: float) -> None:
    """Do nothing, because time on a virtual clock passes only when the test advances it."""
