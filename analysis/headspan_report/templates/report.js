"use strict";
// The map of heads and pairs. State: a stream, a checkpoint, the head that is pointed at, the one that is kept.
// Arrays come packed (pack.py) and are unpacked when their stream is first shown. Those of the first stream stand before
// this script, the others behind it: the first map is there before the whole page is read.
const study = JSON.parse(document.getElementById("study").textContent);
const byId = id => document.getElementById(id);
const canvases = {heads: byId("heads"), pairs: byId("pairs")};
const NONE8 = 255, NONE16 = 65535;
const state = {stream: 0, checkpoint: study.checkpoints.length - 1, kept: null, shown: null};
const loaded = {};

// cividis, every 32nd colour: even in lightness, the same to all common kinds of colour vision.
const STOPS = [[0, 34, 78], [26, 56, 111], [67, 78, 108], [99, 101, 112], [126, 125, 120], [157, 150, 118],
               [190, 177, 108], [224, 206, 89], [254, 232, 56]];
const PALETTE = Array.from({length: 256}, (_, i) => {
  const at = i / 255 * (STOPS.length - 1), low = Math.min(Math.floor(at), STOPS.length - 2), part = at - low;
  return STOPS[low].map((value, c) => Math.round(value + part * (STOPS[low + 1][c] - value)));
});
const GREY = [225, 225, 225];

function show(value, digits = 3) { return value === null || Number.isNaN(value) ? "–" : value.toFixed(digits); }

async function unpack(id, Type, row) {
  const text = atob(byId(id).textContent), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const values = new Type(await new Response(stream).arrayBuffer());
  for (let i = row; i < values.length; i++) values[i] += values[i - row];
  return values;
}

// The stream's arrays, each [checkpoint, ...] in one typed array.
async function load(s) {
  if (loaded[s]) return loaded[s];
  if (s > 0 && document.readyState === "loading")
    await new Promise(done => document.addEventListener("DOMContentLoaded", done, {once: true}));
  const stream = study.streams[s], heads = stream.layer.length, n = stream.references;
  const offset = new Uint32Array(heads), upto = new Uint32Array(heads);  // of a target's causal pairs
  let pairs = 0;
  stream.layer.forEach((layer, t) => {
    offset[t] = pairs;
    upto[t] = stream.layer.filter(other => other <= layer).length;
    pairs += upto[t] - 1;
  });
  const id = name => `${stream.name}.${name}`;
  const data = {...stream, heads, offset, upto, pairCount: pairs, rules: {}};
  data.pairs = await unpack(id("pairs"), Uint8Array, pairs);
  data.source = await unpack(id("source"), Uint16Array, heads);
  data.best = await unpack(id("best"), Uint16Array, 2 * heads);
  data.rank = await unpack(id("rank"), Uint16Array, heads);
  for (const rule of ["pairwise", "forward"])
    if (byId(id("references_" + rule)))
      data.rules[rule] = {
        references: await unpack(id("references_" + rule), Uint16Array, heads * n),
        joint: await unpack(id("joint_" + rule), Uint8Array, 2 * heads * n)};
  data.perLayer = Math.max(...stream.head) + 1;
  data.layers = Math.max(...stream.layer) + 1;
  return loaded[s] = data;
}

// R² of a pair by 8 bits; null: not causal, or the head itself.
function pairValue(data, c, target, source) {
  if (source === target || source >= data.upto[target]) return null;
  return data.pairs[c * data.pairCount + data.offset[target] + source - (source > target ? 1 : 0)];
}

