"""The terminal view, played without a terminal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest
from rich.cells import cell_len

from kinesis_sdk.admin.command import Command
from kinesis_sdk.admin.fleet.model import FleetView, HandlerFailure, LeaseState
from kinesis_sdk.admin.records import RecordPage
from kinesis_sdk.cli.spelling import spell
from kinesis_sdk.cli.tui import app as app_module
from kinesis_sdk.cli.tui import lines as draw
from kinesis_sdk.cli.tui.app import HELP, Services, TopApp
from kinesis_sdk.cli.tui.cells import fit, fit_name
from kinesis_sdk.cli.tui.changes import Planned
from kinesis_sdk.cli.tui.line_list import LineList
from kinesis_sdk.cli.tui.rows import LeaseRow, OwnerRow, Rows
from kinesis_sdk.common.errors import AwsError, TransientAwsError
from kinesis_sdk.common.position import AfterSequence, Position, TrimHorizon
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from tests.cli.tui.screen import (
    BUSY,
    NAMES,
    SMALL,
    lines_of,
    lines_of_scene,
    make_app,
    picture,
    play,
    press,
    settled,
    stored,
)
from tests.cli.tui.views import HOSTILE, later, make_view

LARGE = make_view(shards=1000, workers=200, problems=30, moves=20)


# Screens


@pytest.mark.parametrize("name", NAMES)
def test_a_screen_is_as_it_was(name: str) -> None:
    lines = lines_of_scene(name)
    assert lines == stored(name), "python -m tests.cli.tui.screen --update"
    width, height = NAMES[name]
    assert len(lines) == height
    assert all(cell_len(line) <= width and line.isprintable() for line in lines)


@pytest.mark.parametrize(
    ("cut", "text", "width", "shown"),
    [
        (fit, "short", 8, "short   "),
        (fit, "a long name", 6, "a lon…"),
        (fit, "東京東京", 5, "東京…"),
        (fit, "東京東京", 4, "東 …"),
        (fit, "a\x1b[2Jb", 12, "a\\x1b[2Jb   "),
        (fit, "\u202eabc", 9, "\\u202eabc"),
        (fit, "x", 0, ""),
        # Names are cut in their middle.
        (fit_name, "short", 8, "short   "),
        (fit_name, "vm:22715:93c81ccb-1", 12, "vm:227…ccb-1"),
        (fit_name, "vm:22715:93c81ccb-2", 12, "vm:227…ccb-2"),
        (fit_name, "東京東京", 5, "東…京"),
        (fit_name, "東京東京", 4, "東 …"),
        (fit_name, "a\x1b[2Jbcdefgh", 10, "a\\x1b…efgh"),
        (fit_name, "x", 0, ""),
        (fit_name, "xy", 1, "…"),
    ],
)
def test_text_is_fitted_by_cells(cut: Callable[[str, int], str], text: str, width: int, shown: str) -> None:
    assert cut(text, width) == shown
    assert cell_len(shown) == width
    assert shown.isprintable()


# Rows


def test_rows_keep_their_place_while_lags_change() -> None:
    rows = Rows()
    view = LARGE
    before = [row.key for row in rows.build(view)]
    for step in range(5):
        assert [row.key for row in rows.build(later(view, 5.0 * step, step))] == before


def test_an_order_by_lag_stays_until_it_is_asked_for_again() -> None:
    rows = Rows()
    assert rows.next_order(BUSY).value == "lag"
    first = [
        row.owner.worst_lag_millis for row in rows.build(BUSY) if isinstance(row, OwnerRow) and row.owner
    ]
    assert first == sorted(first, key=lambda lag: -(lag or 0))
    keys = [row.key for row in rows.build(BUSY)]
    changed = later(BUSY, 5.0, 9)
    assert [row.key for row in rows.build(changed)] == keys
    assert rows.next_order(changed).value == "leases"
    assert rows.next_order(changed).value == "id"


def test_finished_leases_are_not_listed_and_unowned_ones_stay_visible() -> None:
    view = replace(
        SMALL, leases=(replace(SMALL.leases[0], state=LeaseState.FINISHED, owner=None), *SMALL.leases[1:])
    )
    shown = [row.lease.lease_key for row in Rows().build(view) if isinstance(row, LeaseRow)]
    assert view.leases[0].lease_key not in shown
    nobody = replace(SMALL, leases=tuple(replace(one, owner=None) for one in SMALL.leases), owners=())
    first = Rows().build(nobody)[0]
    assert isinstance(first, OwnerRow)
    assert first.owner is None
    assert len(first.leases) == 4


@pytest.mark.parametrize("pattern", ["WEB03", "shardId-000000000007", "unowned", "near the horizon"])
def test_a_filter_finds_owner_shard_state_and_problem(pattern: str) -> None:
    rows = Rows()
    rows.pattern = pattern
    found = rows.build(BUSY)
    assert 1 <= len(found) < len(Rows().build(BUSY))


def test_the_squares_of_many_shards_keep_the_worst() -> None:
    owner = replace(BUSY.owners[0], worker_id="w")
    leases = tuple(replace(BUSY.leases[0], state=LeaseState.HELD) for _ in range(100))
    worst = replace(leases[0], state=LeaseState.UNOWNED)
    line = draw.owner(owner, (*leases, worst), 100, is_open=False)
    assert line.cell_len <= 100
    assert "x" in line.plain
    assert "+" in line.plain


# The application


def test_only_lines_on_the_screen_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []

    def counted(owner: Any, *args: Any, **kwargs: Any) -> Any:
        drawn.append(owner.worker_id if owner else "")
        return original(owner, *args, **kwargs)

    original = draw.owner
    monkeypatch.setattr(app_module.draw, "owner", counted)

    async def script(app: TopApp, pilot: Any) -> None:
        for step in range(3):
            drawn.clear()
            app.show(later(LARGE, step, step))
            await pilot.pause()
            assert 0 < len(set(drawn)) <= 30
            # Each line on the screen is drawn a few times at most: once by each refresh.
            assert len(drawn) <= 4 * 30

    play(LARGE, script, draws=True)


def test_the_cursor_stays_on_its_row_when_rows_come_and_go() -> None:
    async def script(app: TopApp, pilot: Any) -> None:
        owners = app.query_one("#owners", LineList)
        for _ in range(5):
            await pilot.press("down")
        key = owners.key
        fewer = replace(BUSY, owners=BUSY.owners[1:])
        app.show(fewer)
        await pilot.pause()
        assert owners.key == key
        app.show(BUSY)
        await pilot.pause()
        assert owners.key == key
        app.show(replace(BUSY, owners=(), leases=()))
        await pilot.pause()
        assert owners.key == "nothing"
        await pilot.press("down", "up", "enter", "end", "pagedown", "t", "r")

    play(BUSY, script)


def test_a_view_may_come_from_another_thread() -> None:
    async def script(app: TopApp, pilot: Any) -> None:
        thread = threading.Thread(target=app.show_soon, args=(SMALL,))
        thread.start()
        thread.join()
        await pilot.pause()
        assert app.fleet is SMALL

    play(None, script)


def test_what_failed_is_shown_instead_of_the_totals() -> None:
    lines = picture(replace(SMALL, error="the lease table could not be read: [bold]denied"))
    assert lines[1].startswith("! the lease table could not be read: [bold]denied")


class Watching:
    def __init__(self) -> None:
        self.shown: list[str] = []
        self.focused: list[str | None] = []

    def focus(self, lease_key: str | None) -> None:
        self.focused.append(lease_key)

    def show(self, lease_keys: Any) -> None:
        self.shown = list(lease_keys)

    def set_active(self, active: bool) -> None:
        raise AssertionError


def test_what_is_on_the_screen_is_told_to_the_one_who_measures() -> None:
    watching = Watching()
    app = make_app()
    app.watch_with(watching)

    async def script(made: TopApp, pilot: Any) -> None:
        assert watching.shown == []  # owners are closed
        await pilot.press("enter")
        await pilot.pause()
        assert watching.shown == [f"shardId-{number:012}" for number in range(3)]
        await pilot.press("down", "enter")
        await pilot.pause()
        assert watching.focused == ["shardId-000000000000"]
        made.show(later(BUSY, 2, 2))
        await pilot.pause()
        await pilot.press("escape")
        await pilot.pause()
        assert watching.focused == ["shardId-000000000000", None]

    play(BUSY, script, app=app)


def test_enter_on_a_problem_goes_to_its_shard() -> None:
    async def script(app: TopApp, pilot: Any) -> None:
        app.query_one("#problems", LineList).focus()
        await pilot.press("down", "down", "down", "enter")
        await pilot.pause()
        owners = app.query_one("#owners", LineList)
        assert owners.has_focus
        assert owners.key == "lease shardId-000000000003"

    play(BUSY, script)


def test_the_filter_takes_every_key_and_escape_drops_it() -> None:
    async def script(app: TopApp, pilot: Any) -> None:
        await pilot.press("slash", "q", "s", "r", "t")
        await pilot.pause()
        assert app.is_running
        assert "filter: qsrt" in "\n".join(lines_of(app))
        await pilot.press("escape")
        await pilot.pause()
        assert "filter" not in "\n".join(lines_of(app)[:-1])

    play(BUSY, script)


def test_q_ends_it() -> None:
    async def script(app: TopApp, pilot: Any) -> None:
        await pilot.press("question_mark")
        await pilot.press("q")
        await pilot.pause()
        assert app.is_running  # it closed the page
        await pilot.press("q")
        await pilot.pause()

    app = make_app()
    play(BUSY, script, app=app)
    assert app.return_code == 0


def test_the_help_names_every_key() -> None:
    named = " ".join(HELP)
    for binding in TopApp.BINDINGS:
        assert (binding.key_display or binding.key)[:3] in named  # type: ignore[union-attr]


@pytest.mark.parametrize("size", [(20, 6), (250, 80)])
def test_every_size_works(size: tuple[int, int]) -> None:
    assert len(picture(BUSY, "enter", "down", "question_mark", size=size)) == size[1]


def test_without_an_explanation_the_facts_are_shown() -> None:
    text = "\n".join(picture(SMALL, "down", "e"))
    assert "Why shard 0000" in text
    assert "lease counter" in text


def test_an_explanation() -> None:
    services = Services(explain=lambda _view, key: [f"{key} waits for [b]its parent[/]", "word " * 60])
    text = "\n".join(picture(SMALL, "down", "e", services=services))
    assert "shardId-000000000000 waits for [b]its parent[/]" in text
    assert text.count("word") == 60


# Tail


def record(number: int, data: bytes, key: str = "key") -> UserRecord:
    return UserRecord(
        partition_key=key,
        data=data,
        sequence_number=str(number),
        sub_sequence_number=0,
        approximate_arrival_timestamp=datetime(2026, 11, 22, tzinfo=timezone.utc),
    )


class Reader:
    def __init__(self, *pages: Sequence[UserRecord] | Exception) -> None:
        self.pages = list(pages)
        self.positions: list[Position | None] = []

    def __call__(self, stream: str, shard_id: str, position: Position | None) -> RecordPage:
        assert (stream, shard_id) == ("orders", "shardId-000000000000")
        self.positions.append(position)
        page = self.pages.pop(0) if self.pages else []
        if isinstance(page, Exception):
            raise page
        after = AfterSequence(page[-1].sequence_number) if page else position or TrimHorizon()
        return RecordPage(
            shard_id=shard_id, records=tuple(page), next_position=after, millis_behind_latest=0, at_tip=True
        )


def test_a_tail_shows_hostile_records_as_text_and_goes_on_where_it_was() -> None:
    payloads = [
        b"[bold red]x[/]",
        b"\x1b]0;title\x07\x1b[2J",
        b"a\nb\tc",
        b"\xff\xfe\x00",
        b'{"a": "\\u001b[31m"}',
        b"",
    ]
    reader = Reader(
        [record(number, data, HOSTILE) for number, data in enumerate(payloads)], [record(9, b"newest")]
    )

    async def script(app: TopApp, pilot: Any) -> list[str]:
        await pilot.press("down", "t")
        await settled(app, pilot)
        app.screen.read_more()  # type: ignore[attr-defined] - what its timer calls
        await settled(app, pilot)
        return lines_of(app)

    lines = play(SMALL, script, services=Services(read=reader))
    text = "\n".join(lines)
    assert all(line.isprintable() for line in lines)
    assert "[bold red]x[/]" in text
    assert "\\x1b]0;title\\x07\\x1b[2J" in text
    assert "a b c" in text
    assert "hex fffe00" in text
    assert "newest" in text
    assert "7 records, at the tip" in text
    assert reader.positions[:2] == [None, AfterSequence("5")]


def test_the_record_on_which_a_handler_fails_is_opened_and_stays_in_view() -> None:
    failing = HandlerFailure(
        attempts=4, seconds=9.0, retry_in=3.0, records=1, position=ExtendedSequenceNumber("7", 2), error="E"
    )
    fails = replace(
        SMALL, leases=tuple(replace(lease, failing=failing, stream=None) for lease in SMALL.leases)
    )
    reader = Reader([record(7, b"poison"), record(8, b"good")], [record(9, b"newest")])

    async def script(app: TopApp, pilot: Any) -> list[str]:
        await pilot.press("down", "t")
        await settled(app, pilot)
        app.screen.read_more()  # type: ignore[attr-defined] - what its timer calls
        await settled(app, pilot)
        return lines_of(app)

    text = "\n".join(play(fails, script, services=Services(read=reader)))
    assert "poison" in text
    assert "newest" not in text
    assert "space goes on" in text
    assert reader.positions == [AfterSequence("7", sub_sequence_number=1)]


def test_a_tail_that_fails_says_why_and_can_be_paused() -> None:
    reader = Reader(
        TransientAwsError("throttled", operation="GetRecords", code="X"), [record(1, b"after all")]
    )

    async def script(app: TopApp, pilot: Any) -> None:
        await pilot.press("down", "t")
        await settled(app, pilot)
        assert "not read: " in "\n".join(lines_of(app))
        await pilot.press("space")
        app.screen.read_more()  # type: ignore[attr-defined]
        await settled(app, pilot)
        assert len(reader.positions) == 1
        await pilot.press("space")
        app.screen.read_more()  # type: ignore[attr-defined]
        await settled(app, pilot)
        assert "after all" in "\n".join(lines_of(app))
        await pilot.press("escape")
        await pilot.pause()

    play(SMALL, script, services=Services(read=reader))


# Changes


class Steering:
    def __init__(self, *, refused: bool = False, error: AwsError | None = None) -> None:
        self.refused, self.error = refused, error
        self.planned: list[str] = []
        self.applied: list[str] = []
        self.hold: threading.Event | None = None
        self.stopped = False

    def plan(self, command: Command) -> Planned:
        self.planned.append(spell(command, ["--region", "us-east-1"]))
        if self.error is not None:
            raise self.error
        lines = ("checkpoint: 1 → 2", "repeats [b]4 h[/]")
        return Planned(command, lines, refused=self.refused, act=lambda: self.apply(self.planned[-1]))

    def apply(self, command: str) -> Sequence[str]:
        self.applied.append(command)
        if self.hold is not None:
            assert self.hold.wait(60)
        return ["noticed after 1.3 s by w2"]

    def stop(self) -> None:
        self.stopped = True
        if self.hold is not None:
            self.hold.set()


REWIND = "kinesis-sdk leases rewind billing --shard shardId-000000000000 --to -15m --region us-east-1"


def change(view: FleetView, keys: Sequence[str], services: Services) -> list[str]:
    return picture(view, *keys, services=services)


ASKED = {
    ("r", "minus", "1", "5", "m", "enter"): REWIND,
    ("k", "minus", "5", "m", "enter"): REWIND.replace("rewind", "skip-to").replace("-15m", "-5m"),
    ("m", "w", "2", "enter"): REWIND.replace("rewind", "move").replace("-15m", "w2"),
    ("l",): REWIND.replace("rewind", "release").replace(" --to -15m", ""),
}


def test_a_key_shows_its_command_and_does_nothing_else() -> None:
    async def script(app: TopApp, pilot: Any) -> None:
        await pilot.press("down")
        for keys, command in ASKED.items():
            await press(app, pilot, *keys)
            text = "\n".join(lines_of(app))
            assert command in text
            assert "not run (read-only: --allow-changes)" in text
            await press(app, pilot, "escape")
            assert command not in "\n".join(lines_of(app))

    play(SMALL, script)


def test_a_change_is_planned_shown_confirmed_and_made() -> None:
    steering = Steering()

    async def script(app: TopApp, pilot: Any) -> None:
        await press(app, pilot, "down", "r", "minus", "1", "5", "m", "enter")
        text = "\n".join(lines_of(app))
        assert "checkpoint: 1 → 2" in text
        assert "repeats [b]4 h[/]" in text
        assert steering.planned == [REWIND]
        assert steering.applied == []
        await press(app, pilot, "y")
        assert steering.applied == [REWIND]
        assert "noticed after 1.3 s by w2" in "\n".join(lines_of(app))

    play(SMALL, script, services=Services(changes=steering))


def test_any_other_key_leaves_the_table_as_it_is() -> None:
    steering = Steering()

    async def script(app: TopApp, pilot: Any) -> None:
        await pilot.press("down")
        for number, key in enumerate(("n", "escape", "space", "enter"), 1):
            await press(app, pilot, "l", key)
            assert len(steering.planned) == number
            assert steering.applied == []
            await press(app, pilot, "escape")

    play(SMALL, script, services=Services(changes=steering))


def test_a_refused_change_cannot_be_confirmed() -> None:
    steering = Steering(refused=True)

    async def script(app: TopApp, pilot: Any) -> None:
        await press(app, pilot, "down", "l", "y")
        assert len(steering.planned) == 1
        assert steering.applied == []
        await press(app, pilot, "escape")
        steering.error = TransientAwsError("no", operation="Scan", code="X")
        await press(app, pilot, "l", "y")
        assert len(steering.planned) == 2
        assert steering.applied == []

    play(SMALL, script, services=Services(changes=steering))


def test_an_empty_answer_changes_nothing() -> None:
    steering = Steering()
    change(SMALL, ("down", "r", "enter", "r", "escape"), Services(changes=steering))
    assert steering.planned == []


def test_an_owner_with_several_shards_is_asked_to_be_opened() -> None:
    steering = Steering()
    change(BUSY, ("l",), Services(changes=steering))
    assert steering.planned == []


def test_an_empty_table_and_a_filter_without_a_match_say_so() -> None:
    assert any(app_module.EMPTY[:60] in line for line in lines_of_scene("no-leases"))
    assert any("Nothing matches zzz" in line for line in picture(BUSY, "slash", "z", "z", "z", "enter"))


def test_while_a_change_is_under_way_q_asks_twice_and_no_other_change_begins() -> None:
    steering = Steering()
    steering.hold = threading.Event()

    async def script(app: TopApp, pilot: Any) -> None:
        await pilot.press("down", "l")
        await settled(app, pilot)
        await pilot.press("y")
        await pilot.pause()
        assert "Running, and waiting" in "\n".join(lines_of(app))
        await pilot.press("escape", "l", "q")
        await pilot.pause()
        assert app.is_running
        assert not steering.stopped
        assert len(steering.planned) == 1
        await pilot.press("q")
        await pilot.pause()
        assert steering.stopped

    app = make_app(Services(changes=steering))
    play(SMALL, script, app=app)
    assert app.return_code == 0


def test_a_page_scrolls_with_the_keys_of_a_list() -> None:
    services = Services(explain=lambda _view, _key: [f"line {number}" for number in range(100)])

    async def script(app: TopApp, pilot: Any) -> None:
        await pilot.press("down", "e")
        await pilot.pause()
        assert "line 0" in "\n".join(lines_of(app))
        await pilot.press("down")
        await pilot.pause()
        text = "\n".join(lines_of(app))
        assert "line 0 " not in text
        assert "line 1 " in text
        await pilot.press("end")
        await pilot.pause()
        assert "line 99" in "\n".join(lines_of(app))
        app.show(later(SMALL, 2, 2))  # the page is drawn again, and stays where it is
        await pilot.pause()
        assert "line 99" in "\n".join(lines_of(app))
        await pilot.press("home")
        await pilot.pause()
        assert "line 0 " in "\n".join(lines_of(app))

    play(SMALL, script, services=services)


def test_the_keys_of_time_go_back_and_forth_and_stop_at_now() -> None:
    asked: list[float] = []
    old = replace(SMALL, at=SMALL.at - 60.0, owners=(), leases=())

    def past(at: float) -> FleetView | None:
        asked.append(SMALL.at - at)
        return replace(old, at=at) if SMALL.at - at < 100 else None

    async def script(app: TopApp, pilot: Any) -> None:
        async def arrives(view: FleetView) -> None:
            app.show_soon(view)
            await settled(app, pilot)

        async def press(key: str) -> FleetView:
            await pilot.press(key)
            await settled(app, pilot)
            assert app.fleet is not None
            return app.fleet

        await arrives(SMALL)
        shown = await press("[")
        assert (shown.leases, shown.at) == ((), SMALL.at - 60.0)
        assert "AS IT WAS at" in "\n".join(lines_of(app))
        newer = replace(SMALL, at=SMALL.at + 30.0)
        await arrives(newer)
        assert app.fleet == shown, "what arrives meanwhile waits"
        assert "1 min 30 s ago" in "\n".join(lines_of(app))
        await press("r")
        assert app.screen is app._main, "the past is not changed"
        assert (await press("[")).at == SMALL.at - 60.0, "nothing was recorded two minutes ago"
        assert (await press("]")).at == SMALL.at
        assert await press("]") == newer
        await press("[")
        assert await press("0") == newer
        assert "AS IT WAS at" not in "\n".join(lines_of(app))

    play(SMALL, script, services=Services(past=past))
    assert asked == [60.0, 120.0, 0.0, 30.0]
