"""The console's backend: passes calls on to the admin API, without decisions."""

from __future__ import annotations

import base64
import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from kinesis_sdk.admin import Connection, FleetView
from kinesis_sdk.admin.applications import Application, Applications
from kinesis_sdk.admin.fleet.model import ErrorCode
from kinesis_sdk.admin.fleet.observe import FleetObserver
from kinesis_sdk.admin.fleet.overview import read_fleets
from kinesis_sdk.admin.fleet.poller import FleetPoller, Subscription
from kinesis_sdk.admin.payload import MAX_SHOWN_BYTES, PayloadKind, decode_payload
from kinesis_sdk.admin.reading import RecordFilter, read_stream
from kinesis_sdk.admin.records import read_page, shown_headers
from kinesis_sdk.admin.search import Search
from kinesis_sdk.admin.streams import Streams
from kinesis_sdk.cli.spelling import options_of
from kinesis_sdk.cli.web.backend import JsonObject
from kinesis_sdk.cli.web.hub import MakeWatch
from kinesis_sdk.cli.web.searches import MOST_FOUND, MOST_SECONDS
from kinesis_sdk.common.errors import ConfigError, KinesisSdkError, without_userinfo
from kinesis_sdk.common.position_text import format_position, parse_position
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.shards import is_shard_id

_LOGGER = logging.getLogger(__name__)

_ACCOUNT_WAIT = 1.0
"""Seconds for which a page waits for the account number; a later page shows it."""

_PREVIEW = 600
"""Characters of a payload in an unopened row of the record browser, and of a header."""


