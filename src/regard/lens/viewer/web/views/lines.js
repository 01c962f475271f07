// Lines between tokens: the rows on the left, the keys on the right, and a line for each weight of the chosen head, and of the second one if
// there is one.

choosable("lines", "all", oneOf({ all: 1, row: 1 })); // whether lines of all rows are drawn, or only those of the chosen row

const lineView = {
  name: "lines", turn: 0, shown: null, middle: null,
  at: { rows: null, keys: null }, // the token under the pointer, or the one that the keyboard has reached

  build() {
    this.ways = new Choice("lines-of", "Rows whose lines are drawn", { all: "all rows", row: "chosen row" }, (lines) => choose({ lines }));
    const turn = (id, text, by) => button(text, () => choose({ query: clamp(state.query + by * SHOWN.rows, 0, rowsNow() - 1) }), { id });
    this.turns = [turn("lines-before", "earlier rows", -1), turn("lines-after", "later rows", 1)];
    this.note = element("p", null, { className: "note", id: "lines-note" });
    this.svg = draw("svg", { id: "lines-svg", preserveAspectRatio: "none", role: "img", "aria-label": "Lines from rows to keys" });
    this.lists = { rows: this.list("rows"), keys: this.list("keys") };
    this.titles = { rows: element("h3", "rows", { className: "of-rows" }), keys: element("h3", "keys", { className: "of-keys" }) };
    this.said = element("p", null, { className: "readout", id: "lines-said", ariaLive: "polite" });
    const box = folds.make("lines", "Lines between tokens", element("div", null, { className: "tools" }, ...this.turns, this.ways.node),
      this.note, this.said, element("div", null, { id: "lines-body" }, this.titles.rows, element("span"), this.titles.keys, this.lists.rows, this.svg, this.lists.keys));
    $("lines").append(box);
    this.lazily = new Lazily(box, () => this.fetch()); // on a served page each row is a request to the server
  },

  list(side) {
    const hint = "point at one, or move with the arrow keys, to see only its lines; Enter chooses it";
    const made = element("div", null, { id: `lines-${side}`, tabIndex: 0, role: "listbox", ariaLabel: `${side === "rows" ? "Rows (queries)" : "Keys"}: ${hint}`, ariaMultiSelectable: String(side === "rows") });
    const token = (event) => Number(event.target.closest("[data-token]")?.dataset.token ?? NaN);
    const point = (i) => { if (this.at[side] !== i) { this.at[side] = i; this.emphasize(); } };
    made.addEventListener("pointerover", (event) => { if (event.pointerType !== "touch" && token(event) >= 0) point(token(event)); });
    made.addEventListener("pointerleave", () => point(null));
    made.addEventListener("click", (event) => { if (token(event) >= 0) this.pick(side, token(event), event); });
    made.addEventListener("mousedown", (event) => { if (event.shiftKey) event.preventDefault(); }); // prevents text selection
    made.addEventListener("focus", () => { if (made.matches(":focus-visible")) point(this.start(side)); });
    made.addEventListener("blur", () => point(null));
    made.addEventListener("keydown", (event) => this.key(event, side));
    return made;
  },

  draw(changed) {
    const any = (...names) => names.some((name) => changed.has(name));
    $("lines").hidden = Boolean(keyAxis().grid);
    if (any("query", "call", "run")) this.middle = null;
    if (any("run", "call", "step")) this.svg.style.minHeight = `${LINE.high * Math.min(rowsNow(), SHOWN.rows)}px`; // so that nothing below moves later
    const outside = this.shown && ((any("query") && (this.shown.keys.length < callNow().K || !this.shown.rows.includes(state.query))) || (any("key") && state.key !== null && !this.shown.keys.includes(state.key)));
    if (outside || any("run", "call", "head", "second", "hideSpecial", "step")) return this.lazily.again();
    if (any("query", "key", "pins", "lines") && this.shown && !this.lazily.stale) this.show();
    return undefined;
  },

  async fetch() {
    const turn = ++this.turn;
    const { run, call, head, query, key } = state;
    const rows = rowsAround(this.middle ?? state.query, rowsNow(), this.shown?.rows);
    const found = await weightsBetween(run, [{ call, head }, secondNow() ?? []].flat(), rows, key, query);
    if (turn !== this.turn) return;
    this.shown = found;
    strokes(this.svg, found);
    for (const side of ["rows", "keys"]) this.tokens(side);
    this.show();
  },

  axis: (side) => (side === "rows" ? queryAxis() : keyAxis()),

  tokens(side) {
    const of = this.axis(side);
    const numbered = this.axis("keys").tokens.length > SHOWN.keys || this.shown.rows.length < rowsNow();
    if (side === "rows") this.lists.rows.style.paddingTop = `${LINE.high * this.shown.shift}px`;
    this.lists[side].classList.toggle("numbered", numbered);
    let last = -1;
    this.lists[side].replaceChildren(...this.shown[side].map((i) => {
      const made = element("div", null, { id: `lines-${side}-${i}`, className: "line-token", role: "option" }, element("i", numbered ? i : ""), element("bdi", tokenText(wordOf(of, i, 40))), element("data"));
      made.dataset.token = i;
      made.classList.toggle("special", of.special[i]);
      made.classList.toggle("apart", last >= 0 && i > last + 1); // tokens between them are left out
      last = i;
      return made;
    }));
  },

  /** The words, and the marks of what is chosen. */
  show() {
    const { rows, keys, heads, part, exact } = this.shown;
    const { Q, K } = callNow();
    this.ways.show(state.lines);
    const second = heads.length > 1 && secondNow();
    $("lines-title").replaceChildren("Lines between tokens: ", element("span", headTitle(), { className: second ? "first-head" : "" }), ...(second ? [" and ", element("span", headTitle(second.call, second.head), { className: "second-head" })] : []));
    const windowed = rows.length < rowsNow();
    for (const button of this.turns) button.hidden = !windowed;
    [this.turns[0].disabled, this.turns[1].disabled] = [rows[0] === 0, rows.at(-1) === rowsNow() - 1];
    this.titles.rows.textContent = `rows: ${callNow().queries}`;
    this.titles.keys.textContent = `keys: ${callNow().keys}`;
    const counts = [
      windowed ? `Rows ${rows[0].toLocaleString("en")} to ${rows.at(-1).toLocaleString("en")} of ${Q.toLocaleString("en")}, around the chosen row.` : "",
      keys.length < K ? `${keys.length} of ${K.toLocaleString("en")} keys: ${percent(part, 2)} of the weight of these rows is on them.` : "",
      `The larger the weight, the wider and the more opaque the line; weights below ${percent(LINE.least, 1)} have no line.`,
      exact === "exact" ? "" : `${capital(exact)}.`,
      hiding(state.run) ? "Special tokens are left out and the other weights renormalized: not the model’s own numbers." : ""];
    this.note.textContent = counts.filter(Boolean).join(" ");
    for (const node of this.lists.rows.children) {
      const i = Number(node.dataset.token);
      node.classList.toggle("row", i === state.query);
      node.classList.toggle("pin", state.pins.includes(i));
      node.setAttribute("aria-selected", i === state.query || state.pins.includes(i));
    }
    for (const node of this.lists.keys.children) {
      node.classList.toggle("key", Number(node.dataset.token) === state.key);
      node.setAttribute("aria-selected", Number(node.dataset.token) === state.key);
    }
    this.emphasize();
  },

  /** Shows only the lines of the token under the pointer or the focus, otherwise those of the chosen rows or of all. */
  emphasize() {
    if (!this.shown) return;
    const { rows: row, keys: key } = this.at;
    const chosen = [state.query, ...state.pins];
    const alone = row !== null ? [row] : key !== null ? null : state.lines === "row" ? chosen : null;
    for (const group of [...this.svg.children]) {
      const i = Number(group.dataset.row);
      group.toggleAttribute("data-hidden", alone !== null && !alone.includes(i));
      group.classList.toggle("chosen", chosen.includes(i));
      if (chosen.includes(i)) this.svg.append(group); // above the others
      for (const line of group.children) line.toggleAttribute("data-hidden", key !== null && row === null && Number(line.dataset.key) !== key);
    }
    for (const [side, i] of [["rows", row], ["keys", key]]) {
      const node = i === null ? null : $(`lines-${side}-${i}`);
      for (const each of this.lists[side].children) each.classList.toggle("at", each === node);
      node ? this.lists[side].setAttribute("aria-activedescendant", node.id) : this.lists[side].removeAttribute("aria-activedescendant");
    }
    this.numbers(row ?? state.query, row === null ? key : null);
  },

  /** The weights of one row next to the keys; of a key under the pointer, its weights next to the rows. */
  numbers(row, key) {
    const { heads: [of, other], rows, keys } = this.shown;
    const words = (i, j) => this.words(of.get(i), j);
    const from = key === null && of.has(row);
    keys.forEach((j, at) => { this.lists.keys.children[at].lastChild.textContent = from ? words(row, j).replace("below ", "< ") : ""; });
    rows.forEach((i, at) => { this.lists.rows.children[at].lastChild.textContent = key === null ? "" : words(i, key).replace("below ", "< "); });
    if (key !== null) this.said.replaceChildren(...named(keyAxis(), key), ...this.strongest(rows, (i) => of.get(i).p[key], (i) => [`${words(i, key)} of `, ...named(queryAxis(), i)], " receives "));
    else if (from) {
      this.said.replaceChildren(...named(queryAxis(), row), ...[of, other].flatMap((each, number) => (each ? this.strongest(keys, (j) => each.get(row).p[j], (j) => [`${this.words(each.get(row), j)} on `, ...named(keyAxis(), j)], number ? "; second head: " : ": ") : [])));
    }
    this.svg.setAttribute("aria-label", `Lines from rows to keys. ${this.said.textContent}`);
  },

  /** The three largest of some weights as text. */
  strongest(places, weightOf, text, start) {
    const strong = places.filter((at) => weightOf(at) >= LINE.least).sort((a, b) => weightOf(b) - weightOf(a)).slice(0, 3);
    return [start, ...(strong.length ? strong.flatMap((at, number) => [number ? ", " : "", ...text(at)]) : ["no line"])];
  },

  /** A weight as text, with the factor of the renormalization if special tokens are left out. */
  words({ p, code, fine }, j) {
    if (hiding(state.run) && keyAxis().special[j]) return "left out";
    if (code[j] < FIRST) return code[j] === LEAK ? words(LEAK, fine?.[j]) : words(code[j]);
    return percent(p[j]);
  },

  /** Click or Enter: chooses the row and shows only its lines, or all again; with Shift or “add rows” it adds a row. A key is chosen, or not any more. */
  pick(side, i, { shiftKey, type }) {
    if (side === "keys") return choose({ key: i === state.key ? null : i });
    if (shiftKey || (type === "click" && reader.adding.ariaPressed === "true")) return i === state.query ? undefined : choose({ pins: toggled(state.pins, i) });
    if (i === state.query) return choose({ lines: state.lines === "row" ? "all" : "row" });
    return choose({ query: i, lines: "row" });
  },

  /** The token at which the keyboard begins. */
  start(side) {
    const shown = this.shown?.[side] ?? [];
    const chosen = side === "rows" ? state.query : state.key;
    return shown.includes(chosen) ? chosen : shown[0] ?? null;
  },

  key(event, side) {
    if (!this.shown || event.ctrlKey || event.metaKey || event.altKey) return;
    const now = this.at[side] ?? this.start(side);
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.pick(side, now, event);
      return;
    }
    const places = side === "rows" ? Array.from({ length: rowsNow() }, (_, i) => i) : this.shown.keys;
    const by = stepOf(event, { ArrowUp: -1, ArrowDown: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity });
    if (by === undefined) return;
    const next = places[clamp(places.indexOf(now) + by, 0, places.length - 1)];
    this.at[side] = next;
    if (this.shown[side].includes(next)) this.emphasize();
    else {
      this.middle = next; // the window follows
      this.fetch();
    }
  },
};
screens.push(lineView);
