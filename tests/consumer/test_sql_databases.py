"""Databases for sinks and leases: engines, and which errors pass."""

from __future__ import annotations

import re
import sqlite3
from types import SimpleNamespace

import pytest

from kinesis_sdk.common.errors import ConfigError, SinkError, TransientSinkError

sqlalchemy = pytest.importorskip("sqlalchemy")

from sqlalchemy.ext.asyncio import create_async_engine  # noqa: E402

from kinesis_sdk.consumer.sinks.location import sink_at  # noqa: E402
from kinesis_sdk.consumer.sinks.sql import SqlSink  # noqa: E402
from kinesis_sdk.consumer.sql.dialect import Postgresql, Sqlite  # noqa: E402
from kinesis_sdk.consumer.sql.engines import (  # noqa: E402
    _check_given,
    is_async_url,
    open_async_engine,
    open_engine,
)
from kinesis_sdk.consumer.sql.failures import check_refusal, is_transient, translated  # noqa: E402

exc = sqlalchemy.exc
POSTGRESQL = Postgresql()


class PostgresError(Exception):
    def __init__(self, state):
        super().__init__(f"state {state}")
        self.sqlstate = state


def operational(cause, kind=exc.OperationalError):
    return kind("INSERT INTO t VALUES (?)", ("secret payload",), cause)


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (operational(sqlite3.OperationalError("database is locked")), True),
        (operational(sqlite3.OperationalError("disk I/O error")), True),
        (operational(sqlite3.OperationalError("no such table: t")), False),
        (operational(sqlite3.OperationalError('near "SELEC": syntax error')), False),
        (operational(sqlite3.OperationalError("attempt to write a readonly database")), False),
        (operational(sqlite3.IntegrityError("UNIQUE"), exc.IntegrityError), False),
        (operational(PostgresError("08006")), True),
        (operational(PostgresError("40001")), True),
        (operational(PostgresError("40P01")), True),
        (operational(PostgresError("53300")), True),
        (operational(PostgresError("55P03")), True),
        (operational(PostgresError("57P01")), True),
        (operational(PostgresError("25P03")), True),
        (operational(PostgresError("28P01")), False),
        (operational(PostgresError("3D000")), False),
        (operational(PostgresError("42P01"), exc.ProgrammingError), False),
        (operational(Exception("connection refused")), True),
        (exc.TimeoutError("QueuePool limit"), True),
        (exc.InvalidRequestError("closed"), False),
        (ValueError("of the handler"), False),
    ],
)
def test_which_errors_pass(error, passes):
    dialect = Sqlite() if isinstance(getattr(error, "orig", None), sqlite3.Error) else POSTGRESQL
    assert is_transient(dialect, error) is passes
    found = translated(dialect, error, TransientSinkError, SinkError)
    if isinstance(error, exc.SQLAlchemyError):
        assert type(found) is (TransientSinkError if passes else SinkError)
        assert "secret payload" not in str(found)
    else:
        assert found is error
    assert passes or translated(dialect, error, TransientSinkError) is error, "the others are the handler's"


def test_a_connection_that_was_lost_passes_whatever_the_error_says():
    lost = exc.DBAPIError("SELECT 1", None, Exception("gone"), connection_invalidated=True)
    assert is_transient(POSTGRESQL, lost)


