"use strict";
// Price: operations, bytes, memory and the least time of every line, as regard.cost computes them.

// Which terms a number format uses, the rate of its products, and the bytes by which a number of a matrix is smaller.
const DTYPES = {
  float32: { title: "float32", terms: "float32", rate: "float32", less: 0n, bytes: [4n, 4n] },
  bfloat16: { title: "bfloat16", terms: "bfloat16", rate: "bfloat16", less: 0n, bytes: [2n, 2n] },
  float16: { title: "float16", terms: "bfloat16", rate: "float16", less: 0n, bytes: [2n, 2n] },
  int8: { title: "8 bit weights", terms: "bfloat16", rate: "bfloat16", less: 1n, bytes: [1n, 2n] },
};

const termsOf = ({ phase, dtype }) => terms.phases[phase][DTYPES[dtype].terms];
const sum = (numbers) => numbers.reduce((total, each) => total + each, 0n);

/** The bytes of weights in this format, of those that bfloat16 takes. */
const smaller = (bytes, dtype) => (DTYPES[dtype].less ? bytes / 2n : bytes);

/** One call of attention: pairs over all heads and sequences, operations and bytes. */
function called(call, n, B) {
  const [batch, rows, keys, start] = ["batch", "rows", "keys", "start"].map((name) => value(call[name], n, B));
  const [heads, keyHeads, depth, valueDepth] = [call.heads, call.key_heads, call.depth, call.value_depth].map(BigInt);
  const allowed = call.table ? B * tabled(call.table, n) : batch * heads * pairs(call, rows, keys, start);
  return {
    pairs: allowed,
    scores: 2n * depth * allowed,
    forward: 2n * (depth + valueDepth) * allowed,
    backward: 4n * (depth + valueDepth) * allowed,
    done: 2n * (3n * depth + 2n * valueDepth) * allowed,
    moved: batch * BigInt(call.itemsize) * (heads * rows + keyHeads * keys) * (depth + valueDepth),
  };
}

/** Bytes of experts beyond the first that the rows of a product meet. */
function moreExperts({ experts, flops, count }, n, B) {
  const bytes = BigInt(experts.bytes);
  const rows = (value(flops, n, B) * BigInt(experts.itemsize)) / (2n * bytes);
  return BigInt(count) * bytes * (least(BigInt(experts.experts), rows) - 1n);
}

/** The least seconds of a line's products on a machine: [all, those that operations limit]. */
function seconds(line, calls, choice, machine, inMemory, n, B) {
  const { phase, dtype } = choice;
  const rate = machine.peak[DTYPES[dtype].rate];
  let [total, compute] = [0, 0];
  const add = (flops, weight, rest, count) => {
    const moved = (inMemory ? Number(weight) : 0) + (Number(rest) > machine.cache ? Number(rest) : 0);
    const working = Number(flops) / rate;
    const each = Math.max(working, moved / machine.bandwidth);
    total += count * each;
    if (working >= each) compute += count * each;
  };
  for (const { flops, weight, rest, count, summed } of line.products) {
    add(summed && B === 1n ? 0n : value(flops, n, B), smaller(value(weight, n, B), dtype), value(rest, n, B), count);
  }
  calls.forEach((call, at) => {
    add(call.forward, 0n, call.moved, line.calls[at].count);
    if (phase === "train") add(call.done, 0n, 2n * call.moved, line.calls[at].count);
  });
  return [total, compute];
}

/** One line of one layer. seconds is null without a machine that has a rate for the format. */
function pricedLine(line, choice, machine, inMemory, n, B) {
  const { phase, dtype } = choice;
  const train = phase === "train";
  const calls = line.calls.map((call) => called(call, n, B));
  const inCalls = (name) => sum(calls.map((call, at) => BigInt(line.calls[at].count) * call[name]));
  const [matrices, others] = line.parameters.map(BigInt);
  const bytes = DTYPES[dtype].bytes;
  const weights = matrices * bytes[0] + others * bytes[1];
  const trained = train ? (matrices + others) * (bytes[0] + 8n + (bytes[0] === 2n ? 4n : 0n)) : 0n;
  const experts = line.products.filter((each) => each.experts);
  const read = value(line.weights, n, B);
  const moved = value(line.moved, n, B) - (read - smaller(read, dtype))
    + sum(experts.map((each) => smaller(moreExperts(each, n, B), dtype))) + inCalls("moved");
  const [all, compute] = machine ? seconds(line, calls, choice, machine, inMemory, n, B) : [null, null];
  return {
    part: line.part,
    parameters: matrices + others,
    forward: value(line.forward, n, B) + inCalls("forward"),
    backward: train ? value(line.backward, n, B) + inCalls("backward") : 0n,
    scores: inCalls("scores"),
    pairs: inCalls("pairs"),
    moved,
    held: weights + trained + (train ? value(line.saved, n, B) : value(line.kept, n, B)),
    saved: value(line.saved, n, B),
    seconds: all,
    compute,
  };
}

