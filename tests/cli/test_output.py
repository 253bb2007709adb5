"""Output in a pipe, in a narrow terminal, and after a mistake."""

from __future__ import annotations

import io
import sys

import pytest

from kinesis_sdk.admin.fleet.model import LagReading, LagSource, LeaseState, LeaseView, OwnerKind
from kinesis_sdk.cli.fleet_tables import lag_table, lease_table, new_table
from kinesis_sdk.cli.output import CommandError, console
from tests.cli.invoking import invoke


class ClosedPipe(io.StringIO):
    def fileno(self) -> int:
        return 1

    def write(self, _text: str) -> int:
        raise BrokenPipeError


def test_a_table_into_a_closed_pipe_raises_what_with_exit_codes_catches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdout", ClosedPipe())
    table = new_table("SHARD")
    table.add_row("0001")
    with pytest.raises(BrokenPipeError):
        console().print(table)


def test_a_pipe_gets_whole_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    table = new_table(("APPLICATION", "wide"), "A", "B")
    table.add_row("a" * 60, "b" * 40, "c" * 40)
    console().print(table)
    assert "…" not in capsys.readouterr().out


def test_a_narrow_terminal_leaves_columns_out_and_shows_the_others_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lease = LeaseView(
        lease_key="shardId-000000000001",
        shard_id="shardId-000000000001",
        state=LeaseState.WAITING,
        owner="host:16626:d9bef649-1",
        kind=OwnerKind.SDK,
        counter=120,
        lag=LagReading(millis=766_000, age=0.0, source=LagSource.PROBE),
        throughput_kbps=120.0,
    )
    for table in (lease_table([lease]), lag_table([lease], watched=True), lag_table([lease], watched=False)):
        console().print(table)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[::2]] == [
        ["SHARD", "STATE", "OWNER"],
        ["SHARD", "LAG", "STATE"],
        ["SHARD", "LAG", "STATE"],
    ]
    assert all("waiting for parents" in line and len(line) <= 40 for line in lines[1::2])
    assert all("12 min 46 s" in line for line in lines[3::2])
    monkeypatch.setenv("COLUMNS", "140")
    console().print(lag_table([lease], watched=True))
    assert "10 MIN  CHECKPOINT AGE  LOST IN  STATE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "meant"),
    [(["lags"], "lag"), (["leases", "rewnd"], "rewind"), (["worker", "dran"], "drain")],
)
def test_a_mistyped_command_is_answered_with_the_one_that_was_meant(typed: list[str], meant: str) -> None:
    result = invoke(*typed, code=2)
    assert "mean" in result.stderr
    assert meant in result.stderr.partition("mean")[2]
    assert result.stderr.count("mean") == 1


def test_top_without_a_terminal_names_the_command_for_a_pipe() -> None:
    result = invoke("top", "billing", code=2)
    assert "kinesis-sdk top billing --json" in result.stderr
    assert result.stdout == ""


def test_without_rich_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    with pytest.raises(CommandError, match=r"\.\[cli\]"):
        console()
