"""The application: the fleet on one screen, and the keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from functools import partial
from typing import ClassVar, Protocol

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import AppBlur, AppFocus
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Input, Static

from kinesis_sdk.admin.applications import short_shard
from kinesis_sdk.admin.command import Command
from kinesis_sdk.admin.fleet.formatting import duration
from kinesis_sdk.admin.fleet.model import FleetView, LeaseView, Problem
from kinesis_sdk.admin.records import RecordPage
from kinesis_sdk.cli.spelling import spell
from kinesis_sdk.cli.tui import lines as draw
from kinesis_sdk.cli.tui.cells import fit, row
from kinesis_sdk.cli.tui.changes import Changes, Planned
from kinesis_sdk.cli.tui.line_list import Line, LineList, fixed
from kinesis_sdk.cli.tui.rows import LeaseRow, OwnerRow, Row, Rows, worker_of
from kinesis_sdk.cli.tui.screens import Confirmation, Page, Question, Tail
from kinesis_sdk.common.errors import KinesisSdkError
from kinesis_sdk.common.position import Position
from kinesis_sdk.common.position_text import parse_position

_PROBLEMS, _MOVES = 4, 3
_MOST_MOVES = 20
"""Maximum number of moves, on a terminal that has room for them below the owners."""
_FIXED_LINES = 7
"""Lines of the screen other than problems, owners and moves."""
"""Lines of the two small lists."""

HELP = (
    "↑ ↓ page up, page down, home, end   choose a line; tab goes to the next list",
    "enter   an owner: list its shards or hide them; a shard: all that is known; a problem: go to its shard",
    "/       filter by owner, shard, state or problem; empty shows all",
    "s       order of the owners: id, largest lag, most leases; the order stays until s is pressed again",
    "p       all problems with their remedies",
    "e       explain why a shard is where it is",
    "t       tail of a shard: its newest records, one read in two seconds; the record on which its handler fails",
    "r k     rewind a shard, skip forward",
    "l m     release a lease, move it to another worker",
    "n x     call a failing handler again now, leave out the record on which it fails",
    "[ ] 0   one minute back in time, one minute forth, now; the table is read on meanwhile",
    "y       copy the command that is shown; esc drops it",
    "?       this page",
    "q       quit",
    "",
    "r, k, l, m, n and x show the command that will run. Without --allow-changes it is only shown. With it, the exact write is shown",
    "next, and made when you confirm it.",
    "",
)


EMPTY = "The lease table has no leases that are not finished: no worker has started yet, or every shard was read to its end."


class Watching(Protocol):
    """Source of fresh views: a subscription of a `FleetPoller`."""

    def focus(self, lease_key: str | None) -> None:
        """Set the lease whose page is open."""
        ...

    def show(self, lease_keys: Iterable[str]) -> None:
        """Set the leases on the screen."""
        ...

    def set_active(self, active: bool) -> None:
        """Pause while the screen is hidden."""
        ...


@dataclass(frozen=True, kw_only=True)
class Services:
    """Calls that key presses trigger. A service that is None is not available.

    Attributes:
        explain: Returns an explanation of why a shard is moving or not, given a view and a lease key.
        read: Reads a page of a shard's records, given the stream, the shard, and the position (None to begin).
        changes: Plans and makes changes; None shows commands only.
        past: Returns the view at a time in epoch seconds; None if there was no view then.
    """

    explain: Callable[[FleetView, str], Sequence[str]] | None = None
    read: Callable[[str, str, Position | None], RecordPage] | None = None
    changes: Changes | None = None
    past: Callable[[float], FleetView | None] | None = None


class TopApp(App[None]):
    """The fleet of one application, live.

    Args:
        place: Region or endpoint, for the first line.
        options: Options of the connection, for commands that are shown.
        zone: Time zone of clocks; None for the local time zone.
    """

    ENABLE_COMMAND_PALETTE = False
    TITLE = "kinesis-sdk top"
    CSS = """
    Screen { layout: vertical; }
    #title, #totals, #head { height: 1; }
    #problems, #fleet, #moves, #command { border-top: solid $surface-lighten-2; border-title-color: $text-muted; }
    #problems { height: auto; max-height: 6; }
    #fleet { height: 1; }
    #owners { height: 1fr; min-height: 3; }
    #moves { height: 4; }
    #command { height: auto; display: none; }
    #filter { display: none; height: 1; border: none; padding: 0; }
    #keys { height: 1; color: $text-muted; }
    LineList { scrollbar-size-vertical: 1; overflow-x: hidden; background: $background; }
    LineList > .line-list--cursor { background: $primary-darken-2; }
    #problems, #moves { scrollbar-size-vertical: 0; }
    Page, Question, Confirmation, Tail { align: center middle; }
    .page { width: 94%; max-width: 140; height: 80%; border: round $primary; background: $background; padding: 0 1; }
    .question { height: 5; width: 80%; }
    .question Input { border: none; height: 1; padding: 0; }
    .page LineList { height: 1fr; }
    .page-keys { height: 1; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("s", "sort", "sort"),
        Binding("p", "problems", "problems"),
        Binding("e", "explain", "explain"),
        Binding("t", "tail", "tail"),
        Binding("r", "change('rewind')", "rewind"),
        Binding("k", "change('skip-to')", "skip"),
        Binding("l", "change('release')", "release"),
        Binding("m", "change('move')", "move"),
        Binding("n", "change('retry')", "retry"),
        Binding("x", "change('skip-record')", "skip record"),
        Binding("left_square_bracket", "travel(-1)", "back", key_display="["),
        Binding("right_square_bracket", "travel(1)", "forth", key_display="]"),
        Binding("0", "travel(0)", "now"),
        Binding("y", "copy", "copy"),
        Binding("escape", "drop", "drop"),
    ]

    class Viewed(Message):
        """A new view, posted from the watching thread."""

        def __init__(self, view: FleetView) -> None:
            self.view = view
            super().__init__()

    def __init__(
        self,
        application: str,
        *,
        place: str = "",
        options: Sequence[str] = (),
        services: Services | None = None,
        zone: tzinfo | None = None,
    ) -> None:
        super().__init__()
        self.animation_level = "none"
        self._application = application
        self._place = place
        self._options = tuple(options)
        self._services = services or Services()
        self._zone = zone
        self._view: FleetView | None = None
        self._newest: FleetView | None = None
        self._is_past = False
        self._rows = Rows()
        self._by_key: dict[str, Row] = {}
        self._watching: Watching | None = None
        self._command: Command | None = None
        self._result: tuple[str, ...] = ()
        self._applying = False
        self._leaving = False
        self._main: Screen[object] | None = None

    def watch_with(self, watching: Watching) -> None:
        """Set the source of fresh views."""
        self._watching = watching

    def show_soon(self, view: FleetView) -> None:
        """Show a view. May be called from any thread, and returns at once."""
        self.post_message(self.Viewed(view))

    @property
    def fleet(self) -> FleetView | None:
        """The view on the screen."""
        return self._view

    def compose(self) -> ComposeResult:
        """Lay out the screen."""
        yield Static(id="title")
        yield Static(id="totals")
        yield LineList(id="problems")
        yield Static(id="fleet")
        yield Static(id="head")
        yield LineList(id="owners")
        yield LineList(id="moves", with_cursor=False)
        yield Static(id="command")
        yield Input(id="filter", placeholder="owner, shard, state or problem")
        yield Static(id="keys")

    def on_mount(self) -> None:
        """Show that nothing is known yet."""
        self._main = self.screen
        self.query_one("#filter", Input).cursor_blink = False
        self.query_one("#title", Static).update(
            row((f"{self._application}: reading the lease table …", "bold"))
        )
        self.query_one("#problems", LineList).display = False
        self.query_one("#moves", LineList).display = False
        self.query_one("#owners", LineList).focus()
        self._show_keys()

    def on_top_app_viewed(self, message: Viewed) -> None:
        """Show a new view, unless the past is shown."""
        self._newest = message.view
        if self._is_past:
            self._draw()  # the age of the shown view has changed
        else:
            self.show(message.view)

    def show(self, view: FleetView) -> None:
        """Show a view."""
        self._view = view
        self._draw()
        if isinstance(self.screen, Page):
            self.screen.renew()

    # Drawing

    def _find(self, selector: str) -> Static:
        assert self._main is not None
        return self._main.query_one(selector, Static)

    def _list(self, selector: str) -> LineList:
        assert self._main is not None
        return self._main.query_one(selector, LineList)

    def _draw(self) -> None:
        view = self._view
        if view is None or self._main is None:
            return
        width = self.size.width
        read_only = self._services.changes is None
        ago = self._newest.at - view.at if self._is_past and self._newest is not None else None
        self._find("#title").update(
            draw.title(view, place=self._place, read_only=read_only, zone=self._zone, width=width, ago=ago)
        )
        self._find("#totals").update(draw.totals(view, width))
        self._draw_problems(view)
        owners = self._draw_owners(view)
        free = self.size.height - _FIXED_LINES - (1 + _PROBLEMS if view.problems else 0) - owners
        shown = view.moves[: min(max(free, _MOVES), _MOST_MOVES)]
        moves = self._list("#moves")
        moves.styles.height = 1 + max(len(shown), _MOVES)
        moves.display = bool(view.moves)
        moves.border_title = row(f"Moves, newest first ({view.totals.moves:,} in 10 min)")
        moves.set_lines(
            [Line(f"{one.at} {one.lease_key}", partial(draw.move, one, zone=self._zone)) for one in shown]
        )
        self._draw_command()

    def _draw_problems(self, view: FleetView) -> None:
        problems = self._list("#problems")
        problems.display = bool(view.problems)
        count = len(view.problems)
        more = f", +{count - _PROBLEMS} more below, all with p" if count > _PROBLEMS else ""
        problems.border_title = row(f"Problems ({count}), worst first{more}")
        problems.styles.height = 1 + min(count, _PROBLEMS)
        widths = draw.problem_widths(view.problems)
        problems.set_lines(
            [Line(_problem_key(one), partial(draw.problem, one, widths=widths)) for one in view.problems]
        )

    def _draw_owners(self, view: FleetView) -> int:
        """Draw the owners, and return the number of their lines."""
        rows = self._rows.build(view)
        self._by_key = {one.key: one for one in rows}
        pattern = f", filter: {fit(self._rows.pattern, 30).rstrip()}" if self._rows.pattern else ""
        healthy = "" if view.problems else ", no problems"
        self._find("#fleet").border_title = row(
            f"Owners ({len(view.owners):,}) by {self._rows.order.value}{pattern}{healthy}, "
            f"watched for {duration(view.watched)}"
        )
        self._find("#head").update(draw.owner_header(self.size.width))
        lines = [Line(one.key, partial(_row, one)) for one in rows]
        if not lines:
            text = f"Nothing matches {self._rows.pattern}; esc shows all." if self._rows.pattern else EMPTY
            lines = [Line("nothing", fixed(row(fit(text, 200).rstrip())))]
        self._list("#owners").set_lines(lines)
        self._tell_what_is_shown()
        return len(lines)

    def _draw_command(self) -> None:
        panel = self._find("#command")
        shown = bool(self._command or self._result)
        panel.display = shown
        if not shown:
            return
        if self._command is None:
            panel.border_title = row("Done")
            panel.update(Text("\n").join(row(fit(line, self.size.width).rstrip()) for line in self._result))
            return
        if self._services.changes is None:
            title = "Command, not run (read-only: --allow-changes)"
        elif self._applying:
            title = "Running, and waiting for a worker that acts on it"
        else:
            title = "Will run"
        panel.border_title = row(title)
        panel.update(
            row((fit(spell(self._command, self._options), self.size.width * 2).rstrip(), "bold cyan"))
        )

    def _show_keys(self) -> None:
        keys = "↑↓ choose  ⏎ open  t tail  e explain  r rewind  k skip  l release  m move  / filter  ? help  q quit"
        self._find("#keys").update(row(keys))

    def _tell_what_is_shown(self) -> None:
        if self._watching is None or self._main is None:
            return
        keys: list[str] = []
        for key in self._list("#owners").visible_keys:
            found = self._by_key.get(key)
            if isinstance(found, LeaseRow):
                keys.append(found.lease.lease_key)
        self._watching.show(keys)

    def on_line_list_moved(self) -> None:
        """Report the shards on the screen, so that their lag is measured first."""
        if self._view is not None:
            self._tell_what_is_shown()

    def on_resize(self) -> None:
        """Redraw for the new width."""
        self._draw()

    def on_app_blur(self, _event: AppBlur) -> None:
        """Do nothing: a terminal without focus is often still visible."""

    def on_app_focus(self, _event: AppFocus) -> None:
        """Do nothing, see `on_app_blur`."""

    # What is chosen

    def _lease(self) -> LeaseView | None:
        """Return the selected lease in the list that has the focus."""
        view = self._view
        if view is None:
            return None
        key: str | None = None
        if self._list("#problems").has_focus:
            problem = self._problem()
            key = problem.lease_key if problem else None
        else:
            found = self._by_key.get(self._list("#owners").key or "")
            if isinstance(found, LeaseRow):
                key = found.lease.lease_key
            elif isinstance(found, OwnerRow) and len(found.leases) == 1:
                key = found.leases[0].lease_key
        return next((one for one in view.leases if one.lease_key == key), None)

    def _problem(self) -> Problem | None:
        key = self._list("#problems").key
        view = self._view
        return next((one for one in view.problems if _problem_key(one) == key), None) if view else None

    def _need_lease(self) -> LeaseView | None:
        lease = self._lease()
        if lease is None and self.screen is self._main:
            self.notify("Choose a shard first: enter lists the shards of an owner.", markup=False)
        return lease

    def on_line_list_chosen(self, message: LineList.Chosen) -> None:
        """Open the chosen line."""
        view = self._view
        if view is None or self.screen is not self._main:
            return
        if message.lines.id == "problems":
            self._go_to(self._problem(), view)
            return
        found = self._by_key.get(message.key)
        if isinstance(found, OwnerRow):
            self._rows.toggle(found.owner.worker_id if found.owner else "")
            self._draw_owners(view)
        elif isinstance(found, LeaseRow):
            self._open_detail(found.lease.lease_key)

    def _go_to(self, problem: Problem | None, view: FleetView) -> None:
        if problem is None:
            return
        owners = self._list("#owners")
        self._rows.pattern = ""
        lease = next((one for one in view.leases if one.lease_key == problem.lease_key), None)
        if lease is not None:
            self._rows.open(worker_of(lease), view)
        self._draw_owners(view)
        if owners.show_key(f"lease {lease.lease_key}" if lease else f"owner {problem.owner or ''}"):
            owners.focus()

    def _open_detail(self, lease_key: str) -> None:
        def lines() -> list[Text]:
            view = self._view
            lease = next((one for one in view.leases if one.lease_key == lease_key), None) if view else None
            if view is None or lease is None:
                return [row("The lease is no longer in the table.")]
            return draw.detail(lease, view)

        if self._watching is not None:
            self._watching.focus(lease_key)
        self.push_screen(Page(f"Shard {lease_key}", lines(), lines), self._left_detail)

    def _left_detail(self, _result: None) -> None:
        if self._watching is not None:
            self._watching.focus(None)

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """Let an open page above the fleet handle its own keys."""
        own = ("help", "filter", "sort", "problems", "explain", "tail", "change", "copy", "drop", "travel")
        if action == "quit":
            return self.screen is self._main and not self._is_typing()
        return action not in own or (
            self.screen is self._main and (action == "drop" or not self._is_typing())
        )

    def _is_typing(self) -> bool:
        return isinstance(self.focused, Input)

    async def action_quit(self) -> None:
        """Quit; during a change, only on the second request."""
        if self._applying and not self._leaving:
            self._leaving = True
            self.notify("A change is under way. Press q again to leave without waiting for it.", markup=False)
            return
        if self._services.changes is not None:
            self._services.changes.stop()
        self.exit()

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(Page("Keys", [*map(row, HELP), draw.legend()]))

    def action_filter(self) -> None:
        """Ask for a pattern."""
        field = self.query_one("#filter", Input)
        field.display = True
        field.value = self._rows.pattern
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while the user types."""
        if event.input.id == "filter" and self._view is not None:
            self._rows.pattern = event.value.strip()
            self._draw_owners(self._view)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter."""
        if event.input.id == "filter":
            event.input.display = False
            self._list("#owners").focus()

    def action_drop(self) -> None:
        """Drop the filter that is being typed; if there is none, drop the shown command; if there is none, drop the active filter."""
        if self._applying:
            return
        if self._is_typing() or not (self._command or self._result):
            self._rows.pattern = ""
            self.query_one("#filter", Input).display = False
            self._list("#owners").focus()
        else:
            self._command, self._result = None, ()
        self._draw()

    def action_sort(self) -> None:
        """Choose the next order."""
        if self._view is not None:
            self._rows.next_order(self._view)
            self._draw_owners(self._view)

    def action_problems(self) -> None:
        """Show all problems with their remedies."""

        def lines() -> list[Text]:
            view = self._view
            if view is None or not view.problems:
                return [row("No problems.")]
            result: list[Text] = []
            for one in view.problems:
                result.append(draw.problem(one, 400, widths=draw.problem_widths([one])))
                result.append(row("  ", fit(f"→ {one.remedy}", 400).rstrip()))
                commands: list[Command | None] = [action.command for action in one.actions] or [one.command]
                result += [
                    row("  ", (fit(f"$ {spell(command, self._options)}", 400).rstrip(), "cyan"))
                    for command in commands
                    if command is not None
                ]
            return result

        self.push_screen(Page("Problems, worst first", lines(), lines))

    def action_explain(self) -> None:
        """Explain why a shard is moving or not."""
        lease = self._need_lease()
        if lease is None or self._view is None:
            return
        key = lease.lease_key

        def lines() -> list[Text]:
            view = self._view
            if view is None:
                return []
            if self._services.explain is None:
                return draw.detail(lease, view)
            return [row(fit(line, 1000).rstrip()) for line in self._services.explain(view, key)]

        self.push_screen(Page(f"Why shard {short_shard(lease.shard_id)} is where it is", lines(), lines))

    def action_tail(self) -> None:
        """Show the newest records of a shard, or the record on which its handler fails."""
        lease, view = self._need_lease(), self._view
        read = self._services.read
        if lease is None or view is None:
            return
        stream = lease.stream.split(":")[1] if lease.stream else next(iter(view.streams), None)
        if read is None or stream is None:
            self.notify("The stream is not known yet.", markup=False)
            return
        shard_id, failing = lease.shard_id, lease.failing
        fails_on = None if failing is None else failing.position
        what = f"{short_shard(shard_id)} of {stream}"
        self.push_screen(
            Tail(
                f"Tail of {what}" if fails_on is None else f"Records of {what} from the failing one on",
                lambda position: read(stream, shard_id, position),
                start=None if fails_on is None else parse_position(f"at:{fails_on}", now=None),
            )
        )

    def action_copy(self) -> None:
        """Copy the command that is shown."""
        if self._command is not None:
            self.copy_to_clipboard(spell(self._command, self._options))
            self.notify("The command was copied, if the terminal allows it.", markup=False)

    def action_travel(self, minutes: int) -> None:
        """Show the fleet a minute earlier or later than the view on the screen, or now."""
        newest, past = self._newest, self._services.past
        if self._view is None or newest is None or past is None:
            return
        at = self._view.at + 60.0 * minutes
        if minutes == 0 or at >= newest.at:
            self._is_past = False
            self.show(newest)
            return
        found = past(at)
        if found is None:
            self.notify("Nothing was recorded then.", markup=False)
            return
        self._is_past = True
        self.show(found)

    # Changes

    def action_change(self, verb: str) -> None:
        """Ask for the target, and show the command."""
        if self._is_past:
            self.notify("This is the past. Press 0 for now, then change.", markup=False)
            return
        lease = self._need_lease()
        if lease is None:
            return
        questions = {
            "rewind": ("Rewind {} to", "-15m, 2026-11-22T09:00:00Z, TRIM_HORIZON, or at:<sequence number>"),
            "skip-to": ("Skip {} forward to", "LATEST, -5m, 2026-11-22T09:00:00Z, or at:<sequence number>"),
            "move": ("Move {} to the worker", "id of a live worker"),
        }
        if verb not in questions:
            self._propose(Command.of(verb, application=self._application, shard=lease.lease_key))
            return
        title, example = questions[verb]

        def answered(value: str | None) -> None:
            if value is not None:
                self._propose(
                    Command.of(verb, application=self._application, shard=lease.lease_key, to=value)
                )

        self.push_screen(Question(title.format(short_shard(lease.shard_id)), example), answered)

    def _propose(self, command: Command) -> None:
        """Show a command; plan it if changes are allowed."""
        if self._applying:
            self.notify("Another change is under way.", markup=False)
            return
        self._command, self._result = command, ()
        self._draw_command()
        changes = self._services.changes
        if changes is not None:
            self.run_worker(lambda: self._plan(changes, command), thread=True, exit_on_error=False)

    def _plan(self, changes: Changes, command: Command) -> None:
        try:
            planned = changes.plan(command)
        except (KinesisSdkError, ValueError) as error:
            planned = Planned(command, (str(error),), refused=True)
        self.call_from_thread(self._ask, planned)

    def _ask(self, planned: Planned) -> None:
        if self._command is not planned.command:
            return  # the command was dropped meanwhile

        def answered(yes: bool | None) -> None:
            if yes:
                self._applying = True
                self._draw_command()
                self.run_worker(lambda: self._apply(planned), thread=True, exit_on_error=False)
            else:
                self._command = None
                self._draw_command()

        self.push_screen(
            Confirmation(spell(planned.command, self._options), planned.lines, refused=planned.refused),
            answered,
        )

    def _apply(self, planned: Planned) -> None:
        try:
            result = tuple(planned.act())
        except KinesisSdkError as error:
            result = (f"failed: {error}",)
        self.call_from_thread(self._tell, result)

    def _tell(self, result: tuple[str, ...]) -> None:
        self._applying = self._leaving = False
        self._command, self._result = None, result or ("done",)
        self._draw_command()


def _row(one: Row, width: int) -> Text:
    if isinstance(one, LeaseRow):
        return draw.lease(one.lease, width)
    return draw.owner(one.owner, one.leases, width, is_open=one.is_open)


def _problem_key(one: Problem) -> str:
    return f"{one.code} {one.lease_key} {one.owner}"
