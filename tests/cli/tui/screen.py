"""Screens as text: scenes are played without a terminal, and compared with the files in ``screens/``.

``python -m tests.cli.tui.screen --update`` writes the files again; look at the difference before you commit it.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timezone
from pathlib import Path
from typing import Any
from unittest.mock import patch

from kinesis_sdk.admin.fleet.model import FleetView
from kinesis_sdk.cli.tui.app import Services, TopApp
from tests.cli.tui.views import HOSTILE, make_view

FOLDER = Path(__file__).parent / "screens"
SIZE = (100, 30)
DRAWING = 0.001
"""Seconds from a change to its drawing; Textual takes a sixtieth."""


def make_app(services: Services | None = None) -> TopApp:
    return TopApp(
        "billing",
        place="us-east-1",
        options=("--region", "us-east-1"),
        services=services,
        zone=timezone.utc,
    )


def lines_of(app: TopApp) -> list[str]:
    """Return what is on the screen, without styles."""
    return [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]


async def settled(app: TopApp, pilot: Any) -> None:
    """Wait for the threads of reads and plans, and until everything is drawn. Nothing here waits for time to pass."""
    await app.workers.wait_for_complete()
    await pilot.pause()


async def press(app: TopApp, pilot: Any, *keys: str) -> None:
    """Press keys, and wait after each of them until everything is drawn."""
    for key in keys:
        await pilot.press(key)
        await settled(app, pilot)


async def idle(*_seconds: float) -> None:
    """Return when the event loop has nothing to do and no drawing is due.

    Textual's own function sleeps and looks at the process's CPU time, so it depends on the machine.
    """
    loop: Any = asyncio.get_running_loop()
    quiet = 0
    while quiet < 3:
        await asyncio.sleep(0)
        soon = loop.time() + 10 * DRAWING
        is_due = any(timer.when() < soon for timer in loop._scheduled if not timer.cancelled())
        quiet = 0 if loop._ready or is_due else quiet + 1


def _nothing(*_: Any, **__: Any) -> None:
    pass


def play(
    view: FleetView | None,
    script: Callable[[TopApp, Any], Awaitable[Any]],
    *,
    services: Services | None = None,
    size: tuple[int, int] = SIZE,
    app: TopApp | None = None,
    draws: bool = False,
) -> Any:
    """Show a view, and run a script against it.

    Unless it ``draws``, nothing is written to the terminal, which takes as long as everything else. `lines_of` draws what it returns.
    """

    async def run() -> Any:
        made = app or make_app(services)
        with (
            patch("textual.pilot.wait_for_idle", idle),
            patch("textual.app.wait_for_idle", idle),
            patch("textual.screen.UPDATE_PERIOD", DRAWING),
            nullcontext() if draws else patch("textual._compositor.Compositor.render_update", _nothing),
        ):
            return await run_in(made)

    async def run_in(made: TopApp) -> Any:
        async with made.run_test(size=size) as pilot:
            if view is not None:
                made.show(view)
            await pilot.pause()
            return await script(made, pilot)

    return asyncio.run(run())


def picture(
    view: FleetView | None,
    *keys: str,
    services: Services | None = None,
    size: tuple[int, int] = SIZE,
) -> list[str]:
    """Return the screen after some keys."""

    async def script(app: TopApp, pilot: Any) -> list[str]:
        await press(app, pilot, *keys)
        return lines_of(app)

    found: list[str] = play(view, script, services=services, size=size)
    return found


@dataclass(frozen=True)
class Scene:
    """A screen that is kept as a file.

    Attributes:
        view: What is shown.
        keys: What is pressed then.
        back: What is pressed afterwards, so that the next scene begins as if it were the first one.
    """

    view: FleetView | None
    keys: tuple[str, ...] = ()
    back: tuple[str, ...] = ()


BUSY = make_view(shards=200, workers=12, problems=8, moves=5, unowned=3, silent=1)
SMALL = make_view(shards=4, workers=2)
SCENES = {
    SIZE: {
        "nothing-read-yet": Scene(None),
        "no-leases": Scene(make_view(shards=0, workers=0)),
        "hostile-worker": Scene(make_view(shards=6, workers=2, names=(HOSTILE,), moves=2, problems=1)),
        "four-shards": Scene(SMALL),
        "shard": Scene(SMALL, ("down", "enter"), ("escape", "home")),
        "command": Scene(SMALL, ("down", "l"), ("escape", "home")),
        "two-hundred-shards": Scene(BUSY),
        "problems": Scene(BUSY, ("p",), ("escape",)),
        "help": Scene(BUSY, ("question_mark",), ("escape",)),
        "filter": Scene(BUSY, ("slash", "w", "e", "b", "0", "9", "enter"), ("escape", "home")),
        "owner-open": Scene(BUSY, ("down", "down", "enter", "down")),
    },
    (160, 45): {
        "thousand-shards": Scene(make_view(shards=1000, workers=200, problems=30, moves=20)),
    },
    (60, 20): {"narrow": Scene(BUSY)},
    (80, 24): {"eighty-columns": Scene(SMALL)},
}
"""The scenes by the size of the terminal. Those of one size are played one after the other in one terminal, since its start takes longest."""

NAMES = {name: size for size, scenes in SCENES.items() for name in scenes}
"""The size of each scene."""


@functools.cache
def play_scenes(size: tuple[int, int]) -> dict[str, list[str]]:
    """Return the screens of the scenes of a size."""

    async def script(app: TopApp, pilot: Any) -> dict[str, list[str]]:
        found = {}
        for name, scene in SCENES[size].items():
            if scene.view is not None:
                app.show(scene.view)
                await pilot.pause()
            await press(app, pilot, *scene.keys)
            found[name] = lines_of(app)
            await press(app, pilot, *scene.back)
        return found

    # What is behind an open page is drawn by the terminal's own drawing alone.
    found: dict[str, list[str]] = play(None, script, size=size, draws=True)
    return found


def lines_of_scene(name: str) -> list[str]:
    """Return the screen of a scene."""
    return play_scenes(NAMES[name])[name]


def stored(name: str) -> list[str]:
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()


def update() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in NAMES:
        (FOLDER / f"{name}.txt").write_text("\n".join(lines_of_scene(name)) + "\n", encoding="utf-8")
        sys.stderr.write(f"wrote {name}\n")
    for path in FOLDER.glob("*.txt"):
        if path.stem not in NAMES:
            path.unlink()


if __name__ == "__main__":
    if sys.argv[1:] != ["--update"]:
        sys.exit("usage: python -m tests.cli.tui.screen --update")
    update()
