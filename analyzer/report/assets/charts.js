"use strict";
// Lines over a number, for plans: one chart an element of class "chart", its data by number.
for (const place of document.querySelectorAll(".chart")) {
  const chart = DATA.charts[Number(place.dataset.chart)];
  let plot = null;
  const readout = place.nextElementSibling;
  const colors = () => chart.lines.map((_, line) => color(`--c${[0, 2, 4, 8, 6, 3][line % 6]}`));
  const make = () => {
    if (plot) plot.destroy();
    const strokes = colors();
    plot = new uPlot({
      width: Math.max(place.clientWidth - 10, 200), height: 340,
      scales: { x: { time: false }, y: { range: (u, low, high) => [0, 1.05 * Math.max(high, 1, chart.limit ? Math.min(chart.limit, 2 * high) : 0)] } },
      series: [{ label: chart.x }, ...chart.lines.map((line, at) => ({ label: line.name, stroke: strokes[at], width: 1.8, dash: line.dashed ? [6, 4] : undefined, points: { show: chart.values.length <= 40 } }))],
      axes: [{ ...plainAxis(), label: chart.x, labelSize: 18 }, bytesAxis()],
      legend: { show: false },
      hooks: {
        draw: [(u) => {
          const y = chart.limit ? Math.round(u.valToPos(chart.limit, "y", true)) : -1;
          if (y < u.bbox.top) return;
          const { ctx, bbox } = u;
          ctx.save(); ctx.strokeStyle = color("--limit"); ctx.fillStyle = color("--limit"); ctx.lineWidth = 1.5 * devicePixelRatio; ctx.setLineDash([8, 4]);
          ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
          ctx.beginPath(); ctx.moveTo(bbox.left, y); ctx.lineTo(bbox.left + bbox.width, y); ctx.stroke();
          ctx.fillText(`the device: ${size(chart.limit)}`, bbox.left + 6, y - 5 * devicePixelRatio);
          ctx.restore();
        }],
        setCursor: [(u) => {
          const at = u.cursor.idx;
          if (at === null || at === undefined || u.cursor.left < 0) return;
          readout.textContent = `${chart.x} ${count(chart.values[at])}: ${chart.lines.map((line) => `${line.name} ${size(line.values[at])}`).join(" · ")}`;
        }],
      },
    }, [chart.values, ...chart.lines.map((line) => line.values)], place);
    const legend = place.previousElementSibling;
    legend.replaceChildren();
    chart.lines.forEach((line, at) => { const entry = element("span", line.name); entry.style.setProperty("--swatch", strokes[at]); legend.append(entry); });
  };
  make();
  REDRAW.push(make);
  addEventListener("resize", () => plot.setSize({ width: Math.max(place.clientWidth - 10, 200), height: 340 }));
}
