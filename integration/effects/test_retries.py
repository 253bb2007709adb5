"""Retries with delays while their processes are killed at every step: no record lost, and with a sink none twice."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

sqlalchemy = pytest.importorskip("sqlalchemy")

from integration.effects.killed import DATABASES, KEY_COUNT, running  # noqa: E402
from integration.effects.retry_process import DEAD, DELAYS, EFFECTS, POINTS, fails  # noqa: E402

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")

SETTLE = 4.0
"""Seconds after the last record in which one that was processed twice would show."""


@pytest.mark.parametrize(
    ("kind", "database"),
    [
        ("stream", "sqlite"),
        *((kind, one) for one in DATABASES for kind in ("table", "order", "coroutines")),
    ],
)
def test_no_record_is_lost_at_any_step_and_with_a_sink_none_is_processed_twice(
    kind: str, database: str, tmp_path: Path
) -> None:
    streams = ("orders", *(f"orders.retry-{delay}" for delay in DELAYS))
    with running(
        "integration.effects.retry_process", streams, EFFECTS.metadata, database, tmp_path, kind=kind
    ) as run:

        def is_done() -> bool:
            return {*run.numbers(EFFECTS), *run.numbers(DEAD)} >= set(range(run.put))

        run.play(POINTS, is_done)
        time.sleep(SETTLE)
        run.close()
        effects, dead, kills = run.numbers(EFFECTS), run.numbers(DEAD), run.kills()
    always = {number for number in range(run.put) if fails(number, 99)}
    lost = set(range(run.put)) - set(effects) - set(dead)
    twice = len(effects) + len(dead) - len(set(effects) | set(dead))
    told = ", ".join(f"{count} {point}" for point, count in sorted(kills.items()))
    late = overtaken(effects)
    print(
        f"{kind} {database}: {run.put} records, {len(lost)} lost, {twice} twice, {len(late)} overtaken; killed {told}"
    )
    assert not lost
    assert set(dead) == always
    assert set(kills) == set(POINTS)
    if kind == "stream":
        return
    assert not twice
    assert bool(late) == (kind == "table"), "only keep_order keeps the order of a key"


def overtaken(effects: Sequence[int]) -> list[int]:
    """Return the records that took effect after a later one of their key."""
    latest: dict[int, int] = {}
    found = []
    for number in effects:
        key = number % KEY_COUNT
        if number < latest.get(key, -1):
            found.append(number)
        latest[key] = max(number, latest.get(key, -1))
    return found
