"""Settings of a consumer, validated once.

`ConsumerConfig` holds the settings that most applications need. The other fields are in groups:

| group | class | fields |
|---|---|---|
| ``leases`` | `LeaseConfig` | expiry, scans, renewal, handoff and the distribution of leases |
| ``lease_table`` | `LeaseTableConfig` | the DynamoDB table (name, billing, protection, tags), or another database |
| ``retrieval`` | `RetrievalConfig` | GetRecords, pauses, prefetch, enhanced fan-out |
| ``coordination`` | `CoordinationConfig` | shard sync, lease cleanup, several streams, Java KCL 3 fleets |
| ``failure`` | `FailureConfig` | backoff, stalls, timeouts, misplaced aggregates |

A field name occurs once over all groups, so `ConsumerConfig.with_fields` finds the group of a name.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from importlib.util import find_spec
from typing import Any, Literal, TypeVar

from kinesis_sdk.common.error_policy import HandlerErrorPolicy, handler_error_policy
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.extras import install_hint
from kinesis_sdk.common.fielddocs import documented_fields
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.once import MAX_BYTES
from kinesis_sdk.common.sequence import AT_TIMESTAMP, LATEST, TRIM_HORIZON
from kinesis_sdk.common.serialization import Deserializer, check_deserializer
from kinesis_sdk.common.validation import (
    check_bool,
    check_choice,
    check_consumer_name,
    check_int,
    check_seconds,
    check_table_name,
    check_text,
    warn_of_millis,
)
from kinesis_sdk.consumer.fetch.read_rate import READ_INTERVAL
from kinesis_sdk.consumer.leases.intervals import Intervals, IntervalSettings, call_timeout
from kinesis_sdk.consumer.leases.strategies import (
    LeaseStrategy,
    StrategyName,
    check_strategy,
    resolve_strategy,
)
from kinesis_sdk.consumer.leases.strategies.groups import GROUP_SEPARATOR
from kinesis_sdk.consumer.leases.table.location import check_location

_LOGGER = FieldLogger(logging.getLogger(__name__))

_T = TypeVar("_T")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MAX_DELIVERY_DELAY = 31_536_000.0
"""A year: the longest retention period of a stream, in seconds."""


@documented_fields
@dataclass(frozen=True, kw_only=True)
class LeaseConfig:
    """Settings for taking, renewing and handing off leases: ``ConsumerConfig(leases=LeaseConfig(failover_time=5))``.

    Raises:
        ConfigError: If a field is out of its range; the error names field, value and range.
    """

    failover_time: float = 10.0
    """Seconds without a heartbeat after which another worker may take a lease from its owner; 0.5 to 3,600. The KCL's
    ``failoverTimeMillis``."""

    epsilon: float = 0.025
    """Seconds of slack in the KCL's intervals, 0 to a sixth of ``failover_time``; see ``lease_renewal_schedule``."""

    lease_renewal_schedule: Literal["sparse", "kcl2"] | None = None
    """Schedule of renewals: ``"kcl2"`` renews a lease every ``failover_time / 3 - epsilon`` (3.3 s), ``"sparse"`` half
    as often (6.6 s). The schedule ``"sparse"`` costs half as much, and tolerates an unreachable table for a third of the failover time
    instead of two thirds. None: sparse for the balanced strategy, kcl2 for the kcl2 strategy."""

    lease_scan_interval: float = 1.0
    """Minimum seconds between two scans of the lease table, 0.1 to 3,600. Large tables are scanned less often, see
    ``lease_scan_read_capacity``."""

    lease_scan_read_capacity: float = 5.0
    """Maximum read units per second for this worker's scans of the lease table, 0.01 to 100,000. At the default, 100 leases
    are scanned every second, 1,000 every 10 s, and 2,000 or more every 20 s, as the KCL does. To scan a table of any size
    every 5 s, set a hundredth of the number of leases."""

    graceful_lease_handoff_timeout: float = 30.0
    """Maximum seconds for an owner to finish its batch and to checkpoint after another worker has requested its lease, 0 to
    3,600. Then the requester takes the lease. With 0, leases are taken without a request."""

    initial_rebalance_delay: float = 0.0
    """Seconds during which a worker without leases takes only unowned leases and requests none from live workers, 0 to
    3,600. This is for deployments that start the new worker before they stop the old worker: the new worker then gets the leases that the
    old worker releases, and each lease moves once instead of twice."""

    lease_strategy: StrategyName | LeaseStrategy = "balanced"
    """``"balanced"`` gives every worker and every worker group its share with the fewest moves; ``"kcl2"`` works like the
    KCL 2.x, at its intervals. Or an object, see `LeaseStrategy`."""

    balance_by: Literal["throughput", "count"] = "throughput"
    """For the balanced strategy. ``"throughput"`` weights leases by throughput, so that a worker with a hot shard holds fewer
    leases than other workers. Weights require that at least half of the leases carry ``throughputKBps`` in the table and that
    these rates differ by more than a factor of two. Otherwise, and with ``"count"``, leases are counted: every worker and group
    holds its exact share."""

    enable_priority_lease_assignment: bool = True
    """For the ``"kcl2"`` strategy: whether a worker that has its share still takes new leases and leases that were unowned for
    three failover times."""

    max_leases_for_worker: int | None = None
    """Maximum leases that this worker holds, 1 or more; None for no limit."""

    max_leases_to_steal_at_one_time: int | None = None
    """Maximum leases to request from live workers per scan of the lease table; with 0, none are requested. None leaves it to the
    strategy: ``"kcl2"`` requests 1, ``"balanced"`` requests its whole share."""

    worker_group: str | None = None
    """Label of the zone or cluster in which this worker runs, 1 to 128 characters. The worker id begins with this label, so that other
    workers see it. None: no group."""

    worker_group_separator: str = GROUP_SEPARATOR
    """Text after the label in a worker id, 1 to 16 characters; the same for the whole fleet. A worker whose id does not
    contain it (a Java KCL) is in no group."""

    def __post_init__(self) -> None:
        check_seconds("leases.failover_time", self.failover_time, 0.5, 3600)
        check_seconds("leases.epsilon", self.epsilon, 0, self.failover_time / 6)
        if self.lease_renewal_schedule is not None:
            check_choice("leases.lease_renewal_schedule", self.lease_renewal_schedule, ("sparse", "kcl2"))
        check_seconds("leases.lease_scan_interval", self.lease_scan_interval, 0.1, 3600)
        check_seconds("leases.lease_scan_read_capacity", self.lease_scan_read_capacity, 0.01, 100_000)
        check_seconds("leases.graceful_lease_handoff_timeout", self.graceful_lease_handoff_timeout, 0, 3600)
        check_seconds("leases.initial_rebalance_delay", self.initial_rebalance_delay, 0, 3600)
        check_choice("leases.balance_by", self.balance_by, ("throughput", "count"))
        check_bool("leases.enable_priority_lease_assignment", self.enable_priority_lease_assignment)
        if self.max_leases_for_worker is not None:
            check_int("leases.max_leases_for_worker", self.max_leases_for_worker, 1)
        if self.max_leases_to_steal_at_one_time is not None:
            check_int("leases.max_leases_to_steal_at_one_time", self.max_leases_to_steal_at_one_time, 0)
        check_text("leases.worker_group_separator", self.worker_group_separator, 1, 16)
        if self.worker_group is not None:
            check_text("leases.worker_group", self.worker_group, 1, 128)
            if self.worker_group_separator in self.worker_group:
                raise ConfigError(
                    "leases.worker_group",
                    self.worker_group,
                    f"a label without {self.worker_group_separator!r}",
                )

        check_strategy("leases.lease_strategy", self.lease_strategy, self._interval_settings)

    @property
    def strategy(self) -> LeaseStrategy:
        """``lease_strategy`` as an object; each access creates a new object if a built-in strategy is configured."""
        return resolve_strategy(
            self.lease_strategy,
            by_throughput=self.balance_by == "throughput",
            separator=self.worker_group_separator,
            prioritize_very_old=self.enable_priority_lease_assignment,
        )

    @property
    def _interval_settings(self) -> IntervalSettings:
        return IntervalSettings(
            failover_time=self.failover_time,
            epsilon=self.epsilon,
            min_scan_interval=self.lease_scan_interval,
            scan_read_capacity=self.lease_scan_read_capacity,
            renewal_schedule=self.lease_renewal_schedule,
        )

    def intervals(self, leases: int) -> Intervals:
        """Return the strategy's intervals of scans and renewals for a table with this number of leases."""
        return self.strategy.intervals(self._interval_settings, leases)

    @property
    def renew_interval(self) -> float:
        """Seconds between two heartbeats of a lease, see ``lease_renewal_schedule``."""
        return self.intervals(0).renewal

    @property
    def call_timeout(self) -> float:
        """Seconds after which a call to the lease table times out, so that retries fit before the lease expires."""
        return call_timeout(self.failover_time, self.renew_interval)


