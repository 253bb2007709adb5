// The map of a fleet: a row for each owner, a square for each shard, on one canvas. Rows and squares keep their places.

import { announce, h, noTip, show, tip } from "./dom.js";
import { clock, duration, kbps, lag, middle, plural, shardName } from "./format.js";
import { SCALES, colours, lagStep } from "./heat.js";

const ROOMY = 19; // pixels of a row
const DENSE = 15; // of a row if there are many
const MANY_ROWS = 90;
const NARROW = 480; // pixels: there, the squares of an owner take several lines
const GAP = 2;
const COLUMN_GAP = 36;
const FEW = 12; // squares in a line for which a row gives up its sparkline
const MIN_SQUARE = 9;
const MAX_SQUARE = 26; // they are wider than high where there is room
const COUNT = 34;
const SPARK = 74;
const LAG = 86;
const RATE = 78;
const MOVED = 8; // seconds for which a moved lease is framed

const PROBLEM_STATES = new Set(["silent", "unowned", "unreadable", "no lease"]);

export class FleetMap {
  /**
   * @param {(lease: number) => void} onOpen Called with the row of the lease that was chosen.
   * @param onMark Called with keys of leases and whether they are chosen for a change; null if there are no changes.
   */
  constructor(onOpen, onMark = null) {
    Object.assign(this, { onOpen, onMark });
    this.marked = new Set(); // keys of leases
    this.canvas = h("canvas", {
      tabindex: "0",
      role: "application",
      "aria-roledescription": "map of shards by owner",
      "aria-label": `Shards by owner. Arrow keys move from shard to shard, Enter opens one${onMark ? ", Space chooses it for a change" : ""}. The table shows the same.`,
      on: {
        pointermove: (event) => this.hover(event),
        pointerleave: () => {
          this.pointed = -1;
          noTip();
          this.draw();
        },
        click: (event) => {
          const found = this.hit(event.offsetX, event.offsetY);
          if (found < 0) return;
          if (this.onMark && (event.ctrlKey || event.metaKey || event.shiftKey)) this.toggle(found);
          else this.choose(found);
        },
        keydown: (event) => this.key(event),
        focus: () => this.draw(),
        blur: () => this.draw(),
      },
    });
    this.element = h("div", { class: "map" }, this.canvas);
    this.picture = null;
    this.scale = "lag";
    this.order = "place";
    this.find = "";
    this.selected = null; // key of a lease
    this.pointed = -1;
    this.cells = [];
    this.rows = [];
    this.problems = new Set();
    this.moved = new Map();
    new ResizeObserver(() => this.layOut()).observe(this.element);
  }

  update(picture) {
    this.picture = picture;
    this.problems = new Set(picture.problems.map((problem) => problem.lease).filter(Boolean));
    this.moved = new Map(picture.moves.filter((move) => picture.head.at - move.at < MOVED).map((move) => [move.lease_key, move]));
    this.layOut();
  }

  set(options) {
    Object.assign(this, options);
    if (this.picture) this.layOut();
  }

  /** Rows by owner: leases nobody holds first, then owners in the order of the server, with a title for each group. */
  group() {
    const { leases, owners } = this.picture;
    const byOwner = owners.id.map(() => []);
    const nobody = [];
    leases.key.forEach((_, i) => {
      if (leases.state[i] === "finished") return;
      if (leases.owner[i] < 0) nobody.push(i);
      else byOwner[leases.owner[i]].push(i);
    });
    const rows = owners.id.map((id, n) => ({ owner: n, leases: byOwner[n] }));
    if (this.order === "worst") rows.sort((a, b) => (owners.lag[b.owner] ?? -1) - (owners.lag[a.owner] ?? -1) || a.owner - b.owner);
    const result = [];
    if (nobody.length) result.push({ owner: -1, leases: nobody });
    let group = null;
    for (const row of rows) {
      const own = owners.group[row.owner];
      if (this.order === "place" && own !== null && own !== group) result.push({ title: own });
      group = own;
      result.push(row);
    }
    return result;
  }

