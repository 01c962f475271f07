// The comparison of two runs: side by side in one view, as a difference, or overlaid with a movable edge.

const MODES = { side: "side by side", difference: "difference", linear: "difference, linear", swipe: "swipe" };
const COMPARED_FIGURES = ["spread", "special", "first", "previous", "itself", "distant", "maximum"]; // figures that are compared between the runs

choosable("compare", "side", oneOf(MODES));

const comparison = {
  name: "compare",
  edge: 0.5,

  build() {
    const section = $("compare");
    section.hidden = runs.length < 2;
    if (runs.length < 2) return;
    this.painters = [painterOf(0), painterOf(1), ...["difference", "linear"].map(differencePainter)];
    section.append(
      element("div", undefined, { className: "bar" }, element("h2", "Comparison", { id: "compare-title" }), this.choice("compare-mode", "How the runs are compared", MODES, (value) => choose({ compare: value }))),
      element("p", undefined, { className: "compare-names" }, ...runs.flatMap((run, n) => [element("span", n ? "second" : "first", { className: `of-run run-${n}` }), element("bdi", clip(run.model, 60)), ...folderOf(run), n ? "" : " "])),
      element("p", undefined, { id: "compare-tokens", className: "soft" }),
      element("div", undefined, { id: "compare-legend" }, element("div", undefined, { className: "ramp" }, element("canvas", undefined, { id: "compare-ramp", width: 256, height: 1 }), element("div", undefined, { id: "compare-ticks" })),
        element("ul", undefined, { className: "compare-swatches" }, ...[["masked in both", "hatch"], ["masked in one run only", "out"], ["not a number", "nan"], ["forbidden weight", "leak"]].map(([name, kind]) => element("li", undefined, {}, element("i", undefined, { className: `cell ${kind}` }), name))),
        element("p", undefined, { id: "compare-law", className: "soft" })),
      element("div", undefined, { className: "compare-body" },
        element("div", undefined, { id: "compare-0" }), element("div", undefined, { id: "compare-1" }),
        element("div", undefined, { className: "compare-heads" }, element("h3", "Heads that differ most", { id: "compare-heads-title" }), element("table", undefined, { id: "compare-heads" }))),
      element("p", undefined, { id: "compare-said", className: "readout" }), element("p", undefined, { id: "compare-row", className: "readout" }),
      element("p", undefined, { id: "compare-level", className: "note" }),
    );
    $("compare-row").setAttribute("aria-live", "polite");
    $("compare-heads").setAttribute("aria-labelledby", "compare-heads-title");
    this.plots = [0, 1].map((n) => {
      $(`compare-${n}`).append(element("span", n ? "second" : "first", { className: "of-run" }));
      const plot = new Plot($(`compare-${n}`), { name: `compare-${n}`, margins: "labels", run: () => n, parts: () => this.parts(n) });
      plot.canvas.setAttribute("aria-label", n ? "Map of the second run" : "Map of the first run");
      drive(plot);
      return plot;
    });
    this.plots[0].after = (at, detail) => { this.level(at, detail); this.handleAt(); };
    this.handle();
    this.tokens();
    this.numbers = this.choice("compare-run", "Run that the other sections show", { 0: "show the first", 1: "the second" }, (value) => choose({ run: Number(value) }));
    section.querySelector(".compare-names").append(this.numbers);
  },

  /** A group of radio buttons. */
  choice(id, label, options, act) {
    const group = element("span", undefined, { id, className: "choice" });
    group.setAttribute("role", "radiogroup");
    group.setAttribute("aria-label", label);
    for (const [value, title] of Object.entries(options)) {
      const button = element("button", title, { type: "button", value });
      button.setAttribute("role", "radio");
      button.addEventListener("click", () => act(value));
      group.append(button);
    }
    group.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      event.stopPropagation();
      const buttons = [...group.children];
      const next = buttons[round(buttons.indexOf(document.activeElement) + by, buttons.length)];
      next.focus();
      act(next.value);
    });
    return group;
  },

  chosen(group, value) {
    for (const button of group.children) {
      button.setAttribute("aria-checked", button.value === String(value));
      button.tabIndex = button.value === String(value) ? 0 : -1;
    }
  },

  parts(n) {
    if (state.compare === "swipe") return [{ painter: this.painters[0], from: 0, to: this.edge }, { painter: this.painters[1], from: this.edge, to: 1 }];
    return [{ painter: state.compare === "side" ? this.painters[n] : this.painters[state.compare === "linear" ? 3 : 2], from: 0, to: 1 }];
  },

  async draw(changed) {
    if (runs.length < 2) return;
    const both = state.compare === "side";
    this.chosen($("compare-mode"), state.compare);
    this.chosen(this.numbers, state.run);
    $("compare-1").hidden = !both;
    $("compare").dataset.mode = state.compare;
    $("compare-legend").hidden = !LAWS[state.compare];
    this.slider.hidden = state.compare !== "swipe";
    if (changed.has("theme") || changed.has("compare")) this.legend();
    if (!this.lines) this.list();
    const moved = ["call", "head", "query"].some((name) => changed.has(name));
    const tracks = lookNow(0).rows ? [0, 1].filter((n) => !tracksNow(n)).map((n) => tracksOf(n).then(() => this.plots.forEach((plot) => plot.later()))) : [];
    await Promise.all([...tracks, ...this.plots.map((plot) => plot.draw(changed)), moved ? this.rows() : null, moved ? this.listRows() : null]);
    this.said();
  },

  legend() {
    const law = LAWS[state.compare];
    if (!law) return;
    const context = $("compare-ramp").getContext("2d");
    for (let at = 0; at < 256; at++) {
      context.fillStyle = color(at, "lift");
      context.fillRect(at, 0, 1, 1);
    }
    $("compare-ticks").replaceChildren(...law.ticks.map((name, i) => {
      const tick = element("span", name);
      tick.style.left = `${(100 * i) / (law.ticks.length - 1)}%`;
      return tick;
    }));
    $("compare-law").textContent = `Second − first, ${law.title} from −100 % to 100 %: left of the middle the first run has more weight, right of it the second. Cells that agree to within ${data.error} (6 % for pooled cells) are in the middle.`;
  },

  tokens() {
    const parts = Object.keys(runs[0].axes).flatMap((name) => {
      const flags = differing(name);
      if (!flags) return [];
      const at = [];
      let count = 0;
      flags.forEach((flag, i) => { if (flag && count++ < 4) at.push(i); });
      const [ours, theirs] = runs.map((run) => run.axes[name]);
      return [`${count.toLocaleString("en")} of ${flags.length.toLocaleString("en")} tokens differ${Object.keys(runs[0].axes).length > 1 ? ` (${name})` : ""}: `,
        ...at.flatMap((i, place) => [place ? ", " : "", `${i.toLocaleString("en")} `, element("bdi", clip(quote(ours, i), 24)), " / ", element("bdi", clip(quote(theirs, i), 24))]), count > 4 ? ", … " : " "];
    });
    $("compare-tokens").replaceChildren(...(parts.length ? parts : ["Both runs have the same tokens."]));
  },

  /** The movable edge between the runs, as a slider over the plot. */
  handle() {
    this.slider = element("div", undefined, { className: "edge", tabIndex: 0 }, element("span", "first"), element("span", "second"));
    for (const [name, value] of Object.entries({ role: "slider", "aria-label": "Edge between the first run and the second", "aria-valuemin": 0, "aria-valuemax": 100 })) this.slider.setAttribute(name, value);
    $("compare-0").append(this.slider);
    const to = (edge) => {
      this.edge = clamp(edge, 0, 1);
      this.plots[0].later();
    };
    this.slider.addEventListener("pointerdown", (event) => this.slider.setPointerCapture(event.pointerId));
    this.slider.addEventListener("pointermove", (event) => {
      if (this.slider.hasPointerCapture(event.pointerId)) to((event.clientX - $("compare-0").getBoundingClientRect().left - this.plots[0].left) / this.plots[0].width);
    });
    this.slider.addEventListener("keydown", (event) => {
      const next = { ArrowLeft: this.edge - 0.02, ArrowRight: this.edge + 0.02, PageUp: this.edge + 0.2, PageDown: this.edge - 0.2, Home: 0, End: 1 }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      to(next);
    });
  },

  handleAt() {
    const { left, top, width, height } = this.plots[0];
    Object.assign(this.slider.style, { left: `${left + this.edge * width}px`, top: `${top}px`, height: `${height}px` });
    const share = Math.round(100 * this.edge);
    this.slider.setAttribute("aria-valuenow", share);
    this.slider.setAttribute("aria-valuetext", `${share} % of the width shows the first run`);
  },

  level(at, { level, fold }) {
    const [high, wide] = [2 ** (level + fold[0]), 2 ** (level + fold[1])];
    const place = { call: state.call, head: state.head, pool: state.pool, level, ...this.plots[0].visible(at, level)[0] };
    const made = [0, 1].map((n) => this.painters[n].codes(place, fold)?.exact ?? "computing …");
    const shown = `${high * wide > 1 ? `each cell is ${high.toLocaleString("en")} × ${wide.toLocaleString("en")} pairs, ${POOLS[state.pool]}` : "each cell is one weight"}; ${made[0] === made[1] ? made[0] : `first: ${made[0]}; second: ${made[1]}`}; the same view, scale and legend for both runs`;
    if ($("compare-level").textContent !== shown) $("compare-level").textContent = shown;
  },

  /** The weights of both runs under the pointer. */
  said() {
    const cells = state.hover ? [0, 1].map((n) => cellAt(this.plots[0], this.painters[n], state.hover)) : [];
    if (!cells[0] || !cells[1]) { $("compare-said").textContent = "\u00a0"; return; }
    const [p, q] = cells.map(({ code, fine }) => weight(code, fine));
    $("compare-said").replaceChildren(...cellWords(0, cells[0]), " in the first, ", element("b", words(cells[1].code, cells[1].fine)), ` in the second: ${pointsOf(q - p)}`);
  },

  /** The difference of the chosen row, from all of its weights. */
  async rows() {
    const place = { call: state.call, head: state.head, query: state.query };
    const found = await rowDifference(place.call, place.head, place.query);
    if (overtaken(place)) return;
    const { keys, queries } = runs[0].calls[place.call];
    const { axes } = runs[0];
    $("compare-row").replaceChildren("The row of ", ...named(axes[queries], place.query), " differs by ", element("b", percent(found.total)), " (half the sum of the absolute differences of its weights: total variation distance)", ...(found.most > 0 ? ["; most at ", ...named(axes[keys], found.at), `, ${pointsOf(found.d)}`] : []), found.exact === "exact" ? "." : `; ${found.exact}.`);
  },

  /** The heads whose figures differ most. */
  list() {
    const found = runs[0].calls.flatMap((call, number) => Array.from({ length: Math.min(call.heads, runs[1].calls[number].heads) }, (_, head) => ({ call: number, head, ...mostDifferent(number, head) })));
    this.shown = found.sort((a, b) => b.by - a.by).slice(0, 10);
    const line = ({ call, head, name, from, to }) => {
      const { layer, name: path } = runs[0].calls[call];
      const go = element("button", `${layer === null ? `call ${call}` : `layer ${layer}`}, head ${head}`, { type: "button", title: path });
      go.addEventListener("click", () => choose({ call, head }));
      return element("tr", undefined, {}, element("td", undefined, {}, go), element("td", METRICS[name].title.replace(/^weight on (the )?/, "")), element("td", `${roughly(from)} → ${roughly(to)}`, { className: "number" }), element("td", "…", { className: "number" }));
    };
    const titles = ["head", "largest difference in", "first → second", "chosen row"].map((name) => element("th", name, { scope: "col" }));
    this.lines = this.shown.map(line);
    $("compare-heads").replaceChildren(element("thead", undefined, {}, element("tr", undefined, {}, ...titles)), element("tbody", undefined, {}, ...this.lines));
  },

  /** The difference of the chosen row in each of these heads, computed one after the other. */
  async listRows() {
    const place = { query: state.query };
    for (const [number, { call, head }] of this.shown.entries()) {
      this.lines[number].toggleAttribute("aria-current", call === state.call && head === state.head);
      const { total } = await rowDifference(call, head, Math.min(place.query, runs[0].calls[call].Q - 1));
      if (overtaken(place)) return;
      this.lines[number].lastChild.textContent = roughly(total);
    }
  },
};
screens.push(comparison);

