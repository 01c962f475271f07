// An image instead of a text, or beside it: its patches, each on the color of its weight, over the image that they were cut from.

const patches = {
  strength: 65, of: null, image: null,

  build(box, pick) {
    this.chips = element("div", null, { className: "chips" });
    this.canvas = element("canvas", null, { ariaHidden: "true" });
    this.grid = element("div", null, { id: "patches-grid", tabIndex: 0, role: "listbox", ariaLabel: "The image in patches, colored by the weights", ariaMultiSelectable: "true" });
    this.box = element("div", null, { className: "image-box" }, this.canvas, this.grid);
    this.label = slider("weights over the image", { min: 0, max: 100, step: 1, value: this.strength, text: (value) => `${value} %` }, (value) => {
      this.strength = value;
      this.paint();
    });
    box.append(this.chips, this.box, this.label);
    for (const part of [this.chips, this.grid]) part.addEventListener("click", (event) => { if (event.target.dataset.token) pick(Number(event.target.dataset.token), event); });
    this.grid.addEventListener("pointerover", (event) => reader.hover(event.target.closest("[data-token]"), reader.main));
    this.grid.addEventListener("pointerleave", () => reader.say());
    this.grid.addEventListener("keydown", (event) => reader.key(event, this));
  },

  /** The patch so many rows below, or columns to the right, or the next one in its row: as the words of a text. */
  moved(i, down, right) {
    const places = placesOf(this.of.patches), { row, column } = places.get(i) ?? places.get(this.tokens[0]);
    const to = clamp(row + down, 0, this.of.patches.grid[0] - 1), far = (j) => Math.abs(places.get(j).column - column - right);
    return this.tokens.filter((j) => places.get(j).row === to).reduce((best, j) => (far(j) < far(best) ? j : best));
  },
  vertical(i, by) { return this.moved(i, by, 0); },
  beside(i, by) { return this.moved(i, 0, by); },

  async show(line) {
    this.line = line;
    if (line.of !== this.of) await this.lay(line.of);
    this.paint();
  },

  /** Creates the patches of an axis. */
  async lay(of) {
    this.of = of;
    this.tokens = of.patches.places;
    this.image = null;
    if (of.patches.image) {
      this.image = new Image();
      this.image.src = of.patches.image;
      await this.image.decode();
    }
    const [high, wide] = of.patches.grid;
    const alone = of.tokens.flatMap((_, i) => (of.grid && of.special[i] ? [i] : [])); // in a text, they are among the words
    this.chips.replaceChildren(...alone.map((i) => button(wordOf(of, i, 20), null, { className: "token special" })));
    alone.forEach((i, at) => { this.chips.children[at].dataset.token = i; });
    this.grid.replaceChildren(...this.tokens.map((i) => {
      const { row, column } = placesOf(of.patches).get(i);
      const made = element("span", null, { id: `patch-${i}`, className: "patch", role: "option", style: `grid-area:${row + 1}/${column + 1}` });
      made.dataset.token = i;
      return made;
    }));
    const ratio = this.image ? this.image.naturalHeight / this.image.naturalWidth : high / wide;
    Object.assign(this.box.style, { aspectRatio: `${1 / ratio}`, maxWidth: `${70 / ratio}vh` });
    Object.assign(this.grid.style, { gridTemplate: `repeat(${high}, 1fr) / repeat(${wide}, 1fr)` });
    this.label.hidden = this.canvas.hidden = !this.image;
  },

  paint() {
    const { line, image } = this;
    if (image) {
      Object.assign(this.canvas, { width: image.naturalWidth, height: image.naturalHeight });
      this.canvas.getContext("2d").drawImage(image, 0, 0);
    }
    for (const chip of this.chips.children) reader.paint(chip, Number(chip.dataset.token));
    for (const node of this.grid.children) {
      const i = Number(node.dataset.token);
      ground(node, line, i, state.scale, image ? this.strength / 100 : 1);
      reader.mark(node, i, { of: line.of, box: this.grid });
    }
  },
};
