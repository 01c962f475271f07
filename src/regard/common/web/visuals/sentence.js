// A sentence that the reader types: its words look at words with the same characters. Nothing is learned.

const MOST = 12; // words

visuals["sentence"] = function sentenceVisual(root, { sentence }) {
  const state = { sentence, row: 0, column: 0 };
  const typed = make("input", { type: "text", maxLength: 200, spellcheck: false, oninput: () => change({ sentence: typed.value, row: 0, column: 0 }) });
  const place = make("div");
  const [row, column] = [make("strong"), make("strong")];
  const weight = shown("weight", 0);
  const picked = make("p", { role: "status" }, "“", row, "” looks at “", column, "” with the weight ", weight, ".");
  root.append(controls(make("label", { className: "control" }, make("span", {}, "A sentence of yours"), typed)), place, picked);
  let [words, weights, figure, drawn] = [[], [], null, null];

  /** How often each word has each character, as a row of length 1; the scores are products of rows, times 3. */
  function compute() {
    words = state.sentence.toLowerCase().split(/\s+/).filter(Boolean).slice(0, MOST);
    const characters = [...new Set(words.join(""))];
    const rows = words.map((word) => characters.map((character) => [...word].filter((each) => each === character).length));
    const ones = rows.map((counts) => counts.map((count) => count / Math.sqrt(dot(counts, counts))));
    weights = ones.map((query) => softmax(ones.map((key) => 3 * dot(query, key))));
    figure = words.length ? heatmap({ rows: words, columns: words, name: "weight", label: "The weights of each word", pick: (at, to) => change({ row: at, column: to }) }) : null;
    place.replaceChildren(...(figure ? [figure.root, figure.legend()] : []));
    figure?.fill(weights);
    picked.hidden = !figure;
  }

  function change(part) {
    Object.assign(state, part);
    if (drawn !== state.sentence) compute();
    drawn = state.sentence;
    if (typed.value !== state.sentence) typed.value = state.sentence;
    if (!figure) return;
    figure.at(state.row, state.column);
    row.textContent = words[state.row];
    column.textContent = words[state.column];
    show(weight, weights[state.row][state.column]);
  }
  change({});
  return { state, change };
};
