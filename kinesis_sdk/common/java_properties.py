"""Files in the syntax of ``java.util.Properties``, with which the KPL and the KCL are configured."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kinesis_sdk.common.errors import ConfigError


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a properties file, whose encoding is ISO-8859-1.

    Raises:
        OSError: If the file cannot be read.
    """
    return Path(path).read_bytes().decode("iso-8859-1")


def parse_pairs(text: str) -> Iterator[tuple[str, str]]:
    r"""Yield the keys and values of a text in the syntax of ``java.util.Properties.load``, in order.

    Raises:
        ConfigError: If a ``\uXXXX`` escape is malformed.
    """
    for line in _logical_lines(text):
        end = 0
        while end < len(line) and line[end] not in "=: \t\f":
            end += 2 if line[end] == "\\" else 1
        key, rest = line[:end], line[end:].lstrip(" \t\f")
        if rest[:1] in {"=", ":"}:
            rest = rest[1:].lstrip(" \t\f")
        yield _unescape(key), _unescape(rest)


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines without comments and blank lines. A line that ends in an odd number of backslashes continues."""
    parts: list[str] = []
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(" \t\f")
        if not parts and (not line or line[0] in "#!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            parts.append(line[:-1])
            continue
        yield "".join([*parts, line])
        parts = []
    if parts:
        yield "".join(parts)


_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.?)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        code = match.group(1)
        if code == "u":
            shown = text[match.start() : match.start() + 6]
            raise ConfigError("properties", shown, "\\u and four hexadecimal digits")
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPED.get(code, code)

    return _ESCAPE.sub(replace, text)


def closest_key(key: str, known: Collection[str]) -> str | None:
    """Return the known key that ``key`` is probably a typo or another spelling of; None if there is none."""
    # The prefix may have been forgotten: consumerName for fanoutConfig.consumerName.
    by_plain = {_plain(name.rpartition(".")[2]): name for name in known}
    by_plain |= {_plain(name): name for name in known}
    # Other common spellings: record_ttl, record-ttl, recordTtl, setRecordTtl.
    plain = _plain(key)
    for candidate in (plain, plain.removeprefix("set")):
        if candidate in by_plain:
            return by_plain[candidate]
    matches = difflib.get_close_matches(plain, by_plain, n=1, cutoff=0.7)
    return by_plain[matches[0]] if matches else None


def _plain(key: str) -> str:
    return re.sub(r"[_.\-\s]", "", key).lower()


class Key(NamedTuple):
    """Meaning of a key of a properties file.

    Attributes:
        effect: The effect, or the reason why there is none, for the page and for warnings.
        part: Part of the result; empty if the key is ignored.
        name: Field of that part.
        read: Reads the value, given the key, its text and a list for notes; None if the key is ignored.
        versions: Versions of the library that have the key; empty for all versions.
    """

    effect: str
    part: str = ""
    name: str = ""
    read: Callable[[str, str, list[tuple[str, str]]], Any] | None = None
    versions: str = ""

    @property
    def shown(self) -> str:
        """The effect, in the words of the page."""
        return self.effect if self.read is not None else f"no effect: {self.effect}"


def write_reference(path: Path, table: str) -> None:
    """Replace the table of keys between the two comments of a page.

    Args:
        path: The page.
        table: The new table, as Markdown.

    Raises:
        OSError: If the page cannot be read or written.
    """
    document = path.read_text(encoding="utf-8")
    before, rest = document.split("<!-- keys -->\n", 1)
    after = rest.split("<!-- end of keys -->", 1)[1]
    path.write_text(f"{before}<!-- keys -->\n{table}\n<!-- end of keys -->{after}", encoding="utf-8")