@pytest.mark.parametrize(
    ("cause", "refused"),
    [
        (PostgresError("28P01"), True),
        (PostgresError("28000"), True),
        (PostgresError("3D000"), True),
        (PostgresError("57P03"), False),
        (PostgresError("53300"), False),
        (Exception('FATAL:  password authentication failed for user "x"'), True),
        (Exception('FATAL:  role "x" does not exist'), True),
        (Exception('FATAL:  no pg_hba.conf entry for host "1.2.3.4"'), True),
        (Exception("fe_sendauth: no password supplied"), True),
        (Exception('FATAL:  role "x" is not permitted to log in'), True),
        (Exception('FATAL:  database "x" does not exist'), True),
        (Exception({"S": "FATAL", "C": "28P01", "M": "password authentication failed"}), True),
        (Exception({"S": "FATAL", "C": "57P03", "M": 'database "x" does not exist, it says'}), False),
        (Exception('::1: connection refused\n127.0.0.1: FATAL:  database "x" does not exist'), True),
        (PostgresError("57P01"), False),
        (PostgresError("57P02"), False),
        (PostgresError("55000"), False),
        (Exception("FATAL:  the database system is starting up"), False),
        (Exception("FATAL:  the database system is shutting down"), False),
        (Exception("FATAL:  the database system is in recovery mode"), False),
        (Exception("FATAL:  the database system is not yet accepting connections"), False),
        (Exception('FATAL:  database "x" is not currently accepting connections'), False),
        (Exception('FATAL:  too many connections for role "x"'), False),
        (Exception('FATAL:  too many connections for database "x"'), False),
        (Exception("FATAL:  sorry, too many clients already"), False),
        (Exception("FATAL:  remaining connection slots are reserved for roles"), False),
        (
            Exception('a: FATAL:  role "x" does not exist\nb: FATAL:  the database system is starting up'),
            False,
        ),
        (Exception("connection refused"), False),
    ],
)
def test_a_refused_connection_is_an_error_of_configuration(cause, refused):
    url = sqlalchemy.engine.make_url("postgresql+psycopg://user:secret@host/db?password=secret")
    engine = SimpleNamespace(url=url, dialect=SimpleNamespace(name="postgresql"))
    error = operational(cause)
    if not refused:
        check_refusal("database", engine, error)
        assert is_transient(POSTGRESQL, error), "a database that fails for a moment stops no worker"
        return
    with pytest.raises(ConfigError, match=r"^database='postgresql.psycopg://host/db'") as caught:
        check_refusal("database", engine, error)
    assert caught.value.field == "database"
    check_refusal("database", engine, ValueError("of the handler"))


def test_an_idle_transaction_that_the_server_ended_names_the_setting():
    error = translated(POSTGRESQL, operational(PostgresError("25P03")), TransientSinkError)
    assert "idle_timeout of SqlSink" in str(error)


def raised(error, cause, how):
    """Return an error as a handler raises it while it handles another one."""
    try:
        try:
            raise cause
        except type(cause):
            if how == "context":
                raise error  # noqa: B904 - as a handler may
            raise error from (None if how == "hidden" else cause)
    except type(error) as caught:
        return caught


LOCKED = PostgresError("55P03")


@pytest.mark.parametrize("how", ["cause", "context"])
@pytest.mark.parametrize("cause", [operational(LOCKED), LOCKED], ids=["sqlalchemy", "driver"])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_failure_that_passes_is_found_behind_the_error_of_a_handler(cause, how, depth):
    error = cause
    for number in range(depth):
        error = raised(ValueError(f"secret payload {number}"), error, how)
    found = translated(POSTGRESQL, error, TransientSinkError, driver_errors=(PostgresError,))
    assert type(found) is TransientSinkError
    assert "state 55P03" in str(found)
    assert "lock_timeout of SqlSink" in str(found)
    assert "secret payload" not in str(found)


@pytest.mark.parametrize(
    ("state", "passes"),
    [("55P03", True), ("40P01", True), ("57014", True), ("25P03", True), ("23505", False), (None, False)],
)
def test_which_errors_of_a_driver_pass(state, passes):
    error = PostgresError(state)
    found = translated(POSTGRESQL, error, TransientSinkError, driver_errors=(PostgresError,))
    assert type(found) is (TransientSinkError if passes else PostgresError)
    assert translated(POSTGRESQL, error, TransientSinkError) is error, "of another driver"


def test_a_statement_after_the_failed_one_says_nothing_of_the_reason():
    second = operational(PostgresError("25P02"), exc.InternalError)
    for cause, passes in ((operational(LOCKED), True), (operational(PostgresError("23505")), False)):
        error = raised(second, raised(PostgresError("25P02"), cause, "context"), "cause")
        found = translated(POSTGRESQL, error, TransientSinkError, driver_errors=(PostgresError,))
        assert (type(found) is TransientSinkError) is passes


def circle():
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    return one


@pytest.mark.parametrize(
    "error",
    [
        ValueError("of the handler"),
        raised(ValueError("of the handler"), KeyError("of the handler"), "context"),
        raised(ValueError("of the handler"), operational(LOCKED), "hidden"),
        raised(
            ValueError("of the handler"), operational(PostgresError("23505"), exc.IntegrityError), "cause"
        ),
        raised(operational(PostgresError("23505"), exc.IntegrityError), operational(LOCKED), "context"),
        raised(PostgresError("23505"), operational(LOCKED), "context"),
        raised(SinkError("decided"), operational(LOCKED), "cause"),
        raised(KeyboardInterrupt(), operational(LOCKED), "context"),
        circle(),
    ],
)
def test_an_error_of_the_handlers_own_stays_as_it_is(error):
    assert translated(POSTGRESQL, error, TransientSinkError, driver_errors=(PostgresError,)) is error


