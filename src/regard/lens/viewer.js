// What is chosen, and everything that follows from it: the text, the atlas, the lists, the address of the page.

const METRICS = {
  pattern: ["pattern", "Each picture is the matrix of a head, on the colour scale at the top."],
  spread: ["entropy, share of maximum", "0 %: one key takes all. 100 %: every visible key the same."],
  special: ["weight on special tokens", "Mean share of a row that falls on special tokens."],
  distant: ["weight on distant words", "Mean share of a row on ordinary tokens at least two away."],
  previous: ["weight on the previous token", "Mean share of a row on the token before it."],
  itself: ["weight on the token itself", "Mean share of a row on its own token."],
  maximum: ["largest weight", "Mean over the rows of the largest weight."],
  distance: ["mean distance", `How many tokens away, on average; the colours end at ${Math.ceil(n / 2)}.`],
};
const state = { ...data.start, scale: "log", direction: "to", metric: "pattern", view: { row: 0, column: 0, size: n }, hover: null };
let shown = null; // the codes on the screen
let cellSize = 0; // of the atlas, in pixels
const heads = (layer) => data.layers[layer].heads;
const quote = (i) => `“${data.tokens[i]}”`;

function element(tag, content, properties = {}) {
  const made = Object.assign(document.createElement(tag), properties);
  if (content !== undefined) made.textContent = content;
  return made;
}

/** Chooses; what is out of range goes round, and the page follows. */
function choose(change) {
  const round = (value, count) => ((value % count) + count) % count;
  const at = { ...state, ...change };
  at.layer = round(at.layer, data.layers.length);
  at.head = change.head === undefined ? Math.min(at.head, heads(at.layer) - 1) : round(at.head, heads(at.layer));
  at.token = Math.min(n - 1, Math.max(0, at.token));
  Object.assign(state, at);
  const { view, token } = state;
  for (const axis of ["row", "column"]) {
    if (token < view[axis] || token >= view[axis] + view.size) view[axis] = Math.max(0, Math.min(n - view.size, token - (view.size >> 1)));
  }
  const address = `#layer=${state.layer}&head=${state.head}&token=${state.token}`;
  if (location.hash !== address) history.replaceState(null, "", address);
  return show();
}

function fromAddress() {
  const asked = {};
  for (const [name, value] of new URLSearchParams(location.hash.slice(1))) {
    if (["layer", "head", "token"].includes(name) && /^\d{1,6}$/.test(value)) asked[name] = Number(value);
  }
  return choose(asked);
}

async function show() {
  const { layer, head } = state;
  const codes = await load(layer, head);
  if (layer !== state.layer || head !== state.head) return; // a later choice has overtaken this one
  shown = codes;
  drawMatrix();
  showText();
  showLists();
  showAtlas();
  showSentence();
}

const drawMatrix = () => shown && matrix.draw(shown.code, state.view, state.token, state.hover, state.scale);
const toward = (j) => shown.weight(state.token, j); // what the chosen token attends to
const from = (i) => shown.weight(i, state.token); // what attends to it
const masked = (i, j) => shown.code[i * n + j] === MASKED;

function showText() {
  const weight = state.direction === "to" ? toward : from;
  [...$("text").children].forEach((node, i) => {
    const hidden = state.direction === "to" ? masked(state.token, i) : masked(i, state.token);
    const step = place(weight(i), state.scale);
    node.style.background = hidden ? "none" : css(step);
    node.style.color = hidden ? token("--soft") : ink(step);
    node.style.textDecoration = hidden ? "line-through" : "none";
    node.title = `${data.tokens[i]} · token ${i} · ${hidden ? "masked" : percent(weight(i))}`;
    const pinned = i === state.token;
    node.setAttribute("aria-selected", pinned);
    node.tabIndex = pinned ? 0 : -1;
    if (pinned) {
      const box = $("text");
      if (node.offsetTop - box.offsetTop < box.scrollTop || node.offsetTop - box.offsetTop + 30 > box.scrollTop + box.clientHeight) {
        box.scrollTop = node.offsetTop - box.offsetTop - box.clientHeight / 2;
      }
    }
  });
  for (const direction of ["to", "from"]) {
    $(direction).setAttribute("aria-checked", state.direction === direction);
    $(direction).tabIndex = state.direction === direction ? 0 : -1;
  }
}

