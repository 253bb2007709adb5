from __future__ import annotations

import sys
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


def test_items_come_back_as_they_were_put(account: Account) -> None:
    account.table()
    item = {
        **key("a"),
        "b": {"B": b"\x00\xff"},
        "bs": {"BS": [b"2", b"1"]},
        "l": {"L": [{"BOOL": True}, {"NULL": True}, {"M": {"B": {"S": "name like a type"}}}]},
        "CreationDateTime": {"N": "5"},
    }
    account.dynamodb.put_item(TableName="tab", Item=item)
    assert get(account, "a") == {**item, "bs": {"BS": [b"1", b"2"]}}
    assert get(account, "missing") is None


def test_a_failed_condition_changes_nothing_and_can_show_the_item(account: Account) -> None:
    account.table()
    put(account, "a", n=1)
    request = {
        "TableName": "tab",
        "Key": key("a"),
        "UpdateExpression": "SET n = :two",
        "ConditionExpression": "n = :two",
        "ExpressionAttributeValues": {":two": {"N": "2"}},
    }
    for more, shown in [
        ({}, None),
        ({"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}, {**key("a"), "n": {"N": "1"}}),
    ]:
        with pytest.raises(ClientError) as caught:
            account.dynamodb.update_item(**request, **more)
        assert caught.value.response["Error"]["Code"] == "ConditionalCheckFailedException"
        assert caught.value.response.get("Item") == shown
    assert get(account, "a") == {**key("a"), "n": {"N": "1"}}


def test_legacy_expected_as_the_java_kcl_sends_it(account: Account, code: Any) -> None:
    account.table()
    item = {**key("a"), "leaseCounter": {"N": "0"}}
    create = {"TableName": "tab", "Item": item, "Expected": {"pk": {"Exists": False}}}
    account.dynamodb.put_item(**create)
    assert code(account.dynamodb.put_item, **create) == "ConditionalCheckFailedException"
    renew = {
        "TableName": "tab",
        "Key": key("a"),
        "AttributeUpdates": {"leaseCounter": {"Value": {"N": "1"}, "Action": "PUT"}},
        "Expected": {"checkpointOwner": {"Exists": False}, "leaseCounter": {"Value": {"N": "0"}}},
    }
    account.dynamodb.update_item(**renew)
    assert code(account.dynamodb.update_item, **renew) == "ConditionalCheckFailedException"
    mixed = {**renew, "ConditionExpression": "attribute_exists(pk)"}
    assert code(account.dynamodb.update_item, **mixed) == "ValidationException"


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


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("put_item", {"Item": {"pk": {"S": "a"}, "x": {"Q": "1"}}}),
        ("put_item", {"Item": {"pk": {"S": "a"}}, "ExpressionAttributeNames": {"#x": "x"}}),
        ("get_item", {"Key": {"pk": {"S": ""}}}),
        ("update_item", {"Key": {"pk": {"S": "a"}}, "UpdateExpression": "REMOVE pk"}),
        ("query", {}),
        ("scan", {"Limit": 0}),
    ],
)
def test_bad_requests(account: Account, code: Any, method: str, request_: dict[str, Any]) -> None:
    account.table()
    assert code(getattr(account.dynamodb, method), TableName="tab", **request_) == "ValidationException"


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


def test_query_by_sort_key(account: Account, code: Any) -> None:
    account.table(sort=True)
    for name in ("a", "b"):
        for number in (10, 9, 1, 2):
            account.dynamodb.put_item(TableName="tab", Item={**key(name), "sk": {"N": str(number)}})

    def query(condition: str, **more: Any) -> list[int]:
        values = {":a": {"S": "a"}, ":two": {"N": "2"}, ":nine": {"N": "9"}}
        used = {name: value for name, value in values.items() if name in condition}
        answer = account.dynamodb.query(
            TableName="tab", KeyConditionExpression=condition, ExpressionAttributeValues=used, **more
        )
        return [int(item["sk"]["N"]) for item in answer["Items"]]

    assert query("sk > :two AND pk = :a", Limit=1) == [9]
    start = {**key("a"), "sk": {"N": "2"}}
    assert query("pk = :a", ExclusiveStartKey=start) == [9, 10]
    assert query("pk = :a", ExclusiveStartKey=start, ScanIndexForward=False) == [1]
    with pytest.raises(ClientError, match="Validation"):
        query("pk = :a OR sk = :two")


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


def test_a_batch_names_no_item_twice_and_is_refused_as_a_whole(account: Account, code: Any) -> None:
    account.table()
    batch_write, batch_get = account.dynamodb.batch_write_item, account.dynamodb.batch_get_item
    write = {"PutRequest": {"Item": key("a")}}
    for wrong in (write, {"DeleteRequest": {"Key": key("a")}}, {"PutRequest": {"Item": {"x": {"S": "y"}}}}):
        assert code(batch_write, RequestItems={"tab": [write, wrong]}) == "ValidationException"
    assert code(batch_get, RequestItems={"tab": {"Keys": [key("a"), key("a")]}}) == "ValidationException"
    assert account.dynamodb.scan(TableName="tab")["Items"] == []


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


def test_a_transaction_is_all_or_nothing(account: Account) -> None:
    account.table()
    put(account, "a", n=1)
    exists = {"TableName": "tab", "Key": key("a"), "ConditionExpression": "attribute_exists(pk)"}
    insert = {"TableName": "tab", "Item": key("b")}
    with pytest.raises(ClientError) as caught:
        account.dynamodb.transact_write_items(
            TransactItems=[
                {"Put": insert},
                {"ConditionCheck": {**exists, "ConditionExpression": "attribute_not_exists(pk)"}},
            ]
        )
    reasons = [reason["Code"] for reason in caught.value.response["CancellationReasons"]]
    assert reasons == ["None", "ConditionalCheckFailed"]
    assert get(account, "b") is None
    account.dynamodb.transact_write_items(TransactItems=[{"Put": insert}, {"ConditionCheck": exists}])
    assert get(account, "b") == key("b")


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


def test_exactly_one_of_many_racers_wins(account: Account) -> None:
    account.table()
    put(account, "lease", n=0, adds=0)
    winners: list[int] = []
    barrier = threading.Barrier(8)

    def race(worker: int) -> None:
        for number in range(40):
            barrier.wait(timeout=HANG)
            try:
                account.dynamodb.update_item(
                    TableName="tab",
                    Key=key("lease"),
                    UpdateExpression="SET n = :new ADD adds :one",
                    ConditionExpression="n = :old",
                    ExpressionAttributeValues={
                        ":old": {"N": str(number)},
                        ":new": {"N": str(number + 1)},
                        ":one": {"N": "1"},
                    },
                )
                winners.append(number)
            except ClientError as error:
                assert error.response["Error"]["Code"] == "ConditionalCheckFailedException"
            barrier.wait(timeout=HANG)

    threads = [threading.Thread(target=race, args=(worker,), daemon=True) for worker in range(8)]
    interval = sys.getswitchinterval()
    # Switching threads every few microseconds shows what a coarse interpreter lock would hide.
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANG)
    finally:
        sys.setswitchinterval(interval)
    assert winners == list(range(40))
    assert get(account, "lease") == {**key("lease"), "n": {"N": "40"}, "adds": {"N": "40"}}
