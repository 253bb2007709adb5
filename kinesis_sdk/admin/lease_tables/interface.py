"""The interface between the tools and the store of the leases.

`LeaseTables` is an account and region of DynamoDB, or a SQL database; `LeaseTable` holds the leases of one application there.
Reads for people go through the `LeaseStore` of the workers. Changes from outside are exact conditional writes of one row
(`kinesis_sdk.admin.changes.rows.RowWrite`), which each store makes in one atomic step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kinesis_sdk.admin.changes.rows import RowWrite, TableRead, WriteKind
from kinesis_sdk.common.errors import LeaseTableNotFoundError
from kinesis_sdk.consumer import LeaseStore, TableScan
from kinesis_sdk.consumer.leases import Item


@dataclass(frozen=True, kw_only=True)
class ApplicationInfo:
    """An application in a listing.

    Attributes:
        name: Name of the application, and of its table in DynamoDB.
        status: ``ACTIVE``, ``CREATING``, ``UPDATING`` or ``DELETING``; in a SQL database always ``ACTIVE``.
        created: When the table was created, in epoch seconds; None if unknown, as in a SQL database.
        table_id: Id of the table in DynamoDB; a later table of the same name has another id. None if unknown.
        rows: Number of items, which DynamoDB counts about every six hours.
    """

    name: str
    status: str = "ACTIVE"
    created: float | None = None
    table_id: str | None = None
    rows: int = 0


class LeaseTable(Protocol):
    """The leases of one application. Thread-safe.

    A method raises a `KinesisSdkError` if its call fails; `retryable` shows whether the failure may be temporary.
    """

    @property
    def name(self) -> str:
        """Name of the table; in a SQL database the application's name in its rows."""

    @property
    def label(self) -> str:
        """Name and place for logs, without a password."""

    @property
    def store(self) -> LeaseStore:
        """The leases as workers read and write them. `LeaseStore.ensure_ready` creates a missing table."""

    def missing(self, application: str) -> LeaseTableNotFoundError:
        """Return the error for a missing application, which names other places where it may be."""

    def info(self, application: str) -> ApplicationInfo:
        """Return the facts about the table; raises LeaseTableNotFoundError if it does not exist."""

    def scan(self, application: str, *, consistent: bool = False) -> TableScan:
        """Read all leases, as `LeaseStore.scan` does; raises LeaseTableNotFoundError if they do not exist."""

    def read(self, *, may_be_missing: bool = False) -> TableRead:
        """Read all rows consistently, as they are stored.

        Raises LeaseTableNotFoundError if the table does not exist, unless ``may_be_missing``, which reads a missing table as
        an empty table.
        """

    def get(self, lease_key: str) -> Item | None:
        """Read one row consistently, in wire form; None if there is none."""

    def send(self, write: RowWrite) -> bool:
        """Make one attempt of a write, and return whether its condition held.

        After a retryable error, the write may have taken effect.
        """

    def request(self, write: RowWrite) -> Mapping[str, Any]:
        """Return a write in the form that the audit log stores."""

    def operation(self, kind: WriteKind) -> str:
        """Return the name of the call that makes a kind of write, for display."""

    def worker_metrics(self, application: str) -> dict[str, float] | None:
        """Return when each KCL 3.0 to 3.4 worker last reported, in epoch seconds of its own clock; None if there are no reports."""

    def parts(self, application: str) -> tuple[str, ...]:
        """Return the names of the parts that a deletion of the application deletes, the leases first."""

    def deletion(self, part: str) -> str:
        """Return the call that deletes a part, in words."""

    def delete(self, part: str) -> bool:
        """Delete a part, and return whether it existed. Repeating it is safe."""


class LeaseTables(Protocol):
    """All lease tables of a store. Thread-safe."""

    def find(self, names: Sequence[str] | None = None) -> list[ApplicationInfo]:
        """Return the applications with these names, by name; None finds all."""

    def forget(self) -> None:
        """Forget everything that was kept."""

    def table(self, name: str) -> LeaseTable:
        """Return the leases of one application. Makes no call."""
