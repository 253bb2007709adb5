"""Options that many commands share, and the checks of their values."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.position import AtTimestamp, Latest, Position, TrimHorizon
from kinesis_sdk.common.position_text import parse_duration, parse_position, parse_time

if TYPE_CHECKING:
    from kinesis_sdk.admin import Connection

_F = TypeVar("_F", bound=Callable[..., Any])

JSON_OPTION = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON on standard output, and nothing else there."
)
"""``--json``, passed as ``as_json``."""

PORT = click.IntRange(0, 65535)
"""Type of a TCP port."""
PORT_HELP = "TCP port; 0 takes a free one."
HOST_HELP = "Address to listen at; 0.0.0.0 in a container."

YES_OPTION = click.option("--yes", is_flag=True, help="Do not ask; for scripts.")
"""``--yes``: act without asking."""

QUIET_OPTION = click.option("--quiet", "-q", is_flag=True, help="No progress.")
RATE_OPTION = click.option("--rate", type=float, metavar="N", help="Maximum records per second.")
STATE_OPTION = click.option(
    "--state",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Track progress in this file, so that the same command can resume a run that was stopped.",
)
AGGREGATE_OPTION = click.option(
    "--aggregate/--no-aggregate", default=True, show_default=True, help="Pack small records together."
)


def log_options(command: _F) -> _F:
    """Add ``--log-level`` and ``--log-format``."""
    level = click.option(
        "--log-level",
        type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
        default="INFO",
        show_default=True,
        help="Level of the log, which goes to standard error.",
    )
    form = click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Lines of text, or one JSON object per line.",
    )
    return level(form(command))


def ordered_option(default: bool) -> Callable[[_F], _F]:
    """Return ``--ordered/--unordered``."""
    return click.option(
        "--ordered/--unordered",
        default=default,
        show_default=True,
        help="Keep the order of the records of each key; costs throughput.",
    )


@dataclass(frozen=True)
class ConnectionOptions:
    """Account, region and lease store from the options of a command; None for missing options."""

    region: str | None = None
    profile: str | None = None
    endpoint_url: str | None = None
    lease_store: str | None = None

    def connect(self) -> Connection:
        """Return the connection. Makes no call."""
        from kinesis_sdk.admin import Connection

        return Connection(
            region=self.region,
            profile=self.profile,
            endpoint_url=self.endpoint_url,
            lease_store=self.lease_store,
        )


def connection_options(command: _F) -> _F:
    """Add ``--region``, ``--profile`` and ``--endpoint-url``.

    The command receives their values, and the value of `LEASE_STORE_OPTION` if it has that option, as ``account``:
    `ConnectionOptions`.
    """

    @functools.wraps(command)
    def gathered(*args: Any, **given: Any) -> Any:
        place = {name: given.pop(name) for name in _PLACE if name in given}
        return command(*args, account=ConnectionOptions(**place), **given)

    return _with_connection(gathered)  # type: ignore[return-value]


_PLACE = ("region", "profile", "endpoint_url", "lease_store")


def _with_connection(command: _F) -> _F:
    for option in (
        click.option(
            "--endpoint-url",
            metavar="URL",
            help="Endpoint of all services, for example http://localhost:4566 for LocalStack.",
        ),
        click.option(
            "--profile", metavar="NAME", help="Profile of ~/.aws; by default the usual credentials."
        ),
        click.option(
            "--region", metavar="REGION", help="AWS region; by default from the usual AWS settings."
        ),
    ):
        command = option(command)
    return command


LEASE_STORE_ENV = "KINESIS_SDK_LEASE_STORE"
"""Environment variable with the URL of the lease store; it keeps a password out of the list of processes."""

LEASE_STORE_OPTION = click.option(
    "--lease-store",
    metavar="URL",
    envvar=LEASE_STORE_ENV,
    help="Database that holds the leases instead of DynamoDB: sqlite:///leases.db, postgresql+psycopg://user@host/database. "
    f"Also {LEASE_STORE_ENV}, which keeps a password out of the list of processes.",
)
"""``--lease-store`` of `kinesis-sdk run`, and of the commands that read or change the leases of workers."""
ALLOW_STREAM_OPTION = click.option(
    "--allow-stream",
    "allowed",
    multiple=True,
    metavar="STREAM",
    help="Allow dead letters to go back into this stream, besides the streams of their application; can be given several times.",
)


if TYPE_CHECKING:
    ParamType: TypeAlias = click.ParamType[Any]
else:
    ParamType = click.ParamType
    """Base of the types of options. It is generic for type checkers, but not in older releases of click."""


class Duration(ParamType):
    """A duration such as ``500ms``, ``90s`` or ``1h30m``, within bounds in seconds; passed as seconds."""

    name = "duration"

    def __init__(self, least: float = 0.0, most: float = float("inf")) -> None:
        self._least = least
        self._most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        text = value if isinstance(value, str) else f"{value:f}s"  # a file of --config has numbers of seconds
        try:
            return parse_duration(text, field=self.name, least=self._least, most=self._most)
        except ConfigError as error:
            self.fail(rejected(error), param, ctx)


DURATION = Duration()
TTL_OPTION = click.option(
    "--ttl",
    type=DURATION,
    default="5m",
    show_default=True,
    help="How long to retry a record before it counts as failed.",
)

_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class Bytes(ParamType):
    """A size such as ``64M``, ``1G`` or a number of bytes, within bounds; K, M and G are powers of 1,024. Passed as bytes."""

    name = "size"

    def __init__(self, least: int, most: int) -> None:
        self._least = least
        self._most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the bytes."""
        if isinstance(value, int):
            return value
        text = str(value).lower()
        number = text.rstrip("kmg")
        unit = text[len(number) :]
        if unit not in _SIZES or not (number.isascii() and number.isdigit() and len(number) <= 15):
            self.fail(f"{value!r} is not a size, such as 64M or 1G", param, ctx)
        size = int(number) * _SIZES[unit]
        if not self._least <= size <= self._most:
            self.fail(f"{value!r} is not within {self._least:,} to {self._most:,} bytes", param, ctx)
        return size


class PositionType(ParamType):
    """A position of one of the accepted types, in the grammar of `kinesis_sdk.common.position_text`."""

    name = "position"

    def __init__(self, *accepted: type[Position], now: Callable[[], float] = time.time) -> None:
        self._accepted = accepted
        self._now = now

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Position:
        """Return the position."""
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]
        try:
            return parse_position(value, now=self._now(), accepted=self._accepted)
        except ConfigError as error:
            self.fail(rejected(error), param, ctx)


BEGINNING = PositionType(TrimHorizon, Latest, AtTimestamp)
"""Type of options for a starting position in every shard of a stream."""


class Ending(ParamType):
    """A time at which to end, or ``NOW``; passed as a `datetime` in UTC, or as ``"NOW"``."""

    name = "time"

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime | str:
        """Return the time or the word."""
        if isinstance(value, datetime) or value.upper() == NOW:
            return value if isinstance(value, datetime) else NOW
        try:
            return AtTimestamp(parse_time(value, field=self.name, now=self._now())).moment
        except ConfigError as error:
            self.fail(f"{rejected(error)}; or NOW", param, ctx)


NOW = "NOW"


def rejected(error: ConfigError) -> str:
    """Return the message of a command for the rejected value of an option."""
    return f"got {str(error.value)[:80]!r}, expected {error.accepted}"
