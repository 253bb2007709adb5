"""The wheel as users get it: built, installed into an empty environment, imported, and its command run."""

from __future__ import annotations

import os
import subprocess
import tarfile
import venv
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from hatch_build import COMPILED
from integration.building import ROOT, build, offline
from tests.readme import blocks


def test_the_sdist_holds_everything_that_is_tracked(tmp_path: Path) -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=False, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("this tree is not a git repository, so tracked files are unknown")
    with tarfile.open(build("sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    present = {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}
    assert present <= names


def test_a_clone_installs_into_an_empty_environment_and_works(wheel: Path, tmp_path: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert wheel.name.endswith("-py3-none-any.whl"), "pure Python, unless `make wheel-compiled` builds it"
    assert not [name for name in names if name.endswith(tuple(EXTENSION_SUFFIXES))]
    assert set(COMPILED) <= set(names), "what that would compile"
    assert "kinesis_sdk/py.typed" in names
    assert "kinesis_sdk/testing/data/flights-20k.ndjson.gz" in names
    for page in (ROOT / "kinesis_sdk" / "cli" / "web" / "assets").iterdir():
        assert f"kinesis_sdk/cli/web/assets/{page.name}" in names
    assert not [
        name for name in names if name.startswith(("tests/", "integration/", "benchmarks/", "tools/"))
    ]
    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty" / "bin" / "python"
    # As the README says, in a folder with the files of a clone and nothing else.
    (install,) = (block.text.split() for block in blocks("") if block.text.startswith("pip install"))
    with tarfile.open(build("sdist", tmp_path)) as archive:
        archive.extractall(tmp_path, filter="data")
    (clone,) = (path for path in tmp_path.glob("kinesis_sdk-*") if path.is_dir())
    environment = {**os.environ, **offline()}
    subprocess.run([python, "-m", *install, "--quiet"], check=True, cwd=clone, env=environment)
    code = (
        "import kinesis_sdk; from kinesis_sdk.testing import FakeAws\n"
        "client = FakeAws().client('kinesis'); client.create_stream(StreamName='s', ShardCount=1)\n"
        "with kinesis_sdk.Producer(client=client) as producer:\n"
        "    print(producer.put('s', 'key', b'data').result(300).shard_id)\n"
    )
    out = subprocess.run(
        [python, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path
    ).stdout
    assert out.strip() == "shardId-000000000000"
    # Without the cli extra there is the fake; the rest explains itself.
    command = tmp_path / "empty" / "bin" / "kinesis-sdk"
    shown = subprocess.run([command, "fake", "--help"], check=True, capture_output=True, text=True)
    assert "--create-stream" in shown.stdout
    plain = subprocess.run([command], check=False, capture_output=True, text=True)
    assert plain.returncode == 2
    assert "pip install '.[cli]'" in plain.stderr
