"""Runs on the fake: what they find, cost and leave, and what interrupts them."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from kinesis_sdk.common.errors import AwsError, ConfigError
from kinesis_sdk.verify import PRICES, STEPS, TAG
from kinesis_sdk.verify.report import judge
from tests.verify.houses import CHANGES, Account, Killed

QUICK = [step.name for step in STEPS if step.group in ("kinesis", "dynamodb", "table-streams")]


def test_a_run_finds_on_the_fake_what_the_rehearsal_found_and_leaves_nothing() -> None:
    account = Account(stream_delay=5, table_delay=5, reshard_delay=3, consumer_delay=2)
    verification = account.verification(*QUICK)
    report = verification.run()
    assert [(step.status, step.problem) for step in report.steps] == [("same", "")] * len(QUICK)
    assert report.passed
    assert verification.is_clean
    assert account.names() == []
    assert report.removed > 20
    plan = verification.plan()
    assert report.cost.usd == pytest.approx(plan.usd, rel=0.01)


def test_everything_that_is_made_has_the_prefix_and_the_tag() -> None:
    account = Account()
    seen: dict[str, str | None] = {}

    def look(operation: str) -> None:
        if operation in ("CreateStream", "CreateTable"):
            seen.update({one.name: one.run for one in Account.remover(account).find()})

    account.after = look
    account.verification("kinesis-writing", "dynamodb-tables", "table-streams-streams").run()
    assert len(seen) == 4
    assert set(seen.values()) == {"0123abcd"}
    assert all(name.startswith("kinesis-sdk-verify-0123abcd-") for name in seen)
    assert TAG == "kinesis-sdk-verify"


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_run_that_is_killed_at_any_creation_or_change_is_removed_later(name: str, side: str) -> None:
    clean = Account(stream_delay=1, table_delay=1)
    clean.verification(name).run()
    total = sum(operation in CHANGES for operation in clean.calls)
    assert total
    for number in range(1, total + 1):
        account = Account(stream_delay=1, table_delay=1)
        left = number

        def step_on(operation: str, account: Account = account) -> None:
            nonlocal left
            left -= operation in CHANGES
            if left == 0:
                account.kill()

        setattr(account, side, step_on)
        with pytest.raises(Killed):
            account.verification(name).run()
        account.revive()
        removal = account.remover().remove()
        assert (removal.left, removal.unmarked) == ((), ())
        assert account.names() == []


@pytest.mark.parametrize("name", QUICK)
def test_ctrl_c_removes_what_was_made(name: str) -> None:
    account = Account(stream_delay=1, table_delay=1)

    def interrupt(operation: str) -> None:
        if operation in ("CreateStream", "CreateTable"):
            account.after = lambda _: None
            raise KeyboardInterrupt

    account.after = interrupt
    verification = account.verification(name)
    told: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        verification.run(told.append)
    assert verification.is_clean
    assert account.names() == []
    assert any("another Ctrl-C" in line for line in told)


def test_a_second_ctrl_c_leaves_the_rest_for_later() -> None:
    account = Account(stream_delay=5)

    def interrupt(operation: str) -> None:
        if operation in ("SplitShard", "DeleteStream"):
            raise KeyboardInterrupt

    account.before = interrupt
    verification = account.verification("kinesis-listing")
    with pytest.raises(KeyboardInterrupt):
        verification.run()
    assert not verification.is_clean
    account.revive()
    assert [one.run for one in account.remover().remove("0123abcd").removed] == ["0123abcd"] * 1
    assert account.names() == []


def test_a_removal_that_is_killed_at_any_call_is_finished_by_the_next() -> None:
    calls = 1
    while True:
        account = Account()
        for number in range(2):
            account.aws.client("kinesis").create_stream(
                StreamName=f"kinesis-sdk-verify-0123abcd-{number}", ShardCount=1, Tags={TAG: "0123abcd"}
            )
        left = calls

        def count(_operation: str, account: Account = account) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                account.kill()

        account.before = count
        try:
            account.remover().remove()
        except Killed:
            account.revive()
            account.remover().remove()
            assert account.names() == []
            calls += 1
        else:
            break
    assert calls > 8


def test_only_what_a_run_has_made_is_removed() -> None:
    account = Account()
    kinesis = account.aws.client("kinesis")
    for name, tags in (
        ("orders", {}),
        ("orders-tagged", {TAG: "0123abcd"}),
        ("kinesis-sdk-verify-by-hand", {}),
        ("kinesis-sdk-verify-89abcdef-001x", {TAG: "89abcdef"}),
    ):
        kinesis.create_stream(StreamName=name, ShardCount=1, Tags=tags)
    removal = account.remover().remove()
    assert [one.name for one in removal.removed] == ["kinesis-sdk-verify-89abcdef-001x"]
    assert [one.name for one in removal.unmarked] == ["kinesis-sdk-verify-by-hand"]
    assert sorted(account.names()) == ["kinesis-sdk-verify-by-hand", "orders", "orders-tagged"]


@pytest.mark.parametrize("name", ["kinesis-settings", "kinesis-scaling"])
def test_a_run_stops_before_its_limit_and_removes_what_it_made(name: str) -> None:
    (price,) = account_plan(name)
    for part in (0.1, 0.5, 0.99):
        account = Account()
        report = account.verification(name, max_usd=part * price).run()
        (step,) = report.steps
        assert step.status == "stopped"
        assert "the next call would bring the costs to" in step.problem
        assert not report.passed
        assert report.cost.usd <= part * price
        assert account.names() == []


def account_plan(*names: str) -> list[float]:
    return [step.usd for step in Account().verification(*names).plan().steps]


def test_a_run_stops_when_its_time_is_over() -> None:
    account = Account(stream_delay=600)
    report = account.verification("kinesis-streams", max_seconds=60).run()
    assert (report.steps[0].status, report.complete) == ("stopped", False)
    assert "time limit" in report.steps[0].problem
    assert account.names() == []


def test_a_step_that_fails_is_told_and_the_next_one_runs() -> None:
    account = Account()

    def fail(operation: str) -> None:
        if operation == "SplitShard":
            raise AssertionError("at arn:aws:kinesis:us-east-1:123456789012:stream/s of 123456789012")

    account.before = fail
    report = account.verification("kinesis-listing", "kinesis-reading").run()
    assert [step.status for step in report.steps] == ["failed", "same"]
    assert report.steps[0].problem == "AssertionError: at <arn> of <account>"
    assert report.complete
    assert not report.passed


@pytest.mark.parametrize("denied", ["DeleteStream", "ListTables"])
def test_a_removal_that_is_denied_leaves_the_report(denied: str) -> None:
    account = Account()

    def deny(operation: str) -> None:
        if operation == denied:
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, operation)

    account.before = deny
    verification = account.verification("kinesis-reading")
    told: list[str] = []
    report = verification.run(told.append)
    assert [step.status for step in report.steps] == ["same"]
    assert (report.left, report.removed, report.passed) == (1, 0, False)
    assert any(line.startswith("the removal failed: ") for line in told)
    assert not verification.is_clean


def test_one_thing_that_cannot_be_deleted_does_not_keep_the_rest() -> None:
    account = Account()
    for name in ("a", "b"):
        account.aws.client("kinesis").create_stream(
            StreamName=f"kinesis-sdk-verify-0123abcd-{name}", ShardCount=1, Tags={TAG: "0123abcd"}
        )
    calls = 0

    def deny_first(operation: str) -> None:
        nonlocal calls
        calls += operation == "DeleteStream"
        if calls == 1 and operation == "DeleteStream":
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, operation)

    account.before = deny_first
    with pytest.raises(AwsError, match="AccessDenied"):
        account.remover().remove()
    assert account.names() == ["kinesis-sdk-verify-0123abcd-a"]


def test_names_of_steps_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"only='kinesis-nothing' is invalid: expected one of contracts, "):
        Account().verification("kinesis-nothing")


def test_prices_depend_on_the_region() -> None:
    at_home, elsewhere = (
        Account(region=region).verification("kinesis-streams").plan() for region in ("us-east-1", "eu-west-1")
    )
    assert (at_home.factor, elsewhere.factor) == (1.0, 2.0)
    assert elsewhere.usd == 2 * at_home.usd == pytest.approx(2 * 6 * PRICES["shard_hour"].usd)


def test_the_whole_plan_costs_less_than_a_dollar_at_the_prices_of_the_table() -> None:
    assert 0.5 < Account().verification().plan().usd < 1.0


def test_facts_without_an_expectation_count_only_in_an_exact_comparison() -> None:
    assert judge({"a": 1, "b": 2}, {"a": 1}, exact=False) == ()
    assert [one.fact for one in judge({"a": 1, "b": 2}, {"a": 1}, exact=True)] == ["b"]
    assert [one.found for one in judge({}, {"a": 1}, exact=False)] == ["(no such fact)"]
