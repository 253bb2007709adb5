"""Leases in a SQL database: all applications share one table, and a column distinguishes them.

One statement reads an application of any size. Reads create neither the table nor the file of SQLite.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from kinesis_sdk.admin.changes.rows import RowWrite, TableRead, WriteKind, decode
from kinesis_sdk.admin.connection import Connection
from kinesis_sdk.admin.lease_tables.interface import ApplicationInfo
from kinesis_sdk.common.errors import LeaseStoreError, LeaseTableNotFoundError
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer import SqlLeaseStore, TableScan
from kinesis_sdk.consumer.leases import SQL_TABLE, Item, lease_from_item, without_password

_T = TypeVar("_T")

_MAX_SHOWN = 20
"""Maximum number of applications named in a message."""
_STATEMENTS = {WriteKind.UPDATE: "UPDATE", WriteKind.PUT: "INSERT", WriteKind.DELETE: "DELETE"}


class SqlLeaseTables:
    """The applications of a SQL database, see `Connection.lease_store`."""

    def __init__(self, connection: Connection, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._connection = connection
        self._sleep = sleep

    def find(self, names: Sequence[str] | None = None) -> list[ApplicationInfo]:
        """Return the applications that have leases: one SELECT."""
        table = self.table("-")
        table.check()
        return [
            ApplicationInfo(name=name, rows=rows)
            for name, rows in table.store.applications().items()
            if names is None or name in names
        ]

    def forget(self) -> None:
        """Do nothing: nothing is kept."""

    def table(self, name: str) -> SqlLeaseTable:
        """Return the leases of one application."""
        return SqlLeaseTable(self._connection, name, sleep=self._sleep)


class SqlLeaseTable:
    """The leases of one application in a SQL database.

    The first call, and each call after a failed call, checks that the table exists and has a known version. ``name`` is
    the name of the application in its rows.
    """

    def __init__(
        self, connection: Connection, name: str, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._place = without_password(connection.lease_store or "")
        self._is_checked = False
        self.name: str = name
        self.label: str = f"{name} in {self._place}"
        self.store: SqlLeaseStore = SqlLeaseStore(connection.database, name, sleep=sleep)

    def check(self) -> None:
        """Check that the table exists; raises LeaseTableNotFoundError if the table or the file does not exist.

        Raises LeaseStoreError if the database cannot be used, or if the table has another version.
        """
        if self._is_checked:
            return
        file = self._file()
        if file is not None and not file.exists():
            raise self._no_tables(f"there is no file {printable(str(file), 400)}")
        if not self.store.exists():
            raise self._no_tables(
                f"the database {printable(self._place, 400)} has no table {SQL_TABLE}: no worker has kept leases there"
            )
        self._is_checked = True

    def missing(self, application: str) -> LeaseTableNotFoundError:
        """Return the error that names the existing applications. One SELECT."""
        found = list(self.store.applications())
        shown = ", ".join(map(printable, found[:_MAX_SHOWN])) + (", …" if len(found) > _MAX_SHOWN else "")
        problem = f"{printable(self._place, 400)} has no leases of the application {self.name!r}. " + (
            f"There are leases of: {shown}" if found else "There are none of any other application either"
        )
        return LeaseTableNotFoundError(
            "table" if self.name != application else "application",
            self.name,
            "an application with leases",
            problem=f"{problem}.",
        )

    def info(self, application: str) -> ApplicationInfo:
        """Return the number of rows."""
        self.check()
        rows = self.store.applications().get(self.name)
        if not rows:
            raise self.missing(application)
        return ApplicationInfo(name=application, rows=rows)

    def scan(self, application: str, *, consistent: bool = False) -> TableScan:
        """Read all leases by one SELECT, which sees all committed writes."""
        scan = self._guarded(lambda: self.store.scan(consistent=consistent))
        if not scan.leases and not scan.unreadable:
            raise self.missing(application)
        return scan

    def read(self, *, may_be_missing: bool = False) -> TableRead:
        """Read all rows by one SELECT."""
        try:
            items, unreadable = self._guarded(self.store.items)
        except LeaseTableNotFoundError:
            if may_be_missing:
                return TableRead(rows={})
            raise
        if not items and not unreadable and not may_be_missing:
            raise self.missing(self.name)
        return decode(items, unreadable)

    def get(self, lease_key: str) -> Item | None:
        """Read one row; None if there is none."""
        return self.store.item(lease_key)

    def send(self, write: RowWrite) -> bool:
        """Carry out a write in one statement."""
        if write.kind is WriteKind.PUT:
            return self.store.create_if_absent(lease_from_item(write.sets))
        if write.kind is WriteKind.DELETE:
            return self.store.remove(write.lease_key, equals=write.equals)
        return self.store.change(
            write.lease_key,
            equals=write.equals,
            absent=write.absent,
            sets=write.sets,
            removes=write.removes,
        )

    def request(self, write: RowWrite) -> Mapping[str, Any]:
        """Return the write and its condition."""
        return {
            "statement": _STATEMENTS[write.kind],
            "table": SQL_TABLE,
            "application": self.name,
            "lease_key": write.lease_key,
            "sets": dict(write.sets),
            "removes": list(write.removes),
            "equals": dict(write.equals),
            "absent": list(write.absent),
        }

    def operation(self, kind: WriteKind) -> str:
        """Return the verb of the statement."""
        return _STATEMENTS[kind]

    def worker_metrics(self, application: str) -> dict[str, float] | None:  # noqa: ARG002 - of the interface
        """Return None: no Java worker keeps its leases here."""
        return None

    def parts(self, application: str) -> tuple[str, ...]:  # noqa: ARG002 - of the interface
        """Return one part: the application, under the name in its rows."""
        return (self.name,)

    def deletion(self, part: str) -> str:
        """Return the statement that deletes the rows."""
        quoted = part.replace("'", "''")
        return f"DELETE FROM {SQL_TABLE} WHERE application = '{quoted}'"  # noqa: S608 - shown, and not carried out

    def delete(self, part: str) -> bool:  # noqa: ARG002 - there is one
        """Delete the rows of the application; the table stays for other applications."""
        return bool(self.store.delete_application())

    def _guarded(self, call: Callable[[], _T]) -> _T:
        """Read the table. After a permanent failure, the table is checked again: it may have been dropped."""
        self.check()
        try:
            return call()
        except LeaseStoreError as error:
            if not error.retryable:
                self._is_checked = False
                self.check()
            raise

    def _file(self) -> Path | None:
        """Return the database's file, if it is a file."""
        return self.store.file

    def _no_tables(self, problem: str) -> LeaseTableNotFoundError:
        return LeaseTableNotFoundError(
            "lease_store", self._place, "the URL of a database with leases", problem=f"lease_store: {problem}"
        )
