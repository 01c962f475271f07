// On a served page: another text through the model, the model without a head or an edge, and attention with changed rules. Each
// becomes a run of its own, which the whole page then shows.

const MASKS = { recorded: "as recorded", none: "none", causal: "causal", window: "window, both sides", "causal window": "causal window" };
const finite = (text) => (Number.isFinite(Number(text)) ? Number(text) : undefined);
const positive = (text) => (Number(text) > 0 ? finite(text) : undefined);
// The rules that can be changed: begin is what the model does; read(text) is the value, or undefined for what is not `expected`.
const RULES = {
  temperature: { begin: 1, read: positive, expected: "a temperature is a number above 0", label: "temperature", field: { min: 0.01, step: 0.1 } },
  factor: { begin: null, read: (text) => (text.trim() ? finite(text) : null), label: "scale of q·k", field: { step: "any", placeholder: "as recorded" } },
  mask: { begin: "recorded", ...oneOf(MASKS), label: "mask" },
  width: { begin: 4, read: (text) => positive(text) && Math.max(1, Math.round(Number(text))), expected: "a window has 1 key or more", label: "keys in the window", field: { min: 1, step: 1 } },
};
const AS_RECORDED = Object.fromEntries(Object.entries(RULES).map(([name, { begin }]) => [name, begin]));

choosable("original", false, { key: "with", write: (original) => (original ? "original" : undefined), read: (text) => text === "original" || undefined });
choosable("text", null, { write: (text) => (text === null ? undefined : encodeURIComponent(text)), read: (text) => text || undefined });
// The call and head that are left out, and for an edge its row and key: "5.11", "5.11.9.2".
choosable("without", null, { read: (text) => (/^\d+\.\d+(\.\d+\.\d+)?$/.test(text) ? text : undefined), write: (place) => place ?? undefined });
for (const [name, { begin, read }] of Object.entries(RULES)) choosable(name, begin, { read });

