"""Repetitions of idempotent producers in the ranges of a task: each record is a row of one batch only.

A task begins with an empty memory, and searches the stream for copies that it does not remember. So the rows of a range depend
only on the stream, not on where the range begins, and a range that is read again has the same rows.

Almost no page needs a look-up, and its aggregates are judged one by one while their rows are created. When the first aggregate of a
page needs a look-up, the rest of the page is judged with it. So the stream is read once for a page, not once for each aggregate.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from kinesis_sdk.common.aggregate_reader import SubRecordColumns, open_aggregate
from kinesis_sdk.common.aws import KinesisClient
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.once import MAX_BYTES, OLDEST_MILLIS, Decision, RunReader, Shortage, carry_out
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.spark.reading import ShardRange

_LOGGER = logging.getLogger(__name__)


class RangeRepetitions:
    """Recognizes the repetitions of one range. Used by one thread.

    Args:
        recognizes: Whether repetitions are left out at all.
        max_bytes: Maximum bytes of memory for records that were seen.
        max_span: Maximum seconds before a record's arrival within which its copies are searched for. A bound in bytes would depend on the
            way in which the stream is read, but a range that is read again must have the same rows.

    Attributes:
        dropped: User records that were left out.
        unknown: User records that were kept although an earlier copy may exist, because the search for it failed.
        look_ups: Pages for which the stream was read again.
    """

    def __init__(
        self,
        item: ShardRange,
        client: KinesisClient,
        *,
        clock: Clock,
        sleep: Callable[[float], None],
        max_bytes: int = MAX_BYTES,
        recognizes: bool = True,
        max_span: float = OLDEST_MILLIS / 1000,
    ) -> None:
        self._recognizes = recognizes
        self._item, self._client, self._clock, self._sleep = item, client, clock, sleep
        own = item.lineage[0] if item.lineage else None
        self._reader = RunReader(
            item.stream.name,
            item.shard_id,
            None if own is None else own.hash_key_range,
            parents=None if own is None else own.parents,
            # A batch read leaves out records that arrived too late, even between records that did not.
            contiguous=item.before is None,
            drops_equal=False,
            max_bytes=max_bytes,
            reach_millis=round(max_span * 1000),
        )
        self.dropped: int = 0
        self.unknown: int = 0
        self.named: int = 0
        self.look_ups: int = 0
        self._has_told_shortage = False
        self._page: Sequence[KinesisRecord] = ()
        # Results of `judge` that were decided ahead, by sequence number.
        self._judged: dict[str, Sequence[tuple[int, int]] | None] = {}

    def begin(self, records: Sequence[KinesisRecord]) -> None:
        """Note the Kinesis records of a page, before any of them is judged."""
        self._reader.begin(records)
        self._page = records
        self._judged = {}

    def judge(self, record: KinesisRecord, columns: SubRecordColumns) -> Sequence[tuple[int, int]] | None:
        """Return which rows of a tagged aggregate to drop, see `kinesis_sdk.spark.arrow.Judge`.

        Raises:
            AwsError: If a look-up failed permanently.
        """
        if not self._recognizes:
            return None
        number = record.sequence_number
        if number not in self._judged:
            self._judge(record, columns)
        return self._judged.pop(number)

    def _judge(self, record: KinesisRecord, columns: SubRecordColumns) -> None:
        """Decide about an aggregate; if that needs a look-up, also decide about the later aggregates of its page."""
        reader = self._reader
        is_ours = {record.sequence_number: reader.add(record, columns)}
        if reader.needs_look_up:
            for other in self._behind(record):
                # Its rows are made later, from columns decoded again: the columns of a whole page would take too much memory.
                found = open_aggregate(other.data)
                if found is not None and found.payloads and found.tag is not None:
                    is_ours[other.sequence_number] = reader.add(other, found)
        now_millis = int(self._clock.time() * 1000)
        self._look_up(now_millis)
        decision = reader.decide(now_millis)
        for number, ours in is_ours.items():
            self._judged[number] = decision.dropped.get(number, ()) if ours else None
        self._note(decision, record)

    def _behind(self, record: KinesisRecord) -> Iterator[KinesisRecord]:
        page = iter(self._page)
        for other in page:
            if other.sequence_number == record.sequence_number:
                break
        return page

    def _look_up(self, now_millis: int) -> None:
        item = self._item
        look_up = self._reader.look_up(now_millis)
        if look_up is None:
            return
        self.look_ups += 1
        if look_up.shortage is not None:
            self._tell(look_up.shortage)
        carry_out(
            look_up,
            self._client,
            item.stream,
            item.shard_id,
            clock=self._clock,
            sleep=self._sleep,
            shards=item.lineage or None,
        )

    def _tell(self, shortage: Shortage) -> None:
        if self._has_told_shortage:
            return
        self._has_told_shortage = True
        _LOGGER.warning(
            "stream %s, shard %s: maxRepetitionBytes is too small to recognize repetitions without reading the stream again for each "
            "page: %.1f MiB are allowed, and the last %.0f s need about %.1f MiB at the present rate",
            self._item.stream.name,
            self._item.shard_id,
            shortage.allowed / 2**20,
            shortage.window_millis / 1000,
            shortage.needed / 2**20,
        )

    def _note(self, decision: Decision, record: KinesisRecord) -> None:
        item = self._item
        dropped = decision.repeated + decision.misplaced
        self.dropped += dropped
        if dropped:
            _LOGGER.debug(
                "stream %s, shard %s: %d user records from aggregate %s on are repetitions, or misplaced",
                item.stream.name,
                item.shard_id,
                dropped,
                record.sequence_number,
            )
        if decision.named and not self.named:
            _LOGGER.warning(
                "stream %s, shard %s: user records from %s on are dropped: they were put for the first time, but earlier records have their dedup_id",
                item.stream.name,
                item.shard_id,
                decision.first_named,
            )
        self.named += decision.named
        if decision.unknown and not self.unknown:
            _LOGGER.warning(
                "stream %s, shard %s: user records from aggregate %s on may be repetitions, but earlier copies could not be read",
                item.stream.name,
                item.shard_id,
                record.sequence_number,
            )
        self.unknown += decision.unknown
