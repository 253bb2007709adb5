"""Facts for plans that change positions: an application's rows and stream, and the checkpoints for given times and records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from typing import NamedTuple, TypeVar

from kinesis_sdk.admin.applications import find_lease_key
from kinesis_sdk.admin.changes.desk import Desk
from kinesis_sdk.admin.changes.plan import Refusal, StreamRows
from kinesis_sdk.admin.changes.positions import PositionResolver, ResolvedStart, show_start
from kinesis_sdk.admin.changes.rows import Row, TableRead
from kinesis_sdk.admin.changes.transfer import Export, unresolved
from kinesis_sdk.admin.fleet.formatting import duration
from kinesis_sdk.common.errors import AwsError, ConfigError, InvalidPositionError
from kinesis_sdk.common.sequence import AT_TIMESTAMP, LATEST, ExtendedSequenceNumber
from kinesis_sdk.common.shards import Shard, is_shard_id, list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer.shard_sync import find_contradiction

_T = TypeVar("_T")


def read_stream(desk: Desk, shards: Collection[str] = ()) -> tuple[TableRead, StreamId]:
    """Read the table, and find its stream.

    Args:
        desk: The application.
        shards: Shards or lease keys; in a table of several streams, ``orders:3`` names the stream.

    Raises:
        ConfigError: If the stream is unknown, or if the table has several streams and none was given.
        AwsError: If a call failed.
    """
    read = desk.read()
    scan = desk.application.scan(consistent=True)
    streams = desk.application.streams(scan)
    given = desk.application.given_stream
    found = [stream for stream in streams.values() if given is None or stream.name == given.name]
    if len(found) > 1 and shards:
        prefixes = [text.rpartition(":")[0] for text in shards]
        found = [
            stream
            for name, stream in streams.items()
            if all(prefix and prefix in (stream.name, name) for prefix in prefixes)
        ]
    if len(found) != 1:
        names = ", ".join(sorted(stream.name for stream in streams.values()))
        raise ConfigError(
            "stream", "" if given is None else str(given), f"one of the streams of the table: {names}"
        )
    return read, given or found[0]


def rows_of(read: TableRead, stream: StreamId) -> StreamRows:
    """Return the rows of one stream."""
    names = {row.lease.stream_name for row in read.rows.values()}
    if names <= {None}:
        return StreamRows(
            rows={key: row for key, row in read.rows.items() if is_shard_id(key)},
            unreadable=read.unreadable,
        )
    found = [name for name in names if name is not None and name.split(":")[1:2] == [stream.name]]
    if len(found) != 1:
        raise ConfigError("stream", str(stream), f"a stream with one set of leases, not {len(found)}")
    own: dict[str, Row] = {
        row.lease.shard: row for row in read.rows.values() if row.lease.stream_name == found[0]
    }
    return StreamRows(rows=own, stream_name=found[0], unreadable=read.unreadable)


def chosen_keys(shards: Iterable[str], there: Iterable[str]) -> set[str]:
    """Return the keys or shards of a table that a user specifies."""
    known = list(dict.fromkeys(there))
    return {find_lease_key(text, known) for text in shards}


def resolver_of(desk: Desk, stream: StreamId) -> PositionResolver:
    """Return the resolver that turns starts into checkpoints."""
    facts = desk.application.stream_facts(stream)
    horizon = max(desk.clock.time() - facts.retention, facts.created or 0.0)
    return PositionResolver(
        desk.application.connection.kinesis,
        stream,
        clock=desk.clock,
        sleep=desk.sleep,
        horizon=horizon,
    )


def list_from(desk: Desk, stream: StreamId, moment: datetime) -> list[Shard]:
    """Return the shards that were open at a time or were created later."""
    if moment.timestamp() > desk.clock.time():
        raise ConfigError("to", show_start(moment), "a moment in the past")
    chosen = {"Type": "FROM_TIMESTAMP", "Timestamp": moment}
    return list_shards(desk.application.connection.kinesis, stream, shard_filter=chosen)


def refuse_misfit(desk: Desk, rows: StreamRows, listed: Sequence[Shard], stream: StreamId) -> list[Refusal]:
    """Return the reason why the rows of a table do not belong to a stream; empty if they do."""
    leases = [row.lease for row in rows.rows.values()]
    if rows.stream_name is not None:
        # account:name:creationEpoch
        epoch, created = (
            rows.stream_name.rpartition(":")[2],
            desk.application.stream_facts(stream).created,
        )
        if created is None or not epoch.isdigit() or abs(int(epoch) - int(created)) <= 1:
            return []
        reason = (
            f"the rows are of {printable(rows.stream_name)}, and the stream {stream.name} was created at {int(created)}: it was "
            "deleted and recreated, so the positions are of other records"
        )
        return [Refusal(reason=reason)]
    evidence = find_contradiction(listed, leases)
    if evidence is None:
        return []
    return [Refusal(reason=f"the table does not belong to this stream: {evidence}")]


class Survey(NamedTuple):
    """Facts for a plan of positions. ``chosen`` has the shards that the user names, and is empty for all."""

    read: TableRead
    stream: StreamId
    rows: StreamRows
    resolver: PositionResolver
    listed: Sequence[Shard]
    refusals: list[Refusal]
    chosen: set[str]


def survey(desk: Desk, shards: Collection[str]) -> Survey:
    """Read the table and the stream of the given shards; see `read_stream`."""
    read, stream = read_stream(desk, shards)
    rows = rows_of(read, stream)
    resolver = resolver_of(desk, stream)
    listed = desk.application.shards(stream)
    refusals = refuse_misfit(desk, rows, listed, stream)
    known = [*rows.rows, *(shard.shard_id for shard in listed)]
    chosen = chosen_keys((text.rpartition(":")[2] for text in shards), known)
    return Survey(read, stream, rows, resolver, listed, refusals, chosen)


def is_unresolved(rows: StreamRows, shard_id: str) -> bool:
    """Return whether a shard's row has no position yet."""
    row = rows.rows.get(shard_id)
    return row is not None and row.lease.checkpoint.sequence_number in (LATEST, AT_TIMESTAMP)


