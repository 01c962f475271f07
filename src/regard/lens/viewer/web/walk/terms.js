// Parts of the step-by-step view: a choice with its numbers, names of keys, and subscripts.

/** The text with a_b and a_{b,c} as subscripts. */
function subscripts(text) {
  return text.split(/(_[a-z0-9]+|_\{[^}]*\})/).map((part) => (part.startsWith("_") && part.length > 1 ? element("sub", part.slice(1).replace(/[{}]/g, "")) : part));
}
/** A number that is added to another one. */
const plus = (value, digits) => (value < 0 ? ` − ${decimal(-value, digits)}` : ` + ${decimal(value, digits)}`);

/** The word for one position of an axis. */
const placeWord = (of) => (of.grid ? "patch" : "token");
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
const lines = (name, rows, called) => new Cells(name, rows.map(([, values]) => Array.from(values)), rows.map(([title]) => element("span", null, {}, ...subscripts(title))), called).node;

const total = (values) => values.reduce((sum, value) => sum + value, 0);
/** The running sum of numbers. */
function running(values) {
  let sum = 0;
  return values.map((value) => (sum += value));
}
