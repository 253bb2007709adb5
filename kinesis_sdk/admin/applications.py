"""Applications: lease tables in any store (`kinesis_sdk.admin.lease_tables`), and the streams that the applications consume."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any

from kinesis_sdk.admin.connection import Connection
from kinesis_sdk.admin.lease_tables.dynamodb import add_metrics
from kinesis_sdk.admin.lease_tables.factory import lease_tables_of
from kinesis_sdk.admin.lease_tables.interface import ApplicationInfo, LeaseTable
from kinesis_sdk.admin.lineage import full_shard_id, shard_label
from kinesis_sdk.common.aws import call_with_retries
from kinesis_sdk.common.clock import SystemClock
from kinesis_sdk.common.errors import (
    ConfigError,
    InvalidPositionError,
    PermanentAwsError,
)
from kinesis_sdk.common.paging import PageLimit
from kinesis_sdk.common.position import AtSequence
from kinesis_sdk.common.shard_cursor import ShardCursor
from kinesis_sdk.common.shards import Shard, is_shard_id, is_table_shard_id, list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.text import printable
from kinesis_sdk.common.validation import check_table_name, check_text
from kinesis_sdk.consumer import Lease, LeaseStore, TableScan
from kinesis_sdk.consumer.leases import Item, attributes
from kinesis_sdk.consumer.shard_sync import find_contradiction, find_misfits

MAX_CANDIDATES = 100
"""Maximum number of streams to compare with a lease table to find its stream; each comparison costs one ListShards call."""
METRICS_ENTITY = "WORKER_METRIC_STATS"
"""``entityType`` of a worker's metrics in the lease table of KCL 3.5."""

_MAX_ASKED = 3
"""Maximum number of checkpoints to search for in a stream."""
_MAX_SHOWN = 5
"""Maximum number of streams named in a message."""


