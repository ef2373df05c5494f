"use strict";
// The live set of one moment: who holds it (icicle), where it lies (segments and blocks), and every tensor (table).

function alive(view, event) {
  const { born, died } = view.blocks, found = [];
  for (let block = 0; block < born.length && born[block] <= event; block += 1) {
    if (died[block] < 0 || died[block] > event) found.push(block);
  }
  return found;
}

const PATHS = {
  module: (view, origin) => [...(origin.path.length ? origin.path : ["(outside any module)"]), origin.operator, origin.name],
  line: (view, origin) => [...(origin.source ? origin.source.split(/:(?=\d+$)/) : ["(no line)"]), origin.operator, origin.name],
  operator: (view, origin) => [origin.operator || "(no operator)", origin.path.join("."), origin.name],
  category: (view, origin) => [view.categories[origin.category], origin.path.join("."), origin.name],
};

// A name as far as it fits into so many pixels: whole, or its beginning if that says something, or nothing.
const LETTERS = document.createElement("canvas").getContext("2d");
function fitting(name, room) {
  LETTERS.font = "12px system-ui, sans-serif";
  if (LETTERS.measureText(name.slice(0, 200)).width <= room) return name.slice(0, 200);
  let shown = name.slice(0, Math.max(0, Math.floor(room / 5)));
  while (shown && LETTERS.measureText(`${shown}…`).width > room) shown = shown.slice(0, -1);
  return shown.length >= 8 ? `${shown}…` : "";
}

function drawIcicle(root, view) {
  const place = root.querySelector(".icicle"), kind = root.querySelector(".by"), trail = root.querySelector(".trail");
  const height = 25, deepest = 9;
  let blocks = [], focus = [], cells = [];

  // One stop of the tab key; arrows lead on: along a row, to what holds a cell and to the first it holds.
  place.setAttribute("role", "group");
  place.setAttribute("aria-label", "what is in use, by who holds it: arrow keys lead through it, Enter goes into one");
  function lead(to) {
    for (const { cell } of cells) cell.tabIndex = cell === to ? 0 : -1;
  }
  place.addEventListener("keydown", (event) => {
    const at = cells.findIndex(({ cell }) => cell === document.activeElement);
    if (at < 0) return;
    const here = cells[at].entry, beside = (step) => (cells[at + step]?.entry.depth === here.depth ? cells[at + step] : undefined);
    const goal = {
      ArrowRight: () => beside(1), ArrowLeft: () => beside(-1), Home: () => cells[0], End: () => cells.at(-1),
      ArrowUp: () => cells.find(({ entry }) => entry === here.parent), ArrowDown: () => cells.find(({ entry }) => entry.parent === here),
    }[event.key]?.();
    if (goal === undefined) return;
    event.preventDefault();
    lead(goal.cell);
    goal.cell.focus();
  });

  function tree() {
    const whole = { name: "everything", children: new Map(), own: 0 };
    for (const block of blocks) {
      const origin = view.origins[view.blocks.origin[block]];
      let node = whole;
      for (const name of PATHS[kind.value](view, origin)) {
        if (!name) continue;
        if (!node.children.has(name)) node.children.set(name, { name, children: new Map(), own: 0, category: origin.category });
        node = node.children.get(name);
      }
      node.own += view.blocks.nbytes[block];
    }
    return d3.hierarchy(whole, (node) => [...node.children.values()]).sum((node) => node.own).sort((a, b) => b.value - a.value);
  }

  function draw() {
    place.replaceChildren();
    cells = [];
    const whole = tree();
    let node = whole;
    for (const name of focus) node = (node.children ?? []).find((child) => child.data.name === name) ?? node;
    const shown = d3.partition()(d3.hierarchy(node.data, (entry) => [...entry.children.values()]).sum((entry) => entry.own).sort((a, b) => b.value - a.value));
    let rows = 0;
    shown.each((entry) => {
      if (entry.depth > deepest || entry.x1 - entry.x0 < 0.002 || !entry.value) return;
      rows = Math.max(rows, entry.depth + 1);
      const names = entry.ancestors().reverse().map((step) => step.data.name).slice(1);
      const said = `${entry.data.name}: ${size(entry.value)}, ${percent(entry.value, whole.value)} of what is in use`;
      const cell = element("button", fitting(entry.data.name, place.clientWidth * (entry.x1 - entry.x0) - 12));
      cell.title = said.slice(0, 1000);
      cell.setAttribute("aria-label", cell.title);
      Object.assign(cell.style, { left: `${100 * entry.x0}%`, width: `${100 * (entry.x1 - entry.x0)}%`, top: `${height * entry.depth}px` });
      cell.style.background = entry.children || entry.data.category === undefined ? `hsl(${(entry.data.name.length * 47 + entry.depth * 29) % 60 + 195}, 45%, ${72 + entry.depth % 3 * 5}%)` : color(`--${view.colors[entry.data.category]}`);
      cell.addEventListener("click", () => { focus = [...focus, ...names]; draw(); place.querySelector("button")?.focus(); });
      cells.push({ cell, entry });
      place.append(cell);
    });
    lead(cells[0]?.cell);
    place.style.height = `${Math.max(rows, 1) * height}px`;
    trail.replaceChildren();
    ["everything", ...focus].forEach((name, at) => {
      const step = element("button", name.slice(0, 60));
      step.addEventListener("click", () => { focus = focus.slice(0, at); draw(); });
      trail.append(step);
    });
  }

  kind.addEventListener("change", () => { focus = []; draw(); });
  REDRAW.push(draw);
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; draw(); } });
  return (found) => { blocks = found; focus = []; draw(); };
}