@documented_fields
@dataclass(frozen=True, kw_only=True)
class LeaseTableConfig:
    """Settings of the store of the leases: a table in DynamoDB, or another database.

    All fields except ``table_name``, ``lease_store`` and ``lease_table_pitr_enabled`` apply only to a table that is created in
    DynamoDB.

    Raises:
        ConfigError: If a field is out of its range; the error names field, value and range.
    """

    table_name: str | None = None
    """Name of the lease table, 3 to 255 characters; None uses the application's name, as the KCL does. In another database,
    several applications share a table, and this name distinguishes their rows."""

    lease_store: str | None = field(default=None, repr=False)
    """URL of a database other than DynamoDB: ``"sqlite:///leases.db"`` for the workers of one machine,
    ``"postgresql+psycopg://user@host/database"`` for a fleet, ``"memory://"`` for one worker in a test. None: DynamoDB. The
    ``lease_store`` of a `Worker` takes precedence."""

    billing_mode: Literal["PAY_PER_REQUEST", "PROVISIONED"] = "PAY_PER_REQUEST"
    """Billing mode of a new lease table."""

    initial_lease_table_read_capacity: int = 10
    """Read units of a new provisioned lease table, 1 or more."""

    initial_lease_table_write_capacity: int = 10
    """Write units of a new provisioned lease table, 1 or more."""

    lease_table_deletion_protection_enabled: bool = False
    """Whether to protect a new lease table from deletion."""

    lease_table_pitr_enabled: bool = False
    """Whether to switch on point-in-time recovery of the lease table at the start, if it is off."""

    lease_table_tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of a new lease table: keys of 1 to 128 characters, values of at most 256."""

    def __post_init__(self) -> None:
        if self.table_name is not None:
            check_table_name("lease_table.table_name", self.table_name)
        if self.lease_store is not None:
            check_location("lease_table.lease_store", self.lease_store)
        check_choice("lease_table.billing_mode", self.billing_mode, ("PAY_PER_REQUEST", "PROVISIONED"))
        for name in ("initial_lease_table_read_capacity", "initial_lease_table_write_capacity"):
            check_int(f"lease_table.{name}", getattr(self, name), 1)
        for name in ("lease_table_deletion_protection_enabled", "lease_table_pitr_enabled"):
            check_bool(f"lease_table.{name}", getattr(self, name))
        if not isinstance(self.lease_table_tags, Mapping):
            raise ConfigError(
                "lease_table.lease_table_tags", self.lease_table_tags, "a mapping of text to text"
            )
        for key, value in self.lease_table_tags.items():
            check_text("lease_table.lease_table_tags", key, 1, 128)
            check_text("lease_table.lease_table_tags", value, 0, 256)


@documented_fields
@dataclass(frozen=True, kw_only=True)
class RetrievalConfig:
    """Settings for reading records: GetRecords or enhanced fan-out, and how much is read ahead of the handlers.

    Raises:
        ConfigError: If a field is out of its range; the error names field, value and range.
    """

    retrieval_mode: Literal["polling", "fanout"] = "polling"
    """``"polling"`` calls GetRecords. ``"fanout"`` is enhanced fan-out: records are pushed within milliseconds and share no
    read limit with other consumers, at a cost per consumer, shard and hour. While subscribing fails, the shard is
    polled."""

    fanout_http: Literal["1.1", "2"] = "1.1"
    """Version of HTTP for the subscriptions of enhanced fan-out. With ``"1.1"``, each shard has a connection and a thread. With
    ``"2"``, which the KCL uses, 128 shards share a connection, and all shards share at most four threads; needs the extra
    ``http2``. Events and errors are the same. HTTP/1.1 is used if the endpoint does not offer HTTP/2, behind a proxy, and with
    a modified boto3 client. HTTP/2 has not been tried on AWS yet."""

    wire_format: Literal["json", "cbor"] = "json"
    """Encoding of GetRecords. With ``"cbor"``, which the KCL uses, shards with large Kinesis records (2 KiB and more on average, or 512
    bytes without the extra ``fast``) are read with a quarter fewer bytes and a third of the CPU time; other shards use JSON. The records
    are the same. CBOR has no effect on enhanced fan-out. It has not been tried on AWS yet, and some endpoints do not support it; see
    `docs/endpoints.md`."""

    max_records: int = 10_000
    """Maximum Kinesis records per GetRecords call, 1 to 10,000. An aggregate counts as one record. For the user records per call
    of the handler, see `ConsumerConfig.batch_records`."""

    idle_time_between_reads: float = 1.0
    """Seconds of the first pause between two reads at the tip of a shard, 0.2 to 3,600. Behind the tip, there is no pause. If a shard has
    records after such a pause, the pauses of its stream's other shards end, at most once a second."""

    min_idle_time_between_reads: float | None = None
    """Seconds of the pause at the tip of a shard after a read that returned records, 0.2 to
    ``idle_time_between_reads``; None means half of this value. Each read is a batch, and costs a checkpoint if the handler makes
    one per batch (0.5 s: 120 UpdateItem per minute and busy shard)."""

    max_idle_time_between_reads: float | None = None
    """Seconds to which the pause at the tip of a shard grows while reads return nothing, ``idle_time_between_reads`` to
    3,600; None means ``idle_time_between_reads`` (1 s: 60 GetRecords per minute and idle shard), or twice this value for DynamoDB Streams,
    which bill GetRecords."""

    max_prefetch_bytes: int = 64 * 1024 * 1024
    """Maximum bytes that all shards together hold in memory: read ahead, in flight, and being processed; 1 MiB or more. A read of
    a shard that is far behind counts as 14 MB, so the default allows four such reads at once, and 20 or more shards at their
    tips. The count includes payloads, 400 bytes per Kinesis record, 64 per aggregated user record (128 with an explicit hash
    key), and with ``concurrency`` 512 per user record, at most 8 MB per batch. CPython needs up to 1.5 times as much. The number
    of user records is known only once a read has arrived. So each of the first reads of a shard with tiny records may exceed
    the limit, by 12 MB plus the user records of a batch's last Kinesis record. Later reads wait for room. A batch of more than
    about 65,000 aggregated user records is delivered in parts."""

    recognize_repetitions: bool = True
    """Whether to drop repetitions of idempotent producers. False delivers every stored copy and never reads the stream again. Use
    it for streams into which untrusted programs put records, because they can forge the tags of repetitions. All workers of an
    application must agree; otherwise the owner of a shard decides whether a copy is delivered."""

    max_repetition_bytes: int = MAX_BYTES
    """Maximum bytes of memory per shard for recognizing repetitions of idempotent producers, 1 MiB to 4 GiB. Usually, less than 1 MB is
    used, for the last minute of the shard or the ``dedup_window`` of its named records. The default (64 MiB) is
    enough for 2,000 named records per second and a window of 300 s, or for 4,500 in aggregates of ten. If the memory is
    too small, every batch searches the stream again, which is slow."""

    max_look_up_bytes: int = 600_000_000
    """Maximum bytes of a shard to read again at once to find earlier copies of records, 0 to 1 TiB; the budget refills by 256 KiB
    per second. Beyond the budget, possible repetitions are delivered and counted (`RepetitionsUnknown`). The default covers
    seven minutes of a full shard. Each call counts as at least 400 kB."""

    max_fetch_threads: int = 16
    """Maximum reads in flight, 1 to 1,000. The KCL's ``maxGetRecordsThreadPool``."""

    consumer_name: str | None = None
    """Name to register for enhanced fan-out, 1 to 2,048 characters; None uses the application's name. The consumer is
    never deregistered."""

    consumer_arn: str | None = None
    """ARN of an already registered consumer, 1 to 2,048 characters, for enhanced fan-out of a worker with one stream. With several
    streams, each `StreamSpec` has its own ARN. None registers a consumer under ``consumer_name``."""

    def __post_init__(self) -> None:
        check_choice("retrieval.retrieval_mode", self.retrieval_mode, ("polling", "fanout"))
        check_choice("retrieval.fanout_http", self.fanout_http, ("1.1", "2"))
        if self.fanout_http == "2" and find_spec("h2") is None:
            raise ConfigError("retrieval.fanout_http", "2", f"1.1; {install_hint('HTTP/2', 'h2', 'http2')}")
        check_choice("retrieval.wire_format", self.wire_format, ("json", "cbor"))
        check_int("retrieval.max_records", self.max_records, 1, 10_000)
        usual = self.idle_time_between_reads
        check_seconds("retrieval.idle_time_between_reads", usual, READ_INTERVAL, 3600)
        warn_of_millis("retrieval.idle_time_between_reads", usual, 200)
        if self.min_idle_time_between_reads is not None:
            check_seconds(
                "retrieval.min_idle_time_between_reads",
                self.min_idle_time_between_reads,
                READ_INTERVAL,
                usual,
            )
        if self.max_idle_time_between_reads is not None:
            check_seconds(
                "retrieval.max_idle_time_between_reads", self.max_idle_time_between_reads, usual, 3600
            )
        check_int("retrieval.max_prefetch_bytes", self.max_prefetch_bytes, 1024 * 1024)
        check_bool("retrieval.recognize_repetitions", self.recognize_repetitions)
        check_int("retrieval.max_repetition_bytes", self.max_repetition_bytes, 1 << 20, 4 << 30)
        check_int("retrieval.max_look_up_bytes", self.max_look_up_bytes, 0, 1 << 40)
        check_int("retrieval.max_fetch_threads", self.max_fetch_threads, 1, 1000)
        for name in ("consumer_name", "consumer_arn"):
            if getattr(self, name) is not None:
                check_text(f"retrieval.{name}", getattr(self, name), 1, 2048)

    def idle_times(self, *, billed: bool) -> tuple[float, float, float]:
        """Return the seconds of the pause at the tip of a shard: first, minimum and maximum. ``billed`` is true if each read is billed."""
        usual = self.idle_time_between_reads
        least, most = self.min_idle_time_between_reads, self.max_idle_time_between_reads
        return (
            usual,
            max(READ_INTERVAL, usual / 2) if least is None else least,
            (usual * 2 if billed else usual) if most is None else most,
        )


