// The comparison of two heads of one run, or of two runs: side by side in one view, or as a difference. The texts, tokens, lengths and
// models of two runs may differ: what corresponds is found by alignment.js.

const ODD = [[BOTH_MASKED, "masked in both", "hatch"], [ONE_MASKED, "masked in one only", "out"], [ONE_TEXT, "only in one text", "lone"], [NEITHER, "not a number", "nan"], [FORBIDDEN, "forbidden weight", "leak"]];
const MODES = { side: "side by side", difference: "difference" };

choosable("compare", GIVEN > 1 ? "difference" : "side", oneOf(MODES));
choosable("second", null, { // {call, head}: the second head, or a mean of heads
  write: (second) => (second ? `${second.call}.${second.head}` : undefined),
  read(text) {
    const [call, head, ...rest] = text.split(".");
    const found = { call: position.read(call), head: isMeanName(head) ? head : position.read(head ?? "") };
    return rest.length || found.call === undefined || found.head === undefined ? undefined : found;
  },
});
choosable("partner", null, { // {of: "call.head", call, head}: the head of the other run that is compared with this one
  write: (partner) => (partner ? `${partner.of}.${partner.call}.${partner.head}` : undefined),
  read(text) {
    if (!/^\d{1,4}\.\d{1,4}\.\d{1,4}\.\d{1,4}$/.test(text)) return undefined;
    const [a, b, call, head] = text.split(".").map(Number);
    return { of: `${a}.${b}`, call, head };
  },
});

/** The second head, if it exists in the run that is shown and its map has the rows and keys of the chosen head; otherwise null. */
function secondNow() {
  const call = state.second && runs[state.run].calls[state.second.call];
  if (!call || !alikeCalls(call, callNow())) return null;
  return isMean(state.second.head) ? (noMeans(state.run) ? null : state.second) : state.second.head < call.heads ? state.second : null;
}

/** The numbers of the compared runs: twice the same for two heads of one run; null if nothing is compared. */
function compared() {
  if (secondNow()) return [state.run, state.run];
  return state.original && live.shown ? [0, live.shown] : GIVEN > 1 ? [0, 1] : null;
}

