"use strict";
// The ground of the page: what was embedded, how codes become weights, and weights colours and words.

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent); // {runs: [about, …], findings, start, served, error, ramp}
const runs = data.runs;

// codes.py: a weight is 10^(6·x/249 − 6) with x = code − 6 + (fine − 128)/256: a product of two tables.
const [MASKED, ZERO, NAN, TINY, OUT, LEAK, FIRST] = [0, 1, 2, 3, 4, 5, 6];
const COARSE = Float64Array.from({ length: 256 }, (_, code) => (code < FIRST ? 0 : 10 ** (6 * ((code - FIRST) / 249 - 1))));
COARSE[NAN] = COARSE[OUT] = NaN;
const FINE = Float64Array.from({ length: 256 }, (_, fine) => 10 ** ((6 * (fine - 128)) / 256 / 249));

/** The weight of a code and its second byte (undefined where it was not kept). */
function weight(code, fine) {
  if (code === LEAK) return fine === undefined ? NaN : COARSE[fine];
  return COARSE[code] * (fine === undefined || code < FIRST ? 1 : FINE[fine]);
}

/** What a cell holds, in words: a share, or why there is none. */
function words(code, fine) {
  if (code === MASKED) return "masked";
  if (code === ZERO) return "exactly 0";
  if (code === NAN) return "not a number";
  if (code === TINY) return "below 0.0001 %";
  if (code === OUT) return "out of range";
  const shown = percent(weight(code, fine), fine === undefined || code === LEAK ? 2 : 3);
  return code === LEAK ? `${Number.isNaN(weight(code, fine)) ? "weight" : shown} where the mask forbids it` : shown;
}

/** A share in words, with so many figures. */
function percent(p, figures = 3) {
  if (p === null || Number.isNaN(p)) return "—";
  if (p === 0) return "0 %";
  const shown = (100 * p).toPrecision(figures);
  return `${Number(shown) >= 100 ? 100 : shown.includes("e") ? Number(shown) : shown} %`;
}

// Scales: each gives a weight its place in 0 … 1 on a domain that never moves; `row` knows {attended, maximum} of the cell's row.
const SCALES = {
  near: { title: "log from 0.1 %", ticks: ["≤ 0.1 %", "1 %", "10 %", "100 %"], place: (p) => 1 + Math.log10(p || 1e-12) / 3 },
  log: { title: "log from 10⁻⁶", ticks: ["≤ 10⁻⁶", "10⁻⁵", "10⁻⁴", "0.1 %", "1 %", "10 %", "100 %"], place: (p) => 1 + Math.log10(p || 1e-12) / 6 },
  linear: { title: "linear", ticks: ["0 %", "25 %", "50 %", "75 %", "100 %"], place: (p) => p },
  lift: { title: "against uniform", ticks: ["1/64", "1/8", "uniform", "8×", "64×"], diverging: true, perRow: true,
          place: (p, row) => 0.5 + Math.log2((p || 1e-12) * row.attended) / 12 },
  row: { title: "share of the row's largest", ticks: ["0 %", "25 %", "50 %", "75 %", "100 %"], perRow: true, place: (p, row) => p / row.maximum },
};
/** The scale that a page begins with: a row of a short text has no room for six decades. */
const USUAL = Math.max(...runs.flatMap(({ calls }) => calls.map(({ K }) => K))) <= 256 ? "near" : "log";
const POOLS = { share: "sum over keys, mean over rows", largest: "largest weight in the cell" };

/** The bytes of a text in base64; a loop takes a tenth of the time of Uint8Array.from. */
function bytes(text) {
  const letters = atob(text);
  const found = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at++) found[at] = letters.charCodeAt(at);
  return found;
}
const RAMPS = Object.fromEntries(Object.entries(data.ramp).map(([name, text]) => [name, bytes(text)]));
const dark = matchMedia("(prefers-color-scheme: dark)");
let chosenTheme = null;
/** The theme that is on: what the reader chose, otherwise what the system says. */
const theme = () => chosenTheme ?? (dark.matches ? "dark" : "light");
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const step = (p, scale, row) => Math.round(255 * Math.min(1, Math.max(0, SCALES[scale].place(p, row))));
const rgb = (at, scale) => RAMPS[`${SCALES[scale]?.diverging ? "diverging-" : ""}${theme()}`].subarray(3 * at, 3 * at + 3);
const colour = (at, scale) => `rgb(${rgb(at, scale).join(" ")})`;
/** Letters that can be read on that colour. */
const ink = (at, scale) => {
  const [r, g, b] = rgb(at, scale);
  return 0.3 * r + 0.59 * g + 0.11 * b > 130 ? "#1b1d24" : "#fbfaf6";
};

/** One 32-bit pixel per code. Masked cells stay clear, so that the hatching behind them shows; what is wrong is alarming. */
function palette(scale, row = { attended: 1, maximum: 1 }) {
  const pixels = new Uint32Array(256);
  const solid = (name) => css(name).match(/[0-9a-f]{2}/gi).map((pair) => parseInt(pair, 16));
  const special = { [NAN]: solid("--nan"), [OUT]: solid("--out"), [LEAK]: solid("--leak"), [ZERO]: solid("--zero") };
  for (let code = 0; code < 256; code++) {
    const [r, g, b] = special[code] ?? rgb(step(code === TINY ? 0 : COARSE[code], scale, row), scale);
    pixels[code] = code === MASKED ? 0 : (255 << 24) | (b << 16) | (g << 8) | r;
  }
  return pixels;
}

function element(tag, content, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  if (content !== undefined && content !== null) made.textContent = content;
  made.append(...children);
  return made;
}

const clip = (text, letters) => (text.length > letters ? `${text.slice(0, letters - 1)}…` : text);
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
