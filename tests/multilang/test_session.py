"""A session with played children: recorded conversations, children that misbehave, checkpoints between two calls."""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import pytest

from kinesis_sdk.common.errors import ThrottledError
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.consumer import Checkpointer
from kinesis_sdk.multilang.conversation import Answered, Conversation
from kinesis_sdk.multilang.process import ChildEndedError, ChildProcess
from kinesis_sdk.multilang.protocol import (
    INITIALIZE,
    PROCESS_RECORDS,
    SHARD_ENDED,
    CheckpointRequest,
    Status,
)
from kinesis_sdk.multilang.session import CallFailedError, ChildSession
from kinesis_sdk.testing import VirtualClock
from tests.multilang.scenes import (
    ERRORS,
    SCENES,
    PlayedCheckpointer,
    PlayedChild,
    lines_of,
    lines_of_file,
    recorded,
)

FOLDER = Path(__file__).parent / "transcripts"


class Stage:
    """A session, its played child, and the functions that it wants to run soon."""

    def __init__(
        self, lines: Iterable[str], errors: Iterable[Exception | None] = (), *, inline: bool = True
    ) -> None:
        self.child = PlayedChild(lines)
        self.clock = VirtualClock()
        self.checkpointer = PlayedCheckpointer(errors)
        self.later: list[Callable[[], None]] = []
        self.stopping = False
        self.ends: list[str | None] = []
        self.session = ChildSession(
            cast(ChildProcess, self.child),
            shard_id="s",
            timeout=5.0,
            clock=self.clock,
            run_soon=(lambda function: function()) if inline else self.later.append,
            wait_for_stop=self.wait_for_stop,
            on_ended=lambda: self.ends.append(self.child.ended),
            logger=FieldLogger(logging.getLogger("test")),
        )
        self.child.on_message = self.session.on_message

    def wait_for_stop(self, seconds: float) -> bool:
        self.clock.advance(seconds)
        return self.stopping

    def call(self, line: str) -> None:
        """Call the child with the message of a line ``> {...}``."""
        action = json.loads(line[2:])["action"]
        self.checkpointer.ends_shard = action == SHARD_ENDED
        with_checkpoints = action not in ("initialize", "leaseLost")
        self.session.call(
            action,
            (line[2:].encode() + b"\n",),
            cast(Checkpointer, self.checkpointer) if with_checkpoints else None,
        )

    def play(self) -> None:
        """Call the child with every message of the scene that is not an answer."""
        while self.child.script:
            line = self.child.script[0]
            assert line.startswith(">"), f"not said: {line}"
            self.call(line)


def errors_of(lines: Iterable[str]) -> deque[Exception | None]:
    """What the checkpointer has to raise so that the answers of a scene come about."""
    messages = [json.loads(line[2:]) for line in lines if line.startswith(">")]
    called, errors = "", deque[Exception | None]()
    for message in messages:
        if message["action"] != "checkpoint":
            called = message["action"]
        elif called not in ("initialize", "leaseLost"):
            error = message["error"]
            errors.append(None if error is None else ERRORS[error]())
    return errors


def ends_badly(lines: list[str]) -> bool:
    """Whether a scene ends with the exit of a child that did not answer."""
    return any(line.startswith("=") for line in lines) and not json.loads(lines[-2][2:]).get("responseFor")


@pytest.mark.parametrize("name", SCENES)
def test_scene(name: str) -> None:
    play(lines_of(SCENES[name]))


@pytest.mark.parametrize("path", recorded(FOLDER), ids=lambda path: path.stem)
def test_recorded_conversation(path: Path) -> None:
    lines = lines_of_file(path)
    if any("RuntimeException" in line for line in lines):
        pytest.skip("an error that this daemon never sends")
    play(lines)


def play(lines: list[str]) -> None:
    stage = Stage(lines, errors_of(lines))
    if ends_badly(lines):
        with pytest.raises(CallFailedError, match="it exited with code"):
            stage.play()
    else:
        stage.play()
    assert not stage.child.script
    assert not stage.child.messages
    asked = [json.loads(line[2:]) for line in lines if line.startswith("<") and '"checkpoint"' in line]
    assert len(stage.checkpointer.asked) <= len(asked)


def test_noise_is_not_a_message() -> None:
    stage = Stage(lines_of(SCENES["noise"]))
    stage.play()
    assert len(stage.child.noise) == 5


START = ["> initialize LATEST,0", "< status initialize"]