@documented_fields
@dataclass(frozen=True, kw_only=True)
class CoordinationConfig:
    """Settings for keeping the lease table in step with shards and streams, and for joining a fleet of Java workers.

    Raises:
        ConfigError: If a field is out of its range; the error names field, value and range.
    """

    shard_sync_interval: float = 60.0
    """Seconds between two comparisons of the lease table with ListShards, 1 to 86,400."""

    parent_shard_poll_interval: float = 2.0
    """Seconds between two checks of whether a parent shard is finished, 0.1 to 3,600."""

    cleanup_leases_upon_shard_completion: bool = True
    """Whether to delete leases of finished shards."""

    lease_cleanup_interval: float = 60.0
    """Seconds between two searches for leases of finished shards, 1 to 86,400."""

    leases_recovery_auditor_execution_frequency: float = 120.0
    """Seconds between two searches for holes in the hash key space that the leases cover, 1 to 86,400. A search costs no
    call: it uses the latest scan of the table."""

    leases_recovery_auditor_inconsistency_confidence_threshold: int = 3
    """Number of consecutive searches that must find the same hole before the table is compared with the stream; 1 or
    more."""

    stream_list_interval: float = 60.0
    """With several streams: seconds between two calls of the function that lists them, 1 to 86,400."""

    wait_period_to_delete_former_streams: float | None = None
    """With several streams: seconds after which to delete unowned leases of a stream that is no longer consumed, 0 to
    31,536,000. None keeps them, so that a stream that is added again continues from its checkpoints."""

    worker_metrics: Literal["off", "separate_table", "lease_table"] = "off"
    """Membership in a fleet of Java KCL 3 workers, whose leader then assigns leases to this worker. The value depends on the
    table with the item ``Leader``: ``"separate_table"`` if it is ``<application>-CoordinatorState`` (fleets that began with KCL
    3.0 to 3.4), ``"lease_table"`` if it is the lease table (3.5 and later). KCL 1.x, 2.x and 3.0 to 3.4 fail on the item that
    ``"lease_table"`` puts into the lease table, so do not use it while such a worker runs."""

    def __post_init__(self) -> None:
        check_seconds("coordination.shard_sync_interval", self.shard_sync_interval, 1, 86_400)
        check_seconds("coordination.parent_shard_poll_interval", self.parent_shard_poll_interval, 0.1, 3600)
        check_bool(
            "coordination.cleanup_leases_upon_shard_completion", self.cleanup_leases_upon_shard_completion
        )
        check_seconds("coordination.lease_cleanup_interval", self.lease_cleanup_interval, 1, 86_400)
        check_seconds(
            "coordination.leases_recovery_auditor_execution_frequency",
            self.leases_recovery_auditor_execution_frequency,
            1,
            86_400,
        )
        check_int(
            "coordination.leases_recovery_auditor_inconsistency_confidence_threshold",
            self.leases_recovery_auditor_inconsistency_confidence_threshold,
            1,
        )
        check_seconds("coordination.stream_list_interval", self.stream_list_interval, 1, 86_400)
        if self.wait_period_to_delete_former_streams is not None:
            check_seconds(
                "coordination.wait_period_to_delete_former_streams",
                self.wait_period_to_delete_former_streams,
                0,
                31_536_000,
            )
        check_choice(
            "coordination.worker_metrics", self.worker_metrics, ("off", "separate_table", "lease_table")
        )


