"""docs/runbooks.md: each situation is made on a fleet in virtual time, and the commands of the page say what the page shows.

Numbers may differ from the page's; words, marks and their order may not. After the fix that the page names, its last command has to
be content.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result

from kinesis_sdk import RecordBatch
from kinesis_sdk.admin import Connection
from kinesis_sdk.common.errors import HandlerError, StreamRecreatedError
from kinesis_sdk.consumer import DynamoDBLeaseStore
from kinesis_sdk.testing.faults import Fault
from tests.admin.changes.operators import SteeredFleet
from tests.cli.invoking import invoke
from tests.cli.operators import steer_fleet
from tests.readme import DOCS, Block, blocks

PAGE = DOCS / "runbooks.md"
SITUATIONS = (
    "Lag grows",
    "A shard is stuck",
    "The lease table is throttled",
    "A hot shard",
    "A worker starts again and again",
    "The stream was recreated",
)


class Scene:
    """A fleet of the application ``billing`` and an operator at its command line."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, shards: int = 2) -> None:
        self.fleet = fleet = SteeredFleet(folder, shards=shards)
        fleet.store = DynamoDBLeaseStore(
            fleet.air, "billing", sleep=fleet.clock.advance, monotonic=fleet.clock.monotonic
        )
        self.broken = False
        clients = {name: fleet.aws.client(name) for name in ("kinesis", "dynamodb", "cloudwatch", "sts")}
        steer_fleet(monkeypatch, fleet, Connection(clients=clients), folder)

    def handler(self, name: str, shard: str = "") -> Callable[[RecordBatch], None]:
        """Return a handler that fails on a shard, or on all, while the situation lasts."""

        def handle(batch: RecordBatch) -> None:
            if self.broken and batch.shard_id.endswith(shard):
                raise ConnectionError("no database")
            self.fleet.note(name, batch)

        return handle

    def run(self, line: str) -> Result:
        words = shlex.split(line)
        assert words[0] == "kinesis-sdk"
        return invoke(*words[1:], code=None)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(tmp_path, monkeypatch)


def shown(section: str) -> list[Block]:
    """The blocks of a runbook that show a command and what it prints."""
    return [block for block in blocks("text", PAGE) if block.section == section]


def words_of(text: str) -> list[str]:
    """The words of an output, in order, without what is different each time: numbers, widths, and where lines break."""
    text = re.sub(r"[\d,.]*\d", "N", text)
    text = re.sub(r"N (?:h|min|s|ms|days|KiB/s|MiB/s|B/s)\b(?: N (?:h|min|s|ms)\b)*", "TIME", text)
    return re.sub(r"[█▇▆▅▄▃▂▁·▏▎▍▌▋▊▉]+", "", text).split()


def check(scene: Scene, block: Block) -> Result:
    """Run the command of a block, and compare its output with the block."""
    command, _, output = block.text.partition("\n")
    result = scene.run(command.removeprefix("$ "))
    assert words_of(result.output) == words_of(output), f"{block.line}: {result.output}"
    return result


def test_every_runbook_is_tried_here_and_complete() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == list(SITUATIONS)
    for runbook in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        parts = re.findall(r"^\*\*(.+?)\.\*\*", runbook, re.MULTILINE)
        assert parts == ["Symptom", "First command", "Causes", "Fix", "Verify"], runbook.splitlines()[0]
        assert len(re.findall(r"^\d\. ", runbook, re.MULTILINE)) >= 3, "causes in order of likelihood"
    assert all(shown(section) for section in SITUATIONS)


def test_lag_grows(scene: Scene) -> None:
    fleet = scene.fleet
    fleet.add("host-1:7", scene.handler("host-1:7"))
    fleet.add("host-2:7")
    fleet.load(30)
    scene.broken = True
    fleet.load(150, rate=1)
    first, verify = shown("Lag grows")
    assert check(scene, first).exit_code == 1
    scene.broken = False
    fleet.load(60)
    assert check(scene, verify).exit_code == 0


