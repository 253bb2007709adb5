"""Leases in a SQL database as tools see them: looks that create nothing, writes that are as safe as DynamoDB's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kinesis_sdk.admin import Application, Applications, Connection
from kinesis_sdk.admin.changes import recipes
from kinesis_sdk.admin.changes.rows import Row, RowWrite, WriteKind
from kinesis_sdk.admin.fleet.poller import FleetPoller
from kinesis_sdk.admin.lease_tables.interface import LeaseTable
from kinesis_sdk.cli.spelling import options_of
from kinesis_sdk.common.errors import (
    ConfigError,
    LeaseRowRejectedError,
    LeaseStoreError,
    LeaseTableNotFoundError,
    TransientLeaseStoreError,
)
from kinesis_sdk.common.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.consumer.leases.table.lease import Lease, ProcessedUntil, lease_to_item
from kinesis_sdk.consumer.leases.table.progress import Progress
from kinesis_sdk.testing import FakeAws, VirtualClock

sqlalchemy = pytest.importorskip("sqlalchemy")
from kinesis_sdk.consumer.leases import SqlLeaseStore  # noqa: E402

KEY = "shardId-000000000000"
SEEN = ExtendedSequenceNumber("49590338271490256608559692538361571095921575989136588898", 3)


class Database:
    """A file of SQLite with the leases of `billing`, and a connection of an operator to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.aws = FakeAws(clock=VirtualClock())
        self.aws.client("kinesis").create_stream(StreamName="orders", ShardCount=1)
        self.store = SqlLeaseStore(f"sqlite:///{path}", "billing", sleep=lambda _: None)
        self.connections: list[Connection] = []

    def connection(self, url: str | None = None) -> Connection:
        one = Connection(
            clients={"kinesis": self.aws.client("kinesis")}, lease_store=url or f"sqlite:///{self.path}"
        )
        self.connections.append(one)
        return one

    def application(self, name: str = "billing", **options: Any) -> Application:
        return Application(self.connection(), name, sleep=lambda _: None, **options)

    def close(self) -> None:
        self.store.close()
        for one in self.connections:
            one.database.dispose()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    one = Database(tmp_path / "leases.db")
    yield one
    one.close()


def a_lease(**more: Any) -> Lease:
    return Lease(**{"lease_key": KEY, "counter": 7, "checkpoint": SEEN, "owner": "w", **more})


def filled(database: Database, *leases: Lease) -> LeaseTable:
    database.store.ensure_ready()
    for lease in leases or (a_lease(),):
        assert database.store.create_if_absent(lease)
    return database.application().table


# A look creates nothing, and says what is wrong


def test_a_file_that_is_not_there_is_named_and_not_created(database: Database) -> None:
    for look in (
        database.application().scan,
        database.application().info,
        Applications(database.connection()).find,
    ):
        with pytest.raises(LeaseTableNotFoundError, match=r"lease_store: .*leases\.db"):
            look()
    assert not database.path.exists()


def test_a_database_of_others_is_left_as_it_is(database: Database) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{database.path}")
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE accounts (name TEXT)"))
    engine.dispose()
    before = database.path.read_bytes()
    with pytest.raises(LeaseTableNotFoundError, match="kinesis_sdk_leases"):
        database.application().scan()
    with pytest.raises(LeaseTableNotFoundError, match="kinesis_sdk_leases"):
        Applications(database.connection()).find()
    assert database.path.read_bytes() == before


def test_what_is_no_database_at_all_is_an_error_of_the_store(database: Database) -> None:
    database.path.write_bytes(b"not a database" * 100)
    with pytest.raises(LeaseStoreError, match="file is not a database"):
        database.application().scan()


def test_another_version_of_the_table_is_not_touched(database: Database) -> None:
    table = filled(database)
    with database.store.engine.begin() as connection:
        connection.execute(sqlalchemy.text("UPDATE kinesis_sdk_versions SET version = 2"))
    with pytest.raises(LeaseStoreError, match="version 2"):
        table.read()


def test_an_application_that_is_not_there_is_told_with_those_that_are(database: Database) -> None:
    filled(database)
    for look in (database.application("biling").scan, database.application("biling").table.read):
        with pytest.raises(
            LeaseTableNotFoundError,
            match=r"'biling'.* billing",
        ):
            look()
    assert database.application("biling").table.read(may_be_missing=True).rows == {}
    with pytest.raises(LeaseTableNotFoundError) as caught:
        database.application("payments", table_name="payment").info()
    assert caught.value.field == "table"
    assert database.application("payments", table_name="billing").info().name == "payments"


