"""The checks of these scenarios can fail."""

from __future__ import annotations

import json
import time

import pytest

from integration.java.evidence import (
    Delivery,
    TableWatch,
    deliveries,
    disorder,
    duplicates,
    overlaps,
    tenures,
    wait_for,
)
from integration.java.journal import Processing, Reader
from tests import HANG


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


def test_a_shard_that_comes_back_is_another_tenure():
    back = LoggedWorker(
        "a", (0, "initialize", {}), (1, "processed", {}), (5, "initialize", {}), (6, "processed", {})
    )
    assert [(tenure.worker, tenure.begin) for tenure in tenures([back, worked("b", 2, 3)])["s"]] == [
        ("a", 0),
        ("b", 2),
        ("a", 5),
    ]
    assert overlaps([back, worked("b", 2, 3)]) == []
    assert overlaps([back, worked("b", 2, 5.5)])


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


def test_owners_and_their_changes():
    marked = {**row(3, "7", owner="b"), "checkpointOwner": {"S": "a"}}
    watch = TableWatch(
        Table(row(1, "7", owner="a"), row(2, "7", owner="a"), marked, row(4, "7", owner="b")), "app"
    )
    watch._look()
    began = time.monotonic()
    watch._look()
    assert watch.counts() == {"a": 1}
    assert watch.moves_since(began) == []
    watch._look()
    assert watch.counts() == {None: 1}
    watch._look()
    assert [(change.owner, change.marker) for change in watch.moves_since(began)] == [("b", "a"), ("b", None)]


def test_a_watch_that_fails_says_so():
    watch = TableWatch(Table(row(1, "7"), RuntimeError("the table has gone")), "app")
    with watch:
        wait_for(lambda: watch.error is not None, HANG, "the second look")
    with pytest.raises(RuntimeError, match="has gone"):
        watch.holders()


def test_a_journal_is_read_while_it_grows(tmp_path):
    path = tmp_path / "w.journal"
    reader = Reader(path)
    assert reader.events() == []
    stored = []
    processing = Processing(path, "w", stand_at=["c"])

    def batch(*names):
        processing.process(
            "s", [("1", n, name.encode(), "k") for n, name in enumerate(names)], lambda *p: stored.append(p)
        )

    batch("a", "b")
    with path.open("a") as file:
        file.write('{"event": "half')
    assert [event["event"] for event in reader.events()] == ["records", "processed"]
    with path.open("a") as file:
        file.write('"}\n')
    assert reader.events()[-1]["event"] == "half"
    batch("b", "c", "d")
    batch("e")
    assert stored == [("1", 1), ("1", 1)], "the position stays in the middle of the second batch"
    assert not processing.may_checkpoint("s")
    assert [event["event"] for event in reader.events()[3:]] == [
        "records",
        "stood",
        "processed",
        "records",
        "processed",
    ]
    found = deliveries([type("W", (), {"events": lambda self, kind: reader.events()[:1]})()])
    assert [(one.number, one.sub, one.data) for one in found] == [(1, 0, "a"), (1, 1, "b")]
    assert json.loads(path.read_text().splitlines()[0])["worker"] == "w"
