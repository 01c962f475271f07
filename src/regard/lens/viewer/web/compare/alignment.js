// The tokens of two texts aligned by their difference: equal tokens first, then what was replaced, added or left out between them.
//
// The result is a list of groups [a0, a1, b0, b1]: tokens a0 … a1 − 1 of the first correspond to tokens b0 … b1 − 1 of the second. A
// group with an empty range is only in one of them. Most groups are one token each; several are those that two tokenizers cut
// differently, and short replacements of another length.

const TABLE = 4e6; // the most cells of the table of a longest common subsequence
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

/** Pairs of positions with equal tokens, in order: a longest common subsequence; of long texts, between tokens that occur once in both. */
function matches(a, b, a0, a1, b0, b1) {
  const [before, after] = [[], []];
  while (a0 < a1 && b0 < b1 && a[a0] === b[b0]) before.push([a0++, b0++]);
  while (a0 < a1 && b0 < b1 && a[a1 - 1] === b[b1 - 1]) after.unshift([--a1, --b1]);
  if (a0 === a1 || b0 === b1) return [...before, ...after];
  if ((a1 - a0) * (b1 - b0) <= TABLE) return [...before, ...commonSubsequence(a, b, a0, a1, b0, b1), ...after];
  const found = [];
  let [i, j] = [a0, b0];
  for (const [p, q] of [...anchors(a, b, a0, a1, b0, b1), [a1, b1]]) {
    if (p > i && q > j && (p - i < a1 - a0 || q - j < b1 - b0)) found.push(...matches(a, b, i, p, j, q));
    if (p < a1) found.push([p, q]);
    [i, j] = [p + 1, q + 1];
  }
  return [...before, ...found, ...after];
}

function commonSubsequence(a, b, a0, a1, b0, b1) {
  const wide = b1 - b0 + 1;
  const length = new Uint16Array((a1 - a0 + 1) * wide); // of the longest common subsequence of what follows
  for (let i = a1 - a0 - 1; i >= 0; i--) {
    for (let j = b1 - b0 - 1; j >= 0; j--) {
      const at = i * wide + j;
      length[at] = a[a0 + i] === b[b0 + j] ? length[at + wide + 1] + 1 : Math.max(length[at + wide], length[at + 1]);
    }
  }
  const found = [];
  for (let i = 0, j = 0; i < a1 - a0 && j < b1 - b0;) {
    const at = i * wide + j;
    if (a[a0 + i] === b[b0 + j]) found.push([a0 + i++, b0 + j++]);
    else if (length[at + wide] >= length[at + 1]) i++;
    else j++;
  }
  return found;
}

/** Tokens that occur once in each text, in an order that both have: the longest increasing subsequence of their positions. */
function anchors(a, b, a0, a1, b0, b1) {
  const once = (tokens, from, to) => {
    const at = new Map();
    for (let i = from; i < to; i++) at.set(tokens[i], at.has(tokens[i]) ? -1 : i);
    return at;
  };
  const theirs = once(b, b0, b1);
  const both = [...once(a, a0, a1)].filter(([token, i]) => i >= 0 && (theirs.get(token) ?? -1) >= 0).map(([token, i]) => [i, theirs.get(token)]);
  const [ends, last] = [[], new Int32Array(both.length)]; // ends[n]: the pair at the end of the best sequence of n + 1 pairs
  both.forEach(([, q], number) => {
    const before = lastWhere(ends.length, (count) => both[ends[count - 1]][1] < q);
    last[number] = before ? ends[before - 1] : -1;
    ends[before] = number;
  });
  const found = [];
  for (let number = ends.at(-1) ?? -1; number >= 0; number = last[number]) found.unshift(both[number]);
  return found;
}

/** Groups of tokens without equals: at both ends those with the same characters, and between them one by one. */
function replaced(a, b, a0, a1, b0, b1) {
  const [i, j] = commonCharacters(a.slice(a0, a1), b.slice(b0, b1));
  const [p, q] = commonCharacters(a.slice(a0 + i, a1).reverse().map(backwards), b.slice(b0 + j, b1).reverse().map(backwards));
  return [...sameCharacters(a, b, a0, a0 + i, b0, b0 + j), ...otherCharacters(a, b, a0 + i, a1 - p, b0 + j, b1 - q), ...sameCharacters(a, b, a1 - p, a1, b1 - q, b1)];
}

const backwards = (token) => [...token].reverse().join("");

/** How many tokens at the beginning of two lists have the same characters, though they may be cut at other places. */
function commonCharacters(a, b) {
  let [i, j, best] = [0, 0, [0, 0]];
  let [ours, theirs] = ["", ""];
  while (ours.startsWith(theirs) || theirs.startsWith(ours)) {
    if (ours === theirs) best = [i, j];
    if (ours.length <= theirs.length && i < a.length) ours += a[i++];
    else if (j < b.length) theirs += b[j++];
    else if (i < a.length) ours += a[i++];
    else break;
  }
  return best;
}

function otherCharacters(a, b, a0, a1, b0, b1) {
  const one = (from, to, make) => Array.from({ length: to - from }, (_, i) => make(from + i));
  const onlyFirst = () => one(a0, a1, (i) => [i, i + 1, b0, b0]), onlySecond = () => one(b0, b1, (j) => [a1, a1, j, j + 1]);
  if (a0 === a1 || b0 === b1) return [...onlyFirst(), ...onlySecond()];
  if (a1 - a0 === b1 - b0) return one(a0, a1, (i) => [i, i + 1, b0 + i - a0, b0 + i - a0 + 1]);
  if (Math.max(a1 - a0, b1 - b0) <= SHORT) return [[a0, a1, b0, b1]];
  return [...onlyFirst(), ...onlySecond()];
}

/** Groups of tokens that two tokenizers cut from the same characters: as small as their common boundaries allow. */
function sameCharacters(a, b, a0, a1, b0, b1) {
  const groups = [];
  let [i, j, ours, theirs] = [a0, b0, 0, 0]; // characters up to the ends of the tokens that were taken
  while (i < a1 || j < b1) {
    const [p, q] = [i, j];
    do {
      if (ours <= theirs && i < a1) ours += a[i++].length;
      else theirs += b[j++].length;
    } while ((ours !== theirs || i === p || j === q) && (i < a1 || j < b1));
    groups.push([p, i, q, j]);
  }
  return groups;
}
