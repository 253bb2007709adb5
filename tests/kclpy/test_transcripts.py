"""Our classes beside recorded conversations of amazon_kclpy: the same bytes, the same calls of the processor, in the same order."""

from __future__ import annotations

import io
import json

import pytest

from tests.kclpy.processors import converse
from tests.kclpy.transcripts import TRANSCRIPTS, Transcript


def test_there_are_transcripts_of_every_version_and_refusal() -> None:
    names = {transcript.name for transcript in TRANSCRIPTS}
    assert {"kclpy-v1", "kclpy-v2", "kclpy-v3", "kclpy-v1-shard-end", "kclpy-raises"} <= names
    assert len([name for name in names if name.startswith("kclpy-refused-")]) == 6


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda transcript: transcript.name)
def test_ours_converses_as_the_real_library(transcript: Transcript) -> None:
    errors = io.StringIO()
    assert converse("kinesis_sdk.kclpy", transcript.processor, transcript.sent, errors) == transcript.lines
    failed = transcript.processor.startswith(("Raising", "Bare")) or transcript.name.endswith("-always")
    assert ("Caught exception from action dispatch" in errors.getvalue()) == failed


@pytest.mark.parametrize(
    "transcript",
    [transcript for transcript in TRANSCRIPTS if transcript.name in {"kclpy-v3", "kclpy-v3-partial"}],
    ids=lambda transcript: transcript.name,
)
def test_fields_that_a_later_daemon_may_add_are_ignored(transcript: Transcript) -> None:
    def extended(line: str) -> str:
        message = {**json.loads(line), "traceId": {"a": [1, {"b": None}]}}
        for record in message.get("records", ()):
            record["schema"] = {"id": 7}
        return json.dumps(message)

    sent = [extended(line) for line in transcript.sent]
    noted = converse("kinesis_sdk.kclpy", transcript.processor, sent, io.StringIO())
    assert [line for line in noted if line[0] != ">"] == [line for line in transcript.lines if line[0] != ">"]
