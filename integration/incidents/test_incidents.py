"""Two of the incidents, and how all of them are judged. `make incidents` plays all."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from integration.incidents.catalogue import INCIDENTS, Calm, Incident, Says
from integration.incidents.run import Outcome, judge_view, play, report
from integration.incidents.views import VIEWS, Answer, View
from tests import HANG

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")

BY_NAME = {incident.name: incident for incident in INCIDENTS}


@pytest.mark.parametrize("name", ["poison", "stopped"])
def test_every_view_names_it(name: str, tmp_path: Path) -> None:
    outcome = play(BY_NAME[name], tmp_path, print, patience=HANG)
    print(report(outcome))
    assert outcome.wrong == []
    assert {"explain", "show", "lag", "top", "console", "exporter"} <= outcome.quotes.keys()


def test_every_incident_says_what_is_expected_of_views_that_there_are() -> None:
    assert len(BY_NAME) == len(INCIDENTS) == 14
    for incident in INCIDENTS:
        assert incident.expected, incident.name
        assert incident.expected.keys() <= set(VIEWS), incident.name


def judge(answers: list[Answer], expected: Says | Calm | None, *never: str) -> Outcome:
    outcome = Outcome(Incident("x", "", lambda _fleet: None, {}, never=never))
    judge_view(View("top", lambda: None, 1.0, answers), expected, 100.0, outcome)
    return outcome


def answer(at: float, *codes: str, lag: float | None = None, is_calm: bool = False) -> Answer:
    return Answer(at, frozenset(codes), f"the text of {codes}", lag, is_calm)


@pytest.mark.parametrize(
    ("answers", "expected", "wrong"),
    [
        ([answer(99, "lag"), answer(103, "lag")], Says(("lag",), 5), ""),
        ([answer(99, "lag"), answer(106, "lag")], Says(("lag",), 5), "said only after 6.0 s"),
        ([answer(99, "lag"), answer(103)], Says(("lag",), 5), "not said"),
        ([answer(103, "lag"), answer(104, "handler")], Says(("lag", "handler"), 5), "not said"),
        ([], Says(("lag",), 5), "it said nothing"),
        ([answer(99, "lag"), answer(103)], Calm(), ""),
        ([answer(103, "lag"), answer(104)], Calm(), "names lag"),
        ([answer(103, "lag")], Calm(frozenset({"lag"})), ""),
        ([], Calm(), "it said nothing"),
        ([answer(103, lag=59.0, is_calm=True)], None, ""),
        ([answer(103, lag=61.0, is_calm=True)], None, "claims that there is no problem"),
        ([answer(103, "behind", lag=61.0)], None, ""),
    ],
)
def test_what_is_wrong(answers: list[Answer], expected: Says | Calm | None, wrong: str) -> None:
    outcome = judge(answers, expected)
    assert (outcome.cells["top"] == "WRONG") == bool(wrong)
    assert bool(outcome.wrong) == bool(wrong)
    assert wrong in " ".join(outcome.wrong)


def test_what_a_view_may_never_say() -> None:
    said = [answer(101, "lag"), answer(103)]
    assert judge(said, None, "stolen").wrong == []
    assert "the text of" in judge(said, None, "text of .*lag").wrong[0]
