"""State file of a transfer: the acknowledged records, after which the next run continues.

The file is replaced as a whole, so whenever the process is killed, it leaves either the old file or the new file.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kinesis_sdk.common.errors import ConfigError

if sys.platform != "win32":
    import fcntl

_VERSION = 1


class StateFile:
    """A JSON file that one process at a time reads and replaces.

    Args:
        path: Path of the file. While the state file is in use, there is a lock file next to it whose name ends in ``.lock``.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: Path = Path(path)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Prevent other processes from using the file.

        Raises:
            ConfigError: If another process uses it.
        """
        if sys.platform == "win32":
            yield
            return
        lock = self.path.with_name(self.path.name + ".lock")
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ConfigError("state", str(self.path), "a file that no other process is using") from error
            yield
            lock.unlink(missing_ok=True)
        finally:
            os.close(descriptor)

    def load(self, task: Mapping[str, str]) -> dict[str, Any]:
        """Return the content without the task; empty if there is no file.

        Args:
            task: Identity of the transfer: its source, target and so on. The file has to belong to the same task.

        Raises:
            ConfigError: If the file is not a state file, or belongs to another task.
        """
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError("state", str(self.path), f"a state file that can be read ({error})") from error
        try:
            content = json.loads(text)
            if content["version"] != _VERSION:
                raise ValueError(f"version {content['version']}")
            found: Mapping[str, str] = content["task"]
            progress: dict[str, Any] = content["progress"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ConfigError(
                "state", str(self.path), f"a state file of this command ({type(error).__name__}: {error})"
            ) from error
        different = [name for name in task if found.get(name) != task[name]]
        if different:
            name = different[0]
            raise ConfigError(
                "state",
                str(self.path),
                f"a state file of the same {name}: it belongs to {found.get(name)!r}, not to {task[name]!r}",
            )
        return progress

    def save(self, task: Mapping[str, str], progress: Mapping[str, Any]) -> None:
        """Replace the file.

        Raises:
            OSError: If the file cannot be written.
        """
        text = json.dumps({"version": _VERSION, "task": dict(task), "progress": progress})
        directory = self.path.parent
        descriptor, temporary = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=directory)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(self.path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
