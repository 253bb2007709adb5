"""Lines of an untrusted stream of bytes, of bounded length."""

from __future__ import annotations

from typing import NamedTuple


class Line(NamedTuple):
    """A line without its line feed, cut at the limit; ``length`` is the number of bytes of the whole line."""

    data: bytes
    length: int

    @property
    def is_cut(self) -> bool:
        """Whether the end of the line is missing."""
        return self.length > len(self.data)


class LineSplitter:
    """Splits a stream of bytes into lines, and keeps at most ``limit`` bytes of one line."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self._length = 0

    def feed(self, data: bytes) -> list[Line]:
        """Return the lines that this data completes."""
        parts = data.split(b"\n")
        lines = []
        for part in parts[:-1]:
            if self._length:
                self._keep(part)
                lines.append(self._take())
            else:
                lines.append(Line(part[: self._limit], len(part)))
        self._keep(parts[-1])
        return lines

    def flush(self) -> list[Line]:
        """Return the unfinished line at the end of the stream, if there is one."""
        return [self._take()] if self._length else []

    def _keep(self, part: bytes) -> None:
        self._kept += part[: max(0, self._limit - len(self._kept))]
        self._length += len(part)

    def _take(self) -> Line:
        line = Line(bytes(self._kept), self._length)
        self._kept.clear()
        self._length = 0
        return line
