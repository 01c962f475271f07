// The stream: by how much a measure changes where one token has, after a block, the residual stream of another text.

const streamGrid = {
  name: "stream",

  draw(changed) {
    if (!["run", "theme"].some((name) => changed.has(name))) return;
    const { effects } = runs[state.run].facts;
    $("stream").hidden = effects?.of !== "stream";
    if ($("stream").hidden) return;
    const { layers, tokens, values, measure } = effects;
    const most = Math.max(...values.flat().map(Math.abs)) || 1;
    const head = (text, scope, title) => element("th", undefined, { scope, title }, element("bdi", text));
    const rows = tokens.map((token, at) => element("tr", undefined, {}, head(token, "row", `token ${at}`), ...values.map((row) => this.cell(row[at], most))));
    const names = layers.map((name) => head(name.match(/\d+/g)?.at(-1) ?? name, "col", name));
    const table = element("table", undefined, {}, element("caption", `By how much ${measure} changes where a token has the residual stream of the source after a block (columns). Colors end at ${most.toPrecision(3)}.`),
      element("thead", undefined, {}, element("tr", undefined, {}, head("after block", "col"), ...names)), element("tbody", undefined, {}, ...rows));
    $("stream").replaceChildren(element("h2", "Patching", { id: "stream-title" }), element("div", undefined, { className: "stream-table", tabIndex: 0, role: "region", ariaLabel: "Patching by token and block" }, table));
  },

  /** A cell with its number on the color of the number; empty if it is not known. */
  cell(value, most) {
    if (value === null) return element("td", "");
    const at = Math.round(127.5 * (1 + value / most));
    return element("td", Math.abs(value) < most / 1000 ? "0" : value.toPrecision(2), { style: `background:${color(at, "lift")};color:${ink(at, "lift")}` });
  },
};
screens.push(streamGrid);