/** [weight, index] from the largest down; masked ones left out. */
const ranked = (weight, hidden) => data.tokens.map((_, i) => [weight(i), i]).filter(([, i]) => !hidden(i))
  .sort(([a, i], [b, j]) => (Number.isNaN(b) - Number.isNaN(a)) || b - a || i - j);

function showLists() {
  const pairs = { to: ranked(toward, (j) => masked(state.token, j)), from: ranked(from, (i) => masked(i, state.token)) };
  $("to-title").replaceChildren(element("bdi", clip(data.tokens[state.token], 18)), " attends to");
  $("from-title").replaceChildren("attends to ", element("bdi", clip(data.tokens[state.token], 18)));
  for (const [direction, all] of Object.entries(pairs)) {
    const first = all.slice(0, 60);
    const rows = first.map(([p, i]) => {
      const row = element("li", undefined, { title: `token ${i}` });
      const bar = element("span");
      bar.style.width = `${100 * p || 0}%`;
      bar.style.background = css(place(p, state.scale));
      bar.style.boxShadow = `0 0 0 1px ${token("--line")}`;
      row.append(element("bdi", data.tokens[i]), bar, element("data", percent(p), { value: p }));
      row.dataset.token = i;
      return row;
    });
    if (all.length > first.length) {
      const rest = all.slice(first.length).reduce((sum, [p]) => sum + p, 0);
      const row = element("li", undefined, { className: "rest" });
      row.append(element("bdi", `${all.length - first.length} others`), element("i"),
                 element("data", direction === "to" ? percent(rest) : ""));
      rows.push(row);
    }
    $(`${direction}-list`).replaceChildren(...rows);
    $(`${direction}-list`).scrollTop = 0;
  }
}

function showSentence() {
  const given = ranked(toward, (j) => masked(state.token, j)).filter(([p]) => p > 0).slice(0, 3);
  const got = ranked(from, (i) => masked(i, state.token)).find(([p, i]) => p > 0 && i !== state.token);
  const b = (i) => element("b", quote(i));
  const parts = ["In layer ", state.layer, ", head ", state.head, ", ", b(state.token), ` (token ${state.token}) `];
  if (!given.length) parts.push("attends to nothing");
  given.forEach(([p, i], place) => parts.push(
    place === 0 ? "gives " : place === given.length - 1 ? " and " : ", ", percent(p), place === 0 ? " of its attention to " : " to ",
    ...(i === state.token ? ["itself"] : [b(i)])));
  parts.push(". ");
  if (got) parts.push("Of the others, ", b(got[1]), " attends to it most: ", percent(got[0]), ".");
  $("sentence").replaceChildren(...parts.map((part) => (typeof part === "number" ? String(part) : part)));
  $("axes").setAttribute("aria-label", `Attention matrix of layer ${state.layer}, head ${state.head}: rows are queries, columns are keys. ${$("sentence").textContent}`);
}

function figures(layer, head) {
  const of = (name) => data.layers[layer].statistics[name][head];
  const part = (name) => (of(name) === null ? "—" : share(of(name), 3));
  const number = (name, digits) => (of(name) === null ? "—" : of(name).toFixed(digits));
  return [["entropy", `${number("entropy", 2)} nats · ${part("spread")} of maximum`], ["on special tokens", part("special")],
    ["on distant words", part("distant")], ["on the previous token", part("previous")], ["on itself", part("itself")],
    ["largest weight", part("maximum")], ["mean distance", `${number("distance", 1)} tokens`]];
}

function showAtlas() {
  for (const button of $("grid").querySelectorAll("button")) {
    const chosen = Number(button.dataset.layer) === state.layer && Number(button.dataset.head) === state.head;
    button.setAttribute("aria-selected", chosen);
    button.tabIndex = chosen ? 0 : -1;
  }
  $("map-title").textContent = `Layer ${state.layer}, head ${state.head}`;
  $("figures").replaceChildren(...figures(state.layer, state.head).flatMap(([name, value]) => [element("dt", name), element("dd", value)]));
}

