"""Dead letters in a file of JSON lines: letters, and marks with their later states."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kinesis_sdk.common.errors import DeadLetterError
from kinesis_sdk.common.line_file import LineFile
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.dead_letters.letter import MAX_LINE, DeadLetter, State, is_letter_id
from kinesis_sdk.dead_letters.store import LetterLog

_LOGGER = FieldLogger(logging.getLogger(__name__))

MAX_BYTES = 16 * 1024 * 1024 * 1024
"""Maximum size of a file in bytes."""
_DROPPED = "dropped"
_PER_MARK = 1_000
"""Maximum letters of one mark."""
_WARNINGS = 5
"""Maximum warnings about lines in one pass."""


class FileDeadLetters:
    """Dead letters in a file, for the workers of one machine.

    Each line is a letter or a mark. Several processes may append to it and replay from it at the same time. The file grows with each
    mark, so remove it when it has no letters left. Its permissions are checked like those of a `FileSpool`.

    Args:
        path: Path of the file; its directory must exist. The file is created with the first letter.

    Attributes:
        location: ``file:`` and the path.
        unreadable: Lines of the last pass that are neither letters nor marks.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self.location: str = f"file:{os.fspath(path)}"
        self.unreadable: int = 0
        self._file = LineFile(
            path, failure=DeadLetterError, use="a file of dead letters", max_bytes=MAX_BYTES
        )

    def keep(self, letter: DeadLetter) -> None:
        """See `DeadLetterStore.keep`."""
        self._file.append(letter.to_line(), "a dead letter could not be stored")

    def letters(self, *, payload: bool = False) -> Iterator[DeadLetter]:
        """See `DeadLetterStore.letters`. The file is read twice, a line at a time."""
        log, end = LetterLog(self.location), 0
        self.unreadable = 0
        for number, (line, after) in enumerate(self._lines(None), 1):
            end = after
            try:
                entry = _entry(line)
            except ValueError as error:
                self.unreadable += 1
                if self.unreadable <= _WARNINGS:
                    # Without the line itself, which may contain a payload.
                    _LOGGER.warning("%s: line %d is not a dead letter (%s)", self.location, number, error)
                continue
            if isinstance(entry, DeadLetter):
                log.add(entry.id, after)
            else:
                for identity in entry[1]:
                    log.mark(identity, entry[0])
        for line, after in self._lines(end):
            try:
                entry = _entry(line)
            except ValueError:
                continue
            if isinstance(entry, DeadLetter) and (state := log.state_of(entry.id, after)) is not None:
                yield replace(entry if payload else entry.without_payload(), state=state)

    def _lines(self, end: int | None) -> Iterator[tuple[bytes, int]]:
        """Yield the lines up to ``end``, each with the offset after the line; an incomplete line is left out."""
        try:
            with self._path.open("rb") as file:
                offset = 0
                while end is None or offset < end:
                    line = file.readline(MAX_LINE + 1)
                    offset += len(line)
                    if not line.endswith(b"\n") and len(line) <= MAX_LINE:
                        return
                    if line.strip():
                        yield line, offset
        except OSError as error:
            raise DeadLetterError(f"{self.location} cannot be read: {error.strerror or error}") from error

    def mark(self, letters: Sequence[DeadLetter], state: State) -> None:
        """See `DeadLetterStore.mark`."""
        self._append(letters, state.value)

    def drop(self, letters: Sequence[DeadLetter]) -> None:
        """See `DeadLetterStore.drop`. The letters stay in the file, and no reader shows them."""
        self._append(letters, _DROPPED)

    def _append(self, letters: Sequence[DeadLetter], word: str) -> None:
        ids = [letter.id for letter in letters]
        for begin in range(0, len(ids), _PER_MARK):
            mark = {"mark": word, "letters": ids[begin : begin + _PER_MARK]}
            self._file.append(json.dumps(mark).encode("ascii") + b"\n", "a dead letter could not be marked")

    def close(self) -> None:
        """Do nothing, because no file is open."""


def _entry(line: bytes) -> DeadLetter | tuple[State | None, list[str]]:
    """Return the letter or the mark of a line; raise ValueError if it is neither."""
    if len(line) > MAX_LINE:
        raise ValueError("too long")
    try:
        item: Any = json.loads(line)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except ValueError:
        raise ValueError("not JSON") from None
    if not isinstance(item, dict) or "mark" not in item:
        return DeadLetter.from_item(item)
    word, ids = item["mark"], item.get("letters")
    if not (isinstance(ids, list) and len(ids) <= _PER_MARK and all(map(is_letter_id, ids))):
        raise ValueError("mark: not a list of letters")
    return (None if word == _DROPPED else State(word)), ids
