"""A sink in DynamoDB: one TransactWriteItems contains the handler's writes and the position of the shard.

The position is in a table of its own, not in the lease's row: a heartbeat that meets a transaction on the same item fails
(TransactionConflict), and the sink must work with any lease store.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kinesis_sdk.common.aws import call_with_retries, translate_error, translate_errors
from kinesis_sdk.common.errors import (
    AwsError,
    ConditionFailedError,
    ConfigError,
    EffectRejectedError,
    KinesisSdkError,
    ResourceNotFoundError,
    SinkError,
    TransientSinkError,
)
from kinesis_sdk.common.paging import PageLimit
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.validation import check_int, check_text
from kinesis_sdk.consumer.sinks.sink import SinkKey, SinkRow

MAX_ACTIONS = 99
"""Maximum effects of a transaction: DynamoDB's 100 actions less one action for the position."""

MAX_BYTES = 4 * 1024 * 1024
"""Maximum bytes of all items of a transaction."""

MAX_ITEM_BYTES = 400 * 1024
"""Maximum bytes of an item."""

_POSITION_BYTES = 2048
"""Upper bound of the size of the item with the position."""

_TABLE_WAIT, _POLL_INTERVAL = 600.0, 0.5

_ARN = re.compile(r"arn:[a-z0-9-]+:dynamodb:(?P<region>[a-z0-9-]+):[0-9]*:table/(?P<name>[^/]+)")

_BUSY = frozenset(
    {
        "TransactionConflict",
        "ThrottlingError",
        "ProvisionedThroughputExceeded",
        "TransactionInProgressException",
    }
)
"""Transient reasons for the cancellation of a transaction."""

_KEY = "shard"
_NUMBER, _SUB, _FENCE, _ENDED = "sequenceNumber", "subSequenceNumber", "fence", "ended"


