// What is chosen. One object, one way to change it, and every screen draws itself from it.

const state = {
  run: 0, call: data.start.call, head: data.start.head,
  query: data.start.query, // the pinned row
  key: null, // the pinned column, where a pair was chosen
  pins: [], // more rows that are summed in the reader
  direction: "to", // "to": what the row attends to; "from": what attends to the key at its place
  scale: USUAL, pool: "share", hideSpecial: false,
  metric: "picture", sort: "order", filter: null, // of the atlas; filter: {metric, low, high}
  view: null, // of the map: {row, column, span}: the first row and key on the screen, and how many keys there are across it
  cells: null, // of the map: "square", "fitted" to the plot, or what suits the matrix
  step: null, // of a generated run: how many tokens had been written
  compare: "side", // or "difference", "linear", "swipe"
  hover: null, // {row, column} under the pointer; no part of the address
};

const screens = []; // {name, build(), draw(changed)}: draw is told the names that changed, and may be async
const keys = []; // {keys, label, what, run}: every screen adds the keys it knows; keys.js listens to all of them and explains them
const callNow = () => runs[state.run].calls[state.call];
const axis = (name) => runs[state.run].axes[name];
const queryAxis = () => axis(callNow().queries);
const keyAxis = () => axis(callNow().keys);
const wordOf = (of, i) => of.tokens[i] ?? "∅";
const quote = (of, i) => `“${wordOf(of, i)}”`;
/** What each call of a run is called: its layer, with the axes where calls are of several kinds; its name where that is not enough. */
const TITLES = runs.map(({ calls }) => {
  const kind = ({ queries, keys }) => (queries === keys ? queries : `${queries} → ${keys}`);
  const several = new Set(calls.map(kind)).size > 1;
  const titles = calls.map((call) => (call.layer === null ? call.name : `${several ? `${kind(call)}, ` : ""}layer ${call.layer}`));
  return titles.map((title, number) => (titles.indexOf(title) === titles.lastIndexOf(title) ? title : calls[number].name));
});
const callTitle = (number = state.call, n = state.run) => TITLES[n][number];
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
/** The axis on which a generated run was written: the rows of its last call. */
const written = () => runs[state.run].calls.at(-1).queries;
/** How many rows there are to see: a generated run has more with every step. */
const rowsNow = () => (state.step === null || callNow().queries !== written() ? callNow().Q : Math.min(callNow().Q, runs[state.run].steps[state.step].position));

/** The key whose column is looked at: the one at the row's own place, and on another axis the one that was chosen. */
const columnNow = () => (callNow().queries === callNow().keys ? state.query : state.key ?? Math.min(state.query, callNow().K - 1));

const round = (value, count) => ((value % count) + count) % count;

/** Changes what is chosen; calls and heads go round, rows and keys end at the edge. Every screen that cares draws itself. */
function choose(change) {
  const before = { ...state };
  const at = { ...state, ...change };
  const calls = runs[at.run].calls;
  at.call = round(at.call, calls.length);
  const call = calls[at.call];
  at.head = change.head === undefined ? Math.min(at.head, call.heads - 1) : round(at.head, call.heads);
  const moved = call.queries !== calls[Math.min(before.call, calls.length - 1)].queries || call.keys !== calls[Math.min(before.call, calls.length - 1)].keys;
  if (moved) Object.assign(at, { view: null, key: null, pins: [] });
  at.step = at.step === null || !runs[at.run].steps.length ? null : clamp(at.step, 0, runs[at.run].steps.length - 1);
  at.query = clamp(at.query, 0, call.Q - 1);
  at.key = at.key === null ? null : clamp(at.key, 0, call.K - 1);
  const pins = at.pins.filter((pin) => pin !== at.query && pin < call.Q);
  if (pins.length < at.pins.length) at.pins = pins; // otherwise it stays the same list, and has not changed
  Object.assign(state, at);
  const changed = new Set(Object.keys(state).filter((name) => state[name] !== before[name]));
  if (changed.size && !(changed.size === 1 && changed.has("hover"))) remember();
  return draw(changed);
}

