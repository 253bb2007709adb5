from __future__ import annotations

from typing import Any

import pytest

from kinesis_sdk.testing import Fault
from tests.testing.conftest import Account, code_of

VIEW = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
HOUR = 3600.0


class Tables(Account):
    def __init__(self, view: str | None = "NEW_AND_OLD_IMAGES", **options: Any) -> None:
        super().__init__(**options)
        self.streams = self.aws.client("dynamodbstreams")
        more = {} if view is None else {"StreamSpecification": {**VIEW, "StreamViewType": view}}
        self.table(**more)

    @property
    def arn(self) -> str:
        return self.dynamodb.describe_table(TableName="tab")["Table"]["LatestStreamArn"]

    def describe(self, **more: Any) -> dict[str, Any]:
        return self.streams.describe_stream(StreamArn=self.arn, **more)["StreamDescription"]

    def write(self, name: str, **values: str) -> None:
        item = {"pk": {"S": name}, **{key: {"S": value} for key, value in values.items()}}
        self.dynamodb.put_item(TableName="tab", Item=item)

    def at(self, shard: int = 0, kind: str = "TRIM_HORIZON", **more: Any) -> str:
        shard_id = self.describe()["Shards"][shard]["ShardId"]
        return self.streams.get_shard_iterator(
            StreamArn=self.arn, ShardId=shard_id, ShardIteratorType=kind, **more
        )["ShardIterator"]

    def changes(self, shard: int = 0, kind: str = "TRIM_HORIZON", **more: Any) -> list[dict[str, Any]]:
        return self.streams.get_records(ShardIterator=self.at(shard, kind, **more))["Records"]


def test_a_record_has_an_id_of_its_own_and_a_cancelled_transaction_has_none() -> None:
    tables = Tables()
    tables.write("a", v="1")
    tables.write("a", v="2")
    failing = [
        {"Put": {"TableName": "tab", "Item": {"pk": {"S": "t1"}}}},
        {
            "ConditionCheck": {
                "TableName": "tab",
                "Key": {"pk": {"S": "x"}},
                "ConditionExpression": "attribute_exists(pk)",
            }
        },
    ]
    assert (
        code_of(tables.dynamodb.transact_write_items, TransactItems=failing) == "TransactionCanceledException"
    )
    found = tables.changes()
    assert [one["dynamodb"]["Keys"]["pk"]["S"] for one in found] == ["a", "a"]
    assert len({one["eventID"] for one in found}) == 2
    assert found[0]["dynamodb"]["ApproximateCreationDateTime"].timestamp() == int(tables.clock.time())


@pytest.mark.parametrize(
    ("view", "images"),
    [
        ("KEYS_ONLY", set()),
        ("NEW_IMAGE", {"NewImage"}),
        ("OLD_IMAGE", {"OldImage"}),
        ("NEW_AND_OLD_IMAGES", {"NewImage", "OldImage"}),
    ],
)
def test_the_view_type_decides_what_a_record_contains(view: str, images: set[str]) -> None:
    tables = Tables(view)
    tables.write("a", v="1")
    tables.write("a", v="2")
    assert images == {"NewImage", "OldImage"} & tables.changes()[1]["dynamodb"].keys()
    assert tables.describe()["StreamViewType"] == view


def test_streams_of_a_table_are_listed_in_pages_until_a_day_after_they_were_disabled() -> None:
    tables = Tables(None)
    assert "LatestStreamArn" not in tables.dynamodb.describe_table(TableName="tab")["Table"]
    update = tables.dynamodb.update_table
    update(TableName="tab", StreamSpecification=VIEW)
    first = tables.arn
    update(TableName="tab", StreamSpecification={"StreamEnabled": False})
    update(TableName="tab", StreamSpecification=VIEW)
    listed = tables.streams.list_streams(TableName="tab")["Streams"]
    page = tables.streams.list_streams(Limit=1)
    more = tables.streams.list_streams(ExclusiveStartStreamArn=page["LastEvaluatedStreamArn"])
    assert [*page["Streams"], *more["Streams"]] == listed
    for bad in ({"StreamEnabled": True}, {"StreamEnabled": False, "StreamViewType": "KEYS_ONLY"}):
        assert code_of(update, TableName="tab", StreamSpecification=bad) == "ValidationException"
    tables.clock.advance(25 * HOUR)
    assert code_of(tables.streams.describe_stream, StreamArn=first) == "ResourceNotFoundException"


def test_a_deleted_table_leaves_a_disabled_stream() -> None:
    tables = Tables()
    arn = tables.arn
    tables.write("a")
    tables.dynamodb.delete_table(TableName="tab")
    assert tables.streams.describe_stream(StreamArn=arn)["StreamDescription"]["StreamStatus"] == "DISABLED"


