"""Facts of an examination as plain data: the results of the probes, and the input of the checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from kinesis_sdk.admin.load import utilization
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.consumer import Lease
from kinesis_sdk.consumer.leases import Item


class Permission(str, Enum):
    """Whether the given credentials allow an action."""

    ALLOWED = "allowed"
    DENIED = "denied"
    UNKNOWN = "unknown"
    """The action was not tried, or its response does not show it."""


@dataclass(frozen=True)
class Tried:
    """The outcome of one action. ``reason`` explains why it is denied or unknown."""

    permission: Permission
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class ShardSample:
    """Some recent records of a shard, measured. The records themselves are not kept.

    Attributes:
        data_bytes: Bytes of their data and partition keys.
        seconds: Seconds that the records cover, by their arrival times; at least one.
        largest: Bytes of the largest Kinesis record.
        misplaced: Aggregates that a KCL discards, because a user record is outside the shard's hash key range.
        compressed: Aggregates whose body was compressed, and could be opened.
        unavailable: Names of the codecs of aggregates that could not be opened here.
        keys: User records by digest of the partition key.
    """

    shard_id: str
    records: int
    data_bytes: int
    seconds: float
    user_records: int
    aggregates: int
    largest: int
    misplaced: int = 0
    compressed: int = 0
    unavailable: frozenset[str] = frozenset()
    without_key: int = 0
    keys: Mapping[bytes, int] = field(default_factory=dict)

    @property
    def bytes_per_second(self) -> float:
        """Bytes written per second."""
        return self.data_bytes / self.seconds

    @property
    def records_per_second(self) -> float:
        """Kinesis records written per second."""
        return self.records / self.seconds

    @property
    def utilization(self) -> float:
        """Used part of the write limit that the shard is closest to."""
        return utilization(self.records_per_second, self.bytes_per_second)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All facts that were found. A part that could not be read is None, and `failures` contains the reason.

    Attributes:
        roles: Roles that the credentials must have.
        skew: Bounds of the difference between the clock of AWS and this machine's, in seconds; positive if this machine is
            behind. None if no response had a date.
        summary: ``StreamDescriptionSummary``.
        limits: Response of DescribeLimits.
        lease_store: URL of the database with the leases, without a password; None if they are in DynamoDB.
        table: ``Table`` of DescribeTable; None if it could not be read or does not exist, or if the leases are not in
            DynamoDB.
        java_tables: Existing tables that KCL 3.0 to 3.4 keeps in addition to the lease table.
        unreadable: Why a row cannot be read, by its key.
        sampled_of: Number of open shards from which the samples were chosen.
        lags: Age of the oldest unprocessed record in seconds, by shard, for the sampled leases.
        throttled: Shards whose reads were throttled while they were sampled.
        table_throttles: Calls of the examination that the lease table throttled.
        failures: Errors by the name of the probe.
        unreachable: Errors of services that could not be called at all.
        hosts: Hosts that received the calls, by service; empty for clients that botocore did not create.
    """

    stream: str
    application: str
    roles: tuple[str, ...] = ()
    tried_roles: tuple[str, ...] = ()
    actions: Mapping[str, Tried] = field(default_factory=dict)
    skew: tuple[float, float] | None = None
    summary: Mapping[str, Any] | None = None
    stream_missing: bool = False
    shards: tuple[Shard, ...] | None = None
    limits: Mapping[str, Any] | None = None
    consumers: tuple[Mapping[str, Any], ...] | None = None
    lease_store: str | None = None
    table: Mapping[str, Any] | None = None
    table_missing: bool = False
    point_in_time_recovery: bool | None = None
    java_tables: tuple[str, ...] = ()
    leases: tuple[Lease, ...] | None = None
    unreadable: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, Item] = field(default_factory=dict)
    samples: tuple[ShardSample, ...] = ()
    sampled_of: int = 0
    lags: Mapping[str, float] = field(default_factory=dict)
    throttled: tuple[str, ...] = ()
    table_throttles: int = 0
    failures: Mapping[str, str] = field(default_factory=dict)
    unreachable: Mapping[str, str] = field(default_factory=dict)
    hosts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
