"""Streams: list, describe, create, delete, fan-out consumers, retention. `kinesis_sdk.admin.resharding` changes their shards.

Calls are retried after throttling and transient failures. After a lost response, a change is first searched for in the stream,
so a retry never splits a second shard, and never reports the name of its own new stream as taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from random import Random
from typing import Any, Literal

from kinesis_sdk.admin.connection import Connection
from kinesis_sdk.admin.lineage import Lineage, make_lineage
from kinesis_sdk.common.aws import call_with_retries, translate_errors
from kinesis_sdk.common.backoff import Backoff
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import (
    AdminError,
    AwsError,
    ConfigError,
    ProtocolError,
    ResourceNotFoundError,
    TransientAwsError,
)
from kinesis_sdk.common.paging import PageLimit
from kinesis_sdk.common.shards import Shard, list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.validation import check_int, check_seconds

ACTIVE = "ACTIVE"
MIN_RETENTION_HOURS = 24
MAX_RETENTION_HOURS = 8760
MIN_RECORD_KIB = 1024
MAX_RECORD_KIB = 10_240
_MAX_TAGS = 50
_POLL = 1.0
"""Seconds between two polls of a change: one of the 20 DescribeStreamSummary calls per second of an account."""
_ATTEMPTS = 6
"""Attempts of a change. LimitExceededException may mean more than five calls per second, which is temporary, or a quota, which is not."""
_RETRIES = Backoff(0.5, 5.0)
_IN_USE = "ResourceInUseException"

StreamMode = Literal["PROVISIONED", "ON_DEMAND"]
Progress = Callable[[str], None]
"""Called with a sentence about the progress of a change."""


@dataclass(frozen=True, kw_only=True)
class StreamSummary:
    """One stream of a listing.

    Attributes:
        name: Stream name.
        arn: ARN; None if the service does not list it.
        status: ``CREATING``, ``ACTIVE``, ``UPDATING`` or ``DELETING``; None if the service does not list it.
        mode: ``PROVISIONED`` or ``ON_DEMAND``; None if the service does not list it.
        created_at: Creation time; None if the service does not list it.
    """

    name: str
    arn: str | None = None
    status: str | None = None
    mode: str | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class StreamDescription:
    """Description of a stream by DescribeStreamSummary.

    Attributes:
        name: Stream name.
        arn: ARN.
        status: ``CREATING``, ``ACTIVE``, ``UPDATING`` or ``DELETING``.
        mode: ``PROVISIONED`` or ``ON_DEMAND``.
        open_shards: Number of shards that accept records.
        retention_hours: Hours for which records are kept.
        created_at: Creation time.
        consumers: Number of registered fan-out consumers.
        encryption: ``NONE`` or ``KMS``.
        max_record_kib: Largest record in KiB; None if Kinesis does not report it.
        shard_metrics: Metrics that CloudWatch gets by shard; empty without enhanced monitoring.
        tags: Tags; None if they were not requested.
    """

    name: str
    arn: str
    status: str
    mode: str
    open_shards: int
    retention_hours: int
    created_at: datetime | None
    consumers: int
    encryption: str
    max_record_kib: int | None = None
    shard_metrics: tuple[str, ...] = ()
    tags: Mapping[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class StreamConsumer:
    """A registered consumer of enhanced fan-out.

    Attributes:
        name: Consumer name.
        arn: ARN.
        status: ``CREATING``, ``ACTIVE`` or ``DELETING``.
        created_at: Registration time.
    """

    name: str
    arn: str
    status: str
    created_at: datetime | None


def no_progress(message: str) -> None:
    """Say nothing."""
    del message


class StreamCalls:
    """Calls of Kinesis, repeated where that is safe. ``sleep`` waits, given seconds."""

    def __init__(self, connection: Connection, *, sleep: Callable[[float], None], rng: Random) -> None:
        self._connection = connection
        self._sleep = sleep
        self._rng = rng

    def read(self, operation: str, method: str, **request: Any) -> Mapping[str, Any]:
        """Return the response of a call that changes nothing."""
        response = call_with_retries(
            lambda: getattr(self._connection.kinesis, method)(**request),
            operation=operation,
            client=self._connection.kinesis,
            sleep=self._sleep,
        )
        if not isinstance(response, Mapping):
            raise ProtocolError(f"{operation}: the response is not an object")
        return response

    def change(
        self,
        operation: str,
        method: str,
        request: Mapping[str, Any],
        *,
        applied: Callable[[], bool],
        in_use: Callable[[], None] = lambda: None,
    ) -> None:
        """Make a change exactly once; raises AwsError after a permanent failure, or if all attempts fail.

        ``applied`` returns whether the change took effect; it is called after an attempt whose response was lost. ``in_use``
        is called when Kinesis reports that the resource is in use, and raises if waiting does not help.
        """
        lost = False
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with translate_errors(operation, self._connection.kinesis):
                    getattr(self._connection.kinesis, method)(**request)
            except AwsError as error:
                if lost and applied():
                    return  # An earlier attempt took effect: this attempt was rejected because of it.
                if not error.retryable:
                    raise
                if error.code == _IN_USE:
                    in_use()
                elif isinstance(error, TransientAwsError):
                    lost = True
                    if applied():
                        return
                if attempt == _ATTEMPTS:
                    raise
                self._sleep(_RETRIES.pause(attempt, self._rng))
            else:
                return


class Streams:
    """The streams of a connection. Thread-safe, as the connection is.

    Streams are named by their name or ARN.

    Args:
        connection: Account and region.
        clock: Measures waits; replaced in tests.
        sleep: Called with the seconds to wait; replaced in tests.
        rng: Source of the jitter of retries; replaced in tests.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
        rng: Random | None = None,
    ) -> None:
        self._connection = connection
        self._sleep = sleep
        self.clock: Clock = clock or SystemClock()
        self.calls: StreamCalls = StreamCalls(connection, sleep=sleep, rng=rng or Random())

    # -- reading ------------------------------------------------------------------------------------------------

    def names(self, prefix: str = "") -> list[str]:
        """Return the names of all streams of the account and region, sorted.

        Args:
            prefix: Start of the names to return.

        Raises:
            AwsError: If ListStreams fails.
        """
        return [one.name for one in self.list_streams(prefix)]

    def list_streams(self, prefix: str = "") -> list[StreamSummary]:
        """Return all streams of the account and region, sorted by name. Makes one ListStreams call for each 100 streams.

        Args:
            prefix: Start of the names to return.

        Raises:
            AwsError: If ListStreams fails.
        """
        found: list[StreamSummary] = []
        request: dict[str, Any] = {}
        limit = PageLimit("ListStreams")
        while True:
            page = self.calls.read("ListStreams", "list_streams", **request)
            names = [str(name) for name in page.get("StreamNames", ())]
            summaries = {str(one.get("StreamName")): one for one in page.get("StreamSummaries") or ()}
            found.extend(_stream_summary(name, summaries.get(name, {})) for name in names)
            if not page.get("HasMoreStreams") or not names:
                break
            limit.check(names[-1])
            request = {"ExclusiveStartStreamName": names[-1]}
        return sorted((one for one in found if one.name.startswith(prefix)), key=lambda one: one.name)

    def describe(self, stream: str | StreamId, *, tags: bool = False) -> StreamDescription:
        """Return the description of a stream. One DescribeStreamSummary call.

        Args:
            stream: Name or ARN.
            tags: Whether to request the tags as well, with one more ListTagsForStream call.

        Raises:
            ResourceNotFoundError: If there is no such stream.
            AwsError: If a call fails otherwise.
        """
        stream = StreamId.parse(stream)
        response = self.calls.read("DescribeStreamSummary", "describe_stream_summary", **stream.request)
        summary = response.get("StreamDescriptionSummary")
        if not isinstance(summary, Mapping):
            raise ProtocolError("DescribeStreamSummary: the response has no StreamDescriptionSummary")
        monitoring = summary.get("EnhancedMonitoring") or ()
        return StreamDescription(
            name=str(summary.get("StreamName", stream.name)),
            arn=str(summary.get("StreamARN") or stream.arn or ""),
            status=str(summary.get("StreamStatus", "")),
            mode=str((summary.get("StreamModeDetails") or {}).get("StreamMode") or "PROVISIONED"),
            open_shards=int(summary.get("OpenShardCount", 0)),
            retention_hours=int(summary.get("RetentionPeriodHours", MIN_RETENTION_HOURS)),
            created_at=_moment(summary.get("StreamCreationTimestamp")),
            consumers=int(summary.get("ConsumerCount") or 0),
            encryption=str(summary.get("EncryptionType") or "NONE"),
            max_record_kib=summary.get("MaxRecordSizeInKiB"),
            shard_metrics=tuple(
                str(name) for one in monitoring for name in one.get("ShardLevelMetrics") or ()
            ),
            tags=self.tags(stream) if tags else None,
        )

    def tags(self, stream: str | StreamId) -> dict[str, str]:
        """Return the tags of a stream.

        Raises:
            AwsError: If ListTagsForStream fails.
        """
        found: dict[str, str] = {}
        request: dict[str, Any] = dict(StreamId.parse(stream).request)
        limit = PageLimit("ListTagsForStream")
        while True:
            page = self.calls.read("ListTagsForStream", "list_tags_for_stream", **request)
            listed = {str(one["Key"]): str(one.get("Value", "")) for one in page.get("Tags", ())}
            if not page.get("HasMoreTags") or not listed.keys() - found.keys():
                return {**found, **listed}
            found.update(listed)
            request["ExclusiveStartTagKey"] = next(reversed(listed))
            limit.check(request["ExclusiveStartTagKey"])

    def shards(self, stream: str | StreamId, *, only_open: bool = False) -> list[Shard]:
        """Return the shards of a stream in the order of their ids. One ListShards call for each 1,000 shards.

        Args:
            stream: Name or ARN.
            only_open: Whether to leave out closed shards.

        Raises:
            AwsError: If a call fails.
            ProtocolError: If a response cannot be read.
        """
        client = self._connection.kinesis
        stream = StreamId.parse(stream)
        listed = call_with_retries(
            lambda: list_shards(client, stream), operation=None, client=client, sleep=self._sleep
        )
        return sorted((one for one in listed if one.is_open or not only_open), key=lambda one: one.shard_id)

    def lineage(self, stream: str | StreamId) -> Lineage:
        """Return the hash key ranges, generations, splits and merges of a stream, for a picture.

        Raises:
            AwsError: If ListShards fails.
        """
        return make_lineage(self.shards(stream))

    def wait_until_active(
        self, stream: str | StreamId, *, timeout: float = 600.0, progress: Progress = no_progress
    ) -> StreamDescription:
        """Wait until a stream is ACTIVE, and return its description. One call a second.

        Args:
            stream: Name or ARN.
            timeout: Maximum seconds to wait, at least 0.
            progress: Called first after a second, then about every ten seconds.

        Raises:
            AdminError: If the stream is not ACTIVE in time.
            AwsError: If a call fails; ResourceNotFoundError if there is no such stream.
        """
        check_seconds("timeout", timeout, 0)
        begin = self.clock.monotonic()
        next_word = begin + 1.0
        while True:
            found = self.describe(stream)
            if found.status == ACTIVE:
                return found
            now = self.clock.monotonic()
            if now - begin >= timeout:
                raise AdminError(
                    f"stream {found.name} is still {found.status} after {timeout:g} s; the change goes on at Kinesis"
                )
            if now >= next_word:
                progress(f"{found.name} has been {found.status} for {now - begin:.0f} s")
                next_word = now + 10.0
            self._sleep(_POLL)

    # -- streams ------------------------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        *,
        shards: int | None = None,
        mode: StreamMode = "PROVISIONED",
        retention_hours: int = MIN_RETENTION_HOURS,
        max_record_kib: int | None = None,
        tags: Mapping[str, str] | None = None,
        wait: bool = True,
        timeout: float = 600.0,
        progress: Progress = no_progress,
    ) -> StreamDescription:
        """Create a stream.

        Args:
            name: Stream name.
            shards: Number of shards of a provisioned stream, 1 to 100,000; None for an on-demand stream.
            mode: ``PROVISIONED`` or ``ON_DEMAND``.
            retention_hours: Hours for which records are kept, 24 to 8,760. More than 24 needs ``wait``.
            max_record_kib: Largest record in KiB, 1,024 to 10,240; None for the default of Kinesis.
            tags: Tags, at most 50.
            wait: Whether to wait until the stream is ACTIVE.
            timeout: Maximum seconds to wait.
            progress: Called during the wait.

        Raises:
            ConfigError: If an argument is out of range.
            AdminError: If a stream of that name exists, or the new stream is not ACTIVE in time.
            AwsError: If a call fails.
        """
        stream = StreamId.parse(name)
        if stream.arn is not None:
            raise ConfigError("stream", name, "a name: the account and the region come from the connection")
        if mode not in ("PROVISIONED", "ON_DEMAND"):
            raise ConfigError("mode", mode, "PROVISIONED or ON_DEMAND")
        if mode == "PROVISIONED":
            check_int("shards", shards, 1, 100_000)
        elif shards is not None:
            raise ConfigError("shards", shards, "None for a stream on demand, which scales by itself")
        check_int("retention_hours", retention_hours, MIN_RETENTION_HOURS, MAX_RETENTION_HOURS)
        if retention_hours > MIN_RETENTION_HOURS and not wait:
            raise ConfigError(
                "retention_hours",
                retention_hours,
                "24 with wait=False, because only an ACTIVE stream accepts the next change",
            )
        request: dict[str, Any] = {"StreamName": name, "StreamModeDetails": {"StreamMode": mode}}
        if shards is not None:
            request["ShardCount"] = shards
        if max_record_kib is not None:
            check_int("max_record_kib", max_record_kib, MIN_RECORD_KIB, MAX_RECORD_KIB)
            request["MaxRecordSizeInKiB"] = max_record_kib
        if tags:
            check_int("number of tags", len(tags), 1, _MAX_TAGS)
            request["Tags"] = dict(tags)

        def taken() -> None:
            raise AdminError(f"a stream named {name} exists already")

        # If the stream already existed before the first attempt, it is not ours.
        if self._exists(stream):
            taken()
        self.calls.change(
            "CreateStream", "create_stream", request, applied=lambda: self._exists(stream), in_use=taken
        )
        if not wait:
            return self.describe(stream)
        self.wait_until_active(stream, timeout=timeout, progress=progress)
        if retention_hours > MIN_RETENTION_HOURS:
            self.set_retention(stream, retention_hours, timeout=timeout, progress=progress)
        return self.describe(stream, tags=bool(tags))

    def delete(
        self,
        stream: str | StreamId,
        *,
        with_consumers: bool = False,
        wait: bool = True,
        timeout: float = 600.0,
        progress: Progress = no_progress,
    ) -> None:
        """Delete a stream with all its records.

        Args:
            stream: Name or ARN.
            with_consumers: Whether to delete the stream together with its registered fan-out consumers.
            wait: Whether to wait until the stream is deleted.
            timeout: Maximum seconds to wait.
            progress: Called during the wait.

        Raises:
            AdminError: If fan-out consumers are registered, or the stream is not deleted in time.
            AwsError: If a call fails; ResourceNotFoundError if there is no such stream.
        """
        stream = StreamId.parse(stream)

        def in_use() -> None:
            described = self.describe(stream)
            if described.consumers and not with_consumers:
                raise AdminError(
                    f"stream {stream.name} has {described.consumers} registered fan-out consumers; deregister them, "
                    "or delete them with the stream"
                )

        self.calls.change(
            "DeleteStream",
            "delete_stream",
            {**stream.request, "EnforceConsumerDeletion": with_consumers},
            applied=lambda: not self._exists(stream, also_deleting=False),
            in_use=in_use,
        )
        begin = self.clock.monotonic()
        while wait and self._exists(stream):
            waited = self.clock.monotonic() - begin
            if waited >= timeout:
                raise AdminError(f"stream {stream.name} is still being deleted after {timeout:g} s")
            progress(f"{stream.name} has been DELETING for {waited:.0f} s")
            self._sleep(_POLL)

    def set_retention(
        self,
        stream: str | StreamId,
        hours: int,
        *,
        timeout: float = 600.0,
        progress: Progress = no_progress,
    ) -> int:
        """Set for how long records are kept. If the period becomes shorter, records older than it are deleted at once.

        Args:
            stream: Name or ARN.
            hours: 24 to 8,760.
            timeout: Maximum seconds to wait until the stream is ACTIVE.
            progress: Called during the wait.

        Returns:
            The hours before.

        Raises:
            ConfigError: If ``hours`` is out of range.
            AdminError: If the stream is not ACTIVE in time.
            AwsError: If a call fails.
        """
        check_int("retention_hours", hours, MIN_RETENTION_HOURS, MAX_RETENTION_HOURS)
        stream = StreamId.parse(stream)
        before = self.wait_until_active(stream, timeout=timeout, progress=progress).retention_hours
        if hours == before:
            return before
        word = "Increase" if hours > before else "Decrease"
        self.calls.change(
            f"{word}StreamRetentionPeriod",
            f"{word.lower()}_stream_retention_period",
            {**stream.request, "RetentionPeriodHours": hours},
            applied=lambda: self.describe(stream).retention_hours == hours,
        )
        self.wait_until_active(stream, timeout=timeout, progress=progress)
        return before

    # -- fan-out consumers --------------------------------------------------------------------------------------

    def consumers(self, stream: str | StreamId) -> tuple[StreamConsumer, ...]:
        """Return the registered fan-out consumers of a stream, sorted by name.

        Raises:
            AwsError: If a call fails.
        """
        return tuple(sorted(self._consumers(self._arn(stream)), key=lambda one: one.name))

    def _consumers(self, arn: str) -> Iterator[StreamConsumer]:
        request: dict[str, Any] = {"StreamARN": arn}
        limit = PageLimit("ListStreamConsumers")
        while True:
            page = self.calls.read("ListStreamConsumers", "list_stream_consumers", **request)
            for one in page.get("Consumers", ()):
                yield _consumer(one)
            token = page.get("NextToken")
            if not token:
                return
            limit.check(token)
            request["NextToken"] = token

    def register_consumer(
        self, stream: str | StreamId, name: str, *, timeout: float = 600.0, progress: Progress = no_progress
    ) -> StreamConsumer:
        """Register a fan-out consumer, and wait until it is ACTIVE.

        Raises:
            AdminError: If the stream has a consumer of that name, or it is not ACTIVE in time.
            AwsError: If a call fails.
        """
        arn = self._arn(stream)

        def registered() -> StreamConsumer | None:
            return next((one for one in self._consumers(arn) if one.name == name), None)

        def taken() -> None:
            if registered() is not None:
                raise AdminError(f"the stream has a consumer named {name} already")

        taken()
        self.calls.change(
            "RegisterStreamConsumer",
            "register_stream_consumer",
            {"StreamARN": arn, "ConsumerName": name},
            applied=lambda: registered() is not None,
            in_use=taken,
        )
        begin = self.clock.monotonic()
        while True:
            found = registered()
            if found is not None and found.status == ACTIVE:
                return found
            waited = self.clock.monotonic() - begin
            if waited >= timeout:
                raise AdminError(f"consumer {name} is not ACTIVE after {timeout:g} s")
            progress(f"{name} has been CREATING for {waited:.0f} s")
            self._sleep(_POLL)

    def deregister_consumer(
        self, stream: str | StreamId, name: str, *, timeout: float = 600.0, progress: Progress = no_progress
    ) -> None:
        """Deregister a fan-out consumer, and wait until it is deleted. Its subscriptions end.

        Raises:
            AdminError: If the stream has no consumer with this name, or the consumer is not deleted in time.
            AwsError: If a call fails.
        """
        arn = self._arn(stream)

        def registered() -> bool:
            return any(one.name == name for one in self._consumers(arn))

        if not registered():
            raise AdminError(f"the stream has no consumer named {name}")
        self.calls.change(
            "DeregisterStreamConsumer",
            "deregister_stream_consumer",
            {"StreamARN": arn, "ConsumerName": name},
            applied=lambda: not registered(),
        )
        begin = self.clock.monotonic()
        while registered():
            waited = self.clock.monotonic() - begin
            if waited >= timeout:
                raise AdminError(f"consumer {name} is not gone after {timeout:g} s")
            progress(f"{name} has been DELETING for {waited:.0f} s")
            self._sleep(_POLL)

    def _arn(self, stream: str | StreamId) -> str:
        stream = StreamId.parse(stream)
        return stream.arn or self.describe(stream).arn

    def _exists(self, stream: StreamId, *, also_deleting: bool = True) -> bool:
        try:
            status = self.describe(stream).status
        except ResourceNotFoundError:
            return False
        return also_deleting or status != "DELETING"


def _stream_summary(name: str, item: Mapping[str, Any]) -> StreamSummary:
    return StreamSummary(
        name=name,
        arn=item.get("StreamARN"),
        status=item.get("StreamStatus"),
        mode=(item.get("StreamModeDetails") or {}).get("StreamMode"),
        created_at=_moment(item.get("StreamCreationTimestamp")),
    )


def _consumer(item: Mapping[str, Any]) -> StreamConsumer:
    return StreamConsumer(
        name=str(item.get("ConsumerName", "")),
        arn=str(item.get("ConsumerARN", "")),
        status=str(item.get("ConsumerStatus", "")),
        created_at=_moment(item.get("ConsumerCreationTimestamp")),
    )


def _moment(value: object) -> datetime | None:
    return value.astimezone(timezone.utc) if isinstance(value, datetime) else None