/** The pictures or figures of all heads; drawn when the metric, the scale or the theme changes. */
async function drawAtlas() {
  const metric = state.metric;
  const pictures = await Promise.all(data.layers.map((_, layer) => unpack(`pictures-${layer}`)));
  const pixels = palette(state.scale);
  const size = data.side * data.side;
  for (const button of $("grid").querySelectorAll("button")) {
    const [layer, head] = [Number(button.dataset.layer), Number(button.dataset.head)];
    const [canvas, figure] = button.children;
    figure.textContent = "";
    if (metric === "pattern") {
      paint(canvas, pictures[layer].subarray(head * size, (head + 1) * size), data.side, pixels);
      continue;
    }
    const value = data.layers[layer].statistics[metric][head];
    const step = place(metric === "distance" ? value / Math.ceil(n / 2) : value, "linear");
    canvas.width = canvas.height = 1;
    const context = canvas.getContext("2d");
    context.fillStyle = value === null ? token("--bad") : css(step);
    context.fillRect(0, 0, 1, 1);
    figure.style.color = ink(step);
    if (cellSize >= 22) figure.textContent = value === null ? "—" : metric === "distance" ? value.toFixed(value < 9.95 ? 1 : 0) : Math.round(100 * value);
  }
  $("atlas-note").textContent = METRICS[metric][1];
}

function drawLegend() {
  const context = $("ramp").getContext("2d");
  for (let step = 0; step < 256; step++) {
    context.fillStyle = css(step);
    context.fillRect(step, 0, 1, 1);
  }
  const names = SCALES[state.scale].ticks;
  $("ticks").replaceChildren(...names.map((name, i) => {
    const tick = element("span", name);
    tick.style.left = `${(100 * i) / (names.length - 1)}%`;
    return tick;
  }));
  $("scale").value = state.scale;
  $("nan").hidden = !data.broken;
}

function redraw() {
  drawLegend();
  drawAtlas();
  return show();
}

const setScale = (scale) => { state.scale = scale; return redraw(); };
const nextScale = () => { const all = Object.keys(SCALES); return setScale(all[(all.indexOf(state.scale) + 1) % all.length]); };
const setDirection = (direction) => { state.direction = direction; if (shown) showText(); };

function zoom(factor, around = { row: state.token, column: state.token }) {
  const { view } = state;
  const size = Math.max(Math.min(n, 8), Math.min(n, Math.round(view.size / factor)));
  const start = (axis) => Math.round(around[axis] - ((around[axis] - view[axis]) * size) / view.size);
  state.view = { size, row: Math.max(0, Math.min(n - size, start("row"))), column: Math.max(0, Math.min(n - size, start("column"))) };
  state.hover = null;
  drawMatrix();
}

function readout() {
  const { hover } = state;
  if (!hover) $("readout").textContent = "Rows are queries, columns are keys; each row is shared out among its keys. Click a cell or a name.";
  else {
    const [i, j] = [hover.row, hover.column];
    const value = masked(i, j) ? "masked" : percent(shown.weight(i, j));
    $("readout").replaceChildren(element("bdi", quote(i)), ` (${i}) → `, element("bdi", quote(j)), ` (${j}): ${value}`);
  }
}

function build() {
  document.title = `regard · ${clip(data.text, 60)}`;
  const shape = data.layers.length === 1 ? "1 layer" : `${data.layers.length} layers`;
  $("about").textContent = `${data.model} · ${shape} · ${heads(0)} heads · ${n} tokens`;
  $("exactness").textContent = `The weights are computed exactly and shown to within ${data.error} of their value.`;
  data.tokens.forEach((name, i) => {
    const node = element("span", name, { className: `${data.gap[i] ? "gap" : ""} ${data.special[i] ? "special" : ""}` });
    node.setAttribute("role", "option");
    node.dataset.token = i;
    $("text").append(node);
  });
  const most = Math.max(...data.layers.map((layer) => layer.heads));
  const gap = most > 16 ? 1 : 3;
  cellSize = Math.max(9, Math.min(44, Math.floor((Math.min($("grid-box").clientWidth, 640) - 24) / most) - gap));
  const every = cellSize < 14 ? 4 : 1; // heads that are named
  const grid = $("grid");
  grid.style.setProperty("--cell", `${cellSize}px`);
  grid.style.gap = `${gap}px`;
  grid.style.gridTemplateColumns = `18px repeat(${most}, ${cellSize}px)`;
  const top = element("div");
  top.append(element("span"));
  for (let head = 0; head < most; head++) top.append(element("span", head % every ? "" : head, { className: "name" }));
  grid.append(top);
  data.layers.forEach((layer, number) => {
    const row = element("div");
    row.setAttribute("role", "row");
    row.append(element("span", number, { className: "name", title: layer.name }));
    for (let head = 0; head < most; head++) {
      if (head >= layer.heads) { row.append(element("span")); continue; }
      const button = element("button", undefined, { type: "button" });
      button.setAttribute("role", "gridcell");
      const told = figures(number, head).map(([name, value]) => `${name} ${value}`).join(", ");
      button.setAttribute("aria-label", `layer ${number}, head ${head}: ${told}`);
      button.title = `layer ${number}, head ${head}`;
      Object.assign(button.dataset, { layer: number, head });
      button.append(element("canvas"), element("em"));
      row.append(button);
    }
    grid.append(row);
  });
  for (const [name, [title]] of Object.entries(METRICS)) $("metric").append(element("option", title, { value: name }));
  for (const [name, { title }] of Object.entries(SCALES)) $("scale").append(element("option", title, { value: name }));
}

