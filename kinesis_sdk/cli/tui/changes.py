"""Commands that change leases: their text, and the interface of the code that carries them out."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kinesis_sdk.common.text import printable


@dataclass(frozen=True)
class Command:
    """A change of one lease, as it is written on the command line.

    Attributes:
        verb: ``rewind``, ``skip-to``, ``release``, ``move``, ``retry`` or ``skip-record``.
        shard: The shard, or the lease key in a table of several streams.
        to: The target position or worker; None if the verb needs none.
        options: Options of the connection.
    """

    verb: str
    application: str
    shard: str
    to: str | None = None
    options: tuple[str, ...] = ()

    def __str__(self) -> str:
        to = () if self.to is None else ("--to", self.to)
        parts = (
            "kinesis-sdk",
            "leases",
            self.verb,
            self.application,
            "--shard",
            self.shard,
            *to,
            *self.options,
        )
        return printable(shlex.join(parts), 1000)


@dataclass(frozen=True)
class Planned:
    """A change that can be made.

    Attributes:
        lines: What will be written, and its consequences.
        refused: Whether it cannot be made.
        act: Makes the change, in a thread, and returns what happened, line by line.
    """

    command: Command
    lines: tuple[str, ...]
    refused: bool = False
    act: Callable[[], Sequence[str]] = tuple


class Changes(Protocol):
    """Plans changes."""

    def plan(self, command: Command) -> Planned:
        """Return what a command would write. It makes calls, writes nothing, and is called in a thread.

        Raises:
            KinesisSdkError: If it cannot be planned.
        """
        ...

    def stop(self) -> None:
        """Make a running change end soon, with an error; what was written stays. Called from any thread."""
        ...
