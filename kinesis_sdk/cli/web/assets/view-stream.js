// The stream of an application: hash key ranges against time, with splits and merges, and the lag of each shard now.

import { announce, card, empty, h, noTip, put, setText, show, tip } from "./dom.js";
import { clock, count, duration, kbps, lag, moment, plural, shardName } from "./format.js";
import { get, query } from "./api.js";
import { colours, lagStep } from "./heat.js";
import { legend } from "./fleetmap.js";
import { Search } from "./search.js";
import { onTheme } from "./theme.js";
import { lagChip } from "./tables.js";
import { failure } from "./view-applications.js";

const LENS_BELOW = 64; // open shards: then the lens is the view
const NEIGHBOURS = 12;
const REFRESH = 60000; // milliseconds: one ListShards a minute
const SOON = 4000;
const NARROW = 480; // pixels: of a telephone
const SPANS = [["2 min", 120], ["10 min", 600], ["1 h", 3600], ["6 h", 21600], ["24 h", 86400], ["7 d", 604800], ["all", null]];

export class StreamView {
  worksWithoutLeases = true;

  constructor(app) {
    this.app = app;
    this.note = h("span", { class: "note" });
    this.choice = h("select", { "aria-label": "Stream", hidden: true, on: { change: () => this.load() } });
    this.span = h("select", { on: { change: () => this.draw() } }, SPANS.map(([name, value]) => h("option", { value: value ?? "" }, name)));
    this.span.value = "86400";
    this.spanChosen = false;
    this.span.addEventListener("change", () => {
      this.spanChosen = true;
    });
    this.overview = this.makeCanvas("Hash key ranges of all shards against time");
    this.lens = this.makeCanvas("Hash key ranges of neighbouring shards against time. Up and down choose a shard, Enter opens it");
    this.lens.canvas.tabIndex = 0;
    this.lens.canvas.addEventListener("keydown", (event) => this.key(event));
    this.ring = h("canvas", { role: "img", "aria-label": "Shards around the ring of hash keys" });
    this.legend = h("div", null, legend("lag", false));
    this.body = h("tbody");
    this.figures = h("dl", { class: "facts" });
    this.holder = h("div");
    this.search = new Search(app, () => this.choice.value);
    this.chosen = null;
    this.stopTheme = onTheme(() => this.draw());
    this.resize = new ResizeObserver(() => this.draw());
    this.timer = setInterval(() => document.hidden || this.load(), REFRESH);
  }

  makeCanvas(label) {
    const canvas = h("canvas", { role: "img", "aria-label": label });
    const area = { canvas, element: h("div", { class: "map" }, canvas), boxes: [] };
    canvas.addEventListener("pointermove", (event) => {
      const box = this.hit(area, event);
      canvas.style.cursor = box ? "pointer" : "default";
      if (box) tip(event.clientX, event.clientY, this.lines(box.shard));
      else noTip();
    });
    canvas.addEventListener("pointerleave", noTip);
    canvas.addEventListener("click", (event) => {
      const box = this.hit(area, event);
      if (!box) return;
      if (area === this.lens && this.chosen === box.shard.id) this.open(box.shard.id);
      this.chosen = box.shard.id;
      this.picked = true;
      this.draw();
    });
    return area;
  }

  close() {
    this.search.close();
    clearInterval(this.timer);
    this.stopTheme();
    this.resize.disconnect();
    noTip();
  }

  mount(main) {
    put(main, this.holder, this.search.element);
    put(this.holder, h("p", { class: "quiet", role: "status" }, "Listing the shards …"));
  }

  update(picture) {
    this.picture = picture;
    this.byShard = new Map(picture.leases.shard.map((id, i) => [id, i]));
    const names = picture.head.streams.length ? picture.head.streams : this.app.session.stream ? [this.app.session.stream] : [];
    const key = names.join("\n");
    if (key !== this.names || !this.asked) {
      this.names = key;
      this.asked = true;
      put(this.choice, names.map((name) => h("option", { value: name }, show(name))));
      this.choice.hidden = names.length < 2;
      if (names.length) this.load();
      else put(this.holder, empty("The stream is not known", "The lease table does not name it. Start the console with --stream NAME."));
    } else if (this.stream) {
      // Another set of leases means that shards were split or merged: do not wait for the next minute.
      const set = picture.leases.key.join("\n");
      if (set !== this.set && performance.now() - this.receivedAt > SOON) {
        this.set = set;
        this.load();
      } else this.draw();
    }
  }