def test_connections_that_are_made_here_notice_silence():
    for url in ("postgresql+psycopg://host/db", "postgresql+psycopg://host/db?keepalives_idle=7"):
        settings = POSTGRESQL.options(sqlalchemy.engine.make_url(url), None)["connect_args"]
        assert settings["tcp_user_timeout"] == 30_000
        assert settings.get("keepalives_idle") == (None if "?" in url else 30)
        assert "options" not in settings, "PgBouncer refuses it"
    other = POSTGRESQL.options(sqlalchemy.engine.make_url("postgresql+pg8000://host/db"), None)
    assert "connect_args" not in other


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("mysql://me:secret@host/db", "mysql"),
        ("mysql+pymysql://me:secret@host/db", "mysql"),
        ("mariadb+mariadbconnector://me:secret@host/db", "mariadb"),
        ("oracle://me:secret@host/db", "oracle"),
        ("postgres://me:secret@host/db", "postgres"),
        ("nonsense://me:secret@host/db", "nonsense"),
    ],
)
def test_another_database_is_refused_at_the_url(url, name):
    for opened in (open_engine, open_async_engine, is_async_url, SqlSink, sink_at):
        given = (url,) if opened is SqlSink else ("database", url)
        with pytest.raises(ConfigError, match=f"; {name} ") as caught:
            opened(*given)
        assert caught.value.field == "database"
        assert "secret" not in str(caught.value)


def test_an_engine_of_another_database_is_refused():
    engine = sqlalchemy.create_mock_engine("mysql://", lambda *_: None)
    engine = SimpleNamespace(
        url=sqlalchemy.engine.make_url("mysql://me:secret@host/db"), dialect=engine.dialect
    )
    with pytest.raises(ConfigError, match="; mysql ") as caught:
        _check_given("database", engine, "an engine")
    assert "secret" not in str(caught.value)


def test_what_was_certainly_not_done_is_known_by_its_state():
    states = ("40001", "40P01", "40003", "08006", "55P03")
    assert [POSTGRESQL.was_not_done(operational(PostgresError(state))) for state in states] == [True] * 2 + [
        False
    ] * 3
    assert not Sqlite().was_not_done(operational(sqlite3.OperationalError("database is locked")))


def test_the_lock_of_a_turn_depends_on_its_name_alone():
    first, second, again = (
        str(POSTGRESQL.turn(name).compile(compile_kwargs={"literal_binds": True})) for name in ("a", "b", "a")
    )
    assert re.fullmatch(r"pg_try_advisory_xact_lock\(-?\d+\)", first)
    assert first == again != second
    assert Sqlite().turn("a") is None


def test_an_engine_of_the_user_is_left_as_it_is(tmp_path):
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/a.db")
    assert open_engine("database", engine) is engine
    own = open_engine("database", f"sqlite:///{tmp_path}/b.db")
    for one, mode in ((engine, "delete"), (own, "wal")):
        with one.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == mode
        one.dispose()


def test_a_missing_library_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sqlalchemy", None)
    with pytest.raises(ImportError, match=r"\.\[sql\]"):
        open_engine("database", "sqlite:///a.db")


def test_a_file_that_cannot_be_opened_is_refused_at_once(tmp_path, monkeypatch):
    """SQLite's error for it is that of too many open files, which passes, and workers repeat that."""
    refused = {
        tmp_path
        / "nowhere"
        / "leases.db": f"in a folder that exists, and {tmp_path}/nowhere/leases.db is not",
        tmp_path: f"a file, and {tmp_path} is a folder",
    }
    for path, expected in refused.items():
        with pytest.raises(ConfigError, match=re.escape(expected)):
            open_engine("lease_store", f"sqlite:///{path}")
        with pytest.raises(ConfigError, match=re.escape(expected)):
            open_engine("lease_store", sqlalchemy.create_engine(f"sqlite:///{path}"))
        with pytest.raises(ConfigError, match=re.escape(expected)):
            open_async_engine("sink", create_async_engine(f"sqlite+aiosqlite:///{path}"))
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(ConfigError, match="lease_store="):
        open_engine("lease_store", f"sqlite:///{tmp_path}/leases.db")
