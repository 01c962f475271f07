// Attention of a few tokens: weights as a heatmap, with scale, temperature and mask as switches, and the output beside it.

visuals["attention"] = function attentionVisual(root, { q, k, v, labels, scale = "1/√d", temperature = 1, mask = "none", window: width = 3, length = k.length }) {
  const rows = labels ? labels.slice(k.length - q.length) : q.map((_, at) => `query ${k.length - q.length + at}`);
  const columns = labels ?? k.map((_, at) => `key ${at}`);
  const first = k.length - q.length; // rows are the last tokens
  const state = { scale: scale === "1/√d" ? 1 / Math.sqrt(q[0].length) : scale, temperature, mask, window: width, length, row: 0, column: 0, outColumn: 0 };
  const products = product(q, transposed(k));
  const shownColumns = v[0].length > 8 ? 6 : v[0].length;
  const columnsShown = v.map((row) => row.slice(0, shownColumns));
  const MASKS = {
    none: () => true,
    causal: (i, j) => j <= i + first,
    padding: (i, j) => j < state.length,
    "causal window": (i, j) => j <= i + first && i + first - j < state.window,
  };
  const pick = (row, column) => change({ row, column });
  const map = heatmap({ rows, columns, name: "weight", label: `Weights: ${rows.length} queries in rows, ${columns.length} keys in columns; hatched cells are masked`, side: "sum", pick });
  const outs = heatmap({ rows, columns: [...Array(shownColumns).keys()].map(String), name: "out", label: "The output: a row for each query; squares are positive, circles negative", signed: true, size: map.cell, above: map.top, pick: (row, outColumn) => change({ row, outColumn }) });

  const names = { query: make("strong"), key: make("strong"), row: make("strong"), column: make("span") };
  const [dotted, factor, score, weight, largest, entropy, output] = [["picked-dot", 4], ["scale", 4], ["picked-score", 4], ["picked-weight", 4], ["largest", 3], ["entropy", 3], ["picked-out", 4]].map(([name, figures]) => shown(name, 0, figures));
  const formula = make("span");
  const readout = make("p", { className: "readout", role: "status" }, names.query, " attends to ", names.key, ": ", formula, make("br"), "output of ", names.row, ", column ", names.column, ": ", output);
  const scaled = toggle("scale 1/√d", state.scale !== 1, (on) => change({ scale: on ? 1 / Math.sqrt(q[0].length) : 1 }));
  const typed = () => { if (Number.isFinite(any.valueAsNumber)) change({ scale: any.valueAsNumber }); };
  const any = make("input", { type: "number", step: "any", "aria-label": "scale: any factor", className: "factor", oninput: typed });
  const wide = slider("window", { min: 1, max: columns.length, step: 1, value: state.window }, (value) => change({ window: value }));
  const long = slider("real tokens", { min: 0, max: columns.length, step: 1, value: state.length }, (value) => change({ length: value }));
  root.append(
    controls(scaled, make("label", { className: "control" }, make("span", {}, "factor"), any),
      slider("temperature", { min: 0.1, max: 10, step: 0.1, value: temperature }, (value) => change({ temperature: value })),
      options("mask", Object.keys(MASKS), mask, (name) => change({ mask: name })), wide, long),
    make("div", { className: "attention-maps" },
      make("div", {}, make("p", { className: "name" }, "weights: queries in rows, keys in columns"), map.root, map.legend()),
      make("div", {}, make("p", { className: "name" }, shownColumns < v[0].length ? `output, ${shownColumns} of ${v[0].length} columns` : "output = weights · V"), outs.root, make("p", { className: "note" }, "■ positive  ● negative"))),
    readout,
    make("p", { className: "note" }, "Mean over the rows: largest weight ", largest, ", entropy ", entropy, ` (equal weights: ${digits(Math.log(columns.length))})`),
  );

  function change(part) {
    Object.assign(state, part);
    const { row, column } = state;
    const allowed = MASKS[state.mask];
    const scores = products.map((line, i) => line.map((dotted_, j) => (allowed(i, j) ? (dotted_ * state.scale) / state.temperature : -Infinity)));
    const weights = scores.map(softmax);
    const out = product(weights, columnsShown);
    map.fill(weights, (i, j) => !allowed(i, j), weights.map((line) => line.reduce((a, b) => a + b, 0)));
    outs.fill(out);
    map.at(row, column);
    outs.at(row, state.outColumn);
    wide.hidden = state.mask !== "causal window";
    long.hidden = state.mask !== "padding";
    scaled.querySelector("input").checked = Math.abs(state.scale - 1 / Math.sqrt(q[0].length)) < 1e-9;
    if (document.activeElement !== any) any.value = Number(state.scale.toPrecision(6));
    names.query.textContent = rows[row];
    names.key.textContent = columns[column];
    show(dotted, products[row][column]);
    show(factor, state.scale);
    show(score, scores[row][column]);
    show(weight, weights[row][column]);
    formula.replaceChildren(...(allowed(row, column)
      ? ["q·k = ", dotted, " × ", factor, ` / ${digits(state.temperature)} = score `, score, "; softmax of the row: weight ", weight]
      : ["masked: score ", score, ", weight ", weight]));
    names.row.textContent = rows[row];
    names.column.textContent = state.outColumn;
    show(output, out[row][state.outColumn]);
    show(largest, weights.reduce((sum, line) => sum + Math.max(...line), 0) / weights.length);
    show(entropy, weights.reduce((sum, line) => sum - line.reduce((total, p) => (p ? total + p * Math.log(p) : total), 0), 0) / weights.length);
  }
  change({});
  return { state, change };
};
