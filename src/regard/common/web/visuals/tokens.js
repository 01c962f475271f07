// A text whose tokens can be chosen: one token's row of weights, as colors behind the tokens and as numbers under them.

visuals["tokens"] = function tokensVisual(root, { tokens, weights, heads = weights.map((_, at) => `head ${at}`), token = 0, head = 0 }) {
  const state = { token, head, direction: "attends to" };
  const mean = weights.length > 1 ? tokens.map((_, i) => tokens.map((__, j) => weights.reduce((sum, each) => sum + each[i][j], 0) / weights.length)) : null;
  const DIRECTIONS = ["attends to", "receives attention from"];
  const words = tokens.map((text, at) => {
    const number = shown(`weight-${at}`, 0, 2);
    const pointed = ({ pointerType }) => { if (pointerType === "mouse") change({ token: at }); };
    const word = make("button", { type: "button", className: "token", onclick: () => change({ token: at }), onpointerenter: pointed }, make("span", { className: "word" }, text), number);
    return { word, number };
  });
  const text = make("div", { className: "tokens-text", role: "group", "aria-label": "The text; choose a token" }, ...words.map(({ word }) => word));
  text.addEventListener("keydown", (event) => {
    const step = stepOf(event, { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 });
    if (!step) return;
    const next = Math.min(tokens.length - 1, Math.max(0, state.token + step));
    change({ token: next });
    words[next].word.focus();
  });
  const names = [...heads, ...(mean ? [`mean of these ${weights.length} heads`] : [])];
  const sum = shown("sum", 0, 4);
  const chosen = make("strong");
  const verb = make("span");
  const strongest = make("ol", { className: "tokens-strongest" });
  const best = [0, 1, 2].map((at) => ({ word: make("strong"), number: shown(`best-${at}`, 0, 3), bar: make("i") }));
  strongest.append(...best.slice(0, tokens.length).map(({ word, number, bar }) => make("li", {}, word, make("span", { className: "tokens-bar" }, bar), number)));
  root.append(
    controls(...(names.length > 1 ? [options("head", names, names[head], (name) => change({ head: names.indexOf(name) }))] : []),
      options("shows what it", DIRECTIONS, DIRECTIONS[0], (name) => change({ direction: name }))),
    text,
    make("p", { className: "tokens-said", role: "status" }, "“", chosen, "” ", verb, ":"),
    strongest,
    make("p", { className: "note" }, "All together: ", sum),
  );

  function change(part) {
    Object.assign(state, part);
    const matrix = weights[state.head] ?? mean;
    const out = state.direction === DIRECTIONS[0];
    const row = out ? matrix[state.token] : matrix.map((line) => line[state.token]);
    words.forEach(({ word, number }, at) => {
      show(number, row[at], heatmap.decimals(row[at]));
      word.style.setProperty("--share", `${(100 * heatmap.shade(row[at])).toFixed(1)}%`);
      word.setAttribute("aria-pressed", at === state.token);
      word.tabIndex = at === state.token ? 0 : -1;
    });
    chosen.textContent = tokens[state.token];
    verb.textContent = state.direction;
    const order = row.map((_, at) => at).sort((a, b) => row[b] - row[a]);
    best.forEach(({ word, number, bar }, at) => {
      if (at >= order.length) return;
      word.textContent = tokens[order[at]];
      show(number, row[order[at]], row[order[at]].toFixed(3));
      bar.style.width = `${100 * Math.min(1, row[order[at]])}%`;
    });
    show(sum, row.reduce((a, b) => a + b, 0));
  }
  change({});
  return { state, change };
};
