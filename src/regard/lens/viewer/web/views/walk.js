// Step by step: the numbers of one row of one head, from the input of the layer to the output of the head.

const FEW = 12; // keys that are shown initially

choosable("followed", null, position); // the key of which the steps show every element; null is the strongest one

const walk = {
  name: "walk", every: false, turn: 0,
  opened: new Set(["x"]), // the steps that are open
  element: {}, // the element of q, k, v and of the output that is followed
  matrices: null, // of the layer, or why not

  build() {
    this.keys = button("all keys", () => this.set({ every: !this.every }), { id: "walk-every", className: "tools", hidden: true });
    this.note = element("p", null, { className: "note", id: "walk-note" });
    this.legend = rampBox({ className: "ramp signed", hidden: true });
    this.list = element("ol", null, { id: "walk-steps", hidden: true });
    this.heads = WALK.map(({ id }) => {
      const head = element("summary", null, { className: "walk-head", id: `walk-head-${id}` });
      const step = element("details", null, { open: this.opened.has(id) }, head, element("div", null, { id: `walk-${id}`, className: "walk-numbers" }));
      step.addEventListener("toggle", () => {
        this.opened[step.open ? "add" : "delete"](id);
        if (this.numbers) this.show();
      });
      this.list.append(element("li", null, {}, step));
      return head;
    });
    const box = folds.make("walk", "Step by step", element("div", null, { className: "walk-top" }, this.note, this.keys, this.legend), this.list);
    $("walk").append(box);
    this.lazily = new Lazily(box, () => this.fetch()); // on a served page each row is a request to the server
  },

  draw(changed) {
    if (changed.has("theme") || changed.has("scale")) drawRamp(this.legend, "lift", [-100, -10, -1, 0, 1, 10, 100].map((value) => [decimal(value), signed(value)]));
    if (!["run", "call", "head", "query", "key", "followed"].some((name) => changed.has(name))) {
      if (this.numbers && (changed.has("theme") || changed.has("scale"))) this.show();
      return undefined;
    }
    $("walk-title").replaceChildren("Step by step: ", quoted(queryAxis(), state.query, 28), ` (${state.query.toLocaleString("en")}), ${headTitle()}`);
    return this.lazily.again();
  },

  async fetch() {
    const turn = ++this.turn;
    const { run, call, head, query } = state;
    const found = isMean(head) ? null : await source.walk(run, call, head, query);
    if (turn !== this.turn) return;
    const numbers = found && Object.fromEntries(Object.entries(found).map(([name, value]) => [name, numbered(value)]));
    if (numbers) Object.assign(numbers, { K: callNow().K, scale: callNow().formula.scale, D: numbers.q?.length ?? null, E: (numbers.sum ?? numbers.out)?.length ?? null });
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
    this.list.hidden = this.legend.hidden = this.keys.hidden = !w;
    if (!w) {
      this.note.textContent = this.why();
      return;
    }
    const falling = w.keys.map((_, at) => at).sort((a, b) => (w.p[b] ?? -1) - (w.p[a] ?? -1) || a - b);
    this.order = this.every ? falling : falling.slice(0, FEW);
    const which = w.keys.length < w.K ? `the strongest and the nearest ${w.keys.length} of ${w.K.toLocaleString("en")} keys` : counted(w.K, "key");
    this.note.textContent = `${capital(which)}${this.order.length < w.keys.length ? `, ${this.order.length} of them shown` : ""}.${w.exact ? ` Vectors are stored ${w.exact}.` : ""}`;
    this.keys.ariaPressed = String(this.every);
    this.keys.hidden = w.keys.length <= FEW;
    const from = document.activeElement?.id;
    let number = 0;
    for (const [at, each] of WALK.entries()) {
      const doing = !each.does || each.does(w, callNow());
      this.heads[at].closest("li").hidden = !doing;
      if (doing) this.step(each, this.heads[at], ++number, w);
    }
    if (from) $(from)?.focus({ preventScroll: true }); // what had the focus is a new element now
  },

  step(each, head, number, w) {
    const call = callNow(), formula = each.formula(w, call);
    head.replaceChildren(element("span", number, { className: "walk-number" }), element("b", each.name), element("code", null, {}, ...(each.rule ? [formula] : subscripts(formula))),
      element("span", each.shape(w, call) || "", { className: "soft walk-shape unbroken" }));
    const open = this.opened.has(each.id);
    $(`walk-${each.id}`).replaceChildren(...(open ? [element("p", each.what, { className: "walk-what" }), ...walkNumbers(each, w, call, this.order), ...(each.more?.(w, this.matrices) ?? [])] : []));
  },
};
screens.push(walk);
