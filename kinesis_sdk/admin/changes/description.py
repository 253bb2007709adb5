"""Descriptions of a change, before and after it is made: the same for the command line, the terminal view and the console."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from kinesis_sdk.admin.command import Command


@dataclass(frozen=True, kw_only=True)
class Write:
    """One write of a change.

    Attributes:
        call: The call or statement that makes it: ``UpdateItem``, ``UPDATE``.
        row: Key of the row.
        lines: Its changes, before → after, and its condition.
        about: The row, its owner and the form of the write, in words; empty if the lines show everything.
        effect: Effect on the records of the row; empty if there is none.
        guarantee: Reaction of the owner, and the records that may be processed twice; empty if neither matters.
    """

    call: str
    row: str
    lines: tuple[str, ...] = ()
    about: str = ""
    effect: str = ""
    guarantee: str = ""

    def __str__(self) -> str:
        return "; ".join(f"{self.row}: {line}" for line in self.lines)


@dataclass(frozen=True, kw_only=True)
class ChangeDescription:
    """Description of a planned change.

    Attributes:
        title: The change and its subject, in a few words.
        question: Question that a user confirms.
        command: The command that makes the same change.
        writes: The exact writes in their order; empty if there is nothing to do.
        effects: Effects besides the effects of single writes, as sentences.
        unchanged: Rows that need no write, each with the reason.
        warnings: Further facts that the user has to know.
        refusals: Reasons why the change must not be made; with one, `Planned.apply` raises.
        undo: The command that ends the change; None if no command does.
    """

    title: str
    question: str
    command: Command
    writes: tuple[Write, ...] = ()
    effects: tuple[str, ...] = ()
    unchanged: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    undo: Command | None = None


class Status(str, Enum):
    """Outcome of a change, or of a part of it."""

    DONE = "done"
    """Written."""
    UNCHANGED = "unchanged"
    """There was nothing to write."""
    REFUSED = "refused"
    """The change would not be safe, or another writer changed the row each time."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """Result of a change.

    Attributes:
        status: The change as a whole.
        lines: A sentence about the outcome of each row.
        summary: The same in one sentence.
        rest: The command that makes the remaining changes; None if there are none.
        is_pending: Whether something was written on which no worker has acted within the time to wait.
    """

    status: Status
    lines: tuple[str, ...]
    summary: str
    rest: Command | None = None
    is_pending: bool = False


class Planned(Protocol):
    """A planned change that can be made."""

    @property
    def description(self) -> ChangeDescription:
        """Description of its writes and effects."""

    def apply(self, *, wait: float = 60.0) -> Result:
        """Make the change. Each write is decided again from the stored rows, so a plan that is some minutes old is safe.

        Args:
            wait: Seconds to wait until workers have acted on it; 0 returns after the writes.

        Raises:
            ChangeRefusedError: If it is refused. Earlier writes are in the audit log.
            AuditLogError: If the audit log cannot be written; nothing more is changed.
            AwsError: If a call failed; with another database, a `LeaseStoreError`. Repeating the change is safe.
        """

    def so_far(self) -> Result | None:
        """Return the result of an interrupted `apply`; None if it has done nothing."""

    def to_dict(self, result: Result | None) -> dict[str, Any]:
        """Return the plan and its result as data for JSON; the result is None before the change is made."""


@dataclass(frozen=True, kw_only=True)
class SingleChange:
    """A change that is made as a whole. ``make`` makes it, given the seconds to wait."""

    description: ChangeDescription
    make: Callable[[float], Result]
    data: Callable[[Result | None], dict[str, Any]]

    def apply(self, *, wait: float = 60.0) -> Result:
        """See `Planned.apply`."""
        return self.make(wait)

    def so_far(self) -> Result | None:
        """Return None."""
        return None

    def to_dict(self, result: Result | None) -> dict[str, Any]:
        """See `Planned.to_dict`."""
        return self.data(result)


def done(text: str, *, is_pending: bool = False) -> Result:
    """Return the result of a change that was made, in one sentence."""
    return Result(status=Status.DONE, lines=(text,), summary=text, is_pending=is_pending)
