"""The commands on a running fleet whose leases are in a SQL database: processes of `kinesis-sdk run`, and processes of an operator."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from integration.commands import CLI, execute
from integration.postgres import postgres, postgres_server
from integration.running import account, command
from integration.waiting import eventually
from kinesis_sdk.consumer import SqlLeaseStore

sqlalchemy = pytest.importorskip("sqlalchemy")

__all__ = ["account", "command", "postgres", "postgres_server"]

CHECKPOINTS = """
import os

def handle(batch):
    lines = "".join(f"record {os.getpid()} {record.data.decode()}\\n" for record in batch.records)
    descriptor = os.open("out.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, lines.encode())
    os.close(descriptor)
    batch.checkpoint()
"""


@pytest.fixture(params=["sqlite", "postgres"])
def lease_store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/leases.db"
    url: str = request.getfixturevalue("postgres")
    engine = sqlalchemy.create_engine(url)
    tables = sqlalchemy.MetaData()
    tables.reflect(engine)
    tables.drop_all(engine)
    engine.dispose()
    return url


class Operator:
    """Runs commands in processes of their own, which learn the database from the environment."""

    def __init__(self, endpoint_url: str, lease_store: str, folder: Path) -> None:
        self.endpoint = ("--endpoint-url", endpoint_url)
        self.environment = {
            **os.environ,
            "KINESIS_SDK_LEASE_STORE": lease_store,
            "XDG_STATE_HOME": str(folder / "state"),
        }

    def run(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        result = execute([*CLI, *arguments, *self.endpoint], env=self.environment)
        assert result.returncode == code, result.stderr
        return result

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.run(*arguments, "--json", code=code).stdout)

    def leases(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.json("leases", "list", "app")["leases"]
        return found


def test_a_fleet_is_seen_rewound_and_drained(
    account: Any, command: Any, lease_store: str, tmp_path: Path
) -> None:
    account.put(300)
    fleet = command("--processes", "2", "--lease-store", lease_store, source=CHECKPOINTS)
    operator = Operator(account.endpoint_url, lease_store, tmp_path)
    fleet.wait_until(lambda: fleet.processed() == set(range(300)))
    # Without a command, which takes a second or two of a processor: this only waits.
    store = SqlLeaseStore(lease_store, "app")

    def holders() -> Counter[str | None]:
        return Counter(lease.owner for lease in store.list())

    eventually(lambda: None not in holders() and [*holders().values()] == [2, 2], fleet.log)

    (row,) = operator.json("apps", "--streams")
    assert (row["application"], row["streams"], row["totals"]["leases"]) == ("app", ["orders"], 4)
    assert row["owners"]["kinesis_sdk"] == 2
    assert operator.json("lag", "app", "--max-lag", "5m")["totals"]["measured"] == 4
    owners = Counter(lease["owner"] for lease in operator.leases())
    assert sorted(owners.values()) == [2, 2]

    before = {lease["lease_key"]: lease["counter"] for lease in operator.leases()}
    changed = operator.json("leases", "rewind", "app", "--to", "TRIM_HORIZON", "--yes")
    assert [one["status"] for one in changed["outcomes"]] == ["done"] * 4
    assert {one["noticed_by"] for one in changed["outcomes"]} <= {*owners}

    def read_twice() -> bool:
        counts = Counter(number for _, number in fleet.notes("record"))
        return len(counts) == 300 and min(counts.values()) == 2

    fleet.wait_until(read_twice)
    assert max(Counter(number for _, number in fleet.notes("record")).values()) == 2
    assert all(lease["counter"] > before[lease["lease_key"]] for lease in operator.leases())

    drained, other = sorted(owners)
    assert operator.json("worker", "drain", "app", drained, "--yes")["drained"]
    assert {lease["owner"] for lease in operator.leases()} == {other}
    assert [one["is_draining"] for one in operator.json("worker", "list", "app")] == [True, False]
    account.put(50)
    fleet.wait_until(lambda: fleet.processed() == set(range(350)))
    operator.run("worker", "undrain", "app", drained, "--yes")
    eventually(lambda: holders().keys() == {drained, other}, fleet.log)
    store.close()

    operator.run("leases", "delete-app", "app", "--yes", code=4)
    audit = (tmp_path / "state" / "kinesis-sdk" / "audit.jsonl").read_text()
    assert len([line for line in audit.splitlines() if '"event": "done"' in line]) >= 6
    assert account.aws.stats()["calls"].get("CreateTable", 0) == 0, "no lease table in DynamoDB"


def test_a_look_at_an_empty_database_creates_nothing(account: Any, lease_store: str, tmp_path: Path) -> None:
    operator = Operator(account.endpoint_url, lease_store, tmp_path)
    for arguments in (("apps",), ("leases", "list", "app"), ("leases", "rewind", "app", "--to", "-15m")):
        operator.run(*arguments, code=2)
    if lease_store.startswith("sqlite"):
        assert not (tmp_path / "leases.db").exists()
        return
    engine = sqlalchemy.create_engine(lease_store)
    assert sqlalchemy.inspect(engine).get_table_names() == []
    engine.dispose()


def test_a_server_that_is_not_there_is_a_failed_call(account: Any, tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    operator = Operator(account.endpoint_url, "postgresql+psycopg://ann:secret@127.0.0.1:9/leases", tmp_path)
    shown = operator.run("lag", "app", code=3).stderr
    assert "the database failed" in shown
    assert "Traceback" not in shown
    assert "secret" not in shown
