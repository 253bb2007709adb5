"""Aggregates of an idempotent producer in the hands of the deaggregators of Java, Python and Node: its tags change nothing for them."""

from __future__ import annotations

import base64
import hashlib
import random
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import boto3
import pytest
from aws_kinesis_agg.deaggregator import deaggregate_records, messages_pb2

from integration.java.kpl.judge import open_records
from integration.multilang.install import node_deaggregator
from integration.stored import Stored, stored_records
from kinesis_sdk import Producer, ProducerConfig
from kinesis_sdk.common.aggregate_reader import MAGIC, decode, open_aggregate
from kinesis_sdk.common.once.table import NAMED, REPEAT, RunTable, decode_table
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.testing import start_server_process
from tests import HANG

SHARDS = 3
SMALL = 3_000
SIZES = (0, 1, 40, 120, 900, 6_000)
ALONE = (0, 1, 500, 70_000, 300_000)
"""Bytes of records that are sent alone. Two of them are too large for an aggregate."""
KEYS = ("customer", "клиент", "顧客", "🛒")


class Opened(NamedTuple):
    """A user record, as a deaggregator returns it.

    Attributes:
        carrier: Sequence number of its Kinesis record.
        key, place, data: Partition key, explicit hash key, payload.
    """

    carrier: str
    key: str
    place: str | None
    data: bytes


class Written(NamedTuple):
    """What a producer wrote.

    Attributes:
        put: Payloads by their digests, and how often each was put.
        stored: The Kinesis records, shard by shard.
        tables: The tables in their tags.
    """

    put: Counter[bytes]
    stored: Sequence[Stored]
    tables: Sequence[RunTable]


def records_to_put(seed: int) -> Iterator[tuple[str, bytes, str | None, str | None, bool]]:
    """Yield key, payload, explicit hash key, name, and whether everything so far has to be sent first."""
    choose = random.Random(seed)
    for number in range(SMALL):
        place = str(choose.randrange(1 << 128)) if choose.random() < 0.3 else None
        # Some names are put twice, as by an application that runs a job again.
        name = f"order-{choose.randrange(300)}" if choose.random() < 0.2 else None
        data = choose.randbytes(choose.choice(SIZES))
        yield f"{choose.choice(KEYS)}-{number % 50}", data, place, name, number % 1_000 == 999
    for size in ALONE:
        for place in (None, str(choose.randrange(1 << 128))):
            for name in (None, f"alone-{size}-{place}"):
                yield f"alone-{size}", choose.randbytes(size), place, name, True


def write(server: Any, kinesis: Any, stream: str, *, idempotent: bool) -> Written:
    """Put everything, while two calls in three are stored and get no answer at first."""
    kinesis.create_stream(StreamName=stream, ShardCount=SHARDS)
    server.admin(
        "faults",
        {
            "kind": "timeout_after_storing",
            "operation": "PutRecords",
            "stream": stream,
            "count": 2,
            "after": 1,
        },
    )
    put: Counter[bytes] = Counter()
    config = ProducerConfig(
        idempotent=idempotent, dedup_namespace="orders" if idempotent else None, record_max_buffered_time=5.0
    )
    with Producer(config, endpoint_url=server.endpoint_url) as producer:
        futures = []
        for key, data, place, name, is_last in records_to_put(15):
            futures.append(producer.put(stream, key, data, place, dedup_id=name if idempotent else None))
            put[hashlib.sha256(data).digest()] += 1
            if is_last:
                producer.flush()
        for future in futures:
            future.result(HANG)
    stored = list(stored_records(kinesis, stream))
    tables = []
    for _shard, record in stored:
        columns = open_aggregate(record["Data"])
        if columns is not None and columns.tag is not None:
            tables.append(decode_table(columns.tag, stream, len(columns.payloads)))
    assert None not in tables
    return Written(put, stored, tables)


@pytest.fixture(scope="module")
def written() -> Iterator[Mapping[str, Written]]:
    """Return what an idempotent producer wrote, and what another one wrote of the same records."""
    with start_server_process("--no-throttle") as server:
        kinesis = boto3.client("kinesis", endpoint_url=server.endpoint_url)
        yield {
            "idempotent": write(server, kinesis, "idempotent", idempotent=True),
            "ordinary": write(server, kinesis, "ordinary", idempotent=False),
        }
        kinesis.close()


def without_tags(stored: Sequence[Stored]) -> list[Stored]:
    """Return the same records with aggregates whose tags were removed by a library that is not ours."""
    found = []
    for shard, record in stored:
        blob = record["Data"]
        aggregate = messages_pb2.AggregatedRecord.FromString(blob[len(MAGIC) : -16])
        assert sum(len(entry.tags) for entry in aggregate.records) == len(aggregate.records[0].tags) == 1
        aggregate.records[0].ClearField("tags")
        body = aggregate.SerializeToString()
        assert len(body) < len(blob) - len(MAGIC) - 16
        found.append((shard, {**record, "Data": MAGIC + body + hashlib.md5(body).digest()}))
    return found


