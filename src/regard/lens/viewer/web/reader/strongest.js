// The list of the strongest tokens with bars and numbers, and the curve of their cumulative weight.

const strongest = {
  line: null, order: [], share: 0.8, size: [0, 0],
  most: 1000, // the most tokens in the list
  shares: [0.5, 0.8, 0.9, 0.95, 0.99],

  build(box) {
    this.note = element("p", null, { className: "note", id: "strongest-note" });
    this.curve = element("canvas", null, { id: "strongest-curve", tabIndex: 0, role: "slider", ariaValueMin: "50", ariaValueMax: "99", ariaLabel: "cumulative weight of the strongest tokens" });
    this.list = element("div", null, { id: "strongest-list", tabIndex: 0, role: "listbox" });
    this.back = tool("◂", "next stronger", () => this.go(-1));
    this.on = tool("▸", "next weaker", () => this.go(1));
    this.title = element("h3", null, { id: "strongest-title" });
    this.columns = element("div", null, { className: "entry note columns" }, element("span"), element("span"), element("span"),
      element("span", "weight", { className: "number" }), element("span", "moves", { className: "number", id: "strongest-moves" }), element("span", "other rows", { className: "number", title: "the mean weight of the other rows on the same key" }));
    const bar = element("div", null, { className: "bar" }, this.title, element("span", null, { className: "pair-of-buttons" }, this.back, this.on));
    box.append(bar, this.columns, this.list, this.note, this.curve);
    this.lines = new Lines(this.list, 26, (place) => this.entry(place));
    this.list.addEventListener("click", (event) => {
      const place = event.target.closest("[data-place]")?.dataset.place;
      if (place !== undefined) this.choose(Number(place));
    });
    this.list.addEventListener("keydown", (event) => {
      const by = stepOf(event, { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1, PageDown: 8, PageUp: -8, Home: -Infinity, End: Infinity });
      if (by !== undefined) this.go(by);
    });
    this.curve.addEventListener("keydown", (event) => {
      const by = stepOf(event, { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 });
      if (by !== undefined) this.mark(this.shares[clamp(this.shares.indexOf(this.share) + by, 0, this.shares.length - 1)]);
    });
    this.curve.addEventListener("pointerdown", (event) => {
      const { top, height } = this.curve.getBoundingClientRect();
      const at = 1 - (event.clientY - top) / height;
      this.mark(this.shares.reduce((best, share) => (Math.abs(share - at) < Math.abs(best - at) ? share : best)));
    });
    new ResizeObserver(() => {
      this.size = [this.curve.clientWidth, this.curve.clientHeight]; // read only when it changes, since reading it triggers layout
      if (this.line) this.drawCurve();
    }).observe(this.curve);
  },

  /** The chosen token of the list: a key of the pinned row. */
  chosen() { return this.line.to ? state.key : null; },
  choose(place) {
    const j = this.order[place];
    return choose(this.line.to ? { key: j } : { query: j, key: this.line.places[0], direction: "to" }); // the same pair, shown from its row
  },
  go(by) {
    if (!this.order.length || !this.line.to) return undefined;
    const now = this.order.indexOf(this.chosen());
    return this.choose(clamp(now < 0 ? 0 : now + by, 0, this.order.length - 1));
  },
  mark(share) {
    this.share = share;
    this.drawCurve();
  },

  show(line) {
    const same = this.line && this.line.p === line.p;
    this.line = line;
    this.order = ranked(line, this.most);
    if (!same) this.lines.scroll(0);
    this.lines.reset(this.order.length + (line.sorted.length > this.order.length ? 1 : 0));
    const what = line.to ? "keys" : "rows";
    this.title.textContent = this.order.length ? `strongest ${what}` : `no ${what} with weight`;
    this.columns.hidden = !this.order.length;
    const length = !isMean(state.head) && callNow().notes.lengths;
    $("strongest-moves").title = length ? `the share of the key in Σ p·${length} of its row: what it adds to the output` : isMean(state.head) ? "a mean of heads has no values of its own" : "the values of this call are not known";
    this.back.disabled = this.on.disabled = !this.order.length || !line.to;
    const at = this.order.indexOf(this.chosen());
    if (at >= 0) {
      this.lines.reveal(at);
      this.list.setAttribute("aria-activedescendant", `strongest-${at}`);
    } else this.list.removeAttribute("aria-activedescendant");
    this.list.setAttribute("aria-label", this.title.textContent);
    this.drawCurve();
  },

  entry(place) {
    const { line } = this;
    if (place === this.order.length) return element("div", `and ${counted(line.sorted.length - place, "weaker one")}`, { className: "entry note" });
    const j = this.order[place];
    const bar = element("i", null, { className: "ground" });
    ground(bar, line, j);
    const whole = line.to ? 1 : Math.max(1, line.p[this.order[0]]);
    bar.style.width = `${clamp(100 * line.p[j] / whole, 0.5, 100)}%`;
    const others = line.others(j);
    const mark = element("i", null, { className: "others", hidden: Number.isNaN(others), style: `left:${clamp(100 * others / whole, 0, 100)}%` });
    const said = line.code[j] === LEAK ? `${percent(line.p[j], 2)} forbidden` : describe(line, j);
    const option = { role: "option", ariaSelected: String(j === this.chosen()), ariaSetSize: String(this.order.length), ariaPosInSet: String(place + 1) };
    const made = element("div", null, { className: "entry", id: `strongest-${place}`, ...option }, element("span", j, { className: "number soft" }),
      element("bdi", wordOf(line.of, j, 40)), element("span", null, { className: "bars" }, bar, mark), element("data", said, { value: line.p[j], className: "number" }),
      element("data", this.narrow(line.moves(j)), { value: line.moves(j), className: "number soft moves" }), element("data", percent(others, 2), { value: others, className: "number soft" }));
    made.title = `${remark(line.of, j) && `${remark(line.of, j)}; `}${describe(line, j)}${Number.isNaN(others) ? "" : `; the other rows ${percent(others, 2)} on average`}${Number.isNaN(line.moves(j)) ? "" : `; ${percent(line.moves(j), 2)} of what the row moves`}`;
    Object.assign(made.dataset, { place, token: j });
    return made;
  },

  /** A share in a narrow column. */
  narrow: (p) => (p > 0 && p < 1e-4 ? "<0.01 %" : percent(p, 2)),

  /** The cumulative weight of the n strongest, with n on a logarithmic scale. */
  drawCurve() {
    const { sorted, total, to } = this.line;
    const [[width, height], density] = [this.size, devicePixelRatio];
    const count = needed(this.line, this.share);
    const [what, share] = [to ? "the weight" : "the received weight", Math.round(100 * this.share)];
    const one = to ? "key" : "row";
    const said = !sorted.length ? "no weights"
      : count === null ? `${share} % of ${what} needs more than the ${sorted.length.toLocaleString("en")} ${one}s with a known weight`
        : `${share} % of ${what} is ${to ? "on" : "from"} ${atMost(this.line)}${count.toLocaleString("en")} ${one}${count === 1 ? "" : "s"}`;
    const { wrong, exact } = this.line;
    const alarm = wrong ? [" ", element("strong", `${wrong.toLocaleString("en")} ${wrong === 1 ? "weight is" : "weights are"} not between 0 and 1.`, { className: "alarm" })] : [];
    this.note.replaceChildren(`${said}${exact && exact !== "exact" ? ` (${exact})` : ""}${wrong ? "." : ""}`, ...alarm);
    this.curve.setAttribute("aria-valuenow", share);
    this.curve.setAttribute("aria-valuetext", said);
    if (!width) return;
    [this.curve.width, this.curve.height] = [width * density, height * density];
    const context = this.curve.getContext("2d");
    context.scale(density, density);
    const [soft, line, accent] = [css("--soft"), css("--line"), css("--accent")];
    const [left, bottom] = [40, height - 16];
    const most = Math.max(2, sorted.length);
    const x = (n) => left + ((width - left - 8) * Math.log(Math.max(1, n))) / Math.log(most);
    const y = (p) => bottom - (bottom - 6) * Math.min(1, p);
    context.font = `11px ${fontFamily()}`;
    context.fillStyle = soft;
    context.strokeStyle = line;
    context.textBaseline = "middle";
    for (const [p, name] of [[0, "0 %"], [0.5, "50 %"], [1, "100 %"]]) {
      context.textAlign = "right";
      context.fillText(name, left - 5, y(p));
      context.beginPath();
      context.moveTo(left, y(p));
      context.lineTo(width - 8, y(p));
      context.stroke();
    }
    context.textBaseline = "top";
    for (let n = 1; n <= most; n *= 10) {
      context.textAlign = n === 1 ? "left" : "center";
      if (x(n) < width - 90) context.fillText(n.toLocaleString("en"), x(n), bottom + 4);
    }
    context.textAlign = "right";
    context.fillText(`${most.toLocaleString("en")} ${to ? "keys" : "rows"}`, width - 8, bottom + 4);
    if (!sorted.length || !total) return;
    context.strokeStyle = css("--ink");
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x(1), y(sorted[0] / total));
    const closer = most ** (1 / (width - left)); // no two points in one pixel
    for (let n = 1, sum = 0, next = 2; n <= sorted.length; n++) {
      sum += sorted[n - 1] / total;
      if (n < next && n < sorted.length) continue;
      context.lineTo(x(n), y(sum));
      next = Math.max(n + 1, n * closer);
    }
    context.stroke();
    if (count === null) return;
    context.strokeStyle = accent;
    context.fillStyle = accent;
    context.lineWidth = 1;
    context.setLineDash([3, 3]);
    context.beginPath();
    context.moveTo(left, y(this.share));
    context.lineTo(x(count), y(this.share));
    context.lineTo(x(count), bottom);
    context.stroke();
    context.setLineDash([]);
    context.beginPath();
    context.arc(x(count), y(this.share), 3.5, 0, 7);
    context.fill();
  },
};
