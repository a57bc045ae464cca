"use strict";
// The map of heads and pairs. State: a study, a stream, a checkpoint, the head that is pointed at, the one that is kept,
// the measure that colours heads.
// Arrays come packed (pack.py) and are unpacked when their stream is first shown. Those of the first stream stand before
// this script, the others behind it: the first map is there before the whole page is read.
const studies = JSON.parse(document.getElementById("studies").textContent);
const byId = id => document.getElementById(id);
const canvases = {heads: byId("heads"), pairs: byId("pairs")};
const NONE8 = 255, NONE16 = 65535;
const state = {study: 0, stream: 0, checkpoint: studies[0].checkpoints.length - 1, kept: null, shown: null, colour: "best"};
const loaded = {};
const study = () => studies[state.study];
const current = () => loaded[`${state.study}.${study().streams[state.stream].name}`];
const measures = () => study().streams[state.stream].measures;
const measure = () => measures().find(one => one.name === state.colour) || measures()[0];  // the stream may not have it

// cividis, every 32nd colour: even in lightness, the same to all common kinds of colour vision.
const STOPS = [[0, 34, 78], [26, 56, 111], [67, 78, 108], [99, 101, 112], [126, 125, 120], [157, 150, 118],
               [190, 177, 108], [224, 206, 89], [254, 232, 56]];
const PALETTE = Array.from({length: 256}, (_, i) => {
  const at = i / 255 * (STOPS.length - 1), low = Math.min(Math.floor(at), STOPS.length - 2), part = at - low;
  return STOPS[low].map((value, c) => Math.round(value + part * (STOPS[low + 1][c] - value)));
});
const theme = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const cssRgb = value => value.length === 4 ? [...value.slice(1)].map(c => parseInt(c + c, 16))
  : [1, 3, 5].map(i => parseInt(value.slice(i, i + 2), 16));

function show(value, digits = 3) { return value === null || Number.isNaN(value) ? "–" : value.toFixed(digits); }

async function unpack(id, Type, row) {
  const text = atob(byId(id).textContent), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const values = new Type(await new Response(stream).arrayBuffer());
  for (let i = row; i < values.length; i++) values[i] += values[i - row];
  return values;
}

// The arrays of the stream that is wanted, each [checkpoint, ...] in one typed array.
async function load() {
  const number = state.study, stream = study().streams[state.stream];
  const name = `${number}.${stream.name}`, heads = stream.layer.length, n = stream.references;
  if (loaded[name]) return loaded[name];
  if ((number > 0 || state.stream > 0) && document.readyState === "loading")
    await new Promise(done => document.addEventListener("DOMContentLoaded", done, {once: true}));
  const offset = new Uint32Array(heads), upto = new Uint32Array(heads);  // of a target's causal pairs
  let pairs = 0;
  stream.layer.forEach((layer, t) => {
    offset[t] = pairs;
    upto[t] = stream.layer.filter(other => other <= layer).length;
    pairs += upto[t] - 1;
  });
  const id = array => `${name}.${array}`;
  const data = {...stream, heads, offset, upto, pairCount: pairs, rules: {}, ranges: {}};
  data.pairs = await unpack(id("pairs"), Uint8Array, pairs);
  data.source = await unpack(id("source"), Uint16Array, heads);
  for (const {array, rows} of stream.measures) data[array] ??= await unpack(id(array), Uint16Array, rows * heads);
  for (const rule of ["pairwise", "forward"])
    if (byId(id("references_" + rule)))
      data.rules[rule] = {
        references: await unpack(id("references_" + rule), Uint16Array, heads * n),
        joint: await unpack(id("joint_" + rule), Uint8Array, 2 * heads * n)};
  data.perLayer = Math.max(...stream.head) + 1;
  data.layers = Math.max(...stream.layer) + 1;
  return loaded[name] = data;
}

// R² of a pair by 8 bits; null: not causal, or the head itself.
function pairValue(data, c, target, source) {
  if (source === target || source >= data.upto[target]) return null;
  return data.pairs[c * data.pairCount + data.offset[target] + source - (source > target ? 1 : 0)];
}

