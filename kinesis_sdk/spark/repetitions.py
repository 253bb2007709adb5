"""Repetitions of idempotent producers in the ranges of a task: each record is a row of one batch only.

A task begins with an empty memory, and looks up what it does not have in the stream. So what a range has as rows depends on the stream
and not on where the range begins, and a range that is read again has the same rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from kinesis_sdk.common.aggregate_reader import SubRecordColumns
from kinesis_sdk.common.aws import KinesisClient
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.once.memory import MAX_BYTES
from kinesis_sdk.common.once.reader import RunReader
from kinesis_sdk.common.once.shell import carry_out
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.spark.reading import ShardRange

_LOGGER = logging.getLogger(__name__)


class RangeRepetitions:
    """Recognizes the repetitions of one range. Used by one thread.

    Args:
        item: The range.
        client: boto3 Kinesis client, or an object with its methods.
        clock: Monotonic and wall clock.
        sleep: Called with the seconds to wait before a retry.
        max_bytes: Maximum bytes of what is remembered.

    Attributes:
        dropped: Number of user records that were left out.
        unknown: Number of user records that were kept although an earlier copy may exist, because it could not be looked for.
    """

    def __init__(
        self,
        item: ShardRange,
        client: KinesisClient,
        *,
        clock: Clock,
        sleep: Callable[[float], None],
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._item, self._client, self._clock, self._sleep = item, client, clock, sleep
        own = item.lineage[0] if item.lineage else None
        self._reader = RunReader(
            item.stream.name,
            item.shard_id,
            None if own is None else own.hash_key_range,
            parents=None if own is None else own.parents,
            # A batch read leaves out what arrived too late, also between records that did not.
            contiguous=item.before is None,
            drops_equal=False,
            max_bytes=max_bytes,
        )
        self.dropped: int = 0
        self.unknown: int = 0

    def begin(self, records: Sequence[KinesisRecord]) -> None:
        """Note the Kinesis records of a page, before any of them is judged."""
        self._reader.begin(records)

    def judge(self, record: KinesisRecord, columns: SubRecordColumns) -> Sequence[tuple[int, int]] | None:
        """Return which rows of a tagged aggregate to drop, see `kinesis_sdk.spark.arrow.Judge`.

        Raises:
            AwsError: If a look-up failed permanently.
        """
        reader, item = self._reader, self._item
        is_ours = reader.add(record, columns)
        now_millis = int(self._clock.time() * 1000)
        look_up = reader.look_up(now_millis)
        if look_up is not None:
            carry_out(
                look_up,
                self._client,
                item.stream,
                item.shard_id,
                clock=self._clock,
                sleep=self._sleep,
                shards=item.lineage or None,
            )
        decision = reader.decide(now_millis)
        dropped = decision.repeated + decision.misplaced
        self.dropped += dropped
        if dropped:
            _LOGGER.debug(
                "stream %s, shard %s: %d user records of aggregate %s are repetitions, or misplaced",
                item.stream.name,
                item.shard_id,
                dropped,
                record.sequence_number,
            )
        if decision.unknown and not self.unknown:
            _LOGGER.warning(
                "stream %s, shard %s: user records from aggregate %s on may be repetitions, but earlier copies could not be read",
                item.stream.name,
                item.shard_id,
                record.sequence_number,
            )
        self.unknown += decision.unknown
        return decision.dropped.get(record.sequence_number, ()) if is_ours else None
