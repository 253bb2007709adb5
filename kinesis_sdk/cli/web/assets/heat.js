// Steps of colour, shared by the map, the tables, the stream and the legends.

import { duration, kbps } from "./format.js";

export const LAG_STEPS = [1000, 10000, 60000, 600000, 3600000];
const LEFT_STEPS = [86400, 21600, 7200, 3600, 900];
const KBPS_STEPS = [50, 150, 400, 700, 900];
const AGE_STEPS = [10, 60, 600, 3600, 86400];

const above = (value, steps) => (value === null || value === undefined ? -1 : steps.reduce((n, step) => n + (value >= step), 0));
const below = (value, steps) => (value === null || value === undefined ? -1 : steps.reduce((n, step) => n + (value < step), 0));

const names = (steps, text, last) => [...steps.map((step) => `< ${text(step)}`), last];

/** What a square's colour can mean: the step of a lease, the names of the steps, and the value as text. */
export const SCALES = {
  lag: {
    name: "lag",
    names: names(LAG_STEPS, (step) => duration(step / 1000), "≥ 1 h"),
    step: (leases, i) => above(leases.lag[i], LAG_STEPS),
  },
  left: {
    name: "time until records are lost",
    names: ["> 1 day", "> 6 h", "> 2 h", "> 1 h", "> 15 min", "less"],
    step: (leases, i) => below(leases.left[i], LEFT_STEPS),
  },
  kbps: {
    name: "throughput",
    names: names(KBPS_STEPS, kbps, "more"),
    step: (leases, i) => above(leases.kbps[i], KBPS_STEPS),
  },
  age: {
    name: "age of the checkpoint",
    names: names(AGE_STEPS, duration, "≥ 1 day"),
    step: (leases, i) => above(leases.age[i], AGE_STEPS),
  },
};

export const lagStep = (millis) => above(millis, LAG_STEPS);

let cached = null;

/** The colours of the present theme, for canvases. */
export function colours() {
  if (cached) return cached;
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  cached = {
    heat: [0, 1, 2, 3, 4, 5].map((step) => read(`--heat-${step}`)),
    ink: [0, 1, 2, 3, 4, 5].map((step) => read(`--heat-ink-${step}`)),
    owners: [0, 1, 2, 3, 4, 5, 6, 7].map((number) => read(`--owner-${number}`)),
    unknown: read("--unknown"),
    text: read("--text"),
    dim: read("--dim"),
    faint: read("--faint"),
    line: read("--line"),
    surface: read("--surface"),
    accent: read("--accent"),
    error: read("--error"),
    warning: read("--warning"),
    font: read("--font"),
    mono: read("--mono"),
  };
  return cached;
}

export function forgetColours() {
  cached = null;
}
