// The list of the strongest tokens with bars and numbers, and the heads with the largest weight on the chosen one.

const strongest = {
  line: null, order: [],
  most: 100, // the most tokens in the list
  best: 6, // the most heads

  build(box) {
    this.note = element("p", null, { className: "note", id: "strongest-note" });
    this.box = new ListBox("strongest-list", (place) => this.choose(place));
    this.list = this.box.node;
    this.title = element("h3", null, { id: "strongest-title" });
    this.columns = element("div", null, { className: "entry note columns" }, element("span"), element("span"), element("span"),
      element("span", "weight", { className: "number" }), element("span", "share of output", { className: "number", id: "strongest-moves" }), element("span", "other rows", { className: "number", title: "the mean weight of the other rows on the same key" }));
    this.heads = element("div", null, { id: "pair", hidden: true });
    box.append(this.title, this.columns, this.list, this.note, this.heads);
  },

  choose(place) {
    const j = this.order[place];
    return choose(this.line.to ? { key: j } : { query: j, key: this.line.places[0], direction: "to" }); // the same pair, shown from its row
  },

  show(line) {
    const same = this.line?.p === line.p, before = this.list.scrollTop, weaker = line.sorted.length - this.most;
    this.line = line;
    this.order = ranked(line, this.most);
    this.list.style.height = `${26 * Math.min(8, line.p.length)}px`;
    const more = weaker > 0 ? [element("div", `and ${counted(weaker, "weaker one")}`, { className: "entry note" })] : [];
    const at = line.to ? this.order.indexOf(state.key) : -1; // a key of the pinned row
    this.box.keyed = line.to;
    this.box.show(this.order.map((j) => this.entry(j)), at, more).forEach((entry, place) => {
      const j = this.order[place], others = line.others(j);
      entry.title = `${remark(line.of, j) && `${remark(line.of, j)}; `}${describe(line, j)}${Number.isNaN(others) ? "" : `; the other rows ${othersPercent(others)} on average`}${Number.isNaN(line.moves(j)) ? "" : `; ${percent(line.moves(j), 2)} of the output`}`;
      entry.dataset.token = j;
    });
    this.list.scrollTop = same ? before : 0;
    const what = line.to ? "keys" : "rows";
    this.title.textContent = this.order.length ? `strongest ${what}` : `no ${what} with weight`;
    this.columns.hidden = !this.order.length;
    const length = !isMean(state.head) && callNow().notes.lengths;
    $("strongest-moves").title = length ? `what the key adds to the output of the row, as a share: weight × length of its value, ${length}, divided by the sum over all keys` : isMean(state.head) ? "a mean of heads has no values of its own" : "the values of this call are not known";
    if (at >= 0 && (26 * at < this.list.scrollTop || 26 * (at + 1) > this.list.scrollTop + this.list.clientHeight)) this.list.scrollTop = 26 * (at - 3.5);
    this.list.setAttribute("aria-label", this.title.textContent);
    this.summary();
  },

  entry(j) {
    const { line } = this;
    const bar = element("i", null, { className: "ground" });
    ground(bar, line, j);
    const whole = line.to ? 1 : Math.max(1, line.p[this.order[0]]);
    bar.style.width = `${clamp(100 * line.p[j] / whole, 0.5, 100)}%`;
    const others = line.others(j);
    const mark = element("i", null, { className: "others", hidden: Number.isNaN(others), style: `left:${clamp(100 * Math.abs(others) / whole, 0, 100)}%` });
    const said = line.code[j] === LEAK ? `${percent(line.p[j], 2)} forbidden` : describe(line, j);
    return [element("span", j, { className: "number soft" }),
      element("bdi", wordOf(line.of, j, 40)), element("span", null, { className: "bars" }, bar, mark), element("data", said, { value: line.p[j], className: "number" }),
      element("data", this.narrow(line.moves(j)), { value: line.moves(j), className: "number soft moves" }), element("data", others < 0 ? othersPercent(others) : this.narrow(others), { value: others, className: "number soft" })];
  },

  /** The heads of all layers with the largest weight of the chosen row on the chosen key. */
  async pair() {
    const { run, query, key } = state;
    const { queries, keys } = callNow();
    const calls = runs[run].calls.flatMap((call, number) => (key !== null && call.queries === queries && call.keys === keys ? [number] : []));
    const found = await Promise.all(calls.map(async (call) => ({ call, ...await source.pair(run, call, query, key) })));
    if (overtaken({ run, query, key })) return;
    const all = found.flatMap(({ call, coarse, fine }) => Array.from(coarse, (code, head) => ({ call, head, p: weight(code, fine?.[head]) })));
    const best = all.filter(({ p }) => p > 0).sort((a, b) => b.p - a.p).slice(0, this.best);
    this.heads.hidden = all.length < 2;
    this.heads.replaceChildren(element("h3", best.length ? ["heads with the most weight of ", quoted(queryAxis(), query, 20), " on ", quoted(keyAxis(), key, 20)] : "no head has weight on this pair"),
      element("ol", null, {}, ...best.map(({ call, head, p }) => {
        const go = button(`${callTitle(call)}, head ${head}`, () => choose({ call, head, key }));
        go.ariaCurrent = String(call === state.call && head === state.head);
        Object.assign(go.dataset, { call, head });
        return element("li", null, {}, go, element("data", percent(p), { value: p, className: "number" }));
      })));
  },

  /** A share in a narrow column. */
  narrow: (p) => (p > 0 && p < 1e-4 ? "<0.01 %" : percent(p, 2)),

  /** On how many of the strongest tokens most of the weight is, and how many weights are none. */
  summary() {
    const { sorted, to, wrong, exact } = this.line;
    const count = needed(this.line);
    const [what, one] = to ? ["the weight", "key"] : ["the received weight", "row"];
    const summary = !sorted.length ? "no weights"
      : count === null ? `80 % of ${what} needs more than the ${sorted.length.toLocaleString("en")} ${one}s with a known weight`
        : `80 % of ${what} is ${to ? "on" : "from"} ${count.toLocaleString("en")} ${one}${count === 1 ? "" : "s"}`;
    const alarm = wrong ? [" ", element("strong", `${wrong.toLocaleString("en")} ${wrong === 1 ? "weight is" : "weights are"} not between 0 and 1.`, { className: "alarm" })] : [];
    this.note.replaceChildren(`${summary}${exact && exact !== "exact" ? ` (${exact})` : ""}${wrong ? "." : ""}`, ...alarm);
  },
};
