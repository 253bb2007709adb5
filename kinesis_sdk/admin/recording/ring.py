"""Rows of changes in a SQLite database of bounded size: the oldest rows are deleted, but the newest row of each key stays.

A row has a key's new value and the moment of the change. So the state at any moment is the newest row of each key up to
then. Two processes may share a file: one process writes, and the other process reads.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.text import printable

MIN_BYTES = 1024 * 1024
"""Minimum size of a recording."""
_APPLICATION_ID = 0x4B534452
"""Marks our files in the header of a SQLite file."""
_VERSION = 1
_BUSY = 1.0
"""Seconds for which a call waits for the other process."""
_FULL = 0.9
"""Part of the size above which old rows are deleted."""
_HALF = 0.5
"""Part of the size above which rows are deleted after a write that found no room. Below it, the disk is full, not the recording."""
_DROPPED = 0.2
"""Part of the rows that is deleted at a time."""
_AT_ONCE = 5_000
"""Rows deleted in one transaction."""

_SCHEMA = """
CREATE TABLE name (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE change (
  id INTEGER PRIMARY KEY, application INTEGER NOT NULL, kind INTEGER NOT NULL, key INTEGER NOT NULL, at REAL NOT NULL,
  number REAL, value TEXT
);
CREATE INDEX change_by_key ON change (application, kind, key, at);
CREATE TABLE tracked (
  application INTEGER NOT NULL, kind INTEGER NOT NULL, key INTEGER NOT NULL, PRIMARY KEY (application, kind, key)
) WITHOUT ROWID;
"""
_SAME_KEY = "n.application = change.application AND n.kind = change.kind AND n.key = change.key"


class Change(NamedTuple):
    """A value of a key from a given time on. A row with neither number nor text means that the key no longer has a value."""

    kind: int
    key: str
    at: float
    number: float | None = None
    value: str | None = None


class Ring:
    """The database. Thread-safe. Raises ConfigError if the file cannot be opened, or is not a recording.

    The file is created if it does not exist, readable only by its owner; without ``path``, the rows are in the memory of this
    process. SQLite's log next to the file takes a few MB in addition to ``max_bytes``.
    """

    def __init__(self, path: str | Path | None, *, max_bytes: int) -> None:
        if max_bytes < MIN_BYTES:
            raise ConfigError("recording-size", max_bytes, f"at least {MIN_BYTES} bytes")
        self._max_bytes = max_bytes
        self._lock = threading.RLock()
        try:
            self._database = self._open(path)
            self._prepare(path)
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(
                "recording",
                str(path),
                "a file that can be read and written",
                problem=f"the recording {printable(str(path))} cannot be opened: {error}",
            ) from error

    def _open(self, path: str | Path | None) -> sqlite3.Connection:
        if path is not None:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        return sqlite3.connect(
            ":memory:" if path is None else str(path),
            timeout=_BUSY,
            isolation_level=None,
            check_same_thread=False,
        )

    def _prepare(self, path: str | Path | None) -> None:
        run = self._database.execute
        with self.transaction():
            ((mark,), (version,)) = (
                run("PRAGMA application_id").fetchone(),
                run("PRAGMA user_version").fetchone(),
            )
            is_new = run("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
            if is_new:
                for statement in _SCHEMA.split(";\n"):
                    run(statement)
                run(f"PRAGMA application_id = {_APPLICATION_ID}")
                run(f"PRAGMA user_version = {_VERSION}")
        if not is_new and (mark, version) != (_APPLICATION_ID, _VERSION):
            self._database.close()
            other = "of another version" if mark == _APPLICATION_ID else "of something else"
            raise ConfigError(
                "recording",
                str(path),
                f"a recording of version {_VERSION}, not a database {other}; name another file",
            )
        if path is not None:
            run("PRAGMA journal_mode = WAL")
            run("PRAGMA synchronous = NORMAL")
            run("PRAGMA journal_size_limit = 4194304")
        (page_size,) = run("PRAGMA page_size").fetchone()
        self._page_size = page_size
        run(f"PRAGMA max_page_count = {self._max_bytes // page_size}")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the calls within the block in one transaction."""
        with self._lock:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                if self._database.in_transaction:  # a full database has rolled back by itself
                    self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")

    def put(self, application: str, changes: Sequence[Change]) -> None:
        """Add changes; a full database makes room once. Raises sqlite3.Error if the changes cannot be written."""
        if not changes:
            return
        try:
            self._put(application, changes)
        except sqlite3.Error as error:
            if "full" not in str(error):  # the limit of pages is reached, or the disk is full
                raise
            self.make_room(_HALF)
            self._put(application, changes)

    def _put(self, application: str, changes: Sequence[Change]) -> None:
        with self.transaction():
            app = self._made(application)
            rows = [(app, one.kind, self._made(one.key), one.at, one.number, one.value) for one in changes]
            self._database.executemany(
                "INSERT INTO change (application, kind, key, at, number, value) VALUES (?, ?, ?, ?, ?, ?)",
                rows,
            )
            self._database.executemany(
                "INSERT OR IGNORE INTO tracked (application, kind, key) VALUES (?, ?, ?)",
                [row[:3] for row in rows],
            )

    def newest(self, application: str, kind: int, at: float) -> list[Change]:
        """Return the newest change of each key up to a given time; keys without a value are left out."""
        rows = self._read(
            "SELECT n.name, c.at, c.number, c.value FROM tracked t JOIN change c ON c.id = ("
            "SELECT id FROM change WHERE application = t.application AND kind = t.kind AND key = t.key AND at <= ? "
            "ORDER BY at DESC, id DESC LIMIT 1) JOIN name n ON n.id = t.key WHERE t.application = ? AND t.kind = ?",
            (at, self._known(application), kind),
        )
        return [
            Change(kind, name, moment, number, value)
            for name, moment, number, value in rows
            if number is not None or value is not None
        ]

    def between(
        self, application: str, kind: int, start: float, end: float, *, key: str | None = None
    ) -> list[Change]:
        """Return the changes within a period, oldest first; for a given key, also the last change before this period."""
        app = self._known(application)
        if key is None:
            rows = self._read(
                "SELECT n.name, c.at, c.number, c.value FROM change c JOIN name n ON n.id = c.key "
                "WHERE c.application = ? AND c.kind = ? AND c.at > ? AND c.at <= ? ORDER BY c.at, c.id",
                (app, kind, start, end),
            )
        else:
            same = (app, kind, self._known(key))
            rows = self._read(
                "SELECT ?, at, number, value FROM change WHERE application = ? AND kind = ? AND key = ? AND at <= ? AND at >= "
                "coalesce((SELECT max(at) FROM change WHERE application = ? AND kind = ? AND key = ? AND at <= ?), ?) "
                "ORDER BY at, id",
                (key, *same, end, *same, start, start),
            )
        return [Change(kind, name, at, number, value) for name, at, number, value in rows]

    def span(self, application: str, kind: int, key: str) -> tuple[float, float] | None:
        """Return the times of the oldest and of the newest change of a key; None if there is none."""
        ((first, last),) = self._read(
            "SELECT min(at), max(at) FROM change WHERE application = ? AND kind = ? AND key = ?",
            (self._known(application), kind, self._known(key)),
        )
        return None if first is None else (first, last)

    def largest(
        self, application: str, kind: int, key: str, start: float, end: float, step: float
    ) -> list[tuple[int, float | None]]:
        """Return pairs of a step and the largest number of a key in it, for each step in which the key changed."""
        return self._read(
            "SELECT CAST((at - ?) / ? AS INTEGER), max(number) FROM change "
            "WHERE application = ? AND kind = ? AND key = ? AND at >= ? AND at < ? GROUP BY 1 ORDER BY 1",
            (start, step, self._known(application), kind, self._known(key), start, end),
        )

    def counts(
        self, application: str, kind: int, start: float, end: float, step: float
    ) -> list[tuple[int, int]]:
        """Return pairs of a step and the number of changes of a kind in it; only changes that have a number count."""
        return self._read(
            "SELECT CAST((at - ?) / ? AS INTEGER), count(*) FROM change "
            "WHERE application = ? AND kind = ? AND at >= ? AND at < ? AND number IS NOT NULL GROUP BY 1 ORDER BY 1",
            (start, step, self._known(application), kind, start, end),
        )

    def forget(self, before: float) -> None:
        """Delete changes that were replaced before a given time, and keys that lost their value before this time."""
        with self._lock:
            first = self._database.execute(
                "SELECT id FROM change WHERE at >= ? ORDER BY id LIMIT 1", (before,)
            ).fetchone()
            newest = self._database.execute("SELECT max(id) FROM change").fetchone()[0]
        if newest is not None:
            self._forget_ids(newest + 1 if first is None else first[0])

    def make_room(self, used: float = _FULL) -> None:
        """Delete the oldest rows if more than this part of the size is used."""
        with self._lock:
            if self.used_bytes() <= used * self._max_bytes:
                return
            count = self._database.execute("SELECT count(*) FROM change").fetchone()[0]
            edge = self._database.execute(
                "SELECT id FROM change ORDER BY id LIMIT 1 OFFSET ?", (int(count * _DROPPED),)
            ).fetchone()
            if edge is None or not self._forget_ids(edge[0]):
                # Only the newest row of each key is left: the fleet does not fit, so delete everything.
                with self.transaction():
                    for table in ("change", "tracked", "name"):
                        self._database.execute(f"DELETE FROM {table}")  # noqa: S608 - names of our own

    def used_bytes(self) -> int:
        """Return the bytes that are used."""
        with self._lock:
            (pages,) = self._database.execute("PRAGMA page_count").fetchone()
            (free,) = self._database.execute("PRAGMA freelist_count").fetchone()
            return int((pages - free) * self._page_size)

    def _forget_ids(self, edge: int) -> int:
        """Delete rows that were replaced by a row with a number below the edge; return their number."""
        done = 0
        while True:
            with self.transaction():
                deleted = self._database.execute(
                    f"DELETE FROM change WHERE id IN (SELECT id FROM change WHERE id < ? AND (EXISTS ("  # noqa: S608
                    f"SELECT 1 FROM change n WHERE {_SAME_KEY} AND n.id > change.id AND n.id < ?) OR (number IS NULL AND value IS NULL "
                    f"AND NOT EXISTS (SELECT 1 FROM change n WHERE {_SAME_KEY} AND n.id <> change.id))) LIMIT ?)",
                    (edge, edge, _AT_ONCE),
                ).rowcount
                if not deleted:
                    self._database.execute(
                        "DELETE FROM tracked WHERE NOT EXISTS (SELECT 1 FROM change c WHERE c.application = tracked.application "
                        "AND c.kind = tracked.kind AND c.key = tracked.key)"
                    )
                    self._database.execute(
                        "DELETE FROM name WHERE id NOT IN (SELECT application FROM tracked UNION SELECT key FROM tracked)"
                    )
                    return done
            done += deleted

    def _read(self, statement: str, values: Iterable[object]) -> list[Any]:
        with self._lock:
            return self._database.execute(statement, tuple(values)).fetchall()

    def _known(self, name: str) -> int:
        """Return the number of a name; -1 if it was never written."""
        found = self._read("SELECT id FROM name WHERE name = ?", (name,))
        return found[0][0] if found else -1

    def _made(self, name: str) -> int:
        """Return the number of a name, creating a number if needed. Numbers are not cached: another process may delete names."""
        self._database.execute("INSERT OR IGNORE INTO name (name) VALUES (?)", (name,))
        return self._known(name)
