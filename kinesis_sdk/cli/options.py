"""Options that many commands share, and the checks of their values."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

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


def connection_options(command: _F) -> _F:
    """Add ``--region``, ``--profile`` and ``--endpoint-url``; `make_connection` takes their values.

    The command receives ``region``, ``profile`` and ``endpoint_url``.
    """
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
"""``--lease-store`` of `kinesis-sdk run`, and of the commands that look at the leases of workers or change them."""


def make_connection(
    region: str | None, profile: str | None, endpoint_url: str | None, lease_store: str | None = None
) -> Connection:
    """Return the connection that the options name."""
    from kinesis_sdk.admin import Connection

    return Connection(region=region, profile=profile, endpoint_url=endpoint_url, lease_store=lease_store)


if TYPE_CHECKING:
    ParamType: TypeAlias = click.ParamType[Any]
else:
    ParamType = click.ParamType
    """Base of the types of options. It is generic for type checkers, but not in older releases of click."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


class Duration(ParamType):
    """A length of time such as ``500ms``, ``90``, ``90s``, ``15m``, ``2h`` or ``1d``; passed as seconds.

    Args:
        least: Least number of seconds that is accepted.
        most: Greatest number of seconds that is accepted.
    """

    name = "duration"

    def __init__(self, least: float = 0.0, most: float = float("inf")) -> None:
        self._least = least
        self._most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        seconds = float(value) if isinstance(value, (int, float)) else parse_duration(str(value))
        if seconds is None:
            self.fail(f"{value!r} is not a length of time, such as 30s, 15m, 2h or 1d", param, ctx)
        if not self._least <= seconds <= self._most:
            self.fail(f"{value!r} is not within {self._least:g}s to {self._most:g}s", param, ctx)
        return seconds


DURATION = Duration()


def parse_duration(text: str) -> float | None:
    """Return the seconds of a text such as ``15m``; None if it is not a length of time. A number alone means seconds."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = text[len(number) :] or "s"
    if (
        unit not in _UNITS
        or not number.replace(".", "", 1).isascii()
        or not number.replace(".", "", 1).isdigit()
    ):
        return None
    return float(number) * _UNITS[unit]


class Moment(ParamType):
    """A moment: ISO 8601 (``2026-11-21T09:00:00Z``; without an offset it is local time), or how long ago (``15m``).

    Passed as a `datetime` with a time zone, or as one of the words that the option accepts, in capitals.

    Args:
        words: Words that are accepted besides, for example ``TRIM_HORIZON``.
        now: Returns the present moment, for tests.
    """

    name = "moment"

    def __init__(
        self,
        *words: str,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self._words = words
        self._now = now

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime | str:
        """Return the moment or the word."""
        if isinstance(value, datetime):
            return value
        text = str(value)
        if text.upper() in self._words:
            return text.upper()
        ago = parse_duration(text.removeprefix("-"))
        # A bare number may be meant as seconds or as an epoch, so it needs its unit.
        if ago is not None and text[-1].isalpha():
            return self._now() - timedelta(seconds=ago)
        try:
            # Python 3.10 does not know the Z of UTC.
            moment = datetime.fromisoformat(text[:-1] + "+00:00" if text[-1:] in ("Z", "z") else text)
        except ValueError:
            accepted = "".join(f", {word}" for word in self._words)
            self.fail(
                f"{text!r} is not a moment, such as 2026-11-21T09:00:00Z, 15m (15 minutes ago){accepted}",
                param,
                ctx,
            )
        return moment if moment.tzinfo is not None else moment.astimezone()
