"""What is stored in the fake stream: Kinesis records, payloads, and the headers of user records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kinesis_sdk.common.aggregate_reader import deaggregate
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.testing import FakeAws
from tests.producer.simulation import STREAM, read_stream


def stored(aws: FakeAws) -> list[KinesisRecord]:
    return [record for _, records in read_stream(aws.client("kinesis")) for record in records]


def stored_headers(aws: FakeAws) -> dict[bytes, Mapping[str, bytes]]:
    return {record.data: record.headers for record in deaggregate(stored(aws))}


def payloads(aws: FakeAws, stream: str = STREAM) -> Counter[bytes]:
    """Payloads that a consumer like the KCL would deliver; faults are over."""
    aws.faults.clear()
    found: Counter[bytes] = Counter()
    for shard, records in read_stream(aws.client("kinesis"), stream):
        users = deaggregate(
            records, hash_key_range=shard.hash_key_range, on_misplaced=lambda _record, _count: True
        )
        found.update(record.data for record in users)
    return found
