"""Every schedule of few records: the specification delivers each once, and each rule that is left out has a counterexample.

The searches of unit tests are small.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest

from tests import fuzz
from tests.once_model.layout import MERGE, PLACED_BY_SERVICE, QUIET, SPLIT, SPLIT_AND_MERGE, Plan
from tests.once_model.producing import ProducerRules, Size
from tests.once_model.reading import ReaderRules
from tests.once_model.search import search

TWO_BY_TWO = Size(records=2, attempts=2, periods=2)
ONE_BY_TWO = Size(records=1, attempts=2, periods=2)
SMALL = [(TWO_BY_TWO, (QUIET, SPLIT)), (ONE_BY_TWO, (MERGE,))]
LARGE = [
    (TWO_BY_TWO, (MERGE,)),
    (TWO_BY_TWO, (SPLIT_AND_MERGE,)),
    (Size(records=1, attempts=4, periods=2), (SPLIT_AND_MERGE,)),
    (Size(records=3, attempts=2, periods=2), (QUIET,)),
    (Size(records=2, attempts=3, periods=2), (SPLIT,)),
    (Size(records=2, attempts=2, periods=3), (SPLIT, MERGE, PLACED_BY_SERVICE)),
]
SEARCHES = SMALL + LARGE if fuzz.TIMES else SMALL


# With `drops_equal`, two records are searched by `test_nothing_changes_when_a_failed_delivery_is_read_again`, too.
@pytest.mark.parametrize(
    ("size", "plans", "drops_equal"),
    fuzz.share([(*each, drops) for each in SEARCHES for drops in (False, True)], unit=3),
    ids=lambda part: (
        f"{part.records}x{part.attempts}x{part.periods}"
        if isinstance(part, Size)
        else "-".join(plan.name for plan in part)
        if isinstance(part, tuple)
        else "drops-equal" * part
    ),
)
@pytest.mark.fuzz
def test_the_first_valid_copy_of_each_record_is_delivered_and_no_other(
    size: Size, plans: tuple[Plan, ...], drops_equal: bool
) -> None:
    result = search(plans, size, ReaderRules(drops_equal=drops_equal), ProducerRules())

    assert (result.twice, result.lost, result.differs) == (None, None, None)
    assert result.schedules > (1000 if size.records > 1 else 50)


def test_nothing_changes_when_a_failed_delivery_is_read_again() -> None:
    result = search([SPLIT], TWO_BY_TWO, ReaderRules(drops_equal=True, rewinds=True), ProducerRules())

    assert (result.twice, result.lost, result.differs) == (None, None, None)


AT_ONCE = ProducerRules(holds_off=False)


class Variant(NamedTuple):
    """Rules that differ from the specification, and their first counterexamples; None if nothing goes wrong.

    One record is enough for most counterexamples, which keeps the search small.
    """

    plan: Plan
    reader: ReaderRules
    producer: ProducerRules
    twice: str | None
    lost: str | None = None
    records: int = 1


MARKS = ReaderRules(suspects="marked", forgets_dates=True)


VARIANTS = {
    "nothing is recognized": Variant(
        QUIET, ReaderRules(suspects="none"), ProducerRules(), "P: [r0@0]t0 [r0*@0]t1"
    ),
    "identities, memory of the owner": Variant(
        QUIET,
        ReaderRules(suspects="none", memory="owner"),
        AT_ONCE,
        "P: [r0@0]t0 [r0*@0]t0; take-over in P after 1 at 1",
    ),
    "identities, the shard is read again": Variant(
        SPLIT, ReaderRules(suspects="none", memory="shard"), AT_ONCE, "P: [r0@0]t0; A: [r0*@0]t0"
    ),
    "identities, too little of the path is read again": Variant(
        QUIET,
        ReaderRules(suspects="none", memory="path", reread=0),
        AT_ONCE,
        "P: [r0@0]t0 [r0*@0]t1; take-over in P after 1 at 1",
    ),
    "identities, the path is read again at each take-over": Variant(
        SPLIT, ReaderRules(suspects="none", memory="path"), AT_ONCE, None
    ),
    "marks, looked up in the shard": Variant(
        SPLIT, replace(MARKS, looks_in="shard", keeps_marks="path"), AT_ONCE, "P: [r0@0]t0; A: [r0*@0]t0"
    ),
    "marks, looked up on the path": Variant(QUIET, MARKS, AT_ONCE, "P: [r0*@0]t0 [r0@0]t0"),
    "marks, and those of the shard with the checkpoint": Variant(
        SPLIT, replace(MARKS, keeps_marks="shard"), AT_ONCE, "P: [r0*@0]t0; A: [r0@0]t0"
    ),
    "marks, and those of the path with the checkpoint": Variant(
        SPLIT, replace(MARKS, keeps_marks="path"), AT_ONCE, None
    ),
    "repeated without a hold-off": Variant(QUIET, ReaderRules(), AT_ONCE, "P: [r0*@0]t0 [r0@0]t0"),
    "misplaced copies are delivered": Variant(
        SPLIT, ReaderRules(drops_misplaced=False), ProducerRules(), "A: [r0@0,r1@0]t0; B: [r1@0]t0", records=2
    ),
    "misplaced copies count as earlier ones": Variant(
        SPLIT,
        ReaderRules(counts_misplaced=True),
        ProducerRules(),
        None,
        "A: [r0@0,r1@0]t0 [r0@0]t1",
        records=2,
    ),
    "looked up in the shard": Variant(
        SPLIT, ReaderRules(looks_in="shard"), ProducerRules(), "P: [r0@0]t0; A: [r0*@0]t1"
    ),
    "a repetition has a new identity": Variant(
        QUIET, ReaderRules(), ProducerRules(keeps_name=False), "P: [r0@0]t0 [r0*@0]t1"
    ),
    "an answer that names an unknown shard means not stored": Variant(
        SPLIT, ReaderRules(), ProducerRules(unknown_shard_is_void=True), "A: [r0@0]t0 [r0@0]t0"
    ),
    "aggregates of one are acknowledged in any shard": Variant(
        PLACED_BY_SERVICE, ReaderRules(), ProducerRules(singles_are_judged=False), None, "B: [r0@0]t0"
    ),
    "a handler failed, and memory has no positions": Variant(
        QUIET,
        ReaderRules(memory="owner", rewinds=True),
        ProducerRules(),
        None,
        "P: [r0@0]t0; take-over in P after 1 at 0",
    ),
    "the producer's clock is ahead": Variant(
        QUIET, ReaderRules(), ProducerRules(clock_ahead=1), "P: [r0@1]t0 [r0*@1]t1"
    ),
    "a KCL owned the shard before": Variant(
        QUIET,
        ReaderRules(kcl_before=True),
        ProducerRules(),
        "P: [r0@0]t0 [r0*@0]t1; take-over in P after 2 at 0",
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_fails_as_described(name: str) -> None:
    variant = VARIANTS[name]

    size = Size(variant.records, attempts=2, periods=2)
    result = search([variant.plan], size, variant.reader, variant.producer)

    assert (result.twice, result.lost) == (variant.twice, variant.lost)


REPEATED = ProducerRules(proxy_repeats=True)


def test_a_request_that_a_proxy_repeats_is_recognized_by_its_bytes_while_the_owner_stays() -> None:
    without = search([QUIET], ONE_BY_TWO, ReaderRules(), REPEATED, take_overs=False)
    with_bytes = search([QUIET], ONE_BY_TWO, ReaderRules(drops_equal=True), REPEATED, take_overs=False)
    at_take_over = search([QUIET], ONE_BY_TWO, ReaderRules(drops_equal=True), REPEATED)

    assert (without.twice, without.lost) == ("P: [r0@0]t0 [r0@0]t0", None)
    assert (with_bytes.twice, with_bytes.lost) == (None, None)
    # The documented limit: nothing tells the new owner that the copy is one.
    assert at_take_over.twice == "P: [r0@0]t0 [r0@0]t0; take-over in P after 1 at 1"
    assert at_take_over.lost is None
