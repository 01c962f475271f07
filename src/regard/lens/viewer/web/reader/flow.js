// The text of an axis with its own line breaking and virtual scrolling: only visible lines are in the document.

class Flow {
  static line = 27; // pixels from line to line
  static characters = 80; // the most characters of a token that are shown
  static padding = 3; // pixels beside a token
  static space = 5; // pixels before a token that follows a space

  /** paint(node, i) styles a token; pick(i, event) handles a click. */
  constructor(box, paint, pick) {
    Object.assign(this, { box, paint, of: null, starts: new Int32Array(1), width: 0, top: 0 });
    this.lines = new Lines(box, Flow.line, (number) => this.line(number));
    box.addEventListener("click", (event) => {
      const node = event.target.closest("[data-token]");
      if (node) pick(Number(node.dataset.token), event);
    });
    box.addEventListener("mousedown", (event) => { if (event.shiftKey) event.preventDefault(); }); // prevents text selection
    box.addEventListener("scroll", () => this.keep(), { passive: true });
    new ResizeObserver(() => this.fit()).observe(box);
  }

  /** Shows an axis; breaks the lines again if the axis or the width has changed. */
  show(of, name) {
    const width = this.box.clientWidth;
    if (of !== this.of || width !== this.width) {
      Object.assign(this, { of, name, width });
      this.starts = this.broken(width - 14 - this.gutter());
      this.box.setAttribute("aria-label", name);
    }
    this.lines.reset(this.starts.length - 1);
  }

  /** Breaks the lines again if the width has changed, and restores the scroll position. */
  fit() {
    if (!this.of || !this.box.clientWidth) return;
    const { top } = this;
    if (this.box.clientWidth !== this.width) this.show(this.of, this.name);
    this.box.scrollTop = this.lineOf(top) * Flow.line;
    this.lines.draw();
  }

  /** The width of the margin with the position of the first token of each line, for long texts. */
  gutter() { return this.of.tokens.length > 300 ? 46 : 0; }

  /** The first tokens of all lines: filled greedily, and broken at line breaks of the text. */
  broken(room) {
    const context = (this.canvas ??= document.createElement("canvas")).getContext("2d");
    const { fontSize, fontFamily } = getComputedStyle(this.box);
    context.font = `${fontSize} ${fontFamily}`;
    const widths = new Map();
    const { tokens, gap, special } = this.of;
    const starts = [0];
    let used = 0;
    for (let i = 0; i < tokens.length; i++) {
      const shown = clip(tokens[i], Flow.characters);
      let width = widths.get(shown);
      if (width === undefined) widths.set(shown, (width = Math.min(room, context.measureText(shown).width + 2 * Flow.padding)));
      const before = used && gap[i] ? Flow.space : 0;
      if (used && used + before + width > room) {
        starts.push(i);
        used = width;
      } else used += before + width;
      if (tokens[i].includes("⏎") && !special[i] && i + 1 < tokens.length) {
        if (/⏎.*⏎/.test(tokens[i])) starts.push(i + 1); // an empty line
        starts.push(i + 1);
        used = 0;
      }
    }
    return Int32Array.from([...starts, tokens.length]);
  }

  line(number) {
    const node = element("div", null, { className: "line" });
    node.setAttribute("role", "presentation");
    const [first, last] = [this.starts[number], this.starts[number + 1]];
    if (this.gutter() && last > first) node.append(element("i", first, { className: "position", ariaHidden: "true" }));
    node.classList.toggle("numbered", this.gutter() > 0);
    for (let i = first; i < last; i++) {
      const token = element("span", clip(wordOf(this.of, i), Flow.characters), { className: "token", id: `${this.box.id}-${i}` });
      token.dataset.token = i;
      token.setAttribute("role", "option");
      token.setAttribute("aria-setsize", this.of.tokens.length);
      token.setAttribute("aria-posinset", i + 1);
      token.classList.toggle("gap", this.of.gap[i] && i > first);
      token.classList.toggle("special", this.of.special[i]);
      this.paint(token, i);
      node.append(token);
    }
    return node;
  }

  /** The line that contains a token. */
  lineOf(i) {
    let [low, high] = [0, this.starts.length - 2];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.starts[middle] <= i) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  reveal(i) {
    this.lines.reveal(this.lineOf(i));
    this.keep();
  }
  /** Remembers the first visible token; a hidden element would report scroll position 0. */
  keep() { if (this.box.clientHeight) this.top = this.starts[Math.round(this.box.scrollTop / Flow.line)] ?? 0; }

  /** The token `by` lines further, at about the same place in its line. */
  vertical(i, by) {
    const line = this.lineOf(i);
    const [from, to] = [line, clamp(line + by, 0, this.starts.length - 2)];
    return clamp(this.starts[to] + i - this.starts[from], this.starts[to], Math.max(this.starts[to], this.starts[to + 1] - 1));
  }
}
