"""Lease tables are found by their shape, whichever KCL made them, and so is the stream of a table that does not name it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tests.consumer
from kinesis_sdk.admin import Applications, find_lease_key
from kinesis_sdk.admin.applications import short_shard
from kinesis_sdk.admin.fleet.model import LeaseState, OwnerKind
from kinesis_sdk.admin.fleet.observe import FleetObserver
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.sequence import SHARD_END, TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.common.shards import list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.leases.table.lease import Lease, lease_to_item
from tests.admin.account import Account

DATA = Path(str(tests.consumer.__file__)).parent / "data"


class Tables(Account):
    """An account in which the tests make tables by hand."""

    def table(self, name: str, key: str = "leaseKey", items: list[dict[str, Any]] | None = None) -> None:
        self.dynamodb.create_table(
            TableName=name,
            KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        for item in items or ():
            self.dynamodb.put_item(TableName=name, Item=item)

    def stream(self, name: str, shards: int) -> list[Lease]:
        return [Lease.for_shard(one, TRIM_HORIZON) for one in self.create(name, shards)]

    def put_leases(self, table: str, leases: list[Lease]) -> None:
        self.table(table, items=[lease_to_item(lease) for lease in leases])

    def streams_of(self, application: str, **options: Any) -> dict[str | None, StreamId]:
        """Return what the streams of an application are found to be."""
        found = self.application(application, **options)
        return dict(found.streams(found.scan()))


@pytest.fixture
def account() -> Tables:
    return Tables()


# Finding tables


def test_only_tables_whose_only_key_is_the_lease_key_are_applications(account: Tables) -> None:
    account.lease_table("ours")
    account.table("java-1x")
    account.table("java-31-CoordinatorState", "key")
    account.table("java-31-WorkerMetricStats", "wid")
    account.dynamodb.create_table(
        TableName="other",
        KeySchema=[
            {"AttributeName": "leaseKey", "KeyType": "HASH"},
            {"AttributeName": "version", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": "leaseKey", "AttributeType": "S"},
            {"AttributeName": "version", "AttributeType": "N"},
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    assert [info.name for info in Applications(account.connection).find()] == ["java-1x", "ours"]


def test_a_table_is_described_once(account: Tables) -> None:
    for number in range(3):
        account.table(f"app{number}")
    applications = Applications(account.connection)
    for _ in range(3):
        assert len(applications.find()) == 3
    assert account.calls("DescribeTable") == 3
    account.table("later")
    assert len(applications.find()) == 4
    assert account.calls("DescribeTable") == 4
    applications.forget()
    applications.find()
    assert account.calls("DescribeTable") == 8


def test_names_skip_the_listing(account: Tables) -> None:
    account.table("billing")
    applications = Applications(account.connection, ["billing", "not-there-yet"])
    assert [info.name for info in applications.find()] == ["billing"]
    assert account.calls("ListTables") == 0
    account.table("not-there-yet")
    assert [info.name for info in applications.find()] == ["billing", "not-there-yet"]


def test_all_pages_of_tables_are_listed(account: Tables) -> None:
    for number in range(120):  # a page has 100
        account.table(f"app{number:03}")
    assert len(Applications(account.connection).find()) == 120


def test_a_missing_table_and_a_table_of_another_kind(account: Tables) -> None:
    with pytest.raises(
        ConfigError,
        match="'nothing'",
    ):
        account.application("nothing").info()
    with pytest.raises(ConfigError, match="nothing"):
        account.application("nothing").scan()
    account.table("other", "id")
    with pytest.raises(ConfigError, match="leaseKey"):
        account.application("other").info()
    account.table("leases-of-billing")
    assert account.application("billing", table_name="leases-of-billing").info().name == "billing"


# Finding the stream


def test_the_stream_is_found_by_the_shape_of_its_shards(account: Tables) -> None:
    account.stream("three", 3)
    leases = account.stream("four", 4)
    account.put_leases("billing", leases)
    application = account.application("billing")
    assert application.streams(application.scan()) == {None: StreamId("four")}
    before = account.calls("ListShards")
    application.streams(application.scan())
    assert account.calls("ListShards") == before  # kept


@pytest.mark.parametrize("pause", [5.0, 0.0])
def test_streams_of_one_shape_are_told_apart_by_a_checkpoint(account: Tables, pause: float) -> None:
    """Without a pause between their creations, their sequence numbers have the same form, and each accepts those of the other."""
    leases = account.stream("mine", 2)
    account.clock.advance(pause)
    account.stream("twin", 2)
    for name in ("twin", "mine"):
        account.clock.advance(1)
        number = account.put(name, ExplicitHashKey="0")
    leases[0] = replace(leases[0], checkpoint=ExtendedSequenceNumber(number))
    account.put_leases("billing", leases)
    assert account.streams_of("billing") == {None: StreamId("mine")}


def test_what_cannot_be_told_apart_has_to_be_named(account: Tables) -> None:
    account.stream("twin", 2)
    account.put_leases("billing", account.stream("mine", 2))
    with pytest.raises(ConfigError, match="mine, twin"):
        account.streams_of("billing")
    assert account.streams_of("billing", stream="mine") == {None: StreamId("mine")}


def test_no_stream_fits(account: Tables) -> None:
    leases = account.stream("gone", 2)
    account.put_leases("billing", leases)
    account.kinesis.delete_stream(StreamName="gone")
    account.stream("other", 3)
    account.table("empty")
    for application, reason in (("billing", "the one stream"), ("empty", "no lease")):
        with pytest.raises(ConfigError, match=f"the stream of {application} .*{reason}"):
            account.streams_of(application)


@pytest.mark.parametrize("stream", [None, "orders"])
def test_an_application_of_a_tables_stream_is_refused(account: Tables, stream: str | None) -> None:
    """Of a Kinesis stream of the table's name, a rewind would put the shards into the table of another stream."""
    account.stream("orders", 2)
    start = ExtendedSequenceNumber(TRIM_HORIZON)
    account.put_leases("copier", [Lease(lease_key="shardId-00000001795375578588-991082a5", checkpoint=start)])
    with pytest.raises(ConfigError, match="DynamoDB table"):
        account.streams_of("copier", stream=stream)