// part 0: in-sample, 1: held-out.
function bestOf(data, c, part, head) {
  const value = data.best[(c * 2 + part) * data.heads + head];
  return value === NONE16 ? null : value / 32767 - 1;
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
  context.clearRect(0, 0, canvas.width, canvas.height);
  for (let head = 0; head < data.heads; head++) {
    const best = bestOf(data, state.checkpoint, 0, head), [x, y] = cell(head);
    const colour = best === null ? GREY : PALETTE[Math.round(255 * Math.min(1, Math.max(0, best)))];
    context.fillStyle = `rgb(${colour})`;
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
  for (const source of referencesOf(data, target)) { outline(source, "#fff", 4); outline(source, "#D55E00", 2); }
  outline(target, "#fff", 5);
  outline(target, "#000", 3);
}

// The pairs of the checkpoint, one pixel each, kept until another checkpoint is wanted.
function pairPlane(data) {
  if (data.plane && data.plane.checkpoint === state.checkpoint) return data.plane.canvas;
  const size = data.heads, image = new ImageData(size, size), pixels = image.data;
  for (let t = 0, at = 0; t < size; t++)
    for (let s = 0; s < size; s++, at += 4) {
      const value = pairValue(data, state.checkpoint, t, s);
      const colour = s === t ? [255, 255, 255] : value === null || value === NONE8 ? GREY
        : PALETTE[Math.round(value * 255 / 254)];
      pixels[at] = colour[0]; pixels[at + 1] = colour[1]; pixels[at + 2] = colour[2]; pixels[at + 3] = 255;
    }
  const canvas = Object.assign(document.createElement("canvas"), {width: size, height: size});
  canvas.getContext("2d").putImageData(image, 0, 0);
  data.plane = {checkpoint: state.checkpoint, canvas};
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
  context.fillStyle = "rgba(255,255,255,0.55)";
  for (let head = 1; head < size; head++)
    if (data.layer[head] !== data.layer[head - 1]) {
      context.fillRect(0, head * scale - 0.5, side, 1);
      context.fillRect(head * scale - 0.5, 0, 1, side);
    }
  const pointed = state.shown || state.kept;
  if (!pointed) return;
  context.strokeStyle = "#D55E00";
  context.lineWidth = 1;
  context.strokeRect(-1, pointed.target * scale - 0.5, side + 2, scale + 1);  // around the row, not on it
  if (pointed.source !== null) context.strokeRect(pointed.source * scale - 0.5, -1, scale + 1, side + 2);
}

function drawScale(data) {
  const canvas = byId("scale"), context = canvas.getContext("2d"), w = canvas.width;
  context.clearRect(0, 0, w, canvas.height);
  for (let x = 0; x < w; x++) {
    context.fillStyle = `rgb(${PALETTE[Math.round(255 * x / (w - 1))]})`;
    context.fillRect(x, 0, 1, 18);
  }
  if (data.nullBest === null) return;
  const x = data.nullBest * w;
  context.fillStyle = "#D55E00";
  context.fillRect(x - 1, 0, 3, 22);
  context.font = "13px sans-serif";
  context.fillText("null " + show(data.nullBest), Math.min(x - 2, w - 66), 35);
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

function drawDetail(data) {
  const detail = byId("detail"), pointed = state.shown || state.kept;
  detail.replaceChildren();
  detail.classList.toggle("hint", !pointed);
  if (!pointed) return void detail.append(element("p", "Point at a head or at a pair of heads."));
  const {target, source} = pointed, c = state.checkpoint, best = data.source[c * data.heads + target];
  detail.append(element("h3", headName(data, target) + (state.kept ? " (kept: click again to let go)" : "")));
  if (source !== null) {
    const value = pairValue(data, c, target, source);
    const text = source === target ? "the head itself" : value === null ? "not causal: a later layer"
      : value === NONE8 ? "no R²" : `R² ${(value / 254).toFixed(2)}`;
    detail.append(element("p", `From ${headName(data, source)}: ${text}. Null of a pair: ${show(data.nullPairs)}.`));
  }
  detail.append(element("p", best === NONE16 ? "It has no causal source."
    : `Best from ${headName(data, best)}: R² ${show(bestOf(data, c, 0, target))} in-sample, ` +
      `${show(bestOf(data, c, 1, target))} held-out. Null: ${show(data.nullBest)}.`));
  const rank = data.rank[c * data.heads + target];
  detail.append(element("p", `Effective rank ${rank === NONE16 ? "–" : (rank / 65534 * data.headSize).toFixed(1)} of ` +
                             `${data.headSize}. Joint R² of its first N references:`));
  if (Object.keys(data.rules).length) detail.append(ruleTable(data, target));
}

function drawNumbers() {
  const [inSample, adjusted, heldout, pairs, intra, inter, rank] = study.figures[state.checkpoint][state.stream];
  byId("label").textContent = study.checkpoints[state.checkpoint];
  byId("numbers").textContent = `Mean R² from the best source ${show(inSample)} (adjusted ${show(adjusted)}, ` +
    `held-out ${show(heldout)}); of all causal pairs ${show(pairs)}, within a layer ${show(intra)}, between layers ` +
    `${show(inter)}; mean effective rank ${show(rank, 2)}.`;
}

async function draw() {
  const wanted = state.stream;
  drawNumbers();
  const data = await load(wanted);
  if (wanted !== state.stream) return;  // another was chosen meanwhile
  byId("lastlayer").textContent = `layer ${data.layers - 1}`;
  drawScale(data); drawHeads(data); drawPairs(data); drawDetail(data);
  document.body.dataset.drawn = `${data.name} ${state.checkpoint}`;
}

function pointing(canvas, find) {
  const at = event => {
    const data = loaded[state.stream], box = canvas.getBoundingClientRect();
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
  const data = loaded[state.stream];
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
slider.max = study.checkpoints.length - 1;
slider.value = state.checkpoint;
slider.setAttribute("aria-valuetext", study.checkpoints[state.checkpoint]);
slider.addEventListener("input", () => {
  state.checkpoint = Number(slider.value);
  slider.setAttribute("aria-valuetext", study.checkpoints[state.checkpoint]);
  draw();
});
document.querySelectorAll("#streams input").forEach(input => input.addEventListener("change", () => {
  state.stream = Number(input.value);
  state.kept = state.shown = null;
  draw();
}));
let resized = 0;
window.addEventListener("resize", () => { cancelAnimationFrame(resized); resized = requestAnimationFrame(draw); });
window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(d => { d.open = true; }));
draw();
