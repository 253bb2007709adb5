"""DynamoDB operations on items: reads, conditional writes, queries, scans, batches, transactions.

Table administration is in `table_admin`. Values are in wire form throughout.
"""

from __future__ import annotations

import contextlib
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Any

from kinesis_sdk.testing.dynamodb import legacy
from kinesis_sdk.testing.dynamodb.attributes import Item, Value, item_size, normalise_item
from kinesis_sdk.testing.dynamodb.evaluation import evaluate, project
from kinesis_sdk.testing.dynamodb.expressions import Node, Parser, Path, Placeholders, paths_in
from kinesis_sdk.testing.dynamodb.table_admin import TableAdmin
from kinesis_sdk.testing.dynamodb.tables import Index, KeySchema, Place, Table, digest_of, partition
from kinesis_sdk.testing.dynamodb.updates import apply_actions, apply_attribute_updates
from kinesis_sdk.testing.errors import AwsError, validation

_PAGE_BYTES = 1 << 20
_EXPRESSIONS = (
    "ConditionExpression",
    "UpdateExpression",
    "FilterExpression",
    "KeyConditionExpression",
    "ProjectionExpression",
)
_LEGACY = ("Expected", "AttributeUpdates", "KeyConditions", "QueryFilter", "ScanFilter", "AttributesToGet")
_SORT_CONDITIONS = ("compare", "between", "begins_with")

_Change = tuple[Table, "Item | None", "Item | None"]


def _check_parameters(request: dict[str, Any]) -> Placeholders:
    old = [member for member in _LEGACY if request.get(member) is not None]
    new = [member for member in _EXPRESSIONS if request.get(member) is not None]
    if old and new:
        raise validation(
            "Can not use both expression and non-expression parameters in the same request: Non-expression parameters: "
            f"{{{', '.join(old)}}} Expression parameters: {{{', '.join(new)}}}"
        )
    return Placeholders(request)


def _finish(request: dict[str, Any], placeholders: Placeholders) -> None:
    placeholders.finish(any_expression=any(request.get(member) is not None for member in _EXPRESSIONS))


def _condition(request: dict[str, Any], placeholders: Placeholders) -> Node | None:
    text = request.get("ConditionExpression")
    if text is None:
        return legacy.expected(request)
    return Parser(text, placeholders, "ConditionExpression").condition()


def _projection(request: dict[str, Any], placeholders: Placeholders) -> list[Path] | None:
    text = request.get("ProjectionExpression")
    if text is not None:
        return Parser(text, placeholders, "ProjectionExpression").projection()
    names = request.get("AttributesToGet")
    return [(name,) for name in names] if names else None


def _filter(request: dict[str, Any], placeholders: Placeholders, member: str) -> Node | None:
    text = request.get("FilterExpression")
    if text is None:
        return legacy.filters(request, member)
    return Parser(text, placeholders, "FilterExpression").condition()


