"""The location of the leases as text: a URL instead of a store object, in code, files and options.

SQLAlchemy's ``render_as_string`` does not hide passwords well enough. That function shows passwords in the query
(``?password=``). It raises an error for malformed URLs, although these are the URLs that errors show. It also writes ``***``, so that the
result does not work as a URL.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from urllib.parse import unquote_plus

from kinesis_sdk.common.errors import HIDDEN_PARAMETER, ConfigError, without_userinfo
from kinesis_sdk.consumer.leases.table.memory import InMemoryLeaseStore
from kinesis_sdk.consumer.leases.table.sql import SqlLeaseStore
from kinesis_sdk.consumer.leases.table.store import LeaseStore
from kinesis_sdk.consumer.sql.dialect import NAMES

MEMORY_URL = "memory://"
"""URL of leases in a worker's own memory, which end with the worker."""

EXAMPLES = f"'sqlite:///leases.db' (one machine), 'postgresql+psycopg://user@host/database' (a fleet), '{MEMORY_URL}' (one worker, for tests)"
"""Accepted URLs, for errors and help."""

_SQL = re.compile(rf"(?:{'|'.join(NAMES)})(?:\+[a-z0-9_]+)?://", re.ASCII)
_OTHER = re.compile(r"(?!memory:)([a-z0-9]{1,20})(?:\+[a-z0-9_]+)?://", re.ASCII)


_FIRST_USERINFO = re.compile(r"[^:/@]*(?::[^@]*)?@")
"""User name and password up to the first ``@``."""
_QUERY = re.compile(r"\?[\w.%-]+=")
"""Start of a query."""
_PLACE = re.compile(r"(?:\[[^\]/?]*\]|[^:/?\[\]]*)(?::\d*)?/[^?:]*")
"""Host, port and database."""
_SECRET = re.compile(HIDDEN_PARAMETER, re.IGNORECASE)


def check_location(field: str, url: object) -> None:
    """Raise `ConfigError` unless ``url`` is the URL of a lease store. The message contains no password."""
    if not isinstance(url, str) or (url != MEMORY_URL and not _SQL.match(url)):
        shown = without_userinfo(url) if isinstance(url, str) else url
        other = _OTHER.match(url) if isinstance(url, str) else None
        more = "" if other is None else f"; {other[1]} is not supported"
        raise ConfigError(field, shown, EXAMPLES + more)


def check_database(field: str, url: object) -> None:
    """Raise `ConfigError` unless ``url`` is the URL of a database that several processes can share. The message contains no password."""
    check_location(field, url)
    if url == MEMORY_URL:
        raise ConfigError(
            field, url, "the URL of a database: leases in the memory of a worker cannot be seen from outside"
        )


def store_at(
    field: str, url: str, application: str, *, timeout: float, sleep: Callable[[float], None] = time.sleep
) -> LeaseStore:
    """Return a store for a URL such as one of `EXAMPLES`; its calls fail after ``timeout`` seconds."""
    check_location(field, url)
    if url == MEMORY_URL:
        return InMemoryLeaseStore()
    try:
        return SqlLeaseStore(url, application, timeout=timeout, sleep=sleep)
    except ConfigError as error:
        raise ConfigError(field, error.value, error.accepted) from error


def without_password(url: str) -> str:
    """Return the URL without its password but with the user name: safe to show, and still usable as an option."""
    scheme, separator, rest = url.partition("://")
    # Only a file's path may contain an @ that does not end a password. (In SQLCipher URLs, a password precedes the path.)
    if url.startswith("sqlite") and rest.startswith("/"):
        place, mark, query = rest.partition("?")
    else:
        before, mark, query = _divided(rest)
        # A password may contain unescaped characters, so drop everything between the first colon and the last @.
        userinfo, at, place = before.rpartition("@")
        place = userinfo.partition(":")[0] + at + place
    kept = [part for part in query.split("&") if _is_shown(part)]
    return scheme + separator + place + (mark + "&".join(kept) if kept else "")


def _divided(rest: str) -> tuple[str, str, str]:
    """Return the part of a URL before its query, the question mark, and the query.

    A password may contain an unescaped ``?``, which does not start a query, or ``@``, which does not precede the host. An ``@`` counts as
    part of the query only after a host and a database, because hiding a host is better than showing a password.
    """
    userinfo = _FIRST_USERINFO.match(rest)
    found = _QUERY.search(rest, userinfo.end() if userinfo else 0)
    if found is not None and _PLACE.fullmatch(rest[: found.start()].rpartition("@")[2]):
        return rest[: found.start()], "?", rest[found.start() + 1 :]
    last = rest.rfind("@") + 1
    if _SECRET.search(unquote_plus(rest[:last].partition("?")[2])):
        return rest[:last], "", ""  # the last @ may be part of a password in the query
    place, mark, query = rest[last:].partition("?")
    return rest[:last] + place, mark, query


def _is_shown(part: str) -> bool:
    """Return whether a part of a query (``name=value``) may be shown. SQLAlchemy ignores a part without a name."""
    name, equals, _ = part.partition("=")
    return bool(equals) and not _SECRET.search(unquote_plus(name))
