"""Each problem is found when it is there, and not otherwise; the docs list all codes."""

from __future__ import annotations

from pathlib import Path

import pytest

import kinesis_sdk
from kinesis_sdk.admin.applications import StreamFacts
from kinesis_sdk.admin.fleet.lag import LagProbeResult
from kinesis_sdk.admin.fleet.model import FleetView, Problem, Severity
from kinesis_sdk.admin.fleet.problems import RULES, ProblemSettings
from kinesis_sdk.admin.load import ShardLoad
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.consumer.leases.table.progress import Failing, Progress
from tests.admin.fleet.rows import Fleet, codes, held, shard_id
from tests.admin.fleet.scenes import SCENES, handler, healthy, pass_time, silent, view_of

DOCS = Path(kinesis_sdk.__file__).parents[1] / "docs" / "lag.md"


def the(view: FleetView, code: str) -> Problem:
    (found,) = [problem for problem in view.problems if problem.code == code]
    return found


def test_a_healthy_fleet_has_no_problem() -> None:
    fleet = healthy()
    assert codes(fleet.view()) == []
    assert codes(pass_time(fleet, 600)) == []


@pytest.mark.parametrize(
    ("rate", "load", "words"),
    [
        (700.0, None, ""),
        (930.0, None, "930 KB/s processed, and a shard accepts 1,024"),
        (700.0, (970.0, 100_000.0), "97% of what a shard accepts arrives: 98 KB/s, 970 records/s"),
        (930.0, (500.0, 100_000.0), ""),
    ],
)
def test_a_shard_is_hot_by_what_arrives_if_that_was_measured(
    rate: float, load: tuple[float, float] | None, words: str
) -> None:
    fleet = healthy()
    fleet.change(0, throughput_kbps=rate)
    fleet.scan(1)
    assert [key for key, *_ in fleet.observer.busy_leases(fleet.now)] == [shard_id(0)]
    if load is not None:
        records, size = load
        measured = ShardLoad(
            shard_id=shard_id(0),
            records_per_second=records,
            bytes_per_second=size,
            seconds=2.0,
            utilization=max(records / 1000, size / 2**20),
        )
        fleet.observer.observe_loads({shard_id(0): measured}, fleet.now)
        assert fleet.observer.busy_leases(fleet.now + 59) == []
        assert len(fleet.observer.busy_leases(fleet.now + 60)) == 1
    found = [one.text for one in fleet.view().problems if one.code == "hot-shard"]
    assert bool(found) == bool(words)
    assert all(words in text for text in found)


@pytest.mark.parametrize("code", SCENES)
def test_each_problem_is_found(code: str) -> None:
    view = view_of(code)
    assert code in codes(view)
    for problem in view.problems:
        assert problem.severity in (RULES[problem.code].severity, Severity.WARNING)
        assert problem.text
        assert problem.remedy
        assert problem.text[0] == problem.text[0].lower() or problem.text[0].isdigit()
        assert not problem.text.endswith(".")


@pytest.mark.parametrize(
    ("name", "delay", "retention", "severity"),
    [
        ("orders.retry-82800", 0, 24, None),
        ("orders.retry-82801", 0, 24, Severity.WARNING),
        ("orders.retry-86400.5", 0, 24, Severity.ERROR),
        ("orders.retry-86400.5", 0, 48, None),
        ("orders.retry-86401x", 0, 24, None),
        ("orders", 0, 24, None),
        ("later", 82_801_000, 24, Severity.WARNING),
        ("orders.retry-60", 86_400_000, 24, Severity.ERROR),
    ],
)
def test_a_tier_keeps_records_for_an_hour_after_they_are_due(
    name: str, delay: int, retention: int, severity: Severity | None
) -> None:
    """The delay is what a worker tells in its lease, else that of the name."""
    fleet = healthy()
    fleet.change(0, progress=Progress(0, None, None, "a|1", delay_millis=delay))
    fleet.renew("a|1")
    fleet.scan(1)
    fleet.observer.observe_stream(None, StreamFacts(name=name, retention=3600.0 * retention), fleet.now)
    found = [one for one in fleet.view().problems if one.code == "tier-forgets"]
    assert [one.severity for one in found] == ([] if severity is None else [severity])
    assert all("25 h" in one.remedy or "24 h" in one.remedy for one in found)


def test_every_code_has_a_scene_and_stands_in_the_docs() -> None:
    assert set(SCENES) | {"lag"} == set(RULES)
    page = DOCS.read_text(encoding="utf-8")
    assert [code for code in RULES if f"`{code}`" not in page] == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, ["handler-fails"]),
        ({"attempts": 2}, []),
        ({"attempts": 2, "lag": 61_000}, ["behind"]),
        ({"lag": 200_000}, ["handler-fails"]),
    ],
)
def test_a_failing_handler_is_the_only_problem_of_its_shard(change: dict[str, int], found: list[str]) -> None:
    fleet = healthy()
    failing = Failing(3, 4_000, 500, 1, ExtendedSequenceNumber("5"), "KeyError")
    lag = change.pop("lag", 4_000)
    fleet.change(0, progress=Progress(lag, None, None, "a|1", failing._replace(**change)))
    fleet.renew("a|1")
    fleet.scan(1)
    assert codes(fleet.view()) == found