class FakeDynamoDB:
    """The DynamoDB service of one account and region. Thread-safe: one lock per table.

    `operations` maps an operation's name to a function that takes a request and returns a response, both in wire form.
    """

    target_prefix = "DynamoDB_20120810"

    def __init__(self, admin: TableAdmin) -> None:
        self.admin = admin
        self.operations: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            **admin.operations,
            "PutItem": self.put_item,
            "GetItem": self.get_item,
            "UpdateItem": self.update_item,
            "DeleteItem": self.delete_item,
            "Query": self.query,
            "Scan": self.scan,
            "BatchGetItem": self.batch_get_item,
            "BatchWriteItem": self.batch_write_item,
            "TransactWriteItems": self.transact_write_items,
        }

    def _table(self, request: dict[str, Any]) -> Table:
        table = self.admin.find(request.get("TableName"))
        table.require_active()
        return table

    # -- writes -------------------------------------------------------------------------------------------------

    def _prepare(self, kind: str, table: Table, request: dict[str, Any]) -> _Change:
        """Check a write under the table's lock; return the table, the old item and the new item."""
        placeholders = _check_parameters(request)
        condition = _condition(request, placeholders)
        actions: list[Node] = []
        if request.get("UpdateExpression") is not None:
            actions = Parser(request["UpdateExpression"], placeholders, "UpdateExpression").update()
        _finish(request, placeholders)
        if kind == "Put":
            item = normalise_item(request.get("Item"))
            table.check_item(item)
            key = table.key_of(item)
        else:
            item = table.check_key(request.get("Key"))
            key = table.key_of(item)
        old = table.get(key)
        if condition is not None and not evaluate(condition, old or {}):
            members = {}
            if old is not None and request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD":
                members["Item"] = old
            raise AwsError(
                "ConditionalCheckFailedException", "The conditional request failed", members=members
            )
        if kind == "Put":
            return table, old, item
        if kind == "Delete":
            return table, old, None
        if kind == "ConditionCheck":
            return table, old, old
        updates = request.get("AttributeUpdates") or {}
        touched = {action[1][0] for action in actions} | set(updates)
        for name in table.schema.names:
            if name in touched:
                raise validation(
                    f"One or more parameter values were invalid: Cannot update attribute {name}. This attribute is "
                    "part of the key"
                )
        base = old if old is not None else item
        new = apply_actions(base, actions) if actions else apply_attribute_updates(base, updates)
        table.check_item(new)
        return table, old, new

    @staticmethod
    def _commit(change: _Change) -> None:
        table, old, new = change
        if new is not None:
            table.put(new)
        elif old is not None:
            table.remove(table.key_of(old))
        if table.stream is not None:
            table.stream.write(old, new)

    def _write(self, kind: str, request: dict[str, Any]) -> _Change:
        table = self._table(request)
        with table.lock:
            change = self._prepare(kind, table, request)
            self._commit(change)
        return change

    def put_item(self, request: dict[str, Any]) -> dict[str, Any]:
        """PutItem."""
        wanted = self._return_values(request, ("NONE", "ALL_OLD"))
        table, old, new = self._write("Put", request)
        response = _write_capacity(request, table, old, new)
        if wanted == "ALL_OLD" and old is not None:
            response["Attributes"] = old
        return response

    def delete_item(self, request: dict[str, Any]) -> dict[str, Any]:
        """DeleteItem; deleting a missing item succeeds."""
        wanted = self._return_values(request, ("NONE", "ALL_OLD"))
        table, old, new = self._write("Delete", request)
        response = _write_capacity(request, table, old, new)
        if wanted == "ALL_OLD" and old is not None:
            response["Attributes"] = old
        return response

    def update_item(self, request: dict[str, Any]) -> dict[str, Any]:
        """UpdateItem; a missing item is created."""
        wanted = self._return_values(request, ("NONE", "ALL_OLD", "ALL_NEW", "UPDATED_OLD", "UPDATED_NEW"))
        table, old, new = self._write("Update", request)
        response = _write_capacity(request, table, old, new)
        before, after = old or {}, new or {}
        if wanted == "ALL_NEW":
            response["Attributes"] = after
        elif wanted == "ALL_OLD" and old is not None:
            response["Attributes"] = old
        elif wanted in {"UPDATED_OLD", "UPDATED_NEW"}:
            source = before if wanted == "UPDATED_OLD" else after
            touched = _touched(request)
            updated = {name: value for name, value in source.items() if name in touched}
            if updated:
                response["Attributes"] = updated
        return response

    @staticmethod
    def _return_values(request: dict[str, Any], choices: tuple[str, ...]) -> str:
        wanted = request.get("ReturnValues", "NONE")
        if wanted not in choices:
            raise validation(
                f"Return values set to invalid value: {wanted}; choose from {', '.join(choices)}"
            )
        return str(wanted)

    # -- reads --------------------------------------------------------------------------------------------------

    def get_item(self, request: dict[str, Any]) -> dict[str, Any]:
        """GetItem."""
        table = self._table(request)
        placeholders = _check_parameters(request)
        paths = _projection(request, placeholders)
        _finish(request, placeholders)
        with table.lock:
            key = table.key_of(table.check_key(request.get("Key")))
            item, size = table.get(key), table.size_of(key)
        response = _read_capacity(request, table, size)
        if item is not None:
            response["Item"] = project(item, paths)
        return response

    def query(self, request: dict[str, Any]) -> dict[str, Any]:
        """Query of a table or a global secondary index."""
        table = self._table(request)
        placeholders = _check_parameters(request)
        text = request.get("KeyConditionExpression")
        if text is not None:
            key_condition: Node | None = Parser(text, placeholders, "KeyConditionExpression").condition()
        else:
            key_condition = legacy.filters(request, "KeyConditions")
        if key_condition is None:
            raise validation(
                "Either the KeyConditions or KeyConditionExpression parameter must be specified in the request."
            )
        item_filter = _filter(request, placeholders, "QueryFilter")
        paths = _projection(request, placeholders)
        _finish(request, placeholders)
        with table.lock:
            index = _index(request, table)
            schema, order = (table.schema, table.order) if index is None else (index.schema, index.order)
            wanted, sort_condition = _split_key_condition(key_condition, schema)
            for path in paths_in(item_filter):
                if path[0] in schema.names:
                    raise validation(
                        "Filter Expression can only contain non-primary key attributes: "
                        f"Primary key attribute: {path[0]}"
                    )
            places = partition(order, digest_of(wanted))
            if request.get("ScanIndexForward") is False:
                places.reverse()
            start = request.get("ExclusiveStartKey")
            if start is not None:
                place = _start_place(table, index, start)
                if request.get("ScanIndexForward") is False:
                    places = [other for other in places if other < place]
                else:
                    places = places[bisect_right(places, place) :]
            if sort_condition is not None:
                places = [place for place in places if evaluate(sort_condition, table.get(place[2]) or {})]
            return _page(request, table, index, places, item_filter, paths)

    def scan(self, request: dict[str, Any]) -> dict[str, Any]:
        """Scan of a whole table or index, or of one of several segments."""
        table = self._table(request)
        placeholders = _check_parameters(request)
        item_filter = _filter(request, placeholders, "ScanFilter")
        paths = _projection(request, placeholders)
        _finish(request, placeholders)
        segments = _segments(request)
        with table.lock:
            index = _index(request, table)
            places = table.order if index is None else index.order
            if segments is not None:
                low, high = (bisect_left(places, edge, key=lambda place: place[0]) for edge in segments)
                places = places[low:high]
            start = request.get("ExclusiveStartKey")
            if start is not None:
                places = places[bisect_right(places, _start_place(table, index, start)) :]
            return _page(request, table, index, places, item_filter, paths)

    # -- batches ------------------------------------------------------------------------------------------------

    def batch_get_item(self, request: dict[str, Any]) -> dict[str, Any]:
        """BatchGetItem: up to 100 keys."""
        wanted = request.get("RequestItems") or {}
        if not 1 <= sum(len(part.get("Keys") or []) for part in wanted.values()) <= 100:
            raise validation("Too many or no items requested for the BatchGetItem call: between 1 and 100")
        responses: dict[str, list[Item]] = {}
        for name, part in wanted.items():
            table = self._table({"TableName": name})
            keys = [table.key_of(table.check_key(key)) for key in part["Keys"]]
            if len(set(keys)) < len(keys):
                raise validation("Provided list of item keys contains duplicates")
            found = (self.get_item({**part, "TableName": name, "Key": key}) for key in part["Keys"])
            responses[name] = [response["Item"] for response in found if "Item" in response]
        return {"Responses": responses, "UnprocessedKeys": {}}

    def batch_write_item(self, request: dict[str, Any]) -> dict[str, Any]:
        """BatchWriteItem: up to 25 independent puts and deletes."""
        wanted = request.get("RequestItems") or {}
        if not 1 <= sum(len(part) for part in wanted.values()) <= 25:
            raise validation("Too many or no items in the BatchWriteItem call: between 1 and 25")
        for name, writes in wanted.items():
            table = self._table({"TableName": name})
            keys = []
            for write in writes:
                kind, body = next(iter(write.items()))
                if kind == "PutRequest":
                    item = normalise_item(body.get("Item"))
                    table.check_item(item)
                    keys.append(table.key_of(item))
                elif kind == "DeleteRequest":
                    keys.append(table.key_of(table.check_key(body.get("Key"))))
                else:
                    raise validation("Supplied write request must be a PutRequest or a DeleteRequest")
            if len(set(keys)) < len(keys):
                raise validation("Provided list of item keys contains duplicates")
        # One invalid entry rejects the whole batch, so all entries are checked before anything is written.
        for name, writes in wanted.items():
            for write in writes:
                kind, body = next(iter(write.items()))
                self._write(kind.removesuffix("Request"), {**body, "TableName": name})
        return {"UnprocessedItems": {}}

    def transact_write_items(self, request: dict[str, Any]) -> dict[str, Any]:
        """TransactWriteItems: up to 100 writes and checks, which all succeed or all fail.

        A TransactionCanceledException has one reason for each action.
        """
        actions = [next(iter(action.items())) for action in request.get("TransactItems") or []]
        if not 1 <= len(actions) <= 100:
            raise validation("A transaction needs between 1 and 100 actions")
        for kind, _ in actions:
            if kind not in {"Put", "Update", "Delete", "ConditionCheck"}:
                raise validation(f"Unknown transaction action {kind}")
        tables = {table.name: table for _, body in actions for table in [self._table(body)]}
        with contextlib.ExitStack() as locks:
            # Lock in order of the names. Otherwise one transaction could hold A and wait for B, while another
            # holds B and waits for A.
            for name in sorted(tables):
                locks.enter_context(tables[name].lock)
            changes: list[_Change] = []
            reasons: list[dict[str, Any]] = []
            seen: set[tuple[str, tuple[str, ...]]] = set()
            for kind, body in actions:
                table = self._table(body)
                source = body.get("Item") if kind == "Put" else body.get("Key")
                try:
                    changes.append(self._prepare(kind, table, body))
                    key = (table.name, table.key_of(normalise_item(source)))
                except AwsError as error:
                    if error.code != "ConditionalCheckFailedException":
                        raise
                    reasons.append(
                        {"Code": "ConditionalCheckFailed", "Message": error.message, **error.members}
                    )
                    continue
                if key in seen:
                    raise validation("Transaction request cannot include multiple operations on one item")
                seen.add(key)
                reasons.append({"Code": "None"})
            codes = [reason["Code"] for reason in reasons]
            if set(codes) != {"None"}:
                raise AwsError(
                    "TransactionCanceledException",
                    "Transaction cancelled, please refer cancellation reasons for specific reasons "
                    f"[{', '.join(codes)}]",
                    members={"CancellationReasons": reasons},
                )
            for change in changes:
                self._commit(change)
        return {}


