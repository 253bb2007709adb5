from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kinesis_sdk.admin.connection import Connection
from kinesis_sdk.admin.lineage import Origin
from kinesis_sdk.admin.resharding import Resharding
from kinesis_sdk.admin.scaling import UpdateCount, is_even
from kinesis_sdk.admin.streams import Streams
from kinesis_sdk.common.errors import (
    AdminError,
    ConfigError,
    PermanentAwsError,
    ProtocolError,
    ResourceNotFoundError,
    ThrottledError,
)
from kinesis_sdk.testing import Fault
from tests.admin.account import Account


@pytest.fixture
def account() -> Account:
    return Account(stream_delay=3.0, reshard_delay=20.0, consumer_delay=2.0)


def starts(account: Account) -> list[int]:
    return [one.hash_key_range.start for one in account.streams.shards("orders", only_open=True)]


def test_a_stream_is_created_with_its_settings(account: Account) -> None:
    made = account.streams.create(
        "orders", shards=3, retention_hours=48, tags={"team": "billing"}, max_record_kib=2048
    )
    assert (made.status, made.open_shards, made.retention_hours) == ("ACTIVE", 3, 48)
    assert (made.tags, made.max_record_kib, made.mode) == ({"team": "billing"}, 2048, "PROVISIONED")
    assert account.clock.monotonic() >= 3.0, "it waited until the stream was ACTIVE"
    on_demand = account.streams.create("clicks", mode="ON_DEMAND")
    assert on_demand.mode == "ON_DEMAND"
    assert account.streams.names() == ["clicks", "orders"]
    assert [one.status for one in account.streams.list_streams("o")] == ["ACTIVE"]


