"""The command line of `make effects`."""

from __future__ import annotations

import pytest

from integration.effects import run
from integration.effects.play import Plan


def parsed(*arguments: str) -> list[Plan]:
    return run.plans(run.parser().parse_args(list(arguments)))


def test_each_store_has_a_baseline_with_a_plain_producer() -> None:
    plans = parsed("--stores", "sqlite,dynamodb-local", "--effects", "1,000,000", "--producers", "mixed")
    assert [(plan.store, plan.puts, plan.transactions, plan.producers) for plan in plans] == [
        ("sqlite", 20_000, False, "plain"),
        ("sqlite", 1_000_000, True, "mixed"),
        ("dynamodb-local", 20_000, False, "plain"),
        ("dynamodb-local", 1_000_000, True, "mixed"),
    ]
    assert [plan.rate for plan in plans[:2]] == [500.0, 5000.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--stores", "sqlite,oracle"],
            "unknown: oracle; there are sqlite, postgresql, dynamodb, dynamodb-local",
        ),
        (["--effects", "0"], "argument --effects: it must be at least 1, not 0"),
        (["--effects", "many"], "argument --effects: a number, not 'many'"),
        (["--rate", "0"], "argument --rate: it must be more than 0, not 0"),
        (["--fault-interval", "-1"], "argument --fault-interval: it must be more than 0, not -1"),
        (["--baseline", "-5"], "argument --baseline: it must be at least 0, not -5"),
        (["--relay"], "--relay: it counts in SQL, so add --stores sqlite or postgresql"),
        (["--endpoint", "aws"], "argument --endpoint: fake or localstack or a URL, not 'aws'"),
    ],
)
def test_what_is_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run.main(arguments)
    assert stopped.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
