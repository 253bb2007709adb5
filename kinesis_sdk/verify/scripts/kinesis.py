"""The feature script of Kinesis: every operation, and the corner cases that clients of this package can encounter."""

from __future__ import annotations

import contextlib
import hashlib
import re
from datetime import timedelta
from typing import Any

from kinesis_sdk.verify.notes import Notes

FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"
HALF, LAST = 1 << 127, (1 << 128) - 1


def ids(answer: dict[str, Any]) -> list[str]:
    """Return the ids of shards."""
    return [shard["ShardId"] for shard in answer["Shards"]]


def data(answer: dict[str, Any]) -> list[bytes]:
    """Return the data of records."""
    return [record["Data"] for record in answer["Records"]]


def iterator(notes: Notes, stream: str, kind: str = "TRIM_HORIZON", shard: str = FIRST, **more: Any) -> str:
    """Return an iterator of a shard."""
    answer = notes.kinesis.get_shard_iterator(
        StreamName=stream, ShardId=shard, ShardIteratorType=kind, **more
    )
    return str(answer["ShardIterator"])


def read(notes: Notes, token: str, **more: Any) -> dict[str, Any]:
    """Return the first response with records, or the response at the tip, because AWS may return no records although more follow."""
    for _ in range(20):
        answer: dict[str, Any] = notes.kinesis.get_records(ShardIterator=token, **more)
        following = answer.get("NextShardIterator")
        if answer["Records"] or not answer["MillisBehindLatest"] or not following:
            break
        token = following
        notes.settle()
    return answer


def read_to_end(notes: Notes, stream: str, shard: str = FIRST) -> tuple[list[bytes], dict[str, Any]]:
    """Return all data of a closed shard and the last response."""
    token, found = iterator(notes, stream, shard=shard), []
    for _ in range(20):
        answer = notes.kinesis.get_records(ShardIterator=token)
        found += data(answer)
        if not answer.get("NextShardIterator"):
            return found, answer
        token = answer["NextShardIterator"]
    raise AssertionError(f"{shard} does not end")


def scenario_streams(notes: Notes) -> None:
    """Create, describe, list and delete streams."""
    kinesis = notes.kinesis
    name = notes.stream(2)
    notes.call("create: exists already", kinesis.create_stream, StreamName=name, ShardCount=1)
    notes.call("create: bad name", kinesis.create_stream, StreamName="a b", ShardCount=1)
    notes.call("create: no shards", kinesis.create_stream, StreamName=notes.name(), ShardCount=0)
    notes.call("create: no count", kinesis.create_stream, StreamName=notes.name())
    summary = notes.active(name)
    notes.fact("summary: members", sorted(summary))
    for member in (
        "RetentionPeriodHours",
        "EncryptionType",
        "OpenShardCount",
        "ConsumerCount",
        "MaxRecordSizeInKiB",
    ):
        notes.fact(f"summary: {member}", summary.get(member))
    notes.fact("summary: mode", summary.get("StreamModeDetails"))
    notes.fact("summary: ARN ends", summary["StreamARN"].rpartition(":")[2] == f"stream/{name}")
    age = notes.now() - summary["StreamCreationTimestamp"]
    notes.fact("summary: creation time", timedelta(seconds=-2) < age < timedelta(minutes=1))
    described = kinesis.describe_stream(StreamName=name)["StreamDescription"]
    notes.fact("describe: members", sorted(described))
    notes.fact("describe: shards", ids(described))
    page = kinesis.describe_stream(StreamName=name, Limit=1)["StreamDescription"]
    notes.fact("describe: first page", (ids(page), page["HasMoreShards"]))
    page = kinesis.describe_stream(StreamName=name, ExclusiveStartShardId=FIRST)["StreamDescription"]
    notes.fact("describe: second page", (ids(page), page["HasMoreShards"]))
    arn = summary["StreamARN"]
    notes.call("summary: by ARN", kinesis.describe_stream_summary, StreamARN=arn)
    notes.call("summary: no stream", kinesis.describe_stream_summary, StreamName=notes.absent)
    notes.call("summary: neither name nor ARN", kinesis.describe_stream_summary)
    notes.call("describe: no stream", kinesis.describe_stream, StreamName=notes.absent)
    notes.call("list streams: has it", kinesis.list_streams, lambda a: name in a["StreamNames"], Limit=1000)
    notes.call(
        "list streams: after it",
        kinesis.list_streams,
        lambda a: name in a["StreamNames"],
        ExclusiveStartStreamName=name,
    )
    notes.call("list streams: bad limit", kinesis.list_streams, Limit=0)
    notes.call("limits", kinesis.describe_limits, lambda answer: sorted(set(answer) - {"ResponseMetadata"}))
    notes.call("delete: no stream", kinesis.delete_stream, StreamName=notes.absent)
    notes.call("delete", kinesis.delete_stream, StreamName=name)


