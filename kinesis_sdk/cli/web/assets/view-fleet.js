// The fleet of one application: figures, problems, the map or the table, and what moves.

import { announce, byId, command, empty, h, put, setClass, setText, show } from "./dom.js";
import { clock, count, duration, lag, middle, plural, shardName } from "./format.js";
import { SCALES, lagStep } from "./heat.js";
import { FleetMap, legend, summary } from "./fleetmap.js";
import { LeaseTable, lagChip, sparkline } from "./tables.js";
import { SelectionChange, WorkerChange } from "./steering.js";
import { onTheme } from "./theme.js";

const TABLE_BELOW = 40; // leases
const PROBLEMS = 5;
const UNFOLDED = 2; // problems up to which each is shown with its remedy
const OWNER = 18; // letters of an owner's name
const STEADY = 5000; // milliseconds by which the worst lag may differ within a minute

export class FleetView {
  constructor(app) {
    this.app = app;
    this.allProblems = false;
    this.unfolded = new Set(); // ids of problems
    this.acknowledged = new Set(); // ids of problems that are hidden until they end
    this.selected = null;
    this.shown = null; // "map" or "table"; null before the size of the fleet is known
    this.figures = new Figures();
    this.problems = h("ul", { class: "problems" });
    this.problemNote = h("span", { class: "note" });
    this.problemMore = h("button", { type: "button", class: "small", hidden: true, on: { click: () => {
      this.allProblems = !this.allProblems;
      this.problemKey = "";
      this.drawProblems();
    } } });
    this.marked = new Set(); // keys of the leases that are chosen for a change
    const onMark = app.session.hasPlanner ? (keys, on) => this.mark(keys, on) : null;
    this.map = new FleetMap((lease, whole) => this.select(lease, whole), onMark);
    this.table = new LeaseTable((lease, whole) => this.select(lease, whole), { onMark });
    this.change = onMark ? new SelectionChange(app, () => this.mark([...this.marked], false)) : null;
    this.workers = onMark ? new WorkerChange(app) : null;
    this.fleetNote = h("span", { class: "note" });
    this.scale = h("select", { on: { change: () => this.draw() } }, Object.entries(SCALES).map(([key, value]) => h("option", { value: key }, value.name)));
    this.order = h("select", { on: { change: () => this.draw() } }, h("option", { value: "place" }, "fixed places"), h("option", { value: "worst" }, "worst owner first"));
    this.find = h("input", { type: "search", placeholder: "shard or owner", "aria-label": "Find a shard or an owner", on: {
      input: () => this.draw(),
      keydown: (event) => event.key === "Enter" && this.pickFirst(),
    } });
    const choice = (name) => h("button", { type: "button", "aria-pressed": "false", on: { click: () => this.choose(name) } }, name === "map" ? "Map" : "Table");
    this.choices = { map: choice("map"), table: choice("table") };
    this.legend = h("div");
    this.holder = h("div");
    this.spread = new Spread();
    this.moves = h("ul", { class: "feed" });
    this.picked = h("section", { class: "card", hidden: true });
    this.element = h("div", { class: "split" },
      h("div", null,
        h("section", { class: "card", "aria-label": "Problems" }, h("header", null, h("h2", null, "Problems"), this.problemNote, h("span", { class: "tools" }, this.problemMore)), this.problems),
        h("section", { class: "card", "aria-label": "Fleet" },
          h("header", null, h("h2", null, "Fleet"), this.fleetNote,
            h("span", { class: "tools" },
              h("label", null, "colour", this.scale), h("label", null, "order", this.order), this.find,
              h("span", { class: "group", role: "group", "aria-label": "Form" }, this.choices.map, this.choices.table))),
          this.legend, this.holder)),
      h("div", { class: "side" }, this.change?.element, this.picked, this.spread.element, this.workers?.element, h("section", { class: "card" }, h("header", null, h("h2", null, "Moves"), h("span", { class: "note" }, "newest first")), this.moves)));
    this.root = h("div", { class: "stack" });
    this.stopTheme = onTheme(() => this.draw());
  }

