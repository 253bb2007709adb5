"""A lease: the row of the lease table that binds a shard to a worker, exactly as the KCL stores it.

Attribute names and types follow the KCL's ``DynamoDBLeaseSerializer`` (1.x to 3.x). Every KCL can read rows written here, and
rows of every KCL can be read here. Unknown attributes are kept, because rows are changed only by update expressions. This SDK
adds attributes that the Java KCL ignores and keeps:
`INITIAL_TIMESTAMP`, `HANDOFF_OWNER`, `PROCESSED_UNTIL`, `PROGRESS`, `HANDLER_REQUEST`, `PINNED_TO`, `CHANGED_BY`, and attributes that
begin with `STANDBY` or `DRAIN`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, NamedTuple

from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.position import MAX_MILLIS
from kinesis_sdk.common.sequence import AT_TIMESTAMP, LATEST, ExtendedSequenceNumber
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer.leases.table.attributes import (
    CHECKPOINT,
    CHECKPOINT_OWNER,
    CHECKPOINT_SUB,
    CHILD_SHARD_IDS,
    DRAIN,
    ENDING_HASH_KEY,
    ENTITY_TYPE,
    HANDLER_REQUEST,
    HANDOFF_OWNER,
    INITIAL_TIMESTAMP,
    LEASE_COUNTER,
    LEASE_KEY,
    LEASE_OWNER,
    OWNER_SWITCHES,
    PARENT_SHARD_IDS,
    PENDING_CHECKPOINT,
    PENDING_CHECKPOINT_STATE,
    PENDING_CHECKPOINT_SUB,
    PINNED_TO,
    PROCESSED_UNTIL,
    PROGRESS,
    SHARD_ID,
    STANDBY,
    STARTING_HASH_KEY,
    STREAM_NAME,
    THROUGHPUT_KBPS,
)
from kinesis_sdk.consumer.leases.table.handler_request import HandlerRequest
from kinesis_sdk.consumer.leases.table.progress import Progress

_LEASE_ENTITY = "LEASE"


def shard_of_key(lease_key: str) -> str:
    """Return the shard id of a lease key: the key itself or, in multi-stream tables, its last part."""
    return lease_key.rpartition(":")[2]


Item = Mapping[str, Any]
"""A DynamoDB item in its wire form: attribute name to ``{type: value}``."""


class ProcessedUntil(NamedTuple):
    """Mark of the time up to which a worker with ``until`` processed a shard.

    The mark is valid only for the checkpoint with which it was written: if an operator moves the checkpoint back, records
    from before the time are due again.

    Attributes:
        millis: Every record that arrived before this time is processed, in epoch milliseconds by the clock of Kinesis.
        checkpoint: Checkpoint of the row when the mark was written.
    """

    millis: int
    checkpoint: ExtendedSequenceNumber


@dataclass(frozen=True, kw_only=True)
class Lease:
    """One row of the lease table, after a read or a write.

    Attributes:
        lease_key: Shard id; in multi-stream tables ``account:stream:creationEpoch:shardId``.
        counter: Version of the row; every transfer, renewal and checkpoint adds one, and nothing lowers it.
        owner: Worker id, or None.
        owner_switches: Number of times the owner has changed since the last checkpoint.
        checkpoint: Position up to which (inclusive) the shard is processed, or a sentinel.
        pending_checkpoint: First half of a two-phase checkpoint.
        pending_checkpoint_state: The application's own bytes stored with the pending checkpoint; left out of ``repr``.
        parent_shard_ids: Shards that must be finished before this shard is read.
        child_shard_ids: Children, once the shard has ended.
        hash_key_range: Range of the shard; old rows lack it.
        throughput_kbps: Last measured throughput in KB/s, written by KCL 3.
        checkpoint_owner: Worker that still works on the shard during a handoff; ``owner`` is then the next owner.
        stream_name: Serialized stream id, in multi-stream tables only.
        shard_id: Shard id, in multi-stream tables only, where the lease key is longer.
        initial_timestamp_millis: See `INITIAL_TIMESTAMP`.
        handoff_owner: See `HANDOFF_OWNER`.
        processed_until: Mark of a worker with ``until``, or None. See `was_processed_until`.
        standby_heartbeats: Heartbeats of standby workers, by worker id; see `STANDBY`.
        progress: The shard's progress, from its last writer; see `current_progress`.
        handler_request: An operator's request to the holder, or None.
        pinned_to: Worker that gets this lease while it is alive; see `PINNED_TO`.
        draining: Ids of workers that hold no leases, sorted; see `DRAIN`.
        extra: Attributes that this SDK does not use, in DynamoDB's wire form.
        damaged: Names of optional attributes with unreadable values; they count as absent.
    """

    lease_key: str
    counter: int = 0
    owner: str | None = None
    owner_switches: int = 0
    checkpoint: ExtendedSequenceNumber
    pending_checkpoint: ExtendedSequenceNumber | None = None
    pending_checkpoint_state: bytes | None = field(default=None, repr=False)
    parent_shard_ids: tuple[str, ...] = ()
    child_shard_ids: tuple[str, ...] = ()
    hash_key_range: HashKeyRange | None = None
    throughput_kbps: float | None = None
    checkpoint_owner: str | None = None
    stream_name: str | None = None
    shard_id: str | None = None
    initial_timestamp_millis: int | None = None
    handoff_owner: str | None = None
    processed_until: ProcessedUntil | None = None
    standby_heartbeats: Mapping[str, int] = field(default_factory=dict)
    progress: Progress | None = None
    handler_request: HandlerRequest | None = None
    pinned_to: str | None = None
    draining: tuple[str, ...] = ()
    extra: Item = field(default_factory=dict)
    damaged: tuple[str, ...] = ()

    @property
    def is_finished(self) -> bool:
        """Whether the shard was processed to its end."""
        return self.checkpoint.is_shard_end

    @property
    def is_started(self) -> bool:
        """Whether a record of the shard, or its end, was checkpointed."""
        return not self.checkpoint.is_sentinel or self.is_finished

    @property
    def shard(self) -> str:
        """Id of the shard, in either form of the key."""
        return self.shard_id or self.lease_key

    @property
    def holder(self) -> str | None:
        """Worker that processes the shard now: the old owner during a handoff, otherwise the owner."""
        return self.checkpoint_owner or self.owner

    @property
    def in_handoff(self) -> bool:
        """Whether ``owner`` still has to wait for ``checkpoint_owner``."""
        return self.checkpoint_owner is not None

    def was_processed_until(self, millis: int) -> bool:
        """Return whether every record of the shard that arrived before a time is known to be processed.

        Args:
            millis: The time in epoch milliseconds by the clock of Kinesis.
        """
        mark = self.processed_until
        if mark is None or mark.millis < millis:
            return False
        # Sentinels have no order in time: TRIM_HORIZON may be before or after an AT_TIMESTAMP.
        is_past = not mark.checkpoint.is_sentinel and self.checkpoint > mark.checkpoint
        return is_past or self.checkpoint == mark.checkpoint

    @property
    def current_progress(self) -> Progress | None:
        """Progress written by the current holder; None if there is none."""
        progress = self.progress
        return progress if progress is not None and progress.owner == self.holder else None

    @classmethod
    def for_shard(cls, shard: Shard, checkpoint: str) -> Lease:
        """Create an unowned lease of a shard at a sentinel position."""
        return cls(
            lease_key=shard.shard_id,
            checkpoint=ExtendedSequenceNumber(checkpoint),
            parent_shard_ids=tuple(sorted(shard.parents)),
            hash_key_range=shard.hash_key_range,
        )


def is_lease_item(item: Item) -> bool:
    """Return whether an item of the table is a lease; KCL 3.5 also keeps other entities in it."""
    entity = item.get(ENTITY_TYPE)
    return entity is None or entity.get("S") == _LEASE_ENTITY


def entity_type_of(item: Item) -> str:
    """Return the entity type of an item, escaped for logs."""
    entity = item.get(ENTITY_TYPE)
    return printable(str(entity.get("S", entity)) if isinstance(entity, Mapping) else str(entity))


def _text(item: Item, name: str) -> str | None:
    value = item.get(name)
    return value.get("S") if value is not None else None


_MAX_NUMBER = 2**63 - 2
"""Largest number that is accepted: the KCL uses Java's ``long``, and the next write of a counter adds one."""
_SAFE_DIGITS = 18
"""Number of digits up to which a number is certainly in range."""
_MAX_KBPS = 1e9
"""No shard delivers a terabyte per second; DynamoDB rejects numbers of more than 38 digits."""


