// The rows and keys between which lines are drawn: all of a short text; of a long one, a window around a row. And the lines, as an SVG.

const SHOWN = { rows: 40, keys: 48, own: 4 }; // the most rows and keys; of the keys outside the window, the strongest ones of the chosen row

/** The rows of the window around `middle`: as they were before if it is among them, so that the window rests. */
function rowsAround(middle, count, before = []) {
  const shown = Math.min(SHOWN.rows, count);
  const stays = before.length === shown && before.at(-1) < count && before[0] <= middle && middle <= before.at(-1);
  const first = stays ? before[0] : clamp(middle - Math.floor(shown / 2), 0, count - shown);
  return Array.from({ length: shown }, (_, at) => first + at);
}

/**
 * The weights of some rows of a head, as on the map: {rows, keys, of: Map of row → {p, code, fine}, part, shift, exact}.
 * keys: all, or those at the positions of the rows, the strongest of the row in the middle, and of all, in their order · part: the share of the weight of
 * the rows that is on these keys.
 */
async function weightsBetween(run, { call, head }, rows, chosen, middle) {
  const now = runs[run].calls[call], sums = new Float64Array(now.K);
  const lines = (await Promise.all(rows.map((i) => source.row(run, call, head, i)))).map(weightsOf);
  for (const { p } of lines) p.forEach((value, j) => { sums[j] += value || 0; }); // NaN counts as 0
  const of = new Map(rows.map((i, at) => [i, lines[at]]));
  const keys = keysOf(now, rows, sums, chosen, of.get(middle)?.p ?? sums), all = total(sums);
  return { rows, keys, of, part: all > 0 ? total(keys.map((j) => sums[j])) / all : 1, shift: shiftOf(now, rows, keys), exact: lines[0].exact };
}

/** How far the rows are moved down so that each is level with the key at its position, in tokens. */
function shiftOf({ queries, keys: columns, start }, rows, keys) {
  const aligned = queries === columns || queries === "queries";
  return aligned && rows.length < keys.length ? Math.max(0, keys.indexOf(start + rows[0])) : 0;
}

function keysOf({ K, queries, keys, start }, rows, sums, chosen, own) {
  const every = Array.from(sums, (_, j) => j);
  if (K <= SHOWN.keys) return every;
  const found = new Set(chosen === null ? [] : [chosen]);
  if (queries === keys || queries === "queries") for (const i of rows) if (start + i < K) found.add(start + i);
  const strongest = (weights) => every.filter((j) => weights[j] > 0).sort((a, b) => weights[b] - weights[a] || a - b);
  for (const j of strongest(own).filter((j) => !found.has(j)).slice(0, SHOWN.own)) found.add(j);
  for (const j of strongest(sums)) if (found.size < SHOWN.keys) found.add(j);
  return [...found].sort((a, b) => a - b);
}

const LINE = { high: 24, least: 0.005 }; // pixels from token to token; the smallest weight that has a line

/** The width of a line in pixels, and its opacity. */
const widthOf = (p) => 0.5 + 4.5 * Math.min(1, p);
const opacityOf = (p) => Math.sqrt(Math.min(1, p));

/** Draws all lines: one group for each row, with data-row, and one line for each weight, with data-key. */
function strokes(svg, { rows, keys, of, shift }) {
  const high = LINE.high * Math.max(rows.length + shift, keys.length);
  svg.setAttribute("viewBox", `0 0 100 ${high}`);
  svg.style.height = `${high}px`;
  const y = (at) => (at + 0.5) * LINE.high;
  svg.replaceChildren(...rows.map((i, r) => {
    const { p, code } = of.get(i);
    const group = draw("g", { "data-row": i });
    keys.forEach((j, c) => {
      const kind = { [NAN]: "nan", [OUT]: "out", [LEAK]: "leak" }[code[j]];
      if (!kind && !(p[j] >= LINE.least)) return;
      const made = draw("line", { x1: 0, y1: y(r + shift), x2: 100, y2: y(c), "data-key": j, "stroke-width": kind ? 2 : widthOf(p[j]), "stroke-opacity": kind ? 1 : opacityOf(p[j]) });
      if (kind) made.setAttribute("class", kind);
      group.append(made);
    });
    return group;
  }));
}
