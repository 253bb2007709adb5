"""Leases in a SQL database: SQLite for the workers of one machine, PostgreSQL for fleets.

Needs the extra ``sql`` (SQLAlchemy 2). Each write is one auto-committed statement whose WHERE clause is the condition. No lock
outlives a statement, so a worker that freezes between two statements does not prevent peers from taking its leases. The counter
of a row orders its changes; neither this module nor the database reads a clock.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from kinesis_sdk.common.aws import call_with_retries
from kinesis_sdk.common.change_records import decode_item, encode_item
from kinesis_sdk.common.errors import (
    KinesisSdkError,
    LeaseRowRejectedError,
    LeaseStoreError,
    ProtocolError,
    TransientLeaseStoreError,
)
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.sequence import SHARD_END, ExtendedSequenceNumber
from kinesis_sdk.common.text import printable
from kinesis_sdk.common.validation import check_seconds, check_text
from kinesis_sdk.consumer.leases.table import attributes, transitions
from kinesis_sdk.consumer.leases.table.handler_request import HandlerRequest
from kinesis_sdk.consumer.leases.table.lease import (
    Item,
    Lease,
    checkpoint_attributes,
    lease_from_item,
    lease_to_item,
    processed_until_attributes,
    range_attributes,
)
from kinesis_sdk.consumer.leases.table.store import TableScan
from kinesis_sdk.consumer.leases.table.transitions import Conflict
from kinesis_sdk.consumer.sql.dialect import dialect_of
from kinesis_sdk.consumer.sql.driver import import_sqlalchemy
from kinesis_sdk.consumer.sql.engines import open_engine
from kinesis_sdk.consumer.sql.failures import check_refusal, translated
from kinesis_sdk.consumer.sql.tables import Tables

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, Engine

T = TypeVar("T")

SQL_TABLE = "kinesis_sdk_leases"
"""Default name of the table."""

_VERSION = 1

_COLUMNS: Mapping[str, tuple[str, str]] = {
    attributes.LEASE_COUNTER: ("lease_counter", "N"),
    attributes.LEASE_OWNER: ("lease_owner", "S"),
    attributes.CHECKPOINT_OWNER: ("checkpoint_owner", "S"),
    attributes.HANDOFF_OWNER: ("handoff_owner", "S"),
    attributes.OWNER_SWITCHES: ("owner_switches", "N"),
    attributes.CHECKPOINT: ("checkpoint", "S"),
    attributes.CHECKPOINT_SUB: ("checkpoint_sub", "N"),
    attributes.PENDING_CHECKPOINT: ("pending_checkpoint", "S"),
    attributes.PENDING_CHECKPOINT_SUB: ("pending_checkpoint_sub", "N"),
    attributes.PENDING_CHECKPOINT_STATE: ("pending_checkpoint_state", "B"),
    attributes.INITIAL_TIMESTAMP: ("initial_timestamp_millis", "N"),
    attributes.PROCESSED_UNTIL: ("processed_until", "S"),
    attributes.THROUGHPUT_KBPS: ("throughput_kbps", "F"),
    attributes.PROGRESS: ("progress", "S"),
    attributes.PINNED_TO: ("pinned_to", "S"),
    attributes.HANDLER_REQUEST: ("handler_request", "S"),
}
"""Attributes with a column of their own (name, type), because writes change or check them."""
_REST = "attributes"
"""Column of all other attributes, as JSON in DynamoDB's wire form."""
_KEY_COLUMNS = ("application", "lease_key")

_READ_ATTEMPTS = 4
_CHANGE_ATTEMPTS = 50
"""Attempts to change an attribute without a column. An attempt fails only because another worker's write succeeded."""
_REPETITIONS = 8