@documented_fields
@dataclass(frozen=True, kw_only=True)
class FailureConfig:
    """Settings for backoff and timeouts. For exceptions of handlers, see `ConsumerConfig.on_handler_error`.

    Raises:
        ConfigError: If a field is out of its range; the error names field, value and range.
    """

    task_backoff_time: float = 0.5
    """Seconds before the first retry after a failure, 0.001 to 3,600; doubled with each further failure, with jitter."""

    checkpoint_timeout: float = 10.0
    """Maximum seconds for which one checkpoint call retries throttled or failed writes, 0 to 3,600."""

    stall_timeout: float = 60.0
    """Seconds without progress after which a shard is reported as stalled, 1 to 86,400; a read that hangs is then
    restarted. A handler that hangs is only reported, see ``handler_timeout``."""

    handler_timeout: float | None = None
    """Maximum seconds of a handler callback, 1 to 86,400: after that, the worker releases the shard's lease. The next
    owner starts at the last checkpoint with a new handler. Python cannot stop the old call: it continues alongside the new
    call, but cannot checkpoint. None never releases."""

    misplaced_aggregates: Literal["deliver", "discard"] = "deliver"
    """Treatment of an aggregate that contains user records of another shard's hash key range, which happens around a
    reshard. ``"deliver"`` loses nothing. ``"discard"`` drops the aggregate and logs it, as the KCL does; it relies on a
    producer that sends such records again, as the KPL and this SDK do. Misplaced records of a producer with ``idempotent=True``
    are always dropped: the producer has not acknowledged them, and sends them again."""

    def __post_init__(self) -> None:
        check_seconds("failure.task_backoff_time", self.task_backoff_time, 0.001, 3600)
        check_seconds("failure.checkpoint_timeout", self.checkpoint_timeout, 0, 3600)
        check_seconds("failure.stall_timeout", self.stall_timeout, 1, 86_400)
        if self.handler_timeout is not None:
            check_seconds("failure.handler_timeout", self.handler_timeout, 1, 86_400)
        check_choice("failure.misplaced_aggregates", self.misplaced_aggregates, ("deliver", "discard"))


