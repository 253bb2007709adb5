"""The streams of tables: shards that roll over, lineage, change records, trimming.

A shard accepts records for four hours. Then it closes and a child continues it; a partition that is split gets two children.
Records are kept for a day, and a closed shard is forgotten with its last record. There is no timer: each call first makes the changes that
are due according to the clock, so advancing a virtual clock rolls shards over.
"""

from __future__ import annotations

import hashlib
import random
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import datetime, timezone
from itertools import pairwise
from typing import Any

from kinesis_sdk.common.clock import Clock
from kinesis_sdk.testing.dynamodb.attributes import Item, item_size
from kinesis_sdk.testing.errors import validation

VIEW_TYPES = ("NEW_IMAGE", "OLD_IMAGE", "NEW_AND_OLD_IMAGES", "KEYS_ONLY")
RETENTION = 24 * 3600.0
"""Seconds for which DynamoDB keeps the records of a stream."""

_FIRST_SEQUENCE = 999_999_999_999_999_999_900
"""Sequence numbers have 21 to 40 digits. After 100 records, the fake's numbers gain a digit, so that code which compares them as text
fails."""
_DIGESTS = 1 << 128


class StreamShard:
    """A shard of a table's stream: it contains the changes to items with some partition keys for some hours.

    Args:
        parent: Id of the shard that this shard replaces; None for the first shards.
        created_at: Epoch seconds.
        digests: First digest of the shard's partition keys, and the first digest after them.

    Attributes:
        closed_at: Epoch seconds; None while it is open.
        trimmed: Number of trimmed records.
        trimmed_through: Sequence number of the last trimmed record; 0 if there is none.
    """

    def __init__(
        self,
        shard_id: str,
        parent: str | None,
        first_sequence: int,
        created_at: float,
        digests: tuple[int, int],
    ) -> None:
        self.shard_id = shard_id
        self.parent = parent
        self.first_sequence = first_sequence
        self.created_at = created_at
        self.digests = digests
        self.ending_sequence: int | None = None
        self.closed_at: float | None = None
        self.trimmed: int = 0
        self.trimmed_through: int = 0
        self.sequences: list[int] = []
        self.records: list[dict[str, Any]] = []

    @property
    def end(self) -> int:
        """Number of records that the shard has ever contained."""
        return self.trimmed + len(self.records)

    def index_of(self, sequence: int, *, after: bool) -> int:
        """Return the index of the first record at or after a sequence number, counted from the first record that the shard ever contained."""
        find = bisect_right if after else bisect_left
        return self.trimmed + find(self.sequences, sequence)

    def trim(self, before: float) -> None:
        """Forget the records older than a time."""
        count = 0
        for record in self.records:
            if record["dynamodb"]["ApproximateCreationDateTime"] >= before:
                break
            count += 1
        if count:
            self.trimmed_through = self.sequences[count - 1]
            self.trimmed += count
            del self.records[:count], self.sequences[:count]

    def describe(self) -> dict[str, Any]:
        """Return the shard as DescribeStream shows it."""
        sequences = {"StartingSequenceNumber": str(self.first_sequence)}
        if self.ending_sequence is not None:
            sequences["EndingSequenceNumber"] = str(self.ending_sequence)
        described: dict[str, Any] = {"ShardId": self.shard_id, "SequenceNumberRange": sequences}
        if self.parent is not None:
            described["ParentShardId"] = self.parent
        return described


