// The numbers of the reader: the weights of the pinned rows over the keys, or of the pinned keys over the rows.

/** Several lines as one: the sum of the weights, or their mean; masked only if all are, invalid if one is. */
function joined(answers, mean) {
  const [first, ...others] = answers.map(weightsOf);
  if (!others.length) return first;
  const p = first.p.map((value, j) => others.reduce((sum, other) => sum + other.p[j], value) / (mean ? answers.length : 1));
  const code = first.code.map((kind, j) => others.reduce((worst, other) => joinedKind(worst, other.code[j]), kind));
  return { ...first, p, code, fine: undefined };
}

/** {of, p, code, hidden, total, sorted, …} of the pinned rows or keys; direction "to" is over the keys, "from" over the rows. */
async function reading() {
  const { run, call, head, query, pins, direction } = state;
  const now = runs[run].calls[call];
  const to = direction === "to", same = now.queries === now.keys;
  const of = runs[run].axes[to ? now.keys : now.queries];
  const places = to ? [query, ...pins] : same ? [columnNow(), ...pins] : [columnNow()];
  const lines = places.map((at) => (to ? source.row(run, call, head, at) : source.column(run, call, head, at)));
  const [tracks, ...answers] = await Promise.all([tracksOf(run), ...lines]);
  const line = joined(answers, to && places.length > 1);
  const count = to ? of.tokens.length : rowsNow();
  // Weights below 10⁻⁶ have no code, but are part of the sum of a row, which is known to be 1 without sinks, and of that of a key.
  const whole = to && callsOf(run, call, head).every((number) => !runs[run].calls[number].formula.sinks && !runs[run].calls[number].only_weights);
  const { code, p } = line;
  const counts = new Uint32Array(256);
  let sum = 0, later = 0;
  for (let j = 0; j < code.length; j++) {
    counts[code[j]]++;
    if (Number.isNaN(p[j])) continue;
    sum += p[j];
    if (j >= count) later += p[j];
  }
  const wrong = counts[NAN] + counts[OUT];
  const attended = code.length - counts[MASKED] - counts[LEAK];
  const known = to ? Number(whole && sum > 0.5) : places.reduce((all, j) => all + (tracks.received?.[j] ?? 0), 0);
  const total = (wrong ? sum : Math.max(known, sum)) - later;
  const sorted = p.slice(0, count).filter((weight) => weight > 0).sort().reverse();
  const others = (j) => othersOf(tracks, p[j], to ? [j] : places, to ? places.length : 1);
  const moves = tracks.lengths ? movesOf(tracks, to, places, code, p) : () => NaN;
  return { ...line, of, to, places, others, moves, hidden: (j) => j >= count, total, sorted, wrong, leaks: counts[LEAK], attended: Math.max(1, attended) };
}

/** What each key moves as a share of the row, or what the key moves in each row: p · length / Σ p · length. */
function movesOf(tracks, to, places, code, p) {
  if (!to) return (i) => (places.length > 1 || !tracks.moved || code[i] < FIRST ? NaN : (p[i] * tracks.lengths[places[0]]) / tracks.moved[i]);
  const parts = Float64Array.from(p, (weight, j) => (code[j] < FIRST ? 0 : weight * tracks.lengths[j]));
  const whole = parts.reduce((sum, part) => sum + part, 0);
  return (j) => parts[j] / whole;
}

/** The positions of the largest weights in descending order, at most so many. */
function ranked({ p, hidden, sorted }, most) {
  const least = sorted[Math.min(most, sorted.length) - 1] ?? Infinity;
  const found = [];
  for (let j = 0; j < p.length; j++) if (p[j] >= least && !hidden(j)) found.push(j);
  return found.sort((a, b) => p[b] - p[a] || a - b).slice(0, most);
}

/** How many of the largest weights reach 80 % of the total; null if those with a code do not reach it. */
function needed({ sorted, total }) {
  let sum = 0;
  for (let n = 0; n < sorted.length; n++) if ((sum += sorted[n]) >= 0.8 * total * (1 - 1e-6)) return n + 1;
  return null;
}

/** The value at one position as text. */
function describe(line, j) {
  if (line.hidden(j)) return "not generated yet";
  const code = line.code[j];
  if (code !== LEAK && (code < FIRST || Number.isNaN(line.p[j]))) return words(code);
  if (code === LEAK) return line.fine ? words(code, line.fine[j]) : `${percent(line.p[j])}, some of it where the mask forbids it`;
  return percent(line.p[j]);
}

/** Sets the background of a node to the color of its value, linear from 0 to 100 % if no other scale is given; alpha: how opaque. */
function ground(node, line, j, scale = "linear", alpha = 1) {
  const code = line.hidden(j) ? null : line.code[j];
  const named = { [ZERO]: "zero", [NAN]: "nan", [OUT]: "out", [LEAK]: "leak", [MASKED]: "masked" }[code];
  for (const name of ["zero", "nan", "out", "leak", "masked"]) node.classList.toggle(name, name === named);
  const plain = code !== null && named === undefined;
  const at = plain ? step(code === TINY ? 0 : line.p[j], scale, line.attended) : 0;
  node.style.background = plain ? `rgb(${rgb(at, scale).join(" ")} / ${alpha})` : "";
  node.style.color = plain ? ink(at, scale) : "";
}
