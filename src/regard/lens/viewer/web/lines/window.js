// The rows and keys between which lines are drawn: all of a short text; of a long one, a window around a row.

const SHOWN = { rows: 40, keys: 48, strongest: 8 }; // the most rows and keys; of the keys, the strongest ones outside the window

/** The rows of the window around `middle`: as they were before if it is among them, so that the window rests. */
function rowsAround(middle, count, before = []) {
  const shown = Math.min(SHOWN.rows, count);
  const stays = before.length === shown && before.at(-1) < count && before[0] <= middle && middle <= before.at(-1);
  const first = stays ? before[0] : clamp(middle - Math.floor(shown / 2), 0, count - shown);
  return Array.from({ length: shown }, (_, at) => first + at);
}

/**
 * The weights of some rows of the chosen head, as on the map: {rows, keys, of: Map of row → {p, code, sure}, part, shift, exact}.
 * keys: all, or those at the positions of the rows and the strongest others, in their order · part: the share of the weight of
 * the rows that is on these keys.
 */
async function weightsBetween(place, rows) {
  const { run, call, head } = place;
  const now = runs[run].calls[call];
  const { special } = runs[run].axes[now.keys];
  const hide = hiding(run);
  const [tracks, ...answers] = await Promise.all([hide ? tracksOf(run) : null, ...rows.map((i) => source.row(run, call, head, i))]);
  const sums = new Float64Array(now.K);
  const of = new Map(rows.map((i, at) => {
    const { coarse, fine, sure } = answers[at];
    const factor = hide ? renormalization(tracks, [i]) : 1;
    const p = Float64Array.from(coarse, (code, j) => (hide && special[j] ? 0 : weight(code, fine?.[j]) * factor));
    p.forEach((value, j) => { sums[j] += value || 0; }); // NaN counts as 0
    return [i, { p, code: coarse, fine, sure }];
  }));
  const keys = keysOf(now, rows, sums, place.key);
  const all = sums.reduce((sum, value) => sum + value, 0);
  const part = all > 0 ? keys.reduce((sum, j) => sum + sums[j], 0) / all : 1;
  return { rows, keys, of, part, shift: shiftOf(now, rows, keys), exact: answers[0].exact };
}

/** How far the rows are moved down so that each is level with the key at its position, in tokens. */
function shiftOf({ queries, keys: columns, start }, rows, keys) {
  const aligned = queries === columns || queries === "queries";
  return aligned && rows.length < keys.length ? Math.max(0, keys.indexOf(start + rows[0])) : 0;
}

function keysOf({ K, queries, keys, start }, rows, sums, chosen) {
  const every = Array.from(sums, (_, j) => j);
  if (K <= SHOWN.keys) return every;
  const found = new Set(chosen === null ? [] : [chosen]);
  if (queries === keys || queries === "queries") for (const i of rows) if (start + i < K) found.add(start + i);
  const most = found.size ? Math.max(SHOWN.strongest, SHOWN.keys - found.size) : SHOWN.keys;
  const others = every.filter((j) => !found.has(j) && sums[j] > 0).sort((a, b) => sums[b] - sums[a] || a - b).slice(0, most);
  return [...found, ...others].sort((a, b) => a - b);
}
