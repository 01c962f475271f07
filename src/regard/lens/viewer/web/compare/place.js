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

  /** Changes the state of the page. A row that only the other run has makes that run the one that the page shows. */
  choose({ view, hover, query, key, pins, run }) {
    const { comparison } = this;
    const done = [];
    if (view !== undefined) {
      this.shown = view;
      done.push(drawScreens(new Set(["view"])));
    }
    if (hover !== undefined) {
      this.pointed = hover;
      done.push(drawScreens(new Set(["hover"])));
    }
    let side = run === undefined ? comparison.lead : comparison.sides.indexOf(run);
    const row = query ?? this.query;
    if (comparison.positionIn(side, "queries", this.at, row) === null) side = 1 - side;
    const place = comparison.heads(this.at)[side];
    const change = side === comparison.lead ? {} : { run: comparison.sides[side], ...place, second: state.second && this.at, query: comparison.positionIn(side, "queries", this.at, row) };
    if (query !== undefined) change.query = comparison.positionIn(side, "queries", this.at, query);
    if (key !== undefined) change.key = key === null ? null : comparison.positionIn(side, "keys", this.at, key);
    if (pins !== undefined) change.pins = pins.map((pin) => comparison.positionIn(side, "queries", this.at, pin)).filter((pin) => pin !== null);
    if (query !== undefined || key !== undefined || pins !== undefined || run !== undefined) done.push(choose(change));
    return Promise.all(done);
  }
}