function drawSegments(root, view) {
  const place = root.querySelector(".segments"), said = root.querySelector(".held");
  const most = 24;
  let last = null;
  function draw() {
    place.replaceChildren();
    if (!last) return;
    const { event, blocks } = last;
    const held = view.segments.filter(([, , born, died]) => born <= event && (died < 0 || died > event)).sort((a, b) => a[0] - b[0]);
    if (!held.length) { said.textContent = "This allocator keeps no addresses."; return; }
    const order = [...blocks].sort((a, b) => view.blocks.address[a] - view.blocks.address[b]);
    const rows = [];
    let at = 0, holes = 0, free = 0, largest = 0;
    for (const [address, nbytes] of held) {
      const inside = [], end = address + nbytes;
      while (at < order.length && view.blocks.address[order[at]] < address) at += 1;
      for (; at < order.length && view.blocks.address[order[at]] < end; at += 1) inside.push(order[at]);
      let place_ = address, open = 0;
      const gap = (size_) => { if (size_ > 0) { holes += 1; free += size_; open += size_; largest = Math.max(largest, size_); } };
      for (const block of inside) { gap(view.blocks.address[block] - place_); place_ = view.blocks.address[block] + view.blocks.nbytes[block]; }
      gap(end - place_);
      rows.push({ address, nbytes, inside, open });
    }
    const used = blocks.reduce((sum, block) => sum + view.blocks.nbytes[block], 0);
    const asked = blocks.reduce((sum, block) => sum + view.blocks.requested[block], 0);
    said.textContent = `${count(held.length)} segments hold ${size(used + free)}: ${size(used)} in ${count(blocks.length)} blocks (${size(used - asked)} of it rounding), ` +
      `${size(free)} free in ${count(holes)} holes, the largest ${size(largest)}. A request larger than that needs a new segment.`;
    rows.sort((a, b) => b.nbytes - a.nbytes);
    for (const { address, nbytes, inside, open } of rows.slice(0, most)) {
      const row = element("div", "", "segment"), bar = element("div", "", "bar");
      row.append(element("span", `${size(nbytes)}, ${percent(open, nbytes)} free`), bar);
      let tile = null, tileEnd = 0;
      for (const block of inside) {
        const left = 100 * (view.blocks.address[block] - address) / nbytes, width = 100 * view.blocks.nbytes[block] / nbytes;
        const category = view.origins[view.blocks.origin[block]].category;
        if (tile && width < 0.3 && Math.abs(left - tileEnd) < 0.3) { tileEnd = left + width; tile.style.width = `${tileEnd - parseFloat(tile.style.left)}%`; tile.title = "several small blocks"; continue; }
        tile = element("i");
        tileEnd = left + width;
        Object.assign(tile.style, { left: `${left}%`, width: `${width}%`, background: color(`--${view.colors[category]}`) });
        tile.title = `${size(view.blocks.nbytes[block])} ${view.origins[view.blocks.origin[block]].name}`.slice(0, 300);
        bar.append(tile);
      }
      place.append(row);
    }
    if (rows.length > most) {
      const rest = rows.slice(most);
      place.append(element("p", `and ${count(rest.length)} smaller: ${size(rest.reduce((sum, row) => sum + row.nbytes, 0))} held, ${size(rest.reduce((sum, row) => sum + row.open, 0))} free`, "dim"));
    }
  }
  REDRAW.push(draw);
  return (event, blocks) => { last = { event, blocks }; draw(); };
}

