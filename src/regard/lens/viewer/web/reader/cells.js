// Vectors as strips of colored cells, with their numbers if cells are wide enough, and a keyboard cursor.

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

/** A number for a narrow cell: at most so many significant digits and decimals. */
function brief(value, digits) {
  if (!Number.isFinite(value)) return decimal(value);
  const size = Math.abs(value);
  return size >= 1e4 ? value.toExponential(0).replace("-", "−").replace("e+", "e") : size < 0.1 && value ? value.toFixed(digits).replace("-", "−") : decimal(value, digits);
}

/** Sets the background of a node to the color of a number. */
function tinted(node, value) {
  const plain = Number.isFinite(value);
  node.classList.toggle("nan", Number.isNaN(value));
  node.classList.toggle("out", value === Infinity || value === -Infinity);
  node.style.background = plain ? color(signedStep(value), "lift") : "";
  node.style.color = plain ? ink(signedStep(value), "lift") : "";
}

class Cells {
  static size = { wide: 48, narrow: 12, least: 4, height: 20 }; // of a cell, in pixels

  marked = null; // [from, to): cells of a single vector that are underlined

  /** rows: one vector (broken into lines) or several (one line each); called(row, column): what a cell is, in words; digits: that the readout shows. */
  constructor(name, rows, names, called, digits = 6) {
    Object.assign(this, { rows, called, digits, many: rows.length > 1, at: [0, 0] });
    this.canvas = element("canvas", null, { tabIndex: 0, role: "img" });
    this.name = name;
    this.readout = element("p", null, { className: "note cells-readout", ariaLive: "polite" });
    this.scroll = element("div", null, { className: "cells-scroll" }, this.canvas);
    this.box = element("div", null, { className: "cells" });
    if (names) this.box.append(element("ul", null, { className: "cells-names", ariaHidden: "true" }, ...names.map((each) => element("li", null, {}, typeof each === "string" ? element("bdi", each) : each))));
    this.box.append(this.scroll);
    this.node = element("div", null, {}, this.box, this.readout);
    this.canvas.addEventListener("pointermove", (event) => this.say(...this.under(event)));
    this.canvas.addEventListener("pointerleave", () => this.rest());
    this.canvas.addEventListener("blur", () => { this.draw(); this.rest(); });
    this.canvas.addEventListener("focus", () => { this.draw(); this.say(...this.at); });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.scroll);
    this.rest();
  }

  get length() { return this.rows[0].length; }

  /** The width of a cell, and the number of cells per line. */
  measure() {
    const room = this.scroll.clientWidth;
    if (this.many) {
      const width = clamp(Math.floor(room / this.length), Cells.size.least, Cells.size.wide);
      return { width, across: this.length, lines: this.rows.length };
    }
    const width = this.length > 256 ? Cells.size.narrow : Cells.size.wide;
    const across = clamp(Math.floor(room / width), 1, this.length);
    return { width, across, lines: Math.ceil(this.length / across) };
  }

  place(row, column) { return this.many ? [row, column] : [Math.floor(column / this.size.across), column % this.size.across]; }
  under(event) {
    const { left, top } = this.canvas.getBoundingClientRect();
    const x = clamp(Math.floor((event.clientX - left) / this.size.width), 0, this.size.across - 1);
    const y = clamp(Math.floor((event.clientY - top) / Cells.size.height), 0, this.size.lines - 1);
    return this.many ? [y, x] : [0, Math.min(this.length - 1, y * this.size.across + x)];
  }

  draw() {
    this.size = this.measure();
    const { width, across, lines } = this.size;
    const density = devicePixelRatio;
    [this.canvas.width, this.canvas.height] = [width * across * density, Cells.size.height * lines * density];
    [this.canvas.style.width, this.canvas.style.height] = [`${width * across}px`, `${Cells.size.height * lines}px`];
    const context = this.canvas.getContext("2d");
    context.scale(density, density);
    context.font = `${width < 42 ? 10 : 11}px ${fontFamily()}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    const gap = width > 8 ? 1 : 0;
    this.rows.forEach((values, row) => values.forEach((value, column) => {
      const [y, x] = this.place(row, column);
      const plain = Number.isFinite(value);
      context.fillStyle = plain ? color(signedStep(value), "lift") : css(Number.isNaN(value) ? "--nan" : "--out");
      context.fillRect(x * width, y * Cells.size.height, width - gap, Cells.size.height - 1);
      if (this.marked && column >= this.marked[0] && column < this.marked[1]) {
        context.fillStyle = css("--accent");
        context.fillRect(x * width, (y + 1) * Cells.size.height - 4, width, 3);
      }
      if (width < 32) return;
      context.fillStyle = plain ? ink(signedStep(value), "lift") : css(Number.isNaN(value) ? "--on-nan" : "--on-out");
      context.fillText(brief(value, width < 42 ? 2 : 3), x * width + width / 2, y * Cells.size.height + Cells.size.height / 2);
    }));
    if (document.activeElement === this.canvas) {
      const [y, x] = this.place(...this.at);
      context.strokeStyle = css("--accent");
      context.lineWidth = 2;
      context.strokeRect(x * width + 1, y * Cells.size.height + 1, Math.max(2, width - 2), Cells.size.height - 3);
    }
  }

  key(event) {
    const { across } = this.size ?? this.measure();
    const lines = this.many ? {} : { ArrowUp: [0, -across], ArrowDown: [0, across] };
    const by = stepOf(event, { ...ARROWS, ...lines, Home: [0, -Infinity], End: [0, Infinity] });
    if (!by) return;
    event.stopPropagation();
    this.at = [clamp(this.at[0] + by[0], 0, this.rows.length - 1), clamp(this.at[1] + by[1], 0, this.length - 1)];
    this.draw();
    this.say(...this.at);
  }

  say(row, column) { this.readout.textContent = `${this.called(row, column)} = ${decimal(this.rows[row][column], this.digits)}`; }
  rest() {
    const all = this.rows.flat().filter(Number.isFinite);
    const [low, high] = all.reduce(([least, most], value) => [Math.min(least, value), Math.max(most, value)], [Infinity, -Infinity]);
    const wrong = this.rows.flat().length - all.length;
    this.readout.textContent = all.length ? `from ${decimal(low, 3)} to ${decimal(high, 3)}${wrong ? `; ${wrong} ${wrong === 1 ? "is" : "are"} not finite` : ""}` : "none of the numbers is finite";
    this.canvas.setAttribute("aria-label", `${this.name}: ${this.many ? `${counted(this.rows.length, "line")} of ` : ""}${counted(this.length, "number")}, ${this.readout.textContent}. Arrow keys move through them.`);
  }
}
