from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kinesis_sdk.admin.load import ShardLoad, sample_load
from kinesis_sdk.common.errors import AwsError, ConfigError
from kinesis_sdk.testing import Fault
from tests.admin.account import Account

SHARDS = ["shardId-000000000000", "shardId-000000000001"]


@pytest.fixture
def account() -> Account:
    account = Account()
    account.create("s", 2)
    return account


def put(account: Account, count: int, size: int, pause: float) -> None:
    """Put records into the first shard."""
    for _ in range(count):
        account.put("s", b"x" * (size - 3), "key", ExplicitHashKey="0")
        account.clock.advance(pause)


def sample(account: Account, shards: Sequence[str] = SHARDS, **options: Any) -> dict[str, ShardLoad]:
    return sample_load(
        account.connection, "s", shards, clock=account.clock, sleep=account.clock.advance, **options
    )


@pytest.mark.parametrize("threads", [1, 4])
def test_rates_against_the_limits_of_a_shard(account: Account, threads: int) -> None:
    put(account, 100, 10, 0.1)  # too old
    put(account, 100, 10_486, 0.1)
    loads = sample(account, window=10.0, threads=threads)
    busy, idle = loads[SHARDS[0]], loads[SHARDS[1]]
    assert busy.records_per_second == pytest.approx(10, rel=0.02)
    assert busy.bytes_per_second == pytest.approx(104_860, rel=0.02)
    assert busy.utilization == pytest.approx(0.1, rel=0.02), "bytes are nearer to their limit than records"
    assert (idle.records_per_second, idle.utilization) == (0, 0)
    assert (account.calls("GetShardIterator"), account.calls("GetRecords")) == (2, 2)


def test_a_page_that_does_not_reach_the_tip_counts_for_its_own_time(account: Account) -> None:
    # 20 MB in 40 s: a page has at most 10 MiB of them.
    put(account, 40, 500_000, 1.0)
    loads = sample(account, SHARDS[:1], window=40.0)
    assert loads[SHARDS[0]].bytes_per_second == pytest.approx(500_000, rel=0.06)
    assert loads[SHARDS[0]].seconds < 25


def test_a_shard_whose_reads_are_used_up_is_left_out(account: Account) -> None:
    account.aws.faults.add(Fault(kind="throttle", operation="GetRecords", count=3))
    loads = sample(account, threads=1)
    assert list(loads) == [SHARDS[1]]
    account.aws.faults.add(Fault(kind="throttle", code="AccessDeniedException", operation="GetRecords"))
    with pytest.raises(AwsError, match="AccessDenied"):
        sample(account)
    with pytest.raises(ConfigError, match=r"window=0.*from 1 to 300"):
        sample(account, window=0)
