// Vectors as numbers on the color of each.

/** The place of a number on a fixed color scale: −1000 … 0 … 1000, logarithmic beyond ±0.1. */
const signed = (value) => clamp(0.5 + Math.asinh(value / 0.1) / Math.asinh(1000 / 0.1) / 2, 0, 1);
const signedStep = (value) => Math.round(255 * signed(value));

/** A number with so many significant digits. */
function decimal(value, digits = 4) {
  if (value === null || value === undefined) return "not stored";
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const [shown, power] = String(Number(value.toPrecision(digits))).split("e");
  const above = [...(power ?? "")].map((sign) => ({ "-": "⁻", "+": "" })[sign] ?? "⁰¹²³⁴⁵⁶⁷⁸⁹"[sign]).join("");
  return `${shown.replace("-", "−")}${power ? `·10${above}` : ""}`;
}

/** A number for a narrow cell: at most three significant digits and decimals. */
function brief(value) {
  if (!Number.isFinite(value)) return decimal(value);
  const size = Math.abs(value);
  return size >= 1e4 ? value.toExponential(0).replace("-", "−").replace("e+", "e") : size < 0.1 && value ? value.toFixed(3).replace("-", "−") : decimal(value, 3);
}

/** Sets the background of a node to the color of a number. */
function tinted(node, value) {
  const plain = Number.isFinite(value);
  node.classList.toggle("nan", Number.isNaN(value));
  node.classList.toggle("out", value === Infinity || value === -Infinity);
  node.style.background = plain ? color(signedStep(value), "lift") : "";
  node.style.color = plain ? ink(signedStep(value), "lift") : "";
}

/**
 * Numbers as colored cells: one vector, broken into lines, or several, one line each. label: of all; called(row, column): what a number is,
 * in words; names: of the lines; digits: of the exact number; marked: the cells [from, to) of a vector are underlined.
 */
function cellsOf(label, rows, called, { names = [], digits = 6, marked = [0, 0] } = {}) {
  const every = rows.flat(), finite = every.filter(Number.isFinite), wrong = every.length - finite.length;
  const [low, high] = finite.reduce(([least, most], value) => [Math.min(least, value), Math.max(most, value)], [Infinity, -Infinity]);
  const cell = (value, row, column) => {
    const made = element("data", brief(value), { value, title: `${called(row, column)} = ${decimal(value, digits)}` });
    made.classList.toggle("marked", column >= marked[0] && column < marked[1]);
    tinted(made, value);
    return made;
  };
  const lines = rows.map((values, row) => element("div", null, {}, ...(names[row] ? [element("bdi", names[row])] : []), ...values.map((value, column) => cell(value, row, column))));
  const range = finite.length ? `from ${decimal(low, 3)} to ${decimal(high, 3)}${wrong ? `; ${wrong} ${wrong === 1 ? "is" : "are"} not finite` : ""}` : "none of the numbers is finite";
  const box = element("div", null, { className: rows.length > 1 ? "cells" : "cells vector", tabIndex: 0, role: "group", ariaLabel: `${label}, ${range}` }, ...lines);
  return element("div", null, {}, box, element("p", range, { className: "note" }));
}