def resolve_exported(
    desk: Desk, rows: StreamRows, export: Export, stream: StreamId, listed: Sequence[Shard]
) -> dict[str, ResolvedStart]:
    """Resolve the sentinels of rows that an import restores: LATEST means the time of the export, unless the row has another time."""
    resolver = resolver_of(desk, stream)
    there = {shard.shard_id for shard in listed}
    leases = {lease.shard: lease for lease in unresolved(rows, export) if lease.shard in there}

    def start_of(shard_id: str) -> ResolvedStart:
        lease = leases[shard_id]
        millis = lease.initial_timestamp_millis
        if millis is None and lease.checkpoint.sequence_number == AT_TIMESTAMP:
            raise ConfigError(
                "file",
                "",
                f"an export with the time at which {shard_id} starts, because its position is AT_TIMESTAMP",
            )
        moment = min(export.at if millis is None else millis / 1000, desk.clock.time())
        return resolver.resolve(shard_id, datetime.fromtimestamp(moment, timezone.utc))

    return each_shard(desk, leases, start_of)


def resolve_pins(
    desk: Desk, resolver: PositionResolver, rows: StreamRows, shards: Sequence[Shard]
) -> dict[str, ResolvedStart]:
    """Resolve the rows that have no position yet: LATEST, or the time in the row."""

    def start_of(shard_id: str) -> ResolvedStart:
        lease = rows.rows[shard_id].lease
        millis = lease.initial_timestamp_millis
        if millis is not None:
            return resolver.resolve(shard_id, datetime.fromtimestamp(millis / 1000, timezone.utc))
        if lease.checkpoint.sequence_number == AT_TIMESTAMP:
            raise ConfigError(
                "to",
                LATEST,
                f"a time, because {shard_id} starts at AT_TIMESTAMP and its row has no timestamp",
            )
        return resolver.resolve(shard_id, LATEST)

    return each_shard(desk, [shard.shard_id for shard in shards], start_of)


def rewind_effects(
    desk: Desk, rows: StreamRows, starts: Mapping[str, ResolvedStart], resolver: PositionResolver
) -> tuple[dict[str, str], list[str]]:
    """Return the effect of a rewind on each shard, in words, and notes for the user."""
    notes = sorted({start.note for start in starts.values() if start.note})

    def effect_of(shard_id: str) -> str:
        start = starts[shard_id]
        row = rows.rows.get(shard_id)
        if row is None:
            return "the row is put back, and the shard is read from there"
        if row.lease.is_finished:
            return "the shard was finished, and is read from there again"
        return "repeats " + _span(shard_id, start.arrival, row.lease.checkpoint, start, resolver)

    return each_shard(desk, starts, effect_of), notes


def skip_effects(
    desk: Desk, rows: StreamRows, starts: Mapping[str, ResolvedStart], resolver: PositionResolver
) -> dict[str, str]:
    """Return the gap that a skip leaves in each shard, in words."""

    def effect_of(shard_id: str) -> str:
        start, lease = starts[shard_id], rows.rows[shard_id].lease
        if start.position.is_sentinel or lease.checkpoint >= start.position:
            return "skips nothing"
        begin = _arrival(resolver, shard_id, lease.checkpoint)
        return "skips " + _span(shard_id, begin, start.position, start, resolver)

    return each_shard(desk, starts, effect_of)


def _span(
    shard_id: str,
    begin: datetime | None,
    end: ExtendedSequenceNumber,
    start: ResolvedStart,
    resolver: PositionResolver,
) -> str:
    until = _arrival(resolver, shard_id, end)
    if begin is None or until is None:
        return "what lies between the two positions"
    seconds = max((until - begin).total_seconds(), 0.0)
    count = "" if start.rate is None else f", about {max(round(start.rate * seconds), 1):,} records"
    return f"{duration(seconds)} of records{count}"


def _arrival(resolver: PositionResolver, shard_id: str, position: ExtendedSequenceNumber) -> datetime | None:
    try:
        return resolver.arrival_of(shard_id, position)
    except InvalidPositionError:
        return None
    except AwsError as error:
        if not error.retryable:
            raise
        return None  # only an estimate is missing


def each_shard(desk: Desk, keys: Iterable[str], function: Callable[[str], _T]) -> dict[str, _T]:
    """Call a function for each shard, several at a time."""
    listed = list(keys)
    if desk.threads == 1 or len(listed) < 2:
        return {key: function(key) for key in listed}
    with ThreadPoolExecutor(min(desk.threads, len(listed))) as pool:
        return dict(zip(listed, pool.map(function, listed), strict=True))
