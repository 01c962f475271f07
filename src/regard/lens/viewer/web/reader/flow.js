// The text of an axis with its own line breaking and virtual scrolling: only visible lines are in the document.

/** What a causal model expected at a position of its text: [token, probability]; undefined where that is not known. */
const expectedOf = (of, i) => (of === axis("text") ? runs[state.run].facts.expected?.[i - 1] : undefined);

class Flow {
  static line = { plain: 27, expecting: 42 }; // pixels from line to line, without and with what was expected under each token
  static narrowest = 34; // pixels of a token above what was expected
  static characters = 80; // the most characters of a token that are shown
  static padding = 3; // pixels beside a token
  static space = 5; // pixels before a token that follows a space

  /** paint(node, i) styles a token; pick(i, event) handles a click. */
  constructor(box, paint, pick) {
    Object.assign(this, { box, paint, of: null, starts: new Int32Array(1), width: 0, top: 0, widths: new Map(), pen: document.createElement("canvas").getContext("2d") });
    this.lines = new Lines(box, Flow.line.plain, (number) => this.line(number));
    box.addEventListener("click", (event) => {
      const node = event.target.closest("[data-token]");
      if (node) pick(Number(node.dataset.token), event);
    });
    box.addEventListener("mousedown", (event) => { if (event.shiftKey) event.preventDefault(); }); // prevents text selection
    box.addEventListener("scroll", () => this.keep(), { passive: true });
    // The width is read only when it has changed, since reading it triggers layout.
    new ResizeObserver(() => { this.room = box.clientWidth; this.fit(); }).observe(box);
  }

  /** Shows an axis; breaks the lines again if the axis or the width has changed. */
  show(of, name) {
    this.room ??= this.box.clientWidth;
    const width = this.room;
    if (of !== this.of || width !== this.width) {
      Object.assign(this, { of, name, width, running: of.tokens.some((token) => RIGHT_TO_LEFT.test(token)) });
      this.expecting = Boolean(expectedOf(of, 1)) && !this.running;
      this.box.classList.toggle("running", this.running);
      this.box.classList.toggle("expecting", this.expecting);
      this.lines.height = Flow.line[this.expecting ? "expecting" : "plain"];
      const { fontSize, fontFamily } = getComputedStyle(this.box);
      this.pen.font = `${fontSize} ${fontFamily}`;
      this.widths.clear();
      this.starts = this.broken(width - 14 - this.gutter());
      this.box.setAttribute("aria-label", name);
    }
    this.lines.reset(this.starts.length - 1);
  }

  /** Breaks the lines again if the width has changed, and restores the scroll position. */
  fit() {
    if (!this.of || !this.room) return;
    const { top } = this;
    if (this.room !== this.width) this.show(this.of, this.name);
    this.lines.scroll(this.lineOf(top) * this.lines.height);
  }

  /** The width of the margin with the position of the first token of each line, for long texts. */
  gutter() { return this.of.tokens.length > 300 ? 46 : 0; }

  /** The first tokens of all lines: filled greedily, broken at line breaks of the text, and inside a word only if it is too long. */
  broken(room) {
    const { tokens, special } = this.of;
    const starts = [0];
    this.rtl = new Uint8Array(tokens.length); // the tokens of paragraphs that read from right to left
    let used = 0, paragraph = 0;
    for (let i = 0, next; i < tokens.length; i = next) {
      for (next = i + 1; next < tokens.length && !this.of.gap[next] && !this.breaks(next - 1); next++);
      const whole = this.wide(i, next, room);
      for (let at = i, part = whole > room ? 1 : next - i; at < next; at += part) {
        const width = part === 1 ? this.wide(at, at + 1, room) : whole;
        const before = used && this.of.gap[at] ? Flow.space : 0;
        if (used && used + before + width > room) {
          starts.push(at);
          used = width;
        } else used += before + width;
      }
      if (this.breaks(next - 1) && next < tokens.length) {
        if (/⏎.*⏎/.test(tokens[next - 1])) starts.push(next); // an empty line
        starts.push(next);
        used = 0;
      }
      if (!this.running || (!this.breaks(next - 1) && next < tokens.length)) continue;
      const words = tokens.slice(paragraph, next).filter((_, at) => !special[paragraph + at]).join("");
      this.rtl.fill(Number(directionOf(words) === "rtl"), paragraph, next);
      paragraph = next;
    }
    return Int32Array.from([...starts, tokens.length]);
  }

  breaks(i) { return this.of.tokens[i].includes("⏎") && !this.of.special[i]; }

  /** The width of some tokens of a word, at most that of the line; characters that join are measured together. */
  wide(first, last, room) {
    if (this.running) return Math.min(last - first > 1 ? Infinity : room, this.measured(Array.from({ length: last - first }, (_, at) => this.word(first + at)).join("")));
    let sum = 0;
    for (let i = first; i < last; i++) sum += Math.min(room, this.measured(this.word(i)));
    return sum;
  }
  word(i) { return patchOf(this.of, i) ? "▦" : wordOf(this.of, i, Flow.characters); }