class Applications:
    """The applications of an account and region, or of another database. Thread-safe.

    Args:
        connection: Account and region, or the database of `Connection.lease_store`.
        names: Applications to look up without listing tables; None finds all applications.
        sleep: Replaces `time.sleep` between attempts, for tests.
    """

    def __init__(
        self,
        connection: Connection,
        names: Sequence[str] | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._names = None if names is None else tuple(names)
        self._tables = lease_tables_of(connection, sleep=sleep)

    def find(self) -> list[ApplicationInfo]:
        """Return the applications, by name. A given name is in the result only if its lease table exists.

        Cost in DynamoDB: one ListTables call per 100 tables, unless names were given, and one DescribeTable call per table. Results are
        kept, so that each table is described once. In another database: one SELECT.

        Raises:
            LeaseTableNotFoundError: If the database has no leases at all.
            AwsError: If a call fails; with another database, a `LeaseStoreError`.
        """
        return self._tables.find(self._names)

    def forget(self) -> None:
        """Forget the descriptions of the tables."""
        self._tables.forget()


@dataclass(frozen=True, kw_only=True)
class StreamFacts:
    """Facts of a stream, as DescribeStreamSummary shows them.

    Attributes:
        name: Name of the stream.
        arn: Its ARN.
        status: ``ACTIVE``, ``UPDATING``, ``CREATING`` or ``DELETING``.
        created: Creation time in epoch seconds; None if unknown.
        retention: Retention in seconds.
        on_demand: Whether its capacity is on demand.
        consumers: Number of registered consumers (enhanced fan-out).
    """

    name: str
    arn: str = ""
    status: str = "ACTIVE"
    created: float | None = None
    retention: float = 86_400.0
    on_demand: bool = False
    consumers: int = 0


class Application:
    """One application: its lease table and its streams. Thread-safe; each method makes calls, and only the stream is cached.

    Args:
        connection: Account and region.
        name: Name of the application.
        table_name: Name of the lease table, if it differs from the application's name.
        stream: Name or ARN of the stream. The rows of a multi-stream table name their streams; the rows of a single-stream table do not,
            so without this argument, `streams` searches for the matching stream.
        sleep: Replaces `time.sleep` between attempts, for tests.

    Attributes:
        connection: As given.
        name: As given.
        table_name: Name of the lease table.
        table: The lease table, in DynamoDB or in the database that the connection names.
        store: Its rows, read and written as workers do.

    Raises:
        ConfigError: If ``stream`` is neither a stream name nor an ARN, if no lease table can have the name, or if the
            connection names a database that cannot be opened.
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        *,
        table_name: str | None = None,
        stream: str | StreamId | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if connection.lease_store is None:
            check_table_name("application" if table_name is None else "table", table_name or name)
        check_text("application", name, 1, 255)
        self.connection: Connection = connection
        self.name: str = name
        self.table_name: str = table_name or name
        self._given = None if stream is None else StreamId.parse(stream)
        self._found: StreamId | None = None
        self._sleep = sleep
        self.table: LeaseTable = lease_tables_of(connection, sleep=sleep).table(self.table_name)
        self.store: LeaseStore = self.table.store

    def with_connection(self, connection: Connection) -> Application:
        """Return the same application with other clients."""
        same = Application(
            connection, self.name, table_name=self.table_name, stream=self._given, sleep=self._sleep
        )
        same._found = self._found
        return same

    @property
    def given_stream(self) -> StreamId | None:
        """The stream that was given."""
        return self._given

    def info(self) -> ApplicationInfo:
        """Return the description of the lease table by DescribeTable; with another database, the number of leases.

        Raises:
            LeaseTableNotFoundError: If the table does not exist, or has another key.
            AwsError: If the call fails; with another database, a `LeaseStoreError`.
        """
        return self.table.info(self.name)

    def scan(self, *, consistent: bool = False) -> TableScan:
        """Read the lease table.

        Args:
            consistent: Whether to use strongly consistent reads, which cost twice as much in DynamoDB.

        Raises:
            LeaseTableNotFoundError: If there is no such table.
            AwsError: If the call fails; with another database, a `LeaseStoreError`.
        """
        return self.table.scan(self.name, consistent=consistent)

    def streams(self, scan: TableScan) -> dict[str | None, StreamId]:
        """Return the streams of a table's rows, by their ``streamName``, which is None in a single-stream table.

        Makes no calls if the stream was given or the rows name their stream. Otherwise one ListStreams call, and one ListShards call for
            each
            stream, up to `MAX_CANDIDATES`; if several match, up to three reads of one record each. The result is kept.

        Args:
            scan: The rows.

        Raises:
            ConfigError: If the stream is unknown, and no stream or several streams match.
            AwsError: If a call fails.
        """
        return streams_of(scan, self._single_stream)

    def reads_table_stream(self, scan: TableScan) -> bool:
        """Return whether the application reads the stream of a DynamoDB table, which `streams` rejects.

        Args:
            scan: The rows.
        """
        return _are_of_table(scan.leases)

    def shards(self, stream: StreamId) -> list[Shard]:
        """Return all shards of a stream, see `list_shards`; transient failures are retried."""
        return call_with_retries(
            lambda: list_shards(self.connection.kinesis, stream),
            operation=None,
            timeout=5.0,
            attempts=4,
            sleep=self._sleep,
        )

    def stream_facts(self, stream: StreamId) -> StreamFacts:
        """Return the facts of a stream by DescribeStreamSummary.

        Raises:
            ResourceNotFoundError: If there is no such stream.
            AwsError: If the call fails.
        """
        client = self.connection.kinesis
        response = call_with_retries(
            lambda: client.describe_stream_summary(**stream.request),
            operation="DescribeStreamSummary",
            client=client,
            timeout=5.0,
            attempts=4,
            sleep=self._sleep,
        )
        summary = response["StreamDescriptionSummary"]
        created = summary.get("StreamCreationTimestamp")
        return StreamFacts(
            name=stream.name,
            arn=str(summary.get("StreamARN", "")),
            status=str(summary.get("StreamStatus", "ACTIVE")),
            created=None if created is None else created.timestamp(),
            retention=float(summary.get("RetentionPeriodHours", 24)) * 3600.0,
            on_demand=summary.get("StreamModeDetails", {}).get("StreamMode") == "ON_DEMAND",
            consumers=int(summary.get("ConsumerCount") or 0),
        )

    def worker_metrics(self) -> dict[str, float] | None:
        """Return when each KCL 3.0 to 3.4 worker last reported, in epoch seconds of its own clock, by worker id.

        Makes a Scan of ``<application>-WorkerMetricStats``, which has one small item per worker; no call with another database.

        Returns:
            None if there is no such table. KCL 3.5 keeps the items in the lease table, see `metrics_in`.
        """
        return self.table.worker_metrics(self.name)

    def _single_stream(self, leases: Sequence[Lease]) -> StreamId:
        if _are_of_table(leases):
            # Raise even if the stream was given: rows of its shards would be written next to the rows of the table's
            # stream.
            raise ConfigError(
                "application",
                self.name,
                "an application that reads a Kinesis stream",
                problem=f"the application {self.name!r} reads the stream of a DynamoDB table, and this command needs the positions of a "
                "Kinesis stream. For such an application, every view shows the lag that its workers report, and leases can be "
                "listed and released.",
            )
        found = self._given or self._found
        if found is None:
            found = self._found = find_stream(self.connection, self.name, leases, sleep=self._sleep)
        return found


def _are_of_table(leases: Sequence[Lease]) -> bool:
    return any(is_table_shard_id(lease.shard) for lease in leases)


def streams_of(scan: TableScan, single: Callable[[Sequence[Lease]], StreamId]) -> dict[str | None, StreamId]:
    """Return the streams of a table's rows, by their ``streamName``. ``single`` finds the stream of rows that do not name one."""
    by_name: dict[str | None, list[Lease]] = {}
    for lease in scan.leases:
        by_name.setdefault(lease.stream_name, []).append(lease)
    found: dict[str | None, StreamId] = {}
    for name in sorted(by_name, key=lambda name: name or ""):
        if name is None:
            found[None] = single(by_name[None])
            continue
        parts = name.split(":")
        try:
            found[name] = StreamId.parse(parts[1] if len(parts) == 3 else name)
        except ConfigError:
            continue  # the row shows its name, and there is no stream to ask
    if not found:
        found[None] = single(())
    return found


def metrics_in(others: Mapping[str, Item]) -> dict[str, float]:
    """Return when each KCL 3.5 worker last reported, in epoch seconds of its own clock, by worker id."""
    found: dict[str, float] = {}
    for item in others.values():
        entity = item.get(attributes.ENTITY_TYPE)
        if isinstance(entity, Mapping) and entity.get("S") == METRICS_ENTITY:
            add_metrics(found, item, attributes.LEASE_KEY)
    return found


def fits(shards: Iterable[Shard], leases: Sequence[Lease]) -> bool:
    """Return whether the rows of a single-stream table may belong to a stream.

    At least one row must be of a listed shard, every other row must be finished (its shard has expired), and no fact may contradict this,
    see `find_contradiction`.
    """
    listed = {shard.shard_id: shard for shard in shards}
    if not any(lease.lease_key in listed for lease in leases):
        return False
    if any(lease.lease_key not in listed and not lease.is_finished for lease in leases):
        return False
    return find_contradiction(listed.values(), leases) is None


def _without_misfits(shards: Sequence[Shard], leases: Sequence[Lease]) -> Sequence[Lease]:
    """Return the rows without the few that do not match the shards; all rows if many do not match, which indicates a wrong stream."""
    misfits = find_misfits(shards, leases)
    return (
        [lease for lease in leases if lease.lease_key not in misfits]
        if 4 * len(misfits) <= len(leases)
        else leases
    )


def find_stream(
    connection: Connection,
    application: str,
    leases: Sequence[Lease],
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> StreamId:
    """Find the stream of a single-stream table. The rows of such a table do not name the stream, so they are compared with all streams.

    Shard ids and hash key ranges rule streams out. A checkpoint tells streams of the same shape apart: the right stream has a record with
    the checkpoint's sequence number, and all others reject the number.

    Raises:
        ConfigError: If no stream fits, or if several do; the message contains the reason and asks for the stream.
        AwsError: If a call fails.
    """

    def ask(why: str) -> ConfigError:
        return ConfigError(
            "stream",
            None,
            "the name of a stream",
            problem=f"the stream of {application} cannot be found: its lease table does not name it, and {why}. Give its name.",
        )

    if not leases:
        raise ask("the table has no lease")
    names = _stream_names(connection, sleep)
    if len(names) > MAX_CANDIDATES:
        raise ask(f"the table cannot be compared with more than {MAX_CANDIDATES} streams")
    candidates: list[tuple[StreamId, dict[str, Shard]]] = []
    with_misfits: list[tuple[StreamId, dict[str, Shard]]] = []
    for name in names:
        stream = StreamId(name)
        try:
            shards = call_with_retries(
                partial(list_shards, connection.kinesis, stream),
                operation=None,
                sleep=sleep,
            )
        except PermanentAwsError:
            continue  # No permission to see the stream, or it was deleted a moment ago: it cannot be compared.
        if fits(shards, leases):
            candidates.append((stream, {shard.shard_id: shard for shard in shards}))
        elif fits(shards, _without_misfits(shards, leases)):
            with_misfits.append((stream, {shard.shard_id: shard for shard in shards}))
    candidates = candidates or with_misfits
    if len(candidates) > 1:
        evidence = [_evidence(connection, stream, shards, leases, sleep) for stream, shards in candidates]
        # The stream that has a record with this very number is the right stream; failing that, the streams that accept
        # the number.
        best = max(evidence)
        candidates = [
            candidate
            for candidate, found in zip(candidates, evidence, strict=True)
            if found is best and found is not _Evidence.AGAINST
        ]
    if len(candidates) == 1:
        return candidates[0][0]
    if not candidates:
        if not names:
            raise ask("no stream is listed in this region")
        which = "the one stream that can be listed does not have"
        if len(names) > 1:
            which = f"none of the {len(names)} streams that can be listed has"
        raise ask(f"{which} its shards and checkpoints")
    shown = ", ".join(stream.name for stream, _ in candidates[:_MAX_SHOWN])
    more = f" and {len(candidates) - _MAX_SHOWN} more" if len(candidates) > _MAX_SHOWN else ""
    raise ask(f"{shown}{more} have the same shards, and no checkpoint distinguishes them")


def _stream_names(connection: Connection, sleep: Callable[[float], None]) -> list[str]:
    client = connection.kinesis
    names: list[str] = []
    request: dict[str, Any] = {}
    limit = PageLimit("ListStreams")
    while True:
        page = call_with_retries(
            partial(client.list_streams, **request), operation="ListStreams", client=client, sleep=sleep
        )
        listed = page.get("StreamNames", [])
        names += listed
        if not page.get("HasMoreStreams") or not listed or len(names) > MAX_CANDIDATES:
            return names
        request = {"ExclusiveStartStreamName": names[-1]}
        limit.check(names[-1])


class _Evidence(IntEnum):
    """Evidence from a checkpoint for or against a stream."""

    AGAINST = 0
    """Kinesis rejects the checkpoint as a position of the stream."""
    NONE = 1
    """Kinesis accepts the checkpoint, or there is no checkpoint to check."""
    FOR = 2
    """The stream has a record with this sequence number."""


def _evidence(
    connection: Connection,
    stream: StreamId,
    shards: Mapping[str, Shard],
    leases: Iterable[Lease],
    sleep: Callable[[float], None],
) -> _Evidence:
    """Request the records at up to three checkpoints from a stream, with one GetShardIterator and one GetRecords call each."""
    numbered = [one for one in leases if not one.checkpoint.is_sentinel and one.lease_key in shards]
    for lease in numbered[:_MAX_ASKED]:
        number = lease.checkpoint.sequence_number
        cursor = ShardCursor(
            connection.kinesis, stream, lease.lease_key, AtSequence(number), clock=SystemClock()
        )
        try:
            page = call_with_retries(partial(cursor.fetch, 1), operation=None, sleep=sleep)
        except InvalidPositionError:
            return _Evidence.AGAINST
        if page.records and page.records[0].sequence_number == number:
            return _Evidence.FOR
    return _Evidence.NONE


def short_shard(shard_id: str) -> str:
    """Return the short form of a shard id, with at least four digits so that columns align, such as ``0003``; other ids are escaped."""
    return shard_label(shard_id).rjust(4, "0") if is_shard_id(shard_id) else printable(shard_id)


def find_lease_key(text: str, lease_keys: Iterable[str]) -> str:
    """Return the key of the lease that a user specifies by its key, or by its shard number with or without leading zeros.

    Args:
        text: The user's text, for example ``3``, ``0003`` or ``shardId-000000000003``; in a table of several streams also
            ``orders:3``.
        lease_keys: Keys of all leases.

    Raises:
        ConfigError: If no lease matches, or if several match.
    """
    there = list(lease_keys)
    if text in there:
        return text
    stream, _, shard = text.rpartition(":")
    wanted = full_shard_id(shard)
    found = [
        one
        for one in there
        if one.rpartition(":")[2] == wanted and (not stream or f":{stream}:" in f":{one}")
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ConfigError(
            "shard", text, f"one of the {len(there)} shards of the application, such as 3 or 0003"
        )
    shown = ", ".join(printable(one) for one in found[:_MAX_SHOWN])
    raise ConfigError("shard", text, f"a whole lease key, because several match: {shown}")
