// The mathematics of visuals, in float64 on lists of lists: products, softmax, masks, attention, rounding to other formats.

const dot = (a, b) => a.reduce((sum, x, at) => sum + x * b[at], 0);
const transposed = (a) => (a.length ? a[0].map((_, column) => a.map((row) => row[column])) : []);
/** The matrix product: rows of a with columns of b. */
const product = (a, b) => { const columns = transposed(b); return a.map((row) => columns.map((column) => dot(row, column))); };
const add = (a, b) => a.map((x, at) => x + b[at]);

/** The log of Σ exp over the scores that are not −∞; −∞ if all are. */
function logsumexp(scores) {
  const largest = Math.max(...scores, -Infinity);
  if (!Number.isFinite(largest)) return largest;
  return largest + Math.log(scores.reduce((sum, score) => sum + Math.exp(score - largest), 0));
}
/** The weights of a row of scores; masked scores are −∞, and a row of them has weights 0 (law 5). */
function softmax(scores) {
  const largest = Math.max(...scores, -Infinity);
  if (largest === -Infinity) return scores.map(() => 0);
  const powers = scores.map((score) => Math.exp(score - largest));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}
/** Attention of lists of rows: scores, weights and output. allowed(i, j): the mask; scale: 1/√depth if left out. */
function attention(q, k, v, { scale = 1 / Math.sqrt(q[0].length), allowed = () => true } = {}) {
  const scores = q.map((row, i) => k.map((key, j) => (allowed(i, j) ? dot(row, key) * scale : -Infinity)));
  const weights = scores.map(softmax);
  return { scores, weights, out: weights.map((row) => v[0].map((_, column) => row.reduce((sum, p, j) => (p ? sum + p * v[j][column] : sum), 0))) };
}
