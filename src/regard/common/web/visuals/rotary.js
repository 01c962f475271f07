// Rotary positions: each pair of components is an arrow that turns with its position; the product depends on p − q.

visuals["rotary"] = function rotaryVisual(root, { q, k, base = 10000, query_at: queryAt = 7, key_at: keyAt = 5 }) {
  const d = q.length;
  const pairs = d / 2;
  const BASES = [...new Set([base, 10000, 500000])];
  const PAIRINGS = ["halves", "interleaved"];
  const FAR = 40; // the curve shows distances from −40 to 40
  const state = { p: queryAt, q: keyAt, shift: 0, base, pairing: "halves", scaling: "none", factor: 4 };

  const columns = (pair) => (state.pairing === "halves" ? [pair, pair + pairs] : [2 * pair, 2 * pair + 1]);
  const NAMES = { none: "", linear: " Scaling for longer texts: each θ is divided by the factor.", NTK: " Scaling for longer texts: a larger base. The fastest pair keeps its θ, that of the slowest one is divided by the factor." };
  /** θ of each pair, with the scaling for long texts, as regard's Linear and NTK compute it. */
  const angles = () => {
    const grown = state.scaling === "NTK" && d > 2 ? state.base * state.factor ** (d / (d - 2)) : state.base;
    return Array.from({ length: pairs }, (_, pair) => grown ** ((-2 * pair) / d) / (state.scaling === "linear" ? state.factor : 1));
  };
  const turned = ([a, b], t) => [a * Math.cos(t) - b * Math.sin(t), a * Math.sin(t) + b * Math.cos(t)];
  const pairOf = (x, pair) => columns(pair).map((at) => x[at]);
  /** What a pair adds to the product at a distance p − q: one curve of a cosine. */
  const productAt = (theta, distance) => theta.reduce((sum, each, pair) => {
    const [[a, b], [c, e]] = [pairOf(q, pair), pairOf(k, pair)];
    return sum + (a * c + b * e) * Math.cos(distance * each) + (a * e - b * c) * Math.sin(distance * each);
  }, 0);

  const RADIUS = 58;
  const arrow = (name) => draw("g", { class: name }, draw("line", { x1: 0, y1: 0 }), draw("path", { d: "M0 0L-9 4.2L-9 -4.2Z" }), draw("text"));
  const dials = Array.from({ length: pairs }, (_, pair) => {
    const [query, key] = [arrow("rotary-query q"), arrow("rotary-key k")];
    const arc = draw("path", { class: "rotary-arc" });
    const node = drawing(160, 160, "", draw("g", { transform: "translate(80 80)" }, draw("circle", { r: RADIUS + 4, class: "rotary-circle" }), draw("line", { x1: -RADIUS - 4, x2: RADIUS + 4, class: "rotary-axis" }), draw("line", { y1: -RADIUS - 4, y2: RADIUS + 4, class: "rotary-axis" }), arc, key, query));
    const parts = { theta: shown(`theta-${pair}`, 0, 4), wavelength: shown(`wavelength-${pair}`, 0, 4), product: shown(`product-${pair}`, 0), title: make("b") };
    const box = make("div", { className: "rotary-dial" }, make("p", {}, parts.title), node, make("p", {}, "θ = ", parts.theta, make("br"), "a turn: ", parts.wavelength, make("br"), make("span", { className: "rotary-product" }, "q · k = ", parts.product)));
    return { query, key, arc, node, box, ...parts };
  });

  const curve = chart({ label: "", height: 190, margins: [22, 12, 34, 40] });
  const line = draw("path", { class: "chart-line chart-line-0" });
  const zero = draw("line", { class: "rotary-zero" });
  const here = draw("circle", { r: 5.5, class: "rotary-here" });
  curve.plot.append(zero, line, here);

  const total = shown("product", 0);
  const direct = { p: shown("query-at", 0, 7), q: shown("key-at", 0, 7), distance: shown("distance", 0, 7) };
  const words = make("p", { className: "rotary-words" });
  words.append("The query is at ", direct.p, ", the key at ", direct.q, ": the distance is ", direct.distance, ". All pairs together: ", make("span", { className: "rotary-product" }, "q · k = ", make("strong", {}, total)));
  const pSlider = slider("query at", { min: 0, max: FAR, step: 1, value: () => state.p, text: String }, (p) => change({ p }));
  const qSlider = slider("key at", { min: 0, max: FAR, step: 1, value: () => state.q, text: String }, (at) => change({ q: at }));
  const shiftSlider = slider("both moved by", { min: 0, max: 1000, step: 1, value: () => state.shift, text: String }, (shift) => change({ shift }));
  const baseNames = BASES.map((each) => each.toLocaleString("en-US"));
  const baseChoice = options("base", baseNames, () => state.base.toLocaleString("en-US"), (name) => change({ base: BASES[baseNames.indexOf(name)] }));
  const factorSlider = slider("factor", { min: 1, max: 16, step: 1, value: () => state.factor, text: String }, (factor) => change({ factor }));
  const pairing = options("pairs", PAIRINGS, () => state.pairing, (name) => change({ pairing: name }));
  const scaling = options("scaling", Object.keys(NAMES), () => state.scaling, (name) => change({ scaling: name }));
  const note = make("p", { className: "rotary-note" });
  root.append(
    controls(pSlider, qSlider, shiftSlider),
    make("div", { className: "rotary-dials" }, ...dials.map(({ box }) => box)),
    words,
    curve.node,
    controls(pairing, baseChoice, scaling, factorSlider),
    note,
  );

  const longest = Math.max(...[...q, ...k].map(Math.abs), 1e-300);
  function put(node, [x, y], reach, name, aside) {
    const [x2, y2] = [(RADIUS * x) / reach, (-RADIUS * y) / reach];
    const [shaft, tip, text] = node.children;
    const long = Math.hypot(x2, y2);
    const short = Math.max(0, long - 8) / (long || 1);
    place(shaft, { x2: x2 * short, y2: y2 * short });
    place(tip, { transform: `translate(${x2} ${y2}) rotate(${(Math.atan2(y2, x2) * 180) / Math.PI})` });
    const [along, across] = [9 / (long || 1), aside / (long || 1)]; // beyond the tip; to the side, where the two arrows are close
    place(text, { x: x2 * (1 + along) + y2 * across - 3, y: y2 * (1 + along) - x2 * across + 4 });
    text.textContent = name;
  }

  const samples = Array.from({ length: 8 * FAR + 1 }, (_, each) => each / 4 - FAR);
  function change(part) {
    Object.assign(state, part);
    const theta = angles();
    const [p, at] = [state.p + state.shift, state.q + state.shift];
    const reach = Math.max(...dials.flatMap((_, pair) => [Math.hypot(...pairOf(q, pair)), Math.hypot(...pairOf(k, pair))]), longest * 1e-9);
    let sum = 0;
    dials.forEach((dial, pair) => {
      const query = turned(pairOf(q, pair), p * theta[pair]);
      const key = turned(pairOf(k, pair), at * theta[pair]);
      const product = dot(query, key);
      sum += product;
      // The angle between both, the short way round.
      const [from, to] = [Math.atan2(key[1], key[0]), Math.atan2(query[1], query[0])];
      const between = ((((to - from + Math.PI) % (2 * Math.PI)) + 2 * Math.PI) % (2 * Math.PI)) - Math.PI;
      const aside = Math.abs(between) < 0.35 ? (between < 0 ? -8 : 8) : 0;
      put(dial.query, query, reach, "q", aside);
      put(dial.key, key, reach, "k", -aside);
      const end = from + between;
      dial.arc.setAttribute("d", `M${20 * Math.cos(from)} ${-20 * Math.sin(from)}A20 20 0 0 ${between > 0 ? 0 : 1} ${20 * Math.cos(end)} ${-20 * Math.sin(end)}`);
      show(dial.theta, theta[pair], chartNumber(theta[pair], 4));
      show(dial.wavelength, (2 * Math.PI) / theta[pair], `${chartNumber((2 * Math.PI) / theta[pair], 4)} tokens`);
      show(dial.product, product);
      dial.title.textContent = `columns ${columns(pair).join(" and ")}`;
      dial.node.setAttribute("aria-label", `Columns ${columns(pair).join(" and ")}: an arrow for the query and one for the key, ${digits(Math.abs(between))} radians apart; their product is ${digits(product)}.`);
    });
    show(total, sum, digits(sum, 6));
    show(direct.p, p);
    show(direct.q, at);
    show(direct.distance, p - at);
    const heights = samples.map((distance) => productAt(theta, distance));
    const most = Math.max(...heights.map(Math.abs), 1e-12);
    curve.scale({ from: -FAR, to: FAR, label: "distance: query − key", ticks: [-40, -20, 0, 20, 40] }, { from: -1.1 * most, to: 1.1 * most, label: "q · k" });
    place(line, { d: curve.path(samples.map((distance, each) => [distance, heights[each]])) });
    place(zero, { x1: curve.x(0), x2: curve.x(0), y1: 0, y2: curve.size().high });
    place(here, { cx: curve.x(state.p - state.q), cy: curve.y(sum) });
    curve.node.setAttribute("aria-label", `The product over the distance from ${-FAR} to ${FAR}; at ${state.p - state.q} it is ${digits(sum)}, wherever both are.`);
    factorSlider.hidden = state.scaling === "none";
    note.textContent = state.pairing === "halves" ? `Halves: column i and column i + ${pairs} are a pair, as in Llama.` : "Interleaved: the columns 2i and 2i + 1 are a pair, as in the paper and in GPT-J.";
    note.textContent += NAMES[state.scaling];
    refresh(root);
  }
  change({});
  chartFit(root, [curve], () => change({}));
  return { state, change };
};
