// Two runs over the same cells, though their tokens or models differ: runs over the groups of alignment.js.
//
// The weight of a group of rows on a group of keys is the mean over its rows of the sum over its keys. A token that only one of the
// runs has is masked in the other. Such a run has a name instead of a number: runs[name] describes it, and sourceOf(name) has its
// weights. Its calls are those of the leading run, which the rest of the page shows.

const alignments = once((ours) => once((theirs) => aligned(ours.tokens, theirs.tokens)));
/** The groups of two axes. */
const groupsOf = (ours, theirs) => alignments(ours)(theirs);

/** Whether every token has its counterpart at the same position. */
const sameCells = (groups) => groups.every(([a0, a1, b0, b1]) => a0 === b0 && a1 === b1 && a1 - a0 === 1);

/** The head of another run that a head is compared with: the same one, or in a model of another size the one at the same depth. Of one
    model, runs of some layers have the same layer. */
function partnerOf(from, to, { call, head }) {
  const along = (at, count, other) => (count === other ? at : Math.round((at * (other - 1)) / Math.max(1, count - 1)));
  const { layer, queries, keys } = from.calls[call];
  const alike = from.model === to.model && layer !== null ? to.calls.findIndex((each) => each.layer === layer && each.queries === queries && each.keys === keys) : -1;
  const other = alike < 0 ? along(call, from.calls.length, to.calls.length) : alike;
  return { call: other, head: isMean(head) ? head : along(head, from.calls[call].heads, to.calls[other].heads) };
}

/** Two heads as they are compared, of two runs or of one. sides: the numbers of the runs; lead: 0 or 1, the one that the page shows;
    partner: the chosen head of the other. */
class Comparison {
  constructor(sides, lead, partner) {
    Object.assign(this, { sides, lead, partner, both: sides.map((n) => runs[n]) });
    const [ours, theirs] = this.both;
    const same = ours.calls.length === theirs.calls.length && ours.calls.every((call, number) => {
      const { queries, keys, heads } = theirs.calls[number];
      return call.queries === queries && call.keys === keys && call.heads === heads;
    });
    this.alone = sides[0] === sides[1]; // two heads of one run
    this.plain = this.alone || (!partner && same && Object.keys(ours.axes).every((name) => sameCells(groupsOf(ours.axes[name], theirs.axes[name]))));
    this.pairs = this.alone || !this.plain && (partner || !same); // whether the names of both heads have to be named
    const made = ["first", "second", "both"].map((side) => `${sides.join("~")}~${lead}~${JSON.stringify(partner)}~${side}`);
    this.names = this.plain ? [...sides, made[2]] : made; // of the first run, of the second, and of the tokens of both
    this.names.forEach((name, side) => {
      if (typeof name === "number") return;
      runs[name] = this.described(side);
      mergedSource.comparisons.set(name, { comparison: this, side });
    });
  }

  /** The heads of both runs that are compared at this place of the leading run. */
  heads(place) {
    const other = this.partner ?? partnerOf(this.both[this.lead], this.both[1 - this.lead], place);
    return this.lead ? [other, place] : [place, other];
  }

  /** The axes of the compared heads and their groups: {queries: [ours, theirs, groups], keys: the same}. */
  axes(place) {
    const calls = this.heads(place).map(({ call }, side) => this.both[side].calls[call]);
    const of = (name) => {
      const [ours, theirs] = calls.map((call, side) => this.both[side].axes[call[name]]);
      return [ours, theirs, groupsOf(ours, theirs)];
    };
    return { queries: of("queries"), keys: of("keys") };
  }

  /** A run over the groups. side: 0 or 1, whose tokens and weights it has; 2: the tokens of both, without weights. */
  described(side) {
    const axes = {};
    const calls = this.both[this.lead].calls.map((call, number) => {
      const found = this.axes({ call: number, head: 0 });
      const [queries, keys] = ["queries", "keys"].map((kind) => {
        const [ours, theirs, groups] = found[kind];
        const name = `${call[kind]} and ${this.both[1 - this.lead].calls[this.heads({ call: number, head: 0 })[1 - this.lead].call][kind]}`;
        axes[name] ??= axisOfGroups(ours, theirs, groups, side);
        return name;
      });
      return { ...call, queries, keys, Q: axes[queries].tokens.length, K: axes[keys].tokens.length };
    });
    return { ...this.both[Math.min(side, 1)], axes, calls, steps: [] };
  }

  /** The row of both heads over the groups of keys: [ours, theirs], each {p, code, exact}; null if one of the runs lacks the row. */
  async row(place, group) {
    const heads = this.heads(place), rows = [0, 1].map((side) => this.ranges(place, "queries", side)[group]);
    if (rows.some(([from, to]) => from === to)) return null;
    return Promise.all(rows.map(async ([from, to], side) => {
      const codes = await Promise.all(Array.from({ length: to - from }, (_, at) => source.row(this.sides[side], heads[side].call, heads[side].head, from + at)));
      return overGroups(codes.map(weightsOf), this.ranges(place, "keys", side));
    }));
  }