class SinkDynamoDBClient(Protocol):
    """The part of boto3's DynamoDB client that the sink needs."""

    @property
    def meta(self) -> Any:
        """Region and endpoint."""
        ...

    def create_table(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """CreateTable."""
        ...

    def describe_table(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """DescribeTable."""
        ...

    def get_item(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """GetItem."""
        ...

    def put_item(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """PutItem."""
        ...

    def scan(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """Scan."""
        ...

    def delete_item(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """DeleteItem."""
        ...

    def transact_write_items(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """TransactWriteItems."""
        ...


class DynamoDBEffects:
    """The effects of a transaction, collected by the handler and sent when it returns.

    Each method takes the record that causes the effect, which errors name, and the parameters of the action in
    TransactWriteItems, in the types of boto3's client.

    ```python
    batch.transaction.put(record, TableName="orders", Item={"id": {"S": record.id}, "total": {"N": "7"}})
    ```

    Raises:
        EffectRejectedError: Raised by each method if the transaction would be larger than DynamoDB accepts; it names the record.
    """

    def __init__(self, sink: DynamoDBSink) -> None:
        self.actions: list[dict[str, Any]] = []
        self.causes: list[str] = []
        self._sink = sink
        self._bytes = _POSITION_BYTES
        self._items: dict[tuple[str, str], str] = {}

    def put(self, record: UserRecord | None, **action: Any) -> None:
        """Put an item: ``TableName``, ``Item`` and optionally a condition."""
        self._add("Put", record, action)

    def update(self, record: UserRecord | None, **action: Any) -> None:
        """Update an item: ``TableName``, ``Key``, ``UpdateExpression`` and optionally a condition."""
        self._add("Update", record, action)

    def delete(self, record: UserRecord | None, **action: Any) -> None:
        """Delete an item: ``TableName``, ``Key`` and optionally a condition."""
        self._add("Delete", record, action)

    def check(self, record: UserRecord | None, **action: Any) -> None:
        """Require a state of an item that is not written: ``TableName``, ``Key``, ``ConditionExpression``."""
        self._add("ConditionCheck", record, action)

    def _add(self, kind: str, record: UserRecord | None, action: dict[str, Any]) -> None:
        cause = _name(record)
        table = str(action.get("TableName", ""))
        content = action.get("Item" if kind == "Put" else "Key")
        if not table or not isinstance(content, Mapping):
            needed = "Item" if kind == "Put" else "Key"
            raise EffectRejectedError(f"{cause}: {kind} needs TableName and {needed}")
        region = self._sink.region
        arn = _ARN.fullmatch(table)
        if arn is not None and region is not None and arn["region"] != region:
            raise EffectRejectedError(
                f"{cause}: table {arn['name']} is in region {arn['region']}, and a transaction is in one region, here {region}"
            )
        if len(self.actions) == MAX_ACTIONS:
            raise EffectRejectedError(
                f"{cause}: its effect is number {MAX_ACTIONS + 1} of the transaction, and DynamoDB accepts {MAX_ACTIONS} besides the "
                f"position. Set DynamoDBSink(max_records=…) to {MAX_ACTIONS} divided by the effects of a record"
            )
        size = _bytes_of(content)
        if kind == "Put" and size > MAX_ITEM_BYTES:
            raise EffectRejectedError(
                f"{cause}: its item has {size} bytes, and DynamoDB accepts {MAX_ITEM_BYTES}"
            )
        size += _bytes_of(action.get("ExpressionAttributeValues") or {})
        if self._bytes + size > MAX_BYTES:
            raise EffectRejectedError(
                f"{cause}: with its effect of {size} bytes the transaction has {self._bytes + size}, and DynamoDB accepts "
                f"{MAX_BYTES}. Set DynamoDBSink(max_records=…) to fewer records"
            )
        name = table if arn is None else arn["name"]
        names = self._sink.key_of(table) if kind == "Put" else sorted(content)
        item = (name, repr([(part, content.get(part)) for part in sorted(names)]))
        other = self._items.get(item)
        if other is not None:
            raise EffectRejectedError(
                f"{cause}: its effect concerns the same item of table {name} as that of {other}, and DynamoDB accepts one action for "
                "an item in a transaction. Join them, for example by adding up the records of the batch"
            )
        self._items[item] = cause
        self._bytes += size
        self.actions.append({kind: action})
        self.causes.append(cause)


class DynamoDBTransaction:
    """A transaction of a `DynamoDBSink`: `handle` collects the effects, and nothing is sent before the commit."""

    def __init__(self, sink: DynamoDBSink, key: SinkKey, seen: SinkRow) -> None:
        self.handle: DynamoDBEffects = DynamoDBEffects(sink)
        self._sink = sink
        self._key = key
        self._seen = seen

    def commit(self, row: SinkRow) -> bool:
        """Send the effects and the new position in one call."""
        return self._sink.change(self._key, self._seen, row, self.handle)

    def rollback(self) -> None:
        """Do nothing: nothing was sent."""


class DynamoDBSink:
    """A `Sink` in DynamoDB. ``batch.transaction`` is a `DynamoDBEffects`.

    ```python
    sink = DynamoDBSink(boto3.client("dynamodb"), "totals-positions")

    def handle(batch):
        for record in batch.records:
            batch.transaction.put(record, TableName="orders", Item={"id": {"S": record.id}})

    Worker("orders", application_name="totals", handler=handle, sink=sink).run()
    ```

    Each call of the handler gets at most ``max_records`` records and has its own transaction. Effects can be in any table of the account
    and region. This costs twice the write units of the effects, and two for each position.

    Args:
        client: boto3 DynamoDB client.
        table_name: Table with the positions, which several applications can share; created with on-demand capacity if it is
            missing.
        max_records: Records of a transaction, 1 to 99: at most 99 divided by the effects of a record.
        sleep: Replaces `time.sleep` in waits, for tests.

    Attributes:
        table_name: See above.
        max_records: See above.

    Raises:
        ConfigError: If a value is not accepted.
    """

    serves_coroutines: bool = True

    def __init__(
        self,
        client: SinkDynamoDBClient,
        table_name: str,
        *,
        max_records: int = MAX_ACTIONS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        check_text("table_name", table_name, 3, 255)
        check_int("max_records", max_records, 1, MAX_ACTIONS)
        self.table_name = table_name
        self.max_records: int | None = max_records
        self._client = client
        self._sleep = sleep
        self._keys: dict[str, list[str]] = {}

    @property
    def region(self) -> str | None:
        """Region of the client; None if unknown."""
        region: str | None = getattr(getattr(self._client, "meta", None), "region_name", None)
        return region

    def ensure_ready(self) -> None:
        """Create the table if it is missing, and wait until it is usable.

        Raises:
            ConfigError: If a table of this name has another key.
            SinkError: If the table cannot be used.
        """
        try:
            self._ensure_table()
        except AwsError as error:
            raise _sink_error(error) from error

    def _ensure_table(self) -> None:
        waited = 0.0
        while True:
            try:
                table = self._describe(self.table_name)
            except ResourceNotFoundError:
                self._create()
            else:
                names = [part["AttributeName"] for part in table["KeySchema"]]
                if names != [_KEY]:
                    raise ConfigError(
                        "table_name", self.table_name, f"a table with the key {_KEY!r}, not {names}"
                    )
                if table.get("TableStatus", "ACTIVE") in ("ACTIVE", "UPDATING"):
                    return
            if waited >= _TABLE_WAIT:
                raise TransientSinkError(f"table {self.table_name} is not ACTIVE after {_TABLE_WAIT:g} s")
            self._sleep(_POLL_INTERVAL)
            waited += _POLL_INTERVAL

    def _describe(self, table_name: str) -> Mapping[str, Any]:
        response = call_with_retries(
            lambda: self._client.describe_table(TableName=table_name),
            operation="DescribeTable",
            client=self._client,
            sleep=self._sleep,
        )
        table: Mapping[str, Any] = response["Table"]
        return table

    def _create(self) -> None:
        try:
            with translate_errors("CreateTable", self._client):
                self._client.create_table(
                    TableName=self.table_name,
                    AttributeDefinitions=[{"AttributeName": _KEY, "AttributeType": "S"}],
                    KeySchema=[{"AttributeName": _KEY, "KeyType": "HASH"}],
                    BillingMode="PAY_PER_REQUEST",
                )
        except AwsError as error:
            if (
                error.code != "ResourceInUseException" and not error.retryable
            ):  # in use: another worker creates it
                raise

    def key_of(self, table_name: str) -> list[str]:
        """Return the names of a table's key attributes. Makes one DescribeTable call for each table.

        Raises:
            KinesisSdkError: If the call failed.
        """
        names = self._keys.get(table_name)
        if names is None:
            try:
                table = self._describe(table_name)
            except AwsError as error:
                raise _sink_error(error) from error
            names = self._keys[table_name] = [part["AttributeName"] for part in table["KeySchema"]]
        return names

    def read(self, key: SinkKey) -> SinkRow | None:
        """Return a row, or None."""
        try:
            with translate_errors("GetItem", self._client):
                response = self._client.get_item(
                    TableName=self.table_name, Key=_item_key(key), ConsistentRead=True
                )
        except AwsError as error:
            raise _sink_error(error) from error
        item = response.get("Item")
        if item is None:
            return None
        position = (
            ExtendedSequenceNumber(item[_NUMBER]["S"], int(item[_SUB]["N"])) if _NUMBER in item else None
        )
        return SinkRow(position, int(item[_FENCE]["N"]), bool(item[_ENDED]["BOOL"]))

    def write(self, key: SinkKey, seen: SinkRow | None, row: SinkRow) -> bool:
        """Change or create a row."""
        try:
            with translate_errors("PutItem", self._client):
                self._client.put_item(**self._put(key, seen, row))
        except ConditionFailedError:
            return False
        except AwsError as error:
            raise _sink_error(error) from error
        return True

    def begin(self, key: SinkKey, seen: SinkRow) -> DynamoDBTransaction:
        """Begin a transaction, whose commit checks that the row has not changed."""
        return DynamoDBTransaction(self, key, seen)

    def lease_keys(self, application: str, stream: str) -> list[str]:
        """Return the lease keys of all rows of an application and a stream. Makes a Scan of the table with the positions."""
        found: list[str] = []
        more: dict[str, Any] = {}
        limit = PageLimit(f"Scan of {self.table_name}", 10_000)
        while True:
            try:
                with translate_errors("Scan", self._client):
                    page = self._client.scan(
                        TableName=self.table_name,
                        ProjectionExpression="#k",
                        ExpressionAttributeNames={"#k": _KEY},
                        **more,
                    )
            except AwsError as error:
                raise _sink_error(error) from error
            for item in page.get("Items", ()):
                parts = item[_KEY]["S"].split("/", 2)
                if parts[0] == stream and parts[2] == application:
                    found.append(parts[1])
            if not page.get("LastEvaluatedKey"):
                return found
            more = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
            limit.check(page["LastEvaluatedKey"])

    def delete_ended(self, key: SinkKey) -> bool:
        """Delete the row of a finished shard."""
        try:
            with translate_errors("DeleteItem", self._client):
                self._client.delete_item(
                    TableName=self.table_name,
                    Key=_item_key(key),
                    ConditionExpression="#e = :e",
                    ExpressionAttributeNames={"#e": _ENDED},
                    ExpressionAttributeValues={":e": {"BOOL": True}},
                )
        except ConditionFailedError:
            return False
        except AwsError as error:
            raise _sink_error(error) from error
        return True

    def translate(self, error: BaseException) -> BaseException:
        """Return the error: the handler makes no calls through the sink."""
        return error

    def change(self, key: SinkKey, seen: SinkRow, row: SinkRow, effects: DynamoDBEffects) -> bool:
        """Send effects and a row in one transaction, if the current row is ``seen``."""
        actions = [{"Put": self._put(key, seen, row)}, *effects.actions]
        try:
            self._client.transact_write_items(TransactItems=actions)
        except Exception as error:
            reasons = _cancellation_reasons(error)
            if reasons is None:
                translated = translate_error(error, "TransactWriteItems", self._client)
                raise _sink_error(translated) from error
            if reasons[0].get("Code") == "ConditionalCheckFailed":
                return False
            raise _cancelled(reasons, effects.causes) from error
        return True

    def _put(self, key: SinkKey, seen: SinkRow | None, row: SinkRow) -> dict[str, Any]:
        request: dict[str, Any] = {
            "TableName": self.table_name,
            "Item": {**_item_key(key), **_attributes(row)},
        }
        names = {"#k": _KEY}
        if seen is None:
            return {
                **request,
                "ConditionExpression": "attribute_not_exists(#k)",
                "ExpressionAttributeNames": names,
            }
        conditions, values = [], {}
        held = _attributes(seen)
        for index, name in enumerate((_NUMBER, _SUB, _FENCE, _ENDED)):
            names[f"#{index}"] = name
            if name in held:
                conditions.append(f"#{index} = :{index}")
                values[f":{index}"] = held[name]
            else:
                conditions.append(f"attribute_not_exists(#{index})")
        return {
            **request,
            "ConditionExpression": " AND ".join(["attribute_exists(#k)", *conditions]),
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
        }


def _item_key(key: SinkKey) -> dict[str, Any]:
    # The names of streams and lease keys have no slash. The application's name comes last, because it may have a slash.
    return {_KEY: {"S": f"{key.stream}/{key.lease_key}/{key.application}"}}


def _attributes(row: SinkRow) -> dict[str, Any]:
    attributes: dict[str, Any] = {_FENCE: {"N": str(row.fence)}, _ENDED: {"BOOL": row.ended}}
    if row.position is not None:
        attributes[_NUMBER] = {"S": row.position.sequence_number}
        attributes[_SUB] = {"N": str(row.position.sub_sequence_number)}
    return attributes


def _name(record: UserRecord | None) -> str:
    return "a write without a record" if record is None else f"record {_place(record)}"


def _place(record: UserRecord) -> str:
    return f"{record.sequence_number}/{record.sub_sequence_number}"


def _bytes_of(value: Any) -> int:
    """Return the size in an item of a value in DynamoDB's wire form, by DynamoDB's rules, rounded up."""
    if isinstance(value, Mapping):
        if len(value) == 1 and (kind := next(iter(value))) in ("N", "BOOL", "NULL"):
            return 21 if kind == "N" else 1
        return 3 + sum(len(str(name).encode()) + 1 + _bytes_of(part) for name, part in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return 3 + sum(1 + _bytes_of(part) for part in value)
    return len(value) if isinstance(value, (bytes, bytearray)) else len(str(value).encode())


def _sink_error(error: KinesisSdkError) -> SinkError:
    return (TransientSinkError if error.retryable else SinkError)(str(error))


def _cancellation_reasons(error: Exception) -> list[Mapping[str, Any]] | None:
    """Return the reason for each action, the position's reason first; None if the transaction was not cancelled."""
    response = getattr(error, "response", None) or {}
    if response.get("Error", {}).get("Code") != "TransactionCanceledException":
        return None
    return response.get("CancellationReasons") or None


def _cancelled(reasons: list[Mapping[str, Any]], causes: list[str]) -> KinesisSdkError:
    """Return the error of a transaction that was cancelled for a reason other than the position."""
    named = ["the position", *causes]
    bad = [
        (cause, reason) for cause, reason in zip(named, reasons, strict=False) if reason.get("Code") != "None"
    ]
    cause, reason = next((one for one in bad if one[1].get("Code") not in _BUSY), bad[0])
    code, message = str(reason.get("Code")), str(reason.get("Message") or "no message")
    if code in _BUSY:
        return TransientSinkError(f"the transaction was cancelled: {code}: {cause}: {message}")
    return EffectRejectedError(f"{cause}: {code}: {message}")