/** Bytes that are held at once, by kind, in the order of the plot. */
function held(choice, n, B) {
  const found = termsOf(choice);
  const lessened = DTYPES[choice.dtype].less * BigInt(terms.numbers[0]);
  const weights = BigInt(found.weights) - lessened;
  if (choice.phase === "train") {
    const saved = found.checkpoints
      ? value(found.checkpoints.outside, n, B) + found.checkpoints.within.map((each) => value(each, n, B)).reduce(most, 0n)
      : sum(found.groups.map(({ layers, lines }) => BigInt(layers.length) * sum(lines.map((line) => value(line.saved, n, B)))));
    return { weights, gradients: BigInt(found.gradients), optimizer: BigInt(found.optimizer), activations: saved };
  }
  const rests = found.groups.flatMap(({ lines }) => lines.flatMap(({ products }) => products.map(({ rest }) => value(rest, n, B))));
  const working = found.timed ? rests.reduce(most, 0n) : value(found.working, n, B);
  return { weights, cache: value(found.cache, n, B), states: value(found.states, n, B), working };
}

/** The machine of a choice, or null where it has no rate for the format, or some products have no formula. */
function machineOf(choice) {
  const machine = data.machines[choice.machine] ?? null;
  return machine && machine.peak[DTYPES[choice.dtype].rate] && termsOf(choice).timed ? machine : null;
}

/** Everything of a choice {phase, dtype, tokens, batch, machine}: groups of equal layers, and sums over all layers. */
function priced(choice) {
  const [n, B] = [BigInt(choice.tokens), BigInt(choice.batch)];
  const machine = machineOf(choice);
  const memory = held(choice, n, B);
  const inMemory = machine !== null && Number(memory.weights) > machine.cache;
  const groups = termsOf(choice).groups.map(({ stack, layers, lines }) => ({
    stack,
    layers,
    lines: lines.map((line) => pricedLine(line, choice, machine, inMemory, n, B)),
  }));
  const total = (read) => sum(groups.map(({ layers, lines }) => BigInt(layers.length) * sum(lines.map(read))));
  const time = (read) => groups.reduce((all, { layers, lines }) => all + layers.length * lines.reduce((sum, line) => sum + read(line), 0), 0);
  return {
    groups,
    memory,
    held: sum(Object.values(memory)),
    linear: total((line) => (line.part === "attention" ? 0n : line.forward)),
    attention: total((line) => (line.part === "attention" ? line.forward : 0n)),
    backward: total((line) => line.backward),
    flops: total((line) => line.forward + line.backward),
    exponentials: total((line) => line.pairs),
    moved: total((line) => line.moved),
    saved: total((line) => line.saved),
    seconds: machine ? time((line) => line.seconds) : null,
    compute: machine ? time((line) => line.compute) : null,
  };
}

/** The largest whole number up to `limit` for which `bytes`, which grows with it, is at most `memory`; 0 if none is. */
function largest(bytes, memory, limit) {
  let [low, high] = [0n, 1n];
  while (high <= limit && bytes(high) <= memory) [low, high] = [high, 2n * high];
  high = least(high, limit + 1n);
  while (high - low > 1n) {
    const middle = (low + high) / 2n;
    if (bytes(middle) <= memory) low = middle;
    else high = middle;
  }
  return low;
}

/** The most tokens of the chosen sequences, and the most sequences of the chosen tokens, that a memory holds. */
function fitting(choice) {
  const memory = BigInt(Math.round(choice.memory * 1e9));
  const total = (n, B) => sum(Object.values(held(choice, n, B)));
  const limit = terms.limit ?? 1 << 30;
  return {
    least: total(1n, 1n),
    tokens: terms.reads ? largest((n) => total(n, BigInt(choice.batch)), memory, BigInt(limit)) : null,
    batch: largest((B) => total(BigInt(choice.tokens), B), memory, 1n << 30n),
  };
}