  /** The range of each group along the queries or keys of a head in one of the runs. */
  ranges(place, kind, side) { return this.axes(place)[kind][2].map((each) => each.slice(2 * side, 2 * side + 2)); }

  /** The group of a position of the leading run. */
  groupOf(kind, place, position) {
    if (position === null || this.plain) return position;
    return this.ranges(place, kind, this.lead).findIndex(([from, to]) => position >= from && position < to);
  }

  /** 1 at each group whose tokens differ, along the queries or keys of a head; null if none do. */
  differing(kind, place) {
    const [ours, theirs, groups] = this.axes(place)[kind];
    groups.differing ??= Float32Array.from(groups, ([a0, a1, b0, b1]) => (a1 - a0 === 1 && b1 - b0 === 1 && plainToken(ours.tokens[a0]) === plainToken(theirs.tokens[b0]) ? 0 : 1));
    return groups.differing.includes(1) ? groups.differing : null;
  }

  /** Whether no group of a range along the queries or keys of a head is in both runs. */
  lone(place, kind, from, to) {
    return this.axes(place)[kind][2].slice(from, to).every(([a0, a1, b0, b1]) => a0 === a1 || b0 === b1);
  }

  /** The first position of a group in one of the runs; null if it has none. */
  positionIn(side, kind, place, group) {
    if (this.plain) return group;
    const [from, to] = this.ranges(place, kind, side)[group];
    return from < to ? from : null;
  }
}

/** The axis of the groups of two axes, with the tokens of one of them, or of both. */
function axisOfGroups(ours, theirs, groups, side) {
  const of = (axis, from, to) => (from < to ? joinedTokens(axis, from, to) : null);
  const words = ([a0, a1, b0, b1]) => [of(ours, a0, a1), of(theirs, b0, b1)];
  const tokens = groups.map((group) => {
    const [first, second] = words(group);
    if (side < 2) return [first, second][side] ?? "—";
    return first === null ? `+ ${second.trim()}` : second === null ? `− ${first.trim()}` : plainToken(first) === plainToken(second) ? first : `${first.trim()} → ${second.trim()}`;
  });
  const special = groups.map(([a0, a1, b0, b1]) => ours.special.slice(a0, a1).some(Boolean) || theirs.special.slice(b0, b1).some(Boolean));
  const at = (from, to) => (from < to ? from.toLocaleString("en") : "—");
  const places = groups.map(([a0, a1, b0, b1]) => (a0 === b0 && a0 < a1 && b0 < b1 ? at(a0, a1) : `${at(a0, a1)} / ${at(b0, b1)}`));
  return { tokens, special, places, gap: tokens.map(() => true), segments: [], grid: null, patches: null };
}

/** Neighboring tokens as text. */
const joinedTokens = ({ tokens, gap }, from, to) => tokens.slice(from, to).map((token, at) => `${at && gap[from + at] && !/^\s/.test(token) ? " " : ""}${token}`).join("");

/** Rows over ranges of keys: the mean over the rows of the sum over each range; an invalid weight makes its sum invalid. */
function overGroups(rows, ranges) {
  const p = new Float64Array(ranges.length), code = new Uint8Array(ranges.length);
  ranges.forEach(([from, to], at) => {
    for (let j = from; j < to; j++) {
      for (const row of rows) {
        code[at] = joinedKind(code[at], row.code[j]);
        p[at] += row.p[j] / rows.length;
      }
    }
  });
  return { p, code, exact: rows[0].exact };
}

/** The weights of merged runs. */
const mergedSource = new Derived("to be compared with other tokens", async (name, call, head) => {
  const { comparison, side } = mergedSource.comparisons.get(name);
  const place = { call, head }, at = comparison.heads(place)[side];
  const whole = await source.head(comparison.sides[side], at.call, at.head);
  const row = (i) => weightsOf(rowOfCodes(whole, comparison.both[side].calls[at.call].K, i));
  const [rows, ranges] = ["queries", "keys"].map((kind) => comparison.ranges(place, kind, side));
  const [coarse, fine] = [new Uint8Array(rows.length * ranges.length), new Uint8Array(rows.length * ranges.length).fill(128)];
  rows.forEach(([from, to], g) => {
    if (from === to) return;
    const found = overGroups(Array.from({ length: to - from }, (_, step) => row(from + step)), ranges);
    for (let j = 0, to = g * ranges.length; j < ranges.length; j++, to++) [coarse[to], fine[to]] = codesOf(found.p[j], found.code[j]);
  });
  return { coarse, fine, exact: whole.exact };
}, {
  comparisons: new Map(),
  async tracks(name, call, head) { return figuresOf(await this.head(name, call, head), runs[name].calls[call], runs[name].axes[runs[name].calls[call].keys].special); },
});

/** The source of a run: merged and value-weighted runs have names, all others numbers. */
const sourceOf = (n) => (typeof n === "number" ? source : mergedSource.comparisons.has(n) ? mergedSource : valuedSource);
