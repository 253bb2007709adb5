// The page: one application at a time, its live picture, and the view that the address names.

import { byId, empty, h, put, setClass, setText, show } from "./dom.js";
import { clock, count, duration } from "./format.js";
import { forgetSession, get, getSession, query } from "./api.js";
import { Live } from "./live.js";
import { themeButton } from "./theme.js";
import { Travel } from "./travel.js";
import { ApplicationsView, failure } from "./view-applications.js";
import { FleetView, whyEmpty } from "./view-fleet.js";
import { LettersView } from "./view-letters.js";
import { ShardView } from "./view-shard.js";
import { StreamView } from "./view-stream.js";

const VIEWS = { fleet: FleetView, stream: StreamView, shard: ShardView };
const TITLES = { fleet: "Fleet", stream: "Stream", shard: "Shard" };
const STALE = 3; // times the expected interval without an event

/** The service of an operation that a console calls. */
const serviceOf = (operation) => (/^(Scan|Query|DescribeTable|GetItem)$/.test(operation) ? "DynamoDB" : "Kinesis");

/** A hue that belongs to a text, 0 to 359. */
function hueOf(text) {
  let found = 0;
  for (const character of text) found = (found * 31 + character.codePointAt(0)) % 360;
  return found;
}

class App {
  constructor(session) {
    this.session = session;
    this.live = null;
    this.view = null;
    this.route = null;
    this.at = null; // the moment that is shown, in epoch seconds; null for now
    this.past = null; // its picture
    this.travel = null;
    this.brand = h("b", null, "kinesis-sdk");
    this.where = h("span", { class: "where" });
    this.tabs = h("nav", { class: "tabs", "aria-label": "Views" });
    this.pulse = h("span", { class: "pulse" });
    this.calls = h("span");
    const mode = session.allowChanges
      ? h("span", { class: "badge strong", title: "started with --allow-changes" }, "changes allowed")
      : h("span", { class: "badge", title: "start it with --allow-changes to change leases" }, "read-only");
    put(byId("bar"), h("a", { class: "brand", href: "#/" }, h("img", { src: "/assets/icon.svg", alt: "" }), this.brand, this.where), this.tabs,
      h("div", { class: "status" }, this.pulse, this.calls, mode, themeButton(), h("button", { type: "button", class: "plain", "aria-label": "Keys", title: "Keys (?)", on: { click: showKeys } }, "?")));
    addEventListener("keydown", (event) => {
      if (event.target.closest?.("input, select, textarea, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "?") showKeys();
      const search = event.key === "/" ? byId("main").querySelector("input[type=search]") : null;
      if (search) {
        event.preventDefault();
        search.focus();
      }
    });
    addEventListener("hashchange", () => this.open());
    setInterval(() => this.tick(), 1000);
  }

  go(view, key = null, application = this.route.application) {
    const parts = [view, encodeURIComponent(application)];
    if (key !== null) parts.push(encodeURIComponent(key));
    location.hash = `#/${parts.join("/")}${this.at === null ? "" : `?${query({ at: this.at })}`}`;
  }

  read() {
    const [path, values] = location.hash.replace(/^#\/?/, "").split("?", 2);
    const more = new URLSearchParams(values ?? "");
    const at = /^\d{1,11}(\.\d{1,6})?$/.test(more.get("at") ?? "") ? Number(more.get("at")) : null;
    const [view, application, key] = path.split("/").map((part) => {
      try {
        return decodeURIComponent(part);
      } catch {
        return part;
      }
    });
    if (VIEWS[view] && application) return { view, application, key: key ?? null, at, more };
    if (view === "letters" && this.session.deadLetters.length) return { view, application: null, key: null, at: null, more };
    const only = this.session.applications.length === 1 && !location.hash ? this.session.applications[0] : null;
    return only ? { view: "fleet", application: only, key: null, at, more } : { view: "applications", application: null, key: null, at: null, more };
  }

  /** The newest moment that is known of the application; null before the first picture. */
  newest() {
    return this.live?.picture?.head.at ?? null;
  }

  /** Keys of the leases that the page is about. */
  chosen() {
    return this.route.key !== null ? [this.route.key] : this.view?.chosen?.() ?? [];
  }

  /** Address of what the page shows at its moment, for others. */
  address() {
    const { view, application, key } = this.route;
    const parts = [view, encodeURIComponent(application), ...(key === null ? [] : [encodeURIComponent(key)])];
    const at = this.at ?? this.newest();
    const more = new URLSearchParams({ ...(at === null ? {} : { at: Math.floor(at) }), ...this.view?.state?.() });
    return `${location.origin}${location.pathname}#/${parts.join("/")}?${more}`;
  }

  /** Show another moment; null for now. */
  setAt(at) {
    this.at = at;
    const [path] = location.hash.split("?", 1);
    history.replaceState(null, "", `${path || `#/fleet/${encodeURIComponent(this.route.application)}`}${at === null ? "" : `?${query({ at })}`}`);
    this.drawBar();
    this.travelTo();
  }

  /** Fetch the picture of the moment. While one is on its way, the newest moment waits. */
  async travelTo() {
    this.travel?.draw();
    setClass(document.body, "is-past", this.at !== null);
    if (this.at === null) {
      this.past = null;
      this.travel?.say("");
      if (this.live?.picture) this.take(this.live.picture);
      return;
    }
    if (this.travelling) return;
    this.travelling = true;
    const { at } = this;
    const { application } = this.route;
    let message = "";
    try {
      this.past = await get(`/api/applications/${encodeURIComponent(application)}/past?${query({ at })}`);
    } catch (error) {
      this.past = null;
      message = error.code === "not-observed" ? "nothing looked at the application then" : error.message;
    }
    this.travelling = false;
    if (application !== this.route.application) return;
    if (at !== this.at) {
      this.travelTo();
      return;
    }
    this.travel?.say(message);
    if (this.past) this.take(this.past);
    else {
      this.mounted = false;
      put(byId("main"), empty(`Nothing was recorded at ${clock(at)}`, "The console records while a page is open. To record always, start it, or the exporter, with --recording FILE.", h("p", null, h("button", { type: "button", on: { click: () => this.setAt(null) } }, "Show now"))));
    }
  }

  open() {
    const route = this.read();
    const before = this.route;
    this.route = route;
    if (this.live && this.live.application !== route.application) {
      this.live.close();
      this.live = null;
    }
    this.view?.close?.();
    this.at = route.at;
    this.past = null;
    setClass(document.body, "is-past", this.at !== null);
    this.drawTravel();
    this.drawBar();
    document.title = route.application ? `${route.application} · ${TITLES[route.view]}` : route.view === "letters" ? "Dead letters · kinesis-sdk" : "kinesis-sdk";
    const main = byId("main");
    if (route.view === "applications" || route.view === "letters") {
      this.view = route.view === "letters" ? new LettersView(this) : new ApplicationsView(this);
      this.view.mount(main);
      this.tick();
    } else {
      this.view = new VIEWS[route.view](this, route.key);
      this.mounted = false;
      if (!this.live) {
        put(main, h("p", { class: "quiet", role: "status" }, `Reading the lease table of ${show(route.application)} …`));
        this.live = new Live(route.application, (picture) => this.takeLive(picture), () => this.tick());
      } else if (this.live.picture && this.at === null) this.take(this.live.picture);
      if (this.at !== null) this.travelTo();
    }
    if (before) {
      scrollTo(0, 0);
      main.focus({ preventScroll: true });
    }
  }

  drawTravel() {
    const { application } = this.route;
    if (application === this.travelOf) return;
    this.travelOf = application;
    this.travel?.close();
    this.travel = application ? new Travel(this) : null;
    byId("past").hidden = !application;
    put(byId("past"), this.travel?.element);
  }

  takeLive(picture) {
    if (!this.travel?.course) this.travel?.load();
    this.travel?.draw();
    if (this.at === null) this.take(picture);
    else this.tick();
  }

  take(picture) {
    const main = byId("main");
    const reason = whyEmpty(picture, this.route.application);
    if (reason && !this.view.worksWithoutLeases) {
      this.mounted = false;
      put(main, reason);
    } else {
      if (!this.mounted) {
        this.mounted = true;
        this.view.mount(main);
      }
      this.view.update(picture);
    }
    this.tick();
  }

  drawBar() {
    const { application, view } = this.route;
    setText(this.brand, application ? show(application) : "kinesis-sdk");
    const { account, region, endpoint } = this.session;
    const place = [account && `account ${account}`, region, endpoint].filter(Boolean);
    setText(this.where, [...(application ? [] : ["console"]), ...place].join(" · "));
    // Two pages of two accounts or regions are told apart at a glance.
    byId("bar").style.borderTopColor = place.length ? `hsl(${hueOf(place.join())} 65% 50%)` : "transparent";
    const link = (name, title) => h("a", { href: name === "applications" ? "#/" : name === "letters" ? "#/letters" : `#/${name}/${encodeURIComponent(application)}${this.at === null ? "" : `?${query({ at: this.at })}`}`, "aria-current": name === view ? "page" : null }, title);
    put(this.tabs, application ? [link("fleet", "Fleet"), link("stream", "Stream"), view === "shard" ? link("shard", "Shard") : null] : null, link("applications", "Applications"), this.session.deadLetters.length ? link("letters", "Dead letters") : null);
  }

  /** Each second: how old is what one sees, and is it still true? */
  tick() {
    const picture = this.live?.picture;
    const banner = byId("banner");
    if (!this.live) {
      this.pulse.className = "pulse";
      setText(this.pulse, "");
      this.pulse.hidden = true;
      setText(this.calls, "");
      banner.hidden = true;
      document.body.classList.remove("stale");
      return;
    }
    this.pulse.hidden = false;
    const age = this.live.age();
    const error = picture?.head.error;
    const lost = this.live.state === "disconnected";
    const { waiting } = this.live;
    const expected = Math.max(5, picture?.head.interval ?? 5);
    const late = this.live.state === "live" && age !== null && age > STALE * expected;
    const read = picture && age !== null ? picture.head.tableAge + age : null;
    setClass(this.pulse, "live", !lost && !late && !waiting && !error && this.live.state === "live" && age !== null);
    setClass(this.pulse, "bad", Boolean(lost || late || waiting || error));
    setText(this.pulse, lost ? "disconnected" : this.live.state === "hidden" ? "paused" : read === null ? "connecting" : `table read ${read < 1 ? "now" : `${duration(Math.floor(read))} ago`}`);
    if (picture) {
      if (!Object.keys(picture.head.calls).length) setText(this.calls, "");
      else {
        const sum = Object.values(picture.head.calls).reduce((total, value) => total + value, 0);
        setText(this.calls, `${count(sum)} calls/min`);
        this.calls.title = Object.entries(picture.head.calls).map(([name, value]) => `${name} ${value}`).join("\n");
      }
    }
    const stale = picture && (lost || late || error);
    setClass(document.body, "stale", Boolean(stale));
    if (lost) {
      setText(banner, picture ? `Disconnected. What you see is ${duration(Math.floor(read))} old and no longer changes. Is the command still running?` : "The console does not respond. Is its command still running?");
    } else if (error && picture.leases.key.length) setText(banner, `The newest read failed; what you see is ${duration(Math.floor(read))} old. ${show(error)}`);
    else if (waiting) setText(banner, `${serviceOf(waiting.operation)} does not answer: ${waiting.operation} has been running for ${duration(waiting.seconds)}.${picture ? ` What you see is ${duration(Math.floor(read))} old.` : ""}`);
    else if (late) setText(banner, `Nothing has arrived for ${duration(Math.floor(age))}. What you see is old.`);
    banner.hidden = !(lost || late || waiting || (error && picture?.leases.key.length));
    setClass(banner, "mild", !lost && !error);
    // A console that was restarted has another token for changes.
    if (lost) forgetSession();
  }
}

const KEYS = [
  ["Fleet, map", [["arrows, Home, End", "choose a shard"], ["Space", "add it to the chosen ones, or take it away"], ["Enter", "open it"]]],
  ["Fleet", [["/", "find a shard or an owner"], ["Enter in the search", "the first shard that was found"]]],
  ["Stream", [["up, down", "choose a shard"], ["Enter", "open it"]]],
  ["Records", [["Enter on the data", "all of it, and what can be done with it"]]],
  ["Everywhere", [["?", "these keys"], ["Esc", "close them"]]],
];

function showKeys() {
  const close = h("button", { type: "button", class: "primary", on: { click: () => dialog.close() } }, "Close");
  const dialog = h("dialog", { class: "keys", "aria-label": "Keys", on: { close: () => dialog.remove() } },
    h("h2", null, "Keys"),
    h("dl", { class: "facts" }, KEYS.map(([where, keys]) => [h("dt", { class: "where" }, where), h("dd", null), keys.map(([key, what]) => [h("dt", null, h("kbd", null, key)), h("dd", null, what)])])),
    close);
  document.body.append(dialog);
  dialog.showModal();
}

async function main() {
  try {
    const app = new App(await getSession());
    app.open();
  } catch (error) {
    put(byId("main"), error.code ? failure(error) : empty("The page failed", String(error)));
    throw error;
  }
}

main();
