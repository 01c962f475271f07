// Tokens as text: cut between characters, in quotation marks, isolated from the direction of the text around them, and explained.

const graphemes = new Intl.Segmenter("en", { granularity: "grapheme" });
const CODES = /(⟨(?:U\+)?[0-9A-F]{2,6}⟩)/; // a character or a byte written as its number
const BYTES = /⟨[0-9A-F]{2}⟩/;
const RIGHT_TO_LEFT = /[\u0590-\u08FF\uFB1D-\uFDFF\uFE70-\uFEFC\u{10800}-\u{10FFF}\u{1E800}-\u{1EFFF}]/u; // Unicode keeps these ranges for such scripts

/** The text cut between characters as readers see them: a base with its marks, an emoji of several parts, a flag. */
const characters = (text) => text.split(CODES).flatMap((part, at) => (at % 2 ? [part] : Array.from(graphemes.segment(part), ({ segment }) => segment)));

/** The text, cut to at most so many characters, the last of which is then “…”. */
function clip(text, most) {
  if (text.length <= most) return text;
  const whole = characters(text.slice(0, 40 * most)); // of at most about forty code units each
  return whole.length <= most ? text : `${whole.slice(0, most - 1).join("")}…`;
}

/** The direction of a text: that of its first character with a direction. */
const directionOf = (text) => (RIGHT_TO_LEFT.test(text.match(/\p{L}/u)?.[0] ?? "") ? "rtl" : "ltr");

/** Where the patch is that a token represents: {row, column} in the grid of all images, and its name. */
const placesOf = once(({ places, tiles }) => {
  const cells = tiles.flatMap(([rows, columns, top, left], number) => Array.from({ length: rows * columns }, (_, at) => {
    const [row, column] = [Math.floor(at / columns), at % columns];
    return { row: top + row, column: left + column, name: `patch ${row},${column}${tiles.length > 1 ? ` of image ${number + 1}` : ""}` };
  }));
  return new Map(places.map((i, at) => [i, cells[at]]));
});
/** The patch of an image that a token of a text represents; undefined for words. */
const patchOf = (of, i) => (of.grid || !of.patches ? undefined : placesOf(of.patches).get(i));

/** A token, cut to so many characters; if the vocabulary lacks it, its characters and what the model saw: 𓀀 ([UNK]). */
function wordOf(of, i, most = Infinity) {
  const patch = patchOf(of, i);
  if (patch) return patch.name;
  const word = clip(of.tokens[i] ?? "∅", most), saw = of.unknown?.[i];
  return saw ? `${word} (${saw})` : word;
}
const quote = (of, i, most) => `“${wordOf(of, i, most)}”`;
/** The same as a node; the quotation marks belong to the sentence around the token. */
const quoted = (of, i, most) => element("span", "“", { title: remark(of, i) }, element("bdi", wordOf(of, i, most)), "”");
/** The word for one position of an axis. */
const placeWord = (of) => (of.grid ? "patch" : "token");
/** A token in quotation marks, and its position. */
const named = (of, i, more = "", most = 40) => [quoted(of, i, most), ` (${placeWord(of)} ${of.places?.[i] ?? i.toLocaleString("en")}${more})`];

/** What is special about a token whose text is not what the model saw, or not whole characters; otherwise "". */
function remark(of, i) {
  const word = of.tokens[i] ?? "", saw = of.unknown?.[i];
  if (saw) return `the model saw ${saw}: its vocabulary lacks “${clip(word, 40)}”`;
  if (of.special[i]) return "";
  if (BYTES.test(word)) return "⟨…⟩ is a byte of a character that is split between tokens";
  return CODES.test(word) ? "⟨U+…⟩ is the number of a character that is invisible, or that a font cannot show" : "";
}