def test_a_table_that_is_dropped_meanwhile_is_told_as_a_missing_one(database: Database) -> None:
    table = filled(database)
    assert len(table.read().rows) == 1
    with database.store.engine.begin() as connection:
        connection.execute(sqlalchemy.text("DROP TABLE kinesis_sdk_leases"))
    with pytest.raises(LeaseTableNotFoundError, match="kinesis_sdk_leases"):
        table.read()


@pytest.mark.parametrize(
    "url", ["memory://", "leases.db", "mongodb://host/leases", "postgresql://host:x/leases"]
)
def test_a_url_that_cannot_be_read_is_named(url: str) -> None:
    with pytest.raises(ConfigError, match="lease_store"):
        _ = Connection(lease_store=url).database


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql+psycopg://ann:secret@host/leases", "postgresql+psycopg://ann@host/leases"),
        ("postgresql+psycopg://ann:se/cr@et?@host/leases", "postgresql+psycopg://ann@host/leases"),
        ("postgresql://host/leases?user=ann&password=secret", "postgresql://host/leases?user=ann"),
        ("postgresql://host/leases?password=secret&user=ann", "postgresql://host/leases?user=ann"),
        (
            "postgresql://host/leases?password=secret&sslpassword=secret&user=ann",
            "postgresql://host/leases?user=ann",
        ),
        ("sqlite+pysqlcipher://:secret@/leases.db", "sqlite+pysqlcipher://@/leases.db"),
        ("sqlite:////var/lib/a@b:c.db", "sqlite:////var/lib/a@b:c.db"),
    ],
)
def test_no_command_that_is_shown_has_a_password(url: str, shown: str) -> None:
    connection = Connection(lease_store=url, region="eu-west-1")
    assert options_of(connection) == ["--lease-store", shown, "--region", "eu-west-1"]


def test_errors_have_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = Connection(lease_store="postgresql+nosuchdriver://ann:secret@host/leases")
    with pytest.raises(ConfigError) as caught:
        _ = connection.database
    assert "secret" not in str(caught.value)


# What it costs


def test_a_page_costs_one_select_for_each_look(database: Database) -> None:
    filled(database, *(a_lease(lease_key=f"shardId-{number:012}") for number in range(110)))
    clock = database.aws.clock
    poller = FleetPoller(database.application(stream="orders"), probe_lag=False, clock=clock)
    with poller.subscribe():
        looks = 0
        for _ in range(60):
            before = poller.view()
            poller.step_table()
            view = poller.view()
            assert view is not None
            looks += view is not before
            clock.advance(1.0)
        assert looks == 12, "every 5 s above 100 leases"
        # The first look checks that the table is there, and which version it has.
        assert set(view.calls_per_minute) <= {"SELECT", "PRAGMA"}
        assert view.calls_per_minute["SELECT"] <= looks + 4
    assert view.totals.leases == 110


# Changes


def everything() -> Lease:
    """A row with every kind of attribute: columns, attributes that share a column, and some that are unknown."""
    return a_lease(
        owner_switches=3,
        pending_checkpoint=ExtendedSequenceNumber(SEEN.sequence_number, 9),
        pending_checkpoint_state=b"\x00half",
        parent_shard_ids=("shardId-000000000009",),
        child_shard_ids=("shardId-000000000010", "shardId-000000000011"),
        throughput_kbps=12.5,
        handoff_owner="w",
        initial_timestamp_millis=1_700_000_000_000,
        processed_until=ProcessedUntil(1_700_000_000_000, SEEN),
        standby_heartbeats={"x": 4},
        progress=Progress(5, 6, None, "w"),
        draining=("y",),
        extra={"mine": {"L": [{"N": "1"}, {"B": b"\xff"}]}},
    )


def writes(row: Row) -> dict[str, RowWrite]:
    return {
        "restart": recipes.restart(row, ExtendedSequenceNumber(TRIM_HORIZON), by="~op"),
        "free": recipes.free(row, SEEN, by="~op"),
        "assign": recipes.assign(row, "v", is_python=True, by="~op"),
        "assign to Java": recipes.assign(row, "v", is_python=False, by="~op"),
        "request": recipes.request(row, "~op"),
        "give back": recipes.give_back(row, "w", SEEN, by="~op"),
    }


@pytest.mark.parametrize("name", list(writes(Row.of(lease_to_item(a_lease())))))
def test_a_write_leaves_exactly_what_it_says(database: Database, name: str) -> None:
    table = filled(database, everything())
    row = table.read().rows[KEY]
    assert row.lease == everything()
    write = writes(row)[name]
    assert table.send(write)
    assert table.get(KEY) == write.applied(row.item)
    assert database.store.get(KEY) == Row.of(write.applied(row.item) or {}).lease


