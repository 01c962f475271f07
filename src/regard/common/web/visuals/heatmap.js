// A matrix as a figure, for several visuals: cells with labels, numbers in them if there is room, one cell under the cursor.

/**
 * A matrix whose cells are read by pointing, touch, or arrow keys: heatmap({ rows: ["a", "b"], columns: ["a", "b"], name: "weight", label: "…", pick }).
 *   rows, columns  the labels · name: each number is named `name-row-column` · label: what is to be seen
 *   pick           pick(row, column) is called when the reader chooses a cell
 *   side           the heading of a column of numbers at the right, each named `side-row`; null: none
 *   signed         whether numbers can be negative; then a full color is the largest by magnitude, else it is 1
 *   size           the side of a cell · written: whether the cells show numbers · above: the least height of the labels above
 *   block          draws a line after so many cells
 * Returns { root, fill, at, legend, top, cell }: fill(values, hidden, sides) draws numbers, with hidden(row, column) hatched; at(row, column) moves the cursor.
 */
function heatmap({ rows, columns, name, label, pick, side = null, signed = false, size, written, above = 0, block = 0 }) {
  const most = Math.max(rows.length, columns.length);
  const cell = size ?? (most <= 6 ? 46 : most <= 10 ? 38 : most <= 16 ? 22 : most <= 24 ? 18 : 16);
  const numbered = written ?? cell >= 38;
  const font = cell >= 18 ? 13 : 11;
  const wide = (text) => text.length * font * 0.58;
  const [short, across] = [rows, columns].map((labels) => labels.map((text) => (text.length > 12 ? `${text.slice(0, 11)}…` : text)));
  const left = Math.ceil(Math.max(...short.map(wide), 18)) + 10;
  const flat = across.every((text) => wide(text) <= cell - 2);
  const lean = Math.PI / 3; // labels of narrow columns lean
  const top = Math.max(above, flat ? font + 10 : Math.ceil(Math.max(...across.map(wide)) * Math.sin(lean)) + font + 4);
  const extra = side === null ? 0 : Math.ceil(Math.max(36, wide(side) + 10));
  const after = flat ? 2 : Math.max(2, Math.ceil(wide(across.at(-1)) * Math.cos(lean) + font / 2 - cell / 2 - extra + 4));
  const [width, height] = [left + columns.length * cell + extra + after, top + rows.length * cell + 2];
  const colors = heatCanvas(rows.length, columns.length, cell);
  const texts = numbered ? rows.map((_, i) => columns.map((__, j) => draw("text", { x: left + (j + 0.5) * cell, y: top + (i + 0.5) * cell + 4, "text-anchor": "middle", class: "figure", "data-name": `${name}-${i}-${j}` }))) : null;
  const heads = short.map((text, i) => draw("text", { x: left - 6, y: top + (i + 0.5) * cell + font * 0.35, "text-anchor": "end" }, text));
  const tops = across.map((text, j) => {
    const [x, y] = [left + (j + 0.5) * cell, top - 6];
    return flat ? draw("text", { x, y, "text-anchor": "middle" }, text) : draw("text", { x: x + font * 0.35, y, transform: `rotate(-60 ${x + font * 0.35} ${y})` }, text);
  });
  const end = left + columns.length * cell;
  const sides = side === null ? [] : rows.map((_, i) => draw("text", { x: end + extra - 4, y: top + (i + 0.5) * cell + font * 0.35, "text-anchor": "end", class: "figure", "data-name": `${side}-${i}` }));
  const title = side === null ? [] : [draw("text", { x: end + extra - 4, y: top - 6, "text-anchor": "end", class: "soft" }, side)];
  const lines = block ? draw("path", { class: "blocks", d: [...Array(Math.ceil(columns.length / block) - 1).keys()].map((at) => `M ${left + (at + 1) * block * cell} ${top} V ${top + rows.length * cell}`).join(" ") + [...Array(Math.ceil(rows.length / block) - 1).keys()].map((at) => ` M ${left} ${top + (at + 1) * block * cell} H ${end}`).join("") }) : "";
  const cursor = draw("rect", { width: cell + 1, height: cell + 1, class: "cursor", rx: 2 });
  const grid = drawing(width, height, label, draw("rect", { x: left, y: top, width: columns.length * cell, height: rows.length * cell, class: "ground" }), ...heads, ...tops, ...sides, ...title);
  const over = draw("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true", class: "over" }, lines, ...(texts ?? []).flat(), cursor);
  Object.assign(colors.canvas.style, { left: `${(100 * left) / width}%`, top: `${(100 * top) / height}%`, width: `${(100 * columns.length * cell) / width}%`, height: `${(100 * rows.length * cell) / height}%` });
  const layers = make("div", { className: "layers" }, grid, colors.canvas, over);
  layers.style.width = `${width}px`;
  layers.style.minWidth = `${(width * 8.5) / font}px`; // below that, characters are too small: the matrix scrolls
  const root = make("div", { className: `heatmap${numbered ? " numbered" : ""}${font < 13 ? " fine" : ""}`, tabIndex: 0, role: "application", "aria-label": `${label}. Arrow keys read the cells.` }, layers);
  const last = { row: 0, column: 0 };

  function fill(values, hidden = () => false, beside = []) {
    const largest = signed ? Math.max(...values.flat().map(Math.abs), 1e-300) : 1;
    colors.paint((i, j) => (hidden(i, j) ? null : values[i][j] / largest));
    values.forEach((line, i) => {
      if (numbered) line.forEach((value, j) => show(texts[i][j], value, hidden(i, j) ? "" : heatmap.decimals(value)));
      if (sides[i]) show(sides[i], beside[i]);
    });
  }
  /** Moves the cursor. */
  function at(row, column) {
    for (const [list, before, now] of [[heads, last.row, row], [tops, last.column, column]]) {
      list[before].classList.remove("chosen");
      list[now].classList.add("chosen");
    }
    Object.assign(last, { row, column });
    place(cursor, { x: left + column * cell - 0.5, y: top + row * cell - 0.5 });
  }
  const point = ({ clientX, clientY }) => {
    const box = layers.getBoundingClientRect();
    const column = Math.floor(((clientX - box.left) / box.width * width - left) / cell);
    const row = Math.floor(((clientY - box.top) / box.height * height - top) / cell);
    if (row >= 0 && row < rows.length && column >= 0 && column < columns.length && (row !== last.row || column !== last.column)) pick(row, column);
  };
  layers.addEventListener("pointermove", point);
  layers.addEventListener("pointerdown", point);
  root.addEventListener("keydown", (event) => {
    const step = stepOf(event, { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] });
    if (!step) return;
    pick(Math.min(rows.length - 1, Math.max(0, last.row + step[0])), Math.min(columns.length - 1, Math.max(0, last.column + step[1])));
  });
  at(0, 0);
  return { root, fill, at, top, cell, legend: () => heatmap.legend(numbered) };
}
/** The colors of a matrix: paint(value) draws value(row, column), from −1 to 1, as squares or, if negative, circles; null is hatched. */
function heatCanvas(rows, columns, cell, gap = 1) {
  const canvas = make("canvas", { width: columns * cell * 2, height: rows * cell * 2 });
  const pen = canvas.getContext("2d");
  pen.scale(2, 2);
  let last = null;
  let colors = null;
  function paint(value) {
    last = value;
    if (!colors) { // from the page's variables, once: asking makes the browser compute styles
      const { color, stroke } = getComputedStyle(canvas);
      colors = { color, stroke };
    }
    pen.clearRect(0, 0, columns * cell, rows * cell);
    pen.fillStyle = colors.color;
    pen.strokeStyle = colors.stroke;
    const [side, radius] = [cell - gap, (cell - gap) / 2];
    const hatched = new Path2D();
    for (let i = 0; i < rows; i++) {
      for (let j = 0; j < columns; j++) {
        const number = value(i, j);
        const [x, y] = [j * cell + gap / 2, i * cell + gap / 2];
        if (number === null) {
          for (let at = 2; at < 2 * side; at += 5) { // lines from the left and the lower edge to the upper and the right one
            hatched.moveTo(x + Math.max(0, at - side), y + Math.min(side, at));
            hatched.lineTo(x + Math.min(side, at), y + Math.max(0, at - side));
          }
          continue;
        }
        pen.globalAlpha = Math.min(1, heatmap.shade(Math.abs(number)));
        if (number >= 0) pen.fillRect(x, y, side, side);
        else {
          pen.beginPath();
          pen.arc(x + radius, y + radius, radius, 0, 7);
          pen.fill();
        }
      }
    }
    pen.globalAlpha = 0.5;
    pen.stroke(hatched);
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { colors = null; if (last) paint(last); });
  return { canvas, paint };
}
/** How strong the color of a number between 0 and 1 is: its root, so that small weights can be seen. */
heatmap.shade = (value) => Math.sqrt(value);
/** Two digits after the point. */
heatmap.decimals = (value) => (Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(2)).replace("-", "−");
/** The scale of the colors of weights; those with numbers in them are lighter. */
heatmap.legend = (numbered) => make("div", { className: numbered ? "heat-legend numbered" : "heat-legend" }, ...[0, 0.05, 0.25, 0.5, 1].map((value) => {
  const swatch = make("i");
  swatch.style.opacity = heatmap.shade(value);
  return make("span", {}, make("b", {}, swatch), `${value}`);
}));
