// One shard: what is the case, who owned it, how its lag and checkpoint moved, its records, and what can be changed.

import { announce, card, command, copyButton, empty, h, noTip, put, s, setText, show, tip } from "./dom.js";
import { clock, count, duration, kbps, lag, middle, moment, plural, shardName } from "./format.js";
import { get, query } from "./api.js";
import { colours, lagStep } from "./heat.js";
import { onTheme } from "./theme.js";
import { Records } from "./records.js";
import { shardChange } from "./steering.js";

const SPANS = [["10 min", 600], ["1 h", 3600], ["6 h", 21600]];

export class ShardView {
  constructor(app, key) {
    this.app = app;
    this.key = key;
    const span = Number(app.route.more.get("span"));
    this.span = SPANS.some(([, value]) => value === span) ? span : 600;
    this.heading = h("h1", null, "");
    this.sub = h("span", { class: "dim" });
    this.problems = h("ul", { class: "problems" });
    this.failing = h("dl", { class: "facts" });
    this.openRecord = h("button", { type: "button", class: "primary", on: { click: () => this.records.open(this.detail.lease.failing.position.sequence_number) } }, "Open the record");
    const ask = (name, operation, to) => h("button", { type: "button", class: "steers", on: { click: () => this.steering?.propose(operation, to?.() ?? "") } }, name);
    this.retry = ask("Retry now", "retry");
    this.skipRecord = ask("Skip this record", "skip-record");
    this.rewind = ask("Rewind to it", "rewind", () => `at:${positionText(this.detail.lease.failing.position)}`);
    this.failingCommands = h("dl", { class: "facts commands" });
    this.failingCard = h("section", { class: "card", "aria-label": "Failing handler", hidden: true },
      h("header", null, h("h2", null, "The handler fails"), h("span", { class: "tools" }, this.retry, this.skipRecord, this.rewind, this.openRecord)),
      this.failing, h("details", null, h("summary", { class: "note" }, "the same as commands"), this.failingCommands));
    this.problemCard = h("section", { class: "card", "aria-label": "Problems of this shard", hidden: true }, this.problems);
    this.facts = h("dl", { class: "facts" });
    this.canvas = h("canvas", { role: "img", "aria-label": "Owners, lag and checkpoints of this shard over time; the tables below say the same" });
    this.holder = h("div", { class: "map" }, this.canvas);
    this.spans = h("span", { class: "group", role: "group", "aria-label": "Time shown" }, SPANS.map(([name, value]) => h("button", { type: "button", "aria-pressed": String(value === this.span), data: { span: value }, on: { click: () => this.choose(value) } }, name)));
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", noTip);
    this.canvas.addEventListener("click", (event) => {
      const time = this.timeAt(event);
      if (time !== null) app.setAt(Math.floor(time));
    });
    this.historyTable = h("details", { on: { toggle: () => this.detail && this.drawHistory() } }, h("summary", { class: "note" }, "the same as a table"), h("div"));
    this.stopTheme = onTheme(() => this.draw());
    this.resize = new ResizeObserver(() => this.draw());
  }

  mount(main) {
    this.main = main;
    put(main, h("p", { class: "quiet", role: "status" }, "Reading the lease …"));
    this.built = false;
  }

  build(lease) {
    this.built = true;
    const stream = lease.stream ? lease.stream.split(":")[1] : this.picture.head.streams[0] ?? this.app.session.stream;
    this.records = new Records({ stream, shard: lease.shard_id, lease: () => this.detail.lease, retention: () => this.picture.head.retention, onChange: this.app.session.hasPlanner ? (operation, to) => this.steering.propose(operation, to) : null });
    this.steering = this.app.session.hasPlanner ? shardChange(this.app, this.key) : null;
    put(this.main,
      h("div", { class: "title" }, h("h1", null, `Shard ${shardName(lease.shard_id)}`), this.sub),
      this.problemCard,
      this.failingCard,
      h("div", { class: "split" },
        h("div", null,
          h("section", { class: "card", "aria-label": "Timeline" }, h("header", null, h("h2", null, "Timeline"), h("span", { class: "note" }, "what was recorded; empty where nothing looked. A click goes to a moment"), h("span", { class: "tools" }, this.spans)), this.holder, this.historyTable),
          this.records.element),
        h("div", { class: "side" }, card("Lease", "", this.facts), this.steering?.element)));
    this.resize.observe(this.holder);
  }

  close() {
    this.closed = true;
    this.stopTheme();
    this.resize.disconnect();
    this.steering?.close();
    noTip();
  }

