// Cost curves: what a layer costs over the number of tokens: its parts, other layers, and the memory of its weights.

visuals["cost-curves"] = function costCurvesVisual(root, { width, heads, quantity = "operations", tokens = Math.round(width / 2), taps = 3, window: keys = 8, block = 64, bytes = 4 }) {
  const WIDTHS = [64, 128, 256, 512, 768, 1024, 2048, 4096, 8192, 16384];
  const LEAST = 8;
  const MOST = 2 ** 20;
  const state = { quantity, n: tokens, d: width, heads, projected: true, causal: false, log: true, taps, keys, block, bytes };
  const pairs = (n) => (state.causal ? (n * (n + 1)) / 2 : n * n);
  const powerOf = (base, n) => { let count = 0; for (let reach = 1; reach < n; reach *= base) count += 1; return count; };

  /** The curves of each quantity: name, formula, value at n, and what else the table has of it. */
  const KINDS = {
    operations: {
      unit: "operations",
      curves: () => [
        { name: "projections", formula: state.projected ? "8·n·d²" : "6·n·d²", at: (n) => (state.projected ? 8 : 6) * n * state.d ** 2 },
        { name: "scores and values", formula: state.causal ? "2·n·(n + 1)·d" : "4·n²·d", at: (n) => 4 * state.d * pairs(n) },
      ],
      crossing: () => [state.causal ? (state.projected ? 4 : 3) * state.d - 1 : Math.ceil((state.projected ? 2 : 1.5) * state.d), `n = ${state.causal ? (state.projected ? "4·d − 1" : "3·d − 1") : state.projected ? "2·d" : "1.5·d"}`, "scores and values cost as much as the projections"],
      extra: [["share", (n, value, sum) => [value / sum, `${chartNumber((100 * value) / sum, 3)} %`]]],
    },
    layers: {
      unit: "operations",
      curves: () => [
        { name: "self-attention", formula: "4·n²·d", at: (n) => 4 * n * n * state.d, steps: () => 2, path: () => 1 },
        { name: "recurrent", formula: "4·n·d²", at: (n) => 4 * n * state.d ** 2, steps: (n) => n, path: (n) => n },
        { name: "convolution", formula: `2·${state.taps}·n·d²`, at: (n) => 2 * state.taps * n * state.d ** 2, steps: () => 1, path: (n) => Math.ceil((n - 1) / (state.taps - 1)) },
        { name: "convolution, dilated", formula: `2·${state.taps}·n·d²`, at: (n) => 2 * state.taps * n * state.d ** 2, steps: () => 1, path: (n) => powerOf(state.taps, n), same: 2 },
        { name: `attention to ${state.keys} keys`, formula: `4·${state.keys}·n·d`, at: (n) => 4 * state.keys * n * state.d, steps: () => 2, path: (n) => Math.ceil((n - 1) / (state.keys - 1)) },
      ],
      crossing: () => [state.d, "n = d", "self-attention has as many operations as the recurrence"],
      extra: [["steps", (n, value, sum, curve) => [curve.steps(n)]], ["path", (n, value, sum, curve) => [curve.path(n)]]],
    },
    memory: {
      unit: "bytes",
      curves: () => [
        { name: "weights, all rows at once", formula: `${state.bytes}·h·n²`, at: (n) => state.bytes * state.heads * n * n },
        { name: `weights, ${state.block} rows at a time`, formula: `${state.bytes}·h·${state.block}·n`, at: (n) => state.bytes * state.heads * Math.min(state.block, n) * n },
        { name: "q, k, v and output", formula: `${state.bytes}·4·n·d`, at: (n) => state.bytes * 4 * n * state.d },
      ],
      crossing: () => [Math.ceil((4 * state.d) / state.heads), "n = 4·d / h", "all weights take as much as q, k, v and the output"],
      extra: [["against n/2", (n, value, sum, curve) => [value / curve.at(n / 2), `× ${chartNumber(value / curve.at(n / 2))}`]]],
    },
  };

  const plotted = chart({ label: "", height: 300, margins: [24, 16, 36, 62] });
  plotted.node.classList.add("cost-chart");
  const lines = chartDashes.map((dashes, at) => draw("path", { class: `chart-line chart-line-${at}`, "stroke-dasharray": dashes }));
  const dots = lines.map((_, at) => draw("circle", { r: 4, class: `chart-dot chart-line-${at}` }));
  const cross = draw("line", { class: "cost-cross" });
  const crossText = draw("text", { class: "cost-cross-text" });
  const here = draw("line", { class: "cost-here" });
  const hereText = draw("text", { class: "cost-here-text" });
  plotted.plot.append(cross, here, ...lines, ...dots, crossText, hereText);
  const head = make("tr");
  const body = make("tbody");
  const words = make("p", { className: "cost-words" });
  const nearest = (list, value) => list.reduce((best, each, at) => (Math.abs(Math.log(each / value)) < Math.abs(Math.log(list[best] / value)) ? at : best), 0);
  const nSlider = slider("tokens n", { min: 0, max: 170, step: 1, value: () => 10 * Math.log2(state.n / LEAST), text: () => chartNumber(state.n) }, (at) => change({ n: Math.round(LEAST * 2 ** (at / 10)) }));
  const dSlider = slider("width d", { min: 0, max: WIDTHS.length - 1, step: 1, value: () => nearest(WIDTHS, state.d), text: () => chartNumber(state.d) }, (at) => change({ d: WIDTHS[at] }));
  const hSlider = slider("heads h", { min: 0, max: 6, step: 1, value: () => Math.log2(state.heads), text: () => String(state.heads) }, (at) => change({ heads: 2 ** at }));
  const projected = toggle("with W_o", true, (on) => change({ projected: on }));
  const causal = toggle("causal mask", false, (on) => change({ causal: on }));
  const jump = button("go to the crossover", () => change({ n: KINDS[state.quantity].crossing()[0] }));
  const NAMES = { operations: "operations of a layer", layers: "operations of other layers", memory: "bytes of the weights" };
  const chosen = options("shown", Object.values(NAMES), NAMES[quantity], (name) => change({ quantity: Object.keys(NAMES).find((each) => NAMES[each] === name) }));
  root.append(
    controls(chosen, nSlider, dSlider, hSlider, projected, causal, toggle("logarithmic axes", true, (on) => change({ log: on })), jump),
    plotted.node,
    words,
    chartScrolls("The curves and their values", make("table", { className: "cost-table" }, make("thead", {}, head), body)),
  );
  const drag = (event) => change({ n: Math.round(Math.min(MOST, Math.max(LEAST, plotted.valueAt(event)))) });
  plotted.node.addEventListener("pointerdown", (event) => { plotted.node.setPointerCapture(event.pointerId); drag(event); });
  plotted.node.addEventListener("pointermove", (event) => { if (event.buttons) drag(event); });

  let listed = "";
  let cells = [];
  /** The rows of the table, made anew only if the curves are others. */
  function table(kind, curves) {
    const key = JSON.stringify([state.quantity, curves.map(({ name, formula }) => [name, formula])]);
    if (key === listed) return;
    listed = key;
    head.replaceChildren(...["", `${kind.unit} at n`, ...kind.extra.map(([name]) => name)].map((name) => (name ? make("th", { scope: "col" }, name) : make("td"))));
    cells = curves.map(({ same }, at) => [shown(`value-${at}`, 0), ...kind.extra.map(([name]) => shown(`${name.split(" ")[0]}-${at}`, 0))].map((node) => Object.assign(node, { same })));
    body.replaceChildren(...curves.map(({ name, formula, same }, at) => make("tr", {}, make("th", { scope: "row", className: "chart-named" }, chartSample(same ?? at), make("span", {}, name, make("code", {}, formula))), ...cells[at].map((node) => make("td", { className: "figure" }, node)))));
  }

  const crossing = shown("crossover", 0);
  function change(part) {
    Object.assign(state, part);
    const { n } = state;
    const kind = KINDS[state.quantity];
    const curves = kind.curves();
    const [meets, formula, meaning] = kind.crossing();
    const last = state.log ? MOST : Math.max(4 * meets, n);
    const xs = state.log ? Array.from({ length: 69 }, (_, at) => LEAST * 2 ** (at / 4)) : Array.from({ length: 65 }, (_, at) => (last * at) / 64);
    const ends = curves.flatMap(({ at }) => (state.log ? [at(LEAST), at(MOST)] : [0, at(last)]));
    plotted.scale(
      { from: state.log ? LEAST : 0, to: last, log: state.log, label: "tokens n" },
      { from: state.log ? 10 ** Math.floor(Math.log10(Math.min(...ends))) : 0, to: state.log ? 10 ** Math.ceil(Math.log10(Math.max(...ends))) : Math.max(...ends), log: state.log, label: kind.unit, powers: state.log },
    );
    lines.forEach((line, at) => {
      const curve = curves[at]?.same === undefined ? curves[at] : undefined;
      place(line, { d: curve ? plotted.path(xs.map((x) => [x, curve.at(x)])) : "" });
      place(dots[at], curve ? { cx: plotted.x(n), cy: plotted.y(curve.at(n)), visibility: "visible" } : { visibility: "hidden" });
    });
    const { wide, high } = plotted.size();
    const [crossAt, hereAt] = [plotted.x(meets), plotted.x(n)];
    place(cross, { x1: crossAt, x2: crossAt, y1: 0, y2: high });
    place(here, { x1: hereAt, x2: hereAt, y1: 0, y2: high });
    // Each name is on the side where the other line is not, if there is room.
    const left = (at, toTheLeft) => at > wide - 64 || (toTheLeft && at > 52);
    const side = (at, toTheLeft) => (left(at, toTheLeft) ? { x: at - 6, "text-anchor": "end" } : { x: at + 6, "text-anchor": "start" });
    place(crossText, { y: 14, ...side(crossAt, crossAt < hereAt) });
    crossText.textContent = formula;
    place(hereText, { y: 31, ...side(hereAt, hereAt < crossAt) });
    hereText.textContent = `n = ${chartNumber(n)}`;
    table(kind, curves);
    const sum = curves.reduce((total, { at }) => total + at(n), 0);
    curves.forEach((curve, at) => {
      const value = curve.at(n);
      show(cells[at][0], value, chartNumber(value));
      kind.extra.forEach(([, found], column) => {
        const [number, text] = found(n, value, sum, curve);
        show(cells[at][column + 1], number, text ?? chartNumber(number, 6));
      });
    });
    show(crossing, meets, chartNumber(meets));
    words.replaceChildren(`From ${formula} = `, crossing, ` tokens on, ${meaning} or more. Drag the upright line to another n.`);
    plotted.node.setAttribute("aria-label", `${NAMES[state.quantity]} over the number of tokens, on ${state.log ? "logarithmic" : "linear"} axes. ${curves.map(({ name, at }) => `${name}: ${chartNumber(at(n))} ${kind.unit} at ${n} tokens`).join("; ")}. The curves meet at ${meets} tokens.`);
    projected.hidden = causal.hidden = state.quantity !== "operations";
    hSlider.hidden = state.quantity !== "memory";
    refresh(root);
  }
  chartFit(root, [plotted], () => change({}));
  change({ n: state.n });
  return { state, change };
};
