// Streaming softmax: one query reads its keys block by block, and keeps a running maximum m, a sum l and a weighted sum o.

visuals["streaming"] = function streamingVisual(root, { scores: given, values, block = 4, labels = given.map((_, at) => `key ${at}`) }) {
  const scores = given.map((score) => (score === "-inf" ? -Infinity : score)); // a masked key
  const finite = scores.filter(Number.isFinite);
  const low = Math.min(...finite, 0) - 0.3;
  const high = Math.max(...finite, 0) + 0.3;
  const place_ = (score) => `${Math.max(0, (100 * (score - low)) / (high - low))}%`;
  const state = { block: Math.min(block, scores.length), step: 0 };
  const plainWeights = softmax(scores);
  const plain = values[0].map((_, column) => values.reduce((sum, row, j) => (plainWeights[j] ? sum + plainWeights[j] * row[column] : sum), 0));
  const power = (score, largest) => (score === -Infinity ? 0 : Math.exp(score - largest));

  const keys = scores.map((score, j) => {
    const bar = make("div", { className: "streaming-bar" });
    const line = make("div", { className: "streaming-line" });
    const grown = make("div", { className: "streaming-bar streaming-power" });
    const powered = shown(`exp-${j}`, 0);
    bar.style.width = place_(score);
    const row = make("tr", {}, make("th", { scope: "row" }, labels[j]),
      make("td", { className: "streaming-track" }, bar, line), make("td", {}, shown(`score-${j}`, score)),
      make("td", { className: "streaming-track" }, grown), make("td", {}, powered));
    return { row, line, grown, powered };
  });
  const NAMES = ["m", "l", ...values[0].map((_, column) => `o${column}`)];
  const cells = NAMES.map((name) => {
    const parts = Object.fromEntries(["before", "factor", "added", "after"].map((part) => [part, shown(`${name}-${part}`, 0, 4)]));
    const written = name.startsWith("o") ? `o[${name.slice(1)}]` : name;
    return { ...parts, row: make("tr", {}, make("th", { scope: "row" }, written), ...Object.values(parts).map((part) => make("td", {}, part))) };
  });
  const heads = (...names) => make("thead", {}, make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, name))));
  const said = make("p", { className: "streaming-step", "aria-live": "polite" });
  const outs = plain.map((value, column) => ({ streamed: shown(`out-${column}`, 0, 6), plain: shown(`plain-${column}`, value, 6) }));
  const difference = shown("difference", 0);
  const held = shown("held", 0);
  const sizes = [...new Set([1, 2, 3, 4, 5, 8, 16, scores.length])].filter((size) => size <= scores.length).sort((a, b) => a - b);
  const steps = make("div", {});
  const keyTable = make("table", { className: "streaming-keys" }, heads("key", "score s", "exp(s − m)"), make("tbody", {}, ...keys.map(({ row }) => row)));
  keyTable.querySelectorAll("thead th").forEach((head, at) => { head.colSpan = at ? 2 : 1; }); // a bar and a number
  const sums = make("table", { className: "streaming-sums" }, heads("kept", "before", "× factor", "block", "after"), make("tbody", {}, ...cells.map(({ row }) => row)));
  const end = make("div", { className: "streaming-end" },
    make("table", {}, heads("output", "o / l", "softmax of all scores, times v"), make("tbody", {}, ...outs.map((each, column) => make("tr", {}, make("th", { scope: "row" }, `out[${column}]`), make("td", {}, each.streamed), make("td", {}, each.plain))))),
    make("p", {}, "Largest difference: ", difference));
  root.append(
    controls(options("keys in a block", sizes.map(String), String(state.block), (size) => change({ block: Number(size) }))),
    steps, said,
    make("div", { className: "streaming-beside" }, keyTable, make("div", {}, sums, make("p", { className: "note" }, "Held at once: ", held, ` numbers (m, l, o and the scores of a block) in place of ${scores.length} scores.`), end)),
  );

  /** The sums before and after each block. */
  function passes(size) {
    const found = [];
    let m = -Infinity;
    let l = 0;
    let o = values[0].map(() => 0);
    for (let first = 0; first < scores.length; first += size) {
      const last = Math.min(first + size, scores.length);
      const own = scores.slice(first, last);
      const largest = Math.max(...own);
      const next = Math.max(m, largest);
      const factor = next === -Infinity ? 0 : Math.exp(m - next);
      const powers = own.map((score) => power(score, next));
      const added = { l: powers.reduce((a, b) => a + b, 0), o: o.map((_, column) => powers.reduce((sum, p, at) => (p ? sum + p * values[first + at][column] : sum), 0)) };
      const after = { m: next, l: l * factor + added.l, o: o.map((sum, column) => sum * factor + added.o[column]) };
      found.push({ first, last, before: { m, l, o }, largest, factor, added, after });
      ({ m, l, o } = after);
    }
    return found;
  }

  function sentence(found, at, last) {
    if (at < 0) return "Nothing is read yet: m = −∞, and both sums are 0.";
    if (at >= found.length) return "All blocks are read: the output is o / l.";
    const { before, after, first } = found[at];
    const which = `Block ${at + 1} of ${found.length}, ${last - first === 1 ? labels[first] : `${labels[first]} to ${labels[last - 1]}`}: `;
    if (after.m === -Infinity) return `${which}all of its keys are masked, nothing changes.`;
    if (before.m === -Infinity) return `${which}the first maximum is ${digits(after.m)}.`;
    if (after.m > before.m) return `${which}m grows from ${digits(before.m)} to ${digits(after.m)}, so l and o are multiplied by exp(${digits(before.m)} − ${digits(after.m)}) = ${digits(Math.exp(before.m - after.m))}.`;
    return `${which}m stays ${digits(after.m)}, so the factor is exp(0) = 1.`;
  }

  function change(part) {
    const renewed = "block" in part || !steps.firstChild;
    Object.assign(state, part);
    const found = passes(state.block);
    if (renewed) {
      const size = state.block; // the timer of an earlier player may still run: it moves nothing
      state.step = part.step ?? 0;
      steps.replaceChildren(player(found.length + 2, (step) => { if (state.block === size) draw_(step); }, { every: 1100 }));
    }
    return draw_(state.step, found);
  }

  function draw_(step, found = passes(state.block)) {
    state.step = step;
    const at = step - 1;
    const now = found[at];
    const done = found[Math.min(at, found.length - 1)];
    const after = done ? done.after : { m: -Infinity, l: 0, o: values[0].map(() => 0) };
    keys.forEach(({ row, line, grown, powered }, j) => {
      const read = done && j < done.last;
      row.className = `${now && j >= now.first && j < now.last ? "streaming-now" : read ? "" : "streaming-ahead"}${j && j % state.block === 0 ? " streaming-cut" : ""}`;
      const value = read ? power(scores[j], after.m) : 0;
      grown.style.width = `${100 * value}%`;
      show(powered, value);
      powered.hidden = !read;
      line.hidden = after.m === -Infinity;
      line.style.left = place_(after.m);
    });
    const rows = [["m", now?.before.m, undefined, now?.largest, after.m], ["l", now?.before.l, now?.factor, now?.added.l, after.l],
      ...after.o.map((sum, column) => [`o${column}`, now?.before.o[column], now?.factor, now?.added.o[column], sum])];
    rows.forEach(([, ...numbers], row) => ["before", "factor", "added", "after"].forEach((name, column) => {
      const node = cells[row][name];
      node.hidden = numbers[column] === undefined;
      if (!node.hidden) show(node, numbers[column]);
    }));
    said.textContent = sentence(found, at, now?.last);
    const out = after.o.map((sum) => (after.l ? sum / after.l : 0));
    end.hidden = step <= found.length;
    out.forEach((value, column) => show(outs[column].streamed, value));
    show(difference, Math.max(...out.map((value, column) => Math.abs(value - plain[column]))));
    show(held, 2 + values[0].length + state.block);
  }
  change({});
  return { state, change };
};
