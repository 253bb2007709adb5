from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kinesis_sdk.admin.fleet.balance import balance_of
from kinesis_sdk.admin.fleet.formatting import duration, lag_text, sparkline
from tests.admin.fleet.rows import Fleet


def test_groups_workers_and_moves() -> None:
    fleet = Fleet(6)
    fleet.take("zone-a|1", 0, 1, 2)
    fleet.take("zone-a|2", 3)
    fleet.take("zone-b|3", 4)
    balance = balance_of(fleet.scan())
    assert (balance.leases, balance.unowned, balance.workers, balance.ideal) == (6, 1, 3, 2.0)
    assert (balance.spread, balance.moves) == (2, 1)
    assert [(group.group, group.workers, group.leases, group.ideal) for group in balance.groups] == [
        ("zone-a", 2, 4, 4.0),
        ("zone-b", 1, 1, 2.0),
    ]
    assert [(one.worker_id, one.leases, one.share) for one in balance.by_worker] == [
        ("zone-a|1", 3, 2),
        ("zone-a|2", 1, 2),
        ("zone-b|3", 1, 2),
    ]


def test_the_separator_is_that_of_the_ids() -> None:
    """The article's script splits at a hyphen, which takes ``zone`` for the group of ``zone-a|host``."""
    fleet = Fleet(2)
    fleet.take("zone-a|1", 0)
    fleet.take("zone-b|2", 1)
    view = fleet.scan()
    assert [group.group for group in balance_of(view).groups] == ["zone-a", "zone-b"]
    assert [group.group for group in balance_of(view, "-").groups] == ["zone"]


def test_workers_that_fell_silent_or_drain_get_no_share() -> None:
    fleet = Fleet(4)
    fleet.take("a", 0, 1)
    fleet.take("b", 2)
    fleet.take("c", 3)
    fleet.change(3, draining=("c",))
    fleet.scan()
    for worker in ("b", "c"):
        fleet.renew(worker)
    balance = balance_of(fleet.scan(11))
    assert [(one.worker_id, one.share) for one in balance.by_worker] == [("b", 4)]
    assert balance.unowned == 3


def test_a_fleet_without_workers() -> None:
    balance = balance_of(Fleet(3).scan())
    assert (balance.workers, balance.ideal, balance.moves, balance.busiest) == (0, 0.0, 0, None)


@given(holdings=st.lists(st.integers(0, 12), min_size=1, max_size=8))
def test_the_moves_make_the_fleet_even(holdings: list[int]) -> None:
    fleet = Fleet(sum(holdings) or 1)
    number = 0
    for worker, count in enumerate(holdings):
        fleet.take(f"w{worker}", *range(number, number + count))
        number += count
    balance = balance_of(fleet.scan())
    workers = [count for count in holdings if count]
    assert balance.workers == len(workers)
    if workers:
        shares = [one.share for one in balance.by_worker]
        assert sum(shares) == sum(workers)
        assert max(shares) - min(shares) <= 1
        assert balance.moves == sum(max(0, one.leases - one.share) for one in balance.by_worker)
        assert (balance.moves == 0) == (sorted(workers) == sorted(shares))


def test_words() -> None:
    cases = {
        0: "0 s",
        0.44: "0.4 s",
        48: "48 s",
        766: "12 min 46 s",
        81_600: "22 h 40 min",
        3600: "1 h",
        273_600: "3 d 4 h",
    }
    assert {seconds: duration(seconds) for seconds in cases} == cases
    assert duration(-90) == "-1 min 30 s"
    assert duration(59.7) == "1 min"
    assert lag_text(None) == "–"


def test_sparklines_keep_noise_flat() -> None:
    assert sparkline((0, 900, None, 300)) == "▁▁ ▁"
    assert sparkline((0, 30_000, 60_000)) == "▁▄█"
    assert len(sparkline(tuple(range(60)))) == 10
