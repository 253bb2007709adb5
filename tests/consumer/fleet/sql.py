"""The table of a simulated fleet in a SQL database: its workers get the SQL store's answers, each compared with the reference's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kinesis_sdk.consumer.leases import Lease, SqlLeaseStore
from kinesis_sdk.testing.contracts.lease_stores import comparable
from tests.consumer.fleet.table import LeaseTable

METHODS = (
    "scan",
    "list",
    "get",
    "create_if_absent",
    "take",
    "renew",
    "checkpoint",
    "prepare",
    "pin",
    "mark_processed",
    "release",
    "request_handoff",
    "complete_handoff",
    "set_hash_key_range",
    "set_child_shard_ids",
    "put_standby_heartbeat",
    "set_drain",
    "set_pin",
    "set_handler_request",
    "delete",
)


def sqlite_engine() -> Any:
    """Return an engine for an empty SQLite database in memory."""
    sqlalchemy = pytest.importorskip("sqlalchemy")
    return sqlalchemy.create_engine(
        "sqlite://", poolclass=sqlalchemy.pool.StaticPool, connect_args={"check_same_thread": False}
    )


def move_to_sql(table: LeaseTable, engine: Any) -> SqlLeaseStore:
    """Let a table answer from a database. It goes on with its own rows and checks, and every answer and row must be the same.

    Args:
        table: A table without rows.
        engine: Engine of an empty database.

    Returns:
        The store.
    """
    store = SqlLeaseStore(engine, "app")
    store.ensure_ready()
    calls = _Calls(store)
    assert not table._rows
    table._rows = calls.rows
    for name in METHODS:
        setattr(table, name, calls.both(name, getattr(table, name), getattr(store, name)))
    return store


def _plain(outcome: Any) -> Any:
    """Leave out what a store need not return with every write: what other writers, here also Java workers, may change."""
    plain = comparable(outcome)
    return replace(plain, handoff_owner=None) if isinstance(plain, Lease) else plain


def _rounded(row: Lease | None) -> Lease | None:
    """Round the throughput, which a row in its wire form has with six places."""
    if row is None or row.throughput_kbps is None:
        return row
    return replace(row, throughput_kbps=round(row.throughput_kbps, 6))


class _Calls:
    def __init__(self, store: SqlLeaseStore) -> None:
        self.rows = _Rows(self)
        self.store = store
        self.is_inside = False

    def both(
        self, name: str, reference: Callable[..., Any], actual: Callable[..., Any]
    ) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            if self.is_inside:  # a method of the table that calls another one
                return reference(*arguments, **more)
            self.is_inside = True
            try:
                expected = reference(*arguments, **more)
                found = actual(*arguments, **more)
            finally:
                self.is_inside = False
            if name in ("scan", "list"):
                leases = found.leases if name == "scan" else found
                rows = {key: _rounded(row) for key, row in self.rows.items()}
                assert {lease.lease_key: _rounded(lease) for lease in leases} == rows
                return found
            assert _plain(found) == _plain(expected), f"{name}{arguments}"
            first = arguments[0]
            key = first.lease_key if isinstance(first, Lease) else first
            assert _rounded(self.store.get(key)) == _rounded(self.rows.get(key)), f"{name}{arguments}"
            return found

        return call


class _Rows(dict[str, Lease]):
    """Rows that a test changes without the table's methods, as operators do with tools of their own."""

    def __init__(self, calls: _Calls) -> None:
        super().__init__()
        self._calls = calls

    def __setitem__(self, key: str, row: Lease) -> None:
        super().__setitem__(key, row)
        if not self._calls.is_inside:
            self._calls.store.delete(key)
            assert self._calls.store.create_if_absent(row)
