// Search in the text: a word or a position, the next and the previous match.

const find = {
  hits: [], at: -1, went: false, marked: new Set(),

  short: 150, // tokens: shorter texts have a search field only after the key /

  build(box) {
    this.box = box;
    const label = "Search the text, or go to a position: Enter for the next match, Shift+Enter for the previous";
    this.input = element("input", null, { type: "search", id: "find", placeholder: "search or position", autocomplete: "off", spellcheck: false, dir: "auto", ariaLabel: label });
    this.count = element("span", "", { className: "note", id: "find-count", ariaLive: "polite" });
    box.append(this.input, tool("↑", "previous match", () => this.go(-1)), tool("↓", "next match", () => this.go(1)), this.count);
    this.input.addEventListener("input", () => this.search());
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.go(event.shiftKey ? -1 : 1);
      else if (event.key === "Escape") {
        this.input.value = "";
        this.search();
        this.input.blur();
      } else return;
      event.preventDefault();
    });
  },

  /** Matches belong to one axis: they are cleared when the axis changes. */
  on(of) {
    if (this.of === of) return;
    Object.assign(this, { of, hits: [], at: -1, went: false, marked: new Set() });
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
    const { tokens, gap, special } = reader.main.of;
    const sought = this.input.value.trim().toLowerCase().replace(/\s+/g, " ");
    Object.assign(this, { hits: [], at: -1, went: false });
    const position = /^\d+$/.test(sought) && Number(sought) < tokens.length;
    if (position) this.hits.push(Number(sought));
    if (sought) {
      // The text with the offset of every token, so that a match may span several tokens.
      const starts = new Int32Array(tokens.length + 1);
      const parts = [];
      let length = 0;
      for (let i = 0; i < tokens.length; i++) {
        if (i && gap[i]) { parts.push(" "); length++; }
        starts[i] = length;
        const word = (special[i] ? tokens[i] : tokens[i].replaceAll("␣", " ").replaceAll("⏎", " ")).toLowerCase();
        parts.push(word);
        length += word.length;
      }
      starts[tokens.length] = length;
      const text = parts.join("");
      for (let from = text.indexOf(sought), i = 0; from >= 0; from = text.indexOf(sought, from + 1)) {
        while (starts[i + 1] <= from) i++;
        if (this.hits.at(-1) !== i) this.hits.push(i);
      }
    }
    this.marked = new Set(this.hits);
    this.count.textContent = !sought ? "" : this.hits.length ? `${this.hits.length.toLocaleString("en")} found` : "not found";
    reader.main.show(reader.main.of, reader.main.name);
    if (this.hits.length) this.reveal(position ? 0 : this.after());
  },

  /** The first match at or after the chosen token. */
  after() { return Math.max(0, this.hits.findIndex((hit) => hit >= reader.here())); },
  reveal(at) {
    this.at = at;
    reader.main.reveal(this.hits[at]);
    reader.main.lines.reset(reader.main.lines.count);
    this.count.textContent = `${(at + 1).toLocaleString("en")} of ${this.hits.length.toLocaleString("en")}`;
  },

  /** Chooses the next match. */
  go(by) {
    if (!this.hits.length) return undefined;
    const fresh = this.at < 0 || !this.went;
    this.reveal(fresh && by > 0 ? Math.max(0, this.at) : round(this.at + by, this.hits.length));
    this.went = true;
    return reader.pick(reader.main, this.hits[this.at]);
  },
};
