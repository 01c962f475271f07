// Sinusoids: the matrix of positions, the curve of one of its columns, and a step of k positions as a rotation of a pair.

visuals["sinusoids"] = function sinusoidsVisual(root, { positions, width, column = 4, step = null }) {
  const BASE = 10000;
  const WIDTHS = [4, 8, 16, 32, 64];
  const [WIDE, TOP, LEFT] = [340, 18, 34];
  const state = { n: positions, d: width, column, p: Math.floor(positions / 3), k: step ?? 0 };
  const theta = (pair) => BASE ** ((-2 * pair) / state.d);
  const entry = (p, at) => (at % 2 ? Math.cos : Math.sin)(p * theta(Math.floor(at / 2)));

  // The matrix: darker cells are larger numbers, from −1 to 1.
  const marks = draw("g");
  const rowFrame = draw("rect", { class: "sinusoids-frame" });
  const columnFrame = draw("rect", { class: "sinusoids-frame sinusoids-column" });
  const matrix = chartMatrix({ width: WIDE, height: WIDE, left: LEFT, top: TOP }, marks, rowFrame, columnFrame);
  const table = matrix.svg;
  table.classList.add("sinusoids-table");
  const point = (event) => {
    const { row, column: at } = matrix.cell(event);
    change({ column: at, p: row });
  };
  table.addEventListener("pointerdown", (event) => { table.setPointerCapture(event.pointerId); point(event); });
  table.addEventListener("pointermove", (event) => { if (event.buttons) point(event); });

  // The curve of the column, and of the other one of its pair.
  const curve = chart({ label: "", height: 170, margins: [22, 8, 34, 34] });
  const other = draw("path", { class: "chart-line chart-line-1", "stroke-dasharray": chartDashes[1] });
  const line = draw("path", { class: "chart-line chart-line-0" });
  const dots = draw("g");
  const here = draw("circle", { r: 5, class: "sinusoids-here" });
  curve.plot.append(other, line, dots, here);

  // The pair as a hand of a clock: to the right its sine, upwards its cosine.
  const RADIUS = 62;
  const hand = (name) => draw("g", { class: name }, draw("line", { x1: 0, y1: 0 }), draw("circle", { r: 5 }), draw("text"));
  const [first, second] = [hand("sinusoids-first"), hand("sinusoids-second")];
  const arc = draw("path", { class: "sinusoids-arc" });
  const clock = drawing(WIDE, 176, "", draw("g", { transform: "translate(170 90)" }, draw("circle", { r: RADIUS, class: "sinusoids-circle" }), draw("line", { x1: -RADIUS - 8, x2: RADIUS + 8, class: "sinusoids-axis" }), draw("line", { y1: -RADIUS - 8, y2: RADIUS + 8, class: "sinusoids-axis" }), arc, first, second));

  const value = shown("value", 0);
  const named = { theta: shown("theta", 0, 4), wavelength: shown("wavelength", 0, 4), sine: shown("sine", 0), cosine: shown("cosine", 0) };
  const rotation = ["R-00", "R-01", "R-10", "R-11"].map((name) => shown(name, 0));
  const turned = [shown("turned-sine", 0), shown("turned-cosine", 0)];
  const stepped = [shown("next-sine", 0), shown("next-cosine", 0)];
  const words = make("p", { className: "sinusoids-words" });
  const matrixOf = (...numbers) => make("span", { className: "sinusoids-matrix", role: "group" }, ...numbers);
  const shownAt = [make("span"), make("span"), make("span")];
  const rotates = make("div", { className: "sinusoids-rotation" },
    make("div", {}, make("small", {}, shownAt[0]), matrixOf(named.sine, named.cosine)), make("span", {}, "·"),
    make("div", {}, make("small", {}, "R"), matrixOf(...rotation)), make("span", {}, "="),
    make("div", {}, make("small", {}, shownAt[1]), matrixOf(...turned)), make("span", {}, ""),
    make("div", {}, make("small", {}, shownAt[2]), matrixOf(...stepped)));
  rotation[0].parentElement.classList.add("sinusoids-square");

  const pSlider = slider("position p", { min: 0, max: () => state.n - 1, step: 1, value: () => state.p, text: String }, (p) => change({ p }));
  const columnSlider = slider("column", { min: 0, max: () => state.d - 1, step: 1, value: () => state.column, text: String }, (at) => change({ column: at }));
  const kSlider = slider("step k", { min: 0, max: 32, step: 1, value: () => state.k, text: String }, (k) => change({ k }));
  const dSlider = slider("width d", { min: 0, max: WIDTHS.length - 1, step: 1, value: () => Math.max(0, WIDTHS.indexOf(state.d)), text: () => String(state.d) }, (at) => change({ d: WIDTHS[at] }));
  const nSlider = slider("positions", { min: 8, max: 96, step: 8, value: () => state.n, text: () => String(state.n) }, (n) => change({ n }));
  const scale = draw("svg", { viewBox: "0 0 150 14", width: 150, height: 14, class: "sinusoids-scale", role: "img", "aria-label": "from −1, faint, to 1, strong" }, draw("text", { x: 0, y: 11 }, "−1"), ...[0, 0.25, 0.5, 0.75, 1].map((each, at) => draw("rect", { x: 20 + 20 * at, y: 1, width: 20, height: 12, "fill-opacity": each })), draw("text", { x: 127, y: 11 }, "1"));
  root.append(
    controls(dSlider, nSlider, pSlider, columnSlider, ...(step === null ? [] : [kSlider])),
    make("div", { className: "sinusoids-sides" },
      make("div", { className: "sinusoids-side" }, matrix.node, make("p", { className: "sinusoids-legend" }, "a row for each position ", scale)),
      make("div", { className: "sinusoids-side" }, words, curve.node, ...(step === null ? [] : [clock]))),
    ...(step === null ? [] : [make("p", { className: "sinusoids-words" }, "The pair at p, times the rotation R by k · θ, is the pair at p + k. R does not depend on p:"), rotates]),
  );

  let built = "";
  /** The matrix and its marks, made anew only if the sizes are others. */
  function build() {
    const { n, d } = state;
    if (built === `${n},${d}`) return;
    built = `${n},${d}`;
    const [wide, high] = [(WIDE - LEFT) / d, (WIDE - TOP) / n];
    matrix.fill(Array.from({ length: n }, (_, p) => Array.from({ length: d }, (__, at) => (1 + entry(p, at)) / 2)));
    const every = (count, most) => { const by = [1, 2, 4, 8, 16].find((each) => count / each <= most); return Array.from({ length: Math.ceil(count / by) }, (_, at) => at * by); };
    marks.replaceChildren(
      ...every(d, 9).map((at) => draw("text", { x: LEFT + (at + 0.5) * wide, y: 12, "text-anchor": "middle" }, String(at))),
      ...every(n, 12).map((p) => draw("text", { x: LEFT - 5, y: TOP + (p + 0.5) * high + 4, "text-anchor": "end" }, String(p))),
    );
    dots.replaceChildren(...(n <= 48 ? Array.from({ length: n }, () => draw("circle", { r: 2.4, class: "sinusoids-dot" })) : []));
  }

  function change(part) {
    Object.assign(state, part);
    state.column = Math.min(state.column, state.d - 1);
    state.p = Math.min(state.p, state.n - 1);
    const { n, d, p, k, column: at } = state;
    build();
    const pair = Math.floor(at / 2);
    const turn = theta(pair);
    const [wide, high] = [(WIDE - LEFT) / d, (WIDE - TOP) / n];
    place(rowFrame, { x: LEFT, y: TOP + p * high, width: WIDE - LEFT, height: Math.max(high, 3) });
    place(columnFrame, { x: LEFT + at * wide, y: TOP, width: Math.max(wide, 3), height: WIDE - TOP });
    table.setAttribute("aria-label", `A matrix of ${n} positions and ${d} columns, from −1 (faint) to 1 (strong). The left columns change from row to row, the right ones hardly. At position ${p}, column ${at}: ${digits(entry(p, at))}.`);

    curve.scale({ from: 0, to: n - 1, label: "position" }, { from: -1.1, to: 1.1, ticks: [-1, 0, 1], label: `column ${at}: ${at % 2 ? "cosine" : "sine"}   (dashed: column ${at ^ 1})` });
    const samples = Math.min(800, Math.max(80, Math.ceil((n * turn * 20) / Math.PI)));
    const through = (of) => curve.path(Array.from({ length: samples + 1 }, (_, each) => { const x = ((n - 1) * each) / samples; return [x, entry(x, of)]; }));
    place(line, { d: through(at) });
    place(other, { d: through(at ^ 1) });
    [...dots.children].forEach((dot, each) => place(dot, { cx: curve.x(each), cy: curve.y(entry(each, at)) }));
    place(here, { cx: curve.x(p), cy: curve.y(entry(p, at)) });
    curve.node.setAttribute("aria-label", `Column ${at} over the positions: a ${at % 2 ? "cosine" : "sine"} that turns once in ${digits((2 * Math.PI) / turn)} positions.`);

    show(value, entry(p, at));
    show(named.theta, turn, chartNumber(turn, 4));
    show(named.wavelength, (2 * Math.PI) / turn, chartNumber((2 * Math.PI) / turn, 4));
    show(named.sine, entry(p, 2 * pair));
    show(named.cosine, entry(p, 2 * pair + 1));
    words.replaceChildren(`PE(${p}) in column ${at} is `, value, `. Pair ${pair} (columns ${2 * pair} and ${2 * pair + 1}) turns by θ = `, named.theta, " with each position, once in ", named.wavelength, " positions.");
    if (step !== null) {
      const [c, s] = [Math.cos(k * turn), Math.sin(k * turn)];
      const now = [entry(p, 2 * pair), entry(p, 2 * pair + 1)];
      [c, -s, s, c].forEach((number, each) => show(rotation[each], number || 0));
      [now[0] * c + now[1] * s, now[1] * c - now[0] * s].forEach((number, each) => show(turned[each], number));
      const next = [entry(p + k, 2 * pair), entry(p + k, 2 * pair + 1)];
      next.forEach((number, each) => show(stepped[each], number));
      shownAt[0].textContent = `PE(${p})`;
      shownAt[1].textContent = `PE(${p}) · R`;
      shownAt[2].textContent = `PE(${p + k})`;
      const put = (node, [x, y], name) => {
        const [line_, dot, text] = node.children;
        place(line_, { x2: RADIUS * x, y2: -RADIUS * y });
        place(dot, { cx: RADIUS * x, cy: -RADIUS * y });
        place(text, { x: (RADIUS + 12) * x, y: -(RADIUS + 12) * y + 4, "text-anchor": x < -0.3 ? "end" : x > 0.3 ? "start" : "middle" });
        text.textContent = name;
      };
      put(first, now, `PE(${p})`);
      put(second, next, k ? `PE(${p + k})` : "");
      const angles = Array.from({ length: 41 }, (_, each) => p * turn + (Math.min(k * turn, 2 * Math.PI) * each) / 40);
      place(arc, { d: k ? angles.map((each, index) => `${index ? "L" : "M"}${(30 * Math.sin(each)).toFixed(2)} ${(-30 * Math.cos(each)).toFixed(2)}`).join("") : "" });
      clock.setAttribute("aria-label", `A circle with two hands: pair ${pair} at position ${p} and at ${p + k}, ${digits(k * turn)} radians further clockwise.`);
    }
    refresh(root);
  }
  change({});
  chartFit(curve.node.parentElement, [curve], () => change({}), 420);
  return { state, change };
};
