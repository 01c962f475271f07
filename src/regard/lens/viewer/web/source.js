// The data source: blocks embedded in the page, or the server. All screens read their numbers from here.
//
//   tile(n, call, head, pool, level, row, column) -> {rows, columns, coarse, fine, exact}   cells of 2^level × 2^level pairs
//   row(n, call, head, i) -> {coarse, fine, exact} over the keys      column(n, call, head, j) -> the same over the rows
//   head(n, call, head) -> all weights of a head, row by row          pair(n, call, i, j) -> {coarse, fine} of all heads of a call
//   tracks(n, call, head) -> {entropy, spread, special, maximum, attended, moved, received, readers, lengths}   readers: how many
//                           rows may attend to each key; lengths: of the values, and moved: Σ p · length, if they were recorded; missing figures are NaN
//   overview(n, call) -> {rows, columns, codes} of all heads            walk(n, call, head, i) -> the numbers of one row
//   matrices(n, call, head, i, j) -> the matrices of a head and what they give for row i and key j, as in matrices.py; in a page only
//                           some elements of one head, which `elements` lists; null if there are none
//
// head may also be "mean" or "all" (heads.js), except in walk. n is the number of the run, 1 for the second of a comparison. `exact` describes how the numbers were computed, such as "exact" or
// "sampled 1 row of 8"; the page shows it. `error`: the largest relative error of weights that the page computes from q, k and lse.

const TILE = 256;

/** A cache that evicts the least recently used values, so that the rest weighs at most so much. */
class Memory {
  constructor(most, weigh = () => 1) { Object.assign(this, { most, weigh, held: new Map(), sum: 0 }); }

  /** The value of this name, otherwise that of `make`, if there is one; a promise that fails is dropped. */
  get(name, make) {
    const found = this.held.get(name);
    if (found !== undefined) {
      this.held.delete(name);
      this.held.set(name, found);
    }
    if (found !== undefined || !make) return found;
    const made = this.set(name, make());
    Promise.resolve(made).catch(() => this.drop(name));
    return made;
  }
  set(name, thing) {
    this.drop(name);
    this.held.set(name, thing);
    this.sum += this.weigh(thing);
    while (this.sum > this.most && this.held.size > 1) this.drop(this.held.keys().next().value);
    return thing;
  }
  drop(name) {
    if (!this.held.has(name)) return;
    this.sum -= this.weigh(this.held.get(name));
    this.held.delete(name);
  }
}

