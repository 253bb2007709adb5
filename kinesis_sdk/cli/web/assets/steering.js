// A change of leases or of a worker: chosen, shown as the exact write and the command, confirmed, and watched until its outcome is known.

import { announce, copyButton, h, put, setText, show } from "./dom.js";
import { plural } from "./format.js";
import { get, post } from "./api.js";

const OPERATIONS = {
  rewind: ["Rewind to …", "position"],
  "skip-to": ["Skip forward to …", "position"],
  release: ["Release", ""],
  move: ["Move to a worker", "worker"],
  pin: ["Pin to a worker", "worker"],
  unpin: ["Remove the pin", ""],
  retry: ["Call the failing handler now", ""],
  "skip-record": ["Leave out the failing record", ""],
  drain: ["Drain: hand off all leases, take none", ""],
  undrain: ["End the drain", ""],
};
const OF_ONE_SHARD = ["rewind", "skip-to", "release", "move", "pin", "unpin", "retry", "skip-record"];
const OF_SHARDS = ["rewind", "skip-to", "release", "move"];
const OF_WORKERS = ["drain", "undrain"];
const POLL = 400;
const SHOWN = 6; // names of chosen shards
const OURS = "kinesis_sdk";

/** Ids of the workers that can be asked for something: alive, and of a known kind. */
const alive = ({ owners }) => owners.id.filter((_, n) => owners.silent[n] === null && owners.kind[n]);

/** The form of a change. `subject()` returns what it is about: `{leases}` or `{worker}`. */
class Steering {
  constructor(app, { operations, subject, label = "Change" }) {
    Object.assign(this, { app, subject });
    this.operation = h("select", { "aria-label": label, on: { change: () => this.changed() } }, operations.map((value) => h("option", { value }, OPERATIONS[value][0])));
    this.to = h("input", { type: "text", placeholder: "-15m, 2026-11-21T09:00Z, TRIM_HORIZON", "aria-label": "Target: how long ago, a time, TRIM_HORIZON, LATEST or at: and a sequence number", on: { keydown: (event) => event.key === "Enter" && this.plan() } });
    this.worker = h("select", { "aria-label": "To worker" });
    this.swap = h("input", { type: "checkbox" });
    this.swapLabel = h("label", { title: "The worker gives one of its leases to the present owner, so that the fleet does not move it back" }, this.swap, "swap");
    this.show = h("button", { type: "button", on: { click: () => this.plan() } }, "Show what it does");
    this.card = new PlanCard(() => `/api/applications/${encodeURIComponent(app.route.application)}/plans`, () => this.closed);
    this.form = h("div", { class: "form" }, h("div", { class: "line" }, this.operation, this.to, this.worker, this.swapLabel, this.show), this.card.element);
    this.changed();
  }

  close() {
    this.closed = true;
  }

  update(picture) {
    const ids = alive(picture);
    const key = ids.join("\n");
    if (key === this.workers) return;
    this.workers = key;
    const before = this.worker.value;
    put(this.worker, ids.map((id) => h("option", { value: id }, show(id))));
    if (ids.includes(before)) this.worker.value = before;
  }

  /** Another operation, or another subject: what was shown is no longer what would be written. */
  changed() {
    const needs = OPERATIONS[this.operation.value][1];
    this.to.hidden = needs !== "position";
    this.worker.hidden = needs !== "worker";
    this.swapLabel.hidden = this.operation.value !== "move" || this.subject().leases?.length !== 1;
    this.card.clear();
  }

  /** Fill the form, and show what it would do. */
  propose(operation, to) {
    this.operation.value = operation;
    this.changed();
    this.to.value = to;
    this.form.scrollIntoView({ block: "nearest" });
    this.plan();
  }

  async plan() {
    const kind = this.operation.value;
    const body = { operation: kind, ...this.subject() };
    const needs = OPERATIONS[kind][1];
    if (needs) body.to = needs === "worker" ? this.worker.value : this.to.value.trim();
    if (!this.swapLabel.hidden && this.swap.checked) body.swap = true;
    this.show.disabled = true;
    await this.card.show(body);
    this.show.disabled = false;
  }
}

/** A plan: shown, confirmed, and followed until its outcome is known. */
export class PlanCard {
  /**
   * @param {() => string} path Where plans are made.
   * @param {() => boolean} isClosed Whether the page has left.
   * @param {() => void} onDone Called when a change was made.
   */
  constructor(path, isClosed, onDone = () => {}) {
    Object.assign(this, { path, isClosed, onDone });
    this.element = h("div", { "aria-live": "polite" });
  }

  clear() {
    put(this.element);
  }

  async show(body) {
    put(this.element, h("p", { class: "quiet" }, "Reading what it concerns …"));
    let plan;
    try {
      plan = await post(this.path(), body);
    } catch (error) {
      put(this.element, h("p", { class: "error", role: "alert" }, `✕ ${show(error.message)}`));
      return;
    }
    this.draw(plan);
  }

  draw(plan) {
    const run = h("button", { type: "button", class: "primary", disabled: !plan.id }, "Confirm and write");
    const outcome = h("div");
    const cancel = h("button", { type: "button", on: { click: () => put(this.element) } }, "Discard");
    run.addEventListener("click", () => this.run(plan, run, cancel, outcome));
    put(this.element, h("div", { class: "plan" },
      h("div", { class: "words" },
        h("b", null, show(plan.title)),
        plan.effects.map((text) => h("p", null, show(text))),
        plan.warnings.map((text) => h("p", { class: "warning" }, `! ${show(text)}`))),
      h("pre", null, plan.writes.map((write) => `${write.title}\n${write.lines.map((line) => `  ${line}`).join("\n")}`).map(show).join("\n")),
      h("div", { class: "words" }, h("span", { class: "faint" }, "the same as a command"), h("span", { class: "command" }, h("code", { title: plan.command }, show(plan.command)), copyButton(plan.command))),
      h("div", { class: "actions" }, run, cancel, plan.id ? null : h("span", { class: "note" }, "This console is read-only. Use the command, or start it with --allow-changes.")),
      outcome));
    (plan.id ? run : cancel).focus();
  }