class ChangeStream:
    """The stream of one table: it exists from the time when it is enabled until it is disabled and its last record is trimmed. Thread-safe.

    Args:
        partitions: Number of shards that are open at first.
        shard_seconds: Seconds for which a shard accepts records.
        retention: Seconds for which records are kept.
        created_at: Epoch seconds; part of the ARN.

    Attributes:
        lock: Guards the whole state; it is taken after the table's lock, and no lock is taken after it.
        status: ``ENABLED`` or ``DISABLED``.
    """

    def __init__(
        self,
        *,
        table_name: str,
        table_arn: str,
        key_schema: list[dict[str, Any]],
        view_type: str,
        region: str,
        clock: Clock,
        partitions: int,
        shard_seconds: float,
        retention: float,
        created_at: float,
    ) -> None:
        self.lock: threading.RLock = threading.RLock()
        self.table_name = table_name
        self.key_schema = key_schema
        self.view_type = view_type
        self.status: str = "ENABLED"
        self.shards: dict[str, StreamShard] = {}
        self._region = region
        self._clock = clock
        self._shard_seconds = shard_seconds
        self._retention = retention
        self._key_names = [element["AttributeName"] for element in key_schema]
        self._sequence = _FIRST_SEQUENCE
        self.created_at: float = created_at
        moment = datetime.fromtimestamp(self.created_at, timezone.utc)
        self.label: str = moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}"
        self.arn: str = f"{table_arn}/stream/{self.label}"
        self._random = random.Random(self.arn)
        bounds = [number * _DIGESTS // partitions for number in range(partitions + 1)]
        for digests in pairwise(bounds):
            self._open(None, self.created_at, digests)

    # -- time -----------------------------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Roll over the shards, and trim the records, that are due at the current time."""
        now = self._clock.time()
        for shard in [*self.open_shards()]:
            while self.status == "ENABLED" and shard.created_at + self._shard_seconds <= now:
                (shard,) = self._continue(shard, shard.created_at + self._shard_seconds)  # noqa: PLW2901 - the chain
        self.trim(now - self._retention)

    def roll(self, *, split: bool = False) -> None:
        """Close all open shards now. Each shard gets one child, or two children if `split` is set."""
        with self.lock:
            self.catch_up()
            for shard in [*self.open_shards()]:
                self._continue(shard, self._clock.time(), split=split)

    def trim(self, before: float) -> None:
        """Remove the records older than a time, and each closed shard without remaining records."""
        with self.lock:
            for shard in [*self.shards.values()]:
                shard.trim(before)
                if shard.closed_at is not None and shard.closed_at < before and not shard.records:
                    del self.shards[shard.shard_id]

    def disable(self) -> None:
        """Close all shards without children. The records stay readable until they are trimmed."""
        with self.lock:
            self.catch_up()
            for shard in self.open_shards():
                self._close(shard, self._clock.time())
            self.status = "DISABLED"

    @property
    def last_sequence(self) -> int:
        """Highest sequence number that any shard has used."""
        return self._sequence

    @property
    def is_gone(self) -> bool:
        """Whether the stream was disabled and has no shard left."""
        return self.status == "DISABLED" and not self.shards

    def open_shards(self) -> Iterator[StreamShard]:
        """Return the shards that accept records."""
        return (shard for shard in self.shards.values() if shard.ending_sequence is None)

    def _open(self, parent: StreamShard | None, at: float, digests: tuple[int, int]) -> StreamShard:
        # A child's id sorts after its parent's, even if both were created in the same millisecond.
        earliest = 0 if parent is None else int(parent.shard_id.split("-")[1]) + 1
        millis = max(earliest, int(at * 1000))
        shard_id = f"shardId-{millis:020d}-{self._random.getrandbits(32):08x}"
        shard = StreamShard(
            shard_id, None if parent is None else parent.shard_id, self._sequence + 1, at, digests
        )
        self.shards[shard_id] = shard
        return shard

    def _close(self, shard: StreamShard, at: float) -> None:
        self._sequence += 1
        shard.ending_sequence = self._sequence
        shard.closed_at = at

    def _continue(self, shard: StreamShard, at: float, *, split: bool = False) -> list[StreamShard]:
        self._close(shard, at)
        low, high = shard.digests
        middle = (low + high) // 2
        parts = [(low, middle), (middle, high)] if split else [(low, high)]
        return [self._open(shard, at, part) for part in parts]

    # -- writing and reading --------------------------------------------------------------------------------------

    def write(self, old: Item | None, new: Item | None) -> None:
        """Store the change to an item. As in DynamoDB, a write that changes nothing adds no record."""
        item = new if new is not None else old
        if item is None or old == new:
            return
        with self.lock:
            self.catch_up()
            if self.status != "ENABLED":
                return
            text = repr(sorted(item[self._key_names[0]].items()))
            digest = int.from_bytes(hashlib.md5(text.encode()).digest(), "big")
            shard = next(s for s in self.open_shards() if s.digests[0] <= digest < s.digests[1])
            self._sequence += 1
            keys = {name: item[name] for name in self._key_names}
            change: dict[str, Any] = {
                "ApproximateCreationDateTime": float(int(self._clock.time())),
                "Keys": keys,
                "SequenceNumber": str(self._sequence),
                "StreamViewType": self.view_type,
            }
            if new is not None and self.view_type in {"NEW_IMAGE", "NEW_AND_OLD_IMAGES"}:
                change["NewImage"] = new
            if old is not None and self.view_type in {"OLD_IMAGE", "NEW_AND_OLD_IMAGES"}:
                change["OldImage"] = old
            change["SizeBytes"] = sum(
                item_size(change[part]) for part in ("Keys", "NewImage", "OldImage") if part in change
            )
            shard.sequences.append(self._sequence)
            shard.records.append(
                {
                    "eventID": f"{self._random.getrandbits(128):032x}",
                    "eventName": "INSERT" if old is None else "REMOVE" if new is None else "MODIFY",
                    "eventVersion": "1.1",
                    "eventSource": "aws:dynamodb",
                    "awsRegion": self._region,
                    "dynamodb": change,
                }
            )

    def describe(self) -> dict[str, Any]:
        """Return the stream as DescribeStream shows it, without shards."""
        return {
            "StreamArn": self.arn,
            "StreamLabel": self.label,
            "StreamStatus": self.status,
            "StreamViewType": self.view_type,
            "CreationRequestDateTime": round(self.created_at, 3),
            "TableName": self.table_name,
            "KeySchema": self.key_schema,
        }


class ChangeStreams:
    """All streams of one account and region. Thread-safe; its lock is a leaf.

    Attributes:
        partitions, shard_seconds: Open shards of a new stream, and seconds for which a shard accepts records. A change
            applies to streams created later.
        retention: Seconds for which records are kept: a day. Tests in virtual time may shorten it together with
            ``shard_seconds``.
    """

    def __init__(self, clock: Clock, *, region: str, partitions: int, shard_seconds: float) -> None:
        self._clock = clock
        self._region = region
        self.partitions = partitions
        self.shard_seconds = shard_seconds
        self.retention: float = RETENTION
        self._lock = threading.Lock()
        self._streams: dict[str, ChangeStream] = {}

    def reset(self) -> None:
        """Forget all streams."""
        with self._lock:
            self._streams = {}

    def create(
        self, table_name: str, table_arn: str, key_schema: list[dict[str, Any]], view_type: str
    ) -> ChangeStream:
        """Enable the stream of a table."""
        with self._lock:
            # The ARN contains the time, so two streams of a table need different times.
            latest = max(
                (s.created_at for s in self._streams.values() if s.table_name == table_name), default=0.0
            )
        stream = ChangeStream(
            table_name=table_name,
            table_arn=table_arn,
            key_schema=key_schema,
            view_type=view_type,
            region=self._region,
            clock=self._clock,
            partitions=self.partitions,
            shard_seconds=self.shard_seconds,
            retention=self.retention,
            created_at=max(self._clock.time(), latest + 0.001),
        )
        with self._lock:
            self._streams[stream.arn] = stream
        return stream

    def find(self, arn: object) -> ChangeStream | None:
        """Return the stream with an ARN, after making the changes that are due; None if the stream does not exist."""
        with self._lock:
            stream = self._streams.get(arn) if isinstance(arn, str) else None
        if stream is not None:
            with stream.lock:
                stream.catch_up()
        return None if stream is None or stream.is_gone else stream

    def list(self, table_name: str | None = None) -> list[ChangeStream]:
        """Return the streams of one table, or of all tables, ordered by ARN."""
        with self._lock:
            arns = sorted(self._streams)
        found = (self.find(arn) for arn in arns)
        return [s for s in found if s is not None and table_name in {None, s.table_name}]

    def roll(self, table_name: str, *, split: bool = False) -> None:
        """Roll over the open shards of a table's enabled stream, which otherwise happens every four hours.

        With `split`, each shard gets two children, as after a split of its partition. Raises ValueError without an enabled stream.
        """
        self._enabled(table_name).roll(split=split)

    def trim(self, table_name: str) -> None:
        """Remove all records that a table's streams contain now, and their closed shards."""
        for stream in self.list(table_name):
            stream.trim(self._clock.time() + 1)

    def _enabled(self, table_name: str) -> ChangeStream:
        for stream in self.list(table_name):
            if stream.status == "ENABLED":
                return stream
        raise ValueError(f"table {table_name!r} has no enabled stream")


def view_type_of(specification: dict[str, Any]) -> str | None:
    """Return the view type of a ``StreamSpecification``; None if it disables the stream."""
    view_type = specification.get("StreamViewType")
    if not specification.get("StreamEnabled"):
        if view_type is not None:
            raise validation(
                "Invalid StreamViewType: StreamEnabled was false but a StreamViewType was present."
            )
        return None
    if view_type not in VIEW_TYPES:
        raise validation(
            f"Invalid StreamViewType: {view_type}; it must be one of {', '.join(VIEW_TYPES)} when streams are enabled."
        )
    return str(view_type)
