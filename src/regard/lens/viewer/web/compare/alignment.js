// The tokens of two texts aligned by their difference: equal tokens first, then what was replaced, added or left out between them.
//
// The result is a list of groups [a0, a1, b0, b1]: tokens a0 … a1 − 1 of the first correspond to tokens b0 … b1 − 1 of the second. A
// group with an empty range is only in one of them. Most groups are one token each; several are those that two tokenizers cut
// differently, and short replacements of another length.

const EDITS = 4000; // tokens that two texts may leave out and add: of texts that differ more, only the beginning and the end correspond
const SHORT = 3; // replaced tokens of another number are one group up to so many

/** The text of a token by which it is compared: without spaces, marks of the tokenizer, and capitals. */
const plainToken = (token) => token.replace(/\s+/g, "").replace(/^(##|▁|Ġ)+(?=.)/, "").toLowerCase();

function aligned(ours, theirs) {
  const [a, b] = [ours, theirs].map((tokens) => tokens.map(plainToken));
  const groups = [];
  let [i, j] = [0, 0];
  for (const [p, q] of [...matches(a, b, 0, a.length, 0, b.length), [a.length, b.length]]) {
    groups.push(...replaced(a, b, i, p, j, q));
    if (p < a.length || q < b.length) groups.push([p, p + 1, q, q + 1]);
    [i, j] = [p + 1, q + 1];
  }
  return groups;
}

/** Pairs of positions with equal tokens, in order: a longest common subsequence. */
function matches(a, b, a0, a1, b0, b1) {
  const [before, after] = [[], []];
  while (a0 < a1 && b0 < b1 && a[a0] === b[b0]) before.push([a0++, b0++]);
  while (a0 < a1 && b0 < b1 && a[a1 - 1] === b[b1 - 1]) after.unshift([--a1, --b1]);
  return [...before, ...commonSubsequence(a.slice(a0, a1), b.slice(b0, b1)).map(([i, j]) => [a0 + i, b0 + j]), ...after];
}

/** The same, by the fewest edits. Source: Myers, An O(ND) Difference Algorithm and Its Variations, 1986. */
function commonSubsequence(a, b) {
  const most = Math.min(a.length + b.length, EDITS), middle = most + 1;
  const ends = new Int32Array(2 * most + 3), rounds = []; // ends[middle + k]: how far into a the best path leads on which a has taken k more
  for (let edits = 0; edits <= most; edits++) {
    rounds.push(ends.slice(middle - edits - 1, middle + edits + 2)); // as they are before this edit
    for (let k = -edits; k <= edits; k += 2) {
      const [left, right] = [ends[middle + k - 1], ends[middle + k + 1]];
      let i = k === -edits || (k !== edits && left < right) ? right : left + 1;
      while (i < a.length && i - k < b.length && a[i] === b[i - k]) i++;
      ends[middle + k] = i;
      if (k === a.length - b.length && i >= a.length) return alongPath(rounds, i, k);
    }
  }
  return [];
}

/** The pairs of equal tokens along the path that ends at token i of a, k more than those of b. */
function alongPath(rounds, i, k) {
  const pairs = [];
  for (let edits = rounds.length - 1; edits >= 0; edits--) {
    const [left, right] = [k - 1, k + 1].map((diagonal) => rounds[edits][diagonal + edits + 1]);
    const added = k === -edits || (k !== edits && left < right); // whether the edit takes a token of b
    const begin = edits === 0 ? 0 : added ? right : left + 1;
    for (; i > begin; i--) pairs.push([i - 1, i - 1 - k]);
    [i, k] = added ? [begin, k + 1] : [begin - 1, k - 1];
  }
  return pairs.reverse();
}

/** Groups of tokens without equals: at both ends those with the same characters, and between them one by one. */
function replaced(a, b, a0, a1, b0, b1) {
  const before = [[a0, b0], ...sameCharacters(a.slice(a0, a1), b.slice(b0, b1)).map(([i, j]) => [a0 + i, b0 + j])], [i, j] = before.at(-1);
  const backwards = (tokens) => tokens.reverse().map((token) => [...token].reverse().join(""));
  const after = [...sameCharacters(backwards(a.slice(i, a1)), backwards(b.slice(j, b1))).map(([p, q]) => [a1 - p, b1 - q]).reverse(), [a1, b1]], [p, q] = after[0];
  const between = (places) => places.slice(1).map((end, at) => [places[at][0], end[0], places[at][1], end[1]]);
  return [...between(before), ...otherCharacters(a, b, i, p, j, q), ...between(after)];
}

/** After how many tokens the beginnings of two lists have the same characters, though they may be cut at other places: [[of a, of b], …]. */
function sameCharacters(a, b) {
  const found = [];
  let [i, j, ours, theirs] = [0, 0, "", ""];
  while ((i < a.length || j < b.length) && (ours.startsWith(theirs) || theirs.startsWith(ours))) {
    if (i < a.length && (ours.length <= theirs.length || j === b.length)) ours += a[i++];
    else theirs += b[j++];
    const [p, q] = found.at(-1) ?? [0, 0];
    if (ours === theirs && i > p && j > q) found.push([i, j]);
  }
  return found;
}

function otherCharacters(a, b, a0, a1, b0, b1) {
  const one = (from, to, make) => Array.from({ length: to - from }, (_, i) => make(from + i));
  const onlyFirst = () => one(a0, a1, (i) => [i, i + 1, b0, b0]), onlySecond = () => one(b0, b1, (j) => [a1, a1, j, j + 1]);
  if (a0 === a1 || b0 === b1) return [...onlyFirst(), ...onlySecond()];
  if (a1 - a0 === b1 - b0) return one(a0, a1, (i) => [i, i + 1, b0 + i - a0, b0 + i - a0 + 1]);
  if (Math.max(a1 - a0, b1 - b0) <= SHORT) return [[a0, a1, b0, b1]];
  return [...onlyFirst(), ...onlySecond()];
}
