// What differs most in the chosen row: the keys in a list, and the difference of every head, which the overview of heads shows.

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

/** The difference of the chosen row in every head of the leading run, by call; null where it is overtaken or too much. */
async function differencesOfHeads(comparison, query, overtaken) {
  const { calls } = comparison.both[comparison.lead];
  if (calls.reduce((sum, { heads, K }) => sum + heads * K, 0) > ROW_WEIGHTS) return null;
  const found = [];
  for (const [call, { heads, Q }] of calls.entries()) {
    const group = comparison.groupOf("queries", { call, head: 0 }, Math.min(query, Q - 1));
    const rows = await Promise.all(Array.from({ length: heads }, (_, head) => comparison.row({ call, head }, group)));
    if (overtaken()) return null;
    found.push(rows.map((both) => both && rowDifference(both).total));
  }
  return found;
}

const keysThatDiffer = {
  shown: [null],

  build() {
    this.columns = element("div", undefined, { className: "entry note columns" }, ...["key", "first", "second", "difference"].map((name) => element("span", name)));
    this.list = new ListBox("compare-keys", (place) => this.place.choose({ key: this.order[place] }));
    this.list.node.setAttribute("aria-labelledby", "compare-keys-title");
    return element("div", undefined, { className: "compared" }, this.columns, this.list.node);
  },

  /** The keys with the largest differences of a row over the merged axis; rows: null if one of the runs lacks it. */
  show(...shown) {
    const [rows, axis, place] = shown, { order, by } = rows ? rowDifference(rows) : { order: [] };
    Object.assign(this, { shown, place, order: order.slice(0, LISTED) });
    const share = ({ p, code }, j) => (INVALID.has(code[j]) ? words(code[j]) : code[j] === MASKED ? "—" : percent(p[j], 3));
    this.columns.hidden = this.list.node.hidden = !order.length;
    this.list.show(this.order.map((j) => [element("bdi", wordOf(axis, j, 30)), ...[...rows.map((row) => share(row, j)), pointsOf(by[j])].map((said) => element("data", said, { className: "number" }))]), this.order.indexOf(place.key));
    $("compare-keys-title").textContent = order.length ? "Keys that differ most in this row" : rows ? "All keys of this row have the same weights" : "No head has this row in both runs";
  },
};
