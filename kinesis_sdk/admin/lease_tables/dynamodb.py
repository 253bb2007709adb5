"""Lease tables in DynamoDB: tables whose only key is ``leaseKey``, created by any KCL version.

The tables ``<application>-WorkerMetricStats`` and ``<application>-CoordinatorState`` of KCL 3.0 to 3.4 have other keys, so
they are not taken for applications. KCL 3.5 keeps the same items in the lease table, where they have an ``entityType``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from kinesis_sdk.admin.changes.rows import RowWrite, TableRead, WriteKind, decode
from kinesis_sdk.admin.connection import Connection
from kinesis_sdk.admin.lease_tables.interface import ApplicationInfo
from kinesis_sdk.common.aws import call_with_retries, translate_errors
from kinesis_sdk.common.errors import (
    ConditionFailedError,
    LeaseTableNotFoundError,
    ProtocolError,
    ResourceNotFoundError,
)
from kinesis_sdk.common.paging import PageLimit
from kinesis_sdk.consumer import DynamoDBLeaseStore, TableScan
from kinesis_sdk.consumer.leases import Item, attributes

_BESIDE = ("-CoordinatorState", "-WorkerMetricStats")
_METHODS = {WriteKind.UPDATE: "update_item", WriteKind.PUT: "put_item", WriteKind.DELETE: "delete_item"}
_ELSEWHERE = "If the workers keep their leases in another database, give the database's URL."


class DynamoDBLeaseTables:
    """The lease tables of an account and region. Descriptions are kept, because a table never changes its key."""

    def __init__(self, connection: Connection, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._connection = connection
        self._sleep = sleep
        self._lock = threading.Lock()
        self._known: dict[str, ApplicationInfo | None] = {}

    def find(self, names: Sequence[str] | None = None) -> list[ApplicationInfo]:
        """Return the applications: one ListTables call per 100 tables if no names are given, and one DescribeTable call per new table."""
        found = []
        for name in names if names is not None else self._table_names():
            with self._lock:
                known = name in self._known
                info = self._known.get(name)
            if not known:
                info = self._describe(name)
                # A missing table is described again: the application may create it later.
                if info is not None or names is None:
                    with self._lock:
                        self._known[name] = info
            if info is not None:
                found.append(info)
        return sorted(found, key=lambda info: info.name)

    def forget(self) -> None:
        """Forget the descriptions of the tables."""
        with self._lock:
            self._known.clear()

    def table(self, name: str) -> DynamoDBLeaseTable:
        """Return one table."""
        return DynamoDBLeaseTable(self._connection, name, sleep=self._sleep)

    def _table_names(self) -> list[str]:
        client = self._connection.dynamodb
        names: list[str] = []
        request: dict[str, Any] = {}
        limit = PageLimit("ListTables")
        while True:
            page = call_with_retries(
                partial(client.list_tables, **request),
                operation="ListTables",
                client=client,
                sleep=self._sleep,
            )
            names += page.get("TableNames", [])
            last = page.get("LastEvaluatedTableName")
            if not last:
                return names
            request = {"ExclusiveStartTableName": last}
            limit.check(last)

    def _describe(self, name: str) -> ApplicationInfo | None:
        table = describe_table(self._connection, name, sleep=self._sleep)
        return None if table is None or not is_lease_table(table) else _info_of(table)


class DynamoDBLeaseTable:
    """A lease table in DynamoDB. The client of ``connection`` makes one attempt per call; ``sleep`` waits before another read."""

    def __init__(
        self, connection: Connection, name: str, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._connection = connection
        self._client = connection.dynamodb
        self._sleep = sleep
        self.name: str = name
        self.label: str = name
        self.store: DynamoDBLeaseStore = DynamoDBLeaseStore(self._client, name, sleep=sleep)

    def missing(self, application: str) -> LeaseTableNotFoundError:
        """Return the error that names the table."""
        if self.name != application:
            return LeaseTableNotFoundError(
                "table",
                self.name,
                "the name of a lease table",
                problem=f"there is no lease table {self.name!r}: no DynamoDB table of this name has leaseKey as its only key. "
                f"Check the region, too. {_ELSEWHERE}",
            )
        return LeaseTableNotFoundError(
            "application",
            application,
            "an application with a lease table",
            problem=f"the application {application!r} has no lease table: no DynamoDB table of this name has leaseKey as its only "
            f"key. Check the region, and give the table's name if it is another one. {_ELSEWHERE}",
        )

    def info(self, application: str) -> ApplicationInfo:
        """Return the description of the table by DescribeTable."""
        table = describe_table(self._connection, self.name, sleep=self._sleep)
        if table is None or not is_lease_table(table):
            raise self.missing(application)
        return replace(_info_of(table), name=application)

    def scan(self, application: str, *, consistent: bool = False) -> TableScan:
        """Read all leases; a consistent read costs twice as much."""
        try:
            return self.store.scan(consistent=consistent)
        except ResourceNotFoundError as error:
            raise self.missing(application) from error

    def read(self, *, may_be_missing: bool = False) -> TableRead:
        """Read the whole table consistently."""
        items: list[Item] = []
        request: dict[str, Any] = {"TableName": self.name, "ConsistentRead": True}
        limit = PageLimit(f"Scan of {self.name}", 10_000)
        while True:
            try:
                page = call_with_retries(
                    lambda: self._client.scan(**request),
                    operation="Scan",
                    client=self._client,
                    sleep=self._sleep,
                )
            except ResourceNotFoundError:
                if may_be_missing:
                    return TableRead(rows={})
                raise self.missing(self.name) from None
            if "Items" not in page:
                raise ProtocolError(f"Scan of {self.name}: the response has no Items")
            items.extend(page["Items"])
            last = page.get("LastEvaluatedKey")
            if not last:
                return decode(items)
            request["ExclusiveStartKey"] = last
            limit.check(last)

    def get(self, lease_key: str) -> Item | None:
        """Read one row consistently; None if there is none."""
        response = call_with_retries(
            lambda: self._client.get_item(
                TableName=self.name, Key={attributes.LEASE_KEY: {"S": lease_key}}, ConsistentRead=True
            ),
            operation="GetItem",
            client=self._client,
            sleep=self._sleep,
        )
        item: Item | None = response.get("Item")
        return item

    def send(self, write: RowWrite) -> bool:
        """Make one attempt of a conditional request."""
        try:
            with translate_errors(write.kind.value, self._client):
                getattr(self._client, _METHODS[write.kind])(**self.request(write))
        except ConditionFailedError:
            return False
        return True

    def request(self, write: RowWrite) -> Mapping[str, Any]:
        """Return the arguments of the boto3 method that makes the write."""
        return write.request(self.name)

    def operation(self, kind: WriteKind) -> str:
        """Return the name of the API operation."""
        return kind.value

    def worker_metrics(self, application: str) -> dict[str, float] | None:
        """Scan ``<application>-WorkerMetricStats``, which has one small item per worker."""
        client = self._client
        found: dict[str, float] = {}
        request: dict[str, Any] = {"TableName": f"{application}-WorkerMetricStats"}
        limit = PageLimit(f"Scan of {request['TableName']}")
        while True:
            try:
                page = call_with_retries(
                    partial(client.scan, **request),
                    operation="Scan",
                    client=client,
                    timeout=5.0,
                    attempts=4,
                    sleep=self._sleep,
                )
            except ResourceNotFoundError:
                return None
            for item in page.get("Items", ()):
                add_metrics(found, item, "wid")
            last = page.get("LastEvaluatedKey")
            if not last:
                return found
            request = {**request, "ExclusiveStartKey": last}
            limit.check(last)

    def parts(self, application: str) -> tuple[str, ...]:
        """Return the table, and the tables that a KCL 3 keeps in addition."""
        beside = [
            application + suffix
            for suffix in _BESIDE
            if describe_table(self._connection, application + suffix, sleep=self._sleep) is not None
        ]
        return (self.name, *beside)

    def deletion(self, part: str) -> str:
        """Return the call that deletes a table."""
        return f"DeleteTable {part}"

    def delete(self, part: str) -> bool:
        """Delete a table."""
        try:
            call_with_retries(
                lambda: self._client.delete_table(TableName=part),
                operation="DeleteTable",
                client=self._client,
                sleep=self._sleep,
            )
        except ResourceNotFoundError:
            return False
        return True


def describe_table(
    connection: Connection, name: str, *, sleep: Callable[[float], None] = time.sleep
) -> Mapping[str, Any] | None:
    """Return ``Table`` of DescribeTable; None if there is no such table."""
    client = connection.dynamodb
    try:
        response = call_with_retries(
            lambda: client.describe_table(TableName=name),
            operation="DescribeTable",
            client=client,
            sleep=sleep,
        )
    except ResourceNotFoundError:
        return None
    table: Mapping[str, Any] = response["Table"]
    return table


def is_lease_table(table: Mapping[str, Any]) -> bool:
    """Return whether a table has the shape of a lease table: ``leaseKey`` is its only key."""
    return [(key["AttributeName"], key["KeyType"]) for key in table.get("KeySchema", ())] == [
        (attributes.LEASE_KEY, "HASH")
    ]


def _info_of(table: Mapping[str, Any]) -> ApplicationInfo:
    created = table.get("CreationDateTime")
    return ApplicationInfo(
        name=str(table["TableName"]),
        status=str(table.get("TableStatus", "ACTIVE")),
        created=None if created is None else created.timestamp(),
        table_id=table.get("TableId"),
        rows=int(table.get("ItemCount") or 0),
    )


def add_metrics(found: dict[str, float], item: Item, key: str) -> None:
    """Add a worker's report; an item of another form is ignored."""
    try:
        found[item[key]["S"]] = float(item["lut"]["N"])
    except (KeyError, TypeError, ValueError):
        return
