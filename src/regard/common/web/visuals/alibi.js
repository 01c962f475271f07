// ALiBi: a penalty on distance, with a slope for each head; the weights of all rows before and after it.

visuals["alibi"] = function alibiVisual(root, { scores, heads, tokens = scores.map((_, at) => String(at)), causal = true, row = scores.length - 1 }) {
  const n = scores.length;
  const MOST = 16;
  const state = { heads, head: 0, row, causal, equal: false };

  /** 2^(−8/c), 2^(−16/c), …: c is the largest power of two up to the heads; further ones are every other one of 2·c. */
  const slopes = (count) => {
    const closest = 2 ** Math.floor(Math.log2(count));
    return Array.from({ length: count }, (_, at) => (at < closest ? 2 ** ((-8 * (at + 1)) / closest) : 2 ** ((-4 * (2 * (at - closest) + 1)) / closest)));
  };

  const lines = chart({ label: "", height: 230, margins: [24, 54, 36, 40] });
  const paths = Array.from({ length: MOST }, () => draw("path", { class: "alibi-line" }));
  const points = Array.from({ length: n }, () => draw("circle", { r: 3, class: "alibi-point" }));
  const names = Array.from({ length: MOST }, () => draw("text", { class: "alibi-name" }));
  lines.plot.append(...paths, ...points);
  lines.node.append(...names);

  /** A matrix of n × n weights: a darker cell is a larger weight. */
  function matrix(name) {
    const side = 300 / n;
    // What a causal mask hides has an outline for each cell, all in one path.
    const hidden = draw("path", { class: "alibi-hidden", d: scores.flatMap((_, i) => scores.map((__, j) => (j > i ? `M${34 + j * side} ${20 + i * side}h${side - 1}v${side - 1}h${1 - side}z` : ""))).join("") });
    const frame = draw("rect", { x: 33, width: 300 + 1, height: side + 1, class: "alibi-frame" });
    const every = Math.ceil(n / 10);
    const text = (at) => tokens[at].length > 4 ? `${tokens[at].slice(0, 3)}…` : tokens[at];
    const marks = scores.flatMap((_, at) => (at % every ? [] : [
      draw("text", { x: 29, y: 24 + (at + 0.5) * side, "text-anchor": "end" }, text(at)),
      draw("text", { x: 34 + (at + 0.5) * side, y: 14, "text-anchor": "middle" }, text(at)),
    ]));
    const { node, svg, fill, cell } = chartMatrix({ width: 340, height: 324, left: 34, top: 20, right: 6, bottom: 4 }, ...marks, hidden, frame);
    svg.classList.add("alibi-matrix");
    svg.addEventListener("click", (event) => change({ row: cell(event).row }));
    return {
      node: make("div", { className: "alibi-side" }, make("p", {}, name), node),
      fill,
      mark(weights) {
        place(hidden, { visibility: state.causal ? "visible" : "hidden" });
        place(frame, { y: 19.5 + state.row * side });
        svg.setAttribute("aria-label", `${name}, of head ${state.head}. Row ${state.row} gives most weight to key ${weights[state.row].indexOf(Math.max(...weights[state.row]))}.`);
      },
    };
  }
  const before = matrix("weights without ALiBi");
  const after = matrix("weights with ALiBi");

  const cells = scores.map((_, key) => ({ score: shown(`score-${key}`, 0), penalty: shown(`penalty-${key}`, 0), before: shown(`before-${key}`, 0), after: shown(`after-${key}`, 0), bars: [make("div", { className: "alibi-bar alibi-bar-before" }), make("div", { className: "alibi-bar" })] }));
  const rows = cells.map(({ score, penalty, before: first, after: second, bars }, key) => make("tr", {}, make("th", { scope: "row" }, tokens[key] === String(key) ? tokens[key] : `${key} ${tokens[key]}`), make("td", { className: "figure" }, score), make("td", { className: "figure" }, penalty), make("td", { className: "figure" }, first), make("td", { className: "figure" }, second), make("td", { className: "alibi-bars" }, ...bars)));
  const slopesNode = make("p", { className: "alibi-slopes" });
  const slopeShown = Array.from({ length: MOST }, (_, at) => shown(`slope-${at}`, 0));
  const chips = slopeShown.map((node, at) => make("button", { type: "button", onclick: () => change({ head: at }) }, `head ${at}: `, node));
  slopesNode.append(...chips);
  root.append(
    controls(
      slider("heads", { min: 1, max: MOST, step: 1, value: heads, text: String }, (count) => change({ heads: count })),
      slider("head", { min: 0, max: () => state.heads - 1, step: 1, value: () => state.head, text: String }, (head) => change({ head })),
      slider("row", { min: 0, max: n - 1, step: 1, value: () => state.row, text: String }, (at) => change({ row: at })),
      toggle("causal mask", causal, (on) => change({ causal: on })),
      toggle("all scores equal", false, (on) => change({ equal: on })),
    ),
    lines.node,
    slopesNode,
    make("div", { className: "alibi-sides" }, before.node, after.node),
    chartScrolls("The chosen row", make("table", { className: "alibi-table" }, make("thead", {}, make("tr", {}, ...["key", "score", "penalty", "weight without", "weight with", "without, with"].map((name) => make("th", { scope: "col" }, name)))), make("tbody", {}, ...rows))),
  );

  function change(part) {
    Object.assign(state, part);
    state.head = Math.min(state.head, state.heads - 1);
    const all = slopes(state.heads);
    const slope = all[state.head];
    const closest = 2 ** Math.floor(Math.log2(state.heads));
    const rowsOf = (penalty) => scores.map((line, i) => softmax(line.map((score, j) => (state.causal && j > i ? -Infinity : (state.equal ? 0 : score) - penalty * Math.abs(i - j)))));
    const [plain, biased] = [rowsOf(0), rowsOf(slope)];
    before.fill(plain);
    after.fill(biased);

    const deepest = Math.min(6, Math.max(...all) * (n - 1));
    lines.scale({ from: 0, to: n - 1, label: "distance from the row, in tokens" }, { from: -deepest, to: 0, label: "added to the score" });
    const { wide, high } = lines.size();
    let last = -Infinity;
    paths.forEach((path, at) => {
      const there = at < state.heads;
      place(path, { d: there ? lines.path([[0, 0], [n - 1, -all[at] * (n - 1)]]) : "", class: `alibi-line${at === state.head ? " alibi-chosen" : ""}` });
      place(names[at], { visibility: "hidden" });
    });
    // The names are at the ends of the lines, as long as they do not overlap; that of the chosen head always does.
    const ends = all.map((each, at) => ({ at, y: lines.y(-Math.min(each * (n - 1), deepest)), x: lines.x(Math.min(n - 1, deepest / each)) }));
    const chosen = ends[state.head];
    const taken = [];
    for (const { at, x, y } of [chosen, ...ends]) {
      const inside = x < wide - 1;
      const spot = inside ? [40 + x, 24 + high + 11, "middle"] : [40 + wide + 5, 24 + y + 4, "start"];
      if (inside || taken.some((each) => Math.abs(each - y) < 12)) continue;
      taken.push(y);
      place(names[at], { x: spot[0], y: spot[1], "text-anchor": spot[2], visibility: "visible", class: `alibi-name${at === state.head ? " alibi-chosen-name" : ""}` });
      names[at].textContent = `head ${at}`;
    }
    points.forEach((point, distance) => place(point, { cx: lines.x(distance), cy: lines.y(-slope * distance) }));
    lines.node.setAttribute("aria-label", `Lines from 0 downwards over the distance, one for each of ${state.heads} heads; that of head ${state.head} has the slope −${digits(slope)}.`);

    chips.forEach((chip, at) => {
      chip.hidden = at >= state.heads;
      chip.setAttribute("aria-pressed", at === state.head);
      chip.classList.toggle("alibi-more", at >= closest);
      if (at < state.heads) show(slopeShown[at], all[at], digits(all[at], 3));
    });
    before.mark(plain);
    after.mark(biased);
    const { row: i } = state;
    cells.forEach(({ score, penalty, before: first, after: second, bars }, j) => {
      const masked = state.causal && j > i;
      show(score, masked ? -Infinity : state.equal ? 0 : scores[i][j]);
      show(penalty, -slope * Math.abs(i - j) || 0);
      show(first, plain[i][j]);
      show(second, biased[i][j]);
      bars[0].style.width = `${100 * plain[i][j]}%`;
      bars[1].style.width = `${100 * biased[i][j]}%`;
      rows[j].classList.toggle("alibi-masked", masked);
    });
    refresh(root);
  }
  chartFit(root, [lines], () => change({}));
  change({});
  return { state, change };
};
