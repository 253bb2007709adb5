"""The command ``kinesis-sdk apps``."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone

import click

from kinesis_sdk.admin.fleet.model import OwnerKind, OwnerView
from kinesis_sdk.cli.options import JSON_OPTION, LEASE_STORE_OPTION, ConnectionOptions, connection_options
from kinesis_sdk.cli.output import console, note, print_json, with_exit_codes
from kinesis_sdk.common.text import printable


@click.command()
@click.argument("names", nargs=-1, metavar="[APP]...")
@click.option("--streams", "find_streams", is_flag=True, help="Find the stream of each application as well.")
@LEASE_STORE_OPTION
@connection_options
@JSON_OPTION
@with_exit_codes
def apps(
    *,
    names: tuple[str, ...],
    find_streams: bool,
    as_json: bool,
    account: ConnectionOptions,
) -> None:
    r"""List the applications of an account and region: all lease tables, of every KCL version.

    With --lease-store, list the applications of a SQL database: one SELECT, and one more for each application.

    Without names, this costs one ListTables, and one DescribeTable for each table; then one Scan for each application. With --streams, all
    streams are compared with the tables that do not name their stream.

    \b
    Examples:
      kinesis-sdk apps
      kinesis-sdk apps billing search-index --streams
      kinesis-sdk apps --lease-store sqlite:///leases.db
    """
    from kinesis_sdk.admin.applications import Application, Applications
    from kinesis_sdk.admin.fleet.reader import FleetReader
    from kinesis_sdk.cli.fleet_tables import new_table, text, title

    connection = account.connect()
    found = Applications(connection, names or None).find()
    rows = []
    for info in found:
        reader = FleetReader(Application(connection, info.name))
        view = reader.table()
        if find_streams and view.totals.leases + view.totals.finished:
            view = reader.streams(required=False)
        rows.append((info, view))
    if as_json:
        print_json(
            [
                {
                    "application": info.name,
                    "status": info.status,
                    "created": None if info.created is None else _created(info.created),
                    "streams": view.streams,
                    "totals": view.totals,
                    "owners": {kind.value: _owners(view.owners, kind) for kind in OwnerKind},
                    "entities": view.entities,
                    "error": view.error,
                }
                for info, view in rows
            ]
        )
        return
    missing = [name for name in names if name not in {info.name for info in found}]
    for name in missing:
        note(f"There is no application {printable(name)}.")
    if not rows:
        note(f"No application was found in {connection.shown_lease_store or 'this account and region'}.")
        return
    table = new_table(
        ("APPLICATION", "wide"),
        ("SHARDS", "right"),
        ("NO OWNER", "right"),
        ("OWNERS", "right"),
        "SDK/KCL 3/KCL 1, 2",
        "CREATED",
    )
    for info, view in rows:
        totals = view.totals
        kinds = "/".join(str(_owners(view.owners, kind)) for kind in OwnerKind)
        table.add_row(
            text(title(view) if find_streams else printable(info.name)),
            f"{totals.leases:,}",
            f"{totals.unowned:,}",
            f"{totals.owners + totals.silent_owners}",
            kinds,
            "–" if info.created is None else _created(info.created).strftime("%Y-%m-%d %H:%MZ"),
        )
    console().print(table)
    for _, view in rows:
        if view.error:
            note(view.error)


def _owners(owners: Iterable[OwnerView], kind: OwnerKind) -> int:
    return sum(owner.kind is kind and bool(owner.lease_keys) for owner in owners)


def _created(moment: float) -> datetime:
    return datetime.fromtimestamp(moment, timezone.utc)
