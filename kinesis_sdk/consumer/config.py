"""Everything that can be set on a consumer, validated once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Literal

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.sequence import AT_TIMESTAMP, LATEST, TRIM_HORIZON
from kinesis_sdk.common.validation import check_choice, check_int, check_seconds, check_text
from kinesis_sdk.consumer.failure import HandlerErrorPolicy, handler_error_policy
from kinesis_sdk.consumer.fetch.pace import READ_INTERVAL
from kinesis_sdk.consumer.leases import pacing
from kinesis_sdk.consumer.leases.strategies.groups import SEPARATOR

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig:
    """Settings of a consumer. Names are the KCL's in snake case; durations are seconds.

    Attributes:
        table_name: Lease table; None takes the application's name, as the KCL does.
        initial_position: Where a shard without a lease starts: ``"LATEST"`` (the KCL's effective default),
            ``"TRIM_HORIZON"`` or an aware `datetime` (AT_TIMESTAMP).
        failover_time: Seconds without a heartbeat after which a lease may be taken from its owner.
        epsilon: Seconds of slack in the KCL's intervals, see ``renew_rule``.
        max_leases_for_worker: Most leases that this worker holds; None is unbounded.
        max_leases_to_steal_at_one_time: Most leases that one look asks live peers for; 0 never does. None leaves
            it to the strategy: the KCL's one steals 1, the balanced one asks for all that it is due.
        lease_look_interval: Least seconds between two looks at the lease table. Looks at large tables are
            rarer, see ``lease_read_budget``.
        shard_sync_interval: Seconds between two comparisons of the table with ListShards.
        parent_shard_poll_interval: Seconds between two looks at an unfinished parent shard.
        cleanup_leases_upon_shard_completion: Whether leases of finished shards are deleted.
        lease_cleanup_interval: Seconds between two looks for finished leases.
        max_records: Most Kinesis records per GetRecords call.
        idle_time_between_reads: Seconds of the first pause between two reads at the tip of a shard; never
            applied while behind.
        task_backoff_time: Seconds before the first repetition after a failure; doubled with jitter.
        max_threads: Most handler callbacks at the same time.
        checkpoint_interval: For automatic checkpoints: most seconds between a returned batch and its checkpoint.
        checkpoint_timeout: Most seconds for which one checkpoint call repeats throttled or failed writes.
        misplaced_aggregates: What to do with an aggregate that holds a record of another shard. ``"deliver"``
            loses nothing; ``"discard"`` does what the KCL does (it relies on the producer's repetition) and
            logs each one.
        on_handler_error: ``"retry"`` delivers the batch again with backoff, ``"stop"`` stops the worker, or a
            policy object.
        billing_mode: Of a table that has to be created: ``"PAY_PER_REQUEST"`` or ``"PROVISIONED"``.
        initial_lease_table_read_capacity: Read units of a provisioned table.
        initial_lease_table_write_capacity: Write units of a provisioned table.
        lease_table_deletion_protection_enabled: Whether a created table is protected from deletion.

        graceful_lease_handoff_timeout: Seconds that a worker gets to finish its batch and checkpoint when another
            one asks for a lease, before the lease is taken from it; 0 never asks and takes at once.
        lease_table_tags: Tags of a table that has to be created.
        lease_table_pitr_enabled: Whether the table must have point-in-time recovery; switched on at the start
            where it is off.
        leases_recovery_auditor_execution_frequency: Seconds between two looks for holes in the hash key space
            that the leases cover. They cost nothing: they use what the look at the table read.
        leases_recovery_auditor_inconsistency_confidence_threshold: How many looks in a row have to see the same
            hole before the table is compared with the stream.
        worker_metrics: Membership of a fleet of Java KCL 3 workers, whose leader then gives us leases: ``"off"``,
            ``"separate_table"`` for KCL 3.0 to 3.4, ``"lease_table"`` for 3.5 and later. The last one puts an item
            into the lease table at which KCL 1.x, 2.x and 3.0 to 3.4 fail: never while one of those lives.
        stream_list_interval: With several streams: seconds between two questions which ones they are.
        former_streams_lease_deletion_wait: With several streams: seconds after which leases of a stream that is not
            consumed any more are deleted, if nobody owns them. None keeps them, so that a stream that comes
            back goes on where it was.
        lease_strategy: ``"balanced"`` gives every worker and every group its share with the fewest moves;
            ``"kcl2"`` does what the KCL 2.x does, at its intervals.
        balance_by: ``"throughput"`` weighs leases by what they deliver where the table knows it (``throughputKBps`` on at
            least half of them) and they differ by more than a class of a factor of two, and counts them else: a
            worker with a hot shard then holds fewer leases than others. ``"count"`` always counts them: every worker
            and group then holds its share to the lease. For the balanced strategy.
        worker_group: Label of the zone or cluster that this worker is in. It becomes the beginning of the worker id,
            where peers read it. None: no group.
        worker_group_separator: Ends the label in a worker id; the same for the whole fleet. Ids without it (other
            KCLs') are in no group.
        newcomer_patience: Seconds for which a worker that holds nothing takes only what nobody keeps, instead of
            asking its peers for its share. For deploys that start the new worker before they stop the old one: then the
            new one gets what the old one gives back, and each lease moves once instead of twice. 0: its share at
            once.
        lease_read_budget: Read units per second that looks at the lease table may cost this worker. At the default
            100 leases are looked at every second, 1,000 every 10 s, 2,000 and more every 20 s, as the KCL does.
        renew_rule: ``"kcl2"`` renews each ``failover_time / 3 - epsilon`` (3.3 s), ``"sparse"`` half as often
            (6.6 s). Sparse costs half, and bears an unreachable table for a third of the failover time instead of
            two thirds. None: sparse for the balanced strategy.
        enable_priority_lease_assignment: Whether leases that stood still for three failover times, and new ones,
            are taken whatever the share says. For the KCL's strategy.

        min_idle_time_between_reads: To which the pause at the tip shrinks while reads bring records; None is half
            of ``idle_time_between_reads``. Each read is a batch, and a checkpoint where the handler makes one per
            batch (0.5 s: 120 UpdateItem per minute and busy shard).
        max_idle_time_between_reads: To which it grows while reads bring nothing; None is twice
            ``idle_time_between_reads`` (2 s: 30 GetRecords per minute and idle shard).
        max_prefetch_bytes: Bytes that all shards together may hold: read ahead, on their way, and in handlers'
            hands. A shard far behind counts 14 MB per read under way, so the default lets four of those go
            on at once, and 20 or more shards at their tips.
        max_fetch_threads: Most reads at the same time.
        concurrency: Partition keys of one shard that are processed at the same time, each in order; 1 delivers
            whole batches. A handler class may say otherwise, see `RecordHandler`.
        auto_checkpoint: Whether a batch counts as processed once the handler returned, and is checkpointed by the
            worker. None: for plain functions only.
        checkpoint_records: Automatic checkpoints also come after so many records; None: by time only.
        retrieval_mode: ``"polling"``, or ``"fanout"`` for enhanced fan-out: records are pushed within milliseconds and
            share no read limit with other consumers, at a price per consumer, shard and hour. While subscribing
            fails, the shard is polled.
        consumer_name: Name to register for enhanced fan-out; None is the application's name. Never deregistered.
        consumer_arn: A consumer that is registered already; for workers with one stream (`StreamSpec` has its own).
        stall_timeout: Seconds without progress after which a shard is reported as stalled; a read that hangs is
            then begun anew. A handler that hangs is only reported, see ``handler_timeout``.
        handler_timeout: Seconds after which a callback that still runs is given up: the lease is given back, and
            whoever takes it begins at the last checkpoint with a new handler. Python can not stop the old call, which
            goes on beside the new one, but can not checkpoint any more. None never gives up.

    Raises:
        ConfigError: A value out of its range; names field, value and range.
    """

    table_name: str | None = None
    initial_position: Literal["LATEST", "TRIM_HORIZON"] | datetime = "LATEST"
    failover_time: float = 10.0
    epsilon: float = 0.025
    max_leases_for_worker: int | None = None
    max_leases_to_steal_at_one_time: int | None = None
    lease_look_interval: float = 1.0
    shard_sync_interval: float = 60.0
    parent_shard_poll_interval: float = 2.0
    cleanup_leases_upon_shard_completion: bool = True
    lease_cleanup_interval: float = 60.0
    max_records: int = 10_000
    idle_time_between_reads: float = 1.0
    task_backoff_time: float = 0.5
    max_threads: int = 32
    checkpoint_interval: float = 10.0
    checkpoint_timeout: float = 10.0
    misplaced_aggregates: Literal["deliver", "discard"] = "deliver"
    on_handler_error: Literal["retry", "stop"] | HandlerErrorPolicy = "retry"
    billing_mode: Literal["PAY_PER_REQUEST", "PROVISIONED"] = "PAY_PER_REQUEST"
    initial_lease_table_read_capacity: int = 10
    initial_lease_table_write_capacity: int = 10
    lease_table_deletion_protection_enabled: bool = False
    # leases and coordination
    graceful_lease_handoff_timeout: float = 30.0
    lease_table_tags: Mapping[str, str] = field(default_factory=dict)
    lease_table_pitr_enabled: bool = False
    leases_recovery_auditor_execution_frequency: float = 120.0
    leases_recovery_auditor_inconsistency_confidence_threshold: int = 3
    worker_metrics: Literal["off", "separate_table", "lease_table"] = "off"
    stream_list_interval: float = 60.0
    former_streams_lease_deletion_wait: float | None = None
    lease_strategy: Literal["balanced", "kcl2"] = "balanced"
    balance_by: Literal["throughput", "count"] = "throughput"
    worker_group: str | None = None
    worker_group_separator: str = SEPARATOR
    newcomer_patience: float = 0.0
    lease_read_budget: float = 5.0
    renew_rule: Literal["sparse", "kcl2"] | None = None
    enable_priority_lease_assignment: bool = True
    # reading and handling
    min_idle_time_between_reads: float | None = None
    max_idle_time_between_reads: float | None = None
    max_prefetch_bytes: int = 64 * 1024 * 1024
    max_fetch_threads: int = 16
    concurrency: int = 1
    auto_checkpoint: bool | None = None
    checkpoint_records: int | None = None
    retrieval_mode: Literal["polling", "fanout"] = "polling"
    consumer_name: str | None = None
    consumer_arn: str | None = None
    stall_timeout: float = 60.0
    handler_timeout: float | None = None

    def __post_init__(self) -> None:
        if self.table_name is not None:
            check_text("table_name", self.table_name, 3, 255)
        if isinstance(self.initial_position, datetime):
            if self.initial_position.tzinfo is None:
                raise ConfigError("initial_position", self.initial_position, "a datetime with a time zone")
        elif self.initial_position not in (LATEST, TRIM_HORIZON):
            raise ConfigError(
                "initial_position", self.initial_position, '"LATEST", "TRIM_HORIZON" or an aware datetime'
            )
        check_seconds("failover_time", self.failover_time, 0.5, 3600)
        check_seconds("epsilon", self.epsilon, 0, self.failover_time / 6)
        if self.max_leases_for_worker is not None:
            check_int("max_leases_for_worker", self.max_leases_for_worker, 1)
        if self.max_leases_to_steal_at_one_time is not None:
            check_int("max_leases_to_steal_at_one_time", self.max_leases_to_steal_at_one_time, 0)
        check_seconds("lease_look_interval", self.lease_look_interval, 0.1, 3600)
        check_seconds("shard_sync_interval", self.shard_sync_interval, 1, 86_400)
        check_seconds("parent_shard_poll_interval", self.parent_shard_poll_interval, 0.1, 3600)
        check_seconds("lease_cleanup_interval", self.lease_cleanup_interval, 1, 86_400)
        check_int("max_records", self.max_records, 1, 10_000)
        check_seconds("idle_time_between_reads", self.idle_time_between_reads, READ_INTERVAL, 3600)
        check_seconds("task_backoff_time", self.task_backoff_time, 0.001, 3600)
        check_int("max_threads", self.max_threads, 1, 1000)
        check_seconds("checkpoint_interval", self.checkpoint_interval, 0, 86_400)
        check_seconds("checkpoint_timeout", self.checkpoint_timeout, 0, 3600)
        check_choice("misplaced_aggregates", self.misplaced_aggregates, ("deliver", "discard"))
        check_choice("billing_mode", self.billing_mode, ("PAY_PER_REQUEST", "PROVISIONED"))
        check_int("initial_lease_table_read_capacity", self.initial_lease_table_read_capacity, 1)
        check_int("initial_lease_table_write_capacity", self.initial_lease_table_write_capacity, 1)
        handler_error_policy(self.on_handler_error, self.task_backoff_time)
        self._check_coordination()
        self._check_reading()

    def _check_coordination(self) -> None:
        check_seconds("graceful_lease_handoff_timeout", self.graceful_lease_handoff_timeout, 0, 3600)
        for key, value in self.lease_table_tags.items():
            check_text("lease_table_tags", key, 1, 128)
            if not isinstance(value, str) or len(value) > 256:
                raise ConfigError("lease_table_tags", value, "text of at most 256 characters")
        check_seconds(
            "leases_recovery_auditor_execution_frequency",
            self.leases_recovery_auditor_execution_frequency,
            1,
            86_400,
        )
        check_int(
            "leases_recovery_auditor_inconsistency_confidence_threshold",
            self.leases_recovery_auditor_inconsistency_confidence_threshold,
            1,
        )
        check_choice("worker_metrics", self.worker_metrics, ("off", "separate_table", "lease_table"))
        check_seconds("stream_list_interval", self.stream_list_interval, 1, 86_400)
        if self.former_streams_lease_deletion_wait is not None:
            check_seconds(
                "former_streams_lease_deletion_wait", self.former_streams_lease_deletion_wait, 0, 31_536_000
            )
        check_choice("lease_strategy", self.lease_strategy, ("balanced", "kcl2"))
        check_choice("balance_by", self.balance_by, ("throughput", "count"))
        check_text("worker_group_separator", self.worker_group_separator, 1, 16)
        if self.worker_group is not None:
            check_text("worker_group", self.worker_group, 1, 128)
            if self.worker_group_separator in self.worker_group:
                raise ConfigError(
                    "worker_group", self.worker_group, f"a label without {self.worker_group_separator!r}"
                )
        check_seconds("newcomer_patience", self.newcomer_patience, 0, 3600)
        check_seconds("lease_read_budget", self.lease_read_budget, 0.01, 100_000)
        if self.renew_rule is not None:
            check_choice("renew_rule", self.renew_rule, ("sparse", "kcl2"))

    def _check_reading(self) -> None:
        usual = self.idle_time_between_reads
        if self.min_idle_time_between_reads is not None:
            check_seconds(
                "min_idle_time_between_reads", self.min_idle_time_between_reads, READ_INTERVAL, usual
            )
        if self.max_idle_time_between_reads is not None:
            check_seconds("max_idle_time_between_reads", self.max_idle_time_between_reads, usual, 3600)
        check_choice("retrieval_mode", self.retrieval_mode, ("polling", "fanout"))
        for name in ("consumer_name", "consumer_arn"):
            if getattr(self, name) is not None:
                check_text(name, getattr(self, name), 1, 2048)
        check_int("max_prefetch_bytes", self.max_prefetch_bytes, 1024 * 1024)
        check_int("max_fetch_threads", self.max_fetch_threads, 1, 1000)
        check_int("concurrency", self.concurrency, 1, 1000)
        if self.auto_checkpoint is not None and not isinstance(self.auto_checkpoint, bool):
            raise ConfigError("auto_checkpoint", self.auto_checkpoint, "True, False or None")
        if self.checkpoint_records is not None:
            check_int("checkpoint_records", self.checkpoint_records, 1)
        check_seconds("stall_timeout", self.stall_timeout, 1, 86_400)
        if self.handler_timeout is not None:
            check_seconds("handler_timeout", self.handler_timeout, 1, 86_400)

    @property
    def idle_times(self) -> tuple[float, float, float]:
        """Seconds at the tip of a shard: the first pause, the least, the most."""
        usual = self.idle_time_between_reads
        least, most = self.min_idle_time_between_reads, self.max_idle_time_between_reads
        return (
            usual,
            max(READ_INTERVAL, usual / 2) if least is None else least,
            usual * 2 if most is None else most,
        )

    @property
    def initial_checkpoint(self) -> str:
        """The sentinel that a new lease carries for ``initial_position``."""
        return AT_TIMESTAMP if isinstance(self.initial_position, datetime) else self.initial_position

    @property
    def initial_timestamp(self) -> datetime | None:
        """The instant of an AT_TIMESTAMP start; None for the other positions."""
        return self.initial_position if isinstance(self.initial_position, datetime) else None

    @property
    def initial_timestamp_millis(self) -> int | None:
        """The same in epoch milliseconds, as leases carry it."""
        moment = self.initial_timestamp
        return None if moment is None else (moment - _EPOCH) // timedelta(milliseconds=1)

    @property
    def renew_interval(self) -> float:
        """Seconds between two heartbeats of a lease, see ``renew_rule``."""
        rule = self.renew_rule or ("kcl2" if self.lease_strategy == "kcl2" else "sparse")
        interval = pacing.kcl2_renew_interval if rule == "kcl2" else pacing.sparse_renew_interval
        return interval(self.failover_time, self.epsilon)

    @property
    def lease_call_timeout(self) -> float:
        """Seconds after which a call to the lease table is given up, so that repetitions come before expiry."""
        return pacing.call_timeout(self.failover_time, self.renew_interval)

    def look_interval(self, leases: int, *, soon: bool = False) -> float:
        """Seconds between two looks at a table of so many leases; ``soon`` while leases change hands."""
        if self.lease_strategy == "kcl2":
            return pacing.kcl2_take_interval(self.failover_time, self.epsilon)
        interval = pacing.look_interval(
            leases,
            least=self.lease_look_interval,
            budget=self.lease_read_budget,
            failover_time=self.failover_time,
            epsilon=self.epsilon,
        )
        return pacing.soon_interval(interval, least=self.lease_look_interval) if soon else interval

    @property
    def error_policy(self) -> HandlerErrorPolicy:
        """``on_handler_error`` as a policy object."""
        return handler_error_policy(self.on_handler_error, self.task_backoff_time)
