// Plots of a step, folded: q and k as arrows, and the softmax of the row with a temperature. The course uses the same.

const MOST_SCORES = 32; // that are shown as sliders

/** A visual that is drawn when it is opened; the view remembers whether it was. */
function pictured(kind, title, data) {
  const figure = element("div", null, { className: "visual" });
  const box = element("details", null, { className: "walk-plot", open: walk.plots[kind] ?? false }, element("summary", title), figure);
  const fill = () => { if (box.open && !figure.childElementCount) visuals[kind](figure, data); };
  box.addEventListener("toggle", () => { walk.plots[kind] = box.open; fill(); });
  fill();
  return box;
}

/** q and the key that is followed, in the plane that both span: their lengths and their angle are exact. */
function arrows(w) {
  if (!w.q || !w.k) return [];
  const [a, b] = [Array.from(w.q), Array.from(w.k[w.keys.indexOf(walk.keyOf(w))])];
  if (![...a, ...b].every(Number.isFinite)) return [];
  return [pictured("dot-product", "As arrows in the plane of q and k", { a, b, names: ["q", "k"] })];
}

/** The scores of the row, which can be moved, and their softmax: for rows of which every score is known and finite. */
function warmed(w, call) {
  if (!w.scores || w.keys.length < w.K || call.formula.sinks) return [];
  const at = w.keys.map((_, place) => place).filter((place) => w.allowed[place]);
  const scores = at.map((place) => w.scores[place]);
  if (scores.length < 2 || scores.length > MOST_SCORES || !scores.every(Number.isFinite)) return [];
  const range = [Math.floor(Math.min(...scores)) - 5, Math.ceil(Math.max(...scores)) + 5];
  return [pictured("softmax", "With another temperature, or other scores", { scores, range, labels: at.map((place) => clip(wordOf(keyAxis(), w.keys[place]), 12)) })];
}