def test_one_wrong_row_does_not_hide_the_stream(account: Tables) -> None:
    """It is in such an application that people look, and a stream that fits whole is the better one."""
    leases = account.stream("mine", 4)
    account.stream("other", 3)
    number = account.put("mine", ExplicitHashKey="0")
    leases[0] = replace(leases[0], checkpoint=ExtendedSequenceNumber(number))
    wrong = replace(leases[1], lease_key="shardId-000000000777")
    account.put_leases("billing", [*leases, wrong])
    assert account.streams_of("billing") == {None: StreamId("mine")}
    # Two wrong rows of six: they could as well be of a stream that is gone.
    account.put_leases("spoiled", [*leases, wrong, replace(wrong, lease_key="shardId-000000000778")])
    with pytest.raises(ConfigError, match="spoiled"):
        account.streams_of("spoiled")


def test_finished_leases_of_expired_shards_do_not_exclude_a_stream(account: Tables) -> None:
    leases = account.stream("mine", 2)
    account.stream("other", 5)
    old = replace(leases[0], lease_key="shardId-000000000000", checkpoint=ExtendedSequenceNumber(SHARD_END))
    account.kinesis.split_shard(
        StreamName="mine", ShardToSplit="shardId-000000000000", NewStartingHashKey="1000"
    )
    account.clock.advance(30 * 3600)  # the parent has left the stream
    listed = list_shards(account.kinesis, StreamId("mine"))
    assert "shardId-000000000000" not in [shard.shard_id for shard in listed]
    account.put_leases("billing", [old, *(Lease.for_shard(shard, TRIM_HORIZON) for shard in listed)])
    assert account.streams_of("billing") == {None: StreamId("mine")}


