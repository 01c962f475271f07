// The convex hull of values with the output in it; and two kinds of weights with which the output can leave it.

visuals["hull"] = function hullVisual(root, { values, scores, second = scores.map((_, at) => scores.at(-1 - at)), labels = scores.map((_, at) => `key ${at}`) }) {
  const MODES = { "softmax": "softmax", "dropout": "softmax, then dropout", "difference": "one softmax minus another" };
  const state = { values: values.map((row) => [...row]), scores: [...scores], second: [...second], mode: "softmax", dropped: scores.map((_, at) => at === 0), rate: 0.5, lambda: 0.8 };
  const most = Math.ceil(2 * Math.max(1, ...values.flat().map(Math.abs)));
  const plane = planeOf({ low: [-most, -most], high: [most, most], label: "the values, their convex hull, and the output", free: true });
  const region = draw("path", { class: "hull-region", "aria-hidden": "true" });
  const spokes = scores.map(() => draw("line", { class: "hull-spoke", "aria-hidden": "true" }));
  plane.svg.append(region, ...spokes);
  const handles = labels.map((label, at) => plane.handle(`value of ${label}: arrow keys move it`, "v", (to) => change({ values: state.values.with(at, to) })));
  const names = labels.map((label) => draw("text", { class: "plane-name hull-name", "aria-hidden": "true" }, label));
  const out = draw("g", { class: "hull-out", "aria-hidden": "true" }, draw("path", { d: "M0 -10L10 0L0 10L-10 0Z" }), draw("text", { class: "plane-name", x: 14, y: 5 }, "out"));
  plane.svg.append(...names, out);

  const number = (name) => shown(name, 0);
  const rows = labels.map((label, at) => {
    const made = { score: number(`score-${at}`), other: number(`second-${at}`), weight: number(`weight-${at}`), x: number(`value-${at}-0`), y: number(`value-${at}-1`) };
    const range = (name, text) => {
      const moved = ({ target }) => change({ [name]: state[name].with(at, target.valueAsNumber) });
      return make("input", { type: "range", min: -8, max: 8, step: 0.1, value: String(state[name][at]), "aria-label": `${text} of ${label}`, oninput: moved });
    };
    made.drop = make("input", { type: "checkbox", checked: state.dropped[at], "aria-label": `drop ${label}`, oninput: () => change({ dropped: state.dropped.with(at, made.drop.checked) }) });
    made.sliders = { scores: range("scores", "score"), second: range("second", "second score") };
    made.second = make("div", { className: "hull-slider" }, made.sliders.second, made.other);
    made.dropping = make("td", {}, made.drop);
    made.row = make("tr", {}, make("th", { scope: "row" }, label), make("td", {}, "(", made.x, ", ", made.y, ")"), make("td", {}, make("div", { className: "hull-slider" }, made.sliders.scores, made.score), made.second), made.dropping, make("td", {}, made.weight));
    return made;
  });
  const heads = { second: make("span", {}, ", and the one that is subtracted"), dropping: make("th", { scope: "col" }, "drop") };
  const sum = number("sum");
  const result = [number("out-0"), number("out-1")];
  const foot = make("td", { className: "hull-sum" }, "sum ", sum);
  const said = make("p", { className: "hull-said" });
  const kind = options("weights", Object.values(MODES), () => MODES[state.mode], (text) => change({ mode: Object.keys(MODES).find((mode) => MODES[mode] === text) }));
  const rate = slider("dropout rate", { min: 0, max: 0.5, step: 0.05, value: state.rate }, (value) => change({ rate: value }));
  const lambda = slider("λ", { min: 0, max: 1, step: 0.05, value: state.lambda }, (value) => change({ lambda: value }));
  const col = (text) => make("th", { scope: "col" }, text);
  root.append(
    controls(kind, rate, lambda),
    make("div", { className: "hull-sides" }, plane.svg, make("div", {},
      make("table", { className: "hull-table" },
        make("thead", {}, make("tr", {}, col("key"), col("value"), make("th", { scope: "col" }, "score", heads.second), heads.dropping, col("weight"))),
        make("tbody", {}, ...rows.map(({ row }) => row)),
        make("tfoot", {}, make("tr", {}, make("th", { scope: "row" }, "output"), make("td", { colSpan: 2 }, "(", ...result.flatMap((each, at) => (at ? [", ", each] : [each])), ")"), foot))),
      said)),
  );

  function weightsNow() {
    const first = softmax(state.scores);
    if (state.mode === "dropout") return first.map((weight, at) => (state.dropped[at] ? 0 : weight / (1 - state.rate)));
    if (state.mode === "difference") return softmax(state.second).map((weight, at) => first[at] - state.lambda * weight);
    return first;
  }

  /** The corners of the smallest region without dents that holds the points, in order. */
  function hullOf(points) {
    const sorted = [...points].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    const chain = (list) => list.reduce((kept, point) => {
      while (kept.length > 1 && cross(kept.at(-2), kept.at(-1), point) <= 0) kept.pop();
      return [...kept, point];
    }, []).slice(0, -1);
    const found = [...chain(sorted), ...chain(sorted.toReversed())];
    return found.length ? found : [sorted[0]];
  }
  function cross(a, b, c) { return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]); }

  /** How far a point is from a line between two points. */
  function distance(point, from, to) {
    const [along, size] = [[to[0] - from[0], to[1] - from[1]], Math.hypot(to[0] - from[0], to[1] - from[1])];
    const share = size ? Math.min(1, Math.max(0, dot([point[0] - from[0], point[1] - from[1]], along) / size ** 2)) : 0;
    return Math.hypot(point[0] - from[0] - share * along[0], point[1] - from[1] - share * along[1]);
  }
  function isInside(point, hull) {
    const edges = hull.map((corner, at) => [corner, hull[(at + 1) % hull.length]]);
    return (hull.length > 2 && edges.every(([a, b]) => cross(a, b, point) >= 0)) || edges.some(([a, b]) => distance(point, a, b) < 1e-9 * most);
  }

  function change(part) {
    Object.assign(state, part);
    const weights = weightsNow();
    const output = [0, 1].map((axis) => dot(weights, state.values.map((row) => row[axis])));
    const hull = hullOf(state.values);
    const inside = isInside(output, hull);
    state.inside = inside;
    place(region, { d: `M${hull.map(([x, y]) => `${plane.x(x)} ${plane.y(y)}`).join("L")}Z` });
    place(out, { transform: `translate(${plane.x(output[0])} ${plane.y(output[1])})`, class: `hull-out${inside ? "" : " hull-outside"}` });
    const total = weights.reduce((a, b) => a + b, 0);
    rows.forEach((row, at) => {
      const [x, y] = state.values[at];
      handles[at].to([x, y]);
      place(names[at], { x: plane.x(x) + (x < 0 ? -10 : 10), y: plane.y(y) + (y < 0 ? 20 : -9), "text-anchor": x < 0 ? "end" : "start" });
      place(spokes[at], { x1: plane.x(output[0]), y1: plane.y(output[1]), x2: plane.x(x), y2: plane.y(y), "stroke-width": (9 * Math.min(1, Math.abs(weights[at]))).toFixed(2), class: `hull-spoke${weights[at] < 0 ? " hull-negative" : ""}` });
      for (const [node, value] of [[row.x, x], [row.y, y], [row.score, state.scores[at]], [row.other, state.second[at]], [row.weight, weights[at]]]) show(node, value);
      row.weight.parentElement.className = weights[at] < 0 || weights[at] > 1 ? "hull-strange" : "";
      row.second.hidden = state.mode !== "difference";
      row.dropping.hidden = state.mode !== "dropout";
      for (const [name, input] of Object.entries(row.sliders)) {
        const text = digits(state[name][at]);
        if (input.valueAsNumber !== state[name][at]) input.value = String(state[name][at]);
        if (input.getAttribute("aria-valuetext") !== text) input.setAttribute("aria-valuetext", text);
      }
      row.drop.checked = state.dropped[at];
    });
    heads.second.hidden = lambda.hidden = state.mode !== "difference";
    heads.dropping.hidden = rate.hidden = state.mode !== "dropout";
    foot.colSpan = state.mode === "dropout" ? 2 : 1;
    refresh(root);
    show(sum, total);
    result.forEach((each, axis) => show(each, output[axis]));
    place(plane.svg, { "aria-label": `${values.length} values as points, the region that they enclose, and the output ${inside ? "inside" : "outside"} it` });
    said.replaceChildren(make("b", {}, inside ? "Inside. " : "Outside. "), {
      softmax: "Weights of a softmax are never negative and sum to 1: the output is a mean of the values, and cannot leave their hull.",
      dropout: "Dropout, in training: dropped weights are 0, and the others are divided by 1 − rate. They no longer sum to 1.",
      difference: "Differential attention: λ times a second softmax is subtracted. Weights can be negative, and sum to 1 − λ.",
    }[state.mode]);
    said.classList.toggle("hull-left", !inside);
  }
  change({});
  return { state, change };
};
