"""Checks of a run: what was put and stored, what was processed, and what became of the leases. Pure.

| it is a violation that | kind |
| --- | --- |
| an acknowledged record was not processed | `lost` |
| a record was put and never got a result, or failed | `record without a result`, `record failed` |
| a record was processed that was never put, or that differs from what was put | `unknown record`, `not what was put` |
| a record came again and no event accounts for it | `duplicate` |
| a shard's records, a key's records of an ordered producer, or shards came out of order | `out of …`, `child …` |
| a checkpoint went back, or beyond what was delivered, or was ignored | `checkpoint …`, `delivered below …` |
| two workers processed a shard at the same time | `two owners at a time` |
| the lease table is not tidy at the end | see `check_table` |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from integration.endtoend import leases, records
from integration.endtoend.recorded_events import RecordedEvents, Violation
from integration.endtoend.records import listed
from kinesis_sdk.testing.accounting.verify import Delivery, account_for, take_over_times

_TAKE_OVER_WINDOW = 120.0
_SHARD_WINDOW = 30.0


@dataclass(frozen=True)
class Findings:
    """Result of the checks.

    Attributes:
        violations: Empty in a good run.
        acknowledged: Number of records acknowledged to producers.
        unacknowledged: Further records processed, whose producer was killed before their acknowledgement.
        processed: Number of different records processed.
        lost: Numbers of acknowledged records that were never processed.
        duplicates: Deliveries beyond the first of a record, by cause.
        overtaken: Records stored before an earlier put of their key. Only ordered producers promise that there are none.
        take_overs: Seconds from a kill until another worker processed a record of one of the victim's shards.
        put_to_process: Seconds, by record.
    """

    violations: list[Violation]
    acknowledged: int
    unacknowledged: int
    processed: int
    lost: list[int]
    duplicates: Mapping[str, int]
    overtaken: int
    take_overs: list[float]
    put_to_process: list[float]

    @property
    def kinds(self) -> Counter[str]:
        """Violations by kind."""
        return Counter(violation.kind for violation in self.violations)


def check(recorded: RecordedEvents) -> Findings:
    """Check a run that has ended."""
    extra = records.unacknowledged(recorded)
    in_time = records.in_time(recorded.deliveries)
    result = account_for(
        {**recorded.puts, **extra},
        in_time,
        explain=lambda again, before, put: records.explain(recorded, again, before, put),
    )
    violations = [
        *listed("lost", result.lost),
        *records.check_results(recorded),
        *listed("unknown record", result.unknown),
        *listed("duplicate", [_told(delivery) for delivery in result.without_reason]),
        *records.check_shard_order(in_time),
        *records.check_lineage(recorded, in_time),
        *records.check_key_order(recorded, in_time),
        *leases.check_checkpoints(recorded, in_time),
        *leases.check_starts(recorded, in_time),
        *leases.check_owners(recorded, in_time),
        *leases.check_deletions(recorded),
        *leases.check_table(recorded, in_time),
        *recorded.table_monitor.violations,
    ]
    return Findings(
        violations=violations,
        acknowledged=sum(put.position is not None for put in recorded.puts.values()),
        unacknowledged=len(extra),
        processed=result.delivered,
        lost=result.lost,
        duplicates=dict(result.explained),
        overtaken=result.overtaken,
        take_overs=_take_overs(recorded, in_time),
        put_to_process=result.put_to_process,
    )


def _told(delivery: Delivery) -> str:
    return f"{delivery.number} of {delivery.shard_id} by {delivery.worker}"


def _take_overs(recorded: RecordedEvents, in_time: list[Delivery]) -> list[float]:
    """Return one time for each shard that a killed worker was processing."""
    found: list[float] = []
    for run in recorded.workers.values():
        if run.killed_at is not None:
            begin, end = run.killed_at - _SHARD_WINDOW, run.killed_at + _TAKE_OVER_WINDOW
            near = [delivery for delivery in in_time if begin <= delivery.at <= end]
            found += take_over_times(near, killed={run.name: run.killed_at}).values()
    return sorted(found)