  async run(plan, button, cancel, outcome) {
    button.disabled = true;
    cancel.disabled = true;
    setText(button, "Writing …");
    const tell = (kind, lines) => put(outcome, h("div", { class: `outcome ${kind}` }, lines.map((line) => h("p", null, show(line)))));
    try {
      await post(`/api/plans/${encodeURIComponent(plan.id)}/run`, {});
      for (;;) {
        const state = await get(`/api/plans/${encodeURIComponent(plan.id)}`);
        if (state.state === "done") {
          tell("good", [`✓ ${state.outcome.text}`]);
          setText(button, "Written");
          this.onDone();
          break;
        }
        if (state.state === "failed") {
          tell("error", [...state.lines, `✕ ${state.error}`]);
          setText(button, "Failed");
          announce(`The change failed: ${state.error}`, true);
          break;
        }
        tell("dim", state.lines);
        if (this.isClosed()) return;
        await new Promise((resolve) => setTimeout(resolve, POLL));
      }
    } catch (error) {
      tell("error", [`✕ ${error.message}`]);
      setText(button, "Not known");
    } finally {
      cancel.disabled = false;
      setText(cancel, "Close");
    }
  }
}

const heading = (title, note) => h("header", null, title, h("span", { class: "note" }, note));
const NOTE = "nothing is written before you confirm";

/** The card of a shard's page. */
export function shardChange(app, key) {
  const steering = new Steering(app, { operations: OF_ONE_SHARD, subject: () => ({ leases: [key] }) });
  const element = h("section", { class: "card steers", "aria-label": "Change" }, heading(h("h2", null, "Change"), NOTE), steering.form);
  return { element, close: () => steering.close(), update: (picture) => steering.update(picture), propose: (operation, to) => steering.propose(operation, to) };
}

/** The card of the shards that are chosen in the fleet; hidden while none is. */
export class SelectionChange {
  constructor(app, onClear) {
    this.keys = [];
    this.steering = new Steering(app, { operations: OF_SHARDS, subject: () => ({ leases: this.keys }), label: "Change of the chosen shards" });
    this.title = h("h2", null, "");
    this.names = h("p", { class: "note" });
    this.element = h("section", { class: "card steers", "aria-label": "Change of the chosen shards", hidden: true },
      h("header", null, this.title, h("span", { class: "tools" }, h("button", { type: "button", class: "small", on: { click: onClear } }, "Choose none"))),
      this.names, this.steering.form);
  }

  /** @param {string[]} keys Keys of the chosen leases, in the order of the table. */
  choose(keys, names) {
    const changed = keys.join("\n") !== this.keys.join("\n");
    this.keys = keys;
    this.element.hidden = !keys.length;
    setText(this.title, `Change ${plural(keys.length, "shard")}`);
    setText(this.names, `${names.slice(0, SHOWN).join(", ")}${names.length > SHOWN ? ` and ${names.length - SHOWN} more` : ""}`);
    if (changed) this.steering.changed();
  }

  update(picture) {
    this.steering.update(picture);
  }

  close() {
    this.steering.close();
  }
}

/** The card of a worker: drain it, or end its drain. Only workers of this SDK read the mark. */
export class WorkerChange {
  constructor(app) {
    this.select = h("select", { "aria-label": "Worker", on: { change: () => this.chosen() } });
    this.steering = new Steering(app, { operations: OF_WORKERS, subject: () => ({ worker: this.select.value }), label: "Change of a worker" });
    this.steering.form.firstChild.prepend(this.select);
    this.element = h("section", { class: "card steers", "aria-label": "Workers", hidden: true }, heading(h("h2", null, "Workers"), "drain one before maintenance"), this.steering.form);
  }

  update({ owners, leases }) {
    const held = new Map();
    leases.owner.forEach((n, i) => leases.state[i] !== "finished" && held.set(n, (held.get(n) ?? 0) + 1));
    const listed = owners.id.map((id, n) => ({ id, n })).filter(({ n }) => owners.kind[n] === OURS && (owners.silent[n] === null || owners.draining[n]));
    this.element.hidden = !listed.length;
    this.draining = new Set(listed.filter(({ n }) => owners.draining[n]).map(({ id }) => id));
    const texts = listed.map(({ id, n }) => `${show(id)} · ${plural(held.get(n) ?? 0, "lease")}${owners.draining[n] ? " · draining" : ""}`);
    const ids = listed.map(({ id }) => id).join("\n");
    if (ids !== this.ids) {
      this.ids = ids;
      const before = this.select.value;
      put(this.select, listed.map(({ id }, place) => h("option", { value: id }, texts[place])));
      if (listed.some(({ id }) => id === before)) this.select.value = before;
      if (this.select.value !== before) this.chosen();
    } else texts.forEach((text, place) => setText(this.select.options[place], text));
  }

  chosen() {
    this.steering.operation.value = this.draining.has(this.select.value) ? "undrain" : "drain";
    this.steering.changed();
  }

  close() {
    this.steering.close();
  }
}
