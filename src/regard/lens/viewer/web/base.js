// Common definitions: the embedded data, decoding of weights, color scales, and small helpers.

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent); // {runs: [described, …], served, live, error, ramp}
const { runs } = data; // by number; a server adds runs of other texts and with changed rules, and forgets old ones
const GIVEN = runs.length;

// As in codes.py: a weight is 10^(6·x/249 − 6) with x = code − 6 + (fine − 128)/256, a product of two tables.
const [MASKED, ZERO, NAN, TINY, OUT, LEAK, FIRST] = [0, 1, 2, 3, 4, 5, 6];
const INVALID = new Set([NAN, OUT, LEAK]);
const COARSE = Float64Array.from({ length: 256 }, (_, code) => (code < FIRST ? 0 : 10 ** (6 * ((code - FIRST) / 249 - 1))));
COARSE[NAN] = COARSE[OUT] = NaN;
const FINE = Float64Array.from({ length: 256 }, (_, fine) => 10 ** ((6 * (fine - 128)) / 256 / 249));

/** The weight of a code and its second byte (undefined if it was not stored). */
function weight(code, fine) {
  if (code === LEAK) return fine === undefined ? NaN : COARSE[fine];
  return COARSE[code] * (fine === undefined || code < FIRST ? 1 : FINE[fine]);
}

/** The value of a cell as text: a weight in percent, or why it has none. */
function words(code, fine) {
  if (code === MASKED) return "masked";
  if (code === ZERO) return "exactly 0";
  if (code === NAN) return "not a number";
  if (code === TINY) return "below 0.0001 %";
  if (code === OUT) return "out of range";
  const shown = percent(weight(code, fine), fine === undefined || code === LEAK ? 2 : 3);
  return code === LEAK ? `${Number.isNaN(weight(code, fine)) ? "weight" : shown} where the mask forbids it` : shown;
}

/** A weight as text in percent, with so many significant digits. */
function percent(p, figures = 3) {
  if (p === null || Number.isNaN(p)) return "—";
  if (p === 0) return "0 %";
  const shown = (100 * p).toPrecision(figures);
  return `${Number(shown) >= 100 ? 100 : shown.includes("e") ? Number(shown) : shown} %`;
}

// Color scales: each maps a weight to 0 … 1 on a fixed domain; attended: the number of keys that the cell's row may attend to.
const SCALES = {
  near: { title: "log from 0.1 %", ticks: ["≤ 0.1 %", "1 %", "10 %", "100 %"], place: (p) => 1 + Math.log10(p || 1e-12) / 3 },
  log: { title: "log from 10⁻⁶", ticks: ["≤ 10⁻⁶", "10⁻⁵", "10⁻⁴", "0.1 %", "1 %", "10 %", "100 %"], place: (p) => 1 + Math.log10(p || 1e-12) / 6 },
  linear: { title: "linear", ticks: ["0 %", "25 %", "50 %", "75 %", "100 %"], place: (p) => p },
  lift: { title: "relative to uniform", ticks: ["1/64", "1/8", "uniform", "8×", "64×"], diverging: true, perRow: true,
          place: (p, attended) => 0.5 + Math.log2((p || 1e-12) * attended) / 12 },
  values: { title: "value-weighted", ticks: ["0 %", "25 %", "50 %", "75 %", "100 %"], place: (p) => p, values: true },
};
/** The default scale: three decades are enough for short texts. */
const USUAL = Math.max(...runs.flatMap(({ calls }) => calls.map(({ K }) => K))) <= 256 ? "near" : "log";
const POOLS = { share: "sum over keys, mean over rows", largest: "largest weight in the cell" };

