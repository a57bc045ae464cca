"use strict";
// Charts to point at, by uPlot, in place of the pictures of the same numbers (charts.py). Where a chart cannot be drawn
// the picture stays, and it is what is printed.
const ink = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const dark = matchMedia("(prefers-color-scheme: dark)");
const colourOfLine = line => ink(line.colour) || (dark.matches ? line.dark : line.colour);
const drawn = [];  // of uPlot

function fourDigits(value) { return value === null || value === undefined ? "–" : String(Number(value.toPrecision(4))); }

function faint(colour) { return colour.length === 7 ? colour + "33" : colour; }

// The nearest point that the line has.
function nearestPoint(plot, line, index) {
  const values = plot.data[line], x = plot.data[0];
  if (line === 0 || index === null || values[index] !== null) return index;
  const at = x[index];
  let best = null;
  values.forEach((value, i) => {
    if (value !== null && (best === null || Math.abs(x[i] - at) < Math.abs(x[best] - at))) best = i;
  });
  return best;
}

function lineOptions(panel, line) {
  const colour = colourOfLine(line);
  return {
    label: line.label, stroke: line.width ? colour : "transparent", width: line.width, dash: line.dash, spanGaps: true,
    points: {show: line.points && line.values.length <= 60, size: 7, fill: colour, stroke: colour},
    value: (plot, value, at, index) => panel.shared || value === null || value === undefined ? fourDigits(value)
      : `${fourDigits(value)} at ${panel.at[index]}`};
}

// A vertical bar of so much up and down at each point of a line that has `errors`.
function drawErrors(panel) {
  return plot => {
    const context = plot.ctx, box = plot.bbox;
    context.save();
    context.beginPath();
    context.rect(box.left, box.top, box.width, box.height);
    context.clip();
    context.setLineDash([]);
    panel.lines.forEach((line, i) => (line.errors || []).forEach((error, at) => {
      const value = plot.data[i + 1][at];
      if (error === null || value === null || !plot.series[i + 1].show) return;
      const low = panel.log ? Math.max(value - error, value / 100) : value - error;
      context.strokeStyle = colourOfLine(line);
      context.lineWidth = devicePixelRatio * (panel.log ? 1 : 0.5);
      context.beginPath();
      const x = plot.valToPos(plot.data[0][at], "x", true);
      context.moveTo(x, plot.valToPos(low, "y", true));
      context.lineTo(x, plot.valToPos(value + error, "y", true));
      context.stroke();
    }));
    context.restore();
  };
}

function decades(plot, axis, low, high) {
  const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
  if (last > first) return Array.from({length: last - first + 1}, (_, i) => Number(`1e${first + i}`));
  return [1, 2, 5, 10, 20, 50].map(value => Number(`${value}e${first - 1}`)).filter(value => low <= value && value <= high);
}

function options(panel, width, sync) {
  const axis = {stroke: ink("soft"), grid: {stroke: ink("line"), width: 1}, ticks: {stroke: ink("line"), width: 1},
                font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif", labelSize: 22};
  const last = panel.x.length - 1, lastPoints = plot => plot.setLegend({
    idxs: plot.data.map((_, line) => nearestPoint(plot, line, last))});
  const dashed = i => i > 0 && panel.lines[i - 1].dash.length > 0;
  const y = panel.log ? {distr: 3} : {range: (_, low, high) => {
    const room = 0.05 * (high - low || Math.abs(high) || 1);
    return [panel.yFrom === undefined ? low - room : Math.min(panel.yFrom, low), panel.yTo ?? high + room];
  }};
  return {
    width, height: 280, title: panel.title,
    cursor: {sync: {key: sync, setSeries: false}, drag: {x: false, y: false}, dataIdx: nearestPoint,
             points: {size: 9}},
    scales: {x: {time: false, distr: panel.xLog ? 3 : 1, range: () => panel.xRange}, y},
    axes: [{...axis, size: 32, splits: () => panel.ticks.map(tick => tick[0]),
            values: () => panel.ticks.map(tick => tick[1]), filter: (_, splits) => splits, label: panel.xLabel},
           {...axis, size: 52, label: panel.yLabel, ...(panel.log ? {splits: decades, filter: (_, splits) => splits} : {}),
            values: (_, splits) => splits.map(value => value === null ? "" : String(Number(value.toPrecision(3))))}],
    series: [{label: panel.name, value: (plot, value, line, index) => index === null || value === null ? "–"
      : panel.at[index]}, ...panel.lines.map(line => lineOptions(panel, line))],
    bands: panel.bands.map(([high, low]) => ({series: [high + 1, low + 1], fill: faint(colourOfLine(panel.lines[high]))})),
    legend: {markers: {width: 2, dash: (_, i) => dashed(i) ? "dashed" : "solid"}},
    // Where nothing is pointed at, the legend has the last point.
    hooks: {draw: [drawErrors(panel)], ready: [lastPoints],
            setCursor: [plot => plot.cursor.idx === null && lastPoints(plot)]}};
}

function drawChart(box, chart) {
  box.hidden = false;
  const figure = box.closest("figure"), sync = figure.id;
  figure.querySelector("picture").classList.add("printed");
  for (const panel of chart.panels) {
    const place = box.appendChild(document.createElement("div"));
    const data = [panel.x, ...panel.lines.map(line => line.values)];
    const make = () => new uPlot(options(panel, Math.max(200, place.clientWidth), sync), data, place);
    const one = {place, make, plot: make()};
    drawn.push(one);
    new ResizeObserver(() => {
      const width = Math.max(200, place.clientWidth);
      if (width !== one.plot.width) one.plot.setSize({width, height: 280});
    }).observe(place);
  }
}

function drawCharts() {
  document.querySelectorAll("script.charts").forEach(script => {
    const charts = JSON.parse(script.textContent);
    for (const box of script.parentNode.querySelectorAll("[data-chart]"))
      if (charts[box.dataset.chart]) drawChart(box, charts[box.dataset.chart]);
  });
}

// Colours are drawn, not styled: another theme is another drawing.
dark.addEventListener("change", () => drawn.forEach(one => {
  one.plot.destroy();
  one.plot = one.make();
}));
drawCharts();
