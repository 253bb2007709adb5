"""Explanations name the owner, what a shard waits for, its checkpoint, its lag, and what to do.

`explained.txt` has them as they are shown; ``python -m tests.admin.fleet.test_explain`` writes it anew after a change of their words.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kinesis_sdk.admin.applications import StreamFacts
from kinesis_sdk.admin.fleet.explain import explain
from kinesis_sdk.admin.fleet.lag import LagProbeResult
from kinesis_sdk.common.sequence import LATEST, SHARD_END, ExtendedSequenceNumber
from kinesis_sdk.consumer.leases.table.progress import Failing, Progress
from tests.admin.fleet.rows import Fleet, held, shard_id

EXPLAINED = Path(__file__).with_name("explained.txt")


def stories() -> Iterator[tuple[str, Fleet, int]]:
    """Yield what there is to explain, a fleet, and the number of the shard."""
    yield "a single look", held(2, {"a": (0,)}), 0

    fleet = held()
    fleet.checkpoint(0, "4711", 3)
    fleet.scan(5)
    fleet.observer.observe_stream(None, StreamFacts(name="orders", retention=86_400.0), fleet.now)
    for millis in (90_000, 50_000):
        fleet.observer.observe_lag(shard_id(0), LagProbeResult(millis=millis), fleet.now)
        yield f"processed, {millis / 1000:g} s behind", fleet, 0

    failing = Failing(3, 4_000, 9_000, 1, ExtendedSequenceNumber("4711", 5), "KeyError: 'price'")
    fleet = held()
    fleet.renew("a")
    for title, failure in (
        ("a record that fails", failing),
        ("one of 40 records fails", failing._replace(records=40)),
        ("no record, but the handler fails", failing._replace(records=0, position=None)),
    ):
        fleet.change(0, progress=Progress(4_000, None, None, "a", failure))
        fleet.scan(2)
        yield title, fleet, 0

    fleet = held()
    fleet.renew("a")
    fleet.change(0, progress=Progress(0, None, 766_000, "a"))
    fleet.scan(2)
    yield "a handler that hangs", fleet, 0

    fleet = Fleet(3)
    fleet.change(1, parent_shard_ids=(shard_id(0),))
    fleet.change(2, parent_shard_ids=(shard_id(1),))
    fleet.take("a", 0)
    fleet.take("b", 1, 2)
    fleet.scan()
    fleet.renew("b")
    fleet.scan(11)
    yield "a grandchild of a shard whose owner is silent", fleet, 2

    fleet = Fleet(2)
    fleet.change(0, parent_shard_ids=(shard_id(1),))
    fleet.change(1, parent_shard_ids=(shard_id(0),))
    fleet.scan()
    yield "a cycle of parents", fleet, 0

    worker = "evil\x1b\nworker"
    fleet = Fleet(5)
    fleet.take(worker, 0, 1, 4)
    fleet.request(0, "next")
    fleet.checkpoint(1, SHARD_END)
    fleet.change(2, checkpoint=ExtendedSequenceNumber(LATEST))
    del fleet.rows[shard_id(3)]
    fleet.change(4, pinned_to="gone", draining=(worker,))
    fleet.scan()
    for number, title in enumerate(
        ("handed off", "ended", "unowned at LATEST", "no lease", "pinned, drains")
    ):
        yield title, fleet, number


def explained() -> str:
    """Return the explanations with their titles."""
    parts = []
    for title, fleet, number in stories():
        paragraphs = explain(fleet.view(), shard_id(number))
        assert all(paragraph.isprintable() for paragraph in paragraphs), title
        parts.append("\n".join([f"== {title}", *paragraphs, ""]))
    return "\n".join(parts)


def test_each_state_of_a_shard_is_explained() -> None:
    assert explained() == EXPLAINED.read_text(encoding="utf-8")


if __name__ == "__main__":
    EXPLAINED.write_text(explained(), encoding="utf-8")
