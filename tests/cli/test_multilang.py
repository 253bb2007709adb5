"""`kinesis-sdk multilang` up to the point at which processes start; integration/multilang has the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result

from tests.cli.invoking import invoke

GOOD = "executableName = sh app.sh\nstreamName = orders\napplicationName = billing\nregionName = us-east-1\n"


def run(tmp_path: Path, text: str, *options: str, code: int = 0) -> Result:
    file = tmp_path / "app.properties"
    file.write_text(text)
    return invoke("multilang", *options, str(file), code=code)


def test_a_file_is_checked_without_starting_anything(tmp_path: Path) -> None:
    result = run(tmp_path, GOOD, "--check")
    assert "can be run." in result.output
    result = run(tmp_path, f"{GOOD}maxActiveThreads = 4\nfailoverTimeMilis = 1\n", "--check", "-p")
    assert "maxActiveThreads: each shard has its own threads" in result.output
    assert "did you mean failoverTimeMillis?" in result.output


def test_what_a_check_found_as_json(tmp_path: Path) -> None:
    result = run(tmp_path, f"{GOOD}maxActiveThreads = 4\n", "--check", "--json")
    found = json.loads(result.stdout)
    assert found["event"] == "checked"
    assert [each["key"] for each in found["notes"]] == ["maxActiveThreads"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "applicationName"),
        (GOOD.replace("sh app.sh", "no-such-program"), "it was not found in PATH"),
        (f"{GOOD}failoverTimeMillis = 10s\n", "failoverTimeMillis='10s' is invalid"),
        (f"{GOOD}AwsCredentialsProvider = com.example.Mine\n", "a Java class cannot be used from Python"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    result = run(tmp_path, text, "--check", code=2)
    assert problem in result.output


@pytest.mark.parametrize("arguments", [[], ["a.properties", "-p", "a.properties"], ["nothing.properties"]])
def test_the_file_is_given_once(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.properties").write_text(GOOD)
    invoke("multilang", *arguments, code=2)
