"""Parser of DynamoDB expressions into tuples; `evaluation` applies these to an item.

```
condition  := and-terms joined by OR          term      := NOT term | ( condition ) | comparison | function
comparison := operand (= <> < <= > >=) operand | operand BETWEEN operand AND operand | operand IN (operand, …)
operand    := path | :value | size(path)      path      := name[.name | [index]]…
update     := SET path = sum, … REMOVE path, … ADD path :value, … DELETE path :value, …
sum        := term [+|- term]                 term      := operand | if_not_exists(path, term) | list_append(…)
```
Nodes are tuples whose first member names the kind. Placeholders are resolved while parsing, so undefined and unused
placeholders are found before anything is evaluated.
"""

from __future__ import annotations

import functools
import re
from itertools import pairwise
from typing import Any

from kinesis_sdk.testing.dynamodb import attributes
from kinesis_sdk.testing.dynamodb.attributes import Value, normalise
from kinesis_sdk.testing.dynamodb.reserved import RESERVED_WORDS
from kinesis_sdk.testing.errors import validation

Path = tuple[Any, ...]
Node = tuple[Any, ...]

_TOKEN = re.compile(
    r"\s*(?:(?P<name>#[A-Za-z0-9_]+|[A-Za-z_][A-Za-z0-9_]*)|(?P<value>:[A-Za-z0-9_]+)|(?P<number>\d+)"
    r"|(?P<sign><>|<=|>=|[=<>()\[\],.+\-]))"
)
_COMPARATORS = ("=", "<>", "<", "<=", ">", ">=")
_CONDITION_FUNCTIONS = {
    "attribute_exists": 1,
    "attribute_not_exists": 1,
    "attribute_type": 2,
    "begins_with": 2,
    "contains": 2,
}
_ORDERED = ("N", "S", "B")
_CLAUSES = ("SET", "REMOVE", "ADD", "DELETE")


