// The lists of a comparison: the keys and the heads at which the chosen row differs most.

const LISTED = 10;
const ROW_WEIGHTS = 1e7; // the most weights of the chosen row in all heads that are compared

/** Two rows of weights over the same keys: {total, order}. total: half the sum of the absolute differences, from 0 (equal) to 1 (no common key). */
function rowDifference([ours, theirs]) {
  const by = Float64Array.from(ours.p, (p, j) => theirs.p[j] - p);
  const total = by.reduce((sum, d) => sum + Math.abs(d), 0) / 2;
  const size = (j) => (Number.isNaN(by[j]) ? Infinity : Math.abs(by[j]));
  const order = Array.from(by.keys()).filter((j) => size(j) > 0).sort((i, j) => size(j) - size(i));
  return { total, by, order };
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
    const group = comparison.groupOf("queries", { call, head: 0 }, Math.min(query, Q - 1));
    const rows = await Promise.all(Array.from({ length: heads }, (_, head) => comparison.row({ call, head }, group)));
    if (overtaken()) return null;
    rows.forEach((both, head) => found.push({ call, head, total: both ? rowDifference(both).total : NaN }));
  }
  return found;
}

/** The heads in which the chosen row differs most. differences: of all heads; null until they are known, or as `why` says. */
function listHeads(comparison, differences, why = "Heads in which this row differs most: computing …") {
  const run = comparison.both[comparison.lead], other = comparison.both[1 - comparison.lead];
  const found = (differences ?? []).filter(({ total }) => total > 0).sort((a, b) => b.total - a.total).slice(0, LISTED);
  const lines = found.map(({ call, head, total }) => {
    const pair = comparison.heads({ call, head })[1 - comparison.lead], same = pair.call === call && pair.head === head;
    const go = button(`${placeTitle(run, { call, head })}${same ? "" : ` / ${placeTitle(other, pair)}`}`, () => choose({ call, head }), { title: run.calls[call].name });
    const line = element("tr", undefined, {}, element("td", undefined, {}, go), element("td", roughly(total), { className: "number" }));
    line.toggleAttribute("aria-current", call === state.call && head === state.head);
    return line;
  });
  tableOf("compare-heads", ["head", "difference"], lines);
  $("compare-heads").hidden = !lines.length;
  $("compare-heads-title").textContent = !differences ? why : lines.length ? "Heads in which this row differs most" : "This row has the same weights in every head";
}