def _index(request: dict[str, Any], table: Table) -> Index | None:
    name = request.get("IndexName")
    if name is None:
        return None
    if request.get("ConsistentRead"):
        raise validation("Consistent reads are not supported on global secondary indexes")
    return table.require_index(name)


def _touched(request: dict[str, Any]) -> set[str]:
    text = request.get("UpdateExpression")
    if text is None:
        return set(request.get("AttributeUpdates") or {})
    return {action[1][0] for action in Parser(text, Placeholders(request), "UpdateExpression").update()}


def _split_key_condition(node: Node, schema: KeySchema) -> tuple[Value, Node | None]:
    """Return the value of the partition key and the condition on the sort key."""
    parts = [node[1], node[2]] if node[0] == "and" else [node]
    wanted: Value | None = None
    sort: Node | None = None
    for part in parts:
        name = part[1][1][0] if part[0] in _SORT_CONDITIONS and part[1][0] == "path" else None
        if name == schema.names[0] and part[0] == "compare" and part[2] == "=" and part[3][0] == "value":
            wanted = part[3][1]
        elif (
            len(schema.names) > 1
            and name == schema.names[1]
            and sort is None
            and not (part[0] == "compare" and part[2] == "<>")
        ):
            sort = part
        else:
            raise validation("Query key condition not supported")
    if wanted is None:
        raise validation(f"Query condition missed key schema element: {schema.names[0]}")
    if next(iter(wanted)) != schema.types[schema.names[0]]:
        raise validation(
            "One or more parameter values were invalid: Condition parameter type does not match schema type"
        )
    return wanted, sort


