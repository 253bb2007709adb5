"""``kinesis-sdk verify``: what it shows, writes, refuses, and says when it is interrupted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from kinesis_sdk.verify import Removal, Verification
from tests.cli.invoking import invoke

pytest.importorskip("jsonschema")


def verify(*arguments: str, **options: Any) -> Result:
    return invoke("verify", *arguments, **options)


def test_a_dry_run_shows_steps_price_and_permissions() -> None:
    result = verify("--fake", "--dry-run", "--only", "kinesis-streams", "--only", "fan-out")
    assert "kinesis-streams   0.0900 USD  Create, describe, list and delete streams" in result.stdout
    assert "0.12 USD at most for all 2 steps in us-east-1, the fake." in result.stdout
    assert '"arn:aws:kinesis:us-east-1:123456789012:stream/kinesis-sdk-verify-*"' in result.stdout
    document = json.loads(verify("--fake", "--dry-run", "--json").stdout)
    assert document["schema"] == "verify/1"
    assert len(document["plan"]["steps"]) == 24
    assert {part["Effect"] for part in document["policy"]["Statement"]} == {"Allow"}


def test_a_region_without_known_prices_is_said() -> None:
    output = verify("--fake", "--dry-run", "--region", "eu-west-1", "--only", "kinesis-reading").stdout
    assert "times 2, because those of eu-west-1 are not known here" in output


def test_a_run_prints_a_report_and_saves_the_json(tmp_path: Path) -> None:
    result = verify("--fake", "--only", "kinesis-streams", "--report", str(tmp_path / "a.json"))
    assert "kinesis-streams  same      27 facts" in result.stdout
    assert "1 same. At most 0.09 USD. 2 streams and tables made and removed." in result.stdout
    saved = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    printed = json.loads(verify("--fake", "--only", "kinesis-streams", "--json").stdout)
    for one in (saved, printed):
        del one["date"]
        del one["steps"][0]["seconds"]
    assert saved == printed
    assert (saved["service"], saved["complete"], saved["left"]) == ("fake", True, 0)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--fake", "--max-usd", "0.5"), 4, "the plan costs 0.99 USD, more than --max-usd 0.5"),
        (("--fake", "--only", "none"), 2, "only='none' is invalid: expected one of contracts"),
        (("--fake", "--run", "0123abcd"), 2, "--run is for --remove"),
        (("--fake", "--remove", "--run", "abc"), 2, "eight hexadecimal digits"),
        (("--fake", "--endpoint-url", "http://x"), 2, "--fake has an account of its own"),
        (("--fake", "--max-usd", "0"), 2, "max-usd"),
    ],
)
def test_what_is_refused(arguments: tuple[str, ...], code: int, message: str) -> None:
    result = verify(*arguments, code=code)
    assert message in result.stderr


def test_a_run_elsewhere_asks_first() -> None:
    result = verify("--endpoint-url", "http://127.0.0.1:1", "--region", "us-east-1", "--only", "sink", code=4)
    assert "another endpoint, priced as if it were AWS" in result.stdout
    assert "--yes" in result.stderr


def test_nothing_to_remove() -> None:
    result = verify("--fake", "--remove", "--json")
    assert json.loads(result.stdout) == {"schema": "verify/1", "removed": [], "left": [], "unmarked": []}
    assert verify("--fake", "--remove").stdout == "There is nothing to remove.\n"


@pytest.mark.parametrize("is_clean", [True, False])
def test_an_interrupted_run_says_whether_something_is_left(
    is_clean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(self: Verification, _tell: Any) -> None:
        self.is_clean = is_clean
        raise KeyboardInterrupt

    monkeypatch.setattr(Verification, "run", run)
    result = verify("--fake", "--only", "sink", code=130)
    assert ("Everything that was made is removed." in result.stderr) == is_clean
    assert ("$ kinesis-sdk verify --remove --run " in result.stderr) != is_clean


def test_what_could_not_be_removed_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    from kinesis_sdk.verify import Leftover, Remover

    left = Leftover("stream", "kinesis-sdk-verify-0123abcd-001x", "0123abcd")
    monkeypatch.setattr(Remover, "find", lambda _self, _run=None: [left])
    monkeypatch.setattr(Remover, "remove", lambda *_, **__: Removal((), (left,), ()))
    result = verify("--fake", "--remove", "--yes", code=1)
    assert "stream kinesis-sdk-verify-0123abcd-001x: run 0123abcd" in result.stderr
    assert "0 removed, 1 could not be removed in time: try again." in result.stdout
    assert verify("--fake", "--remove", "--dry-run").stdout == "0 removed, 1 would be removed.\n"
