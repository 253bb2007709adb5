"""Cost of the aggregation codec per user record, compared with a bare protobuf loop and aws_kinesis_agg.

    python benchmarks/bench_codec.py [--rounds 40]

One process, one thread, one table. Every candidate reads the same user records and writes the same
aggregate, which is checked before the measurement. The "bare protobuf" loop is the minimum that a program without
this package needs: generated-style messages, a dict for the key table, the MD5; for reading, the MD5 check,
``FromString`` and two fields of each record. It has no size limit, no other checks and no sequence numbers, so it is
a floor and not a competitor.

Candidates take turns, and the best round counts: on a shared machine, the minimum is the least disturbed value.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from hashlib import md5
from typing import Any, NamedTuple

from aws_kinesis_agg.aggregator import AggRecord
from aws_kinesis_agg.deaggregator import iter_deaggregate_records
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from kinesis_sdk.common.aggregate_reader import MAGIC, Aggregate, deaggregate, decode
from kinesis_sdk.common.hashkeys import FULL_RANGE, hash_partition_key
from kinesis_sdk.common.records import KinesisRecord

MAX_SIZE = 51_200
KEYS = 16


class Workload(NamedTuple):
    """User records that fill one aggregate."""

    name: str
    records: list[tuple[str, bytes, bytes]]  # partition key, data, hash key
    blob: bytes


def make_workload(name: str, data_size: int) -> Workload:
    """Return the user records of an aggregate of about 50 KB."""
    rng = random.Random(data_size)
    keys = [f"customer-{index:04d}" for index in range(KEYS)]
    hashes = {key: hash_partition_key(key) for key in keys}
    aggregate = Aggregate(MAX_SIZE, 1_000_000)
    records: list[tuple[str, bytes, bytes]] = []
    while True:
        key = keys[len(records) % KEYS]
        data = rng.randbytes(data_size)
        if not aggregate.try_append(key, None, data, hashes[key]):
            return Workload(name, records, aggregate.encode())
        records.append((key, data, hashes[key]))


def protobuf_class() -> Any:
    """Return the class ``AggregatedRecord`` with the field types of messages.proto, as a generated module has it."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="bench.proto", package="bench", syntax="proto2")
    record = file.message_type.add(name="Record")
    record.field.add(name="partition_key_index", number=1, type=field.TYPE_UINT64, label=field.LABEL_REQUIRED)
    record.field.add(
        name="explicit_hash_key_index", number=2, type=field.TYPE_UINT64, label=field.LABEL_OPTIONAL
    )
    record.field.add(name="data", number=3, type=field.TYPE_BYTES, label=field.LABEL_REQUIRED)
    outer = file.message_type.add(name="AggregatedRecord")
    outer.field.add(name="partition_key_table", number=1, type=field.TYPE_STRING, label=field.LABEL_REPEATED)
    outer.field.add(
        name="explicit_hash_key_table", number=2, type=field.TYPE_STRING, label=field.LABEL_REPEATED
    )
    outer.field.add(
        name="records",
        number=3,
        type=field.TYPE_MESSAGE,
        type_name=".bench.Record",
        label=field.LABEL_REPEATED,
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("bench.AggregatedRecord"))


MESSAGE = protobuf_class()


def encode_ours(work: Workload) -> bytes:
    """`Aggregate`: exact size known after each append."""
    aggregate = Aggregate(MAX_SIZE, 1_000_000)
    for key, data, hash_key in work.records:
        aggregate.try_append(key, None, data, hash_key)
    return aggregate.encode()


def encode_protobuf(work: Workload) -> bytes:
    """Build the message, serialise it, append the MD5."""
    message = MESSAGE()
    table: dict[str, int] = {}
    add = message.records.add
    for key, data, _hash_key in work.records:
        index = table.get(key)
        if index is None:
            index = table[key] = len(table)
            message.partition_key_table.append(key)
        record = add()
        record.partition_key_index = index
        record.data = data
    body: bytes = message.SerializeToString()
    return MAGIC + body + md5(body, usedforsecurity=False).digest()


def encode_agg(work: Workload) -> bytes:
    """aws_kinesis_agg's AggRecord. With text keys it charges each key again, so it gets all of 1 MiB."""
    aggregate = AggRecord()
    for key, data, _hash_key in work.records:
        aggregate.add_user_record(key, data)
    blob: bytes = aggregate.get_contents()[2]
    return blob


def decode_ours(work: Workload) -> list[Any]:
    """`decode`: partition key, explicit hash key, data."""
    return decode(work.blob) or []