// A measure of a head at this checkpoint; null: there is none.
function measured(data, name, head) {
  const found = data.measures.find(one => one.name === name);
  if (!found) return null;
  const value = data[found.array][(state.checkpoint * found.rows + found.row) * data.heads + head];
  return value === NONE16 ? null : found.low + value / 65534 * (found.high - found.low);
}

// The range of a colour scale: from the first to the last hundredth of the values, outward to a twentieth.
function rangeOf(sorted) {
  const at = share => {
    const place = share * (sorted.length - 1), low = Math.floor(place), high = Math.ceil(place);
    return sorted[low] + (sorted[high] - sorted[low]) * (place - low);
  };
  if (sorted.length === 0) return {low: 0, high: 1, below: false, above: false};
  const low = Math.max(0, Math.floor(20 * at(0.01) + 1e-9) / 20);
  const high = Math.max(low + 0.05, Math.ceil(20 * at(0.99) - 1e-9) / 20);
  return {low, high, below: sorted[0] < low - 0.002, above: sorted[sorted.length - 1] > high + 0.002};
}

// Of what the maps show at this checkpoint.
function ranges(data) {
  const c = state.checkpoint, {name} = measure(), heads = `${name} ${c}`;
  data.ranges[heads] ??= rangeOf(Float64Array.from({length: data.heads}, (_, head) => measured(data, name, head) ?? NaN)
    .filter(value => !Number.isNaN(value)).sort());
  data.ranges[c] ??= rangeOf(Float32Array.from(data.pairs.slice(c * data.pairCount, (c + 1) * data.pairCount)
    .filter(value => value !== NONE8).sort(), value => value / 254));
  return {heads: data.ranges[heads], pairs: data.ranges[c]};
}

function colourOf(value, range) {
  return PALETTE[Math.round(255 * Math.min(1, Math.max(0, (value - range.low) / (range.high - range.low))))];
}

// Labels beside a map: [place as a share of the length, text], so many that they keep `apart` pixels.
function ticks(id, labels, length, apart) {
  const every = Math.max(1, Math.ceil(labels.length * apart / length)), upright = id.endsWith("y");
  byId(id).replaceChildren(...labels.filter((_, i) => i % every === 0).map(([place, text]) => {
    const label = element("span", text);
    label.style[upright ? "top" : "left"] = 100 * place + "%";
    return label;
  }));
}

function headName(data, head) { return `layer ${data.layer[head]} head ${data.head[head]}`; }

