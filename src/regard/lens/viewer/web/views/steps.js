// Generated tokens: a slider over the generation steps, and the candidates of each step.

choosable("step", null, position); // the chosen generation step; null shows the whole text

const steps = {
  name: "steps",

  build() {
    this.slider = element("input", null, { type: "range", id: "steps-slider", min: 0, step: 1, ariaLabel: "generation steps" });
    this.slider.addEventListener("input", () => this.to(Number(this.slider.value)));
    this.whole = tool("whole text", "show the whole text", () => choose({ step: null }), { id: "steps-whole" });
    this.said = element("p", null, { id: "steps-said" });
    this.list = element("ol", null, { id: "steps-candidates", ariaLabel: "The likeliest tokens at this step" });
    $("steps").append(element("div", null, { className: "bar" }, element("h2", "Generated tokens", { id: "steps-title" }), this.whole),
      this.slider, this.said, this.list);
    if (data.live !== null || runs.some((run) => run.steps.length)) keys.push({ keys: ["<"], label: "<", what: "previous generated token", run: () => this.go(-1) },
      { keys: [">"], label: ">", what: "next generated token", run: () => this.go(1) });
  },

  draw(changed) {
    const all = runs[state.run].steps;
    $("steps").hidden = !all.length;
    if (!all.length || !["run", "step", "theme", "scale"].some((name) => changed.has(name))) return;
    this.slider.max = all.length - 1;
    this.whole.setAttribute("aria-pressed", state.step === null);
    const at = state.step ?? all.length - 1;
    this.slider.value = at;
    const of = axis(written());
    const { position, candidates } = all[at];
    const word = wordOf(of, position);
    const taken = candidates.findIndex(([name]) => name === word);
    this.slider.setAttribute("aria-valuetext", `step ${at + 1} of ${all.length}: ${word}`);
    const parts = [`Step ${at + 1} of ${all.length}: `, element("span", "“", { className: "written" }, element("bdi", clip(word, 40)), "”"), ` (token ${position.toLocaleString("en")}) was ${position ? "predicted from " : "generated"}`];
    if (position) parts.push(...named(of, position - 1, "", 28));
    parts.push(taken < 0 ? (candidates.length ? "; it is not among the stored candidates." : ".") : taken === 0 ? "; it was the likeliest token." : `; it was candidate ${taken + 1}.`);
    this.said.replaceChildren(...parts);
    this.list.replaceChildren(...candidates.map(([name, p], place) => {
      const bar = element("i", null, { style: `width:${clamp(100 * p, 0.5, 100)}%` });
      return element("li", null, { className: place === taken ? "taken" : "" }, element("bdi", clip(name, 30)), element("span", null, {}, bar),
        element("data", percent(p), { value: p, className: "number" }), element("span", place === taken ? "generated" : "", { className: "soft" }));
    }));
  },

  /** Chooses the step, and the row that produced the token, at the position before it. */
  to(number) {
    const all = runs[state.run].steps;
    if (!all.length) return undefined;
    const at = clamp(number, 0, all.length - 1);
    return choose({ step: at, ...(callNow().queries === written() ? { query: Math.max(0, all[at].position - 1) } : {}) });
  },
  go(by) { return this.to(state.step === null ? (by > 0 ? 0 : runs[state.run].steps.length - 1) : state.step + by); },
};
screens.push(steps);
