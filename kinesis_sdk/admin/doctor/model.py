"""The result of an examination: findings and a report."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from kinesis_sdk.admin.command import Command
from kinesis_sdk.admin.plain import plain


class Level(str, Enum):
    """Rating of a finding."""

    GREEN = "green"
    """Checked, and in order."""
    NOTE = "note"
    """A fact that is neither good nor bad, or a check that is impossible without a side effect."""
    YELLOW = "yellow"
    """The checked part works, but will cost money, time or records one day."""
    RED = "red"
    """The checked part does not work, or records will be lost."""


_ORDER = (Level.RED, Level.YELLOW, Level.NOTE, Level.GREEN)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one check.

    Attributes:
        code: Stable name for programs, for example ``clock-skew``.
        level: Severity of the finding.
        title: Two or three words for people.
        text: The observation, in one sentence, with numbers.
        remedy: Remedy; empty for a green finding or if there is nothing to do.
        command: A command that helps; None if no command does.
    """

    code: str
    level: Level
    title: str
    text: str
    remedy: str = ""
    command: Command | None = None


@dataclass(frozen=True, kw_only=True)
class Report:
    """All findings of one examination.

    Attributes:
        stream: Name or ARN of the stream, as the user gave it.
        application: Name of the application and of its lease table.
        findings: Worst first.
        calls: API calls that the examination made, by operation.
    """

    stream: str
    application: str
    findings: tuple[Finding, ...]
    calls: dict[str, int]

    @property
    def level(self) -> Level:
        """The worst level of all findings: red, yellow, or green. Notes count as green."""
        worst = min((_ORDER.index(finding.level) for finding in self.findings), default=3)
        return _ORDER[worst] if worst < 2 else Level.GREEN

    def to_dict(self) -> dict[str, Any]:
        """Return the report as data that ``json.dumps`` accepts."""
        return {"level": self.level.value, **plain(self)}


def worst_first(findings: list[Finding]) -> tuple[Finding, ...]:
    """Sort findings by level; findings of one level keep their order."""
    return tuple(sorted(findings, key=lambda finding: _ORDER.index(finding.level)))
