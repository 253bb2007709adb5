"""The public face of an idempotent producer: names, records that are put again, spools, limits."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kinesis_sdk.common.errors import ConfigError, InvalidRecordError, PutManyError, RecordFailedError
from kinesis_sdk.common.hashkeys import hash_partition_key
from kinesis_sdk.common.once.names import Names
from kinesis_sdk.common.once.stamps import WRAPPING
from kinesis_sdk.common.once.table import NAMED
from kinesis_sdk.producer import (
    AsyncProducer,
    FailedRecord,
    FileSpool,
    Producer,
    ProducerConfig,
    RecordIdentity,
    SpooledRecord,
    read_spool,
)
from kinesis_sdk.testing import FakeAws, Fault
from tests.producer.simulation import STREAM, Copy, copies_of, read_stream
from tests.producer.support import LONG, Gate

MIB = 1024 * 1024
QUICK = ProducerConfig(idempotent=True, dedup_namespace="billing", record_max_buffered_time=0.005)
HELD = RecordIdentity(b"12345678", 5, 1_000_000)
HASH_KEY = hash_partition_key("k")


@pytest.fixture
def aws() -> FakeAws:
    aws = FakeAws()
    aws.client("kinesis").create_stream(StreamName=STREAM, ShardCount=2)
    return aws


def copies(aws: FakeAws) -> dict[bytes, Copy]:
    """Every user record in the stream; none of them is there twice."""
    found: dict[bytes, Copy] = {}
    for shard, records in read_stream(aws.client("kinesis")):
        for copy in (copy for record in records for copy in copies_of(record, shard)):
            assert copy.data not in found
            found[copy.data] = copy
    return found


def identity_of(name: str, hash_key: bytes = HASH_KEY) -> tuple[bytes, int, int]:
    identity = Names("billing").identity(name, 300.0, hash_key)
    return identity.incarnation, 0, identity.number


def test_every_way_to_put_takes_a_name(aws: FakeAws) -> None:
    with Producer(QUICK, client=aws.client("kinesis")) as producer:
        producer.put(STREAM, "k", b"put", dedup_id="1").result(LONG)
        producer.put(STREAM, "k", b"with a hash key", "7", dedup_id="2", dedup_window=1)
        assert producer.try_put(STREAM, "k", b"try_put", dedup_id="3", dedup_window=60.5)
        producer.send(STREAM, "k", b"send", dedup_id="4")
        futures = producer.put_many(
            STREAM,
            [("k", b"many", None, "5"), ("k", b"plain"), ("k", b"unnamed", "7"), ("k", b"none", None, None)],
        )
        assert producer.flush(LONG) == 0
        assert [future.exception() for future in futures] == [None] * 4
    found = copies(aws)
    names = {b"put": "1", b"with a hash key": "2", b"try_put": "3", b"send": "4", b"many": "5"}
    placed = {b"with a hash key": (7).to_bytes(16, "big")}
    assert {data: found[data].identity for data in names} == {
        data: identity_of(name, placed.get(data, HASH_KEY)) for data, name in names.items()
    }
    plain = {found[data].identity for data in (b"plain", b"unnamed", b"none")}
    assert None not in plain
    assert len(plain) == 3
    assert len({identity[0] for identity in plain if identity}) == 1, "of one producer"


def test_one_name_under_two_partition_keys_is_two_records(aws: FakeAws) -> None:
    """Both may be in one shard, where readers compare identities: of two customers, each has an order 1."""
    with Producer(QUICK, client=aws.client("kinesis")) as producer:
        for number, (key, hash_key) in enumerate(
            [("k", None), ("k", None), ("other", None), ("k", 7), ("other", 7)]
        ):
            producer.put(STREAM, key, b"%d" % number, hash_key, dedup_id="1")
    found = copies(aws)
    first, again, other, placed, placed_again = (found[b"%d" % number].identity for number in range(5))
    assert first == again
    assert placed == placed_again, "an explicit hash key takes the place of the partition key"
    assert len({first, other, placed}) == 3


def test_asyncio_takes_names_too(aws: FakeAws) -> None:
    async def records() -> AsyncIterator[Any]:
        yield "k", b"many", None, "4"
        yield "k", b"plain"
        yield "k", b"hash key", "7"

    async def run() -> None:
        async with AsyncProducer(QUICK, client=aws.client("kinesis")) as producer:
            await (await producer.put(STREAM, "k", b"put", dedup_id="1"))
            await producer.put_and_wait(STREAM, "k", b"wait", dedup_id="2", dedup_window=5)
            await producer.send(STREAM, "k", b"send", dedup_id="3")
            await asyncio.gather(*await producer.put_many(STREAM, records(), dedup_window=10))
            again = FailedRecord(
                STREAM, "k", None, b"again", ValueError(), RecordIdentity(b"12345678", 5, None, 9.0)
            )
            await (await producer.put_again(again))
            with pytest.raises(InvalidRecordError, match="dedup_window"):
                await producer.put(STREAM, "k", b"no", dedup_id="1", dedup_window=0)

    asyncio.run(run())
    found = copies(aws)
    names = {b"put": "1", b"wait": "2", b"send": "3", b"many": "4"}
    assert {data: found[data].identity for data in names} == {
        data: identity_of(name) for data, name in names.items()
    }
    assert found[b"again"].identity == (b"12345678", 0, 5)
    assert set(found) == {*names, b"again", b"plain", b"hash key"}


@pytest.mark.parametrize(
    ("name", "window", "message"),
    [
        (5, 300, "dedup_id: expected str, not int"),
        (b"x", 300, "dedup_id: expected str, not bytes"),
        ("", 300, "dedup_id: expected 1 to 256 characters, not 0"),
        ("x" * 257, 300, "dedup_id: expected 1 to 256 characters, not 257"),
        ("\ud800", 300, "dedup_id: not encodable as UTF-8"),
        ("x", 0.9, "dedup_window: expected 1 to 300 seconds, not 0.9"),
        ("x", 301, "dedup_window: expected 1 to 300 seconds, not 301"),
        ("x", True, "dedup_window: expected 1 to 300 seconds, not True"),
        ("x", "60", "dedup_window: expected 1 to 300 seconds, not '60'"),
        ("x", float("nan"), "dedup_window: expected 1 to 300 seconds, not nan"),
    ],
)
def test_names_and_windows_that_are_refused(aws: FakeAws, name: Any, window: Any, message: str) -> None:
    with Producer(QUICK, client=aws.client("kinesis")) as producer:
        for put in (producer.put, producer.try_put, producer.send):
            with pytest.raises(InvalidRecordError) as caught:
                put(STREAM, "k", b"x", dedup_id=name, dedup_window=window)
            assert message in str(caught.value)
        with pytest.raises(PutManyError) as many:
            producer.put_many(STREAM, [("k", b"first"), ("k", b"x", None, name)], dedup_window=window)
        assert isinstance(many.value.__cause__, InvalidRecordError)
        assert many.value.index == 1
    assert set(copies(aws)) == {b"first"}


def test_a_name_needs_an_idempotent_producer(aws: FakeAws) -> None:
    with Producer(client=aws.client("kinesis")) as producer:
        with pytest.raises(InvalidRecordError, match=r"^dedup_id: "):
            producer.put(STREAM, "k", b"x", dedup_id="1")
        with pytest.raises(InvalidRecordError, match="idempotent=True"):
            producer.put_again(FailedRecord(STREAM, "k", None, b"x", ValueError(), HELD))
        # What has no identity is put as ever.
        result = producer.put_again(FailedRecord(STREAM, "k", None, b"x", ValueError())).result(LONG)
        assert result.sub_sequence_number == 0
    assert copies(aws)[b"x"].identity is None


def test_a_record_that_travels_alone_has_less_room(aws: FakeAws) -> None:
    largest = MIB - WRAPPING - 1
    with Producer(dataclasses.replace(QUICK, rate_limit=1000), client=aws.client("kinesis")) as producer:
        with pytest.raises(InvalidRecordError, match="1,048,444"):
            producer.put(STREAM, "k", b"x" * (largest + 1))
        # The explicit hash key with the most digits, none, and the longest partition key and fields.
        for key, explicit in (("k", 2**128 - 1), ("k", None), ("\U0001f600" * 256, 2**128 - 1)):
            data = f"{key[0]}{explicit}".encode().ljust(MIB - WRAPPING - len(key.encode()), b"x")
            producer.put(STREAM, key, data, explicit, dedup_id=f"{key[0]}{explicit}").result(LONG)


@pytest.mark.parametrize("retries", [{"total_max_attempts": 3}, None])
def test_a_client_that_repeats_by_itself_is_refused(aws: FakeAws, retries: dict[str, int] | None) -> None:
    class Repeating:
        class meta:  # noqa: N801
            class config:  # noqa: N801
                pass

    Repeating.meta.config.retries = retries  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"^client="):
        Producer(QUICK, client=Repeating())
    Repeating.meta.config.retries = {"total_max_attempts": 1}  # type: ignore[attr-defined]
    Producer(QUICK, client=Repeating()).close()
    Producer(client=aws.client("kinesis")).close()


def test_hooks_and_spools_get_the_identity_of_what_may_be_stored(aws: FakeAws, tmp_path: Path) -> None:
    path = tmp_path / "unsent.jsonl"
    gate = Gate(aws)
    config = dataclasses.replace(QUICK, max_connections=1)
    producer = Producer(config, client=gate, on_record_failed=FileSpool(path))
    gate.open.clear()
    flying = producer.put(STREAM, "k", b"flying")
    assert gate.arrived.acquire(timeout=LONG)
    waiting = producer.put(STREAM, "k", b"waiting", dedup_id="77", dedup_window=60)
    assert producer.close(0) == 2
    gate.open.set()
    errors = [record.exception() for record in (flying, waiting)]
    assert [error.maybe_stored for error in errors if isinstance(error, RecordFailedError)] == [True, False]
    spooled = {record.data: record for record in read_spool(path)}
    identity = spooled[b"flying"].identity
    assert identity is not None
    assert identity.date is not None
    assert spooled[b"waiting"].identity == RecordIdentity(
        *Names("billing").identity("77", 60.0, HASH_KEY)[:4]
    )
    with Producer(QUICK, client=aws.client("kinesis")) as second:
        second.put_again(spooled[b"waiting"]).result(LONG)
        held = second.put_again(spooled[b"flying"])
        assert not held.done(), "it may be stored, so it is held"
        assert held.identity is not None
        assert held.identity.may_be_stored
        second.put(STREAM, "k", b"other").result(LONG)
        second.close(0)
    assert copies(aws)[b"waiting"].identity == identity_of("77")


@pytest.mark.parametrize("identity", [None, HELD, RecordIdentity(b"\x00" * 8, 2**48 - 1, None, 300.0)])
def test_a_spool_keeps_identities(tmp_path: Path, identity: RecordIdentity | None) -> None:
    spool = FileSpool(tmp_path / "f")
    spool(FailedRecord("s", "k", None, b"x", ValueError("no"), identity))
    (record,) = read_spool(tmp_path / "f")
    assert isinstance(record, SpooledRecord)
    assert record.identity == identity
    line = json.loads((tmp_path / "f").read_text("ascii"))
    assert ("incarnation" in line) == (identity is not None)


@pytest.mark.parametrize(
    "changed",
    [
        {"incarnation": "xx"},
        {"incarnation": 5},
        {"incarnation": "00"},
        {"number": -1},
        {"number": 2**48},
        {"number": "5"},
        {"number": True},
        {"date": -1},
        {"date": "5"},
        {"window": 301},
        {"window": -1},
        {"window": None},
    ],
)
def test_a_damaged_identity_is_not_put_as_another_one(tmp_path: Path, changed: dict[str, Any]) -> None:
    spool = FileSpool(tmp_path / "f")
    spool(FailedRecord("s", "k", None, b"x", ValueError("no"), HELD))
    line = json.loads((tmp_path / "f").read_text("ascii"))
    (tmp_path / "f").write_text(json.dumps({**line, **changed}) + "\n", "ascii")
    assert list(read_spool(tmp_path / "f")) == []


def test_a_named_run_says_so(aws: FakeAws) -> None:
    assert NAMED == 2
    aws.faults.add(Fault(kind="partial", operation="PutRecords", count=1))
    before = aws.clock.time()
    with Producer(QUICK, client=aws.client("kinesis")) as producer:
        producer.put(STREAM, "k", b"x", dedup_id="1", dedup_window=10).result(LONG)
    copy = copies(aws)[b"x"]
    assert not copy.marked
    assert before - 13 < copy.date <= copy.arrived - 10
