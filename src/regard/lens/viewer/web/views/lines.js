// Lines between tokens: the rows on the left, the keys on the right, and a line for each weight of the chosen head.

const lineView = {
  name: "lines", turn: 0, shown: null,

  build() {
    this.note = element("p", null, { className: "note", id: "lines-note" });
    this.svg = draw("svg", { id: "lines-svg", preserveAspectRatio: "none", role: "img" });
    this.lists = { rows: this.list("rows"), keys: this.list("keys") };
    this.titles = { rows: element("h3", "rows", { className: "of-rows" }), keys: element("h3", "keys") };
    this.said = element("p", null, { className: "readout", id: "lines-said", ariaLive: "polite" });
    const box = folds.make("lines", "Lines between tokens", this.note, this.said,
      element("div", null, { id: "lines-body" }, this.titles.rows, element("span"), this.titles.keys, this.lists.rows, this.svg, this.lists.keys));
    $("lines").append(box);
    this.lazily = new Lazily(box, () => this.fetch()); // on a served page each row is a request to the server
  },

  list(side) {
    const made = element("div", null, { id: `lines-${side}`, role: "list", ariaLabel: side });
    const token = (event) => event.target.closest("[data-token]")?.dataset.token;
    made.addEventListener("pointerover", (event) => { if (event.pointerType !== "touch" && token(event)) this.emphasize({ [side]: Number(token(event)) }); });
    made.addEventListener("pointerleave", () => this.emphasize());
    made.addEventListener("click", (event) => { if (token(event)) this.pick(side, Number(token(event)), event); });
    made.addEventListener("mousedown", (event) => { if (event.shiftKey) event.preventDefault(); }); // prevents text selection
    return made;
  },

  draw(changed) {
    const any = (...names) => names.some((name) => changed.has(name));
    $("lines").hidden = Boolean(keyAxis().grid);
    if (any("run", "call", "step")) this.svg.style.minHeight = `${LINE.high * Math.min(rowsNow(), SHOWN.rows)}px`; // so that nothing below moves later
    const outside = this.shown && ((any("query") && (this.shown.keys.length < callNow().K || !this.shown.rows.includes(state.query))) || (any("key") && state.key !== null && !this.shown.keys.includes(state.key)));
    if (outside || any("run", "call", "head", "step")) return this.lazily.again();
    if (any("query", "key", "pins") && this.shown && !this.lazily.stale) this.show();
    return undefined;
  },

  async fetch() {
    const turn = ++this.turn;
    const { run, call, head, query, key } = state;
    const rows = rowsAround(query, rowsNow(), this.shown?.rows);
    const found = await weightsBetween(run, { call, head }, rows, key, query);
    if (turn !== this.turn) return;
    this.shown = found;
    strokes(this.svg, found);
    this.tokens("rows", queryAxis());
    this.tokens("keys", keyAxis());
    this.show();
  },

  tokens(side, of) {
    const numbered = callNow().K > SHOWN.keys || this.shown.rows.length < rowsNow();
    if (side === "rows") this.lists.rows.style.paddingTop = `${LINE.high * this.shown.shift}px`;
    this.lists[side].classList.toggle("numbered", numbered);
    this.lists[side].replaceChildren(...this.shown[side].map((i, at, all) => {
      const made = element("div", null, { id: `lines-${side}-${i}`, className: "line-token", role: "listitem" }, element("i", numbered ? i : ""), element("bdi", tokenText(wordOf(of, i, 40))), element("data"));
      made.dataset.token = i;
      made.classList.toggle("special", of.special[i]);
      made.classList.toggle("apart", at > 0 && i > all[at - 1] + 1); // tokens between them are left out
      return made;
    }));
  },

  /** The words, and the marks of what is chosen. */
  show() {
    const { rows, keys, part, exact } = this.shown;
    const { Q, K } = callNow();
    $("lines-title").textContent = `Lines between tokens: ${headTitle()}`;
    this.titles.rows.textContent = `rows: ${callNow().queries}`;
    this.titles.keys.textContent = `keys: ${callNow().keys}`;
    const counts = [
      rows.length < rowsNow() ? `Rows ${rows[0].toLocaleString("en")} to ${rows.at(-1).toLocaleString("en")} of ${Q.toLocaleString("en")}, around the chosen row.` : "",
      keys.length < K ? `${keys.length} of ${K.toLocaleString("en")} keys: ${percent(part, 2)} of the weight of these rows is on them.` : "",
      `The larger the weight, the wider and the more opaque the line; weights below ${percent(LINE.least, 1)} have no line.`,
      exact === "exact" ? "" : `${capital(exact)}.`];
    this.note.textContent = counts.filter(Boolean).join(" ");
    for (const node of this.lists.rows.children) {
      node.classList.toggle("row", Number(node.dataset.token) === state.query);
      node.classList.toggle("pin", state.pins.includes(Number(node.dataset.token)));
    }
    for (const node of this.lists.keys.children) node.classList.toggle("key", Number(node.dataset.token) === state.key);
    this.emphasize();
  },

  /** Shows only the lines of the row or key under the pointer; otherwise all, those of the chosen rows above the others. */
  emphasize({ rows: row, keys: key } = {}) {
    if (!this.shown) return;
    const chosen = [state.query, ...state.pins];
    for (const group of [...this.svg.children]) {
      const i = Number(group.dataset.row);
      group.toggleAttribute("data-hidden", row !== undefined && i !== row);
      group.classList.toggle("chosen", chosen.includes(i));
      if (chosen.includes(i)) this.svg.append(group);
      for (const line of group.children) line.toggleAttribute("data-hidden", key !== undefined && Number(line.dataset.key) !== key);
    }
    this.numbers(row ?? state.query, key);
  },

  /** The weights of one row next to the keys; of a key under the pointer, its weights next to the rows. */
  numbers(row, key) {
    const { of, rows, keys } = this.shown;
    const said = (line, j) => (line.code[j] < FIRST ? words(line.code[j], line.fine?.[j]) : percent(line.p[j]));
    const put = (side, text) => { for (const node of this.lists[side].children) node.lastChild.textContent = text(Number(node.dataset.token)).replace("below ", "< "); };
    put("keys", (j) => (key === undefined && of.has(row) ? said(of.get(row), j) : ""));
    put("rows", (i) => (key === undefined ? "" : said(of.get(i), key)));
    if (key !== undefined) this.said.replaceChildren(...named(keyAxis(), key), " receives ", ...this.strongest(rows, (i) => of.get(i).p[key], (i) => [`${said(of.get(i), key)} of `, ...named(queryAxis(), i)]));
    else if (of.has(row)) this.said.replaceChildren(...named(queryAxis(), row), ": ", ...this.strongest(keys, (j) => of.get(row).p[j], (j) => [`${said(of.get(row), j)} on `, ...named(keyAxis(), j)]));
    this.svg.setAttribute("aria-label", `Lines from rows to keys. ${this.said.textContent}`);
  },

  /** The three largest of some weights as text. */
  strongest(places, weightOf, text) {
    const strong = places.filter((at) => weightOf(at) >= LINE.least).sort((a, b) => weightOf(b) - weightOf(a)).slice(0, 3);
    return strong.length ? strong.flatMap((at, number) => [number ? ", " : "", ...text(at)]) : ["no line"];
  },

  /** A click chooses the row, with Shift or “add rows” one row more or less; or the key, or none any more. */
  pick(side, i, { shiftKey }) {
    if (side === "keys") return choose({ key: i === state.key ? null : i });
    if (!shiftKey && reader.adding.ariaPressed !== "true") return choose({ query: i });
    return i === state.query ? undefined : choose({ pins: toggled(state.pins, i) });
  },
};
screens.push(lineView);
