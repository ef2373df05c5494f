"use strict";
// Lines over a number, for plans: one chart an element of class "chart", its data by number.
for (const place of document.querySelectorAll(".chart")) {
  const chart = DATA.charts[Number(place.dataset.chart)];
  let plot = null;
  const readout = place.nextElementSibling;
  const colors = () => chart.lines.map((line, at) => color(`--l${(line.color ?? at) % 6}`));
  const high = 340 + (chart.marks ? ABOVE : 0);
  const make = () => {
    if (plot) plot.destroy();
    const strokes = colors();
    plot = new uPlot({
      width: Math.max(place.clientWidth - 10, 200), height: high, padding: [chart.marks ? ABOVE : 16, 16, 0, 0],
      scales: { x: { time: false }, y: { range: (u, low, top) => [0, Math.max(1.05 * top, 1, chart.limit && chart.limit <= 2 * top ? 1.1 * chart.limit : 0)] } },
      series: [{ label: chart.x }, ...chart.lines.map((line, at) => ({ label: line.name, stroke: strokes[at], width: 1.8, dash: line.dashed ? [6, 4] : undefined, paths: chart.stepped ? uPlot.paths.stepped({ align: 1 }) : undefined, points: { show: chart.values.length <= 40 } }))],
      axes: [wholeAxis(chart.x), bytesAxis()],
      legend: { show: false },
      hooks: {
        draw: [(u) => {
          u.words = [];
          const ends = [u.bbox.left, ...(chart.marks ?? []).map(([x]) => u.valToPos(x, "x", true))];
          wordsAbove(u, 1, (chart.marks ?? []).map(([, name], at) => [name, ends[at], ends[at + 1]]));
          if (chart.limit) level(u, chart.limit, [`${chart.limited ?? "the device"}: ${size(chart.limit)}`], color("--limit"));
        }],
        setCursor: [(u) => {
          const at = u.cursor.idx;
          if (at === null || at === undefined || u.cursor.left < 0) return;
          readout.textContent = `${chart.x} ${count(Math.floor(chart.values[at]))}: ${chart.lines.map((line) => `${line.name} ${size(line.values[at])}`).join(" · ")}`;
        }],
      },
    }, [chart.values, ...chart.lines.map((line) => line.values)], place);
    const legend = place.previousElementSibling;
    legend.replaceChildren();
    chart.lines.forEach((line, at) => { const entry = element("span", line.name, line.dashed ? "dashed" : ""); entry.style.setProperty("--swatch", strokes[at]); legend.append(entry); });
  };
  make();
  REDRAW.push(make);
  place.plot = () => plot;
  addEventListener("resize", () => plot.setSize({ width: Math.max(place.clientWidth - 10, 200), height: high }));
}
