// The state of the page: one object, changed only by choose(), from which every screen draws itself.

const state = {
  hover: null, // {row, column} under the pointer; not part of the URL
};
const choices = []; // {name, key, write, read}, in their order in the URL fragment

/**
 * Adds a field to the state, with its initial value. It is part of the URL fragment, so that a view can be shared: `key` is its name
 * there, write(value) its text, or undefined to omit it, and read(text) its value, or undefined for invalid text.
 */
function choosable(name, begin, { key = name, write = (value) => (value === begin ? undefined : `${value}`), read }) {
  state[name] = begin;
  choices.push({ name, key, write, read });
}
const position = { write: (value) => (value === null ? undefined : `${value}`), read: (text) => (/^\d{1,9}$/.test(text) ? Number(text) : undefined) };
const oneOf = (options) => ({ read: (text) => (Object.hasOwn(options, text) ? text : undefined) });
const numbersOf = (text) => text.split(",").map(Number);

choosable("run", 0, { write: (run) => (run && run < GIVEN ? `${run}` : undefined), read: (text) => (position.read(text) < GIVEN ? position.read(text) : undefined) });
choosable("call", runs[0].start.call, position);
choosable("head", runs[0].start.head, { ...position, read: (text) => (isMeanName(text) ? text : position.read(text)) }); // or a mean of heads
choosable("query", runs[0].start.query, position); // the pinned row
choosable("key", null, position); // the pinned column, if a pair was chosen
choosable("scale", USUAL, oneOf(SCALES));
choosable("pool", "share", oneOf(POOLS));
choosable("direction", "to", oneOf({ to: 1, from: 1 })); // to: what the row attends to; from: what attends to the key at its position
choosable("pins", [], { // additional rows, which the reader averages
  write: (pins) => (pins.length ? pins.join(",") : undefined),
  read: (text) => (/^\d{1,9}(,\d{1,9}){0,63}$/.test(text) ? numbersOf(text) : undefined),
});

const screens = []; // {name, build() if it has something to build, draw(changed)}: draw receives the names of the changed fields, and may be async
const keys = []; // {keys, label, what, run}: every screen adds its shortcuts; keys.js listens to them and lists them in the help
const callNow = () => runs[state.run].calls[state.call];
const axis = (name) => runs[state.run].axes[name];
const queryAxis = () => axis(callNow().queries);
const keyAxis = () => axis(callNow().keys);
/** The title of each call: its layer, with the axes if calls have different axes; its name if that is not unique. */
const titlesOf = once(({ calls }) => {
  const kind = ({ queries, keys }) => (queries === keys ? queries : `${queries} → ${keys}`);
  const several = new Set(calls.map(kind)).size > 1;
  const all = calls.map((call) => (call.layer === null ? call.name : `${several ? `${kind(call)}, ` : ""}layer ${call.layer}`));
  return all.map((title, number) => (all.indexOf(title) === all.lastIndexOf(title) ? title : calls[number].name));
});
const callTitle = (number = state.call, n = state.run) => titlesOf(runs[n])[number];
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
/** The axis of the generated tokens: the rows of the last call. */
const written = () => runs[state.run].calls.at(-1).queries;
/** The number of visible rows: of a generated run, those up to the chosen step. */
const rowsNow = () => (state.step === null || callNow().queries !== written() ? callNow().Q : Math.min(callNow().Q, runs[state.run].steps[state.step].position));

/** The key whose column is shown: the one at the row's own position; on another axis, the chosen one. */
const columnNow = () => (callNow().queries === callNow().keys ? state.query : state.key ?? Math.min(state.query, callNow().K - 1));

const round = (value, count) => ((value % count) + count) % count;

/** Changes the state; calls and heads wrap around, rows and keys are clamped. Screens redraw themselves. */
function choose(change) {
  const before = { ...state };
  const at = { ...state, ...change };
  const calls = runs[at.run].calls;
  at.call = round(at.call, calls.length);
  const call = calls[at.call];
  if (isMean(at.head) && noMeans(at.run)) at.head = runs[at.run].start.head;
  if (!isMean(at.head)) at.head = change.head === undefined ? Math.min(at.head, call.heads - 1) : round(at.head, call.heads);
  const moved = call.queries !== calls[Math.min(before.call, calls.length - 1)].queries || call.keys !== calls[Math.min(before.call, calls.length - 1)].keys;
  if (moved) Object.assign(at, { view: null, key: null, pins: [] });
  at.step = at.step === null || !runs[at.run].steps.length ? null : clamp(at.step, 0, runs[at.run].steps.length - 1);
  at.query = clamp(at.query, 0, call.Q - 1);
  at.key = at.key === null ? null : clamp(at.key, 0, call.K - 1);
  const pins = at.pins.filter((pin) => pin !== at.query && pin < call.Q);
  if (pins.length < at.pins.length) at.pins = pins; // otherwise it stays the same list and counts as unchanged
  Object.assign(state, at);
  const changed = new Set(Object.keys(state).filter((name) => state[name] !== before[name]));
  if (changed.size && !(changed.size === 1 && changed.has("hover"))) remember();
  return drawScreens(changed);
}

let drawing = 0;
/** Draws every affected screen; resolves when all are done. document.documentElement.dataset.drawn counts the rounds. */
async function drawScreens(changed) {
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

const redraw = () => drawScreens(new Set([...Object.keys(state), "theme"]));
/** Whether the state has changed since the data of this place was requested. */
const overtaken = (place) => ["run", "call", "head", "query", "key", "scale", "pool", "direction"].some((name) => name in place && place[name] !== state[name]);

function address() {
  const parts = choices.map(({ name, key, write }) => [key, write(state[name])]).filter(([, text]) => text !== undefined);
  return `#${parts.map(([key, text]) => `${key}=${text}`).join("&")}`;
}

let remembered = 0;
/** Writes the view into the URL fragment, a moment after the last change: browsers limit the rate. */
function remember() {
  clearTimeout(remembered);
  if (location.protocol === "about:") return; // a frame in a notebook has no URL of its own
  remembered = setTimeout(() => { if (location.hash !== address()) history.replaceState(null, "", address()); }, 150);
}

/** The fields in a URL fragment; invalid ones are ignored. */
function readAddress(hash) {
  const found = {};
  for (const [key, text] of new URLSearchParams(hash.replace(/^#/, ""))) {
    const choice = choices.find((each) => each.key === key);
    const value = choice?.read(text);
    if (value !== undefined) found[choice.name] = value;
  }
  return found;
}
