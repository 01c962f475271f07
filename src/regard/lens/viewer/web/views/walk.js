// Step by step: the numbers of one row of one head, from the input of the layer to the output of the head.

const FEW = 12; // keys that are shown initially

/** One key with its calculation and result. */
function keyLine(w, at, calculation, result, tint) {
  const of = keyAxis();
  const shown = element("data", result, { value: tint ?? "" });
  const parts = [element("bdi", wordOf(of, w.keys[at], 24)), element("span", w.keys[at], { className: "soft number" }), element("span", calculation, { className: "calculation" })];
  return [element("li", null, {}, ...parts, shown), shown];
}

/** q·k of one key: from the scaled score, which is more precise than the stored q and k, unless the scale is 0. */
const product = (w, at) => (w.scale ? w.scaled[at] / w.scale : w.k[at].reduce((sum, value, d) => sum + value * w.q[d], 0));

const WALK = [
  { id: "x", name: "input", laws: [], missing: "x", what: "The input of the layer for this token: its hidden state.",
    formula: () => "x", shape: (w) => w.x && `(${w.x.length})`, vector: (w) => w.x },
  { id: "q", name: "query", laws: [3], missing: "q",
    what: "The query of this token: the layer multiplies x by its query matrix; the model may normalize or rotate it as well.",
    formula: () => "q = W_q x", shape: (w) => w.D && `D = ${w.D}`, vector: (w) => w.q },
  { id: "k", name: "keys", laws: [], missing: "k", what: "The keys of all tokens, with which the query is compared.",
    formula: () => "k_j = W_k x_j", shape: (w) => w.D && `K × D = ${w.K} × ${w.D}`, matrix: (w) => w.k },
  { id: "v", name: "values", laws: [], missing: "v", what: "The values of all tokens, of which the output is a weighted mean.",
    formula: () => "v_j = W_v x_j", shape: (w) => w.E && `K × E = ${w.K} × ${w.E}`, matrix: (w) => w.v },
  { id: "products", name: "scores", laws: [1], missing: "k",
    what: "The dot product of the query with each key.",
    formula: () => "q·k_j = Σ_d q_d k_jd", shape: (w) => `K = ${w.K}`, key: (w, at) => ["q·k =", product(w, at)] },
  { id: "scaled", name: "scaled", laws: [1], missing: "k", what: "The dot product times the scale, so that it does not grow with D.",
    formula: (w) => `s_j = scale · q·k_j,  scale = ${decimal(w.scale, 6)}${w.D && Math.abs(w.scale * Math.sqrt(w.D) - 1) < 1e-5 ? ` = 1/√${w.D}` : ""}`,
    shape: (w) => `K = ${w.K}`, key: (w, at) => [`${decimal(product(w, at))} × ${decimal(w.scale)} =`, w.scaled[at]] },
  { id: "scores", name: "score rule", laws: [1], missing: "k", what: "How the model modifies the scaled score: a cap, a bias, a slope.",
    formula: (w, call) => call.formula.score ?? "no rule: the score is unchanged", shape: (w) => `K = ${w.K}`,
    key: (w, at, call) => (call.formula.score === null ? null : [`${decimal(w.scaled[at])} →`, w.scores[at]]) },
  { id: "mask", name: "mask", laws: [2, 3, 6], mask: true, what: "The keys that this row may attend to; the others have no influence.",
    formula: (w, call) => call.formula.mask ?? "no mask: the row may attend to every key", shape: (w) => `K = ${w.K}` },
  { id: "p", name: "softmax", laws: [5, 7, 8, 12], weights: true,
    what: "The weight of each key. All weights, with those of the sinks if there are any, sum to 1.",
    formula: (w, call) => `p_j = exp(s_j − lse),  lse = ln(Σ_j exp s_j${call.formula.sinks ? " + Σ exp sink" : ""}) = ${decimal(w.lse, 6)}`, shape: (w) => `K = ${w.K}` },
  { id: "sum", name: "output", laws: [1, 6], missing: "v",
    what: "The weighted mean of the values; over all keys, not only those that are shown.",
    formula: () => "Σ_j p_j v_j", shape: (w) => w.E && `E = ${w.E}`, vector: (w) => w.sum },
  { id: "out", name: "model’s output", laws: [10], missing: "out", what: "The output of this head in the model itself.",
    formula: () => "out", shape: (w) => w.E && `E = ${w.E}`, vector: (w) => w.out },
];

