from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kinesis_sdk.admin import Connection, FleetView
from kinesis_sdk.admin.applications import Application
from kinesis_sdk.admin.fleet.model import ErrorCode
from kinesis_sdk.admin.fleet.poller import FleetPoller
from kinesis_sdk.cli import web
from kinesis_sdk.cli.web.admin_backend import AdminBackend, PollerWatch
from kinesis_sdk.common.aggregate_writer import Aggregate
from kinesis_sdk.common.errors import AwsConfigError, ConfigError, InvalidPositionError, PermanentAwsError
from kinesis_sdk.common.hashkeys import hash_partition_key
from kinesis_sdk.common.headers import encode_headers
from kinesis_sdk.consumer.leases.table.dynamodb import DynamoDBLeaseStore
from kinesis_sdk.testing import FakeAws
from tests.cli.web.generated import HOSTILE, shard_name


@pytest.fixture
def account() -> FakeAws:
    aws = FakeAws()
    kinesis = aws.client("kinesis")
    kinesis.create_stream(StreamName="orders", ShardCount=1)
    for data in (b'{"total": 12345678901234567890}', HOSTILE.encode(), b"\x00\xff", b""):
        kinesis.put_record(StreamName="orders", PartitionKey="<key>", Data=data or b" ")
    store = DynamoDBLeaseStore(aws.client("dynamodb"), "billing", sleep=lambda _: None)
    store.ensure_ready()
    return aws


def backend(account: FakeAws, **settings: Any) -> AdminBackend:
    clients = {name: account.client(name) for name in ("kinesis", "dynamodb")}
    return AdminBackend(Connection(region="eu-west-1", clients=clients), stream="orders", **settings)


def test_the_password_of_an_endpoint_is_not_shown() -> None:
    one = AdminBackend(Connection(endpoint_url="http://name:secret@proxy:4566", clients={"sts": Sts()}))
    assert one.describe() == {"region": None, "endpoint": "http://proxy:4566", "account": "123456789012"}


class Sts:
    """Counts the calls; after the first one, or at once, it fails."""

    calls = 0

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails

    def get_caller_identity(self) -> dict[str, str]:
        self.calls += 1
        if self.fails:
            raise PermanentAwsError("no", operation="GetCallerIdentity", code="AccessDenied")
        return {"Account": "123456789012"}


def test_the_account_is_asked_for_once_and_may_be_unknown() -> None:
    for fails, account in ((False, "123456789012"), (True, None)):
        sts = Sts(fails=fails)
        one = AdminBackend(Connection(region="eu-west-1", clients={"sts": sts}))
        for _ in range(3):
            assert one.describe() == {"region": "eu-west-1", "endpoint": None, "account": account}
        assert sts.calls == 1