function listen() {
  const pick = (event) => event.target.closest("[data-token]")?.dataset.token;
  for (const id of ["text", "to-list", "from-list"]) {
    $(id).addEventListener("click", (event) => { const found = pick(event); if (found !== undefined) choose({ token: Number(found) }); });
  }
  $("grid").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) choose({ layer: Number(button.dataset.layer), head: Number(button.dataset.head) });
  });
  $("axes").addEventListener("pointermove", (event) => {
    const { row, column } = matrix.at(event, state.view);
    state.hover = row === null || column === null || !shown ? null : { row, column };
    drawMatrix();
    readout();
  });
  $("axes").addEventListener("pointerleave", () => { state.hover = null; drawMatrix(); readout(); });
  $("axes").addEventListener("click", (event) => {
    const { row, column } = matrix.at(event, state.view);
    if (row === null && column === null) return;
    setDirection(row === null ? "from" : "to");
    choose({ token: row ?? column });
  });
  $("axes").addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return; // the wheel alone scrolls the page
    event.preventDefault();
    const { row, column } = matrix.at(event, state.view);
    zoom(event.deltaY < 0 ? 1.25 : 0.8, { row: row ?? state.token, column: column ?? state.token });
  }, { passive: false });
  $("metric").addEventListener("change", (event) => { state.metric = event.target.value; drawAtlas(); });
  $("scale").addEventListener("change", (event) => setScale(event.target.value));
  for (const direction of ["to", "from"]) $(direction).addEventListener("click", () => setDirection(direction));
  const step = (id, action) => $(id).addEventListener("click", action);
  step("layer-back", () => choose({ layer: state.layer - 1 }));
  step("layer-on", () => choose({ layer: state.layer + 1 }));
  step("head-back", () => choose({ head: state.head - 1 }));
  step("head-on", () => choose({ head: state.head + 1 }));
  step("in", () => zoom(2));
  step("out", () => zoom(0.5));
  const keys = {
    ArrowLeft: () => choose({ token: state.token - 1 }), ArrowRight: () => choose({ token: state.token + 1 }),
    ArrowUp: () => choose({ token: state.token - 1 }), ArrowDown: () => choose({ token: state.token + 1 }),
    Home: () => choose({ token: 0 }), End: () => choose({ token: n - 1 }),
    "[": () => choose({ layer: state.layer - 1 }), "]": () => choose({ layer: state.layer + 1 }),
    ",": () => choose({ head: state.head - 1 }), ".": () => choose({ head: state.head + 1 }),
    "+": () => zoom(2), "=": () => zoom(2), "-": () => zoom(0.5), 0: () => zoom(1e-9),
    l: nextScale, t: () => setDirection(state.direction === "to" ? "from" : "to"),
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("select") || !Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    const inside = ["text", "grid"].find((id) => $(id).contains(document.activeElement));
    Promise.resolve(keys[event.key]()).then(() => inside && $(inside).querySelector('[aria-selected="true"]').focus({ preventScroll: inside === "text" }));
  });
  addEventListener("hashchange", fromAddress);
  addEventListener("resize", drawMatrix);
  dark.addEventListener("change", redraw);
}

build();
listen();
readout();
drawLegend();
drawAtlas();
fromAddress().then(() => { document.documentElement.dataset.ready = "yes"; });
