"""Documentation of configuration classes: written once below each field, and also shown by `help`.

Editors show the string below a field as its documentation. Python drops that string, and `help` reads ``__doc__``.
`documented_fields` therefore makes ``__doc__`` a descriptor: on first use, it reads the strings from the source and adds
them to the class docstring as an ``Attributes`` section.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from typing import Any, TypeVar, cast

C = TypeVar("C", bound=type)


def documented_fields(cls: C) -> C:
    """Add the docstrings below the fields of a dataclass to its ``__doc__`` (class decorator).

    Without the source (an application that ships only bytecode), ``__doc__`` is the class docstring alone.
    """
    cls.__doc__ = cast(Any, _Documentation(cls, cls.__doc__ or ""))
    return cls


class _Documentation:
    """Descriptor for a ``__doc__`` that is built on first use: `type.__doc__` calls its ``__get__``."""

    def __init__(self, cls: type, summary: str) -> None:
        self._cls = cls
        self._summary = summary
        self._text: str | None = None

    def __get__(self, instance: object, owner: type | None = None) -> str:
        if self._text is None:
            self._text = _with_attributes(inspect.cleandoc(self._summary), _attributes(self._cls))
        return self._text


def _with_attributes(summary: str, attributes: str) -> str:
    """Return the summary with an ``Attributes`` section before ``Raises``."""
    if not attributes:
        return summary
    head, raises, tail = summary.partition("\n\nRaises:")
    return f"{head}\n\nAttributes:\n{attributes}{raises}{tail}"


def _attributes(cls: type) -> str:
    """Return an entry for each documented field, in the order of the source, with its default."""
    defaults = {field.name: _default(field) for field in dataclasses.fields(cls)}
    indented = ((name, text.replace("\n", "\n        ")) for name, text in field_texts(cls).items())
    return "\n".join(f"    {name}: {text}{defaults.get(name, '')}" for name, text in indented)


def field_texts(cls: type) -> dict[str, str]:
    """Return the docstring below each documented field of a dataclass, in the order of the source; empty without the source."""
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    except (OSError, TypeError, SyntaxError):  # no source, or the source of something else
        return {}
    assert isinstance(tree, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(below.value.value)
        for field, below in zip(tree.body, tree.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return f" Default: {field.default!r}."
    if field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
        shown = f"{type(value).__name__}()" if dataclasses.is_dataclass(value) else repr(value)
        return f" Default: {shown}."
    return ""
