// Groups: which query heads share a key head and its values, and how many bytes the cache of each kind takes.

visuals["groups"] = function groupsVisual(root, { models, sharing = "GQA" }) {
  const KINDS = ["MHA", "GQA", "MQA", "MLA"];
  const FORMATS = { "32 bits": 4, "16 bits": 2, "8 bits": 1 };
  const HEADS = [1, 2, 4, 6, 8, 12, 16, 24, 32, 40, 48, 64, 96, 128];
  const DEPTHS = [16, 32, 64, 80, 96, 128, 192, 256];
  const OTHER = "other sizes";
  const first = Object.keys(models)[0];
  const state = { kind: sharing, head: 0, ...models[first] };

  const divisors = () => Array.from({ length: state.heads }, (_, at) => at + 1).filter((each) => state.heads % each === 0);
  const nearest = (list, value) => list.reduce((best, each, at) => (Math.abs(each - value) < Math.abs(list[best] - value) ? at : best), 0);
  const keyHeads = (name) => ({ MHA: state.heads, GQA: state.key_heads, MQA: 1, MLA: 0 })[name];
  /** Numbers that a layer keeps for a token: keys and values of each key head, or one row with its rotary part. */
  const numbers = (name) => (name === "MLA" ? state.rank + state.rope : 2 * keyHeads(name) * state.depth);

  const steps = (label, list, name) => slider(label, { min: 0, max: list.length - 1, step: 1, value: () => nearest(list, state[name]), text: () => chartNumber(state[name]) }, (at) => change({ [name]: list[at] }));
  const sliders = {
    heads: steps("query heads", HEADS, "heads"),
    key_heads: slider("key heads", { min: 0, max: () => divisors().length - 1, step: 1, value: () => divisors().indexOf(state.key_heads), text: () => String(state.key_heads) }, (at) => change({ key_heads: divisors()[at] })),
    depth: steps("depth of a head", DEPTHS, "depth"),
    rank: slider("short row", { min: 64, max: 1024, step: 64, value: () => state.rank, text: String }, (rank) => change({ rank })),
    rope: slider("rotary part", { min: 16, max: 128, step: 16, value: () => state.rope, text: String }, (rope) => change({ rope })),
    layers: slider("layers", { min: 1, max: 128, step: 1, value: () => state.layers, text: String }, (layers) => change({ layers })),
    tokens: slider("tokens", { min: 7, max: 20, step: 1, value: () => Math.log2(state.tokens), text: () => state.tokens.toLocaleString("en-US") }, (power) => change({ tokens: 2 ** power })),
  };
  const model = () => Object.keys(models).find((name) => Object.entries(models[name]).every(([each, value]) => state[each] === value)) ?? OTHER;
  const format = () => Object.keys(FORMATS).find((name) => FORMATS[name] === state.bytes);

  const cards = make("div", { className: "groups-cards", role: "img" });
  const follows = make("p", { className: "groups-follows" });
  const sum = make("p", { className: "groups-sum" });
  const group = `groups-${document.querySelectorAll(".groups-table").length}`; // the kinds of one visual exclude each other
  const rows = KINDS.map((name) => {
    const radio = make("input", { type: "radio", name: group, checked: name === sharing, "aria-label": name, oninput: () => change({ kind: name }) });
    const cells = { numbers: shown(`${name}-numbers`, 0), bytes: shown(`${name}-bytes`, 0), total: shown(`${name}-total`, 0) };
    const heads = make("small");
    const bar = make("div", { className: "groups-bar" });
    return { name, radio, heads, bar, ...cells, row: make("tr", {}, make("th", { scope: "row" }, make("label", {}, radio, make("span", {}, make("b", {}, name), heads))), ...["numbers", "bytes"].map((each) => make("td", { className: "figure" }, cells[each])), make("td", { className: "groups-total" }, cells.total, bar)) };
  });
  const whole = make("th", { scope: "col" });
  root.append(
    controls(options("sizes of", [...Object.keys(models), OTHER], model, (name) => change(models[name] ? { ...models[name], head: 0 } : {})),
      sliders.heads, sliders.key_heads, sliders.rank, sliders.rope,
      slider("look at query head", { min: 0, max: () => state.heads - 1, step: 1, value: () => state.head, text: String }, (head) => change({ head }))),
    cards,
    follows,
    controls(sliders.depth, sliders.layers, sliders.tokens, options("a number has", Object.keys(FORMATS), format, (name) => change({ bytes: FORMATS[name] }))),
    sum,
    chartScrolls("The cache of each kind", make("table", { className: "groups-table" }, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "kind"), make("th", { scope: "col" }, "numbers, token and layer"), make("th", { scope: "col" }, "bytes, token"), whole)), make("tbody", {}, ...rows.map(({ row }) => row)))),
  );

  let chips = [];
  let kept = [];
  let built = "";
  /** The heads as cards: query heads above what they share. Made anew only if they are others. */
  function build() {
    const key = [state.kind, state.heads, state.key_heads].join();
    if (key === built) return;
    built = key;
    const shares = keyHeads(state.kind) || 1;
    const size = state.heads / shares;
    chips = Array.from({ length: state.heads }, (_, head) => make("span", { className: "groups-query", onclick: () => change({ head }) }, String(head)));
    kept = Array.from({ length: shares }, (_, at) => make("span", { className: "groups-kept" }, ...(state.kind === "MLA" ? [make("span", { className: "groups-latent" }, "short row"), make("span", { className: "groups-rope" }, "rotary part")] : [make("span", { className: "groups-key" }, `k${at}`), make("span", { className: "groups-value" }, `v${at}`)])));
    cards.replaceChildren(...kept.map((box, at) => make("div", { className: "groups-card" }, make("div", { className: "groups-queries" }, ...chips.slice(at * size, (at + 1) * size)), make("div", { className: "groups-stem" }), box)));
    cards.classList.toggle("groups-many", state.heads > 32);
  }

  const every = (value) => value.toLocaleString("en-US"); // all digits
  const bytesText = (value) => (value >= 1e9 ? `${chartNumber(value / 1e9)} GB` : value >= 1e6 ? `${chartNumber(value / 1e6)} MB` : `${chartNumber(value)} bytes`);
  const binary = (value) => (value >= 2 ** 30 ? `${chartNumber(value / 2 ** 30, 4)} GiB` : `${chartNumber(value / 2 ** 20, 4)} MiB`);
  const used = shown("key-head", 0);
  const token = shown("bytes", 0);
  const context = shown("total", 0);
  function change(part) {
    Object.assign(state, part);
    if (state.heads % state.key_heads) state.key_heads = divisors()[nearest(divisors(), state.key_heads)];
    state.head = Math.min(state.head, state.heads - 1);
    build();
    const latent = state.kind === "MLA";
    const size = latent ? state.heads : state.heads / keyHeads(state.kind);
    const at = Math.floor(state.head / size);
    chips.forEach((chip, head) => chip.classList.toggle("groups-chosen", head === state.head));
    kept.forEach((box, each) => box.classList.toggle("groups-chosen", each === at));
    show(used, at);
    if (latent) follows.replaceChildren(`All ${state.heads} query heads read one row of ${state.rank} + ${state.rope} numbers. Each computes its keys and values from it, with matrices of its own.`);
    else follows.replaceChildren(`Query head ${state.head} uses key head ${state.head} // ${size} = `, used, size === 1 ? ", its own." : size === state.heads ? ", as all heads do." : `, as ${size - 1} other ${size === 2 ? "head does" : "heads do"}.`);
    cards.setAttribute("aria-label", latent ? `${state.heads} query heads above one short row with its rotary part` : `${state.heads} query heads above ${keyHeads(state.kind)} key heads, ${size} to each; query head ${state.head} is above key head ${at}`);

    const perToken = (name) => numbers(name) * state.layers * state.bytes;
    const most = Math.max(...KINDS.map(perToken));
    for (const { name, radio, heads, bar, numbers: count, bytes, total, row } of rows) {
      radio.checked = name === state.kind;
      row.classList.toggle("groups-current", name === state.kind);
      heads.textContent = name === "MLA" ? `${state.rank} + ${state.rope}` : `${keyHeads(name)} key ${keyHeads(name) === 1 ? "head" : "heads"}`;
      show(count, numbers(name), every(numbers(name)));
      show(bytes, perToken(name), every(perToken(name)));
      show(total, perToken(name) * state.tokens, bytesText(perToken(name) * state.tokens));
      bar.style.width = `${(100 * perToken(name)) / most}%`;
    }
    const [bytes, total] = [perToken(state.kind), perToken(state.kind) * state.tokens];
    show(token, bytes, every(bytes));
    show(context, total, bytesText(total));
    const factors = latent ? `(${state.rank} + ${state.rope} numbers)` : `2 (key and value) · ${keyHeads(state.kind)} ${keyHeads(state.kind) === 1 ? "head" : "heads"} · ${state.depth} numbers`;
    sum.replaceChildren(`${state.kind}: ${factors} · ${state.layers} layers · ${state.bytes} bytes = `, token, ` bytes for a token; ${every(state.tokens)} tokens take `, context, `, or ${binary(total)}.`);
    whole.textContent = `${every(state.tokens)} tokens`;

    sliders.key_heads.hidden = state.kind !== "GQA";
    sliders.rank.hidden = sliders.rope.hidden = !latent;
    refresh(root);
  }
  change({});
  return { state, change };
};
