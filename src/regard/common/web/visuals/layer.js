// One transformer layer as a diagram: the shape at each arrow, and the parameters and operations of each box, for sizes that the reader chooses.

visuals["layer"] = function layerVisual(root, { n = 128, width = 384, heads = 12, groups = heads, hidden = 4 * width, gated = false, first = false, rms = false, causal = false, presets = {} }) {
  const state = { n, width, heads, groups, hidden, gated, first, rms, causal };
  const PLAIN = { gated: false, first: false, rms: false, causal: false };
  const WIDTHS = [64, 128, 256, 384, 512, 768, 1024, 2048, 4096, 8192];
  const divisors = (number, most) => [...Array(Math.min(number, most)).keys()].map((at) => at + 1).filter((at) => number % at === 0);
  const numbers = {}; // each box's parameters and operations, by the name of the box
  const shapes = []; // [element, what it shows]
  const texts = []; // the same for names of boxes and sizes

  const grouped = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, "\u202f"); // 16 384
  const write = (element, text) => { if (element.textContent !== text) element.textContent = text; };
  const big = (value) => (value >= 1e15 ? `${digits(value / 1e15)} P` : value >= 1e12 ? `${digits(value / 1e12)} T` : value >= 1e9 ? `${digits(value / 1e9)} G` : value >= 1e6 ? `${digits(value / 1e6)} M` : grouped(value));
  function box(name, title, weights) {
    numbers[name] = { parameters: shown(`${name}-parameters`, 0), flops: shown(`${name}-flops`, 0), row: make("div", { className: "layer-numbers" }) };
    const { parameters, flops, row } = numbers[name];
    row.append(make("span", {}, parameters, " parameters"), make("span", {}, flops, " operations"));
    const matrix = make("span", { className: "layer-weights" });
    texts.push([matrix, weights]);
    return make("div", { className: `layer-box layer-${name}` }, make("span", { className: "layer-title" }, title), matrix, row);
  }
  function arrow(what, shape, extra = "") {
    const dims = make("span", { className: "layer-shape" });
    shapes.push([dims, shape]);
    return make("div", { className: `layer-arrow ${extra}` }, make("i", {}, what ? `${what} ` : ""), dims);
  }
  const added = (what) => make("div", { className: "layer-add" }, make("b", { "aria-hidden": "true" }, "+"), make("span", {}, `add ${what}`));
  const D = () => state.width / state.heads;
  const whole = () => [state.n, state.width];

  const gains = () => (state.rms ? `${state.width}` : `2 · ${state.width}`);
  const norms = { a: box("norm-1", "norm", gains), b: box("norm-2", "norm", gains) };
  const core = make("div", { className: "layer-core" },
    make("div", { className: "layer-three" },
      box("query", "W_q", () => `${state.width} × ${state.heads * D()}`), box("key", "W_k", () => `${state.width} × ${state.groups * D()}`), box("value", "W_v", () => `${state.width} × ${state.groups * D()}`)),
    make("div", { className: "layer-three" },
      arrow("q", () => [state.heads, state.n, D()]), arrow("k", () => [state.groups, state.n, D()]), arrow("v", () => [state.groups, state.n, D()])),
    make("div", { className: "layer-three" },
      make("div", { className: "layer-left" },
        box("scores", "scores q·kᵀ / √D", () => (state.causal ? "causal mask" : "no mask")),
        arrow("", () => [state.heads, state.n, state.n]),
        box("softmax", "softmax of each row", () => "exponentials: counted apart"),
        arrow("weights", () => [state.heads, state.n, state.n])),
      make("div", { className: "layer-line" })),
    box("values", "weights · v", () => "sum of the values"),
    arrow("joined", () => [state.n, state.heads * D()]),
    box("output", "W_o", () => `${state.heads * D()} × ${state.width}`));
  const expanded = box("expand", "W_1", () => (state.gated ? `2 matrices ${state.width} × ${state.hidden}` : `${state.width} × ${state.hidden}`));
  const feed = make("div", { className: "layer-core" }, expanded, arrow("activation", () => [state.n, state.hidden]), box("contract", "W_2", () => `${state.hidden} × ${state.width}`));
  const residual = (...inner) => make("div", { className: "layer-residual" }, ...inner);
  const part = (title, inner) => make("div", { className: "layer-part" }, make("p", { className: "layer-name" }, title), inner);
  const [attentionPart, feedPart] = [part("attention", core), part("feed-forward", feed)];
  const stage = (inner, norm, what) => {
    const [before, after, end] = [arrow("", whole), arrow("", whole), arrow("", whole)];
    return { holder: make("div"), inner, norm, before, after, end, add: added(what) };
  };
  const stages = [stage(attentionPart, norms.a, "x"), stage(feedPart, norms.b, "what went in")];
  const flow = make("div", { className: "layer-flow", role: "group", "aria-label": "The layer, from its input at the top to its output" }, arrow("x", whole), ...stages.map(({ holder }) => holder));

  const totals = Object.fromEntries(["projections", "pairs", "feed", "exponentials"].map((name) => [name, shown(name, 0)]));
  const [allParameters, allFlops] = [shown("parameters", 0), shown("flops", 0)];
  const BARS = [["projections", "projections"], ["pairs", "scores and values"], ["feed", "feed-forward"]];
  const bars = BARS.map(([name, title]) => ({ name, bar: make("i"), share: shown(`${name}-share`, 0), row: make("li") , title }));
  for (const { row, bar, share, title, name } of bars) row.append(make("span", {}, title), make("span", { className: "layer-bar" }, bar), make("span", {}, share, " %"), make("span", { className: "soft" }, totals[name]));

  /** A choice among the numbers that are possible now, and the present one. */
  const choice = (label, name, possible) => {
    const list = make("select", { oninput: () => change({ [name]: Number(list.value) }) });
    return following(make("label", { className: "control" }, make("span", {}, label), list), () => state[name], (value) => {
      const offers = [...new Set([...possible(), value])].sort((a, b) => a - b);
      if (list.dataset.offers !== offers.join(" ")) {
        list.replaceChildren(...offers.map((each) => make("option", { value: each }, String(each))));
        list.dataset.offers = offers.join(" ");
      }
      list.value = value;
    });
  };
  const long = slider("tokens n", { min: 0, max: 17, step: 1, value: () => Math.log2(state.n), text: (at) => (2 ** at).toLocaleString("en") }, (at) => change({ n: 2 ** at }));
  const switches = [["gated", "gated feed-forward"], ["first", "norm first"], ["rms", "RMS norm"], ["causal", "causal"]].map(([name, label]) => toggle(label, () => state[name], (on) => change({ [name]: on })));
  const buttons = Object.entries(presets).map(([name, sizes]) => ({ sizes, made: button(name, () => change({ groups: sizes.heads, ...PLAIN, ...sizes })) }));
  root.append(
    ...(buttons.length ? [make("div", { className: "controls presets", role: "group", "aria-label": "Models" }, ...buttons.map(({ made }) => made))] : []),
    controls(long, choice("d_model", "width", () => WIDTHS), choice("heads", "heads", () => divisors(state.width, 128)),
      choice("key heads", "groups", () => divisors(state.heads, 128)), choice("d_ff", "hidden", () => [1, 2, 3, 4, 8].map((by) => by * state.width)), ...switches),
    make("ul", { className: "layer-bars", "aria-label": "Where the operations go" }, ...bars.map(({ row }) => row)),
    make("p", { className: "layer-total" }, "The layer: ", allParameters, " parameters, ", allFlops, " operations, and ", totals.exponentials, " exponentials. ", make("span", { className: "note" }, "Without biases; sums, norms and activations are not counted as operations.")),
    flow,
  );

  function change(part) {
    const before = { ...state };
    Object.assign(state, part);
    const nearest = (list, value) => list.reduce((best, each) => (Math.abs(each - value) < Math.abs(best - value) ? each : best));
    if (state.width !== before.width && !("hidden" in part)) state.hidden = Math.round((before.hidden / before.width) * state.width);
    state.heads = nearest(divisors(state.width, 128), state.heads);
    if ("heads" in part && !("groups" in part) && before.groups === before.heads) state.groups = state.heads;
    state.groups = nearest(divisors(state.heads, 128), state.groups);
    const { n: size, width: d, heads: h, groups: g, hidden: f } = state;
    refresh(root);
    for (const { made, sizes } of buttons) made.setAttribute("aria-pressed", Object.entries({ groups: sizes.heads, ...PLAIN, ...sizes }).every(([name, value]) => state[name] === value));

    const pairs = state.causal ? (size * (size + 1)) / 2 : size * size;
    const projection = { query: d * h * D(), key: d * g * D(), value: d * g * D(), output: d * h * D() };
    const up = (state.gated ? 2 : 1) * d * f;
    const gain = state.rms ? d : 2 * d;
    const counts = {
      ...Object.fromEntries(Object.entries(projection).map(([name, weights]) => [name, [weights, 2 * size * weights]])),
      scores: [0, 2 * h * D() * pairs], values: [0, 2 * h * D() * pairs], softmax: [0, 0],
      expand: [up, 2 * size * up], contract: [d * f, 2 * size * d * f], "norm-1": [gain, 0], "norm-2": [gain, 0],
    };
    const sum = (at, ...names) => names.reduce((total, name) => total + counts[name][at], 0);
    for (const [name, [parameters, flops]] of Object.entries(counts)) {
      const { parameters: one, flops: other } = numbers[name];
      show(one, parameters, big(parameters));
      show(other, flops, big(flops));
      one.parentElement.hidden = !parameters;
      other.parentElement.hidden = !flops;
    }
    for (const [element, shape] of shapes) write(element, `(${shape().map(grouped).join(", ")})`);
    for (const [element, text] of texts) write(element, text());
    const work = { projections: sum(1, "query", "key", "value", "output"), pairs: sum(1, "scores", "values"), feed: sum(1, "expand", "contract") };
    const every = work.projections + work.pairs + work.feed;
    for (const { name, bar, share } of bars) {
      show(totals[name], work[name], big(work[name]));
      show(share, (100 * work[name]) / every);
      bar.style.width = `${(100 * work[name]) / every}%`;
    }
    show(totals.exponentials, h * pairs, big(h * pairs));
    show(allParameters, sum(0, ...Object.keys(counts)), big(sum(0, ...Object.keys(counts))));
    show(allFlops, every, big(every));
    if (flow.dataset.first === String(state.first)) return;
    flow.dataset.first = state.first;
    for (const { holder, inner, norm, before: one, after: two, end, add } of stages) {
      holder.replaceChildren(...(state.first ? [residual(norm, one, inner, two), add, end] : [residual(inner, two), add, one, norm, end]));
    }
  }
  change({});
  return { state, change };
};
