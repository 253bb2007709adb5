"""Each view with generated fleets: what it shows, with which keys, how it fails, and what it costs."""

from __future__ import annotations

import json
import re
import statistics
import time
from dataclasses import replace

import pytest

from integration.waiting import eventually
from kinesis_sdk.admin import Connection, FleetView, LeaseState, LeaseView
from kinesis_sdk.admin.recording.recorder import Recording
from kinesis_sdk.cli.web.letters import LetterPages
from kinesis_sdk.cli.web.wire import picture
from kinesis_sdk.dead_letters import FileDeadLetters
from kinesis_sdk.testing import FakeAws
from tests import HANG
from tests.cli.web.generated import HOSTILE, START, GeneratedBackend, GeneratedFleet, ManualWatch, shard_name
from tests.dead_letters.letters import letter

COUNT_NEW_NODES = """
window.made = 0;
new MutationObserver((changes) => changes.forEach((change) => (window.made += change.addedNodes.length)))
  .observe(document.body, { childList: true, subtree: true });
"""


def started(backend: GeneratedBackend) -> ManualWatch:
    """Return the watch of the fleet once a page has started it."""
    eventually(lambda: "billing" in backend.watches and backend.watches["billing"].starts)
    return backend.watches["billing"]


@pytest.mark.parametrize(("shards", "owners"), [(1000, 40), (1000, 200), (4, 2)])
def test_fleet(open_fleet, keep_picture, shards: int, owners: int) -> None:
    page, _ = open_fleet(shards, owners)
    page.get_by_text(f"{shards:,} shards by {owners} owners").wait_for()
    page.get_by_text("watched for").wait_for()
    if shards == 4:
        assert page.get_by_role("row").count() == 5
        page.get_by_text("No problem was found.").wait_for()
    else:
        assert page.get_by_role("application").is_visible()
        assert page.locator(".problems li").count() == 5
        first = page.locator(".problems li").first
        assert "kinesis-sdk leases show billing" not in first.inner_text(), "one line each"
        first.locator("summary").press("Enter")
        assert "kinesis-sdk leases show billing" in first.inner_text()
    keep_picture(page, f"fleet-{shards}x{owners}")


def test_the_views_are_tied_by_links(open_page, serve) -> None:
    fleets = {
        "billing": GeneratedFleet(1000, 40),
        "search-index": GeneratedFleet(12, 3, application="search-index"),
    }
    page = open_page(serve(GeneratedBackend(fleets, interval=0.3), allow_changes=True))
    page.get_by_text("with errors; read again each minute").wait_for()
    assert page.locator("tbody tr").first.inner_text().startswith("billing")
    page.get_by_role("link", name="billing").click()
    page.get_by_role("link", name="Stream").click()
    page.get_by_text("1,000 open shards").wait_for()
    page.get_by_role("button", name="0001").click()
    page.get_by_role("heading", name="Shard 0001").wait_for()


def test_a_problem_is_acknowledged_until_it_ends(open_fleet) -> None:
    page, backend = open_fleet(100, 10, interval=None)
    watch = started(backend)
    view = watch.tick()
    problems = page.locator(".problems li")
    problems.first.wait_for()
    count = problems.count()
    title = problems.first.locator(".name").inner_text()
    problems.first.locator("summary").click()
    problems.first.get_by_role("button", name="Acknowledge").click()
    page.get_by_text("1 acknowledged").wait_for()
    assert problems.count() == count - 1
    assert problems.first.locator(".name").inner_text() != title
    page.get_by_role("button", name="Show all").click()
    assert problems.count() == count
    # It ends, and begins again: then it is a new one.
    watch.on_view(replace(view, at=view.at + 1, problems=view.problems[1:]))
    page.get_by_text("1 acknowledged").wait_for(state="hidden")
    watch.on_view(replace(view, at=view.at + 2))
    eventually(lambda: problems.count() == count)
    assert page.get_by_text("1 acknowledged").count() == 0


