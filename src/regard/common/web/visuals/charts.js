// Charts: axes with ticks, linear or logarithmic, and lines in them. All their names begin with "chart".

/** A large or small number as on an axis: 1,500 or 2.5·10⁹. */
function chartNumber(value, figures = 3, powers = false) {
  const size = Math.abs(value);
  if (!(powers && size >= 1e4) && (!Number.isFinite(value) || size === 0 || (size >= 1e-3 && size < 1e6))) {
    return value.toLocaleString("en-US", size >= 10 ** figures ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: figures }).replace("-", "−");
  }
  const [mantissa, power] = value.toExponential(figures - 1).split("e");
  const raised = [...String(Number(power))].map((sign) => (sign === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[sign])).join("");
  return (Number(mantissa) === 1 ? "10" : `${Number(mantissa)}·10`).replace("-", "−") + raised;
}

/** Round numbers between two ends, at most about `most`: decades on a logarithmic axis, else steps of 1, 2 or 5. */
function chartTicks({ from, to, log = false }, most = 6) {
  const found = [];
  if (log) {
    const [first, last] = [Math.ceil(Math.log10(from) - 1e-9), Math.floor(Math.log10(to) + 1e-9)];
    const every = Math.ceil((last - first + 1) / most);
    for (let power = first; power <= last; power += every) found.push(10 ** power);
    return found;
  }
  const rough = (to - from) / most;
  const decade = 10 ** Math.floor(Math.log10(rough));
  const step = decade * [1, 2, 5, 10].find((each) => each * decade >= rough * 0.999);
  for (let count = Math.ceil(from / step - 1e-9); count * step <= to + step * 1e-9; count += 1) found.push(count * step || 0);
  return found;
}

/**
 * A chart: `scale(x, y)` sets both axes, each { from, to, log, label, ticks, powers }; `x(value)` and `y(value)` are places in
 * `plot`, where lines are drawn, cut off at its edges; `path(points)` is the line through [x, y] pairs.
 */
function chart({ label, width = 340, height = 230, margins: [top, right, bottom, left] = [22, 12, 34, 50] }) {
  const grid = draw("g", { class: "chart-grid" });
  const plot = draw("svg", { x: left, y: top, class: "chart-plot" });
  const node = drawing(width, height, label, grid, plot);
  let axes = [];
  let drawn = "";
  const size = () => ({ wide: width - left - right, high: height - top - bottom });
  const share = ({ from, to, log }, value) => (log ? Math.log(value / from) / Math.log(to / from) : (value - from) / (to - from));
  const made = {
    node,
    plot,
    size,
    x: (value) => share(axes[0], value) * size().wide,
    y: (value) => (1 - share(axes[1], value)) * size().high,
    /** The value of x at a place of the pointer. */
    valueAt(event) {
      const box = node.getBoundingClientRect();
      const part = ((event.clientX - box.left) * (width / box.width) - left) / size().wide;
      const { from, to, log } = axes[0];
      return log ? from * (to / from) ** part : from + (to - from) * part;
    },
    path: (points) => points.map(([x, y], at) => `${at ? "L" : "M"}${made.x(x).toFixed(2)} ${made.y(y).toFixed(2)}`).join(""),
    fit(pixels) {
      width = Math.max(280, Math.round(pixels));
      place(node, { viewBox: `0 0 ${width} ${height}` });
    },
    scale(x, y) {
      axes = [x, y];
      const key = JSON.stringify([axes, width]);
      if (key === drawn) return;
      drawn = key;
      const { wide, high } = size();
      place(plot, { width: wide, height: high });
      const text = (value, axis) => chartNumber(value, 3, axis.powers);
      const across = (x.ticks ?? chartTicks(x, Math.max(3, Math.floor(wide / 70)))).map((value) => [value, left + made.x(value)]);
      const up = (y.ticks ?? chartTicks(y, Math.max(3, Math.floor(high / 34)))).map((value) => [value, top + made.y(value)]);
      grid.replaceChildren(
        ...across.flatMap(([value, at]) => [draw("line", { x1: at, x2: at, y1: top, y2: top + high }), draw("text", { x: at, y: top + high + 15, "text-anchor": "middle" }, text(value, x))]),
        ...up.flatMap(([value, at]) => [draw("line", { x1: left, x2: left + wide, y1: at, y2: at }), draw("text", { x: left - 6, y: at + 4, "text-anchor": "end" }, text(value, y))]),
        draw("text", { x: left + wide, y: height - 3, "text-anchor": "end", class: "chart-title" }, x.label),
        draw("text", { x: 2, y: 12, class: "chart-title" }, y.label),
      );
    },
  };
  return made;
}