  async load() {
    const name = this.choice.value;
    if (!name) return;
    try {
      this.stream = await get(`/api/stream?${query({ name })}`);
    } catch (error) {
      put(this.holder, failure(error));
      return;
    }
    this.receivedAt = performance.now();
    this.set ??= this.picture.leases.key.join("\n");
    this.shards = new Map(this.stream.shards.map((shard) => [shard.id, shard]));
    this.current = this.stream.shards.filter((shard) => shard.open).sort((a, b) => a.start - b.start);
    this.small = this.current.length < LENS_BELOW;
    if (!this.spanChosen) this.span.value = this.fittingSpan();
    if (!this.shards.has(this.chosen) || (!this.picked && !this.shards.get(this.chosen).open)) this.chosen = this.worst();
    const range = this.stream.shards.length > this.current.length ? "" : "No shard was split or merged within the retention.";
    put(this.holder, h("div", { class: "split" },
      h("div", null, h("section", { class: "card" },
        h("header", null, h("h2", null, show(name)), this.note, h("span", { class: "tools" }, this.choice, h("label", null, "time", this.span))),
        this.legend,
        this.small ? null : [h("p", { class: "note" }, "all shards, hash keys from top to bottom"), this.overview.element],
        this.small ? null : h("p", { class: "note lens-note" }, "the neighbourhood of the chosen shard; a click above moves it"),
        this.lens.element,
        range ? h("p", { class: "note" }, range) : null),
        card("Shards", "open ones by hash key, with what this application has of them", this.table())),
      h("div", { class: "side" }, card("Ring of hash keys", "", this.ring), card("Stream", "", this.figures))));
    this.resize.disconnect();
    this.resize.observe(this.lens.element);
    this.draw();
  }

  /** The shortest span that shows all that is known of a young stream. */
  fittingSpan() {
    const first = Math.min(...this.stream.shards.map((shard) => shard.from ?? 0));
    const age = this.stream.at - first;
    const wanted = Math.min(age, this.stream.retention ?? 86400);
    return String(SPANS.map(([, value]) => value).find((value) => value !== null && value >= wanted) ?? "");
  }

  worst() {
    let found = this.current[0]?.id ?? null;
    let most = -1;
    for (const shard of this.current) {
      const value = this.lagOf(shard.id) ?? -1;
      if (value > most) [most, found] = [value, shard.id];
    }
    return found;
  }

  lagOf(id) {
    const i = this.byShard?.get(id);
    return i === undefined ? null : this.picture.leases.lag[i];
  }

  open(id) {
    const i = this.byShard.get(id);
    if (i !== undefined) this.app.go("shard", this.picture.leases.key[i]);
  }

  now() {
    return this.stream.at + (performance.now() - this.receivedAt) / 1000;
  }

  window() {
    const now = this.now();
    const span = this.span.value === "" ? null : Number(this.span.value);
    if (span) return [now - span, now];
    const first = Math.min(...this.stream.shards.map((shard) => shard.from ?? now - 86400), now - 3600);
    return [first, now];
  }

  lines(shard) {
    const i = this.byShard?.get(shard.id);
    const result = [`shard ${shardName(shard.id)}${shard.open ? "" : " · closed"}`];
    result.push(`${(shard.width * 100).toFixed(shard.width < 0.01 ? 3 : 1)} % of the hash keys`);
    if (shard.from) result.push(`${shard.parents.length === 2 ? "merged" : shard.parents.length === 1 ? "split off" : "created"} ${moment(shard.from)}`);
    if (shard.until) result.push(`closed ${moment(shard.until)}`);
    if (shard.parents.length) result.push(`from ${shard.parents.map(shardName).join(" and ")}`);
    if (i !== undefined) {
      const { leases, owners } = this.picture;
      result.push(`${leases.state[i]} · ${leases.owner[i] < 0 ? "nobody" : show(owners.id[leases.owner[i]])}`, `${lag(leases.lag[i])} behind · ${kbps(leases.kbps[i])}`);
    }
    return result;
  }

