"""Conversations of amazon_kclpy 3.2.0, recorded: what it was sent, what it answered, what its processor saw.

A file of ``tests/multilang/transcripts`` whose name begins with ``kclpy`` has lines of these kinds, in their order:

| line | content |
| --- | --- |
| ``# …`` | a comment; ``# processor: NAME`` names a class of `processors` |
| ``> {…}`` | a message of the daemon |
| ``< {…}`` | a message of the child, byte for byte, which it writes with an empty line before it |
| ``! […]`` | a call of a callback, or a refused checkpoint |
| ``= N`` | exit status of a child that does not read on until the end of its input |

``integration/multilang/test_kclpy.py`` compares the real library with these files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "multilang" / "transcripts"


@dataclass(frozen=True)
class Transcript:
    """A conversation.

    Attributes:
        name: Name of the file.
        processor: Name of the processor.
        lines: All lines but comments.
    """

    name: str
    processor: str
    lines: list[str]

    @property
    def sent(self) -> list[str]:
        """Return what the daemon sends."""
        return [line[2:] for line in self.lines if line.startswith("> ")]


def read(path: Path) -> Transcript:
    text = path.read_text(encoding="utf-8")
    (processor,) = re.findall(r"^# processor: (\w+)$", text, re.MULTILINE)
    return Transcript(path.stem, processor, [line for line in text.splitlines() if line and line[0] != "#"])


TRANSCRIPTS = [read(path) for path in sorted(FOLDER.glob("kclpy-*.txt"))]
