"""Conversations of daemons with children, read from the taps' files and made comparable."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Message = Mapping[str, Any]


@dataclass(frozen=True)
class Conversation:
    """A daemon's conversation with one child.

    Attributes:
        shard: Number of the shard.
        lines: Time, ``>``, ``<`` or ``=``, and the parsed message or the exit status.
    """

    shard: int
    lines: tuple[tuple[float, str, Any], ...]

    def messages(self, who: str) -> list[Message]:
        """Return the messages of the daemon (``>``) or of the child (``<``)."""
        return [message for _, speaker, message in self.lines if speaker == who]

    @property
    def status(self) -> int | None:
        """Exit status of the child; None while it runs, or if the tap was killed."""
        return next((message for _, speaker, message in self.lines if speaker == "="), None)

    @property
    def calls(self) -> list[str]:
        """Actions of the daemon, without its responses to checkpoints."""
        return [message["action"] for message in self.messages(">") if message["action"] != "checkpoint"]

    @property
    def records(self) -> list[Message]:
        """All records that the child received."""
        return [
            record
            for message in self.messages(">")
            if message["action"] == "processRecords"
            for record in message["records"]
        ]

    @property
    def comparable(self) -> list[tuple[str, Message]]:
        """All messages in order, without the lag, which depends on the time of the fetch."""
        return [
            (speaker, {name: value for name, value in message.items() if name != "millisBehindLatest"})
            for _, speaker, message in self.lines
            if speaker != "="
        ]

    @property
    def by_speaker(self) -> tuple[list[Message], list[Message]]:
        """The daemon's messages and the child's messages, without the lag.

        For a child that does not wait for the response to a checkpoint: its next status may come before or after that
        response, whichever daemon it has.
        """
        said = self.comparable
        return [one for who, one in said if who == ">"], [one for who, one in said if who == "<"]


def read(path: Path) -> Conversation:
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    lines = []
    for line in whole.splitlines():
        t, who, what = json.loads(line)
        lines.append((t, who, json.loads(what) if isinstance(what, str) else what))
    shard, _, _ = path.stem.rpartition("-")
    return Conversation(int(shard.rpartition("-")[2]), tuple(lines))


def conversations(folder: Path) -> Iterator[Conversation]:
    """Yield the conversations in a folder, each shard's in order."""
    for path in sorted(
        folder.glob("*.tap"), key=lambda path: (path.stem.rpartition("-")[0], path.stat().st_ctime)
    ):
        found = read(path)
        if found.lines:
            yield found
