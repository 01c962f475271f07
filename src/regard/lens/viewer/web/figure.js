// Export of the visible part of the map as SVG: cells, labels, title, and a legend with its domain.

const FIGURE = { side: 520, cells: 1024, rects: 4096, characters: 14 }; // pixels, cells along a side, cells drawn as single rectangles, characters of a label
const FONTS = "system-ui, 'Segoe UI', 'Noto Sans', 'DejaVu Sans', sans-serif";
const textMeasure = new OffscreenCanvas(1, 1).getContext("2d");

/** The width of text in pixels, plus a tenth, since the file may be opened with wider fonts. */
function wideOf(text, size = 10, weight = 400) {
  textMeasure.font = `${weight} ${size}px ${FONTS}`;
  return 1.1 * textMeasure.measureText(text).width;
}

/** The visible part: the first row and key, and the number of rows and keys. */
function extent() {
  const { Q, K } = callNow();
  const at = map.plot.view();
  const [row, column] = [clamp(Math.floor(at.row + 1e-6), 0, Q - 1), clamp(Math.floor(at.column + 1e-6), 0, K - 1)];
  const end = (first, count, most, begin) => clamp(Math.ceil(first + count - 1e-6), begin + 1, most);
  return { row, column, rows: end(at.row, map.plot.height / at.ky, Math.min(Q, rowsNow()), row) - row, columns: end(at.column, at.span, K, column) - column };
}

/** The cells of the view, at a level with at most FIGURE.cells along a side: {level, top, left, high, wide, coarse, pixels, exact}. */
async function cellsOf({ row, column, rows, columns }) {
  const level = levelFor(Math.max(rows, columns) / FIGURE.cells);
  const size = 2 ** level;
  const [top, left] = [Math.floor(row / size), Math.floor(column / size)];
  const [high, wide] = [Math.ceil((row + rows) / size) - top, Math.ceil((column + columns) / size) - left];
  const [coarse, pixels] = [new Uint8Array(high * wide), new Uint32Array(high * wide)];
  const look = lookNow(state.run, await source.tracks(state.run, state.call, state.head));
  let exact = "exact";
  for (let r = Math.floor(top / TILE); r * TILE < top + high; r++) {
    for (let c = Math.floor(left / TILE); c * TILE < left + wide; c++) {
      const place = { n: state.run, call: state.call, head: state.head, pool: state.pool, level, row: r, column: c };
      const tile = await tiles.load(place);
      if (tile.exact !== "exact") exact = tile.exact;
      const tints = colored(tile, place, [0, 0], look);
      for (let i = 0; i < tile.rows; i++) {
        for (let j = 0; j < tile.columns; j++) {
          const [y, x] = [r * TILE + i - top, c * TILE + j - left];
          if (y < 0 || x < 0 || y >= high || x >= wide) continue;
          coarse[y * wide + x] = tile.coarse[i * tile.columns + j];
          pixels[y * wide + x] = tints[i * tile.columns + j];
        }
      }
    }
  }
  return { level, top, left, high, wide, coarse, pixels, exact };
}

/** The text of the SVG file. */
async function figureOf() {
  const cells = await cellsOf(extent());
  const { high, wide } = cells;
  const side = clamp(FIGURE.side / Math.max(high, wide), 0.25, 26);
  const [width, height] = [wide * side, high * side];
  const [rows, columns] = [queryAxis(), keyAxis()];
  const longest = (of, first, count) => Math.max(...Array.from({ length: count }, (_, i) => wideOf(wordOf(of, first + i, FIGURE.characters), Math.min(12, side - 1))));
  const spelled = cells.level === 0 && side >= 9;
  const left = spelled ? 22 + longest(rows, cells.top, high) : 64, top = 62 + (spelled ? longest(columns, cells.left, wide) : 22);
  const titles = [`${clip(runs[state.run].model, 48)} · ${clip(headTitle(), 70)}`, `rows: ${clip(callNow().queries, 20)}, columns: ${clip(callNow().keys, 20)} · ${covered(cells)}`];
  const legend = legendOf(left, top + height + 26, width, cells);
  const whole = { width: Math.ceil(Math.max(left + width + 24, legend.right + 16, 32 + wideOf(titles[0], 14, 600), 32 + wideOf(titles[1], 11))), height: Math.ceil(top + height + 86) };
  const [text, soft] = [css("--ink"), css("--soft")];
  const root = draw("svg", { xmlns: "http://www.w3.org/2000/svg", width: whole.width, height: whole.height, viewBox: `0 0 ${whole.width} ${whole.height}`, "font-family": FONTS, "font-size": 11, fill: text });
  const write = (content, attributes) => draw("text", attributes, content);
  root.append(draw("title", {}, `${runs[state.run].model}: ${headTitle()}`),
    draw("defs", {}, hatchOf(), gradient()), draw("rect", { width: "100%", height: "100%", fill: css("--paper") }),
    write(titles[0], { x: 16, y: 24, "font-size": 14, "font-weight": 600 }),
    write(titles[1], { x: 16, y: 42, fill: soft }));
  const body = draw("g", { transform: `translate(${left} ${top})` }, draw("rect", { width, height, fill: css("--raised") }), draw("rect", { width, height, fill: "url(#hatch)" }));
  body.append(high * wide <= FIGURE.rects ? squares(cells, side) : await imageOf(cells, width, height));
  root.append(body, ...(spelled ? labels(cells, side, left, top, rows, columns) : ticksOf(cells, side, left, top, soft)), legend.drawing);
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(root)}`;
}

const covered = ({ level, exact }) => `${level ? `each cell is ${2 ** level} × ${2 ** level} pairs, ${POOLS[state.pool]}` : "each cell is one weight"} · ${exact}${hiding(state.run) ? " · without special tokens, renormalized: not the model’s own numbers" : ""}`;
const hexOf = (pixel) => `#${[0, 8, 16].map((shift) => ((pixel >> shift) & 255).toString(16).padStart(2, "0")).join("")}`;
const hatchOf = () => draw("pattern", { id: "hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse" }, draw("path", { d: "M-1 6L6 -1M-1 1L1 -1M4 6L6 4", stroke: css("--hatch"), "stroke-width": 1 }));
const gradient = () => draw("linearGradient", { id: "ramp" }, ...Array.from({ length: 33 }, (_, i) => draw("stop", { offset: i / 32, "stop-color": color(Math.round((255 * i) / 32), state.scale) })));

