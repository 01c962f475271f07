// Means over heads in a page of one file: each is the mean of the weights as codes, in the format of one head.

/** The codes of the mean of a choice of heads: {coarse, fine, exact}. An invalid weight of one head stays one in the mean. */
async function meanCodes(embedded, n, call, head) {
  if (noMeans(n)) throw new Error(noMeans(n));
  const { Q, K } = runs[n].calls[call];
  const size = Q * K;
  const sum = new Float64Array(size), kind = new Uint8Array(size); // kind: the code of cells without a number
  let count = 0, error;
  for (const number of callsOf(n, call, head)) {
    for (let one = 0; one < runs[n].calls[number].heads; one++, count++) {
      const { coarse, fine, error: own } = await embedded.head(n, number, one);
      if (own && !(parseFloat(own) <= parseFloat(error))) error = own;
      for (let at = 0; at < size; at++) {
        sum[at] += weight(coarse[at], fine[at]) || 0; // NaN counts as 0
        kind[at] = joinedKind(kind[at], coarse[at]);
      }
    }
  }
  const [coarse, fine] = [new Uint8Array(size), new Uint8Array(size)];
  for (let cell = 0; cell < size; cell++) [coarse[cell], fine[cell]] = codesOf(sum[cell] / count, kind[cell]);
  return { coarse, fine, exact: `mean of the weights of ${count} heads, rounded again`, error };
}

/** The kind of two weights together, as the code of one: NaN first, then forbidden weight, numbers, small ones, zero, and masked. */
function joinedKind(a, b) {
  const rank = (code) => (code === NAN || code === OUT ? 5 : code === LEAK ? 4 : code >= FIRST ? 3 : code === TINY ? 2 : code);
  return [MASKED, ZERO, TINY, FIRST, LEAK, NAN][Math.max(rank(a), rank(b))];
}

/** Both bytes of a weight, as in codes.py. code: the largest code of its parts, for weights without a positive number. */
function codesOf(p, code) {
  if (code === LEAK) return [LEAK, coded(p)];
  if (INVALID.has(code)) return [code, 128];
  if (!(p > 0)) return [Math.min(code, TINY), 128];
  return codesOfLog(Math.log(p));
}

/** The figures of the rows and keys of a head or a mean, from its codes: all but those of values, which a mean does not have. */
function figuresOf({ coarse, fine }, { Q, K }, special) {
  const rows = Object.fromEntries(["entropy", "spread", "special", "maximum", "attended"].map((name) => [name, new Float32Array(Q)]));
  const keys = { received: new Float32Array(K), readers: new Float32Array(K) };
  for (let i = 0, at = 0; i < Q; i++) {
    for (let j = 0; j < K; j++, at++) {
      if (coarse[at] === MASKED) continue;
      const p = coarse[at] === LEAK ? 0 : weight(coarse[at], fine[at]);
      if (coarse[at] !== LEAK) { rows.attended[i]++; keys.readers[j]++; }
      rows.entropy[i] -= p === 0 ? 0 : p * Math.log(p);
      rows.maximum[i] = Math.max(rows.maximum[i], p);
      if (special[j]) rows.special[i] += p;
      keys.received[j] += p;
    }
    rows.spread[i] = rows.attended[i] > 1 ? rows.entropy[i] / Math.log(rows.attended[i]) : 0 * rows.entropy[i];
  }
  return { ...rows, ...keys };
}