def test_a_table_of_several_streams_names_them(account: Tables) -> None:
    rows = []
    for name in ("orders", "events"):
        for lease in account.stream(name, 2):
            key = f"123456789012:{name}:1700000000"
            rows.append(
                replace(
                    lease, lease_key=f"{key}:{lease.lease_key}", stream_name=key, shard_id=lease.lease_key
                )
            )
    account.put_leases("billing", rows)
    look = account.look("billing")
    look.table()
    view = look.streams()
    assert view.streams == ("events", "orders")
    assert [(lease.stream, short_shard(lease.shard_id)) for lease in view.leases] == [
        ("123456789012:events:1700000000", "0000"),
        ("123456789012:events:1700000000", "0001"),
        ("123456789012:orders:1700000000", "0000"),
        ("123456789012:orders:1700000000", "0001"),
    ]
    assert account.calls("ListStreams") == 0
    keys = [lease.lease_key for lease in view.leases]
    assert find_lease_key("orders:1", keys) == "123456789012:orders:1700000000:shardId-000000000001"
    with pytest.raises(ConfigError, match="several match"):
        find_lease_key("1", keys)
    view = look.lag()
    assert view.totals.measured == 4


def test_shards_are_found_by_their_numbers() -> None:
    keys = ["shardId-000000000003", "shardId-000000000447"]
    for text in ("3", "0003", "shardId-000000000003"):
        assert find_lease_key(text, keys) == keys[0]
    with pytest.raises(ConfigError, match="one of the 2 shards"):
        find_lease_key("4", keys)
    with pytest.raises(ConfigError, match="a shard id, or its number"):
        find_lease_key("first", keys)
    assert [short_shard(key) for key in keys] == ["0003", "0447"]
    assert short_shard("weird\x1b") == "weird\\x1b"


# Tables of the Java KCL


SCENES = json.loads((DATA / "kcl_coordination.json").read_text())


def test_every_captured_lease_of_the_java_kcl_is_shown(account: Tables) -> None:
    for scene, items in SCENES.items():
        if not scene.startswith("lease: "):
            continue
        table = f"t{abs(hash(scene))}"
        account.table(table, items=items)
        view = account.look(table).table()
        keys = {item["leaseKey"]["S"] for item in items}
        assert {lease.lease_key for lease in view.leases} == keys, scene
        assert not [lease for lease in view.leases if lease.state is LeaseState.UNREADABLE], scene


def test_a_handoff_of_the_java_kcl(account: Tables) -> None:
    (scene,) = [scene for scene in SCENES if "graceful handoff" in scene]
    observer = FleetObserver("app")
    seen = []
    for second, item in enumerate(SCENES[scene]):
        name = f"app{second}"
        account.table(name, items=[item])
        observer.observe_table(account.application(name).scan(), float(second), 1.8e9 + second)
        (lease,) = observer.view(float(second), 1.8e9 + second).leases
        seen.append((lease.state, lease.owner, lease.next_owner))
    assert seen[0] == (LeaseState.HANDOFF, "worker-1", "worker-2")
    assert seen[-1] == (LeaseState.HELD, "worker-2", None)
    assert [move.reason for move in observer.view(9.0, 1.8e9).moves] == ["handoff"]


def test_workers_of_kcl_3_are_known_by_their_metrics_table(account: Tables) -> None:
    (metrics,) = [items for scene, items in SCENES.items() if scene.startswith("WorkerMetricStats")]
    now = int(account.clock.time())
    leases = account.stream("orders", 2)
    account.put_leases(
        "billing", [replace(leases[0], owner="worker-1"), replace(leases[1], owner="worker-9")]
    )
    account.table("billing-WorkerMetricStats", "wid", [{**item, "lut": {"N": str(now)}} for item in metrics])
    account.table("billing-CoordinatorState", "key")
    look = account.look("billing")
    look.table()
    view = look.streams()
    assert {owner.worker_id: (owner.kind, owner.is_standby) for owner in view.owners} == {
        "worker-1": (OwnerKind.KCL3, False),
        "worker-2": (OwnerKind.KCL3, True),
        "worker-9": (OwnerKind.OTHER, False),
    }