def test_more_streams_than_a_page_are_all_listed() -> None:
    account = Account()
    for index in range(230):
        account.streams.create(f"s{index:03}", shards=1, wait=False)
    assert len(account.streams.names()) == 230
    assert account.calls("ListStreams") == 3


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"shards": 0}, r"shards=0.*1 to 100,000"),
        ({"shards": None}, r"shards=None"),
        ({"shards": 4, "mode": "ON_DEMAND"}, r"shards=4.*scales by itself"),
        ({"shards": 1, "mode": "SOMETIMES"}, r"mode.*PROVISIONED or ON_DEMAND"),
        ({"shards": 1, "retention_hours": 23}, r"retention_hours=23.*24 to 8,760"),
        ({"shards": 1, "max_record_kib": 1}, r"max_record_kib=1.*1,024 to 10,240"),
        ({"shards": 1, "retention_hours": 25, "wait": False}, r"retention_hours=25"),
    ],
)
def test_settings_out_of_range_are_named(account: Account, options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        account.streams.create("orders", **options)
    assert account.calls("CreateStream") == 0


def test_an_existing_stream_is_not_taken_for_a_new_one(account: Account) -> None:
    account.streams.create("orders", shards=1)
    with pytest.raises(AdminError, match="exists already"):
        account.streams.create("orders", shards=1)


@pytest.mark.parametrize("kind", ["timeout_after_storing", "timeout_before_storing", "error"])
@pytest.mark.parametrize(
    ("operation", "act"),
    [
        ("CreateStream", lambda s: s.create("new", shards=1)),
        ("DeleteStream", lambda s: s.delete("orders")),
        ("SplitShard", lambda s: Resharding(s).split("orders", "1")),
        ("MergeShards", lambda s: Resharding(s).merge("orders", "0", "1")),
        ("UpdateShardCount", lambda s: Resharding(s).scale("orders", 8)),
        ("IncreaseStreamRetentionPeriod", lambda s: s.set_retention("orders", 72)),
        ("RegisterStreamConsumer", lambda s: s.register_consumer("orders", "second")),
        ("DeregisterStreamConsumer", lambda s: s.deregister_consumer("orders", "first")),
    ],
)
def test_a_change_whose_answer_is_lost_is_made_once(
    kind: Any, operation: str, act: Callable[[Streams], object]
) -> None:
    account = Account(stream_delay=3.0, reshard_delay=20.0)
    account.streams.create("orders", shards=4)
    if operation != "DeleteStream":
        account.streams.register_consumer("orders", "first")
    account.aws.faults.add(Fault(kind=kind, operation=operation, count=1))
    act(account.streams)
    assert account.aws.stats()["faults"] == {kind: 1}
    if operation != "DeleteStream":
        made = {"SplitShard": 6, "MergeShards": 5, "UpdateShardCount": 12}.get(operation, 4)
        assert len(account.streams.shards("orders")) == made, "nothing was changed twice"
    assert {"new", "orders"} >= set(account.streams.names())


def test_throttled_changes_and_reads_are_repeated(account: Account) -> None:
    account.aws.faults.add(Fault(kind="throttle", code="LimitExceededException", count=3))
    account.streams.create("orders", shards=1)
    account.aws.faults.add(
        Fault(kind="throttle", code="LimitExceededException", operation="SplitShard", count=2)
    )
    assert len(Resharding(account.streams).split("orders", "0")) == 2


def test_a_quota_is_reported_after_a_few_attempts() -> None:
    account = Account(shard_limit=3)
    with pytest.raises(ThrottledError, match="shard limit"):
        account.streams.create("orders", shards=4)
    assert account.clock.monotonic() < 60


def test_deleting_a_stream_with_consumers_has_to_be_said() -> None:
    account = Account()
    account.streams.create("orders", shards=1)
    account.streams.register_consumer("orders", "billing")
    with pytest.raises(AdminError, match="1 registered fan-out consumers"):
        account.streams.delete("orders")
    account.streams.delete("orders", with_consumers=True)
    assert account.streams.names() == []
    with pytest.raises(ResourceNotFoundError):
        account.streams.describe("orders")


def test_a_split_in_the_middle_and_at_a_hash_key(account: Account) -> None:
    account.streams.create("orders", shards=2)
    left, right = Resharding(account.streams).split("orders", "0001")
    by_id = {one.shard_id: one for one in account.streams.shards("orders")}
    assert by_id[right].hash_key_range.start == 3 << 126
    Resharding(account.streams).split("orders", "0", hash_key=2)
    owned = [one.hash_key_range for one in account.streams.shards("orders", only_open=True)]
    assert min(owned).end == 1
    assert left in by_id
    for outside in (0, by_id[left].hash_key_range.start + 1, by_id[left].hash_key_range.end):
        with pytest.raises(ConfigError, match=f"hash_key={outside} "):
            Resharding(account.streams).split("orders", left, hash_key=outside)
    with pytest.raises(ConfigError, match=r"shard='1'.* 2, 3"):
        Resharding(account.streams).split("orders", "1")
    with pytest.raises(ConfigError, match=r"shard='9'.* 2, 3, 4, 5"):
        Resharding(account.streams).split("orders", "9")
    tiny = min(account.streams.shards("orders", only_open=True), key=lambda one: one.hash_key_range)
    with pytest.raises(ConfigError, match="at least four hash keys"):
        Resharding(account.streams).split("orders", tiny.shard_id)


def test_only_neighbours_are_merged(account: Account) -> None:
    account.streams.create("orders", shards=4)
    with pytest.raises(ConfigError, match=r"adjacent='3'.* 0 or 2"):
        Resharding(account.streams).merge("orders", "1", "3")
    assert account.calls("MergeShards") == 0
    child = Resharding(account.streams).merge("orders", "2", "1")
    made = account.streams.lineage("orders").shards[-1]
    assert (made.shard_id, made.origin, made.parents) == (
        child,
        Origin.MERGE,
        ("shardId-000000000001", "shardId-000000000002"),
    )


def test_a_change_waits_for_the_one_before_it(account: Account) -> None:
    account.streams.create("orders", shards=2)
    account.connection.kinesis.split_shard(
        StreamName="orders", ShardToSplit="shardId-000000000000", NewStartingHashKey="5"
    )
    Resharding(account.streams, progress=account.said.append).split("orders", "1")
    assert len(starts(account)) == 4
    assert any("UPDATING" in word for word in account.said)


def test_a_change_that_takes_too_long_says_so() -> None:
    account = Account(reshard_delay=1000.0)
    account.streams.create("orders", shards=1)
    with pytest.raises(AdminError, match="30 s"):
        Resharding(account.streams, timeout=30).split("orders", "0")


@pytest.mark.parametrize("method", ["auto", "split-merge"])
def test_scaling_ends_in_equal_shards(account: Account, method: Any) -> None:
    account.streams.create("orders", shards=2)
    Resharding(account.streams).split("orders", "0", hash_key=77)
    result = Resharding(account.streams, progress=account.said.append).scale("orders", 5, method=method)
    assert (result.before, result.after) == (3, 5)
    assert (result.updates > 0) is (method == "auto")
    assert is_even(starts(account), 5)
    assert account.streams.lineage("orders").hole is None
    assert account.said
    assert Resharding(account.streams).scale("orders", 5).updates == 0, "it has that layout already"


def test_scaling_goes_on_with_splits_when_the_daily_limit_is_reached() -> None:
    account = Account(throttle_control_plane=True)
    account.streams.create("orders", shards=4)
    for index in range(10):
        account.clock.advance(1)
        Resharding(account.streams).scale("orders", 8 if index % 2 == 0 else 4, method="update-shard-count")
    with pytest.raises(ThrottledError, match="24-hour"):
        Resharding(account.streams).scale("orders", 8, method="update-shard-count")
    result = Resharding(account.streams, progress=account.said.append).scale("orders", 8)
    assert (result.updates, result.splits, result.after) == (1, 4, 8)
    assert any("going on with splits and merges" in word for word in account.said)
    account.clock.advance(86_400)
    assert Resharding(account.streams).scale("orders", 4, method="update-shard-count").updates == 1


def test_on_demand_streams_are_not_resharded(account: Account) -> None:
    account.streams.create("clicks", mode="ON_DEMAND")
    for act in (
        lambda: Resharding(account.streams).scale("clicks", 8),
        lambda: Resharding(account.streams).split("clicks", "0"),
        lambda: Resharding(account.streams).merge("clicks", "0", "1"),
    ):
        with pytest.raises(AdminError, match="ON_DEMAND"):
            act()


def test_an_emulator_without_update_shard_count_is_scaled_by_splits() -> None:
    account = Account()
    account.streams.create("orders", shards=2)
    del account.aws.kinesis.operations["UpdateShardCount"]
    assert Resharding(account.streams).plan_scale("orders", 16).steps == (
        UpdateCount(4),
        UpdateCount(8),
        UpdateCount(16),
    )
    result = Resharding(account.streams).scale("orders", 16)
    assert (result.splits, result.after) == (14, 16)


def test_retention_and_consumers(account: Account) -> None:
    account.streams.create("orders", shards=1)
    assert account.streams.set_retention("orders", 168) == 24
    assert account.streams.set_retention("orders", 48) == 168
    assert account.streams.describe("orders").retention_hours == 48
    with pytest.raises(ConfigError, match="24 to 8,760"):
        account.streams.set_retention("orders", 9000)
    made = account.streams.register_consumer("orders", "billing")
    assert (made.name, made.status) == ("billing", "ACTIVE")
    with pytest.raises(AdminError, match="billing"):
        account.streams.register_consumer("orders", "billing")
    assert [one.name for one in account.streams.consumers("orders")] == ["billing"]
    account.streams.deregister_consumer("orders", "billing")
    assert account.streams.consumers("orders") == ()
    with pytest.raises(AdminError, match="billing"):
        account.streams.deregister_consumer("orders", "billing")


def test_a_permanent_error_is_not_repeated(account: Account) -> None:
    account.streams.create("orders", shards=1)
    account.aws.faults.add(Fault(kind="throttle", code="AccessDeniedException", operation="SplitShard"))
    with pytest.raises(PermanentAwsError, match="AccessDenied"):
        Resharding(account.streams).split("orders", "0")
    assert account.calls("SplitShard") == 1


class Endless:
    """A client whose listings always have one more page."""

    def __init__(self) -> None:
        self.pages = 0

    def __getattr__(self, name: str) -> object:
        def page(**_request: object) -> dict[str, object]:
            self.pages += 1
            number = str(self.pages)
            return {
                "StreamNames": [number],
                "HasMoreStreams": True,
                "Tags": [{"Key": number}],
                "HasMoreTags": True,
                "Consumers": [],
                "NextToken": number,
            }

        return page


@pytest.mark.parametrize(
    "listing",
    [
        lambda streams: streams.list_streams(),
        lambda streams: streams.tags("orders"),
        lambda streams: streams.consumers("arn:aws:kinesis:us-east-1:000000000000:stream/orders"),
    ],
    ids=["streams", "tags", "consumers"],
)
def test_a_listing_without_an_end_is_given_up(listing: Callable[[Streams], object]) -> None:
    endless = Endless()
    streams = Streams(Connection(clients={"kinesis": endless}))
    with pytest.raises(ProtocolError):
        listing(streams)
    assert endless.pages == 1_000
