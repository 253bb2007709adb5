"""The command ``kinesis-sdk balance``."""

from __future__ import annotations

import click

from kinesis_sdk.admin.fleet.balance import Balance, balance_of
from kinesis_sdk.admin.fleet.look import Look
from kinesis_sdk.admin.fleet.observe import FleetObserver
from kinesis_sdk.cli.fleet_tables import application_options, new_table, open_application, text
from kinesis_sdk.cli.options import DURATION, JSON_OPTION
from kinesis_sdk.cli.output import console, note, print_json, with_exit_codes
from kinesis_sdk.common.text import printable

_BAR = 30
"""Largest length of a bar."""


@click.command()
@application_options
@click.option(
    "--separator",
    default="|",
    show_default=True,
    help="Text that ends the group's label in a worker id, such as - in cluster-worker.",
)
@click.option(
    "--watch-for",
    type=DURATION,
    default="0s",
    help="Watch for this long before the answer, such as 25s, so that workers that fell silent get no share.",
)
@JSON_OPTION
@with_exit_codes
def balance(
    *,
    application_name: str,
    stream: str | None,
    table: str | None,
    failover_time: float,
    separator: str,
    watch_for: float,
    as_json: bool,
    region: str | None,
    profile: str | None,
    endpoint_url: str | None,
) -> None:
    r"""Show how evenly the leases are spread over workers, and over groups of workers such as zones.

    The group of a worker is what stands before the separator in its id. Ids without it have no group.

    \b
    Examples:
      kinesis-sdk balance billing
      kinesis-sdk balance billing --separator -
    """
    application = open_application(
        application_name, stream, table, region=region, profile=profile, endpoint_url=endpoint_url
    )
    look = Look(
        application,
        observer=FleetObserver(application_name, failover_time=failover_time, separator=separator or "|"),
    )
    view = look.table()
    if watch_for:
        note(f"Watching for {watch_for:g} s ...")
        view = look.watch(watch_for)
    found = balance_of(view, separator or "|")
    if as_json:
        print_json(found)
        return
    _print(application_name, found)


def _print(name: str, found: Balance) -> None:
    screen = console()
    state = (
        "balanced"
        if not found.moves and not found.unowned
        else f"{found.moves:,} {'lease' if found.moves == 1 else 'leases'} would have to move"
    )
    unowned = f", {found.unowned:,} without a live owner" if found.unowned else ""
    screen.print(
        text(
            f"{printable(name)} · {found.leases:,} leases{unowned} · {found.workers} workers · fair share {found.ideal:.1f} · "
            f"most minus fewest {found.spread} · {state}",
            "bold",
        )
    )
    if not found.workers:
        return
    if len(found.groups) > 1 or found.groups[0].group:
        groups = new_table(
            ("GROUP", "wide"),
            ("WORKERS", "right"),
            ("LEASES", "right"),
            ("FAIR SHARE", "right"),
            ("FEWEST", "right"),
            ("MOST", "right"),
            ("KB/S", "right"),
        )
        for group in found.groups:
            groups.add_row(
                text(printable(group.group, 40) or "(no group)"),
                str(group.workers),
                f"{group.leases:,}",
                f"{group.ideal:.1f}",
                str(group.least),
                str(group.most),
                _rate(group.throughput_kbps),
            )
        screen.print(groups)
        screen.print()
    workers = new_table(("WORKER", "wide"), ("LEASES", "right"), ("SHARE", "right"), ("KB/S", "right"), "")
    most = max(1, *(max(worker.leases, worker.share) for worker in found.by_worker))
    for worker in found.by_worker:
        workers.add_row(
            text(printable(worker.worker_id, 60)),
            str(worker.leases),
            str(worker.share),
            _rate(worker.throughput_kbps),
            text(_bar(worker.leases, worker.share, most), "" if worker.leases <= worker.share else "yellow"),
        )
    screen.print(workers)


def _rate(kbps: float | None) -> str:
    return "–" if kbps is None else f"{kbps:,.0f}"


def _bar(leases: int, share: int, most: int) -> str:
    """Return a bar of the leases; ``·`` for what is missing to the share, ``▒`` for what is above it."""
    scale = min(1.0, _BAR / most)
    full, target = round(leases * scale), round(share * scale)
    return "█" * min(full, target) + "▒" * max(0, full - target) + "·" * max(0, target - full)