/** The bytes of an embedded block. */
async function block(id) {
  const node = $(id);
  if (!node) throw new Error(`the page has no block ${id}`);
  const stream = new Blob([bytes(node.textContent)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

const DTYPES = { float32: Float32Array, int32: Int32Array, uint8: Uint8Array };
/** Decodes a frame: four bytes with the length of the JSON header, the header, the first bytes of all numbers of four bytes, the second ones, and so on, then the other arrays. */
function unframed(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const sizes = header.parts.map(({ shape }) => shape.reduce((product, size) => product * size, 1));
  const wide = ({ dtype }) => DTYPES[dtype].BYTES_PER_ELEMENT === 4;
  const count = header.parts.reduce((sum, part, at) => sum + (wide(part) ? sizes[at] : 0), 0);
  const planes = new Uint8Array(buffer, 4 + length, 4 * count), numbers = new Uint8Array(4 * count);
  for (let plane = 0, from = 0; plane < 4; plane++) for (let at = plane; at < numbers.length; at += 4) numbers[at] = planes[from++];
  let [next, at] = [0, 4 + length + 4 * count];
  const found = { ...header };
  header.parts.forEach((part, number) => {
    const size = sizes[number], kind = DTYPES[part.dtype];
    found[part.name] = wide(part) ? new kind(numbers.buffer, next, size) : new kind(buffer, at, size);
    if (wide(part)) next += 4 * size;
    else at += (size + 3) & ~3;
  });
  for (const [name, step] of Object.entries(header.steps ?? {})) found[name] = Float32Array.from(found[name], (value) => step * ((value >>> 1) ^ -(value & 1))); // 0, −1, 1, −2, 2, … steps
  return found;
}

/** A frame with the numbers of rows and columns of its first array. */
function sized(frame) {
  const [rows, columns] = frame.parts[0].shape.slice(-2);
  return { ...frame, rows, columns };
}

/** Data embedded in the page: every weight of a call, or q, k and lse, from which its weights are computed. */
class Embedded {
  constructor() {
    const largest = Math.max(...runs.flatMap(({ calls }) => calls.map(({ Q, K }) => Q * K)));
    this.heads = new Memory(clamp(Math.floor(5e7 / largest), 4, 64)); // at most 100 MB of codes
    this.rest = new Memory(256);
  }

  framed(id) { return this.rest.get(id, async () => unframed((await block(id)).buffer)); }
  bits(id) { return id ? this.rest.get(id, () => block(id)) : null; }

  /** Codes of some rows and keys of a head, from its q, k and lse. */
  async computed(n, call, head, ...box) {
    const kept = await this.framed(`walk-${n}-${call}`);
    return computedCodes(kept, await this.bits(kept.masks?.[Math.min(head, kept.masks.length - 1)]), runs[n].calls[call], head, ...box);
  }

  /** Codes of a whole head: {coarse, fine, exact}. */
  head(n, call, head) {
    return this.heads.get(`${n}-${call}-${head}`, async () => {
      if (isMean(head)) return meanCodes(this, n, call, head);
      const { Q, K } = runs[n].calls[call];
      if (!$(`heads-${n}-${call}`)) return this.computed(n, call, head, 0, Q, 0, K);
      const { coarse, fine, exact } = await this.framed(`heads-${n}-${call}`); // all heads of the call
      const part = (codes) => codes.subarray(head * Q * K, (head + 1) * Q * K);
      return { coarse: part(coarse), fine: part(fine), exact };
    });
  }

  async tile(n, call, head, pool, level, row, column) {
    const { Q, K } = runs[n].calls[call];
    const { coarse, fine, exact } = await this.head(n, call, head);
    const rows = Math.min(TILE, Math.ceil(Q / 2 ** level) - row * TILE), columns = Math.min(TILE, Math.ceil(K / 2 ** level) - column * TILE);
    const [size, top, left] = [2 ** level, row * TILE, column * TILE];
    const cells = (make) => Uint8Array.from({ length: rows * columns }, (_, at) => make((top + Math.floor(at / columns)) * size, (left + (at % columns)) * size));
    if (level === 0) return { rows, columns, exact, coarse: cells((i, j) => coarse[i * K + j]), fine: cells((i, j) => fine[i * K + j]) };
    return { rows, columns, exact, coarse: cells((i, j) => pooled({ coarse, fine }, K, pool, i, j, Math.min(i + size, Q), Math.min(j + size, K))) };
  }

  async row(n, call, head, i) {
    const { K } = runs[n].calls[call];
    return isMean(head) || $(`heads-${n}-${call}`) ? rowOfCodes(await this.head(n, call, head), K, i) : this.computed(n, call, head, i, i + 1, 0, K);
  }

  async column(n, call, head, j) { return columnOfCodes(await this.head(n, call, head), runs[n].calls[call].K, j); }

  async pair(n, call, i, j) {
    const found = await Promise.all(Array.from({ length: runs[n].calls[call].heads }, (_, head) => this.row(n, call, head, i)));
    const part = (name) => Uint8Array.from(found, (row) => row[name][j]);
    return { coarse: part("coarse"), fine: part("fine") };
  }

  async tracks(n, call, head) {
    const { Q, K, keys } = runs[n].calls[call];
    const { special } = runs[n].axes[keys];
    const codes = await this.head(n, call, head);
    if (isMean(head)) return figuresOf(codes, runs[n].calls[call], special);
    const kept = await this.framed(`tracks-${n}-${call}`); // of a call that is stored whole only what its weights do not say
    const stored = Object.fromEntries(kept.parts.map(({ name, shape: [, size] }) => [name, kept[name].subarray(head * size, (head + 1) * size)]));
    return stored.attended ? stored : { ...figuresOf(codes, runs[n].calls[call], special), ...stored };
  }

  async overview(n, call) {
    const kept = await this.framed(`${$(`overview-${n}-${call}`) ? "overview" : "heads"}-${n}-${call}`);
    return sized({ codes: kept.coarse, ...kept });
  }

  /** Computed from the stored q, k, v, x and out; null if none were stored. */
  async walk(n, call, head, i) {
    if (!$(`walk-${n}-${call}`)) return null;
    return walked(await this.framed(`walk-${n}-${call}`), await this.row(n, call, head, i), runs[n].calls[call], head, i);
  }

  /** The page contains the matrices of one head, and the products of one row and key. */
  async matrices(n, call, head, i, j) {
    if (!$(`matrices-${n}-${call}`)) return null;
    const kept = await this.framed(`matrices-${n}-${call}`);
    const others = [...(kept.head === head ? [] : ["q", "k", "v", "o", "own"]), ...(kept.row === i ? [] : ["x", "heads", "by_head", "own", "whole", "y"]), ...(kept.key === j ? [] : ["x_key"])];
    return { ...kept, ...Object.fromEntries(others.map((name) => [name, null])) };
  }
}

/** The reply of the server. */
function requested(path, options) {
  return fetch(path, options).catch(() => { throw new Error("the server does not answer: it was stopped. Start it again with regard look … --serve"); });
}

/** Data that the server computes from q, k and lse on request. */
class Served {
  constructor() { this.answers = new Memory(600); }

  request(path) {
    return this.answers.get(path, async () => {
      const reply = await requested(path);
      const json = reply.headers.get("content-type")?.startsWith("application/json") ? await reply.json() : null;
      if (!reply.ok) throw new Error(json?.error ?? `the server responded with status ${reply.status}`);
      return json ?? unframed(await reply.arrayBuffer());
    });
  }

  async tile(...place) { return sized(await this.request(`tile/${place.join("/")}`)); }
  row(n, call, head, i) { return this.request(`row/${n}/${call}/${head}/${i}`); }
  column(n, call, head, j) { return this.request(`column/${n}/${call}/${head}/${j}`); }
  pair(n, call, i, j) { return this.request(`pair/${n}/${call}/${i}/${j}`); }
  /** All codes of a head, from its tiles. */
  async head(n, call, head) {
    const { Q, K } = runs[n].calls[call];
    const whole = { coarse: new Uint8Array(Q * K), fine: new Uint8Array(Q * K), exact: "exact" };
    const places = Array.from({ length: Math.ceil(Q / TILE) * Math.ceil(K / TILE) }, (_, at) => [Math.floor(at / Math.ceil(K / TILE)), at % Math.ceil(K / TILE)]);
    await Promise.all(places.map(async ([row, column]) => {
      const tile = await this.tile(n, call, head, "share", 0, row, column);
      if (tile.exact !== "exact") whole.exact = tile.exact;
      for (let r = 0; r < tile.rows; r++) for (const name of ["coarse", "fine"]) whole[name].set(tile[name].subarray(r * tile.columns, (r + 1) * tile.columns), (row * TILE + r) * K + column * TILE);
    }));
    return whole;
  }
  tracks(n, call, head) { return this.request(`tracks/${n}/${call}/${head}`); }
  async overview(n, call) { return sized(await this.request(`overview/${n}/${call}`)); }
  walk(n, call, head, i) { return this.request(`walk/${n}/${call}/${head}/${i}`); }
  async matrices(n, call, head, i, j) {
    const [of, made] = await Promise.all([this.request(`matrices/${n}/${call}/${head}`), this.request(`products/${n}/${call}/${head}/${i}/${j}`)]);
    const wide = made.y?.length;
    return { ...of, ...made, head, row: i, key: j, own: made.by_head?.subarray(head * wide, (head + 1) * wide) };
  }
}

const LARGEST_DERIVED = 2.5e7; // weights of a head
/** A source of runs with names, whose weights are computed from whole heads of other runs: codes(name, call, head) -> {coarse, fine, exact}; what: is too large, in words. */
class Derived {
  constructor(what, codes, more) { Object.assign(this, { held: new Memory(12), what, codes, tile: Embedded.prototype.tile }, more); }

  head(name, call, head) {
    return this.held.get(`${name} ${call} ${head}`, async () => {
      const { Q, K } = runs[name].calls[call];
      if (Q * K > LARGEST_DERIVED) throw new Error(`a head of ${Q.toLocaleString("en")} × ${K.toLocaleString("en")} weights is too large ${this.what}; at most ${LARGEST_DERIVED.toLocaleString("en")}`);
      return this.codes(name, call, head);
    });
  }
}

/** The weights of a line of codes, with the code of each. */
const weightsOf = ({ coarse, fine, ...of }) => ({ ...of, p: Float64Array.from(coarse, (code, at) => weight(code, fine?.[at])), code: coarse, fine });

/** The codes of a row, or of a column, of a matrix with so many columns. */
const codesOfLine = ({ coarse, fine, ...of }, pick) => ({ ...of, coarse: pick(coarse), fine: fine && pick(fine) });
const rowOfCodes = (codes, columns, i) => codesOfLine(codes, (all) => all.subarray(i * columns, (i + 1) * columns));
const columnOfCodes = (codes, columns, j) => codesOfLine(codes, (all) => Uint8Array.from({ length: all.length / columns }, (_, i) => all[i * columns + j]));

const [FULL, PER_NAT] = [249 * 256, (249 * 256) / 6 / Math.LN10]; // steps of the code of 1, and of a factor e

/** Both bytes of a weight, as in codes.py, from its natural logarithm. */
function codesOfLog(log) {
  const fixed = Math.round(Math.min(0, log) * PER_NAT + FULL) + 128;
  return fixed >= 0 ? [(fixed >> 8) + FIRST, fixed & 255] : [log < -745.2 ? ZERO : Number.isNaN(log) ? NAN : TINY, 128];
}

/** The codes of exp(scale · q·k − lse) where the mask allows it, of rows from top to bottom and keys from left to right. allowed: a bit per pair, or null. */
function computedCodes(kept, allowed, { Q, K, heads, groups, formula }, head, top, bottom, left, right) {
  const { q, k, lse, bias, error } = kept;
  const D = q.length / heads / Q, first = Math.floor((head * groups) / heads) * K;
  const size = (bottom - top) * (right - left);
  const [coarse, fine] = [new Uint8Array(size), new Uint8Array(size).fill(128)];
  for (let i = top, to = 0; i < bottom; i++) {
    const row = head * Q + i;
    for (let j = left, at = i * K + left; j < right; j++, at++, to++) {
      if (allowed && !(allowed[at >> 3] & (128 >> (at & 7)))) continue;
      let sum = 0;
      for (let d = 0, a = row * D, b = (first + j) * D; d < D; d++) sum += q[a + d] * k[b + d];
      [coarse[to], fine[to]] = codesOfLog(formula.scale * sum + (bias.length ? bias[head * (Q + K - 1) + i - j + K - 1] : 0) - lse[row]);
    }
  }
  return { coarse, fine, exact: "exact", error };
}

/** The code of some cells as one: invalid weights take precedence; masked only if all are. weighs(i): how many rows of the matrix row i is. */
function pooled({ coarse, fine }, columns, pool, top, left, bottom, right, weighs = () => 1) {
  let sum = 0, most = 0, count = 0, wrong = 0, seen = false, zero = true;
  for (let i = top; i < bottom; i++) {
    const rows = weighs(i);
    count += rows;
    for (let j = left; j < right; j++) {
      const code = coarse[i * columns + j];
      if (INVALID.has(code)) wrong = Math.max(wrong, code);
      if (code === MASKED) continue;
      seen = true;
      zero &&= code === ZERO;
      const p = weight(code, fine?.[i * columns + j]);
      sum += p * rows;
      if (p > most) most = p;
    }
  }
  if (wrong || !seen) return wrong || MASKED;
  const p = pool === "largest" ? most : sum / count;
  return p > 0 ? coded(p) : zero ? ZERO : TINY;
}

const coded = (p) => (p < 1e-6 ? TINY : clamp(FIRST + Math.round((Math.log10(Math.min(p, 1)) / 6 + 1) * 249), FIRST, 255));

const source = data.served ? new Served() : new Embedded();
