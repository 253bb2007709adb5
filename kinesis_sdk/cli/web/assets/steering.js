// A change of a lease: chosen, shown as the exact write and the command, confirmed, and watched until its outcome is known.

import { announce, copyButton, h, put, setText, show } from "./dom.js";
import { get, post } from "./api.js";

const OPERATIONS = [
  ["rewind", "Rewind to …"],
  ["skip-to", "Skip forward to …"],
  ["release", "Release the lease"],
  ["move", "Move to a worker"],
];
const POLL = 400;

export class Steering {
  constructor(app, key, state) {
    Object.assign(this, { app, key, state });
    this.operation = h("select", { "aria-label": "Change", on: { change: () => this.changed() } }, OPERATIONS.map(([value, name]) => h("option", { value }, name)));
    this.to = h("input", { type: "text", placeholder: "15m, 2026-11-21T09:00Z, TRIM_HORIZON", "aria-label": "Target: how long ago, a time, TRIM_HORIZON, LATEST or a sequence number", on: { keydown: (event) => event.key === "Enter" && this.plan() } });
    this.worker = h("select", { "aria-label": "Worker", hidden: true });
    this.show = h("button", { type: "button", on: { click: () => this.plan() } }, "Show what it does");
    this.result = h("div", { "aria-live": "polite" });
    this.element = h("section", { class: "card", "aria-label": "Change" },
      h("header", null, h("h2", null, "Change"), h("span", { class: "note" }, "nothing is written before you confirm")),
      h("div", { class: "form" }, h("div", { class: "line" }, this.operation, this.to, this.worker, this.show), this.result));
    this.to.style.flex = "1 1 150px";
  }

  close() {
    this.closed = true;
  }

  update() {
    const { picture } = this.state();
    const ids = picture.owners.id.filter((_, n) => picture.owners.silent[n] === null && picture.owners.kind[n]);
    const key = ids.join("\n");
    if (key === this.workers) return;
    this.workers = key;
    const before = this.worker.value;
    put(this.worker, ids.map((id) => h("option", { value: id }, show(id))));
    if (ids.includes(before)) this.worker.value = before;
  }

  changed() {
    const kind = this.operation.value;
    this.to.hidden = kind === "release" || kind === "move";
    this.worker.hidden = kind !== "move";
    put(this.result);
  }

  async plan() {
    const kind = this.operation.value;
    const body = { operation: kind, lease: this.key, to: kind === "move" ? this.worker.value : this.to.value.trim() };
    this.show.disabled = true;
    put(this.result, h("p", { class: "quiet" }, "Reading the row and the stream …"));
    let plan;
    try {
      plan = await post(`/api/applications/${encodeURIComponent(this.app.route.application)}/plans`, body);
    } catch (error) {
      put(this.result, h("p", { class: "error", role: "alert" }, `✕ ${show(error.message)}`));
      return;
    } finally {
      this.show.disabled = false;
    }
    this.draw(plan);
  }

  draw(plan) {
    const run = h("button", { type: "button", class: "primary", disabled: !plan.id }, "Confirm and write");
    const outcome = h("div");
    const cancel = h("button", { type: "button", on: { click: () => put(this.result) } }, "Discard");
    run.addEventListener("click", () => this.run(plan, run, cancel, outcome));
    put(this.result, h("div", { class: "plan" },
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
          break;
        }
        if (state.state === "failed") {
          tell("error", [...state.lines, `✕ ${state.error}`]);
          setText(button, "Failed");
          announce(`The change failed: ${state.error}`, true);
          break;
        }
        tell("dim", state.lines);
        if (this.closed) return;
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
