// Search in the text: a word or a position, the next and the previous match.

const find = {
  hits: [], at: 0, marked: new Set(),

  short: 150, // tokens: shorter texts have a search field only after the key /

  build(box) {
    this.box = box;
    const label = "Search the text, or go to a position: Enter for the next match, Shift+Enter for the previous";
    this.input = element("input", null, { type: "search", id: "find", placeholder: "search or position", autocomplete: "off", spellcheck: false, dir: "auto", ariaLabel: label });
    this.count = element("span", "", { className: "note", id: "find-count", ariaLive: "polite" });
    box.append(this.input, tool("↓", "next match", () => this.go(1)), this.count);
    this.input.addEventListener("input", () => this.search());
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.go(event.shiftKey ? -1 : 1);
      if (event.key !== "Escape") return;
      this.input.value = "";
      this.search();
      this.input.blur();
    });
  },

  /** Matches belong to one axis: they are cleared when the axis changes. */
  on(of) {
    if (this.of === of) return;
    Object.assign(this, { of, hits: [], marked: new Set() });
    this.box.hidden = of.tokens.length < this.short || Boolean(of.grid);
    this.count.textContent = "";
  },

  open() {
    this.box.hidden = false;
    this.input.focus();
    this.input.select();
  },

  /** Finds the tokens at which a match begins; a match may span several tokens. */
  search() {
    const { tokens, gap, special } = this.of;
    const sought = this.input.value.trim().toLowerCase().replace(/\s+/g, " ");
    const starts = []; // the offset of every token in the text
    let length = 0;
    const text = tokens.map((token, i) => {
      const space = i > 0 && gap[i] ? " " : "";
      const part = `${space}${special[i] ? token : token.replaceAll("␣", " ").replaceAll("⏎", " ")}`.toLowerCase();
      starts.push(length + space.length);
      length += part.length;
      return part;
    }).join("");
    const position = /^\d+$/.test(sought) && Number(sought) < tokens.length;
    this.marked = new Set(position ? [Number(sought)] : []);
    for (let from = sought ? text.indexOf(sought) : -1, i = 0; from >= 0; from = text.indexOf(sought, from + 1)) {
      while (starts[i + 1] <= from) i++;
      this.marked.add(i);
    }
    this.hits = [...this.marked];
    this.count.textContent = sought && !this.hits.length ? "not found" : "";
    reader.main.show(this.of, reader.main.name);
    if (this.hits.length) this.reveal(position ? 0 : Math.max(0, this.hits.findIndex((hit) => hit >= reader.here())));
  },

  reveal(at) {
    this.at = at;
    reader.main.reveal(this.hits[at]);
    this.count.textContent = `${(at + 1).toLocaleString("en")} of ${this.hits.length.toLocaleString("en")}`;
  },

  /** Chooses the match that was found, then the next one or the one before. */
  go(by) {
    if (!this.hits.length) return undefined;
    if (by < 0 || reader.here() === this.hits[this.at]) this.reveal(round(this.at + by, this.hits.length));
    return reader.pick(reader.main, this.hits[this.at]);
  },
};
