"""The command line of `make effects`."""

from __future__ import annotations

import signal

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


def test_a_rate_never_makes_a_run_shorter_than_its_faults_need() -> None:
    (plan,) = parsed("--stores", "sqlite", "--effects", "4000", "--rate", "3000", "--baseline", "0")
    assert plan.rate == 100.0


@pytest.mark.parametrize(
    ("endpoint", "interval", "failover"),
    [("fake", 2.5, 3.0), ("localstack", 5.0, 6.0), ("http://127.0.0.1:4566", 5.0, 6.0)],
)
def test_faults_are_rarer_and_workers_more_patient_on_localstack(
    endpoint: str, interval: float, failover: float
) -> None:
    for plan in parsed("--endpoint", endpoint):
        assert (plan.fault_interval, plan.failover) == (interval, failover)
        assert plan.idle == (0.2 if endpoint == "fake" else 1.0)
    for plan in parsed("--endpoint", endpoint, "--fault-interval", "9", "--failover", "8"):
        assert (plan.fault_interval, plan.failover) == (9.0, 8.0)


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


def test_help_teaches_what_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run.main(["--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    for part in ("examples:", "columns:", "Exit code 0", "--fault-interval"):
        assert part in shown


def test_an_interrupt_is_no_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "play", interrupted)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(run, "set_keys", lambda: None)
    assert run.main(["--stores", "sqlite"]) == 130
    printed = capsys.readouterr()
    assert "not judged" in printed.err
    assert "PASSED" not in printed.out
