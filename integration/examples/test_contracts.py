"""`examples/file_lease_store.py` and `examples/custom_sink.py` keep the contracts of lease stores and sinks; the first serves a fleet."""

from __future__ import annotations

import importlib.util
import json
import re
import signal
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest

from integration.examples.support import EXAMPLES, TIMEOUT, Account
from integration.waiting import eventually
from kinesis_sdk import LeaseStoreError, Producer, SinkError, TransientSinkError
from kinesis_sdk.testing.contracts.lease_stores import LEASE_STORE_CHECKS
from kinesis_sdk.testing.contracts.lease_stores import Check as LeaseStoreCheck
from kinesis_sdk.testing.contracts.sinks import SINK_CHECKS, SinkUnderTest
from kinesis_sdk.testing.contracts.sinks import Check as SinkCheck


def load(name: str) -> ModuleType:
    """Import a program of `examples/`."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("check", LEASE_STORE_CHECKS, ids=lambda check: check.__name__)
def test_the_lease_store_keeps_the_contract(check: LeaseStoreCheck, tmp_path: Path) -> None:
    store = load("file_lease_store").FileLeaseStore(tmp_path / "leases.json")
    store.ensure_ready()
    check(store)


def test_the_lease_store_names_its_file(tmp_path: Path) -> None:
    store = load("file_lease_store").FileLeaseStore(tmp_path / "missing" / "leases.json")
    with pytest.raises(LeaseStoreError, match=r"missing/leases\.json"):
        store.ensure_ready()


@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__)
def test_the_sink_keeps_the_contract(check: SinkCheck, tmp_path: Path) -> None:
    path = str(tmp_path / "totals.db")
    sink = load("custom_sink").SqliteSink(path)

    def effects() -> Iterator[str]:
        with closing(sqlite3.connect(path)) as database:
            yield from [key for (key,) in database.execute("SELECT key FROM totals")]

    check(
        SinkUnderTest(
            sink=sink,
            write=lambda handle, effect: handle.execute("INSERT INTO totals VALUES (?, 1)", (effect,)),
            effects=effects,
        )
    )


def test_the_sink_tells_errors_that_pass_from_others(tmp_path: Path) -> None:
    module = load("custom_sink")
    with pytest.raises(SinkError, match="unable to open") as raised:
        module.SqliteSink(str(tmp_path / "missing" / "totals.db")).ensure_ready()
    assert not raised.value.retryable
    sink = module.SqliteSink(str(tmp_path / "totals.db"))
    assert isinstance(sink.translate(sqlite3.OperationalError("database is locked")), TransientSinkError)
    other = ValueError("of the handler")
    assert sink.translate(other) is other


def test_two_workers_share_the_shards_through_the_file(account: Account, tmp_path: Path) -> None:
    account.create_stream("orders", 4)
    with Producer(client=account.client("kinesis")) as producer:
        producer.put_many("orders", [(f"customer-{number}", b"order") for number in range(1000)])
    logs = [tmp_path / f"worker-{number}.log" for number in (1, 2)]
    workers = [
        account.start(sys.executable, EXAMPLES / "file_lease_store.py", folder=tmp_path, log=log)
        for log in logs
    ]

    def processed() -> int:
        printed = "".join(log.read_text() for log in logs)
        return sum(map(int, re.findall(r"^(\d+) records of", printed, re.MULTILINE)))

    def owners() -> list[str]:
        path = tmp_path / "leases.json"
        leases = json.loads(path.read_text()) if path.exists() else []
        return [lease.get("leaseOwner", {}).get("S", "") for lease in leases]

    def shared() -> bool:
        found = owners()
        return len(found) == 4 and sorted(found.count(owner) for owner in {*found} - {""}) == [2, 2]

    try:
        eventually(shared, "the workers do not share the shards")
        eventually(lambda: processed() >= 1000, "records are missing")
    finally:
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
        ended = [worker.wait(TIMEOUT) for worker in workers]
    assert ended == [0, 0]
    assert processed() == 1000, "a lease that is handed over repeats nothing"
    assert "leaseOwner" not in (tmp_path / "leases.json").read_text(), "a clean stop releases the leases"
