"""The checks of these scenarios can fail."""

from __future__ import annotations

import pytest

from integration.java.evidence import (
    Delivery,
    TableWatch,
    disorder,
    duplicates,
    overlaps,
)


class LoggedWorker:
    """A worker whose log has these events."""

    def __init__(self, name, *events):
        self.name = name
        self._events = [
            {"worker": name, "t": t, "event": event, "shard": "s", **more} for t, event, more in events
        ]

    def events(self, *kinds):
        return [event for event in self._events if not kinds or event["event"] in kinds]


def worked(name, begin, end):
    return LoggedWorker(name, (begin, "initialize", {}), (end, "processed", {}), (end + 5, "lease_lost", {}))


def delivered(number, sub=0, shard="s"):
    return Delivery(0.0, "w", shard, number, sub, f"{number}.{sub}", "k")


def test_two_at_a_time():
    assert overlaps([worked("a", 0, 2), worked("b", 2.1, 3)]) == [], "the loss of a lease is told late"
    ((shard, first, second),) = overlaps([worked("a", 0, 2), worked("b", 1.9, 3)])
    assert (shard, first.worker, second.worker) == ("s", "a", "b")


def test_twice_and_out_of_order():
    first, second, third = delivered(1, 0), delivered(1, 1), delivered(2)
    assert disorder([first, second, third, second]) == [], "a repetition is none"
    assert disorder([first, third, second]) == [second]
    assert disorder([delivered(2), delivered(1, shard="other")]) == []
    assert duplicates([first, second, second]) == {"1.1": 2}


def row(counter, checkpoint, sub=0, owner=None):
    return {
        "leaseCounter": {"N": str(counter)},
        "checkpoint": {"S": checkpoint},
        "checkpointSubSequenceNumber": {"N": str(sub)},
        **({"leaseOwner": {"S": owner}} if owner else {}),
    }


class Table:
    def __init__(self, *rows):
        self._rows = iter(rows)

    def rows(self, application):
        found = next(self._rows)
        if isinstance(found, Exception):
            raise found
        return {"s": found}


@pytest.mark.parametrize(
    ("rows", "faults"),
    [
        ([row(1, "TRIM_HORIZON"), row(2, "7"), row(3, "7", 1), row(4, "SHARD_END")], []),
        ([row(2, "7"), row(1, "7")], ["s: the counter went down"]),
        ([row(2, "7", 3), row(3, "7", 2)], ["s: the checkpoint went back"]),
        ([row(2, "SHARD_END"), row(3, "7")], ["s: the checkpoint went back"]),
        ([row(2, "7"), row(3, "LATEST")], ["s: the checkpoint went back"]),
    ],
)
def test_the_table_never_goes_back(rows, faults):
    watch = TableWatch(Table(*rows), "app")
    for _ in rows:
        watch._look()
    assert watch.faults == faults
