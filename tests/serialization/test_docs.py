"""The code of docs/serialization.md runs, and is short."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kinesis_sdk.producer import producer as producer_module
from kinesis_sdk.serialization import glue_registry
from kinesis_sdk.testing import FakeAws
from tests.readme import DOCS, programs
from tests.serialization.messages import Order

PAGE = (DOCS / "serialization.md").read_text(encoding="utf-8")
BLOCKS = [block.text for block in programs(DOCS / "serialization.md")]


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_every_example_runs(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len([line for line in block.splitlines() if line]) < 15
    aws = FakeAws()
    for name in ("orders", "raw"):
        aws.client("kinesis").create_stream(StreamName=name, ShardCount=1)
    for module in (producer_module, glue_registry):
        monkeypatch.setattr(module, "make_client", lambda service, **_settings: aws.client(service))
    generated = ModuleType("orders_pb2")
    generated.Order = Order  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "orders_pb2", generated)
    exec(compile(block, "docs/serialization.md", "exec"), {})
    assert aws.stats()["records_stored"] >= 1


def test_the_policy_names_the_calls_that_are_made() -> None:
    (block,) = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    write, read = (statement["Action"] for statement in json.loads(block)["Statement"])
    source = Path(glue_registry.__file__).read_text(encoding="utf-8")
    called = set(re.findall(r'self\._call\(\s*"(\w+)"', source))
    assert {action.partition(":")[2] for action in [*write, read]} == called
