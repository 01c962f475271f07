// The stages of the step-by-step view: the formula, the shape and the numbers of each.

/** Whether a matrix of the layer is known, and ` + b` if it has a bias. */
const knownMatrix = (call, name) => call.matrices.known.includes(name);
const withBias = (call, name) => (call.matrices.biased.includes(name) ? ` + b_${name}` : "");
/** The product with a matrix; if what the model computes is not that product alone, what else it may do: "it may be rotated, …". */
function productOf(call, name, x, y) {
  if (knownMatrix(call, name)) return `${y} = ${x} W_${name}${withBias(call, name)}`;
  const [, more] = (call.matrices.missing[name] ?? "").split(": ");
  return more ? `${y}, not ${x} W_${name} alone: ${more}` : y;
}

/** q·k of one key: from the scaled score, which is more precise than the stored q and k, unless the scale is 0. */
const product = (w, at) => (w.scale ? w.scaled[at] / w.scale : w.k[at].reduce((sum, value, d) => sum + value * w.q[d], 0));

/** exp(s) / Σ exp(s), if both are ordinary numbers; exp(s − lse) is the same and cannot overflow. */
const quotient = (w, at) => (Number.isFinite(Math.exp(w.lse)) && Math.exp(w.lse) > 0 && Number.isFinite(Math.exp(w.scores[at])) ? `exp(${decimal(w.scores[at])}) / ${decimal(Math.exp(w.lse))} = ` : "");

const sumOfExp = (call) => `Σ_i exp(s_i)${call.formula.sinks ? " + Σ exp(sink)" : ""}`;
const isRoot = (w) => w.D && Math.abs(w.scale * Math.sqrt(w.D) - 1) < 1e-5;

/** The steps. does(w, call): whether a step does anything; otherwise it is left out. */
const WALK = [
  { id: "x", name: "input", missing: "x", what: "The input of the layer for this token: its hidden state.",
    formula: () => "x", shape: (w) => w.x && `(${w.x.length})`, vector: (w) => w.x },
  { id: "q", name: "query", missing: "q", what: "The query of this token.",
    formula: (w, call) => productOf(call, "q", "x", "q"), shape: (w) => w.D && `D = ${w.D}`, vector: (w) => w.q, more: (w, m) => oneElement("q", w, m) },
  { id: "k", name: "keys", missing: "k", what: "The keys of all tokens, with which the query is compared.",
    formula: (w, call) => productOf(call, "k", "x_j", "k_j"), shape: (w) => w.D && `K × D = ${w.K} × ${w.D}`, matrix: (w) => w.k, more: (w, m) => oneElement("k", w, m) },
  { id: "v", name: "values", missing: "v", what: "The values of all tokens, of which the output is a weighted mean.",
    formula: (w, call) => productOf(call, "v", "x_j", "v_j"), shape: (w) => w.E && `K × E = ${w.K} × ${w.E}`, matrix: (w) => w.v, more: (w, m) => oneElement("v", w, m) },
  { id: "products", name: "scores", missing: "k", what: "The dot product of the query with each key.",
    formula: () => "q·k_j = Σ_d q_d k_jd", shape: (w) => `K = ${w.K}`, key: (w, at) => ["q·k =", product(w, at)], more: (w) => dotProduct(w) },
  { id: "scaled", name: "scaled", missing: "k", what: "The dot product times the scale, so that it does not grow with D.",
    formula: (w) => `s_j = scale · q·k_j,  scale = ${decimal(w.scale, 6)}${isRoot(w) ? ` = 1/√${w.D}` : ""}`,
    shape: (w) => `K = ${w.K}`, key: (w, at) => [`${decimal(product(w, at))} × ${decimal(w.scale)} =`, w.scaled[at]] },
  { id: "scores", name: "score rule", missing: "k", does: (w, call) => call.formula.score !== null, what: "How the model modifies the scaled score: a cap, a bias, a slope.", rule: true,
    formula: (w, call) => call.formula.score ?? "", shape: (w) => `K = ${w.K}`,
    key: (w, at) => [`${decimal(w.scaled[at])} →`, w.scores[at]] },
  { id: "mask", name: "mask", mask: true, does: (w, call) => call.formula.mask !== null, what: "The keys that this row may attend to; the others have no influence.", rule: true,
    formula: (w, call) => call.formula.mask ?? "", shape: (w) => `K = ${w.K}` },
  { id: "p", name: "softmax", weights: true,
    what: "The weight of each key. All weights, with those of the sinks if there are any, sum to 1. exp(s − lse) is the same quotient, computed so that no exp can overflow.",
    formula: (w, call) => `p_j = exp(s_j) / (${sumOfExp(call)}) = exp(s_j − lse),  lse = ln(${sumOfExp(call)}) = ${decimal(w.lse, 6)}`, shape: (w) => `K = ${w.K}` },
  { id: "sum", name: "output", missing: "v",
    what: "The weighted mean of the values; over all keys, not only those that are shown.",
    formula: () => "out = Σ_j p_j v_j", shape: (w) => w.E && `E = ${w.E}`, vector: (w) => w.sum, more: (w) => weighted(w) },
  { id: "out", name: "model’s output", missing: "out", what: "The output of this head in the model itself.",
    formula: () => "out", shape: (w) => w.E && `E = ${w.E}`, vector: (w) => w.out },
  { id: "heads", name: "all heads", does: (w, call) => call.heads > 1, what: "The outputs of all heads of the layer for this token, one after another.", body: (w, m) => concatenated(w, m),
    formula: (w, call) => `c = [out_0 … out_${call.heads - 1}]`, shape: (w, call) => w.E && `H · E = ${call.heads} · ${w.E} = ${call.heads * w.E}` },
  { id: "y", name: "layer’s output", what: "The output of the attention layer: that of all heads, mixed by one matrix.",
    formula: (w, call) => productOf(call, "o", "c", "y"), shape: (w) => w.x && `(${w.x.length})`, body: (w, m) => layerOutput(w, m) },
];
