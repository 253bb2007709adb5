// The record browser of a shard. It reads only when it is told to: one page for each click.

import { announce, copyButton, h, put, setText, show } from "./dom.js";
import { bytes, clock, duration, moment, plural, shardName } from "./format.js";
import { get, query } from "./api.js";
import { failure } from "./view-applications.js";

const STARTS = [
  ["checkpoint", "after the checkpoint"],
  ["latest", "newest (last minute)"],
  ["time", "at a time"],
  ["horizon", "oldest"],
  ["sequence", "at a sequence number"],
];

export class Records {
  /** @param onChange Called with an operation and a position to plan a change of the shard; null where changes are not shown. */
  constructor({ stream, shard, lease, retention, onChange = null }) {
    Object.assign(this, { stream, shard, lease, retention, onChange });
    this.history = [];
    this.start = h("select", { "aria-label": "Where to begin", on: { change: () => this.startChanged() } }, STARTS.map(([value, name]) => h("option", { value }, name)));
    this.time = h("input", { type: "datetime-local", step: "1", "aria-label": "Time", hidden: true });
    this.sequence = h("input", { type: "text", inputmode: "numeric", placeholder: "sequence number", "aria-label": "Sequence number", hidden: true });
    this.go = h("button", { type: "button", class: "primary", on: { click: () => this.read() } }, "Read");
    this.back = h("button", { type: "button", disabled: true, on: { click: () => this.turn(-1) } }, "◀ Previous");
    this.next = h("button", { type: "button", disabled: true, on: { click: () => this.turn(1) } }, "Next ▶");
    this.form = h("select", { "aria-label": "Form of the data", on: { change: () => this.draw() } }, FORMS.map(([value, name]) => h("option", { value }, name)));
    this.filter = h("input", { type: "search", placeholder: "filter this page", "aria-label": "Filter this page", on: { input: () => this.draw() } });
    this.status = h("span", { class: "note", role: "status" }, "Nothing is read before you ask.");
    this.slider = h("input", { type: "range", min: "0", max: "1000", value: "1000", "aria-label": "Travel in time: from the oldest kept record to now", on: { input: () => this.slide(), change: () => this.read() } });
    this.sliderText = h("span", null, "now");
    this.travel = h("div", { class: "travel", hidden: true }, h("span", null, ""), this.slider, this.sliderText);
    this.holder = h("div", { class: "scroll" });
    this.element = h("section", { class: "card", "aria-label": "Records" },
      h("header", null, h("h2", null, "Records"), this.status),
      h("div", { class: "pager" }, this.start, this.time, this.sequence, this.go, this.back, this.next, h("span", { class: "grow" }, this.form, " ", this.filter)),
      this.travel, this.holder);
  }

  startChanged() {
    const kind = this.start.value;
    this.time.hidden = kind !== "time";
    this.sequence.hidden = kind !== "sequence";
    this.travel.hidden = kind !== "time";
    if (kind === "time" && !this.time.value) this.setTime(Date.now() / 1000 - 900);
    if (kind === "time") setText(this.travel.firstChild, `−${duration(this.retention() ?? 86400)}`);
  }

  /** Read from a record on, and bring it into view. */
  async open(sequence) {
    this.start.value = "sequence";
    this.sequence.value = sequence;
    this.startChanged();
    await this.read();
    this.element.scrollIntoView({ block: "start" });
  }

  setTime(epoch) {
    const local = new Date(epoch * 1000 - new Date().getTimezoneOffset() * 60000);
    this.time.value = local.toISOString().slice(0, 19);
  }

  slide() {
    const span = this.retention() ?? 86400;
    const ago = (1 - Number(this.slider.value) / 1000) * span;
    this.setTime(Date.now() / 1000 - ago);
    setText(this.sliderText, ago < 60 ? "now" : `${duration(Math.round(ago))} ago`);
  }

  position() {
    const kind = this.start.value;
    if (kind === "checkpoint") {
      const found = this.lease()?.checkpoint;
      if (!found || !/^\d+$/.test(found.sequence_number)) return { position: found?.sequence_number === "LATEST" ? "LATEST" : "TRIM_HORIZON" };
      return { position: `after:${found.sequence_number}/${Math.max(0, found.sub_sequence_number)}` };
    }
    if (kind === "time") return { position: `@${new Date(this.time.value).getTime()}` };
    if (kind === "sequence") return { position: `at:${this.sequence.value.trim()}` };
    if (kind === "latest") return { position: `@${Date.now() - 60000}` };
    return { position: "TRIM_HORIZON" };
  }

  async read() {
    this.history = [this.position()];
    this.place = 0;
    await this.load();
  }

  async turn(by) {
    if (by > 0) {
      this.history.length = this.place + 1;
      this.history.push({ position: this.page.next, ...(this.page.iterator ? { iterator: this.page.iterator } : {}) });
    }
    this.place += by;
    await this.load();
  }

