// The stream of events of one application: one whole picture, then what changed. A hidden page has no stream.

const TREND_LENGTH = 60;
const RETRY = [1000, 2000, 4000, 8000, 15000];

/** Change a picture as the server's `changes` says. Mirrors kinesis_sdk/cli/web/wire.py. */
export function applyChanges(picture, changes) {
  picture.head = changes.head;
  for (const name of ["problems", "moves"]) if (changes[name]) picture[name] = changes[name];
  for (const name of ["owners", "leases"]) {
    const change = changes[name];
    if (!change) continue;
    if (change.whole) {
      picture[name] = change.whole;
      continue;
    }
    const table = picture[name];
    for (const [column, cells] of Object.entries(change.cells ?? {})) {
      for (let n = 0; n < cells.length; n += 2) table[column][cells[n]] = cells[n + 1];
    }
    (change.push ?? []).forEach((value, row) => {
      const trend = table.trend[row];
      trend.push(value);
      if (trend.length > TREND_LENGTH) trend.shift();
    });
  }
  return picture;
}

export class Live {
  /**
   * @param {string} application
   * @param {(picture: object, whole: boolean) => void} onPicture Called for each event.
   * @param {(state: string) => void} onState "connecting", "live", "hidden" or "disconnected".
   */
  constructor(application, onPicture, onState) {
    this.application = application;
    this.picture = null;
    this.receivedAt = null;
    this.waiting = null; // the call that AWS does not answer: {operation, seconds}
    this.state = "connecting";
    this.failures = 0;
    this.onPicture = onPicture;
    this.onState = onState;
    this.visibility = () => (document.hidden ? this.hide() : this.open());
    document.addEventListener("visibilitychange", this.visibility);
    if (document.hidden) this.hide();
    else this.open();
  }

  open() {
    if (this.source) return;
    clearTimeout(this.retry);
    this.change(this.failures ? "disconnected" : "connecting");
    this.source = new EventSource(`/api/applications/${encodeURIComponent(this.application)}/events`);
    this.source.addEventListener("open", () => {
      this.failures = 0;
      this.change("live");
    });
    this.source.addEventListener("picture", (event) => this.take(event, true));
    this.source.addEventListener("changes", (event) => this.take(event, false));
    this.source.addEventListener("waiting", (event) => {
      this.waiting = JSON.parse(event.data);
      this.onState(this.state);
    });
    this.source.addEventListener("error", () => {
      this.shut();
      this.change("disconnected");
      this.retry = setTimeout(() => this.open(), RETRY[Math.min(this.failures, RETRY.length - 1)]);
      this.failures += 1;
    });
  }

  take(event, whole) {
    performance.mark("update-begin");
    const data = JSON.parse(event.data);
    // Changes without a picture belong to a stream that began before this page; the next picture follows.
    if (!whole && !this.picture) return;
    this.picture = whole ? data : applyChanges(this.picture, data);
    this.receivedAt = performance.now();
    this.waiting = null;
    this.onPicture(this.picture, whole);
    performance.measure("update", "update-begin");
    performance.clearMarks("update-begin");
    if (performance.getEntriesByName("update").length > 500) performance.clearMeasures("update");
  }

  /** Seconds since the newest event; null before the first one. */
  age() {
    return this.receivedAt === null ? null : (performance.now() - this.receivedAt) / 1000;
  }

  hide() {
    this.shut();
    clearTimeout(this.retry);
    this.change("hidden");
  }

  shut() {
    this.source?.close();
    this.source = null;
  }

  close() {
    document.removeEventListener("visibilitychange", this.visibility);
    clearTimeout(this.retry);
    this.shut();
  }

  change(state) {
    this.state = state;
    this.onState(state);
  }
}
