// The numbers of the step-by-step view, computed in the page from the embedded q, k, v, x and out, in the format of the server.

const WALKED = 64; // the most keys
const [NEAR_BEFORE, NEAR_AFTER] = [7, 1]; // always included around the position of the row

const WEIGHT_ERROR = 10 ** (6 / 249 / 256) - 1; // the relative error of a weight from its code, and the error of its logarithm
const VECTOR_ERROR = 2 ** -11; // the relative error of a stored number

/** kept: the block of the call · row: codes of row i of the head. A score is scale · q·k, or ln p + lse if that is more precise. */
function walked(kept, row, call, head, i) {
  const shape = Object.fromEntries(kept.parts.map((part) => [part.name, part.shape]));
  const vector = (name, at) => {
    if (!kept[name]) return null;
    const size = shape[name].at(-1);
    return Array.from(kept[name].subarray(at * size, (at + 1) * size));
  };
  const group = (name) => Math.floor(head / (call.heads / shape[name][0]));
  const { scale, score } = call.formula;
  const lse = kept.lse[head * call.Q + i];
  const keys = shownKeys(row, call.start + i);
  const q = vector("q", head * call.Q + i);
  const k = kept.k ? keys.map((j) => vector("k", group("k") * call.K + j)) : null; // null if only weights are known
  const weights = Array.from(keys, (j) => knownWeight(row, j));
  const log = (at) => (weights[at] > 0 && lse > -Infinity ? Math.log(weights[at]) + lse : null);
  const products = k?.map((each) => scale * each.reduce((sum, value, d) => sum + value * q[d], 0));
  const errors = k?.map((each) => 2 * VECTOR_ERROR * Math.abs(scale) * each.reduce((sum, value, d) => sum + Math.abs(value * q[d]), 0));
  const scaled = products?.map((product, at) => (score === null && !(errors[at] < WEIGHT_ERROR) ? log(at) ?? product : product));
  const scores = scaled?.map((value, at) => (score === null ? value : log(at)));
  const allowed = Array.from(keys, (j) => ![MASKED, LEAK].includes(row.coarse[j]));
  const p = weights.map((known, at) => known ?? (allowed[at] && score === null && scores ? Math.exp(scores[at] - lse) : null));
  const sum = kept.v ? mixture(vector, row, group("v") * call.K) : null;
  const v = kept.v ? keys.map((j) => vector("v", group("v") * call.K + j)) : null;
  const sinks = kept.sinks ? Array.from(kept.sinks.subarray(head * shape.sinks[1], (head + 1) * shape.sinks[1])) : null;
  const out = kept.same ? sum : vector("out", head * call.Q + i);
  return {
    x: vector("x", i), q, keys, k, scaled: scaled ?? null, scores: scores ?? null, allowed, p, lse, sinks, v, sum, out,
    same: Boolean(kept.same), exact: kept.exact,
  };
}

/** The weight of a code: null if it is only known to be small. */
function knownWeight(row, j) {
  const code = row.coarse[j];
  if (code === MASKED || code === ZERO) return 0;
  return code === TINY ? null : weight(code, row.fine?.[j]);
}

/** The shown keys in ascending order: those around the row's own position, keys with NaN as weight, and the strongest. */
function shownKeys(row, position) {
  const K = row.coarse.length;
  const all = Array.from({ length: K }, (_, j) => j);
  if (K <= WALKED) return all;
  const rank = (j) => {
    if (j >= position - NEAR_BEFORE && j <= position + NEAR_AFTER) return Infinity;
    const p = weight(row.coarse[j], row.fine?.[j]);
    return Number.isNaN(p) ? Infinity : p;
  };
  const ranks = Float64Array.from(all, rank);
  return all.sort((a, b) => (ranks[a] === ranks[b] ? a - b : ranks[b] - ranks[a])).slice(0, WALKED).sort((a, b) => a - b);
}

/** Σ p v over all keys that the row may attend to. */
function mixture(vector, row, first) {
  const sum = vector("v", first).fill(0);
  row.coarse.forEach((code, j) => {
    if (code === MASKED) return;
    const p = weight(code, row.fine?.[j]);
    vector("v", first + j).forEach((value, e) => (sum[e] += p * value));
  });
  return sum;
}

/** Decodes NaN and infinities, which the server sends by name. */
function numbered(value) {
  if (Array.isArray(value)) return value.map(numbered);
  return { NaN, inf: Infinity, "-inf": -Infinity }[value] ?? value;
}
