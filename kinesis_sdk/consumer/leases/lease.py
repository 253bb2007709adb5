"""A lease: the row of the lease table that binds a shard to a worker, exactly as the KCL stores it.

Attribute names and types are those of the KCL's ``DynamoDBLeaseSerializer`` (1.x to 3.x); rows written here are
read by every KCL and rows of every KCL are read here. Attributes that this module does not know survive,
because rows are only ever changed by update expressions. Three kinds of attributes are ours, `INITIAL_TIMESTAMP`,
`HANDOVER_OWNER` and those that begin with `STANDBY`; Java ignores and keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.common.shards import Shard

LEASE_KEY = "leaseKey"
LEASE_COUNTER = "leaseCounter"
LEASE_OWNER = "leaseOwner"
OWNER_SWITCHES = "ownerSwitchesSinceCheckpoint"
CHECKPOINT = "checkpoint"
CHECKPOINT_SUB = "checkpointSubSequenceNumber"
PENDING_CHECKPOINT = "pendingCheckpoint"
PENDING_CHECKPOINT_SUB = "pendingCheckpointSubSequenceNumber"
PENDING_CHECKPOINT_STATE = "pendingCheckpointState"
PARENT_SHARD_IDS = "parentShardId"
"""Singular in name, a set in type: that is what the KCL writes."""
CHILD_SHARD_IDS = "childShardIds"
STARTING_HASH_KEY = "startingHashKey"
ENDING_HASH_KEY = "endingHashKey"
THROUGHPUT_KBPS = "throughputKBps"
CHECKPOINT_OWNER = "checkpointOwner"
"""KCL 3: who still works on the shard while ``leaseOwner`` already names the next owner."""
ENTITY_TYPE = "entityType"
STREAM_NAME = "streamName"
"""In multi-stream tables: the whole stream id ``account:name:epoch``, not just its name."""
SHARD_ID = "shardId"
"""In multi-stream tables, where the lease key is longer."""
INITIAL_TIMESTAMP = "initialTimestampMillis"
"""Ours: the instant that AT_TIMESTAMP meant when the lease was made, or LATEST when the shard was first read, in
epoch milliseconds."""
HANDOVER_OWNER = "handoverOwner"
"""Ours: an owner, present or next, that understands `CHECKPOINT_OWNER`. Only while it equals ``leaseOwner``: a Java
worker that takes or asks for the lease leaves it as it was."""
STANDBY = "standby:"
"""Ours: begins the name of a number that a worker without leases leaves on a row; its id follows. See `standby`."""

_LEASE_ENTITY = "LEASE"

Item = Mapping[str, Any]
"""A DynamoDB item in its wire form: attribute name to ``{type: value}``."""


@dataclass(frozen=True, kw_only=True)
class Lease:
    """One row of the lease table, as read or as just written.

    Attributes:
        lease_key: Shard id; in multi-stream tables ``account:stream:creationEpoch:shardId``.
        counter: Version of the row; every transfer, renewal and checkpoint adds one, nothing takes away.
        owner: Worker id, or None.
        owner_switches: Times the lease changed hands since the last checkpoint.
        checkpoint: Position up to which (inclusive) the shard is processed, or a sentinel.
        pending_checkpoint: First half of a two-phase checkpoint.
        pending_checkpoint_state: The application's own bytes beside it.
        parent_shard_ids: Shards that must be finished first.
        child_shard_ids: Known once the shard ended.
        hash_key_range: Range of the shard; old rows lack it.
        throughput_kbps: Last measured throughput in KB/s, written by KCL 3.
        checkpoint_owner: Worker that still works on the shard during a handover; ``owner`` is the next one then.
        stream_name: Serialised stream id, in multi-stream tables only.
        shard_id: Shard id where the lease key is not one, in multi-stream tables only.
        initial_timestamp_millis: See `INITIAL_TIMESTAMP`.
        handover_owner: See `HANDOVER_OWNER`.
        standbys: Beats of workers that stand by, by worker id; see `STANDBY`.
        extra: Attributes that are not ours to interpret, in wire form.
    """

    lease_key: str
    counter: int = 0
    owner: str | None = None
    owner_switches: int = 0
    checkpoint: ExtendedSequenceNumber
    pending_checkpoint: ExtendedSequenceNumber | None = None
    pending_checkpoint_state: bytes | None = None
    parent_shard_ids: tuple[str, ...] = ()
    child_shard_ids: tuple[str, ...] = ()
    hash_key_range: HashKeyRange | None = None
    throughput_kbps: float | None = None
    checkpoint_owner: str | None = None
    stream_name: str | None = None
    shard_id: str | None = None
    initial_timestamp_millis: int | None = None
    handover_owner: str | None = None
    standbys: Mapping[str, int] = field(default_factory=dict)
    extra: Item = field(default_factory=dict)

    @property
    def is_finished(self) -> bool:
        """Whether the shard was processed to its end."""
        return self.checkpoint.is_shard_end

    @property
    def is_started(self) -> bool:
        """Whether something of the shard was checkpointed; reaching its end counts."""
        return not self.checkpoint.is_sentinel or self.is_finished

    @property
    def shard(self) -> str:
        """Id of the shard, whatever the form of the key."""
        return self.shard_id or self.lease_key

    @property
    def holder(self) -> str | None:
        """Who works on the shard now: during a handover the old owner, else the owner."""
        return self.checkpoint_owner or self.owner

    @property
    def in_handover(self) -> bool:
        """Whether ``owner`` still has to wait for ``checkpoint_owner``."""
        return self.checkpoint_owner is not None

    @classmethod
    def for_shard(cls, shard: Shard, checkpoint: str) -> Lease:
        """A new, unowned lease of a shard at a sentinel position."""
        return cls(
            lease_key=shard.shard_id,
            checkpoint=ExtendedSequenceNumber(checkpoint),
            parent_shard_ids=tuple(sorted(shard.parents)),
            hash_key_range=shard.hash_key_range,
        )


def is_lease_item(item: Item) -> bool:
    """Whether an item of the table is a lease: KCL 3.5 keeps other entities beside them."""
    entity = item.get(ENTITY_TYPE)
    return entity is None or entity.get("S") == _LEASE_ENTITY


def _text(item: Item, name: str) -> str | None:
    value = item.get(name)
    return value.get("S") if value is not None else None


def _whole(text: str) -> int:
    """A whole number as DynamoDB may write it: ``100``, ``1E+2``, ``100.0``."""
    if text.isdigit():
        return int(text)
    number = Decimal(text)
    if number != number.to_integral_value():
        raise ValueError(f"not a whole number: {text}")
    return int(number)


def _number(item: Item, name: str) -> int | None:
    value = item.get(name)
    return _whole(value["N"]) if value is not None and "N" in value else None


def _shard_ids(item: Item, name: str) -> tuple[str, ...]:
    # A set of another type is no lease: without its parents, a shard would be read before they are.
    return tuple(sorted(item[name]["SS"])) if name in item else ()


def _position(item: Item, name: str, sub_name: str) -> ExtendedSequenceNumber | None:
    text = _text(item, name)
    return ExtendedSequenceNumber(text, _number(item, sub_name) or 0) if text is not None else None


def lease_from_item(item: Item) -> Lease:
    """Read an item of the lease table.

    Missing hash ranges, sub-sequence numbers and owner switches are accepted: old KCLs do not write them all.

    Raises:
        ValueError: The item has no lease key, counter or checkpoint, or one that is no such thing.
    """
    try:
        key, counter = item[LEASE_KEY]["S"], _whole(item[LEASE_COUNTER]["N"])
        checkpoint = _position(item, CHECKPOINT, CHECKPOINT_SUB)
        start, end = _text(item, STARTING_HASH_KEY), _text(item, ENDING_HASH_KEY)
        throughput = item.get(THROUGHPUT_KBPS)
        state = item.get(PENDING_CHECKPOINT_STATE)
        lease = Lease(
            lease_key=key,
            counter=counter,
            owner=_text(item, LEASE_OWNER) or None,
            owner_switches=_number(item, OWNER_SWITCHES) or 0,
            checkpoint=checkpoint or ExtendedSequenceNumber(TRIM_HORIZON),
            pending_checkpoint=_position(item, PENDING_CHECKPOINT, PENDING_CHECKPOINT_SUB),
            # A KCL defect writes this state as a number on create; such a value stays in `extra`.
            pending_checkpoint_state=bytes(state["B"]) if state is not None and "B" in state else None,
            parent_shard_ids=_shard_ids(item, PARENT_SHARD_IDS),
            child_shard_ids=_shard_ids(item, CHILD_SHARD_IDS),
            hash_key_range=HashKeyRange(int(start), int(end)) if start and end else None,
            throughput_kbps=float(throughput["N"]) if throughput is not None else None,
            checkpoint_owner=_text(item, CHECKPOINT_OWNER) or None,
            stream_name=_text(item, STREAM_NAME) or None,
            shard_id=_text(item, SHARD_ID) or None,
            initial_timestamp_millis=_number(item, INITIAL_TIMESTAMP),
            handover_owner=_text(item, HANDOVER_OWNER) or None,
            standbys={
                name[len(STANDBY) :]: int(value["N"])
                for name, value in item.items()
                if _is_standby(name, value)
            },
            extra={name: value for name, value in item.items() if not _is_known(name, value)},
        )
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"not a lease item: {type(error).__name__}: {error}") from error
    if checkpoint is None:
        raise ValueError(f"not a lease item: {key} has no checkpoint")
    return lease


_KNOWN = frozenset(
    {
        LEASE_KEY,
        LEASE_COUNTER,
        LEASE_OWNER,
        OWNER_SWITCHES,
        CHECKPOINT,
        CHECKPOINT_SUB,
        PENDING_CHECKPOINT,
        PENDING_CHECKPOINT_SUB,
        PARENT_SHARD_IDS,
        CHILD_SHARD_IDS,
        STARTING_HASH_KEY,
        ENDING_HASH_KEY,
        THROUGHPUT_KBPS,
        CHECKPOINT_OWNER,
        STREAM_NAME,
        SHARD_ID,
        INITIAL_TIMESTAMP,
        HANDOVER_OWNER,
    }
)


def _is_known(name: str, value: Mapping[str, Any]) -> bool:
    return name in _KNOWN or (name == PENDING_CHECKPOINT_STATE and "B" in value) or _is_standby(name, value)


def _is_standby(name: str, value: Mapping[str, Any]) -> bool:
    return name.startswith(STANDBY) and "N" in value


def checkpoint_attributes(checkpoint: ExtendedSequenceNumber) -> dict[str, Any]:
    """The two attributes of a checkpoint; they are always written together."""
    return {
        CHECKPOINT: {"S": checkpoint.sequence_number},
        CHECKPOINT_SUB: {"N": str(checkpoint.sub_sequence_number)},
    }


def range_attributes(hash_key_range: HashKeyRange) -> dict[str, Any]:
    """The two attributes of a hash key range."""
    return {
        STARTING_HASH_KEY: {"S": str(hash_key_range.start)},
        ENDING_HASH_KEY: {"S": str(hash_key_range.end)},
    }


def lease_to_item(lease: Lease) -> dict[str, Any]:
    """The item of a lease. Attributes without a value are absent, never empty; counters are always there."""
    item: dict[str, Any] = {
        **lease.extra,
        LEASE_KEY: {"S": lease.lease_key},
        LEASE_COUNTER: {"N": str(lease.counter)},
        # Java refuses a row without it.
        OWNER_SWITCHES: {"N": str(lease.owner_switches)},
        **checkpoint_attributes(lease.checkpoint),
    }
    if lease.owner:
        item[LEASE_OWNER] = {"S": lease.owner}
    if lease.pending_checkpoint is not None:
        item[PENDING_CHECKPOINT] = {"S": lease.pending_checkpoint.sequence_number}
        item[PENDING_CHECKPOINT_SUB] = {"N": str(lease.pending_checkpoint.sub_sequence_number)}
    if lease.pending_checkpoint_state is not None:
        item[PENDING_CHECKPOINT_STATE] = {"B": lease.pending_checkpoint_state}
    if lease.parent_shard_ids:
        item[PARENT_SHARD_IDS] = {"SS": list(lease.parent_shard_ids)}
    if lease.child_shard_ids:
        item[CHILD_SHARD_IDS] = {"SS": list(lease.child_shard_ids)}
    if lease.hash_key_range is not None:
        item.update(range_attributes(lease.hash_key_range))
    if lease.throughput_kbps is not None:
        item[THROUGHPUT_KBPS] = {"N": format(lease.throughput_kbps, "f")}
    for name, text in (
        (CHECKPOINT_OWNER, lease.checkpoint_owner),
        (STREAM_NAME, lease.stream_name),
        (SHARD_ID, lease.shard_id),
        (HANDOVER_OWNER, lease.handover_owner),
    ):
        if text:
            item[name] = {"S": text}
    if lease.initial_timestamp_millis is not None:
        item[INITIAL_TIMESTAMP] = {"N": str(lease.initial_timestamp_millis)}
    for worker, beat in lease.standbys.items():
        item[STANDBY + worker] = {"N": str(beat)}
    return item