  /** The width of a text with its padding. */
  measured(text) {
    const known = this.widths.get(text);
    if (known !== undefined) return known;
    const width = Math.max(this.expecting ? Flow.narrowest : 0, this.pen.measureText(text).width + 2 * Flow.padding);
    this.widths.set(text, width);
    return width;
  }

  line(number) {
    const node = element("div", null, { className: "line", role: "presentation" });
    const [first, last] = [this.starts[number], this.starts[number + 1]];
    if (this.gutter() && last > first) node.append(element("i", first, { className: "position", ariaHidden: "true" }));
    node.classList.toggle("numbered", this.gutter() > 0);
    if (this.running) node.dir = this.rtl[first] ? "rtl" : "ltr";
    for (let i = first; i < last; i++) {
      const token = this.token(i);
      const gap = this.of.gap[i] && i > first;
      token.classList.toggle("gap", gap && !this.running);
      if (this.running) {
        if (gap) node.append(" ");
        this.run(token, i, i === first || this.of.gap[i], i + 1 === last || this.of.gap[i + 1]);
      }
      this.paint(token, i);
      node.append(token);
    }
    return node;
  }

  /** A token as text. Of a long word that the vocabulary lacks, fewer characters are shown, so that what the model saw fits as well. */
  text(i) {
    const whole = this.word(i), room = this.width - 14 - this.gutter();
    if (!this.of.unknown?.[i] || this.measured(whole) <= room) return whole;
    let most = Flow.characters;
    while (most > 2 && this.measured(wordOf(this.of, i, most)) > room) most--;
    return wordOf(this.of, i, most);
  }

  token(i) {
    const option = { role: "option", ariaSetSize: String(this.of.tokens.length), ariaPosInSet: String(i + 1) };
    const token = element("span", this.text(i), { className: "token", id: `${this.box.id}-${i}`, title: remark(this.of, i), ...option });
    token.dataset.token = i;
    const expected = expectedOf(this.of, i);
    if (this.expecting && expected) Object.assign(token.dataset, { expected: expected[0].trim() || "␣", met: expected[0].trim() === this.of.tokens[i].trim() });
    token.classList.toggle("special", this.of.special[i]);
    return token;
  }

  /** A token of a line in which characters join: an inline box without space inside a word. Others are alone: they are not part of one. */
  run(token, i, first, last) {
    const rtl = RIGHT_TO_LEFT.test(this.of.tokens[i]);
    const alone = this.of.special[i] || remark(this.of, i) || this.measured(token.textContent) > this.width - 14 - this.gutter();
    for (const [name, on] of Object.entries({ first, last, rtl, alone })) token.classList.toggle(name, Boolean(on));
    if (rtl && !alone) token.style.direction = "rtl"; // for the sides of its box: the order of the text is that of its line
  }

  /** The line that contains a token. */
  lineOf(i) { return lastWhere(this.starts.length - 2, (line) => this.starts[line] <= i); }

  reveal(i) {
    this.lines.reveal(this.lineOf(i));
    this.keep();
  }
  /** Remembers the first visible token; a hidden element would report scroll position 0. */
  keep() { if (this.box.clientHeight) this.top = this.starts[Math.round(this.box.scrollTop / this.lines.height)] ?? 0; }

  /** The token `by` lines further, at about the same place in its line. */
  vertical(i, by) {
    const line = this.lineOf(i);
    const [from, to] = [line, clamp(line + by, 0, this.starts.length - 2)];
    return clamp(this.starts[to] + i - this.starts[from], this.starts[to], Math.max(this.starts[to], this.starts[to + 1] - 1));
  }
  /** The token beside one on the screen, to the left (−1) or to the right (1). */
  beside(i, by) {
    if (!this.running) return i + by;
    const number = this.lineOf(i);
    this.reveal(i);
    const order = this.order(number);
    const found = order[order.indexOf(i) + by];
    if (found !== undefined) return found;
    const onward = number + (this.rtl[i] ? -by : by); // beyond the end of a line
    if (onward < 0 || onward >= this.starts.length - 1) return i;
    this.lines.reveal(onward);
    return this.order(onward).at(by > 0 ? 0 : -1) ?? i;
  }

  /** The tokens of a line that is on the screen, from left to right. */
  order(number) {
    const nodes = [...(this.lines.shown.get(number)?.querySelectorAll("[data-token]") ?? [])];
    return nodes.map((node) => [node.getBoundingClientRect().left, Number(node.dataset.token)]).sort((a, b) => a[0] - b[0] || a[1] - b[1]).map(([, token]) => token);
  }
}