def test_the_worst_shards_are_the_first_of_the_table(open_fleet) -> None:
    page, _ = open_fleet(12, 3)
    rows = page.locator("tbody tr")
    rows.first.wait_for()
    assert "bad" in (rows.first.get_attribute("class") or "")
    assert "✕" in rows.first.inner_text()
    page.get_by_role("button", name="Checkpoint").click()
    assert "22 h" in rows.first.inner_text(), "the oldest checkpoint, as a length of time"


def test_keys_are_told(open_fleet) -> None:
    page, _ = open_fleet()
    page.locator("tbody tr").first.wait_for()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.type") == "search"
    page.keyboard.type("?")
    assert page.locator("dialog").count() == 0, "a question mark that is typed is text"
    page.locator("main").focus()
    page.keyboard.press("?")
    page.get_by_text("choose a shard").first.wait_for()
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")


def test_a_record_is_shown_in_each_form_and_changes_start_at_it(open_fleet, keep_picture) -> None:
    page, backend = open_fleet(at=f"#/shard/billing/{shard_name(3)}", allow_changes=True)
    page.get_by_role("button", name="Read", exact=True).click()
    page.get_by_text("13 records").wait_for()
    page.get_by_label("Form of the data").select_option("hex")
    row = page.locator("table.records tbody tr").first
    assert row.locator("pre").inner_text().startswith("7b 22 69 64 22")
    row.locator("pre").click()
    assert (
        '00000000  7b 22 69 64 22 3a 20 38 38 31 2c 20 22 74 6f 74  {"id": 881, "tot'
        in row.locator("pre").inner_text()
    )
    assert row.get_by_label("Headers").inner_text().startswith("tenant\nacme\n<script>")
    assert page.get_by_label("Headers").count() == 1, "only of the record that is open"
    keep_picture(page, "record")
    row.get_by_role("button", name="Rewind to here").click()
    page.get_by_text("kinesis-sdk leases rewind billing").wait_for()
    position = page.get_by_label("Target").input_value()
    assert re.fullmatch(r"at:\d+/0", position)
    row.get_by_role("button", name="Skip past this").click()
    page.get_by_text("kinesis-sdk leases skip-to billing").wait_for()
    assert page.get_by_label("Target").input_value() == position.replace("at:", "after:")
    assert backend.made == [], "nothing is written before it is confirmed"


def test_aws_that_does_not_answer_is_named(open_fleet) -> None:
    page, backend = open_fleet(interval=None)
    watch = started(backend)
    watch.waits = ("Scan", 6.0)
    page.get_by_text("DynamoDB does not answer: Scan has been running for 6 s.").wait_for()
    watch.waits = None
    watch.tick()
    page.get_by_text("DynamoDB does not answer").wait_for(state="hidden")


def test_the_page_has_the_same_picture_as_the_server(open_fleet) -> None:
    page, backend = open_fleet(60, 7, at="", interval=None)
    page.evaluate(
        """async () => {
            const { Live } = await import("/assets/live.js");
            const live = new Live("billing", (picture) => { document.body.dataset.shown = JSON.stringify(picture); }, () => {});
        }"""
    )
    watch = started(backend)
    for _ in range(80):
        view = watch.tick()
    expected = json.loads(json.dumps(picture(view, options=backend.options)))
    eventually(lambda: json.loads(page.evaluate("document.body.dataset.shown ?? '{}'")) == expected)


def test_hostile_texts_are_shown_as_text(open_page, serve, keep_picture) -> None:
    backend = GeneratedBackend({"billing": GeneratedFleet(20, 3, hostile=True)}, interval=0.2)
    base = serve(backend)
    page = open_page(f"{base}#/fleet/billing")
    page.locator("table").wait_for()
    visible = HOSTILE.replace("\u202e", "\\u202e")
    # A long name is cut in its middle; the pointer shows all of it.
    named = page.evaluate("[...document.querySelectorAll('td[title]')].map((one) => one.title)")
    assert any(visible in title for title in named)
    assert "<script>" in page.locator("table").inner_text()
    page.goto(f"{base}#/shard/billing/{shard_name(8)}")
    page.get_by_role("button", name="Read", exact=True).click()
    page.get_by_text("13 records").wait_for()
    table = page.locator("table.records")
    assert visible in table.inner_text()
    for payload in page.locator(".payload pre").all():
        payload.click()
    assert "東京" in table.inner_text()
    assert "00000000  00 ff 10 80" in table.inner_text()
    assert visible in page.get_by_label("Headers").inner_text()
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main script, main iframe").count() == 0
    keep_picture(page, "hostile")


