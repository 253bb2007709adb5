// The list of applications. It is asked for once; nothing is read of a stream before an application is opened.

import { command, empty, h, put, show } from "./dom.js";
import { clock, count, moment } from "./format.js";
import { get } from "./api.js";
import { lagChip } from "./tables.js";

export class ApplicationsView {
  constructor(app) {
    this.app = app;
    this.body = h("tbody");
    this.note = h("span", { class: "note" });
    this.holder = h("div", null, h("p", { class: "quiet", role: "status" }, "Searching for lease tables …"));
    this.element = h("section", { class: "card" },
      h("header", null, h("h2", null, "Applications"), this.note, h("span", { class: "tools" }, h("button", { type: "button", on: { click: () => this.load() } }, "Search again"))),
      this.holder);
  }

  async mount(main) {
    put(main, this.element);
    await this.load();
  }

  async load() {
    let found;
    try {
      found = (await get("/api/applications")).applications;
    } catch (error) {
      put(this.holder, failure(error));
      return;
    }
    if (!found.length) {
      put(this.holder, empty("No lease table was found", "This account and region have no DynamoDB table with the shape of a lease table. Start a worker, or choose another region with --region.", command("kinesis-sdk demo --ui")));
      return;
    }
    put(this.holder, h("table", null,
      h("thead", null, h("tr", null, [["Application", ""], ["Table", ""], ["Rows", "num"], ["Created", ""], ["Stream", ""], ["Leases", "num"], ["Owners", "num"], ["Worst lag", ""], ["Problems", "num"], ["Seen", ""]].map(([title, kind]) => h("th", { scope: "col", class: kind }, title)))),
      h("tbody", null, found.map((one) => this.row(one)))));
    this.note.textContent = "found by the shape of their tables; nothing is read of a table before it is opened";
  }

  row(one) {
    const seen = one.seen;
    const chip = lagChip();
    if (seen) chip.set(seen.lag);
    return h("tr", { class: "row", on: { click: () => this.app.go("fleet", null, one.name) } },
      h("td", null, h("a", { class: "link", href: `#/fleet/${encodeURIComponent(one.name)}` }, show(one.name))),
      h("td", null, one.status ?? "–"),
      h("td", { class: "num", title: "DynamoDB counts about every six hours" }, count(one.rows)),
      h("td", null, one.created ? moment(one.created) : "–"),
      h("td", null, seen?.streams.map(show).join(", ") || "–"),
      h("td", { class: "num" }, seen ? count(seen.leases) : "–"),
      h("td", { class: "num" }, seen ? count(seen.owners) : "–"),
      h("td", null, seen ? chip.element : h("span", { class: "faint" }, "not read")),
      h("td", { class: `num ${seen?.problems ? "error" : ""}` }, seen ? count(seen.problems) : "–"),
      h("td", { class: "faint" }, seen ? clock(seen.at) : "not opened yet"));
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
