// Parts of the step-by-step view: choices and names, q·k element by element, and the mean as a sum.

/** The text with a_b and a_{b,c} as subscripts. */
function subscripts(text) {
  return text.split(/(_[a-z0-9]+|_\{[^}]*\})/).map((part) => (part.startsWith("_") && part.length > 1 ? element("sub", part.slice(1).replace(/[{}]/g, "")) : part));
}
/** A number that is added to another one. */
const plus = (value, digits) => (value < 0 ? ` − ${decimal(-value, digits)}` : ` + ${decimal(value, digits)}`);

/** A key by its token and its position, in words that cannot be taken for a factor. */
const keyName = (j) => `${wordOf(keyAxis(), j, 24)} (${placeWord(keyAxis())} ${j.toLocaleString("en")})`;

/** A list of choices; a choice is remembered by the view, which then shows its numbers. */
function choice(id, label, options, chosen, choosing) {
  const made = element("select", null, { id, onchange: () => choosing(Number(made.value)) }, ...options.map(([value, text]) => element("option", text, { value, selected: value === chosen })));
  return element("p", null, { className: "walk-choice" }, element("label", `${label} `, { htmlFor: id }), made);
}

/** A choice of the key that is followed in detail. */
const keyChoice = (id, w) => choice(id, "key", w.keys.map((j) => [j, keyName(j)]), walk.keyOf(w), (j) => walk.follow({ key: j }));

/** Numbers in lines of equal length, under each other. */
const lines = (name, rows, called) => cellsOf(name, rows.map(([, values]) => Array.from(values)), called, { names: rows.map(([title]) => subscripts(title)) });

const total = (values) => values.reduce((sum, value) => sum + value, 0);
/** The running sum of numbers. */
function running(values) {
  let sum = 0;
  return values.map((value) => (sum += value));
}

/** The products of the elements of q and k for the chosen key, their running sum, and the score. */
function dotProduct(w) {
  if (!w.q || !w.k) return [];
  const at = w.keys.indexOf(walk.keyOf(w));
  const products = w.q.map((value, d) => value * w.k[at][d]);
  const sums = running(products);
  const rows = [["q_d", w.q], ["k_d", w.k[at]], ["q_d k_d", products], ["sum so far", sums]];
  const called = (row, d) => ["q", "k", "q × k", "sum of the first products"][row] + (row < 3 ? `, element ${d}` : `, up to element ${d}`);
  const whole = sums.at(-1);
  const score = whole * w.scale;
  const said = element("p", null, { className: "walk-result", id: "walk-dot-result" }, "Sum of all ", `${w.D} products: q·k = ${decimal(whole)}. Times the scale: ${decimal(whole)} × ${decimal(w.scale)} = ${decimal(score)}.`);
  const parts = [element("h3", "Element by element"), keyChoice("walk-dot-key", w), lines("q·k by element", rows, called), said];
  if (w.exact && Math.abs(score - w.scaled[at]) > 5e-5 * Math.max(1, Math.abs(w.scaled[at]))) {
    parts.push(element("p", `From q and k as this page stores them; the score that follows from the weight is ${decimal(w.scaled[at])}.`, { className: "note" }));
  }
  return parts;
}

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
