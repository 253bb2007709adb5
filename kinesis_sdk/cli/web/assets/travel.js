// The line of time above the views: how the application went, a slider to any moment of it, and what to hand on to others.

import { announce, h, setClass, setText } from "./dom.js";
import { clock, duration, lag, moment } from "./format.js";
import { get, query } from "./api.js";
import { colours, lagStep } from "./heat.js";
import { onTheme } from "./theme.js";

const SPANS = [["1 h", 3600], ["6 h", 21600], ["24 h", 86400], ["7 d", 604800]];
const HEIGHT = 30;
const REFRESH = 10000; // milliseconds between two courses

export class Travel {
  /**
   * @param app Has `at`, the moment that is shown or null for now, and `setAt`.
   */
  constructor(app) {
    this.app = app;
    this.course = null;
    this.when = h("b");
    this.note = h("span", { class: "note" });
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.slider = h("input", { type: "range", step: 1, "aria-label": "Moment that is shown", on: { input: () => this.slide() } });
    this.track = h("div", { class: "track" }, this.canvas, this.slider);
    this.span = h("select", { "aria-label": "Time of the slider", on: { change: () => this.load() } }, SPANS.map(([name, value]) => h("option", { value }, name)));
    this.now = h("button", { type: "button", on: { click: () => app.setAt(null) } }, "Now");
    this.link = h("button", { type: "button", title: "An address with this moment, view and selection", on: { click: () => this.copy(this.link, () => app.address()) } }, "Copy link");
    this.report = h("button", { type: "button", title: "What is wrong, which shards, what moved: Markdown to paste into an incident", on: { click: () => this.copy(this.report, () => this.write()) } }, "Copy as report");
    this.element = h("section", { class: "past", "aria-label": "Time" },
      h("div", { class: "when" }, this.when, this.note),
      this.track,
      h("div", { class: "tools" }, this.span, this.now, this.link, this.report));
    this.stopTheme = onTheme(() => this.draw());
    this.resize = new ResizeObserver(() => this.draw());
    this.resize.observe(this.track);
    this.timer = setInterval(() => document.hidden || this.load(), REFRESH);
  }

  close() {
    this.closed = true;
    this.stopTheme();
    this.resize.disconnect();
    clearInterval(this.timer);
  }

  async load() {
    const { application } = this.app.route;
    if (!application || this.closed) return;
    const span = Number(this.span.value);
    const { at } = this.app;
    // A moment before the span stands in its middle.
    const end = at !== null && this.app.newest() !== null && at < this.app.newest() - span ? { at: (at + span / 2).toFixed(0) } : {};
    let course;
    try {
      course = await get(`/api/applications/${encodeURIComponent(application)}/course?${query({ span, ...end })}`);
    } catch {
      return; // the page says by itself that the console does not respond
    }
    if (this.closed || application !== this.app.route.application) return;
    this.course = course;
    this.slider.min = Math.ceil(course.start);
    this.slider.max = Math.floor(course.end);
    this.draw();
  }

  slide() {
    const value = Number(this.slider.value);
    this.app.setAt(this.isEnd(value) ? null : value);
  }

  /** Whether a moment is the end of the slider, which means now. */
  isEnd(value) {
    const newest = this.app.newest();
    return value >= Number(this.slider.max) && (newest === null || newest - value < 60);
  }

  draw() {
    const { at } = this.app;
    setText(this.when, at === null ? "Now" : moment(at));
    const newest = this.app.newest();
    const ago = at !== null && newest !== null ? `${duration(Math.max(0, Math.round(newest - at)))} before now` : "";
    setText(this.note, this.message || (at === null ? this.reach() : ago));
    setClass(this.element, "travelling", at !== null);
    this.now.disabled = at === null;
    this.slider.value = at ?? this.slider.max;
    this.slider.setAttribute("aria-valuetext", at === null ? "now" : clock(at));
    this.paint();
  }

  /** How far back the recording reaches. */
  reach() {
    const first = this.course?.first;
    const newest = this.app.newest();
    return first && newest ? `recorded for ${duration(Math.max(0, Math.round(newest - first)))}` : "";
  }

  paint() {
    const width = this.track.clientWidth;
    if (!width) return;
    const ratio = devicePixelRatio || 1;
    const { canvas, course } = this;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(HEIGHT * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${HEIGHT}px`;
    const context = canvas.getContext("2d");
    const colour = colours();
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, HEIGHT);
    if (!course) return;
    const edge = 8; // half of the slider's thumb
    const x = (time) => edge + ((time - course.start) / (course.end - course.start)) * (width - 2 * edge);
    context.fillStyle = colour.unknown;
    context.fillRect(edge, 0, width - 2 * edge, HEIGHT);
    const most = Math.log10(1 + Math.max(60, ...course.steps.map((step) => (step.worst_lag_millis ?? 0) / 1000)) * 1.3);
    for (const step of course.steps) {
      const left = x(step.at);
      const wide = Math.max(1, x(step.at + course.step) - left + 0.5);
      const value = step.worst_lag_millis;
      if (value === null) {
        context.fillStyle = colour.line;
        context.fillRect(left, HEIGHT - 2, wide, 2);
      } else {
        const high = 2 + (Math.log10(1 + value / 1000) / most) * (HEIGHT - 10);
        context.fillStyle = colour.heat[lagStep(value)];
        context.fillRect(left, HEIGHT - high, wide, high);
      }
    }
    for (const step of course.steps) {
      const middle = x(step.at + course.step / 2);
      if (step.moves) {
        context.fillStyle = colour.accent;
        context.fillRect(middle - 1, 0, 2, 5);
      }
      if (step.problems) {
        context.fillStyle = colour.error;
        context.beginPath();
        context.moveTo(middle - 4, 0);
        context.lineTo(middle + 4, 0);
        context.lineTo(middle, 7);
        context.fill();
      }
    }
    this.track.title = `Worst lag (${lag(Math.max(0, ...course.steps.map((step) => step.worst_lag_millis ?? 0)))} at most), moves as strokes, errors that began as triangles; empty where nothing looked`;
  }

  /** Say something about the moment, or nothing. */
  say(message) {
    this.message = message;
    this.draw();
    if (message) announce(message);
  }

  async write() {
    const { application } = this.app.route;
    const values = new URLSearchParams({ link: this.app.address() });
    if (this.app.at !== null) values.set("at", this.app.at);
    for (const key of this.app.chosen()) values.append("key", key);
    return (await get(`/api/applications/${encodeURIComponent(application)}/report?${values}`)).text;
  }

  async copy(button, make) {
    const label = button.textContent;
    try {
      await navigator.clipboard.writeText(await make());
      setText(button, "Copied");
    } catch (error) {
      setText(button, error.code === "not-observed" ? "Nothing to copy" : "Not copied");
    }
    setTimeout(() => setText(button, label), 1500);
  }
}
