// What the matrices do: one element of q, k or v, the outputs of all heads one after another, and their product with W_o.

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

/** The concatenated outputs, with those of this head marked. */
function concatenated(w, m) {
  const { heads } = callNow();
  if (!w.E) return [element("p", walk.lacking({ missing: "v" }), { className: "note" })];
  const [from, to] = [state.head * w.E, (state.head + 1) * w.E];
  const where = element("p", `The output of head ${state.head} is elements ${from.toLocaleString("en")} to ${(to - 1).toLocaleString("en")} of ${(heads * w.E).toLocaleString("en")}.`, { className: "walk-result", id: "walk-heads-where" });
  if (!m?.heads) return [where, element("p", callNow().kept.out ? absent(m) : walk.lacking({ missing: "out" }), { className: "note" })];
  return [where, cellsOf("outputs of all heads", [Array.from(m.heads)], (_, place) => `c[${place}], of head ${Math.floor(place / w.E)}`, { marked: [from, to] })];
}

/** Why the numbers of all heads are not in the page. */
function absent(m) {
  if (m?.head === undefined) return "The page does not contain the outputs of all heads: serve the run (regard look --serve) to see them.";
  return `The page contains the outputs of all heads for ${quote(queryAxis(), m.row, 28)} (${m.row.toLocaleString("en")}) only, with which it opens: serve the run (regard look --serve) to see those of other rows.`;
}

/** c W_o + b_o: as a whole, the part of this head, one element by head, and the output of the model itself. */
function layerOutput(w, m) {
  const note = (text) => element("p", null, { className: "note" }, ...subscripts(text));
  if (!knownMatrix(callNow(), "o")) return [note(noMatrix("o", m))];
  if (!m?.whole) return [note(m ? absent(m) : noMatrix("o", m))];
  const strip = (id, title, values) => [element("h3", title), cellsOf(title, [Array.from(values)], (_, place) => `${id}[${place}]`)];
  return [...strip("y", "Computed from all heads", m.whole), ...strip("y", "Computed by the model", m.y), element("p", difference(Array.from(m.whole), Array.from(m.y)), { className: "note", id: "walk-y-difference" }),
    ...(m.own ? strip("part", `The part of head ${state.head}`, m.own) : []), ...(m.o ? elementOfOutput(w, m) : [note(noMatrix("o", m))])];
}

/** One element of the layer's output: the products of this head, and the sum over the heads. */
function elementOfOutput(w, m) {
  const elements = m.elements?.o ?? Array.from(m.y.keys());
  const chosen = elements.includes(walk.element.o) ? walk.element.o : elements[0];
  const at = elements.indexOf(chosen);
  const out = Array.from(m.heads.subarray(state.head * w.E, (state.head + 1) * w.E));
  const column = Array.from(m.o.subarray(at * w.E, (at + 1) * w.E));
  const products = column.map((value, e) => value * out[e]);
  const parts = Array.from({ length: callNow().heads }, (_, head) => m.by_head[head * elements.length + at]);
  const bias = m.o_bias?.[at];
  const pick = choice("walk-o-element", "element", elements.map((place) => [place, `${place}`]), chosen, (place) => walk.follow({ element: { ...walk.element, o: place } }));
  const rows = [["out", out], [`W_o[e, ${chosen}]`, column], ["product", products]];
  const called = (row, e) => `${["out", `W_o, column ${chosen}`, "their product"][row]}, element ${e} of head ${state.head}`;
  const sum = total(parts) + (bias ?? 0);
  return [element("h3", "One element"), pick, lines("One element of the layer’s output", rows, called),
    element("p", null, { className: "walk-result", id: "walk-o-own" }, ...subscripts(`Head ${state.head} adds ${decimal(total(products), 6)} to y_${chosen}. Every head adds:`)),
    cellsOf("parts of the heads", [parts], (_, head) => `head ${head}`),
    element("p", null, { className: "walk-result", id: "walk-o-result" }, ...subscripts(`y_${chosen} = ${decimal(total(parts), 6)}${bias === undefined ? "" : `${plus(bias, 6)} (b_o[${chosen}]) = ${decimal(sum, 6)}`}; in the model ${decimal(m.y[chosen], 6)}.`)),
    ...(elements.length < m.y.length ? [element("p", `The page contains ${elements.length} columns of this matrix: serve the run (regard look --serve) to see all.`, { className: "note" })] : [])];
}
