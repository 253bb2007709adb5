from __future__ import annotations

import threading
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.testing.dynamodb.service import FakeDynamoDB
from tests import HANG
from tests.fuzz import how_many
from tests.testing.conftest import Account


def key(name: str) -> dict[str, Any]:
    return {"pk": {"S": name}}


def put(account: Account, name: str, **values: int) -> None:
    item = {**key(name), **{k: {"N": str(v)} for k, v in values.items()}}
    account.dynamodb.put_item(TableName="tab", Item=item)


def get(account: Account, name: str) -> dict[str, Any] | None:
    return account.dynamodb.get_item(TableName="tab", Key=key(name)).get("Item")


def test_a_query_has_a_condition_and_may_go_backwards(account: Account, code: Any) -> None:
    account.table(sort=True)
    for number in "123":
        account.dynamodb.put_item(TableName="tab", Item={**key("a"), "sk": {"N": number}})
    assert code(account.dynamodb.query, TableName="tab") == "ValidationException"
    start = {**key("a"), "sk": {"N": "2"}}
    condition = {"KeyConditionExpression": "pk = :a", "ExpressionAttributeValues": {":a": {"S": "a"}}}
    found = account.dynamodb.query(
        TableName="tab", ExclusiveStartKey=start, ScanIndexForward=False, **condition
    )
    assert [item["sk"]["N"] for item in found["Items"]] == ["1"]


@pytest.mark.parametrize(
    ("expected", "holds"),
    [
        ({"n": {"ComparisonOperator": "GE", "AttributeValueList": [{"N": "5"}]}}, True),
        ({"n": {"ComparisonOperator": "BETWEEN", "AttributeValueList": [{"N": "6"}, {"N": "7"}]}}, False),
        ({"n": {"ComparisonOperator": "IN", "AttributeValueList": [{"N": "4"}, {"N": "5"}]}}, True),
        ({"x": {"ComparisonOperator": "NULL"}}, True),
        ({"n": {"ComparisonOperator": "NOT_NULL"}}, True),
        ({"n": {"Value": {"N": "4"}}}, False),
        ({"n": {"Value": {"N": "5.00"}, "Exists": True}}, True),
    ],
)
def test_legacy_operators(account: Account, expected: Any, holds: bool) -> None:
    account.table()
    put(account, "a", n=5)
    try:
        account.dynamodb.delete_item(TableName="tab", Key=key("a"), Expected=expected)
    except ClientError as error:
        assert error.response["Error"]["Code"] == "ConditionalCheckFailedException"
        assert not holds
    else:
        assert holds


@settings(max_examples=how_many(unit=15, fuzz=30))
@given(
    names=st.sets(st.text(min_size=1, max_size=5), max_size=12),
    limit=st.integers(1, 5),
    segments=st.integers(1, 4),
)
def test_paged_segments_find_each_item_once(names: set[str], limit: int, segments: int) -> None:
    account = Account()
    account.table()
    for name in names:
        put(account, name)
    found: list[str] = []
    for segment in range(segments):
        start: dict[str, Any] = {}
        while True:
            page = account.dynamodb.scan(
                TableName="tab", Limit=limit, Segment=segment, TotalSegments=segments, **start
            )
            assert page["ScannedCount"] <= limit
            found += [item["pk"]["S"] for item in page["Items"]]
            if "LastEvaluatedKey" not in page:
                break
            start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
    assert sorted(found) == sorted(names)


def test_a_scan_filters_after_counting_and_projects(account: Account) -> None:
    account.table()
    for number in range(10):
        put(account, f"i{number}", n=number, x=1)
    answer = account.dynamodb.scan(
        TableName="tab",
        FilterExpression="n < :three",
        ProjectionExpression="#n",
        ExpressionAttributeNames={"#n": "n"},
        ExpressionAttributeValues={":three": {"N": "3"}},
        ReturnConsumedCapacity="TOTAL",
    )
    assert (answer["Count"], answer["ScannedCount"]) == (3, 10)
    assert all(set(item) == {"n"} for item in answer["Items"])
    assert answer["ConsumedCapacity"]["CapacityUnits"] == 0.5
    assert account.dynamodb.scan(TableName="tab", Select="COUNT").get("Items") is None


