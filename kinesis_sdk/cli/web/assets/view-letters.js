// Dead letters: groups of a place, its letters, one letter, and replays and drops. It reads only when it is told to.

import { h, put, setText, show } from "./dom.js";
import { bytes, count, moment, plural, shardName } from "./format.js";
import { get, query } from "./api.js";
import { failure } from "./view-applications.js";
import { PlanCard } from "./steering.js";

const GROUP = ["error", "application", "stream", "shard_id"];

export class LettersView {
  constructor(app) {
    this.app = app;
    this.place = h("select", { "aria-label": "Place" }, app.session.deadLetters.map((name, n) => h("option", { value: n }, show(name))));
    const field = (label) => h("input", { type: "text", maxlength: 1000, placeholder: "all", "aria-label": label });
    this.fields = { error: field("Class of error"), shard: field("Shard"), key: field("Partition key"), application: field("Application") };
    this.go = h("button", { type: "submit", class: "primary" }, "Read");
    this.status = h("span", { class: "note", role: "status" }, "Nothing is read before you ask.");
    this.groups = h("div", { class: "scroll" });
    this.letters = h("div", { class: "scroll" });
    this.letter = h("div");
    this.plan = new PlanCard((body) => `/api/letters/${this.place.value}/plans`, () => this.closed, () => this.read());
  }

  mount(main) {
    put(main, h("section", { class: "card steers", "aria-label": "Dead letters" },
      h("header", null, h("h1", null, "Dead letters"), this.status),
      h("form", { class: "pager", on: { submit: (event) => {
        event.preventDefault();
        this.read();
      } } }, this.place, Object.entries(this.fields).map(([name, input]) => h("label", null, name, input)), this.go),
      this.groups, this.letters, this.letter, this.plan.element));
  }

  close() {
    this.closed = true;
  }

  /** What the form chooses, without what is empty. */
  chosen() {
    const values = Object.entries(this.fields).map(([name, input]) => [name, input.value.trim()]);
    const found = Object.fromEntries(values.filter(([, value]) => value));
    if (/^\d{1,12}$/.test(found.shard ?? "")) found.shard = `shardId-${found.shard.padStart(12, "0")}`;
    return found;
  }

  async fetch(what, wanted, holder) {
    this.go.disabled = true;
    setText(this.status, "Reading …");
    try {
      return await get(`/api/letters/${this.place.value}/${what}?${query(wanted)}`);
    } catch (error) {
      put(holder, failure(error));
      setText(this.status, "");
      return null;
    } finally {
      this.go.disabled = false;
    }
  }

  async read() {
    put(this.letters);
    put(this.letter);
    const found = await this.fetch("groups", this.chosen(), this.groups);
    if (!found || this.closed) return;
    const others = [found.ungrouped && `${count(found.ungrouped)} more in other groups`, found.unreadable && `${plural(found.unreadable, "entry", "entries")} that are not dead letters`].filter(Boolean);
    setText(this.status, [`${plural(found.letters, "letter")}, ${bytes(found.size)}`, ...others].join(" · "));
    put(this.groups, found.groups.length ? table("Groups of letters", ["Error", "Application", "Stream", "Shard", "Letters", "Bytes", "Oldest", "Newest", ""], found.groups.map((group) => [
      show(group.error || "unknown"), show(group.application || "–"), show(group.stream), shardName(group.shard_id),
      `${count(group.letters)}${group.replaying ? ` (${count(group.replaying)} replaying)` : ""}`, bytes(group.size),
      moment(group.oldest / 1000), moment(group.newest / 1000),
      this.actions(this.ofGroup(group), h("button", { type: "button", class: "small", on: { click: () => this.list(this.ofGroup(group)) } }, "Letters"), "group"),
    ])) : h("p", { class: "quiet" }, "There are no such letters."));
  }

  ofGroup(group) {
    const [error, application, , shard] = GROUP.map((name) => group[name]);
    const key = this.fields.key.value.trim();
    return Object.fromEntries(Object.entries({ error, application, shard, key }).filter(([, value]) => value));
  }

  actions(wanted, first, what) {
    const button = (operation, name) => h("button", { type: "button", class: "small", "aria-label": `${name} this ${what}`, on: { click: () => this.plan.show({ operation, ...wanted }) } }, `${name} …`);
    return h("span", { class: "tools" }, first, button("replay-letters", "Replay"), button("drop-letters", "Drop"));
  }

  async list(wanted) {
    const found = await this.fetch("list", wanted, this.letters);
    if (!found || this.closed) return;
    setText(this.status, `${plural(found.letters.length, "letter")}${found.more ? "; there are more" : ""}`);
    put(this.letters, table("Letters", ["Letter", "Set aside", "Error", "Shard", "Key", "Bytes", "Attempts", "State", ""], found.letters.map((one) => [
      h("code", null, one.id), moment(one.setAside), show(one.error || "unknown"), shardName(one.shard), show(one.key), bytes(one.size), count(one.attempt), one.state,
      this.actions({ letter: one.id, ...(one.application ? { application: one.application } : {}) }, h("button", { type: "button", class: "small", on: { click: () => this.open(one.id, false) } }, "Show"), "letter"),
    ])));
  }

  async open(id, payload) {
    const one = await this.fetch("letter", { id, ...(payload ? { payload: 1 } : {}) }, this.letter);
    if (!one || this.closed) return;
    setText(this.status, "");
    const facts = { Record: one.record, Application: one.application, Key: one.key, Error: one.error, Attempts: count(one.attempt), "First failed": one.firstFailed === null ? "–" : moment(one.firstFailed), "Set aside": moment(one.setAside), State: one.state, Headers: Object.entries(one.headers).map(([name, value]) => (value ? `${name}: ${value}` : name)).join(", ") };
    put(this.letter, h("section", { "aria-label": "Letter" },
      h("header", null, h("h2", null, `Letter ${one.id}`), one.payload ? null : h("button", { type: "button", class: "small", on: { click: () => this.open(id, true) } }, `Show its ${bytes(one.size)}`)),
      h("dl", { class: "facts" }, Object.entries(facts).map(([name, value]) => [h("dt", null, name), h("dd", null, show(value || "–"))])),
      one.payload ? h("pre", null, show(one.payload.text) + (one.payload.truncated ? "\n…" : "")) : null));
    this.letter.scrollIntoView({ block: "nearest" });
  }
}

function table(caption, titles, rows) {
  return h("table", null,
    h("caption", { class: "unseen" }, caption),
    h("thead", null, h("tr", null, titles.map((title) => h("th", { scope: "col" }, title)))),
    h("tbody", null, rows.map((cells) => h("tr", null, cells.map((cell) => h("td", null, cell))))));
}