  mount(main) {
    put(main, this.figures.element, this.element);
    // What a link kept.
    const { more } = this.app.route;
    this.find.value = more.get("find") ?? "";
    this.selected = more.get("selected");
    if (this.change) for (const key of (more.get("chosen") ?? "").split(" ").filter(Boolean)) this.marked.add(key);
    if (["map", "table"].includes(more.get("form"))) this.choose(more.get("form"));
  }

  /** Keys of the leases that are chosen or selected. */
  chosen() {
    return this.marked.size ? [...this.marked] : this.selected ? [this.selected] : [];
  }

  /** What a link keeps besides the moment. */
  state() {
    const values = { find: this.find.value.trim(), selected: this.selected, chosen: [...this.marked].slice(0, 100).join(" "), form: this.shown };
    return Object.fromEntries(Object.entries(values).filter(([, value]) => value));
  }

  close() {
    this.stopTheme();
    this.change?.close();
    this.workers?.close();
  }

  /** Choose leases for a change, or no longer. */
  mark(keys, on) {
    for (const key of keys) {
      if (on) this.marked.add(key);
      else this.marked.delete(key);
    }
    this.drawMarked();
    this.draw();
    announce(`${plural(this.marked.size, "shard")} chosen`);
  }

  drawMarked() {
    if (!this.change) return;
    const { leases } = this.picture;
    const places = leases.key.map((_, i) => i).filter((i) => this.marked.has(leases.key[i]));
    // Rows that were deleted are no longer chosen.
    this.marked = new Set(places.map((i) => leases.key[i]));
    this.change.choose([...this.marked], places.map((i) => shardName(leases.shard[i])));
  }

  choose(name) {
    this.shown = name;
    put(this.holder, name === "map" ? this.map.element : this.table.element);
    for (const [key, button] of Object.entries(this.choices)) button.setAttribute("aria-pressed", String(key === name));
    this.legend.hidden = name !== "map";
    this.scale.parentElement.hidden = name !== "map";
    this.order.parentElement.hidden = name !== "map";
    this.draw();
  }

  update(picture) {
    this.picture = picture;
    if (this.shown === null) this.choose(picture.leases.key.length < TABLE_BELOW ? "table" : "map");
    this.figures.update(picture);
    this.drawProblems();
    this.drawMoves();
    this.spread.update(picture);
    this.drawMarked();
    this.change?.update(picture);
    this.workers?.update(picture);
    this.draw();
    this.drawPicked();
  }

  draw() {
    if (!this.picture) return;
    setText(this.fleetNote, summary(this.picture));
    const find = this.find.value.trim().toLowerCase();
    if (this.shown === "map") {
      if (this.legendOf !== this.scale.value) {
        this.legendOf = this.scale.value;
        put(this.legend, legend(this.scale.value));
      }
      Object.assign(this.map, { scale: this.scale.value, order: this.order.value, find, selected: this.selected, marked: this.marked });
      this.map.update(this.picture);
    } else {
      Object.assign(this.table, { find, marked: this.marked });
      this.table.update(this.picture);
    }
  }

  pickFirst() {
    const find = this.find.value.trim().toLowerCase();
    if (!find) return;
    Object.assign(this.map, { find, picture: this.picture });
    const found = this.picture.leases.key.findIndex((_, i) => this.map.matches(i) && this.picture.leases.state[i] !== "finished");
    if (found >= 0) this.select(found);
  }

  select(lease, whole = false) {
    const key = this.picture.leases.key[lease];
    if (whole) {
      this.app.go("shard", key);
      return;
    }
    this.selected = key;
    this.draw();
    this.drawPicked();
  }

