"""The fake AWS against LocalStack: one script, two endpoints, and a list of the differences that are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from integration.conformance import dynamodb_script, kinesis_script
from integration.conformance.differences import DIFFERENCES
from integration.conformance.notes import Difference, Notes, compare
from kinesis_sdk.testing import FakeAws, FakeAwsServer

SCENARIOS: dict[str, Callable[[Notes], None]] = {
    f"{script.__name__.rpartition('.')[2].removesuffix('_script')} {name.removeprefix('scenario_').replace('_', ' ')}": function
    for script in (kinesis_script, dynamodb_script)
    for name, function in vars(script).items()
    if name.startswith("scenario_")
}


def facts_of(scenario: Callable[[Notes], None], endpoint: str) -> dict[str, Any]:
    notes = Notes(endpoint)
    try:
        scenario(notes)
    finally:
        notes.clean()
    return notes.facts


@pytest.mark.parametrize("name", SCENARIOS)
def test_same_facts(name: str, localstack: str) -> None:
    # The fake throttles shards as the service does, LocalStack does not; other tests cover that.
    with FakeAwsServer(FakeAws(throttle=False)) as server:
        fake = facts_of(SCENARIOS[name], server.endpoint_url)
    known = DIFFERENCES.get(name, {})
    problems = compare(fake, facts_of(SCENARIOS[name], localstack), known)
    if problems:
        # On a busy machine LocalStack now and then repeats a call by itself or is late: it has to say so twice.
        again = compare(fake, facts_of(SCENARIOS[name], localstack), known)
        problems = [problem for problem in problems if problem in again]
    assert not problems, "\n".join(["", *problems])


def test_differences_belong_to_scenarios_and_have_reasons() -> None:
    assert set(DIFFERENCES) <= set(SCENARIOS)
    assert all(difference.why for known in DIFFERENCES.values() for difference in known.values())


def test_the_comparison_can_say_no() -> None:
    known = {
        "c": Difference(1, 2, "fake", "x"),
        "d": Difference(1, 2, "fake", "x"),
        "e": Difference(1, 2, "fake", "x"),
    }
    problems = compare(
        {"a": 1, "b": 1, "c": 1, "d": 1, "e": 1}, {"a": 1, "b": 2, "c": 2, "d": 3, "e": 1}, known
    )
    assert [problem[:27] for problem in problems] == [
        "unlisted: b: the fake: 1, L",
        "listed, but has changed: d:",
        "listed, but is no longer a ",
    ]
    assert compare({"a": 1}, {}, {}) != []
    assert compare({}, {}, {"gone": Difference(1, 2, "fake", "x")}) != []