function drawHeads(data) {
  const canvas = canvases.heads, box = canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
  const height = Math.min(460, Math.max(150, data.perLayer * 22));
  canvas.style.height = height + "px";
  canvas.width = Math.round(box.width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d"), w = canvas.width / data.layers, h = canvas.height / data.perLayer;
  const cell = head => [data.layer[head] * w, canvas.height - (data.head[head] + 1) * h];
  const range = ranges(data).heads, none = theme("--none"), {name} = measure();
  ticks("heads-x", Array.from({length: data.layers}, (_, i) => [(i + 0.5) / data.layers, String(i)]), box.width, 24);
  ticks("heads-y", Array.from({length: data.perLayer}, (_, i) => [1 - (i + 0.5) / data.perLayer, String(i)]), height, 16);
  context.clearRect(0, 0, canvas.width, canvas.height);
  for (let head = 0; head < data.heads; head++) {
    const value = measured(data, name, head), [x, y] = cell(head);
    context.fillStyle = value === null ? none : `rgb(${colourOf(value, range)})`;
    context.fillRect(x + 0.5, y + 0.5, w - 1, h - 1);
  }
  const outline = (head, colour, width) => {
    const [x, y] = cell(head);
    context.lineWidth = width * ratio;
    context.strokeStyle = colour;
    context.strokeRect(x + 1, y + 1, w - 2, h - 2);
  };
  const target = pointedTarget();
  if (target === null) return;
  for (const source of referencesOf(data, target)) { outline(source, "#fff", 4); outline(source, theme("--mark"), 2); }
  outline(target, "#fff", 5);
  outline(target, "#000", 3);
}

// The pairs of the checkpoint, one pixel each, kept until another checkpoint is wanted.
function pairPlane(data) {
  const ground = theme("--none");
  if (data.plane && data.plane.checkpoint === state.checkpoint && data.plane.ground === ground) return data.plane.canvas;
  const size = data.heads, image = new ImageData(size, size), pixels = image.data, range = ranges(data).pairs;
  const none = cssRgb(ground), itself = cssRgb(theme("--paper"));
  for (let t = 0, at = 0; t < size; t++)
    for (let s = 0; s < size; s++, at += 4) {
      const value = pairValue(data, state.checkpoint, t, s);
      const colour = s === t ? itself : value === null || value === NONE8 ? none : colourOf(value / 254, range);
      pixels[at] = colour[0]; pixels[at + 1] = colour[1]; pixels[at + 2] = colour[2]; pixels[at + 3] = 255;
    }
  const canvas = Object.assign(document.createElement("canvas"), {width: size, height: size});
  canvas.getContext("2d").putImageData(image, 0, 0);
  data.plane = {checkpoint: state.checkpoint, ground, canvas};
  return canvas;
}

function drawPairs(data) {
  const canvas = canvases.pairs, size = data.heads;
  const box = canvas.getBoundingClientRect(), side = Math.round(box.width * (window.devicePixelRatio || 1));
  canvas.style.height = box.width + "px";
  canvas.width = canvas.height = side;
  const context = canvas.getContext("2d"), scale = side / size;
  context.imageSmoothingEnabled = size > side;
  context.drawImage(pairPlane(data), 0, 0, side, side);
  context.fillStyle = theme("--parting");
  for (let head = 1; head < size; head++)
    if (data.layer[head] !== data.layer[head - 1]) {
      context.fillRect(0, head * scale - 0.5, side, 1);
      context.fillRect(head * scale - 0.5, 0, 1, side);
    }
  const middles = Array.from({length: data.layers}, (_, layer) => {
    const first = data.layer.indexOf(layer), last = data.layer.lastIndexOf(layer);
    return [(first + last + 1) / 2 / size, String(layer)];
  });
  ticks("pairs-x", middles, box.width, 24);
  ticks("pairs-y", middles, box.width, 16);
  const pointed = state.shown || state.kept;
  if (!pointed) return;
  context.strokeStyle = theme("--mark");
  context.lineWidth = 1;
  context.strokeRect(-1, pointed.target * scale - 0.5, side + 2, scale + 1);  // around the row, not on it
  if (pointed.source !== null) context.strokeRect(pointed.source * scale - 0.5, -1, scale + 1, side + 2);
}

function drawScale(id, unit, range, nullValue) {
  const [low, high] = byId(id).querySelectorAll("span"), canvas = byId(id).querySelector("canvas");
  low.textContent = `${unit} ${range.below ? "≤ " : ""}${show(range.low, 2)}`;
  high.textContent = `${range.above ? "≥ " : ""}${show(range.high, 2)}`;
  const context = canvas.getContext("2d"), w = canvas.width;
  context.clearRect(0, 0, w, canvas.height);
  for (let x = 0; x < w; x++) {
    context.fillStyle = `rgb(${PALETTE[Math.round(255 * x / (w - 1))]})`;
    context.fillRect(x, 0, 1, 18);
  }
  if (nullValue === null) return;
  const place = (nullValue - range.low) / (range.high - range.low);
  const text = `${place < 0 ? "← " : ""}null ${show(nullValue)}${place > 1 ? " →" : ""}`;
  context.fillStyle = theme("--mark");
  if (place >= 0 && place <= 1) context.fillRect(Math.min(place * w, w - 2) - 1, 0, 3, 22);
  context.font = "13px sans-serif";
  context.fillText(text, Math.min(Math.max(0, place * w - 2), w - context.measureText(text).width - 2), 35);
}

function pointedTarget() { return (state.shown || state.kept || {target: null}).target; }

function referencesOf(data, target) {
  const rule = data.rules.forward || data.rules.pairwise;
  if (!rule) return [];
  const start = (state.checkpoint * data.heads + target) * data.references;
  return Array.from(rule.references.subarray(start, start + data.references)).filter(source => source !== NONE16);
}

// Elements with text, never markup: names come from files.
function element(name, text, ...children) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  made.append(...children);
  return made;
}

