"""The examination of a fake account: what it finds, what it costs, and that it has no effect."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.config import Config
from botocore.exceptions import (
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    ReadTimeoutError,
)
from click.testing import CliRunner

from kinesis_sdk.admin import Command, Connection
from kinesis_sdk.admin.doctor.diagnose import diagnose
from kinesis_sdk.admin.doctor.facts import Facts
from kinesis_sdk.admin.doctor.judge import judge
from kinesis_sdk.admin.doctor.model import Level
from kinesis_sdk.admin.doctor.permissions import ACTIONS, ROLES
from kinesis_sdk.admin.doctor.probes import furthest_behind
from kinesis_sdk.cli import doctor as command
from kinesis_sdk.cli.options import ConnectionOptions
from kinesis_sdk.common import codec as codecs
from kinesis_sdk.common.aggregate_writer import Aggregate
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.hashkeys import hash_partition_key
from kinesis_sdk.common.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.testing import Fault
from tests.admin.doctor.support import World, only
from tests.codecs import Deflated
from tests.common.reference import filled
from tests.fuzz import TIMES, share

HOUR = 3600.0


def test_a_healthy_application_is_green() -> None:
    world = World()
    world.fill(600)
    report = world.examine()
    assert report.level is Level.GREEN
    assert [one.code for one in report.findings if one.level in (Level.RED, Level.YELLOW)] == []


# Side effects and cost


@pytest.mark.parametrize("table", [True, False])
@pytest.mark.parametrize("mode", ["PROVISIONED", "ON_DEMAND"])
def test_nothing_is_changed(table: bool, mode: str) -> None:
    world = World(table=table)
    world.fill(600)
    world.add_consumer()
    arn = world.kinesis.describe_stream_summary(StreamName="orders")["StreamDescriptionSummary"]["StreamARN"]
    world.kinesis.update_stream_mode(StreamARN=arn, StreamModeDetails={"StreamMode": mode})
    before = world.state()
    report = world.examine()
    assert world.state() == before
    assert report.findings


@pytest.mark.parametrize("shards", [1, 3, 8, 20])
@pytest.mark.parametrize("samples", [0, 8])
def test_the_help_states_the_cost(shards: int, samples: int) -> None:
    world = World(shards=shards)
    world.fill(500)
    world.add_consumer()
    before = world.aws.stats()["calls"]
    report = world.examine(samples=samples)
    made = {
        name: count - before.get(name, 0)
        for name, count in world.aws.stats()["calls"].items()
        if count > before.get(name, 0)
    }
    assert report.calls == made
    text = " ".join(str(command.doctor.help).split())
    fixed, each = map(
        int, re.search(r"at most (\d+) API calls, and up to (\d+) for each sampled", text).groups()
    )  # type: ignore[union-attr]
    sampled = min(shards, samples)
    assert sum(made.values()) <= fixed + each * sampled
    assert sum(made.values()) >= fixed + each * sampled - 1
    reads = int(re.search(r"of which (\d+) are reads of the shard", text).group(1))  # type: ignore[union-attr]
    assert made.get("GetRecords", 0) == reads * sampled
    writes = int(re.search(r"they cost (\d+) write units", text).group(1))  # type: ignore[union-attr]
    assert sum(made[name] for name in ("PutItem", "UpdateItem", "DeleteItem")) == writes


def test_a_role_has_only_its_calls_made() -> None:
    calls = World().examine(roles=["producer"]).calls
    assert not calls.keys() & {"SplitShard", "GetRecords", "PutItem", "DescribeLimits", "ListStreamConsumers"}
    assert calls["PutRecords"] == 1


# Permissions


@cache
def texts_where_all_is_allowed() -> dict[str, list[str]]:
    """Return the texts of the findings by their codes."""
    world = World()
    world.fill(100)
    world.add_consumer()
    found: dict[str, list[str]] = {}
    for one in world.examine(roles=ROLES).findings:
        found.setdefault(one.code, []).append(one.text)
    return found


@pytest.mark.parametrize("action", [one for one in ACTIONS if not one.not_tried], ids=lambda one: one.name)
def test_each_action_that_is_tried_is_found_to_be_denied(action: Any) -> None:
    world = World()
    world.fill(100)
    world.add_consumer()
    world.denied = {action.name}
    denied = world.examine(roles=ROLES)
    for role in action.roles:
        code = f"permissions-{role}" + ("-optional" if action.only_for else "")
        assert not any(action.name in text for text in texts_where_all_is_allowed().get(code, ()))
        finding = only(denied, code)
        assert action.name in finding.text
        assert finding.level is (Level.NOTE if action.only_for else Level.RED)


@pytest.mark.parametrize("action", [one for one in ACTIONS if one.not_tried], ids=lambda one: one.name)
def test_an_action_that_cannot_be_tried_is_listed_with_the_reason(action: Any) -> None:
    finding = next(
        one
        for one in World().examine().findings
        if one.code == "permissions-not-tried" and action.name in one.text
    )
    assert finding.level is Level.NOTE
    assert action.not_tried in finding.text


def test_by_default_only_what_a_consumer_lacks_is_red() -> None:
    world = World()
    world.denied = {"kinesis:PutRecords", "kinesis:SplitShard"}
    report = world.examine()
    assert report.level is Level.YELLOW
    assert "name the roles" in only(report, "permissions-producer").remedy
    world.denied = {"kinesis:GetRecords"}
    assert only(world.examine(), "permissions-consumer").level is Level.RED


def test_a_botocore_without_dry_run_is_told_apart_from_a_denial() -> None:
    world = World()
    world.errors["kinesis:PutRecords"] = ParamValidationError(report='Unknown parameter in input: "DryRun"')
    report = world.examine(roles=["producer"])
    assert any("pip install -U boto3" in one.text and "PutRecords" in one.text for one in report.findings)
    assert world.aws.stats()["records_stored"] == 0


# Failures of the probes


ERRORS: list[Exception] = [
    EndpointConnectionError(endpoint_url="https://kinesis.example"),
    NoCredentialsError(),
    ClientError({"Error": {"Code": "UnrecognizedClientException", "Message": "bad token"}}, "X"),  # type: ignore[typeddict-item]
    ClientError({"Error": {"Code": "InternalFailure", "Message": "oh"}}, "X"),  # type: ignore[typeddict-item]
    ClientError({"Error": {"Code": "ThrottlingException", "Message": "slow"}}, "X"),  # type: ignore[typeddict-item]
    RuntimeError("a defect"),
]
"""What calls fail with."""

EACH = [one.name for one in ACTIONS]
"""The names of all actions."""


@pytest.mark.fuzz
def test_a_call_that_fails_becomes_a_finding() -> None:
    for action, error in share(product(EACH, ERRORS), unit=3 * len(EACH)):
        world = World()
        world.errors = {action: error}
        assert world.examine(samples=1).findings


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_calls_that_all_fail_are_not_green(error: Exception) -> None:
    world = World()
    world.errors = dict.fromkeys(EACH, error)
    report = world.examine(samples=1)
    assert report.findings
    assert report.level is not Level.GREEN


@pytest.mark.parametrize(
    "error",
    [
        EndpointConnectionError(endpoint_url="https://kinesis.example"),
        ReadTimeoutError(endpoint_url="https://kinesis.example"),
        ClientError({"Error": {"Code": "ExpiredTokenException", "Message": "The token is expired"}}, "Scan"),
        NoCredentialsError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_every_call_would_fail_for_is_said_once_and_costs_few_attempts(error: Exception) -> None:
    world = World()
    world.errors = dict.fromkeys((one.name for one in ACTIONS), error)
    report = world.examine()
    assert report.level is Level.RED
    assert "probe-failed" not in {one.code for one in report.findings}
    assert {one.title for one in report.findings if one.code == "unreachable"} == {
        "kinesis not reached",
        "dynamodb not reached",
        "cloudwatch not reached",
    }
    assert sum(report.calls.values()) <= 9


BODIES: dict[str, dict[str, Any]] = {
    "": {},
    "DescribeTable": {"Table": None},
    "ListShards": {"Shards": 3},
    "GetRecords": {"Records": [{}]},
    "Scan": {"Items": [{"leaseKey": 1}]},
}
"""What no client expects, and the call whose response it looks like."""


@pytest.mark.fuzz
def test_a_response_that_cannot_be_read_becomes_a_finding() -> None:
    tried = [one.name for one in ACTIONS if not one.not_tried]
    for action, (call, body) in product(tried, BODIES.items()):
        if TIMES or action.endswith(call):
            world = World()
            world.changes[action] = lambda _response, body=body: body
            assert world.examine(samples=1).findings, (action, body)


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("StreamModeDetails", 5),
        ("EnhancedMonitoring", 5),
        ("RetentionPeriodHours", "x"),
        ("OpenShardCount", None),
    ],
)
def test_a_summary_of_another_shape_does_not_end_the_examination(member: str, value: Any) -> None:
    world = World()
    world.fill(10)

    def change(response: Any) -> Any:
        response["StreamDescriptionSummary"][member] = value
        return response

    world.changes["kinesis:DescribeStreamSummary"] = change
    assert {"table-status", "clock-skew"} <= {one.code for one in world.examine().findings}


def test_throttled_reads_are_reported_and_not_repeated() -> None:
    world = World()
    world.aws.faults.add(Fault(kind="throttle", operation="GetRecords"))
    report = world.examine()
    assert only(report, "reads-throttled").level is Level.YELLOW
    assert report.calls["GetRecords"] == 4


def test_arguments_out_of_range_are_errors() -> None:
    connection = Connection(clients={})
    with pytest.raises(ConfigError, match="samples"):
        diagnose(connection, "orders", "billing", samples=101)
    with pytest.raises(ConfigError, match="roles"):
        diagnose(connection, "orders", "billing", roles=["king"])
    with pytest.raises(ConfigError, match="stream"):
        diagnose(connection, "no/stream", "billing")


# Clock


@pytest.mark.parametrize(
    ("ahead", "level", "word"),
    [
        (0.0, Level.GREEN, "agrees"),
        (0.7, Level.GREEN, "agrees"),
        (-0.7, Level.GREEN, "agrees"),
        (10.0, Level.YELLOW, "ahead of"),
        (-10.0, Level.YELLOW, "behind"),
        (400.0, Level.RED, "ahead of"),
        (-400.0, Level.RED, "behind"),
    ],
)
def test_the_clock(ahead: float, level: Level, word: str) -> None:
    world = World()
    world.machine.ahead = ahead
    finding = world.finding("clock-skew")
    assert finding.level is level
    assert word in finding.text


def test_a_clock_that_makes_every_signature_invalid_is_named() -> None:
    world = World()
    world.machine.ahead = 1000.0
    date = "Thu, 01 Jan 1970 00:00:00 GMT"
    world.errors = dict.fromkeys(
        (one.name for one in ACTIONS),
        ClientError(
            {
                "Error": {"Code": "InvalidSignatureException", "Message": "Signature expired: ..."},
                "ResponseMetadata": {"HTTPStatusCode": 400, "HTTPHeaders": {"date": date}},  # type: ignore[typeddict-item]
            },
            "X",
        ),
    )
    assert world.finding("clock-skew").level is Level.RED


# The stream and its limits


def change_summary(**members: Any) -> Callable[[Any], Any]:
    def change(response: Any) -> Any:
        return {"StreamDescriptionSummary": {**response["StreamDescriptionSummary"], **members}}

    return change


def misplace_aggregate(world: World) -> None:
    aggregate = Aggregate(max_size=1000, max_count=10)
    key = next(f"k{n}" for n in range(100) if hash_partition_key(f"k{n}")[0] >= 0x80)
    for data in (b"data", b"more"):
        assert aggregate.try_append(key, None, data, hash_partition_key(key))
    aggregate.seal()
    world.kinesis.put_record(
        StreamName="orders", Data=aggregate.encode(), PartitionKey="a", ExplicitHashKey="0"
    )


LIMITS = {
    "ShardLimit": 20,
    "OpenShardCount": 16,
    "OnDemandStreamCount": 1,
    "OnDemandStreamCountLimit": 50,
}


def limit(world: World) -> None:
    world.changes["kinesis:DescribeLimits"] = lambda _response: LIMITS


def summary(**members: Any) -> Callable[[World], None]:
    return lambda world: world.changes.update({"kinesis:DescribeStreamSummary": change_summary(**members)})


@pytest.mark.parametrize(
    ("code", "level", "prepare"),
    [
        ("stream-status", Level.RED, summary(StreamStatus="DELETING")),
        ("stream-status", Level.GREEN, summary(StreamStatus="UPDATING")),
        ("distribution-auto", Level.YELLOW, summary(RecordDistributionStrategy="AUTO")),
        ("encryption", Level.GREEN, summary(EncryptionType="KMS", KeyId="alias/aws/kinesis")),
        (
            "enhanced-metrics",
            Level.NOTE,
            summary(EnhancedMonitoring=[{"ShardLevelMetrics": ["IncomingBytes"]}]),
        ),
        (
            "table-deletion-protection",
            Level.YELLOW,
            lambda world: world.dynamodb.update_table(TableName="billing", DeletionProtectionEnabled=False),
        ),
        ("shard-limit", Level.YELLOW, limit),
        ("on-demand-limit", Level.GREEN, limit),
        (
            "table-throttled",
            Level.RED,
            lambda world: world.aws.faults.add(Fault(kind="throttle", operation="Scan", count=1)),
        ),
        ("stopped", Level.NOTE, lambda _: None),
        ("partition-keys", Level.YELLOW, lambda world: world.fill(400, keys=1)),
        ("record-size", Level.YELLOW, lambda world: world.fill(1, size=1_000_000)),
        ("aggregates-misplaced", Level.RED, misplace_aggregate),
    ],
)
def test_the_level_of_a_finding(code: str, level: Level, prepare: Callable[[World], object]) -> None:
    world = World()
    prepare(world)
    assert world.finding(code).level is level


def test_fan_out_consumers_are_listed_by_name() -> None:
    world = World()
    world.add_consumer()
    assert "fast" in world.finding("fan-out").text


# The table


def test_a_missing_stream_is_red_and_said_once() -> None:
    world = World()
    world.kinesis.delete_stream(StreamName="orders")
    report = world.examine()
    assert report.level is Level.RED
    assert "no stream orders" in only(report, "stream-missing").text
    assert [one.text for one in report.findings if one.code == "probe-failed"] == []


def test_a_missing_table() -> None:
    report = World(table=False).examine()
    assert only(report, "table-missing").level is Level.YELLOW
    # Whether its rows may be read cannot be told without it.
    assert any("there is no lease table" in one.text for one in report.findings)


def test_leases_in_another_database_need_no_dynamodb(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")
    from kinesis_sdk.consumer.leases import SqlLeaseStore

    world = World(table=False)
    world.fill(600)
    url = f"sqlite:///{tmp_path}/leases.db"
    report = world.examine(lease_store=url)
    assert only(report, "table-missing").level is Level.YELLOW
    assert f"{url} has no leases of billing" in only(report, "table-missing").text
    assert not (tmp_path / "leases.db").exists()
    store = SqlLeaseStore(url, "billing")
    store.ensure_ready()
    first, *rest = world.shards()
    for shard in rest:
        store.create_if_absent(Lease.for_shard(shard, "TRIM_HORIZON"))
    world.denied = {action.name for action in ACTIONS if action.name.startswith("dynamodb:")}
    report = world.examine(lease_store=url)
    assert only(report, "no-lease").text.endswith("without a lease: 0000.")
    assert first.shard_id.endswith("0000")
    assert only(report, "permissions-consumer").level is Level.GREEN
    store.create_if_absent(Lease.for_shard(first, "TRIM_HORIZON"))
    report = world.examine(lease_store=url)
    assert report.level is Level.GREEN
    assert only(report, "table-status").text == f"2 leases in {url}."
    assert not any("dynamodb:" in one.text for one in report.findings)
    assert not {"DescribeTable", "Scan", "GetItem", "UpdateItem"} & report.calls.keys()
    store.close()


def test_a_lease_store_that_fails_is_a_finding(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")
    (tmp_path / "leases.db").write_bytes(b"not a database" * 100)
    report = World(table=False).examine(lease_store=f"sqlite:///{tmp_path}/leases.db")
    assert "the lease store failed" in only(report, "probe-failed").text


def test_a_table_with_another_key_is_red() -> None:
    world = World(table=False)
    world.dynamodb.create_table(
        TableName="billing",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    assert world.finding("table-key").level is Level.RED


@pytest.mark.parametrize(("units", "level"), [(100, Level.GREEN), (1, Level.YELLOW)])
def test_provisioned_capacity_is_compared_with_what_leases_need(units: int, level: Level) -> None:
    world = World(shards=16)
    for lease in world.store.list():
        world.store.take(lease, "w1")

    def change(response: Any) -> Any:
        table = {
            **response["Table"],
            "BillingModeSummary": {},
            "ProvisionedThroughput": {"ReadCapacityUnits": units, "WriteCapacityUnits": units},
        }
        return {"Table": table}

    world.changes["dynamodb:DescribeTable"] = change
    assert world.finding("table-capacity").level is level


def test_rows_that_cannot_be_read_are_red_and_shown_without_control_characters() -> None:
    world = World()
    world.dynamodb.put_item(
        TableName="billing", Item={"leaseKey": {"S": "evil\x1b[31m"}, "leaseCounter": {"S": "many"}}
    )
    finding = world.finding("unreadable-row")
    assert finding.level is Level.RED
    assert str(finding.command) == "show(application='billing')"
    assert "\x1b" not in finding.text


def test_a_shard_without_a_lease_is_red_unless_its_parent_is_still_read() -> None:
    world = World()
    world.kinesis.split_shard(
        StreamName="orders", ShardToSplit="shardId-000000000000", NewStartingHashKey=str(2**126)
    )
    assert only(world.examine(), "rows").level is Level.GREEN
    parent = world.store.get("shardId-000000000000")
    assert parent is not None
    world.store.checkpoint(parent, ExtendedSequenceNumber("SHARD_END"))
    finding = world.finding("no-lease")
    assert finding.level is Level.RED
    assert finding.text == "The stream has 2 open shards without a lease: 0002, 0003."


@pytest.mark.parametrize("exists", [True, False])
def test_leases_of_a_tables_stream_are_not_compared_with_a_kinesis_stream(exists: bool) -> None:
    world = World()
    if not exists:
        world.kinesis.delete_stream(StreamName="orders")
    world.store.create_if_absent(
        Lease(
            lease_key="shardId-00000001795375578588-991082a5", checkpoint=ExtendedSequenceNumber(TRIM_HORIZON)
        )
    )
    found = world.examine()
    assert only(found, "table-stream").level is Level.YELLOW
    assert not [one for one in found.findings if one.code in {"shard-expired", "no-lease"}]


def test_checkpoints_of_a_former_stream_are_red() -> None:
    world = World()
    lease = world.store.get("shardId-000000000001")
    assert lease is not None
    world.store.checkpoint(lease, ExtendedSequenceNumber("7"))
    assert world.finding("stream-recreated").level is Level.RED


def test_who_wrote_the_table() -> None:
    world = World(shards=3)
    leases = world.store.list()
    world.store.take(leases[0], "ours")
    client = world.dynamodb
    for lease, owner in ((leases[1], "java3"), (leases[2], "java2")):
        client.update_item(
            TableName="billing",
            Key={"leaseKey": {"S": lease.lease_key}},
            UpdateExpression="SET leaseOwner = :o",
            ExpressionAttributeValues={":o": {"S": owner}},
        )
    client.put_item(
        TableName="billing", Item={"leaseKey": {"S": "java3"}, "entityType": {"S": "WORKER_METRIC_STATS"}}
    )
    text = world.finding("table-writers").text
    assert "KCL 1 or 2: 1 leases; KCL 3: 1 leases; kinesis_sdk: 1 leases" in text
    assert "KCL 3.5 or later keeps 1 items" in text


@pytest.mark.parametrize(("name", "compared"), [("1:other:1", False), ("1:orders:1", True)])
def test_a_table_of_several_streams_is_compared_with_the_given_one(name: str, compared: bool) -> None:
    world = World(leases=False)
    lease = Lease.for_shard(world.shards()[0], "TRIM_HORIZON")
    world.store.create_if_absent(
        dataclasses.replace(
            lease, lease_key=f"{name}:{lease.lease_key}", stream_name=name, shard_id=lease.lease_key
        )
    )
    assert ("no-lease" in {one.code for one in world.examine().findings}) is compared


# Records


@pytest.mark.parametrize(
    ("age", "code", "level"),
    [
        (30.0, None, Level.GREEN),
        (90.0, "behind", Level.YELLOW),
        (1 * HOUR, "behind", Level.YELLOW),
        (15 * HOUR, "horizon-soon", Level.YELLOW),
        (20 * HOUR, "near-horizon", Level.RED),
    ],
)
@pytest.mark.parametrize("owned", [True, False])
def test_retention_against_lag(age: float, code: str | None, level: Level, owned: bool) -> None:
    world = World(shards=1)
    world.fill(10)
    if owned:
        (lease,) = world.store.list()
        world.store.take(lease, "a")
    world.clock.advance(age)
    report = world.examine()
    assert report.level is level
    assert "Of 1 sampled leases, shardId-000000000000 is furthest behind" in only(report, "retention").text
    if code == "behind" and not owned:
        assert " is 1 " in only(report, "stopped").text.partition(";")[2]
    elif code is not None:
        finding = only(report, code)
        assert (finding.level, "0000: " in finding.text) == (level, True)
        assert finding.command == Command.of("explain", application="billing", shard="0000")


def test_a_hot_shard() -> None:
    world = World(shards=4)
    for _ in range(20):
        world.kinesis.put_records(
            StreamName="orders",
            Records=[{"Data": b"x" * 90_000, "PartitionKey": "one", "ExplicitHashKey": "0"}] * 11,
        )
        world.clock.advance(1.0)
    world.changes["kinesis:GetRecords"] = lambda response: {**response, "MillisBehindLatest": 1}
    finding = world.finding("distribution")
    assert finding.level is Level.RED
    assert finding.command == Command.of("split", stream="orders", shard="shardId-000000000000")
    assert "shardId-000000000000 has 4.0 times that" in finding.text


def test_small_records_without_aggregates() -> None:
    world = World(shards=1)
    world.fill(5000)
    world.changes["kinesis:GetRecords"] = lambda response: {**response, "MillisBehindLatest": 1}
    assert world.finding("aggregation").level is Level.YELLOW


@pytest.mark.parametrize(
    ("codec", "level", "remedy"),
    [
        ("deflated", Level.YELLOW, "extra 'zstd'"),
        ("absent", Level.RED, "Install the extra 'zstd'"),
        ("strange", Level.RED, "let the workers skip them"),
    ],
)
def test_compressed_aggregates_are_named_for_readers_that_do_not_know_them(
    monkeypatch: pytest.MonkeyPatch, codec: str, level: Level, remedy: str
) -> None:
    monkeypatch.setitem(codecs._made, "deflated", Deflated())
    monkeypatch.setitem(codecs.HOMES, "absent", "kinesis_sdk.compression.absent:Codec")
    world = World()
    aggregate = filled([("k", None, b"data" * 100)] * 9)
    world.kinesis.put_record(
        StreamName="orders", Data=aggregate.seal_with(Deflated(codec)).encode(), PartitionKey="k"
    )
    finding = world.finding("aggregates-compressed")
    assert (finding.level, remedy in finding.remedy) == (level, True)


def test_no_partition_key_is_in_the_report() -> None:
    world = World()
    world.fill(500, keys=1)
    assert "key-0" not in json.dumps(world.examine().to_dict())


# The command


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    def invoke(world: World, *arguments: str) -> Any:
        monkeypatch.setattr(ConnectionOptions, "connect", lambda _: Connection(clients={}))
        monkeypatch.setattr(
            "kinesis_sdk.admin.doctor.diagnose.diagnose",
            lambda _connection, _stream, _application, **settings: world.examine(**settings),
        )
        return CliRunner().invoke(command.doctor, ["orders", "billing", *arguments])

    return invoke


def test_exit_codes(run: Callable[..., Any]) -> None:
    world = World()
    assert run(world).exit_code == 0
    assert run(world, "--strict").exit_code == 0
    world.denied = {"kinesis:SplitShard"}
    assert run(world).exit_code == 0
    assert run(world, "--strict").exit_code == 1
    world.denied = {"kinesis:GetRecords"}
    assert run(world).exit_code == 1


def test_json_is_one_document(run: Callable[..., Any]) -> None:
    world = World()
    world.denied = {"kinesis:GetRecords"}
    document = json.loads(run(world, "--json").stdout)
    assert document["level"] == "red"
    assert document["findings"][0]["level"] == "red"
    assert document["calls"]["DescribeStreamSummary"] == 1


def test_the_text_shows_the_remedy_and_hides_what_is_in_order(run: Callable[..., Any]) -> None:
    world = World()
    world.denied = {"kinesis:GetRecords"}
    text = run(world).stdout
    assert "✕ red" in text
    assert "→ Add the actions to the policy" in " ".join(text.split())
    assert "✓ green" not in text
    assert "✓ green" in run(world, "--all").stdout


def test_the_lags_that_owners_tell_choose_the_leases_that_are_measured() -> None:
    world = World(shards=30)
    for number, lease in enumerate(world.store.list()):
        taken = world.store.take(lease, "ours")
        behind = 5_000_000 if lease.shard == "shardId-000000000017" else number
        world.dynamodb.update_item(
            TableName="billing",
            Key={"leaseKey": {"S": lease.lease_key}},
            UpdateExpression="SET progress = :p",
            ExpressionAttributeValues={":p": {"S": f"{behind}||||ours"}},
        )
        assert isinstance(taken, Lease)
    chosen = furthest_behind(world.store.list(), 4)
    assert chosen[0].shard == "shardId-000000000017"
    assert len({lease.shard for lease in chosen}) == 4
    assert len(furthest_behind(world.store.list(), 100)) == 30
    assert furthest_behind(world.store.list(), 0) == []


# Endpoints


class Wire:
    """A client of botocore for an account, whose calls end before they are sent."""

    def __init__(self, service: str, mode: str) -> None:
        session = botocore.session.Session()
        session.set_credentials("AKID", "secret", account_id="123456789012")
        self.client = session.create_client(
            service,
            region_name="eu-west-1",
            config=Config(
                account_id_endpoint_mode=mode, retries={"total_max_attempts": 1, "mode": "standard"}
            ),
        )
        self.client.meta.events.register("before-send", self._refuse)

    def _refuse(self, request: Any, **_: object) -> None:
        raise EndpointConnectionError(endpoint_url=request.url)


@pytest.mark.parametrize("mode", ["preferred", "disabled"])
def test_the_hosts_that_were_called(mode: str) -> None:
    wires = {service: Wire(service, mode).client for service in ("kinesis", "dynamodb", "cloudwatch")}
    report = diagnose(Connection(clients=wires), "orders", "billing", sleep=lambda _seconds: None)
    found = only(report, "endpoint")
    if mode == "preferred":
        assert found.level is Level.RED, "nothing was reached"
        assert "123456789012.ddb.eu-west-1.amazonaws.com" in found.text
        assert "AWS_ACCOUNT_ID_ENDPOINT_MODE=disabled" in found.remedy
        unreached = [
            one.text
            for one in report.findings
            if one.code == "unreachable" and one.title.startswith("dynamodb")
        ]
        assert "boto3 uses this host because it knows the account" in unreached[0]
    else:
        assert found.level is Level.NOTE
        assert "kinesis.eu-west-1.amazonaws.com" in found.text
        assert "dynamodb.eu-west-1.amazonaws.com" in found.text
        assert not found.remedy
    handlers = wires["kinesis"].meta.events._emitter._handlers.prefix_search("before-send.kinesis.ListShards")
    assert not [one for one in handlers if "note_host" in getattr(one, "__name__", "")], "the hook is removed"


def test_hosts_of_the_account_that_answer_are_a_note() -> None:
    facts = Facts(
        stream="orders",
        application="billing",
        hosts={"kinesis": ("123456789012.data-kinesis.eu-west-1.amazonaws.com",)},
    )
    (found,) = [one for one in judge(facts) if one.code == "endpoint"]
    assert (found.level, found.title) == (Level.NOTE, "endpoints of the account")
    assert not [one for one in judge(Facts(stream="orders", application="billing")) if one.code == "endpoint"]