  drawPicked() {
    const { leases, owners, problems, head } = this.picture;
    const i = this.selected === null ? -1 : leases.key.indexOf(this.selected);
    this.picked.hidden = i < 0;
    if (i < 0) return;
    const chip = lagChip();
    chip.set(leases.lag[i]);
    const owner = leases.owner[i] < 0 ? "nobody" : show(owners.id[leases.owner[i]]);
    const kind = leases.owner[i] < 0 ? "" : owners.kind[leases.owner[i]];
    const own = problems.filter((problem) => problem.lease === this.selected);
    const facts = [
      ["state", leases.state[i]],
      ["owner", kind ? `${owner} · ${kind}` : owner],
      ["behind", chip.element],
      ["lost in", leases.left[i] === null ? "not known" : duration(leases.left[i])],
      ["pinned to", leases.pinned[i] ? show(leases.pinned[i]) : null],
      ["note", leases.note[i] ? show(leases.note[i]) : null],
    ];
    const key = JSON.stringify([this.selected, facts.map(([, value]) => (value instanceof Node ? leases.lag[i] : value)), own, head.streams]);
    if (key === this.pickedKey) return;
    this.pickedKey = key;
    const focused = this.picked.contains(document.activeElement);
    put(this.picked,
      h("header", null, h("h2", null, `Shard ${shardName(leases.shard[i])}`), h("span", { class: "note" }, show(leases.shard[i]))),
      h("dl", { class: "facts" }, facts.filter(([, value]) => value !== null).map(([name, value]) => [h("dt", null, name), h("dd", null, value)])),
      own.map((problem) => h("p", { class: problem.severity }, `${problem.severity === "error" ? "✕" : "!"} ${show(problem.text)}`)),
      h("div", { class: "pager", style: null }, h("button", { type: "button", class: "primary", on: { click: () => this.app.go("shard", this.selected) } }, "Open: timeline, records, changes")));
    if (focused) this.picked.querySelector("button").focus();
  }

  drawProblems() {
    const { problems, head } = this.picture;
    const key = JSON.stringify([problems, head.watched < head.failoverTime]);
    if (key === this.problemKey) return;
    this.problemKey = key;
    const focus = this.problems.contains(document.activeElement) ? document.activeElement.closest("li")?.dataset.id : null;
    const ids = new Set(problems.map(idOf));
    // What has ended and begins again is new.
    for (const id of this.acknowledged) if (!ids.has(id)) this.acknowledged.delete(id);
    const listed = problems.filter((problem) => this.allProblems || !this.acknowledged.has(idOf(problem)));
    const shown = this.allProblems ? listed : listed.slice(0, PROBLEMS);
    const acknowledged = this.acknowledged.size;
    setText(this.problemNote, problems.length ? `${count(problems.length)}, worst first${acknowledged ? ` · ${count(acknowledged)} acknowledged` : ""}` : "");
    this.problemMore.hidden = problems.length <= PROBLEMS && !acknowledged;
    setText(this.problemMore, this.allProblems ? "Show fewer" : `Show all ${problems.length}`);
    if (!problems.length) {
      put(this.problems, h("li", { class: "none" }, head.watched < head.failoverTime
        ? h("span", { class: "quiet" }, "None so far. A worker that has stopped is recognized after one failover time.")
        : h("span", { class: "allgood" }, "No problem was found.")));
    } else if (!shown.length) put(this.problems, h("li", { class: "none quiet" }, "All problems are acknowledged. They are hidden until they end."));
    else {
      put(this.problems, shown.map((problem) => this.problem(problem, listed.length <= UNFOLDED)));
      if (focus) this.problems.querySelector(`[data-id="${CSS.escape(focus)}"] summary`)?.focus();
    }
    const worst = problems.filter((problem) => problem.severity === "error").length;
    const told = worst ? `${plural(worst, "error")}: ${problems[0].title}` : "";
    if (told !== this.told) {
      this.told = told;
      if (told) byId("announce").textContent = told;
    }
  }

  problem(problem, isOpen) {
    const id = idOf(problem);
    const bad = problem.severity === "error";
    const subject = problem.shard ? `shard ${shardName(problem.shard)}` : problem.owner ? show(problem.owner) : null;
    const open = () => {
      if (problem.lease) this.app.go("shard", problem.lease);
      else if (problem.owner) this.filter(problem.owner);
    };
    const details = h("details", { open: isOpen || this.unfolded.has(id), on: { toggle: () => (details.open ? this.unfolded.add(id) : this.unfolded.delete(id)) } },
      h("summary", null,
        h("span", { class: "sign", "aria-label": problem.severity }, bad ? "✕" : "!"),
        h("span", { class: "name" }, problem.title),
        h("span", { class: "what" }, subject ? [h("b", null, subject), problem.count > 1 ? ` · ${plural(problem.count, "lease")}` : "", ": "] : null, show(problem.text))),
      h("div", { class: "remedy" }, h("span", null, show(problem.remedy)), problem.command ? command(problem.command) : null),
      h("div", { class: "acts" },
        subject ? h("button", { type: "button", class: "small", on: { click: open } }, problem.lease ? "Open the shard" : "Find the owner") : null,
        this.acknowledged.has(id)
          ? h("button", { type: "button", class: "small", on: { click: () => this.acknowledge(id, false) } }, "Show again")
          : h("button", { type: "button", class: "small", title: "Hide it on this page until it ends", on: { click: () => this.acknowledge(id, true) } }, "Acknowledge")));
    return h("li", { class: `${bad ? "error-line" : "warning-line"}${this.acknowledged.has(id) ? " acknowledged" : ""}`, data: { id } }, details);
  }

