// The heads of a layer side by side as small matrices; the chosen one large, with its numbers.

visuals["heads"] = function headsVisual(root, { tokens, weights, names = weights.map((_, at) => `head ${at}`), head = 0 }) {
  const state = { head, row: 0, column: 0 };
  const count = tokens.length;
  const mean = (matrix, key, from = 0, stop = count) => { let sum = 0; for (let i = from; i < stop; i++) sum += matrix[i][key(i)]; return sum / (stop - from); };
  const PLACES = { // where a head could send its weight, and how much of it goes there in the mean of the rows that can
    "first token": (matrix) => mean(matrix, () => 0),
    itself: (matrix) => mean(matrix, (i) => i),
    "token before": (matrix) => (count > 1 ? mean(matrix, (i) => i - 1, 1) : 0),
    "token after": (matrix) => (count > 1 ? mean(matrix, (i) => i + 1, 0, count - 1) : 0),
    "last token": (matrix) => mean(matrix, () => count - 1),
  };
  const small = weights.map((matrix, at) => {
    const [place_, share] = Object.entries(PLACES).map(([name, measure]) => [name, measure(matrix)]).sort((a, b) => b[1] - a[1])[0];
    const map = heatCanvas(count, count, 8, 0);
    requestAnimationFrame(() => map.paint((i, j) => matrix[i][j])); // once the button is in the page, which has the colors
    return make("button", { type: "button", className: "heads-one", onclick: () => change({ head: at }) },
      map.canvas,
      make("span", {}, names[at]), make("span", { className: "soft" }, `${place_} `, shown(`place-${at}`, share, 2)));
  });
  const group = make("div", { className: "heads-all", role: "group", "aria-label": "Heads; choose one to enlarge it" }, ...small);
  group.addEventListener("keydown", (event) => {
    const step = stepOf(event, { ArrowLeft: -1, ArrowRight: 1 });
    if (!step) return;
    change({ head: Math.min(weights.length - 1, Math.max(0, state.head + step)) });
    small[state.head].focus();
  });
  const map = heatmap({ rows: tokens, columns: tokens, name: "weight", label: `The weights of the chosen head: ${count} queries in rows, ${count} keys in columns`, pick: (row, column) => change({ row, column }) });
  const title = make("p", { className: "name" });
  const [query, key, weight] = [make("strong"), make("strong"), shown("picked-weight", 0, 4)];
  root.append(group, title, map.root, map.legend(), make("p", { className: "readout", role: "status" }, "“", query, "” gives “", key, "” the weight ", weight));

  function change(part) {
    Object.assign(state, part);
    const { head: at, row, column } = state;
    small.forEach((button, number) => { button.setAttribute("aria-pressed", number === at); button.tabIndex = number === at ? 0 : -1; });
    title.textContent = `${names[at]}: queries in rows, keys in columns`;
    map.fill(weights[at]);
    map.at(row, column);
    query.textContent = tokens[row];
    key.textContent = tokens[column];
    show(weight, weights[at][row][column]);
  }
  change({});
  return { state, change };
};
