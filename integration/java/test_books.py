"""The books find what they are for."""

from __future__ import annotations

import pytest

from integration.java.books import Acquisition, Record, keep

HELD = {
    "a": [
        Record(1, 0, "1.0", optional=False),
        Record(1, 1, "1.1", optional=False),
        Record(2, 0, "2", optional=False),
    ]
}
PLACES = {"1.0": (1, 0), "1.1": (1, 1), "2": (2, 0)}
START = (-1, 0)


def acquisition(worker, begin, position, *data, stored=(), ended="lost", shard="a"):
    told = [(begin + number, PLACES[one], one) for number, one in enumerate(data, 1)]
    return Acquisition(shard, worker, begin, position, told, [(begin + 9, one) for one in stored], ended)


def books(*parts, held=HELD, acknowledged=("1.0", "1.1", "2"), parents=None):
    found = {}
    for part in parts:
        found.setdefault(part.shard, []).append(part)
    return keep(held, parents or {}, acknowledged, found)


def test_a_run_that_goes_on_inside_an_aggregate_is_right():
    result = books(
        acquisition("x", 0, START, "1.0", "1.1", stored=[(1, 0)]),
        acquisition("y", 10, (1, 0), "1.1", "2", ended="stopped"),
    )
    assert not result.faults
    assert (result.resumed, result.resumed_inside, result.again["lost"]) == (1, 1, 1)
    assert "3 acknowledged records, 0 faults" in str(result)


@pytest.mark.parametrize(
    ("parts", "fault"),
    [
        ([acquisition("x", 0, START, "1.0", "1.1")], "1 acknowledged records are missing"),
        ([acquisition("x", 0, START, "1.0", "2", "1.1")], "where Record"),
        ([acquisition("x", 0, START, "1.0", "2"), acquisition("y", 10, START, "1.0", "1.1", "2")], "2 at"),
        ([acquisition("x", 0, START, "1.1", "2"), acquisition("y", 10, START, "1.0", "1.1", "2")], "1.1 at"),
        ([acquisition("x", 0, START, "1.0", "1.1", "2"), acquisition("y", 10, (1, 1), "1.1", "2")], "1.1 at"),
        (
            [
                acquisition("x", 0, START, "1.0", "1.1", stored=[(1, 1)]),
                acquisition("y", 10, (1, 0), "1.1", "2"),
            ],
            "was stored before",
        ),
        (
            [
                acquisition("x", 0, START, "1.0", "1.1", ended="stopped"),
                acquisition("y", 10, (1, 0), "1.1", "2"),
            ],
            "had stopped in order",
        ),
        (
            [acquisition("x", 0, START, "1.0", "1.1", "2"), acquisition("y", 10, (3, 0))],
            "which no worker had delivered",
        ),
    ],
    ids=["lost", "swapped", "skipped", "late", "early", "older", "again", "nowhere"],
)
def test_what_is_wrong_is_found(parts, fault):
    (found, *_) = books(*parts).faults
    assert fault in found


def test_a_child_must_not_begin_before_its_parent_has_ended():
    child = Acquisition("b", "y", 0, START, [(0.5, (3, 0), "3")])
    held = {**HELD, "b": [Record(3, 0, "3", optional=False)]}
    result = books(
        acquisition("x", 0, START, "1.0", "1.1", "2"), child, held=held, parents={"a": [], "b": ["a"]}
    )
    assert result.faults == ["b began before the end of its parent a"]
