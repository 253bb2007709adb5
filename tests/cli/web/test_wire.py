from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import pytest

from kinesis_sdk.admin import FleetView, LagReading, LagSource, LeaseState, LeaseView, OwnerKind, OwnerView
from kinesis_sdk.admin.fleet.model import TREND_LENGTH
from kinesis_sdk.cli.web.wire import Picture, changes, lease_detail, picture
from tests.cli.web.generated import GeneratedFleet


def apply(before: Picture, change: Picture) -> Picture:
    """What assets/live.js does with changes."""
    after: Picture = pickle.loads(pickle.dumps(before))  # a deep copy, but ten times as fast
    after["head"] = change["head"]
    for name in ("problems", "moves"):
        if name in change:
            after[name] = change[name]
    for name in ("owners", "leases"):
        if name not in change:
            continue
        if "whole" in change[name]:
            after[name] = change[name]["whole"]
            continue
        for column, cells in change[name].get("cells", {}).items():
            for place, value in zip(cells[::2], cells[1::2], strict=True):
                after[name][column][place] = value
        for row, value in enumerate(change[name].get("push", [])):
            trend = after[name]["trend"][row]
            trend.append(value)
            del trend[:-TREND_LENGTH]
    return after


@pytest.mark.parametrize(
    # With 130 more than ten minutes of trends, so that they have begun to move on.
    ("shards", "owners", "views"),
    [(4, 2, 130), (60, 7, 30), pytest.param(300, 40, 130, marks=pytest.mark.fuzz_only)],
)
def test_changes_turn_one_picture_into_the_next(shards: int, owners: int, views: int) -> None:
    fleet = GeneratedFleet(shards, owners, seed=shards)
    shown = picture(fleet.view())
    for _ in range(views):
        after = picture(fleet.view())
        change = json.loads(json.dumps(changes(shown, after)))
        assert "whole" not in change.get("leases", {})
        shown = apply(shown, change)
        assert shown == after


def test_an_equal_view_sends_the_head_alone() -> None:
    view = GeneratedFleet(100, 10).view()
    assert changes(picture(view), picture(view)).keys() == {"head"}


def test_another_lease_or_owner_sends_the_table_again() -> None:
    view = GeneratedFleet(50, 5).view()
    fewer = replace(
        view, leases=view.leases[1:], owners=(*view.owners, OwnerView(worker_id="z", kind=OwnerKind.OTHER))
    )
    change = changes(picture(view), picture(fewer))
    assert change["leases"]["whole"]["key"] == [lease.lease_key for lease in view.leases[1:]]
    assert "whole" in change["owners"]
    assert apply(picture(view), change) == picture(fewer)


def test_a_trend_that_does_not_move_on_by_one_is_sent_as_it_is() -> None:
    def with_trend(values: tuple[int | None, ...]) -> Picture:
        owner = OwnerView(worker_id="w", kind=OwnerKind.SDK, trend=values)
        return picture(FleetView(application="a", at=0.0, owners=(owner,)))

    for before, after in (
        ((1000, 2000), (1000, 2000, 3000, 4000)),
        ((1000, 2000), (3000,)),
        ((1000, 2000), (2000, 3000)),
        ((None,) * TREND_LENGTH, (None,) * (TREND_LENGTH - 1) + (5000,)),
    ):
        change = changes(with_trend(before), with_trend(after))
        assert apply(with_trend(before), json.loads(json.dumps(change))) == with_trend(after)


def test_what_is_sent_again_is_small() -> None:
    fleet = GeneratedFleet(400, 80)
    before = picture(fleet.view())
    whole = len(json.dumps(before, separators=(",", ":")))
    full = len(json.dumps(fleet.view().to_dict(), separators=(",", ":")))
    sizes = []
    for _ in range(10):
        after = picture(fleet.view())
        sizes.append(len(json.dumps(changes(before, after), separators=(",", ":"))))
        before = after
    assert whole < full / 5
    assert sorted(sizes)[5] < whole / 10


def test_an_owner_that_is_no_row_of_the_table_of_owners_has_its_name() -> None:
    lease = LeaseView(lease_key="k", shard_id="k", state=LeaseState.HELD, owner="unlisted")
    shown = picture(FleetView(application="a", at=0.0, leases=(lease,)))
    assert shown["owners"]["id"][shown["leases"]["owner"][0]] == "unlisted"
    assert len({len(column) for column in shown["owners"].values()}) == 1


@pytest.mark.parametrize(
    ("millis", "shown"),
    [(None, None), (0, 0), (1, 500), (999, 500), (1000, 1000), (1049, 1000), (81_640_123, 82_000_000)],
)
def test_lag_is_rounded_to_what_the_page_shows(millis: int | None, shown: int | None) -> None:
    reading = None if millis is None else LagReading(millis=millis, age=0.0, source=LagSource.PROBE)
    lease = LeaseView(lease_key="k", shard_id="k", state=LeaseState.HELD, lag=reading)
    assert picture(FleetView(application="a", at=0.0, leases=(lease,)))["leases"]["lag"] == [shown]


def test_a_whole_lease_is_found_by_its_key() -> None:
    view = GeneratedFleet(10, 2).view()
    found: Any = lease_detail(view, view.leases[3].lease_key)
    assert found["checkpoint"]["sequence_number"] == view.leases[3].checkpoint.sequence_number  # type: ignore[union-attr]
    assert lease_detail(view, "another") is None
