// Elements, made without any markup: every text that comes from outside becomes a text node.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Make an element. Strings among the children become text nodes. */
export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** Make an SVG element. */
export function s(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

/** Replace all children. */
export function put(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

/** Set a text only if it differs, so that nothing is laid out again for nothing. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setClass(element, name, on) {
  if (element.classList.contains(name) !== on) element.classList.toggle(name, on);
}

export const byId = (id) => document.getElementById(id);

/** Tell screen readers; `urgent` interrupts them. */
export function announce(text, urgent = false) {
  setText(byId(urgent ? "alarm" : "announce"), text);
}

let tipFor = null;

/** Show a small box beside the pointer. `lines` are texts; the first one is the heading. */
export function tip(x, y, lines) {
  const box = byId("tip");
  const key = lines.join("\n");
  if (tipFor !== key) {
    put(box, lines.map((line, number) => h(number === 0 ? "b" : "div", null, line)));
    tipFor = key;
  }
  box.hidden = false;
  const width = box.offsetWidth;
  const height = box.offsetHeight;
  const left = x + 16 + width > innerWidth ? x - width - 12 : x + 16;
  const top = y + 18 + height > innerHeight ? y - height - 12 : y + 18;
  box.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
}

export function noTip() {
  byId("tip").hidden = true;
}

const LONG_LABEL = 200; // letters that a screen reader may be asked to read

/** A button that copies a text and says so. */
export function copyButton(text, label = "Copy") {
  const button = h("button", {
    type: "button",
    class: "small",
    "aria-label": text.length > LONG_LABEL ? label : `${label}: ${text}`,
    on: {
      click: async (event) => {
        event.stopPropagation();
        try {
          await navigator.clipboard.writeText(text);
          setText(button, "Copied");
        } catch {
          setText(button, "Select it");
        }
        setTimeout(() => setText(button, label), 1500);
      },
    },
  }, label);
  return button;
}

/** A command with its button. */
export function command(text) {
  return h("span", { class: "command" }, h("code", null, show(text)), copyButton(text));
}

const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** Make characters visible that could hide or reorder the text around them. */
export function show(text) {
  return String(text).replace(INVISIBLE, (char) => `\\u${char.codePointAt(0).toString(16).padStart(4, "0")}`);
}

/** A section with a heading. */
export function card(title, note, ...children) {
  return h("section", { class: "card" },
    h("header", null, h("h2", null, title), note ? h("span", { class: "note" }, note) : null),
    ...children);
}

/** A page or a card that has nothing to show yet: what is the case, and what to do. */
export function empty(title, text, ...more) {
  return h("div", { class: "empty" }, h("h2", null, title), h("p", null, text), ...more);
}
