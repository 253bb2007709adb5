"""Ordered mode: the records of a partition key are stored in the order in which they were put.

PutRecords does not guarantee an order among its entries, and a retry could be stored after entries that were sent in the meantime. Two
dispatch policies keep the order: `OneInFlight` allows at most one Kinesis record of a shard in flight, and `ReshardBarrier` stops all
lanes after a reshard. In addition, lanes are sorted by order of acceptance, and a retry returns to the front of its lane.

When the stream is resharded, all unsent records move into the lanes of the new map, in order of acceptance. No lane continues until the
last Kinesis record that was sent with the old map has returned, because it may have to be sent again before records that were put later.

The promise is about first appearances. A retry after a lost response stores a Kinesis record twice, one copy directly after the other (1 2
1 2 3). But no record is stored before the first copy of an earlier record. The order is not guaranteed if a request times out and reaches
Kinesis after its retry.

The cost is throughput: a shard accepts one Kinesis record per round trip (51,200 bytes if there are enough records to aggregate). The
permission ListShards is required, and streams that place records themselves cannot be used.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from kinesis_sdk.common.errors import KinesisSdkError, PermanentAwsError
from kinesis_sdk.common.shards import ShardMap
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer.records.entry import Entry, Group
from kinesis_sdk.producer.stream.dispatch import NEVER, Returned
from kinesis_sdk.producer.stream.outcomes import fits_within
from kinesis_sdk.producer.stream.topology import Topology


class OneInFlight:
    """Allows at most one Kinesis record of a lane in flight: collected, in a request, or accepted by an unknown shard."""

    __slots__ = ("_busy",)

    def __init__(self) -> None:
        self._busy: dict[Group, Entry] = {}

    def may_send(self, entry: Entry, now: float) -> float:
        """Return ``now`` if no other entry of the lane is in flight, otherwise infinity."""
        return NEVER if entry.group in self._busy else now

    def on_sent(self, entry: Entry, now: float) -> None:  # noqa: ARG002
        """Occupy the lane."""
        self._busy[entry.group] = entry

    def on_returned(self, entry: Entry, how: Returned, landed_in: str | None) -> None:  # noqa: ARG002
        """Free the lane, unless the entry's final result is still unknown."""
        if how.is_final and self._busy.get(entry.group) is entry:
            del self._busy[entry.group]

    def on_shard_map(self, shard_map: ShardMap | None, in_flight: Collection[Entry]) -> None:
        """Do nothing, because a lane stays occupied until its entry has returned."""

    def forget(self, group: Group) -> None:
        """Forget the entry of a lane that was removed. `ReshardBarrier` waits for it."""
        self._busy.pop(group, None)

    @property
    def outstanding(self) -> int:
        """Number of occupied lanes."""
        return len(self._busy)


class ReshardBarrier:
    """Stops lanes after a reshard until all entries that were sent with the old map have returned.

    ``require_load`` requests a new shard map when an entry landed in a shard other than the predicted one.
    """

    __slots__ = ("_closed", "_drained", "_draining", "_holds", "_require_load")

    def __init__(self, require_load: Callable[[], None]) -> None:
        self._require_load = require_load
        # Entries that were sent on a map that is no longer in use, and have not come back.
        self._draining: set[Entry] = set()
        self._drained = False
        self._holds = False
        # Shards that turned out to be closed: further records would land in another shard than their predecessors.
        self._closed: set[Group] = set()

    def may_send(self, entry: Entry, now: float) -> float:
        """Return ``now`` unless the lane has to wait for a map, or for entries that were sent with the old map."""
        return NEVER if self._holds or entry.group in self._closed else now

    def on_sent(self, entry: Entry, now: float) -> None:
        """Do nothing, because an entry is sent with the map in use."""

    def on_returned(self, entry: Entry, how: Returned, landed_in: str | None) -> None:
        """Note the shard in which the entry landed, and whether its return is final."""
        if landed_in is not None and landed_in != entry.shard_id:
            self._closed.add(entry.group)
            self._require_load()
        if how.is_final and entry in self._draining:
            self._draining.discard(entry)
            self._drained = not self._draining

    def on_shard_map(self, shard_map: ShardMap | None, in_flight: Collection[Entry]) -> None:
        """Wait for all entries in flight that do not belong to a lane of the new map."""
        self._draining.update(entry for entry in in_flight if not _belongs(entry, shard_map))

    def forget(self, group: Group) -> None:
        """Forget that the shard of a removed lane was closed."""
        self._closed.discard(group)

    def on_regrouped(self) -> None:
        """Note that all unsent records are in the lanes of the map in use, which now wait only for entries that were sent with the old map."""
        self._holds = bool(self._draining)
        self._closed.clear()

    def resume(self, *, reloaded: bool) -> None:
        """Open the lanes if they need not wait any longer.

        All entries of a response are handled before any lane opens. Otherwise, the success of entry 1 could release a record that
        overtakes entry 2, which has to be sent again.

        After a load (``reloaded``), lanes whose shard seemed closed are also opened.
        """
        if (reloaded or self._drained) and not self._draining:
            self._holds = False
            self._closed.clear()
        self._drained = False

    def waits_for(self, entry: Entry) -> bool:
        """Return whether the entry was sent with a map that is no longer in use."""
        return entry in self._draining

    @property
    def outstanding(self) -> int:
        """Number of entries that were sent with an old map and have not returned."""
        return len(self._draining)


def ordering_error(topology: Topology, stream: StreamId) -> KinesisSdkError | None:
    """Return the reason why the records of a stream cannot be stored in order; None if they can, or if this is not known yet."""
    if topology.service_places:
        return PermanentAwsError(
            f"ordering='per_shard' is impossible: stream {stream} places records itself "
            "(record distribution AUTO)"
        )
    if topology.shard_map is None and topology.described:
        return PermanentAwsError(
            f"ordering='per_shard' needs the permission kinesis:ListShards for stream {stream}"
        )
    return None


def _belongs(entry: Entry, shard_map: ShardMap | None) -> bool:
    """Return whether a map contains the entry's shard, and the shard has all hash keys of the entry.

    A stream that was deleted and recreated may have different ranges for the same shard ids.
    """
    shard_id = entry.shard_id
    if shard_map is None or shard_id is None or not shard_map.is_open(shard_id):
        return False
    hash_key_range = shard_map.range_of(shard_id)
    return hash_key_range is not None and fits_within(entry, hash_key_range)
