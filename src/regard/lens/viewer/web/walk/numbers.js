// The numbers of one step: a vector, a line for each key, or why they are missing.

/** The digits that are shown of vectors: one more than is exact in the numbers of a page. */
const digitsOf = (w) => (w.exact ? 5 : 6);

/** One key with its calculation and result. */
function keyLine(w, at, calculation, result, tint) {
  const of = keyAxis();
  const shown = element("data", result, { value: tint ?? "" });
  const place = element("span", `(${placeWord(of)} `, { className: "soft unbroken" }, element("span", w.keys[at], { className: "number" }), ")");
  return [element("li", null, {}, element("bdi", wordOf(of, w.keys[at], 24)), place, element("span", calculation, { className: "calculation" }), shown), shown];
}

/** The content of a step: its numbers, or why they are missing. */
function walkNumbers(each, w, call, order) {
  const note = (text) => element("p", text, { className: "note" });
  const name = (at) => `${clip(wordOf(keyAxis(), w.keys[at]), 24)} (${w.keys[at].toLocaleString("en")})`;
  if (each.body) return each.body(w, walk.matrices);
  if (each.vector) {
    const values = each.vector(w);
    if (!values && each.id === "sum" && w.v) return [note("Not computed: the page contains only the strongest keys of each row. Serve the run to see it.")];
    if (!values) return [note(walk.lacking(each))];
    const cells = cellsOf(each.name, [values], (_, column) => `${each.id}[${column}]`, { digits: digitsOf(w) });
    if (each.id !== "out" || !w.sum) return [cells];
    return [cells, note(w.same ? "On recording, this was equal to the output computed above, up to rounding." : difference(w.sum, values))];
  }
  if (each.matrix) {
    const values = each.matrix(w);
    if (!values) return [note(walk.lacking(each))];
    const share = call.heads / call.groups;
    const group = Math.floor(state.head / share);
    const shared = share > 1 ? [note(`Heads ${group * share} to ${(group + 1) * share - 1} share this key/value head.`)] : [];
    const cells = cellsOf(each.name, order.map((at) => values[at]), (row, column) => `${each.id} of ${name(order[row])}, [${column}]`, { names: order.map(name), digits: digitsOf(w) });
    return [cells, ...shared];
  }
  if (each.missing && !w.q) return [note(walk.lacking(each))];
  const list = element("ul", null, { className: each.weights ? "walk-keys wide" : "walk-keys" });
  for (const at of order) {
    const [line, result] = keyLine(w, at, ...keyResult(each, w, at, call));
    if (each.weights) ground(result, walkLine(w), at);
    else if (!each.mask) tinted(result, Number(result.value || NaN));
    else result.classList.toggle("masked", !w.allowed[at]);
    result.classList.add("ground");
    if (result.textContent === "not stored") result.style.background = "";
    list.append(line);
  }
  if (each.key && each.key(w, order[0], call) === null) return [];
  const free = w.allowed.filter(Boolean).length;
  if (each.mask) return [list, note(`${free} of ${w.keys.length > 1 ? "the " : ""}${counted(w.keys.length, "key")}${w.keys.length < w.K ? " shown" : ""} ${free === 1 ? "is" : "are"} allowed.`)];
  return [list, ...(each.weights ? [note(shares(w, call))] : [])];
}

/** [calculation, result as text, its value] of one key in one step. */
function keyResult(each, w, at, call) {
  if (each.mask) return [w.scores?.[at] === undefined ? "" : `s = ${decimal(w.scores[at])}`, w.allowed[at] ? "allowed" : "masked", Number(w.allowed[at])];
  if (each.weights) {
    const p = w.p[at];
    const calculation = !w.scores ? "" : w.allowed[at] ? `${quotient(w, at)}exp(${decimal(w.scores[at])} − ${decimal(w.lse)}) =` : "masked:";
    return [calculation, p === null ? "not stored" : Number.isNaN(p) ? "not a number" : !w.allowed[at] && p === 0 ? "0" : `${percent(p)}${!w.allowed[at] ? " where the mask forbids it" : ""}`, p ?? ""];
  }
  const [calculation, value] = each.key(w, at, call) ?? ["", null];
  return [calculation, decimal(value), value ?? ""];
}

/** The weights of the row as a line of cells that `ground` colors. */
const walkLine = (w) => ({ p: w.p, hidden: () => false, attended: Math.max(1, w.K),
  code: w.p.map((p, at) => (Number.isNaN(p) ? NAN : p === null ? TINY : !w.allowed[at] ? (p > 0 ? LEAK : MASKED) : p === 0 ? ZERO : p > 1.001 || p < 0 ? OUT : coded(p))) });

/** A sentence about the sum of the weights. */
function shares(w, call) {
  const sum = w.p.reduce((total, p) => total + (p || 0), 0);
  const none = w.p.filter(Number.isNaN).length;
  if (none) return `${none} of the ${counted(w.keys.length, "weight")} here ${none === 1 ? "is not a number" : "are not numbers"}: one of their scores is NaN or ∞ (law 12).`;
  const parts = [w.keys.length < w.K ? `The ${w.keys.length} keys here have ${percent(sum)} of the weight.` : `${w.K === 1 ? "The weight is" : `The ${w.K} weights add up to`} ${percent(sum)}.`];
  if (w.sinks) {
    const taken = w.sinks.reduce((total, sink) => total + Math.exp(sink - w.lse), 0);
    parts.push(`The sinks (${w.sinks.map((sink) => decimal(sink)).join(", ")}) take ${percent(taken)}.`);
  } else if (call.formula.sinks) parts.push("The sinks take the rest.");
  if (w.lse === -Infinity) parts.push(["0", undefined].includes(call.notes.empty) ? "This row is fully masked: its output is 0 (law 5)."
    : `This row is fully masked: its output here is 0 (law 5). For fully masked rows, the output of the model itself is ${call.notes.empty}.`);
  return parts.join(" ");
}

/** A sentence about the difference between the output computed here and that of the model. */
function difference(sum, out) {
  const apart = sum.map((value, e) => (Object.is(value, out[e]) ? 0 : Math.abs(value - out[e])));
  const odd = apart.filter((value) => !Number.isFinite(value)).length;
  if (odd) return `In ${odd} of ${counted(out.length, "component")}, one of the two is not finite and the other differs.`;
  return `The largest difference from the output computed above is ${decimal(Math.max(...apart), 2)}; the largest absolute value of the output is ${decimal(Math.max(...out.map(Math.abs)), 3)}.`;
}
