"""The location of dead letters as text, in code, files and options."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kinesis_sdk.common.errors import ConfigError, without_userinfo
from kinesis_sdk.common.stream import StreamId

if TYPE_CHECKING:
    from kinesis_sdk.admin import Connection
    from kinesis_sdk.dead_letters.store import DeadLetterStore

EXAMPLES = (
    "'sqlite:///letters.db', 'postgresql+psycopg://user@host/database', 'file:letters.jsonl', 'stream:orders-dead' or "
    "'sqs:https://sqs.eu-west-1.amazonaws.com/123456789012/letters'"
)
"""Accepted locations, for errors and help."""

_SQL = re.compile(r"[a-z0-9]{1,20}(?:\+[a-z0-9_]{1,20})?://", re.ASCII)
_QUEUE = re.compile(r"https?://[A-Za-z0-9.:_-]{1,255}/[0-9]{12}/[A-Za-z0-9_-]{1,80}(?:\.fifo)?", re.ASCII)


def check_location(field: str, location: object) -> None:
    """Raise `ConfigError` unless a text is a location. The message contains no password."""
    if not isinstance(location, str):
        raise ConfigError(field, location, EXAMPLES)
    kind, _, rest = location.partition(":")
    if kind == "stream":
        StreamId.parse(rest)
    elif kind == "sqs":
        if not _QUEUE.fullmatch(rest):
            raise ConfigError(
                field,
                without_userinfo(location)[:200],
                "sqs: followed by the URL of a queue, as GetQueueUrl returns it",
            )
    elif not ((kind == "file" and rest) or _SQL.match(location)):
        raise ConfigError(field, without_userinfo(location)[:200], EXAMPLES)


def open_dead_letters(location: str, *, connection: Connection | None = None) -> DeadLetterStore:
    """Return the store at a location. Makes no call.

    Args:
        location: ``stream:`` and the name or ARN of a Kinesis stream, ``sqs:`` and the URL of a queue, ``file:`` and a path, or the
            URL of a database.
        connection: Region, profile and endpoint for a stream or a queue; None uses the usual AWS settings.

    Raises:
        ConfigError: If the text is not a location, or the database is not supported.
        ImportError: If SQLAlchemy, or the driver of the database, is not installed.
    """
    check_location("location", location)
    kind, _, rest = location.partition(":")
    if kind == "file":
        from kinesis_sdk.dead_letters.files import FileDeadLetters

        return FileDeadLetters(rest)
    if kind == "stream":
        from kinesis_sdk.dead_letters.stream import StreamDeadLetters

        return StreamDeadLetters(rest, connection=connection)
    if kind == "sqs":
        from kinesis_sdk.dead_letters.sqs import SqsDeadLetters

        return SqsDeadLetters(rest, connection=connection)
    from kinesis_sdk.dead_letters.sql import SqlDeadLetters

    return SqlDeadLetters(location)