class AdminBackend:
    """The admin API of one connection.

    Args:
        applications: Names of the applications; if empty, all lease tables are found.
        stream: Stream of the applications whose rows do not name their stream; None searches for it.
        table: Lease table, if there is one application; None for the table with the application's name.
        failover_time: Seconds without a change after which an owner counts as silent: the workers' own setting.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        applications: tuple[str, ...] = (),
        stream: str | None = None,
        table: str | None = None,
        failover_time: float = 10.0,
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._table = table
        self._failover_time = failover_time
        self._lock = threading.Lock()
        self._asking: threading.Thread | None = None
        self._account: str | None = None
        self._names = {} if table is None else {table: applications[0]}
        self._found = Applications(connection, (applications or None) if table is None else (table,))

    @property
    def options(self) -> tuple[str, ...]:
        """Options of the connection."""
        return tuple(options_of(self._connection))

    def describe(self) -> JsonObject:
        """Return the region, the endpoint and the account. The account is requested once, and the page waits for it only briefly."""
        endpoint = self._connection.endpoint_url
        with self._lock:
            if self._asking is None:
                self._asking = threading.Thread(target=self._ask_account, name="console-account", daemon=True)
                self._asking.start()
        self._asking.join(_ACCOUNT_WAIT)
        return {
            "region": self._connection.region,
            "endpoint": None if endpoint is None else without_userinfo(endpoint),
            "account": self._account,
        }

    def _ask_account(self) -> None:
        try:
            self._account = self._connection.account()
        except KinesisSdkError as error:
            _LOGGER.info("the account is not known: %s", error)

    def applications(self) -> list[JsonObject]:
        """Find the applications again."""
        self._found.forget()
        return [
            {
                "name": self._names.get(one.name, one.name),
                "status": one.status,
                "rows": one.rows,
                "created": one.created,
            }
            for one in self._found.find()
        ]

    def read_fleets(self, names: Sequence[str], on_view: Callable[[FleetView], None]) -> None:
        """Read each application once, with its lag."""
        read_fleets([self._application(name) for name in names], on_view, observer=self._observer)

    def make_watch(self, application: str) -> MakeWatch:
        """Return the function that creates the watch of an application."""
        return lambda on_view: PollerWatch(application, self._poller, on_view)

    def stream(self, name: str) -> JsonObject:
        """Describe a stream and its shards: one DescribeStreamSummary and one ListShards per 1,000 shards."""
        streams = Streams(self._connection)
        described = streams.describe(name)
        lineage = streams.lineage(name)
        return {
            "name": described.name,
            "at": time.time(),
            "status": described.status,
            "mode": described.mode,
            "retention": described.retention_hours * 3600.0,
            "hole": lineage.hole is not None,
            "shards": [
                {
                    "id": shard.shard_id,
                    "start": shard.start,
                    "width": shard.width,
                    "open": shard.is_open,
                    "parents": list(shard.parents),
                    "from": _epoch(shard.created_at),
                    "until": _epoch(shard.closed_at),
                }
                for shard in lineage.shards
            ],
        }

    def search(
        self, *, stream: str, key: str, where: str, minutes: int
    ) -> tuple[Search, Callable[[Any], JsonObject], Any]:
        """Return a search for the records of the last minutes."""
        wanted = RecordFilter.make([key] if key else [], where=where or None)
        if wanted.is_all:
            raise ConfigError("search", "", "a partition key, an expression, or both")
        until = datetime.now(timezone.utc)
        reading = read_stream(
            self._connection, stream, start=until - timedelta(minutes=minutes), until=until, threads=4
        )
        search = Search(reading, wanted, limit=MOST_FOUND, seconds=MOST_SECONDS)
        return search, lambda one: {"shard": one.shard_id, **_record(one.record)}, reading

    def records(
        self, *, stream: str, shard: str, position: str, iterator: str | None, limit: int
    ) -> JsonObject:
        """Read one page of a shard."""
        if not stream:
            raise ConfigError("stream", stream, "the name of a stream: start the console with --stream NAME")
        if not is_shard_id(shard):
            raise ConfigError("shard", shard, "a shard id")
        page = read_page(
            self._connection,
            stream,
            shard,
            parse_position(position, now=time.time()),
            limit=limit,
            iterator=iterator,
        )
        return {
            "records": [_record(record) for record in page.records],
            "behind": page.millis_behind_latest,
            "tip": page.at_tip,
            "next": format_position(page.next_position),
            "iterator": page.iterator,
            "children": list(page.children),
        }

    def _poller(self, name: str) -> FleetPoller:
        return FleetPoller(self._application(name), observer=self._observer(name))

    def _observer(self, name: str) -> FleetObserver:
        return FleetObserver(name, failover_time=self._failover_time)

    def _application(self, name: str) -> Application:
        return Application(self._connection, name, table_name=self._table, stream=self._stream)


class PollerWatch:
    """A `FleetPoller` that serves as the watch of a channel. The poller is created for the first page, and pauses when there are no pages.

    ``make`` may take seconds, because credentials may come from the network, so ``spawn`` runs it in a thread. The page may be closed
    before the poller is ready; `_wanted` then decides whether the poller starts.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[str], FleetPoller],
        on_view: Callable[[FleetView], None],
        *,
        spawn: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self._name = name
        self._make = make
        self._on_view = on_view
        self._spawn = spawn or _spawn
        self._lock = threading.Lock()
        self._wanted = False
        self._poller: FleetPoller | None = None
        self._subscription: Subscription | None = None
        self._focus: dict[str, Subscription] = {}

    def start(self) -> None:
        """Start, or continue with the earlier views."""
        with self._lock:
            self._wanted = True
        self._spawn(self._begin)

    def stop(self) -> None:
        """End all calls; the views are kept."""
        self.focus(frozenset())
        with self._lock:
            self._wanted = False
            if self._subscription is not None:
                self._subscription.close()
                self._subscription = None

    def focus(self, lease_keys: frozenset[str]) -> None:
        """Measure the lag of these leases more often, because their pages are open."""
        with self._lock:
            if self._poller is None:
                return
            for gone in self._focus.keys() - lease_keys:
                self._focus.pop(gone).close()
            for key in lease_keys - self._focus.keys():
                self._focus[key] = self._poller.subscribe()
                self._focus[key].focus(key)

    def waiting(self) -> tuple[str, float] | None:
        """Return the call for which the poller waits."""
        return None if self._poller is None else self._poller.longest_call()

    def refresh(self) -> None:
        """Read the table again now, after a change."""
        if self._poller is not None:
            self._poller.refresh()

    def close(self) -> None:
        """End the thread."""
        self.stop()
        if self._poller is not None:
            self._poller.stop()

    def _begin(self) -> None:
        try:
            with self._lock:
                if self._poller is None and self._wanted:
                    self._poller = self._make(self._name)
                    self._poller.start()
                if self._poller is not None and self._wanted and self._subscription is None:
                    self._subscription = self._poller.subscribe(self._on_view)
        except KinesisSdkError as error:
            # No region, or no such profile: the page shows it like a failed read.
            self._on_view(
                FleetView(
                    application=self._name, at=time.time(), error=str(error), error_code=ErrorCode.of(error)
                )
            )


def _spawn(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="kinesis-sdk-ui-begin", daemon=True).start()


def _record(record: UserRecord) -> JsonObject:
    decoded = decode_payload(record.data)
    arrived = record.approximate_arrival_timestamp
    preview = (
        bytes.fromhex(decoded.text[:_PREVIEW]).hex(" ") if decoded.kind is PayloadKind.HEX else decoded.text
    )
    return {
        "arrived": _epoch(arrived),
        "sequence": record.sequence_number,
        "sub": record.sub_sequence_number,
        "key": record.partition_key,
        "hashKey": None if record.explicit_hash_key is None else str(record.explicit_hash_key),
        "size": decoded.size,
        "kind": decoded.kind.value,
        "text": preview[:_PREVIEW],
        "whole": decoded.pretty(),
        "data": base64.b64encode(record.data[:MAX_SHOWN_BYTES]).decode("ascii"),
        "truncated": decoded.truncated,
        "aggregated": record.aggregated,
        "headers": _headers(record),
    }


def _headers(record: UserRecord) -> list[list[str]]:
    """Return the headers as names and texts. Headers of other producers may be as long as the record, so each header is shortened."""
    return [
        [text if len(text) <= _PREVIEW else f"{text[:_PREVIEW]}…" for text in header]
        for header in shown_headers(record.headers).items()
    ]


def _epoch(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
