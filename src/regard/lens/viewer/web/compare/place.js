// What is chosen and visible in the plots of a comparison of other tokens, in groups, as pagePlace in plot.js.

class MergedPlace {
  constructor(comparison) { Object.assign(this, { comparison, shown: null, pointed: null }); }

  get at() { return { call: state.call, head: state.head }; }
  get query() { return this.comparison.groupOf("queries", this.at, state.query); }
  get key() { return this.comparison.groupOf("keys", this.at, state.key); }
  get pins() { return state.pins.map((pin) => this.comparison.groupOf("queries", this.at, pin)); }
  get hover() { return this.pointed; }
  get view() { return this.shown; }
  get rows() { return this.comparison.axes(this.at).queries[2].length; }

  /** Changes the state of the page. A row that only the other run has makes that run the one that the page shows, at the corresponding place. */
  choose({ view, hover, query, key, pins, run }) {
    const { comparison } = this;
    if (view !== undefined) this.shown = view;
    if (hover !== undefined) this.pointed = hover;
    let side = run === undefined ? comparison.lead : comparison.sides.indexOf(run);
    if (query !== undefined && comparison.positionIn(side, "queries", this.at, query) === null) side = 1 - side;
    const other = side !== comparison.lead, there = (kind, group) => (group === null ? null : comparison.positionIn(side, kind, this.at, group));
    const change = other ? { run: comparison.sides[side], ...comparison.heads(this.at)[side], second: state.second && this.at, pins: [] } : {};
    if (query !== undefined || other) change.query = there("queries", query ?? this.query) ?? state.query;
    if (key !== undefined || other) change.key = there("keys", key === undefined ? this.key : key);
    if (pins !== undefined) change.pins = pins.map((pin) => there("queries", pin)).filter((pin) => pin !== null);
    return Object.keys(change).length ? choose(change) : drawScreens(new Set([view === undefined ? "hover" : "view"]));
  }
}