class Placeholders:
    """Placeholder names and values of a request's expressions, and which of them were used."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._names: dict[str, str] = request.get("ExpressionAttributeNames") or {}
        values = request.get("ExpressionAttributeValues") or {}
        for name in self._names:
            if not name.startswith("#"):
                raise validation(
                    f'ExpressionAttributeNames contains invalid key: Syntax error; key: "{name}"'
                )
        for name in values:
            if not name.startswith(":"):
                raise validation(
                    f'ExpressionAttributeValues contains invalid key: Syntax error; key: "{name}"'
                )
        self._values = {name: normalise(value) for name, value in values.items()}
        self._used: set[str] = set()

    def name(self, token: str, where: str) -> str:
        """Return the attribute name of a token; reject an undefined placeholder and a reserved word."""
        if not token.startswith("#"):
            if token.lower() in RESERVED_WORDS:
                raise validation(
                    f"Invalid {where}: Attribute name is a reserved keyword; reserved keyword: {token}"
                )
            return token
        self._used.add(token)
        if token not in self._names:
            raise validation(
                f"Invalid {where}: An expression attribute name used in the document path is not defined; "
                f"attribute name: {token}"
            )
        return self._names[token]

    def value(self, token: str, where: str) -> Value:
        """Return the value of a placeholder."""
        self._used.add(token)
        if token not in self._values:
            raise validation(
                f"Invalid {where}: An expression attribute value used in expression is not defined; "
                f"attribute value: {token}"
            )
        return self._values[token]

    def finish(self, *, any_expression: bool) -> None:
        """Reject placeholders that no expression used."""
        for what, given in (("Names", self._names), ("Values", self._values)):
            if given and not any_expression:
                raise validation(
                    f"ExpressionAttribute{what} can only be specified when using expressions: "
                    "the request has no expression"
                )
            unused = sorted(set(given) - self._used)
            if unused:
                raise validation(
                    f"Value provided in ExpressionAttribute{what} unused in expressions: keys: {{{', '.join(unused)}}}"
                )


@functools.lru_cache(maxsize=256)
def _tokens(text: str) -> tuple[tuple[tuple[str, str], ...], str | None]:
    """Return the kind and text of each token, and the rest of the text, which is not a token.

    Cached, because callers repeat expressions.
    """
    tokens: list[tuple[str, str]] = []
    at, text = 0, text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return tuple(tokens), text[at : at + 10].strip()
        kind = match.lastgroup or ""
        tokens.append((kind, match.group(kind)))
        at = match.end()
    return tuple(tokens), None


class Parser:
    """Parses one expression. `where` is the name of the parameter in errors, for example ``ConditionExpression``."""

    def __init__(self, text: Any, placeholders: Placeholders, where: str) -> None:
        if not isinstance(text, str) or not text.strip():
            raise validation(f"Invalid {where}: The expression can not be empty;")
        self._where = where
        self._placeholders = placeholders
        self._at = 0
        # The tokens around the last pair of parentheses.
        self._pair = (-1, -1)
        self._tokens, rest = _tokens(text)
        if rest is not None:
            raise self._error(rest)

    # -- tokens -------------------------------------------------------------------------------------------------

    def _error(self, token: str) -> Exception:
        return validation(f'Invalid {self._where}: Syntax error; token: "{token}"')

    @property
    def _next(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("", "<EOF>")

    def _take(self) -> tuple[str, str]:
        token = self._next
        self._at += 1
        return token

    def _word(self, *words: str) -> bool:
        kind, text = self._next
        if kind == "name" and text.upper() in words:
            self._at += 1
            return True
        return False

    def _sign(self, sign: str) -> bool:
        if self._next == ("sign", sign):
            self._at += 1
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._sign(sign):
            raise self._error(self._next[1])

    def _end(self) -> None:
        if self._at < len(self._tokens):
            raise self._error(self._next[1])

    # -- operands -----------------------------------------------------------------------------------------------

    def _path(self) -> Path:
        kind, text = self._take()
        if kind != "name":
            raise self._error(text)
        path: list[str | int] = [self._placeholders.name(text, self._where)]
        while True:
            if self._sign("."):
                kind, text = self._take()
                if kind != "name":
                    raise self._error(text)
                path.append(self._placeholders.name(text, self._where))
            elif self._sign("["):
                kind, text = self._take()
                if kind != "number":
                    raise self._error(text)
                path.append(int(text))
                self._expect("]")
            else:
                return tuple(path)

    def _function(self) -> str | None:
        kind, text = self._next
        after = self._tokens[self._at + 1] if self._at + 1 < len(self._tokens) else ("", "")
        if kind != "name" or text.startswith("#") or after != ("sign", "("):
            return None
        self._at += 2
        return text

    def _operand(self) -> Node:
        kind, text = self._next
        if kind == "value":
            self._at += 1
            return ("value", self._placeholders.value(text, self._where))
        name = self._function()
        if name is None:
            return ("path", self._path())
        if name != "size":
            raise self._bad_function(name)
        path = self._path()
        self._expect(")")
        return ("size", path)

    def _bad_function(self, name: str) -> Exception:
        return validation(f"Invalid {self._where}: Invalid function name; function: {name}")

    # -- conditions ---------------------------------------------------------------------------------------------

    def condition(self) -> Node:
        """Parse the whole text as a condition."""
        node = self._any()
        self._end()
        return node

    def _any(self) -> Node:
        node = self._all()
        while self._word("OR"):
            node = ("or", node, self._all())
        return node

    def _all(self) -> Node:
        node = self._term()
        while self._word("AND"):
            node = ("and", node, self._term())
        return node

    def _term(self) -> Node:
        if self._word("NOT"):
            return ("not", self._term())
        if self._sign("("):
            opened = self._at
            node = self._any()
            # "((a))", and neither "((a) OR b)" nor "((a) OR (b))".
            if self._pair == (opened, self._at):
                raise validation(f"Invalid {self._where}: The expression has redundant parentheses;")
            self._expect(")")
            self._pair = (opened - 1, self._at)
            return node
        start = self._at
        name = self._function()
        if name is not None and name != "size":
            return self._call(name)
        self._at = start
        left = self._operand()
        kind, text = self._next
        if kind == "sign" and text in _COMPARATORS:
            self._at += 1
            right = self._operand()
            if text not in ("=", "<>"):
                self._check_types(text, _ORDERED, left, right)
            self._check_distinct(text, left, right)
            return ("compare", left, text, right)
        if self._word("BETWEEN"):
            low = self._operand()
            if not self._word("AND"):
                raise self._error(self._next[1])
            high = self._operand()
            self._check_types("BETWEEN", _ORDERED, left, low, high)
            self._check_distinct("BETWEEN", left, low, high)
            if low[0] == high[0] == "value" and _type_of(low) != _type_of(high):
                raise validation(
                    f"Invalid {self._where}: The BETWEEN operator requires same data type for lower and upper bounds; "
                    f"lower bound operand: AttributeValue: {low[1]}, upper bound operand: AttributeValue: {high[1]}"
                )
            if low[0] == high[0] == "value" and attributes.compare(high[1], "<", low[1]):
                raise validation(
                    f"Invalid {self._where}: The BETWEEN operator requires upper bound to be greater than or equal "
                    "to lower bound"
                )
            return ("between", left, low, high)
        if self._word("IN"):
            self._expect("(")
            choices = [self._operand()]
            while self._sign(","):
                choices.append(self._operand())
            self._expect(")")
            self._check_distinct("IN", left, *choices)
            return ("in", left, choices)
        raise self._error(text)

    def _call(self, name: str) -> Node:
        count = _CONDITION_FUNCTIONS.get(name)
        if count is None:
            raise self._bad_function(name)
        arguments = [self._operand()]
        while self._sign(","):
            arguments.append(self._operand())
        self._expect(")")
        if len(arguments) != count:
            raise validation(
                f"Invalid {self._where}: Incorrect number of operands for operator or function; operator or function: "
                f"{name}, number of operands: {len(arguments)}"
            )
        if count == 1 and arguments[0][0] != "path":
            raise validation(
                f"Invalid {self._where}: Operator or function requires a document path; operator or function: {name}"
            )
        self._check_distinct(name, *arguments)
        if name == "begins_with":
            self._check_types(name, ("S", "B"), *arguments)
        if name == "attribute_type" and (
            arguments[1][0] != "value" or arguments[1][1].get("S") not in attributes.TYPES
        ):
            raise validation(
                f"Invalid {self._where}: Invalid attribute type name found; function: attribute_type"
            )
        return (name, *arguments)

    def _check_types(self, operator: str, accepted: tuple[str, ...], *operands: Node) -> None:
        """Reject operands of a wrong type, if the type is known without an item."""
        for operand in operands:
            kind = _type_of(operand)
            if kind is not None and kind not in accepted:
                raise validation(
                    f"Invalid {self._where}: Incorrect operand type for operator or function; operator or function: "
                    f"{operator}, operand type: {kind}"
                )

    def _check_distinct(self, operator: str, first: Node, *others: Node) -> None:
        if first[0] == "path" and first in others:
            raise validation(
                f"Invalid {self._where}: The first operand must be distinct from the remaining operands for this "
                f"operator or function; operator: {operator}, first operand: {list(first[1])}"
            )

    # -- projections and updates --------------------------------------------------------------------------------

    def projection(self) -> list[Path]:
        """Parse the whole text as a list of paths."""
        paths = [self._path()]
        while self._sign(","):
            paths.append(self._path())
        self._end()
        reject_overlaps(paths, self._where)
        return paths

    def update(self) -> list[Node]:
        """Parse the whole text as an update: nodes ``(clause, path, operand)``; REMOVE has no operand."""
        actions: list[Node] = []
        seen: set[str] = set()
        while self._at < len(self._tokens):
            kind, text = self._take()
            clause = text.upper()
            if kind != "name" or clause not in _CLAUSES:
                raise self._error(text)
            if clause in seen:
                raise validation(
                    f'Invalid {self._where}: The "{clause}" section can only be used once in an update expression;'
                )
            seen.add(clause)
            actions.append(self._action(clause))
            while self._sign(","):
                actions.append(self._action(clause))
        reject_overlaps([action[1] for action in actions], self._where)
        return actions

    def _action(self, clause: str) -> Node:
        path = self._path()
        if clause == "REMOVE":
            return (clause, path)
        if clause == "SET":
            self._expect("=")
            node = self._set_term()
            if self._sign("+"):
                node = ("plus", node, self._set_term(), 1)
            elif self._sign("-"):
                node = ("plus", node, self._set_term(), -1)
            return (clause, path, node)
        operand = self._operand()
        if operand[0] != "value":
            raise self._error("path")
        return (clause, path, operand)

    def _set_term(self) -> Node:
        if self._sign("("):
            node = self._set_term()
            self._expect(")")
            return node
        name = self._function()
        if name is None:
            return self._operand()
        if name not in {"if_not_exists", "list_append"}:
            raise self._bad_function(name)
        first: Node = ("path", self._path()) if name == "if_not_exists" else self._set_term()
        self._expect(",")
        second = self._set_term()
        self._expect(")")
        if name == "if_not_exists":
            self._check_distinct(name, first, second)
        return (name, first, second)


def _type_of(operand: Node) -> str | None:
    """Return the type of an operand if it is known without an item; otherwise None."""
    if operand[0] == "size":
        return "N"
    return attributes.kind_of(operand[1]) if operand[0] == "value" else None


def reject_overlaps(paths: list[Path], where: str) -> None:
    """Reject a path that equals another or lies inside it."""
    ordered = sorted(paths, key=lambda path: [str(part) for part in path])
    for one, other in pairwise(ordered):
        if other[: len(one)] == one:
            raise validation(
                f"Invalid {where}: Two document paths overlap with each other; must remove or rewrite one of these "
                f"paths; path one: {list(one)}, path two: {list(other)}"
            )


def paths_in(node: Any) -> list[Path]:
    """Return every document path in a condition."""
    if isinstance(node, list):
        return [path for part in node for path in paths_in(part)]
    if not isinstance(node, tuple):
        return []
    if node[0] in {"path", "size"}:
        return [node[1]]
    return [] if node[0] == "value" else [path for part in node[1:] for path in paths_in(part)]
