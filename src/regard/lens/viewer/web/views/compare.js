// The comparison of two heads of one run, or of two runs: side by side in one view, or as a difference. The texts, tokens, lengths and
// models of two runs may differ: what corresponds is found by alignment.js.

const ODD = [[BOTH_MASKED, "masked in both", "hatch"], [ONE_MASKED, "masked in one only", "out"], [ONE_TEXT, "only in one text", "lone"], [NEITHER, "not a number", "nan"], [FORBIDDEN, "forbidden weight", "leak"]];
const MODES = { side: "side by side", difference: "difference" };

choosable("compare", GIVEN > 1 ? "difference" : "side", oneOf(MODES));
choosable("second", null, { // {call, head}: the second head, or a mean of heads; of two runs, the head of the other one
  write: (second) => (second ? `${second.call}.${second.head}` : undefined),
  read(text) {
    const [call, head, ...rest] = text.split(".");
    const found = { call: position.read(call), head: isMeanName(head) ? head : position.read(head ?? "") };
    return rest.length || found.call === undefined || found.head === undefined ? undefined : found;
  },
});

/** The numbers of two compared runs; null if heads of one run are compared. */
const runsNow = () => (state.original && live.shown ? [0, live.shown] : GIVEN > 1 ? [0, 1] : null);
/** The run of the second head: the other one of two, or the one that is shown. */
const secondRun = () => runsNow()?.find((n) => n !== state.run) ?? state.run;

/** The second head, if its run has it; of one run, if it has the rows and keys of the chosen head. Otherwise null. */
function secondNow() {
  const n = secondRun(), call = state.second && runs[n].calls[state.second.call];
  if (!call || (n === state.run && !alikeCalls(call, callNow()))) return null;
  return isMean(state.second.head) ? (runsNow() || noMeans(n) ? null : state.second) : state.second.head < call.heads ? state.second : null;
}

