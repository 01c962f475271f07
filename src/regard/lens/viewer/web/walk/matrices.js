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

/** A choice of the element of a product with a matrix: [the element, its place in m[name], the nodes of the choice]. many: its elements. */
function elementChoice(name, m, many) {
  const elements = m.elements?.[name] ?? Array.from({ length: many }, (_, d) => d);
  const chosen = elements.includes(walk.element[name]) ? walk.element[name] : elements[0];
  const pick = choice(`walk-${name}-element`, "element", elements.map((d) => [d, `${d}`]), chosen, (d) => walk.follow({ element: { ...walk.element, [name]: d } }));
  const part = elements.length < many ? [element("p", `The page contains ${elements.length} columns of this matrix: serve the run (regard look --serve) to see all.`, { className: "note" })] : [];
  return [chosen, elements.indexOf(chosen), [pick, ...part]];
}

/** The products of a vector with a column of a matrix, in three lines, and their sum. titles: of the vector and the column; called: the same in words; where: after each element. */
function columnProducts(label, vector, matrix, at, titles, called, where) {
  const column = Array.from(matrix.subarray(at * vector.length, (at + 1) * vector.length));
  const products = column.map((value, place) => value * vector[place]);
  const names = [...called, "their product"];
  return [total(products), lines(label, [[titles[0], vector], [titles[1], column], ["product", products]], (row, place) => `${names[row]}, element ${place}${where}`)];
}

/** The element of q, k or v that is followed. */
function oneElement(name, w, m) {
  const note = (text) => [element("p", null, { className: "note" }, ...subscripts(text))];
  if (callNow().only_weights) return [];
  if (!m?.[name]) return note(noMatrix(name, m));
  const own = name === "q";
  const key = walk.keyOf(w);
  const x = own ? m.x ?? w.x : m.x_key;
  const head = [element("h3", "One element"), ...(own ? [] : [keyChoice(`walk-${name}-key`, w)])];
  if (!x) return [...head, ...note(callNow().kept.x ? `The page contains the input of ${keyName(m.key)} only: serve the run (regard look --serve) to see that of other keys.` : walk.lacking({ missing: "x" }))];
  const [chosen, at, pick] = elementChoice(name, m, name === "v" ? w.E : w.D);
  const [vector, index, sum] = own ? ["x", `${chosen}`, "Σ_m x_m"] : [`x_${key}`, `{${key},${chosen}}`, `Σ_m x_{${key},m}`];
  const [whole, shown] = columnProducts(`One element of ${name}`, x, m[name], at, [vector, `W_${name}[m, ${chosen}]`], [own ? "x" : `x of ${keyName(key)}`, `W_${name}, column ${chosen}`], "");
  const bias = m[`${name}_bias`]?.[at];
  const added = bias === undefined ? ["", ""] : [` + b_${name}[${chosen}]`, `${plus(bias, 6)} = ${decimal(whole + bias, 6)}`];
  const model = own ? w.q : w[name]?.[w.keys.indexOf(key)];
  return [...head, ...pick, shown, element("p", null, { className: "walk-result", id: `walk-${name}-result` },
    ...subscripts(`${name}_${index} = ${sum} W_${name}[m, ${chosen}]${added[0]} = ${decimal(whole, 6)}${added[1]}`), model ? `; in the model ${decimal(model[chosen], w.exact ? 4 : 6)}.` : ".")];
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

/** One element of the layer’s output: the products of this head, and the sum over the heads. */
function elementOfOutput(w, m) {
  const [chosen, at, pick] = elementChoice("o", m, m.y.length);
  const out = Array.from(m.heads.subarray(state.head * w.E, (state.head + 1) * w.E));
  const [own, shown] = columnProducts("One element of the layer’s output", out, m.o, at, ["out", `W_o[e, ${chosen}]`], ["out", `W_o, column ${chosen}`], ` of head ${state.head}`);
  const { heads } = callNow(), parts = Array.from({ length: heads }, (_, head) => m.by_head[(head * m.by_head.length) / heads + at]);
  const bias = m.o_bias?.[at], sum = total(parts) + (bias ?? 0);
  const said = (id, text) => element("p", null, { className: "walk-result", id }, ...subscripts(text));
  return [element("h3", "One element"), ...pick, shown, said("walk-o-own", `Head ${state.head} adds ${decimal(own, 6)} to y_${chosen}. Every head adds:`), cellsOf("parts of the heads", [parts], (_, head) => `head ${head}`),
    said("walk-o-result", `y_${chosen} = ${decimal(total(parts), 6)}${bias === undefined ? "" : `${plus(bias, 6)} (b_o[${chosen}]) = ${decimal(sum, 6)}`}; in the model ${decimal(m.y[chosen], 6)}.`)];
}
