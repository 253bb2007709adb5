"""The feature script of DynamoDB Streams: a worker's requests, and the corner cases of each."""

from __future__ import annotations

from typing import Any

from kinesis_sdk.verify.notes import Notes

VIEW: dict[str, bool | str] = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}


def _arn(notes: Notes, name: str) -> str:
    return str(notes.dynamodb.describe_table(TableName=name)["Table"]["LatestStreamArn"])


def _shards(notes: Notes, arn: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def listed() -> bool:
        found[:] = notes.streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]
        return bool(found)

    notes.until(listed, "the stream of a table has a shard")
    return found


def _changes(notes: Notes, iterator: str, count: int) -> list[dict[str, Any]]:
    """Read until `count` records were returned, which may take several responses."""
    found: list[dict[str, Any]] = []
    following: str | None = iterator

    def read() -> bool:
        nonlocal following
        answer = notes.streams.get_records(ShardIterator=following)
        found.extend(answer["Records"])
        following = answer.get("NextShardIterator")
        return len(found) >= count or following is None

    notes.until(read, f"{count} records of a table's stream come")
    return found


def _shape(record: dict[str, Any]) -> list[Any]:
    change = record["dynamodb"]
    images = {name: change[name] for name in ("OldImage", "NewImage") if name in change}
    return [record["eventName"], change["Keys"], images, sorted(record), change["StreamViewType"]]


def scenario_records(notes: Notes) -> None:
    """Read the changes of items from every kind of position."""
    dynamodb, streams = notes.dynamodb, notes.streams
    name = notes.table(StreamSpecification=VIEW)
    arn = _arn(notes, name)
    (shard,) = _shards(notes, arn)
    key = {"k": {"S": "a"}}
    item = {**key, "n": {"N": "1.50"}, "b": {"B": b"\x00\xff"}, "m": {"M": {"x": {"L": [{"NULL": True}]}}}}
    dynamodb.put_item(TableName=name, Item=item)
    dynamodb.put_item(TableName=name, Item=item)  # changes nothing
    set_n = {"UpdateExpression": "SET n = :n", "ExpressionAttributeValues": {":n": {"N": "2"}}}
    dynamodb.update_item(TableName=name, Key=key, **set_n)
    dynamodb.update_item(TableName=name, Key=key, **set_n)  # changes nothing
    dynamodb.delete_item(TableName=name, Key=key)
    dynamodb.delete_item(TableName=name, Key={"k": {"S": "nobody"}})
    dynamodb.batch_write_item(RequestItems={name: [{"PutRequest": {"Item": {"k": {"S": "batch"}}}}]})
    puts = [{"Put": {"TableName": name, "Item": {"k": {"S": text}}}} for text in ("t1", "t2")]
    dynamodb.transact_write_items(TransactItems=puts)
    at = {"StreamArn": arn, "ShardId": shard["ShardId"]}
    oldest = streams.get_shard_iterator(**at, ShardIteratorType="TRIM_HORIZON")["ShardIterator"]
    found = _changes(notes, oldest, 6)
    notes.fact("records", [_shape(record) for record in found[:4]])
    notes.fact("transaction", sorted(record["dynamodb"]["Keys"]["k"]["S"] for record in found[4:]))
    created = [record["dynamodb"]["ApproximateCreationDateTime"].microsecond for record in found]
    notes.fact("times are whole seconds", not any(created))
    numbers = [record["dynamodb"]["SequenceNumber"] for record in found]
    notes.fact("numbers rise", [int(text) for text in numbers] == sorted({int(text) for text in numbers}))
    notes.fact("digits", all(21 <= len(text) <= 40 for text in numbers))
    notes.fact("sizes", all(record["dynamodb"]["SizeBytes"] > 0 for record in found))

    def read(fact: str, kind: str, **more: Any) -> None:
        answer = notes.call(
            fact, streams.get_shard_iterator, lambda _: "ok", **at, ShardIteratorType=kind, **more
        )
        if answer is not None:
            records = streams.get_records(ShardIterator=answer["ShardIterator"])["Records"]
            notes.fact(f"{fact}: records", len(records))

    read("at the second", "AT_SEQUENCE_NUMBER", SequenceNumber=numbers[1])
    read("after the second", "AFTER_SEQUENCE_NUMBER", SequenceNumber=numbers[1])
    read("after the last", "AFTER_SEQUENCE_NUMBER", SequenceNumber=numbers[-1])
    read("latest", "LATEST")
    read("at: too short", "AT_SEQUENCE_NUMBER", SequenceNumber="12")
    read("at: no number", "AT_SEQUENCE_NUMBER", SequenceNumber="x" * 21)
    read("at: without", "AT_SEQUENCE_NUMBER")
    read("at: of another shard", "AT_SEQUENCE_NUMBER", SequenceNumber="9" * 40)
    read("latest: with a number", "LATEST", SequenceNumber=numbers[0])
    read("unknown kind", "NONSENSE")
    read("timestamp", "AT_TIMESTAMP")
    for fact, request in (
        ("limit", {"Limit": 2}),
        ("limit: 0", {"Limit": 0}),
        ("limit: 1001", {"Limit": 1001}),
        ("no iterator", {"ShardIterator": "nope"}),
    ):
        request = {"ShardIterator": oldest, **request}  # noqa: PLW2901 - with the default
        notes.call(f"get: {fact}", streams.get_records, lambda answer: len(answer["Records"]), **request)
    get = streams.get_shard_iterator
    unknown: Any = {"ShardId": "shardId-00000000000000000001-00000000", "ShardIteratorType": "LATEST"}
    notes.call("iterator: no shard", get, StreamArn=arn, **unknown)
    notes.call("iterator: no stream", get, **{**at, "StreamArn": f"{arn}9"}, ShardIteratorType="LATEST")