/** Keeps charts as wide as their place, up to `most` pixels, so that their text stays as large as that of the page. */
function chartFit(root, charts, redraw, most = 760) {
  let before = 0;
  const fit = () => {
    const wide = Math.min(root.clientWidth || 340, most);
    if (Math.abs(wide - before) < 2) return;
    before = wide;
    for (const each of charts) each.fit(wide);
    redraw();
  };
  new ResizeObserver(fit).observe(root);
  fit();
}

/** A region that scrolls to the side where a table is wider than the page. */
const chartScrolls = (label, ...children) => make("div", { className: "scrolls", tabIndex: 0, role: "group", "aria-label": label }, ...children);

/** The dashes of the lines of a chart, first to last; with their colors they tell the lines apart without color, too. */
const chartDashes = ["none", "9 4", "2 3", "9 3 2 3", "14 5"];
/** A short piece of a line, for the head of its row in a table. */
const chartSample = (at) => draw("svg", { viewBox: "0 0 30 10", width: 30, height: 10, class: "chart-sample", "aria-hidden": "true" }, draw("line", { x1: 1, x2: 29, y1: 5, y2: 5, class: `chart-line chart-line-${at}`, "stroke-dasharray": chartDashes[at] }));

/**
 * A matrix: marks in a drawing, above a canvas of one pixel for each cell, which the page enlarges. `fill(rows)` takes
 * numbers from 0, nothing, to 1, the full color: that of the canvas in CSS, so it follows light and dark. `cell(event)` is
 * the cell of a pointer, or the nearest one. left, top, right, bottom: what the drawing leaves beside the cells
 */
function chartMatrix({ width, height, left = 0, top = 0, right = 0, bottom = 0 }, ...marks) {
  const svg = drawing(width, height, "", ...marks);
  const heat = make("canvas", { className: "chart-heat", "aria-hidden": "true" });
  const [wide, high] = [(width - left - right) / width, (height - top - bottom) / height];
  const places = { left: left / width, top: top / height, width: wide, height: high };
  for (const [name, share] of Object.entries(places)) heat.style[name] = `${100 * share}%`;
  const context = heat.getContext("2d");
  let rows = [];
  let color = null;
  function fill(next) {
    rows = next;
    if (!heat.isConnected) return; // it has no color before it is in the page
    color ??= getComputedStyle(heat).color.match(/[\d.]+/g).slice(0, 3).map(Number);
    if (heat.width !== rows[0].length) heat.width = rows[0].length;
    if (heat.height !== rows.length) heat.height = rows.length;
    const image = context.createImageData(heat.width, heat.height);
    let at = 0;
    for (const row of rows) for (const value of row) {
      image.data.set(color, at);
      image.data[at + 3] = Math.round(255 * value);
      at += 4;
    }
    context.putImageData(image, 0, 0);
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    color = null;
    if (rows.length) fill(rows);
  });
  function cell(event) {
    const box = svg.getBoundingClientRect();
    const inside = (share, count) => Math.min(count - 1, Math.max(0, Math.floor(share * count)));
    const row = inside(((event.clientY - box.top) / box.height - places.top) / high, rows.length);
    return { row, column: inside(((event.clientX - box.left) / box.width - places.left) / wide, rows[0].length) };
  }
  return { node: make("div", { className: "chart-over" }, heat, svg), svg, fill, cell };
}
