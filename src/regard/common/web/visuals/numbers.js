// The mathematics of visuals, in float64 on lists of lists: products and softmax.

const dot = (a, b) => a.reduce((sum, x, at) => sum + x * b[at], 0);
const transposed = (a) => (a.length ? a[0].map((_, column) => a.map((row) => row[column])) : []);
/** The matrix product: rows of a with columns of b. */
const product = (a, b) => { const columns = transposed(b); return a.map((row) => columns.map((column) => dot(row, column))); };
const add = (a, b) => a.map((x, at) => x + b[at]);

/** The weights of a row of scores; masked scores are −∞, and a row of them has weights 0 (law 5). */
function softmax(scores) {
  const largest = Math.max(...scores, -Infinity);
  if (largest === -Infinity) return scores.map(() => 0);
  const powers = scores.map((score) => Math.exp(score - largest));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}
