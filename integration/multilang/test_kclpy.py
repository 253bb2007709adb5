"""amazon_kclpy itself, beside our classes and our records of its conversations."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from integration.multilang.scene import in_our_name
from tests import HANG
from tests.kclpy.transcripts import TRANSCRIPTS

ROOT = Path(__file__).parents[2]
PROCESSORS = ROOT / "tests" / "kclpy" / "processors.py"


def python(*arguments, path, given="", cwd=ROOT):
    """Run Python with folders for its modules; returns the ended process."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        input=given.encode(),
        capture_output=True,
        check=False,
        cwd=cwd,
        env=environment,
        timeout=HANG,
    )


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda transcript: transcript.name)
def test_the_real_library_converses_as_recorded(transcript, amazon_kclpy):
    done = python(
        PROCESSORS, "--converse", "amazon_kclpy", transcript.processor,
        path=[amazon_kclpy], given="".join(f"{line}\n" for line in transcript.sent),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().splitlines() == transcript.lines


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda transcript: transcript.name)
def test_both_are_the_same_process_at_the_end_of_a_pipe(transcript, amazon_kclpy):
    given = "".join(f"{line}\n" for line in transcript.sent)
    done = [
        python(PROCESSORS, library, transcript.processor, path=path, given=given)
        for library, path in (("amazon_kclpy", [amazon_kclpy]), ("kinesis_sdk.kclpy", [ROOT]))
    ]
    assert done[0].stdout == done[1].stdout
    assert done[0].returncode == done[1].returncode
    told = [[line for line in one.stderr.splitlines() if line.startswith(b"[")] for one in done]
    assert told[0] == told[1]


def test_amazons_own_tests_pass_with_our_classes(amazon_kclpy, tmp_path):
    # Two modules that the tests import and that the source distribution lacks.
    (tmp_path / "mock.py").write_text("from unittest.mock import Mock as Mock\n")
    (tmp_path / "utils.py").write_text("from io import StringIO as make_io_obj\n")
    files = sorted((amazon_kclpy / "test").glob("test_*.py"))
    for file in files:
        (tmp_path / file.name).write_text(in_our_name(file.read_text()))
    done = python(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path, path=[tmp_path, ROOT], cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout.decode()
    assert b"5 passed" in done.stdout


def surface(module):
    """Return the public names of a module: functions and classes of its library, and what its classes offer."""
    found = {}
    for name, value in vars(module).items():
        if name.startswith("_") or not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        found[name] = (
            {member for member in dir(value) if not member.startswith("_")}
            if inspect.isclass(value)
            else set()
        )
    return found


def test_every_public_name_is_there(amazon_kclpy, monkeypatch):
    monkeypatch.syspath_prepend(str(amazon_kclpy))
    try:
        for name in ("kcl", "messages", "dispatch", "checkpoint_error", "v2.processor", "v3.processor"):
            theirs = surface(importlib.import_module(f"amazon_kclpy.{name}"))
            ours = surface(importlib.import_module(f"kinesis_sdk.kclpy.{name}"))
            assert theirs
            for public, members in theirs.items():
                assert public in ours, f"{name}.{public}"
                assert members <= ours[public], f"{name}.{public}: {members - ours[public]}"
    finally:
        for loaded in [loaded for loaded in sys.modules if loaded.split(".")[0] == "amazon_kclpy"]:
            del sys.modules[loaded]


def test_the_sample_application_with_another_import_line(amazon_kclpy, tmp_path):
    sample = (amazon_kclpy / "samples" / "sample_kclpy_app.py").read_text()
    changed = in_our_name(sample)
    differing = [
        (old, new) for old, new in zip(sample.splitlines(), changed.splitlines(), strict=True) if old != new
    ]
    assert differing == [
        ("from amazon_kclpy import kcl", "from kinesis_sdk.kclpy import kcl"),
        ("from amazon_kclpy.v3 import processor", "from kinesis_sdk.kclpy.v3 import processor"),
    ]
    programs = [tmp_path / "theirs.py", tmp_path / "ours.py"]
    programs[0].write_text(sample)
    programs[1].write_text(changed)
    sent = next(one for one in TRANSCRIPTS if one.name == "kclpy-v3-shard-end").sent
    given = "".join(f"{line}\n" for line in sent)
    theirs, ours = (python(program, path=[amazon_kclpy, ROOT], given=given) for program in programs)
    assert (ours.returncode, ours.stdout, ours.stderr) == (0, theirs.stdout, theirs.stderr)
    answers = [json.loads(line) for line in ours.stdout.splitlines() if line]
    assert [answer["action"] for answer in answers] == [
        "status",
        "checkpoint",
        "status",
        "checkpoint",
        "status",
    ]


def test_a_failed_callback_ends_the_process_if_that_is_wanted():
    transcript = next(one for one in TRANSCRIPTS if one.name == "kclpy-raises")
    given = "".join(f"{line}\n" for line in transcript.sent)
    done = python(PROCESSORS, "kinesis_sdk.kclpy", "Raising", "exit", path=[ROOT], given=given)
    assert done.returncode == 1
    assert [json.loads(line)["responseFor"] for line in done.stdout.splitlines() if line] == ["initialize"]
    assert b"not this time" in done.stderr