def _whole(text: str) -> int:
    """Parse a whole number in any of DynamoDB's forms: ``100``, ``1E+2``, ``100.0``."""
    if text.isdigit() and len(text) <= _SAFE_DIGITS:
        return int(text)
    number = Decimal(text)
    if not -_MAX_NUMBER <= number <= _MAX_NUMBER:
        raise ValueError(f"out of range: {text[:60]!r}")
    if number != int(number):
        raise ValueError(f"not a whole number: {text[:60]!r}")
    return int(number)


def _number(item: Item, name: str) -> int | None:
    value = item.get(name)
    return _whole(value["N"]) if value is not None and "N" in value else None


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f"has control characters: {text[:60]!r}")
    return text


def _id(item: Item, name: str) -> str | None:
    text = _text(item, name)
    return _printable(text) if text else None


def _shard_ids(item: Item, name: str) -> tuple[str, ...]:
    # A set of another type is an error: without its parents, a shard would be read before its parents are.
    return tuple(sorted(map(_printable, item[name]["SS"]))) if name in item else ()


def _position(item: Item, name: str, sub_name: str) -> ExtendedSequenceNumber | None:
    text = _text(item, name)
    return ExtendedSequenceNumber(text, _number(item, sub_name) or 0) if text is not None else None


def _pending(item: Item) -> tuple[ExtendedSequenceNumber | None, bytes | None]:
    state = item.get(PENDING_CHECKPOINT_STATE)
    # A KCL defect writes this state as a number on create; such a value stays in `extra`.
    read = bytes(state["B"]) if state is not None and "B" in state else None
    return _position(item, PENDING_CHECKPOINT, PENDING_CHECKPOINT_SUB), read


