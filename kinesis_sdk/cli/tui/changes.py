"""The interface of the code that carries out changes of leases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kinesis_sdk.admin.command import Command


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
