"""The retry table of a file: each worker process delivers its rows, in addition to the records of its shards."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

from kinesis_sdk.cli.run.policy_table import PolicyPlace, retry_tiers
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.consumer import WorkerParts
from kinesis_sdk.retries import RetryTable, RetryWorker

_FIELD = "on_handler_error"
_ASYNC_DRIVERS = {"sqlite": "sqlite+aiosqlite", "sqlite+pysqlite": "sqlite+aiosqlite"}
"""Maps the driver in the URL of the table to the one for coroutine functions. ``postgresql+psycopg`` is not listed: it serves plain
and coroutine functions."""


def with_retries(
    parts: WorkerParts, place: PolicyPlace, *, dynamodb_table: str | None
) -> tuple[WorkerParts, RetryWorker | None]:
    """Return the parts of the worker, and the worker of the file's retry table, or None if the policy has no such table.

    Raises:
        ConfigError: If handler, sink or source do not suit a retry table.
    """
    assert parts.config is not None
    tiers = retry_tiers(parts.config.on_handler_error)
    table = None if tiers is None else tiers.to
    if tiers is None or not isinstance(table, RetryTable) or table not in place.tables:
        return parts, None
    if dynamodb_table is not None:
        raise ConfigError(f"{_FIELD}.database", None, "tiers in streams for the changes of a DynamoDB table")
    handler: Any = parts.handler
    called = getattr(handler, "__call__", None)  # noqa: B004 - of an object
    awaits = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(called)
    worker = RetryWorker(
        table,
        tiers,
        handler,
        database=_async_database(table) if awaits else None,
        policy=parts.config.error_policy,
        interceptors=parts.interceptors,
        deserializer=parts.config.deserializer,
    )
    if not table.keeps_order:
        return parts, worker
    if parts.sink is None:
        raise ConfigError(
            f"{_FIELD}.keep_order", True, "a sink in the same database (from --sink or --factory)"
        )
    return replace(parts, handler=table.in_order(handler)), worker


def _async_database(table: RetryTable) -> Any:
    url = table.engine.url
    return url.set(drivername=_ASYNC_DRIVERS.get(url.drivername, url.drivername)).render_as_string(
        hide_password=False
    )
