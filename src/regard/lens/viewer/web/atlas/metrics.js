// The figures of heads: what each is called, its value, which heads a filter keeps, and the order of them all.

const METRICS = {
  picture: { title: "picture", note: "Each picture is the matrix of a head, in the colours at the top." },
  spread: { title: "entropy", note: "Entropy as a share of the most that is possible. 0 %: one key takes all; 100 %: every visible key the same." },
  sink: { title: "weight on a sink", note: "Mean share of a row that falls on special tokens or on the first key, whichever is more." },
  special: { title: "weight on special tokens", note: "Mean share of a row that falls on special tokens." },
  first: { title: "weight on the first key", note: "Mean share of a row that falls on the first key." },
  distant: { title: "weight on distant words", note: "Mean share of a row on ordinary tokens at least two away." },
  previous: { title: "weight on the previous token", note: "Mean share of a row on the key before its own position." },
  itself: { title: "weight on the token itself", note: "Mean share of a row on the key at its own position." },
  maximum: { title: "largest weight", note: "Mean over the rows of the largest weight." },
  distance: { title: "distance", note: "How far a row looks: √ Σ p (query − key)², mean over the rows, in tokens.", unit: "tokens" },
};
const SORTS = { order: "in order", layers: "layers by it", heads: "heads by it" };
if (data.findings.length) METRICS.findings = { title: "findings", note: "How many findings of the audit there are about the head.", unit: "findings" };

const metrics = {
  /** The value of a head: a share, or in the unit of the metric; null where there is none. */
  value(metric, call, head) {
    if (metric === "findings") return badges.at(call, head).length;
    const { figures } = runs[state.run].calls[call];
    const of = (name) => figures[name]?.[head] ?? null;
    if (metric !== "sink") return of(metric);
    return of("special") === null && of("first") === null ? null : Math.max(of("special"), of("first"));
  },

  /** Where the colours of a metric end; the domain is that of the run and never moves. */
  top(metric) {
    if (metric === "findings") return 3;
    return metric === "distance" ? Math.max(1, Math.ceil(Math.max(...runs[state.run].calls.map(({ K }) => K)) / 2)) : 1;
  },

  /** In words: "12.3 %", "8.4 tokens". */
  words(metric, value) {
    if (value === null) return "—";
    const { unit } = METRICS[metric];
    if (!unit) return percent(value, 3);
    return `${unit === "findings" ? value : value < 1000 ? value.toPrecision(3) : Math.round(value).toLocaleString("en")} ${unit}`;
  },

  /** In as few letters as can be. */
  short(metric, value) {
    if (value === null) return "—";
    if (metric === "findings") return value || "";
    return metric === "distance" ? value.toFixed(value < 9.95 ? 1 : 0) : String(Math.round(100 * value));
  },

  /** What a head is like, as pairs of a name and words. */
  told(call, head) {
    const { figures, heads, groups } = runs[state.run].calls[call];
    const entropy = figures.entropy?.[head] ?? null;
    const found = Object.keys(METRICS).filter((name) => !["picture", "findings", "spread", "sink"].includes(name))
      .map((name) => [METRICS[name].title, this.words(name, this.value(name, call, head))]);
    found.unshift(["entropy", entropy === null ? "—" : `${entropy.toFixed(2)} nats · ${this.words("spread", this.value("spread", call, head))}`]);
    if (groups < heads) found.push(["key head", `${Math.floor((head * groups) / heads)} · shared by ${heads / groups}`]);
    return found;
  },

  kept(call, head) {
    if (!state.filter) return true;
    const value = this.value(state.filter.metric, call, head);
    return value !== null && value >= state.filter.low && value <= state.filter.high;
  },

  /** All heads that the filter keeps, as [call, head]. */
  all() {
    return runs[state.run].calls.flatMap(({ heads }, call) => Array.from({ length: heads }, (_, head) => [call, head])).filter(([call, head]) => this.kept(call, head));
  },

  /** The next head that the filter keeps, onward through the calls; the place as it is where there is no other. */
  nextHead(by) {
    const calls = runs[state.run].calls;
    if (!state.filter) return { head: state.head + by };
    let [call, head] = [state.call, state.head];
    for (let tries = calls.reduce((sum, { heads }) => sum + heads, 0); tries > 0; tries--) {
      head += by;
      if (head < 0 || head >= calls[call].heads) {
        call = round(call + by, calls.length);
        head = by > 0 ? 0 : calls[call].heads - 1;
      }
      if (this.kept(call, head)) return { call, head };
    }
    return {};
  },

  /** The next call in which the filter keeps a head, and in it the nearest such head. */
  nextCall(by) {
    const calls = runs[state.run].calls;
    for (let tries = 1; tries <= calls.length; tries++) {
      const call = round(state.call + by * tries, calls.length);
      const heads = Array.from({ length: calls[call].heads }, (_, head) => head).filter((head) => this.kept(call, head));
      if (heads.length) return { call, head: heads.reduce((best, head) => (Math.abs(head - state.head) < Math.abs(best - state.head) ? head : best)) };
    }
    return {};
  },
};

// What the audit found, by the place that it is about. Findings are about the first run.
const badges = {
  /** The heads that a finding is about: its own, or several of them; none where it is about the whole call. */
  heads: ({ head, numbers }) => (Number.isInteger(head) ? [head] : Array.isArray(numbers?.heads) ? numbers.heads : []),
  /** What was found about a head, or with null about the whole call. */
  at(call, head) {
    const about = (found) => (head === null ? !this.heads(found).length : this.heads(found).includes(head));
    return data.findings.filter((found) => state.run === 0 && found.call === call && about(found));
  },
  /** The worst of some findings: "fault", "warning", "note", or nothing. */
  worst: (found) => ["fault", "warning", "note"].find((severity) => found.some((each) => each.severity === severity)),
};
