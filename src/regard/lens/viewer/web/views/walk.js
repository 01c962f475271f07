// Step by step: the numbers of one row of one head, from the input of the layer to the output of the head.

const FEW = 12; // keys that are shown initially

choosable("followed", null, position); // the key of which the steps show every element; null is the strongest one

const walk = {
  name: "walk", at: 0, doing: [], all: false, every: false, falling: true, turn: 0,
  element: {}, // the element of q, k, v and of the output that is followed
  matrices: null, // of the layer, or why not

  build() {
    this.buttons = {
      all: button("all steps", () => this.set({ all: !this.all }), { id: "walk-all" }),
      order: button("strongest first", () => this.set({ falling: !this.falling }), { id: "walk-order" }),
      every: button("all keys", () => this.set({ every: !this.every }), { id: "walk-every" }),
    };
    const [back, on] = [tool("◂", "previous step", () => this.go(-1), { id: "walk-back" }), tool("▸", "next step", () => this.go(1), { id: "walk-on" })];
    const copies = tool("copy numbers", "copy all numbers of this computation as JSON", () => this.copy(), { id: "walk-copy" });
    const bar = element("div", null, { className: "bar" }, element("span", null, { id: "walk-buttons", hidden: true }, back, on, ...Object.values(this.buttons), copies));
    this.note = element("p", null, { className: "note", id: "walk-note" });
    this.legend = rampBox({ className: "ramp signed", hidden: true });
    this.list = element("ol", null, { id: "walk-steps", hidden: true });
    this.list.addEventListener("keydown", (event) => this.key(event));
    this.heads = WALK.map((each, number) => {
      const head = button("", () => this.open(number), { className: "walk-head", id: `walk-head-${each.id}`, "aria-controls": `walk-${each.id}` });
      this.list.append(element("li", null, {}, head, element("div", null, { id: `walk-${each.id}`, className: "walk-numbers" })));
      return head;
    });
    const box = folds.make("walk", "Step by step", bar, element("div", null, { className: "walk-top" }, this.note, this.legend), this.list);
    $("walk").append(box);
    this.lazily = new Lazily(box, () => this.fetch()); // on a served page each row is a request to the server
  },

  draw(changed) {
    if (changed.has("theme") || changed.has("scale")) drawRamp(this.legend, "lift", [-100, -10, -1, 0, 1, 10, 100].map((value) => [decimal(value), signed(value)]));
    if (!["run", "call", "head", "query", "key", "followed"].some((name) => changed.has(name))) {
      if (this.numbers && (changed.has("theme") || changed.has("scale"))) this.show();
      return undefined;
    }
    this.title();
    return this.lazily.again();
  },

  title() { $("walk-title").replaceChildren("Step by step: ", quoted(queryAxis(), state.query, 28), ` (${state.query.toLocaleString("en")}), ${headTitle()}`); },

  async fetch() {
    const turn = ++this.turn;
    const { run, call, head, query } = state;
    const found = isMean(head) ? null : await source.walk(run, call, head, query);
    if (turn !== this.turn) return;
    const numbers = found && Object.fromEntries(Object.entries(found).map(([name, value]) => [name, numbered(value)]));
    const matrices = numbers && await source.matrices(run, call, head, query, this.keyOf(numbers));
    if (turn !== this.turn) return;
    [this.numbers, this.matrices] = [numbers, matrices];
    this.show();
  },

  /** The key that is followed in detail: the chosen one if it is shown, otherwise the strongest. */
  keyOf(w) {
    const chosen = [state.followed, state.key].find((j) => j !== null && w.keys.includes(j));
    return chosen ?? w.keys[w.p.reduce((best, p, at) => (p > (w.p[best] ?? -1) ? at : best), 0)];
  },

  /** Follows another key or element. */
  follow({ key = state.followed, element: of = this.element }) {
    this.element = of;
    if (key !== state.followed) return choose({ followed: key });
    this.show();
  },

  set(change) {
    Object.assign(this, change);
    if (this.numbers) this.show();
  },
  /** Opens the step so many further, of those that do anything. */
  go(by) { this.open(this.doing[clamp(this.doing.indexOf(this.at) + by, 0, this.doing.length - 1)]); },
  open(number) { this.set({ at: number }); },
  key(event) {
    if (!event.target.closest(".walk-head")) return;
    const by = stepOf(event, { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1, Home: -Infinity, End: Infinity });
    if (by === undefined) return;
    event.stopPropagation();
    this.go(by);
    this.heads[this.at].focus();
  },

  copy() {
    if (this.numbers) copy(JSON.stringify(this.numbers, (_, value) => (typeof value === "number" && !Number.isFinite(value) ? String(value) : value)), "The computation");
  },

  /** Why the numbers are not available, and what to do. */
  why() {
    if (isMean(state.head)) return "The steps are those of one head: choose a head to see them.";
    if (callNow().only_weights) return "Only the weights of this call are known, not its q and k: record the model, or pass q and k.";
    return "The page does not contain q and k of this call, since it would be too large: serve the run (regard look --serve), or open it at this layer (regard look --layer).";
  },
  lacking(each) {
    if (callNow().only_weights) return "Not known: this call was recorded as weights alone.";
    if (["q", "k"].includes(each.missing) || callNow().kept[each.missing]) return `The page does not contain ${each.missing}, since it would be too large: serve the run (regard look --serve) to see it.`;
    return `This run does not contain ${each.missing}: record it with values=True to see it.`;
  },

  show() {
    const w = this.numbers;
    this.list.hidden = this.legend.hidden = !w;
    $("walk-buttons").hidden = !w;
    if (!w) {
      this.note.textContent = this.why();
      return;
    }
    const falling = w.keys.map((_, at) => at).sort((a, b) => (w.p[b] ?? -1) - (w.p[a] ?? -1) || a - b);
    this.order = falling.slice(0, this.every ? falling.length : FEW);
    if (!this.falling) this.order.sort((a, b) => a - b); // the strongest keys in the order of their positions
    const which = w.keys.length < w.K ? `the strongest and the nearest ${w.keys.length} of ${w.K.toLocaleString("en")} keys` : counted(w.K, "key");
    this.note.textContent = `${capital(which)}${this.order.length < w.keys.length ? `, ${this.order.length} of them shown` : ""}.${w.exact ? ` Vectors are stored ${w.exact}.` : ""}`;
    const press = (name, on, hidden) => { this.buttons[name].setAttribute("aria-pressed", on); this.buttons[name].hidden = hidden; };
    press("all", this.all, false);
    press("order", this.falling, false);
    press("every", this.every, w.keys.length <= FEW);
    const from = document.activeElement?.id;
    this.doing = WALK.flatMap(({ does }, number) => (!does || does(w, callNow()) ? [number] : []));
    if (!this.doing.includes(this.at)) [this.at] = this.doing;
    WALK.forEach((each, number) => this.step(each, number, w));
    if (from) $(from)?.focus({ preventScroll: true }); // what had the focus is a new element now
  },

  step(each, number, w) {
    const call = callNow();
    const head = this.heads[number];
    const open = this.all || number === this.at;
    const formula = each.formula(w, call);
    head.parentElement.hidden = !this.doing.includes(number);
    head.replaceChildren(element("span", this.doing.indexOf(number) + 1, { className: "walk-number" }), element("b", each.name), element("code", null, {}, ...(each.rule ? [formula] : subscripts(formula))),
      element("span", each.shape(w, call) || "", { className: "soft walk-shape" }));
    head.setAttribute("aria-expanded", open);
    head.tabIndex = number === this.at ? 0 : -1;
    head.parentElement.classList.toggle("now", number === this.at);
    if (number === this.at) head.setAttribute("aria-current", "step");
    else head.removeAttribute("aria-current");
    const box = $(`walk-${each.id}`);
    box.hidden = !open;
    if (open) box.replaceChildren(element("p", each.what, { className: "walk-what" }), ...walkNumbers(each, w, call, this.order), ...(each.more?.(w, this.matrices) ?? []));
    else box.replaceChildren();
  },
};
screens.push(walk);
