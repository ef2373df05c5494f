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

// Axis of whole numbers, such as batches or events, named at both its ends. from: what the first is called.
const WHOLE = [1, 2, 5].flatMap((step) => [...Array(12).keys()].map((power) => step * 10 ** power)).sort((a, b) => a - b);
function wholeAxis(label, from = 0) {
  return {
    ...plainAxis(), label, labelSize: 18, incrs: WHOLE, space: 60,
    splits: (plot, axis, low, high, step) => {
      const first = Math.ceil(low + from), last = Math.floor(high + from), marks = [first];
      for (let at = Math.ceil(first / step) * step; at < last; at += step) if (at - first > 0.7 * step && last - at > 0.7 * step) marks.push(at);
      if (last > first) marks.push(last);
      return marks.map((at) => at - from);
    },
    values: (plot, marks) => marks.map((at) => count(at + from)),
  };
}

// Words above a plot, in its padding, where they cross no line: each only where there is room for it. `plot.words` keeps their boxes.
const ABOVE = 36;  // height of two rows, in pixels of the page
function wordsAbove(plot, row, words) {
  const { ctx, bbox } = plot, ratio = devicePixelRatio, y = bbox.top - (ABOVE - 4 - 16 * row) * ratio;
  ctx.save();
  ctx.font = `${11 * ratio}px system-ui, sans-serif`;
  ctx.textBaseline = "top"; ctx.textAlign = "left";
  ctx.fillStyle = color(row ? "--dim" : "--text");
  let free = bbox.left;
  for (const [said, from, to] of words) {
    const left = Math.max(from + 3 * ratio, free), width = ctx.measureText(said).width;
    if (left + width > Math.min(to, bbox.left + bbox.width) || from < bbox.left - 1) continue;
    ctx.fillText(said, left, y);
    (plot.words ??= []).push({ said, left, top: y, right: left + width, bottom: y + 12 * ratio });
    free = left + width + 6 * ratio;
  }
  ctx.restore();
}

// A level across a plot, with its name on the line, on a ground of the plot's own colour.
function level(plot, bytes, names, stroke) {
  const y = Math.round(plot.valToPos(bytes, "y", true)), { ctx, bbox } = plot, ratio = devicePixelRatio;
  if (y < bbox.top || y > bbox.top + bbox.height) return;
  ctx.save();
  ctx.strokeStyle = stroke; ctx.lineWidth = 1.5 * ratio; ctx.setLineDash([8 * ratio, 4 * ratio]);
  ctx.beginPath(); ctx.moveTo(bbox.left, y); ctx.lineTo(bbox.left + bbox.width, y); ctx.stroke();
  ctx.font = `${11 * ratio}px system-ui, sans-serif`;
  ctx.textAlign = "right"; ctx.textBaseline = "bottom"; ctx.setLineDash([]);
  const said = names.find((name) => ctx.measureText(name).width < bbox.width - 8 * ratio);
  if (said) {
    const at = [bbox.left + bbox.width - 4 * ratio, y - 3 * ratio];
    ctx.strokeStyle = color("--panel"); ctx.lineWidth = 3 * ratio; ctx.strokeText(said, ...at);
    ctx.fillStyle = stroke; ctx.fillText(said, ...at);
    (plot.words ??= []).push({ said, left: at[0] - ctx.measureText(said).width, top: at[1] - 12 * ratio, right: at[0], bottom: at[1] });
  }
  ctx.restore();
}

// Text that may be broken after the marks inside a name, nowhere else.
function breakable(text) {
  const made = element("span");
  text.split(/(?<=[._:/])(?=\w)|(?<=\dx)(?=\d)/).forEach((part, at) => made.append(...(at ? [element("wbr"), part] : [part])));
  return made;
}

addEventListener("DOMContentLoaded", () => { document.documentElement.dataset.ready = "yes"; });