const walk = {
  name: "walk", at: 0, all: false, every: false, falling: true, turn: 0,

  build() {
    const title = element("h2", null, { id: "walk-title" });
    const button = (id, text, run, name = text) => {
      const made = element("button", text, { type: "button", id, ariaLabel: name, title: name });
      made.addEventListener("click", run);
      return made;
    };
    this.buttons = {
      all: button("walk-all", "all steps", () => this.set({ all: !this.all })),
      order: button("walk-order", "strongest first", () => this.set({ falling: !this.falling })),
      every: button("walk-every", "all keys", () => this.set({ every: !this.every })),
    };
    const [back, on] = [button("walk-back", "◂", () => this.go(-1), "previous step"), button("walk-on", "▸", () => this.go(1), "next step")];
    const copies = button("walk-copy", "copy numbers", () => this.copy(), "copy all numbers of this computation as JSON");
    const bar = element("div", null, { className: "bar" }, title, element("span", null, { id: "walk-buttons", hidden: true }, back, on, ...Object.values(this.buttons), copies));
    this.note = element("p", null, { className: "note", id: "walk-note" });
    this.ramp = element("canvas", null, { width: 256, height: 1, ariaHidden: "true" });
    const ticks = [-100, -10, -1, 0, 1, 10, 100].map((value) => {
      const tick = element("span", decimal(value));
      tick.style.left = `${100 * signed(value)}%`;
      return tick;
    });
    this.legend = element("div", null, { className: "walk-legend", hidden: true }, this.ramp, element("div", null, { className: "walk-ticks" }, ...ticks));
    this.list = element("ol", null, { id: "walk-steps", hidden: true });
    this.list.addEventListener("keydown", (event) => this.key(event));
    this.heads = WALK.map((each, number) => {
      const head = element("button", null, { type: "button", className: "walk-head", id: `walk-head-${each.id}` });
      head.setAttribute("aria-controls", `walk-${each.id}`);
      head.addEventListener("click", () => this.go(0, number));
      this.list.append(element("li", null, {}, head, element("div", null, { id: `walk-${each.id}`, className: "walk-numbers" })));
      return head;
    });
    $("walk").append(bar, element("div", null, { className: "walk-top" }, this.note, this.legend), this.list);
    this.lazily = new Lazily($("walk"), () => this.fetch()); // on a served page each row is a request to the server
  },

  draw(changed) {
    if (changed.has("theme") || changed.has("scale")) this.colors();
    if (!["run", "call", "head", "query"].some((name) => changed.has(name))) {
      if (this.numbers && (changed.has("theme") || changed.has("scale"))) this.show();
      return undefined;
    }
    this.title();
    return this.lazily.again();
  },

  title() { $("walk-title").replaceChildren("Step by step: ", quoted(queryAxis(), state.query, 28), ` (${state.query.toLocaleString("en")}), ${callTitle()}, head ${state.head}`); },

  async fetch() {
    const turn = ++this.turn;
    const { run, call, head, query } = state;
    const found = await source.walk(run, call, head, query);
    if (turn !== this.turn) return;
    this.numbers = found && Object.fromEntries(Object.entries(found).map(([name, value]) => [name, numbered(value)]));
    this.show();
  },

  set(change) {
    Object.assign(this, change);
    if (this.numbers) this.show();
  },
  go(by, to = this.at + by) {
    this.at = clamp(to, 0, WALK.length - 1);
    if (this.numbers) this.show();
    return this.numbers;
  },
  key(event) {
    if (!event.target.closest(".walk-head")) return;
    const to = { ArrowDown: this.at + 1, ArrowRight: this.at + 1, ArrowUp: this.at - 1, ArrowLeft: this.at - 1, Home: 0, End: WALK.length - 1 }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    this.go(0, to);
    this.heads[this.at].focus();
  },

  copy() {
    if (this.numbers) copy(JSON.stringify(this.numbers, (_, value) => (typeof value === "number" && !Number.isFinite(value) ? String(value) : value)), "The computation");
  },

  colors() {
    const context = this.ramp.getContext("2d");
    for (let at = 0; at < 256; at++) {
      context.fillStyle = color(at, "lift");
      context.fillRect(at, 0, 1, 1);
    }
  },

  /** Why the numbers are not available, and what to do. */
  why() {
    if (callNow().only_weights) return "Only the weights of this call are known, not its q and k: record the model, or pass q and k.";
    return "The page does not contain q and k of this call, since it would be too large: serve the run (regard look --serve), or record fewer layers.";
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
    this.order = w.keys.map((_, at) => at);
    if (this.falling) this.order.sort((a, b) => (w.p[b] ?? -1) - (w.p[a] ?? -1) || a - b);
    const shown = this.every ? this.order : this.falling ? this.order.slice(0, FEW) : this.strong(w);
    this.order = shown;
    const which = w.keys.length < w.K ? `the strongest and the nearest ${w.keys.length} of ${w.K.toLocaleString("en")} keys` : counted(w.K, "key");
    this.note.textContent = `${capital(which)}${shown.length < w.keys.length ? `, ${shown.length} of them shown` : ""}.${w.exact ? ` Vectors are stored ${w.exact}.` : ""}`;
    const press = (name, on, hidden) => { this.buttons[name].setAttribute("aria-pressed", on); this.buttons[name].hidden = hidden; };
    press("all", this.all, false);
    press("order", this.falling, false);
    press("every", this.every, w.keys.length <= FEW);
    WALK.forEach((each, number) => this.step(each, number, w));
  },

  /** The strongest keys in the order of their positions. */
  strong(w) { return [...this.order].sort((a, b) => (w.p[b] ?? -1) - (w.p[a] ?? -1) || a - b).slice(0, FEW).sort((a, b) => a - b); },

  step(each, number, w) {
    const call = callNow();
    const head = this.heads[number];
    const open = this.all || number === this.at;
    const laws = element("span", each.laws.length ? lawsNamed(each.laws) : "", { className: "walk-law soft", title: each.laws.map(lawWords).join("\n") });
    head.replaceChildren(element("span", number + 1, { className: "walk-number" }), element("b", each.name), element("code", each.formula(w, call)),
      element("span", each.shape(w) || "", { className: "soft walk-shape" }), laws);
    head.setAttribute("aria-expanded", open);
    head.tabIndex = number === this.at ? 0 : -1;
    head.parentElement.classList.toggle("now", number === this.at);
    if (number === this.at) head.setAttribute("aria-current", "step");
    else head.removeAttribute("aria-current");
    const box = $(`walk-${each.id}`);
    box.hidden = !open;
    box.replaceChildren(...(open ? [element("p", each.what, { className: "walk-what" }), ...walkNumbers(each, w, call, this.order), ...(each.laws.length ? [lawsOf(each.laws)] : [])] : []));
  },
};
screens.push(walk);

