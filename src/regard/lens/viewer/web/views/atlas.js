// The overview of heads: a button for every head of every call, on which thumbnails.js shows its matrix or a figure.

const ATLAS = { most: 46, least: 8, label: 30, top: 20, title: 22 }; // pixels: cells, the names beside and above them

choosable("metric", METRICS.differs ? "differs" : METRICS.effect ? "effect" : "matrix", oneOf(METRICS));

const atlas = {
  name: "atlas",
  rows: [], // {node, label, buttons} of each call
  size: 0,
  get cells() { return this.rows.flatMap(({ buttons }, call) => buttons.map((button, head) => ({ call, head, button }))); },

  build() {
    this.metric = element("select", undefined, { id: "metric", onchange: (event) => choose({ metric: event.target.value }) });
    this.heads = new HeadList("map-head", { pick: choose });
    $("atlas").replaceChildren(
      element("div", undefined, { className: "bar" }, element("h2", "All heads", { id: "atlas-title" })),
      element("div", undefined, { id: "atlas-box" }, element("div", undefined, { id: "grid", role: "grid", ariaLabel: "Heads: layers from top to bottom, heads from left to right" })),
      element("div", undefined, { id: "atlas-table", hidden: true }),
      element("p", undefined, { id: "atlas-note", className: "note" }),
      folds.make("heads", "Figures and means", element("div", undefined, { id: "atlas-choices" }, element("label", "shown head ", {}, this.heads.node),
        element("label", "colors of all heads ", {}, this.metric), button("as a table", () => headTable.turn(), { id: "atlas-as-table", ariaPressed: "false" })),
      element("dl", undefined, { id: "figures", ariaLabel: "Figures of the chosen head" })),
    );
    $("atlas-box").addEventListener("scroll", () => thumbnails.paint(false), { passive: true });
    $("grid").addEventListener("click", (event) => {
      const button = event.target.closest("button");
      const place = button && { call: Number(button.dataset.call), head: Number(button.dataset.head) };
      if (place) event.shiftKey ? comparison.add(place) : choose(place);
    });
    $("grid").addEventListener("keydown", (event) => this.walk(event));
    this.fill();
  },

  /** A button for every head, in rows by call; false if the heads are those that were shown before, as after a change of rules. */
  fill() {
    const { calls } = runs[state.run];
    const shown = JSON.stringify([Object.keys(METRICS), calls.map(({ name, layer, heads, queries, keys }, call) => [name, layer, heads, queries, keys, badges.worst(badges.at(call, null))])]);
    if (shown === this.filled) return false;
    this.filled = shown;
    this.metric.replaceChildren(...chooser(titlesIn(METRICS)).children); // of all runs that were shown so far
    const kinds = new Map(); // calls with the same axes are together
    runs[state.run].calls.forEach((call, number) => {
      const kind = call.queries === call.keys ? call.queries : `${call.queries} → ${call.keys}`;
      kinds.set(kind, [...(kinds.get(kind) ?? []), number]);
    });
    this.rows = runs[state.run].calls.map((call, number) => this.row(call, number));
    const parts = [...kinds].flatMap(([kind, numbers]) => [...(kinds.size > 1 ? [element("span", kind, { className: "kind" })] : []), ...numbers.map((number) => this.rows[number].node)]);
    const widest = runs[state.run].calls.reduce((most, call) => (call.heads > most.heads ? call : most));
    this.names = Array.from({ length: widest.heads }, (_, head) => element("span", head, { className: "name" }));
    $("grid").replaceChildren(element("div", undefined, { className: "names", ariaHidden: "true" }, element("span", undefined, { className: "layer" }), ...this.grouped(widest, this.names)), ...parts);
    return true;
  },

  /** The heads of a call: {node, label, buttons}. */
  row(call, number) {
    const label = element("span", call.layer ?? number, { className: "layer", title: call.name, ariaHidden: "true" });
    const worst = badges.worst(badges.at(number, null));
    if (worst) label.dataset.badge = worst;
    const buttons = Array.from({ length: call.heads }, (_, head) => {
      const made = element("button", undefined, { type: "button", tabIndex: -1, role: "gridcell" });
      Object.assign(made.dataset, { call: number, head });
      return made;
    });
    return { node: element("div", undefined, { role: "row", ariaLabel: callTitle(number) }, label, ...this.grouped(call, buttons)), label, buttons };
  },

  /** The nodes of heads, of which those that share a key/value head (grouped-query attention) are together. */
  grouped({ heads, groups }, nodes) {
    if (groups === heads) return nodes;
    const share = heads / groups;
    return Array.from({ length: groups }, (_, group) => element("span", undefined, { className: "group", role: "presentation" }, ...nodes.slice(group * share, (group + 1) * share)));
  },

  async draw(changed) {
    const any = (...names) => names.some((name) => changed.has(name));
    if (any("run")) this.heads.fill();
    if (any("run", "call", "head")) this.heads.show(state.call, state.head);
    const moved = any("run") && this.fill();
    const fresh = any("run", "metric", "size", "theme");
    if (moved || any("size", "theme")) this.place();
    if (fresh || any("scale")) {
      const painted = this.show();
      if (!data.served) await painted;
    }
    if (fresh || any("call", "head")) this.point();
  },

  /** What the metric says of every head, in the grid and in the table. */
  show() {
    this.describeCells();
    headTable.draw();
    return thumbnails.paint(true);
  },

  /** Computes the size of the cells, so that all heads of a call fit beside each other. */
  place() {
    const { calls } = runs[state.run];
    const gaps = Math.max(...calls.map(({ groups, heads }) => (groups < heads ? 4 * groups : 0)));
    const across = Math.floor(($("atlas-box").clientWidth - ATLAS.label - 8 - gaps) / this.names.length);
    const titles = $("grid").querySelectorAll(".kind").length * ATLAS.title;
    const down = Math.floor((0.62 * innerHeight - ATLAS.top - titles) / calls.length);
    this.size = clamp(Math.min(across, Math.max(14, down)), ATLAS.least, ATLAS.most);
    $("grid").style.setProperty("--cell", `${this.size}px`);
    $("grid").classList.toggle("small", this.size < 22);
    const every = this.size < 13 ? 4 : this.size < 18 ? 2 : 1; // labels are shown for every n-th head
    this.rows.forEach(({ label }, at) => { label.classList.toggle("mute", this.size < 14 && at % 2 > 0); });
    this.names.forEach((node, head) => { node.classList.toggle("mute", head % every > 0); });
  },

  /** The labels of cells for screen readers, and the note beneath the grid. */
  describeCells() {
    this.metric.value = state.metric;
    $("atlas-title").textContent = `All heads${state.metric === "matrix" ? "" : `: ${METRICS[state.metric].title}`}`;
    const notes = [METRICS[state.metric].note];
    if (state.metric === "matrix") notes[0] = `${notes[0].replace(/\.$/, "")}${valuedWords(state.run, { call: 0, head: 0 }, valuedThumbnails(state.run, 0))}.`;
    const counts = this.cells.map(({ call, head }) => metrics.rows(state.metric, call, head)).filter((count) => count !== undefined);
    const [least, most] = [Math.min(...counts), Math.max(...counts)];
    if (counts.length) notes.push(`Here: ${least < most ? `${least.toLocaleString("en")} to ` : ""}${counted(most, "row")}.`); // a mean of few rows says little
    if (state.metric === "distance") notes.push(`Linear colors from 0 to ${metrics.top("distance")} tokens.`);
    else if (!["matrix", "effect"].includes(state.metric)) notes.push("Linear colors from 0 to 100 %.");
    if (runs[state.run].calls.some(({ groups, heads }) => groups < heads)) notes.push("Brackets join heads that share a key/value head (grouped-query attention).");
    $("atlas-note").textContent = [...notes, noMeans(state.run)].join(" ").trim();
    for (const { call, head, button } of this.cells) {
      const found = badges.at(call, head);
      const value = state.metric === "matrix" ? ["spread", "sink"] : [state.metric];
      const values = value.map((name) => `${METRICS[name].title} ${metrics.said(name, call, head)}`);
      button.title = `${callTitle(call)}, head ${head}: ${values.join(", ")}`;
      button.ariaLabel = [button.title, ...found.map(({ severity, check }) => `${severity}: ${check}`)].join("; ");
    }
  },

  /** Marks the chosen head, scrolls to it, and lists its metrics. */
  point() {
    const before = $("grid").querySelector('[tabindex="0"]');
    const mean = isMean(state.head); // then no cell is marked, and the keyboard begins at the first head of the call
    const { node, buttons } = this.rows[state.call], chosen = buttons[mean ? 0 : state.head];
    const focused = before && document.activeElement === before;
    if (before) before.tabIndex = -1;
    for (const { button } of this.cells) if (button.ariaSelected === "true") button.ariaSelected = "false";
    Object.assign(chosen, { ariaSelected: String(!mean), tabIndex: 0 });
    if (focused) chosen.focus({ preventScroll: true });
    const box = $("atlas-box"), top = node.offsetTop;
    if (top < box.scrollTop || top + this.size > box.scrollTop + box.clientHeight) box.scrollTop = top - box.clientHeight / 2;
    const { formula, name } = callNow();
    const rules = [["scale", formula.scale.toPrecision(4)], ["score", formula.score], ["mask", formula.mask], ["sinks", formula.sinks ? "yes" : null], ["layer", name]];
    const lines = [...metrics.described(state.call, state.head), ...(state.head === "all" ? [] : rules.filter(([, value]) => value))];
    $("figures").replaceChildren(...lines.map(([name, value]) => element("div", undefined, {}, element("dt", name), element("dd", undefined, {}, ...String(value).split(/(?<=[._])/).flatMap((part) => [part, element("wbr")])))));
  },

  /** Arrow keys move through the heads, Enter chooses. */
  walk(event) {
    const move = stepOf(event, ARROWS), from = document.activeElement;
    if (!move || !from.dataset.head) return;
    const rows = [...$("grid").querySelectorAll("[role=row]")];
    const row = rows[rows.indexOf(from.closest("[role=row]")) + move[0]]?.querySelectorAll("button");
    const next = row?.[Math.min(Number(from.dataset.head) + move[1], row.length - 1)];
    if (!next) return;
    for (const { button } of this.cells) if (button.tabIndex === 0) button.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  },
};
screens.push(atlas);
