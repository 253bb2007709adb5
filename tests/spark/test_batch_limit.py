"""When a batch with a limit in rows and bytes has to end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from random import Random

import pytest

from kinesis_sdk.spark import batch_limit
from kinesis_sdk.spark.batch_limit import BatchLimits, Tally
from kinesis_sdk.spark.unread import UnreadRecord


def history(rng: Random) -> dict[str, list[UnreadRecord]]:
    """Shards with records in bursts, whose arrival times fall now and then."""
    shards = {}
    for shard in "abc":
        at, records = 1_000, []
        for number in range(rng.randrange(40)):
            at += rng.choice((0, 0, 1, 7, 100))
            shown = at - rng.choice((0, 0, 0, 30))
            records.append(UnreadRecord(str(number), shown, rng.choice((1, 1, 20)), rng.randrange(1_000)))
        shards[shard] = records
    return shards


def held(shards: Mapping[str, Sequence[UnreadRecord]], end: int) -> list[UnreadRecord]:
    """The records of a batch that ends at a time: of each shard, those before its first record at that time or later."""
    return [
        record
        for records in shards.values()
        for record, latest in zip(records, accumulate((r.arrival for r in records), max), strict=True)
        if latest < end
    ]


@pytest.mark.parametrize("seed", range(40))
def test_a_batch_is_as_large_as_its_limits_allow(seed: int) -> None:
    rng = Random(seed)
    shards = history(rng)
    limits = BatchLimits(rng.choice((None, 1, 10, 60)), rng.choice((None, 1, 3_000, 12_000)))
    stop = 6_000

    def fits(end: int) -> bool:
        records = held(shards, end)
        return sum(r.rows for r in records) <= (limits.rows or 1e9) and sum(r.size for r in records) <= (
            limits.size or 1e9
        )

    times = sorted({latest for r in shards.values() for latest in accumulate((x.arrival for x in r), max)})
    # The first millisecond belongs to the batch in any case.
    wanted = next(
        (time for time, after in zip(times[1:], [*times[2:], stop], strict=True) if not fits(after)), None
    )
    tally, found, known = Tally(limits), None, 0
    while found is None and known < stop:
        known = min(stop, known + rng.randrange(1, 400))
        # Pages reach further than the time up to which the records of all shards are known.
        seen = {
            shard: records[: len(held({shard: records}, known + 50))] for shard, records in shards.items()
        }
        found = tally.end_before(seen, known)
    assert (None if found is None else found[0]) == (wanted if limits else None)


def test_the_memory_of_the_driver_is_a_limit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_limit, "MOST_RECORDS", 10)
    tally = Tally(BatchLimits(size=1 << 40))
    records = [UnreadRecord(str(number), number, size=1) for number in range(30)]
    assert tally.end_before({"a": records}, 30) == (10, "maxBytesPerTrigger")


def test_reads_follow_what_is_left() -> None:
    tally = Tally(BatchLimits(rows=1_000), expected=800)
    assert (tally.expected_end(5, 5), tally.next_page(4)) == (None, 250)
    tally.end_before({"a": [UnreadRecord(str(number), number) for number in range(100)]}, 100)
    assert tally.used == 0.1
    assert tally.expected_end(0, 100) == 1_000
    assert tally.next_page(2) == 562, "900 records of two shards, and a quarter more"