/** The bytes of a base64 text; a loop is ten times as fast as Uint8Array.from. */
function bytes(text) {
  const binary = atob(text);
  const found = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at++) found[at] = binary.charCodeAt(at);
  return found;
}
const RAMPS = Object.fromEntries(Object.entries(data.ramp).map(([name, text]) => [name, bytes(text)]));
const dark = matchMedia("(prefers-color-scheme: dark)");
let chosenTheme = null;
/** The current theme: the one that was chosen, otherwise that of the system. */
const theme = () => chosenTheme ?? (dark.matches ? "dark" : "light");
const cssValues = new Map();
/** The value of a CSS variable in the theme that is shown; cached, since reading one may trigger layout. */
function css(name) {
  const key = `${document.documentElement.dataset.theme} ${name}`;
  if (!cssValues.has(key)) cssValues.set(key, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return cssValues.get(key);
}
const step = (p, scale, attended) => Math.round(255 * Math.min(1, Math.max(0, SCALES[scale].place(p, attended))));
const rgb = (at, scale) => RAMPS[`${SCALES[scale]?.diverging ? "diverging-" : ""}${theme()}`].subarray(3 * at, 3 * at + 3);
const color = (at, scale) => `rgb(${rgb(at, scale).join(" ")})`;
/** The relative luminance of a color of three bytes. Source: WCAG 2. */
const luminance = (color) => [0.2126, 0.7152, 0.0722].reduce((sum, part, at) => sum + part * ((color[at] / 255 <= 0.04045 ? color[at] / 255 / 12.92 : ((color[at] / 255 + 0.055) / 1.055) ** 2.4)), 0);
/** Black or white, whichever has more contrast with that color: at luminance 0.179 both have 4.58:1. */
const ink = (at, scale) => (luminance(rgb(at, scale)) > 0.179 ? "#000000" : "#ffffff");

/** The text colors on the signal colors of weights that are not plain numbers. */
const INKS = { [ZERO]: "--ink", [NAN]: "--on-nan", [OUT]: "--on-out", [LEAK]: "--on-leak" };

/** One 32-bit pixel per code. Masked cells are transparent, so that the hatching shows; invalid weights have signal colors. */
function palette(scale, attended = 1) {
  const special = { [MASKED]: 0, [NAN]: tintOf("--nan"), [OUT]: tintOf("--out"), [LEAK]: tintOf("--leak"), [ZERO]: tintOf("--zero") };
  return Uint32Array.from({ length: 256 }, (_, code) => special[code] ?? pixelOf(rgb(step(code === TINY ? 0 : COARSE[code], scale, attended), scale)));
}
const pixelOf = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
const tintOf = (name) => pixelOf(css(name).match(/[0-9a-f]{2}/gi).map((pair) => parseInt(pair, 16)));

/** An element with a text, properties and children; null or undefined: no text. */
const element = (tag, text, properties, ...children) => make(tag, properties, ...[text ?? []].flat(), ...children);

/** A button whose text is a sign; name: what it does. */
const tool = (text, name, act, properties = {}) => button(text, act, { title: name, ariaLabel: name, ...properties });

/** The titles of some kinds of things. */
const titlesIn = (kinds) => Object.fromEntries(Object.entries(kinds).map(([name, { title }]) => [name, title]));
/** A list to choose from; titles: the text of each value. */
const chooser = (titles, properties) => element("select", undefined, properties, ...Object.entries(titles).map(([value, text]) => element("option", text, { value })));

/** Radio buttons, whose titles `options` has by value. */
class Choice {
  constructor(id, label, options, act) {
    this.inputs = Object.keys(options).map((value) => element("input", undefined, { type: "radio", name: id, value, onchange: () => act(value) }));
    this.node = element("span", undefined, { id, className: "choice", role: "radiogroup", ariaLabel: label }, ...this.inputs.map((input) => element("label", options[input.value], {}, input)));
  }

  show(value) { for (const input of this.inputs) input.checked = input.value === String(value); }
}

const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }; // rows and columns
/** Draws a color scale on the canvas of `box`, and below it ticks, [text, share of the width]. */
function drawRamp(box, scale, ticks) {
  const context = box.firstElementChild.getContext("2d");
  for (let at = 0; at < 256; at++) {
    context.fillStyle = color(at, scale);
    context.fillRect(at, 0, 1, 1);
  }
  box.lastElementChild.replaceChildren(...ticks.map(([name, share]) => element("span", name, { style: `left:${100 * share}%` })));
}
const rampBox = (properties) => element("div", undefined, { className: "ramp", ...properties }, element("canvas", undefined, { width: 256, height: 1, ariaHidden: "true" }), element("div"));
const evenly = (names) => names.map((name, i) => [name, i / (names.length - 1)]);

let hatched = null;
/** The hatching of masked cells, for a canvas whose context is scaled so much; x, y: where it begins. */
function hatching(scale, x = 0, y = 0) {
  const [tint, dpr] = [css("--hatch"), devicePixelRatio];
  if (hatched?.name !== `${tint} ${dpr}`) {
    const size = Math.round(6 * dpr);
    const pen = new OffscreenCanvas(size, size).getContext("2d");
    Object.assign(pen, { strokeStyle: tint, lineWidth: Math.max(1, dpr) });
    pen.beginPath();
    for (const shift of [-size, 0, size]) { pen.moveTo(shift, size); pen.lineTo(shift + size, 0); }
    pen.stroke();
    hatched = { name: `${tint} ${dpr}`, pattern: pen.createPattern(pen.canvas, "repeat") };
  }
  hatched.pattern.setTransform(new DOMMatrix().translate(x, y).scale(1 / scale));
  return hatched.pattern;
}

/** A function of an object, computed once for each. */
function once(make) {
  const known = new WeakMap();
  return (of) => {
    if (!known.has(of)) known.set(of, make(of));
    return known.get(of);
  };
}

/** Whether the device has no pointer that can hover, and no keys to hold down: then controls replace Shift and Alt. */
const touching = () => matchMedia("(hover: none)").matches;
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