def scenario_listing(notes: Notes) -> None:
    """List shards by pages and filters, before and after a split."""
    kinesis = notes.kinesis
    stream = notes.stream(3)
    arn = notes.active(stream)["StreamARN"]
    whole = notes.call("by name", kinesis.list_shards, ids, StreamName=stream)
    notes.call("by ARN", kinesis.list_shards, ids, StreamARN=arn)
    notes.fact("shard: members", sorted(whole["Shards"][0]))
    ranges = [shard["HashKeyRange"] for shard in whole["Shards"]]
    notes.fact("shards tile the space", [(r["StartingHashKey"], r["EndingHashKey"]) for r in ranges])
    notes.call("page 1", kinesis.list_shards, ids, StreamName=stream, MaxResults=2)
    token = kinesis.list_shards(StreamName=stream, MaxResults=2)["NextToken"]
    notes.call("page 2", kinesis.list_shards, ids, NextToken=token)
    notes.call("token and name", kinesis.list_shards, NextToken=token, StreamName=stream)
    notes.call("bad token", kinesis.list_shards, NextToken="nonsense")
    notes.call("bad page size", kinesis.list_shards, StreamName=stream, MaxResults=0)
    notes.call("after a shard", kinesis.list_shards, ids, StreamName=stream, ExclusiveStartShardId=FIRST)
    notes.call("no stream", kinesis.list_shards, StreamName=notes.absent)
    notes.call("neither name nor ARN", kinesis.list_shards)
    before = notes.now()
    notes.wait(1.1)
    kinesis.split_shard(StreamName=stream, ShardToSplit=FIRST, NewStartingHashKey="5")
    notes.active(stream)
    # LocalStack truncates times to seconds.
    notes.wait(1.2)

    def filtered(name: str, **chosen: Any) -> None:
        notes.call(f"filter: {name}", kinesis.list_shards, ids, StreamName=stream, ShardFilter=chosen)

    filtered("AT_LATEST", Type="AT_LATEST")
    filtered("AT_TRIM_HORIZON", Type="AT_TRIM_HORIZON")
    filtered("FROM_TRIM_HORIZON", Type="FROM_TRIM_HORIZON")
    filtered("AFTER_SHARD_ID", Type="AFTER_SHARD_ID", ShardId=SECOND)
    filtered("AT_TIMESTAMP before the split", Type="AT_TIMESTAMP", Timestamp=before)
    filtered("AT_TIMESTAMP now", Type="AT_TIMESTAMP", Timestamp=notes.now())
    filtered("FROM_TIMESTAMP before the split", Type="FROM_TIMESTAMP", Timestamp=before)
    filtered("FROM_TIMESTAMP now", Type="FROM_TIMESTAMP", Timestamp=notes.now())
    filtered("AT_TIMESTAMP without", Type="AT_TIMESTAMP")
    filtered("AFTER_SHARD_ID without", Type="AFTER_SHARD_ID")
    filtered("unknown", Type="NONSENSE")


