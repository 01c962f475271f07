// The map of the chosen head: the attention matrix, and the value under the pointer as text.

choosable("view", null, { // {row, column, span}: the first visible row and key, and the number of visible keys
  write: (view) => (view ? [view.row, view.column, view.span].map((value) => Math.round(value * 100) / 100).join(",") : undefined),
  read(text) {
    if (!/^[\d.]{1,12},[\d.]{1,12},[\d.]{1,12}$/.test(text)) return undefined;
    const [row, column, span] = numbersOf(text);
    return span >= 1 ? { row, column, span } : undefined;
  },
});

const map = {
  name: "map",
  painter: painterOf(() => ({ n: state.run, ...headNow() })),

  build() {
    const section = $("map");
    section.append(
      element("div", undefined, { className: "bar" }, element("h2", "Attention matrix", { id: "map-title" }),
        tool("whole matrix", "Show the whole matrix", () => choose({ view: null }), { id: "zoom-whole" })),
      element("p", undefined, { id: "map-alarm", className: "alarm", hidden: true, role: "alert" }),
      element("div", undefined, { id: "map-plot" }),
      element("div", undefined, { id: "legend", role: "group", ariaLabel: "Color legend" }, rampBox({ id: "ramp-box" }), element("ul", undefined, { id: "swatches", className: "swatches" })),
      element("p", undefined, { id: "map-pointer", className: "readout soft" }),
      element("div", undefined, { className: "readout map-under" },
        element("p", undefined, { id: "map-pinned" }), element("p", undefined, { id: "map-level", className: "note" })),
      element("div", undefined, { className: "unseen", id: "map-table" }),
    );
    this.plot = new Plot($("map-plot"), { name: "map", margins: "tracks", painter: () => this.painter });
    this.plot.after = (at, detail) => this.level(at, detail);
    this.plot.aside = (place) => { this.beside = place; this.pointer(); };
    drive(this.plot);
  },

  async draw(changed) {
    if (["query", "key"].some((name) => changed.has(name)) && !changed.has("view")) this.plot.follow();
    $("zoom-whole").hidden = !state.view;
    const drawn = this.plot.draw(changed);
    const moved = ["run", "call", "head", "query", "key"].some((name) => changed.has(name));
    const place = { run: state.run, call: state.call, head: state.head, query: state.query, key: state.key };
    await Promise.all([drawn, moved && this.pinned(place)]);
    this.pointer();
  },

  /** The pinned cell as text, and the cells around it as a table for screen readers. */
  async pinned(place) {
    const call = callNow();
    const column = place.key ?? Math.min(place.query, call.K - 1);
    const around = (middle, most) => Array.from({ length: 5 }, (_, step) => middle - 2 + step).filter((at) => at >= 0 && at < most);
    const [rows, columns] = [around(place.query, Math.min(call.Q, rowsNow())), around(column, call.K)];
    const [codes] = await Promise.all([Promise.all(rows.map((i) => Promise.all(columns.map((j) => weightAt(place.run, i, j))))), tracksOf(place.run)]);
    if (overtaken(place)) return;
    const table = element("table", undefined, {}, element("caption", "Weights around the pinned cell; rows attend to columns"),
      element("tr", undefined, {}, element("td"), ...columns.map((j) => element("th", undefined, { scope: "col" }, ...named(keyAxis(), j)))),
      ...rows.map((i, r) => element("tr", undefined, {}, element("th", undefined, { scope: "row" }, ...named(queryAxis(), i)), ...codes[r].map(({ code, fine }) => element("td", words(code, fine))))));
    $("map-table").replaceChildren(table);
    const at = codes[rows.indexOf(place.query)]?.[columns.indexOf(column)];
    const cell = { i: place.query, j: column, high: 1, wide: 1, ...at }, tracks = tracksNow(place.run);
    const text = place.key === null || !at ? [] : [...cellWords(place.run, cell), othersWords(tracks, cell), movesWords(tracks, cell), `, ${at.exact}`];
    $("map-pinned").replaceChildren(...text);
    $("map-pinned").hidden = !text.length;
    this.plot.canvas.setAttribute("aria-label", `Map of ${headTitle()}, row ${wordOf(queryAxis(), place.query, 40)} (${place.query}). ${$("map-pinned").textContent}`);
  },

  /** The value under the pointer. */
  pointer() {
    const tracks = tracksNow(state.run);
    if (this.beside && tracks) {
      const { row, column } = this.beside;
      $("map-pointer").replaceChildren(...(column === undefined ? [...named(queryAxis(), row), `: ${rowWords(tracks, row)}, largest weight ${percent(tracks.maximum[row], 2)}`]
        : [...named(keyAxis(), column), ` ${TRACKS.received.words(tracks.received[column], callNow())}`]));
      return;
    }
    const cell = state.hover && cellAt(this.plot, this.painter, state.hover);
    if (!cell) { $("map-pointer").textContent = "Click a cell for its row; Ctrl + wheel zooms, dragging moves."; return; }
    $("map-pointer").replaceChildren(...cellWords(state.run, cell), othersWords(tracks, cell), movesWords(tracks, cell));
  },

  /** The size of the cells, how they were computed, and a warning about invalid weights anywhere in the matrix. */
  level(at, { level, fold }) {
    const [high, wide] = [Math.min(callNow().Q, 2 ** (level + fold[0])), Math.min(callNow().K, 2 ** (level + fold[1]))];
    const spots = this.plot.visible(at, level), spot = spots[0];
    legend.swatches(new Set(spots.flatMap((each) => [...new Set(this.painter.codes({ call: state.call, head: state.head, pool: state.pool, level, ...each }, fold)?.coarse)])));
    const tile = spot && this.painter.codes({ call: state.call, head: state.head, pool: state.pool, level, ...spot }, fold);
    const made = isMean(state.head) && high * wide === 1 ? `each cell is the mean of ${countOf(state.run, state.call, state.head).toLocaleString("en")} weights` : ofCells(high, wide);
    const shown = `${made}; ${tile ? tile.exact : "computing …"}${valuedWords(state.run, headNow())}`;
    if ($("map-level").textContent !== shown) $("map-level").textContent = shown;
    const whole = this.painter.codes({ call: state.call, head: state.head, pool: state.pool, level: topLevel(callNow()), row: 0, column: 0 }, [0, 0]);
    this.warn(whole?.alarms);
  },

  warn(alarms) {
    const kinds = alarms ? [[alarms[LEAK], "weight where the mask forbids it", LEAK], [alarms[NAN], "not a number", NAN], [alarms[OUT], "out of range", OUT]].filter(([count]) => count) : [];
    const name = kinds.map(([count, what]) => `${what} ${count}`).join();
    if (name === this.warned) return;
    this.warned = name;
    $("map-alarm").hidden = !kinds.length;
    $("map-alarm").replaceChildren(...kinds.map(([count, what, code]) => {
      const show = button("show", () => this.find(code), { title: "Show the first one" });
      return element("span", `${what[0].toUpperCase()}${what.slice(1)}: ${counted(count, "cell")} of the whole map `, {}, show);
    }));
  },

  /** Shows the first weight with this code, found from the coarsest level down. */
  async find(code) {
    const run = state.run, call = callNow();
    let [i, j] = [0, 0];
    for (let level = topLevel(call), first = true; level >= 0; level--, first = false) {
      const [r, c] = first ? [0, 0] : [2 * i, 2 * j];
      const tile = await tiles.load({ n: run, call: state.call, head: state.head, pool: state.pool, level, row: Math.floor(r / TILE), column: Math.floor(c / TILE) });
      const [top, left] = [Math.floor(r / TILE) * TILE, Math.floor(c / TILE) * TILE];
      const [down, right] = first ? [tile.rows, tile.columns] : [Math.min(2, tile.rows - (r - top)), Math.min(2, tile.columns - (c - left))];
      const cells = Array.from({ length: down * right }, (_, at) => [r + Math.floor(at / right), c + (at % right)]);
      const hit = cells.find(([y, x]) => tile.coarse[(y - top) * tile.columns + x - left] === code);
      if (!hit) return;
      [i, j] = hit;
    }
    const seen = Math.min(this.plot.home, this.plot.width / 24);
    await choose({ query: i, key: j, view: { row: Math.max(0, i - seen / 2), column: Math.max(0, j - seen / 2), span: Math.max(1, seen) } });
    this.plot.canvas.focus();
  },
};
screens.push(map);

/** The codes of one weight. */
async function weightAt(n, i, j) {
  const tile = await tiles.load({ n, call: state.call, head: state.head, pool: state.pool, level: 0, row: Math.floor(i / TILE), column: Math.floor(j / TILE) });
  const at = (i % TILE) * tile.columns + (j % TILE);
  return { code: tile.coarse[at], fine: tile.fine?.[at], exact: tile.exact };
}

keys.push({ keys: ["+", "="], label: "+", what: "zoom in", run: () => map.plot.zoom(2) }, { keys: ["-"], label: "−", what: "zoom out", run: () => map.plot.zoom(0.5) },
  { keys: ["0"], label: "0", what: "show the whole matrix", run: () => choose({ view: null }) });
