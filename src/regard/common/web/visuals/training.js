// Training: the weights of a head at recorded steps, beside the curves of the loss and of the weight on the right keys.

visuals["training"] = function trainingVisual(root, { recorded, losses, weights, right, labels = weights[0][0].map((_, at) => `key ${at}`), rows = weights[0].map((_, at) => `row ${at}`) }) {
  const state = { at: 0, row: 0 };
  const masses = weights.map((head) => head.reduce((sum, row, i) => sum + row[right[i]], 0) / head.length);
  const SIDE = 300;
  const cell = SIDE / Math.max(weights[0].length, labels.length);
  const marks = right.map((j, i) => draw("rect", { x: j * cell + 1.5, y: i * cell + 1.5, width: cell - 3, height: cell - 3, class: "training-right" }));
  const chosen = draw("rect", { x: 0.75, width: labels.length * cell - 1.5, height: cell - 1.5, class: "training-row" });
  const map = chartMatrix({ width: labels.length * cell, height: rows.length * cell }, ...marks, chosen);
  map.svg.addEventListener("click", (event) => change({ row: map.cell(event).row }));

  const WIDE = 340;
  const HIGH = 112;
  const last = recorded[recorded.length - 1];
  const x = (step) => 34 + ((WIDE - 46) * step) / (last || 1);
  function curve(name, numbers, top, levels) {
    const y = (number) => 14 + (HIGH - 36) * (1 - number / top);
    const line = draw("line", { y1: 10, y2: HIGH - 20, class: "training-now" });
    const point = draw("circle", { r: 4, class: "training-point" });
    const grid = levels.flatMap((level) => [draw("line", { x1: 34, x2: WIDE - 12, y1: y(level), y2: y(level), class: "training-level" }), draw("text", { x: 29, y: y(level) + 4, "text-anchor": "end" }, digits(level, 2))]);
    const path = draw("polyline", { points: numbers.map((number, at) => `${x(recorded[at])},${y(number)}`).join(" "), class: "training-curve" });
    const plot = drawing(WIDE, HIGH, `${name} over the steps of training, from ${digits(numbers[0])} to ${digits(numbers[numbers.length - 1])}`, ...grid, path, line, point,
      draw("text", { x: 34, y: HIGH - 5 }, "0"), draw("text", { x: WIDE - 12, y: HIGH - 5, "text-anchor": "end" }, `step ${last}`));
    return { plot, to: (at) => { place(line, { x1: x(recorded[at]), x2: x(recorded[at]) }); place(point, { cx: x(recorded[at]), cy: y(numbers[at]) }); } };
  }
  const loss = curve("The loss", losses, Math.max(...losses) * 1.05 || 1, [0, Number(digits(Math.max(...losses), 2))]);
  const mass = curve("The mean weight on the right key", masses, 1.05, [0, 1]);
  const numbers = { step: shown("step", 0), loss: shown("loss", 0), mass: shown("mass", 0), equal: shown("equal", 1 / labels.length) };
  const bars = labels.map((label, j) => {
    const bar = make("div", { className: "bar" });
    const weight = shown(`weight-${j}`, 0);
    const row = make("tr", {}, make("th", { scope: "row" }, label), make("td", { className: "training-share" }, bar), make("td", {}, weight));
    return { bar, weight, row };
  });
  const caption = make("caption", {});
  root.append(
    player(recorded.length, (at) => change({ at }), { every: 350, label: "record" }),
    make("div", { className: "training-beside" },
      make("div", { className: "training-map" }, map.node, make("p", { className: "note" }, "Rows are queries, columns keys. A frame marks the right key of each row; the stronger the color of a cell, the larger its weight.")),
      make("div", { className: "training-curves" },
        make("p", {}, "step ", numbers.step, ", loss ", numbers.loss), loss.plot,
        make("p", {}, "mean weight on the right key ", numbers.mass, " (all equal: ", numbers.equal, ")"), mass.plot)),
    controls(options("row", rows, () => rows[state.row], (name) => change({ row: rows.indexOf(name) }))),
    make("table", { className: "bars training-weights" }, caption, make("tbody", {}, ...bars.map(({ row }) => row))),
  );

  function change(part) {
    Object.assign(state, part);
    const head = weights[state.at];
    map.fill(head);
    place(chosen, { y: state.row * cell + 0.75 });
    place(map.svg, { "aria-label": `Weights of the head at step ${recorded[state.at]}: on the right keys ${digits(masses[state.at])} in the mean.` });
    loss.to(state.at);
    mass.to(state.at);
    refresh(root);
    show(numbers.step, recorded[state.at], String(recorded[state.at]));
    show(numbers.loss, losses[state.at]);
    show(numbers.mass, masses[state.at]);
    head[state.row].forEach((weight, j) => {
      show(bars[j].weight, weight);
      bars[j].bar.style.width = `${100 * weight}%`;
      bars[j].row.classList.toggle("training-sought", j === right[state.row]);
    });
    caption.textContent = `The weights of ${rows[state.row]}; its right key is ${labels[right[state.row]]}.`;
  }
  change({});
  return { state, change };
};
