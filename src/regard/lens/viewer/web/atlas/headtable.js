// The table of all heads, as an accessible alternative to the overview of heads, and for copying.

const headTable = {
  most: 2000, // rows on the page; the copied text has all of them
  by: "order", falling: true,

  turn() {
    const shown = $("atlas-table").hidden;
    $("atlas-table").hidden = !shown;
    $("atlas-box").hidden = shown;
    $("atlas-as-table").ariaPressed = String(shown);
    this.draw();
  },

  names: () => Object.keys(METRICS).filter((name) => name !== "matrix"),

  /** The heads in the order of the table. */
  heads() {
    const all = metrics.all();
    if (this.by === "order") return all;
    const value = ([call, head]) => metrics.value(this.by, call, head) ?? -Infinity;
    return all.sort((a, b) => (this.falling ? 1 : -1) * (value(b) - value(a)));
  },

  draw() {
    if ($("atlas-table").hidden) return;
    const heads = this.heads();
    const head = (name, title) => {
      const button = element("button", title, { type: "button", onclick: () => this.sort(name) });
      return element("th", undefined, { scope: "col", ariaSort: this.by !== name ? "none" : this.falling && name !== "order" ? "descending" : "ascending" }, button);
    };
    const lines = heads.slice(0, this.most).map(([call, at]) => element("tr", undefined, {},
      element("th", undefined, { scope: "row" }, element("button", `${callTitle(call)}, head ${at}`, { type: "button", onclick: () => choose({ call, head: at }) })),
      ...this.names().map((name) => element("td", metrics.said(name, call, at)))));
    const table = element("table", undefined, {}, element("thead", undefined, {}, element("tr", undefined, {}, head("order", "head"), ...this.names().map((name) => head(name, METRICS[name].title)))), element("tbody", undefined, {}, ...lines));
    const count = heads.length > this.most ? `the first ${this.most} of ${heads.length} heads` : counted(heads.length, "head");
    $("atlas-table").replaceChildren(
      element("div", undefined, { className: "bar" }, element("p", count, { className: "note" }), element("button", "copy the table", { type: "button", id: "copy-table", onclick: () => copy(this.text(), "The table") })),
      element("div", undefined, { className: "scroll", tabIndex: 0, role: "region", ariaLabel: "The figures of all heads" }, table));
  },

  sort(name) {
    Object.assign(this, { falling: this.by === name ? !this.falling : true, by: name });
    this.draw();
    $("atlas-table").querySelector("th[aria-sort='ascending'] button, th[aria-sort='descending'] button")?.focus();
  },

  /** The table as tab-separated text with full precision; names of calls are escaped so that spreadsheets read no formulas. */
  text() {
    const plain = (name) => (/^[=+@-]/.test(name) ? `'${name}` : name);
    const lines = this.heads().map(([call, head]) => [plain(callTitle(call)), head, ...this.names().map((name) => metrics.value(name, call, head) ?? "")]);
    return [["call", "head", ...this.names()], ...lines].map((line) => line.join("\t")).join("\n");
  },
};