def test_shards_roll_over_after_four_hours_and_are_forgotten_after_a_day() -> None:
    tables = Tables(table_partitions=2)
    for number in range(10):
        tables.write(f"k{number}")
    first = tables.describe()["Shards"]
    assert len(first) == 2
    assert len(tables.changes(0)) + len(tables.changes(1)) == 10
    assert tables.changes(0)
    assert tables.changes(1)
    tables.clock.advance(9 * HOUR)
    shards = tables.describe()["Shards"]
    assert len(shards) == 6
    assert [shard["ShardId"] for shard in shards] == sorted(shard["ShardId"] for shard in shards)
    parents = {shard.get("ParentShardId") for shard in shards}
    assert [shard["ShardId"] for shard in shards if shard["ShardId"] not in parents] == [
        shard["ShardId"] for shard in shards if "EndingSequenceNumber" not in shard["SequenceNumberRange"]
    ]
    children = tables.describe(ShardFilter={"Type": "CHILD_SHARDS", "ShardId": first[0]["ShardId"]})["Shards"]
    assert [child["ParentShardId"] for child in children] == [first[0]["ShardId"]]
    answer = tables.streams.get_records(ShardIterator=tables.at(0))
    assert answer["Records"]
    assert "NextShardIterator" not in answer
    page = tables.describe(Limit=4)
    rest = tables.describe(ExclusiveStartShardId=page["LastEvaluatedShardId"])
    assert page["Shards"] + rest["Shards"] == shards
    tables.clock.advance(20 * HOUR)
    remaining = {shard["ShardId"] for shard in tables.describe()["Shards"]}
    assert not remaining & {shard["ShardId"] for shard in first}


def test_a_split_partition_has_two_children() -> None:
    tables = Tables()
    tables.aws.table_streams.roll("tab", split=True)
    shards = tables.describe()["Shards"]
    assert [shard.get("ParentShardId") for shard in shards] == [
        None,
        shards[0]["ShardId"],
        shards[0]["ShardId"],
    ]
    for number in range(20):
        tables.write(f"k{number}")
    assert len(tables.changes(1)) + len(tables.changes(2)) == 20
    assert tables.changes(1)
    assert tables.changes(2)
    with pytest.raises(ValueError, match="no enabled stream"):
        tables.aws.table_streams.roll("nothing")


def test_iterators_start_where_they_say() -> None:
    tables = Tables()
    for number in range(120):
        tables.write(f"k{number}")
    numbers = [one["dynamodb"]["SequenceNumber"] for one in tables.changes()]
    assert len(numbers[0]) < len(numbers[-1]), "texts of sequence numbers must not compare"
    assert tables.changes(kind="LATEST") == []
    assert len(tables.changes(kind="AT_SEQUENCE_NUMBER", SequenceNumber=numbers[100])) == 20
    assert len(tables.changes(kind="AFTER_SEQUENCE_NUMBER", SequenceNumber=numbers[100])) == 19
    limited = tables.streams.get_records(ShardIterator=tables.at(), Limit=7)
    assert len(limited["Records"]) == 7
    following = tables.streams.get_records(ShardIterator=limited["NextShardIterator"], Limit=1)
    assert following["Records"][0]["dynamodb"]["SequenceNumber"] == numbers[7]
    shard = {"StreamArn": tables.arn, "ShardId": tables.describe()["Shards"][0]["ShardId"]}
    before = {**shard, "ShardIteratorType": "AT_SEQUENCE_NUMBER", "SequenceNumber": "1" * 21}
    assert code_of(tables.streams.get_shard_iterator, **before) == "ValidationException"
    old = tables.at()
    tables.clock.advance(901)
    assert code_of(tables.streams.get_records, ShardIterator=old) == "ExpiredIteratorException"


def test_a_response_has_at_most_a_megabyte() -> None:
    tables = Tables("NEW_IMAGE")
    for number in range(4):
        tables.write(f"k{number}", v="x" * 390_000)
    assert len(tables.changes()) == 2


def test_what_was_trimmed_is_an_error() -> None:
    tables = Tables()
    tables.write("a")
    number = tables.changes()[0]["dynamodb"]["SequenceNumber"]
    old = tables.at()
    tables.aws.table_streams.trim("tab")
    tables.write("b")
    assert code_of(tables.streams.get_records, ShardIterator=old) == "TrimmedDataAccessException"
    shard = {"StreamArn": tables.arn, "ShardId": tables.describe()["Shards"][0]["ShardId"]}
    for kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"):
        get = tables.streams.get_shard_iterator
        assert (
            code_of(get, **shard, ShardIteratorType=kind, SequenceNumber=number)
            == "TrimmedDataAccessException"
        )
    assert [one["dynamodb"]["Keys"]["pk"]["S"] for one in tables.changes()] == ["b"]


def test_faults_concern_the_streams_too() -> None:
    tables = Tables(table_partitions=2)
    tables.write("a")
    faults = tables.aws.faults
    faults.add(Fault(kind="torn_listing", operation="DescribeStream", stream="tab", count=1))
    assert len(tables.describe()["Shards"]) == 1
    shard = 0 if tables.changes(0) else 1
    faults.add(Fault(kind="empty_read", operation="GetRecords", stream="tab", count=1))
    empty = tables.streams.get_records(ShardIterator=tables.at(shard))
    assert empty["Records"] == []
    assert len(tables.streams.get_records(ShardIterator=empty["NextShardIterator"])["Records"]) == 1
    shard_id = tables.describe()["Shards"][shard]["ShardId"]
    faults.add(Fault(kind="expired_iterator", shard_id=shard_id, count=1))
    assert code_of(tables.streams.get_records, ShardIterator=tables.at(shard)) == "ExpiredIteratorException"
    assert tables.changes(shard)