def deaggregate_ours(work: Workload) -> list[Any]:
    """`deaggregate`: user records with positions, all of them created and kept."""
    return list(deaggregate([KinesisRecord(work.blob, "a", "1")]))


def deaggregate_unread(work: Workload) -> object:
    """`deaggregate` without access to a record: everything is read and checked, no record object is created."""
    return deaggregate([KinesisRecord(work.blob, "a", "1")])


def deaggregate_ranged(work: Workload) -> list[Any]:
    """`deaggregate` with the KCL's range check."""
    return list(
        deaggregate(
            [KinesisRecord(work.blob, "a", "1")],
            hash_key_range=FULL_RANGE,
            on_misplaced=lambda _record, _count: True,
        )
    )


def decode_protobuf(work: Workload) -> list[Any]:
    """Check the MD5, parse the message, read two fields of each record."""
    blob = work.blob
    body = blob[4:-16]
    if md5(body, usedforsecurity=False).digest() != blob[-16:]:
        return []
    message = MESSAGE.FromString(body)
    keys = list(message.partition_key_table)
    return [(keys[record.partition_key_index], record.data) for record in message.records]


def decode_agg(work: Workload) -> list[Any]:
    """aws_kinesis_agg's deaggregator, fed as its users of boto3 do."""
    record = {
        "SequenceNumber": "1",
        "PartitionKey": "a",
        "ApproximateArrivalTimestamp": None,
        "Data": work.blob,
    }
    return list(iter_deaggregate_records([record], data_format="Boto3"))


def digest_only(work: Workload) -> bytes:
    """The MD5 that every reader and writer of the format computes."""
    return md5(work.blob, usedforsecurity=False).digest()


Candidate = Callable[[Workload], object]


def measure(candidates: dict[str, Candidate], work: Workload, rounds: int) -> dict[str, float]:
    """Return the best µs per user record of each candidate.

    They take turns within each round, and each round begins with another one, because a candidate finds the caches filled by its
    predecessor.
    """
    best = dict.fromkeys(candidates, float("inf"))
    order = list(candidates.items())
    for _ in range(rounds):
        order.append(order.pop(0))
        for name, function in order:
            started = time.perf_counter()
            for _call in range(4):
                function(work)
            spent = time.perf_counter() - started
            best[name] = min(best[name], spent / 4)
    return {name: spent / len(work.records) * 1e6 for name, spent in best.items()}


def check(work: Workload) -> None:
    """Check that all candidates do the same work."""
    assert encode_ours(work) == encode_protobuf(work) == encode_agg(work) == work.blob
    expected = [(key, data) for key, data, _hash_key in work.records]
    assert [(sub.partition_key, sub.data) for sub in decode_ours(work)] == expected
    for users in (deaggregate_ours(work), deaggregate_ranged(work)):
        assert [(user.partition_key, user.data) for user in users] == expected
    assert decode_protobuf(work) == expected
    assert len(decode_agg(work)) == len(expected)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=40, help="rounds per candidate; the best counts")
    rounds = parser.parse_args().rounds
    groups: dict[str, dict[str, Candidate]] = {
        "encode": {
            "kinesis_sdk Aggregate": encode_ours,
            "bare protobuf": encode_protobuf,
            "aws_kinesis_agg": encode_agg,
        },
        "decode": {
            "kinesis_sdk decode": decode_ours,
            "kinesis_sdk deaggregate": deaggregate_ours,
            "(of that before a record is made)": deaggregate_unread,
            "kinesis_sdk deaggregate + range": deaggregate_ranged,
            "bare protobuf": decode_protobuf,
            "aws_kinesis_agg": decode_agg,
            "(MD5 alone)": digest_only,
        },
    }
    for work in (make_workload("100-byte records", 100), make_workload("1 KB records", 1000)):
        check(work)
        print(f"\n{work.name}: {len(work.records)} in an aggregate of {len(work.blob):,} bytes, {KEYS} keys")
        print(f"{'':10}{'':34}{'µs/record':>10}{'× protobuf':>12}{'aws_kinesis_agg ÷':>20}")
        for group, candidates in groups.items():
            result = measure(candidates, work, rounds)
            floor, peer = result["bare protobuf"], result["aws_kinesis_agg"]
            for name, spent in result.items():
                print(f"{group:10}{name:34}{spent:10.3f}{spent / floor:12.2f}{peer / spent:20.1f}")


if __name__ == "__main__":
    main()