def test_a_scan_page_holds_a_mebibyte(account: Account) -> None:
    account.table()
    for number in range(5):
        account.dynamodb.put_item(TableName="tab", Item={**key(str(number)), "x": {"S": "y" * 300_000}})
    page = account.dynamodb.scan(TableName="tab")
    assert len(page["Items"]) == 4
    rest = account.dynamodb.scan(TableName="tab", ExclusiveStartKey=page["LastEvaluatedKey"])
    assert len(rest["Items"]) == 1


INDEX = {
    "IndexName": "by-owner",
    "KeySchema": [
        {"AttributeName": "owner", "KeyType": "HASH"},
        {"AttributeName": "pk", "KeyType": "RANGE"},
    ],
    "Projection": {"ProjectionType": "KEYS_ONLY"},
}
OWNER = {"AttributeName": "owner", "AttributeType": "S"}


def owned(account: Account, owner: str) -> list[dict[str, Any]]:
    return account.dynamodb.query(
        TableName="tab",
        IndexName="by-owner",
        KeyConditionExpression="#o = :o",
        ExpressionAttributeNames={"#o": "owner"},
        ExpressionAttributeValues={":o": {"S": owner}},
    )["Items"]


def test_an_index_follows_its_items(make: type[Account], code: Any) -> None:
    account = make(index_delay=60)
    account.table()
    for name in ("l2", "l1", "l3"):
        account.dynamodb.put_item(TableName="tab", Item={**key(name), "owner": {"S": "w1"}, "x": {"N": "1"}})
    account.dynamodb.update_table(
        TableName="tab",
        AttributeDefinitions=[OWNER, {"AttributeName": "pk", "AttributeType": "S"}],
        GlobalSecondaryIndexUpdates=[{"Create": INDEX}],
    )
    described = account.dynamodb.describe_table(TableName="tab")["Table"]
    assert (described["TableStatus"], described["GlobalSecondaryIndexes"][0]["IndexStatus"]) == (
        "UPDATING",
        "CREATING",
    )
    with pytest.raises(ClientError, match="backfilling"):
        owned(account, "w1")
    account.clock.advance(60)
    assert owned(account, "w1") == [{**key(name), "owner": {"S": "w1"}} for name in ("l1", "l2", "l3")]
    account.dynamodb.update_item(
        TableName="tab",
        Key=key("l1"),
        UpdateExpression="SET #o = :o",
        ExpressionAttributeNames={"#o": "owner"},
        ExpressionAttributeValues={":o": {"S": "w2"}},
    )
    account.dynamodb.update_item(
        TableName="tab",
        Key=key("l2"),
        UpdateExpression="REMOVE #o",
        ExpressionAttributeNames={"#o": "owner"},
    )
    assert [item["pk"]["S"] for item in owned(account, "w1")] == ["l3"]
    assert [item["pk"]["S"] for item in owned(account, "w2")] == ["l1"]
    account.dynamodb.delete_item(TableName="tab", Key=key("l3"))
    assert owned(account, "w1") == []
    assert code(account.dynamodb.put_item, TableName="tab", Item={**key("x"), "owner": {"N": "1"}}) == (
        "ValidationException"
    )


def test_table_life(make: type[Account], code: Any) -> None:
    account = make(table_delay=3)
    account.table(types=[OWNER], GlobalSecondaryIndexes=[INDEX], DeletionProtectionEnabled=True)
    dynamodb = account.dynamodb
    assert dynamodb.describe_table(TableName="tab")["Table"]["TableStatus"] == "CREATING"
    assert code(dynamodb.get_item, TableName="tab", Key=key("a")) == "ResourceNotFoundException"
    account.clock.advance(3)
    assert get(account, "a") is None
    with pytest.raises(ClientError, match="already exists"):
        account.table()
    assert code(dynamodb.delete_table, TableName="tab") == "ValidationException"
    dynamodb.update_table(TableName="tab", DeletionProtectionEnabled=False)
    dynamodb.update_continuous_backups(
        TableName="tab", PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
    )
    backups = dynamodb.describe_continuous_backups(TableName="tab")["ContinuousBackupsDescription"]
    assert backups["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"] == "ENABLED"
    arn = dynamodb.describe_table(TableName="tab")["Table"]["TableArn"]
    dynamodb.tag_resource(ResourceArn=arn, Tags=[{"Key": "a", "Value": "1"}])
    assert dynamodb.list_tags_of_resource(ResourceArn=arn)["Tags"] == [{"Key": "a", "Value": "1"}]
    assert dynamodb.list_tables()["TableNames"] == ["tab"]
    dynamodb.delete_table(TableName="tab")
    assert code(dynamodb.describe_table, TableName="tab") == "ResourceNotFoundException"


