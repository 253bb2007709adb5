"""The recorded public surface, and what counts as a break of it."""

from __future__ import annotations

import pytest

from tools.public_surface import FILE, breaks, surface


def test_the_recorded_surface_is_that_of_the_code() -> None:
    recorded = FILE.read_text(encoding="utf-8").splitlines()
    now = surface()
    differences = [f"- {line}" for line in recorded if line not in now]
    differences += [f"+ {line}" for line in now if line not in recorded]
    differences += [f"breaks programs: {line}" for line in breaks(recorded, now)]
    assert not differences, "run `make surface`, and name in CHANGELOG.md what users see:\n" + "\n".join(
        differences
    )


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        (["a.f(x; y=1)"], ["a.f(x; y=1)"], []),
        (["a.f(x)"], [], ["a.f is gone"]),
        (["a.f(x; y=1)"], ["a.f(x)"], ["a.f: no longer takes y=1 like this"]),
        (["a.f(x; y=1)"], ["a.f(x; y=2)"], ["a.f: no longer takes y=1 like this"]),
        (["a.f(x; y)"], ["a.f(y; x)"], ["a.f: takes its positional arguments in another order"]),
        (["a.f(x)"], ["a.f(x; y)"], ["a.f: needs y"]),
        (["a.f(x)"], ["a.f(x; keyword y)"], ["a.f: needs keyword y"]),
        (["a.f(x)"], ["a.f(y=1; x)"], ["a.f: has a new positional argument before an old one"]),
        (["a.f(x)"], ["a.f(x; y=1; keyword z=2; **options)"], []),
        (["a.f(keyword x; keyword y)"], ["a.f(keyword y; keyword x)"], []),
        (["kinesis-sdk lag(--json=; --region=)"], ["kinesis-sdk lag(--region=)"], ["kinesis-sdk lag: no longer takes --json= like this"]),
        (["kinesis-sdk lag(--json=)"], ["kinesis-sdk lag(--json=; --app)"], ["kinesis-sdk lag: needs --app"]),
        (["a.A is b.A"], ["a.A is b.A", "a.B"], []),
        (["metric Lag"], ["metric Delay"], ["metric Lag is gone"]),
    ],
)  # fmt: skip
def test_a_break_is_what_a_program_could_miss(old: list[str], new: list[str], found: list[str]) -> None:
    assert breaks(old, new) == found