function ruleTable(data, target) {
  const names = Object.keys(data.rules), n = data.references, c = state.checkpoint;
  const titles = {pairwise: "best pairwise", forward: "forward selection"};
  const above = element("tr", "", element("th")), head = element("tr", "", element("th", "N"));
  for (const rule of names) {
    above.append(Object.assign(element("th", titles[rule]), {colSpan: 3}));
    head.append(element("th", "head"), element("th", "R²"), element("th", "held-out"));
  }
  const body = element("tbody");
  for (let i = 0; i < n; i++) {
    const row = element("tr", "", element("td", String(i + 1)));
    for (const rule of names) {
      const {references, joint} = data.rules[rule], source = references[(c * data.heads + target) * n + i];
      const value = part => {
        const found = joint[((c * 2 + part) * data.heads + target) * n + i];
        return found === NONE8 ? "–" : (found === 0 ? "≤ " : "") + (found / 254).toFixed(2);
      };
      row.append(element("td", source === NONE16 ? "–" : `L${data.layer[source]} H${data.head[source]}`),
                 element("td", value(0)), element("td", value(1)));
    }
    body.append(row);
  }
  const wide = element("div", "", element("table", "", element("thead", "", above, head), body));
  wide.className = "wide";
  return wide;
}

function scoreTable(data, target) {
  const row = (kind, ...texts) => element("tr", "", ...texts.map(text => element(kind, text)));
  const scores = data.measures.filter(one => one.array === "scores");
  const body = scores.map(one => row("td", one.label, show(measured(data, one.name, target)), show(one.nullValue)));
  return element("table", "", element("thead", "", row("th", "attention", "this head", "null: uniform")),
                 element("tbody", "", ...body));
}

function drawDetail(data) {
  const detail = byId("detail"), pointed = state.shown || state.kept;
  detail.replaceChildren();
  detail.classList.toggle("hint", !pointed);
  if (!pointed) return void detail.append(element("p", "Point at a head or at a pair of heads."));
  const {target, source} = pointed, c = state.checkpoint, best = data.source[c * data.heads + target];
  const of = name => measured(data, name, target);
  detail.append(element("h3", headName(data, target) + (state.kept ? " (kept: click again to let go)" : "")));
  if (source !== null) {
    const value = pairValue(data, c, target, source);
    const text = source === target ? "the head itself" : value === null ? "not causal: a later layer"
      : value === NONE8 ? "no R²" : `R² ${(value / 254).toFixed(2)}`;
    detail.append(element("p", `From ${headName(data, source)}: ${text}. Null of a pair: ${show(data.nullPairs)}.`));
  }
  detail.append(element("p", best === NONE16 ? "It has no causal source."
    : `Best from ${headName(data, best)}: R² ${show(of("best"))} in-sample, ${show(of("heldout"))} held-out. ` +
      `Null: ${show(data.measures[0].nullValue)}.`));
  if (data.scores) detail.append(scoreTable(data, target));
  detail.append(element("p", `Effective rank ${show(of("rank"), 1)} of ${data.headSize}. ` +
                             "Joint R² of its first N references:"));
  if (Object.keys(data.rules).length) detail.append(ruleTable(data, target));
}

function drawNumbers() {
  const [inSample, adjusted, heldout, pairs, intra, inter, rank] = study().figures[state.checkpoint][state.stream];
  byId("label").textContent = study().checkpoints[state.checkpoint];
  byId("numbers").textContent = `Mean R² from the best source ${show(inSample)} (adjusted ${show(adjusted)}, ` +
    `held-out ${show(heldout)}); of all causal pairs ${show(pairs)}, within a layer ${show(intra)}, between layers ` +
    `${show(inter)}; mean effective rank ${show(rank, 2)}.`;
}

