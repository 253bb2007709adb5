"""The books of a steered fleet must be able to say no: a good story, and every way to spoil it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from integration.steering.books import (
    FAULT,
    FREED,
    REWOUND,
    START,
    Account,
    Acquisition,
    Books,
    Delivery,
    Fault,
    Freed,
    Gap,
    Operations,
    Place,
    Rewind,
)

STORED = [("s0", (10 + n, 0)) for n in range(10)]


@dataclass
class Story:
    """What a test tells of shard s0."""

    operations: Operations = field(default_factory=Operations)
    faults: list[Fault] = field(default_factory=list)
    acquisitions: dict[tuple[str, int], Acquisition] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)

    def take(self, worker: str, number: int, start: Place, at: float) -> None:
        self.acquisitions[worker, number] = Acquisition(worker, number, "s0", start, at)

    def read(self, worker: str, number: int, at: float, first: int, last: int) -> None:
        self.deliveries += [
            Delivery("s0", (place, 0), at, worker, number) for place in range(first, last + 1)
        ]

    def close(self) -> Account:
        return Books(self.operations, self.faults).close(STORED, self.deliveries, self.acquisitions)


@pytest.fixture
def story() -> Story:
    """Worker a reads 10 to 19 from second 1 on."""
    result = Story()
    result.take("a", 1, START, 1.0)
    result.read("a", 1, 2.0, 10, 19)
    return result


def rewound(story: Story, *, first: int = 15) -> Story:
    """At second 10 the shard is rewound to 14, and a begins again there."""
    story.operations.rewinds.append(Rewind("s0", (14, 0), 10.0, noticed_at=11.0))
    story.take("a", 2, (14, 0), 11.0)
    story.read("a", 2, 12.0, first, 19)
    return story


def test_a_rewind_repeats_its_window(story: Story) -> None:
    account = rewound(story).close()
    assert account.problems == {}
    assert account.repeated == 5
    assert account.reasons == {REWOUND: 5}


def test_a_record_that_does_not_come_again(story: Story) -> None:
    account = rewound(story, first=16).close()
    assert account.not_repeated == ["…15/0 of s0 after the rewind at 10.0"]


def test_a_record_before_the_window_that_comes_again(story: Story) -> None:
    account = rewound(story, first=14).close()
    assert list(account.problems) == ["delivered again without a reason"]
    assert account.without_reason[0].startswith("…14/0 of s0 by a at 12.0")


def test_a_rewind_that_begins_elsewhere(story: Story) -> None:
    rewound(story)
    story.take("a", 2, (13, 0), 11.0)
    assert story.close().wrong_starts == ["s0: none began at (14, 0) after 10.0"]
    story.faults.append(Fault("a", 11.0, 11.0))
    assert story.close().wrong_starts == [], "it was killed before it began"


def test_a_record_that_is_lost(story: Story) -> None:
    story.deliveries = [one for one in story.deliveries if one.place != (12, 0)]
    assert story.close().lost == ["…12/0 of s0"]


def skipping() -> Story:
    """Worker a stops at 13, is asked to skip to 17, and begins again there."""
    result = Story()
    result.take("a", 1, START, 1.0)
    result.read("a", 1, 2.0, 10, 13)
    result.operations.gaps.append(Gap("s0", (13, 0), (17, 0), 10.0))
    result.take("a", 2, (17, 0), 11.0)
    result.read("a", 2, 12.0, 18, 19)
    return result


def test_a_skip_leaves_out_what_it_shows() -> None:
    account = skipping().close()
    assert account.problems == {}
    assert (account.delivered, account.skipped) == (6, 4)


def test_a_record_beside_the_gap_is_lost_all_the_same() -> None:
    story = skipping()
    story.deliveries = [one for one in story.deliveries if one.place != (18, 0)]
    assert story.close().lost == ["…18/0 of s0"]


def test_a_record_that_comes_although_it_was_skipped() -> None:
    story = skipping()
    story.read("a", 2, 12.0, 17, 17)
    assert story.close().not_skipped == ["…17/0 of s0 by a at 12.0"]
    story.operations.gaps[0] = story.operations.gaps[0]._replace(exact=False)
    assert story.close().problems == {}, "its owner was not asked"


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (FREED, Freed("s0", 10.0)),
        (FAULT, Fault("a", 9.0, 10.0)),
        (FAULT, Fault(None, 9.0, 10.0)),
        (None, Freed("s1", 10.0)),
        (None, Freed("s0", 50.0)),
        (None, Fault("c", 9.0, 10.0)),
        (None, None),
    ],
)
def test_a_repetition_needs_a_reason_in_time_and_place(
    story: Story, reason: str | None, cause: Freed | Fault | None
) -> None:
    story.take("b", 1, (17, 0), 15.0)
    story.read("b", 1, 16.0, 18, 19)
    if isinstance(cause, Freed):
        story.operations.freed.append(cause)
    elif cause is not None:
        story.faults.append(cause)
    account = story.close()
    assert account.reasons == ({} if reason is None else {reason: 2})
    assert len(account.without_reason) == (2 if reason is None else 0)


def test_one_acquisition_never_delivers_a_record_twice(story: Story) -> None:
    story.operations.rewinds.append(Rewind("s0", START, 1.5))
    story.read("a", 1, 3.0, 19, 19)
    assert len(story.close().without_reason) == 1
