// One pair of tokens in every head: the weight of the row on the key, as a grid of heads and as a list.

const NUMBERED = 34; // pixels: narrower cells have no numbers

const pair = {
  name: "pair", turn: 0, rows: [], to: null, cell: null,

  build() {
    this.note = element("p", null, { className: "note", id: "pair-note" });
    this.canvas = element("canvas", null, { id: "pair-canvas", tabIndex: 0, role: "img" });
    this.readout = element("p", null, { className: "note", id: "pair-readout" });
    this.heading = element("h3");
    this.scroll = element("div", null, { className: "pair-scroll" }, this.canvas);
    this.list = element("div", null, { id: "pair-list", tabIndex: 0, role: "listbox", ariaLabel: "Heads by their weight on this pair" });
    this.both = element("div", null, { className: "pair-both", hidden: true },
      element("div", null, { className: "pair-left" }, this.heading, this.scroll, this.readout),
      element("div", null, {}, element("h3", "strongest heads"), this.list));
    $("pair").append(element("div", null, { className: "bar" }, element("h2", "One pair in every head", { id: "pair-title" })), this.note, this.both);
    this.lines = new Lines(this.list, 26, (place) => this.entry(place));
    this.list.addEventListener("click", (event) => {
      const place = event.target.closest("[data-place]")?.dataset.place;
      if (place !== undefined) this.choose(this.order[place]);
    });
    this.list.addEventListener("keydown", (event) => {
      const by = stepOf(event, { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8, Home: -Infinity, End: Infinity });
      if (by === undefined || !this.order?.length) return;
      const now = this.order.findIndex((each) => this.isChosen(each));
      this.choose(this.order[clamp(now < 0 ? 0 : now + by, 0, this.order.length - 1)]);
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("click", (event) => { const found = this.under(event); if (found) this.choose(found); });
    this.canvas.addEventListener("pointermove", (event) => this.say(this.under(event)));
    this.canvas.addEventListener("pointerleave", () => this.say(null));
    this.lazily = new Lazily($("pair"), () => this.fetch());
    new ResizeObserver(() => this.paint()).observe(this.both);
  },

  draw(changed) {
    const any = (...names) => names.some((name) => changed.has(name));
    const stays = state.key !== null && this.rows.some((row) => row.call === state.call); // another head, the same pair
    if (any("run", "query", "key") || (!stays && any("call", "head"))) return this.lazily.again();
    if (any("call", "head", "scale", "theme", "size", "hideSpecial") && this.rows.length) this.show();
    return undefined;
  },

  async fetch() {
    const turn = ++this.turn;
    const { run, call, head, query } = state;
    const { queries, keys } = callNow();
    const key = state.key ?? (await strongestKey(run, call, head, query));
    const rows = key === null ? [] : await source.pair(run, queries, keys, query, key);
    if (turn !== this.turn) return;
    Object.assign(this, { rows, to: key, found: state.key === null });
    this.all = rows.flatMap(({ call: number, coarse, fine }) => Array.from(coarse, (code, at) => (
      { call: number, head: at, code, fine: fine?.[at], p: weight(code, fine?.[at]) })));
    this.order = this.all.filter(({ p, code }) => p > 0 || [NAN, OUT, LEAK].includes(code)) // invalid weights come first
      .sort((a, b) => Number.isNaN(b.p) - Number.isNaN(a.p) || b.p - a.p || a.call - b.call || a.head - b.head);
    this.lines.scroll(0);
    this.show();
  },

  words: ({ code, fine }) => words(code, fine),
  called({ call, head }) { return `${callTitle(call)}, head ${head}`; },
  isChosen({ call, head }) { return call === state.call && head === state.head; },
  choose({ call, head }) { return choose({ call, head, key: this.to }); }, // the pair stays the same

  show() {
    const [from, to] = [queryAxis(), keyAxis()];
    const one = (of, i) => [quoted(of, i, 28), ` (${i.toLocaleString("en")})`];
    const none = this.to === null;
    $("pair-title").replaceChildren(...(none ? ["One pair in every head"] : ["From ", ...one(from, state.query), " to ", ...one(to, this.to), ", in every head"]));
    this.both.hidden = none;
    if (none) {
      this.note.textContent = `This row has no weight: choose a key with ${touching() ? "“choose key” above the text, or tap" : "Alt-click in the text, or click"} a cell of the matrix.`;
      return;
    }
    const valid = this.all.filter(({ p }) => p >= 0);
    const mean = valid.reduce((sum, { p }) => sum + p, 0) / Math.max(1, valid.length);
    const much = valid.filter(({ p }) => p >= 0.1).length;
    const first = this.order[0];
    const ordinary = to.special[this.to] || !to.special.includes(true) ? "" : " that is not a special token";
    const parts = [this.found ? `No key is chosen; this is the strongest key of the row${ordinary}. To choose another one, ${touching() ? "use “choose key” above the text, or tap" : "Alt-click it in the text, or click"} a cell of the matrix.` : "",
      first ? `Largest weight: ${this.words(first)} in ${this.called(first)}.` : "No head has weight on this pair.",
      `${much} of ${counted(this.all.length, "head")} ${much === 1 ? "has" : "have"} 10 % or more; the mean is ${percent(mean, 2)}.`,
      SCALES[state.scale].perRow ? "Colors are on the logarithmic scale here, since the cells are of different rows." : "",
      state.hideSpecial ? "These are the model’s own numbers, including special tokens." : ""];
    this.note.textContent = parts.filter(Boolean).join(" ");
    this.lines.reset(this.order.length);
    this.canvas.setAttribute("aria-label", `${$("pair-title").textContent}: ${counted(this.rows.length, "call")} by heads. ${this.note.textContent} Arrow keys choose a head.`);
    this.say(null);
    this.paint();
  },

  entry(place) {
    const each = this.order[place];
    const bar = element("i");
    ground(bar, this.line(each), 0);
    bar.style.width = `${clamp(100 * (each.p || 1), 0.5, 100)}%`;
    const chosen = this.isChosen(each);
    const made = element("div", null, { className: "entry head", id: `pair-${place}`, role: "option", ariaSelected: String(chosen) }, element("bdi", callTitle(each.call)), element("span", `head ${each.head}`, { className: "soft" }),
      element("span", null, { className: "bar-box" }, bar), element("data", each.code === LEAK ? `${percent(each.p, 2)} forbidden` : this.words(each), { value: each.p, className: "number" }));
    Object.assign(made.dataset, { place, call: each.call, head: each.head });
    if (chosen) this.list.setAttribute("aria-activedescendant", made.id);
    return made;
  },

  line({ p, code }) { return { p: [p], code: [code], hidden: () => false, attended: 1, scale: this.scale() }; },
  scale() { return SCALES[state.scale].perRow ? USUAL : state.scale; },

  /** Sizes in pixels: a column for layer names, a line for head numbers, then the cells. */
  measure() {
    const heads = Math.max(...this.rows.map((row) => row.coarse.length));
    const context = this.canvas.getContext("2d");
    context.font = `11px ${fontFamily()}`;
    const names = this.rows.map((row) => clip(callTitle(row.call), 28));
    const left = Math.min(170, Math.max(...names.map((name) => context.measureText(name).width)) + 8);
    const both = this.both.clientWidth;
    const width = clamp(Math.floor(((both > 760 ? both - 400 : both) - left - 4) / heads), 6, 46);
    return { heads, names, left, top: 16, width, height: clamp(width, 10, 24) };
  },

  paint() {
    if (!this.rows.length || !this.both.clientWidth) return;
    this.cell = this.measure();
    const { heads, names, left, top, width, height } = this.cell;
    this.heading.textContent = `all heads: layers from top to bottom, heads from left to right${width < NUMBERED ? "" : ", in %"}`;
    const density = devicePixelRatio;
    const size = [left + heads * width + 2, top + this.rows.length * height + 2];
    [this.canvas.width, this.canvas.height] = size.map((each) => each * density);
    [this.canvas.style.width, this.canvas.style.height] = size.map((each) => `${each}px`);
    const context = this.canvas.getContext("2d");
    context.scale(density, density);
    context.font = `11px ${fontFamily()}`;
    context.textBaseline = "middle";
    const soft = css("--soft"), solid = { [ZERO]: css("--zero"), [NAN]: css("--nan"), [OUT]: css("--out"), [LEAK]: css("--leak") };
    const scale = this.scale(), gap = width > 9 ? 1 : 0;
    context.fillStyle = soft;
    context.textAlign = "center";
    const every = Math.ceil(20 / width);
    for (let head = 0; head < heads; head += every) context.fillText(head, left + (head + 0.5) * width, top / 2);
    this.rows.forEach((row, number) => {
      const y = top + number * height;
      context.fillStyle = row.call === state.call ? css("--ink") : soft;
      context.textAlign = "right";
      if (height >= 12 || number % 2 === 0) context.fillText(names[number], left - 7, y + height / 2, left - 8);
      context.textAlign = "center";
      row.coarse.forEach((code, head) => {
        const x = left + head * width, p = weight(code, row.fine?.[head]);
        const at = step(code === TINY ? 0 : p, scale);
        context.fillStyle = code === MASKED ? hatching(density) : solid[code] ?? color(at, scale);
        context.fillRect(x, y, width - gap, height - gap);
        if (code === MASKED || width < NUMBERED || !(p >= 0.0005)) return undefined;
        context.fillStyle = solid[code] ? css(INKS[code]) : ink(at, scale);
        context.fillText((100 * p).toPrecision(p >= 0.995 ? 3 : 2), x + width / 2, y + height / 2 + 0.5);
        return undefined;
      });
    });
    const number = this.rows.findIndex((row) => row.call === state.call);
    if (number < 0 || isMean(state.head)) return;
    context.strokeStyle = css("--accent");
    context.lineWidth = 2;
    context.strokeRect(left + state.head * width, top + number * height, width - gap, height - gap);
  },

  under(event) {
    if (!this.cell) return null;
    const box = this.canvas.getBoundingClientRect();
    const row = this.rows[Math.floor((event.clientY - box.top - this.cell.top) / this.cell.height)];
    const head = Math.floor((event.clientX - box.left - this.cell.left) / this.cell.width);
    return row && head >= 0 && head < row.coarse.length ? { call: row.call, head } : null;
  },

  key(event) {
    const by = stepOf(event, ARROWS);
    if (!by || !this.rows.length) return;
    const row = this.rows[clamp(this.rows.findIndex(({ call }) => call === state.call) + by[0], 0, this.rows.length - 1)];
    this.choose({ call: row.call, head: clamp((isMean(state.head) ? 0 : state.head) + by[1], 0, row.coarse.length - 1) });
  },

  say(at) {
    const each = this.all?.find(({ call, head }) => (at ? call === at.call && head === at.head : call === state.call && head === state.head));
    this.readout.textContent = each ? `${capital(this.called(each))}: ${this.words(each)}` : "";
  },
};
screens.push(pair);
