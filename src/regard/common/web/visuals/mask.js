// A mask that the reader writes: an expression of positions, drawn as a matrix, with the number of pairs that it allows.

visuals["mask"] = function maskVisual(root, { expression, n = 12, rows = n, tables = {}, numbers = {}, presets = {}, block = 0, most = 32 }) {
  const state = { expression, n, rows, row: 0, column: 0 };
  const field = make("input", { type: "text", value: expression, spellcheck: false, className: "mask-field", autocomplete: "off", autocapitalize: "off", "aria-label": "the mask: an expression of query and key", oninput: () => change({ expression: field.value }) });
  const buttons = Object.entries(presets).map(([name, text]) => ({ text, made: button(name, () => change({ expression: text })) }));
  const error = make("div", { className: "mask-error", role: "status" });
  const place_ = make("div");
  const [allowed, total, empty, used, blocks] = ["allowed", "total", "empty", "blocks-used", "blocks"].map((name) => shown(name, 0, 5));
  const share = shown("share", 0);
  const blind = make("p", { className: "mask-empty" });
  const [query, key, allows] = [shown("query", 0), shown("key", 0), make("strong")];
  const readout = make("p", { className: "readout", role: "status" }, "query ", query, ", key ", key, ": ", allows);
  const given = [...Object.entries(tables).map(([name, list]) => `${name} = ${JSON.stringify(list).replaceAll(",", ", ")}`), ...Object.entries(numbers).map(([name, value]) => `${name} = ${value}`)];
  const wide = slider("tokens", { min: 2, max: most, step: 1, value: () => state.n, text: String }, (value) => change({ n: value, rows: state.rows === state.n ? value : Math.min(state.rows, value) }));
  const long = slider("rows, the last tokens", { min: 1, max: most, step: 1, value: () => state.rows, text: String }, (value) => change({ rows: Math.min(value, state.n) }));
  root.append(
    ...(buttons.length ? [make("div", { className: "controls presets", role: "group", "aria-label": "Masks to begin with" }, ...buttons.map(({ made }) => made))] : []),
    make("label", { className: "mask-line" }, make("span", { "aria-hidden": "true" }, "mask ="), field),
    error,
    ...(given.length ? [make("p", { className: "note mask-given" }, "Given: ", ...given.flatMap((text, at) => [at ? ", " : "", make("code", {}, text)]))] : []),
    controls(wide, long),
    make("p", { className: "name" }, "queries in rows, keys in columns"),
    place_,
    make("p", { className: "mask-count" }, allowed, " of ", total, " pairs allowed (", share, " %)", ...(block ? [`; blocks of ${block} × ${block} with an allowed pair: `, used, " of ", blocks] : [])),
    blind,
    readout,
  );
  let map = null;

  function matrix() {
    const labels = (count, from) => [...Array(count).keys()].map((at) => String(at + from));
    map = heatmap({ rows: labels(state.rows, state.n - state.rows), columns: labels(state.n, 0), name: "allowed", label: `The mask: ${state.rows} queries in rows, ${state.n} keys in columns; colored cells are allowed`, side: "keys", written: false, block, pick: (row, column) => change({ row, column }) });
    place_.replaceChildren(map.root);
    map.size = `${state.rows} ${state.n}`;
  }

  function explain(problem) {
    const text = state.expression;
    const mark = make("mark", {}, text.slice(problem.from, problem.to) || " ");
    error.replaceChildren(
      make("code", { className: "mask-wrong" }, text.slice(0, problem.from), mark, text.slice(problem.to)),
      make("p", {}, make("strong", {}, problem.what)),
      make("dl", {}, ...[["given", problem.given], ["expected", problem.expected], ["fix", problem.fix]].flatMap(([name, words]) => [make("dt", {}, name), make("dd", {}, words)])));
  }

  function change(part) {
    Object.assign(state, part);
    state.rows = Math.min(state.rows, state.n);
    state.row = Math.min(state.row, state.rows - 1);
    state.column = Math.min(state.column, state.n - 1);
    if (field.value !== state.expression) field.value = state.expression;
    for (const { made, text } of buttons) made.setAttribute("aria-pressed", text === state.expression);
    const first = state.n - state.rows;
    let values;
    try {
      const { at } = maskExpression(state.expression, { tables, numbers });
      values = [...Array(state.rows).keys()].map((i) => [...Array(state.n).keys()].map((j) => at(i + first, j)));
    } catch (problem) {
      if (problem.what === undefined) throw problem;
      explain(problem);
    }
    field.setAttribute("aria-invalid", values === undefined);
    place_.classList.toggle("mask-old", values === undefined); // the last mask that could be read
    if (values === undefined) return;
    error.replaceChildren();
    refresh(root);
    if (map?.size !== `${state.rows} ${state.n}`) matrix();
    const counts = values.map((line) => line.reduce((a, b) => a + b, 0));
    map.fill(values, undefined, counts);
    map.at(state.row, state.column);
    const sum = counts.reduce((a, b) => a + b, 0);
    show(allowed, sum);
    show(total, state.rows * state.n);
    show(share, (100 * sum) / (state.rows * state.n));
    if (block) {
      const size = (count) => Math.ceil(count / block);
      const found = new Set();
      values.forEach((line, i) => line.forEach((value, j) => { if (value) found.add(Math.floor(i / block) * size(state.n) + Math.floor(j / block)); }));
      show(used, found.size);
      show(blocks, size(state.rows) * size(state.n));
    }
    const none = counts.flatMap((count, i) => (count ? [] : [i + first]));
    show(empty, none.length);
    blind.hidden = !none.length;
    blind.replaceChildren(...(none.length ? ["⚠ ", empty, none.length === 1 ? ` row may attend to no key: row ${none[0]}` : ` rows may attend to no key: rows ${none.join(", ")}`, ". Its softmax is 0/0, unless the code sets it to 0."] : []));
    show(query, state.row + first);
    show(key, state.column);
    allows.textContent = values[state.row][state.column] ? "allowed" : "hidden";
  }
  change({});
  return { state, change };
};
