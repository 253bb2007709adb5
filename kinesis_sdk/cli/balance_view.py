"""The picture of a balance for a terminal."""

from __future__ import annotations

from kinesis_sdk.admin.fleet.balance import Balance
from kinesis_sdk.admin.fleet.formatting import counted
from kinesis_sdk.cli.fleet_tables import new_table, text
from kinesis_sdk.cli.output import console
from kinesis_sdk.common.text import printable

_BAR = 30
"""Largest length of a bar."""


def print_balance(name: str, found: Balance) -> None:
    """Print how the leases are spread over groups and workers."""
    screen = console()
    state = (
        "balanced"
        if not found.moves and not found.unowned
        else f"{counted(found.moves, 'lease')} would have to move"
    )
    unowned = f", {found.unowned:,} without a live owner" if found.unowned else ""
    screen.print(
        text(
            f"{printable(name)} · {counted(found.leases, 'lease')}{unowned} · {counted(found.workers, 'worker')} · "
            f"fair share {found.ideal:.1f} · "
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
    """Return a bar of the leases; ``·`` for leases below the share, ``▒`` for leases above it."""
    scale = min(1.0, _BAR / most)
    full, target = round(leases * scale), round(share * scale)
    return "█" * min(full, target) + "▒" * max(0, full - target) + "·" * max(0, target - full)
