"use strict";
// What every view uses: the data, sizes as text, elements. Names are data: they become text nodes, never markup.
const DATA = JSON.parse(document.getElementById("data").textContent);

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0, scaled = Math.abs(bytes);
  while (scaled >= 1024 && at < units.length - 1) { scaled /= 1024; at += 1; }
  const shown = at ? scaled.toFixed(1) : scaled.toLocaleString("en");
  return `${bytes < 0 ? "-" : ""}${shown} ${units[at]}`;
}

function count(number) { return number.toLocaleString("en"); }

function percent(part, whole) { return whole ? `${(100 * part / whole).toFixed(1)} %` : "-"; }

function element(tag, text = "", className = "") {
  const made = document.createElement(tag);
  if (text) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function color(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

const REDRAW = [];  // what draws with colours, called again when they change

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  for (const draw of REDRAW) draw();
}
const wish = matchMedia("(prefers-color-scheme: dark)");
wish.addEventListener("change", () => setTheme(wish.matches ? "dark" : "light"));
document.documentElement.dataset.theme = wish.matches ? "dark" : "light";
document.getElementById("theme").addEventListener("click", () => {
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
});

// Axis of bytes: round binary steps.
function bytesAxis() {
  return {
    stroke: color("--dim"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") }, size: 74,
    splits: (plot, axis, low, high) => {
      let step = 2 ** Math.ceil(Math.log2(Math.max(high - low, 8) / 8));
      if ((high - low) / step < 4) step /= 2;
      const marks = [];
      for (let at = Math.ceil(low / step) * step; at <= high; at += step) marks.push(at);
      return marks;
    },
    values: (plot, marks) => marks.map(size),
  };
}

function plainAxis() {
  return { stroke: color("--dim"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") } };
}

addEventListener("DOMContentLoaded", () => { document.documentElement.dataset.ready = "yes"; });
