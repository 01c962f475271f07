// The metrics of heads: titles, explanations and values.

const METRICS = {
  matrix: { title: "attention matrix", note: "Each square is the matrix of a head: layers from top to bottom, heads from left to right." },
  spread: { title: "entropy", note: "Entropy of a row’s weights, −Σ p ln p, as a share of its maximum, ln(number of visible keys). 0 %: all weight on one key; 100 %: equal weights, at any length. Mean over the rows with more than one visible key." },
  sink: { title: "weight on an attention sink", note: "Mean weight of a row on special tokens or on the first key, whichever is larger. Many heads put unneeded weight there: an attention sink." },
  first: { title: "weight on the first key", note: "Mean weight of a row on the first key." },
  distant: { title: "weight on distant tokens", note: "Mean weight of a row on ordinary tokens at least two positions away." },
  previous: { title: "weight on the previous token", note: "Mean weight of a row on the key before its own position. Rows without a visible previous key do not count. A head near 100 % is a previous-token head." },
  itself: { title: "weight on the token itself", note: "Mean weight of a row on the key at its own position." },
  maximum: { title: "largest weight", note: "Largest weight of a row, mean over the rows." },
  distance: { title: "distance", note: "Attention distance of a row: √ Σ p (query − key)², in tokens, mean over the rows.", unit: "tokens" },
};
const FURTHER = { // figures that only some runs have: with special tokens, with values, with repeated tokens
  special: { title: "weight on special tokens", note: "Mean weight of a row on special tokens, such as [CLS] and [SEP]." },
  moved_special: { title: "special tokens, share of the output", note: "What special tokens add to the output, as a share of Σ p·‖v‖, or Σ p·‖v W_o‖ if W_o is known; mean over the rows. Heads that attend mostly to special tokens often add little to the output, because the values of these tokens are short." },
  duplicate: { title: "weight on duplicates", note: "Mean weight of a row on earlier keys with the same token, over the rows that have one." },
  induction: { title: "weight on induction keys", note: "Mean weight of a row on the keys after earlier occurrences of its token: what followed it before. A head near 100 % is an induction head, which repeats what it has read. A measure of this name replaces it." },
};
// Figures that count positions along a text mean nothing in an image, whose patches have rows and columns.
const ALONG_TEXT = new Set(["previous", "distant", "distance"]);
if (runs.every(({ axes }) => Object.values(axes).every(({ grid }) => grid))) for (const name of ALONG_TEXT) delete METRICS[name];
/** Adds the metrics of a run that other runs do not have. */
function addMetrics({ calls, findings, facts: { effects } }) {
  for (const name of calls.flatMap(({ figures }) => Object.keys(figures))) {
    if (Object.hasOwn(METRICS, name) || ["entropy", "forbidden", "moved"].includes(name) || ALONG_TEXT.has(name)) continue;
    METRICS[name] = Object.hasOwn(FURTHER, name) ? FURTHER[name] : { title: `weight on ${name}`, note: `Mean weight of a row on the keys of the measure “${name}”, over the rows that may attend to one.` };
  }
  if (effects?.of === "heads") METRICS.effect ??= { title: "effect", note: `By how much ${effects.measure} changes without the head. Colors end at the largest change.`, unit: `of ${effects.measure}` };
  if (runs.length > 1) METRICS.differs ??= { title: "difference of the chosen row", note: "By how much the chosen row differs between both runs: half the sum of the absolute differences of its weights. “As a table” sorts the heads by it." };
  if (findings.length) METRICS.findings ??= { title: "findings", note: "Number of findings of the audit about the head.", unit: "findings" };
}
runs.forEach(addMetrics);

/** By how much the measure of a run with effects changes without a head; NaN if it is not known. */
function effectOf(name, head) {
  const { effects } = runs[state.run].facts;
  return effects?.of === "heads" ? effects.values[effects.layers.indexOf(name)]?.[head] ?? NaN : NaN;
}

