// The start page: every application of the account, worst first. The names come first; then each application is read, and read again
// each minute while the page is visible.

import { announce, command, empty, h, put, setText, show } from "./dom.js";
import { clock, count, moment, plural, shardName } from "./format.js";
import { get } from "./api.js";
import { lagChip } from "./tables.js";

const AGAIN = 60000; // milliseconds between two passes
const POLL = 1000; // milliseconds between two questions how far the pass is

export class ApplicationsView {
  constructor(app) {
    this.app = app;
    this.found = null;
    this.seen = new Map();
    this.note = h("span", { class: "note", role: "status" });
    this.holder = h("div", { class: "scroll" }, h("p", { class: "quiet", role: "status" }, "Searching for lease tables …"));
    this.again = h("button", { type: "button", on: { click: () => this.load() } }, "Read again");
    this.element = h("section", { class: "card" },
      h("header", null, h("h2", null, "Applications"), this.note, h("span", { class: "tools" }, this.again)),
      this.holder);
    this.visibility = () => this.next(0);
  }

  async mount(main) {
    put(main, this.element);
    document.addEventListener("visibilitychange", this.visibility);
    await this.load();
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    document.removeEventListener("visibilitychange", this.visibility);
  }

  /** Find the applications, and read all of them. */
  async load() {
    this.again.disabled = true;
    try {
      this.found = (await get("/api/applications")).applications;
    } catch (error) {
      put(this.holder, failure(error));
      return;
    } finally {
      this.again.disabled = false;
    }
    if (this.closed) return;
    this.begin = true;
    this.draw();
    await this.poll();
  }

  next(delay) {
    clearTimeout(this.timer);
    if (!this.closed && !document.hidden && this.found?.length) this.timer = setTimeout(() => this.poll(), delay);
  }

  async poll() {
    if (!this.found.length) return;
    const due = this.begin || (this.ended && performance.now() - this.ended >= AGAIN);
    this.begin = false;
    let state;
    try {
      state = await get(`/api/overview${due ? "?read=1" : ""}`);
    } catch (error) {
      setText(this.note, error.message);
      this.next(5 * POLL);
      return;
    }
    if (this.closed) return;
    this.seen = new Map(state.applications.map((one) => [one.application, one]));
    if (state.reading) this.ended = null;
    else this.ended ??= performance.now();
    this.draw();
    setText(this.note, state.reading ? `reading: ${state.done} of ${state.total}` : this.sum());
    this.next(state.reading ? POLL : Math.max(POLL, AGAIN - (performance.now() - this.ended)));
  }

  /** One line about all of them, which is also told to screen readers. */
  sum() {
    const all = [...this.seen.values()];
    const wrong = all.filter((one) => one.errors || one.error).length;
    const text = wrong ? `${wrong} of ${plural(all.length, "application")} with errors` : `${plural(all.length, "application")}, none with errors`;
    announce(text);
    return `${text}; read again each minute`;
  }

  draw() {
    if (!this.found.length) {
      put(this.holder, empty("No lease table was found", "This account and region have no DynamoDB table with the shape of a lease table. Start a worker, or choose another region with --region.", command("kinesis-sdk demo --ui")));
      return;
    }
    // The seen ones come worst first; those that are still to be read stand below.
    const place = new Map([...this.seen.keys()].map((name, n) => [name, n]));
    const rows = [...this.found].sort((a, b) => (place.get(a.name) ?? Infinity) - (place.get(b.name) ?? Infinity) || 0);
    const focused = document.activeElement?.dataset?.application;
    put(this.holder, h("div", { class: "scroll" }, h("table", null,
      h("caption", { class: "unseen" }, "Applications, worst first"),
      h("thead", null, h("tr", null, [["Application", ""], ["Worst lag", ""], ["Problem", ""], ["Stream", ""], ["Over 1 min", "num"], ["Shards", "num"], ["No owner", "num"], ["Owners", "num"], ["Created", ""], ["Read", ""]].map(([title, kind]) => h("th", { scope: "col", class: kind }, title)))),
      h("tbody", null, rows.map((one) => this.row(one, this.seen.get(one.name)))))));
    if (focused) this.holder.querySelector(`[data-application="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  row(one, seen) {
    const href = `#/fleet/${encodeURIComponent(one.name)}`;
    const name = h("td", { class: "name" }, h("a", { class: "link", href, data: { application: one.name } }, show(one.name)));
    const created = h("td", { class: "dim" }, one.created ? moment(one.created) : "–");
    if (!seen) {
      const status = one.status && one.status !== "ACTIVE" ? `table ${one.status.toLowerCase()}` : "not read yet";
      return h("tr", { class: "row", on: { click: () => this.app.go("fleet", null, one.name) } }, name, h("td", { class: "faint", colspan: 7 }, status), created, h("td", null, "–"));
    }
    const { totals } = seen;
    const chip = lagChip();
    chip.set(totals.worst_lag_millis);
    return h("tr", { class: "row", on: { click: () => this.app.go("fleet", null, one.name) } },
      name,
      h("td", null, chip.element, totals.worst_shard ? h("span", { class: "faint" }, ` ${shardName(totals.worst_shard)}`) : null),
      this.problem(seen),
      h("td", { class: "clip" }, seen.streams.map(show).join(", ") || "–"),
      h("td", { class: `num ${totals.behind_a_minute ? "error" : ""}` }, count(totals.behind_a_minute)),
      h("td", { class: "num" }, count(totals.leases)),
      h("td", { class: `num ${totals.unowned ? "error" : ""}` }, count(totals.unowned)),
      h("td", { class: "num" }, count(totals.owners + totals.silent_owners)),
      created,
      h("td", { class: "faint" }, clock(seen.at)));
  }

  problem(seen) {
    if (!seen.worst) {
      return seen.error ? h("td", { class: "clip error", title: show(seen.error) }, `✕ not read whole: ${show(seen.error)}`) : h("td", { class: "dim" }, "none");
    }
    const more = seen.errors + seen.warnings - 1;
    return h("td", { class: `clip ${seen.errors ? "error" : "warning"}`, title: show(seen.worst.text) }, `${seen.errors ? "✕" : "!"} ${seen.worst.title}${more ? ` and ${count(more)} more` : ""}`);
  }
}

/** What to show after a call that failed. */
export function failure(error) {
  const titles = {
    credentials: "There are no usable credentials",
    unreachable: "AWS cannot be reached",
    missing: "It does not exist",
    disconnected: "The console does not respond",
  };
  const help = error.code === "credentials" ? h("p", null, "Give the console credentials as for every AWS tool (environment, ~/.aws, role), and start it again.") : null;
  return empty(titles[error.code] ?? "The call failed", show(error.message), help);
}
