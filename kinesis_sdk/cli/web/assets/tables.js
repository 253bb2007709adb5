// Tables: sortable, and changed in place, so that a row that is read by a person or a screen reader stays where it is.

import { h, put, s, setClass, setText, show } from "./dom.js";
import { age, duration, kbps, lag, middle, shardName } from "./format.js";
import { lagStep } from "./heat.js";

/** A line of ten minutes. */
export function sparkline(width = 76, height = 16) {
  const line = s("polyline", { points: "" });
  // Until there are two samples, a dotted line says that something will be here.
  const none = s("line", { x1: 0, x2: width, y1: height - 1, y2: height - 1 });
  const element = s("svg", { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, none, line);
  let before = "";
  return {
    element,
    set(values) {
      const points = (values ?? [])
        .map((value, n, all) => [value, ((n + 60 - all.length) / 59) * width])
        .filter(([value]) => value !== null && value !== undefined)
        .map(([value, x]) => `${x.toFixed(1)},${(height - 1 - (Math.log10(1 + Math.max(0, value) / 500) / 5.3) * (height - 3)).toFixed(1)}`)
        .join(" ");
      if (points !== before) line.setAttribute("points", points);
      none.setAttribute("visibility", points.includes(" ") ? "hidden" : "visible");
      before = points;
    },
  };
}

/** A lag with its colour, for tables. */
export function lagChip() {
  const swatch = h("i", { class: "unknown" });
  const text = h("span", null, "–");
  let step = -1;
  return {
    element: h("span", { class: "chip" }, swatch, text),
    set(millis) {
      setText(text, lag(millis));
      const now = lagStep(millis);
      if (now !== step) {
        swatch.className = now < 0 ? "unknown" : `heat-${now}`;
        step = now;
      }
    },
  };
}

const PAGE = 100;
const OWNER = 34; // letters of an owner's name

/** The table of leases: the alternative to the map, and the view of a small fleet. */
export class LeaseTable {
  /**
   * @param {(lease: number, whole: boolean) => void} onOpen Called with the row that was chosen.
   * @param onMark Called with keys of leases and whether they are chosen; null for a table without boxes.
   */
  constructor(onOpen, { sort = "problem", onMark = null } = {}) {
    Object.assign(this, { onOpen, onMark });
    this.marked = new Set(); // keys of leases
    this.sort = sort;
    this.find = "";
    this.page = 0;
    this.rows = new Map();
    this.body = h("tbody");
    this.columns = [
      ["shard", "Shard", ""],
      ["owner", "Owner", ""],
      ["state", "State", "state"],
      ["lag", "Behind", ""],
      ["trend", "10 min", "trend"],
      ["left", "Lost in", "num"],
      ["age", "Checkpoint", "num"],
      ["kbps", "Throughput", "num"],
      ["problem", "Problem", ""],
    ];
    this.heads = this.columns.map(([name, title, kind]) => h("th", { scope: "col", class: kind },
      name !== "trend"
        ? h("button", { type: "button", on: { click: () => this.sortBy(name) } }, title)
        : title));
    this.pager = h("div", { class: "pager" });
    this.all = h("input", { type: "checkbox", "aria-label": "Choose all shards that the table lists", on: { change: () => this.onMark(this.listed, this.all.checked) } });
    this.element = h("div", null,
      h("div", { class: "scroll" }, h("table", null, h("caption", { class: "unseen" }, "Leases of the application"), h("thead", null, h("tr", null, onMark ? h("th", { scope: "col", class: "box" }, this.all) : null, this.heads)), this.body)),
      this.pager);
    this.markSort();
  }

  sortBy(name) {
    this.sort = name;
    this.page = 0;
    this.markSort();
    this.update(this.picture);
  }

  markSort() {
    this.columns.forEach(([name], n) => {
      if (name === this.sort) this.heads[n].setAttribute("aria-sort", ["lag", "kbps", "age", "problem"].includes(name) ? "descending" : "ascending");
      else this.heads[n].removeAttribute("aria-sort");
    });
  }

  order() {
    const { leases, owners, problems } = this.picture;
    const owner = (i) => (leases.owner[i] < 0 ? "" : owners.id[leases.owner[i]]);
    const weight = new Map(problems.filter((problem) => problem.lease).map((problem, place) => [problem.lease, problems.length - place]));
    const list = leases.key.map((_, i) => i).filter((i) => leases.state[i] !== "finished");
    const found = this.find ? list.filter((i) => `${leases.key[i]} ${shardName(leases.shard[i])} ${owner(i) || "nobody"}`.toLowerCase().includes(this.find)) : list;
    const by = {
      shard: (a, b) => a - b,
      owner: (a, b) => leases.owner[a] - leases.owner[b] || a - b,
      state: (a, b) => leases.state[a].localeCompare(leases.state[b]) || a - b,
      lag: (a, b) => (leases.lag[b] ?? -1) - (leases.lag[a] ?? -1) || a - b,
      left: (a, b) => (leases.left[a] ?? Infinity) - (leases.left[b] ?? Infinity) || a - b,
      kbps: (a, b) => (leases.kbps[b] ?? -1) - (leases.kbps[a] ?? -1) || a - b,
      age: (a, b) => (leases.age[b] ?? -1) - (leases.age[a] ?? -1) || a - b,
      // The worst problem first, in the order of the server; what has none by its owner.
      problem: (a, b) => (weight.get(leases.key[b]) ?? 0) - (weight.get(leases.key[a]) ?? 0) || leases.owner[a] - leases.owner[b] || a - b,
    }[this.sort];
    return found.sort(by);
  }

  update(picture) {
    if (!picture) return;
    this.picture = picture;
    const { leases, owners, problems } = picture;
    const order = this.order();
    this.listed = order.map((i) => leases.key[i]);
    const chosen = this.listed.filter((key) => this.marked.has(key)).length;
    this.all.checked = chosen > 0 && chosen === this.listed.length;
    this.all.indeterminate = chosen > 0 && chosen < this.listed.length;
    const pages = Math.max(1, Math.ceil(order.length / PAGE));
    this.page = Math.min(this.page, pages - 1);
    const shown = order.slice(this.page * PAGE, (this.page + 1) * PAGE);
    const titles = new Map([...problems].reverse().filter((problem) => problem.lease).map((problem) => [problem.lease, problem]));
    const kept = new Set(shown.map((i) => leases.key[i]));
    for (const [key, row] of this.rows) {
      if (!kept.has(key)) {
        row.element.remove();
        this.rows.delete(key);
      }
    }
    shown.forEach((i, place) => {
      const key = leases.key[i];
      let row = this.rows.get(key);
      if (!row) {
        row = this.makeRow(key);
        this.rows.set(key, row);
      }
      if (this.body.children[place] !== row.element) this.body.insertBefore(row.element, this.body.children[place] ?? null);
      const problem = titles.get(key);
      row.box.checked = this.marked.has(key);
      row.box.setAttribute("aria-label", `Choose shard ${shardName(leases.shard[i])}`);
      setText(row.shard, shardName(leases.shard[i]));
      const owner = leases.owner[i] < 0 ? "nobody" : show(owners.id[leases.owner[i]]);
      setText(row.owner, middle(owner, OWNER));
      if (row.owner.title !== owner) row.owner.title = owner;
      setClass(row.owner, "error", leases.owner[i] < 0);
      setText(row.state, leases.next[i] ? `${leases.state[i]} to ${show(leases.next[i])}` : leases.state[i]);
      setClass(row.state, "error", ["silent", "unowned", "unreadable", "no lease"].includes(leases.state[i]));
      row.lag.set(leases.lag[i]);
      row.trend.set(leases.trend?.[i] ?? []);
      setText(row.left, leases.left[i] === null ? "–" : duration(leases.left[i]));
      setClass(row.left, "error", leases.left[i] !== null && leases.left[i] < 7200);
      setText(row.age, age(leases.age[i]));
      setText(row.kbps, kbps(leases.kbps[i]));
      setText(row.note, problem ? `${problem.severity === "error" ? "✕" : "!"} ${problem.title}` : leases.pinned[i] ? `pinned to ${show(leases.pinned[i])}` : show(leases.note[i] ?? ""));
      setClass(row.note, "error", problem?.severity === "error");
      setClass(row.note, "warning", problem?.severity === "warning");
      setClass(row.element, "bad", problem?.severity === "error");
      setClass(row.element, "poor", problem?.severity === "warning");
    });
    this.drawPager(order.length, pages);
  }

  drawPager(total, pages) {
    const key = `${total} ${pages} ${this.page}`;
    if (key === this.pagerKey) return;
    this.pagerKey = key;
    if (pages === 1) {
      put(this.pager);
      return;
    }
    const turn = (by) => () => {
      this.page += by;
      this.update(this.picture);
    };
    put(this.pager,
      h("button", { type: "button", disabled: this.page === 0, on: { click: turn(-1) } }, "Previous"),
      h("button", { type: "button", disabled: this.page === pages - 1, on: { click: turn(1) } }, "Next"),
      h("span", { class: "dim" }, `${this.page * PAGE + 1} to ${Math.min(total, (this.page + 1) * PAGE)} of ${total}`));
  }

  makeRow(key) {
    const row = {
      box: h("input", { type: "checkbox", on: { change: (event) => this.onMark([key], event.currentTarget.checked) } }),
      shard: h("a", { class: "link mono", href: "#" }, ""),
      owner: h("td", { class: "clip mono" }),
      state: h("td", { class: "clip state" }),
      lag: lagChip(),
      trend: sparkline(),
      left: h("td", { class: "num" }),
      age: h("td", { class: "num" }),
      kbps: h("td", { class: "num" }),
      note: h("td", { class: "clip" }),
    };
    const open = (event) => {
      event.preventDefault();
      event.stopPropagation();
      const i = this.picture.leases.key.indexOf(key);
      if (i >= 0) this.onOpen(i, event.currentTarget === row.shard);
    };
    row.shard.addEventListener("click", open);
    row.element = h("tr", { class: "row", on: { click: open } },
      this.onMark ? h("td", { class: "box", on: { click: (event) => event.stopPropagation() } }, row.box) : null,
      h("td", null, row.shard), row.owner, row.state, h("td", null, row.lag.element), h("td", { class: "trend" }, row.trend.element), row.left, row.age, row.kbps, row.note);
    return row;
  }
}