const comparison = {
  name: "compare", comparisons: new Memory(8), turn: 0,

  build() {
    const section = $("compare");
    const fits = (call) => secondRun() !== state.run || alikeCalls(call, callNow());
    this.second = new HeadList("compare-second", { none: GIVEN > 1 ? "the corresponding one" : "none", fits, run: secondRun, pick: (second) => choose({ second, compare: second && GIVEN < 2 ? "side" : state.compare }) });
    this.mode = new Choice("compare-mode", "How the runs are compared", MODES, (value) => choose({ compare: value }));
    this.ramp = rampBox();
    if (GIVEN > 1) document.querySelector("main").before(section);
    this.box = folds.make("compare", GIVEN > 1 ? "Comparison" : "Compare with another head",
      element("div", undefined, { className: "tools" }, element("label", "with the head ", {}, this.second.node), this.mode.node),
      this.body = element("div", undefined, { id: "compare-all" },
      element("p", undefined, { className: "compare-names" }),
      element("p", undefined, { id: "compare-tokens", className: "soft" }),
      element("div", undefined, { id: "compare-legend" }, this.ramp,
        element("ul", undefined, { className: "compare-swatches swatches" }),
        element("p", "Second − first, linear from −100 % to 100 %: left of the middle the first has more weight, right of it the second.", { id: "compare-law", className: "soft" })),
      element("div", undefined, { className: "compare-body" },
        element("div", undefined, { id: "compare-0" }), element("div", undefined, { id: "compare-1" }),
        this.lists = element("div", undefined, {}, element("h3", undefined, { id: "compare-keys-title" }), keysThatDiffer.build())),
      element("p", undefined, { id: "compare-said", className: "readout" }), element("p", undefined, { id: "compare-row", className: "readout", ariaLive: "polite" }),
      element("p", undefined, { id: "compare-level", className: "note" })),
    );
    section.append(this.box);
    this.plots = [0, 1].map((side) => {
      $(`compare-${side}`).append(element("span", side ? "second" : "first", { className: "of-run" }));
      const plot = new Plot($(`compare-${side}`), { name: `compare-${side}`, margins: "labels", run: () => this.now.names[state.compare === "side" ? side : 2], painter: () => this.painter(side) });
      plot.canvas.setAttribute("aria-label", side ? "Map of the second run" : "Map of the first run");
      plot.differing = (kind) => this.now.differing(kind, state);
      drive(plot);
      return plot;
    });
    this.plots[0].after = (at, detail) => this.level(at, detail);
    this.numbers = new Choice("compare-run", "Run that the other sections show", { 0: "show the first", 1: "the second" }, (value) => this.now.place.choose({ run: this.now.sides[value] }));
  },

  /** The comparison of the present runs and heads; null if there is none, or a third run is shown. */
  current() {
    const partner = secondNow(), sides = runsNow() ?? (partner && [state.run, state.run]);
    if (!sides || !sides.includes(state.run)) return null;
    const lead = state.run === sides[1] && state.run !== sides[0] ? 1 : 0;
    return this.comparisons.get(JSON.stringify([sides, lead, partner]), () => {
      const made = new Comparison(sides, lead, partner);
      made.place = made.plain ? pagePlace : new MergedPlace(made);
      const lone = made.plain ? null : (kind, from, to) => made.lone({ call: state.call, head: state.head }, kind, from, to);
      made.now = () => [0, 1].map((side) => ({ n: made.names[side], ...(made.plain ? made.heads(headNow())[side] : headNow()) }));
      made.painters = { side: [0, 1].map((side) => painterOf(() => made.now()[side], sides[side])), difference: differencePainter(made.now, lone) };
      return made;
    });
  },

  painter(side) {
    const { painters } = this.now;
    return state.compare === "side" ? painters.side[side] : painters.difference;
  },

  async draw(changed) {
    if (["run", "call"].some((name) => changed.has(name))) this.second.fill();
    if (["run", "call", "head", "second"].some((name) => changed.has(name))) this.mark();
    const now = state.open.includes("compare") ? this.current() : null;
    const other = now !== this.now, beside = now && GIVEN > 1 ? this.lists : document.querySelector("main");
    if ($("atlas").parentNode !== beside) beside.append($("atlas")); // all heads, colored by their differences
    this.body.hidden = this.mode.node.hidden = !now;
    if (!now) {
      this.now = null;
      for (const plot of this.plots) {
        plot.room = 0; // as long as it is hidden, nothing is drawn
        tiles.want(plot.name, []);
      }
      return;
    }
    this.now = now;
    for (const plot of this.plots) Object.assign(plot, { place: now.place, dirty: true, room: other ? null : plot.room }); // it may have been hidden
    if (other || (now.pairs && (changed.has("head") || changed.has("call")))) this.names();
    const at = { call: state.call, head: state.head };
    const moved = other || ["call", "head", "second", "query"].some((name) => changed.has(name));
    if (moved) this.tokens(at);
    else if (changed.has("key")) keysThatDiffer.show(...keysThatDiffer.shown);
    this.mode.show(state.compare);
    this.numbers.show(now.lead);
    $("compare-1").hidden = state.compare !== "side";
    $("compare").dataset.mode = state.compare;
    $("compare-legend").hidden = state.compare === "side";
    if (other || changed.has("theme")) drawRamp(this.ramp, "lift", evenly(["−100 %", "−50 %", "0", "50 %", "100 %"]));
    const all = other ? new Set([...changed, "run"]) : changed;
    await Promise.all([...this.plots.map((plot) => plot.draw(all)), moved ? this.row(at) : null]);
    this.said();
  },

  /** The second head in the list of heads and among all heads. */
  mark() {
    const second = secondNow();
    this.second.show(second?.call ?? null, second?.head);
    for (const { call, head, button } of atlas.cells) {
      const marked = !runsNow() && call === second?.call && head === second?.head;
      button.classList.toggle("second", marked);
      button.ariaDescription = marked ? "second head" : null;
    }
  },

  /** Chooses the second head, and goes to the two maps. */
  async add(second) {
    if (!runsNow() && !alikeCalls(runs[state.run].calls[second.call], callNow())) {
      announce("This head has other rows or keys than the chosen one.");
      return;
    }
    await choose({ second, compare: runsNow() ? state.compare : "side", open: [...state.open.filter((name) => name !== "compare"), "compare"] });
    $("compare").scrollIntoView();
  },

  /** The names of both runs, and which of them the page shows; or of both heads. */
  names() {
    const { both, alone, sides, pairs } = this.now;
    const name = (side) => {
      const { call, head } = this.now.heads(headNow())[side], title = headTitle(call, head, sides[side]);
      if (alone) return [title];
      const { facts: { changed } } = both[side];
      return [...(pairs ? [`${title}: `] : []), element("bdi", clip(both[side].model, 60)), ...folderOf(both[side]), ...textOf(both[side], both[1 - side]), ...(changed ? [element("span", "with changed rules", { className: "soft" })] : []), side ? "" : " "];
    };
    const made = [0, 1].flatMap((side) => [element("span", side ? "second" : "first", { className: "of-run" }), ...name(side)]);
    $("compare").querySelector(".compare-names").replaceChildren(...made, ...(alone ? [] : [this.numbers.node]));
  },

  /** Which tokens differ, as text. */
  tokens(at) {
    $("compare-tokens").hidden = this.now.alone;
    const { queries, keys } = this.now.axes(at);
    const several = queries[0] !== keys[0] || queries[1] !== keys[1];
    const said = (several ? [queries, keys] : [queries]).flatMap(([ours, theirs, groups], number) => differenceWords(ours, theirs, groups, several ? `${["rows", "keys"][number]}: ` : ""));
    $("compare-tokens").replaceChildren(...said);
  },

  level(at, { level, fold }) {
    const [high, wide] = [2 ** (level + fold[0]), 2 ** (level + fold[1])];
    if (state.compare === "difference") {
      const kinds = new Set(this.plots[0].visible(at, level).flatMap((spot) => [...new Set(this.painter(0).codes({ call: state.call, head: state.head, pool: state.pool, level, ...spot }, fold)?.kind)]));
      $("compare").querySelector(".compare-swatches").replaceChildren(...swatches(ODD.filter(([kind]) => kinds.has(kind)).map(([, ...named]) => named)));
    }
    const place = { call: state.call, head: state.head, pool: state.pool, level, ...this.plots[0].visible(at, level)[0] };
    const made = this.now.painters.side.map((painter) => painter.codes(place, fold)?.exact ?? "computing …");
    const merged = this.now.plain ? "" : "; tokens that correspond are one row and one key, with the sum of the weights of their keys and the mean of their rows";
    const shown = `${ofCells(high, wide)}; ${made[0] === made[1] ? made[0] : `first: ${made[0]}; second: ${made[1]}`}; the same view, scale and legend for both runs${merged}${state.compare === "side" ? valuedWords(this.now.names[0], headNow()) : ""}`;
    if ($("compare-level").textContent !== shown) $("compare-level").textContent = shown;
  },

  /** The weights of both runs under the pointer. */
  said() {
    const { names, painters, place, plain } = this.now;
    const cells = place.hover ? painters.side.map((painter) => cellAt(this.plots[0], painter, place.hover)) : [];
    if (!cells[0] || !cells[1]) { $("compare-said").textContent = "\u00a0"; return; }
    const { i, j, high, wide } = cells[0];
    const lone = !plain && [["queries", i, high], ["keys", j, wide]].some(([kind, from, count]) => this.now.lone({ call: state.call, head: state.head }, kind, from, from + count));
    const [p, q] = cells.map(({ code, fine }) => weight(code, fine));
    const value = words(cells[1].code, cells[1].fine);
    $("compare-said").replaceChildren(...cellWords(names[2], cells[0]), " in the first, ", element("b", value), " in the second: ", lone ? "tokens of one text only" : pointsOf(q - p));
  },

  /** The difference of the chosen row, from all of its weights: as text, by key, and in all heads. */
  async row(at) {
    const { now } = this;
    const turn = ++this.turn;
    const query = state.query;
    const group = now.groupOf("queries", at, query);
    const merged = runs[now.names[2]];
    const axis = (kind) => merged.axes[merged.calls[at.call][kind]];
    const rows = await now.row(at, group);
    if (turn !== this.turn) return;
    keysThatDiffer.show(rows, axis("keys"), now.place);
    this.rest(now, query, () => turn !== this.turn);
    if (!rows) {
      $("compare-row").replaceChildren(...named(queryAxis(), query), ` is only in the ${now.lead ? "second" : "first"} run, so that its row cannot be compared.`);
      return;
    }
    const found = rowDifference(rows);
    const exact = rows[0].exact === rows[1].exact ? rows[0].exact : `first: ${rows[0].exact}, second: ${rows[1].exact}`;
    const most = found.order[0];
    $("compare-row").replaceChildren("The row of ", ...named(axis("queries"), group), " differs by ", element("b", percent(found.total)), " (total variation distance: half the sum of the absolute differences of its weights)", ...(most === undefined ? [] : ["; most at ", ...named(axis("keys"), most), `, ${pointsOf(found.by[most])}`]), exact === "exact" ? "." : `; ${exact}.`);
  },

  /** The same row in all heads, after a moment without changes. */
  async rest(now, query, overtaken) {
    if (now.alone) return;
    $("grid").setAttribute("aria-busy", "true");
    await new Promise((done) => setTimeout(done, 80));
    const differences = overtaken() ? null : await differencesOfHeads(now, query, overtaken);
    if (overtaken()) return;
    this.differences = differences;
    await atlas.show();
    $("grid").removeAttribute("aria-busy");
  },
};
screens.push(comparison);

