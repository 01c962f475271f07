// What the reader reads: the weights of the pinned rows over the keys, or of the pinned keys over the rows, as one line of numbers.

/** The strongest key of a row; special ones are left out where they are hidden. null where the row has no weight. */
async function strongestKey(n, call, head, i) {
  const { coarse, fine, sure } = await source.row(n, call, head, i);
  const { special } = runs[n].axes[runs[n].calls[call].keys];
  let best = null, most = 0;
  for (let j = 0; j < coarse.length; j++) {
    if ((state.hideSpecial && special[j]) || sure?.[j] === 0) continue;
    const p = weight(coarse[j], fine?.[j]);
    if (p > most) [best, most] = [j, p];
  }
  return best;
}

/** One line out of several: the sum of the weights, or their mean; what is wrong in one of them is wrong in the line. */
function joined(answers, mean) {
  const count = answers[0].coarse.length;
  const [code, p, sure] = [new Uint8Array(count), new Float64Array(count), new Uint8Array(count).fill(1)];
  for (const { coarse, fine, sure: known } of answers) {
    for (let j = 0; j < count; j++) {
      const now = coarse[j], before = code[j];
      p[j] += weight(now, fine?.[j]);
      if (known && !known[j]) sure[j] = 0;
      const wrong = (each) => each === NAN || each === OUT || each === LEAK;
      code[j] = wrong(before) ? before : wrong(now) ? now : Math.max(before, now); // masked only where all are
    }
  }
  if (mean) for (let j = 0; j < count; j++) p[j] /= answers.length;
  return { code, p, sure, fine: answers.length === 1 ? answers[0].fine : undefined, exact: answers[0].exact };
}

/** {of, p, code, hidden, total, sorted, …} for what is pinned now; direction "to" is over the keys, "from" over the rows. */
async function reading() {
  const { run, call, head, query, pins, direction, hideSpecial } = state;
  const now = runs[run].calls[call];
  const to = direction === "to", same = now.queries === now.keys;
  const of = runs[run].axes[to ? now.keys : now.queries];
  const places = to ? [query, ...pins] : same ? [columnNow(), ...pins] : [columnNow()];
  const answers = await Promise.all(places.map((at) => (to ? source.row(run, call, head, at) : source.column(run, call, head, at))));
  const line = joined(answers, to && places.length > 1);
  const count = to ? of.tokens.length : rowsNow();
  const hidden = (j) => j >= count || (hideSpecial && of.special[j]);
  // Weights below 10⁻⁶ have no code, yet they are part of a row: where nothing else takes weight, a row's sum is known to be 1.
  const whole = to && !now.formula.sinks && !now.only_weights;
  let sum = 0, left = 0, attended = 0, wrong = 0, leaks = 0;
  for (let j = 0; j < of.tokens.length; j++) {
    if (line.code[j] !== MASKED && line.code[j] !== LEAK) attended++;
    if (line.code[j] === NAN || line.code[j] === OUT) wrong++;
    else if (line.code[j] === LEAK) leaks++;
    if (Number.isNaN(line.p[j])) continue;
    sum += line.p[j];
    if (hidden(j)) left += line.p[j];
  }
  let total = (whole && sum > 0.5 && !wrong ? Math.max(1, sum) : sum) - left;
  if (to && hideSpecial && total > 0) {
    for (let j = 0; j < of.tokens.length; j++) line.p[j] = hidden(j) ? 0 : line.p[j] / total;
    total = 1;
  }
  const sorted = line.p.filter((p, j) => p > 0 && line.sure[j] && !hidden(j)).sort().reverse();
  return { ...line, of, to, places, hidden, total, sorted, wrong, leaks, row: { attended: Math.max(1, attended), maximum: sorted[0] || 1 } };
}

/** The places of the largest weights, falling, at most so many. */
function ranked({ p, hidden, sorted, sure }, most) {
  const least = sorted[Math.min(most, sorted.length) - 1] ?? Infinity;
  const found = [];
  for (let j = 0; j < p.length; j++) if (p[j] >= least && sure[j] && !hidden(j)) found.push(j);
  return found.sort((a, b) => p[b] - p[a] || a - b).slice(0, most);
}

/** How many of the largest it takes for this share of the whole; null where those with a code do not reach it. */
function needed({ sorted, total }, share) {
  let sum = 0;
  for (let n = 0; n < sorted.length; n++) if ((sum += sorted[n]) >= share * total * (1 - 1e-6)) return n + 1;
  return null;
}

/** What is read at one place, in words. */
function told(line, j) {
  if (line.hidden(j)) return "left out";
  const code = line.code[j];
  if (code !== LEAK && (code < FIRST || Number.isNaN(line.p[j]))) return words(code);
  if (code === LEAK) return line.fine ? words(code, line.fine[j]) : `${percent(line.p[j])}, some of it where the mask forbids it`;
  return `${line.sure[j] ? "" : "about "}${percent(line.p[j], line.sure[j] ? 3 : 2)}`;
}

/** Gives a node the ground of what is read there, on the scale of the legend. */
function ground(node, line, j) {
  const code = line.hidden(j) ? null : line.code[j];
  const named = { [ZERO]: "zero", [NAN]: "nan", [OUT]: "out", [LEAK]: "leak", [MASKED]: "masked" }[code];
  for (const name of ["zero", "nan", "out", "leak", "masked"]) node.classList.toggle(name, name === named);
  const plain = code !== null && named === undefined;
  const at = plain ? step(code === TINY ? 0 : line.p[j], state.scale, line.rowAt ? line.rowAt(j) : line.row) : 0;
  node.style.background = plain ? colour(at, state.scale) : "";
  node.style.color = plain ? ink(at, state.scale) : "";
}
