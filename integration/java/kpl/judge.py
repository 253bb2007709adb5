"""What a KCL delivers of a stream, by the KCL's own code: it drops an aggregate with a record of another shard."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from integration.java.kpl.install import judge
from integration.java.processes import Stage


class Found(NamedTuple):
    """A user record that the KCL's code makes of a stream."""

    shard: str
    sequence_number: str
    sub: int
    key: str
    place: str | None
    data: bytes

    @property
    def name(self) -> str:
        """Return the text before the first colon of the data."""
        return self.data.split(b":", 1)[0].decode()


Stored = tuple[Mapping[str, Any], Mapping[str, Any]]
"""A shard and a record in it, both as the API returns them."""


def raw_records(kinesis: Any, stream: str) -> Iterator[Stored]:
    """Yield every record of a stream as it is stored, with its shard; ``kinesis`` is a client of boto3."""
    for shard in kinesis.list_shards(StreamName=stream)["Shards"]:
        iterator = kinesis.get_shard_iterator(
            StreamName=stream, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        while iterator is not None:
            response = kinesis.get_records(ShardIterator=iterator, Limit=10_000)
            for record in response["Records"]:
                yield shard, record
            # A closed shard ends without an iterator, an open one where nothing follows.
            is_at_end = not response["Records"] and response["MillisBehindLatest"] == 0
            iterator = None if is_at_end else response.get("NextShardIterator")


def deaggregate(stage: Stage, stream: str) -> list[Found]:
    """Return all user records that the KCL's code makes of a stream.

    Raises:
        CannotInstallError: The machine lacks something.
    """
    return open_records(raw_records(stage.kinesis, stream))


def open_records(stored: Iterable[Stored]) -> list[Found]:
    """Return all user records that the KCL's code makes of records, in their order; see `deaggregate`."""
    lines = []
    for shard, record in stored:
        low, high = (shard["HashKeyRange"][end] for end in ("StartingHashKey", "EndingHashKey"))
        key, data = (
            base64.b64encode(part).decode() for part in (record["PartitionKey"].encode(), record["Data"])
        )
        lines.append(f"{low} {high} {shard['ShardId']} {record['SequenceNumber']} {key} {data}\n")
    ended = subprocess.run(
        ["java", "-XX:+UseSerialGC", "-Xmx512m", "-cp", judge(), "Deaggregate"],
        input="".join(lines),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = []
    for line in ended.stdout.splitlines():
        shard_id, number, sub, key, place, data = line.split(" ")
        found.append(
            Found(
                shard_id, number, int(sub), base64.b64decode(key).decode(), None if place == "-" else place,
                base64.b64decode(data),
            )
        )  # fmt: skip
    return found