const metrics = {
  /** The value of a head: a share, or in the unit of the metric; null if it is not known. */
  value(metric, call, head) {
    if (metric === "findings") return badges.at(call, head).length;
    if (metric === "differs") return comparison.differences?.[call]?.[head] ?? null;
    const { figures, name } = runs[state.run].calls[call];
    if (metric === "effect") return Number.isNaN(effectOf(name, head)) ? null : Math.abs(effectOf(name, head));
    const of = (name) => figures[name]?.[head] ?? null;
    if (metric !== "sink") return of(metric);
    return of("special") === null && of("first") === null ? null : Math.max(of("special"), of("first"));
  },

  /** The upper end of the colors of a metric; it is the same for all heads of a run. */
  top(metric) {
    if (metric === "findings") return 3;
    if (metric === "effect") return Math.max(...(runs[state.run].facts.effects?.values.flat() ?? [1]).map(Math.abs));
    return metric === "distance" ? Math.max(1, Math.ceil(Math.max(...runs[state.run].calls.map(({ K }) => K)) / 2)) : 1;
  },

  /** The value as text: "12.3 %", "8.4 tokens". */
  words(metric, value) {
    if (value === null) return "—";
    const { unit } = METRICS[metric];
    if (!unit) return percent(value, 3);
    if (unit === "findings") return counted(value, "finding");
    return `${value < 1000 ? value.toPrecision(3) : Math.round(value).toLocaleString("en")} ${unit}`;
  },

  /** Of how many rows a measure is the mean; undefined for figures of all rows. */
  rows(metric, call, head) {
    const counts = callsOf(state.run, call, head).map((number) => runs[state.run].calls[number].rows[metric]);
    return isMean(head) ? counts[0] && Math.max(...counts.flatMap((each) => each ?? [])) : counts[0]?.[head];
  },

  /** The value of a head as text; of a measure also its number of rows, since a mean of few rows says little: "98 % (1 row)". */
  said(metric, call, head, value = this.value(metric, call, head)) {
    const rows = this.rows(metric, call, head);
    return `${this.words(metric, value)}${value !== null && rows !== undefined ? ` (${counted(rows, "row")})` : ""}`;
  },

  /** The value as short text, without unit. */
  short(metric, value) {
    if (value === null) return "—";
    if (metric === "findings") return value || "";
    return metric === "distance" ? value.toFixed(value < 9.95 ? 1 : 0) : String(Math.round((100 * value) / this.top(metric)));
  },

  /** The metrics of a head, as pairs of a title and text; of a mean, those that are the means of the metrics of its heads. */
  described(call, head) {
    if (isMean(head)) {
      const heads = callsOf(state.run, call, head).flatMap((number) => Array.from({ length: runs[state.run].calls[number].heads }, (_, each) => [number, each]));
      const mean = (name) => heads.reduce((sum, place) => sum + (this.value(name, ...place) ?? NaN), 0) / heads.length;
      const found = Object.keys(METRICS).filter((name) => METRICS[name].title.startsWith("weight on") && name !== "sink");
      return [["shown", headTitle(call, head)], ...found.map((name) => [METRICS[name].title, this.said(name, call, head, Number.isNaN(mean(name)) ? null : mean(name))])];
    }
    const { figures, heads, groups } = runs[state.run].calls[call];
    const entropy = figures.entropy?.[head] ?? null;
    const found = Object.keys(METRICS).filter((name) => !["matrix", "findings", "spread", "sink"].includes(name))
      .map((name) => [METRICS[name].title, this.said(name, call, head)]);
    found.unshift(["entropy", entropy === null ? "—" : `${entropy.toFixed(2)} nats · ${this.words("spread", this.value("spread", call, head))}`]);
    if (groups < heads) found.push(["key/value head", `${Math.floor((head * groups) / heads)} · shared by ${heads / groups}`]);
    return found;
  },

  /** The heads of all calls, as [call, head]. */
  all: () => runs[state.run].calls.flatMap(({ heads }, call) => Array.from({ length: heads }, (_, head) => [call, head])),
};

// The findings of the audit by head.
const badges = {
  /** The heads that a finding is about; none if it is about the whole call. */
  heads: ({ head, numbers }) => (Number.isInteger(head) ? [head] : Array.isArray(numbers?.heads) ? numbers.heads : []),
  /** The findings about a head, or with null about the whole call. */
  at(call, head) {
    const about = (found) => (head === null ? !this.heads(found).length : this.heads(found).includes(head));
    return runs[state.run].findings.filter((found) => found.call === call && about(found));
  },
  /** The highest severity of some findings: "fault", "warning", "note", or undefined. */
  worst: (found) => ["fault", "warning", "note"].find((severity) => found.some((each) => each.severity === severity)),
};
