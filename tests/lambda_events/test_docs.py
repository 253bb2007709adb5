"""The code of docs/lambda.md runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from kinesis_sdk.lambda_events import RecentProgress, kinesis_handler
from kinesis_sdk.testing import FakeAws
from tests.lambda_events.support import document, event
from tests.lambda_events.test_firehose import event as firehose_event
from tests.readme import ROOT, blocks, programs

PAGE = ROOT / "docs" / "lambda.md"


def names_of(section: int) -> dict[str, Any]:
    """What a Python block of the page defines."""
    block = programs(PAGE)[section]
    found: dict[str, Any] = {}
    exec(compile(block.text, f"lambda.md:{block.line}", "exec"), found)
    return found


def test_the_page_has_these_blocks() -> None:
    languages = [block.language for block in blocks(page=PAGE)]
    assert len(programs(PAGE)) == 7  # each has a test below
    assert {"yaml", "text"} < set(languages)


def test_a_function_behind_a_stream(capsys: Any) -> None:
    assert names_of(0)["handler"](document("kinesis-kpl-1.1.1"), None) == {"batchItemFailures": []}
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
    assert lines[-1].endswith("7 {'order': 11}")


def test_a_dead_letter(capsys: Any) -> None:
    assert names_of(1)["handler"](event(["1", "two", "3"]), None) == {"batchItemFailures": []}
    assert capsys.readouterr().out.startswith("to a queue: 100 1 invalid literal")


def test_a_memory(capsys: Any) -> None:
    handler = names_of(2)["handler"]
    for _ in range(2):
        handler(event(["a", "b"]), None)
    assert capsys.readouterr().out == "b'a'\nb'b'\n"


def test_progress_in_a_table() -> None:
    """It remembers the same as the one in memory."""
    client: Any = FakeAws().client("dynamodb")
    client.create_table(
        TableName="progress",
        KeySchema=[{"AttributeName": "record", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "record", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    for progress in (names_of(3)["TableProgress"](client, "progress"), RecentProgress()):
        seen: list[bytes] = []
        handler = kinesis_handler(progress=progress)(lambda record, seen=seen: seen.append(record.data))  # type: ignore[misc]
        for _ in range(2):
            handler(event(["a", "b"], ["c"]), None)
        assert seen == [b"a", b"b", b"c"]


def test_a_tumbling_window() -> None:
    response: Mapping[str, Any] = names_of(4)["handler"](document("kinesis-aws-guide-window"), None)
    assert response == {"state": {"1": 284, "2": 715}, "batchItemFailures": []}


def test_a_client_that_looks_up(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    # Without these, the client of the page would ask the network for credentials.
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    assert names_of(5)["handler"](event(["a", "b"]), None) == {"batchItemFailures": []}
    assert capsys.readouterr().out == "b'a'\nb'b'\n"


def test_a_transformation() -> None:
    response = names_of(6)["handler"](firehose_event(b'{"order": 1}', b'{"test": true}', b"no json"), None)
    assert [item["result"] for item in response["records"]] == ["Ok", "Dropped", "ProcessingFailed"]


def test_the_policy_is_json() -> None:
    assert "(iam/lambda.json)" in PAGE.read_text(encoding="utf-8")
    policy = json.loads((PAGE.parent / "iam" / "lambda.json").read_text(encoding="utf-8"))
    assert {"kinesis:GetRecords", "kinesis:SubscribeToShard"} <= set(policy["Statement"][0]["Action"])