def _segments(request: dict[str, Any]) -> tuple[bytes, bytes] | None:
    """Return the first digest of the requested scan segment and of the following segment; None for an unsegmented scan."""
    segment, total = request.get("Segment"), request.get("TotalSegments")
    if segment is None and total is None:
        return None
    if segment is None or total is None or not 1 <= total <= 1_000_000 or not 0 <= segment < total:
        raise validation(
            f"Segment ({segment}) and TotalSegments ({total}) belong together, and Segment must be smaller"
        )
    return _edge(segment, total), _edge(segment + 1, total)


def _edge(segment: int, total: int) -> bytes:
    """Return the first digest of a scan segment; past the last segment, a value above all digests."""
    return (-(-(segment << 128) // total)).to_bytes(16, "big") if segment < total else b"\xff" * 17


def _start_place(table: Table, index: Index | None, start: Any) -> Place:
    schema = table.schema if index is None else index.schema
    key = normalise_item(start, "ExclusiveStartKey")
    if set(key) != {*table.schema.names, *schema.names}:
        raise validation("The provided starting key is invalid")
    return schema.place(key, table.key_of(key))


def _page(
    request: dict[str, Any],
    table: Table,
    index: Index | None,
    places: list[Place],
    item_filter: Node | None,
    paths: list[Path] | None,
) -> dict[str, Any]:
    limit = request.get("Limit")
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise validation(f"Limit must be at least 1, not {limit}")
    found: list[Item] = []
    size = scanned = 0
    last: Item | None = None
    for place in places:
        stored = table.get(place[2]) or {}
        item = stored if index is None else index.view(stored, table.schema)
        size += table.size_of(place[2]) if index is None else item_size(item)
        scanned += 1
        if item_filter is None or evaluate(item_filter, item):
            found.append(item)
        if scanned == limit or size >= _PAGE_BYTES:
            last = stored
            break
    response = _read_capacity(request, table, size)
    response["Count"] = len(found)
    response["ScannedCount"] = scanned
    if request.get("Select") != "COUNT":
        response["Items"] = [project(item, paths) for item in found]
    if last is not None:
        names = [*table.schema.names, *(index.schema.names if index is not None else ())]
        response["LastEvaluatedKey"] = {name: last[name] for name in names}
    return response


def _wants_capacity(request: dict[str, Any]) -> bool:
    return bool(request.get("ReturnConsumedCapacity", "NONE") != "NONE")


def _capacity(table: Table, units: float) -> dict[str, Any]:
    return {"ConsumedCapacity": {"TableName": table.name, "CapacityUnits": units}}


def _read_capacity(request: dict[str, Any], table: Table, size: int) -> dict[str, Any]:
    if not _wants_capacity(request):
        return {}
    units = max(1, math.ceil(size / 4096)) * (1.0 if request.get("ConsistentRead") else 0.5)
    return _capacity(table, units)


def _write_capacity(
    request: dict[str, Any], table: Table, old: Item | None, new: Item | None
) -> dict[str, Any]:
    if not _wants_capacity(request):
        return {}
    size = max((item_size(item) for item in (old, new) if item is not None), default=0)
    return _capacity(table, float(max(1, math.ceil(size / 1024))))