let drawing = 0;
/** Draws every screen that is affected; resolves when all are done. document.documentElement.dataset.drawn counts the rounds. */
async function draw(changed) {
  const number = ++drawing;
  document.documentElement.dataset.theme = theme();
  try {
    await Promise.all(screens.map((screen) => screen.draw(changed)));
    $("problem").hidden = true;
  } catch (error) {
    $("problem").textContent = `This cannot be shown: ${error.message}`;
    $("problem").hidden = false;
  }
  if (number === drawing) document.documentElement.dataset.drawn = number;
}

const redraw = () => draw(new Set([...Object.keys(state), "theme"]));
/** Whether a later choice has overtaken an answer that was asked for this place. */
const overtaken = (place) => ["run", "call", "head", "query", "key", "scale", "pool", "hideSpecial", "direction"].some((name) => name in place && place[name] !== state[name]);

// The address holds the whole view, so that it can be passed on; it works for a file as well.
const NUMBERS = ["run", "call", "head", "query", "key", "step"];
const WORDS = { scale: SCALES, pool: POOLS, direction: { to: 1, from: 1 }, compare: { side: 1, difference: 1, linear: 1, swipe: 1 }, cells: { square: 1, fitted: 1 } };

function address() {
  const parts = NUMBERS.filter((name) => state[name] !== null && (name !== "run" || state.run)).map((name) => `${name}=${state[name]}`);
  for (const name of Object.keys(WORDS)) if (state[name] !== { scale: USUAL, pool: "share", direction: "to", compare: "side", cells: null }[name]) parts.push(`${name}=${state[name]}`);
  if (state.hideSpecial) parts.push("hide=special");
  if (state.pins.length) parts.push(`pins=${state.pins.join(",")}`);
  if (state.metric !== "picture") parts.push(`metric=${state.metric}`);
  if (state.sort !== "order") parts.push(`sort=${state.sort}`);
  if (state.filter) parts.push(`filter=${state.filter.metric},${state.filter.low},${state.filter.high}`);
  if (state.view) parts.push(`view=${[state.view.row, state.view.column, state.view.span].map((value) => Math.round(value * 100) / 100).join(",")}`);
  return `#${parts.join("&")}`;
}

let remembering = 0;
/** Puts the view into the address, a moment after the last change: browsers refuse more than a few a second. */
function remember() {
  clearTimeout(remembering);
  if (location.protocol === "about:") return; // in a notebook's frame there is no address to keep it in
  remembering = setTimeout(() => { if (location.hash !== address()) history.replaceState(null, "", address()); }, 150);
}

/** What an address asks for, as far as it can be understood. */
function asked(hash) {
  const found = {};
  const list = (value) => value.split(",").map(Number);
  for (const [name, value] of new URLSearchParams(hash.replace(/^#/, ""))) {
    if (NUMBERS.includes(name) && /^\d{1,9}$/.test(value)) found[name] = Number(value);
    else if (Object.hasOwn(WORDS, name) && Object.hasOwn(WORDS[name], value)) found[name] = value;
    else if (name === "hide") found.hideSpecial = value === "special";
    else if (name === "pins" && /^\d{1,9}(,\d{1,9}){0,63}$/.test(value)) found.pins = list(value);
    else if (name === "metric" && Object.hasOwn(METRICS, value)) found.metric = value;
    else if (name === "sort" && Object.hasOwn(SORTS, value)) found.sort = value;
    else if (name === "filter" && /^[a-z]{1,20},[\d.]{1,12},[\d.]{1,12}$/.test(value)) {
      const [metric, low, high] = value.split(",");
      if (Object.hasOwn(METRICS, metric) && metric !== "picture") found.filter = { metric, low: Number(low), high: Number(high) };
    } else if (name === "view" && /^[\d.]{1,12},[\d.]{1,12},[\d.]{1,12}$/.test(value)) {
      const [row, column, span] = list(value);
      if (span >= 1) found.view = { row, column, span };
    }
  }
  if (found.run >= runs.length) delete found.run;
  return found;
}
