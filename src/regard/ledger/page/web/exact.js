"use strict";
// Exact numbers: formulas of tokens and sequences, and the pairs that a rule allows, as whole numbers of any size.

const data = JSON.parse(document.getElementById("data").textContent); // {terms, machines, start}
const terms = data.terms;
const converted = new WeakMap();

/** A formula for n tokens and B sequences, both BigInt. null: it has none. Pieces: see terms.py. */
function value(formula, n, B) {
  if (formula === null || formula === undefined) return 0n;
  if (!Array.isArray(formula)) return BigInt(formula);
  let pieces = converted.get(formula);
  if (!pieces) converted.set(formula, (pieces = formula.map((piece) => piece.map(BigInt))));
  let found = pieces[0];
  for (const piece of pieces) if (piece[0] <= n) found = piece;
  const [, e, a, b, f, c, d, q] = found;
  return (((e * n + a) * n + b) * B + (f * n + c) * n + d) / q;
}

const least = (x, y) => (x < y ? x : y);
const most = (x, y) => (x > y ? x : y);

/** The sum over i = 0 … rows − 1 of first + i, limited to 0 … top. */
function clipped(first, rows, top) {
  const zeros = least(most(-first, 0n), rows);
  const full = least(most(top - first, 0n), rows); // from this row on, `top`
  const middle = most(full - zeros, 0n);
  return middle * (first + zeros) + (middle * (middle - 1n)) / 2n + (rows - most(full, zeros)) * top;
}

/** Pairs with low ≤ key − query ≤ high, null for no limit. */
function within(low, high, rows, keys, start) {
  const upper = high === null ? rows * keys : clipped(start + BigInt(high) + 1n, rows, keys);
  const lower = low === null ? 0n : clipped(start + BigInt(low), rows, keys);
  return most(upper - lower, 0n);
}

/** Pairs of rows at start … start + rows − 1 with keys at 0 … keys − 1, in one chunk each; as Band.count of pairs.py. */
function pairs({ low, high, chunk }, rows, keys, start) {
  if (!rows) return 0n;
  if (!chunk) return within(low, high, rows, keys, start);
  const c = BigInt(chunk);
  const [first, last] = [start / c, (start + rows - 1n) / c];
  const part = (number) => {
    const [begin, end] = [number * c, (number + 1n) * c];
    const [top, bottom] = [most(begin, start), least(end, start + rows)];
    const width = least(end, keys) - begin;
    return bottom > top && width > 0n ? within(low, high, bottom - top, width, top - begin) : 0n;
  };
  // Chunks strictly between the first and the last that have all their rows and keys.
  const whole = most(least(last, keys / c) - first - 1n, 0n);
  let total = whole * within(low, high, c, c, 0n) + part(first);
  for (let number = first + whole + 1n; number <= last && number * c < keys; number++) total += part(number);
  return total;
}

/** Pairs of a rule that has no limits: from a table at powers of two, and between them a straight line in logarithms. */
function tabled(table, n) {
  const tokens = Number(n);
  const at = Math.max(1, Math.min(table.length - 1, table.findIndex(([size]) => size >= tokens)));
  const last = table.length - 1;
  const [[x, p], [y, q]] = [table[(tokens > table[last][0] ? last : at) - 1], table[tokens > table[last][0] ? last : at]];
  if (tokens === x || tokens === y) return BigInt(tokens === x ? p : q);
  const share = Math.log(tokens / x) / Math.log(y / x);
  return BigInt(Math.round(Math.exp(Math.log(p || 1) + share * (Math.log(q || 1) - Math.log(p || 1)))));
}