@pytest.mark.parametrize(
    ("environment", "region", "endpoint"),
    [
        ({"AWS_DEFAULT_REGION": "eu-north-1"}, "eu-north-1", None),
        ({"AWS_DEFAULT_REGION": "cn-north-1"}, "cn-north-1", None),
        (
            {"AWS_DEFAULT_REGION": "eu-north-1", "AWS_ENDPOINT_URL": "http://localhost:4566"},
            "eu-north-1",
            "http://localhost:4566",
        ),
    ],
)
def test_what_the_environment_gives_is_named_on_pages_and_in_commands(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], region: str, endpoint: str | None
) -> None:
    for name in ("AWS_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_KINESIS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    given = Connection(clients={"sts": Sts()})
    assert (given.region, given.endpoint_url) == (None, None)
    one = AdminBackend(given.resolved())
    assert one.describe() == {"region": region, "endpoint": endpoint, "account": "123456789012"}
    assert one.options == ("--region", region, *(("--endpoint-url", endpoint) if endpoint else ()))
    named = Connection(region="us-east-2", endpoint_url="http://other", clients={"sts": Sts()}).resolved()
    assert (named.region, named.endpoint_url) == ("us-east-2", "http://other")


def test_applications_are_found_by_their_tables(account: FakeAws) -> None:
    (found,) = backend(account).applications()
    assert (found["name"], found["status"]) == ("billing", "ACTIVE")
    assert backend(account, applications=("another",)).applications() == []


def test_a_stream_has_its_shards_as_fractions_of_the_ring(account: FakeAws) -> None:
    kinesis = account.client("kinesis")
    kinesis.split_shard(StreamName="orders", ShardToSplit=shard_name(0), NewStartingHashKey=str(2**126))
    found = backend(account).stream("orders")
    json.dumps(found)
    parent, low, high = found["shards"]
    assert not parent["open"]
    assert (low["start"], low["width"], high["start"], high["width"]) == (0.0, 0.25, 0.25, 0.75)
    assert low["parents"] == high["parents"] == [parent["id"]]
    assert found["retention"] == 86_400.0
    assert found["at"] >= parent["from"]


def test_records_are_decoded_and_paged(account: FakeAws) -> None:
    one = backend(account)
    page = one.records(stream="orders", shard=shard_name(0), position="TRIM_HORIZON", iterator=None, limit=3)
    json.dumps(page)
    number, hostile, binary = page["records"]
    assert number["kind"] == "json"
    assert "12345678901234567890" in number["whole"], "a number that a browser cannot hold stays as it is"
    assert (hostile["text"], hostile["key"]) == (HOSTILE, "<key>")
    assert (binary["kind"], binary["text"], binary["size"]) == ("hex", "00 ff", 2)
    rest = one.records(
        stream="orders", shard=shard_name(0), position=page["next"], iterator=page["iterator"], limit=3
    )
    assert len(rest["records"]) == 1
    assert rest["tip"]


def test_headers_of_a_record_are_shown_and_long_ones_are_cut(account: FakeAws) -> None:
    headers = {"tenant": b"acme", "sum": b"\xff\x00", "long": b"x" * 5_000}
    aggregate = Aggregate(max_size=50_000, max_count=1)
    assert aggregate.try_append("k", None, b"data", hash_partition_key("k"), headers=encode_headers(headers))
    aggregate.seal()
    account.client("kinesis").put_record(
        StreamName="orders", Data=aggregate.encode(), PartitionKey="k", ExplicitHashKey="0"
    )
    page = backend(account).records(
        stream="orders", shard=shard_name(0), position="TRIM_HORIZON", iterator=None, limit=10
    )
    assert page["records"][0]["headers"] == []
    assert page["records"][-1]["headers"] == [
        ["tenant", "acme"],
        ["sum;b64", "/wA="],
        ["long", "x" * 600 + "…"],
    ]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"stream": ""}, "stream"),
        ({"shard": "../x"}, "shard"),
        ({"position": "anywhere"}, "position"),
        ({"position": "time:x"}, "position"),
    ],
)
def test_what_cannot_be_read_is_named(account: FakeAws, arguments: dict[str, str], field: str) -> None:
    given = {"stream": "orders", "shard": shard_name(0), "position": "LATEST", **arguments}
    with pytest.raises(ConfigError, match=field):
        backend(account).records(iterator=None, limit=10, **given)


def test_a_position_that_does_not_exist_is_told(account: FakeAws) -> None:
    with pytest.raises(InvalidPositionError):
        backend(account).records(
            stream="orders", shard=shard_name(0), position="at:123", iterator=None, limit=1
        )


class Started:
    def __init__(self, account: FakeAws, *, problem: str = "") -> None:
        self.account = account
        self.problem = problem
        self.made: list[str] = []
        self.views: list[FleetView] = []
        self.waiting: list[Callable[[], None]] = []
        self.watch = PollerWatch("billing", self.make, self.views.append, spawn=self.waiting.append)

    def make(self, name: str) -> FleetPoller:
        self.made.append(name)
        if self.problem:
            raise AwsConfigError(self.problem)
        clients = {service: self.account.client(service) for service in ("kinesis", "dynamodb")}
        return FleetPoller(Application(Connection(clients=clients), name, stream="orders"))


def test_nothing_is_made_without_a_page(account: FakeAws) -> None:
    one = Started(account)
    one.watch.stop()
    one.watch.focus(frozenset({"k"}))
    one.watch.refresh()
    one.watch.close()
    assert one.made == []


def test_a_page_that_has_gone_before_the_client_was_ready_begins_nothing(account: FakeAws) -> None:
    one = Started(account)
    one.watch.start()
    one.watch.stop()
    one.waiting.pop()()
    assert one.made == []


def test_missing_credentials_are_a_view_with_an_error(account: FakeAws) -> None:
    one = Started(account, problem="no region is configured")
    one.watch.start()
    one.waiting.pop()()
    (view,) = one.views
    assert (view.application, view.leases) == ("billing", ())
    assert "no region is configured" in view.error
    assert view.error_code is ErrorCode.AWS_SETTINGS


def test_the_page_knows_the_codes_of_errors_that_it_explains() -> None:
    """A code that was renamed would show a page without its remedy."""
    page = (Path(web.__file__).parent / "assets" / "view-fleet.js").read_text(encoding="utf-8")
    named = set(re.findall(r'head\.errorCode === "([^"]+)"', page))
    assert named == {code.value for code in ErrorCode if code is not ErrorCode.OTHER}
