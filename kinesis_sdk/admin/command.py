"""An operation with its parameters, which each user interface shows in its own way: as a command line, or as a button."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Command:
    """An operation with its parameters.

    Attributes:
        operation: Name of the operation: the verb of a change (`OPERATIONS`), or a question such as ``explain``.
        parameters: Texts, lists of texts and flags by the parameter's name, without parameters that were not given.
    """

    operation: str
    parameters: Mapping[str, str | bool | tuple[str, ...]] = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, operation: str, **parameters: str | bool | Collection[str] | None) -> Command:
        """Return a command; None, False and empty collections count as not given, and collections are sorted."""
        return cls(
            operation,
            {
                name: value if isinstance(value, (str, bool)) else tuple(sorted(value))
                for name, value in parameters.items()
                if value
            },
        )

    def with_(self, **parameters: str | bool | Collection[str] | None) -> Command:
        """Return the same command with other values of some parameters."""
        kept = {name: value for name, value in self.parameters.items() if name not in parameters}
        return replace(self, parameters={**kept, **Command.of("", **parameters).parameters})

    def __str__(self) -> str:
        return (
            f"{self.operation}({', '.join(f'{name}={value!r}' for name, value in self.parameters.items())})"
        )
