"""Headers in every way to put, their limits, and the streams that do not take them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from kinesis_sdk.common.aggregate_reader import MAGIC
from kinesis_sdk.common.errors import InvalidRecordError, PutManyError
from kinesis_sdk.common.once.stamps import WRAPPING
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer import Producer, ProducerConfig, Put
from kinesis_sdk.producer.stream.topology import Admission, StreamFacts, Topology
from kinesis_sdk.testing import FakeAws, Fault
from tests.producer.simulation import STREAM
from tests.producer.stored import stored, stored_headers
from tests.producer.stream.distribution import AUTO, BY_KEY, DENIED, simulate, switch
from tests.producer.support import LONG, failure_of

HEADERS: Mapping[str, str | bytes] = {"traceparent": "00-ab", "bin": b"\xff"}
READ = {"traceparent": b"00-ab", "bin": b"\xff"}
ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"


def made(aws: FakeAws, **settings: Any) -> Producer:
    settings = {"record_max_buffered_time": 0.005, **settings}
    return Producer(ProducerConfig(**settings), client=aws.client("kinesis"))


PUT = Put(STREAM, "k", b"x", headers=HEADERS)


WAYS: dict[str, Callable[[Producer], Any]] = {
    "put": lambda producer: producer.put(STREAM, "k", b"x", headers=HEADERS),
    "put with a hash key": lambda producer: producer.put(STREAM, "k", b"x", 7, headers=HEADERS),
    "try_put": lambda producer: producer.try_put(STREAM, "k", b"x", headers=HEADERS),
    "put_many": lambda producer: producer.put_many(STREAM, [PUT]),
    "put_many by ARN": lambda producer: producer.put_many(ARN, [PUT._replace(stream=StreamId.parse(ARN))]),
    "send": lambda producer: producer.send(STREAM, "k", b"x", headers=HEADERS),
}


@pytest.mark.parametrize("settings", [{}, {"aggregation_enabled": False}, {"idempotent": True}], ids=str)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_in_takes_headers(aws: FakeAws, way: str, settings: dict[str, Any]) -> None:
    with made(aws, **settings) as producer:
        WAYS[way](producer)
        assert producer.flush(LONG) == 0
        assert producer.stats().buffered_bytes == 0
    assert stored_headers(aws) == {b"x": READ}


def test_a_record_without_headers_is_sent_as_ever(aws: FakeAws) -> None:
    with made(aws) as producer:
        producer.put(STREAM, "k", b"x", headers={})
        producer.try_put(STREAM, "l", b"y", headers=None)
    assert not any(record.data.startswith(MAGIC) and record.data.count(b"\x22") for record in stored(aws))
    assert stored_headers(aws) == {b"x": {}, b"y": {}}


def test_headers_are_charged_and_shown_nowhere(aws: FakeAws) -> None:
    put = PUT._replace(headers={"token": "secret"}, data=b"secret")
    assert repr(put) == "Put(stream='orders', partition_key='k', data=<bytes>, headers=['token'])"
    with made(aws, record_max_buffered_time=30.0) as producer:
        (plain,) = producer.put_many(STREAM, [put._replace(headers={})])
        before = producer.stats().buffered_bytes
        (record,) = producer.put_many(STREAM, [put])
        assert producer.stats().buffered_bytes == 2 * before + len(record.header_fields)
        assert "secret" not in repr(record) + repr(plain)


@pytest.mark.parametrize(
    ("arguments", "options", "field", "told"),
    [
        (("k", b"x"), {"headers": {"k1": "v"}}, "headers", "not one letter and one digit"),
        (("k", b"x"), {"headers": {"n": 7}}, "headers", "n: expected a value of str or bytes"),
        ((None, b"x"), {"headers": HEADERS}, "headers", "without a partition key"),
        (("k", "text"), {"headers": HEADERS}, "data", "expected bytes"),
        (("k", b"x"), {"headers": HEADERS, "dedup_id": "a"}, "dedup_id", "dedup_namespace"),
    ],
)
def test_what_is_refused(
    aws: FakeAws, arguments: tuple[Any, Any], options: dict[str, Any], field: str, told: str
) -> None:
    with made(aws) as producer:
        for way in (producer.put, producer.try_put, producer.send):
            with pytest.raises(InvalidRecordError, match=told) as raised:
                way(STREAM, *arguments, **options)
            assert raised.value.field == field
        with pytest.raises(TypeError, match="header"):
            producer.try_put(STREAM, "k", b"x", header={})  # type: ignore[call-arg]
        with pytest.raises(PutManyError, match="other"):
            producer.put_many(STREAM, [PUT._replace(stream="other")])
        assert producer.stats().user_records_put == 0


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("explicit", [None, 2**128 - 1])
def test_the_largest_record_with_headers_is_stored_and_one_byte_more_is_refused(
    aws: FakeAws, idempotent: bool, explicit: int | None
) -> None:
    limit = 4_096 + (WRAPPING if idempotent else 0)
    with made(aws, idempotent=idempotent, request_timeout=1.0, max_user_record_size=4_096) as producer:
        put = partial(producer.put, STREAM, "k" * 9, explicit_hash_key=explicit, headers={"n": "v" * 1_000})
        with pytest.raises(InvalidRecordError, match=f"{limit:,}") as no:
            put(bytes(3_500))
        over = int(str(no.value).split(" have ")[1].split(" ")[0].replace(",", "")) - limit
        with pytest.raises(InvalidRecordError):
            put(bytes(3_500 - over + 1))
        assert put(bytes(3_500 - over)).result(LONG)
    assert max(len(record.data) + len(record.partition_key) for record in stored(aws)) == limit


# Streams that place records themselves


TENANT = {"tenant": b"acme"}


def test_a_stream_that_places_records_fails_those_with_headers_and_no_other() -> None:
    simulation = simulate(ProducerConfig(record_max_buffered_time=0.0), **AUTO)
    records = [simulation.put("k", b"%d" % n, headers=TENANT if n % 2 else {}) for n in range(10)]
    simulation.finish()
    assert [failure_of(record).attempts[-1].code for record in records[1::2]] == ["HeadersImpossible"] * 5
    assert [record.exception() for record in records[::2]] == [None] * 5
    assert {one.data for one in simulation.stored(like_a_kcl=False)} == {b"0", b"2", b"4", b"6", b"8"}


def test_a_stream_that_begins_to_place_records_fails_what_it_can_no_longer_take() -> None:
    simulation = simulate(ProducerConfig(aggregation_enabled=False), **BY_KEY)
    early = simulation.put_and_run("k", b"early", headers=TENANT)
    switch(simulation, "AUTO")
    late = [simulation.put(f"k{n}", b"late %d" % n, headers=TENANT) for n in range(20)]
    simulation.finish()
    assert early.exception() is None
    failed = [record for record in late if record.exception() is not None]
    assert failed
    assert {failure_of(record).attempts[-1].code for record in failed} == {"HeadersImpossible"}


def test_they_wait_for_the_summary_and_no_other_record_does() -> None:
    simulation = simulate(ProducerConfig(record_max_buffered_time=0.0), **BY_KEY)
    simulation.aws.faults.add(Fault(kind="error", operation="DescribeStreamSummary", count=3))
    waiting = simulation.put("k", b"headers", headers=TENANT)
    plain = simulation.put("k", b"plain")
    simulation.run(until=simulation.clock.monotonic() + 0.1)
    assert plain.done()
    assert not waiting.done()
    simulation.finish()
    assert waiting.exception() is None


def test_they_expire_if_the_summary_never_comes() -> None:
    simulation = simulate(ProducerConfig(record_ttl=5.0), **BY_KEY)
    simulation.aws.faults.add(Fault(kind="error", operation="DescribeStreamSummary"))
    record = simulation.put("k", b"headers", headers=TENANT)
    simulation.run(until=10.0)
    assert failure_of(record).attempts[-1].code == "Expired"


@pytest.mark.parametrize(
    ("default", "code"), [("UNSET", None), ("USER_PARTITION_KEY", None), ("AUTO", "HeadersImpossible")]
)
def test_without_the_permission_for_the_summary_the_setting_decides(default: Any, code: str | None) -> None:
    simulation = simulate(ProducerConfig(record_distribution_strategy_default=default), **BY_KEY)
    simulation.aws.faults.add(DENIED)
    record = simulation.put_and_run("k", b"headers", headers=TENANT)
    assert (code and failure_of(record).attempts[-1].code) == (None if record.exception() is None else code)


def test_put_refuses_them_once_the_stream_is_known(aws: FakeAws) -> None:
    aws.client("kinesis").create_stream(StreamName="auto", **AUTO)
    with made(aws) as producer:
        producer.put("auto", "k", b"x").result(LONG)
        producer.put("auto", None, b"x").result(LONG)
        with pytest.raises(InvalidRecordError) as raised:
            producer.put("auto", "k", b"x", headers=HEADERS)
        assert raised.value.field == "headers"


def test_what_the_topology_says_of_headers() -> None:
    for default, before in (
        ("UNSET", Admission.WAIT),
        ("AUTO", Admission.WAIT),
        ("USER_PARTITION_KEY", Admission.SEND),
    ):
        config = ProducerConfig(record_distribution_strategy_default=default)  # type: ignore[arg-type]
        topology = Topology(random.Random(1), config)
        assert topology.headed() is before
        for places, after in ((True, Admission.REJECT), (False, Admission.SEND)):
            topology.begin_load(10.0)
            topology.finish_load(StreamFacts(None, None, places), 10.0)
            assert topology.headed() is after
            topology.doubt()