  async load() {
    const position = this.history[this.place];
    this.go.disabled = true;
    this.back.disabled = true;
    this.next.disabled = true;
    setText(this.status, "Reading …");
    try {
      this.page = await get(`/api/records?${query({ stream: this.stream ?? "", shard: this.shard, limit: 50, ...position })}`);
    } catch (error) {
      this.page = null;
      setText(this.status, "");
      put(this.holder, failure(error));
      return;
    } finally {
      this.go.disabled = false;
    }
    this.back.disabled = this.place === 0;
    const ended = this.page.next === "SHARD_END";
    this.next.disabled = ended;
    const { records, behind } = this.page;
    const where = ended ? "the end of the shard" : behind === null ? "" : this.page.tip ? "at the tip of the shard" : `${duration(behind / 1000)} behind the tip`;
    setText(this.status, `${plural(records.length, "record")}${where ? ` · ${where}` : ""}`);
    this.draw();
  }

  draw() {
    if (!this.page) return;
    const find = this.filter.value.trim().toLowerCase();
    const records = find ? this.page.records.filter((record) => `${record.key} ${record.headers.flat().join(" ")} ${record.text}`.toLowerCase().includes(find)) : this.page.records;
    if (!records.length) {
      put(this.holder, h("p", { class: "quiet" }, this.page.records.length ? "No record of this page matches the filter." : this.page.next === "SHARD_END" ? `The shard is closed and ends here${this.page.children.length ? `; it continues in ${this.page.children.map(shardName).join(" and ")}` : ""}.` : "There are no records here. A quiet shard can have stretches without any; the next page goes on."));
      return;
    }
    put(this.holder, h("table", { class: "records" },
      h("thead", null, h("tr", null, [["Arrived", ""], ["Position", ""], ["Partition key", ""], ["Size", "num"], ["Data", ""]].map(([title, kind]) => h("th", { scope: "col", class: kind }, title)))),
      h("tbody", null, records.map((record) => this.row(record)))));
  }

  /** What can be done with an open record. */
  acts(record, form) {
    const position = `${record.sequence}/${record.sub}`;
    const propose = (operation, to, text) => h("button", { type: "button", class: "small steers", on: { click: () => {
      this.onChange(operation, to);
      announce(`${text}: the change is shown, and nothing is written before you confirm`);
    } } }, text);
    return h("div", { class: "acts" },
      copyButton(form === "pretty" ? record.whole : whole(record, form), "Copy the data"), copyButton(`at:${position}`, "Copy the position"),
      this.onChange ? [propose("rewind", `at:${position}`, "Rewind to here"), propose("skip-to", `after:${position}`, "Skip past this")] : null);
  }

  row(record) {
    const cell = h("td", { class: "payload" });
    const form = this.form.value;
    const preview = show((form === "hex" ? hexOf(bytesOf(record), 32) : record.text).replaceAll(/\s+/g, " "));
    const pre = h("pre", { tabindex: "0", title: "click or Enter: all of it" }, preview || "(empty)");
    const toggle = () => {
      if (cell.dataset.open === undefined) {
        cell.dataset.open = "";
        pre.textContent = whole(record, form) + (record.truncated ? `\n… the first 64 KiB of ${bytes(record.size)}` : "");
        cell.append(h("div", null, headers(record), this.acts(record, form)));
      } else {
        delete cell.dataset.open;
        pre.textContent = preview;
        cell.lastChild.remove();
      }
    };
    pre.addEventListener("click", () => getSelection().isCollapsed && toggle());
    pre.addEventListener("keydown", (event) => event.key === "Enter" && toggle());
    cell.append(pre);
    return h("tr", null,
      h("td", { title: moment(record.arrived) }, clock(record.arrived, true)),
      h("td", { class: "mono", title: record.sequence }, `…${record.sequence.slice(-9)}/${record.sub}`, record.aggregated ? h("div", { class: "faint" }, "aggregated") : null),
      h("td", { class: "mono clip" }, show(record.key)),
      h("td", { class: "num" }, bytes(record.size), h("div", { class: "faint" }, record.kind === "hex" ? "bytes" : record.kind)),
      cell);
  }
}

const FORMS = [["pretty", "laid out"], ["text", "as text"], ["hex", "as bytes"]];
const HEX_ROW = 16;

const bytesOf = (record) => Uint8Array.from(atob(record.data), (character) => character.charCodeAt(0));
const hexOf = (values, most = Infinity) => [...values.slice(0, most)].map((value) => value.toString(16).padStart(2, "0")).join(" ");

/** A payload in a form that people chose. */
function whole(record, form) {
  if (form === "pretty") return lines(record.whole);
  const values = bytesOf(record);
  if (form === "text") return lines(new TextDecoder().decode(values));
  const rows = [];
  for (let at = 0; at < values.length; at += HEX_ROW) {
    const row = values.slice(at, at + HEX_ROW);
    const text = [...row].map((value) => (value >= 32 && value < 127 ? String.fromCharCode(value) : ".")).join("");
    rows.push(`${at.toString(16).padStart(8, "0")}  ${hexOf(row).padEnd(3 * HEX_ROW - 1)}  ${text}`);
  }
  return rows.join("\n");
}

/** The headers of a record: names with values; nothing if there are none. */
export const headers = (record) => record.headers.length
  ? h("dl", { class: "headers", "aria-label": "Headers" }, record.headers.map(([name, value]) => [h("dt", null, show(name)), h("dd", null, show(value))]))
  : null;

/** Text whose line breaks stay and whose other invisible characters are shown. */
const lines = (text) => text.split(/\r?\n/).map(show).join("\n");
