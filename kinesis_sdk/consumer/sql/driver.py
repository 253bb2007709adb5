"""SQLAlchemy, which is imported on first use (extra ``sql``), and what drivers say of an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kinesis_sdk.common.extras import install_hint


def import_sqlalchemy() -> Any:
    """Import SQLAlchemy.

    Raises:
        ImportError: If it is not installed; the message names the extra.
    """
    try:
        import sqlalchemy
    except ImportError as error:
        raise ImportError(install_hint("A SQL database", "sqlalchemy", "sql")) from error
    return sqlalchemy


def state_of(error: BaseException) -> str | None:
    """Return the SQLSTATE of an exception of SQLAlchemy or of a driver.

    None if it has none, as most of those of SQLite and of a lost connection.
    """
    cause = getattr(error, "orig", None) or error
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    fields = cause.args[0] if isinstance(cause, Exception) and cause.args else None
    if state is None and isinstance(fields, Mapping):
        # pg8000 has the fields of the server's message, by their letters in the protocol.
        state = fields.get("C")
    return state if isinstance(state, str) else None
