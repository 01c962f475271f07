// Value-weighted attention: p · ‖v W_o‖ of each pair as a share of its row, which says how much the key adds to the output. As the
// comparison does, it makes runs with a name instead of a number.

const VALUED = 4e7; // weights of a run: of longer ones, all heads show their weights

/** The run of these weights; the number itself with other colors, and where the lengths of the values are not known. */
function valuedRun(n, { call, head }) {
  if (!SCALES[state.scale].values || typeof n === "string" || isMean(head) || !runs[n].calls[call].notes.lengths) return n;
  runs[`values ${n}`] ??= { ...runs[n], n };
  return `values ${n}`;
}

const valuedSource = new Derived("for value-weighted colors: choose other colors", async (name, call, head) => {
  const { n } = runs[name], { K } = runs[name].calls[call];
  const [{ coarse, fine, exact }, { lengths, moved }] = await Promise.all([source.head(n, call, head), source.tracks(n, call, head)]);
  const made = { coarse: coarse.slice(), fine: fine.slice(), exact };
  for (let at = 0; at < coarse.length; at++) {
    if (coarse[at] >= FIRST) [made.coarse[at], made.fine[at]] = codesOf((weight(coarse[at], fine[at]) * lengths[at % K]) / moved[Math.floor(at / K)], TINY);
  }
  return made;
}, {
  tracks: (name, call, head) => source.tracks(runs[name].n, call, head),

  /** Thumbnails of all heads of a call: the tiles that cover their matrices. */
  async overview(name, call) {
    const { heads } = runs[name].calls[call];
    const all = await Promise.all(Array.from({ length: heads }, (_, head) => this.tile(name, call, head, "share", topLevel(runs[name].calls[call]), 0, 0)));
    return { ...all[0], codes: Uint8Array.from(all.flatMap(({ coarse }) => [...coarse])) };
  },
});

/** The run that the thumbnails of all heads show. */
const valuedThumbnails = (n, call) => (runs[n].calls.reduce((sum, { heads, Q, K }) => sum + heads * Q * K, 0) > VALUED ? n : valuedRun(n, { call, head: 0 }));

/** What colors mean, if they are to be value-weighted, as a part of a sentence; otherwise "". */
function valuedWords(n, of, shown = valuedRun(n, of)) {
  if (!SCALES[state.scale].values) return "";
  if (shown === n) return "; colors are of the weights: the lengths of the values are not known here";
  return `; colors are value-weighted: p · ${runs[n].calls[of.call].notes.lengths} of each pair as a share of its row`;
}