function drawTable(root, view) {
  const search = root.querySelector(".search"), shown = root.querySelector(".count");
  // A cell is text, whatever the name contains.
  const text = (cell) => { const made = breakable(String(cell.getValue()).slice(0, 400)); made.title = String(cell.getValue()).slice(0, 1000); return made; };
  const bytes = (cell) => element("span", size(cell.getValue()));
  // Columns for which there is no room stand under their row, which then has a button that opens it.
  let order = 0;
  const column = (title, field, width, extra = {}) => ({ title, field, minWidth: width, formatter: text, headerTooltip: false, responsive: order++, ...extra });
  const table = new Tabulator(root.querySelector(".tensors"), {
    data: [], index: "block", layout: "fitColumns", responsiveLayout: "collapse", responsiveLayoutCollapseStartOpen: false, height: innerWidth < 480 ? "22rem" : "28rem", placeholder: "nothing in use",
    initialSort: [{ column: "nbytes", dir: "desc" }],
    columns: [
      { formatter: "responsiveCollapse", width: 34, minWidth: 34, maxWidth: 34, hozAlign: "center", resizable: false, headerSort: false },
      column("size", "nbytes", 100, { formatter: bytes, hozAlign: "right", headerSortStartingDir: "desc", sorter: "number" }),
      column("tensor", "name", 200), column("shape", "shape", 140), column("type", "dtype", 85), column("category", "category", 140),
      column("operator", "operator", 150), column("module", "module", 190), column("line", "source", 170), column("phase", "phase", 90),
      column("rule", "rule", 140), column("asked for", "requested", 100, { formatter: bytes, hozAlign: "right", sorter: "number" }),
      column("from event", "born", 95, { hozAlign: "right", sorter: "number" }), column("to event", "died", 90, { hozAlign: "right", sorter: "number" }),
    ],
  });
  const ready = new Promise((done) => table.on("tableBuilt", () => {
    // A grid consists of groups of rows: the box that scrolls is one, and what lies in it none of its own.
    root.querySelector(".tabulator-tableholder").setAttribute("role", "rowgroup");
    root.querySelector(".tabulator-tableholder .tabulator-table").setAttribute("role", "presentation");
    root.querySelector(".tabulator-col").setAttribute("aria-label", "what has no room in the row");
    done();
  }));
  let rows = [];
  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length) table.setFilter((row) => words.every((word) => row.all.includes(word)));
    else table.clearFilter();
  }
  let waiting = 0;
  search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(filter, 120); });
  table.on("dataFiltered", (filters, found) => {
    const sum = found.reduce((total, row) => total + row.getData().nbytes, 0);
    shown.textContent = `${count(found.length)} of ${count(rows.length)} tensors, ${size(sum)}`;
  });
  return async (blocks) => {
    await ready;
    rows = blocks.map((block) => {
      const origin = view.origins[view.blocks.origin[block]], died = view.blocks.died[block];
      const row = {
        block, nbytes: view.blocks.nbytes[block], requested: view.blocks.requested[block], name: origin.name, shape: origin.shape, dtype: origin.dtype,
        category: view.categories[origin.category], operator: origin.operator, module: origin.path.join("."), source: origin.source, phase: origin.phase,
        rule: origin.rule, born: view.blocks.born[block] + 1, died: died < 0 ? "end" : died + 1,
      };
      row.all = [row.name, row.shape, row.dtype, row.category, row.operator, row.module, row.source, row.phase, row.rule].join("\n").toLowerCase();
      return row;
    });
    await table.replaceData(rows);
  };
}

for (const root of document.querySelectorAll(".view")) {
  const view = DATA.views[Number(root.dataset.view)];
  const icicle = drawIcicle(root, view), segments = drawSegments(root, view), table = drawTable(root, view);
  const moment = root.querySelector(".moment");
  const choose = (event) => {
    const blocks = alive(view, event);
    const where = event === view.peakEvent ? "at the peak" : `after event ${count(event + 1)}`;
    const phase = view.phases[view.phase[event]];
    moment.textContent = event < 0 ? "" : `${where}${phase ? ` (${phase})` : ""}: ${size(view.allocated[event])} in ${count(blocks.length)} blocks`;
    icicle(blocks);
    segments(event, blocks);
    table(blocks);
  };
  root.timeline = drawTimeline(root, view, choose);
  choose(view.peakEvent);
}