@pytest.mark.parametrize("name", list(writes(Row.of(lease_to_item(a_lease())))))
def test_a_write_after_another_one_changes_nothing(database: Database, name: str) -> None:
    table = filled(database, everything())
    write = writes(table.read().rows[KEY])[name]
    if name == "request":
        assert database.store.request_handoff(everything(), "v") is not None
    else:
        assert isinstance(database.store.renew(everything()), Lease)
    before = table.get(KEY)
    assert not table.send(write)
    assert table.get(KEY) == before
    assert database.store.delete(KEY)
    assert not table.send(write), "no row"


class Between:
    """Lets another writer act between the read of a row and the statement that writes it."""

    def __init__(self, table: Any, act: Any, times: int = 1) -> None:
        self.left = times
        store = table.store
        changes = store._changes_a_row

        def raced(*write: Any) -> bool:
            if self.left:
                self.left -= 1
                act()
            return bool(changes(*write))

        store._changes_a_row = raced


def test_a_renewal_between_read_and_write_defeats_the_write(database: Database) -> None:
    table = filled(database, everything())
    write = writes(table.read().rows[KEY])["restart"]
    Between(table, lambda: database.store.renew(everything()))
    assert not table.send(write)
    assert database.store.get(KEY) == replace(everything(), counter=8)


def test_a_handoff_between_read_and_write_defeats_a_request(database: Database) -> None:
    table = filled(database)
    write = writes(table.read().rows[KEY])["request"]
    Between(table, lambda: database.store.request_handoff(a_lease(), "v"))
    assert not table.send(write)
    current = database.store.get(KEY)
    assert current is not None
    assert (current.owner, current.checkpoint_owner) == ("v", "w")


def test_marks_of_others_between_read_and_write_stay(database: Database) -> None:
    """Marks share a column with the operator's name, and change no counter: the write is repeated, and loses none of them."""
    table = filled(database, everything())
    row = table.read().rows[KEY]
    write = writes(row)["restart"]
    beats = iter(range(5, 100))
    Between(table, lambda: database.store.put_standby_heartbeat(KEY, "x", next(beats)), times=3)
    assert table.send(write)
    after = database.store.get(KEY)
    assert after is not None
    assert (after.counter, after.standby_heartbeats, after.draining) == (9, {"x": 7}, ("y",))
    assert after.extra["changedBy"] == {"S": "~op:7"}


def test_a_row_that_is_marked_without_end_is_an_error_that_passes(database: Database) -> None:
    table = filled(database, everything())
    write = writes(table.read().rows[KEY])["restart"]
    beats = iter(range(5, 1000))
    Between(table, lambda: database.store.put_standby_heartbeat(KEY, "x", next(beats)), times=1000)
    with pytest.raises(TransientLeaseStoreError, match="changed 50 times"):
        table.send(write)
    assert table.get(KEY) is not None


def test_a_row_is_put_back_only_if_there_is_none(database: Database) -> None:
    table = filled(database)
    write = recipes.create(everything(), by="~op")
    assert write.kind is WriteKind.PUT
    assert not table.send(write)
    database.store.delete(KEY)
    assert table.send(write)
    row = table.get(KEY)
    assert row is not None
    assert Row.of(row).lease == Row.of(write.sets).lease


def test_a_row_that_cannot_be_read_is_shown_and_not_written(database: Database) -> None:
    table = filled(database, a_lease(), a_lease(lease_key="shardId-000000000001"))
    row = table.read().rows[KEY]
    with database.store.engine.begin() as connection:
        connection.execute(
            sqlalchemy.text("UPDATE kinesis_sdk_leases SET attributes = 'x' WHERE lease_key = :key"),
            {"key": KEY},
        )
    read = table.read()
    assert [*read.rows] == ["shardId-000000000001"]
    assert [*read.unreadable] == [KEY]
    with pytest.raises(LeaseRowRejectedError):
        table.send(writes(row)["restart"])


def test_a_deletion_takes_the_rows_of_one_application(database: Database) -> None:
    table = filled(database)
    other = SqlLeaseStore(database.store.engine, "other's")
    other.create_if_absent(a_lease())
    (part,) = table.parts("billing")
    assert table.deletion("other's").endswith("WHERE application = 'other''s'")
    assert table.delete(part)
    assert not table.delete(part), "deleted already"
    assert len(other.list()) == 1
    assert [info.name for info in Applications(database.connection()).find()] == ["other's"]
