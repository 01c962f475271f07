// The difference of two heads, cell by cell: p₁ − p₀ on a fixed symmetric domain.

// The kinds of cells of two runs: masked in both, equal within the error of the codes, different, not a number, forbidden weight in
// one of them, masked in only one of them, or of tokens that only one of them has.
const [BOTH_MASKED, SAME, DIFFERENT, NEITHER, FORBIDDEN, ONE_MASKED, ONE_TEXT] = [0, 1, 2, 3, 4, 5, 6];

/** Two tiles as one: {rows, columns, kind, d, exact, alarms}. lone(r, c): whether only one of the runs has the tokens of a cell. */
function differenceTile(ours, theirs, lone) {
  const count = ours.rows * ours.columns;
  const [kind, d] = [new Uint8Array(count), new Float32Array(count)];
  const error = ours.fine && theirs.fine ? 2.3e-4 : 0.058; // one step of the code of each
  const alarms = { cells: [] };
  for (let at = 0; at < count; at++) {
    const [a, b] = [ours.coarse[at], theirs.coarse[at]];
    if (lone?.(Math.floor(at / ours.columns), at % ours.columns)) {
      kind[at] = ONE_TEXT;
      continue;
    }
    if (a === MASKED && b === MASKED) continue;
    const [p, q] = [weight(a, ours.fine?.[at]), weight(b, theirs.fine?.[at])];
    d[at] = q - p;
    if (a === LEAK || b === LEAK) {
      kind[at] = FORBIDDEN;
      if (alarms.cells.length < 200) alarms.cells.push([Math.floor(at / ours.columns), at % ours.columns, LEAK]);
    } else if (Number.isNaN(d[at])) kind[at] = NEITHER;
    else if (a === MASKED || b === MASKED) kind[at] = ONE_MASKED;
    else kind[at] = Math.abs(q - p) <= Math.max(error * Math.max(p, q), 1e-9) ? SAME : DIFFERENT;
  }
  const exact = ours.exact === theirs.exact ? ours.exact : `first: ${ours.exact}; second: ${theirs.exact}`;
  return { rows: ours.rows, columns: ours.columns, kind, d, exact, alarms, ours, theirs, fine: ours.fine && theirs.fine };
}

/** A difference of two weights as text, with its sign. */
const pointsOf = (d) => (Number.isNaN(d) ? "—" : d === 0 ? "0" : `${d < 0 ? "−" : "+"}${Number((100 * Math.abs(d)).toPrecision(3))} points`);

/**
 * The painter of a difference plot. both(): {n, call, head} of both heads, their runs by number or by name; lone(kind, from, to): whether
 * no token of a range along "queries" or "keys" is in both.
 */
const differencePainter = (both, lone = null) => ({
  needs: (place) => both().map((of) => ({ ...place, ...of })),
  name(place, fold) { return `difference ${this.needs(place).map(tileName).join(" ")}|${fold}`; },

  codes(place, fold) {
    const name = this.name(place, fold);
    const found = tiles.bitmaps.get(name);
    if (found) return found;
    const [ours, theirs] = this.needs(place).map((each) => tiles.at(each, fold));
    const [top, left, high, wide] = [place.row * TILE * 2 ** place.level, place.column * TILE * 2 ** place.level, 2 ** (place.level + fold[0]), 2 ** (place.level + fold[1])];
    const only = lone && ((r, c) => lone("queries", top + r * high, top + (r + 1) * high) || lone("keys", left + c * wide, left + (c + 1) * wide));
    return ours && theirs && tiles.bitmaps.set(name, differenceTile(ours, theirs, only));
  },

  numbers(place, fold) { return this.codes(place, fold); },
  figures: () => [],

  bitmap(place, fold) {
    const name = `${this.name(place, fold)}|${theme()}`;
    const found = tiles.bitmaps.get(name);
    if (found) return found;
    const tile = this.codes(place, fold);
    if (!tile) return undefined;
    const [tints, odd] = [Array.from({ length: 256 }, (_, at) => pixelOf(rgb(at, "lift"))), this.odd()];
    const pixels = Uint32Array.from(tile.kind, (kind, at) => (kind === DIFFERENT || kind === SAME ? tints[this.place(kind, tile.d[at])] : odd[kind]));
    return tiles.bitmaps.set(name, bitmapOf(tile.rows, tile.columns, pixels));
  },

  place: (kind, d) => (kind === SAME ? 128 : Math.round(255 * clamp(0.5 + d / 2, 0, 1))),
  odd: () => ({ [BOTH_MASKED]: 0, [NEITHER]: tintOf("--nan"), [FORBIDDEN]: tintOf("--leak"), [ONE_MASKED]: tintOf("--out"), [ONE_TEXT]: tintOf("--line") }),

  label({ kind, d }, cell, numbers) {
    const sign = { [NEITHER]: "×", [FORBIDDEN]: "!", [ONE_MASKED]: "±" }[kind[cell]];
    if (sign || !numbers || kind[cell] === BOTH_MASKED || kind[cell] === ONE_TEXT) return sign ?? "";
    return kind[cell] === SAME ? "=" : pointsOf(d[cell]).replace(" points", "");
  },
  inkAt({ kind, d }, cell) { return kind[cell] > DIFFERENT ? "#ffffff" : ink(this.place(kind[cell], d[cell]), "lift"); },
});
