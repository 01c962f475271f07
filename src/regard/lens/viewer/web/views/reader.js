// The reader: the text, each token colored by the weight of the pinned row on it, or by its weight on the pinned key.

const reader = {
  name: "reader", line: null, stale: true, turn: 0, seen: {},

  build() {
    const title = element("h2", null, { id: "reader-title" });
    this.ways = new Choice("reader-direction", "Weights that color the text", { to: "attends to", from: "attended by" }, (direction) => choose({ direction }));
    const search = element("div", null, { className: "bar find", role: "search", hidden: true });
    find.build(search);
    const box = (id) => {
      const made = element("div", null, { id, className: "text", tabIndex: 0, role: "listbox", ariaMultiSelectable: "true" });
      made.addEventListener("keydown", (event) => this.key(event, id === "words" ? this.main : this.other));
      made.addEventListener("pointerover", (event) => this.hover(event.target.closest("[data-token]"), id === "words" ? this.main : this.other));
      made.addEventListener("pointerleave", () => this.say());
      return made;
    };
    this.otherTitle = element("h3", null, { id: "other-title" });
    this.mainTitle = element("h3", null, { id: "words-title" });
    const [words, other] = [box("words"), box("other-words")];
    this.imageBox = element("div", null, { id: "patches", hidden: true });
    this.readout = element("p", null, { className: "note", id: "reader-readout" });
    this.pins = element("p", null, { className: "note", id: "reader-pins", hidden: true });
    this.pinsText = element("span");
    const switched = (way, other) => {
      way.ariaPressed = String(way.ariaPressed !== "true");
      other.ariaPressed = "false";
    };
    this.adding = button("add rows", () => switched(this.adding, this.keying), { id: "reader-add", title: "Clicks add rows, as with Shift", ariaPressed: "false", hidden: !touching() });
    this.keying = button("choose key", () => switched(this.keying, this.adding), { id: "reader-key", title: "Clicks choose the key, as with Alt", ariaPressed: "false" });
    this.pins.append(this.pinsText, " ", button("only this row", () => choose({ pins: [] })));
    this.live = element("p", null, { className: "unseen", id: "reader-live", ariaLive: "polite" });
    const side = element("div", null, { id: "strongest" });
    $("reader").append(element("div", null, { className: "bar" }, title, element("div", null, { className: "tools" }, this.adding, this.keying, this.ways.node)), search, this.pins, this.otherTitle, other, this.mainTitle, words, this.imageBox,
      this.readout, this.live, side);
    this.main = new Flow(words, (node, i) => this.paint(node, i), (i, event) => this.pick(this.main, i, event));
    this.other = new Flow(other, (node, i) => this.mark(node, i, this.other), (i, event) => this.pick(this.other, i, event));
    patches.build(this.imageBox, (i, event) => this.pick(this.main, i, event));
    strongest.build(side);
    this.say();
  },

  async draw(changed) {
    if (!["run", "call", "head", "query", "key", "pins", "direction", "scale", "step", "theme"].some((name) => changed.has(name))) return;
    const turn = ++this.turn;
    const other = !this.line || ["run", "call", "head", "query", "pins", "direction", "step"].some((name) => changed.has(name));
    this.stale ||= other || state.direction === "from"; // until the numbers are read
    const line = this.stale ? await reading() : this.line;
    if (turn !== this.turn) return; // the state has changed since
    this.stale = false;
    this.line = line;
    this.head();
    const cross = callNow().queries !== callNow().keys;
    $("other-words").hidden = this.otherTitle.hidden = this.mainTitle.hidden = !cross;
    const grid = Boolean(line.of.grid);
    this.keying.hidden = cross || !touching(); // the keys have a text of their own
    $("words").hidden = grid;
    this.imageBox.hidden = !line.of.patches;
    find.on(line.of);
    this.main.show(line.of, line.to ? "The keys, colored by their weights" : "The rows, colored by their weights");
    if (cross) {
      this.other.show(line.to ? queryAxis() : keyAxis(), line.to ? "The rows: choose one" : "The keys: choose one");
      this.otherTitle.textContent = line.to ? `rows: ${callNow().queries}` : `keys: ${callNow().keys}`;
      this.mainTitle.textContent = line.to ? `keys: ${callNow().keys}` : `rows: ${callNow().queries}`;
    }
    strongest.show(line);
    await Promise.all([strongest.pair(), line.of.patches && patches.show(line)]);
    if (turn !== this.turn) return;
    this.reveal(cross);
    this.say();
    this.live.textContent = state.key !== null && line.to ? `Key ${quote(keyAxis(), state.key, 100)}, ${state.key}: ${describe(line, state.key)}` : "";
  },

  head() {
    const { to, places } = this.line;
    const name = quoted(to ? queryAxis() : keyAxis(), places[0], 22);
    $("reader-title").replaceChildren(...(to ? [name, ` (${places[0].toLocaleString("en")}) attends to`] : ["attends to ", name, ` (${places[0].toLocaleString("en")})`]));
    this.ways.show(state.direction);
    this.pins.hidden = places.length < 2;
    this.pinsText.textContent = places.length < 2 ? "" : to ? `Mean of ${places.length} rows: ${this.list(places, queryAxis())}.` : `Sum over ${places.length} keys: ${this.list(places, keyAxis())}.`;
  },

  list(places, of) { return places.slice(0, 6).map((i) => `“\u2068${wordOf(of, i, 16)}\u2069” (${i})`).join(", ") + (places.length > 6 ? ", …" : ""); },

  /** The token from which keyboard navigation starts. */
  here(flow = this.main) {
    const rows = flow.of === queryAxis() && (flow === this.other || callNow().queries === callNow().keys || state.direction === "from");
    return rows ? state.query : state.key ?? Math.min(state.query, callNow().K - 1);
  },

  paint(node, i) {
    ground(node, this.line, i);
    node.classList.toggle("found", find.marked.has(i));
    node.classList.toggle("later", i >= rowsNow() && this.line.of === axis(written()) && state.step !== null);
    this.mark(node, i, this.main);
  },

  mark(node, i, flow) {
    const rows = flow.of === queryAxis() && (callNow().queries === callNow().keys || (flow === this.other) === (state.direction === "to"));
    const keys = flow.of === keyAxis() && (callNow().queries === callNow().keys || (flow === this.other) === (state.direction === "from"));
    node.classList.toggle("row", rows && i === state.query);
    node.classList.toggle("pin", rows && state.pins.includes(i));
    node.classList.toggle("key", keys && i === state.key);
    node.setAttribute("aria-selected", node.matches(".row, .pin, .key"));
    if (i === this.here(flow)) flow.box.setAttribute("aria-activedescendant", node.id);
    const parts = [wordOf(flow.of, i, 200), i, flow === this.main ? describe(this.line, i) : "", rows && i === state.query ? "the row" : "", keys && i === state.key ? "the key" : ""];
    node.setAttribute("aria-label", parts.filter((part) => part !== "").join(", "));
  },

  /** Click: choose the row; with Shift or “add rows”: add a row; with Alt, Ctrl, ⌘ or “choose key”: choose the key. In the text of the keys: choose the key. */
  pick(flow, i, event = {}) {
    const same = callNow().queries === callNow().keys;
    const rows = same || (flow === this.other) === (state.direction === "to");
    const keyed = event.altKey || event.ctrlKey || event.metaKey || (same && event.type === "click" && this.keying.ariaPressed === "true");
    if (!rows || keyed) return rows && !same ? undefined : choose({ key: i });
    const adds = event.shiftKey || (event.type === "click" && this.adding.ariaPressed === "true");
    if (!adds) return choose({ query: i });
    if (i === state.query) return state.pins.length ? choose({ query: state.pins[0], pins: state.pins.slice(1) }) : undefined;
    return choose({ pins: state.pins.includes(i) ? state.pins.filter((pin) => pin !== i) : [...state.pins, i] });
  },

  /** Arrow keys move the row, with Shift they keep the old row pinned, with Alt they move the key; up and down move by lines. */
  key(event, flow) {
    const lines = { ArrowUp: -1, ArrowDown: 1, PageUp: -10, PageDown: 10 }[event.key];
    const ends = { Home: 0, End: flow.of.tokens.length - 1 }[event.key];
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key]; // on the screen, where right-to-left text runs the other way
    if ((lines ?? ends ?? by) === undefined || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const from = event.altKey ? (state.key ?? state.query) : this.here(flow);
    const to = clamp(lines ? flow.vertical(from, lines) : ends ?? flow.beside(from, by), 0, flow.of.tokens.length - 1);
    if (!event.shiftKey || event.altKey) this.pick(flow, to, { altKey: event.altKey });
    else if (to !== state.query) choose({ query: to, pins: state.pins.includes(to) ? state.pins.filter((pin) => pin !== to) : [...state.pins, state.query] });
  },

  /** Scrolls to rows and keys that were chosen since the last draw. */
  reveal(cross) {
    const before = this.seen;
    this.seen = { query: state.query, key: state.key, of: this.line.of };
    const fresh = before.of !== this.line.of;
    const rowsFlow = cross && state.direction === "to" ? this.other : this.main;
    const keysFlow = cross && state.direction === "from" ? this.other : this.main;
    if (fresh || before.query !== state.query) rowsFlow.reveal(state.query);
    if (state.key !== null && (fresh || before.key !== state.key)) keysFlow.reveal(state.key);
  },

  hover(node, flow) {
    if (!node) return;
    const i = Number(node.dataset.token);
    const expected = expectedOf(flow.of, i);
    const about = remark(flow.of, i) || (expected ? `expected here: “${clip(expected[0], 40)}” (${percent(expected[1], 2)})` : "");
    this.readout.replaceChildren(quoted(flow.of, i, 58), ` (${i.toLocaleString("en")})${flow === this.main ? `: ${describe(this.line, i)}` : ""}${about && `; ${about}`}`);
  },
  say() {
    const one = callNow().queries === callNow().keys;
    const expecting = this.main.expecting ? " Below each token is what the model expected there." : "";
    this.readout.textContent = (touching() ? this.taps(one) : one ? `Click a ${placeWord(queryAxis())} to see what it attends to.` : "Click a row to see what it attends to, or a key to choose it.") + expecting;
  },

  /** How a touch screen chooses rows and keys. */
  taps: (one) => (one ? `Tap a ${placeWord(queryAxis())} to see what it attends to. With “choose key”, a tap chooses the key; with “add rows”, it adds a row.` : "Tap a row to see what it attends to, or a key to choose it. With “add rows”, a tap adds a row."),
};

screens.push(reader);
keys.push(
  { keys: ["/"], label: "/", what: "search the text, or go to a position", run: () => find.open() },
  { keys: [], label: "Shift ← →", what: "in the text: keep this row pinned, and move on" }, // handled by the text itself
  { keys: [], label: "Alt ← →", what: "in the text: move the key" },
);