/** The name of the folder that a run was opened from, which distinguishes two runs of one model. */
function folderOf({ facts: { folder } }) {
  const name = typeof folder === "string" ? folder.split(/[/\\]/).filter(Boolean).pop() : undefined;
  return name ? [element("bdi", clip(name, 40), { className: "soft", title: folder })] : [];
}

/** The text from where it differs from that of the other run, with a few words before. */
function textOf({ text }, other) {
  if (text === other.text || !text) return [];
  let at = 0;
  while (at < text.length && text[at] === other.text[at]) at++;
  const from = at < 40 ? 0 : text.lastIndexOf(" ", at - 20) + 1;
  return [element("bdi", `“${from ? "… " : ""}${clip(text.slice(from), 50)}”`, { className: "soft", title: clip(text, 1000) })];
}

const NAMED_DIFFERENCES = 4;
/** The differences of two lists of tokens as nodes. */
function differenceWords(ours, theirs, groups, what) {
  const kindOf = ([a0, a1, b0, b1]) => {
    if (a0 === a1) return "only in the second";
    if (b0 === b1) return "only in the first";
    if (plainToken(ours.tokens.slice(a0, a1).join("")) !== plainToken(theirs.tokens.slice(b0, b1).join(""))) return "replaced";
    return a1 - a0 > 1 || b1 - b0 > 1 ? "cut into other pieces" : "";
  };
  const said = ["replaced", "only in the first", "only in the second", "cut into other pieces"].flatMap((kind) => {
    const found = groups.filter((group) => kindOf(group) === kind), pieces = kind === "cut into other pieces";
    const word = (axis, from, to) => (pieces ? axis.tokens.slice(from, to).map((each) => each.trim()).join("·") : `“${joinedTokens(axis, from, to).trim()}”`);
    const sides = ([a0, a1, b0, b1]) => [...(a0 < a1 ? [word(ours, a0, a1)] : []), ...(b0 < b1 ? [word(theirs, b0, b1)] : [])];
    const named = found.slice(0, NAMED_DIFFERENCES).map((group) => sides(group).flatMap((text, at) => [at ? " → " : "", element("bdi", clip(text, 28))]));
    if (!found.length) return [];
    return [`${pieces ? found.length : counted(found.length, "token")} ${kind}: `, ...named.flatMap((nodes, at) => [at ? ", " : "", ...nodes]), found.length > NAMED_DIFFERENCES ? ", …. " : ". "];
  });
  return [what, ...(said.length ? said : ["Both runs have the same tokens. "])];
}

keys.push({ keys: ["c"], label: "c", what: "compare side by side, or as a difference", run: () => choose({ compare: nextOf(MODES, state.compare) }) },
  { keys: [], label: "Shift Enter", what: "among all heads: compare with this head" }); // handled by the overview of heads