def scenario_writing(notes: Notes) -> None:
    """Put records: their placement, and requests that are rejected."""
    kinesis = notes.kinesis
    stream = notes.stream(4)
    arn = notes.active(stream)["StreamARN"]
    starts = [
        int(shard["HashKeyRange"]["StartingHashKey"])
        for shard in kinesis.list_shards(StreamName=stream)["Shards"]
    ]

    def shard_of(hash_key: int) -> str:
        return f"shardId-{max(i for i, start in enumerate(starts) if start <= hash_key):012d}"

    keys = [f"key-{number}" for number in range(40)] + ["é", "鍵", '"\\\n', "k" * 256]
    answer = kinesis.put_records(
        StreamName=stream, Records=[{"Data": b"x", "PartitionKey": key} for key in keys]
    )
    wanted = [shard_of(int.from_bytes(hashlib.md5(key.encode()).digest(), "big")) for key in keys]
    notes.fact("placed by MD5", [entry["ShardId"] for entry in answer["Records"]] == wanted)
    hashes = [0, LAST, *starts, *(start - 1 for start in starts[1:]), HALF + 1]
    answer = kinesis.put_records(
        StreamName=stream,
        Records=[{"Data": b"x", "PartitionKey": "k", "ExplicitHashKey": str(value)} for value in hashes],
    )
    notes.fact(
        "placed by explicit hash key",
        [e["ShardId"] for e in answer["Records"]] == [shard_of(v) for v in hashes],
    )
    notes.fact("answer: members", (sorted(set(answer) - {"ResponseMetadata"}), sorted(answer["Records"][0])))

    def put(name: str, **entry: Any) -> None:
        entry = {"Data": b"x", "PartitionKey": "k", **entry}
        notes.call(f"PutRecord: {name}", kinesis.put_record, StreamName=stream, **entry)
        notes.call(f"PutRecords: {name}", kinesis.put_records, StreamName=stream, Records=[entry])

    put("nothing wrong")
    put("no data", Data=b"")
    put("empty key", PartitionKey="")
    put("key of 257 characters", PartitionKey="k" * 257)
    put("key of 256 characters", PartitionKey="é" * 256)
    put("hash key 2^128", ExplicitHashKey=str(LAST + 1))
    put("hash key 01", ExplicitHashKey="01")
    put("hash key abc", ExplicitHashKey="abc")
    # Large records cost LocalStack seconds each. The limit of 10 MiB per request, which LocalStack lacks, is not tested for this
    # reason.
    mib = 1 << 20
    notes.call(
        "PutRecord: 1 MiB with its key",
        kinesis.put_record,
        StreamName=stream,
        Data=b"x" * (mib - 1),
        PartitionKey="k",
    )
    notes.call(
        "PutRecord: 1 MiB of data", kinesis.put_record, StreamName=stream, Data=b"x" * mib, PartitionKey="k"
    )
    over = {"Data": b"x" * (mib + 1), "PartitionKey": "k"}
    notes.call("PutRecords: 1 MiB and 1", kinesis.put_records, StreamName=stream, Records=[over])
    notes.call("PutRecord: by ARN", kinesis.put_record, StreamARN=arn, Data=b"x", PartitionKey="k")
    notes.call(
        "PutRecord: no stream", kinesis.put_record, StreamName=notes.absent, Data=b"x", PartitionKey="k"
    )
    notes.call("PutRecord: no key", kinesis.put_record, StreamName=stream, Data=b"x")
    # A stream of its own, because LocalStack's cost grows with the content of a shard.
    many = notes.stream(1)
    notes.call("PutRecords: none", kinesis.put_records, StreamName=many, Records=[])
    entries = [{"Data": b"x", "PartitionKey": str(number)} for number in range(501)]
    notes.call(
        "PutRecords: 500",
        kinesis.put_records,
        lambda a: a["FailedRecordCount"],
        StreamName=many,
        Records=entries[:500],
    )
    notes.call("PutRecords: 501", kinesis.put_records, StreamName=many, Records=entries)