def scene(*more: str) -> Stage:
    return Stage(lines_of("\n".join([*START, *more])))


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (["> processRecords 1", "< status initialize"], "it answered initialize instead of processRecords"),
        (["> processRecords 1", '< {"action":"status"}'], "a call that it does not name"),
        (["> processRecords 1", "= 7"], "it exited with code 7 during processRecords"),
        (["> processRecords 1", "?"], "it does not respond within 5 s during processRecords"),
        (["> shardEnded", "< status shardEnded"], "without a successful checkpoint"),
        (["> leaseLost", "= 0"], "it exited with code 0 during leaseLost"),
    ],
)
def test_children_that_fail(more: list[str], problem: str) -> None:
    stage = scene(*more)
    with pytest.raises(CallFailedError, match=problem) as caught:
        stage.play()
    assert caught.value.hung == ("respond" in problem)


def test_a_child_that_dies_before_initialize() -> None:
    stage = Stage(lines_of("> initialize LATEST,0\n= 1"))
    with pytest.raises(CallFailedError, match="code 1 during initialize"):
        stage.play()


def test_a_wrong_answer_to_shutdown_requested_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    stage = scene("> shutdownRequested", "< status processRecords", "> leaseLost", "< status leaseLost")
    stage.play()
    assert "it answered processRecords instead of shutdownRequested" in caplog.text


def test_a_second_answer_is_thrown_away(caplog: pytest.LogCaptureFixture) -> None:
    stage = scene(
        "> processRecords 1",
        "< status processRecords",
        "< status processRecords",
        "> leaseLost",
        "< status leaseLost",
    )
    stage.play()
    assert "answers processRecords, but no call is open" in caplog.text


def test_a_second_answer_that_was_not_thrown_away_yet_does_not_answer_the_next_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines = lines_of(
        "\n".join(
            [
                *START,
                "> processRecords 1",
                "< status processRecords",
                "< status processRecords",
                "> processRecords 2",
                "?",
            ]
        )
    )
    stage = Stage(lines, inline=False)
    with pytest.raises(CallFailedError, match="does not respond"):
        stage.play()
    assert "it answered processRecords before processRecords was called" in caplog.text


def test_a_request_between_two_calls_is_served_at_once() -> None:
    stage = Stage(
        lines_of("\n".join([*START, "> processRecords 1", "< status processRecords", "> checkpoint 1,-,-"])),
        inline=False,
    )
    stage.call(stage.child.script[0])
    stage.call(stage.child.script[0])
    stage.child.script.appendleft(lines_of("< checkpoint 1")[0])
    stage.child.speak()
    assert len(stage.later) == 1
    stage.later.pop()()
    assert not stage.child.script
    assert stage.checkpointer.asked == [("1", None)]


def test_a_request_that_arrives_when_a_call_ends_is_not_forgotten() -> None:
    """The reader queues the request while the call's thread still has the turn: the call serves it when it ends."""
    stage = scene("> processRecords 1", "< status processRecords", "< checkpoint 1", "> checkpoint 1,-,-")
    stage.play()
    assert not stage.child.script


def test_a_request_before_the_first_records_waits_for_them() -> None:
    stage = Stage(lines_of("\n".join(START)))
    stage.play()
    stage.child.script.extend(
        lines_of("< checkpoint -\n> processRecords 1\n> checkpoint -,-,-\n< status processRecords")
    )
    stage.child.speak()
    assert stage.checkpointer.asked == []
    stage.call(stage.child.script[0])
    assert stage.checkpointer.asked == [(None, None)]
    assert not stage.child.script


def test_a_request_after_the_last_call_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    stage = scene("> leaseLost", "< status leaseLost", "< checkpoint 1")
    stage.play()
    assert "after the last call" in caplog.text
    assert stage.checkpointer.asked == []


def test_a_request_whose_answer_cannot_be_written_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    stage = scene("> processRecords 1", "< status processRecords")
    stage.play()

    def broken(pieces: Iterable[bytes], stalled_after: float | None = None) -> None:
        raise ChildEndedError("it closed its standard input")

    cast(Any, stage.child).write = broken
    stage.child.script.extend(lines_of("< checkpoint 1"))
    stage.child.speak()
    assert stage.checkpointer.asked == [("1", None)]
    assert "no answer to a checkpoint of child 7: it closed its standard input" in caplog.text


def test_positions_are_passed_on_as_in_the_java_daemon() -> None:
    stage = scene(
        "> processRecords 101",
        "< checkpoint 101,3",
        "> checkpoint 101,3,-",
        "< checkpoint 101",
        "> checkpoint 101,-,-",
        "< checkpoint -,7",
        "> checkpoint -,7,-",
        "< status processRecords",
    )
    stage.play()
    assert stage.checkpointer.asked == [("101", 3), ("101", None), (None, None)]