def _range(item: Item) -> HashKeyRange | None:
    start, end = _text(item, STARTING_HASH_KEY), _text(item, ENDING_HASH_KEY)
    return HashKeyRange(int(start), int(end)) if start and end else None


def _throughput(item: Item) -> float | None:
    value = item.get(THROUGHPUT_KBPS)
    if value is None:
        return None
    rate = float(value["N"])
    if not 0 <= rate <= _MAX_KBPS:
        raise ValueError(f"out of range: {rate}")
    return rate


def _timestamp(item: Item) -> int | None:
    if INITIAL_TIMESTAMP not in item:
        return None
    millis = _whole(item[INITIAL_TIMESTAMP]["N"])
    if not 0 <= millis <= MAX_MILLIS:
        raise ValueError(f"out of range: {millis}")
    return millis


def _processed_until(item: Item) -> ProcessedUntil | None:
    text = _text(item, PROCESSED_UNTIL)
    if text is None:
        return None
    millis, number, sub_number = text.split("|")
    return ProcessedUntil(_whole(millis), ExtendedSequenceNumber(number, _whole(sub_number)))


def _progress(item: Item) -> Progress | None:
    return Progress.from_text(item[PROGRESS]["S"]) if PROGRESS in item else None


def _handler_request(item: Item) -> HandlerRequest | None:
    return HandlerRequest.from_text(item[HANDLER_REQUEST]["S"]) if HANDLER_REQUEST in item else None


def _pinned_to(item: Item) -> str | None:
    return (item[PINNED_TO]["S"] or None) if PINNED_TO in item else None


_UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError)

# Groups of optional attributes, with the function that reads each group. The throughput is an estimate, the switches are for
# operators, the hash key range and the children can be read from the stream (the range is written again), and a pending
# checkpoint belongs to the application: the shard is read from `checkpoint` in any case.
_OPTIONAL: tuple[tuple[tuple[str, ...], Callable[[Item], object]], ...] = (
    ((THROUGHPUT_KBPS,), _throughput),
    ((OWNER_SWITCHES,), lambda item: _number(item, OWNER_SWITCHES)),
    ((STARTING_HASH_KEY, ENDING_HASH_KEY), _range),
    ((CHILD_SHARD_IDS,), lambda item: _shard_ids(item, CHILD_SHARD_IDS)),
    ((PROCESSED_UNTIL,), _processed_until),
    ((PENDING_CHECKPOINT, PENDING_CHECKPOINT_SUB, PENDING_CHECKPOINT_STATE), _pending),
    ((PROGRESS,), _progress),
    ((HANDLER_REQUEST,), _handler_request),
    ((PINNED_TO,), _pinned_to),
)


def lease_from_item(item: Item) -> Lease:
    """Read an item of the lease table.

    Hash ranges, sub-sequence numbers and owner switches may be missing, because old KCLs do not write all of them. An unreadable
    optional attribute is left out, see `Lease.damaged`.

    Raises:
        ValueError: If a required attribute is missing or malformed: lease key, counter, checkpoint, parents.
    """
    try:
        return _read(item)
    except _UNREADABLE:
        pass
    damaged = _damaged(item)
    try:
        lease = _read({name: value for name, value in item.items() if name not in damaged})
    except _UNREADABLE as error:
        raise ValueError(f"not a lease item: {type(error).__name__}: {error}") from error
    return replace(lease, damaged=tuple(sorted(damaged)))


def _damaged(item: Item) -> set[str]:
    """Return the names of an item's unreadable optional attributes."""
    result: set[str] = set()
    for names, read in _OPTIONAL:
        try:
            read(item)
        except _UNREADABLE:
            result.update(name for name in names if name in item)
    for name, value in item.items():
        if name.startswith((STANDBY, DRAIN)):
            try:
                _whole(value["N"])
            except _UNREADABLE:
                result.add(name)
    # The instant is required while the position is a sentinel: LATEST at another instant would skip records.
    if _text(item, CHECKPOINT) not in (LATEST, AT_TIMESTAMP):
        try:
            _timestamp(item)
        except _UNREADABLE:
            result.add(INITIAL_TIMESTAMP)
    return result