  acknowledge(id, on) {
    if (on) this.acknowledged.add(id);
    else this.acknowledged.delete(id);
    this.problemKey = "";
    this.drawProblems();
  }

  ownerLink(owner) {
    if (owner === null) return "nobody";
    return h("button", { type: "button", class: "link", title: show(owner), on: { click: () => this.filter(owner) } }, middle(show(owner), OWNER));
  }

  /** Show what an owner has. */
  filter(owner) {
    this.find.value = owner;
    this.draw();
    this.find.focus();
  }

  drawMoves() {
    const { moves, head } = this.picture;
    const shown = moves.slice(0, 14);
    const key = JSON.stringify([shown, head.watched < 60]);
    if (key === this.movesKey) return;
    this.movesKey = key;
    if (!shown.length) {
      put(this.moves, h("li", { class: "none quiet" }, `No lease has moved in the ${duration(head.watched)} since this console began to watch.`));
      return;
    }
    put(this.moves, shown.map((move) => h("li", null,
      h("time", null, clock(move.at)),
      h("span", { class: "path" }, h("button", { type: "button", class: "link mono", on: { click: () => this.app.go("shard", move.lease_key) } }, shardName(move.shard_id)),
        " ", this.ownerLink(move.before), " → ", this.ownerLink(move.after)),
      h("span", { class: "why" }, move.idle === null ? move.reason : `${move.reason}, ${duration(move.idle)} idle`))));
  }
}

const idOf = (problem) => `${problem.code} ${problem.lease} ${problem.owner}`;

class Figures {
  constructor() {
    this.cells = ["Worst lag", "Records are lost in", "Over 1 min", "Owners", "Without an owner", "Moves in 10 min"].map((title) => {
      const value = h("span", null, "–");
      const small = h("small", null, "\u00a0");
      return { value, small, element: h("div", null, h("dt", null, title), h("dd", null, value, small)) };
    });
    this.element = h("dl", { class: "figures" }, this.cells.map((cell) => cell.element));
  }

  set(n, value, small, level = "") {
    const cell = this.cells[n];
    setText(cell.value, value);
    setText(cell.small, small || "\u00a0");
    setClass(cell.element, "bad", level === "bad");
    setClass(cell.element, "warn", level === "warn");
  }

  update({ head, leases, owners }) {
    const total = head.totals;
    const worst = total.worst_lag_millis;
    this.set(0, lag(worst), worst === null ? "nothing measured yet" : `shard ${shardName(total.worst_shard ?? "")} · ${total.measured === total.leases ? "all" : `${count(total.measured)} of ${count(total.leases)}`} measured`, worst >= 3600000 ? "bad" : worst >= 60000 ? "warn" : "");
    let left = null;
    let where = -1;
    leases.left.forEach((value, i) => {
      if (value !== null && leases.state[i] !== "finished" && (left === null || value < left)) [left, where] = [value, i];
    });
    this.set(1, left === null ? "–" : left <= 0 ? "now" : duration(left), left === null ? "lag or retention not known" : `shard ${shardName(leases.shard[where])} · kept ${duration(head.retention)}`, left !== null && left < 7200 ? "bad" : left !== null && left < 21600 ? "warn" : "");
    this.set(2, count(total.behind_a_minute), `of ${plural(total.leases, "shard")}`, total.behind_a_minute ? "warn" : "");
    const kinds = new Map();
    owners.kind.forEach((kind, n) => kind && !owners.standby[n] && kinds.set(kind, (kinds.get(kind) ?? 0) + 1));
    this.set(3, total.silent_owners ? `${count(total.owners)} of ${count(total.owners + total.silent_owners)}` : count(total.owners), [...kinds].map(([kind, n]) => `${n} ${kind === "kinesis_sdk" ? "Python" : kind}`).join(", ") || "none seen", total.silent_owners ? "bad" : total.owners === 0 ? "bad" : "");
    const silent = leases.state.filter((state) => state === "silent").length;
    this.set(4, count(total.unowned + silent), silent ? `${total.unowned} free, ${silent} silent` : total.unowned ? "free" : "every lease is held", total.unowned + silent ? "bad" : "");
    this.set(5, count(total.moves), head.watched < 600 ? `watched for ${duration(head.watched)}` : "");
  }
}

