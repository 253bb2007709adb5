"""The passes over all applications: one at a time, and a failed one ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kinesis_sdk.admin import FleetView
from kinesis_sdk.cli.web.overview import Overview


def test_one_pass_at_a_time_and_a_failed_one_is_over() -> None:
    begun: list[Callable[[], None]] = []
    asked: list[Sequence[str]] = []

    def look(names: Sequence[str], on_view: Callable[[FleetView], None]) -> None:
        asked.append(names)
        on_view(FleetView(application=names[0], at=float(len(asked))))
        if len(asked) == 1:
            raise ZeroDivisionError

    overview = Overview(look, spawn=begun.append)
    overview.read(("a", "b"))
    overview.read(("a", "b"))
    assert len(begun) == 1
    assert overview.state({})["reading"]
    begun[0]()
    failed = overview.state({})
    assert (failed["reading"], failed["done"], failed["total"]) == (False, 1, 2)
    overview.read(("b",))
    begun[1]()
    assert [one["application"] for one in overview.state({})["applications"]] == ["b"], (
        "a is no longer listed"
    )
    newer = FleetView(application="b", at=9.0)
    older = FleetView(application="b", at=0.0)
    assert overview.state({"b": newer})["applications"][0]["at"] == 9.0
    assert overview.state({"b": older})["applications"][0]["at"] == 2.0