def scenario_sequence_numbers(notes: Notes) -> None:
    """Compare sequence numbers within a shard and across a split."""
    kinesis = notes.kinesis
    stream = notes.stream(1)
    entries = [{"Data": b"%d" % number, "PartitionKey": "k"} for number in range(20)]
    answer = kinesis.put_records(StreamName=stream, Records=entries)
    numbers = [int(entry["SequenceNumber"]) for entry in answer["Records"]]
    again = int(kinesis.put_record(StreamName=stream, Data=b"x", PartitionKey="k")["SequenceNumber"])
    notes.fact("rise", numbers == sorted(set(numbers)) and again > numbers[-1])
    notes.fact("digits", {len(str(number)) for number in numbers})
    shard = kinesis.list_shards(StreamName=stream)["Shards"][0]
    start = int(shard["SequenceNumberRange"]["StartingSequenceNumber"])
    notes.fact("start of the shard is below", start < numbers[0])
    notes.fact("open shard has no end", "EndingSequenceNumber" not in shard["SequenceNumberRange"])
    kinesis.split_shard(StreamName=stream, ShardToSplit=FIRST, NewStartingHashKey=str(HALF))
    notes.active(stream)
    shards = kinesis.list_shards(StreamName=stream)["Shards"]
    end = int(shards[0]["SequenceNumberRange"]["EndingSequenceNumber"])
    notes.fact("end of the shard is above", end > again)
    child = int(kinesis.put_record(StreamName=stream, Data=b"x", PartitionKey="k")["SequenceNumber"])
    starts = [int(shard["SequenceNumberRange"]["StartingSequenceNumber"]) for shard in shards[1:]]
    notes.fact("a child begins above its parent's records", all(start > again for start in starts))
    notes.fact("a child's numbers lie above its parent's", child > again)
    # What the Java KCL's validator reads from a number (facts of the KCL, checkpoint validation).
    notes.fact("shard index at bit 4", (child >> 4) & 0xFFFFFFFF in {1, 2})


