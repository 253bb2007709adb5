"""The oracle of first valid copies, on streams that are written by hand."""

from __future__ import annotations

import hashlib
from typing import Any

from kinesis_sdk.testing import FakeAws, VirtualClock
from kinesis_sdk.testing.accounting.stored_copies import deliveries, read_copies

LOW, HIGH = "0", str(1 << 127)


class Stream:
    """A stream that is split in the middle."""

    def __init__(self, shards: int = 1) -> None:
        self.clock = VirtualClock()
        self.client: Any = FakeAws(clock=self.clock, throttle=False).client("kinesis")
        self.client.create_stream(StreamName="s", ShardCount=shards)

    def put(self, *records: tuple[bytes, str], tag: bool = True, by_key: bool = False) -> None:
        """Put records with explicit hash keys, as one aggregate at the place of the first one."""
        data = _aggregate(records, tag=tag, by_key=by_key)
        self.client.put_record(StreamName="s", PartitionKey="a", ExplicitHashKey=records[0][1], Data=data)

    def split(self) -> None:
        self.client.split_shard(StreamName="s", ShardToSplit="shardId-000000000000", NewStartingHashKey=HIGH)

    def delivered(self) -> dict[bytes, list[str]]:
        """Return shard and Kinesis record (counted from 0) of each delivery."""
        copies = read_copies(self.client, "s")
        numbers: dict[str, list[int]] = {}
        for copy in copies:
            shard = numbers.setdefault(copy.position.shard_id, [])
            if copy.position.sequence_number not in shard:
                shard.append(copy.position.sequence_number)
        return {
            name: [
                f"{position.shard_id[-1]}:{numbers[position.shard_id].index(position.sequence_number)}"
                f".{position.sub_sequence_number}"
                for position in positions
            ]
            for name, positions in deliveries(copies, lambda data: data or None).items()
        }


def _field(number: int, value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    assert len(raw) < 128
    return bytes([number << 3 | 2, len(raw)]) + raw


def _aggregate(records: tuple[tuple[bytes, str], ...], *, tag: bool, by_key: bool) -> bytes:
    body = b"".join(_field(1, f"key of {data.decode()}") for data, _ in records)
    if not by_key:
        body += b"".join(_field(2, hash_key) for _, hash_key in records)
    for index, (data, _) in enumerate(records):
        user = bytes([1 << 3, index]) + (b"" if by_key else bytes([2 << 3, index])) + _field(3, data)
        if tag and index == 0:
            user += _field(4, _field(1, "k1") + _field(2, "a table"))
        body += _field(3, user)
    return b"\xf3\x89\x9a\xc2" + body + hashlib.md5(body).digest()


def test_the_first_of_several_copies_is_delivered() -> None:
    stream = Stream()
    stream.put((b"1", LOW), (b"2", HIGH))
    stream.put((b"2", HIGH))
    stream.put((b"3", LOW), (b"1", LOW))
    assert stream.delivered() == {b"1": ["0:0.0"], b"2": ["0:0.1"], b"3": ["0:2.0"]}


def test_copies_of_other_producers_are_all_delivered() -> None:
    stream = Stream(2)
    stream.put((b"1", LOW), (b"2", HIGH), tag=False)
    stream.put((b"1", LOW), tag=False)
    stream.client.put_record(StreamName="s", PartitionKey="k", Data=b"plain")
    assert stream.delivered()[b"1"] == ["0:0.0", "0:1.0"]
    assert stream.delivered()[b"2"] == ["0:0.1"]
    assert len(stream.delivered()[b"plain"]) == 1


def test_a_parent_is_before_its_child_and_misplaced_copies_do_not_count() -> None:
    stream = Stream()
    stream.put((b"1", LOW))
    stream.split()
    stream.put((b"1", LOW))
    stream.put((b"2", LOW), (b"3", HIGH))  # made for the parent
    stream.put((b"3", HIGH))
    assert stream.delivered() == {b"1": ["0:0.0"], b"2": [], b"3": ["2:0.0"]}
    stream.put((b"2", LOW))
    assert stream.delivered()[b"2"] == ["1:2.0"]


def test_hash_keys_come_from_partition_keys_where_there_are_no_others() -> None:
    data = b"1"
    is_low = hashlib.md5(b"key of 1").digest()[0] < 128
    for at, is_valid in ((LOW, is_low), (HIGH, not is_low)):
        stream = Stream(2)
        stream.put((data, at), by_key=True)
        assert [copy.is_valid for copy in read_copies(stream.client, "s")] == [is_valid]


def test_a_copy_has_payload_and_arrival() -> None:
    stream = Stream()
    stream.clock.advance(5)
    stream.put((b"1", LOW))
    (copy,) = read_copies(stream.client, "s")
    assert (copy.data, copy.arrived, copy.is_idempotent, copy.is_valid) == (
        b"1",
        stream.clock.time(),
        True,
        True,
    )