async function draw() {
  const {study: number, stream} = state;
  drawNumbers();
  const data = await load();
  if (number !== state.study || stream !== state.stream) return;  // another was chosen meanwhile
  const {array, label, unit, nullValue} = measure(), told = `null, uniform attention: ${show(nullValue)}`;
  byId("heads-title").textContent = `Heads: ${label}${array === "scores" ? ` (${told})` : ""}`;
  drawScale("heads-scale", unit, ranges(data).heads, nullValue);
  drawScale("pairs-scale", "R²", ranges(data).pairs, data.nullPairs);
  drawHeads(data); drawPairs(data); drawDetail(data);
  document.body.dataset.drawn = `${data.name} ${state.checkpoint}`;
}

function pointing(canvas, find) {
  const at = event => {
    const data = current(), box = canvas.getBoundingClientRect();
    return data ? find(data, (event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height) : null;
  };
  canvas.addEventListener("pointermove", event => { state.shown = at(event); draw(); });
  canvas.addEventListener("pointerleave", () => { state.shown = null; draw(); });
  canvas.addEventListener("click", event => {
    const found = at(event), kept = state.kept;
    state.kept = kept && found && kept.target === found.target && kept.source === found.source ? null : found;
    draw();
  });
}

const within = (share, count) => Math.min(count - 1, Math.max(0, Math.floor(share * count)));
function headAt(data, layer, number) {
  const head = data.layer.findIndex((value, i) => value === layer && data.head[i] === number);
  return head < 0 ? null : {target: head, source: null};
}

pointing(canvases.heads, (data, x, y) => headAt(data, within(x, data.layers), within(1 - y, data.perLayer)));
pointing(canvases.pairs, (data, x, y) => ({target: within(y, data.heads), source: within(x, data.heads)}));
canvases.heads.addEventListener("keydown", event => {
  const step = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1]}[event.key];
  const data = current();
  if (event.key === "Escape") state.kept = null;
  else if (step && data) {
    const head = state.kept ? state.kept.target : 0;
    const next = headAt(data, data.layer[head] + step[0], data.head[head] + step[1]);
    state.kept = next || state.kept || {target: head, source: null};
    event.preventDefault();
  } else return;
  draw();
});
const slider = byId("checkpoint");
function setSlider() {
  slider.max = study().checkpoints.length - 1;
  slider.value = state.checkpoint;
  slider.setAttribute("aria-valuetext", study().checkpoints[state.checkpoint]);
}
setSlider();
slider.addEventListener("input", () => {
  state.checkpoint = Number(slider.value);
  setSlider();
  draw();
});
// The buttons of the streams that the study has.
function setStreams() {
  const labels = byId("streams").querySelectorAll("label");
  labels.forEach((label, i) => {
    const stream = study().streams[i], input = label.querySelector("input");
    label.hidden = !stream;
    if (stream) label.querySelector("span").textContent = stream.title;
    input.checked = i === state.stream;
  });
}
const colour = byId("colour");
// The measures of the stream, if one of the study's streams has scores.
function setColours() {
  const scored = stream => stream.measures.some(one => one.array === "scores"), {streams} = study();
  byId("scores-told").hidden = !scored(streams[state.stream]);
  colour.parentNode.hidden = !streams.some(scored);
  if (colour.parentNode.hidden) state.colour = "best";
  colour.replaceChildren(...measures().map(one => new Option(one.label, one.name)));
  colour.value = measure().name;
}
setColours();
colour.addEventListener("change", () => { state.colour = colour.value; draw(); });
byId("streams").addEventListener("change", event => {
  state.stream = Number(event.target.value);
  state.kept = state.shown = null;
  setColours();
  draw();
});
const choice = byId("study-choice");
if (choice) choice.addEventListener("change", () => {
  state.study = Number(choice.value);
  state.stream = Math.min(state.stream, study().streams.length - 1);
  state.checkpoint = study().checkpoints.length - 1;
  state.kept = state.shown = null;
  setStreams(); setSlider(); setColours();
  draw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
let resized = 0;
window.addEventListener("resize", () => { cancelAnimationFrame(resized); resized = requestAnimationFrame(draw); });
window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(d => { d.open = true; }));
draw();
