"""Report of the demo: a table, or one JSON object for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from kinesis_sdk.producer import ProducerStats
from kinesis_sdk.testing.accounting.percentiles import percentiles
from kinesis_sdk.testing.accounting.verify import RunResult


@dataclass(frozen=True, kw_only=True)
class DemoReport:
    """Results of the demo. Times in seconds, rates per second.

    Attributes:
        duplicated: Number of effects beyond the first of each record, or of deliveries without `exactly_once`.
        exactly_once: Whether effects were committed together with positions, and repeated puts recognized.
        deliveries: Number of records passed to handlers, including repetitions.
        stored_again: Number of copies in the stream beyond the first of each record; None if not counted.
        lost_responses: Number of PutRecords calls whose response was lost on purpose.
        leases_lost: Number of leases that workers lost because they were not renewed in time.
        longest_stall: Longest time for which a worker process could not run; 0 if none exceeded one second.
        failover_time: Time without renewal after which a lease expires.
    """

    stream: str
    user_records: int
    user_bytes: int
    acknowledged: int
    failed: int
    processed: int
    lost: int
    duplicated: int
    duplicates_explained: Mapping[str, int]
    duplicates_unexplained: int
    out_of_order: int
    overtaken_by_retries: int
    kinesis_records: int
    user_records_per_kinesis_record: float
    put_records_calls: int
    throttled_entries: int
    wrong_shard_entries: int
    put_seconds: float
    put_throughput: float
    total_seconds: float
    put_to_acknowledge: Mapping[str, float]
    put_to_process: Mapping[str, float]
    splits: int
    workers_killed: int
    workers_frozen: int
    take_over_seconds: Mapping[str, float]
    leases_lost: int
    longest_stall: float
    failover_time: float
    clean_stop: bool
    exactly_once: bool
    deliveries: int
    stored_again: int | None
    lost_responses: int

    @property
    def passed(self) -> bool:
        """Whether no record was lost, failed, processed out of order or wrongly duplicated, and all workers stopped cleanly.

        With `exactly_once`, every duplicated effect is wrong; otherwise, only a duplicate without a reason is.
        """
        duplicates = self.duplicated if self.exactly_once else self.duplicates_unexplained
        return not (self.lost or self.failed or duplicates or self.out_of_order) and self.clean_stop


def make_report(
    *,
    stream: str,
    result: RunResult,
    stats: ProducerStats,
    acknowledge_times: Sequence[float],
    put_seconds: float,
    total_seconds: float,
    splits: int,
    workers_killed: int,
    take_over_seconds: Mapping[str, float],
    leases_lost: int,
    longest_stall: float,
    failover_time: float,
    clean_stop: bool,
    workers_frozen: int = 0,
    exactly_once: bool = False,
    deliveries: int = 0,
    stored_again: int | None = None,
    lost_responses: int = 0,
) -> DemoReport:
    """Return the report of a run."""
    return DemoReport(
        stream=stream,
        user_records=stats.user_records_put,
        user_bytes=stats.user_bytes_stored,
        acknowledged=stats.user_records_stored,
        failed=result.failed,
        processed=result.delivered,
        lost=len(result.lost),
        duplicated=result.duplicates,
        duplicates_explained=result.explained,
        duplicates_unexplained=result.unexplained,
        out_of_order=result.out_of_order,
        overtaken_by_retries=result.overtaken,
        kinesis_records=stats.kinesis_records_stored,
        user_records_per_kinesis_record=stats.user_records_stored / max(1, stats.kinesis_records_stored),
        put_records_calls=stats.put_records_calls,
        throttled_entries=stats.throttled_entries,
        wrong_shard_entries=stats.wrong_shard_entries,
        put_seconds=put_seconds,
        put_throughput=stats.user_records_stored / put_seconds if put_seconds else 0.0,
        total_seconds=total_seconds,
        put_to_acknowledge=percentiles(acknowledge_times),
        put_to_process=percentiles(result.put_to_process),
        splits=splits,
        workers_killed=workers_killed,
        take_over_seconds=take_over_seconds,
        leases_lost=leases_lost,
        longest_stall=longest_stall,
        failover_time=failover_time,
        clean_stop=clean_stop,
        workers_frozen=workers_frozen,
        exactly_once=exactly_once,
        deliveries=deliveries,
        stored_again=stored_again,
        lost_responses=lost_responses,
    )


def print_report(report: DemoReport, *, as_json: bool) -> None:
    """Print the report to standard output."""
    if as_json:
        sys.stdout.write(json.dumps({**asdict(report), "passed": report.passed}) + "\n")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(justify="right", style="dim")
    table.add_column()
    for name, value in _rows(report):
        table.add_row(name, value)
    outcome = "[bold green]PASSED[/]" if report.passed else "[bold red]FAILED[/]"
    if report.exactly_once:
        summary = (
            f"{outcome}  lost {report.lost:,}, duplicated {report.duplicated:,} "
            f"(failed {report.failed:,}, out of order {report.out_of_order:,})"
        )
    else:
        summary = (
            f"{outcome}  lost {report.lost:,}, duplicated without a reason {report.duplicates_unexplained:,} "
            f"(failed {report.failed:,}, out of order {report.out_of_order:,})"
        )
    if sys.stdout.isatty():
        Console(highlight=False).print("", table, "", summary, sep="\n")
        return
    # Output to a file or pipe: wide enough for every row, and without trailing blanks.
    console = Console(highlight=False, width=160)
    with console.capture() as captured:
        console.print("", table, "", summary, sep="\n")
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def _milliseconds(values: Mapping[str, float]) -> str:
    return "   ".join(f"{name} {value * 1000:,.0f} ms" for name, value in values.items())


def _rows(report: DemoReport) -> list[tuple[str, str]]:
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in report.duplicates_explained.items())
    take_over = ", ".join(
        f"{seconds:.1f} s ({shard_id})" for shard_id, seconds in sorted(report.take_over_seconds.items())
    )
    rows = [
        ("user records", f"{report.user_records:,} ({report.user_bytes / 1e6:,.1f} MB)"),
        (
            "Kinesis records",
            f"{report.kinesis_records:,} ({report.user_records_per_kinesis_record:,.1f} user records in each)",
        ),
        ("PutRecords calls", f"{report.put_records_calls:,}"),
        (
            "throughput",
            f"{report.put_throughput:,.0f} records/s acknowledged, over {report.put_seconds:.1f} s of puts",
        ),
        ("put to acknowledge", _milliseconds(report.put_to_acknowledge)),
        ("put to process", _milliseconds(report.put_to_process)),
        ("throttled entries", f"{report.throttled_entries:,}"),
        (
            "shards split",
            f"{report.splits} (aggregates sent again because of it: {report.wrong_shard_entries:,})",
        ),
        ("responses lost", f"{report.lost_responses} of PutRecords"),
        ("workers frozen", f"{report.workers_frozen}"),
        ("workers killed", f"{report.workers_killed}"),
    ]
    if report.workers_killed:
        rows.append(
            ("taken over after", take_over or "no record was put into the killed worker's shards afterwards")
        )
    if report.longest_stall:
        rows.append(("overloaded", f"a worker process could not run for {report.longest_stall:.1f} s"))
    if report.leases_lost:
        rows.append(("leases lost", f"{report.leases_lost} (not renewed within {report.failover_time:g} s)"))
    rows.append(("acknowledged", f"{report.acknowledged:,}"))
    if report.stored_again is not None:
        rows.append(
            (
                "stored again",
                f"{report.stored_again:,} copies of records that the stream had already",
            )
        )
    if report.exactly_once:
        again = report.deliveries - report.processed - report.duplicated
        if again:
            rows.append(("processed again", f"{again:,} times, in transactions that did not commit"))
    rows += [
        ("processed", f"{report.processed:,}"),
        ("lost", f"{report.lost:,}"),
        ("duplicated", f"{report.duplicated:,}" + (f": {reasons}" if reasons else "")),
        (
            "out of order",
            f"{report.out_of_order:,} (stored after a later put of the same key: {report.overtaken_by_retries:,})",
        ),
        ("workers stopped cleanly", "yes" if report.clean_stop else "no"),
        ("duration", f"{report.total_seconds:.1f} s"),
    ]
    return rows