def _read(item: Item) -> Lease:
    key, counter = _printable(item[LEASE_KEY]["S"]), _whole(item[LEASE_COUNTER]["N"])
    checkpoint = _position(item, CHECKPOINT, CHECKPOINT_SUB)
    if checkpoint is None:
        raise ValueError(f"{key} has no checkpoint")
    pending, state = _pending(item)
    heartbeats, draining, extra = _others(item)
    return Lease(
        lease_key=key,
        counter=counter,
        owner=_text(item, LEASE_OWNER) or None,
        owner_switches=_number(item, OWNER_SWITCHES) or 0,
        checkpoint=checkpoint,
        pending_checkpoint=pending,
        pending_checkpoint_state=state,
        parent_shard_ids=_shard_ids(item, PARENT_SHARD_IDS),
        child_shard_ids=_shard_ids(item, CHILD_SHARD_IDS),
        hash_key_range=_range(item),
        throughput_kbps=_throughput(item),
        checkpoint_owner=_text(item, CHECKPOINT_OWNER) or None,
        stream_name=_id(item, STREAM_NAME),
        shard_id=_id(item, SHARD_ID),
        initial_timestamp_millis=_timestamp(item),
        handoff_owner=_text(item, HANDOFF_OWNER) or None,
        processed_until=_processed_until(item),
        standby_heartbeats=heartbeats,
        progress=_progress(item),
        handler_request=_handler_request(item),
        pinned_to=_pinned_to(item),
        draining=draining,
        extra=extra,
    )


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
        HANDOFF_OWNER,
        PROCESSED_UNTIL,
        PROGRESS,
        HANDLER_REQUEST,
        PINNED_TO,
    }
)


def _others(item: Item) -> tuple[dict[str, int], tuple[str, ...], dict[str, Any]]:
    """Return the attributes without fixed names: standby heartbeats, draining workers, unknown attributes."""
    heartbeats: dict[str, int] = {}
    draining: list[str] = []
    extra: dict[str, Any] = {}
    for name, value in item.items():
        if name in _KNOWN:
            continue
        if name.startswith(STANDBY):
            heartbeats[name[len(STANDBY) :]] = _whole(value["N"])
        elif name.startswith(DRAIN):
            _whole(value["N"])
            draining.append(name[len(DRAIN) :])
        elif name != PENDING_CHECKPOINT_STATE or "B" not in value:
            extra[name] = value
    return heartbeats, tuple(sorted(draining)), extra


def checkpoint_attributes(checkpoint: ExtendedSequenceNumber) -> dict[str, Any]:
    """Return the two attributes of a checkpoint, which are always written together."""
    return {
        CHECKPOINT: {"S": checkpoint.sequence_number},
        CHECKPOINT_SUB: {"N": str(checkpoint.sub_sequence_number)},
    }


def processed_until_attributes(mark: ProcessedUntil) -> dict[str, Any]:
    """Return the attribute of a mark, see `ProcessedUntil`."""
    checkpoint = mark.checkpoint
    text = f"{mark.millis}|{checkpoint.sequence_number}|{checkpoint.sub_sequence_number}"
    return {PROCESSED_UNTIL: {"S": text}}


def range_attributes(hash_key_range: HashKeyRange) -> dict[str, Any]:
    """Return the two attributes of a hash key range."""
    return {
        STARTING_HASH_KEY: {"S": str(hash_key_range.start)},
        ENDING_HASH_KEY: {"S": str(hash_key_range.end)},
    }


def lease_to_item(lease: Lease) -> dict[str, Any]:
    """Return the item of a lease. Attributes without a value are absent, never empty; counters are always present."""
    item: dict[str, Any] = {
        **lease.extra,
        LEASE_KEY: {"S": lease.lease_key},
        LEASE_COUNTER: {"N": str(lease.counter)},
        # The Java KCL rejects a row without this attribute.
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
        (HANDOFF_OWNER, lease.handoff_owner),
        (PINNED_TO, lease.pinned_to),
        (PROGRESS, lease.progress.to_text() if lease.progress is not None else None),
        (HANDLER_REQUEST, lease.handler_request.to_text() if lease.handler_request is not None else None),
    ):
        if text:
            item[name] = {"S": text}
    if lease.processed_until is not None:
        item.update(processed_until_attributes(lease.processed_until))
    if lease.initial_timestamp_millis is not None:
        item[INITIAL_TIMESTAMP] = {"N": str(lease.initial_timestamp_millis)}
    for worker, heartbeat in lease.standby_heartbeats.items():
        item[STANDBY + worker] = {"N": str(heartbeat)}
    for worker in lease.draining:
        item[DRAIN + worker] = {"N": "1"}
    return item
