"""SQLAlchemy, imported on first use (extra ``sql``), and the SQLSTATE of drivers' errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kinesis_sdk.common.extras import install_hint


def import_sqlalchemy() -> Any:
    """Import SQLAlchemy; if it is not installed, the `ImportError` names the extra."""
    try:
        import sqlalchemy
    except ImportError as error:
        raise ImportError(install_hint("A SQL database", "sqlalchemy", "sql")) from error
    return sqlalchemy


def state_of(error: BaseException) -> str | None:
    """Return the SQLSTATE of an exception of SQLAlchemy or a driver; None for most SQLite errors and lost connections."""
    cause = getattr(error, "orig", None) or error
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    fields = cause.args[0] if isinstance(cause, Exception) and cause.args else None
    if state is None and isinstance(fields, Mapping):
        # pg8000 provides the fields of the server's message under their letters in the protocol.
        state = fields.get("C")
    return state if isinstance(state, str) else None
