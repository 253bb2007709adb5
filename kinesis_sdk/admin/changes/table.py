"""Calls to a lease table: consistent reads of whole items, and one attempt of a conditional write."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kinesis_sdk.admin.changes.rows import Row, RowWrite, WriteKind
from kinesis_sdk.common.aws import call_with_retries, translate_errors
from kinesis_sdk.common.errors import ProtocolError, ResourceNotFoundError
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer.leases.table.lease import LEASE_KEY, Item, is_lease_item

_METHODS = {
    WriteKind.UPDATE: "update_item",
    WriteKind.PUT: "put_item",
    WriteKind.DELETE: "delete_item",
}


@dataclass(frozen=True, kw_only=True)
class TableRead:
    """The whole table, as one consistent scan read it.

    Attributes:
        rows: Every lease, by its key.
        unreadable: Reason why a row could not be read as a lease, by its key.
        others: Items that are not leases, by their key.
        items: Every item.
    """

    rows: Mapping[str, Row]
    unreadable: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, Item] = field(default_factory=dict)
    items: tuple[Item, ...] = field(default=(), repr=False)


class LeaseTableCalls:
    """A lease table in DynamoDB, for changes from outside.

    Args:
        client: boto3 DynamoDB client that makes one attempt per call.
        table_name: Name of the table.
        sleep: Waits between attempts of reads, given seconds.
    """

    def __init__(self, client: Any, table_name: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._client = client
        self.table_name = table_name
        self._sleep = sleep

    def scan(self, *, may_be_missing: bool = False) -> TableRead:
        """Read the whole table consistently.

        Args:
            may_be_missing: Whether a table that does not exist counts as an empty one.

        Raises:
            AwsError: If the calls fail, for example because there is no such table.
            ProtocolError: If a response has no items.
        """
        items: list[Item] = []
        request: dict[str, Any] = {"TableName": self.table_name, "ConsistentRead": True}
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
                raise
            if "Items" not in page:
                raise ProtocolError(f"Scan of {self.table_name}: the response has no Items")
            items.extend(page["Items"])
            last = page.get("LastEvaluatedKey")
            if not last:
                return decode(items)
            request["ExclusiveStartKey"] = last

    def get(self, lease_key: str) -> Item | None:
        """Read one row consistently; None if there is none."""
        response = call_with_retries(
            lambda: self._client.get_item(
                TableName=self.table_name, Key={LEASE_KEY: {"S": lease_key}}, ConsistentRead=True
            ),
            operation="GetItem",
            client=self._client,
            sleep=self._sleep,
        )
        item: Item | None = response.get("Item")
        return item

    def send(self, write: RowWrite) -> None:
        """Make one attempt of a write.

        Raises:
            ConditionFailedError: If its condition does not hold.
            AwsError: If the call failed. After a retryable error, it may have taken effect.
        """
        with translate_errors(write.kind.value, self._client):
            getattr(self._client, _METHODS[write.kind])(**write.request(self.table_name))


def decode(items: list[Item]) -> TableRead:
    """Return the rows of a table's items."""
    rows: dict[str, Row] = {}
    unreadable: dict[str, str] = {}
    others: dict[str, Item] = {}
    for item in items:
        key = str(item.get(LEASE_KEY, {}).get("S", ""))
        if not is_lease_item(item):
            others[key] = item
            continue
        try:
            rows[key] = Row.of(item)
        except ValueError as error:
            unreadable[printable(key)] = str(error)
    return TableRead(rows=rows, unreadable=unreadable, others=others, items=tuple(items))
