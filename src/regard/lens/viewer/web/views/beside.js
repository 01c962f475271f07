// Two heads side by side: the maps of the chosen head and of a second one, with the same view, row and pointer.

choosable("second", null, { // {call, head}: the second head, or a mean of heads
  write: (second) => (second ? `${second.call}.${second.head}` : undefined),
  read(text) {
    const [call, head, ...rest] = text.split(".");
    const found = { call: position.read(call), head: isMeanName(head) ? head : position.read(head ?? "") };
    return rest.length || found.call === undefined || found.head === undefined ? undefined : found;
  },
});

/** The second head, if it exists in the run that is shown and its map has the rows and keys of the chosen head; otherwise null. */
function secondNow() {
  const call = state.second && runs[state.run].calls[state.second.call];
  if (!call || !alikeCalls(call, callNow())) return null;
  return isMean(state.second.head) ? (noMeans(state.run) ? null : state.second) : state.second.head < call.heads ? state.second : null;
}

const beside = {
  name: "beside", turn: 0,

  build() {
    this.painters = [headNow, () => secondNow() ?? headNow()].map((at) => painterOf(() => ({ n: state.run, ...at() })));
    this.lists = [
      new HeadList("beside-first", { pick: choose }),
      new HeadList("beside-second", { none: "none", fits: (call) => alikeCalls(call, callNow()), pick: (second) => choose({ second }) })];
    this.swap = button("exchange", () => choose({ ...secondNow(), second: { call: state.call, head: state.head } }), { id: "beside-exchange", title: "Exchange the two heads" });
    this.note = element("p", null, { className: "note", id: "beside-note" });
    this.said = element("p", null, { className: "readout", id: "beside-said" });
    this.row = element("p", null, { className: "readout", id: "beside-row" });
    this.titles = [0, 1].map((at) => element("h3", null, { id: `beside-title-${at}` }));
    this.holders = [0, 1].map((at) => element("div", null, { id: `beside-${at}` }));
    this.body = element("div", null, { id: "beside-body", hidden: true }, ...[0, 1].map((at) => element("div", null, {}, this.titles[at], this.holders[at])), this.said, this.row);
    $("beside").append(
      element("div", null, { className: "bar" }, element("h2", "Two heads side by side", { id: "beside-title" }),
        element("div", null, { className: "tools" }, ...this.lists.map(({ node }, at) => element("label", at ? "second " : "first ", {}, node)), this.swap)),
      this.note, this.body);
    this.plots = this.painters.map((painter, at) => new Plot(this.holders[at], { name: `beside-${at}`, margins: "labels", painter: () => painter }));
    this.plots.forEach(drive);
  },

  async draw(changed) {
    const any = (...names) => names.some((name) => changed.has(name));
    const second = secondNow();
    if (any("run", "call")) for (const list of this.lists) list.fill();
    if (any("run", "call", "head", "second")) this.names(second);
    if (!second) {
      for (const plot of this.plots) {
        tiles.want(plot.name, []);
        plot.palette = null; // the theme may change before they are seen again
      }
      return;
    }
    if (any("query", "key") && !any("view")) this.plots[0].follow();
    const place = { run: state.run, call: state.call, head: state.head, query: state.query };
    const tracks = this.painters.some((painter) => !painter.tracks()) && Promise.all([tracksOf(state.run), tracksOf(state.run, second)]).then(() => this.plots.forEach((plot) => plot.later()));
    await Promise.all([...this.plots.map((plot) => plot.draw(changed)), tracks, any("run", "call", "head", "second", "query") && this.apart(place, second)]);
    this.values();
  },

  /** The lists, the titles, and the mark of the second head among all heads. */
  names(second) {
    this.lists[0].show(state.call, state.head);
    this.lists[1].show(second?.call ?? null, second?.head);
    this.swap.hidden = this.body.hidden = !second;
    this.note.textContent = second ? "Both maps have the same colors, rows and keys. A row or key that is chosen in one is chosen in the other." : `Choose a second head in the list${touching() ? "." : ", or among all heads with Shift and a click or Enter."}`;
    for (const { call, head, button } of atlas.cells) {
      const marked = call === second?.call && head === second?.head;
      button.classList.toggle("second", marked);
      button.ariaDescription = marked ? "second head" : null;
    }
    if (!second) return;
    const titles = [headTitle(), headTitle(second.call, second.head)].map(capital);
    titles.forEach((title, at) => {
      this.titles[at].textContent = title;
      this.plots[at].room = this.holders[at].clientWidth; // it was hidden before
      this.plots[at].canvas.setAttribute("aria-label", `${at ? "Second" : "First"} map: ${title}`);
    });
  },

  /** The weights of both heads under the pointer; otherwise those of the chosen pair. */
  values() {
    const second = secondNow();
    if (!second) return;
    const spot = state.hover ?? (state.key === null ? null : { row: state.query, column: state.key });
    const cells = spot ? this.plots.map((plot, at) => cellAt(plot, this.painters[at], spot)) : [];
    if (!cells[0] || !cells[1]) {
      this.said.textContent = spot ? "…" : "Choose a cell to see its weight in both heads.";
      return;
    }
    const value = (cell, at) => [element("b", words(cell.code, cell.fine)), leftWords(state.run, cell, this.painters[at].tracks()), ` in ${this.titles[at].textContent.replace(/^./, (first) => first.toLowerCase())}`];
    const { queries, keys } = callNow();
    this.said.replaceChildren(...ofCell(axis(queries), cells[0].i, cells[0].high, "rows"), " → ", ...ofCell(axis(keys), cells[0].j, cells[0].wide, "keys"), ": ", ...value(cells[0], 0), ", ", ...value(cells[1], 1));
  },

  /** How far the chosen row is apart in the two heads, from all of its weights. */
  async apart(place, second) {
    const turn = ++this.turn;
    const [ours, theirs] = await Promise.all([place, second].map(({ call, head }) => source.row(place.run, call, head, place.query)));
    if (turn !== this.turn) return;
    let total = 0;
    for (let j = 0; j < ours.coarse.length; j++) total += Math.abs(weight(ours.coarse[j], ours.fine?.[j]) - weight(theirs.coarse[j], theirs.fine?.[j])) / 2;
    const exact = [...new Set([ours.exact, theirs.exact])].filter((each) => each !== "exact");
    this.row.replaceChildren("The rows of ", ...named(queryAxis(), place.query), " differ by ", element("b", percent(total)), ` (total variation distance: half the sum of the absolute differences of their weights)${exact.length ? `; ${exact.join("; ")}` : ""}.`);
  },

  /** Chooses the second head, and goes to the two maps. */
  async add(second) {
    if (!alikeCalls(runs[state.run].calls[second.call], callNow())) {
      announce("This head has other rows or keys than the chosen one.");
      return;
    }
    await choose({ second });
    await places.go("beside");
  },
};
screens.push(beside);
keys.push({ keys: [], label: "Shift Enter", what: "among all heads: choose the second head" }); // handled by the overview of heads
