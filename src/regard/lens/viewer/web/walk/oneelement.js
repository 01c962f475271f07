// One element of q, k or v: the input of the layer, the column of the matrix, their products, and the value that results.

/** Why a run has no matrices at all. */
function unrecorded({ facts }) {
  if (!("left_out" in facts)) return "this run was not recorded from a model";
  if (!facts.values) return "matrices are recorded with values=True";
  return facts.folder ? "the folder of a run does not store matrices" : "matrices were not recorded";
}

/** Why the matrices of this head are not shown. name: q, k, v or o. */
function noMatrix(name, m) {
  const call = callNow();
  if (!knownMatrix(call, name)) return `W_${name} is not known: ${call.matrices.missing[name] ?? unrecorded(runs[state.run])}.`;
  if (m?.head === state.head) return walk.lacking({ missing: "x" });
  if (m?.head === undefined) return "The page does not contain the matrices of this layer and head: serve the run (regard look --serve) to see them.";
  return `The page contains matrices of head ${m.head} only, which it shows first: serve the run (regard look --serve) to see those of head ${state.head}.`;
}

/** The element of q, k or v that is followed: its products with x in three lines, and their sum. */
function oneElement(name, w, m) {
  const note = (text) => [element("p", null, { className: "note" }, ...subscripts(text))];
  if (callNow().only_weights) return [];
  if (!m?.[name]) return note(noMatrix(name, m));
  const own = name === "q";
  const key = walk.keyOf(w);
  const x = own ? m.x ?? w.x : m.x_key;
  const head = [element("h3", "One element"), ...(own ? [] : [keyChoice(`walk-${name}-key`, w)])];
  if (!x) return [...head, ...note(callNow().kept.x ? `The page contains the input of ${keyName(m.key)} only: serve the run (regard look --serve) to see that of other keys.` : walk.lacking({ missing: "x" }))];
  const elements = m.elements?.[name] ?? Array.from({ length: own || name === "k" ? w.D : w.E }, (_, d) => d);
  const chosen = elements.includes(walk.element[name]) ? walk.element[name] : elements[0];
  const at = elements.indexOf(chosen);
  const column = Array.from(m[name].subarray(at * x.length, (at + 1) * x.length));
  const products = column.map((value, place) => value * x[place]);
  const bias = m[`${name}_bias`]?.[at];
  const [vector, index] = own ? ["x", `${chosen}`] : [`x_${key}`, `{${key},${chosen}}`];
  const result = total(products) + (bias ?? 0);
  const model = own ? w.q : w[name]?.[w.keys.indexOf(key)];
  const pick = choice(`walk-${name}-element`, "element", elements.map((d) => [d, `${d}`]), chosen, (d) => walk.follow({ element: { ...walk.element, [name]: d } }));
  const rows = [[vector, x], [`W_${name}[m, ${chosen}]`, column], ["product", products]];
  const called = (row, place) => `${[own ? "x" : `x of ${keyName(key)}`, `W_${name}, column ${chosen}`, "their product"][row]}, element ${place}`;
  const [sum, added] = [own ? "Σ_m x_m" : `Σ_m x_{${key},m}`, bias === undefined ? ["", ""] : [` + b_${name}[${chosen}]`, `${plus(bias, 6)} = ${decimal(result, 6)}`]];
  const said = `${name}_${index} = ${sum} W_${name}[m, ${chosen}]${added[0]} = ${decimal(total(products), 6)}${added[1]}`;
  const part = elements.length < (name === "v" ? w.E : w.D) ? [element("p", `The page contains ${elements.length} columns of this matrix: serve the run (regard look --serve) to see all.`, { className: "note" })] : [];
  return [...head, pick, lines(`One element of ${name}`, rows, called),
    element("p", null, { className: "walk-result", id: `walk-${name}-result` }, ...subscripts(said), model ? `; in the model ${decimal(model[chosen], w.exact ? 4 : 6)}.` : "."), ...part];
}