class SqlLeaseStore:
    """A `LeaseStore` in a SQL database. Several applications may share one table. Thread-safe.

    SQLite serves the workers of one machine, PostgreSQL serves fleets. ``Worker(lease_store="sqlite:///leases.db")`` creates one.

    Args:
        database: SQLAlchemy URL, or an engine. The timeouts of an engine that is passed in are not changed.
        application: Name of the application, 1 to 255 characters, which its rows carry.
        table: Name of the table, created if it is missing.
        schema: Schema of the database that holds the table; None is the default schema.
        timeout: Seconds after which a call fails, to be repeated by the worker; 0.1 to 60. See `open_engine`.
        sleep: Replaces `time.sleep` between attempts to read, for tests.

    Attributes:
        application: As given.
        engine: The engine.

    Raises:
        ConfigError: If ``database`` is neither a URL nor an engine, is neither SQLite nor PostgreSQL, or is SQLite in memory.
        ImportError: If SQLAlchemy, or the driver, is not installed.
    """

    def __init__(
        self,
        database: str | Engine,
        application: str,
        *,
        table: str = SQL_TABLE,
        schema: str | None = None,
        timeout: float = 3.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        check_text("application", application, 1, 255)
        check_seconds("timeout", timeout, 0.1, 60)
        sqlalchemy = import_sqlalchemy()
        self.application: str = application
        self.engine: Engine = open_engine("lease_store", database, timeout=timeout)
        self._dialect = dialect_of(self.engine)
        self._owns_engine = isinstance(database, str)
        # A transaction would keep its locks while the process is frozen.
        self._statements = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        # With one connection for all threads, a thread would change the isolation level during another thread's
        # statement.
        shares_connection = isinstance(self.engine.pool, sqlalchemy.pool.StaticPool)
        self._one_at_a_time: AbstractContextManager[Any] = (
            threading.Lock() if shares_connection else nullcontext()
        )
        self._sleep = sleep
        self._rng = random.Random()
        metadata = sqlalchemy.MetaData()
        self._table = _make_table(sqlalchemy, metadata, table, schema)
        self._tables = Tables(self.engine, table, _VERSION, metadata, schema=schema)
        self._name = f"lease table {table}"
        self._prepared = _Statements(sqlalchemy, self._table, application)

    @property
    def file(self) -> Path | None:
        """File of the database; None for a server or for a name that only the driver understands."""
        return self._dialect.file(self.engine.url)

    def ensure_ready(self) -> None:
        """Create the table if it is missing, and check its version.

        Raises:
            ConfigError: If the server rejects the user, the password or the database.
            LeaseStoreError: If the database cannot be used; a `TransientLeaseStoreError` only after several attempts.
        """
        self._repeat(lambda: self._call(self._ensure_tables))

    def _ensure_tables(self) -> None:
        try:
            self._tables.ensure(LeaseStoreError, needs_transactions=False)
        except Exception as error:
            check_refusal("lease_store", self.engine, error)
            raise

    def close(self) -> None:
        """Close the connections of the engine, unless the caller passed it in."""
        if self._owns_engine:
            self.engine.dispose()

    # Reading

    def scan(self, *, consistent: bool = False) -> TableScan:  # noqa: ARG002 - a statement sees all that was committed
        """Read all leases of the application."""
        leases: list[Lease] = []
        unreadable: dict[str, str] = {}
        for row in self._rows():
            try:
                leases.append(_lease_of(row))
            except ValueError as error:
                unreadable[printable(str(row.lease_key))] = str(error)
        return TableScan(leases=leases, unreadable=unreadable)

    def _rows(self) -> Any:
        query = self._prepared.all_rows
        return self._repeat(lambda: self._execute(lambda connection: connection.execute(query).all()))

    def list(self) -> list[Lease]:
        """Return all leases; rows that cannot be read are left out."""
        return self.scan().leases

    def get(self, lease_key: str) -> Lease | None:
        """Read one lease."""
        row = self._row(lease_key)
        try:
            return None if row is None else _lease_of(row)
        except ValueError as error:
            raise ProtocolError(f"{self._name}: row {lease_key} cannot be read: {error}") from error

    def _row(self, lease_key: str) -> Any:
        query, parameters = self._prepared.one_row, self._prepared.parameters(lease_key)
        return self._execute(lambda connection: connection.execute(query, parameters).one_or_none())

    def _current(self, lease_key: str) -> Lease | None:
        """Return the row that made a write fail; None if it is missing or unreadable (which the next scan reports)."""
        try:
            return self.get(lease_key)
        except ProtocolError:
            return None

    # Writing

    def create_if_absent(self, lease: Lease) -> bool:
        """Insert a row; the primary key rejects a second row."""
        from sqlalchemy.exc import IntegrityError

        row = {"application": self.application, "lease_key": lease.lease_key, **_values(lease_to_item(lease))}

        def insert(connection: Connection) -> bool:
            try:
                connection.execute(self._prepared.insert, row)
            except IntegrityError:
                return False
            return True

        return self._execute(insert)

    def take(self, lease: Lease, owner: str) -> Lease | Conflict:
        """Take the lease for ``owner``."""
        wanted = transitions.taken(lease, owner)
        changes = {
            "lease_owner": owner,
            "owner_switches": wanted.owner_switches,
            "handoff_owner": owner,
            "checkpoint_owner": None,
            "progress": None,
        }
        return self._update(lease, wanted, changes)

    def renew(self, lease: Lease) -> Lease | Conflict:
        """Renew the lease."""
        return self._update(
            lease,
            transitions.renewed(lease),
            _measurements(lease),
            self._no_handoff(lease),
            returns_row=False,
        )

    def checkpoint(
        self, lease: Lease, checkpoint: ExtendedSequenceNumber, state: bytes | None = None
    ) -> Lease | Conflict:
        """Store a position."""
        changes = {
            **_values(checkpoint_attributes(checkpoint), every_column=False),
            "owner_switches": 0,
            "pending_checkpoint": None if state is None else checkpoint.sequence_number,
            "pending_checkpoint_sub": None if state is None else checkpoint.sub_sequence_number,
            "pending_checkpoint_state": state,
            "initial_timestamp_millis": None,
            **_measurements(lease),
        }
        return self._update(lease, transitions.checkpointed(lease, checkpoint, state), changes)

    def prepare(
        self, lease: Lease, checkpoint: ExtendedSequenceNumber, state: bytes | None = None
    ) -> Lease | Conflict:
        """Store a pending position."""
        changes = {
            "pending_checkpoint": checkpoint.sequence_number,
            "pending_checkpoint_sub": checkpoint.sub_sequence_number,
            "pending_checkpoint_state": state,
            "owner_switches": 0,
        }
        return self._update(lease, transitions.prepared(lease, checkpoint, state), changes)

    def pin(self, lease: Lease, timestamp_millis: int) -> Lease | Conflict:
        """Store the instant of a resolved sentinel position."""
        wanted = transitions.pinned(lease, timestamp_millis)
        return self._update(lease, wanted, {"initial_timestamp_millis": timestamp_millis})

    def mark_processed(self, lease: Lease, millis: int) -> Lease | Conflict:
        """Store that every record from before a time is processed."""
        wanted = transitions.marked_processed(lease, millis)
        assert wanted.processed_until is not None
        changes = _values(processed_until_attributes(wanted.processed_until), every_column=False)
        return self._update(lease, wanted, changes)

    def release(self, lease: Lease) -> Lease | Conflict:
        """Remove the owner."""
        changes = {"lease_owner": None, "checkpoint_owner": None, "handoff_owner": None}
        return self._update(
            lease, transitions.released(lease), changes, self._no_handoff(lease), returns_row=False
        )

    def request_handoff(self, lease: Lease, owner: str) -> Lease | Conflict:
        """Request a handoff from the lease's owner."""
        conditions = {"lease_owner": lease.owner, "checkpoint_owner": None}
        changes = {"lease_owner": owner, "checkpoint_owner": lease.owner, "handoff_owner": owner}
        row = self._write(lease.lease_key, conditions, changes)
        if row is not None:
            return row
        current = self._current(lease.lease_key)
        if current is not None and transitions.is_requested_by(current, lease, owner):
            return current
        return Conflict(current)

    def complete_handoff(self, lease: Lease) -> Lease | Conflict:
        """Hand the lease off to its next owner."""
        conditions = {"lease_owner": lease.owner, "checkpoint_owner": lease.checkpoint_owner}
        changes = {"checkpoint_owner": None, "handoff_owner": None}
        return self._update(lease, transitions.handed_off(lease), changes, conditions, returns_row=False)

    def set_child_shard_ids(self, lease_key: str, child_shard_ids: Iterable[str]) -> bool:
        """Store the children of an ended shard."""
        return self._set(lease_key, {attributes.CHILD_SHARD_IDS: {"SS": sorted(child_shard_ids)}})

    def set_hash_key_range(self, lease_key: str, hash_key_range: HashKeyRange) -> bool:
        """Store the range of a shard."""
        return self._set(lease_key, range_attributes(hash_key_range))

    def put_standby_heartbeat(self, lease_key: str, worker_id: str, heartbeat: int | None) -> bool:
        """Store or remove the standby heartbeat of a worker."""
        value = None if heartbeat is None else {"N": str(heartbeat)}
        return self._set(lease_key, {attributes.STANDBY + worker_id: value})

    def set_drain(self, lease_key: str, worker_id: str, on: bool) -> bool:
        """Set or remove the mark that makes a worker drain."""
        return self._set(lease_key, {attributes.DRAIN + worker_id: {"N": "1"} if on else None})

    def set_pin(self, lease_key: str, worker_id: str | None) -> bool:
        """Store the worker to which this lease is pinned."""
        return self._changes_a_row(lease_key, {}, {"pinned_to": worker_id or None})

    def set_handler_request(
        self, lease_key: str, request: HandlerRequest | None, *, instead_of: HandlerRequest | None = None
    ) -> bool:
        """Store an operator's request to the holder."""
        demanded = {} if instead_of is None else {"handler_request": instead_of.to_text()}
        value = None if request is None else request.to_text()
        return self._changes_a_row(lease_key, demanded, {"handler_request": value})

    def delete(self, lease_key: str, *, unowned: Lease | None = None, finished: bool = False) -> bool:
        """Remove a lease."""
        conditions: dict[str, Any] = {}
        if unowned is not None:
            conditions["lease_counter"] = unowned.counter
        if finished:
            conditions["checkpoint"] = SHARD_END
        if self._changes_a_row(lease_key, conditions, None):
            return True
        return self._row(lease_key) is None

    # For operators' tools, which see rows as they are stored

    def exists(self) -> bool:
        """Return whether the table exists, without creating the table.

        Raises:
            LeaseStoreError: If the database cannot be used, or if this release does not support the table's version.
        """
        return self._repeat(lambda: self._call(lambda: self._tables.exist(LeaseStoreError)))

    def applications(self) -> dict[str, int]:
        """Return the number of leases of each application in the table, by name."""
        from sqlalchemy import func, select

        name = self._table.c.application
        query = select(name, func.count()).group_by(name).order_by(name)
        rows = self._repeat(lambda: self._execute(lambda connection: connection.execute(query).all()))
        return {str(found): int(count) for found, count in rows}

    def items(self) -> tuple[Sequence[Item], Mapping[str, str]]:
        """Return the application's rows in DynamoDB's wire form, and the reason for each unreadable row by key."""
        items: list[Item] = []
        unreadable: dict[str, str] = {}
        for row in self._rows():
            try:
                items.append(_item_of(row))
            except ValueError as error:
                unreadable[printable(str(row.lease_key))] = str(error)
        return items, unreadable

    def item(self, lease_key: str) -> Item | None:
        """Return one row in wire form; None if there is none.

        Raises:
            ProtocolError: If the row cannot be read.
        """
        row = self._row(lease_key)
        try:
            return None if row is None else _item_of(row)
        except ValueError as error:
            raise ProtocolError(f"{self._name}: row {lease_key} cannot be read: {error}") from error

    def change(
        self,
        lease_key: str,
        *,
        equals: Item,
        absent: Iterable[str] = (),
        sets: Item,
        removes: Iterable[str] = (),
    ) -> bool:
        """Change attributes of a row, given in wire form, if other attributes have the expected values. Condition and write are atomic.

        The row is read first. One statement then writes it, provided that all columns of the condition are unchanged.
        Attributes that share a column are changed by compare-and-set on the whole column; after a conflict, the write is
        repeated.

        Args:
            lease_key: Key of the row.
            equals: Condition: values that attributes must have.
            absent: Condition: attributes that must not exist.
            sets: Attributes to set.
            removes: Attributes to remove.

        Returns:
            False if the condition does not hold or the row does not exist; then no row is changed.

        Raises:
            LeaseRowRejectedError: If the row cannot be read.
            LeaseStoreError: If the call fails. After a `TransientLeaseStoreError`, the write may have taken effect.
        """
        concerned = {*equals, *absent}
        for attempt in range(_CHANGE_ATTEMPTS):
            row = self._row(lease_key)
            if row is None:
                return False
            try:
                before = _item_of(row)
            except ValueError as error:
                raise LeaseRowRejectedError(
                    f"{self._name}: row {lease_key} cannot be changed: {error}"
                ) from error
            if any(before.get(name) != value for name, value in equals.items()) or any(
                name in before for name in absent
            ):
                return False
            after = {**before, **sets}
            for name in removes:
                after.pop(name, None)
            old, new = _values(before), _values(after)
            changes = {column: value for column, value in new.items() if old[column] != value}
            if not changes:
                return True
            unchanged = {_column_of(name, before) for name in concerned} | ({_REST} & changes.keys())
            stored = row._mapping
            demanded = {name: stored[name] for name in sorted(unchanged)}
            if self._changes_a_row(lease_key, demanded, changes):
                return True
            self._sleep(self._rng.uniform(0, 0.001 * attempt))
        raise TransientLeaseStoreError(
            f"{self._name}: row {lease_key} was changed {_CHANGE_ATTEMPTS} times by others meanwhile"
        )

    def remove(self, lease_key: str, *, equals: Item) -> bool:
        """Delete a row if it still equals ``equals`` (in wire form). An unreadable row is deleted if ``equals`` is empty.

        Returns:
            False if the row has changed or does not exist; then no row is deleted.
        """
        row = self._row(lease_key)
        if row is None:
            return False
        try:
            now = {name: value for name, value in _item_of(row).items() if name != attributes.LEASE_KEY}
        except ValueError:
            return not equals and self._changes_a_row(lease_key, {}, None)
        unchanged = {name: value for name, value in row._mapping.items() if name not in _KEY_COLUMNS}
        return now == equals and self._changes_a_row(lease_key, unchanged, None)

    def delete_application(self) -> int:
        """Delete all leases of the application in one statement, and return their number."""
        statement = self._table.delete().where(self._table.c.application == self.application)
        return int(self._execute(lambda connection: connection.execute(statement).rowcount))

    @staticmethod
    def _no_handoff(lease: Lease) -> Mapping[str, Any]:
        return {} if lease.in_handoff else {"checkpoint_owner": None}

    def _update(
        self,
        seen: Lease,
        wanted: Lease,
        changes: Mapping[str, Any],
        conditions: Mapping[str, Any] = MappingProxyType({}),
        *,
        returns_row: bool = True,
    ) -> Lease | Conflict:
        """Update a row and its counter if the counter is still the one in ``seen`` and further conditions hold.

        With ``returns_row``, return the stored row, which shows a handoff request that the conditions allow; otherwise
        return ``wanted``.
        """
        demanded = {"lease_counter": seen.counter, **conditions}
        values = {"lease_counter": wanted.counter, **changes}
        row = self._write(seen.lease_key, demanded, values, returns_row=returns_row, wanted=wanted)
        if row is not None:
            return row
        current = self._current(seen.lease_key)
        if current is not None and transitions.has_effect_of(current, wanted):
            return current
        return Conflict(current)

    def _write(
        self,
        lease_key: str,
        conditions: Mapping[str, Any],
        values: Mapping[str, Any],
        *,
        returns_row: bool = True,
        wanted: Lease | None = None,
    ) -> Lease | None:
        """Update a row if conditions hold, and return it; None if they do not.

        Returns ``wanted`` if the row need not or cannot be read; the next scan reports an unreadable row.
        """
        if (returns_row or wanted is None) and self.engine.dialect.update_returning:
            statement, parameters = self._prepared.write(lease_key, conditions, values, returns_row=True)
            row = self._execute(lambda connection: connection.execute(statement, parameters).one_or_none())
            if row is None:
                return None
            try:
                return _lease_of(row)
            except ValueError:
                return wanted
        if not self._changes_a_row(lease_key, conditions, values):
            return None
        if wanted is not None and not returns_row:
            return wanted
        # SQLite before 3.35 has no RETURNING. Another write may come before this read; its row is just as valid.
        return self._current(lease_key) or wanted

    def _changes_a_row(
        self, lease_key: str, conditions: Mapping[str, Any], values: Mapping[str, Any] | None
    ) -> bool:
        """Set columns of a row, or delete it if ``values`` is None; return False if it is missing or a condition fails."""
        statement, parameters = self._prepared.write(lease_key, conditions, values)
        return bool(self._execute(lambda connection: connection.execute(statement, parameters).rowcount))

    def _set(self, lease_key: str, changes: Mapping[str, Any]) -> bool:
        """Set attributes without a column; a value of None removes an attribute. The counter stays. Return False if the row is missing."""
        for attempt in range(_CHANGE_ATTEMPTS):
            row = self._row(lease_key)
            if row is None:
                return False
            before = row._mapping[_REST]
            try:
                item = decode_item(before)
            except ValueError as error:
                raise LeaseRowRejectedError(
                    f"{self._name}: row {lease_key} cannot be changed, its column {_REST} is malformed: {error}"
                ) from error
            for name, value in changes.items():
                item.pop(name, None)
                if value is not None:
                    item[name] = value
            if self._changes_a_row(lease_key, {_REST: before}, {_REST: encode_item(item)}):
                return True
            self._sleep(self._rng.uniform(0, 0.001 * attempt))
        raise TransientLeaseStoreError(
            f"{self._name}: row {lease_key} was changed {_CHANGE_ATTEMPTS} times by others meanwhile"
        )

    # Calls

    def _execute(self, call: Callable[[Connection], T]) -> T:
        """Run a statement on its own connection."""

        def connected() -> T:
            with self._one_at_a_time, self._statements.connect() as connection:
                return call(connection)

        return self._call(connected)

    def _call(self, call: Callable[[], T]) -> T:
        """Call the database and translate its errors into errors of this package."""
        from sqlalchemy.exc import DataError

        for attempt in range(_REPETITIONS):
            try:
                return call()
            except DataError as error:
                raise translated(
                    self._dialect, error, LeaseRowRejectedError, LeaseRowRejectedError
                ) from error
            except KinesisSdkError:
                raise
            except Exception as error:
                if not self._dialect.was_not_done(error) or attempt == _REPETITIONS - 1:
                    raise translated(
                        self._dialect, error, TransientLeaseStoreError, LeaseStoreError
                    ) from error
        raise AssertionError  # pragma: no cover - the last attempt returns or raises

    def _repeat(self, call: Callable[[], T]) -> T:
        return call_with_retries(
            call, operation=None, timeout=5.0, attempts=_READ_ATTEMPTS, sleep=self._sleep
        )


class _Statements:
    """Cache of the statements for one application, because building a statement costs more than running it in SQLite.

    Thread-safe: two threads that build the same statement build equal statements.
    """

    def __init__(self, sqlalchemy: Any, table: Any, application: str) -> None:
        self._bindparam = sqlalchemy.bindparam
        self._table = table
        columns = table.c
        self._is_row = (
            columns.application == application,
            columns.lease_key == self._bindparam("key", type_=columns.lease_key.type),
        )
        self.all_rows: Any = (
            table.select().where(columns.application == application).order_by(columns.lease_key)
        )
        self.one_row: Any = table.select().where(*self._is_row)
        self.insert: Any = table.insert()
        # Key: columns that must be empty, columns that must have a value, columns to set (None deletes), whether to return the row.
        self._writes: dict[tuple[Any, ...], Any] = {}

    @staticmethod
    def parameters(lease_key: str) -> dict[str, Any]:
        return {"key": lease_key}

    def write(
        self,
        lease_key: str,
        conditions: Mapping[str, Any],
        values: Mapping[str, Any] | None,
        *,
        returns_row: bool = False,
    ) -> tuple[Any, dict[str, Any]]:
        """Return a conditional statement and its parameters: it updates a row, or deletes it if ``values`` is None.

        A condition of None means that the column must be empty.
        """
        parameters = self.parameters(lease_key)
        empty, full = [], []
        for name, value in conditions.items():
            if value is None:
                empty.append(name)
            else:
                full.append(name)
                parameters[f"is_{name}"] = value
        if values is not None:
            parameters.update((f"to_{name}", value) for name, value in values.items())
        shape = (tuple(empty), tuple(full), None if values is None else tuple(values), returns_row)
        statement = self._writes.get(shape)
        if statement is None:
            statement = self._writes[shape] = self._build(*shape)
        return statement, parameters

    def _build(
        self, empty: Iterable[str], full: Iterable[str], changed: Iterable[str] | None, returns_row: bool
    ) -> Any:
        columns = self._table.c
        statement = self._table.delete() if changed is None else self._table.update()
        statement = statement.where(
            *self._is_row,
            *(columns[name].is_(None) for name in empty),
            *(columns[name] == self._bindparam(f"is_{name}", type_=columns[name].type) for name in full),
        )
        if changed is not None:
            statement = statement.values({name: self._bindparam(f"to_{name}") for name in changed})
        return statement.returning(*columns) if returns_row else statement


def _make_table(sqlalchemy: Any, metadata: Any, name: str, schema: str | None) -> Any:
    types = {
        "S": sqlalchemy.Text(),
        "N": sqlalchemy.BigInteger(),
        "F": sqlalchemy.Double(),
        "B": sqlalchemy.LargeBinary(),
    }
    needed = ("lease_counter", "checkpoint")
    return sqlalchemy.Table(
        name,
        metadata,
        sqlalchemy.Column("application", sqlalchemy.String(255), primary_key=True),
        sqlalchemy.Column("lease_key", sqlalchemy.String(255), primary_key=True),
        *(
            sqlalchemy.Column(column, types[kind], nullable=column not in needed, autoincrement=False)
            for column, kind in _COLUMNS.values()
        ),
        sqlalchemy.Column(_REST, types["S"], nullable=False),
        schema=schema,
    )


def _values(item: Mapping[str, Any], *, every_column: bool = True) -> dict[str, Any]:
    """Return the columns of an item. With ``every_column``, absent attributes become None; otherwise they are left out."""
    rest = dict(item)
    rest.pop(attributes.LEASE_KEY, None)
    result: dict[str, Any] = {}
    for name, (column, kind) in _COLUMNS.items():
        wire = "N" if kind == "F" else kind
        # An attribute of an unexpected type (a KCL once wrote one) stays among the other attributes.
        value = rest.pop(name)[wire] if wire in rest.get(name, ()) else None
        if value is not None or every_column:
            result[column] = _READ[kind](value) if value is not None else None
    if every_column:
        result[_REST] = encode_item(rest)
    return result


def _measurements(lease: Lease) -> dict[str, Any]:
    """Return the columns that each heartbeat may change."""
    result: dict[str, Any] = {}
    if lease.throughput_kbps is not None:
        result["throughput_kbps"] = lease.throughput_kbps
    if lease.progress is not None:
        result["progress"] = lease.progress.to_text()
    return result


def _lease_of(row: Any) -> Lease:
    """Return the lease of a row, or raise `ValueError` if it cannot be read."""
    return lease_from_item(_item_of(row))


def _item_of(row: Any) -> dict[str, Any]:
    """Return a row in wire form, or raise `ValueError` if its other attributes are malformed."""
    columns = row._mapping
    item = decode_item(columns[_REST])
    item[attributes.LEASE_KEY] = {"S": columns["lease_key"]}
    for name, (column, kind) in _COLUMNS.items():
        value = columns[column]
        if value is not None:
            item[name] = _TO_WIRE[kind](value)
    return item


def _column_of(name: str, item: Item) -> str:
    """Return the column in which an attribute of an item is stored."""
    column, kind = _COLUMNS.get(name, (_REST, ""))
    is_of_another_type = name in item and ("N" if kind == "F" else kind) not in item[name]
    return _REST if is_of_another_type else column


_READ: Mapping[str, Callable[[Any], Any]] = {"S": str, "N": int, "F": float, "B": bytes}
_TO_WIRE: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "S": lambda value: {"S": value},
    "N": lambda value: {"N": str(value)},
    "F": lambda value: {"N": repr(value)},
    "B": lambda value: {"B": bytes(value)},
}
