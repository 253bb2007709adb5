"""The audit log: one JSON line before each change and one line after the change, on disk before the next step begins."""

from __future__ import annotations

import base64
import getpass
import json
import os
import socket
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from kinesis_sdk.admin.command import Command
from kinesis_sdk.admin.plain import plain
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import AuditLogError
from kinesis_sdk.consumer.leases import Item


def default_audit_log() -> Path:
    """Return ``kinesis-sdk/audit.jsonl`` in the user's state directory (``XDG_STATE_HOME``, or ``~/.local/state``)."""
    state = os.environ.get("XDG_STATE_HOME")
    return Path(state or Path.home() / ".local" / "state") / "kinesis-sdk" / "audit.jsonl"


class AuditLog:
    """Appends to the audit log. Each line is on disk when `append` returns.

    The directory of ``path`` is created. ``command`` is the command that makes the changes.
    """

    def __init__(self, path: Path, *, clock: Clock, command: Command, table: str) -> None:
        self.path: Path = path
        self._clock = clock
        self._command = command
        self._table = table
        self._who = _user()
        self._host = socket.gethostname()

    def check(self) -> None:
        """Check that the file can be written, before a question is asked or a change is made; raises AuditLogError if not."""
        self._write(b"")

    def append(self, event: str, **fields: Any) -> None:
        """Append a line; raises AuditLogError if it cannot be written.

        ``event`` is ``begin`` before a write, ``done`` or ``failed`` after it, or another stage of a change. Items of the
        table in ``fields`` are in wire form; their bytes are stored as base64.
        """
        moment = datetime.fromtimestamp(self._clock.time(), timezone.utc)
        line = {
            "time": moment.isoformat(timespec="milliseconds"),
            "who": self._who,
            "host": self._host,
            **plain(self._command),
            "table": self._table,
            "event": event,
            **{name: _storable(value) for name, value in fields.items()},
        }
        self._write(json.dumps(line, ensure_ascii=False).encode() + b"\n")

    def around(
        self,
        write: Callable[[], bool],
        *,
        otherwise: str = "failed",
        before: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> bool:
        """Append a line, write, append a second line, and return the result of the write.

        ``write`` returns whether it took effect; if not, ``otherwise`` is the event of the second line. ``before``, the row
        before the write, is only in the first line; ``fields`` are in both lines. Raises AuditLogError if a line cannot be written.
        """
        self.append("begin", **fields, **({} if before is None else {"before": before}))
        is_done = write()
        self.append("done" if is_done else otherwise, **fields)
        return is_done

    def _write(self, line: bytes) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # O_APPEND and one write per line, so that lines of two commands do not mix. Rows may contain an application's
            # state.
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                written = os.write(descriptor, line)
                if written != len(line):
                    raise OSError(f"only {written} of {len(line)} bytes were written")
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise AuditLogError(f"the audit log {self.path} cannot be written: {error}") from error


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container without an entry for the user id
        return f"uid {os.getuid()}"


def _storable(value: Any) -> Any:
    """Return a value for JSON; bytes become base64, as in DynamoDB's own wire format."""
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {str(name): _storable(part) for name, part in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        parts = [_storable(part) for part in value]
        return sorted(parts) if isinstance(value, (set, frozenset)) else parts
    return value.value if hasattr(value, "value") and not isinstance(value, (str, int)) else value


def item_to_json(item: Item) -> dict[str, Any]:
    """Return an item in wire form as JSON data: bytes as base64."""
    result: dict[str, Any] = _storable(item)
    return result


def item_from_json(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the item that `item_to_json` converted to JSON data."""
    return {
        name: {kind: _from_json(kind, content)}
        for name, value in data.items()
        for kind, content in value.items()
    }


def _from_json(kind: str, content: Any) -> Any:
    if kind == "B":
        return base64.b64decode(content)
    if kind == "BS":
        return [base64.b64decode(part) for part in content]
    if kind == "M":
        return item_from_json(content)
    if kind == "L":
        return [{inner: _from_json(inner, part) for inner, part in one.items()} for one in content]
    return content
