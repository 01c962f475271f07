// A ring of processes: each has some queries and passes blocks of keys and values on; with a causal mask the layout decides
// how much each has to compute.

visuals["ring"] = function ringVisual(root, { ranks, tokens, width = 256, bytes = 2, layout = "contiguous", causal = true }) {
  const LAYOUTS = ["contiguous", "zig-zag", "striped"];
  const each = Math.max(2, 2 * Math.round(tokens / ranks / 2)); // even: zig-zag gives each process two pieces
  const state = { ranks, each, layout, causal, step: 0 };
  const drawing_ = make("div", { className: "ring-drawing" });
  const map = make("div", { className: "ring-map" });
  const table = make("tbody", {});
  const steps = make("div", {});
  const said = make("p", { className: "ring-said", "aria-live": "polite" });
  const sums = { tokens: shown("tokens", 0, 7), total: shown("total", 0, 9), slowest: shown("slowest", 0, 9), ideal: shown("ideal", 0, 9), used: shown("used", 0, 4), sent: shown("sent", 0, 9), whole: shown("whole", 0, 9), times: shown("times", 0) };
  root.append(
    controls(
      slider("processes", { min: 2, max: 8, step: 1, value: ranks, text: String }, (value) => change({ ranks: value })),
      slider("tokens of each", { min: 2, max: 64, step: 2, value: each, text: String }, (value) => change({ each: value })),
      options("layout", LAYOUTS, layout, (name) => change({ layout: name })),
      toggle("causal mask", causal, (on) => change({ causal: on })),
    ),
    steps, said,
    make("div", { className: "ring-beside" }, drawing_, make("div", {}, map, make("p", { className: "note" }, "Pairs of each process (rows) with each block (columns); frames: this step."))),
    make("div", { className: "ring-table", tabIndex: 0, role: "group", "aria-label": "Work of each process" }, make("table", {}, make("thead", {}, make("tr", {}, ...["process", "positions", "block", "pairs now", "so far", "in all"].map((name) => make("th", { scope: "col" }, name)))), table)),
    make("p", { className: "ring-sums" }, sums.tokens, " tokens, ", sums.total, " pairs. Each step lasts as long as its slowest process: ", sums.slowest, " pairs one after another, where ", sums.ideal, " would do; ", sums.used, " % of the time is used."),
    make("p", { className: "ring-sums" }, "Each process sends ", sums.sent, " bytes of keys and values, all of them together ", sums.whole, `: ${width} numbers of ${bytes} bytes for each token, `, sums.times, " times."),
  );
  let found = null; // what the layout gives
  let rows = [];
  let frames = [];
  let nodes = [];

  /** The positions of each process. */
  function positions({ ranks: count, each: own, layout: name }) {
    const all = Array.from({ length: count }, () => []);
    for (let at = 0; at < count * own; at++) {
      const piece = Math.floor(at / (own / 2));
      const rank = name === "striped" ? at % count : name === "contiguous" ? Math.floor(at / own) : piece < count ? piece : 2 * count - 1 - piece;
      all[rank].push(at);
    }
    return all;
  }
  /** How many pairs the queries of a process have with a block of keys. Both are in order. */
  function pairs(queries, keys, masked) {
    if (!masked) return queries.length * keys.length;
    let count = 0;
    let below = 0;
    for (const query of queries) {
      while (below < keys.length && keys[below] <= query) below += 1;
      count += below;
    }
    return count;
  }
  const ranges = (list) => {
    const step = list.length > 1 ? list[1] - list[0] : 1;
    if (step > 1) return `${list[0]}, ${list[1]}, … ${list[list.length - 1]}`;
    const cut = list.findIndex((at, index) => index && at !== list[index - 1] + 1);
    return cut < 0 ? `${list[0]}–${list[list.length - 1]}` : `${list[0]}–${list[cut - 1]}, ${list[cut]}–${list[list.length - 1]}`;
  };

  function build() {
    const { ranks: count } = state;
    const held = positions(state);
    const work = held.map((queries) => held.map((keys) => pairs(queries, keys, state.causal)));
    const slowest = work.map((_, step) => Math.max(...work.map((row, rank) => row[(rank - step + count) % count])));
    found = { held, work, slowest };
    const C = 150;
    const R = 104;
    const at = (rank, radius = R) => [C + radius * Math.sin((2 * Math.PI * rank) / count), C - radius * Math.cos((2 * Math.PI * rank) / count)];
    const arrows = held.map((_, rank) => {
      const [from, to] = [rank + 0.27 * (count / 4) ** 0.5, rank + 1 - 0.27 * (count / 4) ** 0.5];
      const points = Array.from({ length: 9 }, (_, step) => at(from + ((to - from) * step) / 8).map((each_) => each_.toFixed(1)).join(","));
      const [ex, ey] = at(to);
      const turn = (360 * to) / count;
      return [draw("polyline", { points: points.join(" "), class: "ring-arrow" }), draw("path", { d: "M-6,-4 L2,0 L-6,4 Z", transform: `translate(${ex.toFixed(1)} ${ey.toFixed(1)}) rotate(${turn.toFixed(1)})`, class: "ring-head" })];
    });
    nodes = held.map((_, rank) => {
      const [cx, cy] = at(rank);
      const fill = draw("rect", { x: cx - 26, width: 52, class: "ring-fill" });
      const block = draw("text", { x: cx, y: cy + 13, "text-anchor": "middle", class: "ring-block", "data-name": `block-${rank}` });
      const group = draw("g", {}, draw("rect", { x: cx - 26, y: cy - 22, width: 52, height: 44, rx: 7, class: "ring-node" }), fill, draw("rect", { x: cx - 26, y: cy - 22, width: 52, height: 44, rx: 7, class: "ring-edge" }), draw("text", { x: cx, y: cy - 6, "text-anchor": "middle", class: "ring-name" }, `P${rank}`), block);
      return { group, block, fill, top: cy - 22 };
    });
    drawing_.replaceChildren(drawing(2 * C, 2 * C, "", ...arrows.flat(), ...nodes.map(({ group }) => group)));
    const side = 248 / count;
    const most = Math.max(...work.flat()) || 1;
    const cells = work.flatMap((row, rank) => row.map((number, block) => draw("rect", { x: 32 + block * side, y: 22 + rank * side, width: side - 2, height: side - 2, "fill-opacity": (0.08 + (0.72 * number) / most) * Math.sign(number), class: "ring-cell" })));
    frames = work.map((_, rank) => draw("rect", { y: 22 + rank * side, width: side - 2, height: side - 2, class: "ring-frame" }));
    const names = work.flatMap((_, rank) => [draw("text", { x: 26, y: 22 + (rank + 0.5) * side + 3, "text-anchor": "end" }, `P${rank}`), draw("text", { x: 31 + (rank + 0.5) * side, y: 15, "text-anchor": "middle" }, `b${rank}`)]);
    map.replaceChildren(drawing(284, 274, `Pairs of ${count} processes with ${count} blocks: ${work.map((row, rank) => `process ${rank}: ${row.join(", ")}`).join("; ")}`, ...names, ...cells, ...frames));
    rows = held.map((list, rank) => {
      const parts = { block: shown(`has-${rank}`, 0), now: shown(`now-${rank}`, 0, 7), sofar: shown(`sofar-${rank}`, 0, 7), all: shown(`all-${rank}`, work[rank].reduce((a, b) => a + b, 0), 7) };
      return { ...parts, row: make("tr", {}, make("th", { scope: "row" }, `P${rank}`), make("td", {}, ranges(list)), ...["block", "now", "sofar", "all"].map((name) => make("td", {}, parts[name]))) };
    });
    table.replaceChildren(...rows.map(({ row }) => row));
    const total = work.flat().reduce((a, b) => a + b, 0);
    const time = slowest.reduce((a, b) => a + b, 0);
    const sent = (count - 1) * state.each * width * bytes;
    const counted = { tokens: count * state.each, total, slowest: time, ideal: total / count, used: (100 * total) / (count * time) };
    for (const [name, number] of Object.entries({ ...counted, sent, whole: count * sent, times: count - 1 })) {
      show(sums[name], number, number.toLocaleString("en", { maximumFractionDigits: 1 }));
    }
  }

  function go(step) {
    state.step = step;
    const { ranks: count } = state;
    const { work, slowest } = found;
    const idle = [];
    rows.forEach(({ block, now, sofar }, rank) => {
      const has = (rank - step + count) % count;
      const number = work[rank][has];
      let before = 0;
      for (let earlier = 0; earlier <= step; earlier++) before += work[rank][(rank - earlier + count) % count];
      show(block, has, `b${has}`);
      show(now, number);
      show(sofar, before);
      if (!number) idle.push(`P${rank}`);
      place(nodes[rank].block, { value: has });
      nodes[rank].block.textContent = `block ${has}`;
      const height = 44 * (slowest[step] ? number / slowest[step] : 0);
      place(nodes[rank].fill, { y: (nodes[rank].top + 44 - height).toFixed(1), height: height.toFixed(1) });
      place(frames[rank], { x: 32 + (has * 248) / count });
    });
    said.textContent = `${step ? `Each process has passed its block on ${step === 1 ? "once" : `${step} times`}` : "Each process has its own block"}. ${idle.length ? `${idle.join(", ")} ${idle.length === 1 ? "has" : "have"} nothing to compute and wait${idle.length === 1 ? "s" : ""}.` : new Set(rows.map(({ now }) => now.value)).size === 1 ? "All compute equally many pairs." : "All compute, but not equally many pairs."}`;
    drawing_.firstChild.setAttribute("aria-label", `A ring of ${count} processes; ${rows.map((_, rank) => `process ${rank} has block ${(rank - step + count) % count}`).join(", ")}. The filling shows how much each computes in this step.`);
  }

  function change(part) {
    const renewed = !found || Object.keys(part).some((name) => name !== "step");
    const again = !found || "ranks" in part;
    Object.assign(state, part);
    if (renewed) build();
    if (again) {
      const count = state.ranks; // the timer of an earlier player may still run: it moves nothing
      state.step = part.step ?? 0;
      steps.replaceChildren(player(count, (step) => { if (state.ranks === count) go(step); }, { every: 1100 }));
    }
    go(state.step);
  }
  change({});
  return { state, change };
};