  async update(picture) {
    this.picture = picture;
    if (this.loading) {
      this.again = true;
      return;
    }
    this.loading = true;
    this.again = false;
    try {
      const detail = await get(`/api/applications/${encodeURIComponent(this.app.route.application)}/lease?${query({ key: this.key ?? "", span: this.span, ...(this.app.at === null ? {} : { at: this.app.at }) })}`);
      if (this.closed) return;
      this.detail = detail;
      if (!this.built) this.build(detail.lease);
      this.render();
    } catch (error) {
      if (this.closed || error.code === "disconnected") return;
      if (!this.built || error.status === 404) {
        this.built = false;
        put(this.main, empty(`There is no lease ${show(this.key ?? "")}`, "Its row was deleted, or the address is wrong. Rows of finished shards are deleted once their records have expired.", h("p", null, h("a", { class: "link", href: `#/fleet/${encodeURIComponent(this.app.route.application)}` }, "Back to the fleet"))));
      }
    } finally {
      this.loading = false;
    }
    // The moment or the span was changed meanwhile.
    if (this.again && !this.closed) this.update(this.picture);
  }

  choose(span) {
    this.span = span;
    for (const button of this.spans.children) button.setAttribute("aria-pressed", String(Number(button.dataset.span) === span));
    this.draw();
    if (this.picture) this.update(this.picture);
  }

  /** What a link keeps besides the moment. */
  state() {
    return this.span === 600 ? {} : { span: this.span };
  }

