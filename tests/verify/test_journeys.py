"""The account of records, and responses that are cut off. Whole journeys run in integration/test_verify.py."""

from __future__ import annotations

import pytest
from botocore.exceptions import ReadTimeoutError

from kinesis_sdk.testing import FakeAws, VirtualClock
from kinesis_sdk.verify.journeys import Account, CutResponses


def account(*delivered: str) -> dict[str, int]:
    made = Account()
    for record in ("a:0", "a:1", "a:2", "b:0"):
        made.acknowledged(record)
    for record in delivered:
        made.delivered("worker", "shard", [record])
    return made.facts()


@pytest.mark.parametrize(
    ("delivered", "lost", "early", "again"),
    [
        (("a:0", "b:0", "a:1", "a:2"), 0, 0, 0),
        (("a:0", "a:1", "a:2"), 1, 0, 0),
        (("a:0", "a:2", "a:1", "b:0"), 0, 1, 0),
        (("a:0", "a:1", "a:0", "a:1", "a:2", "b:0"), 0, 0, 2),
        (("a:0", "a:1", "a:2", "b:0", "c:9"), 0, 0, 0),
    ],
)
def test_each_record_is_accounted_for(delivered: tuple[str, ...], lost: int, early: int, again: int) -> None:
    assert account(*delivered) == {
        "acknowledged": 4,
        "lost": lost,
        "out of order": early,
        "delivered again": again,
    }


def test_a_response_that_is_cut_off_has_stored_its_records() -> None:
    client = FakeAws(clock=VirtualClock(), streams={"s": 1}).client("kinesis")
    cutting = CutResponses(client, every=2)
    for number in range(4):
        request = {"StreamName": "s", "Records": [{"Data": b"x", "PartitionKey": "k"}]}
        if number % 2:
            with pytest.raises(ReadTimeoutError):
                cutting.put_records(**request)
        else:
            assert cutting.put_records(**request)["FailedRecordCount"] == 0
    assert cutting.cut == 2
    iterator = cutting.get_shard_iterator(
        StreamName="s", ShardId="shardId-000000000000", ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    assert len(client.get_records(ShardIterator=iterator)["Records"]) == 4
