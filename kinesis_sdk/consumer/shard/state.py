"""States of a shard consumer, reasons to end it, and what all shard consumers of a worker share."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from random import Random

from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.metrics import BoundMetrics
from kinesis_sdk.common.position import Position
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.config import ConsumerConfig
from kinesis_sdk.consumer.fetch.budget import ByteBudget
from kinesis_sdk.consumer.fetch.fetcher import Fetcher
from kinesis_sdk.consumer.handler import HandlerSource
from kinesis_sdk.consumer.leases.table.store import LeaseStore
from kinesis_sdk.consumer.runtime.threads import run_inline
from kinesis_sdk.consumer.shard_sync.children import ChildLeases


class ShardState(str, Enum):
    """Where a shard consumer is in its life; a string, so that it is JSON."""

    WAITING_ON_PARENTS = "waiting_on_parents"
    INITIALIZING = "initializing"
    PROCESSING = "processing"
    SHUTTING_DOWN = "shutting_down"
    COMPLETE = "complete"


class ShutdownReason(Enum):
    """Why a shard consumer shuts down."""

    LEASE_LOST = "lease_lost"
    SHARD_END = "shard_end"
    REQUESTED = "requested"
    HANDOVER = "handoff"
    """Another worker asked for the lease."""


@dataclass(frozen=True, kw_only=True)
class ShardConsumerParts:
    """What all shard consumers of a worker share.

    Attributes:
        stream: The stream.
        worker_id: This worker.
        config: Settings.
        handlers: Makes handlers.
        store: Lease table.
        children: Creates leases at a shard's end.
        open_fetcher: Makes a fetcher for (shard id, start position, now, function to call when it has something,
            metrics of the shard).
        list_shards: Lists all shards of the stream.
        lease_key: Key of a shard's lease.
        clock: Time.
        rng: Jitter.
        sleep: Waits between repetitions of a failed checkpoint.
        measure: Makes the metrics of one acquisition of a shard id.
        budget: Bytes that all shards may hold.
        run: Runs callbacks of one shard side by side.
        run_async: Runs coroutines, see `EventLoopThread.run`.
    """

    stream: StreamId
    worker_id: str
    config: ConsumerConfig
    handlers: HandlerSource
    store: LeaseStore
    children: ChildLeases
    open_fetcher: Callable[[str, Position, float, Callable[[], None], BoundMetrics], Fetcher]
    list_shards: Callable[[], list[Shard]]
    clock: Clock
    rng: Random
    sleep: Callable[[float], None]
    measure: Callable[[str], BoundMetrics]
    lease_key: Callable[[str], str] = str
    budget: ByteBudget = field(default_factory=lambda: ByteBudget(sys.maxsize))
    run: Callable[[Callable[[], None]], object] = lambda function: function()
    run_async: Callable[[Awaitable[None], Callable[[BaseException | None], None]], None] = run_inline
