"""A table is copied by its stream, by real processes that are killed and frozen while shards roll over and partitions split.

The copy is equal in the end, no change is lost, and the changes of each item are processed in their order.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import boto3
import pytest

from integration.commands import CLI, execute
from integration.localstack.dynamodb_local import dynamodb_local
from integration.localstack.install import CannotInstallError
from integration.waiting import eventually
from kinesis_sdk.testing import start_server_process

SECONDS = float(os.environ.get("KINESIS_SDK_TABLE_COPY", "12"))
"""Seconds of writes and faults of each run."""
WORKERS = 3

SCRIPT = textwrap.dedent(
    """
    import json, sys
    import boto3
    from kinesis_sdk import ConsumerConfig, DynamoDbStream, LeaseConfig, Worker

    name, endpoint, path = sys.argv[1:]
    dynamodb = boto3.client("dynamodb", endpoint_url=endpoint)
    log = open(path, "ab", buffering=0)

    def copy(batch):
        for change in batch.changes:
            raw, sequence = change.raw["dynamodb"], change.sequence_number.zfill(40)
            image = change.new_image or change.old_image
            line = [name, batch.shard_id, change.keys["k"], change.event_name, int(image["v"]), sequence]
            log.write(json.dumps(line).encode() + b"\\n")
            item = {**raw.get("NewImage", raw["Keys"]), "at": {"S": sequence}}
            if change.event_name == "REMOVE":
                item["removed"] = {"BOOL": True}
            try:
                dynamodb.put_item(
                    TableName="copy",
                    Item=item,
                    ConditionExpression="attribute_not_exists(#at) OR #at < :at",
                    ExpressionAttributeNames={"#at": "at"},
                    ExpressionAttributeValues={":at": item["at"]},
                )
            except dynamodb.exceptions.ConditionalCheckFailedException:
                pass  # this change was copied before, or a later one of the item

    config = ConsumerConfig(initial_position="TRIM_HORIZON", leases=LeaseConfig(failover_time=3))
    Worker(
        DynamoDbStream("orders"),
        application_name="copier",
        handler=copy,
        config=config,
        endpoint_url=endpoint,
        worker_id=name,
    ).run()
    """
)


class Fleet:
    """Worker processes; each has a number of its own, also after a restart."""

    def __init__(self, endpoint: str, folder: Path) -> None:
        self.endpoint = endpoint
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self.started = 0

    def start(self) -> None:
        self.started += 1
        command = [sys.executable, "-c", SCRIPT, f"w{self.started}", self.endpoint]
        log = (self.folder / f"log{self.started}").open("wb")
        with log:
            self.processes.append(
                subprocess.Popen([*command, str(self.folder / f"changes{self.started}")], stderr=log)
            )

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        self.processes.remove(process)

    def stop(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def changes(self) -> list[tuple[str, str, str, str, int, str]]:
        """Everything that any worker was given, worker by worker. The last line of a killed one may be cut off."""
        lines = []
        for number in range(1, self.started + 1):
            path = self.folder / f"changes{number}"
            text = path.read_text() if path.exists() else ""
            lines += [
                tuple(json.loads(line)) for line in text.splitlines(keepends=True) if line.endswith("\n")
            ]
        return lines


def items(dynamodb: Any, table: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for page in dynamodb.get_paginator("scan").paginate(TableName=table, ConsistentRead=True):
        found.update((item["k"]["S"], item) for item in page["Items"])
    return found


def copied(dynamodb: Any) -> dict[str, dict[str, Any]]:
    rows = items(dynamodb, "copy")
    return {
        key: {name: value for name, value in row.items() if name != "at"}
        for key, row in rows.items()
        if "removed" not in row
    }


class Writer:
    """Changes items in all ways, and notes what the stream has to say about it."""

    def __init__(self, dynamodb: Any, chance: random.Random) -> None:
        self.dynamodb = dynamodb
        self.chance = chance
        self.version = 0
        self.present: set[str] = set()
        self.expected: dict[str, list[tuple[str, int]]] = {}

    def _note(self, key: str, event: str | None = None) -> dict[str, Any]:
        self.version += 1
        event = event or ("MODIFY" if key in self.present else "INSERT")
        self.expected.setdefault(key, []).append((event, self.version))
        self.present.add(key)
        return {"k": {"S": key}, "v": {"N": str(self.version)}, "b": {"B": bytes([self.version % 256])}}

    def write(self) -> None:
        key, kind = f"k{self.chance.randrange(40)}", self.chance.random()
        client = self.dynamodb
        if kind < 0.4:
            client.put_item(TableName="orders", Item=self._note(key))
        elif kind < 0.7:
            item = self._note(key)
            client.update_item(
                TableName="orders",
                Key={"k": item["k"]},
                UpdateExpression="SET v = :v, b = :b",
                ExpressionAttributeValues={":v": item["v"], ":b": item["b"]},
            )
        elif kind < 0.8:
            keys = self.chance.sample(range(40), 3)
            puts = [{"Put": {"TableName": "orders", "Item": self._note(f"k{number}")}} for number in keys]
            client.transact_write_items(TransactItems=puts)
        elif kind < 0.9:
            keys = self.chance.sample(range(40), 5)
            puts = [{"PutRequest": {"Item": self._note(f"k{number}")}} for number in keys]
            client.batch_write_item(RequestItems={"orders": puts})
        elif key in self.present:
            last = self.expected[key][-1][1]
            client.delete_item(TableName="orders", Key={"k": {"S": key}})
            self.expected[key].append(("REMOVE", last))
            self.present.discard(key)


@pytest.mark.parametrize("service", ["fake", "dynamodb-local"])
def test_a_table_is_copied_under_kills_freezes_and_rollover(service: str, tmp_path: Path) -> None:
    chance = random.Random(7)
    with ExitStack() as stack:
        roll: Callable[[], int] = lambda: 0  # noqa: E731 - DynamoDB Local has no way to do it
        if service == "fake":
            server = stack.enter_context(start_server_process("--table-partitions", "2"))
            endpoint = server.endpoint_url

            def roll() -> int:
                server.admin("streams", {"roll": "orders", "split": chance.random() < 0.25})
                return 1
        else:
            try:
                endpoint = stack.enter_context(dynamodb_local(tmp_path / "dynamodb.log"))
            except CannotInstallError as error:
                pytest.skip(f"no DynamoDB Local here: {error}")
        dynamodb = boto3.client("dynamodb", endpoint_url=endpoint)
        for table, more in (
            (
                "orders",
                {"StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}},
            ),
            ("copy", {}),
        ):
            dynamodb.create_table(
                TableName=table,
                KeySchema=[{"AttributeName": "k", "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": "k", "AttributeType": "S"}],
                BillingMode="PAY_PER_REQUEST",
                **more,
            )
        writer = Writer(dynamodb, chance)
        fleet = Fleet(endpoint, tmp_path)
        stack.callback(fleet.stop)
        for _ in range(WORKERS):
            fleet.start()
        began = time.monotonic()
        kills = freezes = rolls = 0
        thaw: dict[subprocess.Popen[bytes], float] = {}
        due = {"roll": 3.0, "fault": 5.0}
        while (now := time.monotonic() - began) < SECONDS or not kills:
            writer.write()
            time.sleep(0.008)
            if now >= due["roll"]:
                rolls += roll()
                due["roll"] = now + 3.5
            if now >= due["fault"]:
                due["fault"] = now + 2.5
                victim = chance.choice(fleet.processes)
                if victim in thaw or not kills or chance.random() < 0.6:
                    thaw.pop(victim, None)
                    fleet.kill(victim)
                    fleet.start()
                    kills += 1
                else:
                    victim.send_signal(signal.SIGSTOP)
                    thaw[victim] = now + 5
                    freezes += 1
            for process in [process for process, moment in thaw.items() if now >= moment]:
                process.send_signal(signal.SIGCONT)
                del thaw[process]
        for process in thaw:
            process.send_signal(signal.SIGCONT)
        assert kills
        table = items(dynamodb, "orders")

        def is_done() -> bool:
            return copied(dynamodb) == table

        eventually(is_done, "the copy differs from the table", pause=0.3)
        wanted = {(key, *change) for key, changes in writer.expected.items() for change in changes}

        def is_complete() -> bool:
            return wanted <= {(key, event, version) for _, _, key, event, version, _ in fleet.changes()}

        eventually(is_complete, "changes are lost", pause=0.3)
        fleet.stop()
        check(fleet.changes(), writer.expected)
        deliveries = len(fleet.changes())
        print(
            f"{service}: {len(wanted)} changes of {len(writer.expected)} items, {deliveries} deliveries, {kills} kills, "
            f"{freezes} freezes, {rolls} rollovers"
        )


def check(
    changes: list[tuple[str, str, str, str, int, str]], expected: dict[str, list[tuple[str, int]]]
) -> None:
    """Check that every change was given once or again, that there is no other, and that each worker kept the order."""
    by_sequence = {(key, sequence): (event, version) for _, _, key, event, version, sequence in changes}
    seen: dict[str, list[tuple[str, int]]] = {}
    for (key, _), change in sorted(by_sequence.items()):
        seen.setdefault(key, []).append(change)
    assert seen == expected, "the stream said something else than what was written"
    # A worker gets changes again only from the checkpoint of a lease that it lost and took back: it goes back, then on.
    position: dict[tuple[str, str], int] = {}
    order = {key: {change: index for index, change in enumerate(found)} for key, found in expected.items()}
    for worker, _, key, event, version, _ in changes:
        index = order[key][event, version]
        before = position.get((worker, key), -1)
        if index > before + 1:
            # Nothing between two consecutive deliveries of a worker was skipped, unless others had it.
            others = {(k, e, v) for w, _, k, e, v, _ in changes if w != worker}
            skipped = expected[key][before + 1 : index]
            assert all((key, *change) in others for change in skipped), f"{worker} skipped {skipped} of {key}"
        position[worker, key] = index


def test_the_command_processes_a_table_until_now(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        textwrap.dedent(
            """
            import os

            def handle(batch):
                with open("seen", "ab", buffering=0) as log:
                    for change in batch.changes:
                        log.write(f"{change.event_name} {change.keys['k']}\\n".encode())
            """
        )
    )
    with start_server_process("--table-partitions", "2") as server:
        dynamodb = boto3.client("dynamodb", endpoint_url=server.endpoint_url)
        dynamodb.create_table(
            TableName="orders",
            KeySchema=[{"AttributeName": "k", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "k", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"},
        )
        for number in range(30):
            dynamodb.put_item(TableName="orders", Item={"k": {"S": f"k{number}"}})
        server.admin("streams", {"roll": "orders"})
        command = [*CLI, "run", "app:handle", "--dynamodb-table", "orders"]
        options = ["--app", "copier", "--initial-position", "TRIM_HORIZON", "--until", "now"]
        done = execute([*command, *options, "--endpoint-url", server.endpoint_url], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    seen = (tmp_path / "seen").read_text().splitlines()
    assert sorted(seen) == sorted(f"INSERT k{number}" for number in range(30))
