"""Processors for amazon_kclpy's interface, to be run with either library; standard library only.

``python processors.py LIBRARY NAME [on_error]`` is a child of a MultiLangDaemon: LIBRARY is ``amazon_kclpy`` or
``kinesis_sdk.kclpy``. What a callback sees is written to standard error, one JSON array a line, unless ``QUIET`` is set in the environment.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module


def make(library, name, tell):
    """Return the process class of a library and a processor.

    Args:
        library: Name of the package.
        name: Name of the processor.
        tell: Called with each call of a callback and with each refused checkpoint.
    """
    kcl = import_module(f"{library}.kcl")
    v2 = import_module(f"{library}.v2.processor")
    v3 = import_module(f"{library}.v3.processor")

    def checkpoint(checkpointer, *position):
        try:
            checkpointer.checkpoint(*position)
        except kcl.CheckpointError as error:
            tell("refused", error.value, str(error))

    def seen(records):
        return [
            [
                record.sequence_number,
                record.sub_sequence_number,
                record.partition_key,
                list(record.binary_data),
                record.data,
                record.timestamp_millis,
                record.approximate_arrival_timestamp.timestamp(),
                record.get("sequenceNumber"),
                record["partitionKey"],
            ]
            for record in records
        ]

    def last(records):
        return records[-1].sequence_number, records[-1].sub_sequence_number

    class Version3(v3.RecordProcessorBase):
        def initialize(self, given):
            tell("initialize", given.action, given.shard_id, given.sequence_number, given.sub_sequence_number)

        def process_records(self, given):
            tell("process_records", given.action, given.millis_behind_latest, seen(given.records))
            if given.records:
                checkpoint(given.checkpointer, *last(given.records))

        def lease_lost(self, given):
            tell("lease_lost", given.action)

        def shard_ended(self, given):
            tell("shard_ended", given.action)
            checkpoint(given.checkpointer)

        def shutdown_requested(self, given):
            tell("shutdown_requested", given.action)
            checkpoint(given.checkpointer)

    class Version2(v2.RecordProcessorBase):
        def initialize(self, given):
            tell("initialize", given.action, given.shard_id, given.sequence_number, given.sub_sequence_number)

        def process_records(self, given):
            tell("process_records", given.action, given.millis_behind_latest, seen(given.records))
            checkpoint(given.checkpointer, given.records[-1].sequence_number)

        def shutdown(self, given):
            tell("shutdown", given.action, given.reason)
            checkpoint(given.checkpointer)

    class Version2Asked(Version2):
        def shutdown_requested(self, given):
            tell("shutdown_requested", given.action)
            checkpoint(given.checkpointer)

    class Version1(kcl.RecordProcessorBase):
        def initialize(self, shard_id):
            tell("initialize", shard_id)

        def process_records(self, records, checkpointer):
            tell("process_records", seen(records))
            checkpoint(checkpointer)

        def shutdown(self, checkpointer, reason):
            tell("shutdown", reason)
            checkpoint(checkpointer)

    class Raising(Version3):
        """Fails on each first delivery; a later checkpoint passes that batch if the library lets it."""

        failed = False

        def process_records(self, given):
            if not self.failed:
                self.failed = True
                raise ValueError("not this time")
            super().process_records(given)

    class RaisingEverywhere(Version3):
        def initialize(self, given):
            raise ValueError("initialize")

        def process_records(self, given):
            raise ValueError("process_records")

        def lease_lost(self, given):
            raise ValueError("lease_lost")

        def shutdown_requested(self, given):
            raise ValueError("shutdown_requested")

    class Repeating(Version3):
        """Repeats a refused checkpoint twice, as the sample application does, and keeps the last error."""

        def process_records(self, given):
            for _ in range(3):
                try:
                    given.checkpointer.checkpoint(*last(given.records))
                except kcl.CheckpointError as error:
                    tell("refused", error.value, str(error))
                else:
                    return
            given.checkpointer.checkpoint(*last(given.records))

    class Exiting(Version3):
        def process_records(self, given):
            sys.exit(3)

    class Bare(v3.RecordProcessorBase):
        """Overrides nothing."""

    class Partial(Version3):
        """Checkpoints in the middle of a batch, and by each of the forms of a position."""

        def process_records(self, given):
            first = given.records[0]
            checkpoint(given.checkpointer, first.sequence_number)
            checkpoint(given.checkpointer, first.sequence_number, first.sub_sequence_number)
            checkpoint(given.checkpointer, None)
            checkpoint(given.checkpointer)

    class Standing(Version3):
        """Checkpoints the first record in the middle of an aggregate, and nothing after it."""

        stands = False

        def process_records(self, given):
            tell("process_records", len(given.records))
            for record in given.records:
                if record.sub_sequence_number == 1 and not self.stands:
                    self.stands = True
                    checkpoint(given.checkpointer, record.sequence_number, record.sub_sequence_number)

        def shutdown_requested(self, given):
            tell("shutdown_requested", given.action)

    kinds = {
        kind.__name__: kind
        for kind in (
            Version3, Version2, Version2Asked, Version1, Raising, RaisingEverywhere, Repeating, Exiting, Bare, Partial, Standing,
        )
    }  # fmt: skip
    return kcl.KCLProcess, kinds[name]()


class _Log:
    """Files of a child that note everything in its order; see `transcripts`."""

    def __init__(self, lines):
        self.noted = []
        self._lines = list(lines)
        self._partial = ""

    def readline(self):
        if not self._lines:
            return ""
        self.noted.append(f"> {self._lines[0]}")
        return f"{self._lines.pop(0)}\n"

    def write(self, text):
        self._partial += text

    def flush(self):
        # Each message is written with an empty line before it and flushed as a whole.
        begin, line, end = self._partial.split("\n")
        assert begin == end == ""
        self.noted.append(f"< {line}")
        self._partial = ""


def converse(library, name, lines, errors):
    """Run a processor in this process on these lines of a daemon, and return the transcript.

    Args:
        library: ``amazon_kclpy`` or ``kinesis_sdk.kclpy``.
        name: Name of the processor.
        lines: The daemon's messages.
        errors: File for tracebacks.
    """
    log = _Log(lines)
    process, processor = make(library, name, lambda *event: log.noted.append(f"! {json.dumps(event)}"))
    try:
        process(processor, log, log, errors).run()
    except SystemExit as exit_:
        log.noted.append(f"= {exit_.code}")
    return log.noted


def main(library, name, *on_error):
    """Be a child of a daemon."""

    def tell(*event):
        if not os.environ.get("QUIET"):
            sys.stderr.write(f"{json.dumps(event)}\n")

    process, processor = make(library, name, tell)
    process(processor, **({"on_error": on_error[0]} if on_error else {})).run()


if __name__ == "__main__":
    if sys.argv[1] == "--converse":
        for noted in converse(sys.argv[2], sys.argv[3], sys.stdin.read().splitlines(), sys.stderr):
            sys.stdout.write(f"{noted}\n")
    else:
        main(*sys.argv[1:])
