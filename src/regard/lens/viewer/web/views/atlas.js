// The overview of heads: one cell for every head of every call, with invisible buttons above the canvas of thumbnails.js.

const ATLAS = { most: 46, least: 8, label: 30, top: 20, title: 22 }; // pixels: cells, the names beside and above them

choosable("metric", METRICS.effect ? "effect" : "matrix", oneOf(METRICS));

const atlas = {
  name: "atlas",
  cells: [], // {call, head, button, x, y}
  rows: [], // {call, label}
  size: 0,

  build() {
    this.metric = element("select", undefined, { id: "metric", onchange: (event) => choose({ metric: event.target.value }) });
    this.heads = new HeadList("map-head", { pick: choose });
    $("atlas").replaceChildren(
      element("div", undefined, { className: "bar" }, element("h2", "All heads", { id: "atlas-title" })),
      element("div", undefined, { id: "atlas-box" }, element("canvas", undefined, { id: "atlas-canvas", ariaHidden: "true" }), element("div", undefined, { id: "grid", role: "grid", ariaLabel: "Heads: layers from top to bottom, heads from left to right" })),
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

  /** The metrics of all runs that were shown so far. */
  options() { this.metric.replaceChildren(...Object.entries(METRICS).map(([value, { title }]) => element("option", title, { value }))); },

  /** A button for every head, in rows by call; false if the heads are those that were shown before, as after a change of rules. */
  fill() {
    const { calls } = runs[state.run];
    const shown = JSON.stringify([Object.keys(METRICS), calls.map(({ name, layer, heads, queries, keys }, call) => [name, layer, heads, queries, keys, badges.worst(badges.at(call, null))])]);
    if (shown === this.filled) return false;
    this.filled = shown;
    this.options();
    const kinds = new Map(); // calls with the same axes are grouped
    runs[state.run].calls.forEach((call, number) => {
      const kind = call.queries === call.keys ? call.queries : `${call.queries} → ${call.keys}`;
      kinds.set(kind, [...(kinds.get(kind) ?? []), number]);
    });
    this.kinds = [...kinds];
    this.cells = [];
    this.rows = [];
    const parts = [];
    for (const [kind, calls] of this.kinds) {
      if (this.kinds.length > 1) parts.push(element("span", kind, { className: "kind" }));
      for (const call of calls) {
        const label = element("span", String(runs[state.run].calls[call].layer ?? call), { className: "layer", title: runs[state.run].calls[call].name, ariaHidden: "true" });
        const worst = badges.worst(badges.at(call, null));
        if (worst) label.dataset.badge = worst;
        this.rows.push({ call, label });
        const row = element("div", undefined, { role: "row", ariaLabel: callTitle(call) }, label);
        for (let head = 0; head < runs[state.run].calls[call].heads; head++) {
          const button = element("button", undefined, { type: "button", tabIndex: -1, role: "gridcell" });
          Object.assign(button.dataset, { call, head });
          this.cells.push({ call, head, button, x: 0, y: 0 });
          row.append(button);
        }
        parts.push(row);
      }
    }
    const most = Math.max(...runs[state.run].calls.map(({ heads }) => heads));
    this.names = Array.from({ length: most }, (_, head) => element("span", String(head), { className: "name", ariaHidden: "true" }));
    $("grid").replaceChildren(...this.names, ...parts);
    return true;
  },

  async draw(changed) {
    const any = (...names) => names.some((name) => changed.has(name));
    if (any("run")) this.heads.fill();
    if (any("run", "call", "head")) this.heads.show(state.call, state.head);
    const moved = any("run") && this.fill();
    const fresh = any("run", "metric", "size", "theme");
    if (moved || any("size", "theme")) this.place();
    if (fresh || any("scale")) {
      this.describeCells();
      headTable.draw();
      const painted = thumbnails.paint(true);
      if (!data.served) await painted;
    }
    if (fresh || any("call", "head")) this.point();
  },

  /** Computes the position of every cell. */
  place() {
    const { calls } = runs[state.run];
    const most = this.names.length;
    const split = (call) => (calls[call].groups < calls[call].heads && calls[call].groups > 1 ? Math.min(4, 64 / calls[call].groups) : 0); // between groups of heads that share a key/value head
    const room = $("atlas-box").clientWidth - ATLAS.label - 8;
    const titles = this.kinds.length > 1 ? this.kinds.length * ATLAS.title : 0;
    const across = Math.floor((room - Math.max(...calls.map((_, call) => split(call) * calls[call].groups))) / most);
    const down = Math.floor((0.62 * innerHeight - ATLAS.top - titles) / calls.length);
    this.size = clamp(Math.min(across, Math.max(14, down)), ATLAS.least, ATLAS.most);
    const cellsOf = (call) => this.cells.filter((cell) => cell.call === call);
    let y = ATLAS.top, line = 0;
    const kindNodes = $("grid").querySelectorAll(".kind");
    for (const [, numbers] of this.kinds) {
      if (this.kinds.length > 1) {
        kindNodes[line++].style.top = `${y}px`;
        y += ATLAS.title;
      }
      for (const call of numbers) {
        cellsOf(call).forEach((cell, at) => {
          const group = Math.floor((at * calls[call].groups) / calls[call].heads) * split(call);
          Object.assign(cell, { x: ATLAS.label + at * this.size + group, y, at });
          cell.button.style.cssText = `left:${cell.x}px;top:${y}px;width:${this.size - 1}px;height:${this.size - 1}px`;
        });
        this.rows.find((row) => row.call === call).label.style.cssText = `top:${y}px;line-height:${this.size - 1}px;width:${ATLAS.label - 7}px`;
        y += this.size;
      }
    }
    const first = cellsOf(this.kinds[0][1][0]);
    const every = this.size < 13 ? 4 : this.size < 18 ? 2 : 1; // labels are shown for every n-th head
    this.rows.forEach(({ label }, at) => { label.classList.toggle("mute", this.size < 14 && at % 2 > 0); });
    this.names.forEach((node, head) => {
      node.hidden = head % every > 0 || head >= first.length;
      if (!node.hidden) node.style.cssText = `left:${first[head].x}px;width:${this.size - 1}px`;
    });
    this.height = y;
    this.width = Math.max(...this.cells.map(({ x }) => x)) + this.size;
    $("grid").style.cssText = `width:${this.width}px;height:${y}px`;
  },

  /** The labels of cells for screen readers, and the note beneath the grid. */
  describeCells() {
    this.metric.value = state.metric;
    const notes = [METRICS[state.metric].note];
    if (state.metric === "matrix") notes[0] = `${notes[0].replace(/\.$/, "")}${valuedWords(state.run, { call: 0, head: 0 }, valuedThumbnails(state.run, 0))}.`;
    const counts = this.cells.map(({ call, head }) => metrics.rows(state.metric, call, head)).filter((count) => count !== undefined);
    const [least, most] = [Math.min(...counts), Math.max(...counts)];
    if (counts.length) notes.push(`Here: ${least < most ? `${least.toLocaleString("en")} to ` : ""}${counted(most, "row")}.`); // a mean of few rows says little
    if (state.metric === "distance") notes.push(`Linear colors from 0 to ${metrics.top("distance")} tokens.`);
    else if (!["matrix", "effect"].includes(state.metric)) notes.push("Linear colors from 0 to 100 %.");
    if (runs[state.run].calls.some(({ groups, heads }) => groups < heads)) notes.push("Brackets join heads that share a key/value head (grouped-query attention).");
    $("atlas-note").textContent = notes.join(" ");
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
    const cell = this.cells.find(({ call, head }) => call === state.call && (mean || head === state.head));
    const focused = before && document.activeElement === before;
    if (before) before.tabIndex = -1;
    for (const { button } of this.cells) if (button.ariaSelected === "true") button.ariaSelected = "false";
    Object.assign(cell.button, { ariaSelected: String(!mean), tabIndex: 0 });
    if (focused) cell.button.focus({ preventScroll: true });
    const box = $("atlas-box");
    if (cell.y < box.scrollTop || cell.y + this.size > box.scrollTop + box.clientHeight) box.scrollTop = cell.y - box.clientHeight / 2;
    const { formula, name } = callNow();
    const rules = [["scale", formula.scale.toPrecision(4)], ["score", formula.score], ["mask", formula.mask], ["sinks", formula.sinks ? "yes" : null], ["layer", name]];
    const lines = [...metrics.described(state.call, state.head), ...(state.head === "all" ? [] : rules.filter(([, value]) => value))];
    $("figures").replaceChildren(...lines.map(([name, value]) => element("div", undefined, {}, element("dt", name), element("dd", undefined, {}, ...String(value).split(/(?<=[._])/).flatMap((part) => [part, element("wbr")])))));
  },

  /** Arrow keys move through the heads, Enter chooses. */
  walk(event) {
    const move = stepOf(event, ARROWS);
    const from = this.cells.find(({ button }) => button === document.activeElement);
    if (!move || !from) return;
    const [down, right] = move;
    const ahead = this.cells.filter((cell) => (right ? cell.y === from.y && (cell.at - from.at) * right > 0 : (cell.y - from.y) * down > 0));
    const far = ({ x, y }) => Math.abs(y - from.y) * 1e4 + Math.abs(x - from.x);
    const next = ahead.reduce((best, cell) => (!best || far(cell) < far(best) ? cell : best), null);
    if (!next) return;
    for (const { button } of this.cells) if (button.tabIndex === 0) button.tabIndex = -1;
    next.button.tabIndex = 0;
    next.button.focus();
  },
};
screens.push(atlas);
