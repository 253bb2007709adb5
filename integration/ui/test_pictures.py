"""Each view at two widths, light and dark: nothing scrolls sideways, nothing is cut, and a picture is kept for people to look at.

The pictures are in `.cache/pictures`, as ``VIEW-WIDTH-SCHEME.png``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from integration.waiting import eventually
from kinesis_sdk.admin import FleetView
from kinesis_sdk.admin.fleet.model import ErrorCode, HandlerFailure
from kinesis_sdk.admin.fleet.problems import ProblemSettings, TableFacts, find_problems
from kinesis_sdk.admin.recording.recorder import Recording
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from tests.cli.web.generated import START, GeneratedBackend, GeneratedFleet, shard_name

LARGE, SMALL, CALM = "billing", "search-index", "calm"
WIDTHS = {1440: 900, 400: 800}
"""Heights of the window by width."""
BEYOND = """() => [...document.querySelectorAll("main *, header *, dialog *, footer *")].filter((one) => {
    const box = one.getBoundingClientRect();
    return box.width && (box.right > innerWidth + 1 || box.left < -1) && !one.closest(".scroll, .map, pre, .what, svg, canvas, .skip");
}).map((one) => one.outerHTML.slice(0, 200))"""
"""What sticks out of the window. Tables and texts of fixed width scroll within their cards."""
CUT = """() => [...document.querySelectorAll("h1, h2, h3, dt, dd, dd > span, button, label, .where, nav a, .problems .name, .title *, th")].filter((one) =>
    one.offsetWidth && one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX !== "visible" && !one.closest(".scroll") && !one.title)
    .map((one) => one.outerHTML.slice(0, 200))"""
"""Texts that are cut, and whose whole cannot be seen by pointing at them."""


@dataclass(frozen=True)
class Scene:
    """A view in a state.

    Attributes:
        address: What follows the base of the URL.
        text: Text that is there once the view is.
        act: What a person does then.
        settings: Of the server.
        is_still: Whether no further view comes, so that what `act` shows stays.
    """

    address: str
    text: str
    act: Callable[[Any, GeneratedBackend], None] = lambda _page, _backend: None
    settings: tuple[tuple[str, Any], ...] = (("allow_changes", True),)
    is_still: bool = False


def _read(page: Any, _backend: GeneratedBackend) -> None:
    page.get_by_role("button", name="Read", exact=True).click()
    page.get_by_text("13 records").wait_for()


def _plan(page: Any, backend: GeneratedBackend) -> None:
    _read(page, backend)
    page.get_by_label("Target").fill("-15m")
    page.get_by_role("button", name="Show what it does").click()
    page.get_by_text("IF leaseCounter = 18291").wait_for()


def _choose(page: Any, _backend: GeneratedBackend) -> None:
    page.get_by_label("Choose shard 0003").check()
    page.get_by_label("Choose shard 0005").check()
    card = page.get_by_role("region", name="Change of the chosen shards")
    card.get_by_label("Target").fill("-15m")
    card.get_by_role("button", name="Show what it does").click()
    card.get_by_text("kinesis-sdk leases rewind").wait_for()


def _drain(page: Any, _backend: GeneratedBackend) -> None:
    card = page.get_by_role("region", name="Workers")
    card.get_by_role("button", name="Show what it does").click()
    card.get_by_text("kinesis-sdk leases drain").wait_for()


def _keys(page: Any, _backend: GeneratedBackend) -> None:
    page.locator("main").focus()
    page.keyboard.press("?")
    page.get_by_text("choose a shard").first.wait_for()


def _unfold(page: Any, _backend: GeneratedBackend) -> None:
    for summary in page.locator(".problems summary").all():
        summary.click()


def _fail(page: Any, backend: GeneratedBackend) -> None:
    view = backend.fleets["billing"].view()
    backend.watches["billing"].on_view(replace(view, error="Scan: throttled", table_age=42.0))
    page.get_by_text("The newest read failed").wait_for()


def _wait(page: Any, backend: GeneratedBackend) -> None:
    backend.watches["billing"].waits = ("Scan", 6.0)
    page.get_by_text("DynamoDB does not answer").wait_for()


def _poison(page: Any, backend: GeneratedBackend) -> None:
    view = backend.fleets[SMALL].view()
    failing = HandlerFailure(
        attempts=9,
        seconds=340.0,
        retry_in=21.0,
        records=1,
        position=ExtendedSequenceNumber("49680587286266301906047261879904860450915858901373026338", 2),
        error="ValueError: cannot read the amount 'twelve' of an order of the customer 8c1f2a77-2f6f-4e1c-9d5b-7d1f6a0b2c11",
    )
    leases = (*view.leases[:3], replace(view.leases[3], failing=failing), *view.leases[4:])
    problems = find_problems(replace(view, leases=leases), TableFacts(), ProblemSettings())
    backend.watches[SMALL].on_view(replace(view, leases=leases, problems=problems))
    page.get_by_role("region", name="Failing handler").wait_for()
    page.get_by_text("the same as commands").click()


def _search(page: Any, _backend: GeneratedBackend) -> None:
    card = page.get_by_label("Search for records")
    card.get_by_label("JMESPath expression").fill("total > `1000`")
    card.get_by_role("button", name="Search").click()
    card.get_by_text("13 records read").wait_for()


def _nothing(text: str, error: str = "", code: ErrorCode = ErrorCode.OTHER) -> Scene:
    def act(page: Any, backend: GeneratedBackend) -> None:
        view = FleetView(application=LARGE, at=START + 1e6, error=error, error_code=code if error else None)
        backend.watches[LARGE].on_view(view)
        page.get_by_text(text).wait_for()

    return Scene(f"#/fleet/{LARGE}", "shards by", act, is_still=True)


SCENES = {
    "applications": Scene("", "with errors; read again each minute"),
    "fleet-large": Scene(f"#/fleet/{LARGE}", "1,000 shards by 40 owners"),
    "fleet-small": Scene(f"#/fleet/{SMALL}", "12 shards by 3 owners"),
    "fleet-calm": Scene(f"#/fleet/{CALM}", "4 shards by 2 owners"),
    "problems": Scene(f"#/fleet/{LARGE}", "1,000 shards by 40 owners", _unfold),
    "shard": Scene(f"#/shard/{LARGE}/{shard_name(440)}", "Shard 0440", _plan),
    "shard-read-only": Scene(f"#/shard/{SMALL}/{shard_name(3)}", "Shard 0003", _read, ()),
    "shard-failing": Scene(f"#/shard/{SMALL}/{shard_name(3)}", "Shard 0003", _poison, is_still=True),
    "past": Scene(f"#/fleet/{SMALL}?at={int(START + 200)}", "before now"),
    "stream-large": Scene(f"#/stream/{LARGE}", "1,000 open shards"),
    "stream-search": Scene(f"#/stream/{LARGE}", "1,000 open shards", _search),
    "change-of-several": Scene(f"#/fleet/{SMALL}", "12 shards by 3 owners", _choose),
    "change-of-a-worker": Scene(f"#/fleet/{SMALL}", "12 shards by 3 owners", _drain),
    "keys": Scene(f"#/fleet/{SMALL}", "12 shards by 3 owners", _keys),
    "failed-look": Scene(f"#/fleet/{LARGE}", "1,000 shards by 40 owners", _fail, is_still=True),
    "no-answer": Scene(f"#/fleet/{LARGE}", "1,000 shards by 40 owners", _wait, is_still=True),
    "nothing-empty-table": _nothing("The lease table is empty"),
    "nothing-no-table": _nothing(
        "There is no lease table billing", "the lease table could not be read", ErrorCode.NO_LEASE_TABLE
    ),
    "nothing-no-credentials": _nothing(
        "Give the console a region and credentials", "Unable to locate them", ErrorCode.AWS_SETTINGS
    ),
    "nothing-no-access": _nothing("Nothing could be read of billing", "Scan: AccessDeniedException"),
    "nothing-no-lease": Scene(f"#/shard/{SMALL}/shardId-x", "There is no lease"),
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", SCENES)
def test_a_view_fits_the_window(open_page, serve, keep_picture, name: str, scheme: str) -> None:
    scene = SCENES[name]
    fleets = {
        LARGE: GeneratedFleet(1000, 40),
        SMALL: GeneratedFleet(12, 3, application=SMALL),
        CALM: GeneratedFleet(4, 2, application=CALM),
    }
    backend = GeneratedBackend(fleets, interval=None if scene.is_still else 0.3)
    recording = Recording()
    if name == "past":
        for _ in range(300):
            recording.update(fleets[SMALL].view())
    base = serve(backend, recording=recording, **dict(scene.settings))
    page = open_page(base + scene.address, scheme=scheme)
    if scene.is_still:
        application = next(name for name in fleets if f"/{name}" in scene.address)
        eventually(lambda: application in backend.watches and backend.watches[application].starts)
        backend.watches[application].tick()
    page.get_by_text(scene.text).first.wait_for()
    scene.act(page, backend)
    for width, height in WIDTHS.items():
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(400)  # drawings follow the width
        keep_picture(page, f"{name}-{width}-{scheme}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(BEYOND) == []
        assert page.evaluate(CUT) == []
