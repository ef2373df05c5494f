"use strict";
// The course: categories stacked, allocated and reserved as lines, phases and iterations marked, the limit drawn.
// `choose(event)` is called when a moment is clicked, or entered by keyboard.

function stacked(view) {
  // One row of totals a category after each event, summed from below, the last of them "allocated".
  const length = view.allocated.length, changes = view.categories.map(() => new Float64Array(length));
  view.blocks.born.forEach((event, place) => {
    const row = changes[view.origins[view.blocks.origin[place]].category];
    row[event] += view.blocks.nbytes[place];
    const died = view.blocks.died[place];
    if (died >= 0) row[died] -= view.blocks.nbytes[place];
  });
  let below = new Float64Array(length);
  return changes.map((row) => {
    const sum = new Float64Array(length);
    let now = 0;
    for (let event = 0; event < length; event += 1) { now += row[event]; sum[event] = below[event] + now; }
    below = sum;
    return sum;
  });
}

function drawTimeline(root, view, choose) {
  const place = root.querySelector(".timeline"), readout = root.querySelector(".readout");
  const length = view.allocated.length;
  if (!length) return { show() {} };
  const events = Float64Array.from({ length }, (_, event) => event);
  const layers = view.blocks.born.length ? stacked(view) : [];
  const top = Math.max(...[view.allocated, view.reserved].map((row) => row.reduce((a, b) => Math.max(a, b), 1)));
  const blockOf = new Map();
  view.blocks.born.forEach((event, block) => blockOf.set(event, block));
  view.blocks.died.forEach((event, block) => { if (event >= 0) blockOf.set(event, block); });
  let chosen = view.peakEvent, showLimit = view.limit !== null && view.limit <= 1.6 * top, plot = null;

  const few = uPlot.paths.stepped({ align: 1 }), many = uPlot.paths.linear();
  // Steps are what happens, but thousands of them on one screen only cost time: then the least and most of each column.
  const paths = (u, series, first, last) => (last - first > 4000 ? many : few)(u, series, first, last);

  function range() { return [0, Math.max(1.04 * top, showLimit ? 1.1 * view.limit : 0)]; }

  function lines(u) {
    const { ctx, bbox } = u, ratio = devicePixelRatio;
    ctx.save();
    ctx.beginPath(); ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height); ctx.clip();
    const vertical = (event, stroke, width, dash) => {
      const x = Math.round(u.valToPos(event, "x", true));
      ctx.strokeStyle = stroke; ctx.lineWidth = width * ratio; ctx.setLineDash(dash.map((part) => part * ratio));
      ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke();
      return x;
    };
    u.words = [];
    const named = [], counted = [];
    let before = u.valToPos(0, "x", true);
    for (const [event, name] of view.marks) {
      const x = u.valToPos(event + 1, "x", true);
      if (x - before > 3 * ratio) { vertical(event + 1, color("--mark"), 0.6, [2, 3]); named.push([name, before, x]); }
      before = x;
    }
    const starts = [...view.iterations.map((event) => event + 1), length];
    view.iterations.forEach((_, place) => {
      const x = vertical(starts[place], color("--accent"), 1.2, [6, 3]);
      counted.push([`iteration ${count(view.numbers[place])}`, x, u.valToPos(starts[place + 1], "x", true)]);
    });
    if (chosen >= 0) vertical(chosen, color("--text"), 1.5, []);
    ctx.restore();
    wordsAbove(u, 0, counted);
    wordsAbove(u, 1, named);
    if (showLimit) level(u, view.limit, [`room for the allocator on ${view.device}: ${size(view.limit)}`, size(view.limit)], color("--limit"));
  }

  function tell(event) {
    readout.replaceChildren();
    if (event === null || event === undefined) return;
    const block = blockOf.get(event), delta = view.allocated[event] - (event ? view.allocated[event - 1] : 0);
    const where = [`event ${count(event + 1)} of ${count(length)}`, view.phases[view.phase[event]]].filter(Boolean).join(" · ");
    readout.append(element("span", `${where} · allocated ${size(view.allocated[event])} · reserved ${size(view.reserved[event])}`));
    if (block === undefined) return;
    const origin = view.origins[view.blocks.origin[block]];
    const what = [`${delta >= 0 ? "takes" : "gives back"} ${size(view.blocks.nbytes[block])}`, origin.name, `${origin.shape} ${origin.dtype}`.trim(), view.categories[origin.category]];
    readout.append(element("span", what.filter(Boolean).join(" · ")));
    readout.append(element("span", [origin.operator, origin.path.join("."), origin.source, origin.rule].filter(Boolean).join(" · ")));
  }

  function select(event) {
    chosen = Math.min(Math.max(event, 0), length - 1);
    plot.redraw(false);
    choose(chosen);
  }

  function zoom(factor, centre) {
    const { min, max } = plot.scales.x, middle = centre ?? (min + max) / 2, half = (max - min) * factor / 2;
    const low = Math.max(0, Math.min(middle - half, length - 1)), high = Math.min(length - 1, middle + half);
    if (high - low >= 2) plot.setScale("x", { min: low, max: high });
  }

  function move(event) {
    const to = Math.min(Math.max(event, 0), length - 1), { min, max } = plot.scales.x;
    if (to < min || to > max) plot.setScale("x", { min: Math.max(0, to - (max - min) / 2), max: Math.min(length - 1, to + (max - min) / 2) });
    plot.setCursor({ left: plot.valToPos(to, "x"), top: plot.over.clientHeight / 2 });
    tell(to);
    return to;
  }

  function make() {
    const scale = plot ? { min: plot.scales.x.min, max: plot.scales.x.max } : null;
    if (plot) plot.destroy();
    const colors = layers.map((_, layer) => color(`--${view.colors[layer]}`));
    // The topmost layer is drawn first; each band ends at the layer below.
    const series = layers.map((_, layer) => layer).reverse();
    const options = {
      width: Math.max(place.clientWidth - 10, 200), height: Math.min(380, Math.max(260, innerHeight * 0.45)) + ABOVE,
      padding: [ABOVE, 16, 0, 0],
      scales: { x: { time: false }, y: { range } },
      series: [
        {},
        ...series.map((layer) => ({ label: view.categories[layer], stroke: colors[layer], width: 0, fill: layer === 0 ? colors[0] : undefined, paths, points: { show: false } })),
        { label: "allocated", stroke: color("--text"), width: 1, paths, points: { show: false } },
        { label: "reserved", stroke: color("--reserved"), width: 1.5, paths, points: { show: false } },
      ],
      bands: series.slice(0, -1).map((layer, at) => ({ series: [at + 1, at + 2], fill: colors[layer] })),
      axes: [wholeAxis("events of the allocator", 1), bytesAxis()],
      legend: { show: false },
      cursor: { drag: { x: true, y: false, dist: 6 }, points: { show: false } },
      hooks: { draw: [lines], setCursor: [(u) => { if (u.cursor.idx !== null && u.cursor.left >= 0) tell(u.cursor.idx); }] },
    };
    plot = new uPlot(options, [events, ...series.map((layer) => layers[layer]), view.allocated, view.reserved], place);
    if (scale) plot.setScale("x", scale);
    let pressed = 0;
    plot.over.addEventListener("mousedown", (event) => { pressed = event.clientX; });
    plot.over.addEventListener("click", (event) => {
      if (Math.abs(event.clientX - pressed) < 6 && plot.cursor.idx !== null) select(plot.cursor.idx);
    });
    plot.over.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      zoom(event.deltaY + event.deltaX > 0 ? 1.3 : 1 / 1.3, plot.posToVal(event.offsetX, "x"));
    }, { passive: false });
    const legend = root.querySelector(".legend");
    legend.replaceChildren();
    const named = [...layers.map((_, layer) => [view.categories[layer], colors[layer]]), ["allocated", color("--text")], ["reserved", color("--reserved")]];
    for (const [name, swatch] of named) {
      const entry = element("span", name);
      entry.style.setProperty("--swatch", swatch);
      legend.append(entry);
    }
  }

  make();
  tell(view.peakEvent < 0 ? null : view.peakEvent);
  REDRAW.push(make);
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; plot.setSize({ width: Math.max(place.clientWidth - 10, 200), height: plot.height }); } });
  const act = {
    in: () => zoom(0.5, chosen), out: () => zoom(2), all: () => plot.setScale("x", { min: 0, max: length - 1 }),
    peak: () => { move(view.peakEvent); select(view.peakEvent); },
    limit: () => { showLimit = !showLimit && view.limit !== null; plot.setScale("y", { min: 0, max: range()[1] }); plot.redraw(); },
  };
  for (const button of root.querySelectorAll("[data-act]")) button.addEventListener("click", () => act[button.dataset.act]());
  let at = view.peakEvent;
  place.addEventListener("keydown", (event) => {
    const page = Math.max(1, Math.round((plot.scales.x.max - plot.scales.x.min) / 20));
    const to = { ArrowLeft: at - (event.shiftKey ? page : 1), ArrowRight: at + (event.shiftKey ? page : 1), PageUp: at - page, PageDown: at + page, Home: 0, End: length - 1 }[event.key];
    if (to !== undefined) at = move(to);
    else if (event.key === "Enter" || event.key === " ") select(at);
    else if (event.key === "+" || event.key === "=") zoom(0.5, at);
    else if (event.key === "-") zoom(2);
    else if (event.key === "0") act.all();
    else if (event.key === "p") { act.peak(); at = view.peakEvent; } else return;
    event.preventDefault();
  });
  return { plot: () => plot, select };
}
