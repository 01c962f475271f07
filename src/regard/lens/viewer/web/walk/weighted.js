// The weighted mean of the values as a sum of terms.

const TERMS = 4; // that are written out

/** The largest terms of Σ p v, with the tokens that they come from. */
function weighted(w) {
  if (!w.v || !w.sum) return [];
  const falling = w.keys.map((_, at) => at).filter((at) => w.p[at] > 0).sort((a, b) => w.p[b] - w.p[a]);
  if (!falling.length) return [];
  const terms = falling.slice(0, TERMS).flatMap((at, place) => [place ? " + " : "", `${decimal(w.p[at], 3)} × v(`, element("bdi", wordOf(keyAxis(), w.keys[at], 24)), `, ${placeWord(keyAxis())} ${w.keys[at].toLocaleString("en")})`]);
  const more = w.K > Math.min(TERMS, falling.length) ? " + …" : "";
  return [element("p", null, { className: "walk-result", id: "walk-terms" }, "out = ", ...terms, more)];
}
