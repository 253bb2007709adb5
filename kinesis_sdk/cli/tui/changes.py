"""The interface of the code that carries out changes to leases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kinesis_sdk.admin.command import Command


@dataclass(frozen=True)
class Planned:
    """A change that can be made.

    Attributes:
        lines: The writes and their consequences.
        refused: Whether it cannot be made.
        act: Makes the change, in a thread, and returns its result, line by line.
    """

    command: Command
    lines: tuple[str, ...]
    refused: bool = False
    act: Callable[[], Sequence[str]] = tuple


class Changes(Protocol):
    """Plans changes."""

    def plan(self, command: Command) -> Planned:
        """Return the writes of a command. It makes calls, writes nothing, and is called in a thread.

        Raises:
            KinesisSdkError: If the change cannot be planned.
        """
        ...

    def stop(self) -> None:
        """End a running change soon, with an error; its writes stay. Called from any thread."""
        ...
