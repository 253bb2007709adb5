"""The offset at the end of a batch: the positions that a query has reached, kept valid while it is idle."""

from __future__ import annotations

from collections.abc import Callable

from kinesis_sdk.common.position import AfterSequence, AtTimestamp, Ended
from kinesis_sdk.spark.batch_end import Found
from kinesis_sdk.spark.lineage import retired
from kinesis_sdk.spark.offsets import QueryOffset, ShardPosition, StreamOffset
from kinesis_sdk.spark.streams import CUT_MARGIN, Key, QueryStreams
from kinesis_sdk.spark.unread import Cut, End

_CUTS_PER_RETENTION = 4
"""Number of times per retention period that an idle query writes a new cut, because a cut that is older than this period counts as a loss
of records."""


def end_offset(
    streams: QueryStreams,
    start: QueryOffset,
    begin: QueryOffset,
    found: Found,
    *,
    search_began: float,
    quiet_for: Callable[[Key], float],
) -> QueryOffset:
    """Return the offset of the ends that were found, or the start itself if there are no records to read.

    Positions that are renewed replace the positions in ``found``. The search began at ``search_began``, in monotonic seconds;
    ``quiet_for`` returns the seconds for which no probe found a record of a shard.
    """
    positions: dict[str, dict[str, ShardPosition]] = {}
    moved = False
    for name, before in begin.streams.items():
        graph = streams.listings[name].graph
        gone = retired(graph, before.shards)
        shards = {
            n: p
            for n, p in before.shards.items()
            if n not in gone and (isinstance(p, Ended) or n in graph.shards)
        }
        for key, end in found.ends.items():
            if key.stream == name:
                shards[key.shard] = end.position
        if any(isinstance(end.position, Ended) for key, end in found.ends.items() if key.stream == name):
            streams.listings[name].refresh_soon()
        positions[name] = shards
        old = start.streams.get(name)
        # A parent that leaves the offset does not cause a batch: it leaves with the next batch.
        with_gone = {**shards, **{n: before.shards[n] for n in gone}}
        moved = moved or old is None or old.created != before.created or old.shards != with_gone
    if not moved and not _cut_is_due(streams, start, found.cut):
        return start
    for key, end in found.ends.items():
        if end.seen_at is not None and end.seen_at >= search_began:
            renewed = found.ends[key] = _renewed(streams, key, end, begin, found.cut, quiet_for(key))
            positions[key.stream][key.shard] = renewed.position
    # A read that stops at the present may go a second further, but more records may still arrive before that time.
    return begin.with_streams(
        {
            name: StreamOffset(created=begin.streams[name].created, shards=shards)
            for name, shards in positions.items()
        },
        min(found.cut.millis, max(found.cut.now + 1, begin.cut or 0)),
    )


def _renewed(
    streams: QueryStreams, key: Key, end: End, begin: QueryOffset, cut: Cut, quiet_for: float
) -> End:
    """Return the end with a position that stays valid, for a shard that has been idle for a long time.

    If a shard is idle for a whole retention period, its sequence number becomes unusable, although nothing was
    lost. So the shard continues from a time instead. Its last record arrived and was read long before that time, because the shard was
    quiet for much longer than the margin; the next record has not arrived yet. A position is renewed only in an offset that changes for
    another reason, because each new offset causes a batch.
    """
    position = end.position
    quiet = quiet_for * 1000
    if begin.cut is not None:
        quiet = max(quiet, cut.now - begin.cut)
    moment = cut.now - CUT_MARGIN
    if isinstance(position, AfterSequence) and quiet > 3 * CUT_MARGIN:
        is_at_start = position == begin.streams[key.stream].shards.get(key.shard)
        return End(AtTimestamp(moment)) if is_at_start else end
    retention = streams.listings[key.stream].retention
    if isinstance(position, AtTimestamp) and moment - position.millis > retention // _CUTS_PER_RETENTION:
        return End(AtTimestamp(moment))
    return end


def _cut_is_due(streams: QueryStreams, start: QueryOffset, cut: Cut) -> bool:
    """Return whether an idle query must write a new cut, which is a batch without records."""
    if start.cut is None:
        return True
    return cut.millis - start.cut > streams.shortest_retention // _CUTS_PER_RETENTION