def test_a_filter_is_not_for_the_key_and_bounds_have_an_order(account: Account, code: Any) -> None:
    account.table(sort=True)
    values = {":one": {"N": "1"}, ":two": {"N": "2"}}

    def query(condition: str) -> dict[str, Any]:
        used = {name: value for name, value in values.items() if name in condition}
        return {
            "TableName": "tab",
            "KeyConditionExpression": "pk = :p",
            "FilterExpression": condition,
            "ExpressionAttributeValues": {":p": {"S": "a"}, **used},
        }

    for wrong in ("sk = :one", "NOT (size(pk) = :one)", "x IN (:one, sk)", "x BETWEEN :two AND :one"):
        assert code(account.dynamodb.query, **query(wrong)) == "ValidationException", wrong
    for fine in ("x = :one", "NOT (size(x) = :one)", "x IN (:one, y)", "x BETWEEN :one AND :two"):
        assert account.dynamodb.query(**query(fine))["Items"] == []


class SeenWaiting:
    """A table's lock that reports a waiting thread, and lets that thread go first when it is released."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._owner = threading.current_thread()
        self.waiting = threading.Event()
        self.served = threading.Event()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.waiting.set()
            self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()
        if self.waiting.is_set() and threading.current_thread() is self._owner:
            assert self.served.wait(HANG)


CONDITION = {
    "ConditionExpression": "n = :old",
    "ExpressionAttributeValues": {":old": {"N": "0"}},
}
CONDITIONAL_WRITES: dict[str, Any] = {
    "update": lambda client: client.update_item(
        TableName="tab",
        Key=key("lease"),
        UpdateExpression="ADD n :one",
        ConditionExpression="n = :old",
        ExpressionAttributeValues={":old": {"N": "0"}, ":one": {"N": "1"}},
    ),
    "legacy update": lambda client: client.update_item(
        TableName="tab",
        Key=key("lease"),
        AttributeUpdates={"n": {"Action": "ADD", "Value": {"N": "1"}}},
        Expected={"n": {"Value": {"N": "0"}, "Exists": True}},
    ),
    "put": lambda client: client.put_item(
        TableName="tab", Item={**key("lease"), "n": {"N": "1"}}, **CONDITION
    ),
    "delete": lambda client: client.delete_item(TableName="tab", Key=key("lease"), **CONDITION),
    "transaction": lambda client: client.transact_write_items(
        TransactItems=[{"Put": {"TableName": "tab", "Item": {**key("lease"), "n": {"N": "1"}}, **CONDITION}}]
    ),
}


@pytest.mark.parametrize("second", CONDITIONAL_WRITES)
@pytest.mark.parametrize("first", CONDITIONAL_WRITES)
def test_nothing_comes_between_a_condition_and_its_write(
    account: Account, monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    """The worst moment, every time: a whole second write is begun when the first one has been judged."""
    account.table()
    put(account, "lease", n=0)
    table = account.aws.tables.find("tab")
    lock = table.lock = SeenWaiting(table.lock)
    outcomes: list[str] = []
    judged: list[threading.Thread] = []

    def write(kind: str) -> None:
        try:
            CONDITIONAL_WRITES[kind](account.dynamodb)
            outcomes.append("won")
        except ClientError as error:
            outcomes.append(error.response["Error"]["Code"])

    def rush() -> None:
        write(second)
        lock.served.set()
        lock.waiting.set()

    prepare = FakeDynamoDB._prepare

    def judge(*arguments: Any) -> Any:
        change = prepare(*arguments)
        if not judged:
            judged.append(threading.Thread(target=rush, daemon=True))
            judged[0].start()
            assert lock.waiting.wait(HANG), "it neither waits nor ends"
        return change

    monkeypatch.setattr(FakeDynamoDB, "_prepare", judge)
    write(first)
    assert lock.served.wait(HANG)
    assert sorted(outcomes)[1] == "won"
    assert outcomes.count("won") == 1
