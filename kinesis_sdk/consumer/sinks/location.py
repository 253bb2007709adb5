"""Sinks given as a URL instead of an object."""

from __future__ import annotations

import re

from kinesis_sdk.common.errors import ConfigError, without_userinfo
from kinesis_sdk.consumer.leases.table.location import MEMORY_URL
from kinesis_sdk.consumer.sinks.memory import InMemorySink
from kinesis_sdk.consumer.sinks.sink import AnySink
from kinesis_sdk.consumer.sinks.sql import AsyncSqlSink, SqlSink
from kinesis_sdk.consumer.sql.engines import is_async_url

_EXAMPLES = f"'sqlite:///totals.db', 'postgresql+psycopg://user@host/database' or '{MEMORY_URL}' (for tests)"
_URL = re.compile(r"[a-z][a-z0-9]*(\+[a-z0-9_]+)?://", re.ASCII)


def sink_at(field: str, given: AnySink | str) -> AnySink:
    """Return a sink, or the sink of a SQLAlchemy URL: an `AsyncSqlSink` if the URL's driver is asynchronous.

    Raises:
        ConfigError: If ``given`` is neither a sink nor a URL; the message names ``field``.
        ImportError: If SQLAlchemy, or the driver that the URL names, is not installed.
    """
    if not isinstance(given, str):
        if not callable(getattr(given, "ensure_ready", None)):
            # Users often pass an engine, because they have one at hand.
            more = ", as SqlSink(engine)" if hasattr(given, "dialect") else ""
            raise ConfigError(field, given, f"a sink{more}, or the URL of one: {_EXAMPLES}")
        return given
    if given == MEMORY_URL:
        return InMemorySink()
    if not _URL.match(given):
        raise ConfigError(field, without_userinfo(given), f"a sink, or the URL of one: {_EXAMPLES}")
    try:
        return AsyncSqlSink(given) if is_async_url(field, given) else SqlSink(given)
    except ConfigError as error:
        raise ConfigError(field, error.value, error.accepted) from error
