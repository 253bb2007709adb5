"""The records that a KCL delivers of a stream, by the KCL's own code: it drops an aggregate with a record of another shard."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterable
from typing import NamedTuple

from integration.java.kpl.install import judge
from integration.java.processes import Stage
from integration.stored import Stored, stored_records


class Found(NamedTuple):
    """A user record that the KCL's code found in a stream."""

    shard: str
    sequence_number: str
    sub: int
    key: str
    place: str | None
    data: bytes

    @property
    def name(self) -> str:
        """The data up to its first colon."""
        return self.data.split(b":", 1)[0].decode()


def deaggregate(stage: Stage, stream: str) -> list[Found]:
    """Return all user records that the KCL's code finds in a stream; raise CannotInstallError if the machine lacks something."""
    return open_records(stored_records(stage.kinesis, stream))


def open_records(stored: Iterable[Stored]) -> list[Found]:
    """Return all user records that the KCL's code finds in these records, in order; see `deaggregate`."""
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
