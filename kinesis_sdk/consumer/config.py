"""Everything that can be set on a consumer, validated once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.sequence import AT_TIMESTAMP, LATEST, TRIM_HORIZON
from kinesis_sdk.common.validation import check_choice, check_int, check_seconds, check_text
from kinesis_sdk.consumer.failure import HandlerErrorPolicy, handler_error_policy

READ_INTERVAL = 0.2
"""Least seconds between two reads of a shard: the service allows five per second and shard."""


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig:
    """Settings of a consumer. Names are the KCL's in snake case; durations are seconds.

    Attributes:
        table_name: Lease table; None takes the application's name, as the KCL does.
        initial_position: Where a shard without a lease starts: ``"LATEST"`` (the KCL's effective default),
            ``"TRIM_HORIZON"`` or an aware `datetime` (AT_TIMESTAMP).
        failover_time: Seconds without a heartbeat after which a lease may be taken from its owner.
        epsilon: Seconds of slack in the renewal interval ``failover_time / 3 - epsilon``.
        max_leases_for_worker: Most leases that this worker holds; None is unbounded.
        max_leases_to_steal_at_one_time: Most leases stolen from a peer in one look; 0 never steals.
        lease_look_interval: Least seconds between two looks at the lease table. Looks at large tables are
            rarer: 5 ms per lease, at most 20 s.
        shard_sync_interval: Seconds between two comparisons of the table with ListShards.
        parent_shard_poll_interval: Seconds between two looks at an unfinished parent shard.
        cleanup_leases_upon_shard_completion: Whether leases of finished shards are deleted.
        lease_cleanup_interval: Seconds between two looks for finished leases.
        max_records: Most Kinesis records per GetRecords call.
        idle_time_between_reads: Seconds between two reads at the tip of a shard; never applied while behind.
        task_backoff_time: Seconds before the first repetition after a failure; doubled with jitter.
        max_threads: Most handler callbacks at the same time.
        checkpoint_interval: For plain functions: most seconds between a returned batch and its checkpoint.
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

    Raises:
        ConfigError: A value out of its range; names field, value and range.
    """

    table_name: str | None = None
    initial_position: Literal["LATEST", "TRIM_HORIZON"] | datetime = "LATEST"
    failover_time: float = 10.0
    epsilon: float = 0.025
    max_leases_for_worker: int | None = None
    max_leases_to_steal_at_one_time: int = 1
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

    @property
    def initial_checkpoint(self) -> str:
        """The sentinel that a new lease carries for ``initial_position``."""
        return AT_TIMESTAMP if isinstance(self.initial_position, datetime) else self.initial_position

    @property
    def initial_timestamp(self) -> datetime | None:
        """The instant of an AT_TIMESTAMP start; None for the other positions."""
        return self.initial_position if isinstance(self.initial_position, datetime) else None

    @property
    def renew_interval(self) -> float:
        """Seconds between two heartbeats of a lease."""
        return self.failover_time / 3 - self.epsilon

    @property
    def error_policy(self) -> HandlerErrorPolicy:
        """``on_handler_error`` as a policy object."""
        return handler_error_policy(self.on_handler_error, self.task_backoff_time)
