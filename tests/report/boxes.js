// What is wrong with the page as it is laid out: text off the screen, cut by its box, broken inside a word, or over other text.
const width = arguments[0], wrong = [], seen = [];  // not innerWidth: a phone widens it to what it shows
const clips = (element) => {
  const found = [];
  let scrolls = false;  // what a list inside scrolls to is not cut by what is around the list
  for (let at = element; at && at !== document.body; at = at.parentElement) {
    const style = getComputedStyle(at), box = at.getBoundingClientRect();
    if (style.overflowX !== "visible") found.push({ box, down: style.overflowY === "hidden" && !scrolls });
    scrolls ||= style.overflowY === "auto" || style.overflowY === "scroll";
  }
  return found;
};
const inside = (rect, element, said) => {
  if (rect.left < -0.5 || rect.right > width + 0.5) wrong.push(`off the screen: ${said}`);
  for (const { box, down } of clips(element)) {
    if (rect.left < box.left - 1 || rect.right > box.right + 1) wrong.push(`cut at the side: ${said}`);
    if (down && (rect.top < box.top - 2 || rect.bottom > box.bottom + 2)) wrong.push(`cut above or below: ${said}`);
  }
};
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  const holder = node.parentElement, text = node.textContent;
  if (!text.trim() || holder.closest("script, style, option, noscript")) continue;
  const range = document.createRange();
  range.selectNodeContents(node);
  for (const rect of range.getClientRects()) {
    if (rect.width < 1) continue;
    const said = `"${text.trim().slice(0, 60)}"`;
    inside(rect, holder, said);
    let { left, right, top, bottom } = rect;
    for (const { box } of clips(holder)) { left = Math.max(left, box.left); right = Math.min(right, box.right); top = Math.max(top, box.top); bottom = Math.min(bottom, box.bottom); }
    if (right > left && bottom > top) seen.push({ said, left, right, top, bottom, node });
  }
  for (const word of text.matchAll(/[\p{L}\p{N}]+/gu)) {
    if (word[0].length > 40) continue;
    range.setStart(node, word.index);
    range.setEnd(node, word.index + word[0].length);
    if (new Set([...range.getClientRects()].filter((rect) => rect.width > 0.5).map((rect) => Math.round(rect.top))).size > 1) wrong.push(`broken word: ${word[0]}`);
  }
}
seen.sort((a, b) => a.top - b.top);
seen.forEach((one, at) => {
  for (let next = at + 1; next < seen.length && seen[next].top < one.bottom - 2; next += 1) {
    const other = seen[next];
    if (other.node !== one.node && Math.min(one.right, other.right) - Math.max(one.left, other.left) > 1.5) wrong.push(`over one another: ${one.said} and ${other.said}`);
  }
});
for (const drawn of document.querySelectorAll("svg.bar, canvas")) inside(drawn.getBoundingClientRect(), drawn, drawn.tagName);
// Words that are drawn: above the lines, and each in a place of its own.
const plots = [...document.querySelectorAll(".view")].map((view) => view.timeline.plot?.()).concat([...document.querySelectorAll(".chart")].map((place) => place.plot()));
let drawn = 0;
for (const plot of plots.filter(Boolean)) {
  (plot.words ?? []).forEach((one, at) => {
    drawn += 1;
    if (one.left < 0 || one.right > plot.ctx.canvas.width) wrong.push(`drawn off the plot: ${one.said}`);
    if (one.top < plot.bbox.top - 1 && one.bottom > plot.bbox.top + 1) wrong.push(`struck by a line: ${one.said}`);
    for (const other of plot.words.slice(at + 1)) {
      if (Math.min(one.right, other.right) > Math.max(one.left, other.left) && Math.min(one.bottom, other.bottom) > Math.max(one.top, other.top)) wrong.push(`drawn over one another: ${one.said}, ${other.said}`);
    }
  });
}
return { wrong: [...new Set(wrong)], texts: seen.length, drawn };