def by_ours(stored: Sequence[Stored]) -> list[Opened]:
    """Open records with our code, which does not judge repetitions here."""
    found = []
    for _shard, item in stored:
        record = KinesisRecord.from_api(item)
        subs = decode(record.data) or [(record.partition_key, None, record.data)]
        found += [Opened(record.sequence_number, key, place, data) for key, place, data in subs]
    return found


def by_java(stored: Sequence[Stored]) -> list[Opened]:
    """Open records with the code of the KCL, which knows the range of each shard."""
    return [Opened(one.sequence_number, one.key, one.place, one.data) for one in open_records(stored)]


def by_python(stored: Sequence[Stored]) -> list[Opened]:
    """Open records with aws_kinesis_agg of PyPI, in the form in which a Lambda function gets them."""
    event = [
        {
            "kinesis": {
                "kinesisSchemaVersion": "1.0",
                "sequenceNumber": record["SequenceNumber"],
                "approximateArrivalTimestamp": record["ApproximateArrivalTimestamp"].timestamp(),
                "partitionKey": record["PartitionKey"],
                "data": base64.b64encode(record["Data"]),
            }
        }
        for _shard, record in stored
    ]
    return [
        Opened(
            one["sequenceNumber"],
            one["partitionKey"],
            one.get("explicitHashKey"),
            base64.b64decode(one["data"]),
        )
        for one in (record["kinesis"] for record in deaggregate_records(event))
    ]


def by_node(stored: Sequence[Stored]) -> list[Opened]:
    """Open records with aws-kinesis-agg of npm, which checks the digests."""
    lines = []
    for _shard, record in stored:
        key, data = (
            base64.b64encode(part).decode() for part in (record["PartitionKey"].encode(), record["Data"])
        )
        lines.append(f"{record['SequenceNumber']} {key} {data}\n")
    ended = subprocess.run(
        ["node", node_deaggregator()],
        input="".join(lines), stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    found = []
    for line in ended.stdout.splitlines():
        number, key, place, data = line.split(" ")
        found.append(
            Opened(
                number,
                base64.b64decode(key).decode(),
                None if place == "-" else place,
                base64.b64decode(data),
            )
        )
    return found


def with_first_place(records: Sequence[Opened]) -> list[Opened]:
    """Return what aws-kinesis-agg makes of records, in both languages.

    It reads an absent index of an explicit hash key as 0, so a record without one gets the first one of its aggregate.
    """
    first: dict[str, str] = {}
    for one in records:
        if one.place is not None:
            first.setdefault(one.carrier, one.place)
    return [one._replace(place=one.place or first.get(one.carrier)) for one in records]


@pytest.mark.parametrize(
    ("peer", "reads_as"),
    [
        pytest.param(by_java, list, id="java"),
        pytest.param(by_python, with_first_place, id="python"),
        pytest.param(by_node, with_first_place, id="node"),
    ],
)
def test_tags_change_nothing_for_other_deaggregators(
    written: Mapping[str, Written],
    peer: Callable[[Sequence[Stored]], list[Opened]],
    reads_as: Callable[[Sequence[Opened]], list[Opened]],
) -> None:
    tagged, ordinary = written["idempotent"], written["ordinary"]
    # Every aggregate has a tag, there are aggregates of one, and there are records that may be repetitions or have names.
    assert len(tagged.tables) == len(tagged.stored)
    runs = [run for table in tagged.tables for run in table.runs]
    repeated = sum(run.count for run in runs if run.flags & REPEAT)
    named = sum(run.count for run in runs if run.flags & NAMED)
    alone = sum(sum(run.count for run in table.runs) == 1 for table in tagged.tables)
    assert min(repeated, named) > 100
    assert alone >= 4 * len(ALONE)
    assert not ordinary.tables

    for which in (tagged, ordinary):
        ours = by_ours(which.stored)
        stored = Counter(hashlib.sha256(one.data).digest() for one in ours)
        assert not which.put - stored, "everything that was put is there"
        assert stored - which.put, "and some of it twice, because answers were lost"
        theirs = peer(which.stored)
        assert theirs == reads_as(ours)
    assert peer(without_tags(tagged.stored)) == peer(tagged.stored)
    print(
        f"{len(by_ours(tagged.stored)):,} user records in {len(tagged.stored)} tagged aggregates, {alone} of them of one record;"
        f" {repeated:,} records marked as repeated, {named:,} with names"
    )
