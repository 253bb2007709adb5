// Numbers as people read them.

/** A length of time in seconds. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0) return `−${duration(-seconds)}`;
  if (seconds < 1) return seconds === 0 ? "0 s" : "< 1 s";
  if (seconds < 9.95) return `${trim(seconds.toFixed(1))} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const whole = Math.floor(seconds);
  if (whole < 3600) return pair(Math.floor(whole / 60), "min", whole % 60, "s");
  if (whole < 172800) return pair(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "min");
  return pair(Math.floor(whole / 86400), "d", Math.floor((whole % 86400) / 3600), "h");
}

const trim = (text) => text.replace(/\.0$/, "");
const pair = (a, unit, b, small) => (b ? `${a} ${unit} ${b} ${small}` : `${a} ${unit}`);

/** The age of something that changes every few seconds while all is well: only an unusual one is told exactly. */
export function age(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  return seconds < 10 ? "< 10 s" : seconds < 60 ? "< 1 min" : duration(seconds);
}

/** Milliseconds behind latest. */
export const lag = (millis) => (millis === null || millis === undefined ? "–" : duration(millis / 1000));

export function count(value) {
  return value === null || value === undefined ? "–" : Number(value).toLocaleString("en");
}

export function kbps(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 10000) return `${(value / 1000).toFixed(0)} MB/s`;
  if (value >= 1000) return `${(value / 1000).toFixed(1)} MB/s`;
  return `${value >= 10 ? Math.round(value) : trim(value.toFixed(1))} KB/s`;
}

export function bytes(value) {
  if (value < 1024) return `${value} B`;
  return value < 1048576 ? `${(value / 1024).toFixed(1)} KiB` : `${(value / 1048576).toFixed(1)} MiB`;
}

const two = (value) => String(value).padStart(2, "0");

/** Time of day, local. */
export function clock(epoch, millis = false) {
  const at = new Date(epoch * 1000);
  const text = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return millis ? `${text}.${String(at.getMilliseconds()).padStart(3, "0")}` : text;
}

/** Day and time, local. */
export function moment(epoch) {
  const at = new Date(epoch * 1000);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(epoch)}`;
}

/** The number of a shard without its leading zeros, or the whole id if it has another form. */
export function shardName(id) {
  const found = /^shardId-0*(\d+)$/.exec(id);
  return found ? found[1].padStart(4, "0") : id;
}

/** A name that is too long, without its middle: names differ at both ends. */
export function middle(text, length) {
  const letters = [...text];
  if (letters.length <= length) return text;
  const tail = Math.floor((length - 1) / 2);
  return `${letters.slice(0, length - 1 - tail).join("")}…${letters.slice(letters.length - tail).join("")}`;
}

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;
