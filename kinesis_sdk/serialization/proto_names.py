"""Names of the message types that a ``.proto`` file defines, from its text or from a generated class.

AWS's serializers number the message types of a file by their sorted full names, including nested types and the entries of maps.
So a deserializer needs only the names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor


def message_names(file: Any) -> list[str]:
    """Return the sorted full names of all message types of a file, given by its descriptor."""

    def walk(kinds: Iterable[Descriptor]) -> Iterator[str]:
        for kind in kinds:
            yield kind.full_name
            yield from walk(kind.nested_types)

    return sorted(walk(file.message_types_by_name.values()))


_TOKEN = re.compile(
    r"""
      //[^\n]* | /\*.*?\*/                             # comments
    | "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*'        # strings
    | [\w.+-]+                                         # words and numbers
    | \S
    """,
    re.VERBOSE | re.DOTALL,
)


def message_names_of_text(text: str) -> list[str]:
    """Return the sorted full names of all message types that ``.proto`` text defines; raise ValueError for unbalanced braces."""
    package = ""
    names: list[str] = []
    # For each open brace, the scope of the messages inside; None where no message can be defined.
    scopes: list[str | None] = [""]
    statement: list[str] = []
    brackets = 0
    for word in _TOKEN.findall(text):
        if word.startswith(("//", "/*")):
            continue
        brackets += (word == "[") - (word == "]")
        if brackets or word not in {"{", "}", ";"}:
            statement.append(word)
            continue
        scope = scopes[-1]
        if word == "{":
            scopes.append(_inner_scope(scope, statement, names))
        elif word == "}":
            scopes.pop()
            if not scopes:
                raise ValueError("unbalanced braces in the Protobuf schema")
        elif statement[:1] == ["package"] and len(statement) > 1:
            package = statement[1] + "."
        elif statement[:2] == ["map", "<"] and scope is not None and ">" in statement[:-1]:
            names.append(scope + _entry_name(statement[statement.index(">") + 1]))
        statement = []
    if len(scopes) != 1:
        raise ValueError("unbalanced braces in the Protobuf schema")
    return sorted(package + name for name in names)


def _inner_scope(scope: str | None, statement: list[str], names: list[str]) -> str | None:
    """Return the scope of the messages inside a brace, and note the message that begins with it."""
    if scope is None or not statement:
        return None
    if statement[0] == "message" and len(statement) == 2:
        name = statement[1]
    elif "group" in statement[:2] and "=" in statement:
        name = statement[statement.index("group") + 1]
    else:
        return scope if statement[0] in {"oneof", "extend"} else None
    names.append(scope + name)
    return f"{scope}{name}."


def _entry_name(field: str) -> str:
    """Return the name of the message type for the entries of a map field."""
    return "".join(part[:1].upper() + part[1:] for part in field.split("_")) + "Entry"
