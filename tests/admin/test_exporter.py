"""Metrics of the exporter: what is exported, and what must be absent."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kinesis_sdk.admin import exporter
from kinesis_sdk.admin.exporter import CATALOGUE, STALE, FleetMetrics, samples_of
from kinesis_sdk.admin.exporter_http import ExporterPages
from kinesis_sdk.admin.fleet.model import FleetView, HandlerFailure, LeaseState, Move
from kinesis_sdk.testing import VirtualClock
from tests.cli.tui.views import HOSTILE, make_view

VIEW = make_view(shards=12, workers=3, problems=5, moves=3, unowned=2, silent=1)


class Scraped:
    """An exporter of one application, and what a scrape of it shows."""

    def __init__(
        self, *views: FleetView, per_owner: bool = False, names: tuple[str, ...] = ("billing",)
    ) -> None:
        self.clock = VirtualClock()
        self.metrics = FleetMetrics(names, per_owner=per_owner, clock=self.clock)
        self.pages = ExporterPages(self.metrics)
        for view in views:
            self.metrics.update(view)

    def series(self) -> dict[str, list[tuple[dict[str, str], float]]]:
        status, kind, body = self.pages.page("/metrics")
        assert status == 200
        assert kind.startswith("text/plain")
        found: dict[str, list[tuple[dict[str, str], float]]] = {}
        for family in text_string_to_metric_families(body.decode()):
            for sample in family.samples:
                found.setdefault(sample.name, []).append((sample.labels, sample.value))
        return found

    def one(self, name: str, **labels: str) -> float:
        (value,) = [value for own, value in self.series()[name] if labels.items() <= own.items()]
        return value

    def json(self, path: str) -> tuple[int, Any]:
        status, kind, body = self.pages.page(path)
        assert kind == "application/json"
        return status, json.loads(body)


def test_what_the_totals_say() -> None:
    scraped = Scraped(VIEW)
    assert scraped.one("kinesis_fleet_up", application="billing") == 1
    assert scraped.one("kinesis_fleet_unowned_shards") == 2
    assert scraped.one("kinesis_fleet_silent_owners") == 1
    assert scraped.one("kinesis_fleet_worst_lag_seconds") == VIEW.totals.worst_lag_millis / 1000  # type: ignore[operator]
    assert scraped.one("kinesis_fleet_shards", state="unowned", stream="orders") == 2
    assert scraped.one("kinesis_fleet_shards", state="finished") == 0
    assert scraped.one("kinesis_fleet_problems", code="handler", severity="error") == 1
    assert scraped.one("kinesis_fleet_api_calls_per_minute", operation="Scan") == 30
    assert sum(value for _, value in scraped.series()["kinesis_fleet_owners"]) == 2


def test_a_lag_that_is_not_known_is_absent_and_not_0() -> None:
    series = Scraped(VIEW).series()
    unknown = {lease.shard_id for lease in VIEW.leases if lease.lag is None}
    assert unknown
    for name in ("kinesis_fleet_shard_lag_seconds", "kinesis_fleet_shard_retention_left_seconds"):
        shown = {labels["shard"] for labels, _ in series[name]}
        assert shown == {lease.shard_id for lease in VIEW.leases} - unknown
    blind = replace(
        VIEW,
        totals=replace(VIEW.totals, worst_lag_millis=None, measured=0),
        leases=tuple(replace(lease, lag=None) for lease in VIEW.leases),
    )
    series = Scraped(blind).series()
    assert not series.keys() & {
        "kinesis_fleet_worst_lag_seconds",
        "kinesis_fleet_total_lag_seconds",
        "kinesis_fleet_shard_lag_seconds",
    }


@pytest.mark.parametrize(
    ("code", "change", "seconds"),
    [
        (
            "handler-fails",
            {
                "failing": HandlerFailure(
                    attempts=4, seconds=90.0, retry_in=8.0, records=1, position=None, error="KeyError"
                )
            },
            90.0,
        ),
        ("handler", {"handler_seconds": 75.0}, 75.0),
        ("lag", {"handler_seconds": 75.0}, None),
    ],
)
def test_a_shard_whose_handler_has_a_problem_is_named(
    code: str, change: dict[str, Any], seconds: float | None
) -> None:
    view = make_view(shards=3, workers=1, problems=1)
    lease = replace(view.leases[1], **change)
    problem = replace(view.problems[0], code=code, lease_key=lease.lease_key)
    found = Scraped(
        replace(view, leases=(view.leases[0], lease, view.leases[2]), problems=(problem,))
    ).series()
    stuck = [
        (labels["shard"], value)
        for labels, value in found.get("kinesis_fleet_shard_handler_stuck_seconds", ())
    ]
    assert stuck == ([] if seconds is None else [(lease.shard_id, seconds)])


def test_unowned_and_silent_shards_stay_visible() -> None:
    owned = Scraped(VIEW).series()["kinesis_fleet_shard_owned"]
    assert len(owned) == 12
    for labels, value in owned:
        (lease,) = [one for one in VIEW.leases if one.shard_id == labels["shard"]]
        assert value == (lease.state is LeaseState.HELD)
        assert (labels["owner_kind"] == "none") == (lease.owner is None)


def test_a_shard_that_waits_for_its_parents_is_not_called_unowned() -> None:
    waiting = replace(VIEW.leases[0], state=LeaseState.WAITING, owner=None)
    owned = Scraped(replace(VIEW, leases=(waiting, *VIEW.leases[1:]))).series()["kinesis_fleet_shard_owned"]
    assert waiting.shard_id not in {labels["shard"] for labels, _ in owned}
    assert len(owned) == 11


def test_an_abandoned_application_is_visible() -> None:
    nobody = make_view(shards=3, workers=0)
    assert Scraped(nobody).one("kinesis_fleet_abandoned") == 1
    assert Scraped(VIEW).one("kinesis_fleet_abandoned") == 0
    assert Scraped(make_view(shards=0, workers=0)).one("kinesis_fleet_abandoned") == 0


def test_an_application_that_was_never_read_is_down() -> None:
    scraped = Scraped(VIEW, names=("billing", "search"))
    assert scraped.one("kinesis_fleet_up", application="search") == 0
    assert scraped.one("kinesis_fleet_up", application="billing") == 1


def test_series_of_shards_that_are_gone_end() -> None:
    scraped = Scraped(VIEW)
    scraped.metrics.update(replace(VIEW, leases=VIEW.leases[1:]))
    shards = {labels["shard"] for labels, _ in scraped.series()["kinesis_fleet_shard_owned"]}
    assert shards == {lease.shard_id for lease in VIEW.leases[1:]}
    finished = replace(VIEW.leases[0], state=LeaseState.FINISHED)
    scraped.metrics.update(replace(VIEW, leases=(finished, *VIEW.leases[1:])))
    shards = {labels["shard"] for labels, _ in scraped.series()["kinesis_fleet_shard_owned"]}
    assert finished.shard_id not in shards


def test_an_old_view_loses_its_numbers() -> None:
    scraped = Scraped(VIEW)
    scraped.clock.advance(STALE - VIEW.table_age)
    assert scraped.one("kinesis_fleet_up") == 1
    assert scraped.json("/healthz")[0] == 200
    scraped.clock.advance(0.1)
    assert scraped.one("kinesis_fleet_up") == 0
    assert scraped.one("kinesis_fleet_table_age_seconds") == pytest.approx(60.1)
    assert not any(name.startswith("kinesis_fleet_shard") for name in scraped.series())
    assert scraped.json("/healthz") == (503, {"ok": False, "not_fresh": ["billing"]})
    assert scraped.json("/lag/billing")[0] == 503


def test_a_look_that_fails_does_not_freshen_the_view() -> None:
    scraped = Scraped(VIEW)
    scraped.clock.advance(100.0)
    scraped.metrics.update(replace(VIEW, error="denied", table_age=101.0))
    assert scraped.one("kinesis_fleet_up") == 0


def test_moves_are_counted_once() -> None:
    scraped = Scraped(VIEW, VIEW, VIEW)
    assert sum(value for _, value in scraped.series()["kinesis_fleet_moves_total"]) == 3
    newer = Move(
        at=VIEW.at + 1,
        lease_key="shardId-000000000001",
        shard_id="shardId-000000000001",
        before="a",
        after="b",
        reason="stolen",
    )
    scraped.metrics.update(replace(VIEW, moves=(newer, *VIEW.moves[:-1])))
    assert scraped.one("kinesis_fleet_moves_total", reason="stolen") == 1
    assert sum(value for _, value in scraped.series()["kinesis_fleet_moves_total"]) == 4
    # The ten minutes are over: nothing moved, and nothing is counted again.
    scraped.metrics.update(replace(VIEW, moves=()))
    scraped.metrics.update(replace(VIEW, moves=()))
    assert sum(value for _, value in scraped.series()["kinesis_fleet_moves_total"]) == 4


@pytest.mark.parametrize("per_owner", [False, True])
def test_worker_ids_are_labels_only_when_asked_for(per_owner: bool) -> None:
    view = make_view(shards=4, workers=2, names=(HOSTILE + '"\\',))
    series = Scraped(view, per_owner=per_owner).series()
    with_owner = {name for name, own in series.items() if any("owner" in labels for labels, _ in own)}
    assert bool(with_owner) is per_owner
    if per_owner:
        owners = {labels["owner"] for labels, _ in series["kinesis_fleet_owner_leases"]}
        assert owners == {owner.worker_id for owner in view.owners}


def test_tables_of_several_streams_name_them() -> None:
    leases = tuple(
        replace(lease, stream=f"1234:{'orders' if number % 2 else 'clicks'}:1", lease_key=f"{number}")
        for number, lease in enumerate(VIEW.leases)
    )
    series = Scraped(replace(VIEW, leases=leases, streams=("clicks", "orders"))).series()
    assert {labels["stream"] for labels, _ in series["kinesis_fleet_shard_owned"]} == {"clicks", "orders"}


def test_every_metric_of_the_catalogue_is_exported_with_its_labels() -> None:
    hangs = replace(VIEW.leases[0], handler_seconds=75.0)
    problem = replace(VIEW.problems[0], code="handler", lease_key=hangs.lease_key)
    view = replace(VIEW, leases=(hangs, *VIEW.leases[1:]), problems=(problem, *VIEW.problems))
    scraped = Scraped(view, per_owner=True)
    series = scraped.series()
    for metric in CATALOGUE:
        assert series[metric.sample], metric.name
        for labels, _ in series[metric.sample]:
            assert tuple(sorted(labels)) == tuple(sorted(scraped.metrics.labels(metric)))


def test_the_catalogue_has_every_metric_of_the_module() -> None:
    defined = {value for value in vars(exporter).values() if isinstance(value, exporter.FleetMetric)}
    assert defined == set(CATALOGUE)
    assert {metric for metric, _, _ in samples_of(VIEW, per_owner=True)} <= defined


# Pages


def test_keda_gets_numbers_or_an_error_but_never_a_0_that_is_not_known() -> None:
    scraped = Scraped(VIEW, names=("billing", "search"))
    status, body = scraped.json("/lag/billing")
    assert status == 200
    assert body["worst_lag_seconds"] == VIEW.totals.worst_lag_millis / 1000  # type: ignore[operator]
    assert body["shards"] == 12
    assert scraped.json("/lag/search")[0] == 503
    assert scraped.json("/lag/other")[0] == 404
    assert scraped.json("/keda") == (200, {"applications": {"billing": body}})
    blind = replace(VIEW, totals=replace(VIEW.totals, worst_lag_millis=None))
    scraped.metrics.update(blind)
    assert scraped.json("/lag/billing")[0] == 503
    scraped.metrics.update(make_view(shards=0, workers=0))
    assert scraped.json("/lag/billing")[1]["worst_lag_seconds"] == 0


@pytest.mark.parametrize("path", ["/metric", "/lag", "/lag/", "/lag/../billing", "/keda/x", "//metrics"])
def test_other_paths_do_not_exist(path: str) -> None:
    assert Scraped(VIEW).pages.page(path)[0] == 404


def test_a_query_and_an_escape_do_no_harm() -> None:
    scraped = Scraped(VIEW)
    assert scraped.pages.page("/metrics?name[]=x")[0] == 200
    assert scraped.json("/lag/bil%6cing?x=1")[0] == 200
    assert scraped.pages.page("/")[0] == 200