def scenario_iterators(notes: Notes) -> None:
    """Read from every kind of position, and from positions that are rejected."""
    kinesis = notes.kinesis
    stream = notes.stream(2)

    def put(*texts: str) -> list[str]:
        answer = kinesis.put_records(
            StreamName=stream,
            Records=[{"Data": text, "PartitionKey": "k", "ExplicitHashKey": "0"} for text in texts],
        )
        return [entry["SequenceNumber"] for entry in answer["Records"]]

    latest = iterator(notes, stream, "LATEST")
    numbers = put("a", "b", "c")
    # Seconds apart, because LocalStack truncates times to seconds.
    notes.wait(1.1)
    between = notes.now()
    notes.wait(1.1)
    numbers += put("d")

    def note(name: str, kind: str, **more: Any) -> None:
        notes.fact(name, data(read(notes, iterator(notes, stream, kind, **more))))

    notes.fact("LATEST before the records", data(read(notes, latest)))
    note("TRIM_HORIZON", "TRIM_HORIZON")
    note("LATEST", "LATEST")
    note("AT_SEQUENCE_NUMBER", "AT_SEQUENCE_NUMBER", StartingSequenceNumber=numbers[1])
    note("AFTER_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=numbers[1])
    note("AFTER_SEQUENCE_NUMBER the last", "AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=numbers[3])
    note("AT_TIMESTAMP between", "AT_TIMESTAMP", Timestamp=between)
    note("AT_TIMESTAMP long ago", "AT_TIMESTAMP", Timestamp=between - timedelta(days=3))

    def refuse(name: str, **more: Any) -> None:
        request = {"StreamName": stream, "ShardId": FIRST, "ShardIteratorType": "TRIM_HORIZON", **more}
        notes.call(f"refused: {name}", kinesis.get_shard_iterator, **request)

    refuse("unknown type", ShardIteratorType="NONSENSE")
    refuse("no number", ShardIteratorType="AT_SEQUENCE_NUMBER")
    refuse("bad number", ShardIteratorType="AT_SEQUENCE_NUMBER", StartingSequenceNumber="01")
    refuse("small number", ShardIteratorType="AT_SEQUENCE_NUMBER", StartingSequenceNumber="12345")
    refuse(
        "number of another shard",
        ShardId=SECOND,
        ShardIteratorType="AT_SEQUENCE_NUMBER",
        StartingSequenceNumber=numbers[0],
    )
    refuse("no timestamp", ShardIteratorType="AT_TIMESTAMP")
    refuse("the future", ShardIteratorType="AT_TIMESTAMP", Timestamp=between + timedelta(hours=1))
    refuse("unknown shard", ShardId="shardId-000000000099")
    refuse("unknown stream", StreamName=notes.absent)
    start = kinesis.list_shards(StreamName=stream)["Shards"][0]["SequenceNumberRange"][
        "StartingSequenceNumber"
    ]
    notes.call(
        "AT the shard's own start",
        kinesis.get_shard_iterator,
        StreamName=stream,
        ShardId=FIRST,
        ShardIteratorType="AT_SEQUENCE_NUMBER",
        StartingSequenceNumber=start,
    )
    notes.call("GetRecords: nonsense", kinesis.get_records, ShardIterator="nonsense")
    notes.call("GetRecords: none", kinesis.get_records)


def scenario_reading(notes: Notes) -> None:
    """Read pages of records; note the members of a record and the lag."""
    kinesis = notes.kinesis
    stream = notes.stream(1)
    arn = notes.active(stream)["StreamARN"]
    before = notes.now()
    key = 'é"\\\n'
    kinesis.put_records(
        StreamName=stream, Records=[{"Data": bytes([number]), "PartitionKey": key} for number in range(10)]
    )
    token = iterator(notes, stream)
    notes.settle()
    first = read(notes, token, Limit=4)
    notes.fact("Limit", data(first))
    notes.fact("members", sorted(set(first) - {"ResponseMetadata", "ChildShards"}))
    notes.fact("an open shard names no children", bool(first.get("ChildShards")))
    notes.fact("record: members", sorted(first["Records"][0]))
    notes.fact("record: key", first["Records"][0]["PartitionKey"])
    arrival = first["Records"][0]["ApproximateArrivalTimestamp"]
    slack = timedelta(seconds=5)
    notes.fact("record: arrival", before - slack < arrival < notes.now() + slack)
    notes.fact("the same iterator twice", data(read(notes, token, Limit=4)) == data(first))
    rest = kinesis.get_records(ShardIterator=first["NextShardIterator"], StreamARN=arn)
    notes.fact("the rest", len(rest["Records"]))
    notes.fact("behind at the tip", rest["MillisBehindLatest"])
    notes.wait(1.1)
    notes.fact("behind", kinesis.get_records(ShardIterator=token, Limit=1)["MillisBehindLatest"] > 0)
    empty = kinesis.get_records(ShardIterator=rest["NextShardIterator"])
    notes.fact("nothing", (data(empty), empty["MillisBehindLatest"], bool(empty["NextShardIterator"])))
    for limit in (0, 10_001):
        notes.call(f"Limit {limit}", kinesis.get_records, ShardIterator=token, Limit=limit)


def scenario_split_and_merge(notes: Notes) -> None:
    """Split and merge shards, and read parents and children."""
    kinesis = notes.kinesis
    stream = notes.stream(2)
    entry = {"PartitionKey": "k", "ExplicitHashKey": "0"}
    kinesis.put_record(StreamName=stream, Data=b"before", **entry)

    def split(name: str, **more: Any) -> None:
        request = {"StreamName": stream, "ShardToSplit": FIRST, "NewStartingHashKey": "10", **more}
        notes.call(f"split: {name}", kinesis.split_shard, **request)

    split("outside", NewStartingHashKey=str(LAST))
    split("no number", NewStartingHashKey="abc")
    split("unknown shard", ShardToSplit="shardId-000000000099")
    split("unknown stream", StreamName=notes.absent)
    split("fine")
    notes.active(stream)
    split("closed shard")
    shards = {shard["ShardId"]: shard for shard in kinesis.list_shards(StreamName=stream)["Shards"]}
    children = [f"shardId-{number:012d}" for number in (2, 3)]
    notes.fact("split: shards", sorted(shards))
    notes.fact("split: parents", [shards[child].get("ParentShardId") for child in children])
    notes.fact("split: adjacent", [shards[child].get("AdjacentParentShardId") for child in children])
    notes.fact("split: ranges", [shards[child]["HashKeyRange"] for child in children])
    notes.fact("split: parent is closed", "EndingSequenceNumber" in shards[FIRST]["SequenceNumberRange"])
    placed = kinesis.put_record(StreamName=stream, Data=b"after", **entry)["ShardId"]
    notes.fact("split: new records", placed)
    found, last = read_to_end(notes, stream)
    notes.fact("split: parent's records", found)
    notes.fact("split: end has children", last.get("ChildShards"))
    notes.fact("split: behind at the end", last["MillisBehindLatest"])
    notes.settle()
    notes.fact("split: child's records", data(read(notes, iterator(notes, stream, shard=children[0]))))
    closed = kinesis.get_records(ShardIterator=iterator(notes, stream, "LATEST"))
    notes.fact(
        "LATEST of a closed shard",
        (data(closed), bool(closed.get("NextShardIterator")), len(closed.get("ChildShards") or ())),
    )

    def merge(name: str, first: str, second: str) -> None:
        notes.call(
            f"merge: {name}",
            kinesis.merge_shards,
            StreamName=stream,
            ShardToMerge=first,
            AdjacentShardToMerge=second,
        )

    merge("not adjacent", children[0], SECOND)
    merge("closed", FIRST, SECOND)
    merge("unknown", FIRST, "shardId-000000000099")
    merge("fine", children[1], SECOND)
    notes.active(stream)
    merged = kinesis.list_shards(StreamName=stream)["Shards"][-1]
    notes.fact(
        "merge: shard",
        [
            merged.get(member)
            for member in ("ShardId", "ParentShardId", "AdjacentParentShardId", "HashKeyRange")
        ],
    )
    _, last = read_to_end(notes, stream, SECOND)
    notes.fact("merge: end has children", last.get("ChildShards"))
    split("at its start", ShardToSplit=merged["ShardId"])


def scenario_scaling(notes: Notes) -> None:
    """Scale a stream up and down."""
    kinesis = notes.kinesis
    stream = notes.stream(2)

    def scale(name: str, target: int, kind: str = "UNIFORM_SCALING") -> None:
        notes.call(
            f"scale: {name}",
            kinesis.update_shard_count,
            lambda answer: [answer.get(member) for member in ("CurrentShardCount", "TargetShardCount")],
            StreamName=stream,
            TargetShardCount=target,
            ScalingType=kind,
        )

    scale("unknown kind", 4, "NONSENSE")
    scale("more than double", 5)
    scale("none", 0)
    scale("double", 4)
    notes.active(stream)
    open_shards = kinesis.list_shards(StreamName=stream, ShardFilter={"Type": "AT_LATEST"})["Shards"]
    ranges = sorted(int(shard["HashKeyRange"]["StartingHashKey"]) for shard in open_shards)
    notes.fact("scaled: starts", ranges)
    scale("less than half", 1)
    scale("to three", 3)
    notes.active(stream)
    open_shards = kinesis.list_shards(StreamName=stream, ShardFilter={"Type": "AT_LATEST"})["Shards"]
    ranges = sorted(int(shard["HashKeyRange"]["StartingHashKey"]) for shard in open_shards)
    notes.fact("scaled down: starts", ranges)
    everything = {shard["ShardId"]: shard for shard in kinesis.list_shards(StreamName=stream)["Shards"]}
    parents = {
        shard.get(member)
        for shard in everything.values()
        for member in ("ParentShardId", "AdjacentParentShardId")
    } - {None}
    notes.fact("scaled: every parent is listed", parents <= set(everything))
    closed = {
        name for name, shard in everything.items() if "EndingSequenceNumber" in shard["SequenceNumberRange"]
    }
    notes.fact("scaled: parents are closed, and no other shards", parents == closed)


def scenario_settings(notes: Notes) -> None:
    """Change retention, tags, record size and mode."""
    kinesis = notes.kinesis
    stream = notes.stream(1)
    arn = notes.active(stream)["StreamARN"]

    def retention(name: str, method: Any, hours: int) -> None:
        notes.call(f"retention: {name}", method, StreamName=stream, RetentionPeriodHours=hours)

    increase, decrease = kinesis.increase_stream_retention_period, kinesis.decrease_stream_retention_period
    retention("48", increase, 48)
    notes.fact("retention: is", notes.active(stream)["RetentionPeriodHours"])
    retention("increase to less", increase, 24)
    retention("increase to 8761", increase, 8761)
    retention("decrease to more", decrease, 72)
    retention("decrease to 23", decrease, 23)
    retention("decrease to 24", decrease, 24)
    notes.active(stream)
    notes.call("tags: add", kinesis.add_tags_to_stream, StreamName=stream, Tags={"b": "2", "a": "1"})
    notes.call(
        "tags: list",
        kinesis.list_tags_for_stream,
        lambda a: (sorted(tag["Key"] for tag in notes.other_tags(a)), a["HasMoreTags"]),
        StreamName=stream,
    )
    notes.call("tags: remove", kinesis.remove_tags_from_stream, StreamName=stream, TagKeys=["a", "unknown"])
    notes.call("tags: rest", kinesis.list_tags_for_stream, notes.other_tags, StreamName=stream)
    notes.call(
        "tags: too many", kinesis.add_tags_to_stream, StreamName=stream, Tags={f"t{n}": "" for n in range(60)}
    )
    record: dict[str, Any] = {"Data": b"x" * (1_500 << 10), "PartitionKey": "k"}
    notes.call("record size: before", kinesis.put_record, StreamName=stream, **record)
    notes.call("record size: update", kinesis.update_max_record_size, StreamARN=arn, MaxRecordSizeInKiB=2048)
    notes.active(stream)
    notes.call("record size: after", kinesis.put_record, StreamName=stream, **record)
    notes.call(
        "record size: too large",
        kinesis.update_max_record_size,
        StreamARN=arn,
        MaxRecordSizeInKiB=10_241,
    )
    mode = {"StreamMode": "ON_DEMAND"}
    notes.call("mode: to on-demand", kinesis.update_stream_mode, StreamARN=arn, StreamModeDetails=mode)
    notes.fact("mode: is", notes.active(stream)["StreamModeDetails"])
    notes.call(
        "mode: unknown", kinesis.update_stream_mode, StreamARN=arn, StreamModeDetails={"StreamMode": "X"}
    )
    notes.call(
        "on-demand: scaling",
        kinesis.update_shard_count,
        StreamName=stream,
        TargetShardCount=2,
        ScalingType="UNIFORM_SCALING",
    )
    notes.call(
        "on-demand: splitting",
        kinesis.split_shard,
        StreamName=stream,
        ShardToSplit=FIRST,
        NewStartingHashKey="5",
    )
    notes.active(stream)
    name = notes.name()
    notes.call("on-demand: create", kinesis.create_stream, StreamName=name, StreamModeDetails=mode)
    notes.fact("on-demand: shards", notes.active(name)["OpenShardCount"])
    kinesis.delete_stream(StreamName=name)


def scenario_consumers(notes: Notes) -> None:
    """Register, describe and deregister consumers."""
    kinesis = notes.kinesis
    stream = notes.stream(1)
    arn = notes.active(stream)["StreamARN"]
    made = notes.call(
        "register",
        kinesis.register_stream_consumer,
        lambda a: sorted(a["Consumer"]),
        StreamARN=arn,
        ConsumerName="app",
    )
    consumer = made["Consumer"]["ConsumerARN"]
    notes.fact("ARN", bool(re.fullmatch(re.escape(arn) + r"/consumer/app:\d+", consumer)))
    notes.call("register: again", kinesis.register_stream_consumer, StreamARN=arn, ConsumerName="app")
    notes.call("register: bad name", kinesis.register_stream_consumer, StreamARN=arn, ConsumerName="a b")
    notes.call(
        "register: no stream", kinesis.register_stream_consumer, StreamARN=arn + "x", ConsumerName="app"
    )
    described = notes.consumer_active(consumer)
    notes.fact("describe: members", sorted(described))
    notes.call("describe: by name", kinesis.describe_stream_consumer, StreamARN=arn, ConsumerName="app")
    notes.call(
        "describe: unknown name", kinesis.describe_stream_consumer, StreamARN=arn, ConsumerName="nobody"
    )
    notes.call("describe: nothing named", kinesis.describe_stream_consumer)
    notes.call(
        "list",
        kinesis.list_stream_consumers,
        lambda a: [c["ConsumerName"] for c in a["Consumers"]],
        StreamARN=arn,
    )
    notes.fact("counted", notes.active(stream).get("ConsumerCount"))
    kinesis.deregister_stream_consumer(ConsumerARN=consumer)
    notes.until(lambda: not kinesis.list_stream_consumers(StreamARN=arn)["Consumers"], "a consumer is gone")
    notes.call("deregister: again", kinesis.deregister_stream_consumer, ConsumerARN=consumer)
    kinesis.register_stream_consumer(StreamARN=arn, ConsumerName="app")
    notes.wait(1)
    notes.call("delete the stream", kinesis.delete_stream, StreamName=stream)
    notes.wait(2)
    notes.call("delete the stream: refused, and then", kinesis.describe_stream_summary, StreamName=stream)


def scenario_subscriptions(notes: Notes) -> None:
    """Subscribe to a shard, subscribe again at once, and read past the end of the shard."""
    kinesis = notes.kinesis
    stream = notes.stream(1)
    arn = notes.active(stream)["StreamARN"]
    consumer = kinesis.register_stream_consumer(StreamARN=arn, ConsumerName="app")["Consumer"]["ConsumerARN"]
    notes.consumer_active(consumer)
    kinesis.put_records(
        StreamName=stream, Records=[{"Data": b"%d" % n, "PartitionKey": "k"} for n in range(3)]
    )

    def subscribe(name: str, **more: Any) -> Any:
        request = {
            "ConsumerARN": consumer,
            "ShardId": FIRST,
            "StartingPosition": {"Type": "TRIM_HORIZON"},
            **more,
        }
        return notes.call(f"subscribe: {name}", kinesis.subscribe_to_shard, **request)

    subscribe("unknown consumer", ConsumerARN=consumer.replace("app:", "none:"))
    subscribe("unknown shard", ShardId="shardId-000000000099")
    subscribe("unknown position", StartingPosition={"Type": "NONSENSE"})
    subscribe("no number", StartingPosition={"Type": "AT_SEQUENCE_NUMBER"})
    answer = subscribe("fine")
    found: list[bytes] = []
    with contextlib.closing(answer["EventStream"]) as events:
        for event in events:
            content = event["SubscribeToShardEvent"]
            notes.facts.setdefault("event: members", sorted(set(content) - {"ChildShards"}))
            found += data(content)
            number = content["ContinuationSequenceNumber"]
            if len(found) >= 3:
                break
        notes.fact("event: records", found)
        notes.fact("event: continuation", number.isdecimal())
        second = subscribe("a second time at once")
        if second is not None:
            second["EventStream"].close()
    notes.wait(5.1)
    after = {"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": number}
    answer = subscribe("later", StartingPosition=after)
    kinesis.split_shard(StreamName=stream, ShardToSplit=FIRST, NewStartingHashKey=str(HALF))
    children: list[str] = []
    ending = "the stream ends"
    try:
        with contextlib.closing(answer["EventStream"]) as events:
            for event in events:
                children += [
                    child["ShardId"] for child in event["SubscribeToShardEvent"].get("ChildShards") or ()
                ]
    except Exception as error:  # noqa: BLE001 — how it breaks off is the fact
        ending = type(error).__name__
    notes.fact("shard end: children", children)
    notes.fact("shard end: then", ending)
