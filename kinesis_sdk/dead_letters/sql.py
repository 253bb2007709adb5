"""Dead letters in a SQL database: a row for each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from kinesis_sdk.common.errors import DeadLetterError, without_userinfo
from kinesis_sdk.consumer.sql import (
    Tables,
    dialect_of,
    import_sqlalchemy,
    is_shared,
    open_engine,
    run_in,
    translated,
)
from kinesis_sdk.dead_letters.letter import DeadLetter, State

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, Engine

_T = TypeVar("_T")

TABLE = "kinesis_sdk_dead_letters"
"""Name of the table."""

_VERSION = 1
_PAGE = 500
"""Maximum letters of one statement."""
_TIMEOUT = 10.0


class SqlDeadLetters:
    """Dead letters in SQLite or PostgreSQL (extra ``sql``): for the workers of one machine, or of a fleet.

    Several applications may share the table, which the first letter creates. Letters are listed without their payloads.

    Args:
        database: SQLAlchemy URL, for example ``sqlite:///letters.db`` or ``postgresql+psycopg://host/database``, or an engine.

    Attributes:
        location: The URL, without user and password.
        unreadable: Rows of the last pass that are not dead letters.

    Raises:
        ConfigError: If ``database`` is neither a URL nor an engine, or the database is neither SQLite nor PostgreSQL.
        ImportError: If SQLAlchemy, or the driver, is not installed.
    """

    def __init__(self, database: str | Engine) -> None:
        sa = import_sqlalchemy()
        self._engine: Engine = open_engine("dead_letters", database, timeout=_TIMEOUT)
        self._owns_engine = isinstance(database, str)
        self._dialect = dialect_of(self._engine)
        self.location: str = without_userinfo(self._engine.url.render_as_string(hide_password=True))
        self.unreadable: int = 0
        metadata = sa.MetaData()
        self._rows = sa.Table(
            TABLE,
            metadata,
            sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
            sa.Column("id", sa.String(16), nullable=False, unique=True),
            sa.Column("state", sa.String(16), nullable=False),
            sa.Column("size", sa.BigInteger, nullable=False),
            # A line of JSON without the payload: a text column does not accept every character that a key may contain.
            sa.Column("letter", sa.Text, nullable=False),
            sa.Column("data", sa.LargeBinary, nullable=False),
        )
        self._tables = Tables(self._engine, "dead letters", _VERSION, metadata)
        self._is_ready = False

    def keep(self, letter: DeadLetter) -> None:
        """See `DeadLetterStore.keep`."""
        from sqlalchemy import exc

        rows, row = self._rows, self._row(letter)
        self._prepare()
        for _ in range(2):
            changed = self._run(
                lambda connection: (
                    connection.execute(rows.update().where(rows.c.id == letter.id).values(row)).rowcount
                )
            )
            if changed:
                return
            try:
                with self._engine.begin() as connection:
                    connection.execute(rows.insert().values(row))
            except exc.IntegrityError:
                continue  # another worker has inserted the same letter after the update found none
            except exc.SQLAlchemyError as error:
                raise self._failure(error) from error
            return
        raise DeadLetterError(f"{self.location}: dead letter {letter.id} was removed while it was stored")

    def keep_with(self, letter: DeadLetter, transaction: object) -> Awaitable[None] | None:
        """Keep a letter in the transaction of a sink if the sink uses this database, otherwise like `keep`.

        In the sink's transaction, the letter and the position that passes the record are stored together.
        """
        if not is_shared(transaction, self._engine):
            self.keep(letter)
            return None
        return run_in(transaction, lambda connection: self._keep_in(connection, letter))

    def _keep_in(self, connection: Connection, letter: DeadLetter) -> None:
        self._tables.ensure_in(connection, DeadLetterError)
        rows, row = self._rows, self._row(letter)
        # Another worker cannot set aside the same record now: the sink's transaction belongs to the owner of its shard.
        if not connection.execute(rows.update().where(rows.c.id == letter.id).values(row)).rowcount:
            connection.execute(rows.insert().values(row))

    @staticmethod
    def _row(letter: DeadLetter) -> dict[str, Any]:
        return {
            "id": letter.id,
            "state": letter.state.value,
            "size": letter.size,
            "letter": replace(letter, data=b"").to_line().decode("ascii"),
            "data": letter.payload,
        }

    def letters(self, *, payload: bool = False) -> Iterator[DeadLetter]:
        """See `DeadLetterStore.letters`. Payloads are read one at a time."""
        import sqlalchemy as sa

        self.unreadable = 0
        rows, after = self._rows, -1
        if not self._guarded(lambda: self._tables.exist(DeadLetterError)):
            return
        while True:
            query = (
                sa.select(rows.c.number, rows.c.id, rows.c.state, rows.c.size, rows.c.letter)
                .where(rows.c.number > after)
                .order_by(rows.c.number)
                .limit(_PAGE)
            )
            page = self._run(lambda connection, query=query: connection.execute(query).all())  # type: ignore[misc]
            for number, identity, state, size, text in page:
                after = number
                letter = self._letter(identity, state, size, text)
                if letter is None:
                    self.unreadable += 1
                elif not payload:
                    yield letter
                elif (data := self._data(identity)) is not None:
                    yield replace(letter, data=data)
            if len(page) < _PAGE:
                return

    @staticmethod
    def _letter(identity: str, state: str, size: int, text: str) -> DeadLetter | None:
        try:
            letter = replace(DeadLetter.from_line(text), data=None, size=size, state=State(state))
        except ValueError:
            return None
        return letter if letter.id == identity else None

    def _data(self, identity: str) -> bytes | None:
        """Return a payload; None if the letter was dropped in between."""
        import sqlalchemy as sa

        query = sa.select(self._rows.c.data).where(self._rows.c.id == identity)
        found: bytes | None = self._run(lambda connection: connection.execute(query).scalar_one_or_none())
        return None if found is None else bytes(found)

    def mark(self, letters: Sequence[DeadLetter], state: State) -> None:
        """See `DeadLetterStore.mark`."""
        update = self._rows.update().values(state=state.value)
        if state is State.REPLAYED:
            update = update.where(self._rows.c.state == State.REPLAYING.value)
        self._each(letters, lambda part: update.where(self._rows.c.id.in_(part)))

    def drop(self, letters: Sequence[DeadLetter]) -> None:
        """See `DeadLetterStore.drop`."""
        self._each(letters, lambda part: self._rows.delete().where(self._rows.c.id.in_(part)))

    def close(self) -> None:
        """Close the connections, unless the engine was passed in."""
        if self._owns_engine:
            self._engine.dispose()

    def _each(self, letters: Sequence[DeadLetter], statement: Callable[[Sequence[str]], Any]) -> None:
        ids = [letter.id for letter in letters]
        for begin in range(0, len(ids), _PAGE):
            part = statement(ids[begin : begin + _PAGE])
            self._run(lambda connection, part=part: connection.execute(part))  # type: ignore[misc]

    def _prepare(self) -> None:
        if not self._is_ready:
            self._guarded(lambda: self._tables.ensure(DeadLetterError, needs_transactions=False))
            self._is_ready = True

    def _run(self, work: Callable[[Connection], _T]) -> _T:
        """Run statements in one transaction."""

        def run() -> _T:
            with self._engine.begin() as connection:
                return work(connection)

        return self._guarded(run)

    def _guarded(self, work: Callable[[], _T]) -> _T:
        from sqlalchemy import exc

        try:
            return work()
        except exc.SQLAlchemyError as error:
            raise self._failure(error) from error

    def _failure(self, error: BaseException) -> BaseException:
        found = translated(self._dialect, error, DeadLetterError, DeadLetterError)
        return DeadLetterError(f"{self.location}: {found}") if isinstance(found, DeadLetterError) else found
