"""States of a shard consumer, and reasons for its shutdown."""

from __future__ import annotations

from enum import Enum


class ShardState(str, Enum):
    """State in the life cycle of a shard consumer; a string, so that JSON accepts it."""

    WAITING_ON_PARENTS = "waiting_on_parents"
    INITIALIZING = "initializing"
    PROCESSING = "processing"
    SHUTTING_DOWN = "shutting_down"
    COMPLETE = "complete"


class ShutdownReason(Enum):
    """Reason why a shard consumer shuts down."""

    LEASE_LOST = "lease_lost"
    """Another worker owns the lease, or this worker could not renew it in time."""
    SHARD_END = "shard_end"
    """All records of the shard were delivered."""
    UNTIL = "until"
    """All records of the shard that arrived before the worker's ``until`` were delivered."""
    REQUESTED = "requested"
    """The worker stops, or it no longer consumes the stream."""
    HANDOFF = "handoff"
    """Another worker requested the lease."""