  label(row) {
    if (row.owner < 0) return "nobody";
    const { id, group } = this.picture.owners;
    const own = group[row.owner];
    return show(own !== null && this.order === "place" ? id[row.owner].slice(own.length + 1) : id[row.owner]);
  }

  layOut() {
    const width = this.element.clientWidth;
    if (!this.picture || !width) return;
    const context = this.canvas.getContext("2d");
    const colour = colours();
    const rows = this.group();
    context.font = `12px ${colour.mono}`;
    // Monospaced: one measurement serves all labels.
    const letter = context.measureText("0").width;
    const longest = rows.reduce((n, row) => Math.max(n, row.title ? 0 : this.label(row).length), 6);
    const labelWidth = Math.min(210, Math.ceil(Math.min(longest, 30) * letter) + 12);
    const most = rows.reduce((n, row) => Math.max(n, row.leases?.length ?? 0), 1);
    const fixed = labelWidth + COUNT + LAG + 12;
    const rowHeight = rows.length > MANY_ROWS || width < NARROW ? DENSE : ROOMY;
    this.rowHeight = rowHeight;
    // As many columns as the rows need, with sparklines if there is room.
    const cellsWanted = Math.min(most, 60);
    const needed = fixed + SPARK + cellsWanted * (MIN_SQUARE + 2 + GAP) + COLUMN_GAP;
    const wanted = Math.max(1, Math.ceil((rows.length * rowHeight) / 760));
    const columns = Math.max(1, Math.min(wanted, Math.floor((width + COLUMN_GAP) / needed)));
    const available = Math.floor((width - (columns - 1) * COLUMN_GAP) / columns);
    const showRate = columns === 1 && available - fixed - SPARK - RATE >= cellsWanted * (MIN_SQUARE + 2 + GAP);
    // A narrow screen shows the squares instead.
    const spark = available - fixed - SPARK >= FEW * (MIN_SQUARE + GAP) ? SPARK : 0;
    const beside = fixed + spark + (showRate ? RATE : 0);
    const square = Math.max(MIN_SQUARE, Math.min(MAX_SQUARE, Math.floor((available - beside) / cellsWanted) - GAP));
    const perLine = Math.max(4, Math.min(cellsWanted, Math.floor((available - beside) / (square + GAP))));
    // What belongs to a row stands right behind its squares.
    const columnWidth = beside + perLine * (square + GAP);
    for (const row of rows) row.lines = row.title ? 1 : Math.max(1, Math.ceil(row.leases.length / perLine));
    const total = rows.reduce((n, row) => n + row.lines, 0);
    const perColumn = Math.ceil(total / columns);
    let column = 0;
    let line = 0;
    let deepest = 0;
    this.cells = [];
    rows.forEach((row, index) => {
      const tied = row.title && rows[index + 1] ? 1 + rows[index + 1].lines : row.lines;
      if (line > 0 && line + Math.min(tied, 3) > perColumn + 1 && column < columns - 1) {
        column += 1;
        line = 0;
      }
      row.x = column * (columnWidth + COLUMN_GAP);
      row.y = 22 + line * rowHeight;
      line += row.lines;
      deepest = Math.max(deepest, line);
      (row.leases ?? []).forEach((lease, n) => {
        this.cells.push({
          lease,
          row: index,
          x: row.x + labelWidth + COUNT + (n % perLine) * (square + GAP),
          y: row.y + Math.floor(n / perLine) * rowHeight + Math.floor((rowHeight - Math.min(square, rowHeight - GAP)) / 2),
        });
      });
    });
    this.rows = rows;
    this.geometry = { width, columns, columnWidth, labelWidth, square, letter, showRate, spark, height: 22 + deepest * rowHeight + 6, tall: Math.min(square, rowHeight - GAP) };
    this.cellOf = new Map(this.cells.map((cell, n) => [cell.lease, n]));
    const ratio = devicePixelRatio || 1;
    const { height } = this.geometry;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${height}px`;
    }
    this.draw();
  }

  matches(lease) {
    if (!this.find) return true;
    const { leases, owners } = this.picture;
    const owner = leases.owner[lease] < 0 ? "nobody" : owners.id[leases.owner[lease]];
    return `${leases.key[lease]} ${shardName(leases.shard[lease])} ${owner}`.toLowerCase().includes(this.find);
  }

  draw() {
    if (!this.geometry || !this.picture) return;
    const { leases, owners } = this.picture;
    const context = this.canvas.getContext("2d");
    const colour = colours();
    const { width, height, columns, columnWidth, labelWidth, square, letter, showRate, spark, tall } = this.geometry;
    const rowHeight = this.rowHeight;
    const ratio = devicePixelRatio || 1;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.textBaseline = "middle";
    context.font = `11px ${colour.font}`;
    context.fillStyle = colour.faint;
    for (let column = 0; column < columns; column += 1) {
      const x = column * (columnWidth + COLUMN_GAP);
      const right = x + columnWidth;
      context.textAlign = "left";
      context.fillText("owner", x, 9);
      context.textAlign = "right";
      context.fillText("leases", x + labelWidth + COUNT - 10, 9);
      context.fillText("worst lag", right - (showRate ? RATE : 0), 9);
      if (showRate) context.fillText("throughput", right, 9);
      context.textAlign = "left";
      if (spark) context.fillText("10 min", right - LAG - SPARK - (showRate ? RATE : 0) + 8, 9);
    }
    context.font = `12px ${colour.mono}`;
    const fits = Math.floor((labelWidth - 10) / letter);
    for (const row of this.rows) {
      const y = row.y + rowHeight / 2;
      if (row.title !== undefined && !row.leases) {
        context.font = `600 11px ${colour.font}`;
        context.fillStyle = colour.dim;
        context.textAlign = "left";
        context.fillText(show(row.title), row.x, y + 1);
        context.font = `12px ${colour.mono}`;
        continue;
      }
      const silent = row.owner >= 0 && owners.silent[row.owner] !== null;
      const label = this.label(row);
      context.textAlign = "left";
      context.fillStyle = row.owner < 0 || silent ? colour.error : colour.text;
      context.fillText(middle(label, fits), row.x, y);
      context.textAlign = "right";
      context.fillStyle = colour.dim;
      context.fillText(String(row.leases.length), row.x + labelWidth + COUNT - 10, y);
      const right = row.x + columnWidth - (showRate ? RATE : 0);
      const worst = row.owner < 0 ? row.leases.reduce((n, i) => Math.max(n, leases.lag[i] ?? -1), -1) : owners.lag[row.owner];
      context.fillStyle = worst >= 60000 ? colour.text : colour.dim;
      if (silent) {
        context.fillStyle = colour.error;
        context.fillText(`silent ${duration(owners.silent[row.owner])}`, right, y);
      } else if (row.leases.length) context.fillText(lag(worst < 0 ? null : worst), right, y);
      else if (row.owner >= 0) context.fillText(owners.draining[row.owner] ? "draining" : owners.standby[row.owner] ? "standby" : "idle", right, y);
      if (showRate && row.owner >= 0) {
        context.fillStyle = colour.dim;
        context.fillText(kbps(owners.kbps[row.owner]), row.x + columnWidth, y);
      }
      if (row.owner >= 0 && spark) this.spark(context, owners.trend[row.owner], right - LAG - SPARK + 8, row.y + 3, SPARK - 14, rowHeight - 7, colour);
    }
    const scale = SCALES[this.scale];
    const active = document.activeElement === this.canvas;
    for (const cell of this.cells) {
      const i = cell.lease;
      const step = scale.step(leases, i);
      context.globalAlpha = this.matches(i) ? 1 : 0.12;
      context.fillStyle = step < 0 ? colour.unknown : colour.heat[step];
      context.fillRect(cell.x, cell.y, square, tall);
      const state = leases.state[i];
      const ink = step < 0 ? colour.dim : colour.ink[step];
      if (PROBLEM_STATES.has(state)) {
        const middle = cell.x + square / 2;
        const reach = Math.min(square, tall) / 2 - 2;
        stroke(context, ink, 1.3, middle - reach, cell.y + tall / 2 + reach, middle + reach, cell.y + tall / 2 - reach);
      } else if (state === "handoff") {
        context.fillStyle = ink;
        context.beginPath();
        context.moveTo(cell.x + square, cell.y);
        context.lineTo(cell.x + square, cell.y + tall * 0.6);
        context.lineTo(cell.x + square * 0.4, cell.y);
        context.fill();
      } else if (state === "waiting for parents") {
        context.fillStyle = ink;
        context.fillRect(cell.x + square / 2 - 3, cell.y + tall / 2 - 1, 2, 2);
        context.fillRect(cell.x + square / 2 + 1, cell.y + tall / 2 - 1, 2, 2);
      }
      if (this.problems.has(leases.key[i])) {
        const [x, y, reach] = [cell.x + square / 2, cell.y + tall / 2, Math.min(square, tall) / 2 - 2.5];
        stroke(context, ink, 1.7, x - reach, y - reach, x + reach, y + reach);
        stroke(context, ink, 1.7, x - reach, y + reach, x + reach, y - reach);
      }
      if (this.moved.has(leases.key[i])) {
        context.strokeStyle = colour.accent;
        context.lineWidth = 1.5;
        context.strokeRect(cell.x - 0.75, cell.y - 0.75, square + 1.5, tall + 1.5);
      }
      if (this.marked.has(leases.key[i])) {
        context.strokeStyle = colour.text;
        context.lineWidth = 2;
        context.setLineDash([3, 2]);
        context.strokeRect(cell.x - 0.5, cell.y - 0.5, square + 1, tall + 1);
        context.setLineDash([]);
      }
      context.globalAlpha = 1;
    }
    for (const [lease, weight] of [[this.keyIndex(), 2.5], [this.pointed, 1.5]]) {
      const cell = this.cells[this.cellOf.get(lease)];
      if (!cell) continue;
      context.strokeStyle = colour.text;
      context.lineWidth = weight;
      context.strokeRect(cell.x - 1.5, cell.y - 1.5, square + 3, tall + 3);
      if (active && lease === this.keyIndex()) {
        context.strokeStyle = colour.accent;
        context.lineWidth = 2;
        context.strokeRect(cell.x - 4, cell.y - 4, square + 8, tall + 8);
      }
    }
  }

  spark(context, trend, x, y, width, height, colour) {
    if (!trend || trend.length < 2) {
      context.fillStyle = colour.line; // something will be here
      context.fillRect(x, Math.round(y + height), width, 1);
      return;
    }
    // One scale for all rows, in the steps of the legend, so that rows can be compared.
    const at = (value) => y + height - (Math.log10(1 + Math.max(0, value) / 500) / 5.3) * height;
    context.strokeStyle = colour.dim;
    context.lineWidth = 1.2;
    context.beginPath();
    let pen = false;
    trend.forEach((value, n) => {
      if (value === null) {
        pen = false;
        return;
      }
      const px = x + ((n + 60 - trend.length) / 59) * width;
      if (pen) context.lineTo(px, at(value));
      else context.moveTo(px, at(value));
      pen = true;
    });
    context.stroke();
    const last = trend[trend.length - 1];
    const step = lagStep(last);
    if (step >= 2) {
      context.fillStyle = colour.heat[step];
      context.beginPath();
      context.arc(x + width, at(last), 2.2, 0, 7);
      context.fill();
    }
  }

  keyIndex() {
    return this.selected === null ? -1 : this.picture.leases.key.indexOf(this.selected);
  }

  hit(x, y) {
    const { square } = this.geometry ?? {};
    if (!square) return -1;
    for (const cell of this.cells) {
      if (x >= cell.x - 1 && x < cell.x + square + 1 && y >= cell.y - 2 && y < cell.y + this.rowHeight - 2) return cell.lease;
    }
    return -1;
  }

  hover(event) {
    const found = this.hit(event.offsetX, event.offsetY);
    this.canvas.style.cursor = found >= 0 ? "pointer" : "default";
    if (found >= 0) tip(event.clientX, event.clientY, this.lines(found));
    else noTip();
    if (found !== this.pointed) {
      this.pointed = found;
      this.draw();
    }
  }

  /** What is said of a lease, beside the pointer and to screen readers. */
  lines(i) {
    const { leases, owners } = this.picture;
    const owner = leases.owner[i] < 0 ? "nobody" : show(owners.id[leases.owner[i]]);
    const result = [`shard ${shardName(leases.shard[i])} · ${leases.state[i]}`, `owner ${owner}`, `${lag(leases.lag[i])} behind · ${kbps(leases.kbps[i])}`];
    if (leases.left[i] !== null && leases.lag[i] > 60000) result.push(`records are lost in ${duration(leases.left[i])}`);
    if (leases.handler[i] > 10) result.push(`the handler runs for ${duration(leases.handler[i])}`);
    if (leases.next[i]) result.push(`goes to ${show(leases.next[i])}`);
    if (leases.note[i]) result.push(show(leases.note[i]));
    const move = this.moved.get(leases.key[i]);
    if (move) result.push(`moved at ${clock(move.at)}: ${move.reason}`);
    for (const problem of this.picture.problems) if (problem.lease === leases.key[i]) result.push(`${problem.severity}: ${problem.title}`);
    return result;
  }

  choose(lease) {
    this.selected = this.picture.leases.key[lease];
    this.draw();
    this.onOpen(lease);
  }

  toggle(lease) {
    const key = this.picture.leases.key[lease];
    this.onMark([key], !this.marked.has(key));
  }

  key(event) {
    if (!this.cells.length) return;
    const now = this.cellOf.get(this.keyIndex());
    const cell = this.cells[now];
    let next = null;
    if (event.key === " " && cell && this.onMark) {
      this.toggle(cell.lease);
      event.preventDefault();
      return;
    }
    if (event.key === "Enter" && cell) {
      this.onOpen(cell.lease, true);
      event.preventDefault();
      return;
    }
    if (event.key === "ArrowRight") next = now === undefined ? 0 : Math.min(this.cells.length - 1, now + 1);
    else if (event.key === "ArrowLeft") next = now === undefined ? 0 : Math.max(0, now - 1);
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") next = now === undefined ? 0 : this.across(cell, event.key === "ArrowDown");
    else if (event.key === "Home") next = 0;
    else if (event.key === "End") next = this.cells.length - 1;
    if (next === null) return;
    event.preventDefault();
    this.choose(this.cells[next].lease);
    announce(this.lines(this.cells[next].lease).join(", "));
  }

  /** The cell nearest to the same place in the next row that has one. */
  across(cell, down) {
    const place = this.cells.indexOf(cell);
    const others = this.cells.map((other, n) => [other, n]).filter(([other]) => (down ? other.row > cell.row : other.row < cell.row));
    if (!others.length) return place;
    const row = down ? others[0][0].row : others[others.length - 1][0].row;
    return others.filter(([other]) => other.row === row).reduce((best, other) => (Math.abs(other[0].x - cell.x) < Math.abs(best[0].x - cell.x) ? other : best))[1];
  }
}

function stroke(context, colour, width, x1, y1, x2, y2) {
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.stroke();
}

/** The legend of a map: the colours of a scale, and the signs that do not need colour. */
export function legend(scaleName, signs = true) {
  const scale = SCALES[scaleName];
  return h("div", { class: "legend" },
    scale.names.map((name, step) => h("span", null, h("i", { class: `swatch heat-${step}` }), name)),
    h("span", null, h("i", { class: "swatch unknown" }), "not known"),
    signs ? [
      h("span", null, h("i", { class: "swatch slash" }), "not renewed"),
      h("span", null, h("i", { class: "swatch cross" }), "problem"),
      h("span", null, h("i", { class: "swatch moved" }), "just moved"),
      h("span", null, h("i", { class: "swatch marked" }), "chosen"),
    ] : null);
}

export const summary = (picture) => `${plural(picture.head.totals.leases, "shard")} by ${plural(picture.owners.id.length, "owner")}`;