/** The name of the folder that a run was opened from, which distinguishes two runs of one model. */
function folderOf({ facts: { folder } }) {
  const name = typeof folder === "string" ? folder.split(/[/\\]/).filter(Boolean).pop() : undefined;
  return name ? [element("bdi", clip(name, 40), { className: "soft", title: folder })] : [];
}

/** A share with two significant digits; less than 0.01 % is not resolved. */
const roughly = (p) => (p > 0 && p < 1e-4 ? "< 0.01 %" : percent(p, 2));

/** The figure of a head with the largest difference between the runs. */
function mostDifferent(call, head) {
  let found = { by: -1, name: COMPARED_FIGURES[0], from: null, to: null };
  for (const name of COMPARED_FIGURES) {
    const [from, to] = runs.map((run) => run.calls[call].figures[name]?.[head] ?? null);
    if (from !== null && to !== null && Math.abs(to - from) > found.by) found = { by: Math.abs(to - from), name, from, to };
  }
  return found;
}

/** Half the sum of the absolute differences of a row: 0 for equal rows, 1 for rows without a common key. */
async function rowDifference(call, head, i) {
  const [ours, theirs] = await Promise.all([0, 1].map((n) => source.row(n, call, head, i)));
  let [total, most, at, d] = [0, 0, 0, 0];
  for (let j = 0; j < ours.coarse.length; j++) {
    const by = weight(theirs.coarse[j], theirs.fine?.[j]) - weight(ours.coarse[j], ours.fine?.[j]);
    total += Math.abs(by) / 2;
    if (Math.abs(by) > most) [most, at, d] = [Math.abs(by), j, by];
  }
  return { total, most, at, d, exact: ours.exact === theirs.exact ? ours.exact : `first: ${ours.exact}, second: ${theirs.exact}` };
}

if (runs.length > 1) keys.push({ keys: ["c"], label: "c", what: "next comparison mode", run: () => choose({ compare: nextOf(MODES, state.compare) }) });