def scenario_streams(notes: Notes) -> None:
    """Enable, describe and disable the stream of a table."""
    dynamodb, streams = notes.dynamodb, notes.streams
    name = notes.table(StreamSpecification=VIEW)
    arn = _arn(notes, name)
    (shard,) = _shards(notes, arn)
    description = streams.describe_stream(StreamArn=arn)["StreamDescription"]
    notes.fact("description", sorted(description))
    notes.fact(
        "status", [description["StreamStatus"], description["StreamViewType"], description["KeySchema"]]
    )
    notes.fact("shard", [sorted(shard), sorted(shard["SequenceNumberRange"])])
    notes.fact("shard id", [len(part) for part in shard["ShardId"].split("-")])
    table = dynamodb.describe_table(TableName=name)["Table"]
    notes.fact("table", [table["StreamSpecification"], arn.endswith(table["LatestStreamLabel"])])
    see = lambda answer: [one["StreamArn"] == arn for one in answer["Streams"]]  # noqa: E731
    notes.call("list", streams.list_streams, see, TableName=name)
    notes.call(
        "list: no table", streams.list_streams, lambda answer: answer["Streams"], TableName=notes.absent
    )
    notes.call("list: limit 0", streams.list_streams, Limit=0)
    children = {"Type": "CHILD_SHARDS", "ShardId": shard["ShardId"]}
    shards = lambda answer: len(answer["StreamDescription"]["Shards"])  # noqa: E731
    notes.call("describe: children", streams.describe_stream, shards, StreamArn=arn, ShardFilter=children)
    notes.call(
        "describe: after the last",
        streams.describe_stream,
        shards,
        StreamArn=arn,
        ExclusiveStartShardId=shard["ShardId"],
    )
    notes.call("describe: no stream", streams.describe_stream, StreamArn=f"{arn}9")
    notes.call("describe: limit 0", streams.describe_stream, StreamArn=arn, Limit=0)
    notes.call("describe: limit 101", streams.describe_stream, StreamArn=arn, Limit=101)
    update = dynamodb.update_table
    notes.call("enable: twice", update, TableName=name, StreamSpecification=VIEW)
    dynamodb.put_item(TableName=name, Item={"k": {"S": "a"}})
    off = {"StreamEnabled": False}
    notes.call("disable", update, TableName=name, StreamSpecification=off)
    notes.table_active(name)
    description = streams.describe_stream(StreamArn=arn)["StreamDescription"]
    closed = description["Shards"][0]["SequenceNumberRange"]
    notes.fact("disabled", [description["StreamStatus"], sorted(closed)])
    at = {"StreamArn": arn, "ShardId": shard["ShardId"]}
    iterator = streams.get_shard_iterator(**at, ShardIteratorType="TRIM_HORIZON")["ShardIterator"]
    answer = streams.get_records(ShardIterator=iterator)
    notes.fact("disabled: records", [len(answer["Records"]), "NextShardIterator" in answer])
    dynamodb.put_item(TableName=name, Item={"k": {"S": "unseen"}})
    keys_only = {"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"}
    notes.call("enable again", update, TableName=name, StreamSpecification=keys_only)
    notes.table_active(name)
    notes.fact("another stream", _arn(notes, name) != arn)
    listed = streams.list_streams(TableName=name)["Streams"]
    notes.fact("both are listed", {one["StreamArn"] for one in listed} == {arn, _arn(notes, name)})
    dynamodb.put_item(TableName=name, Item={"k": {"S": "a"}, "v": {"S": "x"}})
    (shard,) = _shards(notes, _arn(notes, name))
    iterator = streams.get_shard_iterator(
        StreamArn=_arn(notes, name), ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    notes.fact("keys only", [_shape(record)[:3] for record in _changes(notes, iterator, 1)])
    keys = {
        "KeySchema": [{"AttributeName": "k", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "k", "AttributeType": "S"}],
        "BillingMode": "PAY_PER_REQUEST",
    }
    for fact, bad in (
        ("no view", {"StreamEnabled": True}),
        ("view of a disabled one", {"StreamEnabled": False, "StreamViewType": "KEYS_ONLY"}),
    ):
        create: dict[str, Any] = {**keys, "TableName": notes.name(), "StreamSpecification": bad}
        notes.call(f"create: {fact}", dynamodb.create_table, **create)
