"""Translation of SQLAlchemy's errors: transient errors, permanent errors, and rejected settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_sdk.common.errors import ConfigError, KinesisSdkError, without_userinfo
from kinesis_sdk.consumer.sql.dialect import Dialect, dialect_of
from kinesis_sdk.consumer.sql.driver import state_of

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine

_FAILED_BEFORE = "25P02"
"""State of a statement that PostgreSQL rejects because an earlier statement of its transaction failed; this state does not show
the cause."""
_MAX_CAUSES = 20
"""Maximum number of errors to inspect in a chain of causes, which may be circular."""


def is_transient(dialect: Dialect, error: BaseException) -> bool:
    """Return whether an exception of SQLAlchemy is a transient failure.

    Transient failures are a lost connection, a starting or stopping database, a deadlock, a conflict of transactions, an
    occupied lock, and a pool without a free connection.
    """
    from sqlalchemy import exc

    if isinstance(error, exc.TimeoutError):
        return True
    if not isinstance(error, exc.DBAPIError):
        return False
    return error.connection_invalidated or dialect.is_transient(error)


def check_refusal(field: str, engine: Engine, error: BaseException) -> None:
    """Raise `ConfigError` if ``error`` shows that a server rejected the user, the password or the database of an engine.

    Use it only at the start of a worker. Later, such a rejection may be temporary, because a password is being changed or the server is
    being restored.
    """
    from sqlalchemy import exc, util

    text = dialect_of(engine).refusal(error) if isinstance(error, exc.DBAPIError) else None
    if text is not None:
        # The query may contain a password, too.
        url = engine.url._replace(username=None, password=None, query=util.EMPTY_DICT).render_as_string()
        raise ConfigError(
            field,
            url,
            "a database that accepts this user and password",
            problem=f"{field}={url!r}: the server refused the connection: {text}",
        ) from error


def translated(
    dialect: Dialect,
    error: BaseException,
    transient: type[KinesisSdkError],
    permanent: type[KinesisSdkError] | None = None,
    *,
    driver_errors: tuple[type[BaseException], ...] = (),
) -> BaseException:
    """Translate an ``error`` of SQLAlchemy into ``transient`` or ``permanent``, by its ``dialect``; return any other error unchanged.

    Pass None as ``permanent`` for an error of a handler: it is returned unchanged unless a transient failure caused it, which
    is then translated. ``driver_errors`` are the driver's own exceptions, which a handler gets if it uses the driver's cursor.
    """
    from sqlalchemy import exc

    if permanent is None:
        found, kind = _transient_cause(dialect, error, driver_errors), transient
        if found is None:
            return error
    elif isinstance(error, exc.SQLAlchemyError):
        hide_parameters(error)
        found, kind = error, transient if is_transient(dialect, error) else permanent
    else:
        return error
    # Leave out the failed statement and its parameters: they contain the records' data.
    cause = found.orig if isinstance(found, exc.DBAPIError) else found
    text = without_userinfo(str(cause)).strip().partition("\n")[0]
    text += dialect.hint(found, of_handler=permanent is None)
    return kind(f"the database failed: {type(cause).__name__}: {text}")


def hide_parameters(error: BaseException) -> None:
    """Remove the parameters of a statement of this package from its error's text, which a traceback in a log also shows."""
    from sqlalchemy import exc

    if isinstance(error, exc.StatementError):
        error.hide_parameters = True


def _transient_cause(
    dialect: Dialect, error: BaseException, driver_errors: tuple[type[BaseException], ...]
) -> BaseException | None:
    """Return the transient database failure that is, or caused, a handler's error; None if there is none.

    The first error in the chain that shows the cause of the database failure decides. Cancellation and errors of this package need no
    translation.
    """
    from sqlalchemy import exc

    if not isinstance(error, Exception) or isinstance(error, KinesisSdkError):
        return None
    link: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if link is None:
            break
        is_driver_error = isinstance(link, driver_errors)
        state = state_of(link) if is_driver_error or isinstance(link, exc.DBAPIError) else None
        if is_transient(dialect, link) or (
            is_driver_error and state is not None and dialect.is_transient(link)
        ):
            return link
        if state != _FAILED_BEFORE and (state is not None or isinstance(link, exc.DBAPIError)):
            break
        if link.__cause__ is None and not link.__suppress_context__:
            link = link.__context__
        else:
            link = link.__cause__
    return None
