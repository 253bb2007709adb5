"""Options that name an application, and the application that they name.

Each option that several commands have is made here, so that it has one type and one meaning in all of them. Nothing of the
admin API is imported until a command runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kinesis_sdk.cli.options import LEASE_STORE_OPTION, Duration, connection_options, make_connection
from kinesis_sdk.common.errors import ConfigError

if TYPE_CHECKING:
    from kinesis_sdk.admin.applications import Application

_F = TypeVar("_F", bound=Callable[..., Any])

FAILOVER_TIME_OPTION = click.option(
    "--failover-time",
    type=Duration(0.5, 3600.0),
    default="10s",
    show_default=True,
    help="Failover time of the workers: an owner that does not renew its leases for longer is silent.",
)
"""``--failover-time``, passed as seconds."""

TABLE_OPTION = click.option(
    "--table",
    metavar="NAME",
    help="Lease table; by default it has the application's name. In another database than DynamoDB, the name that the rows have.",
)
"""``--table``: the lease table of the one application."""

STREAM_OPTION = click.option(
    "--stream",
    metavar="STREAM",
    help="Name or ARN of the stream; by default the one that fits the lease table.",
)
"""``--stream``: the stream of applications whose lease table does not name it."""

LAG_OPTION = click.option(
    "--lag/--no-lag",
    "probe_lag",
    default=True,
    show_default=True,
    help="Read the stream for the lag of owners that do not report it.",
)
"""``--lag/--no-lag`` of views that stay open, passed as ``probe_lag``."""


def application_options(command: _F) -> _F:
    """Add APP, ``--stream``, ``--table``, ``--failover-time``, ``--lease-store`` and the connection options.

    The command receives ``application_name``, ``stream``, ``table``, ``failover_time``, ``lease_store`` and the connection's values.
    """
    for option in (
        connection_options,
        LEASE_STORE_OPTION,
        FAILOVER_TIME_OPTION,
        TABLE_OPTION,
        STREAM_OPTION,
        click.argument("application_name", metavar="APP"),
    ):
        command = option(command)
    return command


def open_application(
    name: str,
    stream: str | None,
    table: str | None,
    *,
    region: str | None,
    profile: str | None,
    endpoint_url: str | None,
    lease_store: str | None,
) -> Application:
    """Return the application that the options of `application_options` name."""
    from kinesis_sdk.admin.applications import Application

    return Application(
        make_connection(region, profile, endpoint_url, lease_store), name, table_name=table, stream=stream
    )


def check_table(table: str | None, applications: tuple[str, ...]) -> None:
    """Check that ``--table`` is given for one application only, in commands that take several.

    Raises:
        ConfigError: If it is given for none or for several.
    """
    if table is not None and len(applications) != 1:
        raise ConfigError("table", table, f"exactly one APP, not {len(applications)}: it is the table of one")