def test_records_are_searched_over_all_shards(open_fleet) -> None:
    page, _ = open_fleet(12, 3, at="#/stream/billing")
    card = page.get_by_label("Search for records")
    card.get_by_label("JMESPath expression").fill("total > `1000`")
    card.get_by_role("button", name="Search").click()
    card.get_by_text("13 records read").wait_for()
    assert card.locator("tbody tr").count() == 3
    card.locator("pre").first.press("Enter")
    assert '"currency": "EUR"' in card.locator("pre").first.inner_text()
    card.get_by_label("JMESPath expression").fill("total >")
    card.get_by_role("button", name="Search").click()
    card.get_by_text("expected a JMESPath expression").wait_for()
    assert card.locator("tbody tr").count() == 0
    assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_past(open_page, serve, keep_picture, scheme: str) -> None:
    fleet = GeneratedFleet(24, 4)
    recording = Recording()
    views = [fleet.view() for _ in range(300)]
    for view in views:
        recording.update(view)
    then = views[100]
    base = serve(GeneratedBackend({"billing": fleet}, interval=0.3), recording=recording)
    page = open_page(
        f"{base}#/fleet/billing", scheme=scheme, permissions=["clipboard-read", "clipboard-write"]
    )
    page.get_by_text("recorded for").wait_for()
    slider = page.get_by_label("Moment that is shown")
    slider.evaluate(
        "(element, value) => { element.value = value; element.dispatchEvent(new Event('input')); }",
        int(then.at),
    )
    page.get_by_text("before now").wait_for()
    assert f"at={int(then.at)}" in page.url
    shown = page.locator(".figures dd").first
    lag = then.totals.worst_lag_millis
    assert lag is not None
    hours, minutes = divmod(lag // 60_000, 60)
    eventually(lambda: shown.inner_text().startswith(f"{hours} h {minutes} min"))
    # A link has the moment, and what was chosen.
    page.get_by_label("Find a shard or an owner").fill("web01")
    page.get_by_role("button", name="Copy link").click()
    page.get_by_text("Copied").wait_for()
    link = page.evaluate("navigator.clipboard.readText()")
    page.get_by_role("button", name="Copy as report").click()
    eventually(lambda: page.evaluate("navigator.clipboard.readText()").startswith("## `billing` at "))
    assert link in page.evaluate("navigator.clipboard.readText()")
    other = page.context.new_page()
    other.goto(link)
    other.get_by_text("before now").wait_for()
    assert other.get_by_label("Find a shard or an owner").input_value() == "web01"
    other.close()
    # A timeline that is not empty: it began long before this page was opened.
    page.goto(f"{base}#/shard/billing/{then.leases[3].lease_key}?at={int(then.at)}")
    page.get_by_text("the same as a table").click()
    page.get_by_role("cell", name=then.leases[3].owner or "nobody").first.wait_for()
    keep_picture(page, f"past-shard-{scheme}")
    assert not page.locator("section[aria-label=Change]").is_visible(), "the past is not changed"
    page.get_by_role("button", name="Now", exact=True).click()
    page.get_by_text("recorded for").wait_for()
    assert page.locator("section[aria-label=Change]").is_visible()
    assert "at=" not in page.url


def test_hostile_addresses_do_nothing(open_page, serve) -> None:
    base = serve(GeneratedBackend({"billing": GeneratedFleet(20, 3)}, interval=0.2))
    for name in ("%3Cimg%20src=x%20onerror=alert(1)%3E", "%E0%A4%A", "../../x"):
        page = open_page(f"{base}#/shard/billing/{name}")
        page.get_by_text("There is no lease").wait_for()
        page.context.close()


def test_a_fleet_is_usable_with_the_keyboard_and_a_screen_reader(open_fleet) -> None:
    page, _ = open_fleet(100, 10)
    page.get_by_role("application").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    said = page.locator("#announce").inner_text()
    assert said.startswith("shard ")
    assert "owner" in said
    page.keyboard.press("ArrowDown")
    assert page.locator("#announce").inner_text() != said
    page.keyboard.press("Enter")
    page.get_by_role("heading", level=1).wait_for()
    assert "Shard" in page.title()
    page.go_back()
    page.get_by_role("button", name="Table").press("Enter")
    page.get_by_role("columnheader", name="Behind").get_by_role("button").press("Enter")
    assert page.get_by_role("columnheader", name="Behind").get_attribute("aria-sort") == "descending"
    assert page.get_by_role("row").count() == 101
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, a, input, select")].filter((one) => !one.hidden
            && !(one.textContent.trim() || one.getAttribute("aria-label") || one.labels?.length || one.title)).map((one) => one.outerHTML)"""
    )
    assert unnamed == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_enough_contrast(open_fleet, scheme: str) -> None:
    page, _ = open_fleet(100, 10, at="", scheme=scheme)
    page.get_by_role("link", name="billing").wait_for()
    ratios = page.evaluate(
        """() => {
            const style = getComputedStyle(document.documentElement);
            const light = (name) => {
                const hex = style.getPropertyValue(name).trim().slice(1);
                const [r, g, b] = [0, 2, 4].map((n) => parseInt(hex.slice(n, n + 2), 16) / 255).map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
            };
            const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
            const result = {};
            for (const text of ["--text", "--dim", "--faint", "--error", "--warning", "--good"]) for (const ground of ["--surface", "--bg"]) result[text + ground] = ratio(text, ground);
            for (let n = 0; n < 6; n += 1) result["ink" + n] = ratio(`--heat-ink-${n}`, `--heat-${n}`) / 3 * 4.5;
            result.accent = ratio("--accent-text", "--accent");
            return result;
        }"""
    )
    assert {name: ratio for name, ratio in ratios.items() if ratio < 4.5} == {}


def test_a_hidden_page_costs_nothing(open_fleet) -> None:
    page, backend = open_fleet(interval=0.1)
    page.locator("table").wait_for()
    hide = """(hidden) => {
        Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.evaluate(hide, True)
    watch = backend.watches["billing"]
    eventually(lambda: watch.stops == 1)
    ticks = watch.fleet.ticks
    time.sleep(1.0)  # not a wait for an event: ten times the interval without a look
    assert watch.fleet.ticks <= ticks + 1
    page.get_by_text("paused").wait_for()
    page.evaluate(hide, False)
    eventually(lambda: watch.fleet.ticks > ticks + 2)
    page.get_by_text("table read").wait_for()


def test_what_is_old_is_marked_as_old(open_page, serve, keep_picture) -> None:
    from kinesis_sdk.cli.web.server import ConsoleServer

    server = ConsoleServer(GeneratedBackend({"billing": GeneratedFleet(20, 3)}, interval=0.1), port=0)
    server.start()
    page = open_page(server.url + "#/fleet/billing")
    page.locator("table").wait_for()
    server.stop()
    page.get_by_text("Disconnected. What you see is").wait_for()
    assert page.locator("body.stale").count() == 1
    keep_picture(page, "disconnected")
    again = ConsoleServer(
        GeneratedBackend({"billing": GeneratedFleet(20, 3)}, interval=0.1), port=server.port
    )
    again.start()
    try:
        page.locator("body:not(.stale)").wait_for()
    finally:
        again.stop()


def test_what_was_not_measured_is_not_shown_as_zero(open_fleet) -> None:
    page, backend = open_fleet(4, 1, interval=None)
    watch = started(backend)
    lease = LeaseView(
        lease_key="k", shard_id="k", state=LeaseState.HELD, owner="w", lag_note="not measured yet"
    )
    watch.on_view(FleetView(application="billing", at=START, leases=(lease,)))
    page.locator("table tbody tr").wait_for()
    assert "nothing measured yet" in page.locator(".figures").inner_text()
    row = page.locator("table tbody tr").inner_text()
    assert "not measured yet" in row
    assert "0 s" not in row


def test_a_failed_look_keeps_the_last_picture_and_says_how_old_it_is(open_fleet) -> None:
    page, backend = open_fleet(interval=None)
    watch = started(backend)
    view = watch.tick()
    page.locator("table").wait_for()
    watch.on_view(replace(view, error="Scan: throttled", table_age=42.0))
    page.get_by_text("The newest read failed; what you see is 42 s old. Scan: throttled").wait_for()
    assert page.locator("body.stale").count() == 1
    watch.tick()
    page.locator("body:not(.stale)").wait_for()


def test_time_travel_reads_where_the_slider_stands(open_fleet) -> None:
    page, _ = open_fleet(at=f"#/shard/billing/{shard_name(3)}")
    page.get_by_label("Where to begin").select_option("time")
    with page.expect_request(lambda request: "/api/records" in request.url) as asked:
        page.get_by_label("Travel in time").fill("0")
        page.get_by_label("Travel in time").dispatch_event("change")
    position = re.search(r"position=%40(\d+)", asked.value.url)
    assert position is not None
    ago = time.time() - int(position[1]) / 1000
    assert 86_300 < ago < 86_500 + HANG
    page.get_by_text("13 records").wait_for()


def test_shards_are_chosen_in_the_table_and_changed_together(open_fleet) -> None:
    page, backend = open_fleet(allow_changes=True)
    card = page.get_by_role("region", name="Change of the chosen shards")
    page.get_by_label("Choose shard 0003").press("Space")
    card.get_by_text("Change 1 shard").wait_for()
    page.get_by_label("Choose shard 0005").check()
    card.get_by_text("Change 2 shards").wait_for()
    assert "/fleet/" in page.url, "a click on a box opens nothing"
    time.sleep(1.0)  # some updates
    assert page.get_by_label("Choose shard 0005").is_checked()
    assert card.get_by_text("0003, 0005").count() == 1
    card.get_by_label("Target").fill("-15m")
    card.get_by_label("Target").press("Enter")
    card.get_by_text(f"kinesis-sdk leases rewind billing --shard {shard_name(3)} {shard_name(5)}").wait_for()
    assert backend.made == []
    card.get_by_role("button", name="Confirm and write").press("Enter")
    card.get_by_text("Noticed after 1.3 s").wait_for()
    assert backend.made == [{"operation": "rewind", "leases": [shard_name(3), shard_name(5)], "to": "-15m"}]
    # Another choice: what was shown is no longer what would be written.
    page.get_by_label("Choose shard 0007").check()
    assert card.get_by_role("button", name="Confirm and write").count() == 0
    card.get_by_role("button", name="Choose none").press("Enter")
    card.wait_for(state="hidden")
    assert not page.get_by_label("Choose shard 0005").is_checked()


def test_shards_are_chosen_on_the_map_with_the_keyboard(open_fleet) -> None:
    page, backend = open_fleet(100, 10, allow_changes=True)
    page.get_by_role("application").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    assert page.locator("#announce").inner_text() == "1 shard chosen"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    assert page.locator("#announce").inner_text() == "2 shards chosen"
    page.keyboard.press("Space")
    assert page.locator("#announce").inner_text() == "1 shard chosen"
    card = page.get_by_role("region", name="Change of the chosen shards")
    card.get_by_text("Change 1 shard").wait_for()
    card.get_by_label("Change of the chosen shards").select_option("move")
    card.get_by_label("swap").check()
    card.get_by_role("button", name="Show what it does").click()
    card.get_by_role("button", name="Confirm and write").click()
    card.get_by_text("Noticed after 1.3 s").wait_for()
    (made,) = backend.made
    assert (made["operation"], made["swap"], len(made["leases"])) == ("move", True, 1)


def test_a_worker_is_drained(open_fleet) -> None:
    page, backend = open_fleet(allow_changes=True)
    card = page.get_by_role("region", name="Workers")
    worker = card.get_by_label("Worker", exact=True)
    worker.wait_for()
    chosen = worker.locator("option").last.get_attribute("value")
    worker.select_option(chosen)
    assert re.search(r"\d+ leases?", worker.locator("option").last.inner_text())
    card.get_by_role("button", name="Show what it does").press("Enter")
    card.get_by_text("kinesis-sdk leases drain billing").wait_for()
    card.get_by_role("button", name="Confirm and write").press("Enter")
    card.get_by_text("Noticed after 1.3 s").wait_for()
    assert backend.made == [{"operation": "drain", "worker": chosen}]


def test_a_read_only_console_cannot_confirm(open_fleet) -> None:
    page, _ = open_fleet(at=f"#/shard/billing/{shard_name(3)}")
    page.get_by_role("button", name="Show what it does").click()
    page.get_by_text("This console is read-only.").wait_for()
    assert page.get_by_role("button", name="Confirm and write").is_disabled()


def test_the_theme_can_be_chosen_and_stays(open_fleet) -> None:
    page, _ = open_fleet(at="")
    page.get_by_role("button", name="Theme: system").click()
    page.get_by_role("button", name="Theme: light").click()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    page.reload()
    page.get_by_role("button", name="Theme: dark").wait_for()
    assert page.locator("html").get_attribute("data-theme") == "dark"


def test_a_token_is_asked_for_once(open_page, serve) -> None:
    base = serve(
        GeneratedBackend({"billing": GeneratedFleet(4, 2)}, interval=0.3), token="a long enough token"
    )
    plain = base.partition("?")[0]
    page = open_page(plain)
    assert "Open the address that the command printed" in page.content()
    page.goto(base.replace(" ", "%20"))
    page.get_by_role("link", name="billing").wait_for()
    assert "token" not in page.url
    page.goto(plain + "#/fleet/billing")
    page.locator("table").wait_for()


@pytest.mark.parametrize("owners", [40, 200])
def test_a_thousand_shards_stay_fluent(open_fleet, owners: int) -> None:
    page, backend = open_fleet(1000, owners, interval=None)
    watch = started(backend)
    watch.tick()
    page.get_by_text(f"1,000 shards by {owners} owners").wait_for()
    page.evaluate(COUNT_NEW_NODES)
    for _ in range(40):
        watch.tick()
        time.sleep(0.05)
    eventually(lambda: page.evaluate("performance.getEntriesByName('update').length") > 20)
    times = page.evaluate("performance.getEntriesByName('update').map((one) => one.duration)")
    first, rest = times[0], times[1:]
    print(
        f"\n1,000 shards x {owners} owners, script time per update: first {first:.0f} ms, "
        f"then median {statistics.median(rest):.1f} ms, worst {max(rest):.1f} ms in {len(rest)} updates"
    )
    made = page.evaluate("window.made")
    assert made < 100 * len(rest), "an update changes what is shown, and does not make it again"


def test_dead_letters_are_grouped_shown_and_replayed(open_fleet, keep_picture, tmp_path) -> None:
    store = FileDeadLetters(tmp_path / "letters.jsonl")
    for n in range(3):
        store.keep(letter(n, error="KeyError" if n == 2 else HOSTILE[:60], data=b'{"order": %d}' % n))
    aws = FakeAws(streams={"orders": 1}, throttle=False)
    letters = LetterPages(
        Connection(clients={"kinesis": aws.client("kinesis")}),
        [store.location],
        allow_streams=["orders"],
        audit_log=tmp_path / "audit.jsonl",
    )
    page, _ = open_fleet(4, 2, at="", interval=None, letters=letters, allow_changes=True)
    page.get_by_role("link", name="Dead letters").click()
    page.get_by_role("button", name="Read").click()
    page.get_by_text("3 letters").wait_for()
    row = page.get_by_role("row").filter(has_text="KeyError")
    row.get_by_role("button", name="Letters").click()
    page.get_by_role("button", name="Show", exact=True).click()
    page.get_by_role("heading", name=re.compile("^Letter ")).wait_for()
    assert '"order"' not in page.locator("main").inner_text()
    page.get_by_role("button", name="Show its 12 B").click()
    page.get_by_text('"order": 2').wait_for()
    keep_picture(page, "dead-letters")
    page.get_by_role("button", name="Replay this group").last.click()
    page.get_by_text("Replay 1 dead letter of").wait_for()
    page.get_by_role("button", name="Confirm and write").click()
    page.get_by_text("1 of 1 dead letters replayed").wait_for()
    eventually(lambda: sum(one.state.value == "replayed" for one in store.letters()) == 1)
