// A search for records over all shards of a stream: by partition key, by a JMESPath expression, or by both.

import { headers } from "./records.js";
import { announce, h, put, setText, show } from "./dom.js";
import { bytes, clock, count, moment, plural, shardName } from "./format.js";
import { get, post, query } from "./api.js";

const POLL = 700; // milliseconds
const SPANS = [["15 min", 15], ["1 h", 60], ["6 h", 360], ["24 h", 1440], ["7 d", 10080]];
const ENDS = { window: "all of it was read", limit: "it ends after 100; narrow it to see others", time: "it ends after two minutes; shorten the time", stopped: "stopped" };

export class Search {
  /**
   * @param app
   * @param {() => string} stream Name of the stream.
   */
  constructor(app, stream) {
    this.app = app;
    this.stream = stream;
    this.key = h("input", { type: "text", maxlength: 1000, placeholder: "customer-7", "aria-label": "Partition key" });
    this.where = h("input", { type: "text", maxlength: 1000, placeholder: "order.status == 'failed'", "aria-label": "JMESPath expression", class: "wide" });
    this.span = h("select", { "aria-label": "Time that is searched" }, SPANS.map(([name, value]) => h("option", { value }, `last ${name}`)));
    this.go = h("button", { type: "submit", class: "primary" }, "Search");
    this.halt = h("button", { type: "button", disabled: true, on: { click: () => this.stop() } }, "Stop");
    this.status = h("span", { class: "note", role: "status" }, "Nothing is read before you ask; the whole time is read.");
    this.holder = h("div", { class: "scroll" });
    this.element = h("section", { class: "card", "aria-label": "Search for records" },
      h("header", null, h("h2", null, "Search for records"), this.status),
      h("form", { class: "pager", on: { submit: (event) => {
        event.preventDefault();
        this.begin();
      } } }, h("label", null, "key", this.key), h("label", null, "JSON", this.where), this.span, this.go, this.halt),
      this.holder);
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.stop();
  }

  async begin() {
    if (this.id) await this.stop();
    put(this.holder);
    this.rows = null;
    this.known = 0;
    setText(this.status, "Searching …");
    try {
      this.id = (await post("/api/searches", { stream: this.stream() ?? "", key: this.key.value, where: this.where.value.trim(), minutes: Number(this.span.value) })).id;
    } catch (error) {
      setText(this.status, error.message);
      return;
    }
    this.go.disabled = true;
    this.halt.disabled = false;
    this.poll(this.id);
  }

  async stop() {
    const { id } = this;
    this.id = null;
    if (!id) return;
    try {
      await post(`/api/searches/${id}/stop`, {});
    } catch {
      // It has ended, or the console has.
    }
    if (!this.closed) this.poll(id);
  }

  async poll(id) {
    let state;
    try {
      state = await get(`/api/searches/${id}?${query({ known: this.known })}`);
    } catch (error) {
      setText(this.status, error.message);
      this.ended();
      return;
    }
    if (this.closed || (this.id !== null && id !== this.id)) return;
    this.known += state.found.length;
    this.add(state.found);
    const far = `${plural(state.read, "record")} read${state.reached ? ` up to ${clock(state.reached)}` : ""}, ${count(this.known)} found`;
    if (state.running) {
      setText(this.status, far);
      this.timer = setTimeout(() => this.poll(id), POLL);
      return;
    }
    setText(this.status, state.error ? `${far}; ${show(state.error)}` : `${far}; ${ENDS[state.end] ?? "ended"}`);
    announce(far);
    this.ended();
  }

  ended() {
    this.id = null;
    this.go.disabled = false;
    this.halt.disabled = true;
  }

  add(found) {
    if (!found.length) return;
    if (!this.rows) {
      this.rows = h("tbody");
      put(this.holder, h("table", { class: "records" },
        h("thead", null, h("tr", null, [["Arrived", ""], ["Shard", ""], ["Partition key", ""], ["Size", "num"], ["Data", ""]].map(([title, kind]) => h("th", { scope: "col", class: kind }, title)))), this.rows));
    }
    this.rows.append(...found.map((record) => this.row(record)));
  }

  row(record) {
    const preview = show(record.text.replaceAll(/\s+/g, " ")) || "(empty)";
    const pre = h("pre", { tabindex: "0", title: "click or Enter: all of it" }, preview);
    const cell = h("td", { class: "payload" }, pre);
    const more = headers(record);
    const toggle = () => {
      if (cell.dataset.open === undefined) {
        cell.dataset.open = "";
        cell.append(more ?? "");
      } else {
        delete cell.dataset.open;
        more?.remove();
      }
      pre.textContent = cell.dataset.open === undefined ? preview : record.whole.split("\n").map(show).join("\n");
    };
    pre.addEventListener("click", () => getSelection().isCollapsed && toggle());
    pre.addEventListener("keydown", (event) => event.key === "Enter" && toggle());
    return h("tr", null,
      h("td", { title: record.arrived === null ? "" : moment(record.arrived) }, record.arrived === null ? "–" : clock(record.arrived, true)),
      h("td", { title: `${record.sequence}/${record.sub}` }, h("a", { class: "link mono", href: `#/shard/${encodeURIComponent(this.app.route.application)}/${encodeURIComponent(record.shard)}` }, shardName(record.shard))),
      h("td", { class: "mono clip" }, show(record.key)),
      h("td", { class: "num" }, bytes(record.size)),
      cell);
  }
}
