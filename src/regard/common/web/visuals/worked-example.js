// A whole attention in small: every number of x and of the three matrices can be changed, and everything after it follows.
//
// The cell under the pointer, or with the focus, is explained below: its formula, with its numbers, and in NumPy.

visuals["worked-example"] = function workedExampleVisual(root, { x, W_q, W_k, W_v, tokens = x.map((_, at) => `token ${at}`), causal = false }) {
  const copied = (rows) => rows.map((row) => [...row]);
  const state = { x: copied(x), W_q: copied(W_q), W_k: copied(W_k), W_v: copied(W_v), causal, cell: ["scores", 1, 2] };
  const GIVEN = ["x", "W_q", "W_k", "W_v"];
  const [rowOf, columnOf, all] = [(name, row) => [name, row, null], (name, column) => [name, null, column], (name, row, column) => [name, row, column]];
  const depth = W_q[0].length;
  const root2 = () => `√${depth}`;
  const signed = (value) => (value < 0 ? `(${digits(value)})` : digits(value)); // a factor: a minus sign needs parentheses
  const sum = (a, b) => a.map((value, at) => `${signed(value)}·${signed(b[at])}`).join(" + ");
  const column = (rows, at) => rows.map((row) => row[at]);
  const projection = (name, W) => ({
    rows: "tokens", title: `${name} = x · ${W}`, from: (i, j) => [rowOf("x", i), columnOf(W, j)],
    formula: (m, i, j) => [`${name}[${i}, ${j}] = x[${i}] · ${W}[:, ${j}]`, sum(m.x[i], column(m[W], j))], numpy: (m, i, j) => `x[${i}] @ ${W}[:, ${j}]`,
  });
  // Every table: what it shows, the cells that a cell comes from, its formula with and without numbers, and in NumPy.
  const TABLES = {
    x: { rows: "tokens", title: "x", given: true },
    W_q: { title: "W_q", given: true },
    W_k: { title: "W_k", given: true },
    W_v: { title: "W_v", given: true },
    q: projection("q", "W_q"),
    k: projection("k", "W_k"),
    v: projection("v", "W_v"),
    products: { rows: "tokens", columns: "tokens", title: "products = q · kᵀ", from: (i, j) => [rowOf("q", i), rowOf("k", j)],
      formula: (m, i, j) => [`product[${i}, ${j}] = q[${i}] · k[${j}]`, sum(m.q[i], m.k[j])], numpy: (m, i, j) => `(x @ W_q)[${i}] @ (x @ W_k)[${j}]` },
    scores: { rows: "tokens", columns: "tokens", title: `scores = products / ${root2()}`, from: (i, j) => [rowOf("q", i), rowOf("k", j), all("products", i, j)],
      formula: (m, i, j) => [`score[${i}, ${j}] = q[${i}] · k[${j}] / ${root2()}`, `(${sum(m.q[i], m.k[j])}) / ${digits(Math.sqrt(depth), 4)}`],
      numpy: (m, i, j) => `(x @ W_q)[${i}] @ (x @ W_k)[${j}] / np.sqrt(${depth})` },
    masked: { rows: "tokens", columns: "tokens", title: "masked scores", from: (i, j) => (j > i ? [] : [all("scores", i, j)]),
      formula: (m, i, j) => (j > i ? [`masked[${i}, ${j}]`, `−∞, because key ${j} comes after query ${i}`] : [`masked[${i}, ${j}] = score[${i}, ${j}]`, `allowed, because key ${j} does not come after query ${i}`]),
      numpy: (m, i, j) => `np.where(${j} <= ${i}, scores[${i}, ${j}], -np.inf)` },
    weights: { rows: "tokens", columns: "tokens", title: "weights = softmax of each row", from: (i) => [rowOf(before(), i)],
      formula: (m, i, j) => {
        const row = m[before()][i];
        const most = Math.max(...row);
        const power = (at) => (row[at] === -Infinity ? "0" : digits(Math.exp(row[at] - shiftOf(most))));
        const name = state.causal ? "masked" : "score";
        const less = shiftOf(most) ? " − the largest" : "";
        return [`weight[${i}, ${j}] = exp(${name}[${i}, ${j}]${less}) / Σ exp(${name}[${i}]${less})`, `${power(j)} / (${row.map((_, at) => power(at)).join(" + ")})`];
      },
      numpy: (m, i, j) => {
        const less = shiftOf(Math.max(...m[before()][i])) ? ` - ${before()}[${i}].max()` : "";
        return `np.exp(${before()}[${i}, ${j}]${less}) / np.exp(${before()}[${i}]${less}).sum()`;
      } },
    out: { rows: "tokens", title: "out = weights · v", from: (i, j) => [rowOf("weights", i), columnOf("v", j)],
      formula: (m, i, j) => [`out[${i}, ${j}] = weight[${i}] · v[:, ${j}]`, sum(m.weights[i], column(m.v, j))], numpy: (m, i, j) => `weights[${i}] @ v[:, ${j}]` },
  };
  const shiftOf = (most) => (most > 700 ? most : 0); // exp of more would be infinite
  function before() { return state.causal ? "masked" : "scores"; }

  let matrices = computed();
  const nodes = Object.fromEntries(Object.entries(TABLES).map(([name, table]) => [name, tableOf(name, table)]));
  const formula = make("p", { className: "worked-formula" });
  const numbers = make("span", { className: "worked-numbers" });
  const value = shown("cell", 0, 4);
  const code = make("code", { className: "worked-code" });
  const program = make("code", {});
  const outcome = make("span", { className: "worked-copied", role: "status" });
  const listing = make("pre", { tabIndex: 0, "aria-label": "The program" }, program);
  const opened = make("details", { className: "worked-program" }, make("summary", {}, "The whole computation as a program"), listing);
  const steps = (title, ...names) => make("section", { className: "worked-step", "aria-label": title }, make("p", { className: "worked-title" }, title), make("div", { className: "worked-tables" }, ...names.map((name) => nodes[name].table)));
  root.append(
    controls(toggle("causal mask", () => state.causal, (on) => change({ causal: on })), button("Copy as a NumPy program", () => copy(program)), button("Numbers as at first", () => change({ x: copied(x), W_q: copied(W_q), W_k: copied(W_k), W_v: copied(W_v) }))),
    steps("Given: change any number", "x", "W_q", "W_k", "W_v"), steps("Queries, keys, values", "q", "k", "v"),
    steps("Each query with each key", "products", "scores", "masked"), steps("Weights, and the mean of the values", "weights", "out"),
    make("div", { className: "worked-panel" }, formula, make("p", {}, numbers, " = ", value), make("p", { className: "worked-numpy" }, code, button("Copy", () => copy(code)), outcome)),
    opened,
  );

  /** A table of numbers: fields where they are given, cells that take the focus where they follow. */
  function tableOf(name, { title, rows, columns, given }) {
    const [count, across] = [matrices[name].length, matrices[name][0].length];
    const head = columns ? Array.from({ length: across }, (_, at) => `key ${at}`) : Array.from({ length: across }, (_, at) => String(at));
    const cells = matrices[name].map((row, i) => row.map((value, j) => {
      const field = given ? numberField(`${name}-${i}-${j}`, `${name}[${i}, ${j}]`, value, (to) => change({ [name]: state[name].with(i, state[name][i].with(j, to)), cell: [name, i, j] })) : shown(`${name}-${i}-${j}`, value);
      const cell = make("td", { onpointerenter: () => look(name, i, j), ...(given ? {} : { tabIndex: i + j ? -1 : 0 }) }, field);
      (given ? field : cell).addEventListener("focus", () => look(name, i, j));
      if (!given) cell.addEventListener("keydown", (event) => walk(event, name, i, j));
      return { cell, field };
    }));
    const labels = rows ? tokens : Array.from({ length: count }, (_, at) => String(at));
    const table = make("table", { className: `worked-table worked-${name} ${name.replace("W_", "")}` }, make("caption", {}, title),
      make("thead", {}, make("tr", {}, make("td", {}), ...head.map((text) => make("th", { scope: "col" }, text)))),
      make("tbody", {}, ...cells.map((row, i) => make("tr", {}, make("th", { scope: "row" }, labels[i]), ...row.map(({ cell }) => cell)))));
    return { table, cells };
  }
  function walk(event, name, i, j) {
    const [down, right] = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key] ?? [0, 0];
    const next = nodes[name].cells[i + down]?.[j + right];
    if (!next || !(down || right)) return;
    event.preventDefault();
    nodes[name].cells[i][j].cell.tabIndex = -1;
    next.cell.tabIndex = 0;
    next.cell.focus();
  }

  function computed() {
    const [q, k, v] = [state.W_q, state.W_k, state.W_v].map((W) => product(state.x, W));
    const products = product(q, transposed(k));
    const scores = products.map((row) => row.map((value) => value / Math.sqrt(depth)));
    const masked = scores.map((row, i) => row.map((value, j) => (j > i ? -Infinity : value)));
    const weights = (state.causal ? masked : scores).map(softmax);
    return { x: state.x, W_q: state.W_q, W_k: state.W_k, W_v: state.W_v, q, k, v, products, scores, masked, weights, out: product(weights, v) };
  }

  function look(name, i, j) {
    state.cell = [name, i, j];
    marked(name, i, j);
    explained();
  }
  function marked(name, i, j) {
    const from = TABLES[name].given ? [] : TABLES[name].from(i, j);
    for (const [other, { cells }] of Object.entries(nodes)) {
      cells.forEach((row, r) => row.forEach(({ cell }, c) => {
        const source = from.some(([table, fromRow, fromColumn]) => table === other && (fromRow === null || fromRow === r) && (fromColumn === null || fromColumn === c));
        const kind = other === name && r === i && c === j ? "worked-here" : source ? "worked-source" : "";
        if (cell.className !== kind) cell.className = kind;
      }));
    }
  }
  function explained() {
    const [name, i, j] = state.cell;
    const { given, formula: words, numpy } = TABLES[name];
    const [left, right] = given ? [`${name}[${i}, ${j}]`, `given; ${name === "x" ? `row ${i} of q, k and v` : `column ${j} of ${name.at(-1)}`}, and what comes after it, follow`] : words(matrices, i, j);
    formula.textContent = left;
    numbers.textContent = right;
    show(value, matrices[name][i][j]);
    code.textContent = given ? `${name}[${i}, ${j}]` : numpy(matrices, i, j);
  }

  /** The program that computes all tables from the numbers as they are now. */
  function programNow() {
    const written = (rows) => `np.array([${rows.map((row) => `[${row.map((value) => (Number.isInteger(value) ? `${value}.0` : String(value))).join(", ")}]`).join(", ")}])`;
    return ["import numpy as np", "", ...GIVEN.map((name) => `${name} = ${written(state[name])}`), "",
      "q, k, v = x @ W_q, x @ W_k, x @ W_v", "products = q @ k.T", `scores = products / np.sqrt(${depth})`,
      ...(state.causal ? ["masked = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)  # no key after the query"] : []),
      `powers = np.exp(${before()} - ${before()}.max(axis=1, keepdims=True))`, "weights = powers / powers.sum(axis=1, keepdims=True)", "out = weights @ v", "",
      "np.set_printoptions(precision=3, suppress=True)", `for name in ("q", "k", "v", "products", "scores"${state.causal ? ', "masked"' : ""}, "weights", "out"):`, "    print(name, globals()[name], sep=\"\\n\")", ""].join("\n");
  }

  /** Copies a text; where the browser does not allow it, selects it. */
  async function copy(node) {
    try {
      await navigator.clipboard.writeText(node.textContent);
      outcome.textContent = "Copied.";
    } catch {
      opened.open ||= node === program; // only what is shown can be selected
      getSelection().selectAllChildren(node);
      outcome.textContent = document.execCommand("copy") ? "Copied." : "Selected: copy it with Ctrl+C.";
    }
  }

  function change(part) {
    Object.assign(state, part);
    matrices = computed();
    refresh(root);
    nodes.masked.table.hidden = !state.causal;
    if (!state.causal && state.cell[0] === "masked") state.cell = ["scores", state.cell[1], state.cell[2]];
    for (const [name, { cells }] of Object.entries(nodes)) {
      cells.forEach((row, i) => row.forEach(({ field, cell }, j) => {
        const value = matrices[name][i][j];
        if (TABLES[name].given) return showField(field, value);
        show(field, value);
        if (name === "weights") cell.style.setProperty("--share", `${(60 * value).toFixed(1)}%`);
        return undefined;
      }));
    }
    marked(...state.cell);
    explained();
    program.textContent = programNow();
  }
  change({});
  return { state, change };
};
