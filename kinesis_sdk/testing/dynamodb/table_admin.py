"""DynamoDB table administration: creation, description, changes, deletion, lists, tags and backup settings."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

from kinesis_sdk.common.clock import Clock
from kinesis_sdk.testing.dynamodb.change_streams import ChangeStreams, view_type_of
from kinesis_sdk.testing.dynamodb.tables import Table
from kinesis_sdk.testing.errors import AwsError, constraint, validation

_NAME = re.compile(r"[a-zA-Z0-9_.-]{3,255}", re.ASCII)


class TableAdmin:
    """Tables of one account and region.

    A new table is ACTIVE after `table_delay` seconds; an index that is added to a table is ACTIVE after `index_delay` seconds.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        region: str,
        account_id: str,
        table_delay: float,
        index_delay: float,
        streams: ChangeStreams,
    ) -> None:
        self._clock = clock
        self.streams = streams
        self._prefix = f"arn:aws:dynamodb:{region}:{account_id}:table/"
        self._table_delay = table_delay
        self._index_delay = index_delay
        self._lock = threading.Lock()
        self._tables: dict[str, Table] = {}
        self.operations: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "CreateTable": self.create_table,
            "DescribeTable": self.describe_table,
            "UpdateTable": self.update_table,
            "DeleteTable": self.delete_table,
            "ListTables": self.list_tables,
            "UpdateContinuousBackups": self.update_backups,
            "DescribeContinuousBackups": self.describe_backups,
            "TagResource": self.tag,
            "UntagResource": self.untag,
            "ListTagsOfResource": self.list_tags,
        }

    def reset(self) -> None:
        """Forget all tables."""
        with self._lock:
            self._tables = {}
        self.streams.reset()

    def find(self, name: Any) -> Table:
        """Return the table with this name or ARN."""
        if not isinstance(name, str):
            raise constraint("tableName", name, "not be null")
        table = self._tables.get(name.removeprefix(self._prefix))
        if table is None:
            raise AwsError(
                "ResourceNotFoundException", f"Requested resource not found: Table: {name} not found"
            )
        return table

    def create_table(self, request: dict[str, Any]) -> dict[str, Any]:
        """CreateTable."""
        name = request.get("TableName")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise constraint("tableName", name, "satisfy regular expression pattern: [a-zA-Z0-9_.-]{3,255}")
        table = Table(request, f"{self._prefix}{name}", self._clock, delay=self._table_delay)
        with self._lock:
            if name in self._tables:
                raise AwsError("ResourceInUseException", f"Table already exists: {name}")
            self._set_stream(table, request)
            self._tables[name] = table
        return {"TableDescription": table.describe()}

    def _set_stream(self, table: Table, request: dict[str, Any]) -> None:
        """Enable or disable the stream of a table if the request has a ``StreamSpecification``."""
        specification = request.get("StreamSpecification")
        if specification is None:
            return
        view_type = view_type_of(specification)
        enabled = table.stream is not None and table.stream.status == "ENABLED"
        if view_type is None:
            if enabled and table.stream is not None:
                table.stream.disable()
        elif enabled:
            raise validation("Table already has an enabled stream")
        else:
            table.stream = self.streams.create(table.name, table.arn, table.schema.description, view_type)

    def describe_table(self, request: dict[str, Any]) -> dict[str, Any]:
        """DescribeTable."""
        table = self.find(request.get("TableName"))
        with table.lock:
            return {"Table": table.describe()}

    def update_table(self, request: dict[str, Any]) -> dict[str, Any]:
        """UpdateTable: indexes, billing mode, throughput, deletion protection, the stream."""
        table = self.find(request.get("TableName"))
        with table.lock:
            if table.status != "ACTIVE":
                raise AwsError(
                    "ResourceInUseException",
                    f"Attempt to change a resource which is still in use: {table.name}",
                )
            self._set_stream(table, request)
            table.define(request.get("AttributeDefinitions"))
            for change in request.get("GlobalSecondaryIndexUpdates") or []:
                kind, body = next(iter(change.items()))
                if kind == "Create":
                    table.add_index(body, delay=self._index_delay)
                elif kind == "Delete":
                    if table.indexes.pop(body.get("IndexName"), None) is None:
                        raise AwsError(
                            "ResourceNotFoundException", f"Requested index not found: {body.get('IndexName')}"
                        )
                elif kind != "Update":
                    raise validation(f"Unknown index change {kind}")
            table.billing_mode = request.get("BillingMode", table.billing_mode)
            table.throughput = request.get("ProvisionedThroughput", table.throughput)
            table.deletion_protection = request.get("DeletionProtectionEnabled", table.deletion_protection)
            return {"TableDescription": table.describe()}

    def delete_table(self, request: dict[str, Any]) -> dict[str, Any]:
        """DeleteTable; the table is deleted when the call returns."""
        table = self.find(request.get("TableName"))
        with self._lock, table.lock:
            if table.deletion_protection:
                raise validation(
                    f"Resource cannot be deleted as it is currently protected against deletion. "
                    f"Disable deletion protection first: {table.name}"
                )
            self._tables.pop(table.name, None)
            if table.stream is not None:
                table.stream.disable()
            return {"TableDescription": {**table.describe(), "TableStatus": "DELETING"}}

    def list_tables(self, request: dict[str, Any]) -> dict[str, Any]:
        """ListTables: 100 names a page by default."""
        limit = request.get("Limit", 100)
        if not isinstance(limit, int) or not 1 <= limit <= 100:
            raise constraint("limit", limit, "have value between 1 and 100, both inclusive")
        after = request.get("ExclusiveStartTableName") or ""
        with self._lock:
            names = sorted(name for name in self._tables if name > after)
        response: dict[str, Any] = {"TableNames": names[:limit]}
        if len(names) > limit:
            response["LastEvaluatedTableName"] = names[limit - 1]
        return response

    def _backups(self, table: Table) -> dict[str, Any]:
        status = "ENABLED" if table.recovery else "DISABLED"
        return {
            "ContinuousBackupsDescription": {
                "ContinuousBackupsStatus": "ENABLED",
                "PointInTimeRecoveryDescription": {"PointInTimeRecoveryStatus": status},
            }
        }

    def update_backups(self, request: dict[str, Any]) -> dict[str, Any]:
        """UpdateContinuousBackups: only stores the setting."""
        table = self.find(request.get("TableName"))
        specification = request.get("PointInTimeRecoverySpecification") or {}
        table.recovery = bool(specification.get("PointInTimeRecoveryEnabled"))
        return self._backups(table)

    def describe_backups(self, request: dict[str, Any]) -> dict[str, Any]:
        """DescribeContinuousBackups."""
        return self._backups(self.find(request.get("TableName")))

    def tag(self, request: dict[str, Any]) -> dict[str, Any]:
        """TagResource."""
        table = self.find(request.get("ResourceArn"))
        with table.lock:
            table.tags.update({tag["Key"]: tag["Value"] for tag in request.get("Tags") or []})
        return {}

    def untag(self, request: dict[str, Any]) -> dict[str, Any]:
        """UntagResource."""
        table = self.find(request.get("ResourceArn"))
        with table.lock:
            for key in request.get("TagKeys") or []:
                table.tags.pop(key, None)
        return {}

    def list_tags(self, request: dict[str, Any]) -> dict[str, Any]:
        """ListTagsOfResource, in one page."""
        table = self.find(request.get("ResourceArn"))
        with table.lock:
            return {"Tags": [{"Key": key, "Value": value} for key, value in sorted(table.tags.items())]}
