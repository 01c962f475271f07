// The lists of a comparison: the keys and the heads at which the chosen row differs most.

const LISTED = 10;
const ROW_WEIGHTS = 1e7; // the most weights of the chosen row in all heads; above this, heads are in the order of their figures
const COMPARED_FIGURES = ["spread", "special", "first", "previous", "itself", "distant", "maximum"]; // figures that are compared between the runs

/** Two rows of weights over the same keys: {total, order}. total: half the sum of the absolute differences, from 0 (equal) to 1 (no common key). */
function rowDifference([ours, theirs]) {
  const by = Float64Array.from(ours.p, (p, j) => theirs.p[j] - p);
  const total = by.reduce((sum, d) => sum + Math.abs(d), 0) / 2;
  const size = (j) => (Number.isNaN(by[j]) ? Infinity : Math.abs(by[j]));
  const order = Array.from(by.keys()).filter((j) => size(j) > 0).sort((i, j) => size(j) - size(i));
  return { total, by, order };
}

/** The figure of two heads with the largest difference. */
function mostDifferent(heads, comparison) {
  let found = { by: -1, name: COMPARED_FIGURES[0], from: null, to: null };
  for (const name of COMPARED_FIGURES.filter((each) => METRICS[each])) {
    const [from, to] = heads.map(({ call, head }, side) => comparison.both[side].calls[call].figures[name]?.[head] ?? null);
    if (from !== null && to !== null && Math.abs(to - from) > found.by) found = { by: Math.abs(to - from), name, from, to };
  }
  return found;
}

/** A share with two significant digits; less than 0.01 % is not resolved. */
const roughly = (p) => (p > 0 && p < 1e-4 ? "< 0.01 %" : percent(p, 2));
const placeTitle = (run, { call, head }) => `${run.calls[call].layer === null ? `call ${call}` : `layer ${run.calls[call].layer}`}, head ${head}`;

/** A table with these column names. */
function tableOf(id, names, lines) {
  const titles = names.map((name) => element("th", name, { scope: "col" }));
  $(id).replaceChildren(element("thead", undefined, {}, element("tr", undefined, {}, ...titles)), element("tbody", undefined, {}, ...lines));
}

/** The keys of the chosen row with the largest differences. */
function listKeys(comparison, axis, found, [ours, theirs]) {
  const lines = found.order.slice(0, LISTED).map((j) => {
    const go = button("", () => comparison.place.choose({ key: j }));
    go.append(element("bdi", wordOf(axis, j, 30)));
    const weights = [ours, theirs].map(({ p, code }) => element("td", INVALID.has(code[j]) ? words(code[j]) : code[j] === MASKED ? "—" : percent(p[j], 3), { className: "number" }));
    return element("tr", undefined, {}, element("td", undefined, {}, go), ...weights, element("td", pointsOf(found.by[j]), { className: "number" }));
  });
  tableOf("compare-keys", ["key", "first", "second", "difference"], lines);
  $("compare-keys").hidden = !lines.length;
  $("compare-keys-title").textContent = lines.length ? "Keys that differ most in this row" : "All keys of this row have the same weights";
}

/** All heads of the leading run with the difference of the chosen row, computed call by call; null if it is overtaken or too much. */
async function differencesOfHeads(comparison, query, overtaken) {
  const { calls } = comparison.both[comparison.lead];
  if (calls.reduce((sum, { heads, K }) => sum + heads * K, 0) > ROW_WEIGHTS) return null;
  const found = [];
  for (const [call, { heads, Q }] of calls.entries()) {
    const rows = await comparison.rows(call, Math.min(query, Q - 1));
    if (overtaken()) return null;
    for (let head = 0; head < heads; head++) found.push({ call, head, total: rows ? rowDifference(rows[head]).total : NaN });
  }
  return found;
}

/** The heads that differ most: in the chosen row if that is known (differences), otherwise in a figure. unknown: the text in place of its difference. */
function listHeads(comparison, differences, unknown = "…") {
  const run = comparison.both[comparison.lead];
  const heads = run.calls.flatMap((call, number) => Array.from({ length: call.heads }, (_, head) => ({ call: number, head })));
  const all = heads.map((place, at) => ({ ...place, pair: comparison.heads(place), total: differences?.[at].total ?? null }));
  for (const each of all) each.figure = mostDifferent(each.pair, comparison);
  const known = differences?.some(({ total }) => !Number.isNaN(total));
  const equal = known && differences.every(({ total }) => total === 0);
  const order = (each) => (each.total === null || Number.isNaN(each.total) || equal ? each.figure.by : each.total);
  const lines = all.sort((a, b) => order(b) - order(a)).slice(0, LISTED).map(({ call, head, pair, total, figure }) => {
    const other = pair[1 - comparison.lead];
    const same = other.call === call && other.head === head;
    const go = button(`${placeTitle(run, { call, head })}${same ? "" : ` / ${placeTitle(comparison.both[1 - comparison.lead], other)}`}`, () => choose({ call, head }), { title: run.calls[call].name });
    const line = element("tr", undefined, {}, element("td", undefined, {}, go), element("td", total === null ? unknown : roughly(total), { className: "number" }),
      element("td", figure.from === null ? "—" : METRICS[figure.name].title.replace(/^weight on (the )?/, "")), element("td", figure.from === null ? "—" : `${roughly(figure.from)} → ${roughly(figure.to)}`, { className: "number" }));
    line.toggleAttribute("aria-current", call === state.call && head === state.head);
    return line;
  });
  tableOf("compare-heads", ["head", "chosen row", "largest difference in", "first → second"], lines);
  const others = all.some(({ figure }) => figure.by > 0);
  $("compare-heads").hidden = equal && !others;
  $("compare-heads-title").textContent = equal ? `This row has the same weights in every head${others ? "; heads that differ most in other rows" : ""}` : known ? "Heads in which this row differs most" : "Heads that differ most";
}
