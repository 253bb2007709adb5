"""The code of docs/lambda.md runs."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from typing import Any

import botocore.session
import pytest
import yaml
from botocore.validate import validate_parameters

from kinesis_sdk.lambda_events import RecentProgress, kinesis_handler
from kinesis_sdk.testing import FakeAws
from tests.lambda_events.support import (
    discarded_message,
    document,
    event,
    firehose_event,
    stored,
    table_event,
)
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
    assert len(programs(PAGE)) == 10  # each has a test below
    assert {"yaml", "text"} < set(languages)


def test_a_function_behind_a_stream(capsys: Any) -> None:
    assert names_of(0)["handler"](document("kinesis-kpl-1.1.1"), None) == {"batchItemFailures": []}
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
    assert lines[-1].endswith("7 {'order': 11}")


def test_a_dead_letter(capsys: Any) -> None:
    assert names_of(1)["handler"](event(["1", "two", "3"]), None) == {"batchItemFailures": []}
    assert capsys.readouterr().out.startswith("to a queue: 100 1 invalid literal")


def test_metrics(capsys: Any) -> None:
    names_of(2)["handler"](event(["1"], ["2", "3"]), None)
    assert json.loads(capsys.readouterr().out)["RecordsProcessed"] == 3


def test_a_memory(capsys: Any) -> None:
    handler = names_of(3)["handler"]
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
    for progress in (names_of(4)["TableProgress"](client, "progress"), RecentProgress()):
        seen: list[bytes] = []
        handler = kinesis_handler(progress=progress)(lambda record, seen=seen: seen.append(record.data))  # type: ignore[misc]
        for _ in range(2):
            handler(event(["a", "b"], ["c"]), None)
        assert seen == [b"a", b"b", b"c"]


def test_a_tumbling_window() -> None:
    response: Mapping[str, Any] = names_of(5)["handler"](document("kinesis-aws-guide-window"), None)
    assert response == {"state": {"1": 284, "2": 715}, "batchItemFailures": []}


def test_a_client_that_looks_up(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    # Without these, the client of the page would ask the network for credentials.
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    assert names_of(6)["handler"](event(["a", "b"]), None) == {"batchItemFailures": []}
    assert capsys.readouterr().out == "b'a'\nb'b'\n"


def test_changes_of_a_table(capsys: Any) -> None:
    assert names_of(7)["handler"](table_event(1, 2), None) == {"batchItemFailures": []}
    assert capsys.readouterr().out.splitlines()[0] == "MODIFY {'id': Decimal('1')} None"


def test_a_replay(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    names = names_of(8)
    aws, numbers = stored(b"1", b"2")
    names["kinesis"] = aws.client("kinesis")
    names["handler"]({"Records": [{"body": json.dumps(discarded_message(numbers[0], numbers[1], 2))}]}, None)
    assert capsys.readouterr().out == "again: b'1'\nagain: b'2'\n"


def test_a_transformation() -> None:
    response = names_of(9)["handler"](firehose_event(b'{"order": 1}', b'{"test": true}', b"no json"), None)
    assert [item["result"] for item in response["records"]] == ["Ok", "Dropped", "ProcessingFailed"]


def test_the_policy_is_json() -> None:
    assert "(iam/lambda.json)" in PAGE.read_text(encoding="utf-8")
    policy = json.loads((PAGE.parent / "iam" / "lambda.json").read_text(encoding="utf-8"))
    assert {"kinesis:GetRecords", "kinesis:SubscribeToShard"} <= set(policy["Statement"][0]["Action"])


class Template(yaml.SafeLoader):
    """Reads a template of CloudFormation; `!GetAtt Queue.Arn` becomes a tuple of both names."""


Template.add_constructor("!GetAtt", lambda loader, node: tuple(loader.construct_scalar(node).split(".")))  # type: ignore[arg-type]


def references(value: Any) -> list[tuple[str, ...]]:
    """All `!GetAtt` in a template."""
    if isinstance(value, tuple):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [found for one in inner for found in references(one)]


def test_the_template_is_what_lambda_accepts() -> None:
    """The properties of SAM's event are the parameters of the API that creates the mapping, apart from two."""
    (block,) = blocks("yaml", PAGE)
    template = yaml.load(block.text, Template)
    assert template["Transform"] == "AWS::Serverless-2016-10-31"
    resources = template["Resources"]
    assert {name: one["Type"] for name, one in resources.items()} == {
        "Orders": "AWS::Serverless::Function",
        "OrderStream": "AWS::Kinesis::Stream",
        "Discarded": "AWS::SQS::Queue",
    }
    assert references(template) == [("Discarded", "Arn"), ("OrderStream", "Arn"), ("Discarded", "Arn")]
    (event,) = resources["Orders"]["Properties"]["Events"].values()
    assert event["Type"] == "Kinesis"
    mapping = dict(event["Properties"])
    assert mapping.pop("Stream") == ("OrderStream", "Arn")
    failed = mapping["DestinationConfig"]["OnFailure"]
    assert (failed.pop("Type"), failed.pop("Destination")) == ("SQS", ("Discarded", "Arn"))
    service = botocore.session.get_session().get_service_model("lambda")
    parameters = {
        "FunctionName": "orders",
        "EventSourceArn": "arn:aws:kinesis:us-east-1:123456789012:stream/orders",
    }
    shape = service.operation_model("CreateEventSourceMapping").input_shape
    validate_parameters({**parameters, **mapping}, shape)
    assert set(mapping) <= set(shape.members)
    assert set(mapping["FunctionResponseTypes"]) <= set(shape.members["FunctionResponseTypes"].member.enum)
    assert mapping["StartingPosition"] in shape.members["StartingPosition"].enum
    runtime = service.shape_for("Runtime").enum
    assert resources["Orders"]["Properties"]["Runtime"] in runtime


def test_the_block_for_the_cdk_names_arguments_of_the_cdk() -> None:
    """As aws-cdk-lib 2.275 has them in `KinesisEventSource`; the CDK itself is not installed."""
    (block,) = blocks("text", PAGE)
    (call,) = [
        node for node in ast.walk(ast.parse(block.text)) if isinstance(node, ast.Call) and node.keywords
    ]
    assert ast.unparse(call.func) == "KinesisEventSource"
    assert {keyword.arg for keyword in call.keywords} == {
        *(
            "starting_position",
            "report_batch_item_failures",
            "bisect_batch_on_error",
            "retry_attempts",
            "on_failure",
        ),
    }
    (yaml_block,) = blocks("yaml", PAGE)
    for keyword in call.keywords:
        words = "".join(part.capitalize() for part in str(keyword.arg).split("_"))
        named = {"BisectBatchOnError": "BisectBatchOnFunctionError", "RetryAttempts": "MaximumRetryAttempts"}
        named["ReportBatchItemFailures"] = "FunctionResponseTypes: [ReportBatchItemFailures]"
        assert re.search(rf"\b{re.escape(named.get(words, words))}", yaml_block.text), keyword.arg
