"""The process of a processor: it reads the daemon's messages from a pipe, calls the processor, and responds."""

from __future__ import annotations

import io
import json
import sys
import traceback
from collections.abc import Mapping
from typing import Any, Literal, TextIO

from kinesis_sdk.kclpy import messages
from kinesis_sdk.kclpy.checkpoint_error import CheckpointError
from kinesis_sdk.kclpy.dispatch import MalformedAction, message_decode
from kinesis_sdk.kclpy.v3.processor import as_version_3

__all__ = ["CheckpointError", "Checkpointer", "KCLProcess", "RecordProcessorBase"]

ErrorMode = Literal["continue", "exit"]
"""Meaning of a failed callback, see `KCLProcess`."""


class _Pipe:
    """Lines from and to the daemon."""

    def __init__(self, input_file: TextIO, output_file: TextIO) -> None:
        self._input = input_file
        self._output = output_file
        self._unread: list[str] = []

    def read_line(self) -> str:
        """Return the next line; empty at the end of the input."""
        return self._unread.pop() if self._unread else self._input.readline()

    def unread(self, line: str) -> None:
        """Return this line from the next `read_line`."""
        self._unread.append(line)

    def load_action(self, line: str) -> messages.Message:
        """Decode a line. Raises the errors of `message_decode`, and ValueError if the line is not JSON."""
        return message_decode(json.loads(line))

    def write_action(self, response: Mapping[str, object]) -> None:
        """Write a message on a line of its own, even if a library has printed a partial line before."""
        self._output.write(f"\n{json.dumps(response)}\n")
        self._output.flush()


class Checkpointer:
    """Stores checkpoints by requests to the daemon.

    Args:
        io_handler: The pipe.
    """

    def __init__(self, io_handler: Any) -> None:
        self.io_handler = io_handler

    def checkpoint(self, sequence_number: str | None = None, sub_sequence_number: int | None = None) -> None:
        """Store that all records up to a position, inclusive, are processed.

        Args:
            sequence_number: Sequence number of a delivered record; None means all records delivered so far.
            sub_sequence_number: Index inside an aggregate; None means 0, the *first* record of an aggregate.

        Raises:
            CheckpointError: If the checkpoint was not stored; ``value`` names the reason.
        """
        self.io_handler.write_action(
            {
                "action": "checkpoint",
                "sequenceNumber": sequence_number,
                "subSequenceNumber": sub_sequence_number,
            }
        )
        line = self.io_handler.read_line()
        if not line:
            # The daemon is gone, and another worker continues from the last checkpoint.
            raise CheckpointError("ShutdownException")
        answer = self.io_handler.load_action(line)
        if not isinstance(answer, messages.CheckpointInput):
            # A thread of the processor checkpoints between two calls, so this line is the next call. Its status has to be
            # sent: the daemon waits for it.
            self.io_handler.unread(line)
            raise CheckpointError("InvalidStateException")
        if answer.error is not None:
            raise CheckpointError(answer.error)


class RecordProcessorBase:
    """Processor of one shard, version 1. New programs use `kinesis_sdk.kclpy.v3.processor.RecordProcessorBase`."""

    version = 1

    def initialize(self, shard_id: str) -> None:
        """Prepare for the shard; called once, first."""
        raise NotImplementedError

    def process_records(
        self, records: list[messages.Record], checkpointer: messages.CheckpointerLike
    ) -> None:
        """Process a batch; checkpoint the processed records."""
        raise NotImplementedError

    def shutdown(self, checkpointer: messages.CheckpointerLike, reason: str) -> None:
        """Finish: with the reason ``TERMINATE``, ``checkpointer.checkpoint()`` must be called; ``ZOMBIE`` means a lost lease."""
        raise NotImplementedError

    def shutdown_requested(self, checkpointer: messages.CheckpointerLike) -> None:
        """Checkpoint for the last time before the worker stops; does nothing unless it is overridden."""


class KCLProcess:
    """The main loop of a child of a MultiLangDaemon.

    Args:
        record_processor: A processor of version 1, 2 or 3.
        input_file: Messages of the daemon; None means standard input, as UTF-8.
        output_file: Answers; None means standard output.
        error_file: Tracebacks of failed callbacks; None means standard error.
        on_error: Reaction to an exception in a callback. In both cases, the traceback is written to ``error_file``.

            * ``"continue"``: success is reported to the daemon, as amazon_kclpy does. The batch is **lost** as soon as a
              later batch is checkpointed.
            * ``"exit"``: `run` ends the process with status 1 if ``initialize``, ``process_records`` or ``shard_ended``
              fails. Our daemon starts another process, which gets the records after the last checkpoint. Amazon's daemon
              ends with status 1, with all of its shards, and has to be started again. After a failed ``lease_lost`` or
              ``shutdown_requested``, no record can be lost, so the process continues.

    Raises:
        ValueError: If ``on_error`` is neither.
    """

    def __init__(
        self,
        record_processor: Any,
        input_file: TextIO | None = None,
        output_file: TextIO | None = None,
        error_file: TextIO | None = None,
        *,
        on_error: ErrorMode = "continue",
    ) -> None:
        if on_error not in {"continue", "exit"}:
            raise ValueError(f'on_error={on_error!r} is invalid: expected "continue" or "exit"')
        if input_file is None:
            input_file = sys.stdin
            # The daemon writes UTF-8 whatever the locale is; an encoding of the locale would garble partition keys.
            if isinstance(input_file, io.TextIOWrapper):
                input_file.reconfigure(encoding="utf-8")
        self._errors = sys.stderr if error_file is None else error_file
        self._on_error = on_error
        self.io_handler: _Pipe = _Pipe(input_file, sys.stdout if output_file is None else output_file)
        self.checkpointer: Checkpointer = Checkpointer(self.io_handler)
        self.processor: Any = as_version_3(record_processor)

    def run(self) -> None:
        """Serve the daemon until it closes the input.

        Raises:
            MalformedAction: If the daemon sends an unknown message.
            SystemExit: If a callback calls `sys.exit`, or fails with ``on_error="exit"``.
        """
        while line := self.io_handler.read_line():
            action = self.io_handler.load_action(line)
            if not isinstance(action, messages.MessageDispatcher):
                raise MalformedAction(f"received {type(action).__name__} while no callback was running")
            try:
                action.dispatch(self.checkpointer, self.processor)
            except Exception as error:
                self._report(error)
                if self._on_error == "exit" and not isinstance(
                    action, (messages.LeaseLostInput, messages.ShutdownRequestedInput)
                ):
                    raise SystemExit(1) from error
            self.io_handler.write_action({"action": "status", "responseFor": action.action})

    def _report(self, error: Exception) -> None:
        self._errors.write(f"Caught exception from action dispatch: {error}\n")
        traceback.print_exception(type(error), error, error.__traceback__, file=self._errors)
        self._errors.flush()