def test_a_faster_handler_is_no_remedy_if_no_record_is_processed() -> None:
    fleet = healthy()
    fleet.checkpoint(0, "5000")
    for second in range(0, 100, 5):
        fleet.change(0, progress=Progress(60_000 + 1_000 * second, None, None, "a|1"))
        pass_time(fleet, 5)
    problem = the(fleet.view(), "falling-behind")
    assert problem.text.endswith("more than a minute ago: no record of it is processed")
    assert problem.remedy.startswith("look at the worker's log")


def test_a_limit_of_the_lag() -> None:
    fleet = healthy(settings=ProblemSettings(max_lag=30.0))
    assert codes(fleet.view()) == []
    fleet.observer.observe_lag(shard_id(0), LagProbeResult(millis=31_000), fleet.now)
    assert the(fleet.view(), "lag").text == "0000: 31 s behind, the limit is 30 s"


def test_an_owner_that_falls_silent_is_one_problem() -> None:
    view = silent(healthy(100))
    problem = the(view, "silent-owner")
    assert (problem.owner, problem.count) == ("a|1", 50)
    assert problem.text == "a|1: 50 leases not renewed for 20 s"
    assert problem.command is not None
    assert problem.command.operation == "explain"
    (lease,) = [one for one in view.leases if one.shard_id.endswith(str(problem.command.parameters["shard"]))]
    assert lease.owner == "a|1"


def test_the_worst_come_first() -> None:
    fleet = healthy()
    fleet.change(3, throughput_kbps=1000.0)
    fleet.observer.observe_lag(shard_id(1), LagProbeResult(millis=84_000_000), fleet.now)
    fleet.observer.observe_lag(shard_id(0), LagProbeResult(millis=85_000_000), fleet.now)
    fleet.change(2, progress=Progress(0, None, 90_000, "b|2"))
    fleet.renew("b|2")
    view = fleet.scan()
    assert [(problem.code, problem.shard_id) for problem in view.problems] == [
        ("near-horizon", shard_id(0)),
        ("near-horizon", shard_id(1)),
        ("handler", shard_id(2)),
        ("hot-shard", shard_id(3)),
    ]


def test_many_of_a_kind_become_ten_and_a_line() -> None:
    fleet = healthy(100)
    for number in range(100):
        fleet.observer.observe_lag(shard_id(number), LagProbeResult(millis=84_000_000 + number), fleet.now)
    view = fleet.view()
    assert len(view.problems) == 11
    assert (view.problems[-1].text, view.problems[-1].count) == ("90 more like these", 90)
    assert view.problems[0].shard_id == shard_id(99)


def test_a_first_look_warns_of_what_time_may_cure() -> None:
    fleet = Fleet(4)
    fleet.take("a", 0, 1, 2)
    fleet.shards = [*fleet.shards, Shard(shard_id(9), HashKeyRange(0, 5), starting_sequence_number="9000")]
    view = fleet.scan()
    assert {(problem.code, problem.severity) for problem in view.problems} == {
        ("unowned", Severity.WARNING),
        ("no-lease", Severity.WARNING),
    }


def test_a_lease_that_changes_hands_is_no_problem() -> None:
    fleet = healthy()
    fleet.release(0)
    assert codes(pass_time(fleet, 20)) == []
    fleet.take("b|2", 0)
    fleet.request(1, "b|2")
    assert codes(pass_time(fleet, 10)) == []


def test_an_unequal_number_of_leases_with_equal_load_is_balanced() -> None:
    fleet = unbalanced_by_count = healthy(10)
    fleet.take("a|1", 5, 6, 7)
    for number in range(8):
        fleet.change(number, throughput_kbps=10.0)
    for number in (8, 9):
        fleet.change(number, throughput_kbps=40.0)
    assert "unbalanced" not in codes(pass_time(fleet, 30))
    for number in (8, 9):
        unbalanced_by_count.change(number, throughput_kbps=None)
    for number in range(8):
        unbalanced_by_count.change(number, throughput_kbps=None)
    assert "unbalanced" in codes(pass_time(unbalanced_by_count, 30))


def test_a_handler_that_returns_ends_the_problem() -> None:
    fleet = healthy()
    assert "handler" in codes(handler(fleet))
    fleet.change(0, progress=Progress(0, None, None, "a|1"))
    assert codes(pass_time(fleet, 5)) == []


def test_hostile_ids_are_escaped() -> None:
    fleet = held(2, {"evil\x1b[31m\nworker": (0, 1)})
    view = fleet.scan(11)
    for problem in view.problems:
        assert (problem.text + problem.remedy).isprintable()
    assert "evil\\x1b[31m\\nworker" in the(view, "silent-owner").text


@pytest.mark.parametrize(
    ("skew", "severity", "words"),
    [
        (None, None, ""),
        (4.9, None, ""),
        (5.0, Severity.WARNING, "is 5 s behind that of AWS"),
        (-59.0, Severity.WARNING, "is 59 s ahead of that of AWS"),
        (-300.0, Severity.ERROR, "is 5 min ahead of that of AWS"),
    ],
)
def test_a_clock_is_judged_as_doctor_does(skew: float | None, severity: Severity | None, words: str) -> None:
    fleet = healthy()
    fleet.observer.observe_calls({}, skew=skew)
    found = [one for one in fleet.view().problems if one.code == "clock-skew"]
    assert [one.severity for one in found] == ([] if severity is None else [severity])
    assert all(words in one.text for one in found)