  render() {
    const { lease } = this.detail;
    setText(this.sub, `${lease.state} · ${lease.owner ? show(lease.owner) : "nobody"}${lease.lag ? ` · ${lag(lease.lag.millis)} behind` : ""}`);
    const own = this.picture.problems.filter((problem) => problem.lease === this.key);
    const problemKey = JSON.stringify(own);
    if (problemKey !== this.problemKey) {
      this.problemKey = problemKey;
      this.problemCard.hidden = !own.length;
      put(this.problems, own.map((problem) => h("li", { class: problem.severity === "error" ? "error-line" : "warning-line" },
        h("span", { class: "sign", "aria-label": problem.severity }, problem.severity === "error" ? "✕" : "!"), h("span", { class: "name" }, problem.title),
        h("span", { class: "what" }, show(problem.text)), h("span", { class: "remedy" }, h("span", null, show(problem.remedy)), problem.command ? command(problem.command) : null))));
    }
    this.renderFailing(lease.failing);
    const position = lease.checkpoint;
    const full = position ? position.sequence_number : null;
    const facts = [
      ["shard", show(lease.shard_id)],
      ["lease", lease.lease_key === lease.shard_id ? null : show(lease.lease_key)],
      ["state", lease.state],
      ["owner", lease.owner ? `${show(lease.owner)}${lease.kind ? ` · ${lease.kind}` : ""}` : "nobody"],
      ["next owner", lease.next_owner ? show(lease.next_owner) : null],
      ["pinned to", lease.pinned_to ? show(lease.pinned_to) : null],
      ["behind", lease.lag ? `${lag(lease.lag.millis)}, measured ${duration(lease.lag.age)} ago ${lease.lag.source === "progress" ? "by its owner" : "by a read"}` : `not measured${lease.lag_note ? `: ${show(lease.lag_note)}` : ""}`],
      ["lost in", lease.retention_left === null ? null : lease.retention_left <= 0 ? "records are being lost" : duration(lease.retention_left)],
      ["handler", lease.handler_seconds ? `runs for ${duration(lease.handler_seconds)}` : null],
      ["checkpoint", full ? h("span", null, h("code", { title: full }, full.length > 20 ? `…${full.slice(-14)}` : full), position.sub_sequence_number ? ` / ${position.sub_sequence_number} ` : " ", copyButton(full)) : "none"],
      ["stored", lease.checkpointed_ago === null ? "not changed since this console watches" : `${duration(lease.checkpointed_ago)} ago`],
      ["renewed", lease.renewed_ago === null ? "not seen yet" : `${duration(lease.renewed_ago)} ago, counter ${count(lease.counter)}`],
      ["throughput", kbps(lease.throughput_kbps)],
      ["parents", lease.parents.length ? lease.parents.map(shardName).join(", ") : null],
      ["children", lease.children.length ? lease.children.map(shardName).join(", ") : null],
      ["attributes", lease.other_attributes.length ? lease.other_attributes.map(show).join(", ") : null],
      ["note", lease.note ? show(lease.note) : null],
    ];
    const focused = this.facts.contains(document.activeElement);
    if (!focused) put(this.facts, facts.filter(([, value]) => value !== null && value !== undefined).map(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
    this.steering?.update(this.picture);
    this.draw();
    this.drawHistory();
  }

  /** What a failing handler fails on, and when it is called next. */
  renderFailing(failing) {
    this.failingCard.hidden = !failing;
    if (!failing) return;
    const { position, records } = failing;
    const at = positionText(position);
    this.openRecord.hidden = !at;
    this.rewind.hidden = !at || !this.steering;
    this.retry.hidden = !this.steering;
    this.skipRecord.hidden = records !== 1 || !this.steering;
    const actions = this.picture.problems.find((problem) => problem.lease === this.key && problem.code === "handler-fails")?.actions ?? [];
    this.failingCommands.parentNode.hidden = !actions.length;
    if (!this.failingCommands.contains(document.activeElement)) put(this.failingCommands, actions.map(([title, line]) => [h("dt", null, title), h("dd", null, command(line))]));
    const facts = [
      ["failing for", duration(failing.seconds)],
      ["failed calls", count(failing.attempts)],
      ["error", h("code", { class: "wrap" }, show(failing.error))],
      [records === 1 ? "record" : `${count(records)} records from`, at ? h("span", null, h("code", { class: "wrap" }, at), " ", copyButton(`at:${at}`)) : null],
      ["next call", failing.retry_in < 1 ? "now" : `in ${duration(failing.retry_in)}`],
    ];
    if (!this.failing.contains(document.activeElement)) put(this.failing, facts.filter(([, value]) => value !== null).map(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
  }

  drawHistory() {
    if (!this.historyTable.open) return;
    const { owners } = this.detail.history;
    put(this.historyTable.lastChild, h("table", null,
      h("thead", null, h("tr", null, ["From", "Until", "Owner", "State"].map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", null, [...owners].reverse().slice(0, 50).map((span) => h("tr", null, h("td", null, clock(span.start)), h("td", null, clock(span.end)), h("td", { class: "mono wrap" }, span.owner === null ? "nobody" : show(span.owner)), h("td", null, span.state))))));
  }

  draw() {
    const width = this.holder.clientWidth;
    if (!this.detail || !width) return;
    const { history, at, lease } = this.detail;
    const height = 246;
    const ratio = devicePixelRatio || 1;
    const { canvas } = this;
    if (canvas.width !== Math.round(width * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    const context = canvas.getContext("2d");
    const colour = colours();
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const left = 78;
    const plot = width - left - 8;
    const from = at - this.span;
    const x = (time) => left + Math.max(0, Math.min(1, (time - from) / this.span)) * plot;
    this.geometry = { left, plot, from };
    context.textBaseline = "middle";
    context.font = `11.5px ${colour.font}`;
    context.fillStyle = colour.faint;
    context.textAlign = "left";
    context.fillText("owner", 0, 17);
    context.fillText("behind", 0, 44);
    context.fillText("checkpoint", 0, 210);
    // Owners
    context.fillStyle = colour.unknown;
    context.fillRect(left, 4, plot, 26);
    const names = [...new Set(history.owners.map((span) => span.owner))];
    context.font = `12px ${colour.mono}`;
    const letter = context.measureText("0").width; // monospaced
    for (const span of history.owners) {
      if (span.end < from) continue;
      const x0 = x(span.start);
      const w = Math.max(1, x(span.end) - x0 - 1);
      const place = names.indexOf(span.owner) % colour.owners.length;
      context.fillStyle = span.owner === null ? colour.line : colour.owners[place];
      context.fillRect(x0, 4, w, 26);
      if (span.state === "silent" || span.owner === null) hatch(context, x0, 4, w, 26, span.owner === null ? colour.faint : "#ffffff");
      if (w > 46) {
        context.save();
        context.beginPath();
        context.rect(x0, 4, w - 4, 26);
        context.clip();
        context.fillStyle = span.owner === null ? colour.text : "#ffffff";
        context.fillText(middle(span.owner === null ? "nobody" : show(span.owner), Math.max(3, Math.floor((w - 14) / letter))), x0 + 7, 17.5);
        context.restore();
      }
    }
    // Lag: a logarithmic scale, with the colours of the legend
    const top = 54;
    const bottom = 172;
    const retention = this.picture.head.retention;
    const most = Math.max(60, ...history.samples.map((sample) => (sample.lag_millis ?? 0) / 1000), 0) * 1.6;
    const ceiling = Math.log10(1 + most);
    const y = (millis) => bottom - (Math.log10(1 + millis / 1000) / ceiling) * (bottom - top);
    context.font = `11px ${colour.font}`;
    for (const seconds of [0, 1, 10, 60, 600, 3600, 21600, 86400, 604800]) {
      if (seconds > most) break;
      const level = y(seconds * 1000);
      context.strokeStyle = colour.line;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(left, Math.round(level) + 0.5);
      context.lineTo(left + plot, Math.round(level) + 0.5);
      context.stroke();
      context.fillStyle = colour.faint;
      context.textAlign = "right";
      context.fillText(duration(seconds), left - 8, level);
    }
    if (retention && retention < most) {
      const level = y(retention * 1000);
      context.strokeStyle = colour.error;
      context.setLineDash([5, 4]);
      context.beginPath();
      context.moveTo(left, level);
      context.lineTo(left + plot, level);
      context.stroke();
      context.setLineDash([]);
      context.fillStyle = colour.error;
      context.textAlign = "left";
      context.fillText("retention: records are lost above", left + 6, level - 8);
    }
    const samples = history.samples.filter((sample) => sample.at >= from - 20);
    for (let n = 1; n < samples.length; n += 1) {
      const [a, b] = [samples[n - 1], samples[n]];
      if (b.at - a.at > 60) continue;
      context.beginPath();
      if (a.lag_millis === null || b.lag_millis === null) continue;
      context.strokeStyle = lagStep(b.lag_millis) >= 2 ? colour.heat[lagStep(b.lag_millis)] : colour.accent;
      context.lineWidth = 2;
      context.moveTo(x(a.at), y(a.lag_millis));
      context.lineTo(x(b.at), y(b.lag_millis));
      context.stroke();
    }
    if (lease.lag) {
      context.fillStyle = lagStep(lease.lag.millis) >= 2 ? colour.heat[lagStep(lease.lag.millis)] : colour.accent;
      context.beginPath();
      context.arc(x(at), y(lease.lag.millis), 3.5, 0, 7);
      context.fill();
    }
    // Checkpoints: a mark for each sample in which the position had moved, a line where it stayed
    context.fillStyle = colour.line;
    context.fillRect(left, 209, plot, 2);
    let stuck = null;
    for (let n = 1; n < samples.length; n += 1) {
      const moved = samples[n].checkpoint !== samples[n - 1].checkpoint;
      if (moved) {
        context.fillStyle = colour.accent;
        context.fillRect(x(samples[n].at) - 1, 201, 2, 18);
      } else stuck = samples[n];
    }
    if (!samples.length || (samples.length === 1 && !stuck)) {
      context.fillStyle = colour.faint;
      context.textAlign = "left";
      context.fillText("nothing was recorded: a sample every 10 s", left + 8, 190);
    }
    context.font = `11px ${colour.font}`;
    context.fillStyle = colour.faint;
    context.textBaseline = "alphabetic";
    // On a narrow screen the texts would overprint each other.
    for (let n = 0; n <= 4; n += plot < 360 ? 4 : plot < 480 ? 2 : 1) {
      context.textAlign = n === 0 ? "left" : n === 4 ? "right" : "center";
      const ago = (this.span * (4 - n)) / 4;
      context.fillText(n === 4 ? this.app.at === null ? `now, ${clock(at)}` : clock(at) : `−${duration(ago)}`, left + (plot * n) / 4, height - 4);
    }
  }

  /** The moment below the pointer; null beside the plot. */
  timeAt(event) {
    if (!this.detail || !this.geometry) return null;
    const { left, plot, from } = this.geometry;
    return event.offsetX < left ? null : from + Math.min(1, (event.offsetX - left) / plot) * this.span;
  }

  hover(event) {
    const time = this.timeAt(event);
    if (time === null) {
      noTip();
      return;
    }
    const { owners, samples } = this.detail.history;
    const span = owners.find((one) => one.start <= time && time <= one.end);
    const sample = samples.filter((one) => Math.abs(one.at - time) <= 15).sort((a, b) => Math.abs(a.at - time) - Math.abs(b.at - time))[0];
    tip(event.clientX, event.clientY, [clock(time),
      span ? `${span.owner === null ? "nobody" : show(span.owner)} · ${span.state}` : "not observed",
      sample ? `${lag(sample.lag_millis)} behind` : "lag not measured",
      sample?.checkpoint ? `checkpoint …${sample.checkpoint.slice(-14)}` : ""].filter(Boolean));
  }
}

const positionText = (position) => (position ? `${position.sequence_number}/${position.sub_sequence_number}` : null);

function hatch(context, x, y, w, h2, colour) {
  context.save();
  context.beginPath();
  context.rect(x, y, w, h2);
  context.clip();
  context.strokeStyle = colour;
  context.globalAlpha = 0.45;
  context.lineWidth = 1;
  context.beginPath();
  for (let n = -h2; n < w; n += 7) {
    context.moveTo(x + n, y + h2);
    context.lineTo(x + n + h2, y);
  }
  context.stroke();
  context.restore();
}
