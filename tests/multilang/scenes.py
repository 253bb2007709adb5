"""Conversations as the real libraries and daemons have them: ``>`` to the child, ``<`` from it, ``=`` its exit code.

Sequence numbers are short. A child that is played gives its lines when the line before them was written.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from kinesis_sdk.common.errors import (
    InvalidCheckpointError,
    KinesisSdkError,
    LeaseLostError,
    ResourceNotFoundError,
    ThrottledError,
    TransientAwsError,
)
from kinesis_sdk.common.sequence import SHARD_END, ExtendedSequenceNumber
from kinesis_sdk.multilang.process import ChildEndedError, ChildHungError
from kinesis_sdk.multilang.protocol import ChildMessage, Noise, decode_child_line

ERRORS: dict[str, Callable[[], KinesisSdkError]] = {
    "ThrottlingException": lambda: ThrottledError("too fast"),
    "ShutdownException": lambda: LeaseLostError("taken"),
    "InvalidStateException": lambda: ResourceNotFoundError("no table"),
    "KinesisClientLibDependencyException": lambda: TransientAwsError("500"),
    "IllegalArgumentException": lambda: InvalidCheckpointError("too far"),
}


class PlayedCheckpointer:
    """Raises what a scene says; otherwise every checkpoint succeeds."""

    def __init__(self, errors: Iterable[Exception | None] = ()) -> None:
        self.errors = deque(errors)
        self.asked: list[tuple[str | None, int | None]] = []
        self.ends_shard = False
        self.last_checkpoint = ExtendedSequenceNumber("1")

    def checkpoint(self, position: str | None = None, sub_sequence_number: int | None = None) -> None:
        self.asked.append((position, sub_sequence_number))
        error = self.errors.popleft() if self.errors else None
        if error is not None:
            raise error
        if self.ends_shard and position is None:
            self.last_checkpoint = ExtendedSequenceNumber(SHARD_END)


class PlayedChild:
    """Takes the place of a `ChildProcess`: plays the ``<`` lines of a scene, and compares what is written with the others.

    Args:
        lines: Lines of the scene.
    """

    pid = 7

    def __init__(self, lines: Iterable[str]) -> None:
        self.script = deque(lines)
        self.written_in = 0
        self.ended: str | None = None
        self.messages: deque[tuple[ChildMessage, int]] = deque()
        self.noise: list[str] = []
        self.finished: list[float] = []
        self.on_message: Callable[[], None] = lambda: None
        self.hangs = False

    @property
    def has_messages(self) -> bool:
        return bool(self.messages)

    def write(self, pieces: Iterable[bytes], stalled_after: float | None = None) -> None:
        del stalled_after
        line = b"".join(pieces)
        assert line.endswith(b"\n")
        assert self.script, f"unexpected: {line!r}"
        expected = self.script.popleft()
        assert expected.startswith("> "), f"{line!r} where the scene has {expected}"
        assert json.loads(line) == json.loads(expected[2:])
        self.speak()

    def speak(self) -> None:
        """Say what comes before the next line to the child."""
        while self.script and not self.script[0].startswith(">"):
            line = self.script.popleft()
            if line.startswith("="):
                self.ended = f"it exited with code {line[1:].strip()}"
            elif line.startswith("?"):
                self.hangs = True
            elif line.startswith("<"):
                message = decode_child_line(line[2:].encode())
                if isinstance(message, Noise):
                    self.noise.append(message.text)
                elif message is not None:
                    self.messages.append((message, self.written_in))
                    self.on_message()

    def receive(self, deadline: float | None) -> tuple[ChildMessage, int]:
        del deadline
        if self.messages:
            return self.messages.popleft()
        if self.ended is not None:
            raise ChildEndedError(self.ended)
        assert self.hangs, "the daemon waits for a line that the scene does not have"
        raise ChildHungError("it does not respond")

    def put_back(self, message: ChildMessage, written_in: int) -> None:
        self.messages.appendleft((message, written_in))

    def finish(self, grace: float) -> None:
        self.finished.append(grace)

    def wait_gone(self, timeout: float) -> bool:
        return bool(self.finished) and timeout > 0


def lines_of(text: str) -> list[str]:
    """Lines of a scene in the short form.

    ``> initialize TRIM_HORIZON,0`` · ``> processRecords 101,103/1`` · ``> checkpoint 101,0,-`` (``-``: null) ·
    ``< status initialize`` · ``< checkpoint 101,0`` (``< checkpoint 101`` has no sub-sequence number) · others as they are.
    """
    return [_line(line.strip()) for line in text.strip().splitlines()]


def _line(line: str) -> str:
    arrow, _, rest = line.partition(" ")
    word, _, argument = rest.partition(" ")
    values = [None if value == "-" else value for value in argument.split(",")] if argument else []
    message: dict[str, object] = {"action": word}
    if arrow == "<" and word == "status":
        message["responseFor"] = argument
    elif word == "checkpoint" and arrow in ("<", ">"):
        message["sequenceNumber"] = values[0]
        if len(values) > 1:
            message["subSequenceNumber"] = None if values[1] is None else int(values[1])
        if arrow == ">":
            message["error"] = values[2]
    elif arrow != ">":
        return line
    elif word == "initialize":
        assert values[1] is not None
        message |= {
            "shardId": "shardId-000000000007",
            "sequenceNumber": values[0],
            "subSequenceNumber": int(values[1]),
        }
    elif word == "processRecords":
        message["records"] = [_record(value) for value in values if value]
        message["millisBehindLatest"] = 0
    return f"{arrow} {json.dumps(message)}"


def _record(text: str) -> dict[str, object]:
    number, _, sub = text.partition("/")
    return {
        "data": "aGk=",
        "partitionKey": "k",
        "sequenceNumber": number,
        "approximateArrivalTimestamp": 1700000000123,
        "subSequenceNumber": int(sub or 0),
        "action": "record",
    }


def recorded(folder: Path) -> list[Path]:
    """Files of recorded conversations."""
    return sorted(folder.glob("*.txt"))


def lines_of_file(path: Path) -> list[str]:
    """Lines of a recorded conversation that are messages or an exit code."""
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line[:1] in ("<", ">", "=")]


SCENES = {
    "node": """
        > initialize LATEST,0
        < status initialize
        > processRecords 101
        < checkpoint 101
        > checkpoint 101,-,-
        < status processRecords
        > shutdownRequested
        < checkpoint -
        > checkpoint -,-,ShutdownException
        < status shutdownRequested
        > leaseLost
        < status leaseLost
        """,
    "node, checkpoint after its callback": """
        > initialize LATEST,0
        < status initialize
        > processRecords 102
        < status processRecords
        < checkpoint 102
        > checkpoint 102,-,-
        > processRecords 103
        < status processRecords
        """,
    "node throws": """
        > initialize LATEST,0
        < status initialize
        > processRecords 101
        = 1
        """,
    "noise": """
        > initialize LATEST,0
        < status initialize
        > processRecords 101
        < noise
        < "str"
        < 12
        < {"action":"log","x":1}
        < {"action":"initialize","shardId":"x"}
        < checkpoint 101,0
        > checkpoint 101,0,-
        < status processRecords
        """,
    "checkpoint in leaseLost": """
        > initialize LATEST,0
        < status initialize
        > leaseLost
        < checkpoint -
        > checkpoint -,-,InvalidStateException
        < status leaseLost
        """,
    "checkpoint in initialize": """
        > initialize LATEST,0
        < checkpoint -
        > checkpoint -,-,InvalidStateException
        < status initialize
        """,
    "empty lists": """
        > initialize LATEST,0
        < status initialize
        > processRecords
        < status processRecords
        > processRecords
        < status processRecords
        """,
    "restart on the checkpoint": """
        > initialize 4968,3
        < status initialize
        """,
    "stop with grace": """
        > initialize LATEST,0
        < status initialize
        > shutdownRequested
        < status shutdownRequested
        > leaseLost
        < status leaseLost
        = 3
        """,
    "stop without grace": """
        > initialize LATEST,0
        < status initialize
        """,
}
"""Scenes that succeed, or fail only with their last line. The files of ``transcripts`` have those of amazon_kclpy."""
