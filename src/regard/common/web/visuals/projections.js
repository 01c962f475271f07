// Projections: a row x and the query, key and value that three matrices make of it, as bars that move when x is changed.

visuals["projections"] = function projectionsVisual(root, { x, W_q, W_k, W_v, rest_q, rest_k, rest_v, width = x.length }) {
  const matrices = { q: W_q, k: W_k, v: W_v };
  const rests = { q: rest_q, k: rest_k, v: rest_v }; // what the numbers of x that are not shown, and a bias, add
  const roles = Object.keys(matrices);
  const state = { x: [...x], edited: 0, chosen: ["q", 0] };
  const size = { width: 360, height: 84 };
  const most = 1.5 * Math.max(0.5, ...x.map(Math.abs));
  const projected = (row, role) => product([row], matrices[role])[0].map((value, at) => value + (rests[role]?.[at] ?? 0));
  const first = Object.fromEntries(roles.map((role) => [role, projected(x, role)]));

  const rows = x.map((value, at) => {
    const bar = make("div", { className: "proj-bar" });
    const was = make("div", { className: "proj-was" });
    was.style.left = `${50 + (50 * value) / most}%`;
    const range = make("input", { type: "range", min: -most, max: most, step: "any", value: String(value), "aria-label": `x[${at}]` });
    const set = (to) => change({ x: state.x.with(at, to), edited: at });
    range.addEventListener("input", () => set(Number(range.valueAsNumber.toFixed(2))));
    range.addEventListener("keydown", (event) => {
      const way = stepOf(event, ALONG);
      if (way) set(Number(Math.min(most, Math.max(-most, state.x[at] + way * (event.shiftKey ? 0.01 : 0.1))).toFixed(9)));
    });
    const field = numberField(`x-${at}`, `x[${at}], typed`, value, set, { step: 0.1 });
    return { bar, range, field, row: make("div", { className: "proj-row" }, make("span", { className: "proj-name", "aria-hidden": "true" }, `x[${at}]`), make("div", { className: "proj-track" }, make("div", { className: "proj-inner" }, was, bar), range), field) };
  });

  const charts = Object.fromEntries(roles.map((role) => [role, chartOf(role)]));
  const explained = { name: make("b", {}), value: shown("chosen", 0), term: make("span", {}), part: shown("term", 0), others: shown("others", 0) };
  const again = button("Numbers as at first", () => change({ x: [...x] }));
  root.append(
    make("div", { className: "proj-sides" },
      make("div", { role: "group", "aria-label": "x" },
        make("p", { className: "proj-title" }, make("b", {}, "x"), width > x.length ? `, ${x.length} of ${width} numbers` : `, ${x.length} numbers`), ...rows.map(({ row }) => row), make("div", { className: "controls" }, again)),
      make("div", {}, ...roles.map((role) => charts[role].block))),
    make("p", { className: "proj-explained" }, explained.name, " = ", explained.value, ". ", explained.term, explained.part, width > x.length ? "; the other numbers of x, and the bias, add " : "; the other numbers of x add ", explained.others, "."),
  );

  function chartOf(role) {
    const count = first[role].length;
    const each = size.width / count;
    const bars = first[role].map((value, at) => draw("rect", { x: (at * each + 0.12 * each).toFixed(2), width: (0.76 * each).toFixed(2), class: "proj-column", "data-name": `${role}-${at}` }));
    const marks = first[role].map((_, at) => draw("line", { x1: (at * each + 0.05 * each).toFixed(2), x2: (at * each + 0.95 * each).toFixed(2), class: "proj-mark" }));
    const pick = draw("rect", { y: 0, width: each, height: size.height, class: "proj-pick" });
    const svg = drawing(size.width, size.height, "", pick, draw("line", { x1: 0, x2: size.width, y1: size.height / 2, y2: size.height / 2, class: "proj-zero" }), ...bars, ...marks);
    place(svg, { role: "slider", tabindex: 0, "aria-label": `numbers of ${role}`, "aria-valuemin": 0, "aria-valuemax": count - 1 });
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      look(role, Math.min(count - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * count))));
    });
    svg.addEventListener("focus", () => look(role, state.chosen[0] === role ? state.chosen[1] : 0));
    svg.addEventListener("keydown", (event) => {
      const way = stepOf(event, ALONG);
      if (way) look(role, Math.min(count - 1, Math.max(0, state.chosen[1] + way)));
    });
    const moved = shown(`moved-${role}`, 0);
    const edge = make("span", {});
    const title = make("p", { className: "proj-title" }, make("b", {}, role), ` = x · W_${role}, ${count} numbers, from `, edge, "; changed by ", moved, " on average");
    return { svg, bars, marks, pick, each, moved, edge, block: make("div", { className: `proj-chart ${role}` }, title, svg) };
  }

  function look(role, at) {
    if (state.chosen[0] !== role || state.chosen[1] !== at) change({ chosen: [role, at] });
  }

  function change(part) {
    Object.assign(state, part);
    rows.forEach(({ bar, range, field }, at) => {
      const value = state.x[at];
      const share = Math.min(1, Math.max(-1, value / most));
      bar.style.left = `${50 + Math.min(0, 50 * share)}%`;
      bar.style.width = `${Math.abs(50 * share)}%`;
      bar.classList.toggle("proj-negative", value < 0);
      if (range.valueAsNumber !== value) range.value = String(value);
      range.setAttribute("aria-valuetext", digits(value));
      showField(field, value);
    });
    for (const role of roles) {
      const { svg, bars, marks, pick, each, moved, edge } = charts[role];
      const now = projected(state.x, role);
      const largest = Math.max(...now.map(Math.abs), ...first[role].map(Math.abs), 1e-9);
      const y = (value) => size.height / 2 - (value / largest) * (size.height / 2 - 3);
      now.forEach((value, at) => {
        place(bars[at], { y: Math.min(y(value), y(0)).toFixed(2), height: Math.abs(y(value) - y(0)).toFixed(2), value });
        place(marks[at], { y1: y(first[role][at]).toFixed(2), y2: y(first[role][at]).toFixed(2) });
      });
      show(moved, now.reduce((sum, value, at) => sum + Math.abs(value - first[role][at]), 0) / now.length);
      edge.textContent = `${digits(-largest, 2)} to ${digits(largest, 2)}`;
      const here = state.chosen[0] === role;
      place(pick, { x: here ? (state.chosen[1] * each).toFixed(2) : 0, class: here ? "proj-pick proj-picked" : "proj-pick" });
      const at = here ? state.chosen[1] : 0;
      place(svg, { "aria-valuenow": at, "aria-valuetext": `${role}[${at}] = ${digits(now[at])}` });
    }
    const [role, at] = state.chosen;
    const [value, term] = [projected(state.x, role)[at], state.x[state.edited] * matrices[role][state.edited][at]];
    explained.name.textContent = `${role}[${at}]`;
    explained.term.textContent = `x[${state.edited}] · W_${role}[${state.edited}, ${at}] = ${digits(state.x[state.edited])} · ${matrices[role][state.edited][at] < 0 ? `(${digits(matrices[role][state.edited][at])})` : digits(matrices[role][state.edited][at])} adds `;
    show(explained.value, value);
    show(explained.part, term);
    show(explained.others, value - term);
  }
  change({});
  return { state, change };
};