const live = {
  name: "live", turn: 0, made: new Memory(12), base: 0,
  shown: 0, // the run of the text and the rules

  build() {
    $("live").hidden = !data.served;
    if (!data.served) return;
    this.text = element("textarea", undefined, { id: "live-text", rows: 1, spellcheck: false, value: data.live ?? "", dir: "auto" });
    this.fields = Object.fromEntries(Object.keys(RULES).map((name) => [name, this.field(name)]));
    this.head = button("without this head", () => this.leave([state.call, state.head]), { id: "live-head" });
    this.edge = button("without this edge", () => this.leave([state.call, state.head, state.query, state.key]), { id: "live-edge" });
    this.difference = element("pre", undefined, { id: "live-difference", hidden: true });
    this.reset = button("undo the changes", () => choose({ text: null, without: null, ...AS_RECORDED }), { id: "live-reset", title: "The text and the rules that were recorded" });
    this.original = button("compare with the original", () => choose({ original: !state.original }), { id: "live-original" });
    this.said = element("p", undefined, { id: "live-said", className: "note", role: "status" });
    const fields = Object.entries(this.fields).map(([name, field]) => element("label", `${RULES[name].label} `, {}, field));
    if (data.live !== null) $("live").append(element("label", undefined, { id: "live-text-box" }, element("span", "text"), this.text));
    $("live").append(folds.make("live", data.live === null ? "Change the rules" : "Change the rules, or leave out a head", element("div", undefined, { id: "live-rules" }, ...fields),
      element("div", undefined, { className: "tools" }, ...(data.live === null ? [] : [this.head, this.edge]), this.original, this.reset)), this.said, this.difference);
    this.text.addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => choose({ text: this.text.value.trim() && this.text.value !== data.live ? this.text.value : null }), 150);
    });
  },

  /** The field of a rule. */
  field(name) {
    const common = { id: `live-${name}`, onchange: () => this.take(name) };
    if (name !== "mask") return element("input", undefined, { type: "number", ...common, ...RULES[name].field });
    return chooser(MASKS, common);
  },

  /** Runs the model without a head or an edge, or with it again. */
  leave(place) {
    const without = place.join(".");
    choose({ without: state.without === without ? null : without });
  },

  /** The buttons say what they leave out: a head; an edge only where a key is chosen. */
  offer() {
    const { call, head, query, key, without, run } = state;
    const one = head !== "mean" && head !== "all";
    const { axes, calls } = runs[run];
    this.head.disabled = !one;
    this.edge.disabled = !one || key === null;
    this.edge.title = key === null ? "choose a key first: click a token or a cell" : `${wordOf(axes[calls[call].queries], query)} → ${wordOf(axes[calls[call].keys], key)} in this head`;
    this.head.setAttribute("aria-pressed", without === [call, head].join("."));
    this.edge.setAttribute("aria-pressed", without === [call, head, query, key].join("."));
  },

  /** Chooses the value of a field. A wrong one gives way to the value that is used, and the page says why. */
  async take(name) {
    const node = this.fields[name], given = node.value, value = RULES[name].read(given);
    await choose({ [name]: value === undefined ? state[name] : value });
    node.value = state[name] ?? "";
    if (value === undefined) this.say(`${RULES[name].expected}: ${given === "" ? "nothing" : `“${given}”`} was not taken`, true);
  },

  say(text, alarm = false) {
    this.said.textContent = text;
    this.said.classList.toggle("alarm", alarm);
  },

  draw(changed) {
    if (!data.served) return undefined;
    this.original.setAttribute("aria-pressed", state.original);
    if (data.live !== null) this.offer();
    if (!["text", "without", ...Object.keys(RULES)].some((name) => changed.has(name))) return undefined;
    const put = (node, value) => { if (document.activeElement !== node && node.value !== String(value)) node.value = value; };
    put(this.text, state.text ?? data.live ?? "");
    for (const [name, field] of Object.entries(this.fields)) put(field, state[name] ?? "");
    this.fields.width.parentNode.hidden = !state.mask.endsWith("window");
    this.reset.disabled = state.text === null && state.without === null && !this.rules();
    return this.update();
  },

  /** The changed rules; null if they are those of the model. */
  rules() {
    const { temperature, factor, mask, width } = state;
    if (temperature === AS_RECORDED.temperature && factor === AS_RECORDED.factor && mask === AS_RECORDED.mask) return null;
    return { temperature, scale: factor, mask, ...(mask.endsWith("window") ? { window: width } : {}), call: state.call };
  },

  /** Shows the run of the text and the rules; the last request wins. */
  async update(again = true) {
    const turn = ++this.turn;
    try {
      const base = state.text === null || data.live === null ? 0 : await this.run("text", { text: state.text });
      if (turn !== this.turn) return;
      const whole = state.without === null || data.live === null;
      const [call, head, query, key] = whole ? [] : state.without.split(".").map(Number);
      if (!whole) this.say("running the model");
      const model = whole ? base : await this.run("without", { n: base, call, head, query, key });
      if (turn !== this.turn) return;
      const rules = this.rules();
      const number = rules ? await this.run("rules", { n: model, ...rules }) : model;
      if (turn !== this.turn) return;
      const { changed, difference } = whole ? {} : runs[model].facts;
      this.difference.hidden = whole;
      this.difference.textContent = whole ? "" : [changed, ...difference].join("\n");
      this.say(rules ? "The calls are computed again from their recorded q, k and v; later layers would get other inputs from a model with these rules." : "");
      const before = this.shown;
      this.shown = number;
      if (number === state.run) return before === number ? undefined : drawScreens(new Set(["original"]));
      const row = base === this.base ? null : counterpart(runs[state.run], runs[number], state.query);
      this.base = base;
      await choose({ run: number, ...(row === null ? {} : { query: row, key: null, pins: [], view: null }) });
    } catch (error) {
      if (turn !== this.turn) return;
      if (again && error.message.startsWith("no such run")) { // the server has forgotten it
        this.made = new Memory(12);
        this.update(false);
        return;
      }
      this.say(error.message, true);
    }
  },

  /** The number of a new run, which is kept for a while. */
  run(what, given) {
    return this.made.get(JSON.stringify([what, given]), async () => {
      const reply = await requested(`live/${what}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(given) });
      const answer = await reply.json();
      if (!reply.ok) throw new Error(answer.error ?? `the server responded with status ${reply.status}`);
      runs[answer.number] = what === "text" ? answer.run : { ...runs[given.n], ...answer.run }; // what is shown stays
      addMetrics(answer.run);
      return answer.number;
    });
  },
};
screens.push(live);

/** The row of another run that corresponds to this one; of a token that the other text lacks, the row that it opens on. */
function counterpart(from, to, query) {
  const [ours, theirs] = [from, to].map((run) => run.axes[run.calls[Math.min(state.call, run.calls.length - 1)].queries]);
  const [, , first, stop] = groupsOf(ours, theirs).find(([a0, a1]) => query >= a0 && query < a1);
  return first < stop ? first : to.start.query;
}