  hit(area, event) {
    const { offsetX: x, offsetY: y } = event;
    for (let n = area.boxes.length - 1; n >= 0; n -= 1) {
      const box = area.boxes[n];
      if (x >= box.x && x <= box.x + box.w && y >= box.y && y < box.y + Math.max(box.h, 1)) return box;
    }
    return null;
  }

  draw() {
    if (!this.stream || !this.picture || !this.lens.element.isConnected) return;
    const [from, until] = this.window();
    const open = this.current;
    setText(this.note, `${plural(open.length, "open shard")}, ${plural(this.stream.shards.length - open.length, "closed one")} · colour: lag now`);
    if (this.small) {
      this.paint(this.lens, 0, 1, from, until, Math.max(120, Math.min(560, open.length * 44)), true);
    } else {
      this.paint(this.overview, 0, 1, from, until, 230, false);
      const place = Math.max(0, open.findIndex((shard) => shard.id === this.chosen));
      const first = Math.max(0, Math.min(open.length - NEIGHBOURS, place - NEIGHBOURS / 2));
      const last = Math.min(open.length - 1, first + NEIGHBOURS - 1);
      this.paint(this.lens, open[first].start, open[last].start + open[last].width, from, until, 300, true);
    }
    this.drawRing();
    this.drawFacts();
    this.drawTable();
  }