/** The content of a step: its numbers, or why they are missing. */
function walkNumbers(each, w, call, order) {
  const of = keyAxis();
  const note = (text) => element("p", text, { className: "note" });
  const name = (at) => `${wordOf(of, w.keys[at], 24)} ${w.keys[at]}`;
  if (each.vector) {
    const values = each.vector(w);
    if (!values && each.id === "sum" && w.v) return [note("Not computed: the page contains only the strongest keys of each row. Serve the run to see it.")];
    if (!values) return [note(walk.lacking(each))];
    const cells = new Cells(each.name, [values], null, (_, column) => `${each.id}[${column}]`);
    if (each.id !== "out" || !w.sum) return [cells.node];
    return [cells.node, note(w.same ? "On recording, this was equal to the output computed above, up to rounding." : difference(w.sum, values))];
  }
  if (each.matrix) {
    const values = each.matrix(w);
    if (!values) return [note(walk.lacking(each))];
    const share = call.heads / call.groups;
    const group = Math.floor(state.head / share);
    const shared = share > 1 ? [note(`Heads ${group * share} to ${(group + 1) * share - 1} share this key/value head.`)] : [];
    return [new Cells(each.name, order.map((at) => values[at]), order.map(name), (row, column) => `${each.id} of ${name(order[row])}, [${column}]`).node, ...shared];
  }
  if (each.missing && !w.q) return [note(walk.lacking(each))];
  const list = element("ul", null, { className: "walk-keys" });
  for (const at of order) {
    const [line, result] = keyLine(w, at, ...keyResult(each, w, at, call));
    if (each.weights) ground(result, walkLine(w), at);
    else if (!each.mask) tinted(result, Number(result.value || NaN));
    else result.classList.toggle("masked", !w.allowed[at]);
    result.classList.add("ground");
    if (result.textContent === "not stored") result.style.background = "";
    list.append(line);
  }
  if (each.key && each.key(w, order[0], call) === null) return [];
  const free = w.allowed.filter(Boolean).length;
  if (each.mask) return [list, note(`${free} of ${w.keys.length > 1 ? "the " : ""}${counted(w.keys.length, "key")}${w.keys.length < w.K ? " shown" : ""} ${free === 1 ? "is" : "are"} allowed.`)];
  return [list, ...(each.weights ? [note(shares(w, call))] : [])];
}

