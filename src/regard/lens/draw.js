"use strict";
// What is drawn: codes to weights, weights to colours, colours to canvases. State and controls are in viewer.js.

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const n = data.tokens.length;
const [MASKED, TINY, BROKEN, FIRST] = [0, 1, 2, 3];
const dark = matchMedia("(prefers-color-scheme: dark)");

// A weight is 10^(6·x/252 − 6) with x = code − 3 + (fine − 128)/256: a product of two tables.
const COARSE = Float64Array.from({ length: 256 }, (_, code) => (code < FIRST ? 0 : 10 ** (6 * ((code - FIRST) / 252 - 1))));
COARSE[BROKEN] = NaN;
const FINE = Float64Array.from({ length: 256 }, (_, fine) => 10 ** ((6 * (fine - 128)) / 256 / 252));

const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

async function unpack(id) {
  const node = $(id);
  if (!node) return null;
  const stream = new Blob([bytes(node.textContent)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

const unpacked = new Map();
/** The codes of one head: {code, weight(i, j)}. */
function load(layer, head) {
  const key = `${layer}-${head}`;
  if (!unpacked.has(key)) {
    unpacked.set(key, Promise.all([unpack(`coarse-${key}`), unpack(`fine-${key}`)]).then(([code, fine]) => ({
      code,
      weight: (i, j) => COARSE[code[i * n + j]] * (fine ? FINE[fine[i * n + j]] : 1),
    })));
  }
  return unpacked.get(key);
}

/** A weight in words: three figures where the second byte is there, two where it is not. */
function percent(p) {
  return p < 1e-4 ? "< 0.01 %" : share(p, data.fine ? 3 : 2);
}

function share(p, figures) {
  if (Number.isNaN(p)) return "not a number";
  const shown = (100 * p).toPrecision(figures);
  return `${p === 0 ? 0 : Number(shown) >= 100 ? 100 : shown.includes("e") ? Number(shown) : shown} %`;
}

// Colour: a place on a domain that never moves, by logarithm or in proportion, then the ramp of the theme.
const SCALES = {
  log: { title: "logarithmic", ticks: ["0.1 %", "1 %", "10 %", "100 %"], place: (p) => 1 + Math.log10(p || 1e-9) / 3 },
  deep: { title: "logarithmic, deeper", ticks: ["0.001 %", "0.01 %", "0.1 %", "1 %", "10 %", "100 %"], place: (p) => 1 + Math.log10(p || 1e-9) / 5 },
  linear: { title: "linear", ticks: ["0 %", "25 %", "50 %", "75 %", "100 %"], place: (p) => p },
};
const RAMPS = { light: bytes(data.ramp.light), dark: bytes(data.ramp.dark) };
const theme = () => (dark.matches ? "dark" : "light");
const place = (p, scale) => Math.round(255 * Math.min(1, Math.max(0, SCALES[scale].place(p))));
const rgb = (step) => RAMPS[theme()].subarray(3 * step, 3 * step + 3);
const css = (step) => `rgb(${rgb(step).join(" ")})`;
const ink = (step) => {
  const [r, g, b] = rgb(step);
  return 0.3 * r + 0.59 * g + 0.11 * b > 130 ? "#1b1d24" : "#fbfaf6";
};
const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** One 32-bit pixel per code; masked cells stay clear, so that the hatching behind them shows. */
function palette(scale) {
  const pixels = new Uint32Array(256);
  const bad = token("--bad").match(/[0-9a-f]{2}/gi).map((pair) => parseInt(pair, 16));
  for (let code = 0; code < 256; code++) {
    const [r, g, b] = code === BROKEN ? bad : rgb(place(COARSE[code], scale));
    pixels[code] = code === MASKED ? 0 : (255 << 24) | (b << 16) | (g << 8) | r;
  }
  return pixels;
}

function paint(canvas, code, stride, pixels, row = 0, column = 0, size = stride) {
  canvas.width = canvas.height = size;
  const context = canvas.getContext("2d");
  const image = context.createImageData(size, size);
  const out = new Uint32Array(image.data.buffer);
  for (let i = 0; i < size; i++) {
    for (let j = 0; j < size; j++) out[i * size + j] = pixels[code[(row + i) * stride + column + j]];
  }
  context.putImageData(image, 0, 0);
}

const clip = (text, letters) => (text.length > letters ? `${text.slice(0, letters - 1)}…` : text);

/** The matrix: cells on one canvas, axes and marks on another above it. view: {row, column, size} in tokens. */
const matrix = {
  layout(view) {
    const width = $("matrix").clientWidth;
    const longest = Math.max(...data.tokens.slice(view.row, view.row + view.size).map((t) => t.length),
                             ...data.tokens.slice(view.column, view.column + view.size).map((t) => t.length));
    const margin = Math.round(Math.min(width * 0.19, 96, 30 + 7 * longest));
    return { width, margin, side: width - margin, cell: (width - margin) / view.size };
  },

  draw(code, view, pin, hover, scale) {
    const { width, margin, side, cell } = this.layout(view);
    const cells = $("cells");
    paint(cells, code, n, palette(scale), view.row, view.column, view.size);
    Object.assign(cells.style, { left: `${margin}px`, top: `${margin}px`, width: `${side}px`, height: `${side}px`,
                                 imageRendering: cell < 3 ? "auto" : "pixelated" });

    const axes = $("axes");
    const ratio = devicePixelRatio || 1;
    axes.width = axes.height = Math.round(width * ratio);
    const context = axes.getContext("2d");
    context.scale(ratio, ratio);
    const size = Math.max(9, Math.min(13, cell * 0.72));
    const font = getComputedStyle(document.body).fontFamily;
    const [strong, soft, accent, paper, line] = ["--ink", "--soft", "--accent", "--paper", "--line"].map(token);
    const letters = Math.floor((margin - 22) / (size * 0.56));
    context.textBaseline = "middle";

    const label = (at, index, kind) => {
      context.font = `${kind ? 600 : 400} ${size}px ${font}`;
      context.fillStyle = kind === "pin" ? accent : kind ? strong : soft;
      context.textAlign = at === "row" ? "right" : "left";
      const text = clip(data.tokens[index], letters);
      context.save();
      if (at === "row") context.translate(margin - 6, margin + (index - view.row + 0.5) * cell);
      else {
        context.translate(margin + (index - view.column + 0.5) * cell, margin - 6);
        context.rotate(-Math.PI / 2);
      }
      if (kind && cell < size) {  // a label between others that are too close: clear the ground first
        const wide = context.measureText(text).width;
        context.fillStyle = paper;
        context.fillRect(at === "row" ? -wide - 4 : -3, -size * 0.75, wide + 7, size * 1.5);
        context.fillStyle = kind === "pin" ? accent : strong;
      }
      context.fillText(text, 0, 0.5);
      context.restore();
    };
    const every = Math.ceil((size + 2) / cell);
    for (const [at, start] of [["row", view.row], ["column", view.column]]) {
      for (let index = Math.ceil(start / every) * every; index < start + view.size; index += every) {
        if (index !== pin && index !== hover?.[at]) label(at, index, "");
      }
    }

    context.strokeStyle = line;
    context.strokeRect(margin - 0.5, margin - 0.5, side, side);
    context.strokeStyle = accent;
    context.lineWidth = 1.5;
    const row = margin + (pin - view.row) * cell, column = margin + (pin - view.column) * cell;
    context.save();
    context.beginPath();
    context.rect(margin - 2, margin - 2, side + 3, side + 3);
    context.clip();
    context.strokeRect(margin - 1, row, side + 1, Math.max(cell, 2));
    context.setLineDash([4, 3]);
    context.strokeRect(column, margin - 1, Math.max(cell, 2), side + 1);
    context.setLineDash([]);
    if (hover) {
      context.strokeStyle = strong;
      context.strokeRect(margin + (hover.column - view.column) * cell, margin + (hover.row - view.row) * cell, cell, cell);
    }
    context.restore();
    for (const [at, start] of [["row", view.row], ["column", view.column]]) {
      if (hover && hover[at] !== pin) label(at, hover[at], "hover");
      if (pin >= start && pin < start + view.size) label(at, pin, "pin");
    }

    context.fillStyle = soft;
    context.font = `11px ${font}`;
    context.textAlign = "right";
    context.fillText("keys →", margin - 8, margin - 26);
    context.fillText("queries ↓", margin - 8, margin - 11);
  },

  /** The cell under the pointer: {row, column}; an axis label gives only one of the two. */
  at(event, view) {
    const { margin, cell } = this.layout(view);
    const box = $("axes").getBoundingClientRect();
    const x = event.clientX - box.left - margin, y = event.clientY - box.top - margin;
    const index = (offset, start) => start + Math.min(view.size - 1, Math.floor(offset / cell));
    return { row: y >= 0 ? index(y, view.row) : null, column: x >= 0 ? index(x, view.column) : null };
  },
};
