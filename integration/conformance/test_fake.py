"""The fake AWS against LocalStack: one script, two endpoints, and a list of the differences that are known."""

from __future__ import annotations

from typing import Any

import pytest

from integration.conformance.comparing import Difference, compare, facts_of
from integration.conformance.differences import known_differences
from integration.conformance.other_operations import dynamodb_operations, kinesis_operations
from kinesis_sdk.testing import FakeAws, FakeAwsServer
from kinesis_sdk.verify import STEPS, Step, rehearse

SCRIPTS = [step for step in STEPS if step.group in ("kinesis", "dynamodb")]


def of_the_fake(script: Any) -> dict[str, Any]:
    # The fake throttles shards as the service does, LocalStack does not; other tests cover that.
    with FakeAwsServer(FakeAws(throttle=False)) as server:
        return facts_of(script, server.endpoint_url)


def check(script: Any, known: dict[str, Difference], localstack: str) -> None:
    fake = of_the_fake(script)
    problems = compare(fake, facts_of(script, localstack), known)
    if problems:
        # On a busy machine LocalStack now and then repeats a call by itself or is late: it has to say so twice.
        again = compare(fake, facts_of(script, localstack), known)
        problems = [problem for problem in problems if problem in again]
    assert not problems, "\n".join(["", *problems])


@pytest.mark.parametrize("step", SCRIPTS, ids=lambda step: step.name)
def test_same_facts(step: Step, localstack: str) -> None:
    check(step.run, known_differences(step.name), localstack)


@pytest.mark.parametrize("step", SCRIPTS, ids=lambda step: step.name)
def test_a_rehearsal_without_sockets_finds_the_same(step: Step) -> None:
    assert of_the_fake(step.run) == rehearse(step).facts


def _not_served(answer: str, *names: str) -> dict[str, Difference]:
    why = (
        "Neither this SDK nor its tools call it. The fake says that it has no such operation; an empty success would "
        "be a lie."
    )
    return {name: Difference("400 UnknownOperationException", answer, "localstack", why) for name in names}


NOT_SERVED = {
    kinesis_operations: {
        **_not_served(
            "ok", "DescribeAccountSettings", "DisableEnhancedMonitoring", "EnableEnhancedMonitoring",
            "GetResourcePolicy", "ListTagsForResource", "PutResourcePolicy", "DeleteResourcePolicy",
            "StartStreamEncryption", "StopStreamEncryption", "TagResource", "UntagResource",
        ),
        **_not_served("500 InternalError", "UpdateAccountSettings"),
        **_not_served("400 InvalidArgumentException", "UpdateStreamWarmThroughput"),
    },
    dynamodb_operations: _not_served(
        "ok", "TransactGetItems", "DescribeTimeToLive", "UpdateTimeToLive", "ExecuteStatement", "DescribeLimits"
    ),
}  # fmt: skip
"""Operations that the fake does not have."""


@pytest.mark.parametrize("script", NOT_SERVED, ids=lambda script: script.__name__)
def test_operations_that_nothing_of_ours_calls(script: Any, localstack: str) -> None:
    check(script, NOT_SERVED[script], localstack)


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
