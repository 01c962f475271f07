// Weights as text, next to the mean weight that the other rows have on the same key: of a key to which every row attends, this is as much.

const spanWords = (first, count) => (count === 1 ? first.toLocaleString("en") : `${first.toLocaleString("en")}–${(first + count - 1).toLocaleString("en")}`);
const counted = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

/** What the cells of a plot are, in words. */
const ofCells = (high, wide) => (high * wide > 1 ? `each cell is ${high.toLocaleString("en")} × ${wide.toLocaleString("en")} pairs, ${POOLS[state.pool]}` : "each cell is one weight");

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
  return Number.isFinite(share) ? `, ${percent(share, 2)} of the output` : "";
}

/** The mean weight of the other rows on the key, next to one weight; "" for a cell of several pairs. */
function othersWords(tracks, { j, high, wide, code, fine }) {
  const others = high * wide > 1 || code < FIRST ? NaN : othersOf(tracks, weight(code, fine), [j]);
  return Number.isNaN(others) ? "" : ` (other rows ${othersPercent(others)})`;
}

/** One cell as text: row → key: weight. */
function cellWords(n, { i, j, high, wide, code, fine }) {
  const { queries, keys } = runs[n].calls[state.call];
  const { axes } = runs[n];
  return [...ofCell(axes[queries], i, high, "rows"), " → ", ...ofCell(axes[keys], j, wide, "keys"), ": ", element("b", words(code, fine), { className: code === LEAK || code === NAN || code === OUT ? "alarm" : "" })];
}

/**
 * The mean weight of the other rows on these keys in sum. p: the mean of `high` rows, whose keys it sums. NaN if no other row may attend.
 * If it cannot be distinguished from the error of p, minus the most that it can be.
 */
function othersOf(tracks, p, places, high = 1) {
  if (!tracks?.received || !tracks.readers) return NaN;
  let sum = -high * p, count = 0;
  for (const j of places) [sum, count] = [sum + tracks.received[j], count + tracks.readers[j]];
  const rows = count / places.length - high;
  if (rows < 0.5) return NaN;
  return sum < UNSURE * high * p ? (-UNSURE * high * p) / rows : sum / rows;
}
const UNSURE = 0.05; // below this share of p, two digits of the sum of the other weights are not known: p has an error of 0.05 %
const othersPercent = (others) => (others < 0 ? `<${percent(Math.max(1e-4, -others), 2)}` : percent(others, 2));
