// Value-weighted attention: p · ‖v W_o‖ of each pair as a share of its row, which says how much the key adds to the output. As the
// comparison does, it makes runs with a name instead of a number.

const VALUED = 4e7; // weights of a run: of longer ones, all heads show their weights

/** The run of these weights; the number itself with other colors, and where the lengths of the values are not known. */
function valuedRun(n, { call, head }) {
  if (!SCALES[state.scale].values || typeof n === "string" || isMean(head) || !runs[n].calls[call].notes.lengths) return n;
  runs[`values ${n}`] ??= { ...runs[n], n };
  return `values ${n}`;
}

const valuedSource = {
  held: new Memory(12),

  /** The codes of a head: {coarse, fine, exact}. */
  head(name, call, head) {
    return this.held.get(`${name} ${call} ${head}`, async () => {
      const { n } = runs[name], { Q, K } = runs[name].calls[call];
      if (Q * K > LARGEST_MERGED) throw new Error(`a head of ${Q.toLocaleString("en")} × ${K.toLocaleString("en")} weights is too large for value-weighted colors; at most ${LARGEST_MERGED.toLocaleString("en")}: choose other colors`);
      const [{ coarse, fine, exact }, { lengths, moved }] = await Promise.all([source.head(n, call, head), source.tracks(n, call, head)]);
      const made = { coarse: coarse.slice(), fine: fine.slice(), exact };
      for (let at = 0; at < coarse.length; at++) {
        if (coarse[at] >= FIRST) [made.coarse[at], made.fine[at]] = codesOf((weight(coarse[at], fine[at]) * lengths[at % K]) / moved[Math.floor(at / K)], TINY);
      }
      return made;
    });
  },

  tile: Embedded.prototype.tile, // from the codes of the whole head, as there

  tracks: (name, call, head) => source.tracks(runs[name].n, call, head),

  /** Thumbnails of all heads of a call. */
  async overview(name, call, cells = 44) {
    const { heads, Q, K } = runs[name].calls[call];
    const [rows, columns] = [Math.min(cells, Q), Math.min(cells, K)], codes = new Uint8Array(heads * rows * columns);
    const edge = (at, count, size) => Math.floor((at * size) / count);
    for (let head = 0, to = 0; head < heads; head++) {
      const found = await this.head(name, call, head);
      for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++, to++) codes[to] = pooled(found, K, "share", edge(r, rows, Q), edge(c, columns, K), edge(r + 1, rows, Q), edge(c + 1, columns, K));
    }
    return { rows, columns, codes };
  },
};

/** The run that the thumbnails of all heads show. */
const valuedThumbnails = (n, call) => (runs[n].calls.reduce((sum, { heads, Q, K }) => sum + heads * Q * K, 0) > VALUED ? n : valuedRun(n, { call, head: 0 }));

/** What colors mean, if they are to be value-weighted, as a part of a sentence; otherwise "". */
function valuedWords(n, of, shown = valuedRun(n, of)) {
  if (!SCALES[state.scale].values) return "";
  if (shown === n) return "; colors are of the weights: the lengths of the values are not known here";
  return `; colors are value-weighted: p · ${runs[n].calls[of.call].notes.lengths} of each pair as a share of its row`;
}