/** Every cell as a rectangle; equal neighbors in a row are merged. */
function squares({ high, wide, coarse, pixels }, side) {
  const made = draw("g", { "shape-rendering": "crispEdges" });
  for (let i = 0; i < high; i++) {
    for (let j = 0, next; j < wide; j = next) {
      const at = i * wide + j;
      for (next = j + 1; next < wide && pixels[i * wide + next] === pixels[at] && coarse[at] === coarse[i * wide + next]; next++);
      if (pixels[at]) made.append(draw("rect", { x: j * side, y: i * side, width: (next - j) * side, height: side, fill: hexOf(pixels[at]) }));
    }
    for (let j = 0; j < wide; j++) {
      const sign = SIGNS[coarse[i * wide + j]];
      if (sign && side >= 9 && coarse[i * wide + j] !== ZERO) made.append(draw("text", { x: (j + 0.5) * side, y: (i + 0.72) * side, "font-size": 0.7 * side, "text-anchor": "middle", fill: css(INKS[coarse[i * wide + j]]), "font-weight": 700 }, sign));
    }
  }
  return made;
}

/** The cells as an image inside the SVG. */
async function imageOf({ high, wide, pixels }, width, height) {
  const canvas = new OffscreenCanvas(wide, high);
  canvas.getContext("2d").putImageData(new ImageData(new Uint8ClampedArray(pixels.buffer), wide, high), 0, 0);
  const reader = new FileReader();
  reader.readAsDataURL(await canvas.convertToBlob());
  await new Promise((done) => { reader.onload = done; });
  return draw("image", { href: reader.result, width, height, preserveAspectRatio: "none", "image-rendering": "pixelated" });
}

/** The tokens to the left of and above the cells. */
function labels({ top: first, left: start, high, wide }, side, left, top, rows, columns) {
  const size = Math.min(12, side - 1);
  /** A token whose text ends, or begins, at x: in right-to-left text, the other end is the start. */
  const word = (of, i, attributes, ends) => {
    const text = wordOf(of, i, FIGURE.characters), direction = directionOf(text);
    return draw("text", { ...attributes, direction, "text-anchor": ends === (direction === "ltr") ? "end" : "start" }, text);
  };
  return [
    draw("g", { "font-size": size }, ...Array.from({ length: high }, (_, i) => word(rows, first + i, { x: left - 6, y: top + (i + 0.5) * side + size / 3 }, true))),
    draw("g", { "font-size": size }, ...Array.from({ length: wide }, (_, j) => word(columns, start + j, { transform: `translate(${left + (j + 0.5) * side + size / 3} ${top - 6}) rotate(-90)` }, false))),
  ];
}

/** Round positions to the left of and above the cells, if tokens do not fit. */
function ticksOf({ top: first, left: start, high, wide, level }, side, left, top, soft) {
  const size = 2 ** level;
  const places = (begin, count) => {
    const apart = tickStep(1, (count * size) / 7);
    const found = [];
    for (let at = Math.ceil((begin * size) / apart) * apart; at < (begin + count) * size; at += apart) found.push([at, (at / size - begin) * side]);
    return found;
  };
  return [draw("g", { fill: soft },
    ...places(first, high).map(([at, y]) => draw("text", { x: left - 6, y: top + y + 4, "text-anchor": "end" }, at.toLocaleString("en"))),
    ...places(start, wide).map(([at, x]) => draw("text", { x: left + x, y: top - 6, "text-anchor": "middle" }, at.toLocaleString("en"))))];
}

/** The color bar with its domain, and the colors of cells outside it: {drawing, right}; the bar is as wide as its ticks need. */
function legendOf(left, top, room, cells) {
  const { ticks, title } = SCALES[state.scale];
  const apart = 12 + Math.max(...ticks.slice(1).map((tick, i) => wideOf(tick) + wideOf(ticks[i]))) * 0.75; // the outer ticks extend to one side only
  const width = Math.max(Math.min(room, 360), apart * (ticks.length - 1));
  const kinds = SWATCHES.filter(([code]) => cells.coarse.includes(code));
  let x = left;
  const swatches = kinds.flatMap(([code, name, kind]) => {
    const fill = code === MASKED ? "url(#hatch)" : css(`--${kind}`);
    const made = [draw("rect", { x, y: top + 34, width: 14, height: 10, fill, stroke: css("--line") }), draw("text", { x: x + 19, y: top + 43 }, name)];
    x += 34 + wideOf(name);
    return made;
  });
  const drawing = draw("g", { "font-size": 10, fill: css("--soft") }, draw("rect", { x: left, y: top, width, height: 10, fill: "url(#ramp)", stroke: css("--line") }),
    ...ticks.map((tick, i) => draw("text", { x: left + (width * i) / (ticks.length - 1), y: top + 22, "text-anchor": i === 0 ? "start" : i === ticks.length - 1 ? "end" : "middle" }, tick)),
    draw("text", { x: left + width + 10, y: top + 9 }, title), ...swatches);
  return { drawing, right: Math.max(x - 15, left + width + 10 + wideOf(title)) };
}
