// Weights as text: of one cell, and the sum over a measured block.

const measuring = { on: false, block: null, result: null, anchor: null };

/** The block between two corners. Large blocks are extended to the edges of cells of their level. */
function blockBetween({ Q, K }, from, to) {
  const range = (a, b) => [Math.floor(Math.min(a, b)), Math.floor(Math.max(a, b)) + 1];
  const [[r0, r1], [c0, c1]] = [range(from.row, to.row), range(from.column, to.column)];
  const level = levelFor(Math.max(r1 - r0, c1 - c0) / TILE);
  const size = 2 ** level;
  const snap = (first, last, most) => [Math.floor(first / size) * size, Math.min(most, Math.ceil(last / size) * size)];
  const [[row, bottom], [column, right]] = [snap(r0, r1, Math.min(Q, rowsNow())), snap(c0, c1, K)];
  return { row, column, rows: bottom - row, columns: right - column, level };
}

/** Measures the block between two corners; live: while it is being dragged. */
function measureBlock(plot, from, to, live) {
  measuring.block = { ...(from ? blockBetween(plot.call, from, to) : measuring.block), live };
  return draw(new Set(["measured"]));
}

function unmeasure() {
  if (!measuring.block) return undefined;
  Object.assign(measuring, { block: null, anchor: null });
  return draw(new Set(["measured"]));
}

/** Extends a block from the pinned cell, by keyboard. */
function growBlock(plot, down, right) {
  const pinned = { row: state.query, column: state.key ?? Math.min(state.query, plot.call.K - 1) };
  if (!measuring.block || !measuring.anchor) Object.assign(measuring, { anchor: pinned, corner: { ...pinned } });
  measuring.corner.row = clamp(measuring.corner.row + down, 0, rowsNow() - 1);
  measuring.corner.column = clamp(measuring.corner.column + right, 0, plot.call.K - 1);
  return measureBlock(plot, measuring.anchor, measuring.corner, false);
}

/** The sum of the weights of a block in run n, and counts of its invalid weights. */
async function blockSum(n, { row, column, rows, columns, level }) {
  const { Q } = runs[n].calls[state.call];
  const cell = 2 ** level, size = TILE * cell;
  const found = { sum: 0, leak: 0, nan: 0, out: 0, fine: true, exact: "exact" };
  for (let r = Math.floor(row / size); r * size < row + rows; r++) {
    for (let c = Math.floor(column / size); c * size < column + columns; c++) {
      const tile = await tiles.load({ n, call: state.call, head: state.head, pool: "share", level, row: r, column: c });
      if (tile.exact !== "exact") found.exact = tile.exact;
      found.fine &&= Boolean(tile.fine);
      const stop = (first, count, most) => Math.min(most, Math.ceil((first + count) / cell));
      for (let i = Math.max(r * TILE, Math.floor(row / cell)); i < stop(row, rows, r * TILE + tile.rows); i++) {
        for (let j = Math.max(c * TILE, Math.floor(column / cell)); j < stop(column, columns, c * TILE + tile.columns); j++) {
          const at = (i - r * TILE) * tile.columns + j - c * TILE;
          const p = weight(tile.coarse[at], tile.fine?.[at]);
          if (tile.coarse[at] === LEAK) found.leak++;
          else if (tile.coarse[at] === NAN) found.nan++;
          else if (tile.coarse[at] === OUT) found.out++;
          if (!Number.isNaN(p)) found.sum += p * Math.min(cell, Q - i * cell);
        }
      }
    }
  }
  return found;
}

const spanWords = (first, count) => (count === 1 ? first.toLocaleString("en") : `${first.toLocaleString("en")}–${(first + count - 1).toLocaleString("en")}`);
const counted = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

/** The sum of a block as text. */
function blockWords({ row, column, rows, columns, level }, { sum, leak, nan, out, fine, exact }) {
  const wrong = [[leak, "forbidden by the mask"], [nan, "not a number"], [out, "out of range"]].filter(([count]) => count).map(([count, what]) => `, ${counted(count, level ? "cell" : "weight")} ${what}`).join("");
  const mean = sum / rows;
  return `${rows === 1 ? "row" : "rows"} ${spanWords(row, rows)} × ${columns === 1 ? "key" : "keys"} ${spanWords(column, columns)}: weight ${Number(sum.toPrecision(4))} in all, ${mean > 1 ? Number(mean.toPrecision(4)) : percent(mean)} of each row on average${wrong}; ${exact}${fine ? "" : ", to within 3 %"}`;
}

/** The cell of a plot at a position: its place and value; null until it is loaded. */
function cellAt(plot, painter, { row, column }) {
  const { level, fold } = plot.detail();
  const [size, high, wide] = [TILE * 2 ** level, 2 ** (level + fold[0]), 2 ** (level + fold[1])];
  const place = { call: state.call, head: state.head, pool: state.pool, level, row: Math.floor(row / size), column: Math.floor(column / size) };
  const tile = painter.codes(place, fold);
  if (!tile) return null;
  const [r, c] = [Math.floor((row - place.row * size) / high), Math.floor((column - place.column * size) / wide)];
  if (r >= tile.rows || c >= tile.columns) return null;
  const [i, j] = [place.row * size + r * high, place.column * size + c * wide];
  const at = r * tile.columns + c;
  return { i, j, high: Math.min(high, plot.call.Q - i), wide: Math.min(wide, plot.call.K - j), code: tile.coarse[at], fine: tile.fine?.[at], exact: tile.exact, tile, at };
}

/** A row or key of a cell, or a range of them, as nodes; tokens are isolated from the text direction around them. */
const ofCell = (of, first, count, what) => {
  if (count > 1) return [`${what} ${spanWords(first, count)}`];
  return named(of, first, "", 24); // so that the line under the map keeps its height
};

/** What a key adds to the output of a row, as a share of Σ p · length; "" if lengths are not known, or for a cell of several pairs. */
function movesWords(tracks, { i, j, high, wide, code, fine }) {
  if (high * wide > 1 || !tracks?.moved || !tracks.lengths || code < FIRST) return "";
  const share = (weight(code, fine) * tracks.lengths[j]) / tracks.moved[i];
  return Number.isFinite(share) ? `, ${percent(share, 2)} of what the row moves` : "";
}

/** The mean weight of the other rows on the key, next to one weight; "" for a cell of several pairs. */
function othersWords(n, tracks, { j, high, wide, code, fine }) {
  const others = high * wide > 1 || code < FIRST || hiding(n) ? NaN : othersOf(tracks, weight(code, fine), [j]);
  return Number.isNaN(others) ? "" : ` (other rows ${percent(others, 2)})`;
}

/** One cell as text: row → key: weight. */
function cellWords(n, { i, j, high, wide, code, fine }) {
  const { queries, keys } = runs[n].calls[state.call];
  const { axes } = runs[n];
  return [...ofCell(axes[queries], i, high, "rows"), " → ", ...ofCell(axes[keys], j, wide, "keys"), ": ", element("b", words(code, fine), { className: code === LEAK || code === NAN || code === OUT ? "alarm" : "" })];
}