/** How many shards are how far behind: is it one shard, or all of them, and is it getting worse? */
class Spread {
  constructor() {
    this.rows = [...SCALES.lag.names, "not known"].map((name, step) => {
      const bar = h("i", { class: step < 6 ? `measure heat-${step}` : "measure unknown" });
      const number = h("dd", null, "0");
      return { bar, number, parts: [h("dt", null, name), h("div", null, bar), number] };
    });
    this.exact = [];
    this.line = sparkline(338, 44);
    this.note = h("span", { class: "note" }, "");
    this.element = h("section", { class: "card", "aria-label": "How far behind" }, h("header", null, h("h2", null, "How far behind"), this.note),
      h("dl", { class: "spread" }, this.rows.map((row) => row.parts)),
      h("p", { class: "note" }, "worst lag of the last 10 min"), this.line.element);
  }

  update({ head, leases, owners }) {
    const counts = this.rows.map(() => 0);
    leases.lag.forEach((value, i) => {
      if (leases.state[i] !== "finished") counts[value === null ? 6 : lagStep(value)] += 1;
    });
    const most = Math.max(1, ...counts);
    counts.forEach((value, step) => {
      setText(this.rows[step].number, count(value));
      // A single shard among a thousand is still to be seen.
      this.rows[step].bar.style.width = value ? `max(3px, ${((value / most) * 100).toFixed(1)}%)` : "0";
    });
    const worst = [];
    for (const trend of owners.trend) {
      trend.forEach((value, n) => {
        const at = n + 60 - trend.length;
        worst[at] = value === null ? worst[at] ?? null : Math.max(worst[at] ?? 0, value);
      });
    }
    this.line.set(Array.from({ length: 60 }, (_, n) => worst[n] ?? null));
    // The pictures' trends are rounded; whether it gets worse is told from the exact worst lag.
    if (this.exact.length && head.at < this.exact[this.exact.length - 1][0]) this.exact = [];
    if (head.totals.worst_lag_millis !== null) this.exact.push([head.at, head.totals.worst_lag_millis]);
    while (this.exact.length && head.at - this.exact[0][0] > 60) this.exact.shift();
    const span = this.exact.length > 1 ? head.at - this.exact[0][0] : 0;
    const change = span ? this.exact[this.exact.length - 1][1] - this.exact[0][1] : 0;
    setText(this.note, span < 10 ? "" : Math.abs(change) < STEADY ? `steady for ${duration(Math.round(span))}` : `worst ${change > 0 ? "grew" : "fell"} by ${lag(Math.abs(change))} in ${duration(Math.round(span))}`);
    setClass(this.note, "error", span >= 10 && change >= STEADY);
  }
}

/** What to show instead of a fleet: why there is none. Null if there is one. */
export function whyEmpty(picture, application) {
  const { head, leases } = picture;
  if (leases.key.length) return null;
  if (head.error) {
    const name = `Nothing could be read of ${application}`;
    if (head.errorCode === "aws-settings") return empty(name, show(head.error), h("p", null, "Give the console a region and credentials as for every AWS tool (environment, ~/.aws, role), and start it again."));
    if (head.errorCode === "no-lease-table") return empty(`There is no lease table ${application}`, "A worker creates it when it starts for the first time. The name of the table is the name of the application. It is searched for again each minute.", h("p", { class: "faint" }, show(head.error)));
    return empty(name, show(head.error));
  }
  return empty("The lease table is empty", "No worker has created leases yet. A worker does so within seconds of its start, if it can list the stream's shards.", command(`kinesis-sdk doctor ${head.streams[0] ?? "STREAM"} ${application}`));
}
