"""Workers and compressed aggregates: as plain ones, within the budget, and what cannot be opened stops its shard and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from kinesis_sdk.common import catalogue
from kinesis_sdk.common import codec as codecs
from kinesis_sdk.common.codec import CODEC_KEY
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer import RecordBatch, RecordHandler
from kinesis_sdk.metrics.memory import MemoryMetrics
from tests.codecs import Deflated
from tests.common.reference import Item, filled
from tests.common.tagged import forged
from tests.consumer.fleet.engines import STREAM, UNHURRIED, Fleet

LOW, HIGH = 5, 2**127 + 5
CONFIG = UNHURRIED.with_fields(checkpoint_interval=1.0)


def items(*numbers: int, place: int = LOW) -> list[Item]:
    return [(f"k{number}", str(place), b"%d" % number) for number in numbers]


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    made: dict[str, Any] = {"deflated": Deflated()}
    monkeypatch.setattr(codecs, "_made", made)
    return made


@pytest.fixture
def metrics() -> MemoryMetrics:
    return MemoryMetrics()


@pytest.fixture
def fleet(metrics: MemoryMetrics) -> Fleet:
    fleet = Fleet(shards=2, config=CONFIG)
    fleet.more = {"metrics": metrics}
    fleet.run(5)
    return fleet


def put(fleet: Fleet, data: bytes, place: int = LOW) -> str:
    response = fleet.raw.put_record(
        StreamName=STREAM, PartitionKey="a", ExplicitHashKey=str(place), Data=data
    )
    return str(response["SequenceNumber"])


def test_records_and_checkpoints_are_those_of_plain_aggregates(fleet: Fleet) -> None:
    put(fleet, filled(items(0, 1)).encode())
    last = put(fleet, filled(items(*range(2, 40))).seal_with(Deflated()).encode())
    fleet.add("a")
    fleet.run(30)
    assert fleet.data() == [b"%d" % number for number in range(40)]
    assert [sub for *_, sub in fleet.delivered] == [0, 1, *range(38)]
    checkpoints = {str(lease.checkpoint) for lease in fleet.store.list()}
    assert str(ExtendedSequenceNumber(last, 37)) in checkpoints


def test_a_worker_goes_on_inside_a_compressed_aggregate(fleet: Fleet) -> None:
    number = put(fleet, filled(items(*range(40))).seal_with(Deflated()).encode())

    class Stands(RecordHandler):
        def process_records(self, batch: RecordBatch) -> None:
            fleet.note("a", batch)
            batch.checkpoint(number, 12)

    fleet.add("a", Stands)
    fleet.run(30)
    fleet.crash("a")
    fleet.add("b")
    fleet.run(60)
    assert [sub for name, *_, sub in fleet.delivered if name[0] == "b"] == [*range(13, 40)]


def unreadable(metrics: MemoryMetrics) -> float:
    name = catalogue.AGGREGATES_UNREADABLE.name
    return max(found.total for series, found in metrics.snapshot().items() if series.name == name)


def test_behind_the_checkpoint_of_a_whole_aggregate_its_codec_is_not_needed(
    fleet: Fleet, made: dict[str, Any]
) -> None:
    put(fleet, filled(items(0, 1, 2)).seal_with(Deflated()).encode())
    fleet.add("a")
    fleet.run(30)
    fleet.stop("a")
    made.clear()
    put(fleet, b"behind")
    fleet.add("b")
    fleet.run(60)
    assert fleet.data() == [b"0", b"1", b"2", b"behind"]


def test_without_the_codec_a_shard_stops_there_until_a_worker_has_it(
    fleet: Fleet, made: dict[str, Any], metrics: MemoryMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    codec = made.pop("deflated")
    put(fleet, b"first")
    put(fleet, filled(items(1, 2)).encode())
    stopped = put(fleet, filled(items(3, 4)).seal_with(Deflated()).encode())
    put(fleet, b"behind")
    put(fleet, b"elsewhere", HIGH)
    fleet.add("a")
    fleet.run(120)
    assert sorted(fleet.data()) == [b"1", b"2", b"elsewhere", b"first"]
    assert f"stream {STREAM} shard shardId-000000000000 record {stopped}: the codec 'deflated'" in caplog.text
    assert unreadable(metrics) > 1, "at each attempt"
    made["deflated"] = codec
    fleet.run(120)
    assert sorted(fleet.data()) == sorted([b"first", b"1", b"2", b"3", b"4", b"behind", b"elsewhere"])
    fleet.check_order()


def test_a_damaged_body_is_delivered_as_it_is_and_counted(
    fleet: Fleet, metrics: MemoryMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    put(fleet, forged(b"damaged", (CODEC_KEY, "deflated;100;3")))
    put(fleet, b"behind")
    fleet.add("a")
    fleet.run(30)
    assert fleet.data() == [b"damaged", b"behind"]
    assert unreadable(metrics) == 1
    assert "is damaged" in caplog.text