/** [calculation, result as text, its value] of one key in one step. */
function keyResult(each, w, at, call) {
  if (each.mask) return [w.scores?.[at] === undefined ? "" : `s = ${decimal(w.scores[at])}`, w.allowed[at] ? "allowed" : "masked", Number(w.allowed[at])];
  if (each.weights) {
    const p = w.p[at];
    const calculation = !w.scores ? "" : w.allowed[at] ? `exp(${decimal(w.scores[at])} − ${decimal(w.lse)}) =` : "masked:";
    return [calculation, p === null ? "not stored" : Number.isNaN(p) ? "not a number" : !w.allowed[at] && p === 0 ? "0" : `${percent(p)}${!w.allowed[at] ? " where the mask forbids it" : ""}`, p ?? ""];
  }
  const [calculation, value] = each.key(w, at, call) ?? ["", null];
  return [calculation, decimal(value), value ?? ""];
}

/** The weights of the row as a line of cells that `ground` colors. */
const walkLine = (w) => ({ p: w.p, hidden: () => false, row: { attended: Math.max(1, w.K), maximum: Math.max(...w.p.filter((p) => p > 0), 1e-12) },
  code: w.p.map((p, at) => (Number.isNaN(p) ? NAN : p === null ? TINY : !w.allowed[at] ? (p > 0 ? LEAK : MASKED) : p === 0 ? ZERO : p > 1.001 || p < 0 ? OUT : coded(p))) });

/** A sentence about the sum of the weights. */
function shares(w, call) {
  const sum = w.p.reduce((total, p) => total + (p || 0), 0);
  const none = w.p.filter(Number.isNaN).length;
  if (none) return `${none} of the ${counted(w.keys.length, "weight")} here ${none === 1 ? "is not a number" : "are not numbers"}: one of their scores is NaN or ∞ (law 12).`;
  const parts = [w.keys.length < w.K ? `The ${w.keys.length} keys here have ${percent(sum)} of the weight.` : `${w.K === 1 ? "The weight is" : `The ${w.K} weights add up to`} ${percent(sum)}.`];
  if (w.sinks) {
    const taken = w.sinks.reduce((total, sink) => total + Math.exp(sink - w.lse), 0);
    parts.push(`The sinks (${w.sinks.map((sink) => decimal(sink)).join(", ")}) take ${percent(taken)}.`);
  } else if (call.formula.sinks) parts.push("The sinks take the rest.");
  if (w.lse === -Infinity) parts.push(["0", undefined].includes(call.notes.empty) ? "This row is fully masked: its output is 0 (law 5)."
    : `This row is fully masked: its output here is 0 (law 5). For fully masked rows, the output of the model itself is ${call.notes.empty}.`);
  return parts.join(" ");
}

/** A sentence about the difference between the output computed here and that of the model. */
function difference(sum, out) {
  const apart = sum.map((value, e) => (Object.is(value, out[e]) ? 0 : Math.abs(value - out[e])));
  const odd = apart.filter((value) => !Number.isFinite(value)).length;
  if (odd) return `In ${odd} of ${counted(out.length, "component")}, one of the two is not finite and the other differs.`;
  return `The largest difference from the output computed above is ${decimal(Math.max(...apart), 2)}; the largest absolute value of the output is ${decimal(Math.max(...out.map(Math.abs)), 3)}.`;
}
