"""The report of an incident: what it names, and that texts of others stay texts."""

from __future__ import annotations

from dataclasses import replace

from kinesis_sdk.admin.recording.recorder import Recording
from kinesis_sdk.admin.report import incident_report
from tests.cli.web.generated import GeneratedFleet


def test_a_report_names_what_is_wrong_and_how_it_came() -> None:
    fleet = GeneratedFleet(60, 7)
    recording = Recording()
    views = [fleet.view() for _ in range(40)]
    for one in views:
        recording.update(one)
    view = views[-1]
    worst = max(view.leases, key=lambda lease: lease.lag.millis if lease.lag else 0)
    text = incident_report(
        view,
        place="eu-west-1",
        lease_keys=(worst.lease_key,),
        history=recording.history("billing", worst.lease_key, view.at - 600, view.at),
        link="http://localhost:8787/#/fleet/billing",
        spell=lambda command: f"then {command.operation}",
    )
    lines = text.splitlines()
    assert lines[0] == "## `billing` at 2026-09-21 14:14:40Z"
    assert "- eu-west-1" in lines
    assert "- <http://localhost:8787/#/fleet/billing>" in lines
    for problem in view.problems[:10]:
        assert any(problem.title in line and problem.text in line for line in lines)
    assert any("`then " in line for line in lines), "commands are spelled by the face"
    (row,) = (line for line in lines if line.startswith("| 0061 |") and "22 h 42 min" in line)
    assert worst.owner is not None
    assert f"`{worst.owner}`".replace("|", "\\|") in row
    assert "### Owners of" in text
    assert "### Moves, newest first" in text
    without = incident_report(view)
    assert "### Shards, worst first" in without
    assert without.count("\n| 00") == 10
    assert "- and 50 more shards" in without


def test_texts_of_others_cannot_leave_their_place() -> None:
    fleet = GeneratedFleet(4, 2, application="a`](http://evil) | x\n# Heading")
    text = incident_report(replace(fleet.view(), error="no <b>\n# table"))
    assert not any(line.startswith("# ") for line in text.splitlines())
    assert text.startswith("## `a'](http://evil) | x\\n# Heading` at ")
    assert "no \\<b>" in text