const comparison = {
  name: "compare", comparisons: new Memory(8), turn: 0,

  build() {
    const section = $("compare");
    this.second = new HeadList("compare-second", { none: "none", fits: (call) => alikeCalls(call, callNow()), pick: (second) => choose({ second, compare: second ? "side" : state.compare }) });
    const choosePartner = () => choose({ partner: { of: `${state.call}.${state.head}`, call: Number(this.otherCall.value), head: Number(this.otherHead.value) } });
    this.otherCall = element("select", undefined, { id: "compare-call", ariaLabel: "Layer of the other run", onchange: choosePartner });
    this.otherHead = element("select", undefined, { id: "compare-head", ariaLabel: "Head of the other run", onchange: choosePartner });
    this.mode = new Choice("compare-mode", "How the runs are compared", MODES, (value) => choose({ compare: value }));
    this.ramp = rampBox();
    if (GIVEN > 1) document.querySelector("main").before(section);
    this.box = folds.make("compare", GIVEN > 1 ? "Comparison" : "Compare with another head",
      element("div", undefined, { className: "tools" }, element("label", "with the head ", {}, this.second.node), this.mode.node),
      this.body = element("div", undefined, { id: "compare-all" },
      element("p", undefined, { className: "compare-names" }),
      element("p", undefined, { id: "compare-partner" }, "compared with ", this.otherCall, " ", this.otherHead, " of the other run"),
      element("p", undefined, { id: "compare-tokens", className: "soft" }),
      element("div", undefined, { id: "compare-legend" }, this.ramp,
        element("ul", undefined, { className: "compare-swatches swatches" }),
        element("p", undefined, { id: "compare-law", className: "soft" })),
      element("div", undefined, { className: "compare-body" },
        element("div", undefined, { id: "compare-0" }), element("div", undefined, { id: "compare-1" }),
        element("div", undefined, { className: "compare-lists" },
          ...["keys", "heads"].flatMap((name) => [element("h3", undefined, { id: `compare-${name}-title` }), element("table", undefined, { id: `compare-${name}`, className: "compared", "aria-labelledby": `compare-${name}-title` })]))),
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
    this.numbers = new Choice("compare-run", "Run that the other sections show", { 0: "show the first", 1: "the second" }, (value) => this.lead(Number(value)));
  },

  /** Makes one of the compared runs the one that the page shows, at the corresponding head, row and key. */
  lead(side) {
    const { now } = this;
    if (side === now.lead) return undefined;
    const at = { call: state.call, head: state.head };
    const there = (kind, position) => (position === null ? null : now.positionIn(side, kind, at, now.groupOf(kind, at, position)));
    const query = there("queries", state.query);
    return choose({ run: now.sides[side], ...now.heads(at)[side], ...(query === null ? {} : { query }), key: there("keys", state.key), pins: [] });
  },

  /** The comparison of the present runs and heads; null if there is none, or a third run is shown. */
  current() {
    const sides = compared();
    if (!sides || !sides.includes(state.run)) return null;
    const lead = state.run === sides[1] && state.run !== sides[0] ? 1 : 0;
    const calls = runs[sides[1 - lead]].calls;
    const { of, call, head } = state.partner ?? {};
    const partner = secondNow() ?? (of === `${state.call}.${state.head}` && head < calls[call]?.heads ? { call, head } : null);
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
    const other = now !== this.now;
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
    if (other || (now.alone && changed.has("head"))) this.names();
    const at = { call: state.call, head: state.head };
    const moved = other || ["call", "head", "second", "query"].some((name) => changed.has(name));
    if (moved) { this.partners(at); this.tokens(at); }
    this.mode.show(state.compare);
    this.numbers.show(now.lead);
    $("compare-1").hidden = state.compare !== "side";
    $("compare").dataset.mode = state.compare;
    $("compare-legend").hidden = state.compare === "side";
    if (other || changed.has("theme") || changed.has("compare")) this.legend();
    const wanted = now.painters.side.map((painter) => painter.colored()).filter((of) => lookNow(of.n).rows && !tracksNow(of.n, of));
    const tracks = wanted.map((of) => tracksOf(of.n, of).then(() => this.plots.forEach((plot) => plot.later())));
    const all = other ? new Set([...changed, "run"]) : changed;
    await Promise.all([...tracks, ...this.plots.map((plot) => plot.draw(all)), moved ? this.row(at) : null]);
    this.said();
  },

  /** The second head in the list of heads and among all heads. */
  mark() {
    const second = secondNow();
    this.second.show(second?.call ?? null, second?.head);
    this.second.node.parentElement.hidden = GIVEN > 1 && !second; // two runs are compared
    for (const { call, head, button } of atlas.cells) {
      const marked = call === second?.call && head === second?.head;
      button.classList.toggle("second", marked);
      button.ariaDescription = marked ? "second head" : null;
    }
  },

  /** Chooses the second head, and goes to the two maps. */
  async add(second) {
    if (!alikeCalls(runs[state.run].calls[second.call], callNow())) {
      announce("This head has other rows or keys than the chosen one.");
      return;
    }
    await choose({ second, compare: "side", open: [...state.open.filter((name) => name !== "compare"), "compare"] });
    $("compare").scrollIntoView();
  },

  /** The names of both runs, and which of them the page shows; or of both heads. */
  names() {
    const { both, alone } = this.now;
    if (alone) {
      const titles = this.now.heads(headNow()).map(({ call, head }) => headTitle(call, head));
      $("compare").querySelector(".compare-names").replaceChildren(...titles.flatMap((title, side) => [element("span", side ? "second" : "first", { className: `of-run run-${side}` }), title]));
      return;
    }
    const made = both.flatMap((run, side) => [element("span", side ? "second" : "first", { className: `of-run run-${side}` }), element("bdi", clip(run.model, 60)), ...folderOf(run), ...textOf(run, both[1 - side]), ...ruleOf(run), side ? "" : " "]);
    $("compare").querySelector(".compare-names").replaceChildren(...made, this.numbers.node);
  },

  /** The head of the other run: where the models have other layers or heads, it can be chosen. */
  partners(at) {
    const { both, lead } = this.now;
    const [call, head] = ["calls", "heads"].map((what) => both.map((run) => (what === "calls" ? run.calls.length : run.calls[0].heads)));
    $("compare-partner").hidden = call[0] === call[1] && head[0] === head[1] && !state.partner || isMean(state.head) || this.now.alone;
    const other = this.now.heads(at)[1 - lead], run = both[1 - lead];
    const options = (count, title) => Array.from({ length: count }, (_, number) => element("option", title(number), { value: number }));
    this.otherCall.replaceChildren(...options(run.calls.length, (number) => titlesOf(run)[number]));
    this.otherHead.replaceChildren(...options(run.calls[other.call].heads, (number) => `head ${number}`));
    this.otherCall.value = other.call;
    this.otherHead.value = other.head;
  },

  legend() {
    drawRamp(this.ramp, "lift", evenly(["−100 %", "−50 %", "0", "50 %", "100 %"]));
    $("compare-law").textContent = "Second − first, linear from −100 % to 100 %: left of the middle the first has more weight, right of it the second.";
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
    const shown = `${high * wide > 1 ? `each cell is ${high.toLocaleString("en")} × ${wide.toLocaleString("en")} pairs, ${POOLS[state.pool]}` : "each cell is one weight"}; ${made[0] === made[1] ? made[0] : `first: ${made[0]}; second: ${made[1]}`}; the same view, scale and legend for both runs${merged}${state.compare === "side" ? valuedWords(this.now.names[0], headNow()) : ""}`;
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
    $("compare-heads").setAttribute("aria-busy", "true");
    const query = state.query;
    const group = now.groupOf("queries", at, query);
    const merged = runs[now.names[2]];
    const axis = (kind) => merged.axes[merged.calls[at.call][kind]];
    const rows = await now.row(at, group);
    if (turn !== this.turn) return;
    $("compare-keys").hidden = $("compare-keys-title").hidden = !rows;
    if (!rows) {
      $("compare-heads").removeAttribute("aria-busy");
      $("compare-row").replaceChildren(...named(queryAxis(), query), ` is only in the ${now.lead ? "second" : "first"} run, so that its row cannot be compared.`);
      listHeads(now, null, "—");
      return;
    }
    const found = rowDifference(rows);
    const exact = rows[0].exact === rows[1].exact ? rows[0].exact : `first: ${rows[0].exact}, second: ${rows[1].exact}`;
    const most = found.order[0];
    $("compare-row").replaceChildren("The row of ", ...named(axis("queries"), group), " differs by ", element("b", percent(found.total)), " (total variation distance: half the sum of the absolute differences of its weights)", ...(most === undefined ? [] : ["; most at ", ...named(axis("keys"), most), `, ${pointsOf(found.by[most])}`]), exact === "exact" ? "." : `; ${exact}.`);
    listKeys(now, axis("keys"), found, rows);
    $("compare-heads").hidden = $("compare-heads-title").hidden = now.alone;
    if (!now.alone) this.rest(now, query, () => turn !== this.turn);
  },

  /** The same row in all heads, after a moment without changes. */
  async rest(now, query, overtaken) {
    if (!$("compare-heads").tBodies.length || this.listed !== now) listHeads(now, null);
    this.listed = now;
    await new Promise((done) => setTimeout(done, 80));
    if (overtaken()) return;
    try {
      const differences = await differencesOfHeads(now, query, overtaken);
      if (overtaken()) return;
      listHeads(now, differences);
      $("compare-heads").removeAttribute("aria-busy");
    } catch (error) {
      if (!overtaken()) $("compare-heads-title").textContent = `Heads: ${error.message}`;
    }
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

/** The rules of a run that were changed on the page. */
const ruleOf = ({ facts: { changed } }) => (changed ? [element("span", "with changed rules", { className: "soft" })] : []);

/** A remark if two tokens are the same for the model, since its vocabulary has neither. */
function seenAlike(ours, a0, a1, theirs, b0, b1) {
  const [saw, also] = [ours.unknown?.[a0], theirs.unknown?.[b0]];
  return saw && saw === also && a1 - a0 === 1 && b1 - b0 === 1 ? ` (both are ${saw.trim()} for the model)` : "";
}

const NAMED_DIFFERENCES = 4;
/** The differences of two lists of tokens as nodes. */
function differenceWords(ours, theirs, groups, what) {
  const word = (axis, from, to) => element("bdi", clip(`“${joinedTokens(axis, from, to).trim()}”`, 28));
  const kinds = { replaced: [], cut: [], first: [], second: [] };
  for (const group of groups) {
    const [a0, a1, b0, b1] = group;
    if (a0 === a1) kinds.second.push(group);
    else if (b0 === b1) kinds.first.push(group);
    else if (plainToken(ours.tokens.slice(a0, a1).join("")) !== plainToken(theirs.tokens.slice(b0, b1).join(""))) kinds.replaced.push(group);
    else if (a1 - a0 > 1 || b1 - b0 > 1) kinds.cut.push(group);
  }
  const list = (found, make) => found.slice(0, NAMED_DIFFERENCES).flatMap((group, at) => [at ? ", " : "", ...make(group)]).concat(found.length > NAMED_DIFFERENCES ? [", …"] : []);
  const count = (found, text) => `${found.length.toLocaleString("en")} ${found.length === 1 ? "token" : "tokens"} ${text}: `;
  const parts = [
    kinds.replaced.length && [count(kinds.replaced, "replaced"), ...list(kinds.replaced, ([a0, a1, b0, b1]) => [word(ours, a0, a1), " → ", word(theirs, b0, b1), seenAlike(ours, a0, a1, theirs, b0, b1)])],
    kinds.first.length && [count(kinds.first, "only in the first"), ...list(kinds.first, ([a0, a1]) => [word(ours, a0, a1)])],
    kinds.second.length && [count(kinds.second, "only in the second"), ...list(kinds.second, ([, , b0, b1]) => [word(theirs, b0, b1)])],
    kinds.cut.length && [`${kinds.cut.length.toLocaleString("en")} cut into other pieces: `, ...list(kinds.cut, ([a0, a1, b0, b1]) => [element("bdi", clip(ours.tokens.slice(a0, a1).map((each) => each.trim()).join("·"), 28)), " → ", element("bdi", clip(theirs.tokens.slice(b0, b1).map((each) => each.trim()).join("·"), 28))])],
  ].filter(Boolean);
  if (!parts.length) return [what, "Both runs have the same tokens. "];
  return [what, ...parts.flatMap((part, at) => [at ? "; " : "", ...part]), ". "];
}

keys.push({ keys: ["c"], label: "c", what: "compare side by side, or as a difference", run: () => choose({ compare: nextOf(MODES, state.compare) }) },
  { keys: [], label: "Shift Enter", what: "among all heads: compare with this head" }); // handled by the overview of heads
