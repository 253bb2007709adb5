"""Options that select an application, and the selected application.

Each option that several commands share is defined here, so that its type and meaning are the same everywhere. Nothing of the
admin API is imported until a command runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kinesis_sdk.cli.options import LEASE_STORE_OPTION, ConnectionOptions, Duration, connection_options
from kinesis_sdk.cli.output import CommandError, ExitCode
from kinesis_sdk.common.errors import ConfigError

if TYPE_CHECKING:
    from kinesis_sdk.admin.applications import Application

_F = TypeVar("_F", bound=Callable[..., Any])

FAILOVER_TIME_OPTION = click.option(
    "--failover-time",
    type=Duration(0.5, 3600.0),
    default="10s",
    show_default=True,
    help="Failover time of the workers: an owner that has not renewed its leases for longer counts as silent.",
)
"""``--failover-time``, passed as seconds."""

TABLE_OPTION = click.option(
    "--table",
    metavar="NAME",
    help="Lease table; by default it has the application's name. In a SQL database, every row contains this name.",
)
"""``--table``: the lease table; accepted only with exactly one application."""

STREAM_OPTION = click.option(
    "--stream",
    metavar="STREAM",
    help="Name or ARN of the stream; by default, the stream that matches the lease table.",
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


_CONFIG_FILE = f"{__name__}.config_file"
_ALL_APPS = f"{__name__}.all_apps"
_APPLICATION_OF_FILE = f"{__name__}.application_of_file"


def config_file(context: click.Context) -> str | None:
    """Return the file of ``--config``; None if there is none."""
    path: str | None = context.meta.get(_CONFIG_FILE)
    return path


def _use_file(context: click.Context, _option: click.Parameter, path: str | None) -> None:
    """Take missing options from a file.

    As on the command line, a region, profile or endpoint of the file overrides the AWS settings of the environment.
    """
    if path is None or context.resilient_parsing:
        return
    from kinesis_sdk.cli.run.config_file import read_file

    try:
        file = read_file(path)
    except ConfigError as error:
        raise CommandError(str(error), ExitCode.USAGE) from error
    application, config = file.application, file.config
    streams = application.all_streams
    context.meta[_CONFIG_FILE] = path
    context.meta[_APPLICATION_OF_FILE] = application.name
    found = {
        "application_name": application.name,
        "streams": streams,
        # With several streams, a command for one stream needs the option.
        "stream": streams[0] if len(streams) == 1 else None,
        "dynamodb_table": application.dynamodb_table,
        "region": application.region,
        "profile": application.profile,
        "endpoint_url": application.endpoint_url,
        "table": config.lease_table.table_name,
        "lease_store": config.lease_table.lease_store,
        "sink": application.sink,
        "failover_time": config.leases.failover_time,
    }
    context.default_map = {name: value for name, value in found.items() if value}


CONFIG_OPTION = click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False),
    is_eager=True,
    expose_value=False,
    callback=_use_file,
    help="TOML file with settings of ConsumerConfig, a table for each group, such as [leases], and a table [application] with name, "
    "stream and region. Options have priority.",
)
"""``--config``: the file of `kinesis-sdk run`, from which other commands take the application, its stream, account and leases."""


def check_application(context: click.Context, parameter: click.Parameter, name: str | None) -> str | None:
    """Reject an application that the file of ``--config`` does not name; this is the callback of the parameter that takes the name.

    The file also names the lease table and the stream of its own application, so with another name, a command would change the
    wrong application.
    """
    of_file: str | None = context.meta.get(_APPLICATION_OF_FILE)
    if of_file is not None and name not in (None, of_file) and not context.resilient_parsing:
        label = "APP" if isinstance(parameter, click.Argument) else parameter.opts[0]
        raise CommandError(
            f"the file of --config is of application {of_file!r}, not of {name!r}: leave {label} out, or give the options of "
            f"{name!r} without --config",
            ExitCode.USAGE,
        )
    return name


class _ApplicationArgument(click.Argument):
    """The argument APP, which may be omitted if ``--config`` names the application, even before further arguments."""

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        """Shift the given texts to the arguments after this one if exactly one text is missing.

        If one of them is the name of the file's application, none is shifted, so that the missing argument is reported.
        """
        of_file = (ctx.default_map or {}).get(self.name or "")
        names = [one.name or "" for one in ctx.command.params if isinstance(one, click.Argument)]
        given = [opts[name] for name in names if isinstance(opts.get(name), str)]
        if (
            isinstance(opts, dict)
            and names[0] == self.name
            and len(given) == len(names) - 1
            and of_file is not None
            and of_file not in given
        ):
            del opts[names[0]]
            opts.update(zip(names[1:], given, strict=True))
        return super().handle_parse_result(ctx, opts, args)

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """Return the name; None with ``--all-apps``, which does not need it."""
        if ctx.meta.get(_ALL_APPS) and self.value_is_missing(value):
            return None
        return super().process_value(ctx, value)


def _note_all_apps(context: click.Context, _option: click.Parameter, given: bool) -> bool:
    context.meta[_ALL_APPS] = given
    return given


ALL_APPS_OPTION = click.option(
    "--all-apps",
    is_flag=True,
    is_eager=True,
    callback=_note_all_apps,
    help="Check every application of the account and region instead of APP, worst first.",
)
"""``--all-apps``; with it, APP of `application_options` is None."""


@dataclass(frozen=True, kw_only=True)
class ApplicationOptions:
    """The application that the options of a command select.

    Attributes:
        name: Its name; empty with ``--all-apps``.
        stream: Name or ARN of its stream; None to find it.
        table: Its lease table; None for the table with the application's name.
        failover_time: Failover time of its workers, in seconds.
        account: Account, region and lease store.
    """

    name: str
    stream: str | None
    table: str | None
    failover_time: float
    account: ConnectionOptions

    def open(self) -> Application:
        """Return the application. Makes no call."""
        from kinesis_sdk.admin.applications import Application

        return Application(self.account.connect(), self.name, table_name=self.table, stream=self.stream)


def application_options(command: _F) -> _F:
    """Add APP, ``--stream``, ``--table``, ``--failover-time``, ``--lease-store``, ``--config`` and the connection options.

    The command receives their values as ``app``: `ApplicationOptions`.
    """

    @functools.wraps(command)
    def gathered(*args: Any, **given: Any) -> Any:
        app = ApplicationOptions(
            name=given.pop("application_name") or "",
            **{name: given.pop(name) for name in ("stream", "table", "failover_time", "account")},
        )
        return command(*args, app=app, **given)

    made: Callable[..., Any] = gathered
    for option in (
        connection_options,
        CONFIG_OPTION,
        LEASE_STORE_OPTION,
        FAILOVER_TIME_OPTION,
        TABLE_OPTION,
        STREAM_OPTION,
        click.argument(
            "application_name",
            metavar="APP",
            cls=_ApplicationArgument,
            callback=check_application,
        ),
    ):
        made = option(made)
    return made  # type: ignore[return-value]


def check_table(table: str | None, applications: tuple[str, ...]) -> None:
    """Check that ``--table`` is given for exactly one application, in commands that take several.

    Raises:
        ConfigError: If ``--table`` is given with no application or with several.
    """
    if table is not None and len(applications) != 1:
        raise ConfigError(
            "table", table, f"exactly one APP, not {len(applications)}: a table belongs to one application"
        )
