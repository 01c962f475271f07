// The text of an axis: tokens in blocks, which are filled when they come near the part of the text that is in sight.

/** What a causal model expected at a position of its text: [token, probability]; undefined where that is not known. */
const expectedOf = (of, i) => (of === axis("text") ? runs[state.run].facts.expected?.[i - 1] : undefined);

class Flow {
  static line = 27; // pixels from line to line
  static short = 300; // tokens: longer texts are cut into blocks, also inside a paragraph
  static block = 40; // tokens; of a word of more, a few more
  static characters = { known: 80, unknown: 20 }; // the most characters of a token that are shown

  /** paint(node, i) styles a token; pick(i, event) handles a click. */
  constructor(box, paint, pick) {
    Object.assign(this, { box, paint, of: null, blocks: [] });
    box.addEventListener("click", (event) => {
      const node = event.target.closest("[data-token]");
      if (node) pick(Number(node.dataset.token), event);
    });
    box.addEventListener("mousedown", (event) => { if (event.shiftKey) event.preventDefault(); }); // prevents text selection
    this.watcher = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        const block = this.blocks.find(({ node }) => node === target);
        if (!block) continue; // of the text before
        block.near = isIntersecting;
        if (isIntersecting) this.fill(block);
      }
    }, { root: box, rootMargin: "100px" });
  }

  /** Shows an axis; paints the tokens near the part in sight. */
  show(of, name) {
    if (of !== this.of) this.build(of);
    this.box.setAttribute("aria-label", name);
    for (const block of this.blocks) {
      block.stale = true;
      if (block.near) this.fill(block);
    }
  }

  build(of) {
    const { tokens, gap } = of;
    Object.assign(this, { of, blocks: [], running: tokens.some((token) => RIGHT_TO_LEFT.test(token)) });
    this.expecting = Boolean(expectedOf(of, 1)) && !this.running;
    this.box.classList.toggle("running", this.running);
    this.box.classList.toggle("expecting", this.expecting);
    this.box.classList.toggle("numbered", tokens.length > Flow.short);
    this.watcher.disconnect();
    const across = (this.box.clientWidth || 400) / 9; // characters of a line, about
    for (let from = 0, to = 1, long = 0; to <= tokens.length; to++) {
      long += tokens[to - 1].length + 1;
      const full = tokens.length > Flow.short && to - from >= (gap[to] ? 1 : 1.25) * Flow.block;
      if (to < tokens.length && !full && !this.breaks(to - 1)) continue;
      const node = element("div", null, { className: "block", role: "presentation", style: `min-height:${Math.ceil(long / across) * Flow.line}px` });
      node.classList.toggle("apart", /⏎.*⏎/.test(tokens[to - 1])); // an empty line follows
      this.blocks.push({ node, from, to, near: from === 0 && this.box.checkVisibility(), stale: true });
      [from, long] = [to, 0];
    }
    this.box.replaceChildren(...this.blocks.map(({ node }) => node));
    for (const { node } of this.blocks) this.watcher.observe(node);
  }

  breaks(i) { return this.of.tokens[i].includes("⏎") && !this.of.special[i]; }

  /** Creates the tokens of a block, if it has none, and paints them, if they have changed. */
  fill(block) {
    const { node, from, to } = block, { tokens, gap, special } = this.of;
    if (!node.childElementCount) {
      node.style.minHeight = "";
      if (tokens.length > Flow.short) node.append(element("i", from, { className: "position", ariaHidden: "true" }));
      if (this.running) node.dir = directionOf(tokens.slice(from, to).filter((_, at) => !special[from + at]).join(""));
      for (let i = from; i < to; i++) {
        const begins = i === from || gap[i], token = this.token(i);
        if (this.running && begins && i > from) node.append(" ");
        if (this.running) this.run(token, i, begins, i + 1 === to || gap[i + 1]);
        else if (begins) node.append(element("span", null, { className: "word", role: "presentation" }));
        (this.running ? node : node.lastChild).append(token);
      }
    }
    if (block.stale) for (const token of node.querySelectorAll("[data-token]")) this.paint(token, Number(token.dataset.token));
    block.stale = false;
  }

  token(i) {
    const most = Flow.characters[this.of.unknown?.[i] ? "unknown" : "known"];
    const token = element("span", patchOf(this.of, i) ? "▦" : wordOf(this.of, i, most), { className: "token", id: `${this.box.id}-${i}`, title: remark(this.of, i), role: "option" });
    Object.assign(token, { ariaSetSize: String(this.of.tokens.length), ariaPosInSet: String(i + 1) });
    token.dataset.token = i;
    const expected = expectedOf(this.of, i);
    if (this.expecting && expected) Object.assign(token.dataset, { expected: expected[0].trim() || "␣", met: expected[0].trim() === this.of.tokens[i].trim() });
    token.classList.toggle("special", this.of.special[i]);
    return token;
  }

  /** A token of a text in which characters join: an inline box without space inside a word. Others are alone: they are not part of one. */
  run(token, i, first, last) {
    const rtl = RIGHT_TO_LEFT.test(this.of.tokens[i]), alone = this.of.special[i] || remark(this.of, i);
    for (const [name, on] of Object.entries({ first, last, rtl, alone })) token.classList.toggle(name, Boolean(on));
    if (rtl && !alone) token.style.direction = "rtl"; // for the sides of its box: the order of the text is that of its line
  }

  blockOf(i) { return this.blocks.findIndex(({ to }) => i < to); }

  /** Scrolls to a token, if it is not in sight. */
  reveal(i) {
    if (!this.box.checkVisibility()) return;
    const at = this.blockOf(i);
    for (const block of this.blocks.slice(Math.max(0, at - 2), at + 2)) this.fill(block); // what comes into sight has its height before it is scrolled to
    const token = $(`${this.box.id}-${i}`).getBoundingClientRect(), box = this.box.getBoundingClientRect();
    if (token.top < box.top || token.bottom > box.bottom) this.box.scrollTop += (token.top + token.bottom - box.top - box.bottom) / 2;
  }

  /** The tokens around one on the screen: {i, x, line}, the middle of each, and by how many lines it is below. */
  around(i) {
    const at = this.blockOf(i), near = this.blocks.slice(Math.max(0, at - 1), at + 2);
    for (const block of near) this.fill(block);
    const middle = (node) => { const { left, right, top, bottom } = node.getBoundingClientRect(); return { x: (left + right) / 2, y: (top + bottom) / 2 }; };
    const { y } = middle($(`${this.box.id}-${i}`)), high = Flow.line + (this.expecting ? 15 : 0);
    return near.flatMap(({ node }) => [...node.querySelectorAll("[data-token]")]).map((node) => ({ i: Number(node.dataset.token), x: middle(node).x, line: Math.round((middle(node).y - y) / high) }));
  }

  /** The token so many lines below, at about the same place in its line. */
  vertical(i, by) {
    const around = this.around(i), own = around.find((each) => each.i === i);
    const far = ({ x, line }) => 1e5 * Math.abs(line - by) + Math.abs(x - own.x);
    return around.reduce((best, each) => (far(each) < far(best) ? each : best)).i;
  }

  /** The token beside one on the screen, to the left (−1) or to the right (1); beyond the end of a line, that of the next one, or the one before. */
  beside(i, by) {
    if (!this.running) return i + by;
    const around = this.around(i).sort((a, b) => a.x - b.x), line = (number) => around.filter((each) => each.line === number);
    const own = line(0), next = own[own.findIndex((each) => each.i === i) + by];
    const rtl = this.blocks[this.blockOf(i)].node.dir === "rtl";
    return (next ?? line(rtl ? -by : by).at(by > 0 ? 0 : -1))?.i ?? i;
  }
}