def test_a_position_that_cannot_be_read_is_refused() -> None:
    stage = scene(
        "> processRecords 101",
        '< {"action":"checkpoint","sequenceNumber":"101","subSequenceNumber":"x"}',
        "> checkpoint 101,-,IllegalArgumentException",
        "< status processRecords",
    )
    stage.play()
    assert stage.checkpointer.asked == []


@pytest.mark.parametrize(("where", "asked"), [("shardEnded", None), ("processRecords", "SHARD_END")])
def test_shard_end_as_text_is_a_position_only_at_the_end_of_the_shard(where: str, asked: str | None) -> None:
    stage = scene(f"> {where}", "< checkpoint SHARD_END,0", "> checkpoint SHARD_END,0,-", f"< status {where}")
    stage.play()
    assert [position for position, _ in stage.checkpointer.asked] == [asked]


def test_throttling_at_the_end_of_the_shard_is_repeated_before_the_child_gets_an_answer() -> None:
    stage = scene("> shardEnded", "< checkpoint -", "> checkpoint -,-,-", "< status shardEnded")
    stage.checkpointer.errors = deque([ThrottledError("too fast")] * 3)
    stage.play()
    assert len(stage.checkpointer.asked) == 4


def test_throttling_at_the_end_of_the_shard_is_not_repeated_while_the_worker_stops() -> None:
    stage = scene(
        "> shardEnded", "< checkpoint -", "> checkpoint -,-,ThrottlingException", "< status shardEnded"
    )
    stage.checkpointer.errors = deque([ThrottledError("too fast")] * 3)
    stage.stopping = True
    with pytest.raises(CallFailedError, match="without a successful checkpoint"):
        stage.play()
    assert len(stage.checkpointer.asked) == 1


def test_throttling_at_the_end_of_the_shard_is_not_repeated_forever() -> None:
    stage = scene(
        "> shardEnded",
        "< checkpoint -",
        "> checkpoint -,-,ThrottlingException",
        "< checkpoint -",
        "> checkpoint -,-,-",
        "< status shardEnded",
    )
    stage.checkpointer.errors = deque([ThrottledError("too fast")] * 61)
    stage.play()
    assert 50 < len(stage.checkpointer.asked) < 70


def test_the_end_of_a_shard_stays_reached_although_a_later_checkpoint_fails() -> None:
    conversation = Conversation()
    for action in (INITIALIZE, SHARD_ENDED):
        conversation.begin(action, 0.0)
        if action == INITIALIZE:
            assert conversation.read(Status(action), conversation.calls) == Answered()
    request = CheckpointRequest()
    conversation.answer(request, None, reached_shard_end=True)
    conversation.answer(request, "ThrottlingException", reached_shard_end=False)
    assert conversation.read(Status(SHARD_ENDED), conversation.calls) == Answered()
    assert conversation.is_over


def test_throttling_elsewhere_is_the_childs_to_repeat() -> None:
    stage = scene(
        "> processRecords 1",
        "< checkpoint -",
        "> checkpoint -,-,ThrottlingException",
        "< status processRecords",
    )
    stage.checkpointer.errors = deque([ThrottledError("too fast")] * 3)
    stage.play()
    assert len(stage.checkpointer.asked) == 1


def test_an_unexpected_error_of_a_checkpoint_is_logged_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    stage = scene(
        "> processRecords 1",
        "< checkpoint -",
        "> checkpoint -,-,KinesisClientLibDependencyException",
        "< status processRecords",
    )
    stage.checkpointer.errors = deque([RuntimeError("what is this")])
    stage.play()
    assert "what is this" in caplog.text


def test_an_exception_that_was_printed_after_its_call_does_not_fail_the_next_one() -> None:
    stage = scene("> processRecords 1", "< status processRecords")
    stage.call(stage.child.script[0])
    stage.session.note_exception("Caught exception from action dispatch: x")
    stage.play()
    assert not stage.child.script


def test_an_exception_that_the_library_only_printed_fails_the_call() -> None:
    stage = scene("> processRecords 1", "< status processRecords")
    stage.call(stage.child.script[0])
    speak = stage.child.speak

    def prints_before() -> None:
        stage.session.note_exception("Caught exception from action dispatch: x")
        speak()

    cast(Any, stage.child).speak = prints_before
    with pytest.raises(CallFailedError, match=f"{PROCESS_RECORDS}.*exception|exception"):
        stage.play()
