"""The feature script of DynamoDB: the requests that a lease store can make, and the corner cases of each."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from kinesis_sdk.verify.notes import Notes


def item(key: str = "a", **more: Any) -> dict[str, Any]:
    """Return an item with a key."""
    return {"k": {"S": key}, **more}


def scenario_tables(notes: Notes) -> None:
    """Create, index, protect and delete tables."""
    dynamodb = notes.dynamodb
    name = notes.table()
    keys: dict[str, Any] = {
        "KeySchema": [{"AttributeName": "k", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "k", "AttributeType": "S"}],
        "BillingMode": "PAY_PER_REQUEST",
    }
    notes.call("create: exists already", dynamodb.create_table, TableName=name, **keys)
    notes.call("create: bad name", dynamodb.create_table, TableName="a b", **keys)
    notes.call(
        "create: key not defined",
        dynamodb.create_table,
        **{"TableName": notes.name(), **keys, "AttributeDefinitions": []},
    )
    extra = [*keys["AttributeDefinitions"], {"AttributeName": "x", "AttributeType": "S"}]
    notes.call(
        "create: defined and not used",
        dynamodb.create_table,
        **{"TableName": notes.name(), **keys, "AttributeDefinitions": extra},
    )
    notes.call(
        "create: provisioned without throughput",
        dynamodb.create_table,
        **{"TableName": notes.name(), **keys, "BillingMode": "PROVISIONED"},
    )
    table = notes.table_active(name)
    wanted = (
        "TableName",
        "TableStatus",
        "KeySchema",
        "AttributeDefinitions",
        "TableArn",
        "CreationDateTime",
        "ItemCount",
        "BillingModeSummary",
    )
    notes.fact("describe: members", [member for member in wanted if member in table])
    notes.fact("describe: billing", table["BillingModeSummary"]["BillingMode"])
    notes.call("describe: no table", dynamodb.describe_table, TableName=notes.absent)
    notes.call(
        "list",
        dynamodb.list_tables,
        lambda a: a["TableNames"] == [name],
        ExclusiveStartTableName=name[:-1],
        Limit=1,
    )
    change = {
        "Create": {
            "IndexName": "by-owner",
            "KeySchema": [{"AttributeName": "o", "KeyType": "HASH"}],
            "Projection": {"ProjectionType": "KEYS_ONLY"},
        }
    }
    definitions = [*keys["AttributeDefinitions"], {"AttributeName": "o", "AttributeType": "S"}]
    dynamodb.put_item(TableName=name, Item=item("a", o={"S": "w"}, z={"N": "1"}))
    dynamodb.put_item(TableName=name, Item=item("b"))
    notes.call(
        "index: add to a live table",
        dynamodb.update_table,
        TableName=name,
        AttributeDefinitions=definitions,
        GlobalSecondaryIndexUpdates=[change],
    )
    notes.table_active(name)
    query: dict[str, Any] = {
        "TableName": name,
        "IndexName": "by-owner",
        "KeyConditionExpression": "o = :o",
        "ExpressionAttributeValues": {":o": {"S": "w"}},
    }
    notes.call("index: query", dynamodb.query, lambda a: a["Items"], **query)
    notes.call("index: consistent query", dynamodb.query, ConsistentRead=True, **query)
    notes.call("index: unknown", dynamodb.query, **{**query, "IndexName": "nothing"})
    notes.call("protect", dynamodb.update_table, TableName=name, DeletionProtectionEnabled=True)
    notes.table_active(name)
    notes.call("delete: protected", dynamodb.delete_table, TableName=name)
    notes.call("unprotect", dynamodb.update_table, TableName=name, DeletionProtectionEnabled=False)
    notes.table_active(name)
    notes.call("delete", dynamodb.delete_table, TableName=name)
    notes.call("delete: no table", dynamodb.delete_table, TableName=notes.absent)


def scenario_items(notes: Notes) -> None:
    """Put, get and delete items of every type."""
    dynamodb = notes.dynamodb
    name = notes.table()
    values: dict[str, Any] = {
        "s": {"S": "é"},
        "empty": {"S": ""},
        "n": {"N": "0010.50"},
        "small": {"N": "-1E-3"},
        "large": {"N": "12345678901234567890123456789012345678"},
        "b": {"B": b"\x00\xff"},
        "null": {"NULL": True},
        "bool": {"BOOL": False},
        "list": {"L": [{"N": "1"}, {"L": []}]},
        "map": {"M": {"x": {"M": {}}}},
    }
    notes.call("put", dynamodb.put_item, TableName=name, Item=item(**values))
    got = notes.call(
        "get", dynamodb.get_item, lambda a: a["Item"], TableName=name, Key=item(), ConsistentRead=True
    )
    assert got is not None
    sets = {"ss": {"SS": ["b", "a"]}, "ns": {"NS": ["2", "1.0"]}, "bs": {"BS": [b"y", b"x"]}}
    dynamodb.put_item(TableName=name, Item=item("sets", **sets))
    stored = dynamodb.get_item(TableName=name, Key=item("sets"))["Item"]
    notes.fact("sets", {member: sorted(next(iter(stored[member].values()))) for member in sets})
    notes.call("get: absent", dynamodb.get_item, lambda a: "Item" in a, TableName=name, Key=item("nobody"))
    notes.call("get: no table", dynamodb.get_item, TableName=notes.absent, Key=item())
    notes.call("get: wrong key", dynamodb.get_item, TableName=name, Key={"x": {"S": "a"}})
    notes.call("get: key of another type", dynamodb.get_item, TableName=name, Key={"k": {"N": "1"}})
    notes.call("get: too many keys", dynamodb.get_item, TableName=name, Key=item(x={"S": "a"}))
    project = {
        "ProjectionExpression": "#n, #l[0], #m.x",
        "ExpressionAttributeNames": {"#n": "n", "#l": "list", "#m": "map"},
    }
    notes.call(
        "get: projected", dynamodb.get_item, lambda a: a["Item"], TableName=name, Key=item(), **project
    )
    notes.call(
        "get: reserved word", dynamodb.get_item, TableName=name, Key=item(), ProjectionExpression="list"
    )

    def put(fact: str, see: Any = None, **values: Any) -> None:
        notes.call(f"put: {fact}", dynamodb.put_item, see, TableName=name, Item=values)

    put("no key", x={"S": "a"})
    put("empty key", k={"S": ""})
    put("number as key", k={"N": "1"})
    put("no number", **item(n={"N": "abc"}))
    put("39 digits", **item(n={"N": "1" * 39}))
    put("empty set", **item(x={"SS": []}))
    put("double in a set", **item(x={"SS": ["a", "a"]}))
    put("double number in a set", **item(x={"NS": ["1", "1.0"]}))
    put("400 KB", **item("big", x={"S": "x" * (400 * 1024 - 6)}))
    put("more than 400 KB", **item("big", x={"S": "x" * (400 * 1024)}))
    notes.call(
        "put: old values",
        dynamodb.put_item,
        lambda a: a.get("Attributes"),
        TableName=name,
        Item=item("o"),
        ReturnValues="ALL_OLD",
    )
    notes.call(
        "put: old values again",
        dynamodb.put_item,
        lambda a: a.get("Attributes"),
        TableName=name,
        Item=item("o"),
        ReturnValues="ALL_OLD",
    )
    notes.call("put: new values", dynamodb.put_item, TableName=name, Item=item("o"), ReturnValues="ALL_NEW")
    notes.call(
        "delete: old values",
        dynamodb.delete_item,
        lambda a: a.get("Attributes"),
        TableName=name,
        Key=item("o"),
        ReturnValues="ALL_OLD",
    )
    notes.call("delete: absent", dynamodb.delete_item, TableName=name, Key=item("o"))
    notes.call(
        "delete: absent, conditional",
        dynamodb.delete_item,
        TableName=name,
        Key=item("o"),
        ConditionExpression="attribute_exists(k)",
    )


def scenario_updates(notes: Notes) -> None:
    """Update items with every kind of expression."""
    dynamodb = notes.dynamodb
    name = notes.table()
    start = item(
        n={"N": "1"},
        text={"S": "t"},
        list={"L": [{"N": "1"}]},
        map={"M": {"x": {"N": "1"}}},
        tags={"SS": ["a"]},
    )

    def update(
        fact: str,
        expression: str | None,
        returned: str = "ALL_NEW",
        condition: str | None = None,
        **values: Any,
    ) -> None:
        dynamodb.put_item(TableName=name, Item=start)
        request: dict[str, Any] = {"TableName": name, "Key": item(), "ReturnValues": returned}
        if expression is not None:
            request["UpdateExpression"] = expression
        if condition is not None:
            request["ConditionExpression"] = condition
        text = f"{expression} {condition}"
        names = {
            f"#{word}": word
            for word in ("list", "map", "text", "tags", "n", "new", "k")
            if f"#{word}" in text
        }
        if names:
            request["ExpressionAttributeNames"] = names
        if values:
            request["ExpressionAttributeValues"] = {f":{key}": value for key, value in values.items()}

        def see(answer: dict[str, Any]) -> Any:
            attributes = answer.get("Attributes")
            if attributes and "tags" in attributes:
                attributes["tags"]["SS"].sort()
            return attributes

        notes.call(fact, dynamodb.update_item, see, **request)

    one = {"N": "1"}
    update("SET", "SET #new = :v, #n = #n + :one", v={"S": "x"}, one=one)
    update("SET minus", "SET #n = #n - :one", one={"N": "2.5"})
    update(
        "SET if_not_exists", "SET #new = if_not_exists(#n, :v), #n = if_not_exists(#new, :v)", v={"N": "9"}
    )
    update("SET list_append", "SET #list = list_append(:v, #list)", v={"L": [{"S": "first"}]})
    update("SET an element", "SET #list[0] = :v, #list[7] = :v", v={"S": "x"})
    update("SET inside a map", "SET #map.y = :v", v={"S": "x"})
    update("SET inside nothing", "SET #new.y = :v", v={"S": "x"})
    update("SET the key", "SET #k = :v", v={"S": "x"})
    update("SET twice", "SET #n = :v, #n = :v", v=one)
    update("SET overlapping", "SET #map = :m, #map.x = :v", v=one, m={"M": {}})
    update("SET arithmetic on text", "SET #text = #text + :one", one=one)
    update("SET arithmetic on nothing", "SET #new = #new + :one", one=one)
    update("REMOVE", "REMOVE #text, #list[0], #map.x, #new")
    update("ADD a number", "ADD #n :v, #new :v", v={"N": "5"})
    update("ADD to a set", "ADD #tags :v", v={"SS": ["a", "b"]})
    update("ADD text", "ADD #text :v", v={"S": "x"})
    update("DELETE from a set", "DELETE #tags :v", v={"SS": ["a"]})
    update("all four", "SET #new = :v REMOVE #text ADD #n :v DELETE #tags :t", v=one, t={"SS": ["a"]})
    update("SET and SET", "SET #n = :v SET #new = :v", v=one)
    update("nothing", None)
    update("syntax", "SET #n =", v=one)
    update("value not used", "REMOVE #n", v=one)
    update("value not given", "SET #n = :v")
    for returned in ("NONE", "ALL_OLD", "UPDATED_OLD", "UPDATED_NEW"):
        update(f"returns {returned}", "SET #n = :v, #new = :v REMOVE #text", returned, v={"N": "7"})
    update(
        "condition holds",
        "SET #n = :v",
        condition="#n = :one AND attribute_not_exists(#new)",
        v={"N": "2"},
        one=one,
    )
    update("condition fails", "SET #n = :v", condition="#n = :v", v={"N": "2"})
    notes.call(
        "absent: made",
        dynamodb.update_item,
        lambda a: a["Attributes"],
        TableName=name,
        Key=item("fresh"),
        UpdateExpression="ADD n :v",
        ExpressionAttributeValues={":v": one},
        ReturnValues="ALL_NEW",
    )
    puts = {
        "n": {"Action": "ADD", "Value": one},
        "text": {"Action": "DELETE"},
        "new": {"Action": "PUT", "Value": one},
    }
    dynamodb.put_item(TableName=name, Item=item(n=one, text={"S": "t"}))
    notes.call(
        "legacy AttributeUpdates",
        dynamodb.update_item,
        lambda a: a["Attributes"],
        TableName=name,
        Key=item(),
        AttributeUpdates=puts,
        ReturnValues="ALL_NEW",
    )
    notes.call(
        "legacy and expression",
        dynamodb.update_item,
        TableName=name,
        Key=item(),
        AttributeUpdates=puts,
        ConditionExpression="attribute_exists(k)",
    )


def scenario_conditions(notes: Notes) -> None:
    """Write under conditions that hold, fail and are refused."""
    dynamodb = notes.dynamodb
    name = notes.table()
    thing = item(
        n={"N": "5"},
        text={"S": "hello"},
        tags={"SS": ["a", "b"]},
        list={"L": [{"N": "1"}]},
        flag={"BOOL": True},
        map={"M": {"x": {"S": "y"}}},
    )
    dynamodb.put_item(TableName=name, Item=thing)
    numbers = {":one": {"N": "1"}, ":five": {"N": "5.0"}, ":nine": {"N": "9"}}
    words = {":h": {"S": "he"}, ":a": {"S": "a"}, ":S": {"S": "S"}, ":hello": {"S": "hello"}}

    def check(condition: str, **values: Any) -> None:
        request: dict[str, Any] = {"TableName": name, "Item": thing, "ConditionExpression": condition}
        if values:
            request["ExpressionAttributeValues"] = {f":{key}": value for key, value in values.items()}
        known = {**numbers, **words}
        used = {key: value for key, value in known.items() if key in condition}
        if used:
            request["ExpressionAttributeValues"] = used
        replaced = {"#l": "list", "#m": "map", "#t": "text"}
        names = {key: value for key, value in replaced.items() if key in condition}
        if names:
            request["ExpressionAttributeNames"] = names
        notes.call(condition, dynamodb.put_item, **request)

    for condition in (
        "n = :five", "n <> :five", "n < :nine", "n <= :five", "n > :nine", "n >= :one",
        "n BETWEEN :one AND :nine", "n BETWEEN :nine AND :one", "n IN (:one, :five)",
        "attribute_exists(n)", "attribute_not_exists(n)", "attribute_exists(#m.x)", "attribute_exists(#l[1])",
        "attribute_type(#t, :S)", "begins_with(#t, :h)", "begins_with(n, :h)",
        "contains(#t, :h)", "contains(tags, :a)", "contains(#l, :one)",
        "size(#t) = :five", "size(tags) < :nine", "size(n) = :one",
        "NOT n = :one", "n = :one OR n = :five AND NOT n = :nine", "(n = :one OR n = :five) AND n = :nine",
        "n = :hello", "nothing = :one", "nothing <> :one", "n < :hello", "n = text",
        "n == :one", "attribute_exists(n", "unknown(n)", "n = :missing",
    ):  # fmt: skip
        check(condition)

    def expected(fact: str, **wanted: Any) -> None:
        notes.call(f"Expected: {fact}", dynamodb.put_item, TableName=name, Item=thing, Expected=wanted)

    expected("value", n={"Value": {"N": "5"}})
    expected("other value", n={"Value": {"N": "6"}})
    expected("absent", k={"Exists": False})
    expected("absent holds", q={"Exists": False})
    expected("operator", n={"ComparisonOperator": "GT", "AttributeValueList": [{"N": "4"}]})
    expected("null", n={"ComparisonOperator": "NULL"})
    expected("two", n={"Value": {"N": "5"}}, q={"Value": {"N": "5"}})
    expected("nonsense", n={"Exists": True})
    try:
        dynamodb.put_item(
            TableName=name,
            Item=thing,
            ConditionExpression="attribute_not_exists(k)",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
    except ClientError as error:
        response: dict[str, Any] = dict(error.response)
        notes.fact("the item of a failed condition", sorted(response.get("Item", ())))


def scenario_reading(notes: Notes) -> None:
    """Query and scan, by pages and filters."""
    dynamodb = notes.dynamodb
    name = notes.table(sort=True)
    for key, numbers in (("a", range(-2, 6)), ("b", range(2))):
        for number in numbers:
            dynamodb.put_item(
                TableName=name, Item=item(key, s={"N": str(number)}, even={"BOOL": number % 2 == 0})
            )

    def sorts(answer: dict[str, Any]) -> list[int]:
        return [int(one["s"]["N"]) for one in answer["Items"]]

    def query(fact: str, condition: str, see: Any = sorts, more: Any = None, **values: int) -> Any:
        given = {":k": {"S": "a"}, **{f":{key}": {"N": str(value)} for key, value in values.items()}}
        return notes.call(
            f"query: {fact}",
            dynamodb.query,
            see,
            TableName=name,
            KeyConditionExpression=condition,
            **{"ExpressionAttributeValues": given, **(more or {})},
        )

    query("all", "k = :k")
    query("backwards", "k = :k", more={"ScanIndexForward": False})
    for operator in ("=", "<", "<=", ">", ">="):
        query(f"sort key {operator}", f"k = :k AND s {operator} :v", v=1)
    query("between", "k = :k AND s BETWEEN :v AND :w", v=0, w=3)
    query("inequality on the key", "k > :k")
    query("no key", "s = :v", v=1)
    query("other attribute", "k = :k AND even = :v", v=1)
    query("<> on the sort key", "k = :k AND s <> :v", v=1)
    counted = {"Select": "COUNT"}
    query("count", "k = :k", lambda a: (a["Count"], a["ScannedCount"], "Items" in a), counted)
    filtered = {
        "FilterExpression": "even = :t",
        "ExpressionAttributeValues": {":k": {"S": "a"}, ":t": {"BOOL": True}},
        "Limit": 3,
    }
    answer = query(
        "filter after limit", "k = :k", lambda a: (sorts(a), a["Count"], a["ScannedCount"]), filtered
    )
    notes.fact("query: where it stopped", answer["LastEvaluatedKey"])
    query("page two", "k = :k", more={"ExclusiveStartKey": answer["LastEvaluatedKey"], "Limit": 2})
    query("filter on the key", "k = :k", more={"FilterExpression": "s > :k"})
    query("limit 0", "k = :k", more={"Limit": 0})
    query("projection", "k = :k AND s = :v", lambda a: a["Items"], {"ProjectionExpression": "s"}, v=1)
    found: list[tuple[str, str]] = []
    request: dict[str, Any] = {"TableName": name, "Limit": 3}
    pages = 0
    while True:
        answer = dynamodb.scan(**request)
        found += [(one["k"]["S"], one["s"]["N"]) for one in answer["Items"]]
        pages += 1
        if "LastEvaluatedKey" not in answer:
            break
        request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
    notes.fact("scan: by pages of three", (sorted(found), len(set(found)), pages))
    segments = [
        dynamodb.scan(TableName=name, Segment=segment, TotalSegments=4)["Items"] for segment in range(4)
    ]
    notes.fact("scan: four segments", sum(map(len, segments)))
    notes.call("scan: segment 4 of 4", dynamodb.scan, TableName=name, Segment=4, TotalSegments=4)
    notes.call("scan: segment without total", dynamodb.scan, TableName=name, Segment=0)
    notes.call(
        "scan: filter",
        dynamodb.scan,
        lambda a: (a["Count"], a["ScannedCount"]),
        TableName=name,
        FilterExpression="even = :t",
        ExpressionAttributeValues={":t": {"BOOL": True}},
    )
    notes.call("scan: no table", dynamodb.scan, TableName=notes.absent)


def scenario_batches(notes: Notes) -> None:
    """Write and read in batches and transactions."""
    dynamodb = notes.dynamodb
    name = notes.table()

    def put(key: str) -> dict[str, Any]:
        return {"PutRequest": {"Item": item(key)}}

    notes.call(
        "write 25",
        dynamodb.batch_write_item,
        lambda a: a["UnprocessedItems"],
        RequestItems={name: [put(f"{n:02}") for n in range(25)]},
    )
    notes.call(
        "write 26", dynamodb.batch_write_item, RequestItems={name: [put(f"{n:02}") for n in range(26)]}
    )
    notes.call("write none", dynamodb.batch_write_item, RequestItems={name: []})
    notes.call("write one twice", dynamodb.batch_write_item, RequestItems={name: [put("a"), put("a")]})
    notes.call("write to nothing", dynamodb.batch_write_item, RequestItems={notes.absent: [put("a")]})
    notes.call(
        "delete", dynamodb.batch_write_item, RequestItems={name: [{"DeleteRequest": {"Key": item("00")}}]}
    )
    keys = [item(f"{n:02}") for n in range(30)]
    notes.call(
        "get",
        dynamodb.batch_get_item,
        lambda a: sorted(one["k"]["S"] for one in a["Responses"][name]),
        RequestItems={name: {"Keys": keys}},
    )
    notes.call(
        "get one twice", dynamodb.batch_get_item, RequestItems={name: {"Keys": [item("01"), item("01")]}}
    )
    notes.call(
        "get 101", dynamodb.batch_get_item, RequestItems={name: {"Keys": [item(str(n)) for n in range(101)]}}
    )

    def transact(fact: str, *actions: dict[str, Any]) -> None:
        try:
            dynamodb.transact_write_items(TransactItems=list(actions))
            value: Any = "ok"
        except ClientError as error:
            response: dict[str, Any] = dict(error.response)
            reasons = response.get("CancellationReasons")
            value = (error.response["Error"]["Code"], reasons and [reason.get("Code") for reason in reasons])
        notes.fact(f"transaction: {fact}", value)

    free = {"Put": {"TableName": name, "Item": item("t1"), "ConditionExpression": "attribute_not_exists(k)"}}
    there = {
        "ConditionCheck": {"TableName": name, "Key": item("01"), "ConditionExpression": "attribute_exists(k)"}
    }
    gone = {
        "Delete": {"TableName": name, "Key": item("02"), "ConditionExpression": "attribute_not_exists(k)"}
    }
    transact("fine", free, there)
    transact("cancelled", there, free, gone)
    transact("one item twice", there, {"Delete": {"TableName": name, "Key": item("01")}})
    transact("nothing")
    notes.call(
        "nothing was deleted", dynamodb.get_item, lambda a: "Item" in a, TableName=name, Key=item("02")
    )
