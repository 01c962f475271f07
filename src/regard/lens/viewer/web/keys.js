// Keyboard shortcuts: the table of shortcuts, its listener, and the help dialog. At the end the page starts.

const nextOf = (options, now) => Object.keys(options)[(Object.keys(options).indexOf(now) + 1) % Object.keys(options).length];
keys.unshift(
  { keys: ["ArrowUp", "w"], label: "↑ w", what: "previous row (query)", run: () => choose({ query: state.query - 1 }) },
  { keys: ["ArrowDown", "s"], label: "↓ s", what: "next row (query)", run: () => choose({ query: state.query + 1 }) },
  { keys: ["ArrowLeft", "a"], label: "← a", what: "previous key", run: () => choose({ key: (state.key ?? state.query) - 1 }) },
  { keys: ["ArrowRight", "d"], label: "→ d", what: "next key", run: () => choose({ key: (state.key ?? state.query) + 1 }) },
  { keys: ["Home"], label: "Home", what: "first row; on the map, its first key", run: () => choose({ query: 0 }) },
  { keys: ["End"], label: "End", what: "last row; on the map, its last key", run: () => choose({ query: rowsNow() - 1 }) },
  { keys: ["n"], label: "n", what: "next weaker key of the row, in descending order of weight", run: () => strongest.box.go(1) },
  { keys: ["N"], label: "Shift n", what: "next stronger key", run: () => strongest.box.go(-1) },
  { keys: ["["], label: "[", what: "previous layer", run: () => choose({ call: state.call - 1, ...(isMean(state.head) ? { head: "mean" } : {}) }) },
  { keys: ["]"], label: "]", what: "next layer", run: () => choose({ call: state.call + 1, ...(isMean(state.head) ? { head: "mean" } : {}) }) },
  { keys: [","], label: ",", what: "previous head", run: () => nextHead(-1) },
  { keys: ["."], label: ".", what: "next head", run: () => nextHead(1) },
  { keys: ["l"], label: "l", what: "next color scale", run: () => choose({ scale: nextOf(SCALES, state.scale) }) },
  { keys: ["p"], label: "p", what: "value of cells that pool several weights: sum or largest", run: () => choose({ pool: nextOf(POOLS, state.pool) }) },
  { keys: ["t"], label: "t", what: "switch between what the token attends to and what attends to it", run: () => choose({ direction: nextOf({ to: 1, from: 1 }, state.direction) }) },
  { keys: ["m"], label: "m", what: "light or dark theme", run: () => otherTheme() },
  { keys: ["Escape"], label: "Esc", what: "clear the chosen key and the additional rows", run: () => choose({ key: null, pins: [] }) },
  { keys: ["?"], label: "?", what: "this help", run: () => help() },
);

/** The next head of the call; after a mean its first one, before it the last. */
const nextHead = (by) => choose({ head: (isMean(state.head) ? (by > 0 ? -1 : callNow().heads) : state.head) + by });

function otherTheme() {
  chosenTheme = theme() === "dark" ? "light" : "dark";
  return redraw();
}

function help() {
  const lines = keys.map(({ label, what }) => element("li", undefined, {}, element("span", undefined, {}, ...label.split(" ").map((name) => element("kbd", name))), element("span", what)));
  const close = button("close", () => $("keys").close());
  $("keys").replaceChildren(element("div", undefined, { className: "bar" }, element("h2", "Keyboard shortcuts", { id: "keys-title" }), close), element("ul", undefined, {}, ...lines));
  $("keys").showModal();
}

/** Whether the focused element handles keys itself. */
const typing = (node) => Boolean(node.closest?.("select, textarea, dialog, [contenteditable]") || (node.matches?.("input") && node.type !== "checkbox"));

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
  const found = keys.find((each) => each.keys.includes(event.key));
  if (!found) return;
  event.preventDefault();
  found.run(event);
});
for (const screen of screens) screen.build?.();
$("settings").append(button("light / dark", otherTheme, { id: "theme" }), button("keyboard shortcuts", help, { id: "help" }));
addEventListener("hashchange", () => { if (location.hash !== address()) choose({ view: null, key: null, pins: [], ...readAddress(location.hash) }); });
dark.addEventListener("change", redraw);
addEventListener("resize", () => drawScreens(new Set(["size"])));
Object.assign(state, { ...readAddress(location.hash) });
choose({}).then(redraw).then(() => {
  performance.mark("ready");
  document.documentElement.dataset.ready = "yes";
});