def _told_of_groups(cls: type[_T]) -> type[_T]:
    """Make the constructor's error for a field that belongs to a group mention the group, because Python's own error does not."""
    init: Any = cls.__init__

    @functools.wraps(init)
    def checked(self: _T, *args: object, **fields: object) -> None:
        for name in fields.keys() & GROUP_OF_FIELD.keys():
            group, value = GROUP_OF_FIELD[name], fields[name]
            given = f"{name}={value!r}" if isinstance(value, (int, float)) else f"{name}=…"
            raise ConfigError(
                name,
                value,
                "in its group",
                problem=f"{name} is a setting of {_GROUPS[group].__name__}: "
                f"ConsumerConfig({group}={_GROUPS[group].__name__}({given})), or ConsumerConfig().with_fields({given})",
            )
        init(self, *args, **fields)

    cls.__init__ = checked  # type: ignore[assignment]
    return cls


@documented_fields
@_told_of_groups
@dataclass(frozen=True, kw_only=True)
class ConsumerConfig:
    """Settings of a consumer. Names are the KCL's in snake case; durations are in seconds.

        ConsumerConfig(
            initial_position="TRIM_HORIZON",
            on_handler_error="stop",
            leases=LeaseConfig(failover_time=5),
        )

    Raises:
        ConfigError: If a field is out of its range; the error names field, value and range.
    """

    initial_position: Literal["LATEST", "TRIM_HORIZON"] | datetime = "LATEST"
    """Start position in a shard that has no lease yet: ``"LATEST"`` (records that arrive from now on; the KCL's
    default), ``"TRIM_HORIZON"`` (the oldest record that the stream retains) or an aware `datetime` (AT_TIMESTAMP). A
    shard with a lease always continues from its checkpoint."""

    on_handler_error: Literal["retry", "stop"] | HandlerErrorPolicy = "retry"
    """Reaction to a handler that raises: ``"retry"`` delivers the batch again with backoff, ``"stop"`` stops the worker. Or a
    policy object (`RetryBatch`, `BisectBatch`, `StopWorker`)."""

    concurrency: int = 1
    """Number of partition keys of one shard that are processed at the same time, each in order; 1 to 1,000. With 1, the records of all
    keys are delivered together. A handler class may set its own number, see `RecordHandler`."""

    batch_records: int | None = 1_000
    """Maximum user records per call of the handler, and per transaction of a sink, which may have a lower limit
    (`Sink.max_records`); 1 or more. None means all records of a response, which may be tens of thousands. A stop waits for the end of
    a call. After failures, calls get fewer records for a while."""

    max_threads: int = 32
    """Maximum handler callbacks that run at the same time, 1 to 1,000. The KCL's ``maxActiveThreads``."""

    auto_checkpoint: bool | None = None
    """Whether a batch counts as processed when the handler returns, so that the worker checkpoints it. None means true for functions and
    false for handler classes."""

    checkpoint_interval: float = 10.0
    """For automatic checkpoints: maximum seconds between the end of a batch and its checkpoint, 0 to 86,400."""

    checkpoint_records: int | None = None
    """For automatic checkpoints: number of records after which to checkpoint before ``checkpoint_interval`` has passed; 1 or more. None
    means by time only."""

    deserializer: Deserializer | None = None
    """Decodes payloads for ``record.value``, on first access; see `kinesis_sdk.serialization`. With several streams, each
    `StreamSpec` may have its own. None: ``record.value`` is ``record.data``."""

    delivery_delay: float = 0.0
    """Seconds for which each record is held back after its arrival at Kinesis, 0 to 31,536,000; for a stream whose records have to wait.
    The time is measured by the clock of Kinesis, and a record is delivered up to two seconds late, but never early. During the delay, no
    checkpoint is made, no thread waits, and lag is counted from the moment at which a record is due. The retention period of
    the stream must be longer. With several streams, each `StreamSpec` may have its own delay. With 0, records are delivered at once."""

    leases: LeaseConfig = field(default_factory=LeaseConfig)
    """Settings for leases: failover time, strategy, intervals, handoff."""

    lease_table: LeaseTableConfig = field(default_factory=LeaseTableConfig)
    """Settings of the DynamoDB table (name, billing, protection, tags), or another database for the leases."""

    retrieval: RetrievalConfig = field(default_factory=RetrievalConfig)
    """Settings for reading: polling or enhanced fan-out, pauses, prefetch."""

    coordination: CoordinationConfig = field(default_factory=CoordinationConfig)
    """Settings for shard sync, lease cleanup, several streams and Java KCL 3 fleets."""

    failure: FailureConfig = field(default_factory=FailureConfig)
    """Settings for failures: backoff, stalled shards, hanging handlers, failed checkpoints."""

    def __post_init__(self) -> None:
        if isinstance(self.initial_position, datetime):
            if self.initial_position.tzinfo is None:
                raise ConfigError("initial_position", self.initial_position, "a datetime with a time zone")
        elif self.initial_position not in (LATEST, TRIM_HORIZON):
            raise ConfigError(
                "initial_position", self.initial_position, '"LATEST", "TRIM_HORIZON" or an aware datetime'
            )
        for name, group in _GROUPS.items():
            if not isinstance(getattr(self, name), group):
                raise ConfigError(name, getattr(self, name), f"a {group.__name__}")
        handler_error_policy(self.on_handler_error, self.failure.task_backoff_time)
        check_int("concurrency", self.concurrency, 1, 1000)
        if self.batch_records is not None:
            check_int("batch_records", self.batch_records, 1)
        check_int("max_threads", self.max_threads, 1, 1000)
        if self.auto_checkpoint is not None and not isinstance(self.auto_checkpoint, bool):
            raise ConfigError("auto_checkpoint", self.auto_checkpoint, "True, False or None")
        check_seconds("checkpoint_interval", self.checkpoint_interval, 0, 86_400)
        warn_of_millis("checkpoint_interval", self.checkpoint_interval, 10_000)
        if self.checkpoint_records is not None:
            check_int("checkpoint_records", self.checkpoint_records, 1)
        check_deserializer("deserializer", self.deserializer)
        check_seconds("delivery_delay", self.delivery_delay, 0, MAX_DELIVERY_DELAY)

    @classmethod
    def from_properties(cls, path: str | os.PathLike[str]) -> ConsumerConfig:
        """Return the settings of a KCL ``.properties`` file, as the MultiLangDaemon of KCL 1.x, 2.x and 3.x reads it.

        Settings for which the file has no key keep the defaults of this class, which are the KCL's with these exceptions:
        ``retrieval_mode`` (polling; the daemon of KCL 2.x and 3.x uses fan-out), ``parent_shard_poll_interval``, the pauses between
        reads, and ``max_leases_to_steal_at_one_time``.

        Keys that do not take effect as written are logged as warnings with the reason: unknown keys, keys without a meaning here,
        values that were changed, and keys that are not settings of this class (application, stream, region, endpoints,
        credentials, metrics). `kinesis_sdk.consumer.properties.load_properties` returns all of this as data;
        docs/kcl-properties.md lists the keys.

        Raises:
            ConfigError: If a value is malformed or has no counterpart, or two keys contradict each other; the message names the key.
            OSError: If the file cannot be read.
        """
        from kinesis_sdk.consumer.properties import load_properties

        found = load_properties(path)
        for key, why in found.without_effect():
            _LOGGER.warning("%s: %s is not applied as it is written: %s", path, key, why)
        return cls().with_fields(**found.config)

    def with_fields(self, **fields: Any) -> ConsumerConfig:
        """Return a copy with some fields changed; fields of all groups are given by name alone.

        ``ConsumerConfig().with_fields(initial_position="TRIM_HORIZON", failover_time=5)`` is for settings that come from
        a file or the command line. Type checkers do not see the names; in code, prefer the groups.

        Args:
            **fields: Field names of this class and of its groups, with their new values. If a group is given as well, its
                fields are set on the new group.

        Raises:
            ConfigError: If there is no such field, or a value is out of its range.
        """
        own: dict[str, Any] = {}
        grouped: dict[str, dict[str, Any]] = {}
        for name, value in fields.items():
            if name in GROUP_OF_FIELD:
                grouped.setdefault(GROUP_OF_FIELD[name], {})[name] = value
            elif name in self.__dataclass_fields__:
                own[name] = value
            else:
                raise ConfigError(
                    name, value, "the name of a field of ConsumerConfig or of one of its groups"
                )
        for name, values in grouped.items():
            own[name] = dataclasses.replace(own.get(name, getattr(self, name)), **values)
        return dataclasses.replace(self, **own)

    @staticmethod
    def groups() -> Mapping[str, str]:
        """Return a mapping from each field of a group to the name of the group: ``{"failover_time": "leases", ...}``."""
        return GROUP_OF_FIELD

    def check_application_name(
        self, field: str, name: object, *, has_lease_store: bool, is_registered: bool
    ) -> None:
        """Check the name of an application for all its uses under these settings.

        Args:
            field: Name of the setting that holds the application's name, for errors.
            name: Name of the application.
            has_lease_store: Whether the leases are not in DynamoDB. In DynamoDB, the lease table gets the same name.
            is_registered: Whether a worker with enhanced fan-out registers a consumer under this name, unless the settings name
                one.

        Raises:
            ConfigError: If the name cannot be used.
        """
        if not has_lease_store and self.lease_table.table_name is None:
            check_table_name(field, name)
        check_text(field, name, 1, 255)
        retrieval = self.retrieval
        is_named = retrieval.consumer_name is not None or retrieval.consumer_arn is not None
        if is_registered and retrieval.retrieval_mode == "fanout" and not is_named:
            check_consumer_name(field, name)

    @property
    def error_policy(self) -> HandlerErrorPolicy:
        """``on_handler_error`` as a policy object."""
        return handler_error_policy(self.on_handler_error, self.failure.task_backoff_time)

    @property
    def initial_checkpoint(self) -> str:
        """The sentinel that a new lease carries for ``initial_position``."""
        return AT_TIMESTAMP if isinstance(self.initial_position, datetime) else self.initial_position

    @property
    def initial_timestamp(self) -> datetime | None:
        """Time of an AT_TIMESTAMP start; None for other positions."""
        return self.initial_position if isinstance(self.initial_position, datetime) else None

    @property
    def initial_timestamp_millis(self) -> int | None:
        """Time of an AT_TIMESTAMP start in epoch milliseconds, as leases carry it; None for other positions."""
        moment = self.initial_timestamp
        return None if moment is None else (moment - _EPOCH) // timedelta(milliseconds=1)


_GROUPS = {
    "leases": LeaseConfig,
    "lease_table": LeaseTableConfig,
    "retrieval": RetrievalConfig,
    "coordination": CoordinationConfig,
    "failure": FailureConfig,
}

GROUP_OF_FIELD: Mapping[str, str] = {
    each.name: group for group, cls in _GROUPS.items() for each in dataclasses.fields(cls)
}
"""Group of each field, as the name of a field of `ConsumerConfig`: ``{"failover_time": "leases", ...}``."""