  paint(area, low, high, from, until, height, labels) {
    const width = area.element.clientWidth;
    if (!width) return;
    const ratio = devicePixelRatio || 1;
    const { canvas } = area;
    const total = height + 24;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(total * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(total * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${total}px`;
    }
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, total);
    const colour = colours();
    const right = !labels ? 0 : width < NARROW ? 140 : 190;
    const plot = width - right;
    const x = (time) => Math.max(0, Math.min(plot, ((time - from) / (until - from)) * plot));
    const y = (part) => ((part - low) / (high - low)) * height;
    context.fillStyle = colour.unknown;
    context.fillRect(0, 0, plot, height);
    area.boxes = [];
    const worstAt = new Map(); // of each row of pixels, the worst shard is drawn last
    const visible = this.stream.shards.filter((shard) => shard.start < high && shard.start + shard.width > low && (shard.until ?? until) > from);
    visible.sort((a, b) => (this.lagOf(a.id) ?? -1) - (this.lagOf(b.id) ?? -1));
    const gap = labels ? 2 : height / Math.max(1, this.current.length) > 4 ? 1 : 0;
    for (const shard of visible) {
      const x0 = x(shard.from ?? from);
      const x1 = x(shard.until ?? until);
      const y0 = Math.max(0, y(shard.start));
      const y1 = Math.min(height, y(shard.start + shard.width));
      const step = shard.open ? lagStep(this.lagOf(shard.id)) : -2;
      const box = { x: x0, y: y0, w: Math.max(1, x1 - x0 - (labels ? 2 : 0)), h: Math.max(1, y1 - y0 - gap), shard };
      context.fillStyle = step === -2 ? colour.line : step < 0 ? colour.unknown : colour.heat[step];
      context.fillRect(box.x, box.y, box.w, box.h);
      area.boxes.push(box);
      if (labels) {
        context.font = `12px ${colour.mono}`;
        context.textBaseline = "middle";
        context.textAlign = "left";
        if (box.h >= 14 && box.w > 56) {
          context.fillStyle = step >= 0 ? colour.ink[step] : colour.dim;
          context.fillText(shardName(shard.id), box.x + 8, box.y + box.h / 2 + 0.5);
        }
        if (shard.open && y1 - y0 >= 11) {
          context.fillStyle = shard.id === this.chosen ? colour.text : colour.dim;
          context.font = `${shard.id === this.chosen ? "600 " : ""}12px ${colour.mono}`;
          context.fillText(`${shardName(shard.id)}  ${lag(this.lagOf(shard.id))}`, plot + 14, (y0 + y1) / 2);
        }
      }
    }
    if (labels) this.forks(context, colour, visible, x, y, height);
    const chosen = this.shards.get(this.chosen);
    if (chosen && chosen.start < high && chosen.start + chosen.width > low) {
      const y0 = Math.max(0, y(chosen.start));
      const y1 = Math.min(height, y(chosen.start + chosen.width));
      context.strokeStyle = colour.text;
      context.lineWidth = 2;
      const x0 = x(chosen.from ?? from);
      context.strokeRect(x0 + 1, Math.max(1, y0), Math.max(2, x(chosen.until ?? until) - x0 - 2), Math.max(2, Math.min(height - 1, y1) - Math.max(1, y0) - gap));
    }
    // The retention: what lies before it can no longer be read.
    if (this.stream.retention && until - this.stream.retention > from) {
      const edge = x(until - this.stream.retention);
      context.setLineDash([4, 4]);
      context.strokeStyle = colour.error;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(edge, 0);
      context.lineTo(edge, height);
      context.stroke();
      context.setLineDash([]);
    }
    context.font = `11px ${colour.font}`;
    context.fillStyle = colour.faint;
    context.textBaseline = "alphabetic";
    const span = until - from;
    const ticks = plot < NARROW / 2 ? 1 : plot < NARROW ? 2 : 4;
    for (let n = 0; n <= ticks; n += 1) {
      context.textAlign = n === 0 ? "left" : n === ticks ? "right" : "center";
      context.fillText(n === ticks ? "now" : `−${duration(Math.round((span * (ticks - n)) / ticks))}`, (plot * n) / ticks, height + 17);
    }
  }

  /** Where shards were split and merged: lines from each parent to its children. */
  forks(context, colour, visible, x, y, height) {
    context.lineWidth = 1.5;
    context.strokeStyle = colour.text;
    for (const shard of visible) {
      if (!shard.from) continue;
      for (const id of shard.parents) {
        const parent = this.shards.get(id);
        if (!parent) continue;
        const at = x(shard.from);
        if (at < 12) continue;
        const y0 = y(parent.start + parent.width / 2);
        const y1 = y(shard.start + shard.width / 2);
        if (y1 < 0 || y1 > height) continue;
        context.globalAlpha = 0.75;
        context.beginPath();
        context.moveTo(at - 12, y0);
        context.bezierCurveTo(at - 2, y0, at - 8, y1, at + 4, y1);
        context.stroke();
        context.globalAlpha = 1;
      }
    }
  }

  drawRing() {
    const size = 250;
    const ratio = devicePixelRatio || 1;
    const { ring } = this;
    if (ring.width !== size * ratio) {
      ring.width = size * ratio;
      ring.height = size * ratio;
      ring.style.width = `${size}px`;
      ring.style.height = `${size}px`;
      ring.style.margin = "4px auto";
    }
    const context = ring.getContext("2d");
    const colour = colours();
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, size, size);
    const middle = size / 2;
    const gap = this.current.length > 200 ? 0 : 0.008;
    const most = this.current.reduce((n, shard) => Math.max(n, this.rate(shard.id) ?? 0), 1);
    for (const shard of this.current) {
      const a = shard.start * 2 * Math.PI - Math.PI / 2;
      const b = (shard.start + shard.width) * 2 * Math.PI - Math.PI / 2;
      const step = lagStep(this.lagOf(shard.id));
      // The thickness is the throughput, the colour the lag.
      const outer = 84 + 34 * ((this.rate(shard.id) ?? most / 2) / most);
      context.beginPath();
      context.arc(middle, middle, outer, a + gap, b - gap);
      context.arc(middle, middle, 66, b - gap, a + gap, true);
      context.closePath();
      context.fillStyle = step < 0 ? colour.line : colour.heat[step];
      context.fill();
      if (shard.id === this.chosen) {
        context.strokeStyle = colour.text;
        context.lineWidth = 2;
        context.stroke();
      }
    }
    context.fillStyle = colour.text;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.font = `650 26px ${colour.font}`;
    context.fillText(count(this.current.length), middle, middle - 8);
    context.font = `12px ${colour.font}`;
    context.fillStyle = colour.dim;
    context.fillText(this.current.length === 1 ? "open shard" : "open shards", middle, middle + 14);
  }

  rate(id) {
    const i = this.byShard?.get(id);
    return i === undefined ? null : this.picture.leases.kbps[i];
  }

  drawFacts() {
    const reshards = this.stream.shards.filter((shard) => shard.parents.length && shard.from).map((shard) => shard.from);
    const last = reshards.length ? Math.max(...reshards) : null;
    const holes = this.stream.hole;
    const facts = [
      ["status", this.stream.status],
      ["mode", this.stream.mode],
      ["retention", this.stream.retention ? duration(this.stream.retention) : null],
      ["last reshard", last === null ? "none within the retention" : moment(last)],
      ["hash keys", holes ? "some are covered by no open shard" : "all covered"],
      ["narrowest", this.current.length ? `${(Math.min(...this.current.map((shard) => shard.width)) * 100).toFixed(3)} %` : null],
      ["widest", this.current.length ? `${(Math.max(...this.current.map((shard) => shard.width)) * 100).toFixed(3)} %` : null],
    ];
    const key = JSON.stringify(facts);
    if (key === this.factsKey && this.figures.isConnected) return;
    this.factsKey = key;
    put(this.figures, facts.filter(([, value]) => value).map(([name, value]) => [h("dt", null, name), h("dd", null, show(value))]));
  }

  table() {
    this.rows = new Map();
    this.limit = Math.min(this.current.length, 100);
    this.more = h("button", { type: "button", hidden: this.current.length <= 100, on: { click: () => {
      this.limit = Math.min(this.current.length, this.limit + 200);
      this.fillTable();
      this.drawTable();
    } } }, "Show more");
    put(this.body);
    this.fillTable();
    return h("div", null, h("div", { class: "scroll" }, h("table", null,
      h("thead", null, h("tr", null, [["Shard", ""], ["Share of keys", "num"], ["Since", ""], ["From", ""], ["Behind", ""], ["Owner", ""], ["Throughput", "num"]].map(([title, kind]) => h("th", { scope: "col", class: kind }, title)))),
      this.body)), h("div", { class: "pager" }, this.more));
  }

  fillTable() {
    for (const shard of this.current.slice(this.rows.size, this.limit)) {
      const row = { lag: lagChip(), owner: h("td", { class: "clip mono" }), rate: h("td", { class: "num" }) };
      this.rows.set(shard.id, row);
      const choose = () => {
        this.chosen = shard.id;
        this.draw();
      };
      this.body.append(h("tr", { class: "row", on: { click: choose } },
        h("td", null, h("button", { type: "button", class: "link mono", on: { click: () => this.open(shard.id) } }, shardName(shard.id))),
        h("td", { class: "num" }, `${(shard.width * 100).toFixed(shard.width < 0.01 ? 3 : 1)} %`),
        h("td", null, shard.from ? moment(shard.from) : "–"),
        h("td", { class: "mono" }, shard.parents.map(shardName).join(" + ") || "–"),
        h("td", null, row.lag.element), row.owner, row.rate));
    }
    this.more.hidden = this.limit >= this.current.length;
  }

  drawTable() {
    const { leases, owners } = this.picture;
    for (const [id, row] of this.rows) {
      const i = this.byShard.get(id);
      row.lag.set(i === undefined ? null : leases.lag[i]);
      setText(row.owner, i === undefined ? "no lease" : leases.owner[i] < 0 ? "nobody" : show(owners.id[leases.owner[i]]));
      setText(row.rate, kbps(i === undefined ? null : leases.kbps[i]));
    }
  }

  key(event) {
    const place = this.current.findIndex((shard) => shard.id === this.chosen);
    let next = null;
    if (event.key === "ArrowDown") next = Math.min(this.current.length - 1, place + 1);
    else if (event.key === "ArrowUp") next = Math.max(0, place - 1);
    else if (event.key === "Enter" && place >= 0) this.open(this.chosen);
    if (next === null) return;
    event.preventDefault();
    this.chosen = this.current[next].id;
    this.draw();
    announce(this.lines(this.current[next]).join(", "));
  }
}

export { clock };