def test_a_shard_is_stuck(scene: Scene) -> None:
    fleet = scene.fleet
    for name in ("host-1:7", "host-2:7"):
        fleet.add(name, scene.handler(name, "shardId-000000000000"))
    fleet.load(30)
    scene.broken = True
    fleet.load(20)
    fleet.split(0)
    fleet.load(430, rate=1)
    first, verify = shown("A shard is stuck")
    assert check(scene, first).exit_code == 0
    scene.broken = False
    fleet.load(60)
    assert check(scene, verify).exit_code == 0


def test_the_lease_table_is_throttled(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    fleet = scene.fleet
    fleet.add("host-1:7")
    fleet.add("host-2:7")
    fleet.load(30)
    fleet.aws.faults.add(Fault(kind="throttle", operation="UpdateItem", stream="billing"))
    fleet.load(60)
    assert any("take failed: UpdateItem" in record.getMessage() for record in caplog.records)
    assert any("(not renewed for" in record.getMessage() for record in caplog.records)
    first, verify = shown("The lease table is throttled")
    assert check(scene, first).exit_code == 1
    fleet.aws.faults.clear()
    fleet.load(30)
    assert check(scene, verify).exit_code == 0


def test_a_hot_shard(scene: Scene) -> None:
    fleet = scene.fleet
    fleet.add("host-1:7")
    fleet.load(10)
    produce(scene, seconds=12)
    first, split, verify = shown("A hot shard")
    assert check(scene, first).exit_code == 0
    assert check(scene, split).exit_code == 0
    produce(scene, seconds=12)
    assert check(scene, verify).exit_code == 0


def produce(scene: Scene, seconds: int) -> None:
    """Put nearly what one shard takes into the lower half of the hash keys."""
    keys = [str(2**127 // 197 * place) for place in range(197)]
    for _ in range(seconds):
        for half in (keys[::2], keys[1::2]):
            scene.fleet.raw.put_records(
                StreamName="orders",
                Records=[
                    {"Data": b"x" * 5000, "PartitionKey": f"customer-{key[:3]}", "ExplicitHashKey": key}
                    for key in half
                ],
            )
        scene.fleet.run(1.0)


def test_a_worker_starts_again_and_again(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    fleet = scene.fleet
    stops = replace(fleet.config, on_handler_error="stop")
    fleet.add("host-1:7", scene.handler("host-1:7"), stops)
    fleet.load(20)
    scene.broken = True
    for restart in range(8, 12):
        with pytest.raises(HandlerError):
            fleet.load(30)
        fleet.crash(f"host-1:{restart - 1}")
        fleet.add(f"host-1:{restart}", scene.handler(f"host-1:{restart}"), stops)
    with pytest.raises(HandlerError):
        fleet.load(30)
    fleet.crash("host-1:11")
    assert any(
        "fatal error, stopping: HandlerError: shard shardId-" in record.getMessage()
        for record in caplog.records
    )
    first, verify = shown("A worker starts again and again")
    assert check(scene, first).exit_code == 1
    scene.broken = False
    fleet.add("host-1:12", scene.handler("host-1:12"), stops)
    fleet.load(60)
    assert check(scene, verify).exit_code == 0
    assert fleet.all_delivered()


def test_the_stream_was_recreated(scene: Scene, tmp_path: Path) -> None:
    fleet = scene.fleet
    fleet.add("host-1:7")
    fleet.load(30)
    fleet.raw.delete_stream(StreamName="orders")
    fleet.clock.advance(5.0)
    fleet.raw.create_stream(StreamName="orders", ShardCount=2)
    fleet.sent.clear()
    with pytest.raises(StreamRecreatedError, match="the stream was deleted and recreated"):
        fleet.load(60)
    fleet.crash("host-1:7")
    first, verify = shown("The stream was recreated")
    assert check(scene, first).exit_code == 1
    (fix,) = [block.text for block in blocks("", PAGE) if "delete-app" in block.text]
    command = fix.replace("billing.jsonl", str(tmp_path / "backup"))
    assert scene.run(command).exit_code == 0
    assert (tmp_path / "backup").exists()
    fleet.store.ensure_ready()
    fleet.add("host-1:8")
    fleet.load(60)
    assert check(scene, verify).exit_code == 0
    assert set(fleet.sent) <= set(fleet.data())
