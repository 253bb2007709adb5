"""Search for rows of a task that an earlier attempt has stored in the target stream, so that they are not put again.

Readers of this SDK recognize repeated rows by their names, within the window of the producer. Other consumers get every stored copy, and
after an outage longer than the window, readers of this SDK get it as well. So a task that may repeat an earlier attempt can read the
records that the stream has received since then, and leave out the rows whose names it finds. This is an addition to the names and never
replaces them: an earlier attempt may still store a row after the task has read the stream.

A copy counts only in an aggregate whose records all belong to its shard. Readers discard any other aggregate as a whole, and its producer
puts the records again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from random import Random

from kinesis_sdk.common.aggregate_reader import effective_hash_key
from kinesis_sdk.common.aws import KinesisClient, call_with_retries
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import InvalidRecordError, ResourceNotFoundError
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.once import Names, named_identities
from kinesis_sdk.common.position import AtTimestamp
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.shards import Shard, list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.spark.shardio import ShardIo, arrival_of
from kinesis_sdk.spark.steps import Steps, run_all

_LOGGER = logging.getLogger(__name__)

MAX_NAMES = 1_000_000
"""Maximum names that are remembered, at about 200 bytes each. Rows with further names are put again, with their marks."""

_DATE_SECONDS = 1_000
"""Precision of the time at Kinesis, in milliseconds."""

_ANY_WINDOW = 1.0
"""The value does not matter, because identities do not depend on the window."""

_THREADS = 8
_PAGE = 10_000

_Identity = tuple[bytes, int]


class StoredNames:
    """Identities of the names that a stream has received in shards in which readers accept them. Thread-safe."""

    def __init__(self, stream_name: str, most: int = MAX_NAMES) -> None:
        self._stream_name, self._most = stream_name, most
        self._identities: set[_Identity] = set()
        self._lock = threading.Lock()
        self.is_full: bool = False

    def add(self, records: Sequence[KinesisRecord], owned: HashKeyRange) -> None:
        """Add the names of the records of a shard with these hash keys."""
        found = [one for record in records for one in named_identities(record.data, self._stream_name, owned)]
        with self._lock:
            for identity in found:
                if len(self._identities) < self._most:
                    self._identities.add(identity)
                elif identity not in self._identities:
                    self.is_full = True

    def __len__(self) -> int:
        return len(self._identities)

    def __contains__(self, identity: object) -> bool:
        """Return whether the stream has a record with this identity, which also depends on the hash key."""
        return identity in self._identities


class Reconciliation:
    """Choice of the rows of a task that the stream does not contain.

    Args:
        span: Maximum seconds before now from which the stream is read.
        since: Milliseconds since 1970 from which the stream is read, if that is later; None if no such time is known.
        names: Names of the writer's namespace.

    Attributes:
        left_out: Number of rows that were left out.
    """

    def __init__(
        self,
        client: KinesisClient,
        stream: StreamId,
        names: Names,
        *,
        span: float,
        since: int | None = None,
        clock: Clock,
        sleep: Callable[[float], None],
        retry_timeout: float,
        threads: int = _THREADS,
    ) -> None:
        self._names, self._span, self._since, self._threads = names, span, since, threads
        self._clock, self._sleep = clock, sleep
        self._io = ShardIo(
            client, stream, clock=clock, sleep=sleep, rng=Random(), retry_timeout=retry_timeout
        )
        self._stored: StoredNames | None = None
        self.left_out: int = 0

    def missing(
        self,
        partition_keys: Sequence[str | None],
        explicit_hash_keys: Sequence[str | None],
        names: Sequence[str | None],
    ) -> list[bool]:
        """Return for each row whether it has to be put. The first call reads the stream.

        Raises:
            AwsError: If a call failed permanently, or for ``retry_timeout``.
        """
        if self._stored is None:
            self._stored = self._read()
        rows = zip(partition_keys, explicit_hash_keys, names, strict=True)
        chosen = [not self._is_stored(*row) for row in rows]
        self.left_out += chosen.count(False)
        return chosen

    def _is_stored(self, key: str | None, explicit: str | None, name: str | None) -> bool:
        assert self._stored is not None
        hash_key = None if key is None or not name else effective_hash_key(key, explicit)
        if hash_key is None:
            return False
        try:
            identity = self._names.identity(name, _ANY_WINDOW, hash_key)
        except InvalidRecordError:
            return False  # `TaskProducer.put_columns` says which row has the bad name
        return (identity.incarnation, identity.number) in self._stored

    def _read(self) -> StoredNames:
        io = self._io
        began, found = self._clock.monotonic(), StoredNames(io.stream.name)
        since = max(self._since or 0, round((self._clock.time() - self._span) * 1000))
        shards = call_with_retries(
            lambda: list_shards(io.client, io.stream),
            operation="ListShards",
            client=io.client,
            timeout=io.retry_timeout,
            sleep=self._sleep,
        )
        work = [self._read_shard(shard, since, found) for shard in shards]
        run_all(work, clock=self._clock, sleep=self._sleep, threads=self._threads)
        _LOGGER.info(
            "%s: %d names found in %d shards in %.1f s, since %.0f s ago",
            io.stream,
            len(found),
            len(shards),
            self._clock.monotonic() - began,
            self._span,
        )
        if found.is_full:
            _LOGGER.warning(
                "%s: more than %d names since %.0f s ago; rows with names that were not remembered are put again",
                io.stream,
                MAX_NAMES,
                self._span,
            )
        return found

    def _read_shard(self, shard: Shard, since: int, found: StoredNames) -> Steps[None]:
        """Read a shard up to the time at which the read began, because other producers may continue to write."""
        cursor = self._io.cursor(shard.shard_id, AtTimestamp(since))
        until: int | None = None
        while True:
            try:
                page = yield from cursor.steps(_PAGE)
            except ResourceNotFoundError:  # its records have expired meanwhile
                return
            found.add(page.records, shard.hash_key_range)
            if until is None:
                until = self._io.service_clock.millis() + _DATE_SECONDS
            if page.caught_up or (page.records and arrival_of(page.records[-1]) > until):
                return
