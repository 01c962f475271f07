"use strict";
// Words: numbers with units, elements, and what the three plots share.

const $ = (id) => document.getElementById(id);
const PARTS = ["embedding", "projections", "attention", "scores", "values", "feed-forward", "experts", "states", "norms", "other", "head"];
const METRICS = {
  operations: { title: "operations", unit: "FLOP", of: (line) => Number(line.forward + line.backward), whole: (line) => line.forward + line.backward },
  memory: { title: "memory", unit: "B", of: (line) => Number(line.held), whole: (line) => line.held },
  time: { title: "least time", unit: "s", of: (line) => line.seconds ?? 0, whole: (line) => line.seconds ?? 0 },
};
const SVG = "http://www.w3.org/2000/svg";

/** An element of a plot; names with a dash are attributes as they are. */
function drawn(tag, attributes = {}, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, each] of Object.entries(attributes)) made.setAttribute(name, each);
  if (text !== undefined) made.textContent = text;
  return made;
}

function element(tag, text, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  if (text !== undefined && text !== null) made.textContent = text;
  made.append(...children);
  return made;
}

const commas = (number) => number.toLocaleString("en-US");

/** A number with three digits and its unit: 1.23 TFLOP, 4 kB, 17 µs. */
function unit(number, name) {
  const size = Math.abs(Number(number));
  const scales = name === "s"
    ? [[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]]
    : [[1e24, "Y"], [1e21, "Z"], [1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
  const [scale, prefix] = scales.find(([each]) => size >= each * 0.9995) ?? scales[scales.length - 1];
  const shown = Number((Number(number) / scale).toPrecision(3));
  return `${commas(shown)} ${prefix}${name}`.trim();
}

/** A number of parameters: 6.74 billion. */
function inWords(number) {
  const [scale, name] = [[1e12, " trillion"], [1e9, " billion"], [1e6, " million"], [1, ""]].find(([each]) => number >= each) ?? [1, ""];
  return `${commas(Number((number / scale).toPrecision(3)))}${name}`;
}

/** A share in percent: two digits below ten percent. */
function percent(part, whole) {
  const share = whole ? (100 * Number(part)) / Number(whole) : 0;
  if (share > 0 && share < 0.1) return "< 0.1 %";
  return `${share < 9.95 ? Number(share.toPrecision(2)) : Math.round(share)} %`;
}

const counted = (number, one, many) => `${commas(number)} ${Number(number) === 1 ? one : many}`;

/** A table: its caption, its heads, and rows whose first cell heads the row. */
function table(caption, heads, rows) {
  const head = element("tr", null, {}, ...heads.map((text) => element("th", text, { scope: "col" })));
  const body = rows.map(([first, ...cells]) =>
    element("tr", null, {}, element("th", first, { scope: "row" }), ...cells.map((text) => element("td", text))));
  return element("table", null, {}, element("caption", caption), element("thead", null, {}, head), element("tbody", null, {}, ...body));
}

/** [part, size] of a line: the operations of attention are those of scores and those of weighted values. */
function pieces(line, metric) {
  const size = METRICS[metric].of(line);
  if (metric !== "operations" || !line.scores) return [[line.part, size]];
  const scores = (size * Number(line.scores)) / Number(line.forward);
  return [["scores", scores], ["values", size - scores]];
}

const ATTENTION = ["attention", "scores", "values"];

/** The size of a part in some lines. */
const sizeOf = (lines, part, metric) =>
  lines.flatMap((line) => pieces(line, metric)).reduce((total, [name, each]) => total + (name === part ? each : 0), 0);

/** The sums of a metric by part, largest first, without parts that have nothing. */
function byPart(found, metric) {
  const sums = new Map();
  for (const { layers, lines } of found.groups) {
    for (const [part, size] of lines.flatMap((line) => pieces(line, metric))) sums.set(part, (sums.get(part) ?? 0) + layers.length * size);
  }
  return [...sums].filter(([, each]) => each > 0).sort((one, other) => other[1] - one[1]);
}

/** About `count` round numbers from 0 up to `top`. */
function ticks(top, count) {
  if (!(top > 0)) return [0];
  const raw = top / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= raw);
  return Array.from({ length: Math.floor(top / step + 1e-9) + 1 }, (_, at) => at * step);
}

/** Makes a plot answer the pointer and the arrow keys: `count` places, `at(x)` the place under x, `show(place)`. */
function readable(svg, { count, at, show }) {
  let place = null;
  const choose = (next) => show((place = next));
  svg.onpointermove = (event) => choose(at(event.clientX - svg.getBoundingClientRect().left));
  svg.onpointerleave = () => choose(null);
  svg.onblur = () => choose(null);
  svg.onkeydown = (event) => {
    const moves = { ArrowRight: (place ?? -1) + 1, ArrowLeft: (place ?? count) - 1, Home: 0, End: count - 1 };
    if (event.key === "Escape") choose(null);
    else if (event.key in moves) choose(Math.max(0, Math.min(count - 1, moves[event.key])));
    else return;
    event.preventDefault();
  };
}
