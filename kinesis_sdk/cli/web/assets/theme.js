// Light, dark, or as the system says. The choice is kept in this browser only.

import { forgetColours } from "./heat.js";
import { h, setText } from "./dom.js";

const ORDER = ["auto", "light", "dark"];
const NAMES = { auto: "Theme: system", light: "Theme: light", dark: "Theme: dark" };
const listeners = new Set();

function stored() {
  try {
    return localStorage.getItem("kinesis-sdk-theme");
  } catch {
    return null;
  }
}

const system = matchMedia("(prefers-color-scheme: dark)");

function apply(theme) {
  document.documentElement.dataset.theme = theme === "auto" ? (system.matches ? "dark" : "light") : theme;
  forgetColours();
  for (const listener of listeners) listener();
}

/** Call a function whenever colours change. */
export function onTheme(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function themeButton() {
  let theme = ORDER.includes(stored()) ? stored() : "auto";
  apply(theme);
  system.addEventListener("change", () => apply(theme));
  const button = h("button", {
    type: "button",
    class: "plain",
    on: {
      click: () => {
        theme = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length];
        try {
          localStorage.setItem("kinesis-sdk-theme", theme);
        } catch {
          // A browser that stores nothing begins with the system's theme each time.
        }
        apply(theme);
        setText(button, NAMES[theme]);
      },
    },
  }, NAMES[theme]);
  return button;
}
